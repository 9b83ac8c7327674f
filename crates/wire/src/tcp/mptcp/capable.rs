//! MP_CAPABLE (RFC 8684 section 3.1): the first subflow's handshake, and the first mapping.

use super::{Phase, Subtype, emit_head};
use crate::cursor::{NoRoom, Reader, Writer};
use crate::ids::Key;

const A: u8 = 0x80;
const B: u8 = 0x40;
const C: u8 = 0x20;
const D_TO_G: u8 = 0x1e;
const H: u8 = 0x01;

/// The option's value. Which bits make it unacceptable is for the connection to decide; the parser only refuses
/// wrong lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capable {
    /// The protocol version, 0 to 15; 1 is RFC 8684.
    pub version: u8,
    /// Bit A: the sender wants data-level checksums (rfc8684:C16, C24).
    pub checksum_required: bool,
    /// Bit B: an extension this program does not know; such an option is ignored (rfc8684:C18).
    pub extensibility: bool,
    /// Bit C: no further subflows to the sender's address and port (rfc8684:C19).
    pub no_joins_here: bool,
    /// Bit H: HMAC-SHA256 is offered or chosen (rfc8684:C20).
    pub hmac_sha256: bool,
    /// Bits D to G, D most significant (4 bits): algorithms nobody has defined.
    pub other_crypto: u8,
    /// What the form of this segment carries.
    pub keys: CapableKeys,
}

/// The four forms, told apart by flags and length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapableKeys {
    /// On the SYN: no key (rfc8684:C4).
    Syn,
    /// On the SYN/ACK: the responder's key.
    SynAck {
        /// The key of who sends this segment.
        sender: Key,
    },
    /// On the third ACK without data: both keys.
    Ack {
        /// The key of who sends this segment.
        sender: Key,
        /// The key of who receives it, echoed.
        receiver: Key,
    },
    /// On the first data: both keys and a mapping of that data, first data byte, subflow number 1 (rfc8684:C11).
    Data {
        /// The key of who sends this segment.
        sender: Key,
        /// The key of who receives it, echoed.
        receiver: Key,
        /// Bytes mapped.
        len: u16,
        /// The mapping's checksum, if checksums were negotiated.
        checksum: Option<u16>,
    },
}

impl Capable {
    /// The form of RFC 8684 with HMAC-SHA256 and nothing unusual.
    #[must_use]
    pub const fn v1(checksum_required: bool, keys: CapableKeys) -> Self {
        Self {
            version: super::VERSION,
            checksum_required,
            extensibility: false, // rfc8684:C17
            no_joins_here: false,
            hmac_sha256: true, // rfc8684:C20
            other_crypto: 0,
            keys,
        }
    }

    pub(super) fn parse(option: &[u8], phase: Phase) -> Option<Self> {
        let mut reader = Reader::new(option);
        reader.take(2)?;
        let version = reader.u8()? & 0x0f;
        let bits = reader.u8()?;
        // rfc8684:C4 rfc8684:G5
        let keys = match (phase, option.len()) {
            (Phase::Syn, 4) => CapableKeys::Syn,
            (Phase::SynAck, 12) => CapableKeys::SynAck {
                sender: Key(reader.array()?),
            },
            (Phase::Later, 20) => CapableKeys::Ack {
                sender: Key(reader.array()?),
                receiver: Key(reader.array()?),
            },
            (Phase::Later, 22 | 24) => CapableKeys::Data {
                sender: Key(reader.array()?),
                receiver: Key(reader.array()?),
                len: reader.u16()?,
                checksum: reader.u16(),
            },
            (Phase::Syn | Phase::SynAck | Phase::Later, _) => return None,
        };
        Some(Self {
            version,
            checksum_required: bits & A != 0,
            extensibility: bits & B != 0,
            no_joins_here: bits & C != 0,
            hmac_sha256: bits & H != 0,
            other_crypto: (bits & D_TO_G) >> 1,
            keys,
        })
    }

