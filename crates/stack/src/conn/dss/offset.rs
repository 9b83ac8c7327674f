//! Positions in a connection's byte stream (RFC 8684 section 3.3).
//!
//! Data sequence numbers start at a random value and wrap; positions start at zero and never wrap, so they are ordered. Inside the
//! connection everything is a position; only `Numbering` converts from and to the wire.

use core::ops::{Add, AddAssign, Sub};

use manypath_tcp::ranges::Circular;
use manypath_wire::dsn::Dsn;
use manypath_wire::tcp::mptcp::MapDsn;

/// Bytes of the stream before this point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Offset(pub(crate) u64);

impl Offset {
    pub(crate) const ZERO: Self = Self(0);

    /// Bytes from `earlier` to here; zero if it is not earlier.
    pub(crate) fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Offset {
    type Output = Self;
    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl AddAssign<u64> for Offset {
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl Sub for Offset {
    type Output = u64;
    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl Circular for Offset {
    fn distance(self, from: Self) -> i64 {
        self.0.wrapping_sub(from.0) as i64
    }
    fn advance(self, by: u64) -> Self {
        self + by
    }
}

/// Where one direction's stream starts in data sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Numbering {
    first: Dsn,
}

impl Numbering {
    /// The SYN takes the initial DSN, so the first byte has the next one. // rfc8684:C33
    pub(crate) fn new(idsn: Dsn) -> Self {
        Self { first: idsn + 1 }
    }

    /// As `new` for a stream whose bytes before `start` were sent on the SYN, outside of the data sequence.
    // rfc8684:O3
    pub(crate) fn behind(idsn: Dsn, start: Offset) -> Self {
        Self {
            first: Dsn::new((idsn + 1).get().wrapping_sub(start.0)),
        }
    }

    /// The 64-bit data sequence number of a position. // rfc8684:D13
    pub(crate) fn dsn(self, at: Offset) -> Dsn {
        self.first + at.0
    }

    /// The position of a received number, given a position nearby; `None` before the stream's start.
    pub(crate) fn offset(self, dsn: Dsn, near: Offset) -> Option<Offset> {
        near.0
            .checked_add_signed(dsn.diff(self.dsn(near)))
            .map(Offset)
    }

    /// As `offset`, for a number of either width. // rfc8684:D15
    pub(crate) fn place(self, dsn: MapDsn, near: Offset) -> Option<Offset> {
        match dsn {
            MapDsn::Short(low) => self.offset32(low, near),
            MapDsn::Long(full) => self.offset(Dsn::new(full), near),
        }
    }

    /// As `offset`, for the low half of a number. // rfc8684:D14,D16
    pub(crate) fn offset32(self, low: u32, near: Offset) -> Option<Offset> {
        self.offset(Dsn::expand(low, self.dsn(near)), near)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_after_the_payload_of_a_syn_has_the_second_number() {
        // rfc8684:O3
        let n = Numbering::behind(Dsn::new(5), Offset(20));
        assert_eq!(n.dsn(Offset(20)), Dsn::new(6));
        assert_eq!(n.offset(Dsn::new(7), Offset(20)), Some(Offset(21)));
        assert_eq!(n.offset32(16, Offset(20)), Some(Offset(30)));
        assert_eq!(n.offset(Dsn::new(5), Offset(20)), Some(Offset(19)), "old");
    }

    #[test]
    fn positions_translate_across_both_wraps() {
        // rfc8684:C33,D13,D14,D16
        let n = Numbering::new(Dsn::new(u64::MAX - 1));
        assert_eq!(n.dsn(Offset::ZERO), Dsn::new(u64::MAX));
        assert_eq!(n.dsn(Offset(1)), Dsn::new(0));
        assert_eq!(n.offset(Dsn::new(9), Offset(3)), Some(Offset(10)));
        assert_eq!(n.offset32(9, Offset(3)), Some(Offset(10)));
        // Reordering across a 32-bit wrap is not a jump of 4 GiB.
        let m = Numbering::new(Dsn::new(0xffff_fff0));
        let after = Offset(40);
        assert_eq!(m.offset32(0xffff_fff5, after), Some(Offset(4)));
        assert_eq!(m.offset(Dsn::new(1), Offset(2)), None);
    }
}
