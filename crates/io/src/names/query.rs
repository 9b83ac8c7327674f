//! Questions to one name server by one path.

use super::config::Config;
use super::{NameWay, lock};
use hickory_resolver::Resolver;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::iocompat::AsyncIoTokioAsStd;
use hickory_resolver::net::runtime::{
    RuntimeProvider, TokioHandle, TokioRuntimeProvider, TokioTime,
};
use hickory_resolver::proto::rr::RData;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpSocket, TcpStream, UdpSocket};

/// How long a name server has for one question.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How often a question that was not answered is put again.
const REPEATS: usize = 1;
/// How long the addresses of the other family are waited for (RFC 8305 section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Pairs of a path and a name server whose answers are kept.
const MOST_SERVERS: usize = 64;

/// Opens sockets that leave by one interface.
#[derive(Clone)]
struct Bound {
    runtime: TokioRuntimeProvider,
    way: Option<NameWay>,
}

impl Bound {
    fn local(&self, otherwise: SocketAddr) -> SocketAddr {
        let ip = self.way.as_ref().map(|way| way.local);
        SocketAddr::new(ip.unwrap_or(otherwise.ip()), otherwise.port())
    }

    fn device(&self) -> Option<&[u8]> {
        self.way.as_ref().map(|way| way.iface.as_bytes())
    }
}

type Opened<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

impl RuntimeProvider for Bound {
    type Handle = TokioHandle;
    type Timer = TokioTime;
    type Udp = UdpSocket;
    type Tcp = AsyncIoTokioAsStd<TcpStream>;

    fn create_handle(&self) -> TokioHandle {
        self.runtime.create_handle()
    }

    fn connect_tcp(
        &self,
        server: SocketAddr,
        bind: Option<SocketAddr>,
        timeout: Option<Duration>,
    ) -> Opened<Self::Tcp> {
        let this = self.clone();
        Box::pin(async move {
            let socket = match server {
                SocketAddr::V4(_) => TcpSocket::new_v4(),
                SocketAddr::V6(_) => TcpSocket::new_v6(),
            }?;
            socket.bind_device(this.device())?;
            let any = match server {
                SocketAddr::V4(_) => SocketAddr::from(([0; 4], 0)),
                SocketAddr::V6(_) => SocketAddr::from(([0; 16], 0)),
            };
            socket.bind(this.local(bind.unwrap_or(any)))?;
            let limit = timeout.unwrap_or(TIMEOUT);
            let stream = tokio::time::timeout(limit, socket.connect(server)).await??;
            stream.set_nodelay(true)?;
            Ok(AsyncIoTokioAsStd(stream))
        })
    }

    fn bind_udp(&self, local: SocketAddr, _server: SocketAddr) -> Opened<Self::Udp> {
        let this = self.clone();
        Box::pin(async move {
            let socket = UdpSocket::bind(this.local(local)).await?;
            socket.bind_device(this.device())?;
            Ok(socket)
        })
    }
}

type Key = (Option<(String, IpAddr)>, SocketAddr);

/// Resolvers that ask one server by one way, with what they know already, and the configuration that they are made for.
#[derive(Default)]
struct Known {
    generation: u64,
    resolvers: BTreeMap<Key, Arc<Resolver<Bound>>>,
}

/// The resolvers of all servers and ways.
#[derive(Default)]
pub(super) struct Servers(Mutex<Known>);

impl std::fmt::Debug for Servers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Servers")
            .field(&lock(&self.0).resolvers.len())
            .finish()
    }
}

impl Servers {
    /// The addresses of a name by one server.
    pub(super) async fn ask(
        &self,
        way: Option<NameWay>,
        server: SocketAddr,
        config: Arc<Config>,
        host: &str,
    ) -> io::Result<Vec<IpAddr>> {
        let resolver = self.resolver(way, server, &config)?;
        let v4 = async {
            let found = resolver.ipv4_lookup(host).await.map_err(of_net)?;
            Ok(addresses(found.answers().iter().map(|record| &record.data)))
        };
        let v6 = async {
            let found = resolver.ipv6_lookup(host).await.map_err(of_net)?;
            Ok(addresses(found.answers().iter().map(|record| &record.data)))
        };
        both(v6, v4).await
    }

