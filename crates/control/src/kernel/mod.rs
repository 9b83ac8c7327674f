//! The Linux kernel as an [`Engine`]: its own Multipath TCP connections, steered over the generic netlink family `mptcp_pm` and
//! seen by socket diagnostics. It takes CAP_NET_ADMIN, and `net.mptcp.path_manager = userspace` (before Linux 6.15:
//! `net.mptcp.pm_type = 1`) while the connections that are to be steered begin.
//!
//! What the kernel does not offer is either derived or refused. There is no event for a time-out: the back-offs of all
//! subflows are looked at every tenth of a second while somebody wants `timeout`, and one that rose is told; so one that was
//! over within that time is not. Samples are looks, too. There are no policies of a single connection, no limits of one, no
//! decision log, and one owner of all: a claim checks the setting above and nothing else.

mod book;
mod diag;
mod family;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::engine::Engine;
use crate::report::ConnReport;
use crate::wire::{EventReport, Filter, Reply, Request, VERSION, Wanted};
use book::{Book, Ends, Look, micros, name};
use diag::{Address, TcpInfo};
use family::{About, BACKUP, Command, Endpoint, Family, GENERIC, Notice, SIGNAL};
use socket::{Ear, Netlink, Refusal};

/// Time between two looks at the back-offs.
const POLL: Duration = Duration::from_millis(100);

/// A session with the kernel of this network namespace.
#[derive(Debug)]
pub struct Kernel {
    family: Family,
    commands: Netlink,
    diag: Netlink,
    route: Netlink,
    events: Ear,
    addresses: Ear,
    /// The addresses of the host, until they change.
    here: Option<Vec<Address>>,
    book: Book,
    waiting: VecDeque<EventReport>,
    filter: Option<Filter>,
    next_look: Instant,
    next_sample: Instant,
    seq: u64,
    start: Instant,
}

impl Kernel {
    /// Opens a session. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// The kernel has no Multipath TCP, or the privilege is missing.
    pub fn open() -> io::Result<Self> {
        let mut commands = Netlink::open(GENERIC)?;
        let family = Family::find(&mut commands)?;
        let now = Instant::now();
        let mut kernel = Self {
            family,
            commands,
            diag: Netlink::open(diag::SOCK_DIAG)?,
            route: Netlink::open(diag::ROUTE)?,
            events: Ear::open(GENERIC, &[family.events])?,
            addresses: Ear::open(diag::ROUTE, &diag::ADDRESS_GROUPS)?,
            here: None,
            book: Book::default(),
            waiting: VecDeque::new(),
            filter: None,
            next_look: now,
            next_sample: now,
            seq: 0,
            start: now,
        };
        kernel.look()?;
        Ok(kernel)
    }

    /// Looks at all sockets and addresses.
    fn look(&mut self) -> io::Result<Look> {
        let look = Look {
            subflows: diag::subflows(&mut self.diag)?,
            connections: diag::connections(&mut self.diag)?,
            addresses: self.here()?,
        };
        self.book.update(&look);
        Ok(look)
    }

    /// Looks at one connection that the book knows, however many others there are.
    fn look_at(&mut self, token: u32) -> io::Result<Look> {
        let conn = self.book.conns.get(&token);
        let ends = conn.map_or_else(Vec::new, |c| {
            c.subflows.values().map(|sf| sf.ends).collect()
        });
        let mut subflows = Vec::new();
        for (local, remote) in ends {
            subflows.extend(diag::subflow(&mut self.diag, local, remote)?);
        }
        Ok(Look {
            subflows,
            connections: Vec::from_iter(diag::connection(&mut self.diag, token)?),
            addresses: self.here()?,
        })
    }

    fn here(&mut self) -> io::Result<Vec<Address>> {
        let here = match self.here.take() {
            Some(known) => known,
            None => diag::addresses(&mut self.route)?,
        };
        self.here = Some(here.clone());
        Ok(here)
    }

    // Events.

    fn wants(&self, event: &EventReport) -> bool {
        self.filter.as_ref().is_some_and(|filter| {
            let named = filter.events.is_empty() || filter.events.contains(&event.event);
            let concerns = match (&filter.connection, &event.connection) {
                (Some(wanted), Some(this)) => wanted == this,
                (None, _) | (Some(_), None) => true,
            };
            named && concerns
        })
    }

