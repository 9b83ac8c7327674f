//! The option of subtype 0xf, which RFC 8684 section 8 leaves to whoever agrees on it, by its first bits. Our stack agrees on none: it
//! sends none, and ignores those of others; captures show them.

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Writer};

/// The option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Private {
    name: u16,
}

impl Private {
    /// Bytes on the wire.
    pub const LEN: usize = 4;

    /// The option that names an extension, in 12 bits.
    #[must_use]
    pub const fn new(name: u16) -> Self {
        Self { name: name & 0xfff }
    }

    /// The extension's name.
    #[must_use]
    pub const fn name(self) -> u16 {
        self.name
    }

    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        // rfc8684:G5
        let &[_, _, high, low] = option else {
            return None;
        };
        Some(Self::new(u16::from_be_bytes([high, low])))
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        let [high, low] = self.name.to_be_bytes();
        emit_head(w, Self::LEN, Subtype::Private, high)?;
        w.u8(low)
    }
}

#[cfg(test)]
mod tests {
    use super::super::MptcpOption;
    use super::super::tests::{golden, only_these_lengths};
    use super::*;
    use crate::tcp::header::Flags;

    #[test]
    fn golden_vectors() {
        let option = MptcpOption::Private(Private::new(0x152));
        golden(option, &[30, 4, 0xf1, 0x52]);
        assert_eq!(Private::new(0xf152).name(), 0x152);
    }

    #[test]
    fn only_one_length_counts() {
        // rfc8684:G5
        only_these_lengths(&[30, 4, 0xf1, 0x52], Flags::ACK, &[4]);
    }
}
