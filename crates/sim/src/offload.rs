//! The sending half of a network card: splits a burst into wire packets and completes checksums, as hardware does.
//!
//! With it the stack runs its offloading code path in the simulator, and the wire still sees ordinary packets.

use manypath_wire::checksum::Sum;

use crate::packet::{Packet, Pool};
use crate::view::{CWR, FIN, PSH, fix_ipv4_header, get_u32, pseudo_header, put_u16, put_u32};

/// What a host says about a packet that it hands to the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Payload bytes of each wire packet; zero: the packet goes as it is.
    pub gso_size: u16,
    /// Bytes of IP and TCP header together.
    pub header_len: u16,
    /// Bytes of the IP header.
    pub l4_offset: u16,
    /// An IPv6 packet.
    pub ipv6: bool,
    /// The TCP checksum field holds the folded sum of the pseudo-header; the card adds the rest.
    pub partial_checksum: bool,
}

impl Job {
    /// Whether the card has to split the packet.
    #[must_use]
    pub fn splits(&self, len: usize) -> bool {
        self.gso_size > 0 && len > usize::from(self.header_len) + usize::from(self.gso_size)
    }
}

/// Completes the checksum of a single packet.
pub fn complete(packet: &mut [u8], job: &Job) {
    if job.partial_checksum {
        let tcp = usize::from(job.l4_offset);
        // The field takes part in the sum: it already holds the pseudo-header.
        let check = Sum::of(&packet[tcp..]).finish();
        put_u16(packet, tcp + 16, check);
    }
}

/// Splits `burst` into wire packets, each with the burst's header: sequence numbers move on, FIN and PSH stay with
/// the last packet, CWR with the first (RFC 3168 section 6.1.2), IPv4 identifications count up.
pub fn split(burst: &[u8], job: &Job, pool: &mut Pool, mut each: impl FnMut(Box<Packet>)) {
    let (tcp, header) = (usize::from(job.l4_offset), usize::from(job.header_len));
    let payload = &burst[header..];
    let seq = get_u32(burst, tcp + 4);
    let pieces = payload.chunks(usize::from(job.gso_size.max(1)));
    let last = pieces.len().saturating_sub(1);
    for (index, piece) in pieces.enumerate() {
        let mut packet = pool.take();
        let bytes = packet.bytes_mut();
        bytes.extend_from_slice(&burst[..header]);
        bytes.extend_from_slice(piece);
        let offset = (index * usize::from(job.gso_size)) as u32;
        put_u32(bytes, tcp + 4, seq.wrapping_add(offset));
        if index != last {
            bytes[tcp + 13] &= !(FIN | PSH);
        }
        if index != 0 {
            bytes[tcp + 13] &= !CWR;
        }
        let len = bytes.len();
        if job.ipv6 {
            put_u16(bytes, 4, (len - tcp) as u16);
        } else {
            put_u16(bytes, 2, len as u16);
            let id = u16::from_be_bytes([burst[4], burst[5]]).wrapping_add(index as u16);
            put_u16(bytes, 4, id);
            fix_ipv4_header(bytes, tcp);
        }
        // The pseudo-header's length differs from piece to piece, so it is summed anew.
        bytes[tcp + 16..tcp + 18].fill(0);
        let mut sum = pseudo_header(bytes, (len - tcp) as u32);
        sum.append(Sum::of(&bytes[tcp..]));
        put_u16(bytes, tcp + 16, sum.finish());
        each(packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::{checksums_hold, packet};
    use crate::view::{ACK, TcpView};

    fn job(bytes: &[u8], gso_size: u16) -> Job {
        let view = TcpView::of(bytes).unwrap();
        Job {
            gso_size,
            header_len: view.payload as u16,
            l4_offset: view.tcp as u16,
            ipv6: view.ipv6,
            partial_checksum: true,
        }
    }

    fn with_partial_checksum(mut bytes: Vec<u8>) -> Vec<u8> {
        let view = TcpView::of(&bytes).unwrap();
        let sum = pseudo_header(&bytes, (view.end - view.tcp) as u32).fold();
        put_u16(&mut bytes, view.tcp + 16, sum);
        bytes
    }

    #[test]
    fn a_burst_becomes_ordinary_packets() {
        let payload: Vec<u8> = (0..=255).cycle().take(2500).collect();
        for ipv6 in [false, true] {
            let flags = ACK | PSH | FIN | CWR;
            let burst =
                with_partial_checksum(packet(ipv6, flags, u32::MAX - 500, &[1; 12], &payload));
            let (job, mut pool, mut joined) = (job(&burst, 1000), Pool::default(), Vec::new());
            assert!(job.splits(burst.len()));
            let mut shapes = Vec::new();
            split(&burst, &job, &mut pool, |packet| {
                let bytes = packet.bytes();
                assert!(checksums_hold(bytes));
                let view = TcpView::of(bytes).unwrap();
                assert_eq!(view.end, bytes.len());
                shapes.push((view.seq(bytes), view.payload_len(), view.flags));
                joined.extend_from_slice(&bytes[view.payload..]);
            });
            assert_eq!(joined, payload);
            let start = u32::MAX - 500;
            assert_eq!(
                shapes,
                [
                    (start, 1000, ACK | CWR),
                    (start.wrapping_add(1000), 1000, ACK),
                    (start.wrapping_add(2000), 500, ACK | PSH | FIN),
                ]
            );
        }
    }

    #[test]
    fn a_single_packet_gets_its_checksum() {
        for ipv6 in [false, true] {
            let whole = packet(ipv6, ACK, 9, &[], b"odd");
            let mut bytes = with_partial_checksum(whole.clone());
            let job = job(&bytes, 1000);
            assert!(!job.splits(bytes.len()));
            assert!(!checksums_hold(&bytes));
            complete(&mut bytes, &job);
            assert_eq!(bytes, whole);
        }
    }
}
