//! The connection's own byte counter: 64 bits wide inside, 32 or 64 bits on the wire.

use crate::seq::wrapping_number;

wrapping_number! {
    /// A data sequence number, always 64 bits wide inside the program (rfc8684:D13). Counts octets of one
    /// direction of a connection; MP_CAPABLE takes the first one, the first payload byte is the second.
    Dsn, u64, i64
}

impl Dsn {
    /// The half that the short wire forms carry.
    #[must_use]
    pub const fn low32(self) -> u32 {
        self.0 as u32
    }

    /// The 64-bit number with the low half `low` that lies closest to `near`.
    ///
    /// `near` is what the receiver expects next, so a reordered old number just before a wrap stays in the old epoch
    /// and a new one just after it enters the next.
    #[must_use]
    pub const fn expand(low: u32, near: Self) -> Self {
        // rfc8684:D16
        let distance = low.wrapping_sub(near.low32()) as i32;
        Self(near.0.wrapping_add_signed(distance as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_number_after_the_wrap_enters_the_next_epoch() {
        // rfc8684:D16
        let near = Dsn::new(0x0000_0001_ffff_fff0);
        assert_eq!(Dsn::expand(0x10, near), Dsn::new(0x0000_0002_0000_0010));
    }

    #[test]
    fn a_reordered_number_stays_in_the_old_epoch() {
        // rfc8684:D16
        let near = Dsn::new(0x0000_0002_0000_0010);
        assert_eq!(
            Dsn::expand(0xffff_fff0, near),
            Dsn::new(0x0000_0001_ffff_fff0)
        );
        assert_eq!(Dsn::expand(0x10, near), near);
    }

    #[test]
    fn the_whole_counter_wraps_too() {
        let near = Dsn::new(u64::MAX);
        assert_eq!(Dsn::expand(1, near), Dsn::new(1));
        assert_eq!(near + 2, Dsn::new(1));
        assert!(near.before(Dsn::new(1)));
    }

    proptest! {
        #[test]
        fn expansion_finds_every_number_within_half_an_epoch(near: u64, away in -0x7fff_ffffi64..0x7fff_ffff) {
            // rfc8684:D13 rfc8684:D14 rfc8684:D16
            let near = Dsn::new(near);
            let truth = Dsn::new(near.get().wrapping_add_signed(away));
            prop_assert_eq!(Dsn::expand(truth.low32(), near), truth);
        }
    }
}
