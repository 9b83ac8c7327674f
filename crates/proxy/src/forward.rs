//! Accepts connections at one place and carries each to another: a server with one fixed listener.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::{Endpoint, Proto};
use crate::serve::row::Settings;
use crate::serve::{Bounds, ListenerSpec, OpeningKind, Policy, Server};
use crate::sockets::Sockets;
use crate::stream::Listener;

pub use crate::serve::Totals;

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
    /// The same once one side has ended its stream, where that is less.
    pub half_closed_timeout: Option<Duration>,
}

/// Forwards until `stop` completes; then the connections that are still open are reset.
pub async fn run(
    forward: Forward,
    listener: Listener,
    sockets: Sockets,
    totals: Arc<Totals>,
    stop: impl Future<Output = ()>,
) {
    let Ok(address) = listener.local_addr() else {
        // A listener without an address is broken already.
        return;
    };
    let on = Endpoint {
        proto: Proto::Tcp,
        at: address.into(),
    };
    let outside = forward.to.proto;
    let opening = OpeningKind::Fixed(forward.to);
    let mut spec = ListenerSpec::new("forward", on, opening, outside);
    spec.bounds = Bounds {
        max_connections: forward.max_connections,
        max_per_client: forward.max_per_client,
        idle: forward.idle_timeout,
        half_closed: forward.half_closed_timeout,
        ..Bounds::default()
    };
    let settings = Settings {
        spec,
        tls: None,
        key: None,
    };
    let mut server = Server::new(sockets, Arc::new(()), Arc::new(Policy::default()));
    server.start(settings, listener, address, totals);
    stop.await;
    server.stop().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicU64, Ordering};
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
            half_closed_timeout: None,
        };
        let wait = async {
            let _ = stopped.await;
        };
        let task = tokio::spawn(run(forward, listener, sockets, totals.clone(), wait));
        (addr, totals, stop, task)
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
