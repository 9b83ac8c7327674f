//! What a controller is written against: whoever owns connections and lets them be steered, a process with a stack of ours
//! ([`Client`]) or the Linux kernel ([`Kernel`]). Both speak the requests, replies and events of
//! [`wire`](crate::wire).

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::time::Instant;

use manypath_stack::api::Ending;
use tokio::time::timeout_at;

use crate::client::{self, Client};
use crate::kernel::Kernel;
use crate::report::ConnReport;
use crate::wire::{EventReport, Filter, Reply, Request, Wanted};

/// Why something was not done.
#[derive(Debug)]
pub enum ControlError {
    /// The session is over, or the other side does not speak the protocol.
    Session(io::Error),
    /// The other side says no.
    Refused {
        /// Why, for a program: the codes of [`Reply::Error`].
        code: String,
        /// Why, for a human reader.
        message: String,
    },
}

impl std::fmt::Display for ControlError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Session(error) => error.fmt(f),
            Self::Refused { message, .. } => f.write_str(message),
        }
    }
}

impl std::error::Error for ControlError {}

impl From<io::Error> for ControlError {
    fn from(error: io::Error) -> Self {
        Self::Session(error)
    }
}

impl From<ControlError> for io::Error {
    fn from(error: ControlError) -> Self {
        match error {
            ControlError::Session(error) => error,
            refused @ ControlError::Refused { .. } => Self::other(refused),
        }
    }
}

/// What comes first.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// An event.
    Event(Box<EventReport>),
    /// The moment that was waited for.
    Moment,
    /// The end of the session.
    End,
}

/// A session with whoever owns connections. The typed calls below are one request each, in the order in which they are made.
pub trait Engine: Send {
    /// Asks and waits for the reply; a refusal is [`Reply::Error`].
    ///
    /// # Errors
    /// The session is over, or the other side does not speak the protocol.
    fn ask(&mut self, request: Request) -> impl Future<Output = io::Result<Reply>> + Send;

    /// The next event; `None` when the session is over. May be given up and called again.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    fn next_event(&mut self) -> impl Future<Output = io::Result<Option<EventReport>>> + Send;

    /// The next event, unless a moment comes first.
    ///
    /// # Errors
    /// The other side does not speak the protocol.
    fn next_event_by(
        &mut self,
        at: Option<Instant>,
    ) -> impl Future<Output = io::Result<Next>> + Send {
        async move {
            let heard = match at {
                None => self.next_event().await,
                Some(at) => match timeout_at(at.into(), self.next_event()).await {
                    Ok(heard) => heard,
                    Err(_) => return Ok(Next::Moment),
                },
            };
            Ok(heard?.map_or(Next::End, |event| Next::Event(Box::new(event))))
        }
    }

    /// Takes the samples of a connection out of the events that have arrived and were not looked at: after a command, they
    /// show the connection as it was before. Those that arrive later show what the command has changed.
    fn outdate(&mut self, connection: &str);

    /// Events from now on; a second subscription takes the place of the first.
    ///
    /// # Errors
    /// As all calls: the session is over, or the other side refuses.
    fn subscribe(
        &mut self,
        filter: Filter,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        async { self.order(Request::Subscribe(filter)).await.map(|_| ()) }
    }

    /// Makes this session the owner of a connection, or of all that nobody owns, now and later.
    ///
    /// # Errors
    /// Another session owns it.
    fn claim(
        &mut self,
        connection: Option<&str>,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        let claim = Request::Claim {
            connection: connection.map(str::to_owned),
            force: false,
        };
        async { self.order(claim).await.map(|_| ()) }
    }

    /// All connections.
    ///
    /// # Errors
    /// Those of [`ask`](Engine::ask).
    fn list(&mut self) -> impl Future<Output = Result<Vec<ConnReport>, ControlError>> + Send {
        async {
            match self.order(Request::List).await? {
                Reply::Process { process } => Ok(process.connections),
                _ => Err(other_answer()),
            }
        }
    }

    /// A connection as it is.
    ///
    /// # Errors
    /// It is gone.
    fn show(
        &mut self,
        connection: &str,
    ) -> impl Future<Output = Result<ConnReport, ControlError>> + Send {
        let connection = connection.to_owned();
        async {
            match self.order(Request::Show { connection }).await? {
                Reply::Connection { connection } => Ok(*connection),
                _ => Err(other_answer()),
            }
        }
    }

