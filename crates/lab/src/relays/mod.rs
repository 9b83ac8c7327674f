//! Relays beside each other: `manypath lab bench --relays`. Ours, HAProxy and squid carry the same bytes and the same requests.
//!
//! Client and relay live in one namespace, the server in another; one or two veth pairs join them, MTU 1500. Clients speak the
//! host's TCP to the relay over loopback; the relay speaks Multipath TCP to the server where it can: ours by our stack, HAProxy by
//! the kernel's, under `mptcpize`. squid has TCP. All arms take turns in every round, and medians are told.

mod arm;
mod load;

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::bench::{self, BenchError, CONGESTION};
use crate::kernel;
use crate::netns;
use crate::testbed::Pair;
pub use arm::Arm;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often every cell is measured; the median counts.
    pub rounds: u32,
    /// How long one measurement lasts.
    pub time: Duration,
    /// The program; this very one if absent.
    pub program: Option<PathBuf>,
}

/// Connections over which answers of 64 KiB are fetched.
pub const CONNECTIONS: [u32; 3] = [1, 100, 10_000];

/// What is asked of a relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// One connection that sends as much as it can.
    Bulk {
        /// Veth pairs.
        paths: u8,
        /// Segmentation and its reverse.
        offload: bool,
    },
    /// HTTP answers of 64 KiB, over so many connections of clients, one path, with offloads.
    Answers {
        /// Connections of clients.
        connections: u32,
    },
}

impl Task {
    /// As many connections as descriptors are enough for, where those are fewer.
    fn all(most: u32) -> Vec<Self> {
        let mut all = Vec::new();
        for paths in [1, 2] {
            all.extend([true, false].map(|offload| Self::Bulk { paths, offload }));
        }
        all.extend(CONNECTIONS.map(|n| Self::Answers {
            connections: n.min(most),
        }));
        all
    }

    /// Veth pairs, and whether the offloads are on.
    fn network(self) -> (u8, bool) {
        match self {
            Self::Bulk { paths, offload } => (paths, offload),
            Self::Answers { .. } => (1, true),
        }
    }

    fn title(self) -> String {
        match self {
            Self::Bulk { paths, offload } => {
                let offload = if offload { "with" } else { "without" };
                format!(
                    "one upload, {paths} path(s), {offload} offloads: Gbit/s, CPU s/GB of the relay"
                )
            }
            Self::Answers { connections } => {
                format!(
                    "64 KiB answers over {connections} connection(s): requests/s, p99 ms, CPU ms/request of the relay"
                )
            }
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Payload bits, or answers, in a second.
    pub rate: f64,
    /// Milliseconds in which 99 of 100 answers were there.
    pub p99: Option<f64>,
    /// Processor seconds of the relay for 10^9 bytes of payload, or for a thousand answers; none where there is no relay.
    pub cost: Option<f64>,
    /// Answers that did not come, or were none.
    pub failures: u64,
}

/// All that was measured of one arm in one task.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// What was asked.
    pub task: Task,
    /// Of whom.
    pub arm: Arm,
    /// One entry a round that succeeded.
    pub runs: Vec<Measured>,
    /// Why a round did not succeed, the last reason if several.
    pub failure: Option<String>,
}

impl Cell {
    /// The run whose rate is the median.
    #[must_use]
    pub fn median(&self) -> Option<Measured> {
        let mut runs = self.runs.clone();
        runs.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        runs.get(runs.len() / 2).copied()
    }
}

/// The whole comparison.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors of this machine.
    pub processors: usize,
    /// Every cell, by task and arm.
    pub cells: Vec<Cell>,
}

