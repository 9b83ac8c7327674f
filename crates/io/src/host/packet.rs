//! Packet sockets on the host's interfaces.

use super::attach::{Desired, Kind, Told, new_setup};
use crate::device::bare::{self, BareConfig};
use crate::device::packet::{self, PacketConfig};
use crate::device::probe;
use crate::driver::{DeviceTasks, Shared};
use crate::filter::Filter;
use crate::neigh::{Link, Mac};
use crate::netlink::{self, Snapshot};
use crate::path::{HostPath, Role, covers};
use manypath_host::{Firewall, Guard, Setup, Share, hold_port};
use manypath_stack::{IfaceId, Path};
use manypath_wire::ids::FourTuple;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Local ports that a stack takes at first. It takes twice as many each time when all of them are in use towards one peer.
const FEW_PORTS: u16 = 256;
/// Addresses that are guarded at most although the host does not have them any more.
const PAST_MAX: usize = 64;

/// One interface with its device.
struct Attached {
    tasks: DeviceTasks,
    paths: Vec<HostPath>,
    offload: manypath_stack::Offload,
}

/// Packet sockets on the host's interfaces, and the rules that belong to them.
pub(super) struct PacketAttachment {
    offload: bool,
    local_ports: u16,
    interfaces: BTreeMap<u32, Attached>,
    /// Local ports of connections that we open from addresses shared with the host: those of new ones last.
    reserved: Vec<RangeInclusive<u16>>,
    firewall: Option<Firewall>,
    /// There are more of them than the kernel and the devices know.
    grown: bool,
    /// Where we listen.
    claimed: Vec<SocketAddr>,
    /// Addresses shared with the host, those that went among them: one that is put back within a moment has connections, which
    /// the host's kernel would reset before we hear of it.
    guarded: Vec<IpAddr>,
    /// Sockets that keep the host's programs from taking a claimed port.
    holders: BTreeMap<SocketAddr, OwnedFd>,
    shared: Option<Arc<Shared>>,
    /// How often something was put back that somebody took away.
    repairs: u64,
    /// Other programs may change the firewall's tables, as on Linux before 5.12.
    exposed: bool,
    /// Made when the host must be changed; last, so that it is undone when the devices are gone.
    setup: Option<Setup>,
}

impl Drop for PacketAttachment {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            for (_, attached) in std::mem::take(&mut self.interfaces) {
                shared.detach(attached.tasks.iface);
            }
        }
    }
}

impl PacketAttachment {
    pub(super) fn new(wanted: &Desired) -> Self {
        PacketAttachment {
            offload: wanted.offload,
            local_ports: wanted.local_ports,
            interfaces: BTreeMap::new(),
            reserved: Vec::new(),
            firewall: None,
            grown: false,
            claimed: Vec::new(),
            guarded: Vec::new(),
            holders: BTreeMap::new(),
            shared: None,
            repairs: 0,
            exposed: wanted.exposed,
            setup: None,
        }
    }

    fn setup(&mut self) -> io::Result<&mut Setup> {
        match &mut self.setup {
            Some(setup) => Ok(setup),
            empty => Ok(empty.insert(new_setup(self.exposed)?)),
        }
    }

    /// The local ports that are ours on shared addresses.
    fn ports(&self) -> Vec<RangeInclusive<u16>> {
        self.reserved
            .iter()
            .cloned()
            .chain(self.claimed.iter().map(|at| at.port()..=at.port()))
            .collect()
    }

    /// Puts the guard in force before packets flow. Where all addresses are ours alone it only spares the kernel some
    /// work (and keeps a host that forwards from forwarding), so there it may fail.
    fn guard(&mut self, paths: &[HostPath]) -> io::Result<()> {
        let shares = paths.iter().any(|p| !p.owned);
        if shares && self.reserved.is_empty() {
            let count = self.local_ports.min(FEW_PORTS);
            let range = self.setup()?.reserve_ports(count)?;
            self.reserved.push(range);
        }
        for addr in paths.iter().filter(|p| !p.owned).map(|p| p.addr) {
            self.guarded.retain(|known| *known != addr);
            self.guarded.push(addr);
        }
        let beyond = self.guarded.len().saturating_sub(PAST_MAX.max(paths.len()));
        self.guarded.drain(..beyond);
        let guards = guards(paths, &self.guarded, |addr| {
            share(addr, &self.claimed, &self.reserved)
        });
        match self.setup().and_then(|s| s.guard(&guards)) {
            Ok(firewall) => self.firewall = Some(firewall),
            Err(e) if shares => return Err(e),
            Err(_) => {}
        }
        Ok(())
    }

