//! One stack, and a peer that knows the keys of its connection and says what the fuzzer wants: segments of any subflow
//! with options that are right, nearly right or wrong, joins, announcements, failures, in any order and at any time.
//!
//! Whatever comes: nothing panics, every packet of the stack can be read, time goes on, memory stays bounded. And as long
//! as each byte of the peer came with a mapping that is right, the application reads the peer's stream and nothing else.
//! With FUZZ_SHOW in the environment a replayed input prints its packets.

mod peer;
mod words;

use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{IfaceId, Offload, Path, PathEvent, ReadOutcome, RxMeta, Stack, StackConfig};
use manypath_tcp::time::{Duration, Instant};
use manypath_testkit::Wire;
use manypath_wire::describe;
use manypath_wire::segment::{Segment, Verify};

use crate::script::Script;
use peer::{Peer, theirs};

/// Steps of one run.
const MOST_STEPS: usize = 300;
/// Packets that the stack may send for one input.
const MOST_PACKETS: usize = 20_000;
/// Receive and send buffer of the connection.
const BUFFER: u32 = 200_000;
/// What a connection may hold: both buffers, as much again for what is out of order and for tables, and small change.
const MOST_MEMORY: usize = 8 * BUFFER as usize + (1 << 20);
/// Paths of the stack.
const PATHS: u8 = 3;

struct World<'a> {
    script: Script<'a>,
    now: Instant,
    stack: Stack,
    wire: Wire,
    listener: Option<ListenerId>,
    conn: Option<ConnId>,
    peer: Peer,
    /// Bytes that the application has read.
    read: u64,
    /// Packets are printed, for whoever looks at a find.
    shown: bool,
}

fn path(number: u8, mtu: u16) -> Path {
    Path {
        mtu,
        backup: number == 2,
        offload: Offload {
            checksum: false,
            max_burst: if number == 0 { 20_000 } else { 0 },
        },
        ..manypath_testkit::path(1, number)
    }
}

/// Runs one script.
pub fn connection(data: &[u8]) {
    let mut script = Script::new(data);
    let (role, bits) = (script.byte(), script.byte());
    let now = Instant::from_secs(5);
    let mut stack = Stack::new(StackConfig::default(), [7; 32], now);
    for number in 0..PATHS {
        stack.handle_path_event(now, PathEvent::Up(path(number, 1500)));
    }
    let opts = words::options(bits, BUFFER);
    let mut peer = Peer::new(opts.checksum);
    let (listener, conn) = if role & 1 == 0 {
        (Some(peer.listen(&mut stack, opts)), None)
    } else {
        (None, Some(peer.connect(&mut stack, now, opts)))
    };
    let mut world = World {
        script,
        now,
        stack,
        wire: Wire::default(),
        listener,
        conn,
        peer,
        read: 0,
        shown: std::env::var_os("FUZZ_SHOW").is_some(),
    };
    world.greet();
    for _ in 0..MOST_STEPS {
        if world.script.is_over() {
            break;
        }
        world.step();
        world.flush();
        world.check();
    }
}

