//! What the last round trip looked like: congestion control grows a window only while it is used.

use crate::recovery::rate::RateSample;
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// A path is held to carry what it once did for at least so long, and at most twice. A trade: a path whose sender is held back by
/// something else (the window of the connection, a pause) must not be forgotten meanwhile, and one that became slow must be.
const REMEMBERED: Duration = Duration::from_secs(5);

/// The rate of a path that loses packets is averaged over so long, because its window goes up and down. A trade: a shorter time
/// takes the top of the saw for the rate, a longer one notices late what changed.
const AVERAGED: Duration = Duration::from_secs(1);

/// Counts over one round trip, and what the one before came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Round {
    /// The round ends when this many bytes are acknowledged in total.
    end: u64,
    now: Counts,
    last: Counts,
    peak: Peak,
    mean: Mean,
    sustained: Peak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Counts {
    max_inflight: u32,
    cwnd_limited: bool,
    rtt_samples: u32,
    min_rtt: Option<Duration>,
    rate: Option<Rate>,
}

/// The highest rate of some seconds: a sender that is held back by something else than its path for a while shows less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Peak {
    began: Instant,
    now: Option<Rate>,
    last: Option<Rate>,
}

impl Peak {
    fn sample(&mut self, now: Instant, rate: Rate) {
        if now.since(self.began) >= REMEMBERED {
            (self.began, self.last, self.now) = (now, self.now, None);
        }
        self.now = self.now.max(Some(rate));
    }
}

/// The rate over a second, of which no part is known at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Mean {
    at: Instant,
    rate: Option<Rate>,
}

impl Mean {
    fn sample(&mut self, now: Instant, rate: Rate, growing: bool) -> Rate {
        let since = now.since(self.at).min(AVERAGED);
        self.at = now;
        let mean = match self.rate {
            Some(old) if !growing => {
                let part = |rate: Rate, span: Duration| {
                    rate.ratio(span.as_nanos(), AVERAGED.as_nanos())
                        .as_bytes_per_sec()
                };
                let rest = AVERAGED.excess_over(since);
                Rate::from_bytes_per_sec(part(old, rest).saturating_add(part(rate, since)))
            }
            _ => rate,
        };
        self.rate = Some(mean);
        mean
    }
}

impl Round {
    /// Something left; `inflight` bytes are in the network now.
    pub(super) fn on_sent(&mut self, inflight: u32, cwnd: u32, mss: u32) {
        self.now.max_inflight = self.now.max_inflight.max(inflight);
        // Bursts are not cut to fit the last bytes of the window.
        self.now.cwnd_limited |= inflight.saturating_add(mss) > cwnd;
    }

    /// An acknowledgement arrived.
    pub(super) fn on_ack(&mut self, acked_total: u64, sent_total: u64, inflight: u32) {
        if acked_total >= self.end {
            self.last = self.now;
            self.now = Counts {
                max_inflight: inflight,
                ..Counts::default()
            };
            self.end = sent_total;
        }
    }

    /// A round-trip time was measured. Returns how many such a round brings.
    pub(super) fn on_rtt_sample(&mut self, rtt: Duration) -> u32 {
        self.now.min_rtt = Some(self.now.min_rtt.map_or(rtt, |old| old.min(rtt)));
        self.now.rtt_samples = self.now.rtt_samples.saturating_add(1);
        self.last.rtt_samples.max(1)
    }

    /// Shortest round trip of this round and the last: unlike the smoothed one it forgets at once, and a single
    /// acknowledgement that the peer held back does not spoil it.
    pub(super) fn min_rtt(&self) -> Option<Duration> {
        match (self.now.min_rtt, self.last.min_rtt) {
            (Some(now), Some(last)) => Some(now.min(last)),
            (now, last) => now.or(last),
        }
    }

    /// A delivery rate was measured.
    pub(super) fn on_rate_sample(&mut self, rate: Rate) {
        self.now.rate = self.now.rate.max(Some(rate));
    }

