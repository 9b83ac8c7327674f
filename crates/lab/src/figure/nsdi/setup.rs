//! Figure 10: how long a server takes from a SYN to its SYN/ACK.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::api::Mode;
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{
    ConnOptions, ConnectOptions, IfaceId, ListenOptions, Path, PathEvent, PathManager, RxMeta,
    Slots, Stack, StackConfig, Transmit, TxMeta,
};
use manypath_tcp::time::{Duration, Instant};

use super::super::compare::percentile;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};

const TCP: &str = "TCP";
const NONE: &str = "Multipath TCP, no connections";
const HUNDRED: &str = "Multipath TCP, 100 connections";
const THOUSAND: &str = "Multipath TCP, 1000 connections";
const NONE_WITHOUT: &str = "no connections, no key pool";
const THOUSAND_WITHOUT: &str = "1000 connections, no key pool";

/// What a line does is how many connections the server holds, and whether it has a pool of keys.
const fn line(name: &'static str, held: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Process],
        does: Does::Own(held),
    }
}

/// Figure 10.
pub(super) const FIGURE: Figure = Figure {
    id: "nsdi-10",
    source: "NSDI 2012, figure 10",
    title: "From the SYN to the SYN/ACK at the server",
    paper: Paper {
        says: "91 % of the TCP connections are answered in 6 us, Multipath TCP in 10 to 11 us without other connections: a key must \
               be hashed, another one made, and its hash be looked for. With connections the search takes longer. A pool of \
               keys made ahead could spare most of that.",
        lines: &[],
    },
    knobs: &[
        Knob::new(
            "attempts",
            Unit::Count,
            "20000",
            "connections made in a round",
        )
        .quick("2000")
        .measures(),
        Knob::new(
            "rounds",
            Unit::Count,
            "5",
            "rounds of which the quickest counts",
        )
        .measures(),
    ],
    x: Across::Measured(Axis::linear("microseconds")),
    y: Axis::linear("% of the attempts"),
    lines: &[
        line(TCP, "tcp"),
        line(NONE, "0"),
        line(HUNDRED, "100"),
        line(THOUSAND, "1000"),
        line(NONE_WITHOUT, "0 none"),
        line(THOUSAND_WITHOUT, "1000 none"),
    ],
    load: Load::Heavy,
    run,
    verdict,
};

/// Width of a bin in microseconds.
const BIN: f64 = 0.05;
/// Attempts before those that count.
const WARM_UP: usize = 500;

#[derive(Default)]
struct Out {
    slot: Vec<u8>,
    packets: Vec<Vec<u8>>,
}

impl Slots for Out {
    fn slot(&mut self, _iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        if self.slot.len() < room {
            self.slot.resize(room, 0);
        }
        Some(&mut self.slot)
    }

    fn commit(&mut self, _iface: IfaceId, meta: TxMeta) {
        self.packets.push(self.slot[..meta.len].to_vec());
    }
}

/// A client and a server, joined without delay.
struct Pair {
    now: Instant,
    client: Stack,
    server: Stack,
    listener: ListenerId,
    out: Out,
}

const IFACE: IfaceId = IfaceId(1);

fn server_at() -> SocketAddr {
    SocketAddr::new(IpAddr::from([10, 0, 0, 2]), 80)
}

impl Pair {
    fn new(pool: bool) -> Result<Self, String> {
        let now = Instant::from_secs(1);
        let config = StackConfig::default();
        let config = StackConfig {
            key_pool: if pool { config.key_pool } else { 0 },
            ..config
        };
        let mut client = Stack::new(StackConfig::default(), [1; 32], now);
        let mut server = Stack::new(config, [2; 32], now);
        for (stack, host) in [(&mut client, 1), (&mut server, 2)] {
            let path = Path {
                iface: IFACE,
                addr: IpAddr::from([10, 0, 0, host]),
                mtu: 1500,
                backup: false,
                offload: manypath_stack::Offload::default(),
                ports: None,
                outside: None,
            };
            stack.handle_path_event(now, PathEvent::Up(path));
        }
        let listening = ListenOptions {
            addr: server_at(),
            backlog: 16,
            conn: ConnOptions {
                path_manager: PathManager::Passive,
                ..ConnOptions::default()
            },
        };
        let listener = server
            .listen(listening)
            .map_err(|error| error.to_string())?;
        Ok(Self {
            now,
            client,
            server,
            listener,
            out: Out::default(),
        })
    }

