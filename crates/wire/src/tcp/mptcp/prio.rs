//! MP_PRIO (RFC 8684 section 3.3.8): whether the subflow that carries it is a backup.

use super::{Subtype, emit_head};
use crate::cursor::{NoRoom, Writer};

const BACKUP: u8 = 0x01;

/// The option's value; it speaks of the subflow that carries it and of data towards its sender (rfc8684:P2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prio {
    /// Send here only when no subflow without this mark is usable.
    pub backup: bool,
}

impl Prio {
    /// Bytes on the wire.
    pub const LEN: usize = 3;

    pub(super) fn parse(option: &[u8]) -> Option<Self> {
        // rfc8684:G5
        let &[_, _, bits] = option else { return None };
        Some(Self {
            backup: bits & BACKUP != 0,
        })
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        emit_head(w, Self::LEN, Subtype::Prio, u8::from(self.backup) * BACKUP)
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
        golden(MptcpOption::Prio(Prio { backup: true }), &[30, 3, 0x51]);
        golden(MptcpOption::Prio(Prio { backup: false }), &[30, 3, 0x50]);
    }

    #[test]
    fn only_one_length_counts() {
        // rfc8684:G5; version 0 had a form of four bytes with an address identifier.
        only_these_lengths(&[30, 3, 0x51], Flags::ACK, &[3]);
    }
}