    fn links(paths: &[HostPath]) -> Vec<Link> {
        paths
            .iter()
            .map(|p| Link {
                addr: p.addr,
                prefix: p.prefix,
                gateway: p.gateway,
                owned: p.owned,
            })
            .collect()
    }

    /// What a device lets through: packets for each address, by whichever interface they come (RFC 1122 section 3.3.4.2).
    fn filter(&self, all: &[HostPath]) -> Filter {
        let (owned, shared): (Vec<&HostPath>, Vec<&HostPath>) = all.iter().partition(|p| p.owned);
        let addrs = |paths: Vec<&HostPath>| paths.iter().map(|p| p.addr).collect();
        Filter {
            owned: addrs(owned),
            shared: addrs(shared),
            ports: self.ports(),
        }
    }

    fn open(
        &mut self,
        shared: &Arc<Shared>,
        index: u32,
        paths: Vec<HostPath>,
        all: &[HostPath],
    ) -> io::Result<()> {
        let Some(first) = paths.first() else {
            return Ok(());
        };
        let name = first.iface.clone();
        let filter = self.filter(all);
        let device = match first.mac {
            Some(mac) => packet::open(&PacketConfig {
                name,
                index,
                mac,
                mtu: first.mtu,
                offload: self.offload,
                links: Self::links(&paths),
                filter,
                known: netlink::neighbours(index).unwrap_or_default(),
            }),
            None if first.bare => bare::open(&BareConfig {
                name,
                index,
                mtu: first.mtu,
                filter,
            }),
            None => Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{name} is of a kind that packet sockets do not serve; it needs the TUN device (--attach tun)"
                ),
            )),
        }?;
        let offload = device.info.offload;
        let tasks = shared.attach(device);
        self.interfaces.insert(
            index,
            Attached {
                tasks,
                paths,
                offload,
            },
        );
        Ok(())
    }

    fn readdress(&mut self, shared: &Arc<Shared>) -> io::Result<()> {
        let filter = self.filter(&self.all());
        for (index, attached) in &self.interfaces {
            let links = Self::links(&attached.paths);
            let firewall = self.firewall.as_ref();
            shared
                .with_transmit(IfaceId(*index), |t| {
                    if let Some(firewall) = firewall {
                        t.tell(firewall);
                    }
                    t.readdress(&links, &filter)
                })
                .unwrap_or(Ok(()))?;
        }
        Ok(())
    }

    fn all(&self) -> Vec<HostPath> {
        let attached = self.interfaces.values();
        attached.flat_map(|a| a.paths.clone()).collect()
    }

    fn stack_paths(&self) -> Vec<Told> {
        self.interfaces
            .values()
            .flat_map(|attached| {
                attached.paths.iter().map(|p| Told {
                    role: p.role,
                    path: Path {
                        iface: attached.tasks.iface,
                        addr: p.addr,
                        mtu: p.mtu,
                        backup: p.backup,
                        offload: attached.offload,
                        ports: self.reserved.last().cloned().filter(|_| !p.owned),
                        outside: None,
                    },
                })
            })
            .collect()
    }

    fn bring_in_line(&mut self, shared: &Arc<Shared>, paths: &[HostPath]) -> io::Result<()> {
        let mut wanted: BTreeMap<u32, Vec<HostPath>> = BTreeMap::new();
        for path in paths {
            wanted.entry(path.index).or_default().push(path.clone());
        }
        let gone: Vec<u32> = self
            .interfaces
            .keys()
            .filter(|i| !wanted.contains_key(i))
            .copied()
            .collect();
        for index in gone {
            self.interfaces.remove(&index);
            shared.detach(IfaceId(index));
        }
        let before: Vec<&HostPath> = self.interfaces.values().flat_map(|a| &a.paths).collect();
        let same = before.len() == paths.len() && paths.iter().all(|p| before.contains(&p));
        if same && !self.grown {
            return Ok(());
        }
        self.guard(paths)?;
        self.grown = false;
        let mut result = Ok(());
        let mut relinked = Vec::new();
        for (index, wanted) in wanted {
            if let Some(attached) = self.interfaces.get_mut(&index) {
                if is_dark(&attached.paths) && !is_dark(&wanted) {
                    relinked.push(IfaceId(index));
                }
                if let Some(path) = wanted.first() {
                    shared.rename(IfaceId(index), &path.iface);
                }
                attached.paths = wanted;
            } else if let Err(e) = self.open(shared, index, wanted, paths) {
                result = Err(e);
            }
        }
        let result = result.and(self.readdress(shared));
        for iface in relinked {
            shared.with_transmit(iface, |t| t.relinked());
        }
        result
    }
}

