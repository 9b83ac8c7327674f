//! MP_FASTCLOSE (RFC 8684 section 3.5): the whole connection ends now.

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::ids::Key;

/// The option's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FastClose {
    /// The key of who receives the option: proof that its sender knows the connection (rfc8684:Z3).
    pub key: Key,
}

impl FastClose {
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
            key: Key(reader.array()?),
        })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        emit_head(w, Self::LEN, Subtype::FastClose, 0)?;
        w.u8(0)?;
        w.put(&self.key.0)
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
        golden(
            MptcpOption::FastClose(FastClose {
                key: Key([0x45, 0xed, 0xb5, 0x02, 0xd8, 0x61, 0xe7, 0xb1]),
            }),
            &[
                30, 12, 0x70, 0, 0x45, 0xed, 0xb5, 0x02, 0xd8, 0x61, 0xe7, 0xb1,
            ],
        );
    }

    #[test]
    fn only_one_length_counts() {
        // rfc8684:G5
        only_these_lengths(&[30, 12, 0x70], Flags::ACK | Flags::RST, &[12]);
    }
}
