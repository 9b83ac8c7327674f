//! How a stack is attached to its host, and how that follows the host's changes.

use super::news;
use crate::driver::{DeviceTasks, Shared};
use crate::netlink::{Snapshot, way_to};
use crate::path::{HostPath, Missing, Renames, Role, Wanted, follow};
use manypath_host::Setup;
use manypath_stack::{IfaceId, Path, PathEvent, RateLimit};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::watch;

/// Pairs of addresses that are remembered as asked for.
const MOST_ASKED: usize = 4096;

/// What the user wants of the attachment.
#[derive(Debug, Clone)]
pub(super) struct Desired {
    pub(super) paths: Wanted,
    pub(super) offload: bool,
    pub(super) local_ports: u16,
    pub(super) exposed: bool,
}

/// What changes the host and puts it back; `exposed`: others may change its firewall tables.
pub(super) fn new_setup(exposed: bool) -> io::Result<Setup> {
    match exposed {
        true => Setup::with_exposed_tables(),
        false => Setup::new(),
    }
}

/// A kind of attachment.
pub(super) trait Kind: Send {
    /// Brings devices and rules in line with the host's paths, and says how the stack shall call them, in their order. What cannot be
    /// had is left out; the first trouble is reported with the paths that work.
    fn apply(
        &mut self,
        shared: &Arc<Shared>,
        paths: &[HostPath],
        host: &Snapshot,
    ) -> (Vec<Told>, io::Result<()>);

    /// Takes more local ports where addresses are shared with the host; false when there are no more. The stack is told by the
    /// next [`Kind::apply`].
    fn grow_ports(&mut self) -> bool {
        false
    }

    /// Puts back what somebody took away of what was set up on the host. Answers it in words.
    fn repair(&mut self) -> (Vec<String>, io::Result<()>);

    /// How often that was so.
    fn repairs(&self) -> u64;

    /// Whether others can change our firewall rules.
    fn is_exposed(&self) -> bool;

    /// Gives the kernel back what arrives for connections that are over.
    fn give_back(&self, shared: &Shared) -> io::Result<()> {
        let _ = shared;
        Ok(())
    }

    /// Whether the stack's addresses are others than the host's.
    fn is_translated(&self) -> bool {
        false
    }

    /// Whether programs of the host have addresses of the stack, too.
    fn shares_host(&self) -> bool;

    /// Another descriptor of the socket that keeps a claimed port from the host's programs.
    fn held(&self, at: SocketAddr) -> Option<io::Result<OwnedFd>>;

    /// The interfaces by which the kernel gets nothing that is for this address and one of our ports.
    fn guarded(&self, addr: IpAddr) -> Vec<u32>;

    /// Makes a port on the host's addresses ours.
    fn claim_port(&mut self, shared: &Arc<Shared>, addr: SocketAddr) -> io::Result<()>;
}

/// An address as the stack knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) path: Path,
    pub(super) role: Role,
}

impl Told {
    /// What the stack is told when this is news.
    fn event(&self) -> PathEvent {
        match self.role {
            Role::Opens => PathEvent::Up(self.path.clone()),
            Role::Accepts => PathEvent::Passive(self.path.clone()),
            Role::Stalled => PathEvent::Stalled {
                iface: self.path.iface,
                addr: self.path.addr,
            },
        }
    }
}

/// What connects a stack to the world.
#[derive(Default)]
pub(super) struct Attachment {
    kind: Option<Box<dyn Kind>>,
    wanted: Wanted,
    renames: Renames,
    told: Vec<Told>,
    /// The host's paths when the stack was told last.
    seen: Vec<HostPath>,
    /// The host at that time.
    host: Snapshot,
    /// The paths that were named and are not there.
    pub(super) missing: Vec<Missing>,
    /// Pairs of addresses whose way was asked for since, and whether there is one.
    asked: BTreeMap<(IpAddr, IpAddr), bool>,
    /// Tells that the host has changed.
    pub(super) changes: watch::Sender<()>,
    /// The limits of interfaces that the stack was told of, by the number of the interface.
    rates: BTreeMap<u32, Option<u64>>,
    /// Devices that the caller brought along.
    pub(super) brought: Vec<DeviceTasks>,
}

