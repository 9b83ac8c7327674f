//! Delivery-rate samples (draft-ietf-ccwg-bbr section 4.1): how fast data arrived between two moments that one segment
//! connects.

use crate::time::{Duration, Instant};
use crate::units::Rate;

/// State of the sampler at the time of a transmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Snapshot {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    app_limited: bool,
}

/// One sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateSample {
    /// Bytes delivered in the interval.
    pub delivered: u64,
    /// The longer of the times in which they were sent and acknowledged.
    pub interval: Duration,
    /// Bytes delivered in total when the segment was sent.
    pub prior_delivered: u64,
    /// The application, not the network, held the rate down.
    pub app_limited: bool,
}

impl RateSample {
    /// The rate.
    pub fn rate(&self) -> Rate {
        Rate::per(self.delivered, self.interval)
    }
}

/// Counts deliveries of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Sampler {
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    /// Until this many bytes are delivered, samples are limited by the application.
    app_limited_until: u64,
}

impl Sampler {
    /// Something leaves at `now`; `idle` says that nothing was in flight before.
    pub fn on_sent(&mut self, now: Instant, idle: bool) -> Snapshot {
        if idle {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > self.delivered,
        }
    }

    /// The application has nothing more to send while `pipe` bytes are in flight.
    pub fn on_app_limited(&mut self, pipe: u32) {
        self.app_limited_until = self.delivered + u64::from(pipe.max(1));
    }

    /// An acknowledgement delivered `bytes`; `newest` is the snapshot and time of the latest transmission among them.
    pub fn on_delivered(
        &mut self,
        now: Instant,
        bytes: u32,
        newest: Option<(Snapshot, Instant)>,
    ) -> Option<RateSample> {
        if bytes == 0 {
            return None;
        }
        self.delivered += u64::from(bytes);
        self.delivered_at = now;
        let (snapshot, sent_at) = newest?;
        self.first_sent_at = sent_at;
        let interval = sent_at
            .since(snapshot.first_sent_at)
            .max(now.since(snapshot.delivered_at));
        if interval.is_zero() {
            return None;
        }
        Some(RateSample {
            delivered: self.delivered - snapshot.delivered,
            interval,
            prior_delivered: snapshot.delivered,
            app_limited: snapshot.app_limited,
        })
    }

    /// Bytes delivered since the start.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}

impl Snapshot {
    /// Orders snapshots by age: more was delivered when the younger was taken.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_steady_stream_gives_its_rate() {
        let mut sampler = Sampler::default();
        let first = sampler.on_sent(at(0), true);
        let second = sampler.on_sent(at(10), false);
        assert_eq!(
            sampler
                .on_delivered(at(100), 1_000, Some((first, at(0))))
                .unwrap()
                .interval,
            Duration::from_millis(100)
        );
        let third = sampler.on_sent(at(100), false);
        sampler.on_delivered(at(110), 1_000, Some((second, at(10))));
        let sample = sampler
            .on_delivered(at(200), 1_000, Some((third, at(100))))
            .unwrap();
        assert_eq!((sample.delivered, sample.prior_delivered), (2_000, 1_000));
        assert_eq!(sample.rate(), Rate::from_bytes_per_sec(20_000));
        assert!(!sample.app_limited);
    }

    #[test]
    fn a_burst_of_acknowledgements_does_not_beat_the_sending_rate() {
        let mut sampler = Sampler::default();
        let first = sampler.on_sent(at(0), true);
        let last = sampler.on_sent(at(90), false);
        sampler.on_delivered(at(100), 1_000, Some((first, at(0))));
        // Ten thousand bytes acknowledged within 1 ms were still sent over 90 ms.
        let sample = sampler
            .on_delivered(at(101), 9_000, Some((last, at(90))))
            .unwrap();
        assert_eq!(sample.interval, Duration::from_millis(101));
    }

    #[test]
    fn idle_applications_mark_their_samples() {
        let mut sampler = Sampler::default();
        sampler.on_app_limited(0);
        let first = sampler.on_sent(at(0), true);
        assert!(
            sampler
                .on_delivered(at(10), 500, Some((first, at(0))))
                .unwrap()
                .app_limited
        );
        let second = sampler.on_sent(at(20), true);
        assert!(
            !sampler
                .on_delivered(at(30), 500, Some((second, at(20))))
                .unwrap()
                .app_limited
        );
        assert_eq!(sampler.on_delivered(at(40), 0, None), None);
    }
}
