//! The side of the process that owns connections: a Unix socket that answers requests until it is dropped.
//!
//! Nobody is left waiting for a place: who finds all of its user's places taken gets a short session, which may ask and not
//! subscribe, so that `manypath status` works whoever else is connected.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::hub::Hub;
pub use crate::hub::{Backend, News, Reloading};
use crate::outbox::{Outbox, lock};
use crate::place;
use crate::report::ProcessReport;
use crate::wire::{Answer, Asked, EventReport, MAX_REQUEST, Reply, Request};

/// How often it is looked whether a reader that asks nothing any more is still there.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes that are written at a time.
const BATCH: usize = 64 << 10;

/// Sessions of one user at one time; more are short.
pub(crate) const MAX_CLIENTS: usize = 224;

/// Short sessions of one user at one time; more are refused.
const MAX_SHORT: usize = 32;

/// How long a short session may last.
const SHORT: Duration = Duration::from_secs(3);

/// How long a request may take from its first byte to its last.
pub(crate) const HALF_LINE: Duration = Duration::from_secs(5);

/// How often it is looked whether an owner reads.
const LOOK_AT_OWNERS: Duration = Duration::from_secs(1);

/// An owner that has read nothing so many looks long is dropped: what it owns waits for its decisions.
const LOOKS_AT_OWNERS: u32 = 10;

/// A client that asks nothing for so long is dropped, unless it has subscribed or owns something.
pub(crate) const IDLE: Duration = Duration::from_secs(60);

