//! Who is connected to the control socket, what each is to hear, and who owns which connection.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use manypath_stack::api::{
    Command, Done, Ending, Event, EventKind, NewSubflow, PathManager, StackError,
};
use manypath_stack::ids::{ConnId, SubflowId};
use manypath_stack::pm::controllers::View;
use manypath_wire::ids::AddrId;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;

use crate::news;
use crate::outbox::{Form, Line, Outbox, Pace, Store, lock};
use crate::report::{ConnReport, Overview};
use crate::view::ViewReport;
use crate::wire::{
    Answer, DecisionReport, EventReport, LimitOf, LimitOrder, Reply, Request, VERSION, Wanted,
};

/// Who knows the connections of this process and can act on them.
pub trait Backend: Send + Sync + 'static {
    /// Paths, memory and counters of the process as they are now.
    fn overview(&self) -> Overview;
    /// All connections as they are now, oldest first.
    fn connections(&self) -> Vec<ConnReport>;
    /// One of them.
    fn connection(&self, id: ConnId) -> Option<ConnReport>;
    /// What controllers see of it.
    fn view(&self, id: ConnId) -> Option<View>;
    /// The decisions of its path manager, oldest first.
    fn decisions(&self, id: ConnId) -> Option<Vec<DecisionReport>>;
    /// The policy that decides its subflows.
    fn policy(&self, id: ConnId) -> Option<PathManager>;
    /// Carries out a command.
    ///
    /// # Errors
    /// Those of the stack.
    fn command(&self, id: ConnId, command: Command) -> Result<Done, StackError>;
    /// Sets, changes or removes a limit of what is sent.
    ///
    /// # Errors
    /// A code of [`Reply::Error`] and the reason: there is nothing of that name.
    fn limit(&self, order: &LimitOrder) -> Result<(), (&'static str, String)> {
        let _ = order;
        Err(("invalid", "this process has no limits".to_owned()))
    }

    /// Counts the quotas of a path or a class anew.
    ///
    /// # Errors
    /// A code of the protocol, and words: it has none.
    fn reset_quota(&self, of: LimitOf, name: &str) -> Result<(), (&'static str, String)> {
        let _ = (of, name);
        Err(("invalid", "this process has no quotas".to_owned()))
    }
    /// All events for controllers from now on.
    fn news(&self) -> News;
    /// Microseconds since the process began, as events have them.
    fn now_us(&self) -> u64;
    /// Reads the configuration anew and puts it in force, or says everything that is wrong with it; `None` where there is no
    /// configuration file.
    fn reload(&self) -> Option<Reloading> {
        None
    }
    /// How much was written to a socket and not read yet, in whatever unit, if that can be known.
    fn unread(&self, socket: BorrowedFd<'_>) -> Option<usize>;
}

/// A reload on its way.
pub type Reloading = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Events as they happen.
#[derive(Debug)]
pub struct News {
    /// They come in order.
    pub events: mpsc::Receiver<Event>,
    /// What has happened to limits, quotas and paths; numbered, and given their time, when they are told.
    pub limits: mpsc::Receiver<EventReport>,
    /// How many did not fit so far.
    pub lost: Arc<AtomicU64>,
}

/// A claim on a connection.
#[derive(Clone, Copy, Debug)]
struct Owner {
    client: u64,
    /// What decided before.
    before: PathManager,
}

#[derive(Debug, Default)]
struct State {
    clients: BTreeMap<u64, Arc<Outbox>>,
    next: u64,
    owners: HashMap<ConnId, Owner>,
    /// Who claimed all that nobody owns, first come first served.
    everything: Vec<u64>,
    seq: u64,
    lost: u64,
}

impl State {
    /// The answer to a client that may not command a connection, since another one owns it.
    fn refusal(&self, client: u64, conn: ConnId) -> Option<Reply> {
        let owner = self.owners.get(&conn)?.client;
        let pid = self.clients.get(&owner).and_then(|outbox| outbox.pid);
        let who = pid.map_or_else(String::new, |pid| format!(", process {pid},"));
        (owner != client).then(|| {
            Reply::error(
                "owned",
                format!("another controller{who} owns this connection"),
            )
        })
    }
}