    /// Packets that a stack has ready.
    fn packets(stack: &mut Stack, out: &mut Out, now: Instant) -> Vec<Vec<u8>> {
        while let Transmit::Sent(_) = stack.poll_transmit(now, out) {}
        std::mem::take(&mut out.packets)
    }

    /// Begins a connection, and says how long the server took to answer, in microseconds.
    fn attempt(&mut self, mode: Mode) -> Result<(ConnId, f64), String> {
        self.now += Duration::from_millis(1);
        let now = self.now;
        let conn = ConnOptions {
            mode,
            path_manager: PathManager::Passive,
            ..ConnOptions::default()
        };
        let options = ConnectOptions {
            remote: server_at(),
            local: None,
            conn,
        };
        let conn = self
            .client
            .connect(now, options)
            .map_err(|error| error.to_string())?;
        let syns = Self::packets(&mut self.client, &mut self.out, now);
        let [syn] = syns.as_slice() else {
            return Err(format!("{} packets in place of a SYN", syns.len()));
        };
        let (server, out) = (&mut self.server, &mut self.out);
        let begun = std::time::Instant::now();
        server.handle_packet(now, IFACE, syn, RxMeta::default());
        let sent = server.poll_transmit(now, out);
        let took = begun.elapsed().as_nanos() as f64 / 1e3;
        if sent == Transmit::Nothing {
            return Err("no answer to a SYN".to_owned());
        }
        for packet in std::mem::take(&mut self.out.packets) {
            self.client
                .handle_packet(now, IFACE, &packet, RxMeta::default());
        }
        self.settle();
        Ok((conn, took))
    }

    /// Lets the two talk until both are silent. Then the server fills its pool.
    fn settle(&mut self) {
        loop {
            self.now += Duration::from_micros(10);
            let now = self.now;
            let up = Self::packets(&mut self.client, &mut self.out, now);
            for packet in &up {
                self.server
                    .handle_packet(now, IFACE, packet, RxMeta::default());
            }
            let down = Self::packets(&mut self.server, &mut self.out, now);
            for packet in &down {
                self.client
                    .handle_packet(now, IFACE, packet, RxMeta::default());
            }
            while self.client.poll_event().is_some() || self.server.poll_event().is_some() {}
            if up.is_empty() && down.is_empty() {
                return;
            }
        }
    }

    /// How long the server took to answer each of so many attempts, in microseconds and in order.
    fn attempts(&mut self, mode: Mode, count: usize) -> Result<Vec<f64>, String> {
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let (conn, took) = self.attempt(mode)?;
            times.push(took);
            self.end(conn)?;
        }
        times.sort_by(f64::total_cmp);
        Ok(times)
    }

    /// Ends a connection at once, at both ends.
    fn end(&mut self, conn: ConnId) -> Result<(), String> {
        let accepted = self.server.accept(self.listener);
        self.client
            .abort(self.now, conn)
            .map_err(|error| error.to_string())?;
        self.settle();
        if let Some(accepted) = accepted {
            // It is over already; this only lets go of it.
            let _ = self.server.abort(self.now, accepted);
            self.settle();
        }
        Ok(())
    }
}

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let Does::Own(words) = run.line.does else {
        return Err("a line without words".to_owned());
    };
    let mode = match words {
        "tcp" => Mode::PlainTcp,
        _ => Mode::Multipath,
    };
    let held = words.split(' ').next().and_then(|held| held.parse().ok());
    let mut pair = Pair::new(!words.ends_with("none"))?;
    for _ in 0..held.unwrap_or(0) {
        pair.attempt(Mode::Multipath)?;
        pair.server.accept(pair.listener);
    }
    let attempts = run.knobs.whole("attempts").max(1) as usize;
    pair.attempts(mode, WARM_UP)?;
    // What others on the machine take from the clock they take for seconds: of several rounds the quickest counts.
    let mut quickest = pair.attempts(mode, attempts)?;
    for _ in 1..run.knobs.whole("rounds") {
        let round = pair.attempts(mode, attempts)?;
        if round[attempts / 2] < quickest[attempts / 2] {
            quickest = round;
        }
    }
    Ok(histogram(run, &quickest))
}

