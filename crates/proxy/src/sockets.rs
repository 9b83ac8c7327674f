//! Opens streams and listeners of any kind.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;
use std::time::Duration;

use manypath_io::netlink::{Follower, index_of};
use manypath_io::{Connect, Host, LocalListener, MpListener};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::Error;
use crate::converter::Converter;
use crate::endpoint::{Endpoint, Proto};
use crate::host;
use crate::limits::Limiter;
use crate::reach::Reach;
use crate::stream::{Listener, Stream};

/// Our stack was to listen on an address that no path ever has: it would wait for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPathsAddress {
    /// Only this host reaches it.
    Loopback,
    /// Subflows from other links could not be told from it (RFC 4291 section 2.5.6), and nobody beyond its link reaches it.
    LinkLocal,
}

impl NoPathsAddress {
    fn of(addr: IpAddr) -> Option<Self> {
        match addr.to_canonical() {
            addr if addr.is_loopback() => Some(Self::Loopback),
            IpAddr::V6(addr) if addr.is_unicast_link_local() => Some(Self::LinkLocal),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }
}

impl fmt::Display for NoPathsAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "what comes by a path is never for a loopback address",
            Self::LinkLocal => "paths have no link-local addresses",
        })
    }
}

impl std::error::Error for NoPathsAddress {}

/// How sockets are opened, and with what.
#[derive(Clone, Debug)]
pub struct Sockets {
    /// How long to wait for a peer to answer, over all of its addresses.
    pub connect_timeout: Duration,
    /// Congestion control of the host's sockets; `None` takes the host's default.
    pub host_congestion: Option<String>,
    /// Asks peers that have been silent for so long whether they are there ([`Stream::set_keepalive`]); `None`: never.
    pub keepalive: Option<Duration>,
    /// Our stack, for [`Proto::Mptcp`].
    pub stack: Option<Host>,
    /// The converter that connections of our stack go through.
    pub via: Option<Converter>,
    /// Names and addresses as the host reaches them.
    pub reach: Arc<Reach>,
    /// The limits of what is sent.
    pub limiter: Limiter,
}

impl Default for Sockets {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(30),
            host_congestion: None,
            keepalive: None,
            stack: None,
            via: None,
            reach: Arc::default(),
            limiter: Limiter::default(),
        }
    }
}

impl Sockets {
    /// Listens. A listener of our stack has sockets of the host's kernel beside it for those who are not reached by a path
    /// ([`LocalListener`]), but none where `backend` is: that one may begin to listen later.
    ///
    /// # Errors
    /// The address is not ours or in use, or privileges are missing; `InvalidInput` with [`NoPathsAddress`].
    pub async fn listen(
        &self,
        endpoint: &Endpoint,
        backend: Option<&Endpoint>,
    ) -> Result<Listener, Error> {
        let taken = backend.map_or(Vec::new(), |backend| taken_by(backend, endpoint.at.port()));
        let what = || format!("listen on {endpoint}");
        let addrs = self.resolve(endpoint).await?;
        let never = addrs.iter().map(|addr| NoPathsAddress::of(addr.ip()));
        let never: Option<Vec<NoPathsAddress>> = never.collect();
        if endpoint.proto == Proto::Mptcp
            && let Some(&[why, ..]) = never.as_deref()
        {
            let error = io::Error::new(io::ErrorKind::InvalidInput, why);
            return Err(Error::new(what(), error));
        }
        let mut last = None;
        for addr in addrs {
            match self.listen_one(endpoint.proto, addr, &taken).await {
                Ok(listener) => return Ok(listener),
                Err(error) => last = Some(error),
            }
        }
        // `resolve` gives one address at least, so an error was kept.
        Err(Error::new(
            what(),
            last.unwrap_or_else(|| io::ErrorKind::NotFound.into()),
        ))
    }

