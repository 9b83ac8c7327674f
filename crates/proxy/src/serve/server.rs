//! All listeners of one process, which a changed configuration adds to, takes from and changes.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

use crate::Error;
use crate::later::Later;
use crate::serve::row::{Row, Settings, Stop};
use crate::serve::session::holds_syns;
use crate::serve::shared::{Port, Shared};
use crate::serve::{ListenerSpec, Observer, OpeningKind, Policy, Totals};
use crate::sockets::Sockets;
use crate::stream::Listener;
use crate::target::tls::Trust;

/// A listener that is there.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Its name.
    pub name: Arc<str>,
    /// Where it listens.
    pub address: SocketAddr,
    /// What it did so far.
    pub totals: Arc<Totals>,
}

/// One listener and the means to stop it.
struct Running {
    row: Arc<Row>,
    listening: Listening,
    stop: watch::Sender<Stop>,
    /// The listener itself, once it is stopped.
    back: oneshot::Receiver<Listener>,
}

/// Serves listeners until it is stopped.
pub struct Server {
    shared: Arc<Shared>,
    rows: Vec<Running>,
    /// Listeners that were taken out, whose connections go on.
    leaving: Vec<watch::Sender<Stop>>,
    tasks: JoinSet<()>,
    changes: AtomicU64,
}

/// Where a listener that begins comes from.
enum Source {
    /// It was bound, before anything is changed.
    Bound(Listener, SocketAddr),
    /// It is that of the row with this number, which ends: nobody who connects meanwhile is refused.
    Row(usize),
}

impl Server {
    /// No listener yet.
    #[must_use]
    pub fn new(sockets: Sockets, observer: Arc<dyn Observer>, policy: Arc<Policy>) -> Self {
        Self {
            shared: Arc::new(Shared::new(sockets, observer, policy)),
            rows: Vec::new(),
            leaving: Vec::new(),
            tasks: JoinSet::new(),
            changes: AtomicU64::new(0),
        }
    }

    /// Has these listeners from now on, and this policy. What listens at the same place with the same opening goes on with its new
    /// settings, which new connections get; what else listens at the same place takes the listener over; others are opened;
    /// those that are not named take no new connections, and what they carry goes on. All or nothing: certificates are read and places bound before anything is changed.
    ///
    /// # Errors
    /// A certificate cannot be used, or a place not be listened on; nothing has changed then.
    pub async fn apply(
        &mut self,
        specs: Vec<ListenerSpec>,
        policy: Arc<Policy>,
    ) -> Result<(), Error> {
        self.change(specs, policy, false).await
    }

    /// As [`Server::apply`] does, and a place whose address the host does not have yet is waited for, which the log says: at a start
    /// interfaces may still be on their way.
    ///
    /// # Errors
    /// Those of [`Server::apply`] otherwise.
    pub async fn begin(
        &mut self,
        specs: Vec<ListenerSpec>,
        policy: Arc<Policy>,
    ) -> Result<(), Error> {
        self.change(specs, policy, true).await
    }