impl Attachment {
    pub(super) fn of(kind: Box<dyn Kind>, wanted: Wanted, renames: Renames) -> Self {
        Attachment {
            kind: Some(kind),
            wanted,
            renames,
            ..Attachment::default()
        }
    }

    /// Compares the host with what the stack was told. What cannot be had now is left out and tried again with the next change.
    pub(super) fn follow_host(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let host = Snapshot::take()?;
        let (paths, missing) = self.wanted.select(&mut self.renames, &host);
        self.missing = missing;
        self.apply(shared, paths, &host)
    }

    /// Wants other paths from now on.
    pub(super) fn want(&mut self, shared: &Arc<Shared>, wanted: Wanted) -> io::Result<()> {
        if self.wanted == wanted || self.kind.is_none() {
            return Ok(());
        }
        self.wanted = wanted;
        self.follow_host(shared)
    }

    /// Follows the host to these paths, and keeps those that only cannot be used at present.
    pub(super) fn apply(
        &mut self,
        shared: &Arc<Shared>,
        found: Vec<HostPath>,
        host: &Snapshot,
    ) -> io::Result<()> {
        let Some(kind) = &mut self.kind else {
            return Ok(());
        };
        let mut paths = follow(&self.seen, found, &self.wanted.specs, host);
        self.wanted.leave_out(&mut self.renames, host, &mut paths);
        let (wanted, result) = kind.apply(shared, &paths, host);
        for path in &paths {
            // Once: it may be changed afterwards.
            if self.rates.insert(path.index, path.rate) != Some(path.rate)
                && let Some(rate) = path.rate
            {
                shared.limit_path(IfaceId(path.index), RateLimit::new(rate, path.mtu));
            }
        }
        for event in changes(&self.told, &wanted) {
            shared.path_event(event);
        }
        let order: Vec<(IfaceId, IpAddr)> = wanted
            .iter()
            .map(|told| (told.path.iface, told.path.addr))
            .collect();
        shared.order_paths(&order);
        shared.set_broadcasts(host.broadcasts());
        let before = Some(&self.host).filter(|before| !before.interfaces.is_empty());
        news::tell(&self.seen, &paths, before, host);
        // Nothing that the stack knows of changed, but its packets go another way now: what was silent may answer.
        let known = wanted.iter().filter(|told| self.told.contains(told));
        for told in known.filter(|told| told.role != Role::Stalled) {
            if rerouted(&self.seen, &paths, told.path.addr) {
                shared.path_event(told.event());
            }
        }
        self.told = wanted;
        self.seen = paths;
        self.host = host.clone();
        self.asked.clear();
        self.changes.send_replace(());
        if let Err(error) = &result {
            tracing::warn!(%error, "not every path can be used; it is tried again when something changes");
        }
        result
    }

    /// Takes more local ports and tells the stack; false when there are no more.
    pub(super) fn grow_ports(&mut self, shared: &Arc<Shared>) -> bool {
        let grown = self.kind.as_mut().is_some_and(|kind| kind.grow_ports());
        let (paths, host) = (self.seen.clone(), self.host.clone());
        if grown {
            // What is not right with a path is none of the caller's business.
            let _ = self.apply(shared, paths, &host);
        }
        grown
    }

    /// Puts back what somebody took away of what was set up on the host, and says so.
    pub(super) fn repair(&mut self) {
        let Some(kind) = &mut self.kind else { return };
        let (restored, result) = kind.repair();
        for what in restored {
            tracing::warn!(
                "somebody removed or changed {what} on this host: put back; subflows that the kernel reset meanwhile are joined again"
            );
        }
        if let Err(e) = result {
            tracing::warn!("what somebody removed from this host cannot be put back: {e}");
        }
    }

