//! The receiving half of timestamps: TS.Recent and PAWS (RFC 7323 sections 4 and 5).

use manypath_wire::seq::SeqNum;

use crate::time::{Duration, Instant};

/// A timestamp older than this says nothing any more (RFC 7323 section 5.5: 24 days).
const STALE: Duration = Duration::from_secs(24 * 24 * 3600);

/// TS.Recent and its age.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    value: u32,
    taken: Instant,
}

impl Recent {
    pub(crate) fn new(value: u32, now: Instant) -> Self {
        Recent { value, taken: now }
    }

    /// The value to echo.
    pub(crate) fn value(&self) -> u32 {
        self.value
    }

    /// True when a segment with timestamp `val` is from the past (RFC 7323 section 5.3, R1).
    pub(crate) fn is_old(&self, val: u32, now: Instant) -> bool {
        (val.wrapping_sub(self.value) as i32) < 0 && now.since(self.taken) < STALE
    }

    /// RFC 7323 section 4.3: remember the timestamp of the segment that will be acknowledged next.
    pub(crate) fn observe(&mut self, val: u32, seq: SeqNum, last_ack_sent: SeqNum, now: Instant) {
        let newer = (val.wrapping_sub(self.value) as i32) >= 0 || now.since(self.taken) >= STALE;
        if newer && seq.before_eq(last_ack_sent) {
            self.value = val;
            self.taken = now;
        }
    }
}

/// The round trip of a subflow on which we only receive: the time from an acknowledgement to the first segment with payload
/// that echoes it. An application that pauses at the other end makes it look longer, so that the shorter one of two in a row
/// counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EchoRtt {
    pub(crate) smoothed: Option<Duration>,
    last: Option<u32>,
    latest: Option<Duration>,
}

impl EchoRtt {
    /// A segment echoes `echo`, which left `ago`. Only the first of several with the same echo was not held back by the
    /// peer's own pace.
    pub(crate) fn note(&mut self, echo: u32, ago: Duration) {
        if self.last.replace(echo) == Some(echo) {
            return;
        }
        let before = self.latest.replace(ago).unwrap_or(ago);
        let counts = ago.min(before);
        self.smoothed = Some(match self.smoothed {
            None => counts,
            Some(old) => (old.times(7) + counts).over(8),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_means_before_on_the_circle_and_not_stale() {
        let t0 = Instant::ZERO;
        let r = Recent::new(5, t0);
        assert!(r.is_old(4, t0));
        assert!(r.is_old(u32::MAX, t0));
        assert!(!r.is_old(5, t0));
        assert!(!r.is_old(6, t0));
        // RFC 7323 5.5
        assert!(!r.is_old(4, t0 + STALE));
    }

    #[test]
    fn the_first_echo_of_each_acknowledgement_counts() {
        let ms = Duration::from_millis;
        let mut rtt = EchoRtt::default();
        rtt.note(5, ms(80));
        rtt.note(5, ms(95));
        assert_eq!(rtt.smoothed, Some(ms(80)));
        rtt.note(6, ms(160));
        assert_eq!(rtt.smoothed, Some(ms(80)), "a pause, perhaps");
        rtt.note(7, ms(160));
        assert_eq!(rtt.smoothed, Some(ms(90)));
        rtt.note(8, ms(10_000));
        rtt.note(9, ms(90));
        assert!(rtt.smoothed < Some(ms(100)), "a pause");
    }

    #[test]
    fn only_the_segment_at_the_left_edge_updates() {
        // RFC 7323 4.3: a later segment must not replace the timestamp of the one whose ACK is delayed.
        let t0 = Instant::ZERO;
        let mut r = Recent::new(5, t0);
        r.observe(9, SeqNum::new(101), SeqNum::new(100), t0);
        assert_eq!(r.value(), 5);
        r.observe(9, SeqNum::new(100), SeqNum::new(100), t0);
        assert_eq!(r.value(), 9);
        r.observe(8, SeqNum::new(100), SeqNum::new(100), t0);
        assert_eq!(r.value(), 9);
    }
}
