//! What the coupled algorithms have in common: rates of the paths of a connection, relative to one's own.

use super::{GroupView, PathSample};

/// Bits of fraction of a [`Ratio`]: one part in a million, and the square of the largest ratio fits 128 bits.
const BITS: u32 = 20;
/// No ratio is taken for more than this: what it multiplies or divides is then nothing.
const LARGEST: u128 = 1 << 44;

/// A positive number with 20 bits of fraction, below 2^24.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ratio(u64);

impl Ratio {
    /// One.
    pub(super) const ONE: Self = Self(1 << BITS);

    /// `num / den`, within bounds.
    pub(super) fn of(num: u128, den: u128) -> Self {
        let scaled = num.checked_shl(BITS).filter(|s| s >> BITS == num);
        let ratio = scaled.map_or(LARGEST, |scaled| scaled / den.max(1));
        Self(ratio.min(LARGEST) as u64)
    }

    /// With [`BITS`](Self::ONE) bits of fraction.
    pub(super) fn raw(self) -> u128 {
        u128::from(self.0)
    }
}

/// The rates `x = cwnd / rtt` of a connection's paths over that of the asking one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// The sum of all.
    pub(super) total: Ratio,
    /// The largest.
    pub(super) best: Ratio,
}

impl Rates {
    /// What a path alone sees.
    pub(super) const ALONE: Self = Self {
        total: Ratio::ONE,
        best: Ratio::ONE,
    };

    /// The rates as `me` sees them, whose entry in `group` may be older than `me` itself.
    pub(super) fn of(me: &PathSample, group: &GroupView<'_>) -> Self {
        if me.srtt.is_zero() || me.cwnd == 0 {
            return Self::ALONE;
        }
        let (mut total, mut best) = (Ratio::ONE.raw(), Ratio::ONE);
        for path in others(group) {
            // x_k / x_r = (w_k * rtt_r) / (w_r * rtt_k)
            let num = u128::from(path.cwnd) * u128::from(me.srtt.as_nanos());
            let den = u128::from(me.cwnd) * u128::from(path.srtt.as_nanos());
            let ratio = Ratio::of(num, den);
            total += ratio.raw();
            best = best.max(ratio);
        }
        Self {
            total: Ratio(total.min(LARGEST) as u64),
            best,
        }
    }
}

/// The other paths that carry data and whose round trip is known.
pub(super) fn others<'a>(group: &GroupView<'a>) -> impl Iterator<Item = &'a PathSample> + use<'a> {
    let me = group.me;
    let others = group.paths.iter().enumerate();
    others
        .filter(move |&(index, _)| index != me)
        .map(|(_, path)| path)
        .filter(|path| path.usable && !path.srtt.is_zero() && path.cwnd > 0)
}

/// What Reno would add for `acked` bytes on a path, in 2^-16 bytes: at most one segment (RFC 5681 section 3.1).
pub(super) fn reno(acked: u32, me: &PathSample) -> u128 {
    let acked = u128::from(acked.min(me.cwnd));
    ((acked * u128::from(me.mss)) << 16) / u128::from(me.cwnd.max(1))
}

/// `value / ratio^2`.
pub(super) fn over_square(value: u128, ratio: Ratio) -> u128 {
    (value << (2 * BITS)) / (ratio.raw() * ratio.raw())
}

/// Paths for the tests of the algorithms.
#[cfg(test)]
pub(super) fn path(cwnd: u32, rtt_ms: u64) -> PathSample {
    PathSample {
        cwnd,
        srtt: crate::time::Duration::from_millis(rtt_ms),
        mss: 1_000,
        usable: true,
        interloss: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn rates_are_relative_to_ones_own() {
        let paths = [path(10_000, 100), path(30_000, 100), path(10_000, 25)];
        let rates = |me| Rates::of(&paths[me], &GroupView { paths: &paths, me });
        assert_eq!(rates(0).total, Ratio::of(8, 1));
        assert_eq!(rates(0).best, Ratio::of(4, 1));
        assert_eq!(rates(2).total, Ratio::of(2, 1));
        assert_eq!(rates(2).best, Ratio::ONE);
        assert_eq!(Rates::of(&paths[0], &GroupView::ALONE), Rates::ALONE);
    }

    #[test]
    fn paths_without_data_or_round_trip_do_not_count() {
        let idle = PathSample {
            usable: false,
            ..path(900_000, 1)
        };
        let young = PathSample {
            srtt: Duration::ZERO,
            ..path(900_000, 1)
        };
        let paths = [path(10_000, 100), idle, young];
        let group = GroupView {
            paths: &paths,
            me: 0,
        };
        assert_eq!(Rates::of(&paths[0], &group), Rates::ALONE);
        let group = GroupView { me: 2, ..group };
        assert_eq!(Rates::of(&paths[2], &group), Rates::ALONE);
    }

    #[test]
    fn extremes_are_bounded() {
        let slow = PathSample {
            srtt: Duration::MAX,
            ..path(1, 1)
        };
        let fast = PathSample {
            srtt: Duration::from_nanos(1),
            ..path(1 << 30, 1)
        };
        let paths = [slow, fast];
        let group = GroupView {
            paths: &paths,
            me: 0,
        };
        assert_eq!(Rates::of(&slow, &group).total.raw(), LARGEST);
        assert_eq!(
            over_square(reno(1 << 30, &slow), Rates::of(&slow, &group).total),
            0
        );
        let group = GroupView { me: 1, ..group };
        assert_eq!(Rates::of(&fast, &group), Rates::ALONE);
    }
}