/// Nothing passes on the interface.
fn is_dark(paths: &[HostPath]) -> bool {
    paths.iter().all(|p| p.role == Role::Stalled)
}

/// The packets that the kernel must not see, whichever of our interfaces they come by.
fn guards(paths: &[HostPath], shared: &[IpAddr], share: impl Fn(IpAddr) -> Share) -> Vec<Guard> {
    let ifaces: BTreeSet<&String> = paths.iter().map(|p| &p.iface).collect();
    let owned = paths.iter().filter(|p| p.owned).map(|p| (p.addr, None));
    let shared = shared.iter().map(|addr| (*addr, Some(share(*addr))));
    let on_each = |(addr, share): (IpAddr, Option<Share>)| {
        let guard = move |iface: &&String| Guard {
            iface: (*iface).clone(),
            addr,
            share: share.clone(),
        };
        ifaces.iter().map(guard).collect::<Vec<_>>()
    };
    owned.chain(shared).flat_map(on_each).collect()
}

impl Kind for PacketAttachment {
    fn apply(
        &mut self,
        shared: &Arc<Shared>,
        paths: &[HostPath],
        _host: &Snapshot,
    ) -> (Vec<Told>, io::Result<()>) {
        self.shared = Some(Arc::clone(shared));
        let result = self.bring_in_line(shared, paths);
        let mut told = self.stack_paths();
        told.sort_by_key(|t| {
            let is = |p: &HostPath| p.index == t.path.iface.0 && p.addr == t.path.addr;
            paths.iter().position(is)
        });
        (told, result)
    }

    fn grow_ports(&mut self) -> bool {
        let Some(now) = self.reserved.last().map(ExactSizeIterator::len) else {
            return false;
        };
        let now = u16::try_from(now).unwrap_or(u16::MAX);
        let count = now.saturating_mul(2).min(self.local_ports);
        if count <= now {
            return false;
        }
        let taken = self.setup().and_then(|s| s.reserve_ports(count));
        self.reserved.extend(taken.ok());
        self.grown = self
            .reserved
            .last()
            .is_some_and(|r| r.len() > usize::from(now));
        self.grown
    }

    fn repair(&mut self) -> (Vec<String>, io::Result<()>) {
        let setup = self.setup.as_mut();
        let (restored, result) = setup.map_or((Vec::new(), Ok(())), Setup::repair);
        self.repairs += restored.len() as u64;
        (restored, result)
    }

    fn repairs(&self) -> u64 {
        self.repairs
    }

    fn is_exposed(&self) -> bool {
        self.setup.as_ref().is_some_and(Setup::is_exposed)
    }

    fn give_back(&self, shared: &Shared) -> io::Result<()> {
        let Some(firewall) = &self.firewall else {
            return Ok(());
        };
        // Under the stack's lock: no connection begins between the question and the change.
        let mut session = shared.session();
        let stack = &session.inner().stack;
        firewall.retain(|local, remote| stack.knows(&FourTuple::new(local, remote)))
    }

    fn shares_host(&self) -> bool {
        // What is not there yet may be shared.
        !self.guarded.is_empty() || self.interfaces.is_empty()
    }

    fn held(&self, at: SocketAddr) -> Option<io::Result<OwnedFd>> {
        self.holders.get(&at).map(OwnedFd::try_clone)
    }

