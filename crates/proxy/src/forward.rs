//! Accepts connections at one place and carries each to another.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::Error;
use crate::endpoint::Endpoint;
use crate::places::{Places, Reserved};
use crate::relay::{Terms, relay_on};
use crate::seldom::Seldom;
use crate::sockets::Sockets;
use crate::stream::{Listener, Stream};

/// Wait after an attempt that failed for lack of something: spinning would not bring it back.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a connection is waited with for the first bytes that could go along with its SYN: whoever speaks first has
/// them ready.
const EARLY_WAIT: Duration = Duration::from_millis(10);

/// At most so many of them: more than a SYN carries is no gain.
const EARLY_MOST: usize = 1500;

/// Between two lines of the log about connections that fail.
const FAILURES: Duration = Duration::from_secs(1);

/// Between two lines of the log about a limit that is reached.
const LIMITS: Duration = Duration::from_secs(10);

/// Descriptors that connections leave to everything else (the resolver, paths that come, the control socket): a quarter of the
/// limit of open files, at most so many.
const FILES_LEFT: u64 = 64;

/// What to forward, and how much of it at one time.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Where every accepted connection goes.
    pub to: Endpoint,
    /// Connections carried at one time; further ones wait in the listener's queue. Fewer where the limit of open files
    /// demands it.
    pub max_connections: usize,
    /// Connections carried for one client (an IPv4 address, a /64 of IPv6) at one time; further ones are reset. The
    /// host itself has no such limit.
    pub max_per_client: usize,
    /// Ends a connection when no byte has moved either way for so long.
    pub idle_timeout: Option<Duration>,
}

/// What a forwarder did so far.
#[derive(Debug, Default)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Of these, carried to a regular end in both directions.
    pub finished: AtomicU64,
    /// Of these, refused because the other side could not be reached.
    pub unreachable: AtomicU64,
    /// Of these, broken on the way, or ended because nothing moved.
    pub broken: AtomicU64,
    /// Of these, reset because their client had as many as one client may have.
    pub refused: AtomicU64,
    /// Bytes from those who connected to us, however their connections ended, as far as they were passed on.
    pub bytes_forth: AtomicU64,
    /// Bytes to those who connected to us, in the same way.
    pub bytes_back: AtomicU64,
}

impl Totals {
    /// Connections that are carried now.
    pub fn open(&self) -> u64 {
        let over = [
            &self.finished,
            &self.unreachable,
            &self.broken,
            &self.refused,
        ];
        let over = over.map(|count| count.load(Ordering::Relaxed));
        let accepted = self.accepted.load(Ordering::Relaxed);
        accepted.saturating_sub(over.into_iter().sum())
    }
}

/// What all connections of one forwarder share.
struct Service {
    forward: Forward,
    sockets: Sockets,
    totals: Arc<Totals>,
    places: Arc<Places>,
    most: usize,
    full: Seldom,
    client_full: Seldom,
    not_accepted: Seldom,
    not_reached: Seldom,
}

/// Forwards until `stop` completes; then the connections that are still open are reset.
pub async fn run(
    forward: Forward,
    mut listener: Listener,
    sockets: Sockets,
    totals: Arc<Totals>,
    stop: impl Future<Output = ()>,
) {
    let most = most_connections(&forward, &listener);
    let service = Arc::new(Service {
        places: Places::new(most, forward.max_per_client),
        forward,
        sockets,
        totals,
        most,
        full: Seldom::every(LIMITS),
        client_full: Seldom::every(LIMITS),
        not_accepted: Seldom::every(FAILURES),
        not_reached: Seldom::every(FAILURES),
    });
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let next = async {
            let reserved = service.reserve().await;
            (listener.accept().await, reserved)
        };
        tokio::select! {
            () = &mut stop => break,
            // A finished task has nothing to say, but it holds memory until it is taken out.
            Some(_) = tasks.join_next() => {}
            (accepted, reserved) = next => match (accepted, reserved) {
                (Ok((stream, peer)), Some(reserved)) => {
                    let service = Arc::clone(&service);
                    tasks.spawn(async move { service.admit(stream, peer, reserved).await });
                }
                (Ok((stream, _)), None) => stream.abort(),
                (Err(error), _) => {
                    if let Some(more) = service.not_accepted.due(Instant::now()) {
                        warn!(%error, "cannot accept a connection{}", Others(more));
                    }
                    if !is_of_one_connection(&error) {
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            },
        }
    }
    tasks.shutdown().await;
}

/// How many connections the limits allow. Says so where it is the limit of open files that decides: a connection that was
/// accepted and then finds no descriptor for its other half would be lost, and one that waits is not.
fn most_connections(forward: &Forward, listener: &Listener) -> usize {
    let each = u64::from(listener.takes_files()) + u64::from(forward.to.proto.takes_files());
    let most = match manypath_io::free_files() {
        Some(files) => affordable(forward.max_connections, each, files),
        None => forward.max_connections,
    };
    if most < forward.max_connections {
        warn!(
            "the limit of open files lets {most} connections be carried at one time, fewer than the {} that are allowed; \
             further ones wait; `ulimit -n` or LimitNOFILE= raises it",
            forward.max_connections
        );
    }
    most
}

/// Connections that fit into the open files that are left, when each takes so many; one at least.
fn affordable(wanted: usize, each: u64, files: manypath_io::Files) -> usize {
    let spare = FILES_LEFT.min(files.most / 4);
    let fit = files.free.saturating_sub(spare).checked_div(each);
    let fit = fit.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    wanted.min(fit).max(1)
}

/// Whether an error of `accept` concerns only the connection that was next.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}

/// Whether an error says that the process, or the host, has no descriptor left.
fn is_out_of_files(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Lines that were held back, at the end of the next one.
struct Others(u64);

impl std::fmt::Display for Others {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " (and {n} times more since the last such line)"),
        }
    }
}

