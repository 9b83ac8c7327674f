//! BLEST, "Blocking Estimation-based MPTCP Scheduler for Heterogeneous Networks" (Ferlin, Alay, Mehani, Boreli; IFIP
//! Networking 2016, section III).
//!
//! While the fastest subflow F has no room, the next one, S, may carry data, unless what it carries would fill the
//! connection's window before it arrives. F can send `X = MSS_F * (CWND_F + (rtts - 1) / 2) * rtts` bytes during one
//! round trip of S, with `rtts = RTT_S / RTT_F`: its window grows by one segment a round trip. S stays idle if
//! `X * lambda > |M| - MSS_S * (inflight_S + 1)` with the send window `|M|`. The factor lambda grows when the window
//! blocked all the same, and shrinks otherwise.

use super::{Choice, Need, PathView, RoundTrips, fast_and_slow, lowest_rtt};

/// BLEST's correction factor, in thousandths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Lambda(u16);

impl Lambda {
    /// Where it starts: `lambda` of the authors' `mptcp_blest.c`. The paper starts from one; with a fifth more, the first window
    /// does not block before anything was learnt.
    pub const INITIAL: Self = Self(1_200);
    // `min_lambda`, `max_lambda`, `dyn_lambda_bad` and `dyn_lambda_good` of `mptcp_blest.c`.
    const LEAST: u16 = 1_000;
    const MOST: u16 = 1_300;
    const UP: u16 = 40;
    const DOWN: u16 = 10;

    /// A round trip of the connection is over, during which its window stopped it or did not.
    #[must_use]
    pub fn after_round(self, blocked: bool) -> Self {
        let next = if blocked {
            self.0.saturating_add(Self::UP)
        } else {
            self.0.saturating_sub(Self::DOWN)
        };
        Self(next.clamp(Self::LEAST, Self::MOST))
    }
}

impl Default for Lambda {
    fn default() -> Self {
        Self::INITIAL
    }
}

/// Chooses by the lowest round trip, but waits for the fastest subflow where another would block the window.
pub(super) fn pick(paths: &[PathView], need: Need) -> Choice {
    match fast_and_slow(paths, &need) {
        Some((fast, slow, rtt)) if blocks(fast, slow, rtt, &need) => Choice::Wait,
        Some((_, slow, _)) => Choice::Send(slow.subflow),
        None => lowest_rtt::pick(paths, need),
    }
}

/// The condition of section III, in bytes.
fn blocks(fast: &PathView, slow: &PathView, rtt: RoundTrips, need: &Need) -> bool {
    let expected = sends_meanwhile(fast, rtt) * u128::from(need.history.lambda.0) / 1_000;
    let taken = u64::from(slow.inflight) + u64::from(slow.mss);
    expected > u128::from(need.window.saturating_sub(taken))
}

/// The bytes X that the fast subflow can send during one round trip of the slow one. With both round trips in the
/// denominator: `rtt_s * (2 * rtt_f * cwnd_f + mss_f * (rtt_s - rtt_f)) / (2 * rtt_f^2)`.
fn sends_meanwhile(fast: &PathView, rtt: RoundTrips) -> u128 {
    let windows = 2 * rtt.fast * u128::from(fast.cwnd.bytes);
    let growth = u128::from(fast.mss) * rtt.slow.saturating_sub(rtt.fast);
    rtt.slow * (windows + growth) / (2 * rtt.fast * rtt.fast)
}

#[cfg(test)]
mod tests {
    use super::super::History;
    use super::super::fixtures::{full, path, unmeasured, with};
    use super::*;
    use crate::ids::SubflowId;

    fn with_window(window: u64, lambda: Lambda) -> Need {
        Need {
            window,
            history: History {
                lambda,
                ..History::default()
            },
            ..Need::fresh(1_000_000)
        }
    }

    const ONE: Lambda = Lambda(Lambda::LEAST);

    #[test]
    fn what_the_fast_path_sends_follows_the_formula() {
        // Ten segments of 1,400 bytes; rtts = 1: one window. rtts = 4: (10 + 1.5) * 4 = 46 segments. rtts = 2.5:
        // (10 + 0.75) * 2.5 = 26.875 segments.
        for (fast, slow, expected) in [(20, 20, 14_000), (20, 80, 64_400), (20, 50, 37_625)] {
            let rtt = RoundTrips { fast, slow };
            assert_eq!(sends_meanwhile(&path(0, 20), rtt), expected);
        }
    }

    #[test]
    fn the_slow_path_rests_where_it_would_block_the_window() {
        let (fast, slow) = (full(path(0, 20)), path(1, 80));
        let send = |id| Choice::Send(SubflowId(id));
        // X = 64,400 and one segment of 1,400 on the slow path.
        let edge = 64_400 + 1_400;
        let busy = with(slow, |view| view.inflight = 2_800);
        for (name, paths, need, expected) in [
            (
                "room for both",
                [fast, slow],
                with_window(edge, ONE),
                send(1),
            ),
            (
                "one byte less",
                [fast, slow],
                with_window(edge - 1, ONE),
                Choice::Wait,
            ),
            (
                "the fast one has room",
                [path(0, 20), slow],
                with_window(1, ONE),
                send(0),
            ),
            (
                "with its flight",
                [fast, busy],
                with_window(edge, ONE),
                Choice::Wait,
            ),
            (
                "with its flight, wider",
                [fast, busy],
                with_window(edge + 2_800, ONE),
                send(1),
            ),
            (
                "corrected",
                [fast, slow],
                with_window(edge, Lambda::INITIAL),
                Choice::Wait,
            ),
            (
                "corrected, wider",
                [fast, slow],
                with_window(78_680, Lambda::INITIAL),
                send(1),
            ),
            (
                "a window of nothing",
                [fast, slow],
                with_window(0, ONE),
                Choice::Wait,
            ),
        ] {
            assert_eq!(pick(&paths, need), expected, "{name}");
        }
    }

    #[test]
    fn it_waits_for_nobody_who_would_not_wake_it() {
        let idle = with(full(path(0, 20)), |view| view.inflight = 0);
        let need = with_window(1, ONE);
        assert_eq!(pick(&[idle, path(1, 80)], need), Choice::Send(SubflowId(1)));
        let fresh = unmeasured(path(1, 0));
        assert_eq!(
            pick(&[full(path(0, 20)), fresh], need),
            Choice::Send(SubflowId(1))
        );
    }

    #[test]
    fn the_factor_learns_from_blocking_within_bounds() {
        assert_eq!(Lambda::INITIAL.after_round(true), Lambda(1_240));
        assert_eq!(Lambda::INITIAL.after_round(false), Lambda(1_190));
        let (mut up, mut down) = (Lambda::INITIAL, Lambda::INITIAL);
        for _ in 0..100 {
            (up, down) = (up.after_round(true), down.after_round(false));
        }
        assert_eq!((up, down), (Lambda(1_300), Lambda(1_000)));
    }
}
