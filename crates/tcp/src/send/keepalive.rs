//! Keepalive probes (RFC 9293 section 3.8.4) and probes on request.

use crate::time::{Duration, Instant};
use crate::timer::Timer;

/// Keepalive probing (RFC 9293 section 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between unanswered probes.
    pub interval: Duration,
    /// Unanswered probes after which the subflow is dead.
    pub count: u8,
}

impl Default for Keepalive {
    /// Two hours of silence, then nine probes 75 seconds apart (RFC 1122 section 4.2.3.6 asks for at least two hours).
    fn default() -> Self {
        Keepalive {
            idle: Duration::from_secs(7200),
            interval: Duration::from_secs(75),
            count: 9,
        }
    }
}

/// What the timer asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alarm {
    /// Not its time.
    Quiet,
    /// Send a probe.
    Probe,
    /// No probe was answered.
    Dead,
}

/// The keepalive state.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prober {
    timer: Timer,
    unanswered: u8,
    due: bool,
}

impl Prober {
    /// A segment of the peer arrived: idle time begins anew.
    pub(crate) fn on_received(&mut self, now: Instant, settings: Option<&Keepalive>) {
        self.unanswered = 0;
        self.due = false;
        match settings {
            Some(k) => self.timer.set(now + k.idle),
            None => self.timer.stop(),
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timer.deadline()
    }

    /// The timer's question. While data is in flight (`busy`) its own timers find out whether the peer lives.
    pub(crate) fn on_timeout(
        &mut self,
        now: Instant,
        busy: bool,
        settings: Option<&Keepalive>,
    ) -> Alarm {
        if !self.timer.take_due(now) {
            return Alarm::Quiet;
        }
        let Some(k) = settings else {
            return Alarm::Quiet;
        };
        if busy {
            self.timer.set(now + k.idle);
            return Alarm::Quiet;
        }
        if self.unanswered >= k.count {
            return Alarm::Dead;
        }
        self.due = true;
        // Only its own: a probe on request, for which this timer does not wait, would leave the peer one less.
        self.unanswered = self.unanswered.saturating_add(1);
        self.timer.set(now + k.interval);
        Alarm::Probe
    }

    /// A probe on request.
    pub(crate) fn request(&mut self) {
        self.due = true;
    }

    pub(crate) fn due(&self) -> bool {
        self.due
    }

    pub(crate) fn sent(&mut self) {
        self.due = false;
    }

    pub(crate) fn stop(&mut self) {
        *self = Prober::default();
    }
}