    fn tell(&mut self, mut event: EventReport) {
        event.at_us = micros(self.start.elapsed());
        if event.event != "sample" {
            self.seq += 1;
            event.seq = self.seq;
            if !self.wants(&event) && event.event != "lost" {
                return;
            }
        }
        event.seq = self.seq;
        self.waiting.push_back(event);
    }

    /// Takes in everything that the kernel has told.
    fn drain(&mut self) -> io::Result<()> {
        let told = self.waiting.len();
        loop {
            match self.events.heard()? {
                None => {
                    self.tell(lost());
                    self.look()?;
                }
                Some(messages) if messages.is_empty() => break,
                Some(messages) => {
                    let notices = messages.iter().filter_map(|(_, m)| Notice::read(m));
                    for notice in notices.collect::<Vec<_>>() {
                        self.hear(&notice);
                    }
                }
            }
        }
        loop {
            match self.addresses.heard()? {
                None => {
                    self.here = None;
                    self.tell(lost());
                }
                Some(messages) if messages.is_empty() => break,
                Some(messages) => {
                    for (kind, message) in messages {
                        self.hear_address(kind, &message);
                    }
                }
            }
        }
        if self.filter.as_ref().is_some_and(with_sample) {
            // Events that come together are of one connection, mostly.
            let mut seen = None;
            for at in told..self.waiting.len() {
                let Some(token) = self.waiting[at].connection.as_deref().and_then(token_of) else {
                    continue;
                };
                let look = match seen.take() {
                    Some((of, look)) if of == token => look,
                    _ => self.look_at(token)?,
                };
                self.waiting[at].sample = self.book.report(token, &look).map(Box::new);
                seen = Some((token, look));
            }
        }
        Ok(())
    }

    fn hear_address(&mut self, kind: u16, message: &[u8]) {
        self.here = None;
        let name = match kind {
            diag::NEW_ADDRESS => "new_local_addr",
            diag::DEL_ADDRESS => "del_local_addr",
            _ => return,
        };
        if let Some(found) = diag::address(message) {
            self.tell(EventReport {
                event: name.to_owned(),
                address: Some(found.address),
                backup: (kind == diag::NEW_ADDRESS).then_some(false),
                ..EventReport::default()
            });
        }
    }

    /// Notes what an event says, and passes it on in the words of the protocol.
    fn hear(&mut self, notice: &Notice) {
        let mut event = EventReport {
            event: notice.event.to_owned(),
            connection: Some(name(notice.token)),
            ..EventReport::default()
        };
        let ends = notice.ends();
        if notice.event == "closed" {
            self.book.conns.remove(&notice.token);
            event.cause = Some("finished".to_owned());
            return self.tell(event);
        }
        let conn = self.book.conn(notice.token);
        match notice.event {
            "created" => {
                conn.server_side = notice.server_side;
                conn.first = ends;
                event.server_side = Some(notice.server_side);
                event.token = Some(name(notice.token));
                if let Some(ends) = ends {
                    conn.number(ends, 0);
                }
            }
            "established" => conn.established = true,
            "announced" => {
                let port = Some(notice.remote_port).filter(|port| *port != 0);
                (event.address, event.port) = (notice.remote, port);
                event.remote_id = Some(notice.remote_id);
                let port = port.or(conn.first.map(|(_, there)| there.port()));
                if let (Some(address), Some(port)) = (notice.remote, port) {
                    let address = SocketAddr::new(address, port);
                    conn.announced.insert(notice.remote_id, address);
                }
            }
            "removed" => {
                conn.announced.remove(&notice.remote_id);
                event.remote_id = Some(notice.remote_id);
            }
            _ => {
                let number = match (notice.event, ends) {
                    ("sub_closed", Some(ends)) => conn.forget(ends),
                    (_, Some(ends)) => Some(conn.number(ends, notice.local_id)),
                    (_, None) => None,
                };
                event.subflow = number.map(u32::from);
                (event.local_id, event.remote_id) = (Some(notice.local_id), Some(notice.remote_id));
                event.backup = Some(notice.backup);
            }
        }
        if matches!(notice.event, "created" | "sub_established" | "sub_closed") {
            (event.local, event.remote) = (ends.map(|e| e.0), ends.map(|e| e.1));
        }
        if notice.event == "sub_closed" {
            end_of(&mut event, notice);
        }
        self.tell(event);
    }

