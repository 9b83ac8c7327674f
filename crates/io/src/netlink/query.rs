//! What the host has.

use super::route::{Way, way_out};
use crate::neigh::Mac;
use manypath_host::netlink::dump;
use netlink_packet_route::RouteNetlinkMessage as Message;
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType,
};
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interface {
    /// The kernel's number for it.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address, where it is an Ethernet.
    pub mac: Option<Mac>,
    /// Its link has no header and no hardware addresses: IP packets are all that it carries.
    pub bare: bool,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// It is switched on and its carrier is there.
    pub up: bool,
    /// It is the loopback.
    pub loopback: bool,
}

/// An address of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// The interface it is on.
    pub index: u32,
    /// The address.
    pub addr: IpAddr,
    /// Length of its on-link prefix, bits.
    pub prefix: u8,
    /// It can be used towards other networks.
    pub global: bool,
    /// It has passed duplicate detection.
    pub usable: bool,
    /// Its preferred lifetime is over: what uses it goes on, and nothing new begins from it (RFC 4862 section 5.5.4).
    pub deprecated: bool,
}

/// A default route.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultRoute {
    /// The interface it leaves by.
    pub index: u32,
    /// For IPv6; otherwise IPv4.
    pub ipv6: bool,
    /// The router; `None` on point-to-point links.
    pub gateway: Option<IpAddr>,
    /// The kernel prefers smaller ones.
    pub metric: u32,
}

/// A route of the main table to some networks by a router.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkRoute {
    /// The interface it leaves by.
    pub index: u32,
    /// The network.
    pub to: IpAddr,
    /// The length of its prefix, bits.
    pub prefix: u8,
    /// The kernel prefers smaller ones.
    pub metric: u32,
    /// The router.
    pub gateway: IpAddr,
}

/// The host's links, addresses and default routes at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// All addresses.
    pub addresses: Vec<Address>,
    /// Default routes of the main table, best first.
    pub defaults: Vec<DefaultRoute>,
    /// Other routes of the main table by routers, in the order of their interfaces and networks, best first.
    pub routes: Vec<NetworkRoute>,
    /// The ways of its addresses to other networks, by whatever table the rules choose for them.
    pub ways: Vec<(u32, IpAddr, Way)>,
}

/// Addresses whose ways are asked for at most.
const MOST_WAYS: usize = 64;
/// Routes to single networks that are looked at, about: a host that has more is a router.
const MOST_ROUTES: usize = 256;

/// The last address of a network, unless it is one of two hosts (RFC 3021) or of one.
fn broadcast_of(address: &Address) -> Option<Ipv4Addr> {
    let IpAddr::V4(addr) = address.addr else {
        return None;
    };
    let hosts = u32::MAX.checked_shr(address.prefix.into()).unwrap_or(0);
    (hosts > 1).then(|| Ipv4Addr::from(addr.to_bits() | hosts))
}

