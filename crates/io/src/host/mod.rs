//! A stack on this host: its devices, its paths, and what it changed to get them.

mod attach;
mod builder;
mod follow;
mod limits;
mod news;
mod packet;
mod tun;

use crate::device::{DeviceCounters, DeviceInfo};
use crate::driver::{Shared, Traffic};
use crate::names::{NameWay, Names};
use crate::netlink::Snapshot;
use crate::path::{Missing, Wanted};
use attach::Attachment;
pub use builder::{Attach, Builder, DeviceAddress, LoopbackPath};
use manypath_stack::ids::ConnId;
use manypath_stack::pm::Decision;
use manypath_stack::stats::Counters;
use manypath_stack::{Command, ConnInfo, ConnOptions, Done, Event, IfaceId, Path, StackError};
use manypath_tcp::time::Instant;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;

/// A running stack. Clones are the same stack; when the last one and all sockets are gone, what was written is delivered
/// ([`Builder::linger`] says how long that may take), the devices are closed and the host is put back as it was.
#[derive(Clone)]
pub struct Host(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    conn: ConnOptions,
    accept: ConnOptions,
    backlog: usize,
    attachment: Arc<Mutex<Attachment>>,
    names: Names,
    tasks: Vec<JoinHandle<()>>,
    linger: Duration,
}

/// How long [`Host::close`] waits between two looks.
const LOOK: Duration = Duration::from_millis(5);

fn lock(attachment: &Mutex<Attachment>) -> MutexGuard<'_, Attachment> {
    // A panic in the middle of a change leaves a list that the next change compares with the host again.
    attachment.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

impl Host {
    /// Starts to describe a stack.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Two stacks in this process, joined by a cable in memory: the first has 10.0.0.1 and fd00::1, the second 10.0.0.2 and
    /// fd00::2. For tests and examples. Must be called within a runtime.
    ///
    /// # Errors
    /// Those of [`Builder::build`].
    pub fn memory_pair() -> io::Result<(Host, Host)> {
        let (a, b) = crate::device::memory::pair(crate::device::memory::MemoryConfig::default());
        let v6 = |n: u16| std::net::Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n);
        let end = |device, number: u8| {
            let addresses = vec![
                DeviceAddress::new(std::net::Ipv4Addr::new(10, 0, 0, number).into()),
                DeviceAddress::new(v6(u16::from(number)).into()),
            ];
            Host::builder().device(device, addresses).build()
        };
        Ok((end(a, 1)?, end(b, 2)?))
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The options of connections that are opened without others.
    #[must_use]
    pub fn conn_options(&self) -> &ConnOptions {
        &self.0.conn
    }

    /// Connections of a listener that may be in their handshake or wait to be accepted.
    pub(crate) fn backlog(&self) -> usize {
        self.0.backlog
    }

    /// The options of connections that are accepted without others.
    #[must_use]
    pub fn accept_options(&self) -> &ConnOptions {
        &self.0.accept
    }

    /// Whether an address is one of ours, be it listened on only or without a link at present.
    pub(crate) fn has_address(&self, addr: std::net::IpAddr) -> bool {
        self.0.shared.session().inner().stack.is_ours(addr)
    }

