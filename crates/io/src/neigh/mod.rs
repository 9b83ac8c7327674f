//! Neighbour resolution on Ethernet: whose hardware address does the next hop have?
//!
//! Owns the cache, its ageing, the packets that wait for an answer, and the answers we give for addresses that are ours
//! alone. It is pure: time and frames come in, frames go out through [`Neighbours::pop_output`]. It must never touch a
//! socket, and it never lets a frame from the network create more than a bounded amount of state.
//!
//! IPv4 uses ARP (RFC 826, RFC 5227 for announcements), IPv6 neighbour discovery (RFC 4861, sections 4.3, 4.4, 7).

pub mod arp;
mod cache;
mod link;
pub mod nd;
mod speak;

pub use cache::{Counters, Lookup, Neighbours, Output};
pub use link::Link;

/// A 48-bit Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Everybody on the link.
    pub const BROADCAST: Mac = Mac([0xff; 6]);

    /// Neither broadcast nor multicast, nor all zero: fit to be somebody's own address.
    #[must_use]
    pub fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && self.0 != [0; 6]
    }
}

impl std::fmt::Display for Mac {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// The type of an Ethernet frame's contents (IEEE 802 numbers).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
}

/// Length of an Ethernet header without a VLAN tag, bytes.
pub const ETHERNET_LEN: usize = 14;

/// An Ethernet frame divided into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Whom it is for.
    pub dst: Mac,
    /// Who sent it.
    pub src: Mac,
    /// What is inside.
    pub kind: EtherType,
    /// The inside.
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Divides `bytes`; `None` if there is not even a header.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, payload) = bytes.split_first_chunk::<ETHERNET_LEN>()?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, k0, k1] = *header;
        Some(Frame {
            dst: Mac([d0, d1, d2, d3, d4, d5]),
            src: Mac([s0, s1, s2, s3, s4, s5]),
            kind: EtherType(u16::from_be_bytes([k0, k1])),
            payload,
        })
    }
}

/// Writes an Ethernet header.
pub fn write_ethernet(out: &mut [u8; ETHERNET_LEN], dst: Mac, src: Mac, kind: EtherType) {
    out[0..6].copy_from_slice(&dst.0);
    out[6..12].copy_from_slice(&src.0);
    out[12..14].copy_from_slice(&kind.0.to_be_bytes());
}

fn frame_with(dst: Mac, src: Mac, kind: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut header = [0; ETHERNET_LEN];
    write_ethernet(&mut header, dst, src, kind);
    let mut frame = Vec::with_capacity(ETHERNET_LEN + payload.len());
    frame.extend_from_slice(&header);
    frame.extend_from_slice(payload);
    frame
}
