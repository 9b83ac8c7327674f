//! The side of the process that owns connections: a Unix socket that answers requests until it is dropped.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

pub use crate::hub::{Backend, News};
use crate::hub::{Hub, Outbox};
use crate::place;
use crate::report::ProcessReport;
use crate::wire::{Answer, Asked, EventReport, MAX_REQUEST, Reply, Request};

/// How often it is looked whether a reader that asks nothing any more is still there.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes that are written at a time.
const BATCH: usize = 64 << 10;

/// Clients at one time; more wait.
pub(crate) const MAX_CLIENTS: usize = 256;

/// How often it is looked whether an owner reads.
const LOOK_AT_OWNERS: Duration = Duration::from_secs(1);

/// An owner that has read nothing so many looks long is dropped: what it owns waits for its decisions.
const LOOKS_AT_OWNERS: u32 = 10;

/// A client that does not read for so long is dropped, and one that asks nothing, has subscribed to nothing and owns nothing.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running control socket. Dropping it takes the socket away.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    tasks: [JoinHandle<()>; 2],
}

struct Shared {
    hub: Arc<Hub>,
    started: Instant,
}

impl Server {
    /// Opens the control socket of this process in its user's folder.
    ///
    /// `title` says what the process does. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start(title: String, backend: impl Backend) -> io::Result<Self> {
        Self::start_in(&place::folder()?, std::process::id(), title, backend)
    }

    /// Like [`Server::start`], in a folder and under a process id of the caller's choice.
    ///
    /// # Errors
    /// The folder or socket cannot be made.
    pub fn start_in(
        folder: &Path,
        pid: u32,
        title: String,
        backend: impl Backend,
    ) -> io::Result<Self> {
        let (path, listener) = bind(folder, pid)?;
        let news = backend.news();
        let hub = Arc::new(Hub::new(backend, title));
        let shared = Arc::new(Shared {
            hub: Arc::clone(&hub),
            started: Instant::now(),
        });
        let tasks = [
            tokio::spawn(accept(listener, move |stream| {
                let shared = Arc::clone(&shared);
                async move { serve(stream, &shared).await }
            })),
            tokio::spawn(hub.distribute(news)),
        ];
        Ok(Self { path, tasks })
    }

    /// Where the socket lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        // Nothing can be done about a socket that cannot be removed; readers remove stale ones.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Makes the socket of a process of this user. It gets its name when it listens: until then it refuses, and whoever looks for
/// processes would remove it as one that was left over.
pub(crate) fn bind(folder: &Path, pid: u32) -> io::Result<(PathBuf, UnixListener)> {
    place::prepare(folder)?;
    let path = place::socket(folder, pid);
    let unfinished = path.with_extension("new");
    // Our own process id cannot belong to another living process: what lies there is left over.
    match std::fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&unfinished)?;
    std::fs::rename(&unfinished, &path)?;
    Ok((path, listener))
}

