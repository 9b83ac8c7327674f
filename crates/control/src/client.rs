//! The side that asks: one process, or all of them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::dialogue::Dialogue;
use crate::engine::Engine;
use crate::place::{self, Entry};
use crate::purse::{self, Purse};
use crate::report::ProcessReport;
use crate::wire::{EventReport, Reply, Request};

/// How long a process may take until its answer begins.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a round over all processes takes at most, however many do not answer.
const ROUND: Duration = Duration::from_secs(3);

/// Processes that are asked at one time.
const AT_ONE_TIME: usize = 128;

/// What a round over all processes brought.
#[derive(Debug, Default)]
pub struct Collected {
    /// The processes that answered, by rising id.
    pub processes: Vec<ProcessReport>,
    /// Those that did not, and why.
    pub silent: Vec<(u32, io::Error)>,
}

/// Asks one process.
///
/// # Errors
/// The socket cannot be reached, does not begin to answer within a second, or is not done within three.
pub async fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    let (client, end) = (Client::connect(socket), Instant::now() + ROUND);
    in_time(client, request, end).await
}

/// Asks one of [`sockets`].
///
/// # Errors
/// As [`ask`], and what is there is not to be trusted: a link, or a socket that is not that of its folder's user.
pub async fn ask_at(socket: &Entry, request: &Request) -> io::Result<Reply> {
    let (client, end) = (Client::connect_at(socket), Instant::now() + ROUND);
    in_time(client, request, end).await
}

/// Asks over a session that is about to be opened.
async fn in_time(
    client: impl Future<Output = io::Result<Client>>,
    request: &Request,
    end: Instant,
) -> io::Result<Reply> {
    let silent = |_| io::Error::new(io::ErrorKind::TimedOut, "it does not answer");
    let begun = async {
        let mut client = client.await?;
        client.send(request.clone()).await?;
        client.read.fill_buf().await?;
        Ok::<_, io::Error>(client)
    };
    let by = (Instant::now() + PATIENCE).min(end);
    let mut client = timeout_at(by, begun).await.map_err(silent)??;
    let slow = |_| {
        io::Error::new(
            io::ErrorKind::TimedOut,
            "its answer does not come to an end",
        )
    };
    timeout_at(end, client.reply()).await.map_err(slow)?
}

/// A session with one process. Replies and events come over the same socket; events that arrive while a reply is waited
/// for are kept.
///
/// ```no_run
/// # async fn f() -> std::io::Result<()> {
/// use manypath_control::client::Client;
/// use manypath_control::engine::Engine;
/// use manypath_control::wire::{Filter, Wanted};
///
/// let mut client = Client::connect("/run/user/1000/manypath/4711.sock".as_ref()).await?;
/// client.subscribe(Filter { events: vec!["timeout".into()], ..Filter::default() }).await?;
/// while let Some(event) = client.next_event().await? {
///     if let Some(connection) = event.connection.filter(|_| event.rto_us > Some(1_000_000)) {
///         let wanted = Wanted { local: Some("10.1.0.2".parse().unwrap()), ..Wanted::default() };
///         client.create(&connection, wanted).await?;
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Client {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
    /// Keeps half a line, too, when waiting for it was given up.
    dialogue: Dialogue,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// The socket cannot be reached.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self::over(
            UnixStream::connect(socket).await?,
            Dialogue::default(),
        ))
    }

    /// Opens a session with one of [`sockets`].
    ///
    /// # Errors
    /// The socket cannot be reached, or is not to be trusted: a link, or not that of its folder's user.
    pub async fn connect_at(socket: &Entry) -> io::Result<Self> {
        let own = Purse::new(match socket.is_foreign() {
            true => purse::FOREIGN,
            false => purse::OWN,
        });
        Self::connect_with(socket, own).await
    }

    async fn connect_with(socket: &Entry, purse: Purse) -> io::Result<Self> {
        let held = socket.pin()?;
        let stream =
            UnixStream::connect(held.path())
                .await
                .map_err(|error| match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        io::Error::new(error.kind(), "it does not accept: its backlog is full")
                    }
                    _ => error,
                })?;
        Ok(Self::over(stream, Dialogue::new(purse)))
    }

    fn over(stream: UnixStream, dialogue: Dialogue) -> Self {
        let (read, write) = stream.into_split();
        Self {
            read: BufReader::with_capacity(64 << 10, read),
            write,
            dialogue,
        }
    }

    /// Asks and waits for the reply, without a limit of time; a refusal is [`Reply::Error`].
    ///
    /// # Errors
    /// The session is over, or the other side does not speak the protocol.
    pub async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        self.send(request).await?;
        self.reply().await
    }

    async fn send(&mut self, request: Request) -> io::Result<()> {
        let text = self.dialogue.ask(request)?;
        self.write.write_all(&text).await
    }

    async fn reply(&mut self) -> io::Result<Reply> {
        loop {
            if let Some(reply) = self.dialogue.reply() {
                return Ok(reply);
            }
            if !self.next_line().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// The next event; `None` when the process is gone. May be given up and called again.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    pub async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        loop {
            if let Some(event) = self.dialogue.event() {
                return Ok(Some(event));
            }
            if !self.next_line().await? {
                return Ok(None);
            }
        }
    }

    /// Hears one more line; false when there is none.
    async fn next_line(&mut self) -> io::Result<bool> {
        loop {
            let bytes = self.read.fill_buf().await?;
            if bytes.is_empty() {
                return Ok(false);
            }
            let (count, whole) = self.dialogue.take_in(bytes)?;
            self.read.consume(count);
            if whole {
                return Ok(true);
            }
        }
    }
}

