//! One server, two honest clients, one attacker, in simulated time.
//!
//! One honest client keeps a transfer going over two paths. The other opens one short connection after the other, since
//! those notice a listener that does not listen. All links but theirs are so fast that nothing but the server's stack can
//! come between them and their data.

use core::net::SocketAddr;

use manypath_stack::api::{ListenOptions, Memory};
use manypath_stack::stats::Counters;
use manypath_stack::{Stack, StackConfig};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;
use manypath_wire::segment::{Segment, Verify};

use super::host::{Node, Work};
use super::{Attack, DEAF, Desk, HONEST, OWN, SERVER};
use crate::fabric::{Fabric, Port, Side};
use crate::line::{Buffer, LineConfig};
use crate::rng::Rng;

/// How the bench is set up.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Simulated time.
    pub time: Duration,
    /// Seed.
    pub seed: u64,
    /// The server's limits.
    pub config: StackConfig,
    /// The listener's backlog.
    pub backlog: usize,
    /// A clock that counts nanoseconds, to measure the server's work by; without it none is measured.
    pub clock: Option<fn() -> u64>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(10),
            seed: 1,
            config: StackConfig::default(),
            backlog: 4096,
            clock: None,
        }
    }
}

/// What the honest clients got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Honest {
    /// Bytes of the long transfer.
    pub bulk: u64,
    /// Short connections that were completed.
    pub short: u64,
    /// Connections of its that failed, or bytes that were wrong.
    pub failures: u64,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Packets that the attacker sent, and their bytes.
    pub packets: u64,
    /// See `packets`.
    pub bytes: u64,
    /// Packets that the server sent to anybody but the honest client.
    pub answers: u64,
    /// Bytes of them.
    pub answer_bytes: u64,
    /// The server's memory at its highest.
    pub memory: Memory,
    /// Connections of the server at most.
    pub connections: usize,
    /// What the honest client got.
    pub honest: Honest,
    /// The server's counters.
    pub counters: Counters,
    /// Times that the server's timer fired.
    pub timeouts: u64,
    /// Nanoseconds that the server's stack worked, where a clock was given.
    pub busy: u64,
}

const SERVER_NODE: usize = 0;
const BULK_NODE: usize = 1;
const SHORT_NODE: usize = 2;

struct Bench<'a> {
    now: Instant,
    end: Instant,
    fabric: Fabric,
    /// The server, the client with the long transfer, and the one with short connections.
    nodes: [Node; 3],
    /// Which node a delivery is for is told by its port.
    places: Vec<(Port, usize, u32)>,
    attacker: Port,
    attack: &'a mut dyn Attack,
    rng: Rng,
    out: Vec<Vec<u8>>,
    overheard: Vec<Vec<u8>>,
    packets: u64,
    bytes: u64,
    peak: Memory,
    connections: usize,
}

/// Runs an attack.
pub fn run(setup: &Setup, attack: &mut dyn Attack) -> Outcome {
    let mut bench = Bench::new(setup, attack);
    bench.run();
    bench.outcome()
}

fn line(rate_mbit: u64, delay_ms: u64) -> LineConfig {
    LineConfig {
        rate: Rate::from_bits_per_sec(rate_mbit * 1_000_000),
        delay: Duration::from_millis(delay_ms),
        buffer: Buffer::Time(Duration::from_millis(100)),
        ..LineConfig::default()
    }
}

impl<'a> Bench<'a> {
    fn new(setup: &Setup, attack: &'a mut dyn Attack) -> Self {
        let mut fabric = Fabric::new(setup.seed);
        let hosts = ["server", "bulk", "short", "attacker"].map(|name| fabric.add_host(name));
        let router = fabric.add_router("router", false);
        let mut link = |name: &str, host, rate: [u64; 2], delay| {
            let config = rate.map(|rate| line(rate, delay));
            let link = fabric.add_link(name, [host, router], config);
            Port {
                link,
                side: Side::A,
            }
        };
        let server = link("server", hosts[0], [1_000; 2], 1);
        let honest = [
            link("one", hosts[1], [20; 2], 9),
            link("two", hosts[1], [10; 2], 19),
            link("three", hosts[2], [20; 2], 9),
        ];
        let attacker = link("attacker", hosts[3], [1_000, 20], 4);
        fabric.add_address(SERVER.ip(), server);
        for (address, port) in HONEST.iter().zip(honest) {
            fabric.add_address(*address, port);
        }
        for address in OWN {
            fabric.add_address(address, attacker);
        }
        let mut rng = Rng::stream(setup.seed, 7);
        let mut stack =
            |config: &StackConfig| Stack::new(config.clone(), rng.bytes(), Instant::ZERO);
        let mut server_node = Node::new(stack(&setup.config), setup.clock);
        server_node.add_path(SERVER.ip(), server);
        server_node.serve(SERVER, setup.backlog, Work::Serve);
        server_node.serve(DEAF, setup.backlog, Work::Ignore);
        let mut client = |paths: core::ops::Range<usize>, work| {
            let mut node = Node::new(stack(&StackConfig::default()), None);
            for index in paths {
                node.add_path(HONEST[index], honest[index]);
            }
            node.call(Instant::ZERO, SERVER, work);
            node
        };
        let clients = [client(0..2, Work::Bulk), client(2..3, Work::Short)];
        let [bulk, short] = clients;
        Self {
            now: Instant::ZERO,
            end: Instant::ZERO + setup.time,
            fabric,
            nodes: [server_node, bulk, short],
            places: vec![
                (server, SERVER_NODE, 0),
                (honest[0], BULK_NODE, 0),
                (honest[1], BULK_NODE, 1),
                (honest[2], SHORT_NODE, 0),
            ],
            attacker,
            attack,
            rng,
            out: Vec::new(),
            overheard: Vec::new(),
            packets: 0,
            bytes: 0,
            peak: Memory::default(),
            connections: 0,
        }
    }

