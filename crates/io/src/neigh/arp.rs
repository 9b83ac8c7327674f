//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826): one value, parse and emit.

use super::{EtherType, Mac, frame_with};
use std::net::Ipv4Addr;

/// Ethernet hardware, IPv4 protocol, 6- and 4-byte addresses.
const PREFIX: [u8; 6] = [0, 1, 8, 0, 6, 4];
const LEN: usize = 28;

/// What an ARP packet asks or says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// I have the sender address.
    Reply,
}

/// An ARP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arp {
    /// Question or answer.
    pub operation: Operation,
    /// The sender's hardware address.
    pub sender_mac: Mac,
    /// The sender's IPv4 address; unspecified in a probe (RFC 5227, section 1.1).
    pub sender: Ipv4Addr,
    /// The target's hardware address; meaningless in a request.
    pub target_mac: Mac,
    /// The target's IPv4 address.
    pub target: Ipv4Addr,
}

impl Arp {
    /// Reads the payload of an ARP frame (which Ethernet may have padded). `None` unless it is a well-formed
    /// Ethernet/IPv4 request or reply from a unicast sender.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = payload.first_chunk()?;
        if bytes[..6] != PREFIX {
            return None;
        }
        let operation = match u16::from_be_bytes([bytes[6], bytes[7]]) {
            1 => Operation::Request,
            2 => Operation::Reply,
            _ => return None,
        };
        let mac = |at: usize| {
            let mut octets = [0; 6];
            octets.copy_from_slice(&bytes[at..at + 6]);
            Mac(octets)
        };
        let ip = |at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        let arp = Arp {
            operation,
            sender_mac: mac(8),
            sender: ip(14),
            target_mac: mac(18),
            target: ip(24),
        };
        arp.sender_mac.is_unicast().then_some(arp)
    }

    /// The whole Ethernet frame, addressed to `dst`.
    #[must_use]
    pub fn to_frame(&self, dst: Mac) -> Vec<u8> {
        let mut payload = [0; LEN];
        payload[..6].copy_from_slice(&PREFIX);
        payload[7] = match self.operation {
            Operation::Request => 1,
            Operation::Reply => 2,
        };
        payload[8..14].copy_from_slice(&self.sender_mac.0);
        payload[14..18].copy_from_slice(&self.sender.octets());
        payload[18..24].copy_from_slice(&self.target_mac.0);
        payload[24..28].copy_from_slice(&self.target.octets());
        frame_with(dst, self.sender_mac, EtherType::ARP, &payload)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    fn example() -> Arp {
        Arp {
            operation: Operation::Request,
            sender_mac: Mac([2, 0, 0, 0, 0, 1]),
            sender: Ipv4Addr::new(10, 0, 0, 1),
            target_mac: Mac([0; 6]),
            target: Ipv4Addr::new(10, 0, 0, 2),
        }
    }

    #[test]
    fn golden_request() {
        let frame = example().to_frame(Mac::BROADCAST);
        let expected = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2,
            0, 0, 0, 0, 1, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0, 2,
        ];
        assert_eq!(frame, expected);
    }

    #[test]
    fn round_trip_and_padding() {
        let mut frame = example().to_frame(Mac::BROADCAST);
        frame.resize(60, 0);
        let parsed = Frame::parse(&frame).expect("a full header");
        assert_eq!(parsed.kind, EtherType::ARP);
        assert_eq!(Arp::parse(parsed.payload), Some(example()));
    }

    #[test]
    fn refuses_what_is_not_arp_for_ethernet_and_ipv4() {
        let good = example().to_frame(Mac::BROADCAST)[14..].to_vec();
        assert!(Arp::parse(&good[..27]).is_none());
        for (at, value) in [(1, 6), (2, 9), (4, 8), (5, 16), (7, 3), (8, 0xff)] {
            let mut bad = good.clone();
            bad[at] = value;
            assert!(Arp::parse(&bad).is_none(), "byte {at}");
        }
    }
}
