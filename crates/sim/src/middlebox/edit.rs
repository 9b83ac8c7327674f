//! Changes that boxes make to TCP packets, each of which leaves every length and checksum right.

use core::net::{IpAddr, SocketAddr};
use core::ops::Range;

use manypath_wire::seq::SeqNum;

use crate::packet::{Packet, Pool};
use crate::view::{ACK, CWR, FIN, PSH, TCP, TcpView, addresses, get_u32, put_u16, put_u32};

/// Option kinds (IANA's "TCP Option Kind Numbers").
pub const NOP: u8 = 1;
/// Maximum segment size (RFC 9293).
pub const MSS: u8 = 2;
/// Window scale (RFC 7323).
pub const WINDOW_SCALE: u8 = 3;
/// SACK permitted (RFC 2018).
pub const SACK_PERMITTED: u8 = 4;
/// SACK blocks (RFC 2018).
pub const SACK: u8 = 5;
/// Timestamps (RFC 7323).
pub const TIMESTAMPS: u8 = 8;
/// Multipath TCP (RFC 8684).
pub const MPTCP: u8 = 30;
/// Largest number of option bytes in a TCP header.
pub const MOST_OPTIONS: usize = 40;

/// Subtype of a Multipath TCP option.
#[must_use]
pub fn subtype(packet: &[u8], option: &Range<usize>) -> u8 {
    packet.get(option.start + 2).map_or(0xff, |byte| byte >> 4)
}

/// Overwrites options with padding, so that nothing else moves. Checksums are the caller's.
pub fn pad_over(packet: &mut [u8], options: &[Range<usize>]) {
    for at in options {
        packet[at.clone()].fill(NOP);
    }
}

/// Takes options out, so that the header gets shorter.
pub fn cut_options(packet: &mut Vec<u8>, view: &TcpView, options: &[Range<usize>]) {
    let kept: Vec<u8> = (view.tcp + 20..view.payload)
        .filter(|at| !options.iter().any(|range| range.contains(at)))
        .map(|at| packet[at])
        .collect();
    let payload = packet[view.payload..view.end].to_vec();
    rebuild(packet, view, &kept, &payload);
}

/// Gives a packet other options and another payload. Options beyond 40 bytes do not fit and are left out; the payload
/// must fit into an IP packet.
pub fn rebuild(packet: &mut Vec<u8>, view: &TcpView, options: &[u8], payload: &[u8]) {
    let options = &options[..options.len().min(MOST_OPTIONS)];
    let area = options.len().next_multiple_of(4);
    let at = view.tcp + 20;
    packet.truncate(at);
    packet.extend(options);
    packet.resize(at + area, 0);
    packet.extend(payload);
    packet[view.tcp + 12] = (((20 + area) / 4) << 4) as u8 | (packet[view.tcp + 12] & 0x0f);
    finish_lengths(packet, view.tcp, view.ipv6);
}

/// Writes the IP length and the checksums of a packet that ends where its bytes end.
fn finish_lengths(packet: &mut [u8], tcp: usize, ipv6: bool) {
    if ipv6 {
        put_u16(packet, 4, (packet.len() - tcp) as u16);
    } else {
        put_u16(packet, 2, packet.len() as u16);
    }
    if let Some(view) = TcpView::of(packet) {
        view.fix_checksums(packet);
    }
}

/// Changes sequence, acknowledgement and SACK numbers; what a packet does not have stays away. Checksums are the
/// caller's.
pub fn renumber(
    packet: &mut [u8],
    view: &TcpView,
    seq: impl FnOnce(SeqNum) -> SeqNum,
    mut ack: impl FnMut(Number, SeqNum) -> SeqNum,
) {
    let new = seq(SeqNum::new(view.seq(packet)));
    put_u32(packet, view.tcp + 4, new.get());
    if let Some(old) = view.ack(packet) {
        let new = ack(Number::Ack, SeqNum::new(old));
        put_u32(packet, view.tcp + 8, new.get());
    }
    for (at, edge) in sack_edges(packet, view) {
        let new = ack(edge, SeqNum::new(get_u32(packet, at)));
        put_u32(packet, at, new.get());
    }
}

/// Which of the numbers that speak of received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The acknowledgement number.
    Ack,
    /// The first number of a SACK block.
    SackStart,
    /// The number after a SACK block.
    SackEnd,
}

/// Offsets of the edges of all SACK blocks.
fn sack_edges(packet: &[u8], view: &TcpView) -> Vec<(usize, Number)> {
    let mut edges = Vec::new();
    for (kind, at) in view.options(packet) {
        if kind == SACK {
            for block in (at.start + 2..at.end).step_by(8) {
                if block + 8 <= at.end {
                    edges.push((block, Number::SackStart));
                    edges.push((block + 4, Number::SackEnd));
                }
            }
        }
    }
    edges
}

