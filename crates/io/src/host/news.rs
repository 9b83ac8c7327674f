//! Says which paths come and go, and why.

use crate::netlink::Snapshot;
use crate::path::{HostPath, MTU_MIN, Role};
use std::fmt;
use std::net::IpAddr;

/// What changed about a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reason {
    InterfaceGone,
    LinkDown,
    MtuSmall,
    AddressGone,
    AddressUnusable,
    RouteGone,
    Start,
    InterfaceCame,
    LinkUp,
    MtuRaised,
    AddressCame,
    RouteCame,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InterfaceGone => "the interface is gone",
            Self::LinkDown => "the link is down or has no carrier",
            Self::MtuSmall => "its MTU is too small for the options of Multipath TCP",
            Self::AddressGone => "the address was removed",
            Self::AddressUnusable => {
                "the address cannot be used: a duplicate, or still being checked"
            }
            Self::RouteGone => "its default route was removed",
            Self::Start => "found at the start",
            Self::InterfaceCame => "the interface came",
            Self::LinkUp => "the link is up",
            Self::MtuRaised => "its MTU was raised",
            Self::AddressCame => "the address was added",
            Self::RouteCame => "a default route was added",
        })
    }
}

/// Writes a line for each path that came or went since `old`, or that cannot be used at present.
pub(super) fn tell(old: &[HostPath], new: &[HostPath], before: Option<&Snapshot>, host: &Snapshot) {
    let has = |all: &[HostPath], path: &HostPath| {
        all.iter()
            .any(|p| (p.index, p.addr) == (path.index, path.addr))
    };
    for path in old.iter().filter(|path| !has(new, path)) {
        let reason = why_gone(path.index, path.addr, host);
        tracing::warn!("path {} ({}) is gone: {reason}", path.iface, path.addr);
    }
    let passes = |path: &&HostPath| path.role != Role::Stalled;
    let passing = |all: &[HostPath]| all.iter().filter(passes).cloned().collect::<Vec<_>>();
    let (passed, pass) = (passing(old), passing(new));
    let stalls = |path: &&HostPath| has(new, path) && !has(&pass, path);
    for path in passed.iter().filter(stalls) {
        let reason = why_gone(path.index, path.addr, host);
        tracing::warn!(
            "path {} ({}) cannot be used now: {reason}; what uses it waits",
            path.iface,
            path.addr
        );
    }
    for path in new {
        let same = |p: &&HostPath| (p.index, p.addr) == (path.index, path.addr);
        if let Some(was) = old.iter().find(same).filter(|was| was.iface != path.iface) {
            tracing::info!("path {} ({}) is {} now", was.iface, path.addr, path.iface);
        }
    }
    for path in pass.iter().filter(|path| !has(&passed, path)) {
        let reason = why_came(path.index, path.addr, before);
        tracing::info!("path {} ({}) can be used: {reason}", path.iface, path.addr);
        if lacks_route(path, host) {
            tracing::warn!(
                "path {} ({}) has no route to other networks: only hosts on its own link can be reached by it. Add a default route, \
                 or name the router: --path {}={},gateway=ADDR",
                path.iface,
                path.addr,
                path.iface,
                path.addr
            );
        }
    }
}

/// From a path only hosts on its own link can be reached. Pure.
pub(super) fn lacks_route(path: &HostPath, host: &Snapshot) -> bool {
    path.gateway.is_none() && path.mac.is_some() && !host.is_routed(path.index, path.addr)
}

/// What a path lacks on a host. Pure.
pub(super) fn why_gone(index: u32, addr: IpAddr, host: &Snapshot) -> Reason {
    let Some(interface) = host.interfaces.iter().find(|i| i.index == index) else {
        return Reason::InterfaceGone;
    };
    if !interface.up {
        return Reason::LinkDown;
    }
    if interface.mtu < MTU_MIN {
        return Reason::MtuSmall;
    }
    match host
        .addresses
        .iter()
        .find(|a| (a.index, a.addr) == (index, addr))
    {
        None => Reason::AddressGone,
        Some(address) if !address.usable => Reason::AddressUnusable,
        Some(_) => Reason::RouteGone,
    }
}

/// What a path had lacked on a host before it came. Pure.
fn why_came(index: u32, addr: IpAddr, before: Option<&Snapshot>) -> Reason {
    match before.map(|host| why_gone(index, addr, host)) {
        None => Reason::Start,
        Some(Reason::InterfaceGone) => Reason::InterfaceCame,
        Some(Reason::LinkDown) => Reason::LinkUp,
        Some(Reason::MtuSmall) => Reason::MtuRaised,
        Some(Reason::AddressGone | Reason::AddressUnusable) => Reason::AddressCame,
        Some(_) => Reason::RouteCame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Address, Interface};

    fn host(up: bool, usable: Option<bool>) -> Snapshot {
        let addr = addr();
        Snapshot {
            interfaces: vec![Interface {
                index: 2,
                name: "eth0".to_owned(),
                mac: None,
                bare: false,
                mtu: 1500,
                up,
                loopback: false,
            }],
            addresses: usable
                .map(|usable| Address {
                    index: 2,
                    addr,
                    prefix: 24,
                    global: true,
                    usable,
                    deprecated: false,
                })
                .into_iter()
                .collect(),
            ..Snapshot::default()
        }
    }

    fn addr() -> IpAddr {
        "10.0.0.2".parse().expect("a literal address")
    }

    #[test]
    fn the_reason_is_what_is_missing() {
        for (host, gone, came) in [
            (
                Snapshot::default(),
                Reason::InterfaceGone,
                Reason::InterfaceCame,
            ),
            (host(false, Some(true)), Reason::LinkDown, Reason::LinkUp),
            (host(true, None), Reason::AddressGone, Reason::AddressCame),
            (
                host(true, Some(false)),
                Reason::AddressUnusable,
                Reason::AddressCame,
            ),
            (host(true, Some(true)), Reason::RouteGone, Reason::RouteCame),
        ] {
            assert_eq!(why_gone(2, addr(), &host), gone);
            assert_eq!(why_came(2, addr(), Some(&host)), came);
        }
        assert_eq!(why_came(2, addr(), None), Reason::Start);
    }
}