/// All clients of one process.
pub(crate) struct Hub {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) title: String,
    store: Store,
    state: Mutex<State>,
    /// Requests are served, and events told, one after the other. So an event that stands before the reply to a command was
    /// told before the command was carried out, and one that stands behind it shows what the command has changed.
    turn: Mutex<()>,
}

impl Hub {
    pub(crate) fn new(backend: impl Backend, title: String) -> Self {
        Self {
            backend: Box::new(backend),
            title,
            store: Store::default(),
            state: Mutex::default(),
            turn: Mutex::default(),
        }
    }

    /// A new client.
    pub(crate) fn enter(&self, write: OwnedWriteHalf) -> (u64, Arc<Outbox>) {
        let mut state = lock(&self.state);
        state.next += 1;
        let client = state.next;
        let outbox = Arc::new(Outbox::new(write, self.store.clone()));
        state.clients.insert(client, Arc::clone(&outbox));
        (client, outbox)
    }

    /// A client is gone, however that came: what it owned is decided again by what decided before.
    pub(crate) fn leave(&self, client: u64) {
        // Not while another one leaves, who would make this one its heir.
        let _turn = lock(&self.turn);
        lock(&self.state).clients.remove(&client);
        self.release(client, None);
    }

    /// The number of the newest event.
    pub(crate) fn seq(&self) -> u64 {
        lock(&self.state).seq
    }

    /// What a client has not read, if that can be known.
    pub(crate) fn unread(&self, outbox: &Outbox) -> Option<usize> {
        let socket: &UnixStream = outbox.write.as_ref();
        self.backend.unread(socket.as_fd())
    }

    pub(crate) fn owns_something(&self, client: u64) -> bool {
        let state = lock(&self.state);
        state.everything.contains(&client)
            || state.owners.values().any(|owner| owner.client == client)
    }

    /// Passes events on until there are no more, each time when this thread has nothing else to do: neither the application, which is
    /// about to hear of the same thing and may write, nor packets that are about to be handled wait for ours to be written. The
    /// first one goes at once then, as its answer is worth the most; what follows it goes together, since each write would wake
    /// its reader.
    pub(crate) async fn distribute(self: Arc<Self>, mut news: News) {
        loop {
            let first = tokio::select! {
                Some(first) = news.events.recv() => first,
                Some(limits) = news.limits.recv() => {
                    self.tell_of_limits(limits);
                    continue;
                }
                else => return,
            };
            tokio::task::yield_now().await;
            self.pass_on(&first, &news, Pace::AtOnce);
            tokio::task::yield_now().await;
            while let Ok(event) = news.events.try_recv() {
                self.pass_on(&event, &news, Pace::Together);
            }
        }
    }

    /// Tells what has happened to limits: nobody has to answer it at once.
    fn tell_of_limits(&self, mut report: EventReport) {
        let _turn = lock(&self.turn);
        let mut state = lock(&self.state);
        state.seq += 1;
        (report.seq, report.at_us) = (state.seq, self.backend.now_us());
        let line = self.line(&report);
        let clients = state.clients.values();
        for client in clients.filter(|client| client.wants(&report).is_some()) {
            if client.has_room(&report) {
                client.push(&line, Pace::Together);
            }
        }
    }

    fn pass_on(&self, event: &Event, news: &News, pace: Pace) {
        self.tell(event, pace);
        self.tell_lost(news.lost.load(Ordering::Relaxed), event);
    }

