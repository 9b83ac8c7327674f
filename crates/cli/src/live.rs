//! Rates of connections and subflows over time, from two looks at their counters.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use manypath_control::report::{ConnReport, SubflowReport};
use serde::Serialize;

/// Which subflow of which connection of which process.
type Key = (u32, String, u32);

/// Remembers the counters of the last look at each process.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    last: BTreeMap<Key, (Instant, u64, u64)>,
    /// When all subflows of a process were looked at: what is younger began with nothing since then.
    rounds: BTreeMap<u32, Instant>,
    /// A moment here, and the age that the process had then.
    clocks: BTreeMap<u32, (Instant, Duration)>,
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
    /// When a process took the counters that it tells, by its own clock: its answer may have been long on its way. The kernel has
    /// no age; its counters are taken to be as old as the question.
    pub(crate) fn moment(&mut self, pid: u32, age_us: u64, asked: Instant) -> Instant {
        let age = Duration::from_micros(age_us);
        let (then, age_then) = *self.clocks.entry(pid).or_insert((asked, age));
        match age.checked_sub(age_then) {
            Some(since) if age_us > 0 => then + since,
            // Another process of the same id.
            _ => {
                self.clocks.insert(pid, (asked, age));
                asked
            }
        }
    }

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
        let round = self.rounds.get(&pid).copied();
        let began = round
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

    /// Ends a round of looks at a process, all made at `then`: forgets what was not looked at in it. A process that did not answer
    /// has no round: its next rates are those since its last answer.
    pub(crate) fn end_round(&mut self, pid: u32, then: Instant) {
        self.rounds.insert(pid, then);
        self.last
            .retain(|(of, _, _), (at, _, _)| *of != pid || *at >= then);
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
        rates.end_round(1, start);
        rates.end_round(2, start);
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
        rates.end_round(1, later + Duration::from_secs(1));
        assert_eq!(rates.look(1, &of(9000), later)[0].sent, 0.0);
    }

    /// What was told late is divided by the time between the two samples, and not between the two answers.
    #[test]
    fn a_slow_answer_makes_no_rate_wrong() {
        let mut rates = Rates::default();
        let of = |sent| ConnReport {
            subflows: vec![SubflowReport {
                bytes_sent: sent,
                age_us: u64::MAX,
                ..SubflowReport::default()
            }],
            ..ConnReport::default()
        };
        let start = Instant::now();
        let second = Duration::from_secs(1);
        let first = rates.moment(1, 10_000_000, start);
        assert_eq!(rates.look(1, &of(0), first)[0].sent, 0.0);
        rates.end_round(1, first);
        // It was asked after one second, and took its counters after three.
        let late = rates.moment(1, 13_000_000, start + second);
        assert_eq!(rates.look(1, &of(3_000), late)[0].sent, 8_000.0);
        rates.end_round(1, late);
        // It answers nothing in between: nothing of that process is forgotten.
        rates.end_round(2, start + second * 9);
        let later = rates.moment(1, 23_000_000, start + second * 11);
        assert_eq!(rates.look(1, &of(13_000), later)[0].sent, 8_000.0);
        // Another process of the same number.
        let anew = rates.moment(1, 5, start + second * 20);
        assert_eq!(anew, start + second * 20);
    }
}
