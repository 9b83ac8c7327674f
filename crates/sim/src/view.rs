//! Offsets into the bytes of a TCP/IP packet, for the parts of a network that change packets in flight. It reads as
//! much as a forwarding device would and believes what the headers say; the oracles use the stack's own parser.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use manypath_wire::checksum::{Sum, pseudo_v4, pseudo_v6};

/// IP protocol number of TCP.
pub const TCP: u8 = 6;
/// TCP flag bits (RFC 9293 section 3.1).
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const SYN: u8 = 0x02;
/// See [`FIN`].
pub const RST: u8 = 0x04;
/// See [`FIN`].
pub const PSH: u8 = 0x08;
/// See [`FIN`].
pub const ACK: u8 = 0x10;
/// Congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// Where the parts of a TCP packet lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpView {
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
    /// Offset of the TCP header: the length of the IP header.
    pub tcp: usize,
    /// Offset of the payload.
    pub payload: usize,
    /// Offset of the packet's end.
    pub end: usize,
    /// The TCP flags.
    pub flags: u8,
}

impl TcpView {
    /// Finds the parts of an unfragmented TCP packet without IPv6 extension headers.
    #[must_use]
    pub fn of(packet: &[u8]) -> Option<Self> {
        let (ipv6, tcp, end, protocol) = match packet.first()? >> 4 {
            4 => {
                let header = usize::from(packet[0] & 0x0f) * 4;
                let end = usize::from(u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]));
                let fragment = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff;
                if fragment != 0 || header < 20 {
                    return None;
                }
                (false, header, end, *packet.get(9)?)
            }
            6 => {
                let length = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
                (true, 40, 40 + length, *packet.get(6)?)
            }
            _ => return None,
        };
        if protocol != TCP || end > packet.len() {
            return None;
        }
        let payload = tcp + usize::from(*packet.get(tcp + 12)? >> 4) * 4;
        let flags = *packet.get(tcp + 13)?;
        (payload <= end && payload >= tcp + 20).then_some(Self {
            ipv6,
            tcp,
            payload,
            end,
            flags,
        })
    }

    /// Bytes of payload.
    #[must_use]
    pub const fn payload_len(&self) -> usize {
        self.end - self.payload
    }

    /// The sequence number.
    #[must_use]
    pub fn seq(&self, packet: &[u8]) -> u32 {
        get_u32(packet, self.tcp + 4)
    }

    /// The acknowledgement number, if the packet has one.
    #[must_use]
    pub fn ack(&self, packet: &[u8]) -> Option<u32> {
        (self.flags & ACK != 0).then(|| get_u32(packet, self.tcp + 8))
    }

    /// The window field, unscaled.
    #[must_use]
    pub fn window(&self, packet: &[u8]) -> u16 {
        get_u16(packet, self.tcp + 14)
    }

    /// Sequence numbers that the packet takes: its payload, SYN and FIN.
    #[must_use]
    pub const fn sequence_len(&self) -> u32 {
        self.payload_len() as u32 + (self.flags & SYN != 0) as u32 + (self.flags & FIN != 0) as u32
    }

    /// Source and destination port.
    #[must_use]
    pub fn ports(&self, packet: &[u8]) -> (u16, u16) {
        (get_u16(packet, self.tcp), get_u16(packet, self.tcp + 2))
    }

    /// The options in the TCP header as (kind, range in the packet), padding left out. A malformed list ends early.
    pub fn options<'p>(
        &self,
        packet: &'p [u8],
    ) -> impl Iterator<Item = (u8, core::ops::Range<usize>)> + 'p {
        let (mut at, end) = (self.tcp + 20, self.payload);
        core::iter::from_fn(move || {
            loop {
                let kind = if at < end { packet[at] } else { 0 };
                match kind {
                    0 => return None,
                    1 => at += 1,
                    _ => {
                        let length = usize::from(*packet.get(at + 1)?);
                        if length < 2 || at + length > end {
                            return None;
                        }
                        let range = at..at + length;
                        at += length;
                        return Some((kind, range));
                    }
                }
            }
        })
    }

    /// Writes the TCP checksum (and the one of the IPv4 header) after a change.
    pub fn fix_checksums(&self, packet: &mut [u8]) {
        if !self.ipv6 {
            fix_ipv4_header(packet, self.tcp);
        }
        packet[self.tcp + 16..self.tcp + 18].fill(0);
        let mut sum = pseudo_header(packet, (self.end - self.tcp) as u32);
        sum.append(Sum::of(&packet[self.tcp..self.end]));
        let check = sum.finish();
        put_u16(packet, self.tcp + 16, check);
    }
}

/// Source and destination of an IP packet.
#[must_use]
pub fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let at = |from: usize| -> Option<IpAddr> {
                let bytes: [u8; 4] = packet.get(from..from + 4)?.try_into().ok()?;
                Some(IpAddr::V4(Ipv4Addr::from(bytes)))
            };
            Some((at(12)?, at(16)?))
        }
        6 => {
            let at = |from: usize| -> Option<IpAddr> {
                let bytes: [u8; 16] = packet.get(from..from + 16)?.try_into().ok()?;
                Some(IpAddr::V6(Ipv6Addr::from(bytes)))
            };
            Some((at(8)?, at(24)?))
        }
        _ => None,
    }
}

/// The sum of the pseudo-header of a TCP packet whose TCP part is `len` bytes long.
#[must_use]
pub fn pseudo_header(packet: &[u8], len: u32) -> Sum {
    match addresses(packet) {
        Some((IpAddr::V4(src), IpAddr::V4(dst))) => pseudo_v4(src, dst, TCP, len),
        Some((IpAddr::V6(src), IpAddr::V6(dst))) => pseudo_v6(src, dst, TCP, len),
        _ => Sum::ZERO,
    }
}