impl Snapshot {
    /// The broadcast addresses of the networks that the host is on (RFC 1122 section 3.3.6).
    #[must_use]
    pub fn broadcasts(&self) -> Vec<Ipv4Addr> {
        let mut all: Vec<_> = self.addresses.iter().filter_map(broadcast_of).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Asks the kernel.
    ///
    /// # Errors
    /// Those of the netlink socket.
    pub fn take() -> io::Result<Self> {
        let (mut defaults, mut routes) = (Vec::new(), Vec::new());
        for message in dump(Message::GetRoute(RouteMessage::default()))? {
            if let Message::NewRoute(route) = message {
                let hops = hops_of(&route);
                defaults.extend(defaults_of(&route, &hops));
                if routes.len() < MOST_ROUTES {
                    routes.extend(routes_of(&route, &hops));
                }
            }
        }
        defaults.sort_by_key(|d: &DefaultRoute| (d.metric, d.index));
        routes.sort_unstable();
        let mut host = Snapshot {
            interfaces: dump(Message::GetLink(LinkMessage::default()))?
                .into_iter()
                .filter_map(|m| match m {
                    Message::NewLink(link) => interface_of(&link),
                    _ => None,
                })
                .collect(),
            addresses: dump(Message::GetAddress(AddressMessage::default()))?
                .into_iter()
                .filter_map(|m| match m {
                    Message::NewAddress(address) => address_of(&address),
                    _ => None,
                })
                .collect(),
            defaults,
            routes,
            ways: Vec::new(),
        };
        host.ways = host.ask_ways();
        Ok(host)
    }

    /// Asks for the ways of all addresses that could be paths. What cannot be asked has the default routes of the main table.
    fn ask_ways(&self) -> Vec<(u32, IpAddr, Way)> {
        let live = |index| {
            let interface = self.interfaces.iter().find(|i| i.index == index);
            interface.is_some_and(|i| i.up && !i.loopback)
        };
        let asked = self
            .addresses
            .iter()
            .filter(|a| a.global && a.usable && live(a.index));
        asked
            .take(MOST_WAYS)
            .filter_map(|a| {
                let way = way_out(a.addr, a.index).ok().flatten()?;
                Some((a.index, a.addr, way))
            })
            .collect()
    }

    /// Whether other networks can be reached from an address on interface `index`.
    #[must_use]
    pub fn is_routed(&self, index: u32, addr: IpAddr) -> bool {
        let by_rule = self.ways.iter().any(|(i, a, _)| (*i, *a) == (index, addr));
        by_rule || self.default_of(index, addr.is_ipv6()).is_some()
    }

    fn default_of(&self, index: u32, ipv6: bool) -> Option<&DefaultRoute> {
        let fits = |d: &&DefaultRoute| d.index == index && d.ipv6 == ipv6;
        self.defaults.iter().find(fits)
    }

    /// How little the kernel prefers the default route of an address on interface `index`; one of another table comes last.
    #[must_use]
    pub fn metric(&self, index: u32, addr: IpAddr) -> u32 {
        let default = self.default_of(index, addr.is_ipv6());
        default.map_or(u32::MAX, |d| d.metric)
    }

    /// The interface of that name.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|i| i.name == name)
    }

    /// The gateway for an address on interface `index`.
    #[must_use]
    pub fn gateway(&self, index: u32, addr: IpAddr) -> Option<IpAddr> {
        let by_rule = self.ways.iter().find(|(i, a, _)| (*i, *a) == (index, addr));
        match by_rule {
            Some((_, _, way)) => way.gateway,
            None => self.default_of(index, addr.is_ipv6())?.gateway,
        }
    }
}

fn interface_of(link: &LinkMessage) -> Option<Interface> {
    let mut name = None;
    let mut mac = None;
    let mut mtu = 1500;
    let mut carrier = true;
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(n) => name = Some(n.clone()),
            LinkAttribute::Mtu(m) => mtu = *m,
            LinkAttribute::Carrier(c) => carrier = *c != 0,
            LinkAttribute::Address(a) if link.header.link_layer_type == LinkLayerType::Ether => {
                mac = <[u8; 6]>::try_from(a.as_slice()).ok().map(Mac);
            }
            _ => {}
        }
    }
    let flags = link.header.flags;
    Some(Interface {
        index: link.header.index,
        name: name?,
        mac,
        bare: is_bare(link.header.link_layer_type),
        mtu,
        up: flags.contains(LinkFlags::Up) && carrier,
        loopback: flags.contains(LinkFlags::Loopback),
    })
}

/// PPP, tunnels such as WireGuard's, and modems that carry IP alone.
fn is_bare(kind: LinkLayerType) -> bool {
    matches!(
        kind,
        LinkLayerType::None
            | LinkLayerType::Ppp
            | LinkLayerType::Rawip
            | LinkLayerType::Tunnel
            | LinkLayerType::Tunnel6
            | LinkLayerType::Sit
    )
}

fn address_of(message: &AddressMessage) -> Option<Address> {
    let mut address = None;
    let mut local = None;
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Address(a) => address = Some(*a),
            AddressAttribute::Local(a) => local = Some(*a),
            _ => {}
        }
    }
    let flags = message.header.flags;
    let bad = AddressHeaderFlags::Tentative | AddressHeaderFlags::Dadfailed;
    Some(Address {
        index: message.header.index,
        // On point-to-point links `Address` is the far end.
        addr: local.or(address)?,
        prefix: message.header.prefix_len,
        global: message.header.scope == AddressScope::Universe,
        usable: !flags.intersects(bad),
        deprecated: flags.contains(AddressHeaderFlags::Deprecated),
    })
}

fn ip_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(a) => Some(IpAddr::V4(*a)),
        RouteAddress::Inet6(a) => Some(IpAddr::V6(*a)),
        _ => None,
    }
}

/// A way on: the interface, and the router if there is one.
type Hop = (u32, Option<IpAddr>);