    async fn change(
        &mut self,
        specs: Vec<ListenerSpec>,
        policy: Arc<Policy>,
        waits: bool,
    ) -> Result<(), Error> {
        let mut kept: HashMap<usize, Settings> = HashMap::new();
        let mut new: Vec<(Settings, Source)> = Vec::new();
        for spec in specs {
            let settings = Settings::load(spec)?;
            let spec = &settings.spec;
            let same = self
                .rows
                .iter()
                .position(|running| is_same(&running.row.settings().spec, spec));
            match same.filter(|n| !kept.contains_key(n)) {
                Some(n) => {
                    kept.insert(n, settings);
                }
                None => {
                    let source = match self.at_same_place(&settings.spec) {
                        Some(n) => Source::Row(n),
                        None => self.bind(&settings.spec, waits).await?,
                    };
                    new.push((settings, source));
                }
            }
        }
        let before = self.shared.policy();
        for (n, running) in self.rows.iter().enumerate() {
            if !kept.contains_key(&n) {
                running.row.leave(&before);
            }
        }
        self.shared.set_policy(policy);
        let mut ended = HashMap::new();
        let rows = std::mem::take(&mut self.rows);
        for (n, running) in rows.into_iter().enumerate() {
            match kept.remove(&n) {
                Some(settings) => {
                    running.row.set(settings);
                    self.rows.push(running);
                }
                None => {
                    running.stop.send_replace(Stop::Listening);
                    self.leaving.push(running.stop);
                    ended.insert(n, (running.back, running.listening.address));
                }
            }
        }
        self.leaving.retain(|stop| !stop.is_closed());
        // Those that nobody takes over are closed.
        let taken_over = |n| {
            new.iter()
                .any(|(_, source)| matches!(source, Source::Row(of) if *of == n))
        };
        ended.retain(|n, _| taken_over(*n));
        for (settings, source) in new {
            let (listener, address) = match source {
                Source::Bound(listener, address) => (listener, address),
                Source::Row(n) => match ended.remove(&n) {
                    Some((back, address)) => {
                        let over = |_| io::Error::other("its listener is gone");
                        let what = || format!("take over {}", settings.spec.on);
                        let back = back.await.map_err(over);
                        (back.map_err(|e| Error::new(what(), e))?, address)
                    }
                    // Places are taken by one specification each.
                    None => continue,
                },
            };
            self.start(settings, listener, address, Arc::default());
        }
        self.changes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Lets all listeners together carry no more than so many connections from now on; what is beyond that goes on.
    pub fn set_most(&self, connections: usize) {
        self.shared.total.set(connections);
    }

    /// Believes these certificates of targets from now on.
    pub fn set_trust(&self, trust: Trust) {
        self.shared.set_trust(trust);
    }

    /// The row that listens where a specification wants to; port 0 is another one each time.
    fn at_same_place(&self, spec: &ListenerSpec) -> Option<usize> {
        let on = Some(&spec.on).filter(|on| on.at.port() != 0)?;
        let mut rows = self.rows.iter();
        rows.position(|running| running.row.settings().spec.on == *on)
    }

    async fn bind(&self, spec: &ListenerSpec, waits: bool) -> Result<Source, Error> {
        let backend = match &spec.opening {
            OpeningKind::Fixed(to) => Some(to),
            OpeningKind::Http
            | OpeningKind::Socks5
            | OpeningKind::Convert
            | OpeningKind::Transparent => None,
        };
        let on = &spec.on;
        let sockets = &self.shared.sockets;
        let later = || Later::new(sockets, on, backend).filter(|_| waits);
        let listener = match sockets.listen(on, backend).await {
            Ok(listener) => listener,
            Err(error) => match later().filter(|_| is_not_there_yet(&error)) {
                Some(later) => Listener::Later(Box::new(later)),
                None => return Err(error),
            },
        };
        let address = listener.local_addr();
        let address = address.map_err(|e| Error::new(format!("listen on {on}"), e))?;
        Ok(Source::Bound(listener, address))
    }

    /// Serves a listener that is open already.
    pub(crate) fn start(
        &mut self,
        settings: Settings,
        listener: Listener,
        address: SocketAddr,
        totals: Arc<Totals>,
    ) {
        listener.hold_syns(holds_syns(&settings.spec));
        if settings.spec.opening == OpeningKind::Transparent {
            listener.take_any_destination();
        }
        let name = Arc::clone(&settings.spec.name);
        let shared = Arc::clone(&self.shared);
        let port = Port::note(&shared, address, &listener);
        let row = Arc::new(Row::new(shared, settings, Arc::clone(&totals), &listener));
        let (stop, stopped) = watch::channel(Stop::No);
        let (give, back) = oneshot::channel();
        let serving = Arc::clone(&row).run(listener, stopped, give);
        self.tasks.spawn(async move {
            serving.await;
            drop(port);
        });
        self.rows.push(Running {
            row,
            listening: Listening {
                name,
                address,
                totals,
            },
            stop,
            back,
        });
    }

    /// The listeners that are there.
    #[must_use]
    pub fn listeners(&self) -> Vec<Listening> {
        self.rows.iter().map(|row| row.listening.clone()).collect()
    }

    /// How often a configuration was applied.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Takes no new connections; what is carried goes on.
    pub fn stop_listening(&mut self) {
        for running in self.rows.drain(..) {
            running.stop.send_replace(Stop::Listening);
            self.leaving.push(running.stop);
        }
    }

    /// Waits until nothing is carried any more, after [`Server::stop_listening`].
    pub async fn drained(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends: connections that are open are reset.
    pub async fn stop(mut self) {
        self.stop_listening();
        for stop in &self.leaving {
            stop.send_replace(Stop::Now);
        }
        self.drained().await;
    }
}

fn is_not_there_yet(error: &Error) -> bool {
    error.source.kind() == io::ErrorKind::AddrNotAvailable
}

/// Whether a listener can go on as another: it listens at the same place, and nothing that was sized for it has changed.
fn is_same(known: &ListenerSpec, new: &ListenerSpec) -> bool {
    let kind = |spec: &ListenerSpec| std::mem::discriminant(&spec.opening);
    let places = |spec: &ListenerSpec| (spec.bounds.max_connections, spec.bounds.max_per_client);
    known.name == new.name
        && known.on == new.on
        && kind(known) == kind(new)
        && known.outside == new.outside
        && places(known) == places(new)
}
