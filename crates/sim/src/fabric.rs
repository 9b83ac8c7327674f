//! Everything between hosts: links, middleboxes, routers, and the one event queue of a simulation.
//!
//! A packet that a host sends crosses the boxes at its end of the link, the line, the boxes at the other end, and then
//! is at a host (the caller takes it out of the inbox) or at a router, which forwards it at once. Routers know the
//! shortest ways to every address and choose among equal ones by a hash of the flow, as equal-cost multipath does.

use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;
use rustc_hash::FxHashMap;

use crate::icmp::{self, Complaint};
use crate::line::{Line, LineConfig, LineCounters};
use crate::loss::Loss;
use crate::middlebox::{Desk, Middlebox, Verdict, Way};
use crate::packet::{Packet, Pool};
use crate::queue::EventQueue;
use crate::record::{Capture, Digest};
use crate::rng::Rng;
use crate::routes::{Routes, flow_hash};

/// A host's or router's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A link's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u32);

/// One of the two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The end that was named first.
    A,
    /// The other one.
    B,
}

impl Side {
    /// The other end.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }
}

/// One end of a link. For a host it is an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// The link.
    pub link: LinkId,
    /// Which end.
    pub side: Side,
}

impl Port {
    /// The other end of the link.
    #[must_use]
    pub const fn peer(self) -> Self {
        Self {
            link: self.link,
            side: self.side.other(),
        }
    }

    /// The capture's number for it.
    const fn interface(self) -> u32 {
        self.link.0 * 2 + self.side.index() as u32
    }
}

/// Something that is due at a time.
#[derive(Debug)]
pub enum Event {
    /// Packets arrive at this end.
    Arrival(Port),
    /// A middlebox at this end, by its place there, wants to act.
    Box(Port, usize),
    /// A packet leaves a middlebox that had delayed it.
    Released(Port, usize, Way, Box<Packet>),
    /// Something that the fabric does not know: the caller's number.
    Caller(u64),
}

/// A packet that has arrived at a host.
#[derive(Debug)]
pub struct Delivery {
    /// The interface that it arrived on.
    pub port: Port,
    /// The packet.
    pub packet: Box<Packet>,
}

struct BoxSlot {
    middlebox: Box<dyn Middlebox>,
    rng: Rng,
    scheduled: Option<Instant>,
}

struct Link {
    name: String,
    nodes: [NodeId; 2],
    /// By the side that sends.
    lines: [Line; 2],
    /// By the side that receives: when an arrival is scheduled.
    scheduled: [Option<Instant>; 2],
    /// By the side that they are at, nearest to the node first.
    boxes: [Vec<BoxSlot>; 2],
}

struct Node {
    name: String,
    is_router: bool,
    /// A router tells senders why it drops their packets.
    complains: bool,
}

/// Links, middleboxes and routers.
pub struct Fabric {
    seed: u64,
    events: EventQueue<Event>,
    pool: Pool,
    nodes: Vec<Node>,
    links: Vec<Link>,
    routes: Routes,
    inbox: Vec<Delivery>,
    /// Empty lists, kept so that no packet costs an allocation; one for each box that is being asked at a time.
    verdicts: Vec<Vec<Verdict>>,
    digest: Digest,
    capture: Option<Capture>,
    drops: FxHashMap<&'static str, u64>,
    hops: u64,
}

