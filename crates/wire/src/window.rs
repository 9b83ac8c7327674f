//! Window arithmetic: the scale of RFC 7323 and the acceptance test of RFC 9293.

use crate::seq::SeqNum;

/// A window scale shift, 0 to 14 (RFC 7323 section 2.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct WindowScale(u8);

impl WindowScale {
    /// The field is the window, as without the option.
    pub const NONE: Self = Self(0);
    /// The largest shift that keeps a window below half the sequence space.
    pub const MAX: Self = Self(14);

    /// A shift as received; more than 14 counts as 14 (RFC 7323 section 2.3).
    #[must_use]
    pub const fn new(shift: u8) -> Self {
        if shift > Self::MAX.0 {
            Self::MAX
        } else {
            Self(shift)
        }
    }

    /// The smallest shift with which a window of `largest` bytes can be told to the peer (or 14 if none can).
    #[must_use]
    pub const fn for_window(largest: u32) -> Self {
        let mut shift = 0;
        while shift < Self::MAX.0 && (largest >> shift) > u16::MAX as u32 {
            shift += 1;
        }
        Self(shift)
    }

    /// The shift count.
    #[must_use]
    pub const fn shift(self) -> u8 {
        self.0
    }

    /// Bytes meant by a window field.
    #[must_use]
    pub const fn expand(self, field: u16) -> u32 {
        (field as u32) << self.0
    }

    /// The field for a window of `bytes`, rounded down so that no more is promised than is there.
    #[must_use]
    pub const fn compress(self, bytes: u32) -> u16 {
        let field = bytes >> self.0;
        if field > u16::MAX as u32 {
            u16::MAX
        } else {
            field as u16
        }
    }

    /// The field for a window of `bytes`, rounded up so that no less is promised than is there.
    #[must_use]
    pub const fn compress_up(self, bytes: u32) -> u16 {
        let field = (bytes as u64 + self.unit() as u64 - 1) >> self.0;
        if field > u16::MAX as u64 {
            u16::MAX
        } else {
            field as u16
        }
    }

    /// Bytes one step of the field is worth.
    #[must_use]
    pub const fn unit(self) -> u32 {
        1 << self.0
    }
}

/// Whether any of the `len` sequence numbers from `seq` lies in the receive window of `window` bytes from `next`
/// (the four cases of RFC 9293 section 3.10.7.4). `len` counts payload, SYN and FIN.
#[must_use]
pub const fn acceptable(seq: SeqNum, len: u32, next: SeqNum, window: u32) -> bool {
    match (len, window) {
        (0, 0) => seq.since(next) == 0,
        (0, _) => seq.within(next, window),
        (_, 0) => false,
        // The last number is len - 1 after the first; len > 0 here.
        (_, _) => {
            seq.within(next, window)
                || SeqNum::new(seq.get().wrapping_add(len - 1)).within(next, window)
                || (seq.before(next) && next.since(seq) < len)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_scale_is_the_smallest_that_is_enough() {
        assert_eq!(WindowScale::for_window(0), WindowScale::NONE);
        assert_eq!(WindowScale::for_window(65_535), WindowScale::NONE);
        assert_eq!(WindowScale::for_window(65_536).shift(), 1);
        assert_eq!(WindowScale::for_window(6 << 20).shift(), 7);
        assert_eq!(WindowScale::for_window(u32::MAX), WindowScale::MAX);
        assert_eq!(WindowScale::new(15), WindowScale::MAX);
    }

    #[test]
    fn the_four_cases_of_acceptance() {
        let next = SeqNum::new(u32::MAX - 4);
        assert!(acceptable(next, 0, next, 0));
        assert!(!acceptable(next + 1, 0, next, 0));
        assert!(acceptable(next + 9, 0, next, 10));
        assert!(!acceptable(next + 10, 0, next, 10));
        assert!(!acceptable(next - 1, 0, next, 10));
        assert!(!acceptable(next, 1, next, 0));
        assert!(acceptable(next - 3, 4, next, 10));
        assert!(!acceptable(next - 4, 4, next, 10));
        assert!(acceptable(next + 9, 100, next, 10));
        assert!(!acceptable(next + 10, 100, next, 10));
        // A segment that begins before the window and ends after it still has something for us.
        assert!(acceptable(next - 5, 100, next, 10));
    }

    proptest! {
        #[test]
        fn what_is_told_is_never_more_than_what_is_there(bytes: u32, shift in 0u8..=14) {
            let scale = WindowScale::new(shift);
            let told = scale.expand(scale.compress(bytes));
            prop_assert!(told <= bytes);
            if bytes <= scale.expand(u16::MAX) {
                prop_assert!(bytes - told < scale.unit());
            }
        }
    }
}