    fn run(&mut self) {
        self.turn();
        loop {
            let deadlines = self
                .nodes
                .iter_mut()
                .filter_map(|node| node.stack.poll_deadline());
            let next = deadlines
                .chain(self.fabric.next_time())
                .chain(self.attack.next())
                .min();
            let Some(next) = next.filter(|next| *next <= self.end) else {
                return;
            };
            self.now = self.now.max(next);
            if self.fabric.next_time().is_some_and(|at| at <= self.now) {
                self.fabric.step();
                self.deliver();
            }
            if self.attack.next().is_some_and(|at| at <= self.now) {
                self.with_attack(|attack, desk| attack.act(desk));
            }
            for node in &mut self.nodes {
                node.time_out(self.now);
            }
            self.turn();
        }
    }

    fn with_attack(&mut self, act: impl FnOnce(&mut dyn Attack, &mut Desk<'_>)) {
        let mut desk = Desk {
            now: self.now,
            rng: &mut self.rng,
            out: &mut self.out,
        };
        act(self.attack, &mut desk);
        for packet in self.out.drain(..) {
            self.packets += 1;
            self.bytes += packet.len() as u64;
            let packet = self.fabric.pool().copy_of(&packet);
            self.fabric.send(self.now, self.attacker, packet);
        }
    }

    fn deliver(&mut self) {
        let inbox = std::mem::take(self.fabric.inbox());
        for delivery in inbox {
            let place = self.places.iter().find(|(port, ..)| *port == delivery.port);
            match place.copied() {
                Some((_, node, iface)) => {
                    self.nodes[node].receive(self.now, iface, delivery.packet.bytes());
                    if node == SERVER_NODE {
                        self.overheard.push(delivery.packet.bytes().to_vec());
                    }
                }
                None => {
                    if let Ok(seg) = Segment::parse(delivery.packet.bytes(), Verify::Trusted) {
                        self.with_attack(|attack, desk| attack.receive(&seg, desk));
                    }
                }
            }
            self.fabric.pool().give(delivery.packet);
        }
    }

    /// Lets both hosts send and hear until nothing is left at this moment.
    fn turn(&mut self) {
        for index in 0..self.nodes.len() {
            self.nodes[index].turn(self.now);
            for (port, packet) in std::mem::take(&mut self.nodes[index].sent) {
                if index == SERVER_NODE {
                    self.overheard.push(packet.clone());
                }
                let packet = self.fabric.pool().copy_of(&packet);
                self.fabric.send(self.now, port, packet);
            }
        }
        for packet in std::mem::take(&mut self.overheard) {
            let Ok(seg) = Segment::parse(&packet, Verify::Trusted) else {
                continue;
            };
            let ends = [seg.tuple.local.ip(), seg.tuple.remote.ip()];
            if ends.iter().any(|ip| HONEST.contains(ip)) {
                self.with_attack(|attack, desk| attack.overhear(&seg, desk));
            }
        }
        let server = &mut self.nodes[SERVER_NODE].stack;
        let memory = server.memory();
        if memory.total() > self.peak.total() {
            self.peak = memory;
        }
        self.connections = self.connections.max(self.nodes[SERVER_NODE].connections());
    }

    fn outcome(self) -> Outcome {
        let [server, bulk, short] = self.nodes;
        let honest = Honest {
            bulk: bulk.honest.bulk,
            short: short.honest.short,
            failures: bulk.honest.failures + short.honest.failures,
        };
        Outcome {
            packets: self.packets,
            bytes: self.bytes,
            answers: server.to_others.0,
            answer_bytes: server.to_others.1,
            memory: self.peak,
            connections: self.connections,
            honest,
            counters: *server.stack.counters(),
            timeouts: server.timeouts,
            busy: server.busy,
        }
    }
}

/// What a server listens with.
pub(super) fn listening(addr: SocketAddr, backlog: usize) -> ListenOptions {
    ListenOptions {
        addr,
        backlog,
        conn: super::host::options(false),
    }
}
