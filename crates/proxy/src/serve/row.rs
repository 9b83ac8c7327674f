//! One listener: accepts connections and hands each to its opening.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use manypath_io::convert::cookie::Key;
use tokio::sync::{OwnedSemaphorePermit, oneshot, watch};
use tokio::task::JoinSet;
use tracing::warn;

use crate::Error;
use crate::places::{PlaceOfAll, Places, Reserved};
use crate::request::Client;
use crate::seldom::{Others, Seldom};
use crate::serve::session::{self, Session};
use crate::serve::shared::Shared;
use crate::serve::tls::Tls;
use crate::serve::totals::Outcome;
use crate::serve::{ListenerSpec, Policy, Refusal, Totals};
use crate::stream::{Listener, Stream};

/// Wait after an attempt that failed for lack of something: spinning would not bring it back.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);

/// Between two lines of the log about connections that fail.
const FAILURES: Duration = Duration::from_secs(1);

/// Between two lines of the log about a limit that is reached.
const LIMITS: Duration = Duration::from_secs(10);

/// What can be changed while a listener goes on.
pub(crate) struct Settings {
    pub(crate) spec: ListenerSpec,
    pub(crate) tls: Option<Tls>,
    pub(crate) key: Option<Key>,
}

impl Settings {
    /// Reads the files that a specification names.
    ///
    /// # Errors
    /// One of them cannot be used.
    pub(crate) fn load(spec: ListenerSpec) -> Result<Self, Error> {
        let tls = spec.tls.as_ref().map(Tls::load).transpose()?;
        let read = |path: &PathBuf| {
            Key::read(path).map_err(|e| Error::new(format!("read the key {}", path.display()), e))
        };
        let key = spec.key.as_ref().map(read).transpose()?;
        Ok(Self { spec, tls, key })
    }
}

/// A listener and what its connections share.
pub(crate) struct Row {
    pub(crate) shared: Arc<Shared>,
    pub(crate) totals: Arc<Totals>,
    pub(crate) not_reached: Seldom,
    settings: RwLock<Arc<Settings>>,
    places: Arc<Places>,
    /// Connections that the limits allow: those of the specification, or fewer where descriptors are short.
    most: usize,
    files_each: u32,
    full: Seldom,
    client_full: Seldom,
    not_accepted: Seldom,
    /// It was taken out while it asked who a client is.
    asks_for_good: AtomicBool,
}

/// What a connection takes of all listeners: a place, and descriptors.
struct Taken {
    _place: PlaceOfAll,
    _files: Option<OwnedSemaphorePermit>,
}

/// Why there is no place.
enum Full {
    /// This listener has as many connections as it may have.
    Here,
    /// All of them together have.
    InAll,
    /// For want of descriptors.
    Files,
}

impl Row {
    pub(crate) fn new(
        shared: Arc<Shared>,
        settings: Settings,
        totals: Arc<Totals>,
        listener: &Listener,
    ) -> Self {
        let spec = &settings.spec;
        let outside = spec.carries();
        let files_each = u32::from(listener.takes_files()) + u32::from(outside.takes_files());
        let allowed = spec.bounds.max_connections;
        let files = shared.files.as_ref().filter(|_| files_each > 0);
        let fit = files.map(|files| files.available_permits() / files_each as usize);
        let most = allowed.min(fit.unwrap_or(usize::MAX)).max(1);
        if most < allowed {
            warn!(
                "the limit of open files lets {most} connections be carried at one time, fewer than the {allowed} that are \
                 allowed; further ones wait; `ulimit -n` or LimitNOFILE= raises it"
            );
        }
        Self {
            places: Places::new(most, spec.bounds.max_per_client),
            most,
            files_each,
            settings: RwLock::new(Arc::new(settings)),
            totals,
            shared,
            full: Seldom::every(LIMITS),
            client_full: Seldom::every(LIMITS),
            not_accepted: Seldom::every(FAILURES),
            not_reached: Seldom::every(FAILURES),
            asks_for_good: AtomicBool::new(false),
        }
    }

