//! OLIA, the Opportunistic Linked Increases Algorithm (draft-khalili-mptcp-congestion-control-05 section 2; Khalili, Gast,
//! Popovic, Le Boudec, CoNEXT 2012), in integers.
//!
//! For each acknowledged segment, path r grows by `(w_r / rtt_r^2) / (sum_p w_p / rtt_p)^2 + alpha_r / w_r` segments. With
//! `x = w / rtt` the first term is `(x_r / sum x)^2 / w_r`: Reno's increase, scaled down by the path's share of the rate.
//! The second one moves traffic: the paths that look best (those with the largest `l / rtt^2`, where l is the larger of
//! the bytes between the last two losses and since the last one) but do not have the largest window take
//! `1 / (n * number of those)`, which the paths with the largest window give up. A loss halves the window.
//!
//! Slow start ends above the threshold and not at it, as in the implementation that the authors published (`snd_cwnd <=
//! snd_ssthresh`); RFC 5681 section 3.1 leaves the choice. After a loss that is a segment more. Windows of a few segments,
//! which grow by a sixty-fourth of a segment a round trip where eight paths share a bottleneck, would not get their due
//! without it: they lose more often than a large one, whose neighbouring losses are one, and wait for delayed
//! acknowledgements.

use super::coupled::{self, Rates};
use super::{GroupView, PathSample, Window};
use crate::time::Duration;

/// The algorithm on one subflow: what it carried between losses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Olia {
    /// Bytes delivered between the last two losses.
    between: u64,
    /// Bytes delivered since the last loss.
    since: u64,
    /// The window has come down to the threshold and was not above it since.
    at_threshold: bool,
}

impl Olia {
    /// Nothing delivered yet.
    pub fn new() -> Olia {
        Olia::default()
    }

    /// `bytes` were delivered, in whatever phase.
    pub fn delivered(&mut self, bytes: u32) {
        self.since = self.since.saturating_add(u64::from(bytes));
    }

    /// A loss reduced the window.
    pub fn lost(&mut self) {
        self.between = core::mem::take(&mut self.since);
        self.at_threshold = true;
    }

    /// The length l of the present interval between losses, in bytes.
    pub fn interloss(&self) -> u64 {
        self.between.max(self.since)
    }

    /// `acked` bytes were acknowledged in congestion avoidance.
    pub fn avoid(
        &mut self,
        window: &mut Window,
        acked: u32,
        srtt: Duration,
        group: &GroupView<'_>,
    ) {
        let me = PathSample::of(window, srtt, self.interloss());
        let one_more = match core::mem::take(&mut self.at_threshold) {
            true => i64::from(acked.min(window.mss())) << 16,
            false => 0,
        };
        window.earn(increase(acked, &me, group).saturating_add(one_more));
    }
}

/// Change in 2^-16 bytes for `acked` bytes acknowledged on the path `me`. Never more than Reno alone would add, which the
/// sum of the two terms could exceed on a path that looks best and has a small share.
pub fn increase(acked: u32, me: &PathSample, group: &GroupView<'_>) -> i64 {
    let reno = coupled::reno(acked, me);
    let linked = coupled::over_square(reno, Rates::of(me, group).total);
    let signed = |value: u128| i64::try_from(value).unwrap_or(i64::MAX);
    let moved = match alpha(me, group) {
        Alpha::Zero => 0,
        Alpha::Takes(parts) => signed(reno / u128::from(parts)),
        Alpha::Gives(parts) => -signed(reno / u128::from(parts)),
    };
    signed(linked).saturating_add(moved).min(signed(reno))
}

/// The factor alpha: nothing, or a positive or negative fraction of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Alpha {
    Zero,
    Takes(u32),
    Gives(u32),
}

/// `a` looks better than `b`: a larger `l / rtt^2`, compared crosswise.
fn better(a: &PathSample, b: &PathSample) -> core::cmp::Ordering {
    let micros = |path: &PathSample| u128::from(path.srtt.as_micros().clamp(1, 1 << 30));
    let quality = |path: &PathSample, other: &PathSample| {
        // 64 bits of l and 60 of the square.
        u128::from(path.interloss) * micros(other) * micros(other)
    };
    quality(a, b).cmp(&quality(b, a))
}