    /// What the kernel does not tell by itself, when it is time: time-outs and samples.
    fn poll(&mut self) -> io::Result<()> {
        let now = Instant::now();
        let Some(filter) = self.filter.clone() else {
            return Ok(());
        };
        let mut seen = None;
        if wants_timeouts(&filter) && now >= self.next_look {
            self.next_look = now + POLL;
            let look = self.look()?;
            for event in self.timeouts(&look, with_sample(&filter)) {
                self.tell(event);
            }
            seen = Some(look);
        }
        if let Some(every) = sampling(&filter).filter(|_| now >= self.next_sample) {
            self.next_sample = now + every;
            let look = match seen {
                Some(look) => look,
                None => self.look()?,
            };
            for conn in self.book.process(&look).connections {
                let wanted = filter.connection.as_ref();
                if wanted.is_none_or(|wanted| *wanted == conn.id) {
                    self.tell(EventReport {
                        event: "sample".to_owned(),
                        connection: Some(conn.id.clone()),
                        sample: Some(Box::new(conn)),
                        ..EventReport::default()
                    });
                }
            }
        }
        Ok(())
    }

    /// Subflows whose back-offs have risen since the last look.
    fn timeouts(&mut self, look: &Look, with_sample: bool) -> Vec<EventReport> {
        let mut all = Vec::new();
        for (token, conn) in &mut self.book.conns {
            for (number, known) in &mut conn.subflows {
                let found = look
                    .subflows
                    .iter()
                    .find(|sf| sf.token == *token && (sf.local, sf.remote) == known.ends);
                let Some(tcp) = found.map(|sf| &sf.tcp) else {
                    continue;
                };
                let before = std::mem::replace(&mut known.backoffs, tcp.backoffs());
                if known.backoffs > before {
                    all.push((*token, *number, known.ends, tcp));
                }
            }
        }
        let told = |(token, number, (local, remote), tcp): (_, _, _, &TcpInfo)| EventReport {
            event: "timeout".to_owned(),
            connection: Some(name(token)),
            subflow: Some(u32::from(number)),
            local: Some(local),
            remote: Some(remote),
            rto_us: Some(u64::from(tcp.rto_us())),
            backoffs: Some(tcp.backoffs()),
            sample: with_sample
                .then(|| self.book.report(token, look).map(Box::new))
                .flatten(),
            ..EventReport::default()
        };
        all.into_iter().map(told).collect()
    }

    /// When there is something to look at next.
    fn next_poll(&self) -> Option<Instant> {
        let filter = self.filter.as_ref()?;
        let look = wants_timeouts(filter).then_some(self.next_look);
        let sample = sampling(filter).map(|_| self.next_sample);
        look.into_iter().chain(sample).min()
    }

    // Commands.

    fn answer(&mut self, request: Request) -> io::Result<Reply> {
        Ok(match request {
            Request::Hello => Reply::Hello {
                version: VERSION,
                pid: 0,
                title: "the Linux kernel".to_owned(),
            },
            Request::List => {
                let look = self.look()?;
                let process = Box::new(self.book.process(&look));
                Reply::Process { process }
            }
            Request::Show { connection } => match self.shown(&connection)? {
                Some(connection) => Reply::Connection {
                    connection: Box::new(connection),
                },
                None => not_found(),
            },
            Request::Subscribe(filter) => {
                if let Some(refusal) = filter.refusal() {
                    return Ok(refusal);
                }
                self.next_sample = Instant::now() + sampling(&filter).unwrap_or_default();
                self.filter = Some(filter);
                done()
            }
            Request::Unsubscribe => {
                self.filter = None;
                done()
            }
            Request::Claim { .. } => match may_steer() {
                Ok(()) => done(),
                Err(message) => Reply::error("state", message),
            },
            Request::Release { .. } => done(),
            Request::SubflowCreate { connection, wanted } => self.create(&connection, &wanted)?,
            Request::SubflowDestroy {
                connection,
                subflow,
                // The kernel knows one way to end a subflow, which is by a reset.
                reset: _,
            } => self.on_subflow(&connection, subflow, |(local, remote)| {
                let (local, remote) = (Endpoint::end(local), Endpoint::end(remote));
                (Command::Destroy, local, remote)
            })?,
            Request::SetFlags {
                connection,
                subflow,
                backup,
            } => self.on_subflow(&connection, subflow, |(local, remote)| {
                let flags = if backup { BACKUP } else { 0 };
                let local = Endpoint {
                    flags,
                    ..Endpoint::end(local)
                };
                (Command::SetFlags, local, Endpoint::end(remote))
            })?,
            Request::Announce {
                connection,
                address,
                port,
            } => {
                let Some((token, conn)) = self.known(&connection)? else {
                    return Ok(not_found());
                };
                let id = conn.id_of(address);
                let local = Some(Endpoint {
                    address,
                    port,
                    id,
                    flags: SIGNAL,
                });
                let about = About {
                    local,
                    ..About::default()
                };
                self.order(Command::Announce, token, about)?
                    .unwrap_or_else(|| Reply::done(None, Some(id)))
            }
            Request::Remove {
                connection,
                address_id,
            } => {
                let Some((token, _)) = self.known(&connection)? else {
                    return Ok(not_found());
                };
                let about = About {
                    local_id: Some(address_id),
                    ..About::default()
                };
                self.order(Command::Remove, token, about)?
                    .unwrap_or_else(done)
            }
            Request::Reload => missing("a configuration file"),
            Request::Limit(_) => missing("limits: tc has them"),
            Request::ResetQuota { .. } => missing("quotas"),
            Request::Why { .. } => missing("a decision log"),
            Request::SetLimits { .. } => missing("limits of a single connection"),
            Request::SetPolicy { .. } => missing("policies of a single connection"),
        })
    }

