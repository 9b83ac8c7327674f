//! Rates of connections and subflows over time, from two looks at their counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use manypath_control::report::{ConnReport, SubflowReport};
use serde::Serialize;

/// Which subflow of which connection of which process.
type Key = (u32, String, u32);

/// Remembers the counters of the last look.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    last: BTreeMap<Key, (Instant, u64, u64)>,
    /// When all subflows were looked at: what is younger began with nothing since then.
    round: Option<Instant>,
}

/// Rates of one subflow since the last look, bits of stream data per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SubflowRate {
    /// Sent, first transmissions and reinjections.
    pub(crate) sent: f64,
    /// Received.
    pub(crate) received: f64,
}

impl Rates {
    /// The rates of a connection's subflows since the last look, in their order; zero at the first look,
    /// unless a subflow began after the last round.
    pub(crate) fn look(&mut self, pid: u32, conn: &ConnReport, now: Instant) -> Vec<SubflowRate> {
        conn.subflows
            .iter()
            .map(|subflow| self.of(pid, conn, subflow, now))
            .collect()
    }

    fn of(
        &mut self,
        pid: u32,
        conn: &ConnReport,
        subflow: &SubflowReport,
        now: Instant,
    ) -> SubflowRate {
        let sent = subflow.bytes_sent + subflow.bytes_reinjected;
        let received = subflow.bytes_received;
        let key = (pid, conn.id.clone(), subflow.id);
        let age = Duration::from_micros(subflow.age_us);
        let began = self
            .round
            .filter(|&round| age <= now.saturating_duration_since(round))
            .map(|round| (round, 0, 0));
        let last = self.last.insert(key, (now, sent, received));
        let Some((then, sent_then, received_then)) = last.or(began) else {
            return SubflowRate::default();
        };
        let seconds = now.saturating_duration_since(then).as_secs_f64();
        // A number may be used again by a new subflow, whose counters begin anew.
        let rate = |new: u64, old: u64| {
            if seconds > 0.0 {
                new.saturating_sub(old) as f64 * 8.0 / seconds
            } else {
                0.0
            }
        };
        SubflowRate {
            sent: rate(sent, sent_then),
            received: rate(received, received_then),
        }
    }

    /// Ends a round of looks, which began at `then`: forgets what was not looked at in it.
    pub(crate) fn forget_before(&mut self, then: Instant) {
        self.round = Some(then);
        self.last.retain(|_, (at, _, _)| *at >= then);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_since_the_last_round_has_a_rate_at_once() {
        let mut rates = Rates::default();
        let of = |age_us| ConnReport {
            subflows: vec![SubflowReport {
                bytes_sent: 1000,
                age_us,
                ..SubflowReport::default()
            }],
            ..ConnReport::default()
        };
        let start = Instant::now();
        rates.forget_before(start);
        let later = start + Duration::from_secs(2);
        assert_eq!(rates.look(1, &of(1_000_000), later)[0].sent, 4000.0);
        // What is older has sent at times that nobody knows.
        assert_eq!(rates.look(2, &of(3_000_000), later)[0].sent, 0.0);
    }

    #[test]
    fn rates_come_from_differences() {
        let mut rates = Rates::default();
        let of = |sent| ConnReport {
            subflows: vec![SubflowReport {
                bytes_sent: sent,
                ..SubflowReport::default()
            }],
            ..ConnReport::default()
        };
        let start = Instant::now();
        let later = start + Duration::from_secs(2);
        assert_eq!(rates.look(1, &of(1000), start)[0].sent, 0.0);
        assert_eq!(rates.look(1, &of(3000), later)[0].sent, 8000.0);
        // Another process has counters of its own.
        assert_eq!(rates.look(2, &of(9000), later)[0].sent, 0.0);
        rates.forget_before(later + Duration::from_secs(1));
        assert_eq!(rates.look(1, &of(9000), later)[0].sent, 0.0);
    }
}
