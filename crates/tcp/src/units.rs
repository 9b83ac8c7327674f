//! Quantities that are neither bytes nor times.

use core::fmt;

use crate::time::Duration;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// A data rate in bytes a second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Nothing moves.
    pub const ZERO: Rate = Rate(0);
    /// No limit.
    pub const MAX: Rate = Rate(u64::MAX);

    /// `bytes` a second.
    pub const fn from_bytes_per_sec(bytes: u64) -> Rate {
        Rate(bytes)
    }

    /// `bits` a second, rounded down to whole bytes.
    pub const fn from_bits_per_sec(bits: u64) -> Rate {
        Rate(bits / 8)
    }

    /// Bytes a second.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0
    }

    /// `bytes` in every `span`; [`Rate::MAX`] when no time passes.
    pub fn per(bytes: u64, span: Duration) -> Rate {
        match span.as_nanos() {
            0 => Rate::MAX,
            ns => Rate(scale(bytes, NANOS_PER_SEC, ns)),
        }
    }

    /// This rate times `num / den`; a `den` of zero counts as one.
    #[must_use]
    pub fn ratio(self, num: u64, den: u64) -> Rate {
        Rate(scale(self.0, num, den.max(1)))
    }

    /// How long `bytes` take at this rate, rounded up to whole nanoseconds; never ends at rate zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        match self.0 {
            0 => Duration::MAX,
            u64::MAX => Duration::ZERO,
            rate => Duration::from_nanos(match bytes.checked_mul(NANOS_PER_SEC) {
                Some(product) => product.div_ceil(rate),
                None => {
                    let product = u128::from(bytes) * u128::from(NANOS_PER_SEC);
                    saturate(product.div_ceil(u128::from(rate)))
                }
            }),
        }
    }

    /// How many whole bytes move in `span`.
    pub fn bytes_in(self, span: Duration) -> u64 {
        scale(self.0, span.as_nanos(), NANOS_PER_SEC)
    }
}

/// `value * num / den`. Nearly every product fits in 64 bits, where the division costs a fraction of the 128-bit one;
/// pacing divides several times for each segment.
fn scale(value: u64, num: u64, den: u64) -> u64 {
    match value.checked_mul(num) {
        Some(product) => product / den,
        None => saturate(u128::from(value) * u128::from(num) / u128::from(den)),
    }
}

fn saturate(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}B/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_its_time_agree() {
        let rate = Rate::from_bits_per_sec(8_000_000);
        assert_eq!(rate.time_for(1_000), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 1_000);
        assert_eq!(Rate::per(1_000, Duration::from_millis(1)), rate);
        assert_eq!(rate.ratio(6, 5), Rate::from_bytes_per_sec(1_200_000));
    }

    #[test]
    fn the_ends_of_the_scale_do_not_overflow() {
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Rate::MAX.time_for(u64::MAX), Duration::ZERO);
        assert_eq!(Rate::per(1, Duration::ZERO), Rate::MAX);
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(Rate::MAX.ratio(2, 1), Rate::MAX);
    }

    #[test]
    fn a_byte_never_takes_no_time_at_a_finite_rate() {
        assert_eq!(
            Rate::from_bytes_per_sec(3_000_000_000).time_for(1),
            Duration::from_nanos(1)
        );
    }
}
