//! Probing a peer whose window is closed or too small to use (RFC 9293 section 3.8.6.1).

use crate::time::{Duration, Instant};
use crate::timer::Timer;

/// The longest wait between probes: as the least bound of RFC 6298 section 2.5, by which RFC 9293 section 3.8.6.1 backs off.
const LONGEST: Duration = Duration::from_secs(60);
/// The shortest: RFC 9293 section 3.8.6.2.1 overrides silly-window avoidance after 0.1 to 1 second.
const SHORTEST: Duration = Duration::from_millis(200);

/// The probing state. It runs while the window forbids sending and nothing is in flight that would bring an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Persist {
    timer: Timer,
    backoff: u8,
    due: bool,
}

impl Persist {
    /// Called after every event with whether the window is the obstacle.
    pub(crate) fn watch(&mut self, now: Instant, blocked: bool, rto: Duration) {
        if !blocked {
            *self = Persist::default();
        } else if !self.timer.is_set() && !self.due {
            let wait = rto
                .max(SHORTEST)
                .times(1 << self.backoff.min(10))
                .min(LONGEST);
            self.timer.set(now + wait);
        }
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timer.deadline()
    }

    /// True when a probe became due.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> bool {
        let due = self.timer.take_due(now);
        self.due |= due;
        due
    }

    /// A probe (or what fits the window) may be sent.
    pub(crate) fn due(&self) -> bool {
        self.due
    }

    /// It was sent: the next one waits twice as long.
    pub(crate) fn sent(&mut self) {
        self.due = false;
        self.backoff = self.backoff.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_back_off_and_stop_when_the_window_opens() {
        let rto = Duration::from_millis(300);
        let mut p = Persist::default();
        let mut now = Instant::ZERO;
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..10 {
            p.watch(now, true, rto);
            let at = p.deadline().expect("a closed window is watched");
            assert!(!p.on_timeout(at - Duration::from_nanos(1)));
            assert!(p.on_timeout(at));
            assert!(p.due());
            waits.push(at.since(now).as_millis());
            now = at;
            p.sent();
        }
        assert_eq!(
            waits,
            [300, 600, 1200, 2400, 4800, 9600, 19200, 38400, 60000, 60000]
        );
        p.watch(now, false, rto);
        assert_eq!(p.deadline(), None);
        assert!(!p.due());
    }
}
