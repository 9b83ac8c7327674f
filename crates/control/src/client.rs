//! The side that asks: one process, or all of them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

use crate::dialogue::{self, Dialogue};
use crate::engine::Engine;
use crate::place;
use crate::report::ProcessReport;
use crate::wire::{EventReport, Reply, Request};

/// How long a process may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);

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
/// The socket cannot be reached, or does not answer in the protocol within three seconds.
pub async fn ask(socket: &Path, request: &Request) -> io::Result<Reply> {
    tokio::time::timeout(PATIENCE, ask_patiently(socket, request))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the process does not answer"))?
}

async fn ask_patiently(socket: &Path, request: &Request) -> io::Result<Reply> {
    Client::connect(socket).await?.ask(request.clone()).await
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
    /// Half a line, when waiting for it was given up.
    line: Vec<u8>,
    dialogue: Dialogue,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// The socket cannot be reached.
    pub async fn connect(socket: &Path) -> io::Result<Self> {
        let (read, write) = UnixStream::connect(socket).await?.into_split();
        Ok(Self {
            read: BufReader::new(read),
            write,
            line: Vec::new(),
            dialogue: Dialogue::default(),
        })
    }

    /// Asks and waits for the reply; a refusal is [`Reply::Error`].
    ///
    /// # Errors
    /// The session is over, or the other side does not speak the protocol.
    pub async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        let text = self.dialogue.ask(request)?;
        self.write.write_all(&text).await?;
        loop {
            if !self.next_line().await? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some(reply) = self.dialogue.reply() {
                return Ok(reply);
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
        let Self {
            read,
            line,
            dialogue,
            ..
        } = self;
        let room = dialogue::room(line.len())?;
        read.take(room).read_until(b'\n', line).await?;
        if line.last() != Some(&b'\n') {
            // Its end, or more than there is room for, which says so.
            return dialogue::room(line.len()).map(|_| false);
        }
        let heard = dialogue.hear(line);
        line.clear();
        heard.map(|()| true)
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

/// The sockets of all processes that this user may ask, with their process ids.
#[must_use]
pub fn sockets() -> Vec<(u32, PathBuf)> {
    let folders = place::folders_to_search();
    let trusted = folders.iter().filter(|folder| place::is_trusted(folder));
    trusted.flat_map(|folder| place::sockets(folder)).collect()
}

/// Asks every process whose socket this user may read; root sees those of all users.
pub async fn collect() -> Collected {
    collect_in(&place::folders_to_search()).await
}

/// Asks every process with a socket in one of the folders. Sockets whose process is gone are removed.
pub async fn collect_in(folders: &[PathBuf]) -> Collected {
    let mut out = Collected::default();
    for folder in folders.iter().filter(|folder| place::is_trusted(folder)) {
        for (pid, socket) in place::sockets(folder) {
            match ask(&socket, &Request::List).await {
                Ok(Reply::Process { mut process }) => {
                    // The kernel has no id: its connections are seen through that of a process.
                    if process.pid == 0 {
                        process.pid = pid;
                    }
                    out.processes.push(*process);
                }
                Ok(Reply::Error { message, .. }) => {
                    out.silent.push((pid, io::Error::other(message)))
                }
                Ok(_) => {
                    let error =
                        io::Error::new(io::ErrorKind::InvalidData, "an answer to another question");
                    out.silent.push((pid, error));
                }
                // Nobody listens: the process ended without the chance to clean up.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    let _ = std::fs::remove_file(&socket);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => out.silent.push((pid, error)),
            }
        }
    }
    out.processes.sort_by_key(|process| process.pid);
    out
}