    pub(super) fn is_exposed(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| kind.is_exposed())
    }

    pub(super) fn give_back(&self, shared: &Shared) -> io::Result<()> {
        match &self.kind {
            Some(kind) => kind.give_back(shared),
            None => Ok(()),
        }
    }

    /// Finds the router between each of these addresses of ours and the peer's, as the host's routes have it: there may be routes to one
    /// destination, or a default route in halves. What was asked once is asked again when something has changed. Answers the pairs
    /// between which no route leads.
    pub(super) fn find_ways(
        &mut self,
        shared: &Arc<Shared>,
        pairs: &[(IpAddr, IpAddr)],
    ) -> Vec<(IpAddr, IpAddr)> {
        let mut without = Vec::new();
        for pair in pairs {
            if self.asked.len() >= MOST_ASKED {
                self.asked.clear();
            }
            let known = self.asked.get(pair).copied();
            let leads = known.unwrap_or_else(|| self.find_way(shared, *pair));
            self.asked.insert(*pair, leads);
            if !leads {
                without.push(*pair);
            }
        }
        without
    }

    /// False if the host has no route for a packet between these addresses.
    fn find_way(&self, shared: &Arc<Shared>, (local, remote): (IpAddr, IpAddr)) -> bool {
        let ours = |p: &&HostPath| p.addr == local && p.mac.is_some();
        let Some(path) = self.seen.iter().find(ours) else {
            return true;
        };
        match way_to(remote, Some(local), path.index) {
            Ok(Some(way)) => {
                let hop = way.gateway.unwrap_or(remote);
                shared.with_transmit(IfaceId(path.index), |t| t.via(local, remote, hop));
                true
            }
            // Of an address that the host does not have its routes say nothing, and a gateway that was named has to do.
            Ok(None) => path.owned || path.gateway.is_some(),
            Err(_) => true,
        }
    }

    /// The paths that were named and are not there, but for those that only are [stalled](Attachment::stalled).
    pub(super) fn missing(&self) -> Vec<Missing> {
        let is_stalled = |iface: &str| {
            let of = |path: &HostPath| path.iface == iface && path.role == Role::Stalled;
            self.seen.iter().any(of)
        };
        let all = self.missing.iter();
        all.filter(|missing| !is_stalled(missing.iface()))
            .cloned()
            .collect()
    }

    /// The paths that nothing passes at present, as the stack knows them, and why.
    pub(super) fn stalled(&self) -> Vec<(Path, String)> {
        let stalled = self.told.iter().filter(|told| told.role == Role::Stalled);
        let why = |told: &Told| {
            let addr = told.path.outside.unwrap_or(told.path.addr);
            let path = self.seen.iter().find(|path| path.addr == addr)?;
            let why = news::why_gone(path.index, addr, &self.host).to_string();
            Some((told.path.clone(), why))
        };
        stalled.filter_map(why).collect()
    }

    /// A line for each path from which no route leads to other networks.
    pub(super) fn unrouted(&self) -> Vec<String> {
        let passing = self.seen.iter().filter(|path| path.role != Role::Stalled);
        let lacking = passing.filter(|path| news::lacks_route(path, &self.host));
        let line = |path: &HostPath| {
            let (iface, addr) = (&path.iface, path.addr);
            format!(
                "{addr}: {iface} has no route to other networks, only hosts on its own link can be reached"
            )
        };
        lacking.map(line).collect()
    }

    /// The host when the stack was told last.
    pub(super) fn host(&self) -> &Snapshot {
        &self.host
    }

    /// What connects the stack to the host, unless the caller brought all devices along.
    pub(super) fn kind(&self) -> Option<&dyn Kind> {
        self.kind.as_deref()
    }

    /// The host's paths when the stack was told last.
    pub(super) fn host_paths(&self) -> &[HostPath] {
        &self.seen
    }

    pub(super) fn claim_port(&mut self, shared: &Arc<Shared>, addr: SocketAddr) -> io::Result<()> {
        match &mut self.kind {
            Some(kind) => kind.claim_port(shared, addr),
            None => Ok(()),
        }
    }

    /// Undoes everything now: devices, rules and settings go before this returns.
    pub(super) fn shut_down(&mut self, shared: &Arc<Shared>) {
        self.kind = None;
        for tasks in self.brought.drain(..) {
            shared.detach(tasks.iface);
        }
    }
}

/// The packets of an address leave by another router or interface than before, or are another host's on the link.
fn rerouted(old: &[HostPath], new: &[HostPath], addr: IpAddr) -> bool {
    let way = |paths: &[HostPath]| {
        let path = paths.iter().find(|path| path.addr == addr)?;
        Some((path.index, path.mac, path.gateway))
    };
    way(old).is_some_and(|old| way(new) != Some(old))
}

