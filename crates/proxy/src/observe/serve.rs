//! Serves metrics and health by HTTP, on a loopback port or a Unix socket.
//!
//! `GET /metrics` is the text of Prometheus, or OpenMetrics for who accepts it; `GET /healthz` answers 200 as long as the process
//! answers at all, `GET /readyz` 200 from when all listeners are there until the end begins, and 503 else.

use std::convert::Infallible;
use std::fs;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::prometheus_text;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

use super::metrics::Metrics;
use crate::config::MetricsAt;

/// Connections at one time; further ones wait.
const MOST: usize = 16;

/// How long a client may take for a head.
const HEADER_TIME: Duration = Duration::from_secs(5);

/// How long a connection may last: a scrape, and what follows it on the same one.
const LONGEST: Duration = Duration::from_secs(600);

/// Wait after an attempt that failed for lack of something.
const PAUSE: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is served.
#[derive(Debug)]
struct Shown {
    metrics: Arc<Metrics>,
    ready: Arc<AtomicBool>,
}

/// A server of metrics; dropping it ends it.
#[derive(Debug)]
pub struct Server {
    at: MetricsAt,
    bound: MetricsAt,
    task: JoinHandle<()>,
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Server {
    /// Serves at a place. `ready` says what `/readyz` answers. Must be called within a runtime.
    ///
    /// # Errors
    /// The address or socket is in use, or may not be used.
    pub async fn start(
        at: &MetricsAt,
        metrics: Arc<Metrics>,
        ready: Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let (listener, bound) = match at {
            MetricsAt::Tcp(addr) => {
                let listener = TcpListener::bind(addr).await?;
                let bound = MetricsAt::Tcp(listener.local_addr()?);
                (Listener::Tcp(listener), bound)
            }
            MetricsAt::Unix(path) => (Listener::Unix(bind_unix(path)?), at.clone()),
        };
        let shown = Arc::new(Shown { metrics, ready });
        Ok(Self {
            at: at.clone(),
            bound,
            task: tokio::spawn(accept(listener, shown)),
        })
    }

    /// The place that was asked for.
    #[must_use]
    pub fn asked(&self) -> &MetricsAt {
        &self.at
    }

    /// The place that it has: with port 0, the one that was found.
    #[must_use]
    pub fn bound(&self) -> &MetricsAt {
        &self.bound
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        if let MetricsAt::Unix(path) = &self.at {
            // One that is left over is removed at the next start.
            let _ = fs::remove_file(path);
        }
    }
}

/// Listens on a Unix socket for the user and the group of the process. One that is left over, and that nobody listens on, is
/// taken away.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
    Ok(listener)
}

async fn accept(listener: Listener, shown: Arc<Shown>) {
    let places = Arc::new(Semaphore::new(MOST));
    // They end with the server.
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        let shown = Arc::clone(&shown);
        let accepted = match &listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                sessions.spawn(async move {
                    session(stream, shown).await;
                    drop(place);
                });
            }),
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                sessions.spawn(async move {
                    session(stream, shown).await;
                    drop(place);
                });
            }),
        };
        if accepted.is_err() {
            // Out of descriptors, most likely: wait rather than spin.
            tokio::time::sleep(PAUSE).await;
        }
    }
}

async fn session(stream: impl AsyncRead + AsyncWrite + Unpin, shown: Arc<Shown>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = answer(&request, &shown);
        async move { Ok::<_, Infallible>(response) }
    });
    let session = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .serve_connection(TokioIo::new(stream), service);
    // A scraper that goes away in the middle hurts nobody.
    let _ = timeout(session).await;
}

async fn timeout<T>(session: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(LONGEST, session).await.ok()
}

fn answer(request: &Request<Incoming>, shown: &Shown) -> Response<Full<Bytes>> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    if !reads {
        let mut refused = text(StatusCode::METHOD_NOT_ALLOWED, "read only\n");
        let methods = HeaderValue::from_static("GET, HEAD");
        refused.headers_mut().insert(ALLOW, methods);
        return refused;
    }
    match request.uri().path() {
        "/metrics" => {
            let accepted = request.headers().get_all(ACCEPT).iter();
            let accepted: Vec<&str> = accepted.filter_map(|value| value.to_str().ok()).collect();
            metrics(shown, wants_open_metrics(&accepted.join(",")))
        }
        "/healthz" => text(StatusCode::OK, "ok\n"),
        "/readyz" if shown.ready.load(Ordering::Relaxed) => text(StatusCode::OK, "ok\n"),
        "/readyz" => text(StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /metrics, /healthz and /readyz\n",
        ),
    }
}

