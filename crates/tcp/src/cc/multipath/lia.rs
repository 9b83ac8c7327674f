//! The Linked Increases Algorithm of RFC 6356, in integers.
//!
//! Section 3 grows path i by `min(alpha * acked * mss_i / cwnd_total, acked * mss_i / cwnd_i)` with
//! `alpha = cwnd_total * max_j(cwnd_j / rtt_j^2) / (sum_j cwnd_j / rtt_j)^2`. In the product `alpha / cwnd_total` the total
//! cancels; with m the path of the maximum, what is left is `cwnd_m / (sum_j cwnd_j * rtt_m / rtt_j)^2`. Because m has the
//! largest `cwnd / rtt^2`, no term of that sum exceeds the largest window, so 128 bits hold it with room for a fraction.

use super::{GroupView, PathSample, Window};
use crate::time::Duration;

/// Bits of fraction kept in each term of the sum.
const TERM_BITS: u32 = 16;
/// Bits of fraction of the result.
const FRACTION_BITS: u32 = 16;
/// Paths that are counted at most, so that the sum's width is known. Far more than the subflows of a connection.
const MOST_PATHS: usize = 64;

/// The algorithm on one subflow. What couples it to the others comes with each acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Lia;

impl Lia {
    /// The algorithm has no memory.
    pub fn new() -> Lia {
        Lia
    }

    /// `acked` bytes were acknowledged in congestion avoidance.
    pub fn avoid(
        &mut self,
        window: &mut Window,
        acked: u32,
        srtt: Duration,
        group: &GroupView<'_>,
    ) {
        let me = PathSample::of(window, srtt, 0);
        let growth = increase(acked, &me, group);
        window.earn(i64::try_from(growth).unwrap_or(i64::MAX));
    }
}

/// Growth in 2^-16 bytes for `acked` bytes acknowledged on the path `me`, whose entry in `group` may be older than `me`
/// itself. Never more than one segment, and never more than Reno alone would take (RFC 6356 section 3).
pub fn increase(acked: u32, me: &PathSample, group: &GroupView<'_>) -> u64 {
    // rfc8684:K1
    let acked = u128::from(acked.min(me.cwnd).min(1 << 30));
    let alone = ((acked * u128::from(me.mss)) << FRACTION_BITS) / u128::from(me.cwnd.max(1));
    let coupled = coupled_increase(acked, me, group).unwrap_or(alone);
    // `alone` is at most one segment, 2^32 in these units.
    u64::try_from(coupled.min(alone)).unwrap_or(u64::MAX)
}

/// Round-trip time in nanoseconds, within what the products below can hold (18 minutes).
fn nanos(rtt: Duration) -> u128 {
    u128::from(rtt.as_nanos().min((1 << 40) - 1))
}

