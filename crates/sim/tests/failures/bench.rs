//! Two paths, a bulk transfer, and what a reader and a sender see of a failure.

use manypath_sim::networks::Multihomed;
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::api::{ConnInfo, SubflowInfo, SubflowPhase};
use manypath_tcp::time::{Duration, Instant};

/// A path: rate, one-way delay and what its buffer holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    pub(crate) mbit: u32,
    pub(crate) delay_ms: u32,
    pub(crate) buffer_ms: u32,
}

impl Line {
    pub(crate) const fn new(mbit: u32, delay_ms: u32, buffer_ms: u32) -> Self {
        Self {
            mbit,
            delay_ms,
            buffer_ms,
        }
    }
}

/// Which way the bytes go: from the client, which made the subflows, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
}

/// What a failure looked like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Time-out of the path that failed, just before it did.
    pub(crate) rto: Duration,
    /// Its round trip without queues.
    pub(crate) round_trip: Duration,
    /// Longest time without a byte for the reader, from the failure to two seconds after its end.
    pub(crate) stall: Duration,
    /// From the end of the failure until the sender heard from the path.
    pub(crate) learnt: Option<Duration>,
    /// From then until the path carried stream bytes that no other had carried.
    pub(crate) fresh: Option<Duration>,
}

/// What is special about a bench.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup<'a> {
    /// When path `a` is silent, in seconds.
    pub(crate) outages: &'a [(f64, f64)],
    /// The same for path `b`.
    pub(crate) outages_b: &'a [(f64, f64)],
    /// Middleboxes on path `a`, as tables.
    pub(crate) boxes: &'a str,
    /// More about the application; without it, it sends without end.
    pub(crate) app: Option<&'a str>,
    /// Events of the scenario.
    pub(crate) events: &'a str,
}

pub(crate) struct Bench {
    pub(crate) sim: Simulation,
    way: Way,
    a: Line,
}

const STEP: Duration = Duration::from_millis(1);

fn at(seconds: f64) -> Instant {
    Instant::ZERO + Duration::from_micros((seconds * 1e6) as u64)
}

impl Bench {
    /// A client with the paths `a` and `b` to a server.
    pub(crate) fn new(a: Line, b: Line, way: Way, setup: Setup<'_>) -> Self {
        let link = |line: Line, outages: &[(f64, f64)], boxes: &str| {
            let outages: Vec<String> = outages
                .iter()
                .map(|(from, to)| format!("[\"{from}s\", \"{to}s\"]"))
                .collect();
            format!(
                "rate = \"{}Mbit/s\"\ndelay = \"{}ms\"\nbuffer = \"{}ms\"\noutages = [{}]\nbox = [{boxes}]",
                line.mbit,
                line.delay_ms,
                line.buffer_ms,
                outages.join(", ")
            )
        };
        let word = match way {
            Way::Up => "upload",
            Way::Down => "download",
        };
        let endless = format!("{word} = \"1000MB\"");
        let network = Multihomed {
            head: "title = \"failure\"",
            paths: &[
                ("a", &link(a, setup.outages, setup.boxes)),
                ("b", &link(b, setup.outages_b, "")),
            ],
            access: "rate = \"10Gbit/s\"",
            rest: &format!(
                "[[app]]\nname = \"bulk\"\nclient = \"client\"\nserver = \"server\"\n{}\n{}",
                setup.app.unwrap_or(&endless),
                setup.events,
            ),
        };
        let scenario =
            Scenario::parse(&network.text()).expect("the bench writes well-formed scenarios");
        let sim = Simulation::new(scenario, RunOptions::default())
            .expect("the bench writes sensible scenarios");
        Self { sim, way, a }
    }

    fn hosts(&self) -> (usize, usize) {
        match self.way {
            Way::Up => (0, 1),
            Way::Down => (1, 0),
        }
    }

    /// What the sender's stack says of the connection.
    pub(crate) fn sender(&self) -> ConnInfo {
        let host = &self.sim.hosts()[self.hosts().0];
        let conn = host.endpoints()[0].conn;
        host.stack
            .info(conn)
            .expect("the transfer outlasts the test")
    }