    fn resolver(
        &self,
        way: Option<NameWay>,
        server: SocketAddr,
        config: &Config,
    ) -> io::Result<Arc<Resolver<Bound>>> {
        let key = (
            way.as_ref().map(|way| (way.iface.clone(), way.local)),
            server,
        );
        let mut guard = lock(&self.0);
        let Known {
            generation,
            resolvers: all,
        } = &mut *guard;
        if *generation != config.generation || all.len() >= MOST_SERVERS {
            all.clear();
            *generation = config.generation;
        }
        if let Some(known) = all.get(&key) {
            return Ok(Arc::clone(known));
        }
        let mut of_server = NameServerConfig::udp_and_tcp(server.ip());
        for connection in &mut of_server.connections {
            connection.port = server.port();
        }
        let servers = vec![of_server];
        let config_of_one =
            ResolverConfig::from_parts(config.domain.clone(), config.search.clone(), servers);
        let mut opts = ResolverOpts::default();
        (opts.ndots, opts.timeout, opts.attempts) = (config.ndots, TIMEOUT, REPEATS);
        // Hosts were looked at already.
        opts.use_hosts_file = ResolveHosts::Never;
        let provider = Bound {
            runtime: TokioRuntimeProvider::new(),
            way,
        };
        let resolver = Resolver::builder_with_config(config_of_one, provider)
            .with_options(opts)
            .build()
            .map_err(of_net)?;
        let resolver = Arc::new(resolver);
        all.insert(key, Arc::clone(&resolver));
        Ok(resolver)
    }
}

fn addresses<'a>(records: impl Iterator<Item = &'a RData>) -> Vec<IpAddr> {
    let address = |data: &RData| match data {
        RData::A(a) => Some(IpAddr::V4(a.0)),
        RData::AAAA(a) => Some(IpAddr::V6(a.0)),
        _ => None,
    };
    records.filter_map(address).collect()
}

fn of_net(error: NetError) -> io::Error {
    if error.is_no_records_found() || error.is_nx_domain() {
        return io::Error::new(
            io::ErrorKind::NotFound,
            "the name server knows no address of this name",
        );
    }
    match error {
        NetError::Timeout => io::Error::new(io::ErrorKind::TimedOut, "the name server is silent"),
        other => io::Error::other(other.to_string()),
    }
}

/// The addresses of both families, `first` before `second`. One that has come does not wait for the other longer than
/// [`RESOLUTION_DELAY`]; one that failed does.
async fn both(
    first: impl Future<Output = io::Result<Vec<IpAddr>>>,
    second: impl Future<Output = io::Result<Vec<IpAddr>>>,
) -> io::Result<Vec<IpAddr>> {
    let (mut first, mut second) = (pin!(first), pin!(second));
    let (mut one, mut other) = (None, None);
    let mut limit = pin!(tokio::time::sleep(Duration::MAX / 4));
    std::future::poll_fn(|cx| {
        use std::task::Poll;
        let mut news = false;
        if one.is_none()
            && let Poll::Ready(result) = first.as_mut().poll(cx)
        {
            news |= result.is_ok();
            one = Some(result);
        }
        if other.is_none()
            && let Poll::Ready(result) = second.as_mut().poll(cx)
        {
            news |= result.is_ok();
            other = Some(result);
        }
        if one.is_some() && other.is_some() {
            return Poll::Ready(());
        }
        if news {
            limit
                .as_mut()
                .reset(tokio::time::Instant::now() + RESOLUTION_DELAY);
        }
        limit.as_mut().poll(cx)
    })
    .await;
    let mut all = Vec::new();
    let mut error = None;
    for result in [one, other].into_iter().flatten() {
        match result {
            Ok(found) => all.extend(found),
            Err(e) => error = error.or(Some(e)),
        }
    }
    if all.is_empty() {
        let nothing = || io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        return Err(error.unwrap_or_else(nothing));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("a literal address")
    }

    async fn after(ms: u64, result: io::Result<Vec<IpAddr>>) -> io::Result<Vec<IpAddr>> {
        tokio::time::sleep(Duration::from_millis(ms)).await;
        result
    }

    #[tokio::test(start_paused = true)]
    async fn an_unresponsive_address_family_does_not_delay_the_other() {
        let none = || Err(io::ErrorKind::NotFound.into());
        let (six, four) = (ip("fd00::1"), ip("192.0.2.1"));
        let began = Instant::now();
        let got = both(after(60_000, none()), after(10, Ok(vec![four]))).await;
        assert_eq!(got.expect("one answered"), [four]);
        assert_eq!(began.elapsed(), Duration::from_millis(60));
        let got = both(after(40, Ok(vec![six])), after(10, Ok(vec![four]))).await;
        assert_eq!(got.expect("both answered"), [six, four]);
        let got = both(after(10, none()), after(900, Ok(vec![four]))).await;
        assert_eq!(got.expect("the other answered"), [four]);
        let got = both(after(10, none()), after(20, none())).await;
        assert_eq!(
            got.expect_err("nobody knows").kind(),
            io::ErrorKind::NotFound
        );
    }
}