/// How many in a hundred attempts fall into each bin; the slowest hundredth is left to other programs.
fn histogram(run: &Run<'_>, sorted: &[f64]) -> Vec<Sample> {
    let shown = &sorted[..sorted.len() * 99 / 100];
    let Some(most) = shown.last() else {
        return Vec::new();
    };
    let bin_of = |time: f64| (time / BIN) as usize;
    let mut bins = vec![0_u32; bin_of(*most) + 2];
    for time in shown {
        bins[bin_of(*time)] += 1;
    }
    let first = bins.iter().position(|count| *count > 0).unwrap_or(0);
    let part = |count: u32| 100.0 * f64::from(count) / sorted.len() as f64;
    let bins = bins.iter().enumerate().skip(first.saturating_sub(1));
    bins.map(|(n, count)| Sample {
        line: run.line.name.to_owned(),
        at: [
            ((n as f64 + 0.5) * BIN * 1_000.0).round() / 1_000.0,
            part(*count),
        ],
    })
    .collect()
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let median = |name: &str| Some(percentile(seen.line(Arm::Process, name)?, 50.0));
    let mut all = Vec::new();
    let mut hold = |statement: &str, one: Option<f64>, other: Option<f64>, bound: f64| {
        if let (Some(one), Some(other)) = (one, other) {
            let ratio = one / other.max(1e-9);
            let seen = format!("{one:.1} us and {other:.1} us: {ratio:.2} times");
            all.push(Finding::new(Arm::Process, statement, seen, ratio <= bound));
        }
    };
    hold(
        "Multipath TCP answers in no more than 1.8 times TCP's time, as in the paper",
        median(NONE),
        median(TCP),
        1.8,
    );
    hold(
        "with 1000 connections it takes no more than 1.2 times as long as without any",
        median(THOUSAND),
        median(NONE),
        1.2,
    );
    hold(
        "the pool of keys makes the answer faster",
        median(NONE),
        median(NONE_WITHOUT),
        1.0,
    );
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn a_server_answers_whether_it_has_keys_or_not() {
        for (pool, mode) in [
            (true, Mode::Multipath),
            (false, Mode::Multipath),
            (true, Mode::PlainTcp),
        ] {
            let mut pair = Pair::new(pool).expect("a port that is free");
            for _ in 0..30 {
                let (conn, took) = pair.attempt(mode).expect("an answer");
                assert!(took.is_finite());
                pair.end(conn).expect("an open connection");
            }
            assert_eq!(pair.server.connections(), 0, "nothing is left");
        }
    }

    #[test]
    fn medians_are_held_against_the_paper() {
        let peak = |name: &str, at: f64| Series {
            arm: Arm::Process,
            name: name.to_owned(),
            points: vec![[at - 0.1, 5.0], [at, 85.0], [at + 0.1, 9.0]],
        };
        let held = |none: f64, thousand: f64| {
            let all = [
                peak(TCP, 2.0),
                peak(NONE, none),
                peak(THOUSAND, thousand),
                peak(NONE_WITHOUT, 4.0),
            ];
            let found = verdict(&Seen::of(&all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(3.0, 3.1), [true, true, true]);
        assert_eq!(held(4.5, 9.0), [false, false, false]);
    }
}