impl Engine for Client {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        Client::ask(self, request).await
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        Client::next_event(self).await
    }

    fn outdate(&mut self, connection: &str) {
        self.dialogue.outdate(connection);
    }
}

/// The sockets of all processes that this user may ask.
#[must_use]
pub fn sockets() -> Vec<Entry> {
    sockets_in(&place::folders_to_search())
}

fn sockets_in(folders: &[PathBuf]) -> Vec<Entry> {
    folders.iter().flat_map(|f| place::entries(f)).collect()
}

/// Asks every process whose socket this user may read; root sees those of all users.
pub async fn collect() -> Collected {
    collect_in(&place::folders_to_search()).await
}

/// The same of one process alone.
pub async fn collect_one(pid: u32) -> Collected {
    let mut all = sockets();
    all.retain(|socket| socket.pid == pid);
    collect_from(all).await
}

/// Asks every process with a socket in one of the folders. Sockets whose process is gone are removed.
pub async fn collect_in(folders: &[PathBuf]) -> Collected {
    collect_from(sockets_in(folders)).await
}

/// Asks all of them at one time, within [`ROUND`] in all. What the processes of another user say has one bound together.
async fn collect_from(sockets: Vec<Entry>) -> Collected {
    let end = Instant::now() + ROUND;
    let places = Arc::new(Semaphore::new(AT_ONE_TIME));
    let mut purses = BTreeMap::<u32, Purse>::new();
    let mut asked = JoinSet::new();
    for socket in in_turns(sockets) {
        let purse = match socket.is_foreign() {
            true => purses
                .entry(socket.owner())
                .or_insert_with(|| Purse::new(purse::FOREIGN))
                .clone(),
            false => Purse::new(purse::OWN),
        };
        let places = Arc::clone(&places);
        asked.spawn(async move {
            let place = timeout_at(end, places.acquire()).await;
            let reply = match place {
                Ok(_) => {
                    in_time(
                        Client::connect_with(&socket, purse.clone()),
                        &Request::List,
                        end,
                    )
                    .await
                }
                Err(_) => Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "too many others do not answer",
                )),
            };
            (socket, reply)
        });
    }
    let mut out = Collected::default();
    while let Some(one) = asked.join_next().await {
        // A task that panicked would have to be ours: nothing was heard of that process.
        let Ok((socket, reply)) = one else { continue };
        let pid = socket.pid;
        match reply {
            Ok(Reply::Process { mut process }) => {
                // The kernel has no id: its connections are seen through that of a process. And nobody speaks for another.
                if process.pid == 0 || socket.is_foreign() {
                    process.pid = pid;
                }
                out.processes.push(*process);
            }
            Ok(Reply::Error { message, .. }) => out.silent.push((pid, io::Error::other(message))),
            Ok(_) => {
                let error =
                    io::Error::new(io::ErrorKind::InvalidData, "an answer to another question");
                out.silent.push((pid, error));
            }
            // Nobody listens: the process ended without the chance to clean up.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => socket.remove(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => out.silent.push((pid, error)),
        }
    }
    out.processes.sort_by_key(|process| process.pid);
    out.silent.sort_by_key(|(pid, _)| *pid);
    out
}

/// The first socket of each user, then the second of each: nobody's crowd keeps those of others from their turn.
fn in_turns(sockets: Vec<Entry>) -> Vec<Entry> {
    let mut counts = BTreeMap::<u32, usize>::new();
    let mut turns: Vec<(usize, Entry)> = sockets
        .into_iter()
        .map(|socket| {
            let count = counts.entry(socket.owner()).or_default();
            *count += 1;
            (*count, socket)
        })
        .collect();
    turns.sort_by_key(|(turn, _)| *turn);
    turns.into_iter().map(|(_, socket)| socket).collect()
}
