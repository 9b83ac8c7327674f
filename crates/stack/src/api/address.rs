//! Which addresses the ends of a connection may have (RFC 9293 section 3.9.2.3: MUST-46, MUST-57, MUST-63; RFC 1122 section
//! 4.2.3.10).

use core::net::{IpAddr, SocketAddr};

use super::IfaceId;

/// The address that an application means: an IPv4-mapped IPv6 address *is* IPv4 (RFC 3493 section 3.7). Others keep their zone.
#[must_use]
pub fn meant(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) if v6.ip().to_ipv4_mapped().is_some() => {
            SocketAddr::new(addr.ip().to_canonical(), addr.port())
        }
        SocketAddr::V4(_) | SocketAddr::V6(_) => addr,
    }
}

/// The interface that the zone of an address names, where it has one (RFC 4007 section 6).
#[must_use]
pub fn zone_of(addr: SocketAddr) -> Option<IfaceId> {
    match addr {
        SocketAddr::V6(addr) if addr.scope_id() != 0 => Some(IfaceId(addr.scope_id())),
        SocketAddr::V6(_) | SocketAddr::V4(_) => None,
    }
}

/// Whether it can be the address of one host: not unspecified or of "this network" (RFC 1122 section 3.2.1.3), no group, no
/// broadcast, none that is reserved (RFC 6890), and none that stands for IPv4, which must not be on the wire (RFC 4038 section 4.2).
pub(crate) fn is_of_a_host(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => {
            let first = addr.octets()[0];
            // Multicast is 224/4; 240/4 is reserved, its last address the limited broadcast.
            first != 0 && first < 224
        }
        IpAddr::V6(addr) => {
            !addr.is_unspecified() && !addr.is_multicast() && addr.to_ipv4_mapped().is_none()
        }
    }
}

/// Whether it means something on one link only (RFC 4291 section 2.5.6, RFC 3927).
pub(crate) fn is_of_a_link(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(addr) => addr.is_link_local(),
        IpAddr::V6(addr) => addr.is_unicast_link_local(),
    }
}

/// Whether a packet from `remote` to `local` may come from a network: of a host, and of the host itself only to itself.
pub(crate) fn may_come_from(remote: IpAddr, local: IpAddr) -> bool {
    is_of_a_host(remote)
        && is_of_a_host(local)
        && (!remote.is_loopback() || local.is_loopback())
        && remote != local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("a literal")
    }

    #[test]
    fn addresses_that_no_host_has() {
        for text in [
            "0.0.0.0",
            "0.0.0.1",
            "224.0.0.1",
            "239.1.2.3",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "ff02::1",
            "::ffff:10.0.0.1",
        ] {
            assert!(!is_of_a_host(ip(text)), "{text}");
            assert!(!may_come_from(ip(text), ip("10.0.0.1")), "{text}");
        }
        for text in [
            "1.0.0.1",
            "10.0.0.255",
            "223.255.255.255",
            "127.0.0.1",
            "::1",
            "fe80::1",
        ] {
            assert!(is_of_a_host(ip(text)), "{text}");
        }
    }

    #[test]
    fn a_host_hears_itself_only_from_itself() {
        for (remote, local, may) in [
            ("127.0.0.1", "10.0.0.1", false),
            ("127.0.0.1", "127.0.0.2", true),
            ("::1", "fd00::1", false),
            ("10.0.0.1", "10.0.0.1", false),
            ("10.0.0.2", "10.0.0.1", true),
        ] {
            assert_eq!(
                may_come_from(ip(remote), ip(local)),
                may,
                "{remote} {local}"
            );
        }
    }

    #[test]
    fn a_mapped_address_is_the_one_that_it_stands_for() {
        let addr = |text: &str| text.parse::<SocketAddr>().expect("a literal");
        assert_eq!(meant(addr("[::ffff:10.0.0.1]:80")), addr("10.0.0.1:80"));
        assert_eq!(meant(addr("[fe80::1%3]:80")), addr("[fe80::1%3]:80"));
        assert_eq!(meant(addr("10.0.0.1:80")), addr("10.0.0.1:80"));
    }
}
