//! Keys made ahead of need, so that answering a SYN costs no hashing and no search for a free token.
//!
//! Owns keys that nobody has seen yet. A key leaves the pool once and never comes back.

use alloc::collections::VecDeque;

use manypath_wire::ids::{Key, Token};

use super::keys::KeyMaterial;
use super::rng::Rng;

/// Which tokens belong to this stack.
///
/// With one stack for each worker thread, some bits of the token name the worker, so that an MP_JOIN finds its home.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenHome {
    /// The bits that name the worker; at most eight of them can be set before making keys becomes slow.
    pub mask: u32,
    /// What these bits must be.
    pub value: u32,
}

impl TokenHome {
    /// Every token.
    pub const ANY: Self = Self { mask: 0, value: 0 };

    /// Whether a token belongs here.
    pub fn owns(self, token: Token) -> bool {
        token.0 & self.mask == self.value & self.mask
    }
}

/// Keys made ahead.
#[derive(Debug)]
pub struct KeyPool {
    ready: VecDeque<KeyMaterial>,
    capacity: usize,
    home: TokenHome,
}

impl KeyPool {
    /// How many keys are tried when one is needed and none is ready: enough to fail never in practice, yet bounded
    /// for a stack whose tokens are nearly all taken or a generator that is broken.
    const TRIES: usize = 4096;

    /// An empty pool that [`KeyPool::refill`] fills up to `capacity` keys.
    pub fn new(capacity: usize, home: TokenHome) -> Self {
        Self {
            ready: VecDeque::new(),
            capacity,
            home,
        }
    }

    /// How many keys are ready.
    pub fn len(&self) -> usize {
        self.ready.len()
    }

    /// Whether no key is ready.
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty()
    }

    /// Whether a refill would be useful.
    pub fn wants_refill(&self) -> bool {
        self.ready.len() < self.capacity
    }

    /// Makes keys until the pool is full or `steps` keys were tried, and says how many were added.
    ///
    /// `in_use` tells whether a live connection of ours has that token.
    pub fn refill(&mut self, rng: &mut Rng, steps: usize, in_use: impl Fn(Token) -> bool) -> usize {
        let before = self.ready.len();
        for _ in 0..steps {
            if !self.wants_refill() {
                break;
            }
            if let Some(made) = self.try_one(rng, &in_use) {
                self.ready.push_back(made);
            }
        }
        self.ready.len() - before
    }

    /// A fresh key whose token is unique among the live connections. // rfc8684:C5 rfc8684:C6
    ///
    /// Takes one that is ready, or makes one. `None` only if thousands of tokens in a row were taken.
    pub fn take(&mut self, rng: &mut Rng, in_use: impl Fn(Token) -> bool) -> Option<KeyMaterial> {
        while let Some(made) = self.ready.pop_front() {
            // It was free when it was made, but a connection may have taken this token by another way since.
            if !in_use(made.token) {
                return Some(made);
            }
        }
        (0..Self::TRIES).find_map(|_| self.try_one(rng, &in_use))
    }

    fn try_one(&self, rng: &mut Rng, in_use: &impl Fn(Token) -> bool) -> Option<KeyMaterial> {
        let mut key = [0; 8];
        rng.fill(&mut key);
        let made = KeyMaterial::derive(Key(key));
        let taken = in_use(made.token) || self.ready.iter().any(|other| other.token == made.token);
        (self.home.owns(made.token) && !taken).then_some(made)
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;
    use core::cell::Cell;

    use super::*;

    #[test]
    fn keys_are_unique_and_never_given_twice() {
        // rfc8684:C5
        let mut rng = Rng::new([9; 32]);
        let mut pool = KeyPool::new(32, TokenHome::ANY);
        let mut seen = BTreeSet::new();
        for _ in 0..500 {
            pool.refill(&mut rng, 3, |token| seen.contains(&token));
            let made = pool
                .take(&mut rng, |token| seen.contains(&token))
                .expect("tokens are free");
            assert_eq!(made, KeyMaterial::derive(made.key()));
            assert!(seen.insert(made.token));
        }
    }

    #[test]
    fn refill_works_in_bounded_steps_and_stops_when_full() {
        let mut rng = Rng::new([9; 32]);
        let mut pool = KeyPool::new(8, TokenHome::ANY);
        assert_eq!(pool.refill(&mut rng, 3, |_| false), 3);
        assert_eq!(pool.refill(&mut rng, 100, |_| false), 5);
        assert_eq!(pool.refill(&mut rng, 100, |_| false), 0);
        assert!(!pool.wants_refill());
    }

    #[test]
    fn a_token_that_was_taken_meanwhile_is_skipped() {
        // rfc8684:C6: force the collision by declaring the first ready token as used
        let mut rng = Rng::new([9; 32]);
        let mut pool = KeyPool::new(2, TokenHome::ANY);
        pool.refill(&mut rng, 2, |_| false);
        let first = pool.ready[0].token;
        let second = pool.ready[1].clone();
        assert_eq!(pool.take(&mut rng, |token| token == first), Some(second));
        assert!(pool.is_empty());
    }

    #[test]
    fn a_collision_while_making_a_key_tries_another() {
        // rfc8684:C6
        let mut rng = Rng::new([9; 32]);
        let mut pool = KeyPool::new(0, TokenHome::ANY);
        let asked = Cell::new(0);
        let made = pool.take(&mut rng, |_| {
            asked.set(asked.get() + 1);
            asked.get() <= 5
        });
        assert!(made.is_some());
        assert_eq!(asked.get(), 6);
        assert_eq!(pool.take(&mut rng, |_| true), None);
    }

    #[test]
    fn tokens_name_their_home() {
        let mut rng = Rng::new([9; 32]);
        let home = TokenHome {
            mask: 0xf000_0000,
            value: 0x3000_0000,
        };
        let mut pool = KeyPool::new(4, home);
        for _ in 0..8 {
            let made = pool
                .take(&mut rng, |_| false)
                .expect("one key in sixteen fits");
            assert_eq!(made.token.0 >> 28, 3);
        }
    }
}