    fn shown(&mut self, connection: &str) -> io::Result<Option<ConnReport>> {
        let Some((token, _)) = self.known(connection)? else {
            return Ok(None);
        };
        let look = self.look_at(token)?;
        // Its end may not have been told yet.
        let lives = !(look.connections.is_empty() && look.subflows.is_empty());
        Ok(self.book.report(token, &look).filter(|_| lives))
    }

    /// A connection of that name; one that is not known yet is looked for.
    fn known(&mut self, connection: &str) -> io::Result<Option<(u32, &mut book::Conn)>> {
        let Some(token) = token_of(connection) else {
            return Ok(None);
        };
        if !self.book.conns.contains_key(&token) {
            self.look()?;
        }
        Ok(self.book.conns.get_mut(&token).map(|conn| (token, conn)))
    }

    fn create(&mut self, connection: &str, wanted: &Wanted) -> io::Result<Reply> {
        let Some((token, conn)) = self.known(connection)? else {
            return Ok(not_found());
        };
        let Some((first, peer)) = conn.first else {
            return Ok(Reply::error("state", "it has lost its first subflow"));
        };
        let address = wanted.local.unwrap_or(first.ip());
        let local = Endpoint {
            address,
            port: wanted.local_port,
            id: conn.id_of(address),
            flags: if wanted.backup { BACKUP } else { 0 },
        };
        let remote = Endpoint {
            address: wanted.remote.unwrap_or(peer.ip()),
            port: Some(wanted.remote_port.unwrap_or(peer.port())),
            id: 0,
            flags: 0,
        };
        let about = About {
            local: Some(local),
            remote: Some(remote),
            local_id: None,
        };
        let before: Vec<u8> = conn.subflows.keys().copied().collect();
        if let Some(refused) = self.order(Command::Create, token, about)? {
            return Ok(refused);
        }
        self.look()?;
        let conn = self.book.conns.get(&token);
        let new = conn.and_then(|c| c.subflows.keys().find(|n| !before.contains(n)));
        let Some(number) = new else {
            let why = "the kernel took the order, and the subflow is not there: it was refused at once, or there is one between these ends";
            return Ok(Reply::error("state", why));
        };
        Ok(Reply::done(Some(u32::from(*number)), None))
    }

    fn on_subflow(
        &mut self,
        connection: &str,
        subflow: u32,
        f: impl FnOnce(Ends) -> (Command, Endpoint, Endpoint),
    ) -> io::Result<Reply> {
        let Some((token, conn)) = self.known(connection)? else {
            return Ok(not_found());
        };
        let known = u8::try_from(subflow)
            .ok()
            .and_then(|n| conn.subflows.get(&n));
        let Some(known) = known else {
            return Ok(not_found());
        };
        let id = known.local_id;
        let (command, local, remote) = f(known.ends);
        let about = About {
            local: Some(Endpoint { id, ..local }),
            remote: Some(remote),
            local_id: None,
        };
        Ok(self.order(command, token, about)?.unwrap_or_else(done))
    }

