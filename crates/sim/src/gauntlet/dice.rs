//! Random choices in the words of a scenario. Each part of a plan has dice of its own, so that a new kind of box does not
//! change the networks of all seeds.

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;

use crate::rng::{Chance, Rng};
use crate::scenario::units::{Percent, Size, Span, Speed};

/// Parts of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    Network,
    Boxes,
    App,
    Events,
    Closing,
}

/// A source of random choices.
#[derive(Debug)]
pub(super) struct Dice(Rng);

impl Dice {
    /// The dice of one part of a seed's plan.
    pub(super) fn new(seed: u64, part: Part) -> Self {
        Self(Rng::stream(seed, 0x6a75_0000 + part as u64))
    }

    /// True in so many of a hundred cases.
    pub(super) fn percent(&mut self, percent: u32) -> bool {
        self.0.chance(Chance::ppm(percent * 10_000))
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    /// A number from `low` to `high`.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.between(low, high)
    }

    /// A number from `low` to `high`, each octave as likely as any other.
    pub(super) fn log(&mut self, low: u64, high: u64) -> u64 {
        self.0.log_between(low, high)
    }

    /// One of a few.
    pub(super) fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// An index; each is as likely as its weight says.
    pub(super) fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.0.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            match left.checked_sub(*weight) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }

    /// A probability; bounds in parts per million.
    pub(super) fn chance(&mut self, low: u64, high: u64) -> Percent {
        Percent(Chance::ppm(self.log(low, high) as u32))
    }

    /// A size; bounds in bytes.
    pub(super) fn size(&mut self, low: u64, high: u64) -> Size {
        Size(self.log(low, high))
    }

    /// A time; bounds in milliseconds.
    pub(super) fn millis(&mut self, low: u64, high: u64) -> Span {
        millis(self.log(low, high))
    }

    /// A rate; bounds in kilobits a second.
    pub(super) fn rate(&mut self, low: u64, high: u64) -> Speed {
        kilobits(self.log(low, high))
    }
}

/// So many milliseconds.
pub(super) const fn millis(count: u64) -> Span {
    Span(Duration::from_millis(count))
}

/// So many kilobits a second.
pub(super) const fn kilobits(count: u64) -> Speed {
    Speed(Rate::from_bits_per_sec(count * 1_000))
}
