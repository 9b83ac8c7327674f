//! Round-trip time (RFC 6298 section 2) and its recent minimum.

use crate::time::{Duration, Instant};

/// The minimum forgets what is older than one to two of these, so that a changed route is noticed; two are the 300 s of Linux's
/// `tcp_min_rtt_wlen`.
const MIN_WINDOW: Duration = Duration::from_secs(150);

/// What an echoed timestamp says about the segment that it was sent with (RFC 7323 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The segment left before this instant: the end of the clock's tick.
    pub before: Instant,
    /// Time since the tick began.
    pub rtt: Duration,
}

/// The round-trip estimator of one subflow. Samples must obey Karn's rule; the scoreboard sees to that.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rtt {
    srtt: Option<Duration>,
    rttvar: Duration,
    latest: Duration,
    /// How long the peer held acknowledgements back lately.
    held_back: Option<Duration>,
    /// Minimum of the present window and of the one before.
    minima: [Option<Duration>; 2],
    window_began: Instant,
}

impl Rtt {
    /// No sample yet.
    pub fn new() -> Rtt {
        Rtt::default()
    }

    /// One measurement, taken at `now`. `in_flight_samples` is how many samples one round trip brings: with more than
    /// one sample a round trip the gains are divided, so that the history is not forgotten within one (RFC 7323
    /// appendix G).
    pub fn sample(&mut self, now: Instant, rtt: Duration, in_flight_samples: u32) {
        let rtt = rtt.max(Duration::from_nanos(1));
        self.note_minimum(now, rtt);
        let Some(srtt) = self.srtt else {
            self.srtt = Some(rtt);
            self.rttvar = rtt.over(2);
            return;
        };
        let share = u64::from(in_flight_samples.clamp(1, 64));
        // RTTVAR <- 3/4 RTTVAR + 1/4 |SRTT - R|, then SRTT <- 7/8 SRTT + 1/8 R, with the gains divided by `share`.
        self.rttvar = blend(self.rttvar, srtt.abs_diff(rtt), 4 * share);
        self.srtt = Some(blend(srtt, rtt, 8 * share));
    }

    /// Notes what was measured last. `held_back` says that the peer may have delayed the acknowledgement: how long that took
    /// says nothing about the path, unless it was less than before.
    pub fn note_latest(&mut self, rtt: Duration, held_back: bool) {
        if held_back {
            let excess = rtt.excess_over(self.min().unwrap_or(rtt));
            let faded = self.held_back.unwrap_or_default().ratio(7, 8);
            self.held_back = Some(excess.max(faded));
        }
        let known = Some(self.latest).filter(|latest| held_back && !latest.is_zero());
        self.latest = known.map_or(rtt, |latest| latest.min(rtt));
    }

    fn note_minimum(&mut self, now: Instant, rtt: Duration) {
        if now.since(self.window_began) >= MIN_WINDOW {
            self.minima = [None, self.minima[0]];
            self.window_began = now;
        }
        self.minima[0] = Some(self.minima[0].map_or(rtt, |old| old.min(rtt)));
    }

    /// Smoothed round-trip time, once there is a sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    /// Round-trip time variation; zero before the first sample.
    pub fn rttvar(&self) -> Duration {
        self.rttvar
    }

    /// The last sample that tells about the path; zero before the first.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// By how much acknowledgements that the peer may have delayed came later than others: the longest of the last few, once
    /// there was one.
    pub fn held_back(&self) -> Option<Duration> {
        self.held_back
    }

    /// The smallest sample of the last minutes.
    pub fn min(&self) -> Option<Duration> {
        match self.minima {
            [Some(now), Some(before)] => Some(now.min(before)),
            [now, before] => now.or(before),
        }
    }
}

/// `old + (new - old) / gain` without negative numbers.
fn blend(old: Duration, new: Duration, gain: u64) -> Duration {
    if new >= old {
        old + (new - old).over(gain)
    } else {
        old - (old - new).over(gain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_estimator_follows_rfc_6298_section_2() {
        let mut rtt = Rtt::new();
        assert_eq!((rtt.srtt(), rtt.min()), (None, None));
        rtt.sample(Instant::ZERO, ms(100), 1);
        assert_eq!((rtt.srtt(), rtt.rttvar()), (Some(ms(100)), ms(50)));
        rtt.sample(Instant::ZERO, ms(180), 1);
        // 3/4 * 50 + 1/4 * 80 = 57.5; 7/8 * 100 + 1/8 * 180 = 110.
        assert_eq!(
            (rtt.srtt(), rtt.rttvar()),
            (Some(ms(110)), Duration::from_micros(57_500))
        );
        rtt.sample(Instant::ZERO, ms(30), 1);
        // 3/4 * 57.5 + 1/4 * 80 = 63.125; 7/8 * 110 + 1/8 * 30 = 100.
        assert_eq!(
            (rtt.srtt(), rtt.rttvar()),
            (Some(ms(100)), Duration::from_micros(63_125))
        );
        assert_eq!(rtt.min(), Some(ms(30)));
    }

    #[test]
    fn a_delayed_acknowledgement_is_no_queue() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.latest(), ms(0));
        for (sample, held_back, latest) in [
            (140, true, 140),
            (100, true, 100),
            (140, true, 100),
            (120, false, 120),
            (160, true, 120),
            (150, false, 150),
        ] {
            rtt.note_latest(ms(sample), held_back);
            assert_eq!(rtt.latest(), ms(latest), "{sample} {held_back}");
        }
    }

    #[test]
    fn what_a_peer_held_back_fades() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.held_back(), None);
        for (sample, may_be_held, expected) in [
            (ms(10), false, None),
            (ms(50), true, Some(ms(40))),
            (ms(90), false, Some(ms(40))),
            (ms(10), true, Some(ms(35))),
            (ms(60), true, Some(ms(50))),
        ] {
            rtt.sample(Instant::ZERO, sample, 1);
            rtt.note_latest(sample, may_be_held);
            assert_eq!(rtt.held_back(), expected, "{sample} {may_be_held}");
        }
    }

    #[test]
    fn many_samples_a_round_trip_weigh_less_each() {
        let mut rtt = Rtt::new();
        rtt.sample(Instant::ZERO, ms(100), 1);
        rtt.sample(Instant::ZERO, ms(180), 10);
        assert_eq!(rtt.srtt(), Some(ms(101)));
    }

    #[test]
    fn the_minimum_forgets_after_minutes() {
        let mut rtt = Rtt::new();
        rtt.sample(Instant::from_secs(200), ms(10), 1);
        rtt.sample(Instant::from_secs(360), ms(50), 1);
        assert_eq!(rtt.min(), Some(ms(10)), "one window later it still counts");
        rtt.sample(Instant::from_secs(520), ms(60), 1);
        assert_eq!(rtt.min(), Some(ms(50)));
    }
}