    /// The measured rate is that of segments that were sent once; `growing`: each round trip it is more.
    pub(super) fn on_certain_rate(&mut self, now: Instant, sample: &RateSample, growing: bool) {
        let rate = sample.rate();
        self.peak.sample(now, rate);
        if !sample.app_limited || self.mean.rate.is_none_or(|mean| rate > mean) {
            let mean = self.mean.sample(now, rate, growing);
            self.sustained.sample(now, mean);
        }
    }

    /// What the path carried was too long ago.
    pub(super) fn forget_rates(&mut self) {
        (self.now, self.last) = (Counts::default(), Counts::default());
        (self.peak, self.sustained) = (Peak::default(), Peak::default());
        self.mean = Mean::default();
    }

    /// The highest rate of the last seconds that lasted for one.
    pub(crate) fn sustained(&self) -> Option<Rate> {
        self.sustained.now.max(self.sustained.last)
    }

    /// The highest delivery rate of the last seconds.
    pub(crate) fn peak(&self) -> Option<Rate> {
        self.peak.now.max(self.peak.last)
    }

    /// The highest delivery rate of this round and the last.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.now.rate.max(self.last.rate)
    }

    /// Most bytes in the network during this round and the last.
    pub(crate) fn max_inflight(&self) -> u32 {
        self.now.max_inflight.max(self.last.max_inflight)
    }

    /// The congestion window held the sender back during this round or the last.
    pub(super) fn cwnd_limited(&self) -> bool {
        self.now.cwnd_limited || self.last.cwnd_limited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many bytes a second were measured at `ms`.
    fn measure(round: &mut Round, ms: u64, rate: u64, app_limited: bool, growing: bool) {
        let sample = RateSample {
            delivered: rate,
            interval: Duration::from_secs(1),
            prior_delivered: 0,
            app_limited,
        };
        round.on_certain_rate(Instant::ZERO + Duration::from_millis(ms), &sample, growing);
    }

    fn sustained(round: &Round) -> u64 {
        round.sustained().map_or(0, Rate::as_bytes_per_sec)
    }

    #[test]
    fn a_rate_counts_by_how_much_of_a_second_it_lasts() {
        let mut round = Round::default();
        measure(&mut round, 10_000, 1_000, false, false);
        assert_eq!(sustained(&round), 1_000);
        measure(&mut round, 10_100, 3_000, false, false);
        assert_eq!(
            sustained(&round),
            1_200,
            "nine parts of one, one of the other"
        );
        measure(&mut round, 11_100, 3_000, false, false);
        assert_eq!(sustained(&round), 3_000, "a second of it");
        assert_eq!(round.peak(), Some(Rate::from_bytes_per_sec(3_000)));
    }

    #[test]
    fn a_path_that_grows_carries_what_it_did_last() {
        let mut round = Round::default();
        measure(&mut round, 10_000, 1_000, false, true);
        measure(&mut round, 10_010, 4_000, false, true);
        assert_eq!(sustained(&round), 4_000);
    }

    #[test]
    fn an_application_limited_round_is_no_evidence_against_a_path() {
        let mut round = Round::default();
        measure(&mut round, 10_000, 1_000, false, false);
        for n in 1..=5 {
            measure(&mut round, 10_000 + n * 100, 10, true, false);
        }
        measure(&mut round, 10_600, 1_100, true, false);
        assert_eq!(sustained(&round), 1_060, "more than is known, for 600 ms");
    }

    #[test]
    fn what_a_path_carried_is_forgotten_after_some_seconds() {
        let mut round = Round::default();
        measure(&mut round, 10_000, 9_000, false, false);
        let second =
            |round: &mut Round, n: u64| measure(round, 10_000 + n * 1_000, 1_000, false, false);
        (1..=9).for_each(|n| second(&mut round, n));
        assert_eq!(sustained(&round), 9_000);
        (10..=11).for_each(|n| second(&mut round, n));
        assert_eq!(sustained(&round), 1_000);
    }
}
