//! A host: a stack with interfaces and applications, driven by the same few lines as on a real network.

use core::net::IpAddr;
use std::sync::Arc;

use manypath_stack::api::{
    CloseCause, ConnOptions, ConnectOptions, Event, EventKind, IfaceId, Offload, Path, PathEvent,
    RateLimit, RxMeta, Transmit,
};
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{Stack, StackConfig};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::timer::Soonest;
use manypath_wire::segment::{ParseError, Verify};
use rustc_hash::FxHashMap;

use crate::card::{Cards, Desk};
use crate::coalesce;
use crate::endpoint::{Endpoint, Phase, Plan};
use crate::fabric::{Fabric, Port};
use crate::habit::DeafToOldEnd;
use crate::oracle::{Rule, Violation, Watch};
use crate::packet::Packet;
use crate::reading::Alterations;
use crate::scenario::OptionsSpec;

/// Bytes that an application reads at a time.
const READ: usize = 64 << 10;

/// A network card and its addresses.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The end of a link that it is.
    pub port: Port,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Its MTU in bytes.
    pub mtu: u16,
    /// A backup path.
    pub backup: bool,
    /// What the card does for the stack.
    pub offload: Offload,
    /// The card takes packets only while less than this many bytes wait for its line.
    pub device_queue: Option<u64>,
    /// The card hands received packets over in batches this long after the first, runs of segments merged.
    pub coalesce: Option<Duration>,
    /// What the stack may send here.
    pub limit: Option<RateLimit>,
    /// What went through it.
    pub counters: InterfaceCounters,
}

/// What went through an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct InterfaceCounters {
    /// Packets sent.
    pub sent: u64,
    /// TCP payload bytes sent, retransmissions included.
    pub sent_payload: u64,
    /// Packets received.
    pub received: u64,
    /// TCP payload bytes received, retransmissions included.
    pub received_payload: u64,
}

/// What a host's applications are to do when somebody connects.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// Which application.
    pub app: usize,
    /// What the server's end does.
    pub plan: Plan,
    /// Connections begin with their number.
    pub numbered: bool,
}

/// A host.
pub struct Host {
    name: String,
    /// The stack.
    pub stack: Stack,
    interfaces: Vec<Interface>,
    endpoints: Vec<Endpoint>,
    by_conn: FxHashMap<ConnId, usize>,
    services: FxHashMap<ListenerId, Service>,
    /// What the network may do to streams.
    alterations: Arc<Alterations>,
    watch: Watch,
    /// What it does not hear as our stack would.
    pub habit: Option<DeafToOldEnd>,
    /// Something came in since the last turn.
    pub stirred: bool,
    /// Endpoints that may be able to do something.
    eager: Vec<usize>,
    /// Endpoints that want a turn at a time; few of them do, so unsorted.
    wakes: Vec<(Instant, usize)>,
    /// The earliest timer event that the queue holds for this host.
    pub timer: Option<Instant>,
    desk: Desk,
    /// Packets that cards keep for a while, with their interface, and when they hand them over.
    arrivals: Vec<(usize, Box<Packet>)>,
    arrivals_due: Option<Instant>,
    /// Those of other cards while one hands its own over.
    others: Vec<(usize, Box<Packet>)>,
    /// One card's packets while they are handed over.
    // Boxes that travel on to the pool.
    #[expect(clippy::vec_box)]
    batch: Vec<Box<Packet>>,
    /// A run of segments as one packet.
    joined: Vec<u8>,
}

