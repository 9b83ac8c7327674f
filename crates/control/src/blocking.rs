//! The side that asks, for a thread that has nothing else to do: it sleeps in the system's call that reads, and is woken by
//! nothing but a line.
//!
//! A controller is such a thread. Between an event and its answer it costs two calls of the system, where one that waits for many
//! things at once needs four, and is also woken when its own lines are read.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use crate::dialogue::Dialogue;
use crate::engine::{Engine, Next};
use crate::place::Entry;
use crate::wire::{EventReport, Reply, Request};

/// A session with one process. Its calls, those of [`Engine`] too, block the thread until they are done: never use it on a runtime
/// that has other tasks.
#[derive(Debug)]
pub struct Client {
    read: BufReader<UnixStream>,
    dialogue: Dialogue,
    /// Whether reading gives up after some time.
    limited: bool,
}

impl Client {
    /// Opens a session.
    ///
    /// # Errors
    /// The socket cannot be reached.
    pub fn connect(socket: &Path) -> io::Result<Self> {
        Ok(Self {
            read: BufReader::with_capacity(64 << 10, UnixStream::connect(socket)?),
            dialogue: Dialogue::default(),
            limited: false,
        })
    }

    /// Opens a session with one of [`sockets`](crate::client::sockets).
    ///
    /// # Errors
    /// The socket cannot be reached, or is not to be trusted.
    pub fn connect_at(socket: &Entry) -> io::Result<Self> {
        let held = socket.pin()?;
        Self::connect(&held.path())
    }

    /// Asks and waits for the reply; a refusal is [`Reply::Error`].
    ///
    /// # Errors
    /// The session is over, or the other side does not speak the protocol.
    pub fn ask(&mut self, request: Request) -> io::Result<Reply> {
        let text = self.dialogue.ask(request)?;
        self.read.get_mut().write_all(&text)?;
        loop {
            match self.read_line() {
                Ok(true) => {}
                Ok(false) => return Err(io::ErrorKind::UnexpectedEof.into()),
                // The limit was for an event.
                Err(error) if is_too_late(&error) => continue,
                Err(error) => return Err(error),
            }
            if let Some(reply) = self.dialogue.reply() {
                return Ok(reply);
            }
        }
    }

    /// The next event, unless a moment comes first.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    pub fn next_event_by(&mut self, at: Option<Instant>) -> io::Result<Next> {
        loop {
            if let Some(event) = self.dialogue.event() {
                return Ok(Next::Event(Box::new(event)));
            }
            match self.limit(at).and_then(|()| self.read_line()) {
                Ok(true) => {}
                Ok(false) => return Ok(Next::End),
                Err(error) if is_too_late(&error) => return Ok(Next::Moment),
                Err(error) => return Err(error),
            }
        }
    }

    /// Hears one more line; false when there is none.
    fn read_line(&mut self) -> io::Result<bool> {
        // What has come of a line stays in the dialogue when the rest does not come in time.
        loop {
            let bytes = match self.read.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(bytes) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let (count, whole) = self.dialogue.take_in(bytes)?;
            self.read.consume(count);
            if whole {
                return Ok(true);
            }
        }
    }

    /// Lets reading give up at a moment.
    fn limit(&mut self, by: Option<Instant>) -> io::Result<()> {
        if self.read.buffer().contains(&b'\n') || (by.is_none() && !self.limited) {
            return Ok(());
        }
        let rest = by.map(|at| at.saturating_duration_since(Instant::now()));
        if rest.is_some_and(|rest| rest.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.read.get_ref().set_read_timeout(rest)?;
        self.limited = by.is_some();
        Ok(())
    }
}

fn is_too_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

impl Engine for Client {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        Client::ask(self, request)
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        match Client::next_event_by(self, None)? {
            Next::Event(event) => Ok(Some(*event)),
            Next::Moment | Next::End => Ok(None),
        }
    }

    async fn next_event_by(&mut self, at: Option<Instant>) -> io::Result<Next> {
        Client::next_event_by(self, at)
    }

    fn outdate(&mut self, connection: &str) {
        self.dialogue.outdate(connection);
    }
}
