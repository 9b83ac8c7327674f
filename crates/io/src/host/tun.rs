//! A TUN device behind the kernel's address translation.

use super::attach::{Desired, Kind, Told, new_setup};
use crate::device::tun::{self, TunConfig};
use crate::driver::{DeviceTasks, Shared};
use crate::netlink::{Address, Interface, NetworkRoute, Snapshot};
use crate::path::{HostPath, Role};
use manypath_host::nat::{Nat, Uplink};
use manypath_host::{Setup, hold_port};
use manypath_stack::{IfaceId, Offload, Path};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The device's name; the kernel numbers it.
const NAME: &str = "manypath%d";
/// RFC 8200 section 5, bytes.
const IPV6_MTU_MIN: u16 = 1280;

/// The device, its tasks, and the kernel's side of it.
pub(super) struct TunAttachment {
    device: Option<crate::device::Device>,
    /// What the device was made from: without root's rights no other file can be opened later.
    file: File,
    tasks: Option<DeviceTasks>,
    /// What the stack calls the device, whichever one it is.
    iface: IfaceId,
    offload: Offload,
    /// How often something was put back that somebody took away.
    repairs: u64,
    /// What was wrong with the device, so that it is said once.
    trouble: Option<&'static str>,
    nat: Nat,
    paths: Vec<HostPath>,
    host: Snapshot,
    holders: BTreeMap<SocketAddr, OwnedFd>,
    shared: Option<Arc<Shared>>,
    setup: Setup,
}

impl Drop for TunAttachment {
    fn drop(&mut self) {
        if let (Some(shared), Some(tasks)) = (&self.shared, self.tasks.take()) {
            shared.detach(tasks.iface);
        }
    }
}

impl TunAttachment {
    pub(super) fn new(wanted: &Desired, paths: &[HostPath], host: &Snapshot) -> io::Result<Self> {
        if let Some(owned) = paths.iter().find(|p| p.owned) {
            return Err(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                format!("{} is not an address of this host", owned.addr),
            ));
        }
        if let Some(limited) = wanted.paths.specs.iter().find(|spec| spec.rate.is_some()) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "{limited}: behind a TUN device all paths share one device, and none can have a rate of its own; use --attach packet"
                ),
            ));
        }
        let mut setup = new_setup(wanted.exposed)?;
        let mtu = device_mtu(paths);
        let file = crate::sys::tun::open()?;
        let config = TunConfig {
            name: NAME.to_owned(),
            mtu,
            offload: wanted.offload,
        };
        let device = tun::make(file.try_clone()?, &config)?;
        let nat = Nat::new(
            &device.info.name,
            device.info.iface.0,
            mtu,
            Vec::new(),
            &mut setup,
            &host.addresses.iter().map(|a| a.addr).collect::<Vec<_>>(),
        )?;
        Ok(TunAttachment {
            offload: device.info.offload,
            iface: device.info.iface,
            device: Some(device),
            file,
            tasks: None,
            repairs: 0,
            trouble: None,
            nat,
            paths: Vec::new(),
            host: host.clone(),
            holders: BTreeMap::new(),
            shared: None,
            setup,
        })
    }
}

/// The MTU of the device, bytes: what the widest path brings in must fit through, and an interface with less than 1280 has no
/// IPv6 (RFC 8200 section 5).
fn device_mtu(paths: &[HostPath]) -> u16 {
    let widest = paths.iter().map(|p| p.mtu).max();
    widest.unwrap_or(1500).max(IPV6_MTU_MIN)
}

/// What routing has to know of the paths.
fn uplinks(paths: &[HostPath], host: &Snapshot) -> Vec<Uplink> {
    let networks = |path: &HostPath| {
        host.addresses
            .iter()
            .filter(|a| {
                a.index == path.index && a.addr.is_ipv6() == path.addr.is_ipv6() && a.global
            })
            .map(|a| (a.addr, a.prefix))
            .collect()
    };
    let beyond = |path: &HostPath| {
        let of = |r: &&NetworkRoute| r.index == path.index && r.to.is_ipv6() == path.addr.is_ipv6();
        let mut found: Vec<(IpAddr, u8, IpAddr)> = Vec::new();
        for route in host.routes.iter().filter(of) {
            // The best one comes first.
            if found.last().map(|(to, prefix, _)| (*to, *prefix)) != Some((route.to, route.prefix))
            {
                found.push((route.to, route.prefix, route.gateway));
            }
        }
        found
    };
    paths
        .iter()
        .map(|path| Uplink {
            index: path.index,
            iface: path.iface.clone(),
            addr: path.addr,
            gateway: path.gateway,
            passes: path.role != Role::Stalled,
            networks: networks(path),
            beyond: beyond(path),
        })
        .collect()
}