    fn tell(&self, event: &Event, pace: Pace) {
        let _turn = lock(&self.turn);
        let mut state = lock(&self.state);
        // Most do not hear decisions: these have no numbers of their own, so that a gap still means a loss.
        let number = u64::from(!matches!(event.kind, EventKind::Decided { .. }));
        let Some(mut report) = news::report(event, state.seq + number) else {
            return;
        };
        state.seq += number;
        if let EventKind::Decided { number } = event.kind {
            let anybody = state.clients.values().any(|c| c.wants(&report).is_some());
            let entry = anybody.then(|| self.decision(event.conn?, number));
            let Some(entry) = entry.flatten() else {
                return;
            };
            (report.decision, report.reason) = (Some(entry.decision), Some(entry.reason));
        }
        // Each form is written once for all.
        let (mut short, mut viewed, mut long) = (None, None, None);
        for client in state.clients.values() {
            let text = match client.wants(&report) {
                None => continue,
                // It is told how many it did not get.
                Some(_) if !client.has_room(&report) => continue,
                Some(Form::Short) => short.get_or_insert_with(|| self.line(&report)),
                Some(Form::WithView) => viewed.get_or_insert_with(|| {
                    let found = event.conn.and_then(|id| self.backend.view(id));
                    self.line(&EventReport {
                        view: found.map(|view| Box::new(ViewReport::from(&view))),
                        ..report.clone()
                    })
                }),
                Some(Form::WithSample) => long.get_or_insert_with(|| {
                    let found = event.conn.and_then(|id| self.backend.connection(id));
                    self.line(&EventReport {
                        sample: found.map(Box::new),
                        ..report.clone()
                    })
                }),
            };
            client.push(text, pace);
        }
        let Some(conn) = event.conn else { return };
        match event.kind {
            EventKind::Opening { .. } | EventKind::Created { .. } => {
                let owned = state.owners.contains_key(&conn);
                let first = state.everything.first().copied().filter(|_| !owned);
                drop(state);
                if let Some(client) = first {
                    // It may have ended already.
                    let _ = self.take(client, conn, false);
                }
            }
            EventKind::Closed(_) => {
                state.owners.remove(&conn);
            }
            _ => {}
        }
    }

    fn line(&self, event: &EventReport) -> Arc<Line> {
        self.store.event(event)
    }

    /// An entry of a decision log, while it is kept.
    fn decision(&self, conn: ConnId, number: u32) -> Option<DecisionReport> {
        let all = self.backend.decisions(conn)?;
        all.into_iter().find(|entry| entry.number == number)
    }

    fn tell_lost(&self, lost: u64, event: &Event) {
        let mut state = lock(&self.state);
        let new = lost.saturating_sub(state.lost);
        if new == 0 {
            return;
        }
        state.lost = lost;
        state.seq += new + 1;
        let told = self.line(&EventReport {
            event: "lost".to_owned(),
            seq: state.seq,
            at_us: event.at.as_micros(),
            events: Some(new),
            ..EventReport::default()
        });
        for client in state.clients.values().filter(|c| c.is_subscribed()) {
            client.push(&told, Pace::Together);
        }
    }

    /// Serves a request and sends the reply, which `of` makes.
    pub(crate) fn serve(&self, outbox: &Outbox, of: impl FnOnce() -> Answer) {
        let _turn = lock(&self.turn);
        outbox.reply(&of());
    }

