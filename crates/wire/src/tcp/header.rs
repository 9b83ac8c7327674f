//! The fixed part of the TCP header (RFC 9293 section 3.1).

use core::fmt;
use core::ops::{BitAnd, BitOr, BitOrAssign};

use crate::cursor::{NoRoom, Reader, Writer};
use crate::seq::SeqNum;

/// Bytes of a header without options.
pub const MIN_LEN: usize = 20;
/// Bytes of the longest header.
pub const MAX_LEN: usize = 60;
/// Bytes of options that fit into a header.
pub const MAX_OPTIONS_LEN: usize = MAX_LEN - MIN_LEN;
/// Offset of the checksum field.
pub const CHECKSUM_AT: usize = 16;

/// The control bits of a header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Flags(u8);

impl Flags {
    /// No bit set.
    pub const NONE: Self = Self(0);
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push the data so far to the application.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field counts.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer counts.
    pub const URG: Self = Self(0x20);
    /// Congestion experienced, echoed (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// All eight bits as they stand in the header.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// The eight bits as they stand in the header.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Every bit of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// At least one bit of `other` is set.
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The bits of both; `|` in constants.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The bits of `self` that `other` lacks.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// SYN is set.
    #[must_use]
    pub const fn syn(self) -> bool {
        self.contains(Self::SYN)
    }

    /// ACK is set.
    #[must_use]
    pub const fn ack(self) -> bool {
        self.contains(Self::ACK)
    }

    /// FIN is set.
    #[must_use]
    pub const fn fin(self) -> bool {
        self.contains(Self::FIN)
    }

    /// RST is set.
    #[must_use]
    pub const fn rst(self) -> bool {
        self.contains(Self::RST)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        *self = *self | other;
    }
}

impl BitAnd for Flags {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// As packet tools print it: `S` SYN, `F` FIN, `P` PSH, `R` RST, `U` URG, `E` ECE, `W` CWR, `.` ACK.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("none");
        }
        for (bit, letter) in [
            (Self::FIN, "F"),
            (Self::SYN, "S"),
            (Self::RST, "R"),
            (Self::PSH, "P"),
            (Self::URG, "U"),
            (Self::ECE, "E"),
            (Self::CWR, "W"),
            (Self::ACK, "."),
        ] {
            if self.contains(bit) {
                f.write_str(letter)?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flags({self})")
    }
}

/// The fixed fields, data offset and checksum excepted: the offset follows from the options, the checksum is computed
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// The sender's port.
    pub src_port: u16,
    /// The receiver's port.
    pub dst_port: u16,
    /// Number of the first payload byte, or of the SYN.
    pub seq: SeqNum,
    /// The next number the sender of this header expects; means nothing without [`Flags::ACK`].
    pub ack: SeqNum,
    /// The control bits.
    pub flags: Flags,
    /// The window field, not yet scaled.
    pub window: u16,
    /// The urgent pointer; means nothing without [`Flags::URG`].
    pub urgent: u16,
}

/// Why bytes are no TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than the header says or needs.
    Truncated,
    /// The data offset points into the fixed header.
    DataOffset,
}

/// A segment split at the borders its header gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// The fixed fields.
    pub header: Header,
    /// The option bytes, padding included; a multiple of 4, at most 40.
    pub options: &'a [u8],
    /// Everything behind the header.
    pub payload: &'a [u8],
}

impl Header {
    /// All fields zero.
    pub const EMPTY: Self = Self {
        src_port: 0,
        dst_port: 0,
        seq: SeqNum::new(0),
        ack: SeqNum::new(0),
        flags: Flags::NONE,
        window: 0,
        urgent: 0,
    };

