//! A timer that its owner asks instead of being called by it.

use crate::time::Instant;

/// One deadline, or none: then it is `Instant::MAX`, so that the earliest of several is found by comparing numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer(Instant);

impl Default for Timer {
    fn default() -> Self {
        Timer::OFF
    }
}

impl Timer {
    /// A timer that does not run.
    pub const OFF: Timer = Timer(Instant::MAX);

    /// Starts the timer, or moves it. `Instant::MAX` means never and stops it.
    pub fn set(&mut self, at: Instant) {
        self.0 = at;
    }

    /// Starts the timer unless it already runs to an earlier time.
    pub fn set_at_latest(&mut self, at: Instant) {
        self.0 = self.0.min(at);
    }

    /// Starts the timer unless it runs.
    pub fn set_if_off(&mut self, at: Instant) {
        if !self.is_set() {
            self.set(at);
        }
    }

    /// Stops the timer.
    pub fn stop(&mut self) {
        *self = Timer::OFF;
    }

    /// When it fires, if it runs.
    pub fn deadline(&self) -> Option<Instant> {
        self.is_set().then_some(self.0)
    }

    /// The timer runs.
    pub fn is_set(&self) -> bool {
        self.0 < Instant::MAX
    }

    /// The timer runs and its time has come.
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_set() && self.0 <= now
    }

    /// Stops the timer and tells whether it was due.
    pub fn take_due(&mut self, now: Instant) -> bool {
        let due = self.is_due(now);
        if due {
            self.stop();
        }
        due
    }
}

/// The earliest of several moments, of which any may be missing. One number passed along and not a list of options in
/// memory: it is asked for several times for each segment, and reading such a list back right after it was written
/// stalls the processor.
#[derive(Clone, Copy, Debug)]
pub struct Soonest(Instant);

impl Default for Soonest {
    fn default() -> Self {
        Soonest(Instant::MAX)
    }
}

impl Soonest {
    /// Takes one more moment into account.
    pub fn consider(&mut self, at: Option<Instant>) {
        self.0 = self.0.min(at.unwrap_or(Instant::MAX));
    }

    /// Takes a timer into account, if it runs.
    pub fn consider_timer(&mut self, timer: &Timer) {
        self.0 = self.0.min(timer.0);
    }

    /// The earliest of all, if there was any.
    pub fn get(self) -> Option<Instant> {
        (self.0 < Instant::MAX).then_some(self.0)
    }
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
        let (a, b) = (Instant::from_secs(2), Instant::from_secs(1));
        let mut soonest = Soonest::default();
        soonest.consider(None);
        assert_eq!(soonest.get(), None);
        soonest.consider(Some(a));
        soonest.consider(Some(b));
        soonest.consider(None);
        soonest.consider_timer(&Timer::OFF);
        assert_eq!(soonest.get(), Some(b));
        soonest.consider_timer(&Timer(Instant::ZERO));
        assert_eq!(soonest.get(), Some(Instant::ZERO));
    }
}
