//! Changing the host's configuration: only what a TUN device or a transparent listener needs, and always undone by [`crate::Setup`].

use super::socket::{change, dump};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn family(addr: IpAddr) -> AddressFamily {
    if addr.is_ipv6() {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    }
}

/// The number of address bits of `addr`'s family.
fn bits(addr: IpAddr) -> u8 {
    if addr.is_ipv6() { 128 } else { 32 }
}

fn route_address(addr: IpAddr) -> RouteAddress {
    match addr {
        IpAddr::V4(a) => RouteAddress::Inet(a),
        IpAddr::V6(a) => RouteAddress::Inet6(a),
    }
}

/// Switches an interface on and sets its MTU.
///
/// # Errors
/// Those of the kernel: no permission, no such interface, MTU not possible.
pub fn set_link(index: u32, mtu: u16) -> io::Result<()> {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link.header.flags = LinkFlags::Up;
    link.header.change_mask = LinkFlags::Up;
    link.attributes.push(LinkAttribute::Mtu(u32::from(mtu)));
    change(0, Message::SetLink(link))
}

/// Gives an interface an address. IPv6 addresses are usable at once (no duplicate detection: ours are chosen unique).
///
/// # Errors
/// Those of the kernel.
pub fn add_address(index: u32, addr: IpAddr, prefix: u8) -> io::Result<()> {
    let mut message = AddressMessage::default();
    message.header.index = index;
    message.header.family = family(addr);
    message.header.prefix_len = prefix;
    message.header.scope = AddressScope::Universe;
    if addr.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    }
    message.attributes.push(AddressAttribute::Address(addr));
    message.attributes.push(AddressAttribute::Local(addr));
    change(NLM_F_CREATE | NLM_F_REPLACE, Message::NewAddress(message))
}

/// A route to add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// Destination network; with prefix 0 it only names the family.
    pub to: IpAddr,
    /// Length of the destination's prefix, bits.
    pub prefix: u8,
    /// The interface it leaves by.
    pub index: u32,
    /// The router; `None`: the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The routing table.
    pub table: u32,
    /// The kernel prefers smaller ones; 0 is its own choice.
    pub metric: u32,
}

/// Adds a route, in place of one to the same destination.
///
/// # Errors
/// Those of the kernel.
pub fn add_route(route: &Route) -> io::Result<()> {
    new_route(route, NLM_F_REPLACE)
}

/// Adds a route that is not there.
///
/// # Errors
/// `AlreadyExists` if it is there; those of the kernel.
pub fn add_missing_route(route: &Route) -> io::Result<()> {
    new_route(route, NLM_F_EXCL)
}

/// Removes a route.
///
/// # Errors
/// `NotFound` if it is not there; those of the kernel.
pub fn delete_route(route: &Route) -> io::Result<()> {
    change(0, Message::DelRoute(route_message(route)))
}

fn new_route(route: &Route, how: u16) -> io::Result<()> {
    change(NLM_F_CREATE | how, Message::NewRoute(route_message(route)))
}

fn route_message(route: &Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(route.to);
    message.header.destination_prefix_length = route.prefix;
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = match route.gateway {
        None if route.to.is_ipv4() => RouteScope::Link,
        _ => RouteScope::Universe,
    };
    message.header.kind = RouteType::Unicast;
    if route.prefix != 0 {
        message
            .attributes
            .push(RouteAttribute::Destination(route_address(route.to)));
    }
    if let Some(gateway) = route.gateway {
        message
            .attributes
            .push(RouteAttribute::Gateway(route_address(gateway)));
    }
    message.attributes.push(RouteAttribute::Oif(route.index));
    message.attributes.push(RouteAttribute::Table(route.table));
    if route.metric != 0 {
        let metric = RouteAttribute::Priority(route.metric);
        message.attributes.push(metric);
    }
    message
}

/// A policy rule: packets from `from` are routed by `table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The source address.
    pub from: IpAddr,
    /// The routing table.
    pub table: u32,
    /// Rules with smaller numbers are asked first.
    pub priority: u32,
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(rule.from);
    message.header.src_len = bits(rule.from);
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Source(rule.from),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Priority(rule.priority),
    ];
    message
}

/// Adds a policy rule.
///
/// # Errors
/// `AlreadyExists` if it is there; those of the kernel.
pub fn add_rule(rule: &Rule) -> io::Result<()> {
    change(
        NLM_F_CREATE | NLM_F_EXCL,
        Message::NewRule(rule_message(rule)),
    )
}

/// Removes a policy rule.
///
/// # Errors
/// `NotFound` if it is not there; those of the kernel.
pub fn delete_rule(rule: &Rule) -> io::Result<()> {
    change(0, Message::DelRule(rule_message(rule)))
}

/// A policy rule for packets with a mark: they are routed by `table`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRule {
    /// Of which family.
    pub ipv6: bool,
    /// The whole mark.
    pub mark: u32,
    /// The routing table.
    pub table: u32,
    /// Rules with smaller numbers are asked first.
    pub priority: u32,
}

fn mark_rule_message(rule: &MarkRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(unspecified(rule.ipv6));
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::FwMark(rule.mark),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Priority(rule.priority),
    ];
    message
}

/// Adds a policy rule.
///
/// # Errors
/// `AlreadyExists` if it is there; those of the kernel.
pub fn add_mark_rule(rule: &MarkRule) -> io::Result<()> {
    change(
        NLM_F_CREATE | NLM_F_EXCL,
        Message::NewRule(mark_rule_message(rule)),
    )
}

/// Removes a policy rule.
///
/// # Errors
/// `NotFound` if it is not there; those of the kernel.
pub fn delete_mark_rule(rule: &MarkRule) -> io::Result<()> {
    change(0, Message::DelRule(mark_rule_message(rule)))
}

/// Adds the route by which every packet of a family that is routed by `table` is this host's own.
///
/// # Errors
/// `AlreadyExists` if it is there; those of the kernel.
pub fn add_local_route(ipv6: bool, table: u32) -> io::Result<()> {
    /// The loopback interface of every network namespace.
    const LOOPBACK: u32 = 1;
    let mut message = route_message(&Route {
        to: unspecified(ipv6),
        prefix: 0,
        index: LOOPBACK,
        gateway: None,
        table,
        metric: 0,
    });
    message.header.kind = RouteType::Local;
    message.header.scope = RouteScope::Host;
    change(NLM_F_CREATE | NLM_F_EXCL, Message::NewRoute(message))
}

fn unspecified(ipv6: bool) -> IpAddr {
    match ipv6 {
        true => Ipv6Addr::UNSPECIFIED.into(),
        false => Ipv4Addr::UNSPECIFIED.into(),
    }
}

/// Removes every route of a table.
///
/// # Errors
/// Those of the kernel.
pub fn flush_table(table: u32) -> io::Result<()> {
    for message in dump(Message::GetRoute(RouteMessage::default()))? {
        if let Message::NewRoute(route) = message {
            let of = route.attributes.iter().find_map(|a| match a {
                RouteAttribute::Table(t) => Some(*t),
                _ => None,
            });
            if of.unwrap_or(u32::from(route.header.table)) == table {
                change(0, Message::DelRoute(route))?;
            }
        }
    }
    Ok(())
}
