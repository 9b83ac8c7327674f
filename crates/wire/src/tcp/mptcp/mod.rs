//! The options of Multipath TCP version 1 (RFC 8684), kind 30. One file for each: its value, how it is parsed, how it
//! is written, and vectors that pin it down.
//!
//! What an option holds is decided by the segment's SYN and ACK flags together with the option's length. Any other
//! length counts as "the option is not there" (rfc8684:G5), and so does an unassigned subtype: parsers answer `None`
//! and the caller counts it.

pub mod addr;
pub mod capable;
pub mod dss;
pub mod fail;
pub mod fastclose;
pub mod join;
pub mod prio;
pub mod private;
pub mod reset;

pub use addr::{AddAddr, AddrIds, RemoveAddr};
pub use capable::{Capable, CapableKeys};
pub use dss::{DataAck, Dss, MapDsn, Mapping};
pub use fail::Fail;
pub use fastclose::FastClose;
pub use join::Join;
pub use prio::Prio;
pub use private::Private;
pub use reset::{Reset, ResetReason};

use super::header::Flags;
use crate::cursor::{NoRoom, Writer};

/// The TCP option kind of Multipath TCP.
pub const KIND: u8 = 30;
/// The version of RFC 8684.
pub const VERSION: u8 = 1;

/// The upper four bits of the third byte of every option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Subtype {
    /// MP_CAPABLE.
    Capable = 0x0,
    /// MP_JOIN.
    Join = 0x1,
    /// DSS.
    Dss = 0x2,
    /// ADD_ADDR.
    AddAddr = 0x3,
    /// REMOVE_ADDR.
    RemoveAddr = 0x4,
    /// MP_PRIO.
    Prio = 0x5,
    /// MP_FAIL.
    Fail = 0x6,
    /// MP_FASTCLOSE.
    FastClose = 0x7,
    /// MP_TCPRST.
    Reset = 0x8,
    /// Whatever two hosts agree on by themselves (section 8).
    Private = 0xf,
}

impl Subtype {
    /// The subtype with this number, if one is assigned.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            0x0 => Self::Capable,
            0x1 => Self::Join,
            0x2 => Self::Dss,
            0x3 => Self::AddAddr,
            0x4 => Self::RemoveAddr,
            0x5 => Self::Prio,
            0x6 => Self::Fail,
            0x7 => Self::FastClose,
            0x8 => Self::Reset,
            0xf => Self::Private,
            _ => return None,
        })
    }

    /// The number on the wire.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }
}

/// Which of the handshake's forms an option may have in a segment: decided by SYN and ACK alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// SYN without ACK.
    Syn,
    /// SYN with ACK.
    SynAck,
    /// No SYN.
    Later,
}

impl Phase {
    /// The phase of a segment with these flags.
    #[must_use]
    pub const fn of(flags: Flags) -> Self {
        match (flags.syn(), flags.ack()) {
            (true, false) => Self::Syn,
            (true, true) => Self::SynAck,
            (false, _) => Self::Later,
        }
    }
}

/// Any option of Multipath TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MptcpOption {
    /// Multipath TCP is spoken here, and the keys (RFC 8684 section 3.1).
    Capable(Capable),
    /// This subflow belongs to an existing connection (section 3.2).
    Join(Join),
    /// Data acknowledgement and data sequence mapping (section 3.3).
    Dss(Dss),
    /// Another address of the sender, or the echo of one (section 3.4.1).
    AddAddr(AddAddr),
    /// Addresses that are no more (section 3.4.2).
    RemoveAddr(RemoveAddr),
    /// Whether this subflow is a backup (section 3.3.8).
    Prio(Prio),
    /// A checksum failed (section 3.7).
    Fail(Fail),
    /// Close the whole connection at once (section 3.5).
    FastClose(FastClose),
    /// Why this subflow is reset (section 3.6).
    Reset(Reset),
    /// What no standard says.
    Private(Private),
}