    /// Serves a request; `list` is the server's own.
    pub(crate) fn answer(&self, client: u64, outbox: &Outbox, request: Request) -> Reply {
        if let Some(flaw) = request.flaw() {
            return Reply::error("invalid", flaw);
        }
        match request {
            Request::Hello | Request::List => Reply::Hello {
                version: VERSION,
                pid: std::process::id(),
                title: self.title.clone(),
            },
            Request::Show { connection } => self.found(&connection, |id| {
                self.backend
                    .connection(id)
                    .map(|connection| Reply::Connection {
                        connection: Box::new(connection),
                    })
            }),
            Request::Why { connection } => self.found(&connection, |id| {
                let decisions = self.backend.decisions(id)?;
                Some(Reply::Decisions { decisions })
            }),
            Request::Subscribe(filter) => {
                if let Some(refusal) = filter.refusal() {
                    return refusal;
                }
                if let Some(name) = &filter.connection {
                    // One that is not there would be waited for without a word.
                    let known = self.found(name, |id| self.backend.policy(id).map(|_| done()));
                    if matches!(known, Reply::Error { .. }) {
                        return known;
                    }
                }
                outbox.subscribe(Some(filter));
                done()
            }
            Request::Limit(order) => match self.backend.limit(&order) {
                Ok(()) => done(),
                Err((code, why)) => Reply::error(code, why),
            },
            Request::ResetQuota { of, name } => match self.backend.reset_quota(of, &name) {
                Ok(()) => done(),
                Err((code, why)) => Reply::error(code, why),
            },
            // The server waits for those that there can be.
            Request::Reload => Reply::error("invalid", "this process has no configuration file"),
            Request::Unsubscribe => {
                outbox.subscribe(None);
                done()
            }
            Request::Claim { connection, force } => self.claim(client, connection, force),
            Request::Release { connection } => {
                let id = connection.map(|name| name.parse());
                match id {
                    Some(Err(_)) => not_found(),
                    Some(Ok(id)) => {
                        self.release(client, Some(id));
                        done()
                    }
                    None => {
                        self.release(client, None);
                        done()
                    }
                }
            }
            Request::SubflowCreate { connection, wanted } => {
                self.order(client, &connection, Command::Create(new_subflow(&wanted)))
            }
            Request::SubflowDestroy {
                connection,
                subflow,
                reset,
            } => {
                let ending = if reset { Ending::Reset } else { Ending::Fin };
                self.on_subflow(client, &connection, subflow, |subflow| Command::Destroy {
                    subflow,
                    ending,
                })
            }
            Request::SetFlags {
                connection,
                subflow,
                backup,
            } => self.on_subflow(client, &connection, subflow, |subflow| Command::SetBackup {
                subflow,
                backup,
            }),
            Request::Announce {
                connection,
                address: addr,
                port,
            } => self.order(client, &connection, Command::Announce { addr, port }),
            Request::Remove {
                connection,
                address_id,
            } => {
                let id = AddrId(address_id);
                self.order(client, &connection, Command::Withdraw { id })
            }
            Request::SetLimits {
                connection,
                subflows,
                add_addr_accepted,
            } => {
                let command = Command::SetLimits {
                    subflows,
                    add_addr_accepted,
                };
                self.order(client, &connection, command)
            }
            Request::SetPolicy { connection, policy } => match policy.parse() {
                Ok(policy) => self.order(client, &connection, Command::SetPolicy(policy)),
                Err(error) => {
                    let error: manypath_stack::api::UnknownPolicy = error;
                    Reply::error("invalid", error.to_string())
                }
            },
        }
    }

    fn found(&self, name: &str, f: impl FnOnce(ConnId) -> Option<Reply>) -> Reply {
        let id = name.parse().ok();
        id.and_then(f)
            .unwrap_or_else(|| Reply::error("not_found", format!("no connection {name}")))
    }

    fn on_subflow(
        &self,
        client: u64,
        connection: &str,
        subflow: u32,
        command: impl FnOnce(SubflowId) -> Command,
    ) -> Reply {
        match u8::try_from(subflow) {
            Ok(subflow) => self.order(client, connection, command(SubflowId(subflow))),
            Err(_) => not_found(),
        }
    }

    /// A command, of the owner or where there is none.
    fn order(&self, client: u64, connection: &str, command: Command) -> Reply {
        let Ok(id) = connection.parse::<ConnId>() else {
            return not_found();
        };
        let refusal = lock(&self.state).refusal(client, id);
        if let Some(refusal) = refusal {
            return refusal;
        }
        let chosen = match command {
            Command::SetPolicy(policy) if policy != PathManager::Userspace => Some(policy),
            _ => None,
        };
        match self.backend.command(id, command) {
            Ok(Done::Done) => {
                let mut state = lock(&self.state);
                if let (Some(policy), Some(owner)) = (chosen, state.owners.get_mut(&id)) {
                    // It is to decide also when the claim has ended.
                    owner.before = policy;
                }
                done()
            }
            Ok(Done::Subflow(subflow)) => Reply::done(Some(u32::from(subflow.0)), None),
            Ok(Done::Address(id)) => Reply::done(None, Some(id.0)),
            Err(StackError::NoSuchHandle) => not_found(),
            Err(error) => Reply::error(code(error), error.to_string()),
        }
    }

