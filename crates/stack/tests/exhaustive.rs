//! Fallback and close, explored exhaustively: every order of option loss, checksum failures, resets, closes and a silent path on two subflows, up to a
//! depth, while data is in flight both ways. In none of them is a byte wrong, does a stream end early, or do both ends wait for ever.
//!
//! `EXHAUSTIVE_DEPTH` sets the depth; each further one costs ten times as much.

use std::net::SocketAddr;

use manypath_stack::ids::ConnId;
use manypath_stack::{
    ConnOptions, ConnectOptions, ListenOptions, PathManager, ProtocolLevel, ReadOutcome, Stack,
};
use manypath_tcp::time::{Duration, Instant};
use manypath_testkit::{Fate, Network, Pair, addr, pattern, strip_mptcp};

/// Events in a row, where the environment says nothing else.
const DEPTH: usize = 3;
/// What each end writes, unless it closes before: several initial windows.
const BYTES: usize = 60_000;
/// None of the paths is slow: before this all is over, also where the only way left is the silent one, and TCP gives up.
const LONG: Duration = Duration::from_secs(3600);
/// A middlebox that rewrites flips this bit.
const FLIPPED: u8 = 0x80;

/// Something that happens: on a path, from host 0 (`up`) or to it, or at one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// From now on options are stripped.
    Strip { path: usize, up: bool },
    /// One payload is rewritten, with a correct TCP checksum.
    Rewrite { path: usize, up: bool },
    /// A middlebox resets both ends of the subflow.
    Reset { path: usize },
    /// The application closes its direction.
    Close { end: usize },
    /// From now on nothing passes on the second path: its data is reinjected on the first.
    Silence,
}

fn alphabet() -> Vec<Event> {
    let mut all = Vec::new();
    for path in 0..2 {
        for up in [true, false] {
            all.push(Event::Strip { path, up });
            all.push(Event::Rewrite { path, up });
        }
        all.push(Event::Reset { path });
    }
    all.extend([
        Event::Close { end: 0 },
        Event::Close { end: 1 },
        Event::Silence,
    ]);
    all
}

/// What the paths do, by path and direction (1 is up).
#[derive(Debug, Default)]
struct Middleboxes {
    strips: [[bool; 2]; 2],
    rewrites: [[bool; 2]; 2],
    resets: [[bool; 2]; 2],
    /// Nothing passes on the second path.
    silent: bool,
    /// Bytes rewritten, by direction.
    rewritten: [usize; 2],
}

impl Network for Middleboxes {
    fn carry(&mut self, _now: Instant, packet: &mut [u8]) -> Fate {
        let up = packet[15] == 1;
        // The first subflow is between the first addresses of both hosts.
        let path = usize::from(packet[14] > 0 || packet[18] > 0);
        let direction = usize::from(up);
        if self.silent && path == 1 {
            return Fate {
                times: 0,
                checksum_ok: true,
            };
        }
        let payload = 20 + usize::from(packet[32] >> 4) * 4;
        if self.strips[path][direction] {
            strip_mptcp(packet);
        }
        if self.rewrites[path][direction] && payload < packet.len() {
            self.rewrites[path][direction] = false;
            self.rewritten[direction] += 1;
            packet[payload] ^= FLIPPED;
        }
        if core::mem::take(&mut self.resets[path][direction]) {
            packet[33] = 0b1_0100; // ACK, RST
        }
        Fate {
            times: 1,
            checksum_ok: true,
        }
    }
}

/// One end: its connection, and what it wrote and read.
struct End {
    conn: ConnId,
    /// Of its stream.
    shift: usize,
    wrote: usize,
    closed: bool,
    read: usize,
    /// Bytes read that a middlebox had rewritten.
    rewritten: usize,
    outcome: Option<Outcome>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    End,
    Failed,
}

impl End {
    fn new(conn: ConnId, shift: usize) -> Self {
        Self {
            conn,
            shift,
            wrote: 0,
            closed: false,
            read: 0,
            rewritten: 0,
            outcome: None,
        }
    }

