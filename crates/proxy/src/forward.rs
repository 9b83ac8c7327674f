//! Accepts connections at one place and carries each to another.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::Error;
use crate::endpoint::Endpoint;
use crate::relay::relay;
use crate::sockets::Sockets;
use crate::stream::{Listener, Stream};

/// Wait after an accept that failed for lack of something: spinning would not bring it back.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection is waited with for the first bytes that could go along with its SYN: whoever speaks first has
/// them ready.
const EARLY_WAIT: Duration = Duration::from_millis(10);

/// At most so many of them: more than a SYN carries is no gain.
const EARLY_MOST: usize = 1500;

/// What to forward, and how much of it at one time.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Where every accepted connection goes.
    pub to: Endpoint,
    /// Connections carried at one time; further ones wait in the listener's queue.
    pub max_connections: usize,
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
    /// Of these, broken on the way.
    pub broken: AtomicU64,
    /// Bytes from those who connected to us.
    pub bytes_forth: AtomicU64,
    /// Bytes to those who connected to us.
    pub bytes_back: AtomicU64,
}

/// Forwards until `stop` completes; then the connections that are still open are reset.
pub async fn run(
    forward: Forward,
    mut listener: Listener,
    sockets: Sockets,
    totals: Arc<Totals>,
    stop: impl Future<Output = ()>,
) {
    let forward = Arc::new(forward);
    let sockets = Arc::new(sockets);
    let places = Arc::new(Semaphore::new(forward.max_connections));
    let mut tasks = JoinSet::new();
    tokio::pin!(stop);
    loop {
        let next = async {
            // The semaphore is never closed.
            let place = Arc::clone(&places).acquire_owned().await.ok();
            (listener.accept().await, place)
        };
        tokio::select! {
            () = &mut stop => break,
            // A finished task has nothing to say, but it holds memory until it is taken out.
            Some(_) = tasks.join_next() => {}
            (accepted, place) = next => match accepted {
                Ok((stream, peer)) => {
                    totals.accepted.fetch_add(1, Ordering::Relaxed);
                    let (forward, sockets, totals) = (forward.clone(), sockets.clone(), totals.clone());
                    tasks.spawn(async move {
                        carry(stream, peer, &forward, &sockets, &totals).await;
                        drop(place);
                    });
                }
                Err(error) => {
                    warn!(%error, "cannot accept a connection");
                    if !is_of_one_connection(&error) {
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            },
        }
    }
    tasks.shutdown().await;
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

async fn carry(
    mut stream: Stream,
    peer: SocketAddr,
    forward: &Forward,
    sockets: &Sockets,
    totals: &Totals,
) {
    let started = Instant::now();
    let early = if sockets.opens_fast(forward.to.proto) {
        first_bytes(&mut stream).await
    } else {
        Vec::new()
    };
    let far = match sockets.connect_with(&forward.to, &early).await {
        Ok(far) => far,
        Err(Error { what, source }) => {
            totals.unreachable.fetch_add(1, Ordering::Relaxed);
            warn!(%peer, error = %source, "cannot {what}");
            stream.abort();
            return;
        }
    };
    debug!(%peer, to = %forward.to, "carrying");
    match relay(stream, far).await {
        Ok(carried) => {
            totals.finished.fetch_add(1, Ordering::Relaxed);
            totals
                .bytes_forth
                .fetch_add(carried.forth + early.len() as u64, Ordering::Relaxed);
            totals.bytes_back.fetch_add(carried.back, Ordering::Relaxed);
            info!(
                %peer,
                forth = carried.forth + early.len() as u64,
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

/// What a client says before it hears anything, if it says it at once.
async fn first_bytes(stream: &mut Stream) -> Vec<u8> {
    let mut bytes = vec![0; EARLY_MOST];
    let read = tokio::time::timeout(EARLY_WAIT, stream.read(&mut bytes)).await;
    // An end or an error shows again when the relay reads.
    bytes.truncate(read.map_or(0, |read| read.unwrap_or(0)));
    bytes
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
            .listen(&"tcp:127.0.0.1:0".parse().expect("endpoint"))
            .await
            .expect("loopback");
        let addr = listener.local_addr().expect("bound");
        let totals = Arc::new(Totals::default());
        let (stop, stopped) = oneshot::channel();
        let forward = Forward {
            to: to.parse().expect("endpoint"),
            max_connections: 2,
        };
        let wait = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(run(forward, listener, sockets, totals.clone(), wait));
        (addr, totals, stop, task)
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