/// A client that does not take a batch within so long is dropped.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Bytes a second that a reader takes at least of what is longer than that.
const LEAST_RATE: u64 = 256 << 10;

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
            tokio::spawn(accept(listener, move |stream, kind| {
                let shared = Arc::clone(&shared);
                async move { serve(stream, &shared, kind).await }
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

/// What a session may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Anything.
    Long,
    /// All other places of its user are taken: it asks and leaves.
    Short,
}

impl Kind {
    /// The answer to a request that would make a short session a long one.
    pub(crate) fn refusal(self, request: &Request) -> Option<Reply> {
        let stays = matches!(request, Request::Subscribe(_) | Request::Claim { .. });
        (self == Self::Short && stays).then(|| {
            let why =
                format!("{MAX_CLIENTS} sessions of this user are open: one more may only ask");
            Reply::error("limit", why)
        })
    }
}

/// Sessions by user: nobody takes the places of another, neither the user those of root nor root those of the user.
#[derive(Debug, Default)]
struct Places(Mutex<BTreeMap<u32, [usize; 2]>>);

/// One of them, until it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    user: u32,
    kind: Kind,
}

impl Places {
    fn take(self: &Arc<Self>, user: u32) -> Option<Place> {
        let mut users = lock(&self.0);
        let [long, short] = users.entry(user).or_default();
        let kind = match () {
            () if *long < MAX_CLIENTS => {
                *long += 1;
                Kind::Long
            }
            () if *short < MAX_SHORT => {
                *short += 1;
                Kind::Short
            }
            () => return None,
        };
        let places = Arc::clone(self);
        Some(Place { places, user, kind })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = lock(&self.places.0);
        if let Some(counts) = users.get_mut(&self.user) {
            counts[usize::from(self.kind == Kind::Short)] -= 1;
            if *counts == [0, 0] {
                users.remove(&self.user);
            }
        }
    }
}

/// Serves everybody who comes, each by a task of its own, until it is dropped.
pub(crate) async fn accept<S>(listener: UnixListener, session: impl Fn(UnixStream, Kind) -> S)
where
    S: Future<Output = io::Result<()>> + Send + 'static,
{
    let places = Arc::new(Places::default());
    // The sessions end with the server.
    let mut sessions = JoinSet::new();
    loop {
        while sessions.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(peer) = stream.peer_cred() else {
                    continue;
                };
                let Some(place) = places.take(peer.uid()) else {
                    let why = "too many sessions of this user are open";
                    // What it has not read of that, it will not miss.
                    let _ = stream.try_write(&refused("limit", why));
                    continue;
                };
                let (kind, session) = (place.kind, session(stream, place.kind));
                sessions.spawn(async move {
                    // A client that goes away in the middle hurts nobody.
                    let _ = match kind {
                        Kind::Long => session.await,
                        Kind::Short => tokio::time::timeout(SHORT, session).await.unwrap_or(Ok(())),
                    };
                    drop(place);
                });
            }
            // Out of descriptors, most likely: wait rather than spin.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

/// The line that refuses a session.
fn refused(code: &str, why: &str) -> Vec<u8> {
    let reply = Reply::error(code, why);
    let mut text = serde_json::to_vec(&Answer { id: None, reply }).unwrap_or_default();
    text.push(b'\n');
    text
}

/// Whether the kernel says that the other end may ask; else it is told so.
pub(crate) async fn is_welcome(stream: &mut UnixStream) -> io::Result<bool> {
    if place::may_ask(stream.peer_cred()?.uid()) {
        return Ok(true);
    }
    let text = refused("denied", "this process belongs to another user");
    stream.write_all(&text).await?;
    Ok(false)
}

async fn serve(mut stream: UnixStream, shared: &Shared, kind: Kind) -> io::Result<()> {
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
        read_requests(read, shared, client, &outbox, kind).await?;
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
    kind: Kind,
) -> io::Result<()> {
    let mut read = BufReader::new(read);
    let mut line = Vec::new();
    loop {
        while outbox.is_crowded() {
            tokio::time::timeout(PATIENCE, outbox.written.notified()).await?;
        }
        line.clear();
        let begins = read.fill_buf();
        if outbox.is_subscribed() || shared.hub.owns_something(client) {
            begins.await?;
        } else {
            tokio::time::timeout(IDLE, begins).await??;
        }
        let mut limited = (&mut read).take(MAX_REQUEST);
        let rest = limited.read_until(b'\n', &mut line);
        let read = tokio::time::timeout(HALF_LINE, rest).await??;
        if read == 0 {
            return Ok(());
        }
        let whole = line.ends_with(b"\n");
        let asked = Asked::read(&line);
        let reloaded = match &asked {
            Ok(asked) if asked.request == Request::Reload => reload(shared).await,
            Ok(_) | Err(_) => None,
        };
        shared.hub.serve(outbox, || match asked {
            Ok(Asked { id, request }) => Answer {
                id,
                reply: reloaded
                    .or_else(|| kind.refusal(&request))
                    .unwrap_or_else(|| answer(request, shared, client, outbox)),
            },
            Err(refusal) => refusal,
        });
        if !whole {
            return Ok(());
        }
    }
}

/// Waits until the configuration is in force, or known not to be; `None` where there is none.
async fn reload(shared: &Shared) -> Option<Reply> {
    Some(match shared.hub.backend.reload()?.await {
        Ok(()) => Reply::done(None, None),
        Err(why) => Reply::error("config", why),
    })
}

/// Writes what waits. A reader that does not take a batch in time is gone.
async fn write_lines(outbox: &Outbox) -> io::Result<()> {
    let write = &outbox.write;
    loop {
        let batch = outbox.take(BATCH);
        if batch.bytes().is_empty() {
            if outbox.is_finishing() {
                return Ok(());
            }
            outbox.ready.notified().await;
            // Packets that wait go first, and what they cause goes along.
            tokio::task::yield_now().await;
            continue;
        }
        let written = async {
            let mut rest = batch.bytes();
            while !rest.is_empty() {
                write.writable().await?;
                match write.try_write(rest) {
                    Ok(count) => rest = &rest[count..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        };
        tokio::time::timeout(patience(batch.bytes().len()), written).await??;
        outbox.written.notify_one();
    }
}

/// How long a reader may take for so many bytes: a long list may go over a slow link.
fn patience(bytes: usize) -> Duration {
    PATIENCE + Duration::from_micros(bytes as u64 * 1_000_000 / LEAST_RATE)
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
    match request {
        Request::List if outbox.is_flooded() => Reply::error(
            "limit",
            "clients that do not read hold too much: try again in a minute",
        ),
        Request::List => Reply::Process {
            process: Box::new(shared.report()),
        },
        other => shared.hub.answer(client, outbox, other),
    }
}

impl Shared {
    fn report(&self) -> ProcessReport {
        let Self { hub, started, .. } = self;
        let overview = hub.backend.overview();
        ProcessReport {
            pid: std::process::id(),
            title: hub.title.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_us: u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX),
            config: overview.config,
            paths: overview.paths,
            devices: overview.devices,
            memory: overview.memory,
            counters: overview.counters,
            limits: overview.limits,
            classes: overview.classes,
            quotas: overview.quotas,
            connections: hub.backend.connections(),
        }
    }
}
