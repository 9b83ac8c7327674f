//! Numbers that wrap: subflow sequence numbers, absolute and relative to the subflow's SYN.
//!
//! None of them implements `Ord`: "less than" has no meaning on a circle unless both numbers are known to be near each
//! other, and the methods here say so in their names (RFC 9293 section 3.4).

/// Gives a wrapping counter its arithmetic and its windowed comparisons.
macro_rules! wrapping_number {
    ($(#[$doc:meta])* $name:ident, $raw:ty, $signed:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name($raw);

        impl $name {
            /// Wraps a raw number.
            #[must_use]
            pub const fn new(raw: $raw) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[must_use]
            pub const fn get(self) -> $raw {
                self.0
            }

            /// How far one must go forward from `earlier` to reach `self`, wrapping.
            #[must_use]
            pub const fn since(self, earlier: Self) -> $raw {
                self.0.wrapping_sub(earlier.0)
            }

            /// Signed distance from `other` to `self`: negative when `self` lies before `other`.
            /// Two numbers exactly half the circle apart are each before the other.
            #[must_use]
            pub const fn diff(self, other: Self) -> $signed {
                self.0.wrapping_sub(other.0) as $signed
            }

            /// `self` lies before `other` on the nearer way round.
            #[must_use]
            pub const fn before(self, other: Self) -> bool {
                self.diff(other) < 0
            }

            /// `self` lies after `other` on the nearer way round.
            #[must_use]
            pub const fn after(self, other: Self) -> bool {
                self.diff(other) > 0
            }

            /// `self` equals `other` or lies before it.
            #[must_use]
            pub const fn before_eq(self, other: Self) -> bool {
                self.diff(other) <= 0
            }

            /// `self` equals `other` or lies after it.
            #[must_use]
            pub const fn after_eq(self, other: Self) -> bool {
                self.diff(other) >= 0
            }

            /// `self` is one of the `len` numbers that begin with `start`. An empty range holds nothing.
            #[must_use]
            pub const fn within(self, start: Self, len: $raw) -> bool {
                self.since(start) < len
            }

            /// The later of two numbers that are near each other.
            #[must_use]
            pub const fn max(self, other: Self) -> Self {
                if self.before(other) { other } else { self }
            }

            /// The earlier of two numbers that are near each other.
            #[must_use]
            pub const fn min(self, other: Self) -> Self {
                if self.after(other) { other } else { self }
            }
        }

        impl core::ops::Add<$raw> for $name {
            type Output = Self;
            fn add(self, distance: $raw) -> Self {
                Self(self.0.wrapping_add(distance))
            }
        }

        impl core::ops::AddAssign<$raw> for $name {
            fn add_assign(&mut self, distance: $raw) {
                *self = *self + distance;
            }
        }

        impl core::ops::Sub<$raw> for $name {
            type Output = Self;
            fn sub(self, distance: $raw) -> Self {
                Self(self.0.wrapping_sub(distance))
            }
        }

        impl core::ops::SubAssign<$raw> for $name {
            fn sub_assign(&mut self, distance: $raw) {
                *self = *self - distance;
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, "{}({})", stringify!($name), self.0)
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(&self.0, f)
            }
        }
    };
}
pub(crate) use wrapping_number;

wrapping_number! {
    /// A TCP sequence number as it stands in a segment (RFC 9293 section 3.4). Counts octets, wraps at 2^32.
    SeqNum, u32, i32
}

wrapping_number! {
    /// A subflow sequence number relative to the subflow's own SYN: the SYN is 0, the first payload byte 1
    /// (rfc8684:D7). Unlike [`SeqNum`] it survives middleboxes that rewrite initial sequence numbers.
    Ssn, u32, i32
}

impl Ssn {
    /// The relative number of `seq` on a subflow whose SYN had `isn`.
    #[must_use]
    pub const fn of(seq: SeqNum, isn: SeqNum) -> Self {
        // rfc8684:D7
        Self(seq.since(isn))
    }

    /// The absolute number on a subflow whose SYN had `isn`.
    #[must_use]
    pub const fn to_seq(self, isn: SeqNum) -> SeqNum {
        SeqNum(isn.0.wrapping_add(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn order_holds_across_the_wrap() {
        let before = SeqNum::new(u32::MAX - 1);
        let after = before + 3;
        assert_eq!(after.get(), 1);
        assert!(before.before(after) && after.after(before));
        assert!(!before.after(after) && !after.before(before));
        assert_eq!(after.since(before), 3);
        assert_eq!(before.since(after), u32::MAX - 2);
        assert_eq!(after.diff(before), 3);
        assert_eq!(before.diff(after), -3);
        assert_eq!(before.max(after), after);
        assert_eq!(before.min(after), before);
        assert_eq!(after - 3, before);
    }

    #[test]
    fn equal_numbers_are_neither_before_nor_after() {
        let seq = SeqNum::new(7);
        assert!(!seq.before(seq) && !seq.after(seq) && seq.before_eq(seq) && seq.after_eq(seq));
    }

    #[test]
    fn a_range_holds_its_start_but_not_its_end() {
        let start = SeqNum::new(u32::MAX);
        assert!(start.within(start, 2));
        assert!((start + 1).within(start, 2));
        assert!(!(start + 2).within(start, 2));
        assert!(!start.within(start, 0));
        assert!(!(start - 1).within(start, 2));
    }

    #[test]
    fn relative_numbers_count_from_the_syn() {
        // rfc8684:D7
        let isn = SeqNum::new(u32::MAX);
        assert_eq!(Ssn::of(isn, isn), Ssn::new(0));
        assert_eq!(Ssn::of(isn + 1, isn), Ssn::new(1));
        assert_eq!(Ssn::new(1).to_seq(isn), SeqNum::new(0));
    }

    proptest! {
        #[test]
        fn relative_and_absolute_are_inverse(seq: u32, isn: u32) {
            let (seq, isn) = (SeqNum::new(seq), SeqNum::new(isn));
            prop_assert_eq!(Ssn::of(seq, isn).to_seq(isn), seq);
        }

        #[test]
        fn near_numbers_compare_like_their_distance(start: u32, distance in 1u32..0x7fff_ffff) {
            let start = SeqNum::new(start);
            let end = start + distance;
            prop_assert!(start.before(end) && end.after(start) && !end.before(start));
            prop_assert_eq!(end.since(start), distance);
            prop_assert!(start.within(start, distance) && !end.within(start, distance));
        }
    }
}