impl Service {
    /// Waits for a place, and says so if it has to.
    async fn reserve(&self) -> Option<Reserved> {
        if let Some(reserved) = self.places.try_reserve() {
            return Some(reserved);
        }
        if self.full.due(Instant::now()).is_some() {
            let why = match self.most < self.forward.max_connections {
                true => "the limit of open files",
                false => "--max-connections",
            };
            warn!(
                "{} connections are carried, as many as may be ({why}); further ones wait",
                self.most
            );
        }
        self.places.reserve().await
    }

    /// Carries a connection, if its client may have one more.
    async fn admit(&self, stream: Stream, peer: SocketAddr, reserved: Reserved) {
        self.totals.accepted.fetch_add(1, Ordering::Relaxed);
        let client = Some(peer).filter(|_| !stream.is_from_this_host());
        let Some(place) = self.places.give(reserved, client) else {
            self.totals.refused.fetch_add(1, Ordering::Relaxed);
            if let Some(more) = self.client_full.due(Instant::now()) {
                warn!(
                    client = %peer.ip(),
                    "a client has {} connections, as many as one may have (--max-per-client); further ones are reset{}",
                    self.forward.max_per_client,
                    Others(more)
                );
            }
            stream.abort();
            return;
        };
        self.carry(stream, peer).await;
        drop(place);
    }

    async fn carry(&self, mut stream: Stream, peer: SocketAddr) {
        let started = Instant::now();
        let (forward, totals) = (&self.forward, &self.totals);
        if let Some(keepalive) = self.sockets.keepalive {
            // A stream that is broken already says so at the first read.
            let _ = stream.set_keepalive(keepalive);
        }
        let early = if self.sockets.opens_fast(forward.to.proto) {
            first_bytes(&mut stream).await
        } else {
            Ok(Vec::new())
        };
        let early = match early {
            Ok(early) => early,
            Err(error) => {
                totals.broken.fetch_add(1, Ordering::Relaxed);
                info!(%peer, %error, "broken");
                stream.abort();
                return;
            }
        };
        let far = match self.reach(&early).await {
            Ok(far) => far,
            Err(Error { what, source }) => {
                totals.unreachable.fetch_add(1, Ordering::Relaxed);
                if let Some(more) = self.not_reached.due(Instant::now()) {
                    warn!(%peer, error = %source, "cannot {what}{}", Others(more));
                }
                stream.abort();
                return;
            }
        };
        debug!(%peer, to = %forward.to, "carrying");
        let early = early.len() as u64;
        totals.bytes_forth.fetch_add(early, Ordering::Relaxed);
        let terms = Terms {
            forth: &totals.bytes_forth,
            back: &totals.bytes_back,
            idle: forward.idle_timeout,
        };
        match relay_on(stream, far, terms).await {
            Ok(carried) => {
                totals.finished.fetch_add(1, Ordering::Relaxed);
                info!(
                    %peer,
                    forth = carried.forth + early,
                    back = carried.back,
                    seconds = started.elapsed().as_secs_f64(),
                    "carried to the end"
                );
            }
            Err(error) => {
                totals.broken.fetch_add(1, Ordering::Relaxed);
                info!(%peer, %error, "broken");
            }
        }
    }

    /// Connects to the other side. Without a descriptor it waits for one, as long as it would for an answer.
    async fn reach(&self, early: &[u8]) -> Result<Stream, Error> {
        let started = Instant::now();
        loop {
            match self.sockets.connect_with(&self.forward.to, early).await {
                Err(error)
                    if is_out_of_files(&error.source)
                        && started.elapsed() < self.sockets.connect_timeout =>
                {
                    if let Some(more) = self.not_reached.due(Instant::now()) {
                        warn!(error = %error.source, "cannot {} yet{}", error.what, Others(more));
                    }
                    tokio::time::sleep(PAUSE).await;
                }
                result => return result,
            }
        }
    }
}

