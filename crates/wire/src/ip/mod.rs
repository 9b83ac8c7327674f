//! IP headers: what the rest of the program wants to know of them, for both versions.

pub mod fragment;
pub mod icmp;
pub mod v4;
pub mod v6;

use core::net::{IpAddr, Ipv4Addr};

/// The congestion mark of a packet (RFC 3168 section 5), the low two bits of the traffic class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Ecn {
    /// The sender does not understand congestion marks.
    #[default]
    NotEct,
    /// The sender does.
    Ect0,
    /// The sender does, the other code point.
    Ect1,
    /// A router had to queue.
    Ce,
}

impl Ecn {
    /// The mark in a traffic class or type-of-service byte.
    #[must_use]
    pub const fn from_bits(traffic_class: u8) -> Self {
        match traffic_class & 0b11 {
            0b00 => Self::NotEct,
            0b10 => Self::Ect0,
            0b01 => Self::Ect1,
            _ => Self::Ce,
        }
    }

    /// The two bits.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::NotEct => 0b00,
            Self::Ect0 => 0b10,
            Self::Ect1 => 0b01,
            Self::Ce => 0b11,
        }
    }
}

/// What an IP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpMeta {
    /// Who sent it.
    pub src: IpAddr,
    /// Whom it is for.
    pub dst: IpAddr,
    /// The upper layer's protocol number, extension headers skipped.
    pub protocol: u8,
    /// Time to live or hop limit on arrival.
    pub ttl: u8,
    /// The congestion mark.
    pub ecn: Ecn,
    /// Bytes of the whole packet, this header included; padding of the link not.
    pub total_len: usize,
    /// Bytes before the upper layer: IP header with options or extension headers.
    pub header_len: usize,
}

impl IpMeta {
    /// Of no packet.
    pub(crate) const EMPTY: Self = Self {
        src: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        dst: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        protocol: 0,
        ttl: 0,
        ecn: Ecn::NotEct,
        total_len: 0,
        header_len: 0,
    };
}

/// Why a packet is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpError {
    /// Fewer bytes than the header says or needs.
    Truncated,
    /// Neither version 4 nor 6; the value found.
    Version(u8),
    /// A header length below 20 bytes, or a total length below the header length.
    Length,
    /// The IPv4 header checksum does not match.
    Checksum,
    /// One piece of a larger packet; [`fragment::read`] reads it.
    Fragment,
    /// An IPv6 extension header or an option in one that must be understood and is not, or more of them than are walked. What its
    /// sender is to be told, if anything.
    ExtensionHeader(Option<Problem>),
}

/// What an ICMPv6 Parameter Problem says (RFC 4443 section 3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The kind of problem.
    pub code: ProblemCode,
    /// Where it is, bytes from the beginning of the packet.
    pub pointer: u32,
}

/// The kinds of problems that are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemCode {
    /// A header field has a value that cannot be.
    Field,
    /// The next header is not known here.
    NextHeader,
    /// An option is not known here, and says that it must be.
    Option,
    /// The first fragment does not hold all headers (RFC 7112 section 5).
    FirstFragment,
}

impl ProblemCode {
    /// The code in the message.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Field => 0,
            Self::NextHeader => 1,
            Self::Option => 2,
            Self::FirstFragment => 3,
        }
    }
}

/// Whether a length of zero in the IP header means "as long as the frame". The kernel writes it where it has joined more segments
/// than the field can count (BIG TCP). On a wire no packet has it, so only the device itself can vouch for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Joined {
    /// A packet as it was on a wire.
    No,
    /// The device says that it has joined several segments.
    Yes,
}

/// Source and destination of a packet, whatever else of it is wrong.
#[must_use]
pub fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let meta = match packet.first()? >> 4 {
        4 => v4::fields(packet, Joined::Yes).ok()?.meta,
        6 => v6::fixed(packet)?,
        _ => return None,
    };
    Some((meta.src, meta.dst))
}

/// Splits an IP packet into what its header says and the upper layer's bytes. Bytes behind the packet's own length,
/// as Ethernet pads short frames, are not part of it.
pub fn parse(packet: &[u8]) -> Result<(IpMeta, &[u8]), IpError> {
    parse_as(packet, Joined::No)
}

/// The same for a packet that the device may have joined from several.
pub fn parse_as(packet: &[u8], joined: Joined) -> Result<(IpMeta, &[u8]), IpError> {
    let version = packet.first().ok_or(IpError::Truncated)? >> 4;
    let meta = match version {
        4 => v4::parse(packet, joined)?,
        6 => v6::parse(packet, joined)?,
        other => return Err(IpError::Version(other)),
    };
    let body = packet
        .get(meta.header_len..meta.total_len)
        .ok_or(IpError::Truncated)?;
    Ok((meta, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn marks_keep_their_bits() {
        for bits in 0..4 {
            assert_eq!(Ecn::from_bits(bits | 0xfc).bits(), bits);
        }
    }

    #[test]
    fn only_two_versions_are_known() {
        assert_eq!(parse(&[]), Err(IpError::Truncated));
        assert_eq!(parse(&[0x50; 40]), Err(IpError::Version(5)));
    }

    #[test]
    fn a_length_of_zero_is_believed_of_the_device_alone() {
        let len = 70_000;
        let mut v4 = [
            0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]
        .to_vec();
        let sum = crate::checksum::Sum::of(&v4).finish();
        v4[10..12].copy_from_slice(&sum.to_be_bytes());
        v4.resize(20 + len, 7);
        let mut v6 = [0x60, 0, 0, 0, 0, 0, 6, 64].to_vec();
        v6.extend([0xfd; 32]);
        v6.resize(40 + len, 7);
        // As older kernels write it: a hop-by-hop header with the Jumbo Payload option (RFC 2675).
        let mut jumbo = v6[..40].to_vec();
        jumbo[6] = 0;
        jumbo.extend([6, 0, 0xc2, 4]);
        jumbo.extend((8 + len as u32).to_be_bytes());
        jumbo.resize(48 + len, 7);
        for packet in [v4, v6, jumbo] {
            let parsed =
                parse_as(&packet, Joined::Yes).map(|(meta, body)| (meta.total_len, body.len()));
            assert_eq!(parsed, Ok((packet.len(), len)));
            assert!(!parse(&packet).is_ok_and(|(_, body)| !body.is_empty()));
        }
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), version in 0u8..3) {
            if let Some(first) = bytes.first_mut() {
                match version {
                    0 => *first = 0x40 | (*first & 0x0f),
                    1 => *first = 0x60 | (*first & 0x0f),
                    _ => {}
                }
            }
            for joined in [Joined::No, Joined::Yes] {
                if let Ok((meta, body)) = parse_as(&bytes, joined) {
                    prop_assert_eq!(meta.total_len, meta.header_len + body.len());
                    prop_assert!(meta.total_len <= bytes.len());
                    let _ = icmp::parse(&meta, body);
                }
            }
            if let Ok(piece) = fragment::read(&bytes) {
                prop_assert!(piece.head.len() + piece.payload.len() <= bytes.len());
            }
            let _ = v6::unknown_protocol(&bytes);
        }
    }
}