/// Which end of a packet an address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// Who sent it.
    Source,
    /// Who shall get it.
    Destination,
}

/// Writes another address and port of the same family into an IP packet whose TCP header is at `tcp`. Checksums are the
/// caller's.
pub fn readdress(packet: &mut [u8], tcp: usize, party: Party, to: SocketAddr) {
    let (ip_v4, ip_v6, port) = match party {
        Party::Source => (12, 8, tcp),
        Party::Destination => (16, 24, tcp + 2),
    };
    match to.ip() {
        IpAddr::V4(ip) => packet[ip_v4..ip_v4 + 4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => packet[ip_v6..ip_v6 + 16].copy_from_slice(&ip.octets()),
    }
    put_u16(packet, port, to.port());
}

/// Sets the acknowledgement number.
pub fn set_ack(packet: &mut [u8], view: &TcpView, ack: SeqNum) {
    put_u32(packet, view.tcp + 8, ack.get());
    view.fix_checksums(packet);
}

/// Which pieces of a divided packet keep its Multipath TCP options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Keep {
    /// All, as segmentation offload does.
    #[default]
    Every,
    /// The first one.
    First,
    /// The last one.
    Last,
}

/// Divides a packet, whose payload shall be `payload`, into pieces of at most `size` bytes, in order, as segmentation
/// offload does: PSH and FIN stay with the last, CWR with the first. All other options are on every piece.
pub fn divide(
    pool: &mut Pool,
    packet: &Packet,
    view: &TcpView,
    payload: &[u8],
    size: usize,
    keep: Keep,
) -> Vec<Box<Packet>> {
    let bytes = packet.bytes();
    let (size, len) = (size.max(1), payload.len());
    let count = len.div_ceil(size).max(1);
    let piece = |index: usize| {
        let from = index * size;
        let to = (from + size).min(len);
        let (first, last) = (index == 0, index + 1 == count);
        let mut piece = pool.copy_of(&bytes[..view.payload]);
        piece.set_link_header(*packet.link_header());
        let out = piece.bytes_mut();
        out.extend(&payload[from..to]);
        put_u32(out, view.tcp + 4, view.seq(bytes).wrapping_add(from as u32));
        if !first {
            out[view.tcp + 13] &= !CWR;
        }
        if !last {
            out[view.tcp + 13] &= !(FIN | PSH);
        }
        let kept = match keep {
            Keep::Every => true,
            Keep::First => first,
            Keep::Last => last,
        };
        if !kept {
            let options = view.options(bytes).filter(|(kind, _)| *kind == MPTCP);
            let options: Vec<_> = options.map(|(_, at)| at).collect();
            pad_over(out, &options);
        }
        finish_lengths(out, view.tcp, view.ipv6);
        piece
    };
    (0..count).map(piece).collect()
}

/// The numbers of a packet without options and payload that a box makes itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bare {
    /// Flags.
    pub flags: u8,
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgement number, zero without the flag.
    pub ack: SeqNum,
    /// Window field.
    pub window: u16,
}

/// A packet of the box's own between the ends of `like`: in the same direction, or the other one if `reversed`.
/// Nothing, if `like` is no IP packet.
pub fn bare(
    pool: &mut Pool,
    like: &[u8],
    view: &TcpView,
    reversed: bool,
    numbers: Bare,
) -> Option<Box<Packet>> {
    let (source, destination) = addresses(like)?;
    let (from, to) = view.ports(like);
    let ends = if reversed {
        (destination, source, to, from)
    } else {
        (source, destination, from, to)
    };
    let mut packet = pool.take();
    let out = packet.bytes_mut();
    match (ends.0, ends.1) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            out.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, TCP, 0, 0]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            out.extend([0x60, 0, 0, 0, 0, 20, TCP, 64]);
            out.extend(source.octets());
            out.extend(destination.octets());
        }
        // One packet has addresses of one version.
        _ => return None,
    }
    let tcp = out.len();
    out.resize(tcp + 20, 0);
    put_u16(out, tcp, ends.2);
    put_u16(out, tcp + 2, ends.3);
    put_u32(out, tcp + 4, numbers.seq.get());
    if numbers.flags & ACK != 0 {
        put_u32(out, tcp + 8, numbers.ack.get());
    }
    out[tcp + 12] = 5 << 4;
    out[tcp + 13] = numbers.flags;
    put_u16(out, tcp + 14, numbers.window);
    finish_lengths(out, tcp, view.ipv6);
    Some(packet)
}