fn alpha(me: &PathSample, group: &GroupView<'_>) -> Alpha {
    let all = || coupled::others(group).chain(core::iter::once(me));
    let Some(best) = all().max_by(|a, b| better(a, b)) else {
        return Alpha::Zero;
    };
    // In whole segments, as the source counts: parts of one are no reason to move traffic.
    let segments = |path: &PathSample| path.cwnd / path.mss.max(1);
    let largest = all().map(segments).max().unwrap_or(0);
    let has_largest = |path: &PathSample| segments(path) == largest;
    let collected = |path: &PathSample| better(path, best).is_eq() && !has_largest(path);
    let count = |of: &dyn Fn(&PathSample) -> bool| all().filter(|path| of(path)).count() as u32;
    let (paths, chosen) = (count(&|_| true), count(&collected));
    if chosen == 0 {
        Alpha::Zero
    } else if collected(me) {
        Alpha::Takes(paths * chosen)
    } else if has_largest(me) {
        Alpha::Gives(paths * count(&has_largest))
    } else {
        Alpha::Zero
    }
}

#[cfg(test)]
mod tests {
    use super::super::coupled::path;
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const ONE: i64 = 1 << 16;

    fn with_loss(interloss: u64, path: PathSample) -> PathSample {
        PathSample { interloss, ..path }
    }

    fn on(paths: &[PathSample], me: usize, acked: u32) -> i64 {
        increase(acked, &paths[me], &GroupView { paths, me })
    }

    #[test]
    fn one_path_alone_is_reno() {
        assert_eq!(on(&[path(10_000, 100)], 0, 1_000), 100 * ONE);
        assert_eq!(
            increase(1_000, &path(10_000, 100), &GroupView::ALONE),
            100 * ONE
        );
    }

    #[test]
    fn equal_paths_take_the_square_of_their_share() {
        // Two paths: (1/2)^2 of Reno each; four: 1/16. Together they add what one TCP with their aggregate would.
        assert_eq!(on(&[path(10_000, 100); 2], 0, 1_000), 25 * ONE);
        assert_eq!(on(&[path(10_000, 100); 4], 3, 10_000), 1_000 * ONE / 16);
    }

    #[test]
    fn the_first_term_has_the_values_of_the_formula() {
        // Windows of 10 and 20 segments, round trips of 100 and 50 ms, no losses yet. x = 100 and 400: shares 1/5 and
        // 4/5. alpha: the faster path is best and has the largest window, so nothing moves. Path 1: 1,000 acknowledged bytes
        // add (1/25) * 1,000 * 1,000 / 10,000 = 4 bytes; path 2: (16/25) * 50 = 32 bytes.
        let paths = [
            with_loss(5_000, path(10_000, 100)),
            with_loss(5_000, path(20_000, 50)),
        ];
        for (me, bytes) in [(0, 4 * ONE), (1, 32 * ONE)] {
            assert!((on(&paths, me, 1_000) - bytes).abs() <= 1, "{me}");
        }
    }

    #[test]
    fn traffic_moves_to_the_path_that_looks_best() {
        // Equal rates; path 1 has the smaller window with rtt 50 ms, and the longest interval between losses.
        let best = with_loss(900_000, path(10_000, 50));
        let largest = with_loss(100_000, path(20_000, 100));
        let paths = [best, largest];
        // (1/4 + 1/2) of Reno's 100 bytes, and (1/4 - 1/2) of its 50.
        assert_eq!(on(&paths, 0, 1_000), 75 * ONE);
        assert_eq!(on(&paths, 1, 1_000), -25 * ONE / 2);
        // A third one that is neither: alpha is zero there.
        let other = with_loss(100_000, path(10_000, 50));
        let three = [best, largest, other];
        assert_eq!(
            alpha(
                &best,
                &GroupView {
                    paths: &three,
                    me: 0
                }
            ),
            Alpha::Takes(3)
        );
        assert_eq!(
            alpha(
                &largest,
                &GroupView {
                    paths: &three,
                    me: 1
                }
            ),
            Alpha::Gives(3)
        );
        assert_eq!(
            alpha(
                &other,
                &GroupView {
                    paths: &three,
                    me: 2
                }
            ),
            Alpha::Zero
        );
        // Two share the largest window, two look best.
        let four = [best, best, largest, largest];
        assert_eq!(
            alpha(
                &best,
                &GroupView {
                    paths: &four,
                    me: 0
                }
            ),
            Alpha::Takes(8)
        );
        assert_eq!(
            alpha(
                &largest,
                &GroupView {
                    paths: &four,
                    me: 2
                }
            ),
            Alpha::Gives(8)
        );
    }