    /// The local addresses that subflows are opened from.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let mut session = self.0.shared.session();
        session.inner().stack.paths().to_vec()
    }

    /// Whether the host has any path now, be it one that nothing passes at present.
    #[must_use]
    pub fn has_paths(&self) -> bool {
        !lock(&self.0.attachment).host_paths().is_empty()
    }

    /// Wants other paths from now on: subflows of those that are wanted no more end, and peers are told of what has become a backup or is none
    /// any more. Without effect where the caller brought all devices along.
    ///
    /// # Errors
    /// Not all of them can be had now; that is tried again when something changes on the host.
    pub fn want_paths(&self, wanted: Wanted) -> io::Result<()> {
        lock(&self.0.attachment).want(&self.0.shared, wanted)
    }

    /// The paths that were named and are not there now, but for those that only are [stalled](Host::stalled).
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        lock(&self.0.attachment).missing()
    }

    /// The paths that nothing passes at present, with the reason: the host has their addresses still.
    #[must_use]
    pub fn stalled(&self) -> Vec<(Path, String)> {
        lock(&self.0.attachment).stalled()
    }

    /// Why paths that can be used lead nowhere, or not far: no route to other networks, a router that does not answer.
    #[must_use]
    pub fn dead_ends(&self) -> Vec<String> {
        let unrouted = lock(&self.0.attachment).unrouted();
        let silent = self.0.shared.silent_gateways().into_iter();
        let silent = silent.map(|(iface, gateway)| {
            format!("{iface}: its router {gateway} does not answer (no ARP or neighbour discovery)")
        });
        unrouted.into_iter().chain(silent).collect()
    }

    /// What the stack decided how often.
    #[must_use]
    pub fn counters(&self) -> Counters {
        *self.0.shared.session().inner().stack.counters()
    }

    /// The devices, and what they did.
    #[must_use]
    pub fn devices(&self) -> Vec<(DeviceInfo, DeviceCounters)> {
        self.0.shared.devices()
    }

    /// What each interface has carried since the start, by its name. Behind a TUN device it is all under the name of that.
    #[must_use]
    pub fn traffic(&self) -> BTreeMap<String, Traffic> {
        self.0.shared.traffic()
    }

    /// All connections, whatever their state.
    #[must_use]
    pub fn conns(&self) -> Vec<ConnId> {
        self.0.shared.session().inner().stack.conns()
    }

    /// Everything there is to know about one of them; `None` if it is gone.
    #[must_use]
    pub fn conn_info(&self, id: ConnId) -> Option<ConnInfo> {
        self.0.shared.session().inner().stack.info(id).ok()
    }

    /// The path manager's decisions for a connection, oldest first; `None` if it is gone.
    #[must_use]
    pub fn decisions(&self, id: ConnId) -> Option<Vec<Decision>> {
        self.0.shared.session().inner().stack.decisions(id).ok()
    }

    /// Carries out a command for a connection, on behalf of a controller in another process for instance.
    ///
    /// # Errors
    /// Those of [`Stack::command`](manypath_stack::Stack::command).
    pub fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError> {
        let shared = &self.0.shared;
        shared.act(|stack, now| stack.command(now, id, command))
    }

    /// The memory that buffers of connections use, and the most that they may, bytes.
    #[must_use]
    pub fn memory(&self) -> (usize, usize) {
        let mut session = self.0.shared.session();
        let stack = &mut session.inner().stack;
        (stack.memory().total(), stack.memory_limit())
    }

    /// The time by which the stack goes: that of all instants in what it says of itself.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.0.shared.session().now()
    }

    /// The name of an interface that has a device.
    #[must_use]
    pub fn iface_name(&self, iface: IfaceId) -> Option<String> {
        let mut session = self.0.shared.session();
        session.inner().iface_name(iface).map(str::to_owned)
    }

    /// All events of all connections from now on. A subscriber that is too slow loses the oldest.
    #[must_use]
    pub fn events(&self) -> broadcast::Receiver<Event> {
        self.0.shared.subscribe()
    }

    /// The events that concern controllers of paths, from now on: those with a [name](manypath_stack::EventKind::name). The
    /// number counts events that a receiver was too slow for; more than a hundred thousand have to wait before that.
    #[must_use]
    pub fn path_events(&self) -> (mpsc::Receiver<Event>, Arc<AtomicU64>) {
        self.0.shared.watch()
    }

    /// Takes more local ports where addresses are shared with the host; false when there are no more.
    pub(crate) fn grow_ports(&self) -> bool {
        lock(&self.0.attachment).grow_ports(&self.0.shared)
    }

    /// The addresses of a name: every name server is asked by every path until one knows them ([`Names`]).
    ///
    /// # Errors
    /// `NotFound` if nobody knows the name, `TimedOut` if nobody answers; those of the host's resolver, which is asked last.
    pub async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let ways: Vec<NameWay> = lock(&self.0.attachment)
            .host_paths()
            .iter()
            .filter(|path| !path.owned && path.role == crate::path::Role::Opens)
            .map(|path| NameWay {
                iface: path.iface.clone(),
                local: path.addr,
                backup: path.backup,
            })
            .collect();
        self.0.names.lookup(&ways, host).await
    }

    /// Which name servers are asked ([`Names::use_servers`]).
    pub fn use_name_servers(&self, servers: Vec<SocketAddr>) {
        self.0.names.use_servers(servers);
    }

    /// Finds the routers between addresses of ours and of peers. Answers the pairs between which no route leads.
    pub(crate) fn find_ways(&self, pairs: &[(IpAddr, IpAddr)]) -> Vec<(IpAddr, IpAddr)> {
        lock(&self.0.attachment).find_ways(&self.0.shared, pairs)
    }

    /// How often something was put back that somebody took away or changed of what was set up on the host: firewall rules, routes and
    /// the rules that choose among them, settings, a TUN device.
    #[must_use]
    pub fn repairs(&self) -> u64 {
        let attachment = lock(&self.0.attachment);
        attachment.kind().map_or(0, |kind| kind.repairs())
    }

    /// Whether programs of the host have addresses of the stack, too.
    pub(crate) fn shares_host(&self) -> bool {
        let attachment = lock(&self.0.attachment);
        attachment.kind().is_some_and(|kind| kind.shares_host())
    }

    /// Whether the stack is behind a TUN device: its addresses are not those of the host, and it listens on all of them or on none.
    #[must_use]
    pub fn is_translated(&self) -> bool {
        let attachment = lock(&self.0.attachment);
        attachment.kind().is_some_and(|kind| kind.is_translated())
    }

    /// Tells when the host's links, addresses or routes have changed.
    #[must_use]
    pub fn host_changes(&self) -> watch::Receiver<()> {
        lock(&self.0.attachment).changes.subscribe()
    }

    /// Looks at the host as the stack was told of it last.
    pub(crate) fn with_snapshot<R>(&self, f: impl FnOnce(&Snapshot) -> R) -> R {
        f(lock(&self.0.attachment).host())
    }

    /// Another descriptor of the socket that keeps a claimed port from the host's programs.
    pub(crate) fn held(&self, at: SocketAddr) -> Option<io::Result<OwnedFd>> {
        lock(&self.0.attachment).kind()?.held(at)
    }

    /// The interfaces by which the host's kernel gets nothing that is for this address and one of our ports.
    pub(crate) fn guarded_interfaces(&self, addr: IpAddr) -> Vec<u32> {
        let attachment = lock(&self.0.attachment);
        attachment
            .kind()
            .map_or(Vec::new(), |kind| kind.guarded(addr))
    }

    /// Makes a port ours where addresses are shared with the host.
    pub(crate) fn claim_port(&self, addr: SocketAddr) -> io::Result<()> {
        lock(&self.0.attachment).claim_port(&self.0.shared, addr)
    }

    /// Waits until every connection has ended, as long as something is acknowledged within `patience`: what closed streams have
    /// not delivered yet may take a slow path long.
    pub async fn delivered(&self, patience: Duration) {
        let acked = |id| {
            let info = self.conn_info(id);
            info.map_or(0, |info| info.bytes_acked)
        };
        let (mut seen, mut since) = (Vec::new(), std::time::Instant::now());
        loop {
            let now: Vec<_> = self.conns().into_iter().map(|id| (id, acked(id))).collect();
            if now.is_empty() {
                return;
            }
            if now != seen {
                (seen, since) = (now, std::time::Instant::now());
            } else if since.elapsed() >= patience {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Waits until every connection that a stream holds is over at both ends, and the peers of those that were dropped have
    /// acknowledged everything or are given up.
    pub async fn wait_idle(&self) {
        self.0.shared.wait_idle().await;
    }

    /// Waits until every connection has ended, at most for `patience`; then aborts what is left. Streams that the application
    /// still holds are not closed for it.
    pub async fn close(self, patience: Duration) {
        let start = std::time::Instant::now();
        while !self.conns().is_empty() && start.elapsed() < patience {
            tokio::time::sleep(LOOK).await;
        }
        for id in self.conns() {
            // It may have ended this moment.
            let _ = self.0.shared.act(|stack, now| stack.abort(now, id));
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.linger(self.linger);
        for task in &self.tasks {
            task.abort();
        }
        lock(&self.attachment).shut_down(&self.shared);
    }
}
