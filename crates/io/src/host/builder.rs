//! Describing a stack before it runs.

use super::attach::{Attachment, Desired};
use super::packet::{PacketAttachment, refuse_conflicts};
use super::tun::TunAttachment;
use super::{Host, Inner, follow};
use crate::device::Device;
use crate::driver::Shared;
use crate::names::Names;
use crate::netlink::{Follower, Snapshot};
use crate::path::{HostPath, Missing, PathSpec, Renames, Wanted};
use manypath_host::News;
use manypath_stack::{ConnOptions, Path, PathEvent, PathManager, StackConfig};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Connections of a listener that may be in their handshake or wait to be accepted.
const BACKLOG: usize = 4096;

/// How long the drop of the last handle delivers what was written.
const LINGER: Duration = Duration::from_secs(30);

/// The most local ports that a stack takes where it shares addresses with the host.
const LOCAL_PORTS: u16 = 8192;

/// How packets get to the host's interfaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Attach {
    /// Packet sockets where every path is an Ethernet at the start, otherwise a TUN device. With packet sockets, a link without hardware
    /// addresses (PPP, a tunnel) that comes later is served, too, without offloads.
    #[default]
    Auto,
    /// Packet sockets straight on the interfaces: fastest.
    Packet,
    /// A TUN device behind the kernel's address translation: works over any interface.
    Tun,
}

/// An address on a device that the caller brings along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAddress {
    /// The address.
    pub addr: IpAddr,
    /// Use it only when nothing better is left.
    pub backup: bool,
}

impl DeviceAddress {
    /// An ordinary address.
    #[must_use]
    pub fn new(addr: IpAddr) -> Self {
        DeviceAddress {
            addr,
            backup: false,
        }
    }
}

