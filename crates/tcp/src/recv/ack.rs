//! When to acknowledge (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2, RFC 5961 section 7).

use crate::time::{Duration, Instant};

/// Segments acknowledged at once at the start of a connection, so that the peer's slow start is not held up (Linux's
/// `TCP_MAX_QUICKACKS`).
const QUICK_START: u8 = 16;

/// Challenge acknowledgements per [`CHALLENGE_PERIOD`] (RFC 5961 section 7 suggests 10 in 5 seconds for a host; this
/// is for one subflow). A trade: each answers a peer that restarted sooner, and lets an attacker have one more sent.
const CHALLENGE_LIMIT: u8 = 5;
const CHALLENGE_PERIOD: Duration = Duration::from_millis(1000);

/// Acknowledgements per [`CHALLENGE_PERIOD`] for segments with payload that are far from the window. A trade: a peer out of step
/// needs one for each flight that it resends; what exceeds that serves an attacker who guesses numbers.
const STRAY_LIMIT: u8 = 50;

/// Before a segment was seen: what every peer may send (RFC 9293 section 3.7.1).
const DEFAULT_MSS: u32 = 536;

/// What an arriving segment asks of the acknowledgement policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// In-order payload of so many bytes with nothing remarkable.
    InOrder(u32),
    /// Out of order, filling a hole, duplicate, FIN, beyond the window: at once.
    Now,
}

/// The state of acknowledging.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckPolicy {
    now: bool,
    delayed: Option<Instant>,
    /// In-order bytes since the last acknowledgement left.
    unacked: u32,
    /// Segments still acknowledged at once.
    quick: u8,
    /// The largest payload of one wire segment that the peer was seen to send.
    full: u32,
    challenge_started: Option<Instant>,
    challenges: u8,
    strays: u8,
}

impl AckPolicy {
    pub(crate) fn new() -> Self {
        AckPolicy {
            now: false,
            delayed: None,
            unacked: 0,
            quick: QUICK_START,
            full: DEFAULT_MSS,
            challenge_started: None,
            challenges: 0,
            strays: 0,
        }
    }

    /// Takes note of a segment. `mss` bounds what one wire segment can have carried, because a device may have
    /// joined several.
    pub(crate) fn arrived(&mut self, now: Instant, urgency: Urgency, mss: u32, delay: Duration) {
        let bytes = match urgency {
            Urgency::Now => {
                self.now = true;
                return;
            }
            Urgency::InOrder(bytes) => bytes,
        };
        self.full = self.full.max(bytes.min(mss));
        self.unacked = self.unacked.saturating_add(bytes);
        // More than one full segment means that a second one has begun; a joined burst counts as what it is.
        if self.quick > 0 {
            self.quick -= 1;
            self.now = true;
        } else if self.unacked > self.full {
            self.now = true;
        } else if self.delayed.is_none() {
            self.delayed = Some(now + delay);
        }
    }

    /// An acknowledgement is wanted at once, whatever else happens.
    pub(crate) fn force(&mut self) {
        self.now = true;
    }

    /// Asks for a challenge acknowledgement; false when the limit forbids it.
    pub(crate) fn challenge(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.challenges >= CHALLENGE_LIMIT {
            return false;
        }
        self.challenges += 1;
        self.now = true;
        true
    }

    /// Asks for an acknowledgement of a segment with payload that is far from the window; false when the limit forbids
    /// it.
    pub(crate) fn stray(&mut self, now: Instant) -> bool {
        self.refill(now);
        if self.strays >= STRAY_LIMIT {
            return false;
        }
        self.strays += 1;
        self.now = true;
        true
    }

    fn refill(&mut self, now: Instant) {
        let fresh = self
            .challenge_started
            .is_none_or(|start| now >= start + CHALLENGE_PERIOD);
        if fresh {
            self.challenge_started = Some(now);
            self.challenges = 0;
            self.strays = 0;
        }
    }

    /// True when an acknowledgement must leave.
    pub(crate) fn due(&self, now: Instant) -> bool {
        self.now || self.delayed.is_some_and(|at| now >= at)
    }

    /// True when some acknowledgement is owed, now or later.
    #[cfg(test)]
    pub(crate) fn owed(&self) -> bool {
        self.now || self.delayed.is_some()
    }

    /// When a delayed acknowledgement becomes due by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if self.now { None } else { self.delayed }
    }

    /// The delayed acknowledgement's time has come: from now on it is simply due.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        if self.delayed.is_some_and(|at| now >= at) {
            self.delayed = None;
            self.now = true;
        }
    }

    /// A segment with the present acknowledgement left.
    pub(crate) fn sent(&mut self) {
        self.now = false;
        self.delayed = None;
        self.unacked = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_millis(40);

    fn started() -> AckPolicy {
        let mut p = AckPolicy::new();
        for _ in 0..QUICK_START {
            p.arrived(Instant::ZERO, Urgency::InOrder(1000), 1460, DELAY);
            assert!(p.due(Instant::ZERO));
            p.sent();
        }
        p
    }

    #[test]
    fn every_second_full_segment_is_acknowledged() {
        // RFC 9293 3.8.6.3
        let mut p = started();
        p.arrived(Instant::ZERO, Urgency::InOrder(1000), 1460, DELAY);
        assert!(!p.due(Instant::ZERO));
        assert_eq!(p.deadline(), Some(Instant::ZERO + DELAY));
        p.arrived(Instant::ZERO, Urgency::InOrder(1000), 1460, DELAY);
        assert!(p.due(Instant::ZERO));
        p.sent();
        assert!(!p.owed());
        p.arrived(Instant::ZERO, Urgency::InOrder(10), 1460, DELAY);
        assert!(!p.due(Instant::ZERO));
        assert!(p.due(Instant::ZERO + DELAY));
    }

    #[test]
    fn a_joined_burst_is_acknowledged_at_once() {
        let mut p = started();
        p.arrived(Instant::ZERO, Urgency::InOrder(14600), 1460, DELAY);
        assert!(p.due(Instant::ZERO));
    }

    #[test]
    fn challenges_are_limited() {
        // RFC 5961 7
        let mut p = AckPolicy::new();
        let allowed = (0..100).filter(|_| p.challenge(Instant::ZERO)).count();
        assert_eq!(allowed, usize::from(CHALLENGE_LIMIT));
        assert!(p.challenge(Instant::ZERO + CHALLENGE_PERIOD));
        let allowed = (0..100)
            .filter(|_| p.stray(Instant::ZERO + CHALLENGE_PERIOD))
            .count();
        assert_eq!(allowed, usize::from(STRAY_LIMIT), "a limit of their own");
    }
}
