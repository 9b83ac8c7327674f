//! BALIA, the Balanced Linked Adaptation algorithm (draft-walid-mptcp-congestion-control-04 section 3; Peng, Walid, Hwang,
//! Low, IEEE/ACM Transactions on Networking 2016), in integers.
//!
//! With `x = w / rtt` and `alpha_r = max_k x_k / x_r`, path r grows by
//! `x_r / (rtt_r * (sum_k x_k)^2) * (1 + alpha_r) / 2 * (4 + alpha_r) / 5` segments for each acknowledged one, and gives
//! up `w_r / 2 * min(alpha_r, 1.5)` at a loss. The first factor is `(x_r / sum x)^2 / w_r`, Reno's increase scaled down by
//! the path's share of the rate; one path alone is Reno.

use super::coupled::{self, Rates, Ratio};
use super::{GroupView, PathSample, Window};
use crate::time::Duration;

/// The algorithm on one subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Balia {
    /// Alpha at the last acknowledgement: a loss is judged by it.
    alpha: Ratio,
}

impl Default for Balia {
    fn default() -> Self {
        Self { alpha: Ratio::ONE }
    }
}

impl Balia {
    /// A path alone.
    pub fn new() -> Balia {
        Balia::default()
    }

    /// An acknowledgement, in whatever phase, whether or not the window grows: how the path compares is known anew.
    pub fn compare(&mut self, window: &Window, srtt: Duration, group: &GroupView<'_>) {
        let me = PathSample::of(window, srtt, 0);
        self.alpha = Rates::of(&me, group).best;
    }

    /// `acked` bytes were acknowledged in congestion avoidance.
    pub fn avoid(&self, window: &mut Window, acked: u32, srtt: Duration, group: &GroupView<'_>) {
        let me = PathSample::of(window, srtt, 0);
        let growth = increase(acked, &me, group);
        window.earn(i64::try_from(growth).unwrap_or(i64::MAX));
    }

    /// The window after a loss with `flight` bytes outstanding.
    pub fn reduce(&self, flight: u32) -> u32 {
        let most = Ratio::of(3, 2);
        let given_up = u128::from(flight) * self.alpha.min(most).raw() / (2 * Ratio::ONE.raw());
        flight.saturating_sub(given_up as u32)
    }
}

/// Growth in 2^-16 bytes for `acked` bytes acknowledged on the path `me`.
pub fn increase(acked: u32, me: &PathSample, group: &GroupView<'_>) -> u64 {
    let (reno, rates) = (coupled::reno(acked, me), Rates::of(me, group));
    let (one, alpha, total) = (Ratio::ONE.raw(), rates.best.raw(), rates.total.raw());
    // (1 + alpha) * (4 + alpha) / (10 * total^2), where the fractions of both products cancel. Each is below 2^92 and Reno's
    // growth at most 2^32. The total holds both alpha and one, so the quotient is never more than one.
    let num = (one + alpha) * (4 * one + alpha);
    let den = 10 * total * total;
    u64::try_from((reno * num / den).min(reno)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::coupled::path;
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const ONE: u64 = 1 << 16;

    fn on(paths: &[PathSample], me: usize, acked: u32) -> u64 {
        increase(acked, &paths[me], &GroupView { paths, me })
    }

    #[test]
    fn one_path_alone_is_reno() {
        assert_eq!(on(&[path(10_000, 100)], 0, 1_000), 100 * ONE);
        let mut balia = Balia::new();
        let mut window = Window::new(1_000, 10);
        window.leave_slow_start();
        balia.compare(&window, Duration::from_millis(100), &GroupView::ALONE);
        balia.avoid(
            &mut window,
            10_000,
            Duration::from_millis(100),
            &GroupView::ALONE,
        );
        assert_eq!(window.cwnd(), 11_000);
        assert_eq!(balia.reduce(10_000), 5_000);
    }

    #[test]
    fn the_increase_has_the_values_of_the_formula() {
        // Equal paths: alpha = 1, so (1/n)^2 of Reno's 100 bytes.
        assert_eq!(on(&[path(10_000, 100); 2], 0, 1_000), 25 * ONE);
        assert_eq!(on(&[path(10_000, 100); 4], 1, 1_000), 100 * ONE / 16);
        // x = 100 and 300: on the slower path alpha = 3 and the share is 1/4: (1/16) * (4/2) * (7/5) * 100 bytes = 17.5;
        // on the faster one alpha = 1: (9/16) * 33.33 bytes = 18.75.
        let paths = [path(10_000, 100), path(30_000, 100)];
        for (me, expected) in [(0, 35 * ONE / 2), (1, 75 * ONE / 4)] {
            assert!(on(&paths, me, 1_000).abs_diff(expected) <= 2, "{me}");
        }
    }

    #[test]
    fn slower_paths_give_up_more_at_a_loss() {
        let window = Window::new(1_000, 10);
        for (other, left) in [
            (10_000, 5_000),
            (12_000, 4_000),
            (15_000, 2_500),
            (90_000, 2_500),
            (1_000, 5_000),
        ] {
            let mut balia = Balia::new();
            let paths = [path(10_000, 100), path(other, 100)];
            let group = GroupView {
                paths: &paths,
                me: 0,
            };
            balia.compare(&window, Duration::from_millis(100), &group);
            assert!(balia.reduce(10_000).abs_diff(left) <= 1, "{other}");
        }
    }

    /// The formula of the draft in floating point.
    fn draft(paths: &[PathSample], me: usize, acked: u32) -> f64 {
        let rate =
            |p: &PathSample| f64::from(p.cwnd) / f64::from(p.mss) / p.srtt.as_micros() as f64;
        let total: f64 = paths.iter().map(rate).sum();
        let best = paths.iter().map(rate).fold(0.0, f64::max);
        let (x, rtt) = (rate(&paths[me]), paths[me].srtt.as_micros() as f64);
        let alpha = best / x;
        let segments = x / (rtt * total * total) * ((1.0 + alpha) / 2.0) * ((4.0 + alpha) / 5.0);
        segments * f64::from(acked.min(paths[me].cwnd)) * 65_536.0
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula_of_the_draft(
            raw in prop::collection::vec((2u32..200, 1u64..300), 2..9), me in 0usize..2, acked in 1u32..3_000,
        ) {
            let paths: Vec<_> = raw.iter().map(|&(segments, rtt)| path(segments * 1_000, rtt)).collect();
            let (ours, exact) = (on(&paths, me, acked) as f64, draft(&paths, me, acked));
            prop_assert!((ours - exact).abs() <= exact / 1_000.0 + 2.0, "ours {} exact {}", ours, exact);
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
            prop_assert!(u128::from(on(&paths, me, acked)) <= coupled::reno(acked, &paths[me]));
        }
    }
}
