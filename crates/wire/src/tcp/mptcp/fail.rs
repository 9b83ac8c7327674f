//! MP_FAIL (RFC 8684 section 3.7): a data-level checksum did not match.

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::dsn::Dsn;

/// The option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fail {
    /// Where the mapping that failed begins, always in 64 bits (rfc8684:B6).
    pub dsn: Dsn,
}

impl Fail {
    /// Bytes on the wire.
    pub const LEN: usize = 12;

    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        // rfc8684:G5
        if option.len() != Self::LEN {
            return None;
        }
        let mut reader = Reader::new(option);
        reader.take(4)?;
        Some(Self {
            dsn: Dsn::new(reader.u64()?),
        })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        emit_head(w, Self::LEN, Subtype::Fail, 0)?;
        w.u8(0)?;
        w.u64(self.dsn.get())
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
        // rfc8684:B6
        golden(
            MptcpOption::Fail(Fail {
                dsn: Dsn::new(0x1122_3344_5566_7788),
            }),
            &[
                30, 12, 0x60, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
            ],
        );
    }

    #[test]
    fn only_one_length_counts() {
        // rfc8684:G5
        only_these_lengths(&[30, 12, 0x60], Flags::ACK, &[12]);
    }
}