    /// The sender's subflows over path `a`.
    pub(crate) fn over_a(&self) -> Vec<SubflowInfo> {
        let of_a = |sf: &SubflowInfo| {
            let client = match self.way {
                Way::Up => sf.tuple.local,
                Way::Down => sf.tuple.remote,
            };
            client.ip() == core::net::Ipv4Addr::new(10, 1, 0, 2)
        };
        let mut all = self.sender().subflows;
        all.retain(of_a);
        all
    }

    /// Bytes that the reader has read.
    pub(crate) fn read(&self) -> u64 {
        let host = &self.sim.hosts()[self.hosts().1];
        host.endpoints().first().map_or(0, |end| end.record.read)
    }

    /// Longest time without a byte for the reader between two moments.
    pub(crate) fn stall(&mut self, from: f64, to: f64) -> Duration {
        self.watch(from, to, |_, _| {})
    }

    /// As [`stall`](Self::stall), with a look at the bench after each step.
    fn watch(&mut self, from: f64, to: f64, mut look: impl FnMut(&Self, Instant)) -> Duration {
        let (mut now, mut moved, mut longest) = (at(from), at(from), Duration::ZERO);
        self.sim.run_until(now);
        let mut last = self.read();
        while now < at(to) {
            now += STEP;
            self.sim.run_until(now);
            if self.read() > last {
                (last, moved) = (self.read(), now);
            }
            longest = longest.max(now.since(moved));
            look(self, now);
        }
        longest
    }

    /// As [`stall`](Self::stall), and the time from the end of a subflow over path `a` until another one carried data there.
    pub(crate) fn until_new(&mut self, from: f64, to: f64) -> (Duration, Option<Duration>) {
        self.sim.run_until(at(from));
        let ids: Vec<_> = self.over_a().iter().map(|sf| sf.id).collect();
        let (mut ended, mut fresh) = (None, None);
        let stall = self.watch(from, to, |bench, now| {
            let over_a = bench.over_a();
            if !over_a.iter().any(|sf| ids.contains(&sf.id)) {
                let ended = *ended.get_or_insert(now);
                let carries = |sf: &SubflowInfo| !ids.contains(&sf.id) && sf.bytes_sent > 0;
                if over_a.iter().any(carries) {
                    fresh.get_or_insert(now.since(ended));
                }
            }
        });
        (stall, fresh)
    }

    /// Watches from `from`, when path `a` fails, beyond `to`, when it works again.
    pub(crate) fn cut(&mut self, from: f64, to: f64) -> Seen {
        self.sim.run_until(at(from) - STEP);
        let [before] = &self.over_a()[..] else {
            panic!("one subflow over each path");
        };
        let mut seen = Seen {
            rto: before.tcp.rto,
            round_trip: Duration::from_millis(u64::from(2 * self.a.delay_ms)),
            stall: Duration::ZERO,
            learnt: None,
            fresh: None,
        };
        let (mut now, mut last, mut moved) = (at(from), self.read(), at(from) - STEP);
        let (mut learnt_at, mut carried) = (None, Vec::new());
        while now < at(to + 5.0) {
            self.sim.run_until(now);
            let read = self.read();
            if read > last {
                seen.stall = seen.stall.max(now.since(moved));
                (last, moved) = (read, now);
            }
            if now == at(to) {
                carried = self.over_a();
            }
            if now >= at(to) && seen.fresh.is_none() {
                let answers = |sf: &SubflowInfo| !sf.stale && sf.phase != SubflowPhase::Handshake;
                let a: Vec<_> = self.over_a().into_iter().filter(answers).collect();
                if !a.is_empty() && learnt_at.is_none() {
                    learnt_at = Some(now);
                    seen.learnt = Some(now.since(at(to)));
                }
                let before = |id| {
                    carried
                        .iter()
                        .find(|sf| sf.id == id)
                        .map_or(0, |sf| sf.bytes_sent)
                };
                if a.iter().any(|sf| sf.bytes_sent > before(sf.id)) {
                    seen.fresh = learnt_at.map(|learnt| now.since(learnt));
                }
            }
            now += STEP;
        }
        seen.stall = seen.stall.max(now.since(moved) - STEP);
        seen
    }
}