/// What a client says before it hears anything, if it says it at once. An end shows again when the relay reads; an error of the
/// host's socket would not, and the next read would take it for an end.
async fn first_bytes(stream: &mut Stream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; EARLY_MOST];
    let read = tokio::time::timeout(EARLY_WAIT, stream.read(&mut bytes)).await;
    bytes.truncate(read.unwrap_or(Ok(0))?);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::oneshot;

    async fn start(
        to: &str,
    ) -> (
        SocketAddr,
        Arc<Totals>,
        oneshot::Sender<()>,
        tokio::task::JoinHandle<()>,
    ) {
        let sockets = Sockets::default();
        let listener = sockets
            .listen(&"tcp:127.0.0.1:0".parse().expect("endpoint"), None)
            .await
            .expect("loopback");
        let addr = listener.local_addr().expect("bound");
        let totals = Arc::new(Totals::default());
        let (stop, stopped) = oneshot::channel();
        let forward = Forward {
            to: to.parse().expect("endpoint"),
            max_connections: 2,
            max_per_client: 1,
            idle_timeout: None,
        };
        let wait = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(run(forward, listener, sockets, totals.clone(), wait));
        (addr, totals, stop, task)
    }

    #[test]
    fn connections_leave_descriptors_to_the_others() {
        let fits = |each, most, free| affordable(10_000, each, manypath_io::Files { most, free });
        assert_eq!(fits(1, 64, 50), 34);
        assert_eq!(fits(2, 64, 50), 17);
        assert_eq!(fits(2, 1 << 20, 1 << 20), 10_000);
        assert_eq!(fits(0, 64, 3), 10_000, "ours takes none");
        assert_eq!(fits(2, 16, 3), 1);
    }

    #[tokio::test]
    async fn a_backend_on_localhost_has_either_family() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(target) = TcpListener::bind(at).await else {
                eprintln!("skipped: this host has no {at}");
                continue;
            };
            let port = target.local_addr().expect("bound").port();
            let (addr, _totals, stop, task) = start(&format!("tcp:localhost:{port}")).await;
            let mut client = TcpStream::connect(addr).await.expect("connected");
            client.write_all(b"abc").await.expect("written");
            let (mut served, _) = target.accept().await.expect("accepted");
            served.read_exact(&mut [0; 3]).await.expect("read");
            stop.send(()).expect("it runs");
            task.await.expect("it ends");
        }
    }

    #[tokio::test]
    async fn what_broken_connections_carried_counts_too() {
        let target = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let to = format!("tcp:{}", target.local_addr().expect("bound"));
        let (addr, totals, stop, task) = start(&to).await;
        let mut client = TcpStream::connect(addr).await.expect("connected");
        client.write_all(b"abc").await.expect("written");
        let (mut served, _) = target.accept().await.expect("accepted");
        served.read_exact(&mut [0; 3]).await.expect("read");
        served.write_all(b"vwxyz").await.expect("written");
        client.read_exact(&mut [0; 5]).await.expect("read");
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        assert_eq!(
            (
                totals.open(),
                get(&totals.bytes_forth),
                get(&totals.bytes_back)
            ),
            (1, 3, 5)
        );
        socket2::SockRef::from(&served)
            .set_linger(Some(Duration::ZERO))
            .expect("open");
        drop(served);
        client.read(&mut [0; 1]).await.expect_err("reset");
        assert_eq!((totals.open(), get(&totals.broken)), (0, 1));
        assert_eq!((get(&totals.bytes_forth), get(&totals.bytes_back)), (3, 5));
        stop.send(()).expect("running");
        task.await.expect("no panic");
    }

    #[tokio::test]
    async fn connections_are_carried_and_counted() {
        let target = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let to = format!("tcp:{}", target.local_addr().expect("bound"));
        let (addr, totals, stop, task) = start(&to).await;
        for _ in 0..3 {
            let mut client = TcpStream::connect(addr).await.expect("connected");
            client.write_all(b"ab").await.expect("written");
            client.shutdown().await.expect("half-closed");
            let (mut served, _) = target.accept().await.expect("accepted");
            let mut text = Vec::new();
            served.read_to_end(&mut text).await.expect("read");
            served.write_all(b"xyz").await.expect("written");
            drop(served);
            client.read_to_end(&mut text).await.expect("read");
            assert_eq!(text, b"abxyz");
        }
        stop.send(()).expect("running");
        task.await.expect("no panic");
        assert_eq!(totals.accepted.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn an_unreachable_target_resets_the_client() {
        // A port that was ours a moment ago: nobody listens there.
        let gone = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback")
            .local_addr()
            .expect("bound");
        let (addr, totals, stop, task) = start(&format!("tcp:{gone}")).await;
        let mut client = TcpStream::connect(addr).await.expect("connected");
        let mut rest = Vec::new();
        let error = client
            .read_to_end(&mut rest)
            .await
            .expect_err("no regular end");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        stop.send(()).expect("running");
        task.await.expect("no panic");
        assert_eq!(totals.unreachable.load(Ordering::Relaxed), 1);
    }
}