fn is_of(uplink: &Uplink, path: &HostPath) -> bool {
    (uplink.index, uplink.addr) == (path.index, path.addr)
}

/// What the device needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Care {
    Nothing,
    /// Another one in its place.
    Another,
    /// To be switched on, with its addresses, which go when it is off.
    On,
    /// The host's addresses there.
    Addresses,
    /// Another MTU: the paths' has changed, or somebody changed the device's.
    Mtu,
}

/// Compares the device as the host has it with what it should be.
fn care(device: Option<&Interface>, addressed: bool, mtu: u16) -> Care {
    match device {
        None => Care::Another,
        Some(device) if !device.up => Care::On,
        Some(_) if !addressed => Care::Addresses,
        Some(device) if device.mtu != u32::from(mtu) => Care::Mtu,
        Some(_) => Care::Nothing,
    }
}

impl TunAttachment {
    /// Looks after the device. Somebody may delete it or switch it off, and then nothing is received any more, without an error.
    fn look_after(&mut self, shared: &Arc<Shared>, paths: &[HostPath], host: &Snapshot) {
        let name = self.nat.device().to_owned();
        let index = self.nat.device_index();
        // Without paths there is nothing to compare with.
        let mtu = device_mtu(if paths.is_empty() { &self.paths } else { paths });
        let device = host.interfaces.iter().find(|i| i.index == index);
        // A host without IPv6 has only one of them, and needs no more.
        let needed = |addr: &IpAddr| addr.is_ipv4() || paths.iter().any(|p| p.addr.is_ipv6());
        let is_there = |addr: &IpAddr| {
            let of = |a: &Address| a.index == index && a.addr == *addr;
            host.addresses.iter().any(of)
        };
        let mut addresses = self.nat.addresses().into_iter();
        let addressed = addresses.all(|addr| !needed(&addr) || is_there(&addr));
        let (trouble, done) = match care(device, addressed, mtu) {
            Care::Nothing => {
                self.trouble = None;
                return;
            }
            Care::Another => ("deleted", self.replace(shared, mtu)),
            Care::On => ("switched off", self.nat.switch_on(mtu)),
            Care::Addresses => ("taken an address from", self.nat.switch_on(mtu)),
            Care::Mtu => ("given another MTU", self.nat.switch_on(mtu)),
        };
        let again = self.trouble.replace(trouble) == Some(trouble);
        match done {
            // The paths' has changed.
            Ok(()) if trouble == "given another MTU" => {
                tracing::info!("the MTU of {name} is {mtu} bytes now");
            }
            Ok(()) => {
                self.repairs += 1;
                tracing::warn!(
                    "somebody has {trouble} the device {name} of this program: mended, connections go on"
                );
            }
            Err(_) if again => {}
            Err(e) => tracing::error!(
                "somebody has {trouble} the device {name} of this program, and that cannot be mended: {e}; start the program again"
            ),
        }
    }

    /// Makes a device in the place of one that is gone. To the stack it is the same one, so nothing ends. Without one the stack
    /// has no path.
    fn replace(&mut self, shared: &Arc<Shared>, mtu: u16) -> io::Result<()> {
        let gone = self.tasks.take();
        if let Some(tasks) = &gone {
            shared.detach(tasks.iface);
        }
        let config = |name: &str| TunConfig {
            name: name.to_owned(),
            mtu,
            offload: self.offload.checksum,
        };
        // Somebody may have taken the name.
        let mut device = tun::make(self.file.try_clone()?, &config(self.nat.device()))
            .or_else(|_| tun::make(self.file.try_clone()?, &config(NAME)))?;
        let index = device.info.iface.0;
        let name = device.info.name.clone();
        self.nat
            .replace_device(&mut self.setup, &name, index, mtu)?;
        device.info.iface = self.iface;
        self.tasks = Some(shared.attach(device));
        Ok(())
    }
}

