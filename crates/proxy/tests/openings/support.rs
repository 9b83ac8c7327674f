//! A proxy on loopback, what it reports, and servers that do what a test says.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use manypath_proxy::endpoint::Proto;
use manypath_proxy::request::Request;
use manypath_proxy::serve::{
    Ended, Failure, How, ListenerSpec, Observer, OpeningKind, Policy, Refusal, Server,
};
use manypath_proxy::sockets::Sockets;
use manypath_proxy::target::tls::Trust;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything takes here, on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What a proxy has reported.
#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) refused: Mutex<Vec<Refusal>>,
    pub(crate) failed: Mutex<Vec<Failure>>,
    pub(crate) ended: Mutex<Vec<Ended>>,
    closed: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Observer for Reports {
    fn closed(&self, _: &Arc<str>) {
        *lock(&self.closed) += 1;
    }

    fn refused(&self, _: &Arc<str>, _: SocketAddr, _: Option<&Request>, why: Refusal) {
        lock(&self.refused).push(why);
    }

    fn failed(&self, _: &Arc<str>, _: &Request, why: Failure) {
        lock(&self.failed).push(why);
    }

    fn ended(&self, _: &Arc<str>, ended: &Ended) {
        lock(&self.ended).push(ended.clone());
    }
}

impl Reports {
    pub(crate) fn refusals(&self) -> Vec<Refusal> {
        lock(&self.refused).clone()
    }

    pub(crate) fn failures(&self) -> Vec<Failure> {
        lock(&self.failed).clone()
    }

    pub(crate) fn ends(&self) -> Vec<How> {
        lock(&self.ended).iter().map(|ended| ended.how).collect()
    }

    /// Waits until so many connections are over.
    pub(crate) async fn closed(&self, count: u64) {
        until("connections are over", || *lock(&self.closed) >= count).await;
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A proxy with one listener.
pub(crate) struct Proxy {
    pub(crate) at: SocketAddr,
    pub(crate) reports: Arc<Reports>,
    server: Server,
}

impl Proxy {
    pub(crate) async fn start(opening: OpeningKind) -> Self {
        Self::with(opening, Policy::permissive(), |_| {}).await
    }

    pub(crate) async fn with(
        opening: OpeningKind,
        policy: Policy,
        change: impl FnOnce(&mut ListenerSpec),
    ) -> Self {
        let on = "tcp:127.0.0.1:0".parse().expect("an endpoint");
        let mut spec = ListenerSpec::new("test", on, opening, Proto::Tcp);
        change(&mut spec);
        let sockets = Sockets {
            connect_timeout: Duration::from_secs(2),
            ..Sockets::default()
        };
        let (reports, policy) = (Arc::new(Reports::default()), Arc::new(policy));
        let mut server = Server::new(sockets, reports.clone(), Arc::clone(&policy));
        server.apply(vec![spec], policy).await.expect("loopback");
        Self {
            at: server.listeners()[0].address,
            reports,
            server,
        }
    }

    /// Lets all listeners together carry so many connections.
    pub(crate) fn carry_at_most(&self, connections: usize) {
        self.server.set_most(connections);
    }

    /// Believes these certificates of targets from now on.
    pub(crate) fn believe(&self, trust: Trust) {
        self.server.set_trust(trust);
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.server.stop().await;
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).await.expect("it listens")
    }

    /// Says something and reads what comes until the end, an error included.
    pub(crate) async fn talk(&self, words: &[u8]) -> (Vec<u8>, std::io::Result<()>) {
        let mut client = self.connect().await;
        // A proxy that refuses may have closed already.
        let _ = client.write_all(words).await;
        let mut answer = Vec::new();
        let read = in_time(client.read_to_end(&mut answer)).await;
        (answer, read.map(|_| ()))
    }
}

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    let result = tokio::time::timeout(PATIENCE, what).await;
    result.expect("in time")
}

/// A server that does the same with each of its connections.
pub(crate) struct Origin {
    pub(crate) at: SocketAddr,
    /// The connections that it had.
    pub(crate) count: Arc<Mutex<u64>>,
}

impl Origin {
    pub(crate) async fn start<F, R>(serve: F) -> Self
    where
        F: Fn(TcpStream) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let at = listener.local_addr().expect("bound");
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *lock(&counted) += 1;
                tokio::spawn(serve(stream));
            }
        });
        Self { at, count }
    }

    /// Answers each request without a body with what `answer` makes of its head.
    pub(crate) async fn answering(
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        let answer = Arc::new(answer);
        Self::start(move |mut stream| {
            let answer = Arc::clone(&answer);
            async move {
                while let Some(head) = read_head(&mut stream).await {
                    if stream.write_all(&answer(&head)).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    pub(crate) fn connections(&self) -> u64 {
        *lock(&self.count)
    }
}

/// Reads up to the end of a head, and no further; `None` at the end of the connection.
pub(crate) async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// An answer of a server.
pub(crate) fn ok(body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// The status of an answer.
pub(crate) fn status(answer: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(answer);
    let word = text.split(' ').nth(1);
    word.and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// A port on which nobody listens.
pub(crate) async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    listener.local_addr().expect("bound")
}