    /// Bytes on the wire: 4, 12, 20, 22 or 24.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self.keys {
            CapableKeys::Syn => 4,
            CapableKeys::SynAck { .. } => 12,
            CapableKeys::Ack { .. } => 20,
            CapableKeys::Data { checksum: None, .. } => 22,
            CapableKeys::Data {
                checksum: Some(_), ..
            } => 24,
        }
    }

    pub(super) fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        emit_head(w, self.wire_len(), Subtype::Capable, self.version)?;
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        w.u8(bit(self.checksum_required, A)
            | bit(self.extensibility, B)
            | bit(self.no_joins_here, C)
            | bit(self.hmac_sha256, H)
            | (self.other_crypto << 1 & D_TO_G))?;
        match self.keys {
            CapableKeys::Syn => Ok(()),
            CapableKeys::SynAck { sender } => w.put(&sender.0),
            CapableKeys::Ack { sender, receiver } => {
                w.put(&sender.0)?;
                w.put(&receiver.0)
            }
            CapableKeys::Data {
                sender,
                receiver,
                len,
                checksum,
            } => {
                w.put(&sender.0)?;
                w.put(&receiver.0)?;
                w.u16(len)?;
                checksum.map_or(Ok(()), |checksum| w.u16(checksum))
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

    const SENDER: Key = Key([0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b]);
    const RECEIVER: Key = Key([0x45, 0xed, 0xb5, 0x02, 0xd8, 0x61, 0xe7, 0xb1]);

    pub(crate) fn any_capable() -> impl Strategy<Value = Capable> {
        let key = || any::<[u8; 8]>().prop_map(Key);
        let keys = prop_oneof![
            Just(CapableKeys::Syn),
            key().prop_map(|sender| CapableKeys::SynAck { sender }),
            (key(), key()).prop_map(|(sender, receiver)| CapableKeys::Ack { sender, receiver }),
            (key(), key(), any::<u16>(), any::<Option<u16>>()).prop_map(
                |(sender, receiver, len, checksum)| CapableKeys::Data {
                    sender,
                    receiver,
                    len,
                    checksum
                }
            ),
        ];
        (0u8..16, any::<[bool; 4]>(), 0u8..16, keys).prop_map(
            |(version, [a, b, c, h], other_crypto, keys)| Capable {
                version,
                checksum_required: a,
                extensibility: b,
                no_joins_here: c,
                hmac_sha256: h,
                other_crypto,
                keys,
            },
        )
    }

    #[test]
    fn golden_vectors() {
        // rfc8684:C4 rfc8684:C17 rfc8684:C20
        golden(
            MptcpOption::Capable(Capable::v1(true, CapableKeys::Syn)),
            &[30, 4, 0x01, 0x81],
        );
        golden(
            MptcpOption::Capable(Capable::v1(false, CapableKeys::SynAck { sender: SENDER })),
            &[
                30, 12, 0x01, 0x01, 0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b,
            ],
        );
        golden(
            MptcpOption::Capable(Capable::v1(
                true,
                CapableKeys::Ack {
                    sender: SENDER,
                    receiver: RECEIVER,
                },
            )),
            &[
                30, 20, 0x01, 0x81, 0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b, 0x45, 0xed,
                0xb5, 0x02, 0xd8, 0x61, 0xe7, 0xb1,
            ],
        );
        golden(
            MptcpOption::Capable(Capable::v1(
                true,
                CapableKeys::Data {
                    sender: SENDER,
                    receiver: RECEIVER,
                    len: 11,
                    checksum: Some(0x58d8),
                },
            )),
            &[
                30, 24, 0x01, 0x81, 0xdb, 0xb7, 0x60, 0xdb, 0x1d, 0x55, 0xe0, 0x7b, 0x45, 0xed,
                0xb5, 0x02, 0xd8, 0x61, 0xe7, 0xb1, 0, 11, 0x58, 0xd8,
            ],
        );
        golden(
            MptcpOption::Capable(Capable {
                no_joins_here: true,
                extensibility: true,
                other_crypto: 0b1001,
                version: 7,
                ..Capable::v1(false, CapableKeys::Syn)
            }),
            &[30, 4, 0x07, 0x73],
        );
    }

    #[test]
    fn the_flags_decide_which_length_is_right() {
        // rfc8684:G5 rfc8684:C4
        let bytes = [30, 4, 0x01, 0x81];
        only_these_lengths(&bytes, Flags::SYN, &[4]);
        only_these_lengths(&bytes, Flags::SYN | Flags::ACK, &[12]);
        only_these_lengths(&bytes, Flags::ACK, &[20, 22, 24]);
    }
}