/// Writes the checksum of an IPv4 header of `header` bytes.
pub fn fix_ipv4_header(packet: &mut [u8], header: usize) {
    packet[10..12].fill(0);
    let check = Sum::of(&packet[..header]).finish();
    put_u16(packet, 10, check);
}

/// Marks a packet with "congestion experienced" if its sender understands that (RFC 3168). Says whether it did.
pub fn mark_ce(packet: &mut [u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) if packet.len() >= 20 && packet[1] & 3 != 0 => {
            packet[1] |= 3;
            let header = usize::from(packet[0] & 0x0f) * 4;
            if header <= packet.len() {
                fix_ipv4_header(packet, header);
            }
            true
        }
        // The traffic class straddles the first two bytes; its low two bits are bits 5 and 4 of the second.
        Some(6) if packet.len() >= 40 && packet[1] & 0x30 != 0 => {
            packet[1] |= 0x30;
            true
        }
        _ => false,
    }
}

/// A big-endian 16-bit value.
#[must_use]
pub fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// A big-endian 32-bit value.
#[must_use]
pub fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian 16-bit value.
pub fn put_u16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian 32-bit value.
pub fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A TCP packet between 10.0.0.1:1000 and 10.0.0.2:2000 or fd00::1 and fd00::2, checksums right. `options` must be
    /// a multiple of four long.
    pub(crate) fn packet(
        ipv6: bool,
        flags: u8,
        seq: u32,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<u8> {
        let tcp_len = 20 + options.len() + payload.len();
        let mut bytes = if ipv6 {
            let mut ip = vec![0x60, 0, 0, 0, 0, 0, TCP, 64];
            put_u16(&mut ip, 4, tcp_len as u16);
            for last in [1, 2] {
                ip.extend(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets());
            }
            ip
        } else {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, TCP, 0, 0];
            put_u16(&mut ip, 2, (20 + tcp_len) as u16);
            ip.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            ip
        };
        let at = bytes.len();
        bytes.resize(at + 20, 0);
        put_u16(&mut bytes, at, 1000);
        put_u16(&mut bytes, at + 2, 2000);
        put_u32(&mut bytes, at + 4, seq);
        bytes[at + 12] = (((20 + options.len()) / 4) << 4) as u8;
        bytes[at + 13] = flags;
        put_u16(&mut bytes, at + 14, 1000);
        bytes.extend(options);
        bytes.extend(payload);
        let view = TcpView::of(&bytes).expect("made well-formed above");
        view.fix_checksums(&mut bytes);
        bytes
    }

    /// The same packet with this acknowledgement number.
    pub(crate) fn acking(mut bytes: Vec<u8>, ack: u32) -> Vec<u8> {
        let view = TcpView::of(&bytes).expect("made well-formed above");
        bytes[view.tcp + 13] |= ACK;
        put_u32(&mut bytes, view.tcp + 8, ack);
        view.fix_checksums(&mut bytes);
        bytes
    }

    /// The same packet with source and destination exchanged.
    pub(crate) fn reversed(mut bytes: Vec<u8>) -> Vec<u8> {
        let view = TcpView::of(&bytes).expect("made well-formed above");
        let (at, len) = if view.ipv6 { (8, 16) } else { (12, 4) };
        for (from, len) in [(at, len), (view.tcp, 2)] {
            let (first, second) = bytes[from..].split_at_mut(len);
            first.swap_with_slice(&mut second[..len]);
        }
        view.fix_checksums(&mut bytes);
        bytes
    }

    /// Both checksums of a packet are right.
    pub(crate) fn checksums_hold(bytes: &[u8]) -> bool {
        let Some(view) = TcpView::of(bytes) else {
            return false;
        };
        let mut sum = pseudo_header(bytes, (view.end - view.tcp) as u32);
        sum.append(Sum::of(&bytes[view.tcp..view.end]));
        sum.is_valid() && (view.ipv6 || Sum::of(&bytes[..view.tcp]).is_valid())
    }

    #[test]
    fn the_parts_are_where_they_were_put() {
        for ipv6 in [false, true] {
            let bytes = packet(
                ipv6,
                ACK | PSH,
                77,
                &[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2],
                b"hello",
            );
            let view = TcpView::of(&bytes).unwrap();
            assert_eq!(
                (view.payload_len(), view.flags, view.seq(&bytes)),
                (5, ACK | PSH, 77)
            );
            assert_eq!(view.ports(&bytes), (1000, 2000));
            let options: Vec<_> = view
                .options(&bytes)
                .map(|(kind, range)| (kind, range.len()))
                .collect();
            assert_eq!(options, [(8, 10)]);
            assert!(checksums_hold(&bytes));
            let mut broken = bytes.clone();
            *broken.last_mut().unwrap() ^= 1;
            assert!(!checksums_hold(&broken));
        }
        assert_eq!(TcpView::of(&[]), None);
        assert_eq!(TcpView::of(&[0x45; 30]), None);
    }

    #[test]
    fn only_packets_that_say_so_are_marked() {
        for ipv6 in [false, true] {
            let mut bytes = packet(ipv6, ACK, 1, &[], b"x");
            assert!(!mark_ce(&mut bytes));
            bytes[1] |= if ipv6 { 0x20 } else { 2 };
            assert!(mark_ce(&mut bytes));
            assert_eq!(bytes[1] >> (if ipv6 { 4 } else { 0 }) & 3, 3);
            assert!(checksums_hold(&bytes));
        }
    }
}