    /// The refusal, if it is one.
    fn order(&mut self, command: Command, token: u32, about: About) -> io::Result<Option<Reply>> {
        match self.family.order(&mut self.commands, command, token, about) {
            Ok(()) => Ok(None),
            Err(Refusal::Socket(error)) => Err(error),
            Err(Refusal::Kernel { error, message }) => {
                let code = match error.raw_os_error() {
                    // ENOENT, ESRCH; EPERM, EACCES; EADDRNOTAVAIL, ENETUNREACH, EHOSTUNREACH; EADDRINUSE.
                    Some(2 | 3) => "not_found",
                    Some(1 | 13) => "denied",
                    Some(99 | 101 | 113) => "no_path",
                    Some(98) => "no_port",
                    _ => "state",
                };
                let text = message.map_or_else(|| error.to_string(), |m| format!("{m} ({error})"));
                Ok(Some(Reply::error(code, format!("the kernel: {text}"))))
            }
        }
    }
}

impl Engine for Kernel {
    async fn ask(&mut self, request: Request) -> io::Result<Reply> {
        self.drain()?;
        match request.flaw() {
            Some(flaw) => Ok(Reply::error("invalid", flaw)),
            None => self.answer(request),
        }
    }

    async fn next_event(&mut self) -> io::Result<Option<EventReport>> {
        loop {
            self.drain()?;
            self.poll()?;
            if let Some(event) = self.waiting.pop_front() {
                return Ok(Some(event));
            }
            let until = self.next_poll();
            let poll = async {
                match until {
                    Some(at) => tokio::time::sleep_until(at.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                heard = self.events.listen() => heard?,
                heard = self.addresses.listen() => heard?,
                () = poll => {}
            }
        }
    }

    fn outdate(&mut self, connection: &str) {
        for event in &mut self.waiting {
            if event.connection.as_deref() == Some(connection) && event.event != "sample" {
                event.sample = None;
            }
        }
    }
}

/// Why a subflow ended, from what the kernel gives: an `errno`, and the peer's reason for a reset.
fn end_of(event: &mut EventReport, notice: &Notice) {
    let cause = match notice.error {
        104 => "reset_by_peer",
        110 => "timed_out",
        111 => "refused",
        113 | 101 => "unreachable",
        99 => "address_gone",
        _ => "finished",
    };
    event.error = Some(notice.error.into());
    event.cause = Some(cause.to_owned());
    if let Some((reason, transient)) = notice.reset {
        event.cause = Some("reset_by_peer".to_owned());
        (event.reset_reason, event.transient) = (Some(reason), Some(transient));
    }
}

/// Whether new connections of this namespace are ours to steer; else what to do about it.
fn may_steer() -> Result<(), String> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/net/mptcp/{name}"));
    let (is_ours, setting) = match (read("path_manager"), read("pm_type")) {
        (Ok(manager), _) => (
            manager.trim() == "userspace",
            "net.mptcp.path_manager=userspace",
        ),
        (Err(_), Ok(kind)) => (kind.trim() == "1", "net.mptcp.pm_type=1"),
        (Err(_), Err(_)) => return Err("this kernel has no user-space path management".to_owned()),
    };
    if is_ours {
        return Ok(());
    }
    Err(format!(
        "the kernel decides itself about its connections: `sysctl {setting}` leaves new ones to us"
    ))
}

fn token_of(connection: &str) -> Option<u32> {
    u32::from_str_radix(connection, 16).ok()
}

fn wants_timeouts(filter: &Filter) -> bool {
    filter.events.is_empty() || filter.events.iter().any(|name| name == "timeout")
}

/// There are no views of the kernel's connections.
fn with_sample(filter: &Filter) -> bool {
    filter.with_sample || filter.with_view
}

fn sampling(filter: &Filter) -> Option<Duration> {
    filter.sample_ms.map(|ms| Duration::from_millis(ms.max(10)))
}

fn lost() -> EventReport {
    EventReport {
        event: "lost".to_owned(),
        // The kernel does not say how many.
        events: Some(1),
        ..EventReport::default()
    }
}

fn done() -> Reply {
    Reply::done(None, None)
}

fn not_found() -> Reply {
    Reply::error("not_found", "no such connection, subflow or address")
}

fn missing(what: &str) -> Reply {
    Reply::error("invalid", format!("the kernel does not offer {what}"))
}
