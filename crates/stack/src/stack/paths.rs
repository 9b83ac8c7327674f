//! The host's addresses: which of them subflows are opened from, and what becomes of those that cannot be used now.
//!
//! Owns the list of addresses. What an event means for a connection is the connection's business.

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr};

use manypath_tcp::time::Instant;

use super::Stack;
use crate::api::{Event, EventKind, IfaceId, Offload, Path, PathEvent, is_of_a_host};

/// An address from which no subflow is opened.
#[derive(Debug)]
pub(super) struct Resting {
    path: Path,
    /// Nothing passes there now; otherwise it is used for what peers open.
    stalled: bool,
}

fn is(path: &Path, iface: IfaceId, addr: IpAddr) -> bool {
    path.iface == iface && path.addr == addr
}

impl Stack {
    /// A local address came, changed or went.
    pub fn handle_path_event(&mut self, now: Instant, event: PathEvent) {
        self.tick(now);
        match event {
            PathEvent::Up(path) => self.path_up(&path),
            PathEvent::Passive(path) => self.path_passive(&path),
            PathEvent::Stalled { iface, addr } => {
                let Some(path) = self.take_path(iface, addr) else {
                    return;
                };
                let stalled = true;
                self.resting.push(Resting { path, stalled });
                self.tell_of_address(EventKind::LocalDown { iface, addr });
                self.for_each_conn(|conn, cx| conn.uplinks().stalled(iface, addr, cx));
            }
            PathEvent::Down { iface, addr } => {
                self.take_path(iface, addr);
                let resting = self.resting.iter().map(|r| &r.path);
                if !self.paths.iter().chain(resting).any(|p| p.iface == iface) {
                    self.shaper.forget_device(iface);
                }
                self.tell_of_address(EventKind::LocalDown { iface, addr });
                self.for_each_conn(|conn, cx| conn.uplinks().down(iface, addr, cx));
            }
        }
    }

    fn path_up(&mut self, path: &Path) {
        let path = &self.shaper.fit(path);
        self.resting.retain(|r| !is(&r.path, path.iface, path.addr));
        let known = self.paths.iter_mut().find(|p| is(p, path.iface, path.addr));
        match known {
            Some(known) => *known = path.clone(),
            None => self.paths.push(path.clone()),
        }
        self.tell_of_address(EventKind::LocalUp {
            iface: path.iface,
            addr: path.addr,
            backup: path.backup,
        });
        self.for_each_conn(|conn, cx| conn.uplinks().up(path, cx));
    }

    fn path_passive(&mut self, path: &Path) {
        let path = &self.shaper.fit(path);
        self.take_path(path.iface, path.addr);
        self.resting.push(Resting {
            path: path.clone(),
            stalled: false,
        });
        self.for_each_conn(|conn, cx| conn.uplinks().passive(path, cx));
    }

    /// The device of an interface is asked to divide bursts of another length from now on.
    pub(super) fn set_offload(&mut self, iface: IfaceId, offload: Offload) {
        let resting = self.resting.iter_mut().map(|r| &mut r.path);
        for path in self.paths.iter_mut().chain(resting) {
            if path.iface == iface {
                path.offload = offload;
            }
        }
        self.for_each_conn(|conn, _| conn.uplinks().set_offload(iface, offload));
    }

    /// Puts the local addresses in this order, in which new connections prefer them. Those that are not named stand behind, as they
    /// stood.
    pub fn order_paths(&mut self, order: &[(IfaceId, IpAddr)]) {
        let place = |path: &Path| {
            let named = (path.iface, path.addr);
            order.iter().position(|other| *other == named)
        };
        self.paths
            .sort_by_key(|path| place(path).unwrap_or(order.len()));
    }

    /// The host is on networks with these broadcast addresses (RFC 1122 section 3.3.6): no host has them, so nobody is called there
    /// and nobody calls from there (RFC 9293 MUST-57 and MUST-63). A network of a /31 has none (RFC 3021).
    pub fn set_broadcasts(&mut self, addresses: Vec<Ipv4Addr>) {
        self.broadcasts = addresses;
    }

    /// Whether it can be the address of a peer.
    pub(super) fn may_be_called(&self, addr: IpAddr) -> bool {
        is_of_a_host(addr) && !self.is_broadcast(addr)
    }

    pub(super) fn is_broadcast(&self, addr: IpAddr) -> bool {
        matches!(addr, IpAddr::V4(addr) if self.broadcasts.contains(&addr))
    }

    /// Takes an address out of both lists.
    fn take_path(&mut self, iface: IfaceId, addr: IpAddr) -> Option<Path> {
        if let Some(at) = self.paths.iter().position(|p| is(p, iface, addr)) {
            return Some(self.paths.remove(at));
        }
        let at = self.resting.iter().position(|r| is(&r.path, iface, addr))?;
        Some(self.resting.remove(at).path)
    }

    /// The packets of an interface go another way now, or its neighbours answer again: what was silent there is sent again at
    /// once.
    pub fn try_path_again(&mut self, now: Instant, iface: IfaceId) {
        self.tick(now);
        self.for_each_conn(|conn, cx| conn.subflows.retransmit_interface_now(iface, cx));
    }

    /// The addresses that take what peers open and from which nothing is opened.
    pub(super) fn passive_paths(&self) -> impl Iterator<Item = &Path> {
        let passive = self.resting.iter().filter(|r| !r.stalled);
        passive.map(|r| &r.path)
    }

    /// Every address that the host has, whether or not anything passes there now.
    fn all_paths(&self) -> impl Iterator<Item = &Path> {
        self.paths
            .iter()
            .chain(self.resting.iter().map(|r| &r.path))
    }

    /// Whether the host has an address, whatever it is used for.
    pub fn is_ours(&self, addr: IpAddr) -> bool {
        self.all_paths().any(|path| path.addr == addr)
    }

    /// An address by name.
    pub(super) fn path_of(&self, addr: IpAddr) -> Option<&Path> {
        self.all_paths().find(|path| path.addr == addr)
    }

    /// The address that a packet is for, which may have come in by another interface: a host has addresses, and an interface
    /// only leads to them (RFC 1122 section 3.3.4.2). Where two interfaces have it, the one that it came by.
    pub(super) fn path_for_packet(&self, came_by: IfaceId, addr: IpAddr) -> Option<&Path> {
        let mut all = self.all_paths();
        all.find(|path| is(path, came_by, addr))
            .or_else(|| self.path_of(addr))
    }

    fn tell_of_address(&mut self, kind: EventKind) {
        self.events.push_back(Event {
            at: self.now,
            conn: None,
            kind,
        });
    }
}
