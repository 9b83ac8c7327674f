//! The side of the process that owns connections: a Unix socket that answers requests until it is dropped.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::place;
use crate::report::{ConnReport, ProcessReport};
use crate::wire::{MAX_REQUEST, Reply, Request};

/// Clients at one time; more wait.
const MAX_CLIENTS: usize = 16;

/// A client that neither asks nor reads for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(60);

/// Who knows the connections of this process.
pub trait Reporter: Send + Sync + 'static {
    /// All connections as they are now, oldest first.
    fn connections(&self) -> Pin<Box<dyn Future<Output = Vec<ConnReport>> + Send + '_>>;
}

/// A running control socket. Dropping it takes the socket away.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    task: JoinHandle<()>,
}

struct Shared {
    title: String,
    started: Instant,
    reporter: Box<dyn Reporter>,
}

impl Server {
    /// Opens the control socket of this process in its user's folder.
    ///
    /// `title` says what the process does. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start(title: String, reporter: impl Reporter) -> io::Result<Self> {
        Self::start_in(&place::folder()?, std::process::id(), title, reporter)
    }

    /// Like [`Server::start`], in a folder and under a process id of the caller's choice.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start_in(
        folder: &Path,
        pid: u32,
        title: String,
        reporter: impl Reporter,
    ) -> io::Result<Self> {
        place::prepare(folder)?;
        let path = place::socket(folder, pid);
        // Our own process id cannot belong to another living process: what lies there is left over.
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(&path)?;
        let shared = Arc::new(Shared {
            title,
            started: Instant::now(),
            reporter: Box::new(reporter),
        });
        let task = tokio::spawn(accept(listener, shared));
        Ok(Self { path, task })
    }

    /// Where the socket lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        // Nothing can be done about a socket that cannot be removed; readers remove stale ones.
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn accept(listener: UnixListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    // A client that goes away in the middle hurts nobody.
                    let _ = serve(stream, &shared).await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely: wait rather than spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    if !place::may_ask(stream.peer_cred()?.uid()) {
        let message = "this process belongs to another user".to_owned();
        return write(&mut stream, &Reply::Error { message }).await;
    }
    let (read, mut write_half) = stream.split();
    let mut read = BufReader::new(read);
    let mut line = String::new();
    loop {
        line.clear();
        let mut limited = (&mut read).take(MAX_REQUEST);
        let read = tokio::time::timeout(PATIENCE, limited.read_line(&mut line)).await??;
        if read == 0 {
            return Ok(());
        }
        let whole = line.ends_with('\n');
        let reply = match serde_json::from_str::<Request>(&line) {
            Ok(request) => answer(request, shared).await,
            Err(error) => Reply::Error {
                message: format!("not a request: {error}"),
            },
        };
        tokio::time::timeout(PATIENCE, write(&mut write_half, &reply)).await??;
        if !whole {
            return Ok(());
        }
    }
}

async fn answer(request: Request, shared: &Shared) -> Reply {
    let connections = shared.reporter.connections().await;
    match request {
        Request::List => Reply::Process {
            process: Box::new(ProcessReport {
                pid: std::process::id(),
                title: shared.title.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_us: u64::try_from(shared.started.elapsed().as_micros()).unwrap_or(u64::MAX),
                connections,
            }),
        },
        Request::Show { connection } => {
            match connections.into_iter().find(|c| c.id == connection) {
                Some(found) => Reply::Connection {
                    connection: Box::new(found),
                },
                None => Reply::Error {
                    message: format!("no connection {connection}"),
                },
            }
        }
    }
}

async fn write(stream: &mut (impl AsyncWriteExt + Unpin), reply: &Reply) -> io::Result<()> {
    let mut text = serde_json::to_vec(reply).map_err(io::Error::other)?;
    text.push(b'\n');
    stream.write_all(&text).await
}
