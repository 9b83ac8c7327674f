//! The stack's time: nanoseconds since the driver started.

use manypath_tcp::time::Instant;
use std::time::Duration;

/// Translates between the system's monotonic clock and the stack's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    start: std::time::Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            start: std::time::Instant::now(),
        }
    }

    /// Since the start, for devices.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The stack's now.
    pub(crate) fn now(&self) -> Instant {
        instant(self.elapsed())
    }
}

/// A time since the start as the stack writes it. 584 years fit.
pub(crate) fn instant(since_start: Duration) -> Instant {
    Instant::from_nanos(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
}

/// The same backwards.
pub(crate) fn since_start(at: Instant) -> Duration {
    Duration::from_nanos(at.as_nanos())
}
