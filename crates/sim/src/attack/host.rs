//! A host of the bench: a stack on some links with small applications, driven as everywhere.

use core::net::{IpAddr, SocketAddr};
use std::collections::BTreeMap;

use manypath_stack::api::{
    CloseCause, ConnOptions, ConnectOptions, EventKind, IfaceId, Offload, Path, PathEvent,
    PathManager, RxMeta, Slots, Transmit, TxMeta,
};
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{ReadOutcome, Stack};
use manypath_tcp::time::Instant;

use super::HONEST;
use super::bench::{Honest, listening};
use crate::fabric::Port;
use crate::pattern::Pattern;
use crate::view;

/// What the server sends: everybody gets the same.
const STREAM: Pattern = Pattern::new(1);
/// The first bytes of a client's stream: how many it wants to have.
const REQUEST: usize = 8;
/// Bytes of a short connection, each way.
const SHORT: u64 = 20_000;

/// What an application does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Server: sends as many bytes as it is asked for, takes whatever comes.
    Serve,
    /// Server: accepts and never reads.
    Ignore,
    /// Client: reads for ever.
    Bulk,
    /// Client: a little each way, and again.
    Short,
}

/// One end of a connection.
#[derive(Debug)]
struct App {
    work: Work,
    /// Bytes to send, where known.
    want: Option<u64>,
    request: Vec<u8>,
    sent: u64,
    read: u64,
    closed: bool,
}

impl App {
    fn new(work: Work) -> Self {
        let want = match work {
            Work::Serve | Work::Ignore => None,
            Work::Bulk => Some(REQUEST as u64),
            Work::Short => Some(REQUEST as u64 + SHORT),
        };
        Self {
            work,
            want,
            request: Vec::new(),
            sent: 0,
            read: 0,
            closed: false,
        }
    }

    /// The bytes that it sends from `sent` on.
    fn fill(&self, out: &mut [u8]) {
        match self.work {
            Work::Serve | Work::Ignore => STREAM.fill(self.sent, out),
            Work::Bulk | Work::Short => {
                let asked: u64 = if self.work == Work::Bulk {
                    1 << 50
                } else {
                    SHORT
                };
                let request = asked.to_be_bytes();
                for (at, byte) in (self.sent as usize..).zip(out) {
                    *byte = request.get(at).copied().unwrap_or(0);
                }
            }
        }
    }
}

/// One host.
pub(super) struct Node {
    pub(super) stack: Stack,
    ports: Vec<Port>,
    wire: Wire,
    /// Packets to put on links.
    pub(super) sent: Vec<(Port, Vec<u8>)>,
    listeners: Vec<(ListenerId, Work)>,
    apps: BTreeMap<ConnId, App>,
    eager: Vec<ConnId>,
    again: Option<SocketAddr>,
    pub(super) honest: Honest,
    /// Packets and bytes that went to anybody but the honest client.
    pub(super) to_others: (u64, u64),
    pub(super) timeouts: u64,
    pub(super) busy: u64,
    clock: Option<fn() -> u64>,
}

#[derive(Default)]
struct Wire {
    slot: Vec<u8>,
    out: Vec<(IfaceId, Vec<u8>)>,
}

impl Slots for Wire {
    fn slot(&mut self, _iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        self.slot.resize(room, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        self.out.push((iface, self.slot[..meta.len].to_vec()));
    }
}

/// The options of all ends here; who calls also makes paths.
pub(super) fn options(calls: bool) -> ConnOptions {
    ConnOptions {
        path_manager: if calls {
            PathManager::FullMesh
        } else {
            PathManager::Passive
        },
        ..ConnOptions::default()
    }
}

impl Node {
    pub(super) fn new(stack: Stack, clock: Option<fn() -> u64>) -> Self {
        Self {
            stack,
            ports: Vec::new(),
            wire: Wire::default(),
            sent: Vec::new(),
            listeners: Vec::new(),
            apps: BTreeMap::new(),
            eager: Vec::new(),
            again: None,
            honest: Honest::default(),
            to_others: (0, 0),
            timeouts: 0,
            busy: 0,
            clock,
        }
    }

    pub(super) fn add_path(&mut self, addr: IpAddr, port: Port) {
        let iface = IfaceId(self.ports.len() as u32);
        self.ports.push(port);
        let path = Path {
            iface,
            addr,
            mtu: 1500,
            backup: false,
            offload: Offload::default(),
            ports: None,
            outside: None,
        };
        self.stack
            .handle_path_event(Instant::ZERO, PathEvent::Up(path));
    }

    pub(super) fn serve(&mut self, addr: SocketAddr, backlog: usize, work: Work) {
        // Each address is listened to once, at the beginning.
        if let Ok(listener) = self.stack.listen(listening(addr, backlog)) {
            self.listeners.push((listener, work));
        }
    }

