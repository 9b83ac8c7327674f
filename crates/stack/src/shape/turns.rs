//! In which order those who wait for a path have their turns, where classes have weights (start-time fair queueing).
//!
//! Each class has as much as its weight says while it has something to send; what it leaves goes to the others. Within a class it is first come, first
//! served.

use alloc::collections::BTreeMap;
use core::num::NonZeroU16;

use crate::api::ClassId;

/// A byte of the class with the greatest weight still counts.
const UNIT: u64 = 1 << 16;

/// A class that waits, or what is in none, and its weight.
pub(super) type Share = (Option<ClassId>, NonZeroU16);

/// Without a weight a class has this one.
pub(super) const USUAL: NonZeroU16 = NonZeroU16::MIN;

/// The time of one line, which passes with what is served there.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The turn that was had last.
    now: u64,
    /// When each class may have its next turn, where that is to come.
    next: BTreeMap<Option<ClassId>, u64>,
}

impl Turns {
    /// The turn of one that begins to wait with so many bytes: a lower one comes first.
    pub(super) fn take(&mut self, (class, weight): Share, bytes: u64) -> u64 {
        let turn = self
            .next
            .get(&class)
            .map_or(self.now, |next| self.now.max(*next));
        let cost = bytes.saturating_mul(UNIT) / u64::from(weight.get());
        self.next.insert(class, turn.saturating_add(cost));
        turn
    }

    /// One has had its turn.
    pub(super) fn had(&mut self, turn: u64) {
        self.now = self.now.max(turn);
        let now = self.now;
        self.next.retain(|_, next| *next > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// Serves packets of 1,000 bytes to classes that always wait, each with so many connections.
    fn served(classes: &[(u16, usize)], packets: usize) -> Vec<u64> {
        let mut turns = Turns::default();
        let mut line = Vec::new();
        let share = |i: usize| {
            let weight = NonZeroU16::new(classes[i].0).expect("not zero");
            (Some(ClassId(i as u32)), weight)
        };
        for (i, (_, connections)) in classes.iter().enumerate() {
            for _ in 0..*connections {
                line.push((turns.take(share(i), 1_000), i));
            }
        }
        let mut served = alloc::vec![0; classes.len()];
        for _ in 0..packets {
            let first = (0..line.len()).min_by_key(|at| line[*at].0);
            let (turn, class) = line.remove(first.expect("somebody waits"));
            turns.had(turn);
            served[class] += 1;
            line.push((turns.take(share(class), 1_000), class));
        }
        served
    }

    #[test]
    fn classes_have_what_their_weights_say_however_many_connections_each_has() {
        for (classes, shares) in [
            (&[(1, 1), (1, 1)][..], &[0.5, 0.5][..]),
            (&[(7, 1), (2, 1), (1, 1)], &[0.7, 0.2, 0.1]),
            (&[(3, 64), (1, 1)], &[0.75, 0.25]),
            (&[(1000, 8), (1, 8)], &[0.999, 0.001]),
        ] {
            let served = served(classes, 10_000);
            for (got, share) in served.iter().zip(shares) {
                let due = 10_000.0 * share;
                assert!((*got as f64 - due).abs() <= 70.0, "{classes:?}: {served:?}");
            }
        }
    }

    #[test]
    fn who_was_away_has_no_more_than_its_share_when_it_is_back() {
        let mut turns = Turns::default();
        let (one, other) = ((Some(ClassId(1)), USUAL), (None, USUAL));
        for _ in 0..100 {
            let turn = turns.take(one, 1_000);
            turns.had(turn);
        }
        let back = turns.take(other, 1_000);
        let next = turns.take(one, 1_000);
        assert!(next.abs_diff(back) <= 1_000 * UNIT, "{back} {next}");
        assert!(turns.next.len() <= 2);
    }
}