/// Serves everybody who comes, each by a task of its own, until it is dropped.
pub(crate) async fn accept<S>(listener: UnixListener, session: impl Fn(UnixStream) -> S)
where
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_CLIENTS));
    // The sessions end with the server.
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                let session = session(stream);
                sessions.spawn(async move {
                    // A client that goes away in the middle hurts nobody.
                    let _ = session.await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely: wait rather than spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// Whether the kernel says that the other end may ask; else it is told so.
pub(crate) async fn is_welcome(stream: &mut UnixStream) -> io::Result<bool> {
    if place::may_ask(stream.peer_cred()?.uid()) {
        return Ok(true);
    }
    let reply = Reply::error("denied", "this process belongs to another user");
    let mut text = serde_json::to_vec(&Answer { id: None, reply }).map_err(io::Error::other)?;
    text.push(b'\n');
    stream.write_all(&text).await?;
    Ok(false)
}

async fn serve(mut stream: UnixStream, shared: &Shared) -> io::Result<()> {
    if !is_welcome(&mut stream).await? {
        return Ok(());
    }
    let (read, write) = stream.into_split();
    let (client, outbox) = shared.hub.enter(write);
    let _guard = Leaving {
        hub: &shared.hub,
        client,
    };
    let asked = async {
        read_requests(read, shared, client, &outbox).await?;
        // Who closes only its own direction still gets its replies, and events until it closes the other one, too.
        if !outbox.is_subscribed() {
            outbox.finish();
            return std::future::pending().await;
        }
        while !outbox
            .write
            .ready(Interest::WRITABLE)
            .await?
            .is_write_closed()
        {
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    };
    tokio::select! {
        end = asked => end,
        end = write_lines(&outbox) => end,
        () = take_samples(shared, &outbox) => Ok(()),
        () = until_stuck(&shared.hub, client, &outbox) => Ok(()),
    }
}

/// Until a client that owns something has read nothing of what waits for it for too long. The kernel would keep a few events
/// for it for ever.
async fn until_stuck(hub: &Hub, client: u64, outbox: &Outbox) {
    let (mut looks, mut before) = (0, 0);
    while looks < LOOKS_AT_OWNERS {
        tokio::time::sleep(LOOK_AT_OWNERS).await;
        let unread = hub.unread(outbox).unwrap_or(0);
        let reads = unread == 0 || unread < before;
        looks = match reads || !hub.owns_something(client) {
            true => 0,
            false => looks + 1,
        };
        before = unread;
    }
}

/// Gives up what a client owned, whatever ends its session.
struct Leaving<'a> {
    hub: &'a Hub,
    client: u64,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.hub.leave(self.client);
    }
}

async fn read_requests(
    read: OwnedReadHalf,
    shared: &Shared,
    client: u64,
    outbox: &Outbox,
) -> io::Result<()> {
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        while outbox.is_crowded() {
            tokio::time::timeout(PATIENCE, outbox.written.notified()).await?;
        }
        line.clear();
        let mut limited = (&mut read).take(MAX_REQUEST);
        let next = limited.read_until(b'\n', &mut line);
        let read = if outbox.is_subscribed() || shared.hub.owns_something(client) {
            next.await?
        } else {
            tokio::time::timeout(PATIENCE, next).await??
        };
        if read == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let asked = Asked::read(&line);
        shared.hub.serve(outbox, || match asked {
            Ok(Asked { id, request }) => Answer {
                id,
                reply: answer(request, shared, client, outbox),
            },
            Err(refusal) => refusal,
        });
        if !whole {
            return Ok(());
        }
    }
}

/// Writes what waits. A reader that takes nothing for a minute is gone.
async fn write_lines(outbox: &Outbox) -> io::Result<()> {
    let write = &outbox.write;
    loop {
        let Some(text) = outbox.take(BATCH) else {
            return Ok(());
        };
        if text.is_empty() {
            if outbox.is_finishing() {
                return Ok(());
            }
            outbox.ready.notified().await;
            // Packets that wait go first, and what they cause goes along.
            tokio::task::yield_now().await;
            continue;
        }
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            tokio::time::timeout(PATIENCE, write.writable()).await??;
            match write.try_write(rest) {
                Ok(count) => rest = &rest[count..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        outbox.written.notify_one();
    }
}

/// Adds samples for a client that wants some. Nobody gets them so fast that more than a tenth of the time goes into taking
/// them, and none are taken for one that does not read.
async fn take_samples(shared: &Shared, outbox: &Outbox) {
    let (mut took, mut count) = (Duration::ZERO, 1);
    loop {
        let Some((ms, connection)) = outbox.sampling() else {
            outbox.changed.notified().await;
            continue;
        };
        tokio::select! {
            () = outbox.changed.notified() => continue,
            () = tokio::time::sleep(Duration::from_millis(ms).max(took * 9)) => {}
        }
        if !outbox.takes_samples() {
            outbox.miss(count);
            continue;
        }
        let begun = Instant::now();
        let hub = &shared.hub;
        let all = match connection {
            None => hub.backend.connections(),
            Some(name) => {
                let id = name.parse().ok();
                id.and_then(|id| hub.backend.connection(id))
                    .into_iter()
                    .collect()
            }
        };
        let at_us = u64::try_from(shared.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        count = all.len().max(1) as u64;
        for conn in all {
            outbox.sample(EventReport {
                event: "sample".to_owned(),
                seq: hub.seq(),
                at_us,
                connection: Some(conn.id.clone()),
                sample: Some(Box::new(conn)),
                ..EventReport::default()
            });
        }
        took = begun.elapsed();
    }
}

fn answer(request: Request, shared: &Shared, client: u64, outbox: &Outbox) -> Reply {
    let Shared { hub, started } = shared;
    match request {
        Request::List => Reply::Process {
            process: Box::new(ProcessReport {
                pid: std::process::id(),
                title: hub.title.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
                connections: hub.backend.connections(),
            }),
        },
        other => hub.answer(client, outbox, other),
    }
}