    fn write(&mut self, stack: &mut Stack, now: Instant) {
        if self.closed || self.outcome == Some(Outcome::Failed) {
            return;
        }
        let chunk: Vec<u8> = (self.wrote..BYTES)
            .map(|at| pattern(at + self.shift))
            .collect();
        match stack.write(now, self.conn, &chunk) {
            Ok(n) => self.wrote += n,
            Err(_) => self.outcome = Some(Outcome::Failed),
        }
    }

    fn close(&mut self, stack: &mut Stack, now: Instant) {
        if !core::mem::replace(&mut self.closed, true) {
            // It may have ended by an error, which the next read shows.
            let _ = stack.shutdown_write(now, self.conn);
        }
    }

    /// Reads what there is, as the peer with this shift wrote it.
    fn read(&mut self, stack: &mut Stack, now: Instant, shift: usize) -> Result<(), String> {
        let mut buffer = [0; 10_000];
        while self.outcome.is_none() {
            match stack.read(now, self.conn, &mut buffer) {
                Ok(ReadOutcome::Data(n)) => {
                    for byte in &buffer[..n] {
                        let wanted = pattern(self.read + shift);
                        if *byte == wanted ^ FLIPPED {
                            self.rewritten += 1;
                        } else if *byte != wanted {
                            return Err(format!("byte {} is wrong", self.read));
                        }
                        self.read += 1;
                    }
                }
                Ok(ReadOutcome::Empty) => break,
                Ok(ReadOutcome::End) => self.outcome = Some(Outcome::End),
                Err(_) => self.outcome = Some(Outcome::Failed),
            }
        }
        Ok(())
    }
}

struct Run {
    pair: Pair<Middleboxes>,
    ends: [End; 2],
}

impl Run {
    /// Two subflows are up, and nothing was written yet.
    fn new() -> Self {
        let mut pair = Pair::new(2, Middleboxes::default(), |_| {});
        let conn = |path_manager| ConnOptions {
            path_manager,
            checksum: true,
            max_subflows: 2,
            ..ConnOptions::default()
        };
        let remote = SocketAddr::new(addr(2, 0), 80);
        let listen = ListenOptions {
            addr: remote,
            backlog: 10,
            conn: conn(PathManager::Passive),
        };
        let listener = pair.stacks[1].listen(listen).expect("the port is free");
        let connect = ConnectOptions {
            remote,
            local: None,
            conn: conn(PathManager::FullMesh),
        };
        let client = pair.stacks[0].connect(pair.now, connect);
        let client = client.expect("a path leads there");
        let until = pair.now + Duration::from_secs(5);
        while pair.now < until && pair.step(Duration::from_secs(1)) {}
        let server = pair.stacks[1].accept(listener).expect("it came up");
        let ends = [End::new(client, 0), End::new(server, 1_000_003)];
        for (stack, end) in pair.stacks.iter().zip(&ends) {
            let info = stack.info(end.conn).expect("it lives");
            assert_eq!(info.subflows.len(), 2, "{info:#?}");
            let first = info.subflows.iter().filter(|sf| {
                let tuple = sf.tuple;
                [tuple.local.ip(), tuple.remote.ip()].map(|ip| ip == addr(1, 0) || ip == addr(2, 0))
                    == [true, true]
            });
            assert_eq!(first.count(), 1, "one on each path: {info:#?}");
        }
        Self { pair, ends }
    }

    fn apply(&mut self, event: Event) {
        let network = &mut self.pair.network;
        match event {
            Event::Strip { path, up } => network.strips[path][usize::from(up)] = true,
            Event::Rewrite { path, up } => network.rewrites[path][usize::from(up)] = true,
            Event::Reset { path } => network.resets[path] = [true, true],
            Event::Silence => network.silent = true,
            Event::Close { end } => {
                self.ends[end].close(&mut self.pair.stacks[end], self.pair.now);
            }
        }
    }