/// What to tell the stack: departures first, so that an address that moved is not gone a moment after it came.
fn changes(old: &[Told], new: &[Told]) -> Vec<PathEvent> {
    let same = |a: &Told, b: &Told| a.path.iface == b.path.iface && a.path.addr == b.path.addr;
    let gone = old
        .iter()
        .filter(|o| !new.iter().any(|n| same(o, n)))
        .map(|o| PathEvent::Down {
            iface: o.path.iface,
            addr: o.path.addr,
        });
    let is_stalled = |told: &&Told| told.role == Role::Stalled;
    let is_news = |n: &&Told| match old.iter().find(|o| same(o, n)) {
        Some(o) if is_stalled(n) => !is_stalled(&o),
        Some(o) => o != *n,
        None => !is_stalled(n),
    };
    let news = || new.iter().filter(is_news);
    let stalled = news().filter(is_stalled);
    let come = news().filter(|n| !is_stalled(n));
    gone.chain(stalled.chain(come).map(Told::event)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_stack::Offload;

    fn path(iface: u32, addr: &str, mtu: u16) -> Told {
        let path = Path {
            iface: IfaceId(iface),
            addr: addr.parse().expect("a literal address"),
            mtu,
            backup: false,
            offload: Offload::default(),
            ports: None,
            outside: None,
        };
        let role = Role::Opens;
        Told { path, role }
    }

    #[test]
    fn another_router_is_a_reason_to_try_again() {
        let by = |gateway: &str| HostPath {
            index: 3,
            iface: "eth0".to_owned(),
            mac: None,
            bare: false,
            mtu: 1500,
            addr: "10.0.0.1".parse().expect("a literal address"),
            prefix: 24,
            gateway: gateway.parse().ok(),
            backup: false,
            rate: None,
            owned: false,
            role: Role::Opens,
        };
        let addr = by("").addr;
        let (one, other) = ([by("10.0.0.254")], [by("10.0.0.253")]);
        assert!(!rerouted(&one, &one, addr));
        assert!(rerouted(&one, &other, addr));
        assert!(rerouted(&[by("")], &one, addr), "the route is back");
        assert!(!rerouted(&[], &one, addr), "that is told anyway");
    }

    #[test]
    fn only_differences_are_told_and_departures_first() {
        let a = path(1, "10.0.0.1", 1500);
        let b = path(2, "10.1.0.1", 1500);
        let smaller = path(1, "10.0.0.1", 1400);
        assert_eq!(
            changes(&[], &[a.clone(), b.clone()]),
            [PathEvent::Up(a.path.clone()), PathEvent::Up(b.path.clone())]
        );
        assert!(changes(std::slice::from_ref(&a), std::slice::from_ref(&a)).is_empty());
        assert_eq!(
            changes(&[a.clone(), b.clone()], std::slice::from_ref(&smaller)),
            [
                PathEvent::Down {
                    iface: b.path.iface,
                    addr: b.path.addr
                },
                PathEvent::Up(smaller.path)
            ]
        );
    }

    #[test]
    fn a_link_without_carrier_is_no_departure() {
        let a = path(1, "10.0.0.1", 1500);
        let (iface, addr) = (a.path.iface, a.path.addr);
        let with = |role| [Told { role, ..a.clone() }];
        let (opens, accepts, dark) = (with(Role::Opens), with(Role::Accepts), with(Role::Stalled));
        let stalled = [PathEvent::Stalled { iface, addr }];
        let up = [PathEvent::Up(a.path.clone())];
        for (old, new, told) in [
            (&opens[..], &dark[..], &stalled[..]),
            (&accepts[..], &dark[..], &stalled[..]),
            (&dark[..], &dark[..], &[]),
            (&dark[..], &opens[..], &up[..]),
            (&[], &dark[..], &[]),
            (&dark[..], &[], &[PathEvent::Down { iface, addr }]),
            (
                &opens[..],
                &accepts[..],
                &[PathEvent::Passive(a.path.clone())],
            ),
        ] {
            assert_eq!(changes(old, new), told, "{old:?} {new:?}");
        }
    }
}