/// Describes a stack.
///
/// ```no_run
/// use manypath_io::Host;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let host = Host::builder()
///     .path("wlan0".parse().unwrap())
///     .path("wwan0,backup".parse().unwrap())
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Builder {
    wanted: Wanted,
    host: bool,
    devices: Vec<(Device, Vec<DeviceAddress>)>,
    attach: Attach,
    offload: bool,
    local_ports: u16,
    exposed: bool,
    patient: bool,
    stack: StackConfig,
    conn: ConnOptions,
    accept: ConnOptions,
    backlog: usize,
    seed: Option<[u8; 32]>,
    linger: Duration,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Every interface with a default route, full mesh for connections we open.
    #[must_use]
    pub fn new() -> Self {
        Builder {
            wanted: Wanted::default(),
            host: true,
            devices: Vec::new(),
            attach: Attach::Auto,
            offload: true,
            local_ports: LOCAL_PORTS,
            exposed: false,
            patient: false,
            stack: StackConfig::default(),
            conn: ConnOptions {
                path_manager: PathManager::FullMesh,
                ..ConnOptions::default()
            },
            accept: ConnOptions::default(),
            backlog: BACKLOG,
            seed: None,
            linger: LINGER,
        }
    }

    /// Adds a path; without any, every interface with a default route is one.
    #[must_use]
    pub fn path(mut self, spec: PathSpec) -> Self {
        self.wanted.specs.push(spec);
        self
    }

    /// Adds paths.
    #[must_use]
    pub fn paths(mut self, specs: impl IntoIterator<Item = PathSpec>) -> Self {
        self.wanted.specs.extend(specs);
        self
    }

    /// Wants these paths, in place of those that were wanted before.
    #[must_use]
    pub fn wanted(mut self, wanted: Wanted) -> Self {
        self.wanted = wanted;
        self
    }

    /// Brings a device along. The host's own interfaces are then left alone, unless paths are named too.
    #[must_use]
    pub fn device(mut self, device: Device, addresses: Vec<DeviceAddress>) -> Self {
        self.devices.push((device, addresses));
        self.host = false;
        self
    }

    /// How packets get to the host's interfaces.
    #[must_use]
    pub fn attach(mut self, attach: Attach) -> Self {
        self.attach = attach;
        self
    }

    /// Whether checksums and segmentation are left to the devices.
    #[must_use]
    pub fn offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// How many local ports to take at most where addresses are shared with the host: the most connections at one time from
    /// one address to one peer. It begins with few and takes more when they are needed.
    #[must_use]
    pub fn local_ports(mut self, count: u16) -> Self {
        self.local_ports = count.max(1);
        self
    }

    /// Starts without any path where there is none yet, as a service does that starts before the network: each is used when it comes.
    #[must_use]
    pub fn without_paths(mut self, allowed: bool) -> Self {
        self.patient = allowed;
        self
    }

    /// Lets every program of the host change the firewall tables of the stack, as is so on Linux before 5.12 anyway. Otherwise they
    /// belong to this process, and a reload of the host's firewall leaves them alone.
    #[must_use]
    pub fn exposed_tables(mut self, exposed: bool) -> Self {
        self.exposed = exposed;
        self
    }

    /// Limits and habits of the stack.
    #[must_use]
    pub fn stack_config(mut self, config: StackConfig) -> Self {
        self.stack = config;
        self
    }

    /// Options of connections that are opened without others.
    #[must_use]
    pub fn conn_options(mut self, options: ConnOptions) -> Self {
        self.conn = options;
        self
    }

    /// Connections of a listener that may be in their handshake or wait to be accepted, where it asks for no number of its
    /// own.
    #[must_use]
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections.max(1);
        self
    }

    /// Options of connections that are accepted without others.
    #[must_use]
    pub fn accept_options(mut self, options: ConnOptions) -> Self {
        self.accept = options;
        self
    }

    /// How long dropping the last handle may block its thread to deliver what was written to streams that are closed: 30 seconds
    /// where nothing is said, zero for not at all. It ends as soon as the peers have acknowledged everything, and after ten
    /// seconds in which they acknowledged nothing. [`MpStream::close`](crate::MpStream::close) and [`Host::delivered`] wait
    /// without blocking. Stacks that live on [memory devices](crate::device::memory) alone do not wait: the peer may be on the same
    /// thread.
    #[must_use]
    pub fn linger(mut self, limit: Duration) -> Self {
        self.linger = limit;
        self
    }

    /// Makes everything random predictable. For tests only: whoever knows the seed knows every key.
    #[must_use]
    pub fn seed(mut self, seed: [u8; 32]) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Starts the stack. Must be called within a runtime whose threads are all in the caller's network namespace. A path that
    /// was named and is not there yet is used when it comes ([`Host::missing`]), as one is that goes away and comes back.
    ///
    /// # Errors
    /// `NotFound` for an interface that does not exist, `NetworkDown` for one that is down and `AddrNotAvailable` for one without
    /// address, if no other path is there, or when none was named and there is none (but see [`Builder::without_paths`]); `AddrInUse` when no ports or networks are
    /// left, `InvalidInput` for a path on the loopback ([`LoopbackPath`]), `PermissionDenied` without the privileges that packet sockets (`CAP_NET_RAW`) or the set-up (`CAP_NET_ADMIN`) need.
    /// The host is then as it was.
    pub fn build(self) -> io::Result<Host> {
        let (shared, deadlines) = Shared::new(self.stack, self.seed)?;
        let mut tasks = vec![deadlines];
        let patient = self.patient;
        let result = if self.host || !self.wanted.specs.is_empty() {
            let wanted = Desired {
                paths: self.wanted,
                offload: self.offload,
                local_ports: self.local_ports,
                exposed: self.exposed,
            };
            attach_host(&shared, self.attach, wanted, patient, &mut tasks)
        } else {
            Ok(Arc::default())
        };
        let attachment = match result {
            Ok(attached) => attached,
            Err(e) => {
                for task in tasks {
                    task.abort();
                }
                return Err(e);
            }
        };
        for (device, addresses) in self.devices {
            bring(&shared, &attachment, device, &addresses);
        }
        Ok(Host(Arc::new(Inner {
            shared,
            conn: self.conn,
            accept: self.accept,
            backlog: self.backlog,
            attachment,
            names: Names::default(),
            tasks,
            linger: self.linger,
        })))
    }
}

fn bring(
    shared: &Arc<Shared>,
    attachment: &Mutex<Attachment>,
    device: Device,
    addresses: &[DeviceAddress],
) {
    let info = device.info.clone();
    let served = shared.attach(device);
    super::lock(attachment).brought.push(served);
    for address in addresses {
        shared.path_event(PathEvent::Up(Path {
            iface: info.iface,
            addr: address.addr,
            mtu: info.mtu,
            backup: address.backup,
            offload: info.offload,
            ports: None,
            outside: None,
        }));
    }
}

