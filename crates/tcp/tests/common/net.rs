//! Two machines back to back through a network that loses, delays, repeats and reorders; deterministic by seed.

use std::collections::BTreeMap;

use manypath_tcp::machine::{Config, Decision, Kind, Machine, Offer, Plan, State, TimeoutOutcome};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ip::Ecn;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

use super::{PLAIN, Packet, Rng, ms};

/// One direction of the network.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub delay: Duration,
    /// Bytes a second; zero means no limit.
    pub rate: u64,
    /// Longest queueing time before packets are dropped.
    pub queue: Duration,
    pub loss: u64,
    pub duplicate: u64,
    pub reorder: u64,
    /// Mark instead of dropping when the queue is longer than this.
    pub mark_above: Option<Duration>,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            delay: ms(10),
            rate: 0,
            queue: ms(100),
            loss: 0,
            duplicate: 0,
            reorder: 0,
            mark_above: None,
        }
    }
}

/// One end: a machine, the bytes it has to send and those it received.
pub struct End {
    pub machine: Option<Machine>,
    pub cfg: Config,
    pub isn: SeqNum,
    pub tx: Vec<u8>,
    pub rx: Vec<u8>,
    pub close: bool,
    pub option_space: u8,
    pub max_burst: u32,
    /// Room in the application's buffer; the application reads `read_rate` bytes each millisecond.
    pub buffer: u32,
    pub unread: u32,
    pub read_rate: u32,
    pub read_at: Instant,
    pub peer_fin: bool,
    pub fin_acked: bool,
    pub dead: Option<TimeoutOutcome>,
    /// Right edge told to the other end, and when something was last sent.
    edge: Option<SeqNum>,
    busy_until: Instant,
    pub link: Link,
    pub sent: Vec<(Instant, Plan)>,
}

impl End {
    pub fn new(cfg: Config, isn: u32, tx: Vec<u8>, link: Link) -> End {
        let buffer = cfg.recv_window;
        End {
            machine: None,
            cfg,
            isn: SeqNum::new(isn),
            tx,
            rx: Vec::new(),
            close: true,
            option_space: 0,
            max_burst: 1,
            buffer,
            unread: 0,
            read_rate: u32::MAX,
            read_at: Instant::ZERO,
            peer_fin: false,
            fin_acked: false,
            dead: None,
            edge: None,
            busy_until: Instant::ZERO,
            link,
            sent: Vec::new(),
        }
    }

    fn offer(&self) -> Offer {
        let m = self.machine.as_ref().expect("an offer needs a machine");
        let given = m.snd_nxt_ssn().get().saturating_sub(1) as usize;
        Offer {
            available: self.tx.len().saturating_sub(given) as u32,
            fin: self.close,
            option_space: self.option_space,
            max_burst: self.max_burst,
            push: true,
            no_nagle: false,
            probe_new: true,
        }
    }

    pub fn state(&self) -> State {
        self.machine.as_ref().map_or(State::Closed, |m| m.state())
    }
}

/// Decides which packets of which end are lost.
pub type Drop = Box<dyn FnMut(usize, &Packet) -> bool>;

/// The two ends and what travels between them.
pub struct Net {
    pub ends: [End; 2],
    pub now: Instant,
    pub rng: Rng,
    queue: BTreeMap<(Instant, u64), (usize, Packet)>,
    serial: u64,
    /// Every packet sent, by which end, for tests that look at the wire.
    pub wire: Vec<(Instant, usize, Packet)>,
    pub keep_wire: bool,
    /// Packets (by count over both directions) to be lost whatever the link says.
    pub drop: Drop,
    /// The right edge each end's machine may have learnt at best.
    edges: [Option<SeqNum>; 2],
}

impl Net {
    pub fn new(a: End, b: End, seed: u64) -> Net {
        Net {
            ends: [a, b],
            now: Instant::from_secs(1),
            rng: Rng::new(seed),
            queue: BTreeMap::new(),
            serial: 0,
            wire: Vec::new(),
            keep_wire: false,
            drop: Box::new(|_, _| false),
            edges: [None, None],
        }
    }

    /// Starts an active open at `who`.
    pub fn connect(&mut self, who: usize) {
        let end = &mut self.ends[who];
        end.machine = Some(Machine::connect(end.cfg.clone(), self.now, end.isn));
        self.flush(who);
    }

