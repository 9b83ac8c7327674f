//! ICMP errors and the TCP packets that they quote: a box that translates must translate there, too, or path MTU
//! discovery breaks behind it.

use core::net::{IpAddr, SocketAddr};

use manypath_wire::checksum::{Sum, pseudo_v6};

use super::edit::{Party, readdress};
use crate::view::{TCP, addresses, fix_ipv4_header, get_u16, put_u16};

const ICMP: u8 = 1;
const ICMP_V6: u8 = 58;

/// Where the parts of an ICMP error about a TCP packet lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quoted {
    /// Offset of the ICMP header.
    icmp: usize,
    /// Offset of the quoted IP packet.
    inner: usize,
    /// Offset of its TCP header, of which eight bytes at least are there.
    tcp: usize,
    /// The packet's end.
    end: usize,
    /// Who sent the packet that is quoted.
    pub(super) source: SocketAddr,
    /// To whom.
    pub(super) destination: SocketAddr,
}

impl Quoted {
    /// Finds the parts, if the packet is such an error.
    pub(super) fn of(packet: &[u8]) -> Option<Self> {
        let (icmp, protocol, end) = outer(packet)?;
        let kind = *packet.get(icmp)?;
        let is_error = match protocol {
            ICMP => matches!(kind, 3 | 11 | 12),
            ICMP_V6 => matches!(kind, 1..=4),
            _ => false,
        };
        let inner = icmp + 8;
        let quote = packet.get(inner..end).filter(|_| is_error)?;
        let (source, destination) = addresses(quote)?;
        let (header, protocol) = match source {
            IpAddr::V4(_) => (usize::from(quote[0] & 0x0f) * 4, quote[9]),
            IpAddr::V6(_) => (40, quote[6]),
        };
        if protocol != TCP || header < 20 || quote.len() < header + 8 {
            return None;
        }
        Some(Self {
            icmp,
            inner,
            tcp: inner + header,
            end,
            source: SocketAddr::new(source, get_u16(quote, header)),
            destination: SocketAddr::new(destination, get_u16(quote, header + 2)),
        })
    }

    /// Offset of the quoted sequence number.
    pub(super) const fn seq_at(&self) -> usize {
        self.tcp + 4
    }

    /// Writes who sent the quoted packet, and, as an error goes to whom it concerns, to whom the error goes.
    pub(super) fn set_source(&self, packet: &mut [u8], source: SocketAddr) {
        let (inner, tcp) = (self.inner, self.tcp - self.inner);
        readdress(&mut packet[inner..self.end], tcp, Party::Source, source);
        if source.is_ipv4() {
            fix_ipv4_header(&mut packet[inner..self.end], tcp);
        }
        let at = match source.ip() {
            IpAddr::V4(_) => 16,
            IpAddr::V6(_) => 24,
        };
        match source.ip() {
            IpAddr::V4(ip) => packet[at..at + 4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => packet[at..at + 16].copy_from_slice(&ip.octets()),
        }
        self.fix_checksums(packet);
    }

    /// Writes the checksums of the error itself after a change.
    pub(super) fn fix_checksums(&self, packet: &mut [u8]) {
        let body = self.icmp..self.end;
        put_u16(packet, self.icmp + 2, 0);
        let mut sum = match addresses(packet) {
            Some((IpAddr::V6(source), IpAddr::V6(destination))) => {
                pseudo_v6(source, destination, ICMP_V6, body.len() as u32)
            }
            _ => {
                fix_ipv4_header(packet, self.icmp);
                Sum::ZERO
            }
        };
        sum.append(Sum::of(&packet[body]));
        put_u16(packet, self.icmp + 2, sum.finish());
    }
}

/// Offset of what an unfragmented IP packet carries, its protocol, and the packet's end.
fn outer(packet: &[u8]) -> Option<(usize, u8, usize)> {
    let (at, protocol, end) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 0x0f) * 4;
            let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
            if fragment != 0 || header < 20 {
                return None;
            }
            let end = usize::from(get_u16(packet, 2));
            (header, *packet.get(9)?, end)
        }
        6 => {
            let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            (40, *packet.get(6)?, 40 + length)
        }
        _ => return None,
    };
    (at + 8 <= end && end <= packet.len()).then_some((at, protocol, end))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::icmp::{Complaint, message};
    use crate::packet::Pool;
    use crate::view::tests::packet;
    use crate::view::{ACK, get_u32};

    /// An error about `about`, as a router writes it.
    pub(in crate::middlebox) fn complaint(about: &[u8]) -> Vec<u8> {
        let mut pool = Pool::default();
        let reply = message(about, Complaint::TooBig { mtu: 1300 }, &mut pool);
        reply.expect("an IP packet").bytes().to_vec()
    }

    /// Its checksums are right.
    pub(in crate::middlebox) fn is_whole(error: &[u8]) -> bool {
        let quoted = Quoted::of(error).expect("an error about TCP");
        let mut again = error.to_vec();
        quoted.fix_checksums(&mut again);
        again == error
    }

    #[test]
    fn the_quote_is_found_and_changed_with_all_checksums() {
        for ipv6 in [false, true] {
            let error = complaint(&packet(ipv6, ACK, 77, &[], &[1; 1400]));
            assert!(is_whole(&error));
            let quoted = Quoted::of(&error).unwrap();
            assert_eq!(
                (quoted.source.port(), quoted.destination.port()),
                (1000, 2000)
            );
            assert_eq!(get_u32(&error, quoted.seq_at()), 77);
            let mut changed = error.clone();
            let other: IpAddr = if ipv6 { "fd00::9" } else { "10.0.0.9" }.parse().unwrap();
            let other = SocketAddr::new(other, 9);
            quoted.set_source(&mut changed, other);
            assert!(is_whole(&changed) && !is_whole_with(&changed, &error));
            assert_eq!(Quoted::of(&changed).unwrap().source, other);
            assert_eq!(addresses(&changed).unwrap().1, other.ip());
        }
    }

    fn is_whole_with(changed: &[u8], error: &[u8]) -> bool {
        changed == error
    }

    #[test]
    fn nothing_else_is_an_error_about_tcp() {
        assert_eq!(Quoted::of(&packet(false, ACK, 1, &[], b"x")), None);
        let error = complaint(&packet(true, ACK, 1, &[], b"x"));
        for end in 0..error.len() {
            assert_eq!(Quoted::of(&error[..end]), None);
        }
        let mut echo = complaint(&packet(false, ACK, 1, &[], b"x"));
        echo[20] = 0;
        assert_eq!(Quoted::of(&echo), None);
    }
}