fn attach_host(
    shared: &Arc<Shared>,
    attach: Attach,
    wanted: Desired,
    patient: bool,
    tasks: &mut Vec<tokio::task::JoinHandle<()>>,
) -> io::Result<Arc<Mutex<Attachment>>> {
    let follower = Follower::new()?;
    let host = Snapshot::take()?;
    let mut renames = Renames::default();
    refuse_loopback(&renames.follow(&wanted.paths.specs, &host), &host)?;
    let (paths, missing) = wanted.paths.select(&mut renames, &host);
    if paths.is_empty() && !patient {
        let nothing = || {
            let text = "no interface has a default route; name the paths to use";
            io::Error::new(io::ErrorKind::AddrNotAvailable, text)
        };
        return Err(missing.first().map_or_else(nothing, missing_error));
    }
    let kind: Box<dyn super::attach::Kind> = if use_packet(attach, &paths)? {
        refuse_conflicts(&paths)?;
        Box::new(PacketAttachment::new(&wanted))
    } else {
        Box::new(TunAttachment::new(&wanted, &paths, &host)?)
    };
    let mut attachment = Attachment::of(kind, wanted.paths, renames);
    attachment.missing = missing;
    let attachment = Arc::new(Mutex::new(attachment));
    super::lock(&attachment).apply(shared, paths, &host)?;
    let mut news = vec![News::of_routing()?];
    if super::lock(&attachment).is_exposed() {
        news.push(News::of_rules()?);
    }
    for news in news {
        tasks.push(tokio::spawn(watch_over(Arc::clone(&attachment), news)));
    }
    let giving_back = follow::give_back(Arc::clone(shared), Arc::clone(&attachment));
    tasks.push(tokio::spawn(giving_back));
    tasks.push(tokio::spawn(follow::follow(
        Arc::clone(shared),
        Arc::clone(&attachment),
        follower,
    )));
    Ok(attachment)
}

/// Keeps what we set up on the host in place, and says when that is over.
async fn watch_over(attachment: Arc<Mutex<Attachment>>, news: News) {
    if let Err(e) = follow::keep(attachment, news).await {
        tracing::warn!("changes that others make on this host are not noticed any more: {e}");
    }
}

fn use_packet(attach: Attach, paths: &[HostPath]) -> io::Result<bool> {
    // A TUN device has offloads for links without hardware addresses, too, so it is better where it is known in time.
    let fits = |p: &&HostPath| p.mac.is_some() || p.bare && attach == Attach::Packet;
    let foreign = paths.iter().find(|p| !fits(p));
    match (attach, foreign) {
        (Attach::Tun, _) | (Attach::Auto, Some(_)) => Ok(false),
        (Attach::Auto | Attach::Packet, None) => Ok(true),
        (Attach::Packet, Some(path)) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            format!(
                "{} is of a kind that packet sockets do not serve; it needs the TUN device",
                path.iface
            ),
        )),
    }
}

/// A path was named on the loopback, by which no other host is reached: it would wait for good. This is in the error of
/// [`Builder::build`], whose kind is `InvalidInput`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopbackPath(String);

impl fmt::Display for LoopbackPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(iface) = self;
        write!(
            f,
            "{iface} is the loopback, by which no other host can be reached"
        )
    }
}

impl std::error::Error for LoopbackPath {}

fn refuse_loopback(specs: &[PathSpec], host: &Snapshot) -> io::Result<()> {
    let looped = |spec: &&PathSpec| host.interface(&spec.iface).is_some_and(|i| i.loopback);
    match specs.iter().find(looped) {
        Some(spec) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            LoopbackPath(spec.iface.clone()),
        )),
        None => Ok(()),
    }
}

fn missing_error(missing: &Missing) -> io::Error {
    let kind = match missing {
        Missing::Interface(_) => io::ErrorKind::NotFound,
        Missing::Down(_) => io::ErrorKind::NetworkDown,
        Missing::Address(_) | Missing::Mtu(_) => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, missing.to_string())
}
