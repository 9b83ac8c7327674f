//! A timer that its owner asks instead of being called by it.

use crate::time::Instant;

/// One deadline, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Timer(Option<Instant>);

impl Timer {
    /// A timer that does not run.
    pub const OFF: Timer = Timer(None);

    /// Starts the timer, or moves it. `Instant::MAX` means never and stops it.
    pub fn set(&mut self, at: Instant) {
        self.0 = if at == Instant::MAX { None } else { Some(at) };
    }

    /// Starts the timer unless it already runs to an earlier time.
    pub fn set_at_latest(&mut self, at: Instant) {
        if self.0.is_none_or(|old| at < old) {
            self.set(at);
        }
    }

    /// Starts the timer unless it runs.
    pub fn set_if_off(&mut self, at: Instant) {
        if self.0.is_none() {
            self.set(at);
        }
    }

    /// Stops the timer.
    pub fn stop(&mut self) {
        self.0 = None;
    }

    /// When it fires, if it runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.0
    }

    /// The timer runs.
    pub fn is_set(&self) -> bool {
        self.0.is_some()
    }

    /// The timer runs and its time has come.
    pub fn is_due(&self, now: Instant) -> bool {
        self.0.is_some_and(|at| at <= now)
    }

    /// Stops the timer and tells whether it was due.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let due = self.is_due(now);
        if due {
            self.0 = None;
        }
        due
    }
}

/// The earliest of several deadlines.
pub fn earliest<const N: usize>(deadlines: [Option<Instant>; N]) -> Option<Instant> {
    deadlines.into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_fires_once_and_exactly_at_its_time() {
        let mut timer = Timer::OFF;
        assert!(!timer.take_due(Instant::MAX));
        timer.set(Instant::from_millis(5));
        assert!(!timer.take_due(Instant::from_nanos(4_999_999)));
        assert!(timer.take_due(Instant::from_millis(5)));
        assert!(!timer.take_due(Instant::from_millis(5)));
    }

    #[test]
    fn never_is_not_a_deadline() {
        let mut timer = Timer::OFF;
        timer.set(Instant::MAX);
        assert_eq!(timer.deadline(), None);
        timer.set_at_latest(Instant::from_secs(3));
        timer.set_at_latest(Instant::from_secs(4));
        assert_eq!(timer.deadline(), Some(Instant::from_secs(3)));
    }

    #[test]
    fn the_earliest_wins() {
        let (a, b) = (Some(Instant::from_secs(2)), Some(Instant::from_secs(1)));
        assert_eq!(earliest([a, None, b]), b);
        assert_eq!(earliest([None, None]), None);
    }
}
