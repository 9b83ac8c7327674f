//! Paths: the local addresses that the stack may use and what the device behind each can do.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use manypath_tcp::machine::SMALLEST_MSS;

/// The driver's number of an interface; the stack only quotes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub u32);

/// What a device takes off the stack's hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The device completes the TCP checksum from the pseudo-header sum.
    pub checksum: bool,
    /// Largest TCP payload, in bytes, that one transmission may carry, to be split by the device into
    /// segments that repeat its header. Zero: no segmentation offload.
    pub max_burst: u32,
}

/// One local address on one interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// Where packets with this source address leave.
    pub iface: IfaceId,
    /// The address.
    pub addr: IpAddr,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// To be used only when nothing better is left: here, and peers are asked to (RFC 8684 section 3.2, flag B).
    pub backup: bool,
    /// What the device does for us.
    pub offload: Offload,
    /// Local ports that may be used on it; `None` is the dynamic range 49152-65535.
    pub ports: Option<RangeInclusive<u16>>,
    /// What the host's address translation makes of the address: the one that peers see, and the only one that they are told.
    /// They reach it where a listener of ours is. `None`: the address itself.
    pub outside: Option<IpAddr>,
}

impl Path {
    /// Bytes of TCP options and payload that a packet has room for. An interface may carry less than the 576 bytes that every
    /// host takes in (RFC 791).
    pub(crate) fn mss(&self) -> u16 {
        let headers = if self.addr.is_ipv6() { 60 } else { 40 };
        self.mtu.saturating_sub(headers).max(SMALLEST_MSS)
    }
}

/// Something happened to a local address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathEvent {
    /// The address is usable. Repeating it updates MTU, backup flag and offload.
    Up(Path),
    /// The address or its interface is gone.
    Down {
        /// The interface it was on.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
}
