//! What a run was like, in numbers: for people, for comparison, and as JSON.

use std::fmt;

use serde::Serialize;

use crate::host::InterfaceCounters;
use crate::line::LineCounters;

/// The result of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The scenario's title.
    pub title: String,
    /// The seed.
    pub seed: u64,
    /// The hash of everything that was delivered, in hexadecimal.
    pub hash: String,
    /// Virtual seconds.
    pub seconds: f64,
    /// Events that the simulator handled.
    pub events: u64,
    /// Packets that hosts sent, after segmentation.
    pub segments: u64,
    /// Connections, in order of application and number.
    pub connections: Vec<ConnectionReport>,
    /// Links.
    pub links: Vec<LinkReport>,
    /// Hosts.
    pub hosts: Vec<HostReport>,
    /// Middleboxes, in the order of links and their ends.
    pub boxes: Vec<BoxReport>,
    /// Packets that routers and middleboxes dropped, by reason.
    pub drops: Vec<(&'static str, u64)>,
    /// Rates over time, if asked for.
    pub samples: Vec<Sample>,
    /// Rules that were broken: bugs.
    pub violations: Vec<String>,
    /// Expectations of the scenario that were not met.
    pub misses: Vec<String>,
    /// What else is worth knowing.
    pub notes: Vec<String>,
}

impl Report {
    /// RFC 8684 section 3.7 has no way on from what happened to each connection that failed: options stopped, or payload was rewritten,
    /// where several subflows had carried data, so that nobody can tell any more which bytes of the last one are the stream; or they
    /// pass with data alone, and the DATA_FIN came to be sent when there was none. Then the connection has to end for both applications, as far as they have not closed it: by a reset, or when nobody has joined for as
    /// long as a connection lives without subflow. One that still waits, or that ended by anything else, is none of these.
    #[must_use]
    pub fn has_no_way_on(&self) -> bool {
        let failed = |connection: &&ConnectionReport| {
            connection.over.is_none() || connection.ends().any(|end| end.failure.is_some())
        };
        let mut failed = self.connections.iter().filter(failed).peekable();
        let stripped = |middlebox: &BoxReport| middlebox.kind == "strip" && middlebox.touched > 0;
        let stripped = self.boxes.iter().any(stripped);
        failed.peek().is_some() && failed.all(|connection| connection.has_no_way_on(stripped))
    }
}

impl ConnectionReport {
    /// Both ends, as far as there were both.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &EndReport> {
        [Some(&self.client), self.server.as_ref()]
            .into_iter()
            .flatten()
    }

    fn has_no_way_on(&self, stripped: bool) -> bool {
        let as_told = |failure: &str| matches!(failure, "ResetByPeer" | "NoSubflow");
        let mut failures = self.ends().filter_map(|end| end.failure.as_deref());
        self.over.is_some()
            && failures.all(as_told)
            && (self.lost_its_order() || stripped && self.lost_an_end())
    }

    /// Several subflows carried data, and one was ended for what happened on its way.
    fn lost_its_order(&self) -> bool {
        self.ends().any(EndReport::carried_on_several) && self.ends().any(EndReport::met_a_box)
    }

    /// One end read all there was, and its subflows, of which there was more than one, were finished: of the stream nothing but its end
    /// is missing.
    fn lost_an_end(&self) -> bool {
        let lost = |one: &EndReport, peer: &EndReport| {
            one.failure.as_deref() == Some("NoSubflow")
                && one.read == peer.sent
                && one.subflows_up > 1
                && one.subflows.iter().all(SubflowReport::was_finished)
        };
        let server = self.server.as_ref();
        server.is_some_and(|server| lost(&self.client, server) || lost(server, &self.client))
    }
}

impl EndReport {
    /// More than one subflow carried data.
    fn carried_on_several(&self) -> bool {
        let carried = |subflow: &&SubflowReport| subflow.sent + subflow.received > 0;
        self.subflows.iter().filter(carried).count() > 1
    }

    /// It ended a subflow for what something on the way did to it.
    fn met_a_box(&self) -> bool {
        let ends = self.subflows.iter();
        let mut ends = ends.filter_map(|subflow| subflow.end.as_deref());
        ends.any(|end| matches!(end, "OptionsLost" | "Checksum"))
    }
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionReport {
    /// The application's name.
    pub app: String,
    /// Which of its connections.
    pub number: u64,
    /// When it started, in seconds.
    pub started: f64,
    /// Seconds until it was established.
    pub connect_time: Option<f64>,
    /// Seconds until it was established at the end that listened, too.
    pub accept_time: Option<f64>,
    /// When both ends were done, in seconds.
    pub over: Option<f64>,
    /// Application bits of both directions each second, from start to end.
    pub goodput: Option<f64>,
    /// The end that connected.
    pub client: EndReport,
    /// The end that listened, if it ever accepted.
    pub server: Option<EndReport>,
}

/// One end of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct EndReport {
    /// Bytes that the application sent.
    pub sent: u64,
    /// Bytes that it read.
    pub read: u64,
    /// Places where it read something else than was sent, because boxes rewrite or damage payload.
    pub altered: u64,
    /// Why it ended too early, if it did.
    pub failure: Option<String>,
    /// Multipath TCP, or how far it fell back.
    pub level: Option<String>,
    /// Why it fell back.
    pub fell_back: Option<String>,
    /// Longest time between two reads, in seconds.
    pub longest_stall: f64,
    /// Bytes sent a second time on another subflow.
    pub reinjected: u64,
    /// Subflows that came up in all.
    pub subflows_up: usize,
    /// Its subflows, live and ended; of many, those that ended last.
    pub subflows: Vec<SubflowReport>,
}

