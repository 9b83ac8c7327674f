//! A TUN device behind the kernel's address translation.

use super::attach::{Desired, Kind, Told};
use crate::device::tun::{self, TunConfig};
use crate::driver::{DeviceTasks, Shared};
use crate::netlink::Snapshot;
use crate::path::{HostPath, Role};
use manypath_host::nat::{Nat, Uplink};
use manypath_host::{Setup, hold_port};
use manypath_stack::{Offload, Path};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The device's name; the kernel numbers it.
const NAME: &str = "manypath%d";

/// The device, its tasks, and the kernel's side of it.
pub(super) struct TunAttachment {
    device: Option<crate::device::Device>,
    tasks: Option<DeviceTasks>,
    offload: Offload,
    nat: Nat,
    paths: Vec<HostPath>,
    host: Snapshot,
    holders: Vec<OwnedFd>,
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
        let mut setup = Setup::new()?;
        let mtu = paths.iter().map(|p| p.mtu).max().unwrap_or(1500);
        let device = tun::open(&TunConfig {
            name: NAME.to_owned(),
            mtu,
            offload: wanted.offload,
        })?;
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
            device: Some(device),
            tasks: None,
            nat,
            paths: Vec::new(),
            host: host.clone(),
            holders: Vec::new(),
            shared: None,
            setup,
        })
    }
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
    paths
        .iter()
        .map(|path| Uplink {
            index: path.index,
            iface: path.iface.clone(),
            addr: path.addr,
            gateway: path.gateway,
            passes: path.role != Role::Stalled,
            networks: networks(path),
        })
        .collect()
}

fn is_of(uplink: &Uplink, path: &HostPath) -> bool {
    (uplink.index, uplink.addr) == (path.index, path.addr)
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
        }
        let Some(iface) = self.tasks.as_ref().map(|t| t.iface) else {
            return (Vec::new(), Ok(()));
        };
        let result = if self.paths == paths && !self.nat.paths().is_empty() {
            Ok(())
        } else {
            self.nat.set_paths(&mut self.setup, &uplinks(paths, host))
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
        (restored, tables.and(routes))
    }

    fn is_exposed(&self) -> bool {
        self.setup.is_exposed()
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
            self.holders
                .push(hold_port(SocketAddr::new(ip, addr.port()))?);
        }
        self.nat.listen(addr.port());
        self.nat
            .set_paths(&mut self.setup, &uplinks(&self.paths, &self.host))
    }
}