    /// Opens a subflow and gives its number; `sub_established` tells when it carries data.
    ///
    /// # Errors
    /// There is no such path, no room for it, or the connection cannot have more.
    fn create(
        &mut self,
        connection: &str,
        wanted: Wanted,
    ) -> impl Future<Output = Result<Option<u32>, ControlError>> + Send {
        let connection = connection.to_owned();
        async {
            match self
                .order(Request::SubflowCreate { connection, wanted })
                .await?
            {
                Reply::Done { subflow, .. } => Ok(subflow),
                _ => Err(other_answer()),
            }
        }
    }

    /// Ends a subflow.
    ///
    /// # Errors
    /// It is gone.
    fn destroy(
        &mut self,
        connection: &str,
        subflow: u32,
        ending: Ending,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        let destroy = Request::SubflowDestroy {
            connection: connection.to_owned(),
            subflow,
            reset: ending == Ending::Reset,
        };
        async { self.order(destroy).await.map(|_| ()) }
    }

    /// Makes a subflow a backup, or regular again.
    ///
    /// # Errors
    /// It is gone.
    fn set_backup(
        &mut self,
        connection: &str,
        subflow: u32,
        backup: bool,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        let flags = Request::SetFlags {
            connection: connection.to_owned(),
            subflow,
            backup,
        };
        async { self.order(flags).await.map(|_| ()) }
    }

    /// Tells the peer one of our addresses and gives our identifier of it.
    ///
    /// # Errors
    /// The connection cannot tell it.
    fn announce(
        &mut self,
        connection: &str,
        address: IpAddr,
        port: Option<u16>,
    ) -> impl Future<Output = Result<Option<u8>, ControlError>> + Send {
        let announce = Request::Announce {
            connection: connection.to_owned(),
            address,
            port,
        };
        async {
            match self.order(announce).await? {
                Reply::Done { address_id, .. } => Ok(address_id),
                _ => Err(other_answer()),
            }
        }
    }

    /// Withdraws an address.
    ///
    /// # Errors
    /// The peer was never told of it.
    fn withdraw(
        &mut self,
        connection: &str,
        address_id: u8,
    ) -> impl Future<Output = Result<(), ControlError>> + Send {
        let remove = Request::Remove {
            connection: connection.to_owned(),
            address_id,
        };
        async { self.order(remove).await.map(|_| ()) }
    }

    /// Asks for something that may be refused.
    ///
    /// # Errors
    /// As all calls.
    fn order(
        &mut self,
        request: Request,
    ) -> impl Future<Output = Result<Reply, ControlError>> + Send {
        async {
            match self.ask(request).await? {
                Reply::Error { code, message } => Err(ControlError::Refused { code, message }),
                reply => Ok(reply),
            }
        }
    }
}

fn other_answer() -> ControlError {
    let what = "an answer to another question";
    ControlError::Session(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Either engine, for a program that decides when it starts.
#[derive(Debug)]
pub enum AnyEngine {
    /// A process with a stack of ours.
    Process(Client),
    /// The kernel of this host.
    Kernel(Box<Kernel>),
}

impl AnyEngine {
    /// `kernel`, a process id, or `None` for the only process there is.
    ///
    /// # Errors
    /// There is no such process, or several; or what [`Kernel::open`] says.
    pub async fn open(name: Option<&str>) -> io::Result<Self> {
        if name == Some("kernel") {
            return Ok(Self::Kernel(Box::new(Kernel::open()?)));
        }
        let bad = |what: &str| io::Error::new(io::ErrorKind::NotFound, what.to_owned());
        let mut sockets = client::sockets();
        if let Some(name) = name {
            let wanted: u32 = name
                .parse()
                .map_err(|_| bad("neither `kernel` nor a process id"))?;
            sockets.retain(|socket| socket.pid == wanted);
        }
        match sockets.as_slice() {
            [socket] => Ok(Self::Process(Client::connect_at(socket).await?)),
            [] => Err(bad("no such process can be reached")),
            _ => Err(bad("several processes are running: say which")),
        }
    }
}

impl Engine for AnyEngine {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        match self {
            Self::Process(client) => client.ask(request).await,
            Self::Kernel(kernel) => kernel.ask(request).await,
        }
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        match self {
            Self::Process(client) => client.next_event().await,
            Self::Kernel(kernel) => kernel.next_event().await,
        }
    }

    fn outdate(&mut self, connection: &str) {
        match self {
            Self::Process(client) => client.outdate(connection),
            Self::Kernel(kernel) => kernel.outdate(connection),
        }
    }
}
