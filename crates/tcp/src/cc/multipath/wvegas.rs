//! wVegas, weighted Vegas (draft-xu-mptcp-congestion-control-05 section 3; Cao, Xu, Fu, ICNP 2012), in integers.
//!
//! Once a round trip, with the mean round trip `rtt` of that time and the shortest known one `base`, a path has
//! `diff = w * (rtt - base) / rtt` segments waiting in queues. It wants `alpha_r` of them: ten for all paths of a
//! connection together, in proportion to their rates, and two at least. The window grows by a segment below that and
//! shrinks by one above. Where the queueing delay is twice the smallest that was seen, the window is cut to
//! `w * base / (2 * rtt)`, so that queues drain and `base` can be measured. Slow start ends with one segment of queue. A loss
//! halves the window.
//!
//! One thing is otherwise than in the draft: queueing delays are compared only in rounds that have reached alpha. A window
//! that grows from an empty queue doubles its delay by its second segment, so the draft's comparison halves it there, again
//! and again, and leaves a quarter of the path unused.

use super::coupled::{Rates, Ratio};
use super::{AckSample, GroupView, PathSample, Window};
use crate::time::Duration;

/// Segments that a connection wants in queues (`total_alpha` of the draft; 10 in the authors' `mptcp_wvegas.c`).
const TOTAL_ALPHA: u64 = 10;
/// Segments that each path wants at least (`initial_alpha` of `mptcp_wvegas.c`).
const LEAST_ALPHA: u64 = 2;
/// Segments in queues that end slow start (`gamma` of `mptcp_wvegas.c`).
const GAMMA: u64 = 1;
/// Round-trip samples without which a round says nothing: one delayed acknowledgement would be half of two (as Linux's
/// `tcp_vegas.c`).
const LEAST_SAMPLES: u64 = 3;
/// Fraction of the segments counted in queues; arithmetic, not a choice.
const PARTS: u64 = 1 << 10;

/// The algorithm on one subflow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WVegas {
    /// The round ends when this many bytes are acknowledged in total.
    round_end: u64,
    /// Sum and number of this round's samples.
    sampled: Duration,
    samples: u64,
    /// Shortest round trip ever, within the memory of the estimator.
    base: Duration,
    /// Segments wanted in queues, in [`PARTS`]; zero before the first weighing.
    alpha: u64,
    /// The smallest queueing delay since the last cut.
    queue_delay: Option<Duration>,
}

/// What a round's measurements ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Grow,
    Stay,
    Shrink,
}

/// Segments in queues, in [`PARTS`]: `w * (rtt - base) / rtt`.
fn queued(cwnd: u32, mss: u32, rtt: Duration, base: Duration) -> u64 {
    let delay = u128::from(rtt.excess_over(base).as_nanos());
    let bytes = delay * u128::from(u64::from(cwnd) * PARTS) / u128::from(rtt.as_nanos().max(1));
    // Never more than the window itself.
    bytes as u64 / u64::from(mss.max(1))
}

/// More or fewer segments.
fn judge(queued: u64, alpha: u64) -> Verdict {
    match queued.cmp(&alpha) {
        core::cmp::Ordering::Less => Verdict::Grow,
        core::cmp::Ordering::Equal => Verdict::Stay,
        core::cmp::Ordering::Greater => Verdict::Shrink,
    }
}

/// Segments that a path wants in queues, in [`PARTS`]: its share of the connection's rate, of ten.
fn wanted(me: &PathSample, group: &GroupView<'_>) -> u64 {
    let total = Rates::of(me, group).total;
    let share = u128::from(TOTAL_ALPHA * PARTS) * Ratio::ONE.raw() / total.raw();
    (share as u64).max(LEAST_ALPHA * PARTS)
}

impl WVegas {
    /// Nothing measured yet.
    pub fn new() -> WVegas {
        WVegas::default()
    }