    pub(super) fn call(&mut self, now: Instant, remote: SocketAddr, work: Work) {
        let wanted = ConnectOptions {
            remote,
            local: None,
            conn: options(true),
        };
        match self.stack.connect(now, wanted) {
            Ok(conn) => {
                self.apps.insert(conn, App::new(work));
            }
            Err(_) => self.honest.failures += 1,
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.stack.connections()
    }

    pub(super) fn receive(&mut self, now: Instant, iface: u32, packet: &[u8]) {
        self.timed(|stack| {
            stack.handle_packet(now, IfaceId(iface), packet, RxMeta::default());
        });
    }

    fn timed<R>(&mut self, act: impl FnOnce(&mut Stack) -> R) -> R {
        let started = self.clock.map(|clock| clock());
        let result = act(&mut self.stack);
        if let (Some(clock), Some(started)) = (self.clock, started) {
            self.busy += clock() - started;
        }
        result
    }

    pub(super) fn time_out(&mut self, now: Instant) {
        if self.stack.poll_deadline().is_some_and(|at| at <= now) {
            self.timeouts += 1;
            self.timed(|stack| stack.handle_timeout(now));
        }
    }

    /// Sends and hears until nothing is left to do at this moment.
    pub(super) fn turn(&mut self, now: Instant) {
        loop {
            self.transmit(now);
            while let Some(event) = self.stack.poll_event() {
                if let Some(conn) = event.conn {
                    self.hear(now, conn, event.kind);
                }
            }
            if self.eager.is_empty() && self.again.is_none() {
                return;
            }
            for conn in std::mem::take(&mut self.eager) {
                self.work(now, conn);
            }
            if let Some(remote) = self.again.take() {
                self.call(now, remote, Work::Short);
            }
        }
    }

    fn transmit(&mut self, now: Instant) {
        let mut wire = std::mem::take(&mut self.wire);
        while let Transmit::Sent(_) = self.timed(|stack| stack.poll_transmit(now, &mut wire)) {}
        for (iface, packet) in wire.out.drain(..) {
            let to = view::addresses(&packet).map(|(_, to)| to);
            if to.is_none_or(|to| !HONEST.contains(&to)) {
                self.to_others.0 += 1;
                self.to_others.1 += packet.len() as u64;
            }
            self.sent.push((self.ports[iface.0 as usize], packet));
        }
        self.wire = wire;
    }

    fn hear(&mut self, now: Instant, conn: ConnId, kind: EventKind) {
        match kind {
            EventKind::Acceptable(listener) => {
                let found = self.listeners.iter().find(|(known, _)| *known == listener);
                let Some((_, work)) = found.copied() else {
                    return;
                };
                while let Some(conn) = self.stack.accept(listener) {
                    self.apps.insert(conn, App::new(work));
                    self.eager.push(conn);
                }
            }
            EventKind::Closed(cause) => {
                // What arrived before the end can still be read.
                self.work(now, conn);
                let gone = self.apps.remove(&conn);
                // It may be closed already.
                let _ = self.stack.close(now, conn);
                if let Some(app) = gone {
                    self.ended(&app, cause);
                }
            }
            EventKind::Established | EventKind::Readable | EventKind::Writable => {
                self.eager.push(conn);
            }
            _ => {}
        }
    }

    /// A connection is over, as planned or not.
    fn ended(&mut self, app: &App, cause: CloseCause) {
        match app.work {
            Work::Serve | Work::Ignore => {}
            Work::Bulk => self.honest.failures += 1,
            Work::Short => {
                if cause == CloseCause::Finished && app.read == SHORT {
                    self.honest.short += 1;
                } else {
                    self.honest.failures += 1;
                }
                self.again = Some(super::SERVER);
            }
        }
    }

    fn work(&mut self, now: Instant, conn: ConnId) {
        let Some(app) = self.apps.get_mut(&conn) else {
            return;
        };
        if app.work == Work::Ignore {
            return;
        }
        let mut ended = false;
        let mut buffer = [0; 16 << 10];
        loop {
            match self.stack.read(now, conn, &mut buffer) {
                Ok(ReadOutcome::Data(count)) => {
                    let bytes = &buffer[..count];
                    if app.work == Work::Serve {
                        let missing = REQUEST - app.request.len();
                        app.request.extend(bytes.iter().take(missing));
                        if let Ok(request) = <[u8; REQUEST]>::try_from(&app.request[..]) {
                            app.want = Some(u64::from_be_bytes(request));
                        }
                    } else if STREAM.first_difference(app.read, bytes).is_some() {
                        self.honest.failures += 1;
                    }
                    app.read += count as u64;
                    if app.work == Work::Bulk {
                        self.honest.bulk += count as u64;
                    }
                }
                Ok(ReadOutcome::End) => {
                    ended = true;
                    break;
                }
                // The event that explains an error follows.
                Ok(ReadOutcome::Empty) | Err(_) => break,
            }
        }
        while let Some(left) = app.want.map(|want| want - app.sent.min(want)) {
            let count = left.min(buffer.len() as u64) as usize;
            app.fill(&mut buffer[..count]);
            match self.stack.write(now, conn, &buffer[..count]) {
                Ok(taken) => {
                    app.sent += taken as u64;
                    if taken < count || count == 0 {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        let served = app.want.is_some_and(|want| app.sent >= want);
        let done = match app.work {
            // Who closed its side may still wait for what it asked for.
            Work::Serve => served || (ended && app.want.is_none()),
            Work::Short => served,
            Work::Bulk | Work::Ignore => false,
        };
        if done && !app.closed {
            app.closed = true;
            // A connection that is over already has said so.
            let _ = self.stack.shutdown_write(now, conn);
        }
    }
}