    fn claim(&self, client: u64, connection: Option<String>, force: bool) -> Reply {
        let Some(name) = connection else {
            let mut state = lock(&self.state);
            if force {
                state.everything.retain(|known| *known != client);
                state.everything.insert(0, client);
            } else if !state.everything.contains(&client) {
                state.everything.push(client);
            }
            drop(state);
            for conn in self.backend.connections() {
                if let Ok(id) = conn.id.parse() {
                    // Those that somebody owns stay with them.
                    let _ = self.take(client, id, force);
                }
            }
            let state = lock(&self.state);
            let owners = state.owners.values();
            let others = owners.filter(|owner| owner.client != client).count();
            return Reply::Done {
                subflow: None,
                address_id: None,
                owned_by_others: u32::try_from(others).ok().filter(|others| *others > 0),
            };
        };
        match name.parse().map(|id| self.take(client, id, force)) {
            Ok(Ok(())) => done(),
            Ok(Err(reply)) => reply,
            Err(_) => not_found(),
        }
    }

    /// Makes a client the owner of a connection, whose own policy then stands still.
    fn take(&self, client: u64, id: ConnId, force: bool) -> Result<(), Reply> {
        let before = self.backend.policy(id).ok_or_else(not_found)?;
        let mut state = lock(&self.state);
        if let Some(refusal) = state.refusal(client, id).filter(|_| !force) {
            return Err(refusal);
        }
        let known = state.owners.get(&id).copied();
        let stands_still = before == PathManager::Userspace;
        let before = known.map_or(before, |owner| owner.before);
        state.owners.insert(id, Owner { client, before });
        drop(state);
        if stands_still {
            return Ok(());
        }
        let command = Command::SetPolicy(PathManager::Userspace);
        let done = self.backend.command(id, command);
        done.map(|_| ())
            .map_err(|error| Reply::error(code(error), error.to_string()))
    }

    fn release(&self, client: u64, only: Option<ConnId>) {
        let mut state = lock(&self.state);
        if only.is_none() {
            state.everything.retain(|known| *known != client);
        }
        // Who gives one up and keeps the rest does not get it back.
        let heir = state.everything.iter().copied().find(|c| *c != client);
        let mut freed = Vec::new();
        state.owners.retain(|id, owner| {
            let ends = owner.client == client && only.is_none_or(|only| only == *id);
            if ends {
                freed.push((*id, owner.before));
                owner.client = heir.unwrap_or(client);
            }
            !ends || heir.is_some()
        });
        drop(state);
        for (id, before) in freed {
            // Connections that ended in the meantime need no policy.
            let _ = match heir {
                Some(heir) => self.take(heir, id, false).is_ok(),
                None => self.backend.command(id, Command::SetPolicy(before)).is_ok(),
            };
        }
    }
}

fn done() -> Reply {
    Reply::done(None, None)
}

fn not_found() -> Reply {
    Reply::error("not_found", "no such connection, subflow or address")
}

fn code(error: StackError) -> &'static str {
    match error {
        StackError::NoSuchHandle => "not_found",
        StackError::NoPath | StackError::BadAddress => "no_path",
        StackError::NoPorts | StackError::AddressInUse => "no_port",
        StackError::TooMany => "limit",
        StackError::InvalidState
        | StackError::NotConnected
        | StackError::Reset
        | StackError::Refused
        | StackError::TimedOut
        | StackError::Unreachable => "state",
    }
}

fn new_subflow(wanted: &Wanted) -> NewSubflow {
    let &Wanted {
        local,
        local_port,
        remote,
        remote_port,
        backup,
    } = wanted;
    NewSubflow {
        local,
        iface: None,
        local_port,
        remote,
        remote_port,
        backup,
    }
}