    /// An acknowledgement outside of fast recovery. `grows` says that the window was used, so that it may grow.
    pub fn on_ack(
        &mut self,
        window: &mut Window,
        ack: &AckSample,
        grows: bool,
        group: &GroupView<'_>,
    ) {
        if let Some(rtt) = ack.rtt {
            self.sampled += rtt;
            self.samples += 1;
        }
        if ack.acked_total < self.round_end {
            if window.in_slow_start() && grows {
                window.slow_start(ack.acked, 1);
            }
            return;
        }
        self.round_end = ack.sent_total;
        let rtt = self.sampled.over(self.samples);
        let samples = core::mem::take(&mut self.samples);
        self.sampled = Duration::ZERO;
        if samples < LEAST_SAMPLES || ack.min_rtt.is_zero() {
            // Too few for a judgement: as Reno, one segment a round trip.
            self.grow(window, ack.acked, grows);
            return;
        }
        self.base = ack.min_rtt;
        self.end_round(window, ack, rtt.max(self.base), grows, group);
    }

    fn grow(&self, window: &mut Window, acked: u32, grows: bool) {
        if !grows {
            return;
        }
        if window.in_slow_start() {
            window.slow_start(acked, 1);
        } else {
            window.set_cwnd(window.cwnd().saturating_add(window.mss()));
        }
    }

    /// A round trip is over, whose mean was `rtt`.
    fn end_round(
        &mut self,
        window: &mut Window,
        ack: &AckSample,
        rtt: Duration,
        grows: bool,
        group: &GroupView<'_>,
    ) {
        let (cwnd, mss) = (window.cwnd(), window.mss());
        let waiting = queued(cwnd, mss, rtt, self.base);
        if window.in_slow_start() {
            if waiting <= GAMMA * PARTS {
                self.grow(window, ack.acked, grows);
                return;
            }
            let fits = scale(cwnd, self.base, rtt).saturating_add(mss);
            window.set_cwnd(cwnd.min(fits));
            window.leave_slow_start();
            return;
        }
        if self.alpha == 0 || waiting >= self.alpha {
            let me = PathSample::of(window, rtt, 0);
            self.alpha = wanted(&me, group);
        }
        match judge(waiting, self.alpha) {
            Verdict::Grow => self.grow(window, ack.acked, grows),
            Verdict::Stay => {}
            Verdict::Shrink => window.set_cwnd(cwnd.saturating_sub(mss)),
        }
        if waiting >= self.alpha {
            self.drain(window, rtt);
        }
        // Two segments are the least that a path needs to be measured.
        window.set_cwnd(window.cwnd().max(mss.saturating_mul(2)));
        window.set_ssthresh(window.ssthresh().min(window.cwnd()));
    }

    /// Cuts the window where queues have become twice as long as they can be.
    fn drain(&mut self, window: &mut Window, rtt: Duration) {
        let delay = rtt.excess_over(self.base);
        let least = self.queue_delay.map_or(delay, |least| least.min(delay));
        self.queue_delay = Some(least).filter(|least| !least.is_zero());
        if !least.is_zero() && delay >= least.times(2) {
            window.set_cwnd(scale(window.cwnd(), self.base, rtt.times(2)));
            self.queue_delay = None;
        }
    }

    /// A loss or a time-out: what was measured before says nothing about the time after it.
    pub fn lost(&mut self) {
        self.samples = 0;
        self.sampled = Duration::ZERO;
    }
}

