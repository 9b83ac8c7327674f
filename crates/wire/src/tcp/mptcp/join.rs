//! MP_JOIN (RFC 8684 section 3.2): another subflow for an existing connection.

use super::{Phase, Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::ids::{AddrId, Nonce, Token};

const BACKUP: u8 = 0x01;

/// The option's three forms, told apart by flags and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// On the SYN.
    Syn {
        /// Use this subflow towards me only when no other is usable (rfc8684:J6).
        backup: bool,
        /// Which of the sender's addresses this is (rfc8684:J3).
        addr_id: AddrId,
        /// Names the connection at the receiver (rfc8684:J1).
        token: Token,
        /// The sender's random number (rfc8684:J2).
        nonce: Nonce,
    },
    /// On the SYN/ACK.
    SynAck {
        /// As in the SYN.
        backup: bool,
        /// As in the SYN.
        addr_id: AddrId,
        /// The leftmost 64 bits of the responder's HMAC (rfc8684:J7).
        hmac: [u8; 8],
        /// The responder's random number.
        nonce: Nonce,
    },
    /// On the third packet.
    Ack {
        /// The leftmost 160 bits of the initiator's HMAC.
        hmac: [u8; 20],
    },
}

impl Join {
    pub(super) fn parse(option: &[u8], phase: Phase) -> Option<Self> {
        let mut reader = Reader::new(option);
        reader.take(2)?;
        let backup = reader.u8()? & BACKUP != 0;
        let addr_id = AddrId(reader.u8()?);
        // rfc8684:G5
        Some(match (phase, option.len()) {
            (Phase::Syn, 12) => Self::Syn {
                backup,
                addr_id,
                token: Token(reader.u32()?),
                nonce: Nonce(reader.u32()?),
            },
            (Phase::SynAck, 16) => Self::SynAck {
                backup,
                addr_id,
                hmac: reader.array()?,
                nonce: Nonce(reader.u32()?),
            },
            (Phase::Later, 24) => Self::Ack {
                hmac: reader.array()?,
            },
            (Phase::Syn | Phase::SynAck | Phase::Later, _) => return None,
        })
    }

    /// Bytes on the wire: 12, 16 or 24.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Syn { .. } => 12,
            Self::SynAck { .. } => 16,
            Self::Ack { .. } => 24,
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        // rfc8684:J5: the reserved bits beside B, and all twelve of the last form, are zero.
        let low = match *self {
            Self::Syn { backup, .. } | Self::SynAck { backup, .. } => u8::from(backup) * BACKUP,
            Self::Ack { .. } => 0,
        };
        emit_head(w, self.wire_len(), Subtype::Join, low)?;
        match *self {
            Self::Syn {
                backup: _,
                addr_id,
                token,
                nonce,
            } => {
                w.u8(addr_id.0)?;
                w.u32(token.0)?;
                w.u32(nonce.0)
            }
            Self::SynAck {
                backup: _,
                addr_id,
                hmac,
                nonce,
            } => {
                w.u8(addr_id.0)?;
                w.put(&hmac)?;
                w.u32(nonce.0)
            }
            Self::Ack { hmac } => {
                w.u8(0)?;
                w.put(&hmac)
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::MptcpOption;
    use super::super::tests::{golden, only_these_lengths};
    use super::*;
    use crate::tcp::header::Flags;
    use proptest::prelude::*;

    pub(crate) fn any_join() -> impl Strategy<Value = Join> {
        prop_oneof![
            any::<(bool, u8, u32, u32)>().prop_map(|(backup, id, token, nonce)| Join::Syn {
                backup,
                addr_id: AddrId(id),
                token: Token(token),
                nonce: Nonce(nonce),
            }),
            any::<(bool, u8, [u8; 8], u32)>().prop_map(|(backup, id, hmac, nonce)| Join::SynAck {
                backup,
                addr_id: AddrId(id),
                hmac,
                nonce: Nonce(nonce),
            }),
            any::<[u8; 20]>().prop_map(|hmac| Join::Ack { hmac }),
        ]
    }

    #[test]
    fn golden_vectors() {
        // rfc8684:J5 rfc8684:J7; the HMACs are those of the two keys and nonces 01020304 and 0a0b0c0d.
        golden(
            MptcpOption::Join(Join::Syn {
                backup: true,
                addr_id: AddrId(3),
                token: Token(0x5bba_80d9),
                nonce: Nonce(0x0102_0304),
            }),
            &[30, 12, 0x11, 3, 0x5b, 0xba, 0x80, 0xd9, 1, 2, 3, 4],
        );
        golden(
            MptcpOption::Join(Join::SynAck {
                backup: false,
                addr_id: AddrId(0),
                hmac: [0xae, 0xd7, 0x0d, 0xb7, 0xba, 0xd3, 0x74, 0xb9],
                nonce: Nonce(0x0a0b_0c0d),
            }),
            &[
                30, 16, 0x10, 0, 0xae, 0xd7, 0x0d, 0xb7, 0xba, 0xd3, 0x74, 0xb9, 0x0a, 0x0b, 0x0c,
                0x0d,
            ],
        );
        let hmac = [
            0x92, 0xf3, 0xaf, 0x81, 0x68, 0xc2, 0x89, 0x9d, 0x27, 0x10, 0xf3, 0x9d, 0x51, 0x3e,
            0xed, 0x49, 0x8c, 0xd1, 0x7d, 0x7b,
        ];
        let mut bytes = [0u8; 24];
        bytes[..4].copy_from_slice(&[30, 24, 0x10, 0]);
        bytes[4..].copy_from_slice(&hmac);
        golden(MptcpOption::Join(Join::Ack { hmac }), &bytes);
    }

    #[test]
    fn reserved_bits_are_ignored_on_receipt() {
        // rfc8684:J5
        let clean = [30, 12, 0x11, 3, 0, 0, 0, 1, 0, 0, 0, 2];
        let mut dirty = clean;
        dirty[2] |= 0x0e;
        assert_eq!(
            MptcpOption::parse(&dirty, Flags::SYN),
            MptcpOption::parse(&clean, Flags::SYN)
        );
    }

    #[test]
    fn the_flags_decide_which_length_is_right() {
        // rfc8684:G5
        let bytes = [30, 12, 0x10, 0];
        only_these_lengths(&bytes, Flags::SYN, &[12]);
        only_these_lengths(&bytes, Flags::SYN | Flags::ACK, &[16]);
        only_these_lengths(&bytes, Flags::ACK, &[24]);
    }
}