impl Kind for TunAttachment {
    fn apply(
        &mut self,
        shared: &Arc<Shared>,
        paths: &[HostPath],
        host: &Snapshot,
    ) -> (Vec<Told>, io::Result<()>) {
        if let Some(device) = self.device.take() {
            self.tasks = Some(shared.attach(device));
            self.shared = Some(Arc::clone(shared));
        } else {
            self.look_after(shared, paths, host);
        }
        if self.tasks.is_none() {
            return (Vec::new(), Ok(()));
        }
        let iface = self.iface;
        let wanted = uplinks(paths, host);
        let is_routed = |path: &Uplink| self.nat.paths().iter().any(|p| p.path == *path);
        let routed = self.nat.paths().len() == wanted.len() && wanted.iter().all(is_routed);
        let result = if self.paths == paths && routed && !wanted.is_empty() {
            Ok(())
        } else {
            self.nat.set_paths(&mut self.setup, &wanted)
        };
        if result.is_ok() {
            self.paths = paths.to_vec();
            self.host = host.clone();
        }
        let offload = self.offload;
        // The order of the paths; translation keeps those that it knows before new ones.
        let told = paths
            .iter()
            .filter_map(|path| {
                let inside = self.nat.paths().iter().find(|p| is_of(&p.path, path))?;
                let role = path.role;
                let path = Path {
                    iface,
                    addr: inside.inside,
                    mtu: path.mtu,
                    backup: path.backup,
                    offload,
                    ports: None,
                    outside: Some(path.addr),
                };
                Some(Told { path, role })
            })
            .collect();
        (told, result)
    }

    fn repair(&mut self) -> (Vec<String>, io::Result<()>) {
        let (mut restored, tables) = self.setup.repair();
        let (routing, routes) = self.nat.repair();
        restored.extend(routing);
        self.repairs += restored.len() as u64;
        (restored, tables.and(routes))
    }

    fn repairs(&self) -> u64 {
        self.repairs
    }

    fn is_exposed(&self) -> bool {
        self.setup.is_exposed()
    }

    fn is_translated(&self) -> bool {
        true
    }

    fn shares_host(&self) -> bool {
        true
    }

    fn held(&self, at: SocketAddr) -> Option<io::Result<OwnedFd>> {
        self.holders.get(&at).map(OwnedFd::try_clone)
    }

    /// What comes by a path is translated before the kernel looks for a socket.
    fn guarded(&self, _addr: IpAddr) -> Vec<u32> {
        Vec::new()
    }

    fn claim_port(&mut self, _shared: &Arc<Shared>, addr: SocketAddr) -> io::Result<()> {
        if self.nat.listens(addr.port()) {
            return Ok(());
        }
        let on: Vec<_> = self
            .paths
            .iter()
            .filter(|p| addr.ip().is_unspecified() || p.addr == addr.ip())
            .map(|p| p.addr)
            .collect();
        for ip in on {
            let at = SocketAddr::new(ip, addr.port());
            self.holders.insert(at, hold_port(at)?);
        }
        self.nat.listen(addr.port());
        self.nat
            .set_paths(&mut self.setup, &uplinks(&self.paths, &self.host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_did_to_the_device_is_noticed() {
        let device = |mtu, up| Interface {
            index: 9,
            name: "manypath0".to_owned(),
            mac: None,
            bare: false,
            mtu,
            up,
            loopback: false,
        };
        let on = device(1500, true);
        assert_eq!(care(None, false, 1500), Care::Another);
        assert_eq!(care(Some(&device(1500, false)), false, 1500), Care::On);
        assert_eq!(care(Some(&on), false, 1500), Care::Addresses);
        assert_eq!(care(Some(&device(600, true)), true, 1500), Care::Mtu);
        assert_eq!(care(Some(&on), true, 1500), Care::Nothing);
    }
}
