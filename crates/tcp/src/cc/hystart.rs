//! HyStart++ (RFC 9406): leaves the first slow start when round trips grow longer, before the queue overflows.

use super::AckSample;
use crate::time::Duration;

// All of RFC 9406 section 4.3.
const MIN_RTT_THRESH: Duration = Duration::from_millis(4);
const MAX_RTT_THRESH: Duration = Duration::from_millis(16);
const MIN_RTT_DIVISOR: u64 = 8;
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u32 = 4;
const CSS_ROUNDS: u32 = 5;

/// Where the first slow start stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Ordinary slow start.
    SlowStart,
    /// Conservative slow start: round trips grew, the window grows at a quarter of the pace (section 4.2).
    Conservative {
        /// Shortest round trip of the round that raised suspicion.
        baseline: Duration,
        /// Rounds begun in this mode, the partial first one included.
        rounds: u32,
    },
    /// Slow start is over.
    Done,
}

/// The state of HyStart++ on one subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HyStart {
    mode: Mode,
    /// The round ends when this many bytes are acknowledged in total; absent before the first acknowledgement.
    round_end: Option<u64>,
    last_min: Duration,
    current_min: Duration,
    samples: u32,
}

impl Default for HyStart {
    fn default() -> Self {
        HyStart::new()
    }
}

impl HyStart {
    /// The start of a connection.
    pub fn new() -> HyStart {
        HyStart {
            mode: Mode::SlowStart,
            round_end: None,
            last_min: Duration::MAX,
            current_min: Duration::MAX,
            samples: 0,
        }
    }

    /// Where it stands.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Slow start should end now.
    pub fn is_done(&self) -> bool {
        self.mode == Mode::Done
    }

    /// An acknowledgement arrived in the first slow start. Returns what the growth is to be divided by.
    pub fn on_ack(&mut self, ack: &AckSample) -> u32 {
        if self.round_end.is_none_or(|end| ack.acked_total >= end) {
            self.begin_round(ack.sent_total);
        }
        if let Some(rtt) = ack.rtt {
            self.current_min = self.current_min.min(rtt);
            self.samples += 1;
        }
        self.judge();
        match self.mode {
            Mode::SlowStart | Mode::Done => 1,
            Mode::Conservative { .. } => CSS_GROWTH_DIVISOR,
        }
    }

    fn begin_round(&mut self, sent_total: u64) {
        self.round_end = Some(sent_total);
        self.last_min = self.current_min;
        self.current_min = Duration::MAX;
        self.samples = 0;
        if let Mode::Conservative { baseline, rounds } = self.mode {
            self.mode = if rounds >= CSS_ROUNDS {
                Mode::Done
            } else {
                Mode::Conservative {
                    baseline,
                    rounds: rounds + 1,
                }
            };
        }
    }

    fn judge(&mut self) {
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.mode {
            Mode::SlowStart => {
                let threshold = self
                    .last_min
                    .over(MIN_RTT_DIVISOR)
                    .clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                // An unknown last round (`MAX`) saturates and is never exceeded by a real round trip.
                if self.last_min != Duration::MAX && self.current_min >= self.last_min + threshold {
                    self.mode = Mode::Conservative {
                        baseline: self.current_min,
                        rounds: 1,
                    };
                }
            }
            Mode::Conservative { baseline, .. } => {
                if self.current_min < baseline {
                    self.mode = Mode::SlowStart;
                }
            }
            Mode::Done => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn ack(total: u64, sent: u64, rtt_ms: u64) -> AckSample {
        AckSample {
            now: Instant::ZERO,
            acked: 1_000,
            inflight_before: 0,
            inflight_after: 0,
            max_inflight: 0,
            cwnd_limited: true,
            rtt: Some(Duration::from_millis(rtt_ms)),
            srtt: Duration::ZERO,
            min_rtt: Duration::ZERO,
            acked_total: total,
            sent_total: sent,
            rate: None,
            rate_app_limited: false,
            delivered_total: total,
            lost: 0,
        }
    }

    /// One round of ten acknowledgements with equal round trips; returns the last divisor.
    fn round(hystart: &mut HyStart, number: u64, rtt_ms: u64) -> u32 {
        let begin = number * 10_000;
        (1..=10)
            .map(|n| hystart.on_ack(&ack(begin + n * 1_000 - 1_000, begin + 10_000, rtt_ms)))
            .last()
            .unwrap()
    }

    #[test]
    fn steady_round_trips_never_end_slow_start() {
        let mut hystart = HyStart::new();
        for number in 0..50 {
            assert_eq!(round(&mut hystart, number, 40), 1);
        }
        assert_eq!(hystart.mode(), Mode::SlowStart);
    }

    #[test]
    fn the_threshold_is_an_eighth_between_4_and_16_ms() {
        for (base, grown, suspicious) in [
            (8, 11, false),
            (8, 12, true),
            (80, 89, false),
            (80, 90, true),
            (400, 415, false),
            (400, 416, true),
        ] {
            let mut hystart = HyStart::new();
            round(&mut hystart, 0, base);
            let divisor = round(&mut hystart, 1, grown);
            assert_eq!(
                divisor,
                if suspicious { 4 } else { 1 },
                "{base} -> {grown} ms"
            );
        }
    }

    #[test]
    fn five_conservative_rounds_end_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 40);
        round(&mut hystart, 1, 50);
        for number in 2..6 {
            assert_eq!(round(&mut hystart, number, 50), 4);
            assert!(!hystart.is_done(), "round {number}");
        }
        // The partial round of the change counts: rounds 1 to 5 were conservative.
        hystart.on_ack(&ack(60_000, 70_000, 50));
        assert!(hystart.is_done());
    }

    #[test]
    fn a_shorter_round_trip_resumes_slow_start() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 40);
        round(&mut hystart, 1, 50);
        assert_eq!(round(&mut hystart, 2, 49), 1);
        assert_eq!(hystart.mode(), Mode::SlowStart);
    }

    #[test]
    fn seven_samples_prove_nothing() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, 40);
        for n in 0..7 {
            assert_eq!(hystart.on_ack(&ack(10_000 + n, 20_000, 400)), 1);
        }
        assert_eq!(hystart.on_ack(&ack(10_007, 20_000, 400)), 4);
    }
}
