//! Neighbour solicitations and advertisements (RFC 4861, sections 4.3 and 4.4): values, parse and emit.

use super::{EtherType, Mac, frame_with};
use std::net::Ipv6Addr;

const IPV6_LEN: usize = 40;
const NEXT_ICMPV6: u8 = 58;
const TYPE_SOLICIT: u8 = 135;
const TYPE_ADVERT: u8 = 136;
const OPTION_SOURCE: u8 = 1;
const OPTION_TARGET: u8 = 2;
const FLAG_SOLICITED: u8 = 0x40;
const FLAG_OVERRIDE: u8 = 0x20;
/// Proof that no router forwarded the packet (RFC 4861, section 3.1).
const HOP_LIMIT: u8 = 255;

/// A neighbour discovery message about `target`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// Who has `target`?
    Solicit {
        /// The asker's hardware address, if it gave one.
        source_mac: Option<Mac>,
    },
    /// `target` is here.
    Advert {
        /// The hardware address of the target, if given.
        target_mac: Option<Mac>,
        /// It answers a question.
        solicited: bool,
        /// It replaces what the cache says.
        overrides: bool,
    },
}

/// A neighbour discovery packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Discovery {
    /// IPv6 source; unspecified while the sender checks for duplicates (RFC 4862).
    pub src: Ipv6Addr,
    /// IPv6 destination.
    pub dst: Ipv6Addr,
    /// The address in question.
    pub target: Ipv6Addr,
    /// Question or answer.
    pub message: Message,
}

/// The group to which questions about `addr` are sent (RFC 4291, section 2.7.1).
#[must_use]
pub fn solicited_node(addr: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = addr.octets();
    Ipv6Addr::new(
        0xff02,
        0,
        0,
        0,
        0,
        1,
        0xff00 | u16::from(a),
        u16::from_be_bytes([b, c]),
    )
}

/// The Ethernet group of an IPv6 multicast address (RFC 2464, section 7).
#[must_use]
pub fn multicast_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

/// Is this IPv6 packet a neighbour solicitation or advertisement? A cheap look at the headers only.
#[must_use]
pub fn is_discovery(packet: &[u8]) -> bool {
    packet.len() > IPV6_LEN
        && packet[6] == NEXT_ICMPV6
        && matches!(packet[IPV6_LEN], TYPE_SOLICIT | TYPE_ADVERT)
}

fn sum_words(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0)))
        .sum()
}