    /// Listens as [`Sockets::listen`] does; an address that the host does not have yet is waited for, which the log says.
    ///
    /// # Errors
    /// The address is in use, or privileges are missing; `InvalidInput` with [`NoPathsAddress`].
    pub async fn listen_in_time(
        &self,
        endpoint: &Endpoint,
        backend: Option<&Endpoint>,
    ) -> Result<Listener, Error> {
        let ours = self
            .stack
            .as_ref()
            .filter(|_| endpoint.proto == Proto::Mptcp);
        let mut waits = false;
        // Changes from here on: none falls between the attempt and the wait.
        let mut changes = match ours {
            Some(stack) => Changes::OfPaths(stack.host_changes()),
            None => Changes::OfHost(Follower::new().map_err(|e| following(endpoint, e))?),
        };
        loop {
            match self.listen(endpoint, backend).await {
                Err(error) if error.source.kind() == io::ErrorKind::AddrNotAvailable => {
                    if ours.is_some_and(Host::is_translated) {
                        return Err(error);
                    }
                    if !std::mem::replace(&mut waits, true) {
                        tracing::warn!(
                            "no {} has the address of {endpoint} yet: connections are taken as soon as one has it",
                            if ours.is_some() { "path" } else { "interface" }
                        );
                    }
                }
                result => return result,
            }
            changes.next().await.map_err(|e| following(endpoint, e))?;
        }
    }

    async fn listen_one(
        &self,
        proto: Proto,
        addr: SocketAddr,
        taken: &[IpAddr],
    ) -> io::Result<Listener> {
        let congestion = self.host_congestion.as_deref();
        match proto {
            Proto::Tcp => Ok(Listener::Host(host::listen(addr, false, congestion)?)),
            Proto::KernelMptcp => Ok(Listener::Host(host::listen(addr, true, congestion)?)),
            Proto::Mptcp => {
                let stack = self.stack()?;
                let paths = MpListener::bind(stack, addr)?;
                let local = LocalListener::beside(stack, addr, taken).map(Box::new);
                let paths = Box::new(paths);
                Ok(Listener::Ours { paths, local })
            }
        }
    }

    fn stack(&self) -> io::Result<&Host> {
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "our stack is not set up");
        self.stack.as_ref().ok_or_else(missing)
    }

    /// Connects to the first address of the endpoint that answers.
    ///
    /// # Errors
    /// None of them did, or not in time.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Stream, Error> {
        self.connect_with(endpoint, &[]).await
    }

    /// First bytes that are known before the connection is opened can go along with its SYN.
    pub fn opens_fast(&self, proto: Proto) -> bool {
        let ours = self.stack.as_ref().filter(|_| proto == Proto::Mptcp);
        ours.is_some_and(|stack| self.via.is_some() || stack.conn_options().fast_open)
    }

    /// Connects as [`Sockets::connect`] does, and writes the stream's first bytes: with TCP Fast Open along with the SYN,
    /// otherwise as soon as the connection is open.
    ///
    /// # Errors
    /// None of the addresses answered, or not in time.
    pub async fn connect_with(&self, endpoint: &Endpoint, early: &[u8]) -> Result<Stream, Error> {
        let what = || format!("connect to {endpoint}");
        let attempt = async {
            let addrs = self.resolve(endpoint).await?;
            let opened = self.open(endpoint.proto, &addrs, early, None).await;
            opened.map_err(|error| Error::new(what(), error))
        };
        match tokio::time::timeout(self.connect_timeout, attempt).await {
            Ok(result) => result,
            Err(_) => {
                let text = format!("no answer within {} s", self.connect_timeout.as_secs_f32());
                Err(Error::new(
                    what(),
                    io::Error::new(io::ErrorKind::TimedOut, text),
                ))
            }
        }
    }

    /// All addresses of an endpoint in the order of preference; at least one. Names are asked for as the endpoint is reached: by every
    /// path of our stack, or as the host's routes have it.
    async fn resolve(&self, endpoint: &Endpoint) -> Result<Vec<SocketAddr>, Error> {
        let (host, port) = (endpoint.at.host(), endpoint.at.port());
        if let Some((addr, zone)) = endpoint.at.zoned() {
            let link = link(zone).map_err(|e| Error::new(format!("find '{host}'"), e))?;
            return Ok(vec![SocketAddrV6::new(addr, port, 0, link).into()]);
        }
        let found = self.lookup(endpoint.proto, host).await;
        let found = found.map_err(|e| Error::new(format!("find the address of '{host}'"), e))?;
        Ok(found
            .into_iter()
            .map(|addr| SocketAddr::new(addr, port))
            .collect())
    }

    /// The addresses of a host: names are asked for by every path of our stack, or as the host's routes have it.
    pub(crate) async fn lookup(&self, proto: Proto, host: &str) -> io::Result<Vec<IpAddr>> {
        match self.stack.as_ref().filter(|_| proto == Proto::Mptcp) {
            Some(stack) => stack.lookup(host).await,
            None => self.reach.names.lookup(&[], host).await,
        }
    }

    /// The first address that a converter's name has now.
    async fn converter_address(&self, converter: &Converter) -> io::Result<SocketAddr> {
        let endpoint = Endpoint {
            proto: Proto::Mptcp,
            at: converter.at().clone(),
        };
        let found = self.resolve(&endpoint).await;
        let found = found.map_err(|error| io::Error::new(io::ErrorKind::NetworkDown, error))?;
        found
            .first()
            .copied()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Asks these name servers in place of those of the host; without any, those of the host.
    pub fn use_name_servers(&self, servers: &[SocketAddr]) {
        if let Some(stack) = &self.stack {
            stack.use_name_servers(servers.to_vec());
        }
        self.reach.names.use_servers(servers.to_vec());
    }

    /// Connects to the first of some addresses that answers, and writes the stream's first bytes. The host's TCP can connect `from` an
    /// address that is none of this host.
    pub(crate) async fn open(
        &self,
        proto: Proto,
        addrs: &[SocketAddr],
        early: &[u8],
        from: Option<IpAddr>,
    ) -> io::Result<Stream> {
        let congestion = self.host_congestion.as_deref();
        let host = |multipath| {
            let connect = move |addr| host::connect(addr, multipath, congestion, from);
            self.reach.connect(addrs, connect)
        };
        let (mut stream, written) = match proto {
            Proto::Tcp => (Stream::from(host(false).await?), 0),
            Proto::KernelMptcp => (Stream::from(host(true).await?), 0),
            Proto::Mptcp => {
                let connect = Connect::new(self.stack()?);
                let (stream, written) = match &self.via {
                    Some(converter) => {
                        let via = converter.by(self.converter_address(converter).await?);
                        let via = via.limits(self.limiter.down_by_address(self.stack()?));
                        via.connect(&connect, addrs, early).await?
                    }
                    None => connect.connect_any(addrs, early).await?,
                };
                (Stream::Ours(stream), written)
            }
        };
        if let Some(idle) = self.keepalive {
            stream.set_keepalive(idle)?;
        }
        stream.write_all(&early[written..]).await?;
        Ok(stream)
    }
}