/// `value * num / den` of two spans.
fn scale(value: u32, num: Duration, den: Duration) -> u32 {
    let scaled = u128::from(value) * u128::from(num.as_nanos()) / u128::from(den.as_nanos().max(1));
    u32::try_from(scaled).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::coupled::path;
    use super::*;
    use crate::time::Instant;

    const MSS: u32 = 1_000;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn avoiding(segments: u32) -> Window {
        let mut window = Window::new(MSS, segments);
        window.leave_slow_start();
        window
    }

    /// One whole round: the window's acknowledgements, two segments each, all with the same round trip.
    fn round(
        vegas: &mut WVegas,
        window: &mut Window,
        total: &mut u64,
        rtt: u64,
        group: &GroupView<'_>,
    ) {
        let (begin, end) = (*total, *total + u64::from(window.cwnd()));
        let mut acked = begin;
        while acked < end {
            acked = (acked + 2 * u64::from(MSS)).min(end);
            let ack = AckSample {
                now: Instant::ZERO,
                acked: 2 * MSS,
                inflight_before: 0,
                inflight_after: 0,
                max_inflight: u32::MAX,
                cwnd_limited: true,
                rtt: Some(ms(rtt)),
                srtt: ms(rtt),
                min_rtt: ms(100),
                acked_total: acked,
                sent_total: acked + (end - begin),
                delivered_total: acked,
                rate: None,
                rate_app_limited: false,
                lost: 0,
            };
            vegas.on_ack(window, &ack, true, group);
        }
        *total = end;
    }

    #[test]
    fn what_waits_in_queues_follows_the_formula() {
        // 20 segments, 125 ms of which 25 in queues: 4 segments. 110 ms: 1.818.
        for (segments, rtt, expected) in [
            (20, 125, 4 * PARTS),
            (20, 110, 1_861),
            (20, 100, 0),
            (20, 99, 0),
        ] {
            assert_eq!(
                queued(segments * MSS, MSS, ms(rtt), ms(100)),
                expected,
                "{rtt}"
            );
        }
    }

    #[test]
    fn alpha_is_the_share_of_ten_and_two_at_least() {
        let alone = path(10_000, 100);
        assert_eq!(wanted(&alone, &GroupView::ALONE), 10 * PARTS);
        let paths = [alone, path(30_000, 100)];
        let on = |me| wanted(&paths[me], &GroupView { paths: &paths, me });
        assert_eq!((on(0), on(1)), (5 * PARTS / 2, 15 * PARTS / 2));
        let eight = [alone; 8];
        let group = GroupView {
            paths: &eight,
            me: 0,
        };
        assert_eq!(wanted(&alone, &group), 2 * PARTS);
    }

    #[test]
    fn the_window_moves_by_a_segment_a_round_towards_alpha() {
        // Alone it wants ten segments in queues. Of 41, at 125 ms 8.2 wait, at 132 ms 9.9, at 133 ms 10.2, at 150 ms 13.7.
        for (rtt, change) in [(100, 1), (125, 1), (132, 1), (133, -1), (150, -1)] {
            let (mut vegas, mut window, mut total) = (WVegas::new(), avoiding(40), 0);
            round(&mut vegas, &mut window, &mut total, rtt, &GroupView::ALONE);
            // The first acknowledgement of a connection ends a round of nothing.
            let begun = window.cwnd();
            round(&mut vegas, &mut window, &mut total, rtt, &GroupView::ALONE);
            let step = i64::from(window.cwnd()) - i64::from(begun);
            assert_eq!((begun, step), (41_000, change * i64::from(MSS)), "{rtt} ms");
        }
    }

    #[test]
    fn queues_twice_as_long_as_needed_are_drained() {
        let mut vegas = WVegas {
            base: ms(100),
            ..WVegas::default()
        };
        let mut window = avoiding(40);
        vegas.drain(&mut window, ms(110));
        vegas.drain(&mut window, ms(119));
        assert_eq!((window.cwnd(), vegas.queue_delay), (40_000, Some(ms(10))));
        // 40 segments * 100 / (2 * 120).
        vegas.drain(&mut window, ms(120));
        assert_eq!((window.cwnd(), vegas.queue_delay), (16_666, None));
    }

    #[test]
    fn slow_start_ends_with_a_segment_of_queue() {
        let (mut vegas, mut window, mut total) = (WVegas::new(), Window::new(MSS, 10), 0);
        for _ in 0..3 {
            round(&mut vegas, &mut window, &mut total, 100, &GroupView::ALONE);
        }
        assert!(window.in_slow_start() && window.cwnd() >= 60_000);
        let before = window.cwnd();
        for _ in 0..2 {
            round(&mut vegas, &mut window, &mut total, 150, &GroupView::ALONE);
        }
        assert!(!window.in_slow_start() && window.cwnd() < before * 2);
    }
}