    fn guarded(&self, addr: IpAddr) -> Vec<u32> {
        if self.guarded.contains(&addr) {
            self.interfaces.keys().copied().collect()
        } else {
            Vec::new()
        }
    }

    fn claim_port(&mut self, shared: &Arc<Shared>, addr: SocketAddr) -> io::Result<()> {
        if self.claimed.contains(&addr) {
            return Ok(());
        }
        let all = self.all();
        let on: Vec<IpAddr> = all
            .iter()
            .filter(|p| !p.owned && covers(addr, p.addr))
            .map(|p| p.addr)
            .collect();
        // Who listens everywhere does so on addresses of the host that come later, too.
        if on.is_empty() && !addr.ip().is_unspecified() {
            return Ok(());
        }
        let at = on.iter().map(|ip| SocketAddr::new(*ip, addr.port()));
        let new: Vec<SocketAddr> = at.filter(|at| !self.holders.contains_key(at)).collect();
        // All of them or none.
        let held: io::Result<Vec<_>> = new.iter().map(|at| hold_port(*at)).collect();
        self.holders.extend(new.into_iter().zip(held?));
        self.claimed.push(addr);
        self.guard(&all)?;
        self.readdress(shared)
    }
}

/// What of an address that we share with the host is ours. Where we listen on another address, the port is the host's here; but
/// peers join by it, since the address is announced to them without a port (RFC 8684 section 3.4.1).
fn share(addr: IpAddr, claimed: &[SocketAddr], reserved: &[RangeInclusive<u16>]) -> Share {
    let (here, elsewhere): (Vec<SocketAddr>, Vec<SocketAddr>) =
        claimed.iter().partition(|at| covers(**at, addr));
    let mut listen: Vec<u16> = here.iter().map(SocketAddr::port).collect();
    listen.sort_unstable();
    listen.dedup();
    let mut own = reserved.to_vec();
    let joined = elsewhere.iter().map(SocketAddr::port);
    own.extend(
        joined
            .filter(|port| !listen.contains(port))
            .map(|port| port..=port),
    );
    Share { listen, own }
}

/// Refuses owned addresses that another host on the link has.
///
/// # Errors
/// `AddrInUse` names the address and the other host; those of the sockets.
pub(super) fn refuse_conflicts(paths: &[HostPath]) -> io::Result<()> {
    let mut asked: BTreeMap<u32, (Mac, Vec<IpAddr>)> = BTreeMap::new();
    for path in paths.iter().filter(|p| p.owned) {
        if let Some(mac) = path.mac {
            asked
                .entry(path.index)
                .or_insert((mac, Vec::new()))
                .1
                .push(path.addr);
        }
    }
    // All interfaces at once, so that many paths do not take many times as long.
    let answers: Vec<io::Result<Option<(IpAddr, Mac)>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = asked
            .iter()
            .map(|(index, (mac, addrs))| scope.spawn(|| probe::in_use(*index, *mac, addrs)))
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or(Ok(None)))
            .collect()
    });
    for answer in answers {
        if let Some((addr, mac)) = answer? {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{addr} is in use by another host on the link ({mac})"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_ours_where_we_listen_and_joined_elsewhere() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("a literal address") };
        let at = |text: &str| -> SocketAddr { text.parse().expect("a literal address") };
        let row = 65_280..=65_535;
        let of = |addr: &str, claimed: &[SocketAddr]| {
            share(ip(addr), claimed, std::slice::from_ref(&row))
        };
        let one = [at("10.0.0.1:80")];
        assert_eq!(of("10.0.0.1", &one).listen, [80]);
        assert_eq!(of("10.0.0.1", &one).own, vec![row.clone()]);
        assert_eq!(of("10.0.0.2", &one).listen, []);
        assert_eq!(of("10.0.0.2", &one).own, vec![row.clone(), 80..=80]);
        let four = [at("0.0.0.0:80"), at("10.0.0.1:80")];
        assert_eq!(of("10.0.0.1", &four).listen, [80]);
        assert_eq!(of("fd00::1", &four).listen, []);
        assert_eq!(of("fd00::1", &[at("[::]:80")]).listen, [80]);
        assert_eq!(of("10.0.0.2", &[at("[::]:80")]).listen, [80]);
    }
}