/// What may make a listener possible that is not yet.
enum Changes {
    OfPaths(watch::Receiver<()>),
    OfHost(Follower),
}

impl Changes {
    async fn next(&mut self) -> io::Result<()> {
        match self {
            Self::OfPaths(changes) => changes.changed().await.map_err(io::Error::other),
            Self::OfHost(changes) => changes.changed().await,
        }
    }
}

fn following(endpoint: &Endpoint, source: io::Error) -> Error {
    Error::new(format!("wait for the address of {endpoint}"), source)
}

/// The interface that a zone means (RFC 4007 section 11).
fn link(zone: &str) -> io::Result<u32> {
    match zone.parse() {
        Ok(number) => Ok(number),
        Err(_) => index_of(zone)
            .map_err(|e| io::Error::new(io::ErrorKind::AddrNotAvailable, e.to_string())),
    }
}

/// The addresses of this host on which a backend takes the port, as far as they are known without asking anybody.
fn taken_by(backend: &Endpoint, port: u16) -> Vec<IpAddr> {
    if backend.at.port() != port || backend.proto == Proto::Mptcp {
        return Vec::new();
    }
    match backend.at.host().parse() {
        Ok(addr) => vec![addr],
        Err(_) => vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_backend_keeps_its_port() {
        let taken = |text: &str| taken_by(&text.parse().expect("an endpoint"), 80);
        let ip = |text: &str| -> IpAddr { text.parse().expect("a literal") };
        assert_eq!(taken("tcp:127.0.0.1:80"), [ip("127.0.0.1")]);
        assert_eq!(taken("tcp:localhost:80"), [ip("127.0.0.1"), ip("::1")]);
        assert!(taken("tcp:127.0.0.1:81").is_empty());
        assert!(taken("mptcp:192.0.2.1:80").is_empty());
    }
}
