//! A stack on this host, and how it is described.

use crate::target::Target;
use crate::{
    ConnectOptions, Converter, Info, IntoTarget, ListenOptions, MpListener, MpStream, info,
};
use manypath_stack::StackConfig;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

pub use manypath_io::Attach;

/// A running Multipath TCP stack: the paths of this host, and the connections over them.
///
/// Clones are the same stack. When the last clone and all streams are gone, what was written is still delivered, which may block the
/// thread for 30 s ([`HostBuilder::linger`]); then the host is put back as it was. A program that ends with
/// [`MpStream::close`] and [`Host::wait_idle`] has nothing left to wait for there. One that is to end on SIGINT or SIGTERM catches them
/// (`tokio::signal`) and lets its `Host` go: killed, it leaves its firewall rules and its reserved ports behind until the next
/// manypath process of the same user starts.
#[derive(Clone)]
pub struct Host {
    pub(crate) inner: manypath_io::Host,
    defaults: Arc<Defaults>,
}

struct Defaults {
    connect: ConnectOptions,
    listen: ListenOptions,
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").finish_non_exhaustive()
    }
}

/// A path of this host: an address of ours that subflows leave from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Path {
    /// The interface's name.
    pub interface: String,
    /// The address.
    pub addr: IpAddr,
    /// Largest IP packet, bytes.
    pub mtu: u16,
    /// To be used only when nothing better is left.
    pub backup: bool,
}

impl Host {
    /// A stack on every interface that has a default route. Must be called within a tokio runtime with `enable_all()`.
    ///
    /// # Errors
    /// Those of [`HostBuilder::build`].
    ///
    /// # Panics
    /// Outside of such a runtime.
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Starts to describe a stack.
    #[must_use]
    pub fn builder() -> HostBuilder {
        HostBuilder {
            inner: manypath_io::Host::builder(),
            config: StackConfig::default(),
            connect: ConnectOptions::new(),
            listen: ListenOptions::new(),
            bad: None,
        }
    }

    /// Connects by whichever path and address answers first, and uses the others from then on.
    ///
    /// All addresses of a name, of both families, are tried over all paths: SYNs race (RFC 8305). It takes 30 s at most
    /// ([`ConnectOptions::timeout`]).
    ///
    /// # Errors
    /// `InvalidInput` for what is no peer, `NotFound` for a name that nobody knows; `AddrNotAvailable` without a free port. As with TCP:
    /// `NetworkUnreachable` at once where no path has a route or is of the right family; `ConnectionRefused` by the peer's RST;
    /// `HostUnreachable` three seconds after the last way was said to be none, by a router or because the next hop is silent (which
    /// takes three seconds more); `TimedOut` where nothing comes.
    pub async fn connect(&self, to: impl IntoTarget) -> io::Result<MpStream> {
        self.connect_with(to, &self.defaults.connect).await
    }

    /// Connects with options of its own.
    ///
    /// # Errors
    /// Those of [`Host::connect`].
    pub async fn connect_with(
        &self,
        to: impl IntoTarget,
        options: &ConnectOptions,
    ) -> io::Result<MpStream> {
        self.open(to.target()?, options, &[]).await
    }

    /// Connects and writes `data`. With [`ConnectOptions::fast_open`], and a peer that was met before, it travels with the SYN.
    ///
    /// # Errors
    /// Those of [`Host::connect`], and of writing.
    pub async fn connect_with_data(
        &self,
        to: impl IntoTarget,
        options: &ConnectOptions,
        data: &[u8],
    ) -> io::Result<MpStream> {
        self.open(to.target()?, options, data).await
    }

    async fn open(
        &self,
        to: Target,
        options: &ConnectOptions,
        data: &[u8],
    ) -> io::Result<MpStream> {
        let opening = async {
            let remotes = match to {
                Target::At(addr) => vec![addr],
                Target::Named(name, port) => {
                    let found = self.inner.lookup(&name).await?;
                    found.into_iter().map(|ip| (ip, port).into()).collect()
                }
            };
            let connect = manypath_io::Connect::new(&self.inner).options(options.conn.clone());
            let connect = match options.local {
                Some(addr) => connect.from(addr),
                None => connect,
            };
            let (stream, taken) = match &options.via {
                Some(Converter(via)) => via.connect(&connect, &remotes, data).await?,
                None => connect.connect_any(&remotes, data).await?,
            };
            let mut stream = MpStream::new(stream, self);
            tokio::io::AsyncWriteExt::write_all(&mut stream, &data[taken..]).await?;
            Ok(stream)
        };
        let Some(limit) = options.timeout else {
            return opening.await;
        };
        tokio::time::timeout(limit, opening)
            .await
            .unwrap_or_else(|_| {
                let text = format!("no answer within {limit:?} by any path");
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            })
    }

