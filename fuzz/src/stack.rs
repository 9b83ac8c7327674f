//! Two whole stacks, and the fuzzer as the network between them: it drops, repeats and rewrites packets. Nothing
//! may panic, and as long as nothing was rewritten the streams must arrive as they were sent.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use manypath_stack::ids::ConnId;
use manypath_stack::{
    ConnOptions, ConnectOptions, IfaceId, ListenOptions, Offload, Path, PathEvent, PathManager,
    ReadOutcome, RxMeta, Slots, Stack, StackConfig, Transmit, TxMeta,
};
use manypath_tcp::time::{Duration, Instant};

use crate::script::Script;

/// Packets after which a run ends: enough for every phase of a connection, few enough for many runs.
const MOST_PACKETS: usize = 400;
/// Time-outs after which a run ends.
const MOST_TIMEOUTS: usize = 60;

#[derive(Default)]
struct Wire {
    slot: Vec<u8>,
    queue: VecDeque<(IfaceId, Vec<u8>)>,
}

impl Slots for Wire {
    fn slot(&mut self, _iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        self.slot.resize(room, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        self.queue
            .push_back((iface, self.slot[..meta.len].to_vec()));
    }
}

struct Run<'a> {
    script: Script<'a>,
    now: Instant,
    stacks: [Stack; 2],
    wires: [Wire; 2],
    conns: [Option<ConnId>; 2],
    sent: [u32; 2],
    read: [u32; 2],
    rewritten: bool,
    packets: usize,
}

fn addr(host: usize, path: u8) -> IpAddr {
    // Hosts are numbered 0 and 1.
    IpAddr::from([10, 0, path, host as u8 + 1])
}

/// Byte number `at` of the stream that a side sends.
fn pattern(side: usize, at: u32) -> u8 {
    (at.wrapping_add(side as u32))
        .wrapping_mul(2_654_435_761)
        .to_be_bytes()[0]
}

/// Runs one script.
pub fn stack(data: &[u8]) {
    let mut script = Script::new(data);
    let setup = script.byte();
    let now = Instant::from_secs(1);
    let mut stacks = [1, 2].map(|seed| Stack::new(StackConfig::default(), [seed; 32], now));
    for (host, stack) in stacks.iter_mut().enumerate() {
        for number in 0..2 {
            let offload = Offload {
                checksum: false,
                max_burst: if setup & 1 == 0 { 0 } else { 64_000 },
            };
            let path = Path {
                iface: IfaceId(number.into()),
                addr: addr(host, number),
                mtu: 1500,
                backup: number == 1 && setup & 2 != 0,
                offload,
                ports: None,
                outside: None,
            };
            stack.handle_path_event(now, PathEvent::Up(path));
        }
    }
    let conn = ConnOptions {
        path_manager: PathManager::FullMesh,
        checksum: setup & 4 == 0,
        ..ConnOptions::default()
    };
    let remote = SocketAddr::new(addr(1, 0), 80);
    let listener = stacks[1]
        .listen(ListenOptions {
            addr: remote,
            backlog: 4,
            conn: ConnOptions {
                path_manager: PathManager::Passive,
                ..conn.clone()
            },
        })
        .expect("nothing else listens");
    let client = stacks[0]
        .connect(
            now,
            ConnectOptions {
                remote,
                local: None,
                conn,
            },
        )
        .expect("there is a path");
    let mut run = Run {
        script,
        now,
        stacks,
        wires: Default::default(),
        conns: [Some(client), None],
        sent: [0; 2],
        read: [0; 2],
        rewritten: false,
        packets: 0,
    };
    for _ in 0..MOST_TIMEOUTS {
        run.exchange();
        if run.conns[1].is_none() {
            run.conns[1] = run.stacks[1].accept(listener);
        }
        run.applications();
        run.exchange();
        let next = run.stacks.iter_mut().filter_map(Stack::poll_deadline).min();
        let Some(at) = next.filter(|at| at.since(run.now) < Duration::from_secs(300)) else {
            break;
        };
        if run.packets > MOST_PACKETS {
            break;
        }
        run.now = run.now.max(at);
        for stack in &mut run.stacks {
            stack.handle_timeout(run.now);
        }
    }
}

impl Run<'_> {
    /// Carries packets until both sides are silent.
    fn exchange(&mut self) {
        loop {
            let mut moved = false;
            for host in 0..2 {
                while let Transmit::Sent(_) =
                    self.stacks[host].poll_transmit(self.now, &mut self.wires[host])
                {
                    if self.wires[host].queue.len() > MOST_PACKETS {
                        break;
                    }
                }
                while let Some((iface, packet)) = self.wires[host].queue.pop_front() {
                    moved = true;
                    self.packets += 1;
                    self.deliver(1 - host, iface, packet);
                }
                while self.stacks[host].poll_event().is_some() {}
            }
            if !moved || self.packets > MOST_PACKETS {
                return;
            }
        }
    }

    fn deliver(&mut self, to: usize, iface: IfaceId, mut packet: Vec<u8>) {
        self.now += Duration::from_micros(50);
        let times = match self.script.byte() {
            0..160 => 1,
            160..190 => 0,
            190..200 => 2,
            _ => {
                // Behind the IP header, mostly in the TCP header and its options.
                let at = 20 + usize::from(self.script.byte());
                let value = self.script.byte();
                if let Some(byte) = packet.get_mut(at) {
                    self.rewritten |= *byte != value;
                    *byte = value;
                }
                1
            }
        };
        for _ in 0..times {
            // As if the checksum were right: the fuzzer could not guess it.
            let meta = RxMeta {
                checksum_ok: true,
                ..RxMeta::default()
            };
            self.stacks[to].handle_packet(self.now, iface, &packet, meta);
        }
    }

    /// What the applications at both ends do at this moment.
    fn applications(&mut self) {
        for side in 0..2 {
            let Some(conn) = self.conns[side] else {
                continue;
            };
            let action = self.script.byte();
            let now = self.now;
            match action {
                250.. => {
                    let _ = self.stacks[side].shutdown_write(now, conn);
                }
                248..250 => {
                    let _ = self.stacks[side].abort(now, conn);
                    self.conns[side] = None;
                }
                _ => {
                    let count = u32::from(action) * 37;
                    let data: Vec<u8> = (0..count)
                        .map(|i| pattern(side, self.sent[side] + i))
                        .collect();
                    if let Ok(taken) = self.stacks[side].write(now, conn, &data) {
                        self.sent[side] += taken as u32;
                    }
                }
            }
            let mut buffer = [0; 4096];
            while let Ok(ReadOutcome::Data(count)) = self.stacks[side].read(now, conn, &mut buffer)
            {
                for &byte in &buffer[..count] {
                    assert!(
                        self.rewritten || byte == pattern(1 - side, self.read[side]),
                        "byte {} of the stream is wrong",
                        self.read[side]
                    );
                    self.read[side] += 1;
                }
            }
        }
    }
}
