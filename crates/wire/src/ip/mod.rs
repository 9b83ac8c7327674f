//! IP headers: what the rest of the program wants to know of them, for both versions.

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
    /// One piece of a larger packet. TCP never needs fragments, and this stack does not reassemble them.
    Fragment,
    /// An extension header that must be understood and is not (its number), or too many of them.
    ExtensionHeader(u8),
}

/// Splits an IP packet into what its header says and the upper layer's bytes. Bytes behind the packet's own length,
/// as Ethernet pads short frames, are not part of it.
pub fn parse(packet: &[u8]) -> Result<(IpMeta, &[u8]), IpError> {
    let version = packet.first().ok_or(IpError::Truncated)? >> 4;
    let meta = match version {
        4 => v4::parse(packet)?,
        6 => v6::parse(packet)?,
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
            if let Ok((meta, body)) = parse(&bytes) {
                prop_assert_eq!(meta.total_len, meta.header_len + body.len());
                prop_assert!(meta.total_len <= bytes.len());
                let _ = icmp::parse(&meta, body);
            }
        }
    }
}