impl World<'_> {
    /// The handshake as it should be: there is more to break behind it.
    fn greet(&mut self) {
        self.flush();
        if self.conn.is_none() {
            let syn = self.peer.call();
            self.deliver(0, &syn);
            let third = self.peer.third();
            self.deliver(0, &third);
            self.conn = self.listener.and_then(|at| self.stack.accept(at));
        } else if let Some(answer) = self.peer.answer_call() {
            self.deliver(0, &answer);
        }
        let first = self.peer.data_ack(0);
        self.deliver(0, &first);
    }

    fn show(&self, way: &str, packet: &[u8]) {
        if self.shown {
            eprintln!("{way} {:?} {}", self.now, describe::packet(packet));
        }
    }

    fn deliver(&mut self, flow: usize, packet: &[u8]) {
        self.now += Duration::from_micros(200);
        let iface = IfaceId(u32::from(self.peer.flows[flow].path));
        self.show("in ", packet);
        self.stack
            .handle_packet(self.now, iface, packet, RxMeta::default());
        self.flush();
    }

    fn flush(&mut self) {
        let ended = self.wire.flush(&mut self.stack, self.now, MOST_PACKETS);
        assert!(ended, "it sends without end");
        while let Some(packet) = self.wire.take() {
            self.show("out", &packet);
            let segment = Segment::parse(&packet, Verify::Full).expect("what is sent can be read");
            self.peer.hear(&segment);
        }
        while self.stack.poll_event().is_some() {}
    }

    fn step(&mut self) {
        match self.script.byte() {
            0..110 => {
                let flow = self.script.below(self.peer.flows.len());
                let packet = words::segment(&mut self.script, &mut self.peer, flow);
                self.deliver(flow, &packet);
            }
            110..125 => self.join(),
            125..135 => self.answer_join(),
            135..155 => {
                let wait = u64::from(self.script.half()) * 50;
                self.now += Duration::from_micros(wait);
            }
            155..185 => self.time_out(),
            185..205 => self.write(),
            205..235 => self.read(),
            235..242 => self.paths(),
            242..246 => {
                let flow = self.script.below(self.peer.flows.len());
                let at = self.script.near();
                let mtu = self.script.half();
                let packet = self.peer.icmp(flow, at, mtu);
                self.deliver(flow, &packet);
            }
            246..250 => {
                // A good segment with one byte changed, and the checksum with it: whatever a parser lets through.
                let flow = self.script.below(self.peer.flows.len());
                let mut packet = words::segment(&mut self.script, &mut self.peer, flow);
                let at = 20 + usize::from(self.script.byte() % 60);
                let value = self.script.byte();
                if let Some(byte) = packet.get_mut(at) {
                    self.peer.honest = false;
                    *byte = value;
                }
                let trusted = RxMeta {
                    checksum_ok: true,
                    ..RxMeta::default()
                };
                let iface = IfaceId(u32::from(self.peer.flows[flow].path));
                self.show("in*", &packet);
                self.stack.handle_packet(self.now, iface, &packet, trusted);
            }
            250..253 => {
                if let Some(conn) = self.conn {
                    let _ = self.stack.shutdown_write(self.now, conn);
                }
            }
            253..255 => self.command(),
            255 => {
                if let Some(conn) = self.conn.take() {
                    let _ = match self.script.byte() & 1 {
                        0 => self.stack.abort(self.now, conn),
                        _ => self.stack.close(self.now, conn),
                    };
                }
            }
        }
    }

    /// The peer joins: the SYN, and where it was answered the third packet, right or wrong.
    fn join(&mut self) {
        let number = self.script.byte() % PATHS;
        let wrong = self.script.byte();
        let Some((flow, syn)) = self.peer.join(number, wrong) else {
            return;
        };
        self.deliver(flow, &syn);
        if wrong & 0x10 == 0 {
            if let Some(third) = self.peer.join_third(flow, wrong & 0x20 != 0) {
                self.deliver(flow, &third);
            }
        }
    }

    /// The peer answers a join of the stack.
    fn answer_join(&mut self) {
        let wrong = self.script.byte();
        if let Some((flow, answer)) = self.peer.answer_join(wrong) {
            self.deliver(flow, &answer);
            let ack = self.peer.data_ack(flow);
            self.deliver(flow, &ack);
        }
    }

    fn time_out(&mut self) {
        let Some(at) = self.stack.poll_deadline() else {
            return;
        };
        self.now = self.now.max(at);
        // However many rules fall due at one moment, they come to an end.
        for round in 0.. {
            self.stack.handle_timeout(self.now);
            self.flush();
            match self.stack.poll_deadline() {
                Some(next) if next <= self.now => {}
                _ => break,
            }
            assert!(round < 100, "time stands still at {:?}", self.now);
        }
    }

    fn write(&mut self) {
        let len = usize::from(self.script.half());
        if let Some(conn) = self.conn {
            let _ = self.stack.write(self.now, conn, &vec![0x5a; len]);
        }
    }

    fn read(&mut self) {
        let Some(conn) = self.conn else { return };
        let mut buffer = [0; 8192];
        while let Ok(ReadOutcome::Data(n)) = self.stack.read(self.now, conn, &mut buffer) {
            if self.peer.honest {
                for byte in &buffer[..n] {
                    assert_eq!(*byte, peer::pattern(self.read), "byte {}", self.read);
                    self.read += 1;
                }
            }
        }
        self.flush();
    }

    /// A path goes, comes back, or has another MTU.
    fn paths(&mut self) {
        let number = self.script.byte() % PATHS;
        let event = match self.script.byte() {
            0..100 => PathEvent::Down {
                iface: IfaceId(number.into()),
                addr: peer::ours(number),
            },
            other => PathEvent::Up(path(number, 500 + 8 * u16::from(other))),
        };
        self.stack.handle_path_event(self.now, event);
    }

    /// What a controller may ask for.
    fn command(&mut self) {
        let (what, number) = (self.script.byte(), self.script.byte() % PATHS);
        let Some(conn) = self.conn else { return };
        let subflows = self.stack.info(conn).map(|info| info.subflows);
        let some = subflows.ok().and_then(|all| {
            let at = usize::from(what >> 3) % all.len().max(1);
            all.get(at).map(|subflow| subflow.id)
        });
        match (what & 3, some) {
            (0, _) => {
                let (local, remote) = (peer::ours(number), theirs(number, peer::PORT));
                let backup = what & 4 != 0;
                let _ = self
                    .stack
                    .create_subflow(self.now, conn, local, remote, backup);
            }
            (1, Some(subflow)) => {
                let _ = self.stack.remove_subflow(self.now, conn, subflow);
            }
            (2, Some(subflow)) => {
                let _ = self
                    .stack
                    .set_backup(self.now, conn, subflow, what & 4 != 0);
            }
            _ => {}
        }
    }

    fn check(&mut self) {
        let memory = self.stack.memory();
        assert!(memory.connections <= MOST_MEMORY, "{memory:?}");
        for conn in self.stack.conns() {
            let info = self.stack.info(conn).expect("it was listed");
            // One join at a time is begun beyond the limit, that of the stack and the peer's counted together.
            assert!(info.subflows.len() <= words::MOST_SUBFLOWS + 1, "{info:?}");
        }
    }
}
