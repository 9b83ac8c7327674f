//! Which paths an operator wants used first, and how new data is divided among those that compete for it.
//!
//! Pure: views and wishes in, room taken away. It comes before every policy, so that each chooses among the subflows that are left. Nothing is kept
//! back for a path that is full: its share goes to the others.

use alloc::vec::Vec;
use core::num::NonZeroU16;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use super::view::{HeldBack, PathView};
use crate::ids::SubflowId;

/// What an operator wants of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preference {
    /// It carries new data only while those that are not secondary have no room.
    pub secondary: bool,
    /// And only while they carry this much together.
    pub overflow: Option<Rate>,
    /// Its share of new data while several have room; without one it is 1, and where no path has one nothing is divided.
    pub weight: Option<NonZeroU16>,
}

impl Preference {
    /// A path like any other.
    pub const NONE: Self = Self {
        secondary: false,
        overflow: None,
        weight: None,
    };

    /// It comes behind others.
    const fn comes_behind(&self) -> bool {
        self.secondary || self.overflow.is_some()
    }

    fn weight(&self) -> u64 {
        self.weight.map_or(1, |weight| u64::from(weight.get()))
    }
}

/// A subflow's wishes and the bytes that it has sent since it exists, in the order of the views.
pub(crate) type Wish = (Preference, u64);

/// Over how long it is measured what subflows carry.
const PERIOD: Duration = Duration::from_millis(500);

/// What those carry together that come before others.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carried {
    /// When the measured time began, and what they had sent then.
    since: Option<(Instant, u64)>,
    /// Bytes a second in the last whole one.
    rate: u64,
}

impl Carried {
    fn note(&mut self, sent: u64, now: Instant) {
        let Some((since, before)) = self.since.filter(|(_, before)| *before <= sent) else {
            self.since = Some((now, sent));
            return;
        };
        let time = now.since(since);
        if time >= PERIOD {
            self.rate = (sent - before).saturating_mul(1000) / time.as_millis().max(1);
            self.since = Some((now, sent));
        }
    }
}

/// Takes their room from those that come behind others.
pub(crate) fn prefer(paths: &mut [PathView], wishes: &[Wish], carried: &mut Carried, now: Instant) {
    let best = paths.iter().filter_map(|path| path.tier).min();
    let first = |(path, (wanted, _)): &(&PathView, &Wish)| {
        path.tier.is_some() && path.tier == best && !wanted.comes_behind()
    };
    let (mut has_any, mut has_room, mut sent) = (false, false, 0_u64);
    for (path, (_, bytes)) in paths.iter().zip(wishes).filter(first) {
        has_any = true;
        has_room |= path.room.is_open();
        sent = sent.saturating_add(*bytes);
    }
    // Where nothing else is left they are used like any other.
    if !has_any {
        return;
    }
    carried.note(sent, now);
    for (path, (wanted, _)) in paths.iter_mut().zip(wishes) {
        let enough = wanted
            .overflow
            .is_none_or(|rate| carried.rate >= rate.as_bytes_per_sec());
        if wanted.comes_behind() && (has_room || !enough) {
            path.room.hold_back(HeldBack::Preference);
        }
    }
}

/// What one subflow was given of what is divided by weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Given {
    subflow: SubflowId,
    /// Bytes that it had sent when this was looked at.
    sent: u64,
    /// Bytes of it for each unit of its weight, times [`UNIT`].
    each: u64,
}

/// A byte of a subflow with the greatest weight still counts.
const UNIT: u64 = 1 << 16;

/// Who was not able to send is behind the others by so many bytes for each unit of weight at most, and catches up with these.
const ARREARS: u64 = (64 << 10) * UNIT;

/// How new data was divided so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Division(Vec<Given>);