    /// The applications write and read.
    fn serve(&mut self) -> Result<(), String> {
        let shifts = [self.ends[1].shift, self.ends[0].shift];
        for (at, end) in self.ends.iter_mut().enumerate() {
            let stack = &mut self.pair.stacks[at];
            end.write(stack, self.pair.now);
            end.read(stack, self.pair.now, shifts[at])
                .map_err(|error| format!("at end {at}: {error}"))?;
        }
        Ok(())
    }

    /// Both ends write all that they have, close, and read to the end.
    fn finish(&mut self) -> Result<(), String> {
        let until = self.pair.now + LONG;
        loop {
            while self.pair.exchange_most(50) > 0 {
                self.serve()?;
            }
            self.serve()?;
            for (at, end) in self.ends.iter_mut().enumerate() {
                if end.wrote == BYTES {
                    end.close(&mut self.pair.stacks[at], self.pair.now);
                }
            }
            if self.ends.iter().all(|end| end.outcome.is_some()) {
                return Ok(());
            }
            if self.pair.now <= until && (self.pair.wait(LONG) || self.pair.exchange_most(50) > 0) {
                continue;
            }
            // An end that has sent everything and only receives waits without a timer, as TCP does.
            if self.ends.iter().all(|end| end.outcome.is_none()) {
                return Err(format!(
                    "they wait for ever: {:?}, read {:?} of {:?}",
                    self.ends.each_ref().map(|end| end.outcome),
                    self.ends.each_ref().map(|end| end.read),
                    [self.ends[1].wrote, self.ends[0].wrote],
                ));
            }
            return Ok(());
        }
    }

    fn judge(&self) -> Result<(), String> {
        for (at, end) in self.ends.iter().enumerate() {
            let peer = &self.ends[1 - at];
            if end.outcome == Some(Outcome::End) && end.read != peer.wrote {
                return Err(format!(
                    "at end {at} the stream ended at {} of {}",
                    end.read, peer.wrote
                ));
            }
            // Rewritten bytes are the stream only after fallback (RFC 8684 section 3.7).
            let level = self.pair.stacks[at].info(end.conn).map(|info| info.level);
            let rewritten = self.pair.network.rewritten[usize::from(at == 1)];
            let fell_back = level != Ok(ProtocolLevel::Multipath);
            if end.rewritten > 0 && (end.rewritten > rewritten || !fell_back) {
                return Err(format!("end {at} read {} rewritten bytes", end.rewritten));
            }
        }
        Ok(())
    }
}

/// Plays these events, with so many packets between two of them.
fn play(events: &[Event], packets: usize) -> Result<[Option<Outcome>; 2], String> {
    let mut run = Run::new();
    run.serve()?;
    for event in events {
        run.pair.exchange_most(packets);
        run.serve()?;
        run.apply(*event);
    }
    run.finish()?;
    run.judge()?;
    Ok(run.ends.map(|end| end.outcome))
}

/// Calls `visit` with each order of `left` further events, none twice.
fn each(events: &mut Vec<Event>, all: &[Event], left: usize, visit: &mut impl FnMut(&[Event])) {
    visit(events);
    if left == 0 {
        return;
    }
    for event in all {
        if !events.contains(event) {
            events.push(*event);
            each(events, all, left - 1, visit);
            events.pop();
        }
    }
}

#[test]
fn no_order_of_option_loss_checksum_failures_resets_and_closes_spoils_a_byte_or_hangs() {
    let depth = std::env::var("EXHAUSTIVE_DEPTH")
        .ok()
        .map_or(DEPTH, |depth| depth.parse().expect("a number of events"));
    let (mut runs, mut complete, mut wrong) = (0_u32, 0_u32, Vec::new());
    for packets in [1, 5, 40] {
        each(&mut Vec::new(), &alphabet(), depth, &mut |events| {
            runs += 1;
            match play(events, packets) {
                Ok(outcomes) => complete += u32::from(outcomes == [Some(Outcome::End); 2]),
                Err(error) => wrong.push(format!("{error}: {packets} packets between {events:?}")),
            }
        });
    }
    println!("{runs} runs, {complete} delivered both streams whole");
    assert!(
        wrong.is_empty(),
        "{} of {runs}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