impl MptcpOption {
    /// Reads one whole option, kind and length bytes included; `None` when it counts as not there.
    #[must_use]
    pub fn parse(option: &[u8], flags: Flags) -> Option<Self> {
        // rfc8684:G5
        let (&[kind, len, third], _) = option.split_first_chunk::<3>()?;
        if kind != KIND || usize::from(len) != option.len() {
            return None;
        }
        let phase = Phase::of(flags);
        Some(match Subtype::from_number(third >> 4)? {
            Subtype::Capable => Self::Capable(Capable::parse(option, phase)?),
            Subtype::Join => Self::Join(Join::parse(option, phase)?),
            Subtype::Dss => Self::Dss(Dss::parse(option)?),
            Subtype::AddAddr => Self::AddAddr(AddAddr::parse(option)?),
            Subtype::RemoveAddr => Self::RemoveAddr(RemoveAddr::parse(option)?),
            Subtype::Prio => Self::Prio(Prio::parse(option)?),
            Subtype::Fail => Self::Fail(Fail::parse(option)?),
            Subtype::FastClose => Self::FastClose(FastClose::parse(option)?),
            Subtype::Reset => Self::Reset(Reset::parse(option)?),
            Subtype::Private => Self::Private(Private::parse(option)?),
        })
    }

    /// Bytes on the wire, kind and length included, padding excluded.
    #[must_use]
    pub const fn wire_len(&self) -> usize {
        match self {
            Self::Capable(capable) => capable.wire_len(),
            Self::Join(join) => join.wire_len(),
            Self::Dss(dss) => dss.wire_len(),
            Self::AddAddr(add) => add.wire_len(),
            Self::RemoveAddr(remove) => remove.wire_len(),
            Self::Prio(_) => Prio::LEN,
            Self::Fail(_) => Fail::LEN,
            Self::FastClose(_) => FastClose::LEN,
            Self::Reset(_) => Reset::LEN,
            Self::Private(_) => Private::LEN,
        }
    }

    /// Writes the option without padding.
    pub fn emit(&self, w: &mut Writer<'_>) -> Result<(), NoRoom> {
        match self {
            Self::Capable(capable) => capable.emit(w),
            Self::Join(join) => join.emit(w),
            Self::Dss(dss) => dss.emit(w),
            Self::AddAddr(add) => add.emit(w),
            Self::RemoveAddr(remove) => remove.emit(w),
            Self::Prio(prio) => prio.emit(w),
            Self::Fail(fail) => fail.emit(w),
            Self::FastClose(close) => close.emit(w),
            Self::Reset(reset) => reset.emit(w),
            Self::Private(private) => private.emit(w),
        }
    }

    /// Which option it is.
    #[must_use]
    pub const fn subtype(&self) -> Subtype {
        match self {
            Self::Capable(_) => Subtype::Capable,
            Self::Join(_) => Subtype::Join,
            Self::Dss(_) => Subtype::Dss,
            Self::AddAddr(_) => Subtype::AddAddr,
            Self::RemoveAddr(_) => Subtype::RemoveAddr,
            Self::Prio(_) => Subtype::Prio,
            Self::Fail(_) => Subtype::Fail,
            Self::FastClose(_) => Subtype::FastClose,
            Self::Reset(_) => Subtype::Reset,
            Self::Private(_) => Subtype::Private,
        }
    }
}