impl Division {
    /// Takes the room from all but the subflow that is furthest behind of those that have some. Nothing is divided where no path has a weight.
    pub(crate) fn divide(&mut self, paths: &mut [PathView], wishes: &[Wish]) {
        if wishes.iter().all(|(wanted, _)| wanted.weight.is_none()) {
            self.0.clear();
            return;
        }
        self.count(paths, wishes);
        let best = paths.iter().filter_map(|path| path.tier).min();
        let competes = |path: &PathView| path.room.is_open() && path.tier == best;
        let each = |division: &Self, i: usize| division.0.get(i).map_or(0, |given| given.each);
        let competing = || (0..paths.len()).filter(|i| competes(&paths[*i]));
        let Some(most) = competing().map(|i| each(self, i)).max() else {
            return;
        };
        for i in competing() {
            if let Some(given) = self.0.get_mut(i) {
                given.each = given.each.max(most.saturating_sub(ARREARS));
            }
        }
        let next = competing().min_by_key(|i| each(self, *i));
        let all: Vec<usize> = competing().collect();
        for i in all.into_iter().filter(|i| Some(*i) != next) {
            paths[i].room.hold_back(HeldBack::Preference);
        }
    }

    /// Adds what was sent since the last look. A new subflow begins with as much as the one that has most.
    fn count(&mut self, paths: &[PathView], wishes: &[Wish]) {
        let most = self.0.iter().map(|given| given.each).max().unwrap_or(0);
        let before = core::mem::take(&mut self.0);
        for (path, (wanted, sent)) in paths.iter().zip(wishes) {
            let known = before.iter().find(|given| given.subflow == path.subflow);
            let known = known.copied().filter(|given| given.sent <= *sent);
            let given = known.unwrap_or(Given {
                subflow: path.subflow,
                sent: *sent,
                each: most,
            });
            let new = (sent - given.sent).saturating_mul(UNIT) / wanted.weight();
            self.0.push(Given {
                sent: *sent,
                each: given.each.saturating_add(new),
                ..given
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{backup, full, path, rate};
    use super::*;

    fn wish(secondary: bool, overflow: u64, weight: u16) -> Wish {
        let preference = Preference {
            secondary,
            overflow: rate(overflow),
            weight: NonZeroU16::new(weight),
        };
        (preference, 0)
    }

    fn open(paths: &[PathView]) -> Vec<bool> {
        paths.iter().map(|path| path.room.is_open()).collect()
    }

    #[test]
    fn those_behind_carry_what_those_before_them_cannot() {
        let (first, second) = (wish(false, 0, 0), wish(true, 0, 0));
        let over = wish(false, 1_000, 0);
        let two = || [path(0, 10), path(1, 10)];
        let one_full = || [full(path(0, 10)), path(1, 10)];
        let one_backup = || [backup(path(0, 10)), path(1, 10)];
        for (name, mut paths, wishes, rate, left) in [
            ("none is behind", two(), [first, first], 0, [true, true]),
            (
                "the first has room",
                two(),
                [first, second],
                0,
                [true, false],
            ),
            (
                "the first is full",
                one_full(),
                [first, second],
                0,
                [false, true],
            ),
            ("all are behind", two(), [second, second], 0, [true, true]),
            (
                "the first is a backup",
                one_backup(),
                [first, second],
                0,
                [true, true],
            ),
            (
                "it carries too little",
                one_full(),
                [first, over],
                999,
                [false, false],
            ),
            (
                "it carries enough",
                one_full(),
                [first, over],
                1_000,
                [false, true],
            ),
            (
                "enough, and it has room",
                two(),
                [first, over],
                1_000,
                [true, false],
            ),
        ] {
            let mut carried = Carried { since: None, rate };
            prefer(&mut paths, &wishes, &mut carried, Instant::ZERO);
            assert_eq!(open(&paths), left, "{name}");
        }
    }

    #[test]
    fn what_is_carried_is_measured_over_half_a_second() {
        let at = |ms: u64| Instant::ZERO + Duration::from_millis(ms);
        let mut carried = Carried::default();
        for (ms, sent, rate) in [
            (0, 5_000, 0),
            (100, 100_000, 0),
            (500, 105_000, 200_000),
            (600, 900_000, 200_000),
            (1_500, 905_000, 800_000),
            // A subflow is gone: what is left is measured anew.
            (1_600, 10_000, 800_000),
            (2_600, 11_000, 1_000),
        ] {
            carried.note(sent, at(ms));
            assert_eq!(carried.rate, rate, "after {ms} ms");
        }
    }

    /// Sends segments of 1,000 bytes by whom the weights choose; `is_full` says who has no room for which one.
    fn sent(weights: [u16; 3], segments: u64, is_full: impl Fn(u64, usize) -> bool) -> [u64; 3] {
        let (mut division, mut sent) = (Division::default(), [0; 3]);
        for segment in 0..segments {
            let mut paths = [path(0, 10), path(1, 30), path(2, 20)];
            for (i, view) in paths.iter_mut().enumerate() {
                if is_full(segment, i) {
                    *view = full(*view);
                }
            }
            let wishes = [0, 1, 2].map(|i| (wish(false, 0, weights[i]).0, sent[i]));
            division.divide(&mut paths, &wishes);
            let mut chosen = (0..3).filter(|i| paths[*i].room.is_open());
            let (one, more) = (chosen.next(), chosen.next());
            assert!(more.is_none(), "one at a time");
            if let Some(one) = one {
                sent[one] += 1_000;
            }
        }
        sent
    }

    #[test]
    fn weights_divide_what_is_sent_to_within_a_segment_of_each() {
        for weights in [[7, 2, 1], [1, 1, 1], [0, 2, 1], [1000, 1, 1]] {
            let sum: u64 = weights.iter().map(|w| u64::from(*w).max(1)).sum();
            let sent = sent(weights, 10_000, |_, _| false);
            for (weight, bytes) in weights.iter().zip(sent) {
                let due = 10_000_000 * u64::from(*weight).max(1) / sum;
                assert!(bytes.abs_diff(due) <= 2_000, "{weights:?}: {sent:?}");
            }
        }
    }

    #[test]
    fn the_share_of_a_full_path_goes_to_the_others_and_is_not_made_up_for() {
        let alone = sent([7, 2, 1], 3_000, |_, i| i == 0);
        assert_eq!(alone[0], 0);
        assert!(alone[1].abs_diff(2_000_000) <= 2_000, "{alone:?}");
        // For the first half the first path is full.
        let later = sent([7, 2, 1], 20_000, |segment, i| i == 0 && segment < 10_000);
        let second_half = 10_000_000 * 7 / 10;
        let arrears = 7 * (64 << 10);
        assert!(later[0] >= second_half, "{later:?}");
        assert!(later[0] <= second_half + arrears, "{later:?}");
        assert_eq!(sent([7, 2, 1], 10, |_, _| true), [0; 3]);
    }

    #[test]
    fn a_subflow_that_comes_later_gets_its_share_from_then_on() {
        let (mut division, weights) = (Division::default(), [1, 1]);
        let mut sent = [1_000_000_u64, 0];
        for _ in 0..100 {
            let mut paths = [path(0, 10), path(1, 10)];
            let wishes = [0, 1].map(|i| (wish(false, 0, weights[i]).0, sent[i]));
            division.divide(&mut paths, &wishes);
            let next = paths.iter().position(|path| path.room.is_open());
            sent[next.expect("one has room")] += 1_000;
        }
        assert_eq!(sent, [1_050_000, 50_000]);
    }

    #[test]
    fn without_weights_nothing_is_divided() {
        let mut paths = [path(0, 10), path(1, 10)];
        let wishes = [wish(false, 0, 0), wish(true, 0, 0)];
        Division::default().divide(&mut paths, &wishes);
        assert_eq!(open(&paths), [true, true]);
    }
}
