//! Two whole stacks, and the fuzzer as the network between them: it drops, repeats and rewrites packets. Nothing
//! may panic, and as long as nothing was rewritten the streams must arrive as they were sent.

use std::net::SocketAddr;

use manypath_stack::ids::ConnId;
use manypath_stack::{ConnOptions, ConnectOptions, ListenOptions, PathManager, ReadOutcome};
use manypath_tcp::time::{Duration, Instant};
use manypath_testkit::{Fate, Network, Pair, addr};

use crate::script::Script;

/// Packets after which a run ends: enough for every phase of a connection, few enough for many runs.
const MOST_PACKETS: usize = 400;
/// Time-outs after which a run ends.
const MOST_TIMEOUTS: usize = 60;

/// The network of which the script decides.
struct Fuzzed<'a> {
    script: Script<'a>,
    rewritten: bool,
}

impl Network for Fuzzed<'_> {
    fn carry(&mut self, _now: Instant, packet: &mut [u8]) -> Fate {
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
        Fate {
            times,
            // As if it were right: the fuzzer could not guess it.
            checksum_ok: true,
        }
    }
}

struct Run<'a> {
    pair: Pair<Fuzzed<'a>>,
    conns: [Option<ConnId>; 2],
    sent: [u32; 2],
    read: [u32; 2],
    packets: usize,
}

/// Byte number `at` of the stream that a side sends.
fn pattern(side: usize, at: u32) -> u8 {
    manypath_testkit::pattern(at.wrapping_add(side as u32) as usize)
}

/// Runs one script.
pub fn stack(data: &[u8]) {
    let mut script = Script::new(data);
    let setup = script.byte();
    let network = Fuzzed {
        script,
        rewritten: false,
    };
    let mut pair = Pair::new(2, network, |path| {
        path.backup = path.iface.0 == 1 && setup & 2 != 0;
        path.offload.max_burst = if setup & 1 == 0 { 0 } else { 64_000 };
    });
    let conn = ConnOptions {
        path_manager: PathManager::FullMesh,
        checksum: setup & 4 == 0,
        ..ConnOptions::default()
    };
    let remote = SocketAddr::new(addr(2, 0), 80);
    let listener = pair.stacks[1]
        .listen(ListenOptions {
            addr: remote,
            backlog: 4,
            conn: ConnOptions {
                path_manager: PathManager::Passive,
                ..conn.clone()
            },
        })
        .expect("nothing else listens");
    let client = pair.stacks[0]
        .connect(
            pair.now,
            ConnectOptions {
                remote,
                local: None,
                conn,
            },
        )
        .expect("there is a path");
    let mut run = Run {
        pair,
        conns: [Some(client), None],
        sent: [0; 2],
        read: [0; 2],
        packets: 0,
    };
    for _ in 0..MOST_TIMEOUTS {
        run.exchange();
        if run.conns[1].is_none() {
            run.conns[1] = run.pair.stacks[1].accept(listener);
        }
        run.applications();
        run.exchange();
        if run.packets > MOST_PACKETS || !run.pair.wait(Duration::from_secs(300)) {
            break;
        }
    }
}

impl Run<'_> {
    /// Carries packets until both sides are silent.
    fn exchange(&mut self) {
        self.packets += self.pair.exchange_most(MOST_PACKETS);
        for stack in &mut self.pair.stacks {
            while stack.poll_event().is_some() {}
        }
    }

    /// What the applications at both ends do at this moment.
    fn applications(&mut self) {
        for side in 0..2 {
            let Some(conn) = self.conns[side] else {
                continue;
            };
            let action = self.pair.network.script.byte();
            let now = self.pair.now;
            match action {
                250.. => {
                    let _ = self.pair.stacks[side].shutdown_write(now, conn);
                }
                248..250 => {
                    let _ = self.pair.stacks[side].abort(now, conn);
                    self.conns[side] = None;
                }
                _ => {
                    let count = u32::from(action) * 37;
                    let data: Vec<u8> = (0..count)
                        .map(|i| pattern(side, self.sent[side] + i))
                        .collect();
                    if let Ok(taken) = self.pair.stacks[side].write(now, conn, &data) {
                        self.sent[side] += taken as u32;
                    }
                }
            }
            let mut buffer = [0; 4096];
            while let Ok(ReadOutcome::Data(count)) =
                self.pair.stacks[side].read(now, conn, &mut buffer)
            {
                for &byte in &buffer[..count] {
                    assert!(
                        self.pair.network.rewritten || byte == pattern(1 - side, self.read[side]),
                        "byte {} of the stream is wrong",
                        self.read[side]
                    );
                    self.read[side] += 1;
                }
            }
        }
    }
}