/// Where a unicast route of the main table leads.
fn hops_of(route: &RouteMessage) -> Vec<Hop> {
    let header = &route.header;
    let mut table = u32::from(header.table);
    let mut gateway = None;
    let mut index = None;
    let mut hops = Vec::new();
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Table(t) => table = *t,
            RouteAttribute::Gateway(a) => gateway = ip_of(a),
            RouteAttribute::Oif(i) => index = Some(*i),
            RouteAttribute::MultiPath(list) => hops.extend(list.iter().map(|hop| {
                let gateway = hop.attributes.iter().find_map(|a| match a {
                    RouteAttribute::Gateway(a) => ip_of(a),
                    _ => None,
                });
                (hop.interface_index, gateway)
            })),
            _ => {}
        }
    }
    if table != u32::from(RouteHeader::RT_TABLE_MAIN) || header.kind != RouteType::Unicast {
        return Vec::new();
    }
    hops.extend(index.map(|index| (index, gateway)));
    hops
}

fn metric_of(route: &RouteMessage) -> u32 {
    let metric = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Priority(p) => Some(*p),
        _ => None,
    });
    metric.unwrap_or(0)
}

fn defaults_of(route: &RouteMessage, hops: &[Hop]) -> Vec<DefaultRoute> {
    if route.header.destination_prefix_length != 0 {
        return Vec::new();
    }
    let of = |&(index, gateway): &Hop| DefaultRoute {
        index,
        ipv6: route.header.address_family == netlink_packet_route::AddressFamily::Inet6,
        gateway,
        metric: metric_of(route),
    };
    hops.iter().map(of).collect()
}

fn routes_of(route: &RouteMessage, hops: &[Hop]) -> Vec<NetworkRoute> {
    let prefix = route.header.destination_prefix_length;
    let to = route.attributes.iter().find_map(|a| match a {
        RouteAttribute::Destination(a) => ip_of(a),
        _ => None,
    });
    let Some(to) = to.filter(|_| prefix != 0) else {
        return Vec::new();
    };
    let of = |&(index, gateway): &Hop| {
        Some(NetworkRoute {
            index,
            to,
            prefix,
            metric: metric_of(route),
            gateway: gateway.filter(|gateway| gateway.is_ipv6() == to.is_ipv6())?,
        })
    };
    hops.iter().filter_map(of).collect()
}

/// The neighbours of interface `index` whose hardware address the kernel knows.
///
/// # Errors
/// Those of the netlink socket.
pub fn neighbours(index: u32) -> io::Result<Vec<(IpAddr, Mac)>> {
    let all = dump(Message::GetNeighbour(NeighbourMessage::default()))?;
    Ok(all
        .into_iter()
        .filter_map(|m| match m {
            Message::NewNeighbour(n) if n.header.ifindex == index => Some(n),
            _ => None,
        })
        .filter_map(|n| {
            let mut addr = None;
            let mut mac = None;
            for attribute in &n.attributes {
                match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(a)) => {
                        addr = Some(IpAddr::V4(*a));
                    }
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => {
                        addr = Some(IpAddr::V6(*a));
                    }
                    NeighbourAttribute::LinkLayerAddress(bytes) => {
                        mac = <[u8; 6]>::try_from(bytes.as_slice()).ok().map(Mac);
                    }
                    _ => {}
                }
            }
            Some((addr?, mac.filter(|m| m.is_unicast())?))
        })
        .collect())
}

/// The index of the interface `name`.
///
/// # Errors
/// `NotFound` if there is none.
pub fn index_of(name: &str) -> io::Result<u32> {
    Snapshot::take()?
        .interface(name)
        .map(|i| i.index)
        .ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("there is no interface {name}"),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_more_than_two_has_a_broadcast_address() {
        for (addr, prefix, broadcast) in [
            ("10.0.0.1", 24, Some("10.0.0.255")),
            ("10.0.0.1", 30, Some("10.0.0.3")),
            ("10.0.0.1", 0, Some("255.255.255.255")),
            ("10.0.0.1", 31, None),
            ("10.0.0.1", 32, None),
            ("fd00::1", 64, None),
        ] {
            let address = Address {
                index: 1,
                addr: addr.parse().expect("a literal"),
                prefix,
                global: true,
                usable: true,
                deprecated: false,
            };
            let expected = broadcast.map(|text| text.parse().expect("a literal"));
            assert_eq!(broadcast_of(&address), expected, "{addr}/{prefix}");
        }
    }
}
