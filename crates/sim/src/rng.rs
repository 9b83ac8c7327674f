//! Seeded randomness: every part of a simulation has a stream of its own, so that adding a link does not change the
//! fate of another link's packets. Must never ask the operating system for anything.

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A deterministic source of randomness.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The stream that belongs to `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// The stream of one named part of the simulation with `seed`.
    #[must_use]
    pub fn stream(seed: u64, part: u64) -> Self {
        // The generator expands its seed well; the odd factor only keeps (1, 2) and (2, 1) apart.
        Self::new(seed.rotate_left(32) ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 32 random bytes, as large as a stack's seed.
    pub fn bytes(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        self.0.fill_bytes(&mut bytes);
        bytes
    }

    /// A number below `end`; zero for an empty range.
    pub fn below(&mut self, end: u64) -> u64 {
        // The high half of a 128-bit product: no division, and a bias far below anything a run could notice.
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// A number from `low` to `high` whose logarithm is spread evenly: as many between 1 and 10 as between 10 and 100.
    pub fn log_between(&mut self, low: u64, high: u64) -> u64 {
        let (low, high) = (low.max(1), high.max(1));
        let octaves = (high / low).max(1).ilog2() + 1;
        let octave = self.below(u64::from(octaves)) as u32;
        let from = low << octave;
        self.between(from.min(high), (from << 1).min(high))
    }

    /// True with the given chance.
    pub fn chance(&mut self, chance: Chance) -> bool {
        // A chance of zero draws nothing: switching a fault off must not shift the others.
        chance.0 != 0 && (self.bits() >> 32) < u64::from(chance.0) + u64::from(chance.0 == u32::MAX)
    }

    /// One of the items.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }
}

/// A probability as a fraction of 2^32, so that two machines never round it differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Chance(u32);

impl Chance {
    /// It never happens.
    pub const NEVER: Self = Self(0);
    /// It always happens.
    pub const ALWAYS: Self = Self(u32::MAX);

    /// A probability between 0 and 1; anything outside is brought inside.
    #[must_use]
    pub fn new(probability: f64) -> Self {
        Self((probability.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32)
    }

    /// A probability in parts per million.
    #[must_use]
    pub fn ppm(parts: u32) -> Self {
        Self((u64::from(parts.min(1_000_000)) * u64::from(u32::MAX) / 1_000_000) as u32)
    }

    /// The parts per million that it was made from, or the next ones above.
    #[must_use]
    pub fn as_ppm(self) -> u32 {
        (u64::from(self.0) * 1_000_000).div_ceil(u64::from(u32::MAX)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let draw = |seed, part| Rng::stream(seed, part).bits();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(2, 1));
        assert_ne!(draw(1, 2), draw(1, 3));
    }

    #[test]
    fn chances_come_true_as_often_as_they_say() {
        let mut rng = Rng::new(7);
        let mut hits = |chance| (0..100_000).filter(|_| rng.chance(chance)).count();
        assert_eq!(hits(Chance::NEVER), 0);
        assert_eq!(hits(Chance::ALWAYS), 100_000);
        let tenth = hits(Chance::ppm(100_000));
        assert!((9_500..10_500).contains(&tenth), "{tenth}");
        let third = hits(Chance::new(1.0 / 3.0));
        assert!((32_500..34_200).contains(&third), "{third}");
    }

    #[test]
    fn ranges_include_their_ends_and_nothing_beyond() {
        let mut rng = Rng::new(3);
        let mut seen = [false; 4];
        for _ in 0..1000 {
            seen[(rng.between(5, 8) - 5) as usize] = true;
            assert!((10..=1000).contains(&rng.log_between(10, 1000)));
        }
        assert_eq!(seen, [true; 4]);
        assert_eq!(rng.below(0), 0);
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
