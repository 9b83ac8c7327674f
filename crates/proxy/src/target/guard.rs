//! Addresses that a client may not choose unless a rule allows it. Pure: the host's own addresses are handed in.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is special about an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Special {
    /// 127.0.0.0/8, ::1: services that trust whoever is on this host.
    Loopback,
    /// 0.0.0.0/8, ::, where connecting means this host.
    Unspecified,
    /// 169.254.0.0/16, fe80::/10: neighbours, and the metadata services of clouds.
    LinkLocal,
    /// 224.0.0.0/4, ff00::/8.
    Multicast,
    /// 255.255.255.255, and what is reserved (240.0.0.0/4).
    Reserved,
    /// An address of this host.
    Own,
}

impl Special {
    /// A word for logs and configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Unspecified => "unspecified",
            Self::LinkLocal => "link-local",
            Self::Multicast => "multicast",
            Self::Reserved => "reserved",
            Self::Own => "own",
        }
    }

    /// What is special about an address, an IPv4 address within IPv6 taken for what it is. `is_own` tells the host's addresses.
    #[must_use]
    pub fn of(addr: IpAddr, is_own: impl FnOnce(IpAddr) -> bool) -> Option<Self> {
        let addr = unwrapped(addr);
        let known = match addr {
            _ if METADATA.contains(&addr) => Some(Special::LinkLocal),
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        };
        known.or_else(|| is_own(addr).then_some(Self::Own))
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The IPv4 address to which an IPv6 address leads: of a mapped one (::ffff:0:0/96), a compatible one (::/96, but for :: and ::1),
/// of one that a translator or NAT64 makes IPv4 of (::ffff:0:0:0/96 of RFC 2765, 64:ff9b::/96 of RFC 6052, 64:ff9b:1::/48 of RFC
/// 8215 with the address at its end), and of the tunnels 6to4 (2002::/16, RFC 3056) and Teredo (2001::/32, RFC 4380: the
/// client's, inverted).
pub(crate) fn unwrapped(addr: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = addr else { return addr };
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let (high, low) = match [a, b, c, d, e, f] {
        [0, 0, 0, 0, 0, 0] if g != 0 || h > 1 => (g, h),
        [0, 0, 0, 0, 0, 0xffff]
        | [0, 0, 0, 0, 0xffff, 0]
        | [0x64, 0xff9b, 0, 0, 0, 0]
        | [0x64, 0xff9b, 1, ..] => (g, h),
        [0x2002, high, low, ..] => (high, low),
        [0x2001, 0, ..] => (!g, !h),
        _ => return addr,
    };
    let ([w, x], [y, z]) = (high.to_be_bytes(), low.to_be_bytes());
    Ipv4Addr::new(w, x, y, z).into()
}

/// Where clouds have their metadata services besides the link-local addresses: Alibaba, Azure, Amazon and Google.
const METADATA: [IpAddr; 4] = [
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)),
];

fn of_v4(addr: Ipv4Addr) -> Option<Special> {
    match addr.octets() {
        [127, ..] => Some(Special::Loopback),
        [0, ..] => Some(Special::Unspecified),
        [169, 254, ..] => Some(Special::LinkLocal),
        [224..=239, ..] => Some(Special::Multicast),
        [240..=255, ..] => Some(Special::Reserved),
        _ => None,
    }
}

fn of_v6(addr: Ipv6Addr) -> Option<Special> {
    if addr.is_loopback() {
        Some(Special::Loopback)
    } else if addr.is_unspecified() {
        Some(Special::Unspecified)
    } else if addr.is_unicast_link_local() {
        Some(Special::LinkLocal)
    } else if addr.is_multicast() {
        Some(Special::Multicast)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_addresses_of_both_families_and_disguises() {
        let own: IpAddr = "192.0.2.9".parse().expect("literal");
        for (text, wanted) in [
            ("127.0.0.1", Some(Special::Loopback)),
            ("127.9.9.9", Some(Special::Loopback)),
            ("::1", Some(Special::Loopback)),
            ("::ffff:127.0.0.1", Some(Special::Loopback)),
            ("::127.0.0.1", Some(Special::Loopback)),
            ("64:ff9b::7f00:1", Some(Special::Loopback)),
            ("0.0.0.0", Some(Special::Unspecified)),
            ("::", Some(Special::Unspecified)),
            ("::ffff:0.0.0.0", Some(Special::Unspecified)),
            ("169.254.169.254", Some(Special::LinkLocal)),
            ("fe80::1", Some(Special::LinkLocal)),
            ("224.0.0.1", Some(Special::Multicast)),
            ("ff02::1", Some(Special::Multicast)),
            ("255.255.255.255", Some(Special::Reserved)),
            ("192.0.2.9", Some(Special::Own)),
            ("::ffff:192.0.2.9", Some(Special::Own)),
            ("192.0.2.1", None),
            ("10.0.0.1", None),
            ("64:ff9b::c000:201", None),
            ("64:ff9b:1::7f00:1", Some(Special::Loopback)),
            ("64:ff9b:1:fffe::a9fe:a9fe", Some(Special::LinkLocal)),
            ("::ffff:0:127.0.0.1", Some(Special::Loopback)),
            ("2002:7f00:1::1", Some(Special::Loopback)),
            ("2002:c000:209::9", Some(Special::Own)),
            ("2002:c000:201::1", None),
            ("2001:0:c000:201::80ff:fffe", Some(Special::Loopback)),
            ("fd00:ec2::254", Some(Special::LinkLocal)),
            ("168.63.129.16", Some(Special::LinkLocal)),
            ("2001:db8::1", None),
        ] {
            let addr = text.parse().expect("literal");
            assert_eq!(Special::of(addr, |addr| addr == own), wanted, "{text}");
        }
    }
}
