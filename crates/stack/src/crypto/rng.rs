//! The one source of randomness of a stack: ChaCha20 (RFC 8439) run as a generator from a seed of the caller.
//!
//! Good enough for keys and nonces (RFC 4086), and the same seed gives the same run, which the simulator lives on.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng as _, SeedableRng as _};
use manypath_tcp::time::Duration;

/// A seeded, cryptographically strong generator.
pub struct Rng(ChaCha20Rng);

impl Rng {
    /// A generator for this seed. In production the seed comes from the operating system, once for each stack.
    pub fn new(seed: [u8; 32]) -> Self {
        Self(ChaCha20Rng::from_seed(seed))
    }

    /// A second generator, independent of what this one gives from now on.
    pub fn fork(&mut self) -> Self {
        let mut seed = zeroize::Zeroizing::new([0; 32]);
        self.fill(&mut *seed);
        Self::new(*seed)
    }

    /// 32 random bits.
    pub fn next_u32(&mut self) -> u32 {
        self.0.next_u32()
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.0.fill_bytes(out);
    }

    /// A number in `0..bound` without bias; 0 for a bound of 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        // The high half of a product is uniform once the few low halves that would be counted twice are drawn again.
        let excess = if bound == 0 {
            0
        } else {
            bound.wrapping_neg() % bound
        };
        loop {
            let product = u64::from(self.next_u32()) * u64::from(bound);
            if product as u32 >= excess {
                return (product >> 32) as u32;
            }
        }
    }

    /// A duration between zero and `most`, in steps of at least a nanosecond; the spread of randomised waits.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let product = u128::from(self.next_u64()) * (u128::from(most.as_nanos()) + 1);
        Duration::from_nanos((product >> 64) as u64)
    }
}

impl core::fmt::Debug for Rng {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Rng")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_seed_gives_the_keystream_of_chacha20() {
        // RFC 8439 appendix A.1, test vector 1: the first keystream bytes for a key and nonce of zero.
        let mut rng = Rng::new([0; 32]);
        let mut out = [0; 16];
        rng.fill(&mut out);
        let expected: [u8; 16] = [
            0x76, 0xb8, 0xe0, 0xad, 0xa0, 0xf1, 0x3d, 0x90, 0x40, 0x5d, 0x6a, 0xe5, 0x53, 0x86,
            0xbd, 0x28,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn same_seed_same_numbers_and_a_fork_differs() {
        let mut a = Rng::new([7; 32]);
        let mut b = Rng::new([7; 32]);
        assert_eq!(a.next_u64(), b.next_u64());
        let mut forked = a.fork();
        let mut same = b.fork();
        assert_eq!(forked.next_u64(), same.next_u64());
        assert_ne!(forked.next_u64(), a.next_u64());
    }

    #[test]
    fn below_stays_below_and_reaches_every_value() {
        let mut rng = Rng::new([1; 32]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.below(1), 0);
        let mut seen = [0u32; 6];
        for _ in 0..6000 {
            seen[rng.below(6) as usize] += 1;
        }
        assert!(seen.iter().all(|&n| (800..1200).contains(&n)), "{seen:?}");
        assert!((0..100).all(|_| rng.below(u32::MAX) < u32::MAX));
    }

    #[test]
    fn up_to_stays_in_its_range() {
        let mut rng = Rng::new([2; 32]);
        assert_eq!(rng.up_to(Duration::ZERO), Duration::ZERO);
        let most = Duration::from_millis(20);
        let mut largest = Duration::ZERO;
        for _ in 0..1000 {
            let wait = rng.up_to(most);
            assert!(wait <= most);
            largest = largest.max(wait);
        }
        assert!(largest > Duration::from_millis(15));
    }
}
