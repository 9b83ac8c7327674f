//! Points in time and spans between them, as plain nanosecond counts that the caller supplies.
//!
//! This crate has no clock. All arithmetic saturates: a time that cannot be reached is [`Instant::MAX`], never a wrap.

use core::fmt;
use core::ops::{Add, AddAssign, Sub, SubAssign};

/// A point in time: nanoseconds since an origin of the caller's choice. Never decreases between calls.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

/// A span of time in nanoseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration(u64);

impl Instant {
    /// The origin.
    pub const ZERO: Instant = Instant(0);
    /// Later than anything that happens: "never".
    pub const MAX: Instant = Instant(u64::MAX);

    /// The instant `ns` nanoseconds after the origin.
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(ns)
    }

    /// The instant `us` microseconds after the origin.
    pub const fn from_micros(us: u64) -> Instant {
        Instant(us.saturating_mul(1_000))
    }

    /// The instant `ms` milliseconds after the origin.
    pub const fn from_millis(ms: u64) -> Instant {
        Instant(ms.saturating_mul(1_000_000))
    }

    /// The instant `s` seconds after the origin.
    pub const fn from_secs(s: u64) -> Instant {
        Instant(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time passed since `earlier`; zero when `earlier` lies ahead.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);
    /// Longer than anything.
    pub const MAX: Duration = Duration(u64::MAX);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Duration {
        Duration(ns)
    }

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Duration {
        Duration(us.saturating_mul(1_000))
    }

    /// `ms` milliseconds.
    pub const fn from_millis(ms: u64) -> Duration {
        Duration(ms.saturating_mul(1_000_000))
    }

    /// `s` seconds.
    pub const fn from_secs(s: u64) -> Duration {
        Duration(s.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// Whole milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Whole seconds.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// True for no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `self` times `factor`.
    #[must_use]
    pub const fn times(self, factor: u64) -> Duration {
        Duration(self.0.saturating_mul(factor))
    }

    /// `self` divided by `divisor`, rounded down. A divisor of zero counts as one.
    #[must_use]
    pub const fn over(self, divisor: u64) -> Duration {
        Duration(self.0 / if divisor == 0 { 1 } else { divisor })
    }

    /// `self * num / den` without overflow in between; a `den` of zero counts as one.
    #[must_use]
    pub fn ratio(self, num: u64, den: u64) -> Duration {
        let den = den.max(1);
        // Nearly every product fits in 64 bits, where the division costs a fraction of the 128-bit one.
        if let Some(product) = self.0.checked_mul(num) {
            return Duration(product / den);
        }
        let scaled = u128::from(self.0) * u128::from(num) / u128::from(den);
        Duration(u64::try_from(scaled).unwrap_or(u64::MAX))
    }

    /// How much longer `self` is than `other`; zero when it is not.
    #[must_use]
    pub const fn excess_over(self, other: Duration) -> Duration {
        Duration(self.0.saturating_sub(other.0))
    }

    /// The distance between two spans.
    #[must_use]
    pub const fn abs_diff(self, other: Duration) -> Duration {
        Duration(self.0.abs_diff(other.0))
    }
}

impl From<core::time::Duration> for Duration {
    /// What is longer than 584 years is [`Duration::MAX`].
    fn from(span: core::time::Duration) -> Duration {
        Duration(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Duration> for core::time::Duration {
    fn from(span: Duration) -> core::time::Duration {
        core::time::Duration::from_nanos(span.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, span: Duration) -> Instant {
        Instant(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, span: Duration) -> Instant {
        Instant(self.0.saturating_sub(span.0))
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}

impl Add for Duration {
    type Output = Duration;
    fn add(self, other: Duration) -> Duration {
        Duration(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Duration {
    fn add_assign(&mut self, other: Duration) {
        *self = *self + other;
    }
}

impl Sub for Duration {
    type Output = Duration;
    fn sub(self, other: Duration) -> Duration {
        self.excess_over(other)
    }
}

impl SubAssign for Duration {
    fn sub_assign(&mut self, other: Duration) {
        *self = *self - other;
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "@{}", Duration(self.0))
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            u64::MAX => f.write_str("never"),
            ns if ns >= 1_000_000_000 => {
                write!(f, "{}.{:03}s", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
            }
            ns if ns >= 1_000_000 => write!(f, "{}.{:03}ms", ns / 1_000_000, ns / 1_000 % 1_000),
            ns => write!(f, "{}.{:03}us", ns / 1_000, ns % 1_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(Instant::MAX + Duration::from_secs(1), Instant::MAX);
        assert_eq!(Instant::ZERO - Duration::from_secs(1), Instant::ZERO);
        assert_eq!(Instant::ZERO - Instant::from_secs(1), Duration::ZERO);
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!(Duration::MAX.ratio(3, 2), Duration::MAX);
        assert_eq!(
            Duration::from_millis(3).ratio(1, 0),
            Duration::from_millis(3)
        );
    }

    #[test]
    fn spans_print_in_a_readable_unit() {
        assert_eq!(format!("{:?}", Duration::from_micros(1_500)), "1.500ms");
        assert_eq!(format!("{}", Duration::from_nanos(1_007)), "1.007us");
        assert_eq!(format!("{:?}", Instant::from_millis(2_034)), "@2.034s");
        assert_eq!(format!("{:?}", Instant::MAX), "@never");
    }
}