    /// Listens on an address and port, such as `"0.0.0.0:80"`, `("10.0.0.2", 0)` or a [`SocketAddr`](std::net::SocketAddr). `0.0.0.0` stands for every path's
    /// IPv4 address, `[::]` for both families, port 0 for any free one, which [`MpListener::local_addr`] names.
    ///
    /// # Errors
    /// `InvalidInput` for what is no address, `AddrNotAvailable` for one that no path has, `AddrInUse` when somebody listens there.
    pub fn listen(&self, at: impl ToSocketAddrs) -> io::Result<MpListener> {
        self.listen_with(at, &self.defaults.listen)
    }

    /// Listens with options of its own.
    ///
    /// # Errors
    /// Those of [`Host::listen`].
    pub fn listen_with(
        &self,
        at: impl ToSocketAddrs,
        options: &ListenOptions,
    ) -> io::Result<MpListener> {
        let nothing = || io::Error::new(io::ErrorKind::InvalidInput, "no address to listen on");
        let mut last = nothing();
        for addr in at.to_socket_addrs()? {
            let (backlog, conn) = (options.backlog, options.conn.clone());
            match manypath_io::MpListener::bind_with(&self.inner, addr, backlog, conn) {
                Ok(inner) => {
                    let host = self.clone();
                    return Ok(MpListener { inner, host });
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// The addresses of a name, asked of every name server by every path.
    ///
    /// # Errors
    /// `NotFound` if nobody knows the name, `TimedOut` if nobody answers.
    pub async fn lookup(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.inner.lookup(name).await
    }

    /// The paths that there are now, the preferred one first.
    #[must_use]
    pub fn paths(&self) -> Vec<Path> {
        let paths = self.inner.paths().into_iter();
        paths
            .map(|path| Path {
                interface: self.inner.iface_name(path.iface).unwrap_or_default(),
                addr: path.addr,
                mtu: path.mtu,
                backup: path.backup,
            })
            .collect()
    }

    /// Why paths that were named, or that the host has, are not in use now, or lead nowhere (no route, a router that does not answer):
    /// one line for each.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let missing = self.inner.missing().into_iter().map(|m| m.to_string());
        let stalled = self.inner.stalled().into_iter();
        let stalled = stalled.map(|(path, why)| format!("{}: {why}", path.addr));
        let dead_ends = self.inner.dead_ends();
        missing.chain(stalled).chain(dead_ends).collect()
    }

    /// All connections at this moment.
    #[must_use]
    pub fn connections(&self) -> Vec<Info> {
        let ids = self.inner.conns().into_iter();
        ids.filter_map(|id| self.inner.conn_info(id))
            .map(|conn| info::of(&self.inner, conn))
            .collect()
    }

    /// Waits until all connections are done: those of streams that were dropped until the peer has everything, those of streams that are
    /// held until both ends have closed them. Set a limit with [`tokio::time::timeout`].
    pub async fn wait_idle(&self) {
        self.inner.wait_idle().await;
    }

    /// Waits as [`Host::wait_idle`] does, for `limit` at most, and then resets what is left.
    pub async fn close(self, limit: Duration) {
        self.inner.close(limit).await;
    }
}

/// Describes a [`Host`].
///
/// ```no_run
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let host = manypath::Host::builder()
///     .path("wlan0")
///     .path("wwan0,backup")
///     .build()?;
/// # drop(host);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct HostBuilder {
    inner: manypath_io::Builder,
    config: StackConfig,
    connect: ConnectOptions,
    listen: ListenOptions,
    bad: Option<io::Error>,
}

impl HostBuilder {
    /// Adds a path, `INTERFACE[=ADDRESS[/PREFIX]][,backup][,gateway=ADDRESS][,rate=RATE]`. Without any, every interface with a default
    /// route is one. What is wrong with the words, [`HostBuilder::build`] says. An interface or an address that this host does not
    /// have may come later: only one path has to be there at the start, and [`Host::troubles`] tells what the others lack.
    ///
    /// With a rate (`5mbit`) no more leaves by the interface.
    #[must_use]
    pub fn path(mut self, path: impl AsRef<str>) -> Self {
        match path.as_ref().parse() {
            Ok(spec) => self.inner = self.inner.path(spec),
            Err(error) => {
                let words = path.as_ref();
                let error = format!("path '{words}': {error}");
                let error = io::Error::new(io::ErrorKind::InvalidInput, error);
                self.bad.get_or_insert(error);
            }
        }
        self
    }

    /// Adds paths.
    #[must_use]
    pub fn paths(self, paths: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        paths.into_iter().fold(self, Self::path)
    }

    /// How packets get to the interfaces. By default packet sockets on Ethernets and a TUN device otherwise.
    #[must_use]
    pub fn attach(mut self, attach: Attach) -> Self {
        self.inner = self.inner.attach(attach);
        self
    }

    /// Starts although there is no path yet, and uses each when it comes.
    #[must_use]
    pub fn without_paths(mut self, allowed: bool) -> Self {
        self.inner = self.inner.without_paths(allowed);
        self
    }

    /// The most memory for the buffers of all connections, bytes; 1 GiB by default.
    #[must_use]
    pub fn memory(mut self, bytes: usize) -> Self {
        self.config.max_memory = bytes;
        self
    }

    /// The most connections at one time; 65,536 by default.
    #[must_use]
    pub fn max_connections(mut self, count: usize) -> Self {
        self.config.max_connections = count;
        self
    }

    /// How long dropping the last clone may block its thread, to deliver what was written to streams that were dropped; 30 s by default.
    #[must_use]
    pub fn linger(mut self, limit: Duration) -> Self {
        self.inner = self.inner.linger(limit);
        self
    }

    /// The options of [`Host::connect`].
    #[must_use]
    pub fn connect_options(mut self, options: ConnectOptions) -> Self {
        self.connect = options;
        self
    }

    /// The options of [`Host::listen`].
    #[must_use]
    pub fn listen_options(mut self, options: ListenOptions) -> Self {
        self.listen = options;
        self
    }

    pub(crate) fn device(
        mut self,
        device: manypath_io::device::Device,
        addresses: Vec<manypath_io::DeviceAddress>,
    ) -> Self {
        self.inner = self.inner.device(device, addresses);
        self
    }

    /// Starts the stack. Must be called within a tokio runtime, whose threads are all in one network namespace.
    ///
    /// # Errors
    /// `PermissionDenied` without `CAP_NET_RAW` and `CAP_NET_ADMIN` (root, or a user namespace that owns the interfaces); `InvalidInput`
    /// for a path that is none; `NotFound`, `NetworkDown` or `AddrNotAvailable` where no path is there, which
    /// [`HostBuilder::without_paths`] permits. The host is then as it was.
    pub fn build(self) -> io::Result<Host> {
        if let Some(error) = self.bad {
            return Err(error);
        }
        let inner = self
            .inner
            .stack_config(self.config)
            .conn_options(self.connect.conn.clone())
            .accept_options(self.listen.conn.clone());
        Ok(Host {
            inner: inner.build().map_err(say_what_it_takes)?,
            defaults: Arc::new(Defaults {
                connect: self.connect,
                listen: self.listen,
            }),
        })
    }
}

const _: () = {
    const fn in_any_thread<T: Send + Sync + 'static>() {}
    in_any_thread::<Host>();
    in_any_thread::<MpStream>();
    in_any_thread::<MpListener>();
};

/// A refusal of the system does not say by itself what would have been enough.
fn say_what_it_takes(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            format!(
                "{error}; packets take CAP_NET_RAW and CAP_NET_ADMIN: run as root, in a user namespace that owns the interfaces, or \
                 `setcap cap_net_raw,cap_net_admin+ep PROGRAM`"
            ),
        ),
        _ => error,
    }
}
