//! Which way the kernel would send a packet (`ip route get`): routes of every table, as rules choose them by the source.

use manypath_host::netlink::ask;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The way to a destination by one interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// The router; `None` where the destination is on the link, or the link has one end only.
    pub gateway: Option<IpAddr>,
}

/// Destinations that stand for the rest of the network: one in each half, as some split the default route in two, and none that anybody
/// has a route of its own for.
const FAR_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(45, 0, 0, 1), Ipv4Addr::new(193, 0, 0, 1)];
const FAR_V6: [Ipv6Addr; 2] = [
    Ipv6Addr::new(0x2600, 0, 0, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0x2a00, 0, 0, 0, 0, 0, 0, 1),
];

/// Asks the kernel how it would send a packet from `src` to `dst` by the interface `index`. `None` if it has no route there. A source
/// that the host does not have is left out of the question.
///
/// # Errors
/// Those of the netlink socket.
pub fn way_to(dst: IpAddr, src: Option<IpAddr>, index: u32) -> io::Result<Option<Way>> {
    match ask(Message::GetRoute(question(dst, src, Some(index)))) {
        Ok(Message::NewRoute(route)) => Ok(read(&route, index)),
        Ok(_) => Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) && src.is_some() => {
            way_to(dst, None, index)
        }
        Err(e) if is_no_route(&e) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Nothing leads there, or what does is of a kind that refuses (EACCES, EINVAL).
fn is_no_route(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL)
    )
}

/// Whether what goes to an address from the host itself stays inside its kernel: it is one of the host's own.
///
/// # Errors
/// Those of the netlink socket.
pub fn is_of_host(dst: IpAddr) -> io::Result<bool> {
    match ask(Message::GetRoute(question(dst, None, None))) {
        Ok(Message::NewRoute(route)) => Ok(route.header.kind == RouteType::Local),
        Ok(_) => Ok(false),
        Err(e) if is_no_route(&e) => Ok(false),
        Err(e) => Err(e),
    }
}

/// The way from an address of ours to other networks.
///
/// # Errors
/// Those of the netlink socket.
pub(super) fn way_out(src: IpAddr, index: u32) -> io::Result<Option<Way>> {
    let far: Vec<IpAddr> = match src {
        IpAddr::V4(_) => FAR_V4.map(IpAddr::V4).to_vec(),
        IpAddr::V6(_) => FAR_V6.map(IpAddr::V6).to_vec(),
    };
    for dst in far {
        if let Some(way) = way_to(dst, Some(src), index)? {
            return Ok(Some(way));
        }
    }
    Ok(None)
}

fn question(dst: IpAddr, src: Option<IpAddr>, index: Option<u32>) -> RouteMessage {
    let address = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => RouteAddress::Inet(addr),
        IpAddr::V6(addr) => RouteAddress::Inet6(addr),
    };
    let (family, bits) = match dst {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    let mut route = RouteMessage::default();
    route.header.address_family = family;
    route.header.destination_prefix_length = bits;
    // The route that matches and not a copy for this destination: where none does, the kernel would take any destination to be on
    // the link of an interface that was asked for.
    route.header.flags = RouteFlags::FibMatch;
    route
        .attributes
        .push(RouteAttribute::Destination(address(dst)));
    if let Some(src) = src {
        route.header.source_prefix_length = bits;
        route.attributes.push(RouteAttribute::Source(address(src)));
    }
    route.attributes.extend(index.map(RouteAttribute::Oif));
    route
}

/// What an answer says of the interface.
fn read(route: &RouteMessage, index: u32) -> Option<Way> {
    if route.header.kind != RouteType::Unicast {
        return None;
    }
    let ip = |address: &RouteAddress| match address {
        RouteAddress::Inet(addr) => Some(IpAddr::V4(*addr)),
        RouteAddress::Inet6(addr) => Some(IpAddr::V6(*addr)),
        _ => None,
    };
    let gateway = |attributes: &[RouteAttribute]| {
        attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(addr) => ip(addr),
            _ => None,
        })
    };
    let own = route
        .attributes
        .iter()
        .any(|a| matches!(a, RouteAttribute::Oif(i) if *i == index));
    if own {
        let gateway = gateway(&route.attributes);
        return Some(Way { gateway });
    }
    let hops = route
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            RouteAttribute::MultiPath(hops) => Some(hops),
            _ => None,
        })?;
    let hop = hops.iter().find(|hop| hop.interface_index == index)?;
    let gateway = gateway(&hop.attributes);
    Some(Way { gateway })
}