    fn put(&mut self, from: usize, packet: Packet) {
        if self.keep_wire {
            self.wire.push((self.now, from, packet.clone()));
        }
        let mut packet = packet;
        let link = self.ends[from].link;
        if (self.drop)(from, &packet) || self.rng.chance(link.loss) {
            return;
        }
        let mut leaves = self.now;
        if let Some(rate) = core::num::NonZeroU64::new(link.rate) {
            let start = self.ends[from].busy_until.max(self.now);
            let wait = start.since(self.now);
            if wait > link.queue {
                return;
            }
            if link.mark_above.is_some_and(|limit| wait > limit) && packet.ecn == Ecn::Ect0 {
                packet.ecn = Ecn::Ce;
            }
            let bytes = packet.payload.len() as u64 + 60;
            leaves = start + Duration::from_nanos(bytes * 1_000_000_000 / rate);
            self.ends[from].busy_until = leaves;
        }
        let copies = 1 + u64::from(self.rng.chance(link.duplicate));
        for _ in 0..copies {
            let extra = if self.rng.chance(link.reorder) {
                self.rng.below(20)
            } else {
                0
            };
            let when = leaves + link.delay + ms(extra);
            self.serial += 1;
            self.queue
                .insert((when, self.serial), (1 - from, packet.clone()));
        }
    }

    /// Sends everything that `who` may send now.
    pub fn flush(&mut self, who: usize) {
        for _ in 0..10_000 {
            let end = &mut self.ends[who];
            let Some(machine) = end.machine.as_mut() else {
                return;
            };
            machine.set_recv_window(end.buffer - end.unread.min(end.buffer));
            let offer = end.offer();
            let Some(machine) = end.machine.as_mut() else {
                return;
            };
            let plan = match machine.decide(self.now, &offer) {
                Decision::Send(plan) => plan,
                Decision::Idle => return,
            };
            assert_eq!(
                machine.decide(self.now, &offer),
                Decision::Send(plan),
                "decide is pure"
            );
            let (header, options) = machine.header(self.now, &plan);
            let ecn = machine.ecn(&plan);
            machine.sent(self.now, &plan);
            end.sent.push((self.now, plan));
            let from = plan.ssn.get().wrapping_sub(1) as usize;
            let bytes = if plan.len > 0 {
                end.tx[from..from + plan.len as usize].to_vec()
            } else {
                Vec::new()
            };
            self.check_plan(who, &plan, header.flags);
            let scale = if plan.syn {
                0
            } else {
                self.ends[who]
                    .machine
                    .as_ref()
                    .map_or(0, |m| m.info().options.recv_scale)
            };
            if header.flags.ack() && !header.flags.rst() {
                self.check_edge(who, header.ack + (u32::from(header.window) << scale));
            }
            let parts: Vec<&[u8]> = if bytes.is_empty() {
                vec![&[][..]]
            } else {
                bytes.chunks(plan.mss as usize).collect()
            };
            let count = parts.len();
            let mut seq = header.seq;
            let packets: Vec<Packet> = parts
                .iter()
                .enumerate()
                .map(|(i, part)| {
                    let mut h = header;
                    h.seq = seq;
                    seq += part.len() as u32;
                    if i + 1 < count {
                        h.flags = h.flags.without(Flags::FIN | Flags::PSH);
                    }
                    if i > 0 {
                        h.flags = h.flags.without(Flags::CWR);
                    }
                    Packet {
                        header: h,
                        options,
                        payload: part.to_vec(),
                        ecn,
                    }
                })
                .collect();
            for packet in packets {
                self.put(who, packet);
            }
        }
        panic!(
            "end {who} sends without end at {:?}: {:?}",
            self.now,
            self.ends[who].sent.last()
        );
    }

    /// New payload never passes the largest window that the other end told.
    fn check_plan(&self, who: usize, plan: &Plan, flags: Flags) {
        if plan.len > 0 && matches!(plan.kind, Kind::Data | Kind::TailProbe) {
            let edge = self.edges[who].expect("payload needs a window");
            assert!(
                !(plan.seq + plan.len).after(edge),
                "window of the peer is obeyed"
            );
        }
        assert_eq!(flags.fin(), plan.fin);
    }

    /// The right edge never moves left.
    fn check_edge(&mut self, who: usize, edge: SeqNum) {
        let end = &mut self.ends[who];
        if let Some(old) = end.edge {
            assert!(
                edge.after_eq(old),
                "right edge of end {who} moved left: {old:?} to {edge:?}"
            );
        }
        end.edge = Some(edge);
        self.edges[1 - who] = Some(edge);
    }