impl Fabric {
    /// An empty network whose faults are drawn from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            events: EventQueue::default(),
            pool: Pool::default(),
            nodes: Vec::new(),
            links: Vec::new(),
            routes: Routes::default(),
            inbox: Vec::new(),
            verdicts: Vec::new(),
            digest: Digest::default(),
            capture: None,
            drops: FxHashMap::default(),
            hops: 0,
        }
    }

    /// Adds a host.
    pub fn add_host(&mut self, name: &str) -> NodeId {
        self.add_node(name, false, false)
    }

    /// Adds a router; `complains`: it answers packets that it must drop with ICMP errors.
    pub fn add_router(&mut self, name: &str, complains: bool) -> NodeId {
        self.add_node(name, true, complains)
    }

    /// Makes a router give each new flow the next of its equal ways, instead of one by a hash of the flow.
    pub fn take_turns(&mut self, router: NodeId) {
        self.routes.take_turns(router);
    }

    fn add_node(&mut self, name: &str, is_router: bool, complains: bool) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(Node {
            name: name.to_owned(),
            is_router,
            complains,
        });
        id
    }

    /// Joins two nodes; `configs` are the lines from A to B and from B to A.
    pub fn add_link(&mut self, name: &str, nodes: [NodeId; 2], configs: [LineConfig; 2]) -> LinkId {
        let id = LinkId(self.links.len() as u32);
        let [out, back] = configs;
        let rng = |side: u64| Rng::stream(self.seed, u64::from(id.0) * 2 + side);
        self.links.push(Link {
            name: name.to_owned(),
            nodes,
            lines: [Line::new(out, rng(0)), Line::new(back, rng(1))],
            scheduled: [None; 2],
            boxes: [Vec::new(), Vec::new()],
        });
        self.routes.add_link(nodes);
        id
    }

    /// Puts a middlebox at the end of a link, behind those that are there (seen from the node).
    pub fn add_box(&mut self, port: Port, middlebox: Box<dyn Middlebox>) {
        let boxes = &mut self.links[port.link.0 as usize].boxes[port.side.index()];
        let number = boxes.len() as u64;
        let part = 1 << 32 | u64::from(port.interface()) << 8 | number;
        boxes.push(BoxSlot {
            middlebox,
            rng: Rng::stream(self.seed, part),
            scheduled: None,
        });
    }

    /// Makes an address of the host's interface known to all routers.
    pub fn add_address(&mut self, address: IpAddr, port: Port) {
        let routers: Vec<bool> = self.nodes.iter().map(|node| node.is_router).collect();
        self.routes.add_address(address, port, &routers);
    }

    /// Writes every packet that enters or leaves an end of a link.
    pub fn set_capture(&mut self, capture: Option<Capture>) -> Option<Capture> {
        std::mem::replace(&mut self.capture, capture)
    }

    /// The names of all ends of links, as a capture numbers them.
    #[must_use]
    pub fn interface_names(&self) -> Vec<String> {
        let node = |id: NodeId| &self.nodes[id.0 as usize].name;
        let ends = |link: &Link| link.nodes.map(|id| format!("{}@{}", node(id), link.name));
        self.links.iter().flat_map(ends).collect()
    }

    /// Schedules something of the caller's.
    pub fn schedule(&mut self, time: Instant, number: u64) {
        self.events.push(time, Event::Caller(number));
    }

    /// When the next event is due.
    #[must_use]
    pub fn next_time(&self) -> Option<Instant> {
        self.events.next_time()
    }

    /// Handles the next event. A number of the caller's is handed back; deliveries wait in the inbox.
    pub fn step(&mut self) -> Option<(Instant, Option<u64>)> {
        let (now, event) = self.events.pop()?;
        match event {
            Event::Arrival(port) => self.arrivals(now, port),
            Event::Box(port, at) => self.box_acts(now, port, at),
            Event::Released(port, at, way, packet) => self.leave_box(now, port, at, way, packet),
            Event::Caller(number) => return Some((now, Some(number))),
        }
        Some((now, None))
    }

    /// Packets that have arrived at hosts, in order.
    pub fn inbox(&mut self) -> &mut Vec<Delivery> {
        &mut self.inbox
    }

    /// Buffers.
    pub fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// A node puts a packet on a link.
    pub fn send(&mut self, now: Instant, port: Port, packet: Box<Packet>) {
        self.note(now, port, &packet);
        self.walk(now, port, 0, Way::Out, packet);
    }

    /// Carries a packet from place `at` among the boxes of an end to the line (`Out`) or the node (`In`). Places count
    /// boxes between the node and the packet.
    fn walk(&mut self, now: Instant, port: Port, at: usize, way: Way, packet: Box<Packet>) {
        let boxes = &self.links[port.link.0 as usize].boxes[port.side.index()];
        match way {
            Way::Out if at == boxes.len() => self.onto_line(now, port, packet),
            Way::In if at == 0 => self.at_node(now, port, packet),
            Way::Out => self.through_box(now, port, at, way, packet),
            Way::In => self.through_box(now, port, at - 1, way, packet),
        }
    }

    fn through_box(&mut self, now: Instant, port: Port, at: usize, way: Way, packet: Box<Packet>) {
        self.with_box(now, port, at, |middlebox, desk| {
            middlebox.handle(way, packet, desk)
        });
    }

    fn box_acts(&mut self, now: Instant, port: Port, at: usize) {
        let slot = &mut self.links[port.link.0 as usize].boxes[port.side.index()][at];
        if slot.scheduled.is_some_and(|due| due <= now) {
            slot.scheduled = None;
        }
        // A deadline that has moved on meanwhile is waited for anew.
        self.with_box(now, port, at, |middlebox, desk| {
            if middlebox.deadline().is_some_and(|due| due <= now) {
                middlebox.on_deadline(desk);
            }
        });
    }

    fn with_box(
        &mut self,
        now: Instant,
        port: Port,
        at: usize,
        act: impl FnOnce(&mut dyn Middlebox, &mut Desk<'_>),
    ) {
        let mut verdicts = self.verdicts.pop().unwrap_or_default();
        let slot = &mut self.links[port.link.0 as usize].boxes[port.side.index()][at];
        let mut desk = Desk {
            now,
            pool: &mut self.pool,
            rng: &mut slot.rng,
            verdicts: &mut verdicts,
        };
        act(&mut *slot.middlebox, &mut desk);
        if let Some(due) = slot.middlebox.deadline() {
            let due = due.max(now);
            if slot.scheduled.is_none_or(|scheduled| due < scheduled) {
                slot.scheduled = Some(due);
                self.events.push(due, Event::Box(port, at));
            }
        }
        for verdict in verdicts.drain(..) {
            match verdict {
                Verdict::Forward(way, packet) => self.leave_box(now, port, at, way, packet),
                Verdict::Delay(way, time, packet) => {
                    self.events
                        .push(now + time, Event::Released(port, at, way, packet));
                }
                Verdict::Drop(packet, why) => self.drop(packet, why),
            }
        }
        self.verdicts.push(verdicts);
    }

    fn leave_box(&mut self, now: Instant, port: Port, at: usize, way: Way, packet: Box<Packet>) {
        let next = match way {
            Way::Out => at + 1,
            Way::In => at,
        };
        self.walk(now, port, next, way, packet);
    }

    fn onto_line(&mut self, now: Instant, port: Port, packet: Box<Packet>) {
        let link = &mut self.links[port.link.0 as usize];
        let line = &mut link.lines[port.side.index()];
        line.offer(now, packet, &mut self.pool);
        // An event is due before all that wait, and mostly they arrive in order.
        let scheduled = link.scheduled[port.side.other().index()];
        let both = line.last_arrival().zip(scheduled);
        let comes_behind = both.is_some_and(|(last, due)| due <= last);
        if !comes_behind {
            self.schedule_arrival(port.peer());
        }
    }

    /// Makes sure that an event is due when the next packet arrives at `port`.
    fn schedule_arrival(&mut self, port: Port) {
        let link = &mut self.links[port.link.0 as usize];
        let next = link.lines[port.side.other().index()].next_arrival();
        let scheduled = &mut link.scheduled[port.side.index()];
        let Some(next) = next else { return };
        if scheduled.is_none_or(|scheduled| next < scheduled) {
            *scheduled = Some(next);
            self.events.push(next, Event::Arrival(port));
        }
    }

    fn arrivals(&mut self, now: Instant, port: Port) {
        let (link, side) = (port.link.0 as usize, port.side);
        let scheduled = &mut self.links[link].scheduled[side.index()];
        if scheduled.is_some_and(|due| due <= now) {
            *scheduled = None;
        }
        while let Some(packet) = self.links[link].lines[side.other().index()].arrival(now) {
            let place = self.links[link].boxes[side.index()].len();
            self.walk(now, port, place, Way::In, packet);
        }
        self.links[link].lines[side.other().index()].fetch_ahead();
        self.schedule_arrival(port);
    }

    fn at_node(&mut self, now: Instant, port: Port, packet: Box<Packet>) {
        self.note(now, port, &packet);
        let node = self.links[port.link.0 as usize].nodes[port.side.index()];
        if self.nodes[node.0 as usize].is_router {
            self.forward(now, node, port, packet);
        } else {
            self.digest
                .add(now, u64::from(port.interface()), packet.bytes());
            self.inbox.push(Delivery { port, packet });
        }
    }

    fn forward(&mut self, now: Instant, router: NodeId, from: Port, mut packet: Box<Packet>) {
        self.hops += 1;
        if !take_hop(&mut packet) {
            return self.drop(packet, "hop limit");
        }
        let hash = flow_hash(packet.bytes());
        let complaint = match self.routes.next_hop(router, packet.bytes(), hash) {
            None => Complaint::NoRoute,
            Some(port) => {
                let line = &self.links[port.link.0 as usize].lines[port.side.index()];
                let mtu = line.config().mtu;
                if packet.len() <= usize::from(mtu) {
                    return self.send(now, port, packet);
                }
                Complaint::TooBig { mtu }
            }
        };
        if self.nodes[router.0 as usize].complains {
            if let Some(reply) = icmp::message(packet.bytes(), complaint, &mut self.pool) {
                self.send(now, from, reply);
            }
        }
        let why = match complaint {
            Complaint::NoRoute => "no route",
            Complaint::TooBig { .. } => "too big for the next link",
        };
        self.drop(packet, why);
    }

    fn drop(&mut self, packet: Box<Packet>, why: &'static str) {
        *self.drops.entry(why).or_default() += 1;
        self.pool.give(packet);
    }

    fn note(&mut self, now: Instant, port: Port, packet: &Packet) {
        if let Some(capture) = &mut self.capture {
            capture.add(now, port.interface(), packet.bytes());
        }
    }

    /// Cuts or mends both directions of a link.
    pub fn set_up(&mut self, now: Instant, link: LinkId, up: bool) {
        for line in &mut self.links[link.0 as usize].lines {
            line.set_up(now, up, &mut self.pool);
        }
        self.reschedule(link);
    }

    /// Changes the rate of the line that `from` sends on.
    pub fn set_rate(&mut self, now: Instant, from: Port, rate: Rate) {
        self.line_mut(from).set_rate(now, rate);
        self.reschedule(from.link);
    }

    /// Changes the delay of the line that `from` sends on.
    pub fn set_delay(&mut self, now: Instant, from: Port, delay: Duration) {
        self.line_mut(from).set_delay(now, delay);
        self.reschedule(from.link);
    }

    /// Replaces the loss models of the line that `from` sends on.
    pub fn set_loss(&mut self, from: Port, loss: Vec<Loss>) {
        self.line_mut(from).set_loss(loss);
    }

    fn reschedule(&mut self, link: LinkId) {
        for side in [Side::A, Side::B] {
            self.schedule_arrival(Port { link, side });
        }
    }

    /// The line that `from` sends on.
    #[must_use]
    pub fn line(&self, from: Port) -> &Line {
        &self.links[from.link.0 as usize].lines[from.side.index()]
    }

    fn line_mut(&mut self, from: Port) -> &mut Line {
        &mut self.links[from.link.0 as usize].lines[from.side.index()]
    }

    /// Bytes waiting for the line that `from` sends on.
    pub fn backlog(&mut self, now: Instant, from: Port) -> u64 {
        self.line_mut(from).backlog(now)
    }

    /// Every link with its name and the counters of both directions.
    pub fn link_counters(&self) -> impl Iterator<Item = (&str, [LineCounters; 2])> {
        self.links.iter().map(|link| {
            let counters = [*link.lines[0].counters(), *link.lines[1].counters()];
            (link.name.as_str(), counters)
        })
    }

    /// All middleboxes, in the order of links and ends: the link, the end, the box's name, and how many packets it touched.
    pub fn boxes(&self) -> impl Iterator<Item = (&str, Side, &'static str, u64)> {
        let ends = self
            .links
            .iter()
            .flat_map(|link| [(link, Side::A), (link, Side::B)]);
        ends.flat_map(|(link, side)| {
            let slots = link.boxes[side.index()].iter();
            slots.map(move |slot| {
                let middlebox = &slot.middlebox;
                (
                    link.name.as_str(),
                    side,
                    middlebox.name(),
                    middlebox.touched(),
                )
            })
        })
    }

    /// Packets that routers and middleboxes dropped, by reason, in a fixed order.
    #[must_use]
    pub fn drops(&self) -> Vec<(&'static str, u64)> {
        let mut drops: Vec<_> = self
            .drops
            .iter()
            .map(|(why, count)| (*why, *count))
            .collect();
        drops.sort_unstable();
        drops
    }

    /// The hash of every delivery to a host so far.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The node that an end of a link belongs to.
    #[must_use]
    pub fn node_at(&self, port: Port) -> NodeId {
        self.links[port.link.0 as usize].nodes[port.side.index()]
    }
}

/// Takes one from a packet's remaining hops; says whether it may go on.
fn take_hop(packet: &mut Packet) -> bool {
    let bytes = packet.bytes_mut();
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 && bytes[8] > 1 => {
            bytes[8] -= 1;
            let header = usize::from(bytes[0] & 0x0f) * 4;
            let header = header.clamp(20, bytes.len());
            crate::view::fix_ipv4_header(bytes, header);
            true
        }
        Some(6) if bytes.len() >= 40 && bytes[7] > 1 => {
            bytes[7] -= 1;
            true
        }
        _ => false,
    }
}