/// A subflow.
#[derive(Clone, Debug, Serialize)]
pub struct SubflowReport {
    /// Addresses and ports.
    pub tuple: String,
    /// Why it existed.
    pub origin: String,
    /// Why it ended, if it has.
    pub end: Option<String>,
    /// Stream bytes sent on it.
    pub sent: u64,
    /// Stream bytes that arrived on it.
    pub received: u64,
    /// Segments retransmitted on it, where known.
    pub retransmitted: Option<u64>,
    /// Smoothed round trip in seconds, where known.
    pub srtt: Option<f64>,
}

impl SubflowReport {
    /// It ended by a FIN, or because another one took its place.
    fn was_finished(&self) -> bool {
        matches!(self.end.as_deref(), Some("Finished" | "Replaced"))
    }
}

/// A link.
#[derive(Clone, Debug, Serialize)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// From the first end to the second.
    pub out: LineCounters,
    /// From the second end to the first.
    pub back: LineCounters,
}

/// A middlebox.
#[derive(Clone, Debug, Serialize)]
pub struct BoxReport {
    /// Its link.
    pub link: String,
    /// It is at the link's second end.
    pub at_second: bool,
    /// Its kind.
    pub kind: &'static str,
    /// Packets that it changed, ended, held back or made.
    pub touched: u64,
}

/// A host.
#[derive(Clone, Debug, Serialize)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// Its interfaces.
    pub interfaces: Vec<(String, InterfaceCounters)>,
    /// The stack's counters that are not zero.
    pub counters: Vec<(&'static str, u64)>,
}

/// Rates during one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Sample {
    /// The interval's end in seconds.
    pub at: f64,
    /// For each host and interface, in order: TCP payload bits received each second.
    pub received: Vec<f64>,
}

impl Report {
    /// Nothing was broken and everything came out as expected.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.violations.is_empty() && self.misses.is_empty()
    }

    /// The segments of all hosts' stacks that were sent again.
    #[must_use]
    pub fn retransmitted(&self) -> u64 {
        let ends = self.connections.iter().flat_map(ConnectionReport::ends);
        let subflows = ends.flat_map(|end| &end.subflows);
        subflows.filter_map(|subflow| subflow.retransmitted).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (seed {})", self.title, self.seed)?;
        writeln!(
            f,
            "  {:.3} s simulated, {} segments, {} events, hash {}",
            self.seconds, self.segments, self.events, self.hash
        )?;
        for connection in self.connections.iter().take(20) {
            write!(f, "{connection}")?;
        }
        if self.connections.len() > 20 {
            writeln!(
                f,
                "  ... and {} more connections",
                self.connections.len() - 20
            )?;
        }
        for link in &self.links {
            writeln!(f, "  link {}", link.name)?;
            for (name, line) in [("out", &link.out), ("back", &link.back)] {
                writeln!(
                    f,
                    "    {name:4} {} delivered, {} overflowed, {} lost, {} cut, deepest queue {} bytes",
                    line.delivered, line.overflowed, line.lost, line.cut, line.deepest
                )?;
            }
        }
        for middlebox in &self.boxes {
            writeln!(
                f,
                "  box {} on {}: touched {} packets",
                middlebox.kind, middlebox.link, middlebox.touched
            )?;
        }
        for (why, count) in &self.drops {
            writeln!(f, "  dropped: {count} ({why})")?;
        }
        for note in &self.notes {
            writeln!(f, "  note: {note}")?;
        }
        for violation in &self.violations {
            writeln!(f, "  VIOLATION {violation}")?;
        }
        for miss in &self.misses {
            writeln!(f, "  NOT AS EXPECTED {miss}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ConnectionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {}[{}]: ", self.app, self.number)?;
        match (self.over, self.goodput) {
            (Some(over), Some(goodput)) => {
                write!(
                    f,
                    "{:.3} s, {:.3} Mbit/s",
                    over - self.started,
                    goodput / 1e6
                )?;
            }
            _ => write!(f, "not over")?,
        }
        writeln!(f)?;
        for (name, end) in [
            ("client", Some(&self.client)),
            ("server", self.server.as_ref()),
        ] {
            let Some(end) = end else { continue };
            write!(f, "    {name}: sent {}, read {}", end.sent, end.read)?;
            if let Some(level) = &end.level {
                write!(f, ", {level}")?;
            }
            if end.altered > 0 {
                write!(f, ", altered in {} places", end.altered)?;
            }
            for (word, value) in [("fell back", &end.fell_back), ("failed", &end.failure)] {
                if let Some(value) = value {
                    write!(f, ", {word}: {value}")?;
                }
            }
            writeln!(
                f,
                ", longest stall {:.3} s, reinjected {}",
                end.longest_stall, end.reinjected
            )?;
            for subflow in end.subflows.iter().take(8) {
                write!(
                    f,
                    "      {}: sent {}, received {}",
                    subflow.tuple, subflow.sent, subflow.received
                )?;
                if let Some(count) = subflow.retransmitted {
                    write!(f, ", {count} retransmitted")?;
                }
                if let Some(srtt) = subflow.srtt {
                    write!(f, ", srtt {:.1} ms", srtt * 1e3)?;
                }
                if let Some(ended) = &subflow.end {
                    write!(f, ", ended: {ended}")?;
                }
                writeln!(f)?;
            }
            if end.subflows.len() > 8 {
                writeln!(f, "      ... and {} more subflows", end.subflows.len() - 8)?;
            }
        }
        Ok(())
    }
}