    #[test]
    fn intervals_between_losses_are_remembered_for_one_loss() {
        let mut olia = Olia::new();
        olia.delivered(7_000);
        assert_eq!(olia.interloss(), 7_000);
        olia.lost();
        olia.delivered(2_000);
        assert_eq!(olia.interloss(), 7_000);
        olia.lost();
        assert_eq!(olia.interloss(), 2_000);
        olia.delivered(3_000);
        assert_eq!(olia.interloss(), 3_000);
    }

    #[test]
    fn slow_start_ends_above_the_threshold() {
        let (mut olia, mut window) = (Olia::new(), Window::new(1_000, 10));
        window.leave_slow_start();
        let rtt = Duration::from_millis(100);
        olia.lost();
        olia.avoid(&mut window, 1_000, rtt, &GroupView::ALONE);
        assert_eq!(window.cwnd(), 11_000, "a segment more, once after a loss");
        for _ in 0..9 {
            olia.avoid(&mut window, 1_000, rtt, &GroupView::ALONE);
        }
        assert_eq!(window.cwnd(), 11_000);
        olia.avoid(&mut window, 1_000, rtt, &GroupView::ALONE);
        assert_eq!(window.cwnd(), 12_000, "then as Reno");
    }

    #[test]
    fn parts_of_a_segment_do_not_make_a_window_the_largest() {
        // 20.3 and 20.0 segments: both are largest, and the one that looks best does not take.
        let (a, b) = (path(20_300, 100), with_loss(900_000, path(20_000, 100)));
        let paths = [a, b];
        for me in 0..2 {
            let group = GroupView { paths: &paths, me };
            assert_eq!(alpha(&paths[me], &group), Alpha::Zero);
        }
    }

    proptest! {
        #[test]
        fn any_group_is_handled_and_never_beats_reno(
            raw in prop::collection::vec((any::<u32>(), any::<u64>(), 1u32..65_536, any::<bool>(), any::<u64>()), 1..80),
            pick: prop::sample::Index, acked: u32,
        ) {
            let paths: Vec<_> = raw.iter().map(|&(cwnd, rtt, mss, usable, interloss)| PathSample {
                cwnd: cwnd.clamp(1, 1 << 30), srtt: Duration::from_nanos(rtt), mss, usable, interloss,
            }).collect();
            let me = pick.index(paths.len());
            let growth = on(&paths, me, acked);
            let reno = coupled::reno(acked, &paths[me]) as i64;
            prop_assert!(growth <= reno && growth >= -reno);
        }

        /// All paths of a connection together never add more than one TCP of the largest increase would.
        #[test]
        fn the_shifts_cancel_out(raw in prop::collection::vec((2u32..200, 1u64..300, 1u64..1_000_000), 2..6)) {
            let paths: Vec<_> = raw.iter().map(|&(segments, rtt, l)| with_loss(l, path(segments * 1_000, rtt))).collect();
            let takes: Vec<_> = (0..paths.len()).map(|me| alpha(&paths[me], &GroupView { paths: &paths, me })).collect();
            let sum: i64 = takes.iter().map(|alpha| match *alpha {
                Alpha::Zero => 0,
                Alpha::Takes(parts) => i64::from(3_600 / parts),
                Alpha::Gives(parts) => -i64::from(3_600 / parts),
            }).sum();
            prop_assert_eq!(sum, 0, "{:?}", takes);
        }
    }
}