    fn deliver(&mut self, to: usize, packet: &Packet) {
        let view = packet.view();
        let now = self.now;
        let end = &mut self.ends[to];
        let Some(machine) = end.machine.as_mut() else {
            if packet.header.flags.syn() && !packet.header.flags.ack() {
                end.machine = Some(Machine::accept(end.cfg.clone(), now, end.isn, &view));
            }
            return;
        };
        let before = (machine.state() != State::SynSent).then(|| machine.rcv_nxt());
        let out = machine.on_segment(now, &view, &PLAIN);
        let held = machine.rcv_nxt();
        assert!(
            before.is_none_or(|b| held.after_eq(b)),
            "the stream only grows"
        );
        let old_len = end.rx.len();
        if let Some(part) = out.arrival.in_order() {
            assert_eq!(
                part.ssn.get() as usize,
                end.rx.len() + 1,
                "payload comes in order"
            );
            end.rx
                .extend_from_slice(&packet.payload[part.range.clone()]);
        }
        while let Some(chunk) = machine.take_ready() {
            assert!(out.arrival.more_ready());
            assert_eq!(
                chunk.ssn.get() as usize,
                end.rx.len() + 1,
                "chunks come in order"
            );
            end.rx.extend_from_slice(&chunk.bytes);
        }
        end.unread = end.unread.saturating_add((end.rx.len() - old_len) as u32);
        if end.read_rate == u32::MAX {
            end.unread = 0;
        }
        assert!(
            end.unread <= end.buffer + 256,
            "no more than was offered arrives"
        );
        end.peer_fin |= out.arrival.fin;
        end.fin_acked |= out.fin_acked;
    }

    fn read(&mut self, who: usize) {
        let end = &mut self.ends[who];
        if end.read_rate == u32::MAX {
            return;
        }
        let elapsed = self.now.since(end.read_at).as_millis() as u32;
        if elapsed > 0 {
            end.unread = end
                .unread
                .saturating_sub(elapsed.saturating_mul(end.read_rate));
            end.read_at = self.now;
        }
    }

    /// The next time at which something happens.
    fn next_time(&self) -> Option<Instant> {
        let packet = self.queue.keys().next().map(|(t, _)| *t);
        let reads = self
            .ends
            .iter()
            .filter(|e| e.read_rate != u32::MAX && e.unread > 0)
            .map(|_| self.now + ms(1));
        let timers = self
            .ends
            .iter()
            .filter_map(|e| e.machine.as_ref().and_then(|m| m.deadline()));
        packet.into_iter().chain(timers).chain(reads).min()
    }

    /// Runs until `done` or until nothing can happen before `limit`. True when done.
    pub fn run_until(&mut self, limit: Instant, done: impl Fn(&Net) -> bool) -> bool {
        let mut idle = 0;
        loop {
            if done(self) {
                return true;
            }
            let Some(next) = self.next_time() else {
                return false;
            };
            if next > limit {
                self.now = limit;
                return false;
            }
            idle = if next <= self.now { idle + 1 } else { 0 };
            assert!(idle < 100_000, "time stands still at {:?}", self.now);
            self.now = next.max(self.now);
            while let Some((&(when, serial), _)) = self.queue.first_key_value()
                && when <= self.now
            {
                let (to, packet) = self
                    .queue
                    .remove(&(when, serial))
                    .expect("the key was just seen");
                self.deliver(to, &packet);
                self.flush(to);
            }
            for who in 0..2 {
                self.read(who);
                if let Some(machine) = self.ends[who].machine.as_mut() {
                    let due = machine.deadline().is_some_and(|t| t <= self.now);
                    let out = machine.on_timeout(self.now);
                    assert!(due || !out.rto_fired);
                    if out.dead.is_some() {
                        self.ends[who].dead = Some(out);
                    }
                }
                self.flush(who);
            }
        }
    }

    /// Runs until both ends have everything and both FINs are through.
    pub fn run(&mut self, limit: Instant) -> bool {
        self.run_until(limit, Net::complete)
    }

    pub fn complete(&self) -> bool {
        (0..2).all(|who| {
            let (me, other) = (&self.ends[who], &self.ends[1 - who]);
            me.peer_fin == other.close
                && me.rx.len() == other.tx.len()
                && (!me.close || me.fin_acked)
        })
    }

    pub fn check_streams(&self) {
        for who in 0..2 {
            assert!(
                self.ends[who].rx == self.ends[1 - who].tx,
                "end {who} got what the other sent"
            );
        }
    }
}

/// Bytes that tell where they belong.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}