    /// Splits a TCP segment (what follows the IP header). The checksum is not looked at.
    pub fn parse(segment: &[u8]) -> Result<Parts<'_>, HeaderError> {
        let (fixed, behind) = segment
            .split_first_chunk::<MIN_LEN>()
            .ok_or(HeaderError::Truncated)?;
        // A slice of known length lets the compiler drop every further check.
        Self::fields(&mut Reader::new(fixed))
            .ok_or(HeaderError::Truncated)?
            .split(Reader::new(behind))
    }

    fn fields(reader: &mut Reader<'_>) -> Option<Fixed> {
        let (src_port, dst_port) = (reader.u16()?, reader.u16()?);
        let (seq, ack) = (reader.u32()?, reader.u32()?);
        let (offset, flags) = (reader.u8()?, reader.u8()?);
        let (window, _checksum, urgent) = (reader.u16()?, reader.u16()?, reader.u16()?);
        Some(Fixed {
            header: Self {
                src_port,
                dst_port,
                seq: SeqNum::new(seq),
                ack: SeqNum::new(ack),
                flags: Flags::from_bits(flags),
                window,
                urgent,
            },
            header_len: usize::from(offset >> 4) * 4,
        })
    }

    /// Writes the 20 fixed bytes with a zero checksum, for `options_len` bytes of options (a multiple of 4, at most
    /// 40, or the answer is [`NoRoom`]).
    pub fn emit(&self, w: &mut Writer<'_>, options_len: usize) -> Result<(), NoRoom> {
        if options_len % 4 != 0 || options_len > MAX_OPTIONS_LEN {
            return Err(NoRoom);
        }
        let words = ((MIN_LEN + options_len) / 4) as u8;
        // An array of known length lets the compiler drop every further check.
        let mut bytes = [0; MIN_LEN];
        let mut fixed = Writer::new(&mut bytes);
        fixed.u16(self.src_port)?;
        fixed.u16(self.dst_port)?;
        fixed.u32(self.seq.get())?;
        fixed.u32(self.ack.get())?;
        fixed.u8(words << 4)?;
        fixed.u8(self.flags.bits())?;
        fixed.u16(self.window)?;
        fixed.u16(0)?;
        fixed.u16(self.urgent)?;
        w.put(&bytes)
    }
}

/// The fixed fields together with where they say the payload begins.
struct Fixed {
    header: Header,
    header_len: usize,
}

impl Fixed {
    fn split(self, mut reader: Reader<'_>) -> Result<Parts<'_>, HeaderError> {
        let options_len = self
            .header_len
            .checked_sub(MIN_LEN)
            .ok_or(HeaderError::DataOffset)?;
        let options = reader.take(options_len).ok_or(HeaderError::Truncated)?;
        Ok(Parts {
            header: self.header,
            options,
            payload: reader.rest(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn flags_print_as_in_packet_tools() {
        assert_eq!(format!("{}", Flags::SYN | Flags::ACK), "S.");
        assert_eq!(format!("{}", Flags::FIN | Flags::PSH | Flags::ACK), "FP.");
        assert_eq!(format!("{}", Flags::NONE), "none");
        assert!((Flags::SYN | Flags::ACK).contains(Flags::ACK));
        assert!(!Flags::SYN.contains(Flags::SYN | Flags::ACK));
        assert!(Flags::SYN.intersects(Flags::SYN | Flags::ACK));
        assert_eq!((Flags::SYN | Flags::ACK).without(Flags::SYN), Flags::ACK);
    }

    #[test]
    fn a_wrong_data_offset_is_refused() {
        let mut bytes = [0u8; 24];
        bytes[12] = 4 << 4;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::DataOffset));
        bytes[12] = 7 << 4;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::Truncated));
        bytes[12] = 6 << 4;
        let parts = Header::parse(&bytes).unwrap();
        assert_eq!((parts.options.len(), parts.payload.len()), (4, 0));
        assert_eq!(Header::parse(&bytes[..19]), Err(HeaderError::Truncated));
    }

    #[test]
    fn options_that_do_not_fit_are_refused() {
        let header = Header::parse(&{
            let mut bytes = [0u8; 20];
            bytes[12] = 5 << 4;
            bytes
        })
        .unwrap()
        .header;
        let mut buffer = [0u8; 60];
        assert_eq!(header.emit(&mut Writer::new(&mut buffer), 41), Err(NoRoom));
        assert_eq!(header.emit(&mut Writer::new(&mut buffer), 44), Err(NoRoom));
        assert_eq!(
            header.emit(&mut Writer::new(&mut buffer[..19]), 0),
            Err(NoRoom)
        );
        assert_eq!(header.emit(&mut Writer::new(&mut buffer), 40), Ok(()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, urgent: u16,
            words in 0usize..=10, payload in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let header = Header {
                src_port: ports.0, dst_port: ports.1, seq: SeqNum::new(numbers.0), ack: SeqNum::new(numbers.1),
                flags: Flags::from_bits(flags), window, urgent,
            };
            let mut bytes: Vec<u8> = [0; MIN_LEN].to_vec();
            header.emit(&mut Writer::new(&mut bytes), words * 4).unwrap();
            bytes.extend(core::iter::repeat_n(1u8, words * 4));
            bytes.extend(&payload);
            let parts = Header::parse(&bytes).unwrap();
            prop_assert_eq!(parts.header, header);
            prop_assert_eq!(parts.options.len(), words * 4);
            prop_assert_eq!(parts.payload, &payload[..]);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Header::parse(&bytes);
        }
    }
}