fn metrics(shown: &Shown, open_metrics: bool) -> Response<Full<Bytes>> {
    let Ok(all) = shown.metrics.text(open_metrics) else {
        return text(StatusCode::INTERNAL_SERVER_ERROR, "cannot write metrics\n");
    };
    let kind = match open_metrics {
        true => OPEN_METRICS,
        false => prometheus_text::CONTENT_TYPE,
    };
    respond(StatusCode::OK, kind, all.into())
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    respond(status, "text/plain; charset=utf-8", text.into())
}

fn respond(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Whether an `Accept` header (RFC 9110 section 12.5.1) prefers OpenMetrics to plain text, as Prometheus does.
fn wants_open_metrics(accept: &str) -> bool {
    let weight = |kind: &str| {
        let weights = accept.split(',').filter_map(|part| {
            let mut part = part.split(';').map(str::trim);
            if !part.next()?.eq_ignore_ascii_case(kind) {
                return None;
            }
            let quality = part.find_map(|p| p.strip_prefix("q="));
            Some(quality.map_or(1.0, |q| q.parse().unwrap_or(0.0)))
        });
        weights.fold(0.0, f32::max)
    };
    let open = weight("application/openmetrics-text");
    open > 0.0 && open >= weight("text/plain")
}

/// The folder of a place: what the process must be able to write to.
#[must_use]
pub fn folder(at: &MetricsAt) -> Option<PathBuf> {
    match at {
        MetricsAt::Unix(path) => path.parent().map(Into::into),
        MetricsAt::Tcp(_) => None,
    }
}

/// An address of a server that was bound, if it has one.
#[must_use]
pub fn address(server: &Server) -> Option<SocketAddr> {
    match server.bound() {
        MetricsAt::Tcp(addr) => Some(*addr),
        MetricsAt::Unix(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpStream, UnixStream};

    #[test]
    fn open_metrics_is_for_those_who_prefer_it() {
        for (accept, wanted) in [
            ("", false),
            ("*/*", false),
            ("text/plain", false),
            ("application/openmetrics-text", true),
            (
                "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            ("application/openmetrics-text;q=0.2,text/plain;q=0.5", false),
            ("application/openmetrics-text;q=0", false),
        ] {
            assert_eq!(wants_open_metrics(accept), wanted, "{accept}");
        }
    }

    async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, head: &str) -> String {
        let request = format!("{head}\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("written");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        answer
    }

    #[tokio::test]
    async fn metrics_and_health_are_served_on_a_port() {
        let ready = Arc::new(AtomicBool::new(false));
        let at: MetricsAt = "127.0.0.1:0".parse().expect("loopback");
        let metrics = Arc::new(Metrics::new(Vec::new()));
        let server = Server::start(&at, metrics, Arc::clone(&ready))
            .await
            .expect("bound");
        let addr = address(&server).expect("a port");
        let get = async |head: &str| {
            let stream = TcpStream::connect(addr).await.expect("connected");
            ask(stream, head).await
        };
        assert!(
            get("GET /healthz HTTP/1.1")
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        assert!(
            get("GET /readyz HTTP/1.1")
                .await
                .starts_with("HTTP/1.1 503 ")
        );
        ready.store(true, Ordering::Relaxed);
        assert!(
            get("GET /readyz HTTP/1.1")
                .await
                .starts_with("HTTP/1.1 200 ")
        );
        assert!(get("GET / HTTP/1.1").await.starts_with("HTTP/1.1 404 "));
        assert!(
            get("POST /metrics HTTP/1.1")
                .await
                .starts_with("HTTP/1.1 405 ")
        );
        let plain = get("GET /metrics HTTP/1.1").await;
        assert!(plain.contains("text/plain; version=0.0.4"), "{plain}");
        assert!(
            plain.contains("# TYPE process_cpu_seconds_total counter"),
            "{plain}"
        );
        let open = get("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text").await;
        assert!(open.contains("application/openmetrics-text"), "{open}");
        assert!(open.ends_with("# EOF\n"), "{open}");
    }

    #[tokio::test]
    async fn a_unix_socket_that_is_left_over_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("metrics.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).expect("left over"));
        let metrics = Arc::new(Metrics::new(Vec::new()));
        let at = MetricsAt::Unix(path.clone());
        let ready = Arc::new(AtomicBool::new(true));
        let server = Server::start(&at, metrics, ready).await.expect("bound");
        let stream = UnixStream::connect(&path).await.expect("connected");
        let answer = ask(stream, "GET /readyz HTTP/1.1").await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        drop(server);
        assert!(!path.exists());
    }
}