/// Writes what every option begins with: kind, length, and the third byte with the subtype above `low` (4 bits).
fn emit_head(w: &mut Writer<'_>, len: usize, subtype: Subtype, low: u8) -> Result<(), NoRoom> {
    w.u8(KIND)?;
    // No option is longer than the 40 bytes of a header, which every wire_len keeps to.
    w.u8(len as u8)?;
    w.u8(subtype.number() << 4 | (low & 0x0f))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    /// Writes an option alone.
    pub(crate) fn bytes_of(option: &MptcpOption) -> Vec<u8> {
        let mut buffer = [0u8; 64];
        let mut writer = Writer::new(&mut buffer);
        option
            .emit(&mut writer)
            .expect("64 bytes are enough for any option");
        let len = writer.written();
        assert_eq!(len, option.wire_len());
        assert_eq!(usize::from(buffer[1]), len);
        buffer[..len].to_vec()
    }

    /// Flags under which an option's form is the right one.
    pub(crate) fn flags_for(option: &MptcpOption) -> Flags {
        match option {
            MptcpOption::Capable(Capable {
                keys: CapableKeys::Syn,
                ..
            })
            | MptcpOption::Join(Join::Syn { .. }) => Flags::SYN,
            MptcpOption::Capable(Capable {
                keys: CapableKeys::SynAck { .. },
                ..
            })
            | MptcpOption::Join(Join::SynAck { .. }) => Flags::SYN | Flags::ACK,
            _ => Flags::ACK,
        }
    }

    /// Pins a value to its bytes, both ways.
    pub(crate) fn golden(option: MptcpOption, bytes: &[u8]) {
        assert_eq!(bytes_of(&option), bytes);
        assert_eq!(MptcpOption::parse(bytes, flags_for(&option)), Some(option));
    }

    /// Every other length of the same option must count as absent.
    pub(crate) fn only_these_lengths(bytes: &[u8], flags: Flags, lengths: &[usize]) {
        // rfc8684:G5
        for len in 2..=40 {
            let mut option = bytes.to_vec();
            option.resize(len, 0);
            option[1] = len as u8;
            assert_eq!(
                MptcpOption::parse(&option, flags).is_some(),
                lengths.contains(&len),
                "length {len}"
            );
        }
    }

    /// Any option there can be, in a form that is right for some flags.
    pub(crate) fn any_option() -> impl Strategy<Value = MptcpOption> {
        prop_oneof![
            capable::tests::any_capable().prop_map(MptcpOption::Capable),
            join::tests::any_join().prop_map(MptcpOption::Join),
            dss::tests::any_dss().prop_map(MptcpOption::Dss),
            addr::tests::any_add().prop_map(MptcpOption::AddAddr),
            addr::tests::any_remove().prop_map(MptcpOption::RemoveAddr),
            any::<bool>().prop_map(|backup| MptcpOption::Prio(Prio { backup })),
            any::<u64>().prop_map(|dsn| MptcpOption::Fail(Fail {
                dsn: crate::dsn::Dsn::new(dsn)
            })),
            any::<[u8; 8]>().prop_map(|key| MptcpOption::FastClose(FastClose {
                key: crate::ids::Key(key)
            })),
            (any::<bool>(), any::<u8>()).prop_map(|(transient, reason)| MptcpOption::Reset(
                Reset {
                    transient,
                    reason: ResetReason::from_code(reason),
                }
            )),
            any::<u16>().prop_map(|name| MptcpOption::Private(Private::new(name))),
        ]
    }

    #[test]
    fn unassigned_subtypes_are_absent() {
        for number in 0x9..0xf {
            let option = [KIND, 4, number << 4, 0];
            assert_eq!(MptcpOption::parse(&option, Flags::ACK), None);
            assert_eq!(Subtype::from_number(number), None);
        }
        for number in (0..0x9).chain([0xf]) {
            assert_eq!(
                Subtype::from_number(number).map(Subtype::number),
                Some(number)
            );
        }
    }

    #[test]
    fn a_length_that_disagrees_with_the_slice_is_absent() {
        assert_eq!(MptcpOption::parse(&[], Flags::ACK), None);
        assert_eq!(MptcpOption::parse(&[KIND, 2], Flags::ACK), None);
        assert_eq!(MptcpOption::parse(&[KIND, 4, 0x50], Flags::ACK), None);
        assert_eq!(MptcpOption::parse(&[8, 3, 0x50], Flags::ACK), None);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(option in any_option()) {
            let bytes = bytes_of(&option);
            prop_assert!(bytes.len() <= 40);
            prop_assert_eq!(MptcpOption::parse(&bytes, flags_for(&option)), Some(option));
        }

        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..45), flags: u8, honest: bool) {
            if honest && bytes.len() >= 2 {
                bytes[0] = KIND;
                bytes[1] = bytes.len() as u8;
            }
            if let Some(option) = MptcpOption::parse(&bytes, Flags::from_bits(flags)) {
                prop_assert_eq!(option.wire_len(), bytes.len());
            }
        }
    }
}
