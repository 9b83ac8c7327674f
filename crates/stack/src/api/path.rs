//! Paths: the local addresses that the stack may use and what the device behind each can do.

use core::net::IpAddr;
use core::ops::RangeInclusive;

use manypath_tcp::machine::SMALLEST_MSS;

/// The driver's number of an interface; the stack only quotes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub u32);

/// A set of connections that share a limit: a number that the caller chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(pub u32);

/// Addresses that begin alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    addr: IpAddr,
    bits: u8,
}

impl Prefix {
    /// The addresses whose first `bits` are those of `addr`; more bits than it has are all of them.
    #[must_use]
    pub const fn new(addr: IpAddr, bits: u8) -> Self {
        Self { addr, bits }
    }

    /// One address.
    #[must_use]
    pub const fn host(addr: IpAddr) -> Self {
        Self::new(addr, u8::MAX)
    }

    /// Whether an address is one of them; IPv4 and IPv6 are never each other's.
    #[must_use]
    pub fn contains(&self, addr: IpAddr) -> bool {
        let (differ, width) = match (self.addr, addr) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits() ^ b.to_bits()) << 96, 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits(), 128),
            _ => return false,
        };
        let bits = u32::from(self.bits).min(width);
        bits == 0 || differ.leading_zeros() >= bits
    }
}

/// Packets between these addresses have the limit of a class besides their path's: by the addresses of a subflow a path is known where several have
/// one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Our addresses; all without it.
    pub local: Option<Prefix>,
    /// The peer's addresses; all without it.
    pub remote: Option<Prefix>,
    /// Whose limit it is.
    pub class: ClassId,
}

impl Route {
    /// Whether it is for packets from one address to another.
    #[must_use]
    pub fn leads(&self, local: IpAddr, remote: IpAddr) -> bool {
        let of = |prefix: Option<Prefix>, addr| prefix.is_none_or(|prefix| prefix.contains(addr));
        of(self.local, local) && of(self.remote, remote)
    }
}

/// What a device takes off the stack's hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The device completes the TCP checksum from the pseudo-header sum.
    pub checksum: bool,
    /// Largest TCP payload, in bytes, that one transmission may carry, to be split by the device into
    /// segments that repeat its header. Zero: no segmentation offload.
    pub max_burst: u32,
}

/// A limit of what leaves by a path, of a class or of a connection: never more than `rate x t + burst`, in bytes of IP packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// Bits a second. Zero: nothing but acknowledgements and other packets of at most 120 bytes.
    pub bits_per_sec: u64,
    /// Bytes that may leave at once after a pause. Larger packets leave when that much is there.
    pub burst: u64,
}

impl RateLimit {
    /// A limit with the usual burst: 20 ms, three packets of `mtu` bytes at least.
    #[must_use]
    pub fn new(bits_per_sec: u64, mtu: u16) -> Self {
        Self {
            bits_per_sec,
            burst: (bits_per_sec / 8 / 50).max(3 * u64::from(mtu)),
        }
    }
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
    /// The address is usable. Repeating it updates MTU, backup flag and offload. Subflows that waited for the link or the
    /// address go on at once.
    Up(Path),
    /// As [`Up`](Self::Up), but no subflow is opened from the address unless it is asked for by name: what is there goes on,
    /// and what peers open is accepted. For further addresses of a link that has one (RFC 8981) and for deprecated ones
    /// (RFC 4862 section 5.5.4).
    Passive(Path),
    /// The link has no carrier or is switched off, or there is no route from the address, which the host keeps. Subflows
    /// there are potentially failed at once; they end by their own time-outs, and peers are not told.
    Stalled {
        /// The interface it is on.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
    /// The address or its interface is gone. Peers are told by REMOVE_ADDR, and a subflow there ends where another one works
    /// (RFC 8684 section 3.4.2); the only one waits for the address to return.
    Down {
        /// The interface it was on.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_hold_the_addresses_that_begin_like_them() {
        for (prefix, bits, addr, holds) in [
            ("10.1.0.0", 16, "10.1.255.255", true),
            ("10.1.0.0", 16, "10.2.0.0", false),
            ("10.1.2.3", 31, "10.1.2.2", true),
            ("10.1.2.3", 32, "10.1.2.2", false),
            ("10.1.2.3", 255, "10.1.2.3", true),
            ("10.1.2.3", 0, "192.0.2.1", true),
            ("10.1.2.3", 0, "::", false),
            ("2001:db8::", 32, "2001:db8:ffff::1", true),
            ("2001:db8::", 33, "2001:db8:ffff::1", false),
            ("2001:db8::1", 128, "2001:db8::1", true),
            ("::ffff:10.0.0.1", 128, "10.0.0.1", false),
        ] {
            let of = |text: &str| text.parse::<IpAddr>().expect("an address");
            let prefix = Prefix::new(of(prefix), bits);
            assert_eq!(prefix.contains(of(addr)), holds, "{prefix:?} {addr}");
        }
    }
}