/// The ICMPv6 checksum over pseudo-header and message (RFC 4443, section 2.3).
fn checksum(src: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> u16 {
    let len = message.len() as u32;
    let mut sum = sum_words(&src.octets())
        + sum_words(&dst.octets())
        + len
        + u32::from(NEXT_ICMPV6)
        + sum_words(message);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

impl Discovery {
    /// Reads an IPv6 packet and applies the validity checks of RFC 4861, sections 7.1.1 and 7.1.2; `None` if it is anything
    /// else or fails one.
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<Self> {
        let (header, rest) = packet.split_first_chunk::<IPV6_LEN>()?;
        let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let icmp = rest.get(..len)?;
        let addr = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let (src, dst) = (addr(8), addr(24));
        let (fixed, mut options) = icmp.split_first_chunk::<24>()?;
        let shape = header[0] >> 4 == 6 && header[6] == NEXT_ICMPV6 && header[7] == HOP_LIMIT;
        if !shape || fixed[1] != 0 || checksum(src, dst, icmp) != 0 {
            return None;
        }
        let mut target = [0; 16];
        target.copy_from_slice(&fixed[8..24]);
        let target = Ipv6Addr::from(target);
        let mut source_mac = None;
        let mut target_mac = None;
        while !options.is_empty() {
            let size = usize::from(*options.get(1)?) * 8;
            if size == 0 {
                return None;
            }
            let option = options.get(..size)?;
            let mut octets = [0; 6];
            octets.copy_from_slice(&option[2..8]);
            let mac = Some(Mac(octets)).filter(|m| m.is_unicast());
            match option[0] {
                OPTION_SOURCE if size == 8 => source_mac = mac,
                OPTION_TARGET if size == 8 => target_mac = mac,
                _ => {}
            }
            options = &options[size..];
        }
        if target.is_multicast() {
            return None;
        }
        let message = match fixed[0] {
            TYPE_SOLICIT if src.is_unspecified() => {
                if source_mac.is_some() || dst != solicited_node(target) {
                    return None;
                }
                Message::Solicit { source_mac: None }
            }
            TYPE_SOLICIT => Message::Solicit { source_mac },
            TYPE_ADVERT => {
                let solicited = fixed[4] & FLAG_SOLICITED != 0;
                if solicited && dst.is_multicast() {
                    return None;
                }
                Message::Advert {
                    target_mac,
                    solicited,
                    overrides: fixed[4] & FLAG_OVERRIDE != 0,
                }
            }
            _ => return None,
        };
        Some(Discovery {
            src,
            dst,
            target,
            message,
        })
    }

    /// The whole Ethernet frame from `src_mac` to `dst_mac`.
    #[must_use]
    pub fn to_frame(&self, src_mac: Mac, dst_mac: Mac) -> Vec<u8> {
        let mut icmp = [0u8; 32];
        icmp[8..24].copy_from_slice(&self.target.octets());
        let (kind, option, mac) = match self.message {
            Message::Solicit { source_mac } => (TYPE_SOLICIT, OPTION_SOURCE, source_mac),
            Message::Advert {
                target_mac,
                solicited,
                overrides,
            } => {
                icmp[4] = if solicited { FLAG_SOLICITED } else { 0 }
                    | if overrides { FLAG_OVERRIDE } else { 0 };
                (TYPE_ADVERT, OPTION_TARGET, target_mac)
            }
        };
        icmp[0] = kind;
        let len = match mac {
            Some(mac) => {
                icmp[24] = option;
                icmp[25] = 1;
                icmp[26..32].copy_from_slice(&mac.0);
                32
            }
            None => 24,
        };
        let sum = checksum(self.src, self.dst, &icmp[..len]);
        icmp[2..4].copy_from_slice(&sum.to_be_bytes());
        let mut packet = [0u8; IPV6_LEN + 32];
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        packet[6] = NEXT_ICMPV6;
        packet[7] = HOP_LIMIT;
        packet[8..24].copy_from_slice(&self.src.octets());
        packet[24..40].copy_from_slice(&self.dst.octets());
        packet[IPV6_LEN..IPV6_LEN + len].copy_from_slice(&icmp[..len]);
        frame_with(dst_mac, src_mac, EtherType::IPV6, &packet[..IPV6_LEN + len])
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn solicit() -> Discovery {
        let target: Ipv6Addr = "fd00::12:3456".parse().expect("a literal address");
        Discovery {
            src: "fd00::1".parse().expect("a literal address"),
            dst: solicited_node(target),
            target,
            message: Message::Solicit {
                source_mac: Some(MAC),
            },
        }
    }

    fn packet(d: &Discovery) -> Vec<u8> {
        let frame = d.to_frame(MAC, multicast_mac(d.dst));
        Frame::parse(&frame)
            .expect("a full header")
            .payload
            .to_vec()
    }

    #[test]
    fn groups() {
        let d = solicit();
        assert_eq!(
            d.dst,
            "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("a literal")
        );
        assert_eq!(
            multicast_mac(d.dst),
            Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56])
        );
    }

    #[test]
    fn round_trips() {
        let mut d = solicit();
        assert_eq!(Discovery::parse(&packet(&d)), Some(d));
        assert!(is_discovery(&packet(&d)));
        d.dst = "fd00::1".parse().expect("a literal");
        d.message = Message::Advert {
            target_mac: Some(MAC),
            solicited: true,
            overrides: true,
        };
        assert_eq!(Discovery::parse(&packet(&d)), Some(d));
        d.message = Message::Advert {
            target_mac: None,
            solicited: false,
            overrides: false,
        };
        assert_eq!(Discovery::parse(&packet(&d)), Some(d));
    }

    #[test]
    fn every_corrupted_byte_is_noticed_or_harmless() {
        let good = packet(&solicit());
        for at in [6, 7, 40, 41, 42, 50, 60, 70] {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(Discovery::parse(&bad).is_none(), "byte {at}");
        }
        for cut in 0..good.len() {
            assert!(Discovery::parse(&good[..cut]).is_none(), "cut at {cut}");
        }
    }

    #[test]
    fn duplicate_check_must_not_carry_a_source() {
        let mut d = solicit();
        d.src = Ipv6Addr::UNSPECIFIED;
        assert!(Discovery::parse(&packet(&d)).is_none());
        d.message = Message::Solicit { source_mac: None };
        assert_eq!(Discovery::parse(&packet(&d)), Some(d));
    }
}