/// The first argument of the minimum; absent while no path has a round-trip time.
fn coupled_increase(acked: u128, me: &PathSample, group: &GroupView<'_>) -> Option<u128> {
    let others = group
        .paths
        .iter()
        .enumerate()
        .filter(|&(index, _)| index != group.me)
        .map(|(_, path)| path);
    let known = |path: &&PathSample| path.usable && !path.srtt.is_zero() && path.cwnd > 0;
    let paths = || {
        core::iter::once(me)
            .chain(others.clone())
            .filter(known)
            .take(MOST_PATHS)
    };
    // Compared crosswise: cwnd_a / rtt_a^2 > cwnd_b / rtt_b^2.
    let best = paths().reduce(|a, b| {
        let left = u128::from(a.cwnd) * nanos(b.srtt) * nanos(b.srtt);
        let right = u128::from(b.cwnd) * nanos(a.srtt) * nanos(a.srtt);
        if right > left { b } else { a }
    })?;
    let sum: u128 = paths()
        .map(|path| (u128::from(path.cwnd) << TERM_BITS) * nanos(best.srtt) / nanos(path.srtt))
        .sum();
    let numerator =
        (acked * u128::from(me.mss) * u128::from(best.cwnd)) << (2 * TERM_BITS + FRACTION_BITS);
    // The sum holds the best path's own window and is not zero.
    Some(numerator / (sum * sum).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn path(cwnd: u32, rtt_ms: u64, mss: u32) -> PathSample {
        PathSample {
            cwnd,
            srtt: Duration::from_millis(rtt_ms),
            mss,
            usable: true,
            interloss: 0,
        }
    }

    fn on(paths: &[PathSample], me: usize, acked: u32) -> u64 {
        increase(acked, &paths[me], &GroupView { paths, me })
    }

    #[test]
    fn one_path_alone_is_reno() {
        let alone = [path(10_000, 100, 1_000)];
        assert_eq!(on(&alone, 0, 1_000), 100 << 16);
        assert_eq!(increase(1_000, &alone[0], &GroupView::ALONE), 100 << 16);
    }

    #[test]
    fn two_equal_paths_take_a_quarter_each_of_what_reno_would() {
        // alpha = 2c * (c/r^2) / (2c/r)^2 = 1/2; the increase is acked * mss / (2 * 2c).
        let paths = [path(10_000, 100, 1_000), path(10_000, 100, 1_000)];
        assert_eq!(on(&paths, 0, 1_000), 25 << 16);
    }

    #[test]
    fn four_equal_paths_together_take_what_one_would() {
        let paths = [path(10_000, 100, 1_000); 4];
        // A window of acknowledgements on each adds 1/16 of a segment; four paths in one round trip: a quarter of a
        // segment over four times the window is the increase of one TCP with that aggregate rate.
        assert_eq!(on(&paths, 2, 10_000), (1_000 << 16) / 16);
    }

    #[test]
    fn unusable_and_unmeasured_paths_do_not_count() {
        let idle = PathSample {
            usable: false,
            ..path(900_000, 1, 1_000)
        };
        let young = PathSample {
            srtt: Duration::ZERO,
            ..path(10_000, 1, 1_000)
        };
        let paths = [path(10_000, 100, 1_000), idle, young];
        assert_eq!(on(&paths, 0, 1_000), 100 << 16);
        assert_eq!(
            on(&paths, 2, 1_000),
            25 << 16 << 2,
            "without a measurement of its own it is still never above Reno"
        );
    }

    #[test]
    fn the_fast_path_is_never_more_aggressive_than_reno() {
        // A path with 1/100 of the round trip dominates alpha; the minimum holds it at Reno.
        let paths = [path(10_000, 1, 1_000), path(10_000, 100, 1_000)];
        let coupled = on(&paths, 1, 1_000);
        assert!(coupled <= 100 << 16);
        assert!(on(&paths, 0, 1_000) <= 100 << 16);
    }

    /// The formula of RFC 6356 section 3 with exact fractions: `alpha * acked * mss / total` as numerator and denominator.
    /// With the common denominator D = product of all rtt, `cwnd_j / rtt_j` is an integer over D.
    fn rfc_formula(paths: &[PathSample], me: usize, acked: u64) -> (u128, u128) {
        let rtt = |p: &PathSample| u128::from(p.srtt.as_millis());
        let product: u128 = paths.iter().map(rtt).product();
        let total: u128 = paths.iter().map(|p| u128::from(p.cwnd)).sum();
        // In units of 1 / product^2: max_j(cwnd_j * (product / rtt_j)^2), and (sum_j cwnd_j * product / rtt_j)^2.
        let best = paths
            .iter()
            .map(|p| u128::from(p.cwnd) * (product / rtt(p)).pow(2))
            .max()
            .unwrap();
        let sum: u128 = paths
            .iter()
            .map(|p| u128::from(p.cwnd) * (product / rtt(p)))
            .sum();
        // alpha * acked * mss / total, the total left in to check that cancelling it was right.
        let (mut alpha_num, mut alpha_den) = (total * best, sum * sum);
        let shared = gcd(alpha_num, alpha_den);
        alpha_num /= shared;
        alpha_den /= shared;
        let (first, second) = (
            gcd(alpha_num, total),
            gcd(u128::from(acked) * u128::from(paths[me].mss), alpha_den),
        );
        (
            alpha_num / first * (u128::from(acked) * u128::from(paths[me].mss) / second),
            alpha_den / second * (total / first),
        )
    }

    fn gcd(a: u128, b: u128) -> u128 {
        if b == 0 { a.max(1) } else { gcd(b, a % b) }
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula_of_the_rfc(
            raw in prop::collection::vec((2u32..200, 1u64..300), 2..4), me in 0usize..2, acked in 1u32..3_000,
        ) {
            let mss = 1_000;
            let paths: Vec<_> = raw.iter().map(|&(segments, rtt)| path(segments * mss, rtt, mss)).collect();
            let (num, den) = rfc_formula(&paths, me, u64::from(acked.min(paths[me].cwnd)));
            let reno = u128::from(acked.min(paths[me].cwnd)) * u128::from(mss) * 65_536 / u128::from(paths[me].cwnd);
            let exact = num.checked_mul(65_536).map_or(num / den * 65_536, |scaled| scaled / den).min(reno);
            let ours = u128::from(on(&paths, me, acked));
            // Each term of the sum loses less than 2^-16 byte: a relative error below 2^-24, and one unit of rounding.
            prop_assert!(ours.abs_diff(exact) <= exact / 1_000_000 + 1, "ours {} exact {}", ours, exact);
        }

        #[test]
        fn any_group_is_handled_and_never_beats_reno(
            raw in prop::collection::vec((any::<u32>(), any::<u64>(), 1u32..65_536, any::<bool>()), 1..80),
            pick: prop::sample::Index, acked: u32,
        ) {
            let paths: Vec<_> = raw.iter().map(|&(cwnd, rtt, mss, usable)| PathSample {
                cwnd: cwnd.clamp(1, 1 << 30), srtt: Duration::from_nanos(rtt), mss, usable, interloss: 0,
            }).collect();
            let me = pick.index(paths.len());
            let growth = on(&paths, me, acked);
            let acked = u128::from(acked.min(paths[me].cwnd));
            prop_assert!(u128::from(growth) <= acked * u128::from(paths[me].mss) * 65_536 / u128::from(paths[me].cwnd));
        }
    }
}
