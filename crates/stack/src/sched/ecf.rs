//! ECF, "ECF: An MPTCP Path Scheduler to Manage Heterogeneous Paths" (Lim, Nahum, Towsley, Gibbens; CoNEXT 2017,
//! algorithm 1).
//!
//! While the fastest subflow F has no room, the next one, S, may carry data, unless all that waits would arrive sooner
//! if it waited for F. With k bytes unsent: F needs `n = 1 + k / CWND_F` round trips, so it is worth waiting if
//! `n * RTT_F < (1 + waiting * beta) * (RTT_S + delta)`, and if S would not be done first in spite of it:
//! `k / CWND_S * RTT_S >= 2 * RTT_F + delta`. Here delta is the larger variation of the two, and beta (a quarter)
//! keeps a decision to wait from flapping.

use super::{Choice, Need, PathView, RoundTrips, fast_and_slow, lowest_rtt, micros};

/// Numerator and denominator of beta (section 3 of the paper: 0.25).
const BETA: (u128, u128) = (1, 4);

/// What the two inequalities say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Everything arrives sooner if it waits for the fast subflow.
    Wait,
    /// The fast subflow alone would be sooner than the slow one's round trip, but what is left is soon sent either way.
    SlowSoon,
    /// There is more to send than the fast subflow can carry in time.
    Slow,
}

/// Chooses by the lowest round trip, but waits for the fastest subflow where that ends sooner.
pub(super) fn pick(paths: &[PathView], need: Need) -> Choice {
    match fast_and_slow(paths, &need) {
        Some((fast, slow, rtt)) => match judge(fast, slow, rtt, &need) {
            Verdict::Wait => Choice::Wait,
            Verdict::SlowSoon | Verdict::Slow => Choice::Send(slow.subflow),
        },
        None => lowest_rtt::pick(paths, need),
    }
}

/// The flag `waiting` after this question: only these verdicts change it.
pub(super) fn waits_on(paths: &[PathView], need: Need) -> bool {
    match fast_and_slow(paths, &need) {
        Some((fast, slow, rtt)) => match judge(fast, slow, rtt, &need) {
            Verdict::Wait => true,
            Verdict::SlowSoon => need.history.waiting,
            Verdict::Slow => false,
        },
        None => need.history.waiting,
    }
}

fn judge(fast: &PathView, slow: &PathView, rtt: RoundTrips, need: &Need) -> Verdict {
    let (cwnd_fast, cwnd_slow) = (
        u128::from(fast.cwnd.bytes),
        u128::from(slow.cwnd.bytes.max(1)),
    );
    let queued = u128::from(need.queued);
    let delta = micros(fast.rtt.rttvar.max(slow.rtt.rttvar));
    let patience = if need.history.waiting { BETA.0 } else { 0 } + BETA.1;
    // n * RTT_F < (1 + waiting * beta) * (RTT_S + delta), times CWND_F and beta's denominator.
    let fast_needs = (cwnd_fast + queued) * rtt.fast * BETA.1;
    if fast_needs >= patience * (rtt.slow + delta) * cwnd_fast {
        return Verdict::Slow;
    }
    if queued * rtt.slow >= (2 * rtt.fast + delta) * cwnd_slow {
        Verdict::Wait
    } else {
        Verdict::SlowSoon
    }
}

#[cfg(test)]
mod tests {
    use manypath_tcp::time::Duration;

    use super::super::fixtures::{full, path, with};
    use super::super::{History, Scheduler};
    use super::*;
    use crate::ids::SubflowId;

    fn queued(queued: u64, waiting: bool) -> Need {
        Need {
            queued,
            history: History {
                waiting,
                ..History::default()
            },
            ..Need::fresh(1_000)
        }
    }

    /// F: 20 ms, window 14,000, full. S: 90 ms with a variation of 10 ms.
    fn pair() -> [PathView; 2] {
        let slow = with(path(1, 90), |view| {
            view.rtt.rttvar = Duration::from_millis(10)
        });
        [full(path(0, 20)), slow]
    }

    #[test]
    fn the_inequalities_of_algorithm_1() {
        // n * 20 < 100 while 1 + k / 14,000 < 5: k < 56,000. And k / 14,000 * 90 >= 40 + 10: k >= 7,778.
        let (wait, slow) = (Choice::Wait, Choice::Send(SubflowId(1)));
        for (bytes, waiting, expected, waits) in [
            (7_777, false, slow, false),
            (7_778, false, wait, true),
            (55_999, false, wait, true),
            (56_000, false, slow, false),
            // Once it waits, a quarter more: n * 20 < 125 while k < 73,500.
            (56_000, true, wait, true),
            (73_499, true, wait, true),
            (73_500, true, slow, false),
            // The second inequality leaves the flag alone.
            (7_777, true, slow, true),
            (10_000_000, false, slow, false),
        ] {
            let need = queued(bytes, waiting);
            assert_eq!(pick(&pair(), need), expected, "{bytes} {waiting}");
            let history = Scheduler::Ecf.remember(&pair(), need);
            assert_eq!(history.waiting, waits, "{bytes} {waiting}");
        }
    }

    #[test]
    fn a_fast_path_with_room_is_taken() {
        let paths = [path(0, 20), path(1, 90)];
        for bytes in [1, 10_000, 1_000_000] {
            assert_eq!(
                pick(&paths, queued(bytes, true)),
                Choice::Send(SubflowId(0))
            );
        }
    }

    #[test]
    fn alike_paths_are_both_used() {
        let paths = [full(path(0, 20)), path(1, 22)];
        assert_eq!(
            pick(&paths, queued(20_000, false)),
            Choice::Send(SubflowId(1))
        );
    }

    #[test]
    fn it_waits_for_nobody_who_would_not_wake_it() {
        let [fast, slow] = pair();
        let idle = with(fast, |view| view.inflight = 0);
        let need = queued(30_000, false);
        assert_eq!(pick(&[fast, slow], need), Choice::Wait);
        assert_eq!(pick(&[idle, slow], need), Choice::Send(SubflowId(1)));
    }
}