/// Measures every cell; bounded: about `rounds * cells * (time + 2 s)`. It may replace this process, see [`netns::acquire`].
///
/// # Errors
/// When namespaces are forbidden or the machine's figures cannot be read. An arm that fails, or whose program is missing, is a
/// [`Cell::failure`].
pub fn run(options: &Options) -> Result<Report, BenchError> {
    netns::acquire()?;
    let program = match &options.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(BenchError::Program)?,
    };
    let tasks = Task::all(load::raise_files());
    let cells = tasks.iter().flat_map(|&task| {
        let arms = Arm::ALL.into_iter().filter(move |arm| arm.does(task));
        arms.map(move |arm| Cell {
            task,
            arm,
            runs: Vec::new(),
            failure: None,
        })
    });
    let mut cells: Vec<Cell> = cells.collect();
    for _ in 0..options.rounds {
        for cell in &mut cells {
            let (paths, offload) = cell.task.network();
            let names = &["eth1", "eth2"][..usize::from(paths)];
            let pair = Pair::new("relay", names, CONGESTION)?;
            pair.set_offload(offload)?;
            for ns in [&pair.client, &pair.server] {
                kernel::prepare(ns, false)?;
            }
            bench::endpoints(&pair)?;
            match load::measure(&pair, &program, cell.task, cell.arm, options.time) {
                Ok(measured) => cell.runs.push(measured),
                Err(why) => cell.failure = Some(why),
            }
            let told = cell.runs.last().filter(|_| cell.failure.is_none());
            eprintln!(
                "{}: {}: {}",
                cell.task.title(),
                cell.arm.name(),
                told.map_or_else(
                    || cell.failure.clone().unwrap_or_default(),
                    |run| line(cell.task, *run)
                )
            );
        }
    }
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: kernel::release(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        cells,
    })
}

fn line(task: Task, measured: Measured) -> String {
    let rate = match task {
        Task::Bulk { .. } => measured.rate / 1e9,
        Task::Answers { .. } => measured.rate,
    };
    let mut text = format!("{rate:9.2}");
    // Writing to a string does not fail.
    if let Some(p99) = measured.p99 {
        let _ = write!(text, "  {p99:8.1}");
    }
    if let Some(cost) = measured.cost {
        let _ = write!(text, "  {cost:7.3}");
    }
    if measured.failures > 0 {
        let _ = write!(text, "  ({} failed)", measured.failures);
    }
    text
}

impl Report {
    /// The table for people, with the rate of each arm as a share of HAProxy's and of `forward`'s.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!(
            "Linux {}, {} processors; medians; shares of the rate of HAProxy (Multipath TCP) and of `manypath forward`\n",
            self.kernel, self.processors
        );
        let rate = |task, arm| {
            let cell = self.cells.iter().find(|c| c.task == task && c.arm == arm)?;
            Some(cell.median()?.rate)
        };
        let mut task = None;
        for cell in &self.cells {
            if task != Some(cell.task) {
                let _ = writeln!(text, "\n{}", cell.task.title());
                task = Some(cell.task);
            }
            let Some(median) = cell.median() else {
                let why = cell.failure.as_deref().unwrap_or("not measured");
                let _ = writeln!(text, "  {:<22} {why}", cell.arm.name());
                continue;
            };
            let share = |arm| match rate(cell.task, arm) {
                Some(other) => format!("{:5.2}", median.rate / other),
                None => "    -".to_owned(),
            };
            let _ = writeln!(
                text,
                "  {:<22} {}   /HAProxy {}  /forward {}",
                cell.arm.name(),
                line(cell.task, median),
                share(Arm::HaproxyMptcp),
                share(Arm::Forward)
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_median() {
        let run = |rate| Measured {
            rate,
            p99: None,
            cost: Some(0.5),
            failures: 0,
        };
        let task = Task::Bulk {
            paths: 1,
            offload: true,
        };
        let cell = |arm, rates: [f64; 3]| Cell {
            task,
            arm,
            runs: rates.map(run).to_vec(),
            failure: None,
        };
        let report = Report {
            version: String::new(),
            kernel: "0".to_owned(),
            processors: 2,
            cells: vec![
                cell(Arm::Connect, [1e9, 9e9, 2e9]),
                cell(Arm::HaproxyMptcp, [4e9, 4e9, 4e9]),
            ],
        };
        let table = report.table();
        assert!(table.contains("/HAProxy  0.50  /forward     -"), "{table}");
    }
}