impl Host {
    /// A host whose stack draws from `seed`.
    #[must_use]
    pub fn new(name: &str, config: StackConfig, seed: [u8; 32]) -> Self {
        Self {
            name: name.to_owned(),
            stack: Stack::new(config, seed, Instant::ZERO),
            interfaces: Vec::new(),
            endpoints: Vec::new(),
            by_conn: FxHashMap::default(),
            services: FxHashMap::default(),
            alterations: Arc::default(),
            watch: Watch::default(),
            habit: None,
            stirred: false,
            eager: Vec::new(),
            wakes: Vec::new(),
            timer: None,
            desk: Desk::default(),
            arrivals: Vec::new(),
            arrivals_due: None,
            others: Vec::new(),
            batch: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Lets its applications expect what boxes on the way may do to streams.
    pub fn expect_alterations(&mut self, alterations: &Arc<Alterations>) {
        self.alterations = Arc::clone(alterations);
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its interfaces.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The ends of its connections.
    #[must_use]
    pub fn endpoints(&self) -> &[Endpoint] {
        &self.endpoints
    }

    /// What its watch has seen.
    #[must_use]
    pub fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Adds an interface and brings its addresses up.
    pub fn add_interface(&mut self, now: Instant, interface: Interface) {
        self.interfaces.push(interface);
        let index = self.interfaces.len() - 1;
        let limit = self.interfaces[index].limit;
        if limit.is_some() {
            self.stack.limit_path(now, IfaceId(index as u32), limit);
        }
        for address in self.interfaces[index].addresses.clone() {
            self.address_up(now, index, address);
        }
    }

    /// An interface has an address from now on.
    pub fn address_up(&mut self, now: Instant, index: usize, address: IpAddr) {
        let interface = &mut self.interfaces[index];
        if !interface.addresses.contains(&address) {
            interface.addresses.push(address);
        }
        let path = Path {
            iface: IfaceId(index as u32),
            addr: address,
            mtu: interface.mtu,
            backup: interface.backup,
            offload: interface.offload,
            ports: None,
            outside: None,
        };
        self.stack.handle_path_event(now, PathEvent::Up(path));
        self.stirred = true;
    }

    /// An interface has lost an address.
    pub fn address_down(&mut self, now: Instant, index: usize, address: IpAddr) {
        self.watch.address_gone(address);
        self.interfaces[index]
            .addresses
            .retain(|known| *known != address);
        let iface = IfaceId(index as u32);
        self.stack.handle_path_event(
            now,
            PathEvent::Down {
                iface,
                addr: address,
            },
        );
        self.stirred = true;
    }

    /// The living connections of an application get other options.
    pub fn set_options(&mut self, now: Instant, app: usize, change: &OptionsSpec) {
        let of_app = |e: &&Endpoint| e.app == app && e.phase != Phase::Over;
        for endpoint in self.endpoints.iter().filter(of_app) {
            let Ok(mut options) = self.stack.options(endpoint.conn).cloned() else {
                continue;
            };
            // The scenario was checked before the run.
            if change.apply(&mut options).is_ok() {
                let _ = self.stack.set_options(now, endpoint.conn, &options);
            }
        }
        self.stirred = true;
    }

    /// Serves an application on a listener.
    pub fn serve(&mut self, listener: ListenerId, service: Service) {
        self.services.insert(listener, service);
    }

    /// Opens a connection for an application's client.
    pub fn connect(
        &mut self,
        now: Instant,
        options: ConnectOptions,
        make: impl FnOnce(ConnId) -> Endpoint,
    ) -> Result<(), manypath_stack::api::StackError> {
        let conn = self.stack.connect(now, options)?;
        self.add_endpoint(make(conn));
        self.stirred = true;
        Ok(())
    }

    fn add_endpoint(&mut self, mut endpoint: Endpoint) {
        endpoint.expect_alterations(&self.alterations);
        self.by_conn.insert(endpoint.conn, self.endpoints.len());
        self.eager.push(self.endpoints.len());
        self.endpoints.push(endpoint);
    }

    /// A packet arrives on the interface at `port`. One that the card does not keep for a while is given back.
    pub fn receive(
        &mut self,
        now: Instant,
        port: Port,
        mut packet: Box<Packet>,
    ) -> Option<Box<Packet>> {
        let at = self
            .interfaces
            .iter()
            .position(|interface| interface.port == port);
        let Some(index) = at else {
            return Some(packet);
        };
        // What cannot be read is left to the stack to refuse.
        let _ = packet.read(Verify::Full);
        let interface = &mut self.interfaces[index];
        interface.counters.received += 1;
        interface.counters.received_payload += packet.payload_len() as u64;
        self.stirred = true;
        if let Some(wait) = interface.coalesce {
            let due = now + wait;
            self.arrivals_due = Some(self.arrivals_due.map_or(due, |known| known.min(due)));
            self.arrivals.push((index, packet));
            return None;
        }
        self.take_in(now, index, &packet);
        Some(packet)
    }

    /// Hands a single packet to the stack.
    fn take_in(&mut self, now: Instant, index: usize, packet: &Packet) {
        let iface = IfaceId(index as u32);
        if let Some(summary) = packet.summary() {
            self.watch.received(summary);
        }
        match packet.segment() {
            Some(segment) => {
                let heard = self.habit.as_mut().map(|habit| habit.filter(&segment));
                let heard = heard.as_ref().unwrap_or(&segment);
                self.stack.handle_segment(now, iface, heard);
            }
            None => {
                let meta = RxMeta {
                    checksum_ok: false,
                    ..RxMeta::default()
                };
                self.stack.handle_packet(now, iface, packet.bytes(), meta);
            }
        }
    }

    /// The cards hand over what has arrived, in order, runs of segments as one.
    fn take_arrivals(&mut self, now: Instant, fabric: &mut Fabric) {
        if self.arrivals_due.is_none_or(|due| due > now) {
            return;
        }
        self.arrivals_due = None;
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let mut packets = std::mem::take(&mut self.batch);
        let mut joined = std::mem::take(&mut self.joined);
        // Each card keeps its own order; the cards take turns in theirs.
        for index in 0..self.interfaces.len() {
            let mut others = std::mem::take(&mut self.others);
            for (at, packet) in arrivals.drain(..) {
                if at == index {
                    packets.push(packet);
                } else {
                    others.push((at, packet));
                }
            }
            self.others = std::mem::replace(&mut arrivals, others);
            let mut from = 0;
            while from < packets.len() {
                let count = coalesce::run_length(&packets[from..]);
                let run = &packets[from..from + count];
                if count == 1 {
                    self.take_in(now, index, &run[0]);
                } else {
                    coalesce::join(run, &mut joined);
                    for summary in run.iter().filter_map(|packet| packet.summary()) {
                        self.watch.received(summary);
                    }
                    let meta = RxMeta {
                        checksum_ok: true,
                        ..RxMeta::default()
                    };
                    self.stack
                        .handle_packet(now, IfaceId(index as u32), &joined, meta);
                }
                from += count;
            }
            for packet in packets.drain(..) {
                fabric.pool().give(packet);
            }
        }
        (self.arrivals, self.batch, self.joined) = (arrivals, packets, joined);
    }

    /// Time has come: for the stack's deadline, and for endpoints that wanted a turn.
    pub fn time_out(&mut self, now: Instant) {
        if self.stack.poll_deadline().is_some_and(|due| due <= now) {
            self.stack.handle_timeout(now);
        }
        let eager = &mut self.eager;
        self.wakes.retain(|(due, index)| {
            if *due <= now {
                eager.push(*index);
            }
            *due > now
        });
        self.stirred = true;
    }

    /// Lets the stack send, hear and be heard until there is nothing left to do at this moment. Says when to call
    /// [`time_out`](Self::time_out).
    pub fn turn(
        &mut self,
        now: Instant,
        fabric: &mut Fabric,
        found: &mut Vec<Violation>,
    ) -> Option<Instant> {
        self.stirred = false;
        self.take_arrivals(now, fabric);
        let retry = loop {
            // The driver's loop is the same: transmit until nothing is left or nothing fits, then hear the events.
            let retry = loop {
                match self.transmit(now, fabric, found) {
                    Transmit::Sent(_) => {}
                    Transmit::Blocked(iface) => break self.room_again(now, fabric, iface),
                    Transmit::Nothing => break None,
                }
            };
            while let Some(event) = self.stack.poll_event() {
                self.hear(now, &event, found);
            }
            if !self.work(now, found) {
                break retry;
            }
        };
        let wake = self.wakes.iter().map(|(due, _)| *due).min();
        let mut soonest = Soonest::default();
        soonest.consider(self.stack.poll_deadline());
        soonest.consider(wake);
        soonest.consider(retry);
        soonest.consider(self.arrivals_due);
        soonest.get()
    }

    fn transmit(
        &mut self,
        now: Instant,
        fabric: &mut Fabric,
        found: &mut Vec<Violation>,
    ) -> Transmit {
        let mut tx = Cards::new(now, fabric, &self.interfaces, &mut self.desk);
        let done = self.stack.poll_transmit(now, &mut tx);
        for (index, mut packet) in self.desk.sent() {
            let interface = &mut self.interfaces[index];
            interface.counters.sent += 1;
            // What a card computes is right; what the stack computes has to show it.
            let verify = if interface.offload.checksum {
                Verify::Trusted
            } else {
                Verify::Full
            };
            let verdict = match packet.read(verify) {
                Ok(()) => packet.summary().map_or(Ok(()), |summary| {
                    interface.counters.sent_payload += u64::from(summary.payload);
                    if let Some(habit) = &mut self.habit {
                        habit.sent(summary);
                    }
                    self.watch.sent(summary)
                }),
                Err(ParseError::NotTcp(_)) => Ok(()),
                Err(error) => Err(format!("writes a malformed packet: {error:?}")),
            };
            let verdict = verdict.and_then(|()| match packet.len() > usize::from(interface.mtu) {
                true => Err(format!(
                    "sends {} bytes at an MTU of {}",
                    packet.len(),
                    interface.mtu
                )),
                false => Ok(()),
            });
            if let Err(what) = verdict {
                note(found, &self.name, now, Rule::Wire, what);
            }
            // A kernel knows no route from an address that the host has no more.
            let from = packet.summary().map(|summary| summary.tuple.remote.ip());
            if from.is_none_or(|from| interface.addresses.contains(&from)) {
                fabric.send(now, interface.port, packet);
            }
        }
        done
    }

    /// When a full card will take packets again.
    fn room_again(&self, now: Instant, fabric: &Fabric, iface: IfaceId) -> Option<Instant> {
        let interface = self.interfaces.get(iface.0 as usize)?;
        let limit = interface.device_queue?;
        let drained = fabric
            .line(interface.port)
            .drains_to(limit.saturating_sub(1));
        Some(drained.unwrap_or(now))
    }

    fn hear(&mut self, now: Instant, event: &Event, found: &mut Vec<Violation>) {
        if let EventKind::Acceptable(listener) = event.kind {
            while let Some(conn) = self.stack.accept(listener) {
                self.accepted(now, listener, conn);
            }
            return;
        }
        let Some(conn) = event.conn else { return };
        let Some(&index) = self.by_conn.get(&conn) else {
            return; // Closed or aborted by us, and the stack had something left to say.
        };
        let endpoint = &mut self.endpoints[index];
        match event.kind {
            EventKind::Established => endpoint.established(now),
            EventKind::Closed(cause) => {
                // What arrived before the end can still be read.
                let turn = endpoint.turn(now, &mut self.stack, READ);
                if let Some(what) = turn.wrong {
                    note(
                        found,
                        &self.name,
                        now,
                        Rule::Stream,
                        format!("{}: {what}", event_place(endpoint)),
                    );
                }
                endpoint.keep_info(&self.stack);
                // After an orderly end the application still reads at its own speed, and closes then.
                if endpoint.phase != Phase::Over && cause != CloseCause::Finished {
                    endpoint.closed(cause, now);
                    // The handle is no longer needed; an error says that it is gone already.
                    let _ = self.stack.close(now, conn);
                }
            }
            EventKind::SubflowUp { .. } => endpoint.record.subflows += 1,
            EventKind::FellBack(cause) => endpoint.record.fell_back = Some(cause),
            EventKind::Acceptable(_)
            | EventKind::Opening { .. }
            | EventKind::Decided { .. }
            | EventKind::Created { .. }
            | EventKind::JoinsAllowed
            | EventKind::LocalUp { .. }
            | EventKind::LocalDown { .. }
            | EventKind::Unreachable
            | EventKind::Readable
            | EventKind::Writable
            | EventKind::Delivered
            | EventKind::SubflowDown { .. }
            | EventKind::AddressAnnounced { .. }
            | EventKind::AddressWithdrawn { .. }
            | EventKind::PriorityChanged { .. }
            | EventKind::Timeout { .. } => {}
        }
        if matches!(
            event.kind,
            EventKind::FellBack(_) | EventKind::SubflowDown { .. }
        ) {
            let before = endpoint.record.level;
            endpoint.keep_info(&self.stack);
            let after = endpoint.record.level;
            if before > after {
                let what = format!("goes back up from {before:?} to {after:?}");
                note(found, &self.name, now, Rule::Wire, what);
            }
        }
        self.eager.push(index);
    }

    fn accepted(&mut self, now: Instant, listener: ListenerId, conn: ConnId) {
        let Some(service) = self.services.get(&listener) else {
            return;
        };
        let mut endpoint = Endpoint::new(conn, service.app, false, service.plan, now);
        if service.numbered {
            endpoint = endpoint.numbered(None);
        }
        endpoint.established(now);
        self.add_endpoint(endpoint);
    }

    /// Gives eager endpoints a turn. Says whether any of them called the stack.
    fn work(&mut self, now: Instant, found: &mut Vec<Violation>) -> bool {
        let mut acted = false;
        let mut eager = std::mem::take(&mut self.eager);
        eager.sort_unstable();
        eager.dedup();
        for index in eager.drain(..) {
            let endpoint = &mut self.endpoints[index];
            let turn = endpoint.turn(now, &mut self.stack, READ);
            acted |= turn.acted;
            if let Some(what) = turn.wrong {
                note(
                    found,
                    &self.name,
                    now,
                    Rule::Stream,
                    format!("{}: {what}", event_place(endpoint)),
                );
            }
            if let Some(wake) = turn.wake {
                let sooner = |(due, other): &(Instant, usize)| *other == index && *due <= wake;
                if !self.wakes.iter().any(sooner) {
                    self.wakes.push((wake, index));
                }
            }
        }
        self.eager = eager;
        acted
    }

    /// Asks the stack about every connection that is still there.
    pub fn keep_infos(&mut self) {
        for endpoint in &mut self.endpoints {
            if endpoint.phase != Phase::Over {
                endpoint.keep_info(&self.stack);
            }
        }
    }
}

fn event_place(endpoint: &Endpoint) -> String {
    let side = if endpoint.is_client {
        "client"
    } else {
        "server"
    };
    match endpoint.number {
        Some(number) => format!("application {}, connection {number}, {side}", endpoint.app),
        None => format!("application {}, {side}", endpoint.app),
    }
}

fn note(found: &mut Vec<Violation>, host: &str, time: Instant, rule: Rule, what: String) {
    // The first ones tell; a broken run would fill the memory.
    if found.len() < 50 {
        found.push(Violation {
            time,
            host: host.to_owned(),
            rule,
            what,
        });
    }
}

/// The options of one end of a connection, from the stack's defaults and up to three layers of changes.
pub fn options(
    layers: [&OptionsSpec; 2],
    base: ConnOptions,
) -> Result<ConnOptions, crate::scenario::ScenarioError> {
    let mut options = base;
    for layer in layers {
        layer.apply(&mut options)?;
    }
    Ok(options)
}
