//! What every controller does beside deciding: it finds its engine, subscribes, claims, waits for whatever comes next, an
//! event or a moment of its own choice, and goes on after a refusal.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::engine::{AnyEngine, ControlError, Engine};
use crate::report::ConnReport;
use crate::wire::{EventReport, Filter, Reply, Request};

/// What a controller is written with, to be imported as a whole.
pub mod prelude {
    pub use super::{Done, Steering, Turn, heed};
    pub use crate::engine::{ControlError, Engine};
    pub use crate::report::ConnReport;
    pub use crate::wire::{EventReport, Filter, Wanted};
    pub use manypath_stack::api::Ending;
}

/// How something ended that a controller had to do.
pub type Done = Result<(), ControlError>;

/// Goes on after a refusal, which is told on standard error.
///
/// # Errors
/// The session is over.
pub fn heed<R>(done: Result<R, ControlError>) -> Done {
    match done {
        Err(ControlError::Session(error)) => return Err(error.into()),
        Err(refused) => eprintln!("{refused}"),
        Ok(_) => {}
    }
    Ok(())
}

/// What a controller is to look at now.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn<T> {
    /// Something happened.
    Event(Box<EventReport>),
    /// The moment has come that [`Steering::after`] chose.
    Due(T),
}

impl<T> Turn<T> {
    /// The connection that the event brought.
    pub fn sample(self) -> Option<Box<ConnReport>> {
        match self {
            Self::Event(event) => event.sample,
            Self::Due(_) => None,
        }
    }
}

/// A session that owns all connections that nobody else owns. `T` is what is noted for later.
#[derive(Debug)]
pub struct Steering<T> {
    engine: AnyEngine,
    later: Vec<(Instant, T)>,
}

impl<T> Steering<T> {
    /// Opens the engine that the first word of the command line names ([`AnyEngine::open`]), subscribes to events, and
    /// claims all connections.
    ///
    /// # Errors
    /// There is no such engine, or it refuses.
    pub async fn begin(filter: Filter) -> io::Result<Self> {
        let engine = AnyEngine::open(std::env::args().nth(1).as_deref()).await?;
        Self::over(engine, filter).await
    }

    /// Subscribes to events of an engine and claims all connections.
    ///
    /// # Errors
    /// The engine refuses, or is gone.
    pub async fn over(mut engine: AnyEngine, filter: Filter) -> io::Result<Self> {
        engine.subscribe(filter).await?;
        engine.claim(None).await?;
        let later = Vec::new();
        Ok(Self { engine, later })
    }

    /// Hands `what` back as [`Turn::Due`] when so much time has passed.
    pub fn after(&mut self, pause: Duration, what: T) {
        let at = Instant::now() + pause;
        let place = self.later.partition_point(|(known, _)| *known > at);
        // The next one stands last.
        self.later.insert(place, (at, what));
    }

    /// Like [`after`](Self::after), up to a quarter later by chance: what failed together is not tried again together.
    pub fn after_about(&mut self, pause: Duration, what: T) {
        // The seed of a hash table is the standard library's random number.
        let chance = RandomState::new().build_hasher().finish() % 256;
        self.after(pause + pause * chance as u32 / 1024, what);
    }

    /// Lets `decide` look at every event and moment until the engine is gone. What is refused is told on standard error.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    pub async fn run(
        mut self,
        mut decide: impl AsyncFnMut(&mut Self, Turn<T>) -> Done,
    ) -> io::Result<()> {
        while let Some(turn) = self.next().await? {
            heed(decide(&mut self, turn).await)?;
        }
        Ok(())
    }

    /// The next event or moment; `None` when the engine is gone.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    pub async fn next(&mut self) -> io::Result<Option<Turn<T>>> {
        let event = match self.later.last() {
            None => Ok(self.engine.next_event().await),
            Some((at, _)) => timeout_at(*at, self.engine.next_event()).await,
        };
        match event {
            Ok(event) => Ok(event?.map(Box::new).map(Turn::Event)),
            Err(_) => Ok(self.later.pop().map(|(_, what)| Turn::Due(what))),
        }
    }
}

impl<T: Send> Engine for Steering<T> {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        self.engine.ask(request).await
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        self.engine.next_event().await
    }

    fn outdate(&mut self, connection: &str) {
        self.engine.outdate(connection);
    }
}
