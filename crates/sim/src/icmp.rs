//! What a router says about a packet that it cannot forward: too big for the next link, or nowhere to go.

use core::net::IpAddr;

use manypath_wire::checksum::{Sum, pseudo_v6};

use crate::packet::Packet;
use crate::packet::Pool;
use crate::view::{addresses, fix_ipv4_header, put_u16, put_u32};

/// IP protocol numbers of ICMP and ICMPv6.
const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;
/// An ICMPv6 error must not be larger than this (RFC 4443 section 2.4); ICMPv4 errors stay below it, too.
const LARGEST: usize = 1280;
/// How much of the packet an ICMPv4 error quotes: RFC 1812 section 4.3.2.3 wants as much as fits in 576 bytes.
const QUOTE_V4: usize = 548;

/// Why a router refuses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// It is larger than the next link's MTU (RFC 1191, RFC 8201).
    TooBig {
        /// That MTU in bytes.
        mtu: u16,
    },
    /// No way leads to its destination (RFC 792, RFC 4443 section 3.1).
    NoRoute,
}

/// The message to the sender of `packet`. The router speaks with the packet's destination as its own address: routers
/// here have none, and no stack may draw conclusions from an ICMP message's source. Nobody complains of a complaint (RFC 1122
/// section 3.2.2, RFC 4443 section 2.4): two that did would never come to an end.
#[must_use]
pub fn message(packet: &[u8], complaint: Complaint, pool: &mut Pool) -> Option<Box<Packet>> {
    if is_complaint(packet) {
        return None;
    }
    match addresses(packet)? {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let quote = &packet[..packet.len().min(QUOTE_V4)];
            let mut reply = pool.take();
            let bytes = reply.bytes_mut();
            bytes.extend([0x45, 0, 0, 0, 0, 0, 0, 0, 64, ICMP, 0, 0]);
            bytes.extend(dst.octets());
            bytes.extend(src.octets());
            put_u16(bytes, 2, (28 + quote.len()) as u16);
            fix_ipv4_header(bytes, 20);
            let (code, mtu) = match complaint {
                Complaint::TooBig { mtu } => (4, mtu),
                Complaint::NoRoute => (0, 0),
            };
            bytes.extend([3, code, 0, 0, 0, 0]);
            bytes.extend(mtu.to_be_bytes());
            bytes.extend(quote);
            let check = Sum::of(&bytes[20..]).finish();
            put_u16(bytes, 22, check);
            Some(reply)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let quote = &packet[..packet.len().min(LARGEST - 48)];
            let mut reply = pool.take();
            let bytes = reply.bytes_mut();
            bytes.extend([0x60, 0, 0, 0, 0, 0, ICMP_V6, 64]);
            put_u16(bytes, 4, (8 + quote.len()) as u16);
            bytes.extend(dst.octets());
            bytes.extend(src.octets());
            let (kind, mtu) = match complaint {
                Complaint::TooBig { mtu } => (2, u32::from(mtu)),
                Complaint::NoRoute => (1, 0),
            };
            bytes.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            put_u32(bytes, 44, mtu);
            bytes.extend(quote);
            let mut sum = pseudo_v6(dst, src, ICMP_V6, (8 + quote.len()) as u32);
            sum.append(Sum::of(&bytes[40..]));
            put_u16(bytes, 42, sum.finish());
            Some(reply)
        }
        _ => None,
    }
}

/// An ICMP error: type 3 to 5, 11 or 12 (RFC 1122 section 3.2.2), or below 128 (RFC 4443 section 2.1).
fn is_complaint(packet: &[u8]) -> bool {
    let byte = |at: usize| packet.get(at).copied().unwrap_or_default();
    match byte(0) >> 4 {
        4 if byte(9) == ICMP => {
            let kind = byte(usize::from(byte(0) & 0x0f) * 4);
            matches!(kind, 3..=5 | 11 | 12)
        }
        6 if byte(6) == ICMP_V6 => byte(40) < 128,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::packet;
    use crate::view::{ACK, get_u16, get_u32};

    #[test]
    fn nobody_complains_of_a_complaint() {
        let mut pool = Pool::default();
        for ipv6 in [false, true] {
            let packet = packet(ipv6, ACK, 5, &[], b"data");
            for complaint in [Complaint::NoRoute, Complaint::TooBig { mtu: 1280 }] {
                let first = message(&packet, complaint, &mut pool).unwrap();
                assert!(message(first.bytes(), complaint, &mut pool).is_none());
            }
        }
    }

    #[test]
    fn a_complaint_quotes_the_packet_and_goes_back() {
        let mut pool = Pool::default();
        let big = packet(false, ACK, 5, &[], &[7; 1400]);
        let reply = message(&big, Complaint::TooBig { mtu: 1280 }, &mut pool).unwrap();
        let bytes = reply.bytes();
        assert_eq!(
            addresses(bytes).map(|(_, to)| to),
            addresses(&big).map(|(from, _)| from)
        );
        assert_eq!((bytes[20], bytes[21], get_u16(bytes, 26)), (3, 4, 1280));
        assert_eq!(bytes[28..], big[..QUOTE_V4]);
        assert!(Sum::of(&bytes[20..]).is_valid() && Sum::of(&bytes[..20]).is_valid());

        let big = packet(true, ACK, 5, &[], &[7; 1400]);
        let reply = message(&big, Complaint::TooBig { mtu: 1300 }, &mut pool).unwrap();
        let bytes = reply.bytes();
        assert_eq!((bytes[40], bytes[41], get_u32(bytes, 44)), (2, 0, 1300));
        assert_eq!(bytes.len(), LARGEST);
        assert_eq!(bytes[48..], big[..LARGEST - 48]);
        let Some((IpAddr::V6(src), IpAddr::V6(dst))) = addresses(bytes) else {
            panic!("an IPv6 packet was answered with something else");
        };
        let mut sum = pseudo_v6(src, dst, ICMP_V6, (bytes.len() - 40) as u32);
        sum.append(Sum::of(&bytes[40..]));
        assert!(sum.is_valid());
    }
}