    /// What new connections get.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        let settings = self.settings.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&settings)
    }

    pub(crate) fn set(&self, settings: Settings) {
        let mut held = self
            .settings
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *held = Arc::new(settings);
    }

    /// Notes that no policy knows this listener any more. What it carries goes on, and is asked for a user as before: a policy has
    /// no users for a name that it does not know, which must not let in everybody.
    pub(crate) fn leave(&self, before: &Policy) {
        let client = Client {
            listener: Arc::clone(&self.settings().spec.name),
            address: (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
            user: None,
        };
        if before.requires_user(&client) {
            self.asks_for_good.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a client must say who it is, whatever the newest policy knows of this listener.
    pub(crate) fn asks_for_good(&self) -> bool {
        self.asks_for_good.load(Ordering::Relaxed)
    }

    /// Accepts until `stop` says so, then gives the listener back and lets what is open go on until it says so again.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut listener: Listener,
        mut stop: watch::Receiver<Stop>,
        back: oneshot::Sender<Listener>,
    ) {
        let mut tasks = JoinSet::new();
        while *stop.borrow_and_update() == Stop::No {
            let next = async {
                let reserved = self.reserve().await;
                (listener.accept().await, reserved)
            };
            tokio::select! {
                _ = stop.changed() => {}
                // A finished task has nothing to say, but it holds memory until it is taken out.
                Some(_) = tasks.join_next() => {}
                (accepted, reserved) = next => match (accepted, reserved) {
                    (Ok((stream, peer)), Some(reserved)) => {
                        let row = Arc::clone(&self);
                        tasks.spawn(async move { row.admit(stream, peer, reserved).await });
                    }
                    (Ok((stream, _)), None) => stream.abort(),
                    (Err(error), _) => {
                        if let Some(more) = self.not_accepted.due(Instant::now()) {
                            warn!(%error, "cannot accept a connection{}", Others(more));
                        }
                        if !is_of_one_connection(&error) {
                            tokio::time::sleep(PAUSE).await;
                        }
                    }
                },
            }
        }
        // Who wants it not drops it.
        let _ = back.send(listener);
        while *stop.borrow_and_update() != Stop::Now {
            tokio::select! {
                changed = stop.changed() => if changed.is_err() { break },
                task = tasks.join_next() => if task.is_none() { return },
            }
        }
        tasks.shutdown().await;
    }

    /// Waits for a place and for descriptors, and says so if it has to.
    async fn reserve(&self) -> Option<(Reserved, Taken)> {
        let reserved = match self.places.try_reserve() {
            Some(reserved) => reserved,
            None => {
                let for_files = self.most < self.settings().spec.bounds.max_connections;
                self.tell_full(if for_files { Full::Files } else { Full::Here });
                self.places.reserve().await?
            }
        };
        let total = &self.shared.total;
        let _place = match total.try_take() {
            Some(place) => place,
            None => {
                self.tell_full(Full::InAll);
                total.take().await
            }
        };
        let Some(files) = self.shared.files.as_ref().filter(|_| self.files_each > 0) else {
            let _files = None;
            return Some((reserved, Taken { _place, _files }));
        };
        let files = Arc::clone(files);
        let permit = match Arc::clone(&files).try_acquire_many_owned(self.files_each) {
            Ok(permit) => permit,
            Err(_) => {
                self.tell_full(Full::Files);
                files.acquire_many_owned(self.files_each).await.ok()?
            }
        };
        let _files = Some(permit);
        Some((reserved, Taken { _place, _files }))
    }

    /// Says that there is no place.
    fn tell_full(&self, full: Full) {
        if self.full.due(Instant::now()).is_none() {
            return;
        }
        let here = self.most.min(self.places.taken());
        let (carried, why) = match full {
            Full::Files => (here, "the limit of open files"),
            Full::InAll => (here, "`all_connections` of [limits] for all listeners"),
            Full::Here => (self.most, "--max-connections"),
        };
        warn!("{carried} connections are carried, as many as may be ({why}); further ones wait");
    }

    /// Carries a connection, if its client may have one more.
    async fn admit(self: Arc<Self>, stream: Stream, peer: SocketAddr, reserved: (Reserved, Taken)) {
        let settings = self.settings();
        let name = &settings.spec.name;
        self.totals.accepted.fetch_add(1, Ordering::Relaxed);
        self.shared.observer.accepted(name, peer);
        let (reserved, taken) = reserved;
        let client = Some(peer).filter(|_| !stream.is_from_this_host());
        // Also a task that panics is over, and one that is dropped.
        let mut open = Open {
            row: &self,
            name,
            outcome: Outcome::Stopped,
        };
        open.outcome = match self.places.give(reserved, client) {
            Some(place) => {
                let session = Session::new(Arc::clone(&self), Arc::clone(&settings), peer, &stream);
                let outcome = session::serve(session, stream).await;
                drop(place);
                outcome
            }
            None => {
                let observer = &self.shared.observer;
                observer.refused(name, peer, None, Refusal::ClientFull);
                if let Some(more) = self.client_full.due(Instant::now()) {
                    warn!(
                        client = %peer.ip(),
                        "a client has {} connections, as many as one may have (--max-per-client); further ones are reset{}",
                        settings.spec.bounds.max_per_client,
                        Others(more)
                    );
                }
                stream.abort();
                Outcome::Refused
            }
        };
        drop(taken);
    }
}

/// A connection that is counted as open until this is dropped.
struct Open<'a> {
    row: &'a Row,
    name: &'a Arc<str>,
    outcome: Outcome,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let outcome = match std::thread::panicking() {
            true => Outcome::Broken,
            false => self.outcome,
        };
        self.row.totals.over(outcome);
        self.row.shared.observer.closed(self.name);
    }
}

/// How far a listener is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Not at all.
    No,
    /// It takes no new connections.
    Listening,
    /// Connections that are open are reset.
    Now,
}

/// Whether an error of `accept` concerns only the connection that was next.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
    )
}
