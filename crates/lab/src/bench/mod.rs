//! Goodput and processor time beside the kernel's: `manypath lab bench`.
//!
//! Two namespaces, one or two veth pairs, MTU 1500. All arms take turns inside every round, so that whatever the machine
//! does in the meantime hits all of them alike; medians over the rounds are compared, as ratios.

mod bulk;
mod cpu;
mod table;

use std::io::{self, BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::kernel;
use crate::netns::{self, NetNs, NetNsError, Process};
use crate::testbed::{Pair, SERVER, Testbed};
use bulk::{Received, Transport};
use cpu::Snapshot;

/// What to measure, and how long.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often every cell is measured; the median counts.
    pub rounds: u32,
    /// How long a sender sends in one measurement.
    pub time: Duration,
    /// Which arms; all if empty.
    pub arms: Vec<Arm>,
    /// The program that has the `perf` command; this very program if absent.
    pub program: Option<PathBuf>,
    /// Whether every measurement is told on standard error as it is made.
    pub verbose: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rounds: 3,
            time: Duration::from_secs(2),
            arms: Vec::new(),
            program: None,
            verbose: true,
        }
    }
}

/// Whose implementation stands at which end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arm {
    /// The kernel's TCP at both ends.
    KernelTcp,
    /// The kernel's Multipath TCP at both ends.
    KernelMptcp,
    /// Ours sends to the kernel's Multipath TCP.
    OursSends,
    /// The kernel's Multipath TCP sends to ours.
    OursReceives,
    /// Ours at both ends.
    Ours,
}

impl Arm {
    /// Every arm, in the order of the table.
    pub const ALL: [Self; 5] = [
        Self::KernelTcp,
        Self::KernelMptcp,
        Self::OursSends,
        Self::OursReceives,
        Self::Ours,
    ];

    /// Its name in the table.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KernelTcp => "kernel TCP",
            Self::KernelMptcp => "kernel MPTCP",
            Self::OursSends => "ours -> kernel",
            Self::OursReceives => "kernel -> ours",
            Self::Ours => "ours -> ours",
        }
    }
}

/// Conditions of one comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Condition {
    /// Veth pairs, and with them subflows.
    pub paths: u8,
    /// Segmentation offload and its reverse.
    pub offload: bool,
    /// The checksum of Multipath TCP's own.
    pub checksum: bool,
}

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measured {
    /// Payload bits per second.
    pub goodput: f64,
    /// Processor seconds per 10^9 payload bytes: both ends, the kernel and its interrupts.
    pub cpu_per_gb: f64,
    /// Processor seconds that other programs used meanwhile: above zero, the machine was not quiet.
    pub strangers: f64,
}

/// All that was measured of one arm in one condition.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The arm.
    pub arm: Arm,
    /// The condition; for TCP, which has no checksum of the kind, it is without.
    pub condition: Condition,
    /// One entry a round that succeeded.
    pub runs: Vec<Measured>,
    /// Why a round did not succeed, the last reason if several.
    pub failure: Option<String>,
}

impl Cell {
    /// The medians of the runs.
    #[must_use]
    pub fn median(&self) -> Option<Measured> {
        let of = |pick: fn(&Measured) -> f64| {
            let mut values: Vec<f64> = self.runs.iter().map(pick).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        Some(Measured {
            goodput: of(|m| m.goodput)?,
            cpu_per_gb: of(|m| m.cpu_per_gb)?,
            strangers: of(|m| m.strangers)?,
        })
    }
}

/// The whole benchmark.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: String,
    /// The kernel's release.
    pub kernel: String,
    /// Processors of this machine.
    pub processors: usize,
    /// Every cell, ordered by condition and arm.
    pub cells: Vec<Cell>,
    /// What could not be measured at all, and why.
    pub skipped: Vec<String>,
}

/// Why the benchmark could not run.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The private network could not be built.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// The machine's own figures cannot be read.
    #[error("cannot read the processor time: {0}")]
    Accounting(io::Error),
    /// Our own program could not be found.
    #[error("cannot find our own program: {0}")]
    Program(io::Error),
}

/// Congestion control of every arm.
const CONGESTION: &str = "cubic";
/// Where receivers listen.
const PORT: u16 = 5001;
/// How long one side waits for the other before a measurement counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);

/// Measures every cell. Bounded: about `rounds * cells * (time + 1 s)`. It may replace this process, see
/// [`netns::acquire`].
///
/// # Errors
/// When namespaces are forbidden or the machine's figures cannot be read. An arm that fails is a [`Cell::failure`].
pub fn run(options: &Options) -> Result<Report, BenchError> {
    netns::acquire()?;
    let program = match &options.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(BenchError::Program)?,
    };
    let arms: &[Arm] = if options.arms.is_empty() {
        &Arm::ALL
    } else {
        &options.arms
    };
    let mut report = Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        cells: cells(arms),
        skipped: Vec::new(),
    };
    for round in 0..options.rounds {
        for paths in [1, 2] {
            for offload in [true, false] {
                let names = &["eth1", "eth2"][..usize::from(paths)];
                let pair = Pair::new("bench", names, CONGESTION)?;
                if !offload && let Err(why) = pair.set_offload(false) {
                    let line = format!("everything without offloads: {why}");
                    if !report.skipped.contains(&line) {
                        report.skipped.push(line);
                    }
                    continue;
                }
                for cell in &mut report.cells {
                    if cell.condition.paths == paths && cell.condition.offload == offload {
                        measure(&pair, cell, &program, options, round)?;
                    }
                }
            }
        }
    }
    Ok(report)
}

/// The cells in the order in which they are measured and shown.
fn cells(arms: &[Arm]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for paths in [1, 2] {
        for offload in [true, false] {
            for checksum in [false, true] {
                for arm in arms {
                    if *arm == Arm::KernelTcp && (checksum || paths > 1) {
                        continue;
                    }
                    let condition = Condition {
                        paths,
                        offload,
                        checksum,
                    };
                    cells.push(Cell {
                        arm: *arm,
                        condition,
                        runs: Vec::new(),
                        failure: None,
                    });
                }
            }
        }
    }
    cells
}

fn measure(
    pair: &Pair,
    cell: &mut Cell,
    program: &Path,
    options: &Options,
    round: u32,
) -> Result<(), BenchError> {
    for ns in [&pair.client, &pair.server] {
        kernel::prepare(ns, cell.condition.checksum)?;
    }
    endpoints(pair)?;
    let bench = Bench {
        pair,
        program,
        condition: cell.condition,
        time: options.time,
    };
    match bench.run(cell.arm) {
        Ok(measured) => {
            if options.verbose {
                eprintln!(
                    "round {}: {}",
                    round + 1,
                    table::line(cell.arm, cell.condition, &measured)
                );
            }
            cell.runs.push(measured);
        }
        Err(Failure::Arm(why)) => {
            if options.verbose {
                eprintln!("round {}: {} failed: {why}", round + 1, cell.arm.name());
            }
            cell.failure = Some(why);
        }
        Err(Failure::Bench(error)) => return Err(error),
    }
    Ok(())
}

/// The kernel's client makes a subflow from every further address.
fn endpoints(pair: &Pair) -> Result<(), NetNsError> {
    pair.client.ip(["mptcp endpoint flush"])?;
    for (index, interface) in pair.interfaces().iter().enumerate().skip(1) {
        let address = Testbed::client_address(index);
        pair.client.ip([format!(
            "mptcp endpoint add {address} dev {interface} subflow"
        )])?;
    }
    Ok(())
}

enum Failure {
    /// The arm did not do its work; the others may.
    Arm(String),
    /// Nothing can be measured here.
    Bench(BenchError),
}

impl From<NetNsError> for Failure {
    fn from(error: NetNsError) -> Self {
        Self::Bench(error.into())
    }
}

struct Bench<'a> {
    pair: &'a Pair,
    program: &'a Path,
    condition: Condition,
    time: Duration,
}

impl Bench<'_> {
    fn run(&self, arm: Arm) -> Result<Measured, Failure> {
        match arm {
            Arm::KernelTcp => self.kernel(Transport::Tcp),
            Arm::KernelMptcp => self.kernel(Transport::Mptcp),
            Arm::OursSends => self.ours_sends(),
            Arm::OursReceives => self.ours_receives(),
            Arm::Ours => self.ours(),
        }
    }

    /// Runs `work` between two looks at the machine. `ours` are the processes that take part beside this one.
    fn accounted(
        &self,
        ours: &[u32],
        work: impl FnOnce() -> Result<Received, Failure>,
    ) -> Result<Measured, Failure> {
        let mut all = ours.to_vec();
        all.push(std::process::id());
        let look =
            || Snapshot::take(&all).map_err(|error| Failure::Bench(BenchError::Accounting(error)));
        let before = look()?;
        let received = work()?;
        let spent = look()?.since(&before);
        let seconds = received.time.as_secs_f64();
        if received.bytes == 0 || seconds <= 0.0 {
            return Err(Failure::Arm("no data arrived".to_owned()));
        }
        Ok(Measured {
            goodput: received.bytes as f64 * 8.0 / seconds,
            cpu_per_gb: spent.ours / (received.bytes as f64 / 1e9),
            strangers: spent.strangers,
        })
    }

    fn kernel(&self, transport: Transport) -> Result<Measured, Failure> {
        let listener =
            bulk::listen(&self.pair.server, transport, CONGESTION, PORT).map_err(arm("listen"))?;
        self.accounted(&[], || {
            let receiver = bulk::receive(&self.pair.server, listener, PATIENCE)?;
            let to = SocketAddr::new(IpAddr::V4(SERVER), PORT);
            let sender = bulk::send(&self.pair.client, transport, CONGESTION, to, self.time)?;
            joined(sender.join()).map_err(arm("send"))?;
            joined(receiver.join()).map_err(arm("receive"))
        })
    }

    fn ours_sends(&self) -> Result<Measured, Failure> {
        let listener = bulk::listen(&self.pair.server, Transport::Mptcp, CONGESTION, PORT)
            .map_err(arm("listen"))?;
        let receiver = bulk::receive(&self.pair.server, listener, PATIENCE)?;
        // The process is started before the first look, so that it is known; starting up costs it little.
        let mut sender = Ours::start(
            self,
            &self.pair.client,
            Role::Send {
                plain: true,
                to: IpAddr::V4(SERVER),
            },
        )?;
        let measured = self.accounted(&[sender.id()], || {
            joined(receiver.join()).map_err(arm("receive"))
        });
        sender.result(self.deadline())?;
        measured
    }

    fn ours_receives(&self) -> Result<Measured, Failure> {
        let mut server = Ours::start(self, &self.pair.server, Role::Serve)?;
        server.ready()?;
        let to = SocketAddr::new(served_at(), PORT);
        self.accounted(&[server.id()], || {
            let begin = Instant::now();
            let sender = bulk::send(
                &self.pair.client,
                Transport::Mptcp,
                CONGESTION,
                to,
                self.time,
            )?;
            // It returns when the other end has read everything and closed.
            let bytes = joined(sender.join()).map_err(arm("send"))?;
            Ok(Received {
                bytes,
                time: begin.elapsed(),
            })
        })
    }

    fn ours(&self) -> Result<Measured, Failure> {
        let mut server = Ours::start(self, &self.pair.server, Role::Serve)?;
        server.ready()?;
        let mut sender = Ours::start(
            self,
            &self.pair.client,
            Role::Send {
                plain: false,
                to: served_at(),
            },
        )?;
        self.accounted(&[server.id(), sender.id()], || {
            sender.result(self.deadline())
        })
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.time + PATIENCE
    }
}

/// Our stack's own address at the server's first interface: the kernel has the others.
fn served_at() -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 77, 1, 20))
}

#[derive(Clone, Copy)]
enum Role {
    Serve,
    Send { plain: bool, to: IpAddr },
}

/// A running `manypath perf`.
struct Ours {
    process: Process,
    said: Receiver<String>,
    output: Option<JoinHandle<String>>,
}

impl Ours {
    fn start(bench: &Bench<'_>, ns: &NetNs, role: Role) -> Result<Self, Failure> {
        let mut command = Command::new(bench.program);
        command.arg("perf");
        match role {
            Role::Serve => {
                command.args([
                    "serve",
                    "--listen",
                    &format!("{}:{PORT}", served_at()),
                    "--connections",
                    "1",
                ]);
            }
            Role::Send { plain, to } => {
                let time = format!("{}ms", bench.time.as_millis());
                command.args(["send", &format!("{to}:{PORT}"), "--time", &time]);
                command.args(plain.then_some("--plain"));
            }
        }
        command.args(["--proto", "mptcp", "--congestion", CONGESTION, "--json"]);
        for (index, interface) in bench.pair.interfaces().iter().enumerate() {
            let path = match role {
                Role::Serve => format!(
                    "{interface}=10.77.{}.20,gateway={}",
                    index + 1,
                    Testbed::client_address(index)
                ),
                Role::Send { .. } => {
                    format!(
                        "{interface}={},gateway={}",
                        Testbed::own_address(index),
                        Testbed::gateway(index)
                    )
                }
            };
            command.args(["--path", &path]);
        }
        // Bursts of ours stay on without offloads too: the kernel cuts them in front of the device then, as it does with
        // its own.
        let checksum = if bench.condition.checksum {
            "on"
        } else {
            "off"
        };
        command.args(["--checksum", checksum, "--offload", "on"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut process = ns.spawn(command)?;
        let (tell, said) = channel();
        let errors = process
            .child()
            .stderr
            .take()
            .expect("it was asked to be a pipe");
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                // Nobody wants to know any more.
                if tell.send(line).is_err() {
                    return;
                }
            }
        });
        let stdout = process
            .child()
            .stdout
            .take()
            .expect("it was asked to be a pipe");
        let output = std::thread::spawn(move || io::read_to_string(stdout).unwrap_or_default());
        Ok(Self {
            process,
            said,
            output: Some(output),
        })
    }

    fn id(&mut self) -> u32 {
        self.process.child().id()
    }

    /// Waits until it says that it serves.
    fn ready(&mut self) -> Result<(), Failure> {
        let end = Instant::now() + PATIENCE;
        let mut last = String::new();
        loop {
            match self
                .said
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) if line.contains("serving at") => return Ok(()),
                Ok(line) => last = line,
                Err(_) => return Err(Failure::Arm(format!("perf serve did not start: {last}"))),
            }
        }
    }

    /// Waits for its end and takes the result from its JSON.
    fn result(&mut self, deadline: Instant) -> Result<Received, Failure> {
        let status = loop {
            match self.process.child().try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(2))
                }
                Ok(None) => return Err(Failure::Arm("perf send did not end".to_owned())),
                Err(error) => return Err(arm("wait for perf")(error)),
            }
        };
        if !status.success() {
            let last = self.said.iter().last().unwrap_or_default();
            return Err(Failure::Arm(format!("perf send: {last} ({status})")));
        }
        let output = self
            .output
            .take()
            .map(JoinHandle::join)
            .and_then(Result::ok)
            .unwrap_or_default();
        summary(&output)
            .ok_or_else(|| Failure::Arm(format!("perf send printed no result: {output:.200}")))
    }
}

/// Bytes and time out of the JSON that `perf send` prints, wherever in it they stand.
fn summary(output: &str) -> Option<Received> {
    fn find<'v>(value: &'v serde_json::Value, key: &str) -> Option<&'v serde_json::Value> {
        value.get(key).or_else(|| {
            value
                .as_object()?
                .values()
                .find_map(|inner| find(inner, key))
        })
    }
    let value: serde_json::Value = serde_json::from_str(output).ok()?;
    let bytes = find(&value, "bytes")?.as_u64()?;
    let rate = find(&value, "bits_per_second")?.as_f64()?;
    let seconds = bytes as f64 * 8.0 / rate;
    seconds.is_finite().then(|| Received {
        bytes,
        time: Duration::from_secs_f64(seconds),
    })
}

fn joined<T>(result: std::thread::Result<io::Result<T>>) -> io::Result<T> {
    result.unwrap_or_else(|_| Err(io::Error::other("its thread panicked")))
}

/// Turns an error of one side into a failure of the arm.
fn arm(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Arm(format!("cannot {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_is_measured_once_for_each_state_of_the_offloads() {
        let all = cells(&Arm::ALL);
        assert_eq!(
            all.iter().filter(|cell| cell.arm == Arm::KernelTcp).count(),
            2
        );
        assert_eq!(all.len(), 2 + 4 * 8);
    }

    #[test]
    fn a_cell_tells_its_median() {
        let run = |goodput| Measured {
            goodput,
            cpu_per_gb: 10.0 - goodput,
            strangers: 0.0,
        };
        let condition = Condition {
            paths: 1,
            offload: true,
            checksum: false,
        };
        let mut cell = Cell {
            arm: Arm::Ours,
            condition,
            runs: [3.0, 1.0, 2.0].map(run).to_vec(),
            failure: None,
        };
        let median = cell.median().expect("three runs");
        assert_eq!((median.goodput, median.cpu_per_gb), (2.0, 8.0));
        cell.runs.clear();
        assert_eq!(cell.median(), None);
    }

    #[test]
    fn the_result_is_found_in_the_json() {
        let text = r#"{"title": "x", "summary": {"bytes": 1000, "bits_per_second": 4000.0}}"#;
        assert_eq!(
            summary(text),
            Some(Received {
                bytes: 1000,
                time: Duration::from_secs(2)
            })
        );
        assert_eq!(summary("{}"), None);
        assert_eq!(summary(r#"{"bytes": 0, "bits_per_second": 0.0}"#), None);
    }

    #[test]
    fn the_kernels_arms_deliver() {
        let Ok(pair) = Pair::new("bench-test", &["eth1", "eth2"], CONGESTION) else {
            return;
        };
        for ns in [&pair.client, &pair.server] {
            if kernel::prepare(ns, true).is_err() {
                return;
            }
        }
        endpoints(&pair).expect("addresses are ours");
        let condition = Condition {
            paths: 2,
            offload: true,
            checksum: true,
        };
        let bench = Bench {
            pair: &pair,
            program: Path::new("none"),
            condition,
            time: Duration::from_millis(300),
        };
        for arm in [Arm::KernelTcp, Arm::KernelMptcp] {
            let measured = match bench.run(arm) {
                Ok(measured) => measured,
                Err(Failure::Arm(why)) => panic!("{}: {why}", arm.name()),
                Err(Failure::Bench(why)) => panic!("{why}"),
            };
            assert!(measured.goodput > 1e6, "{measured:?}");
        }
        let counters = kernel::Counters::read(&pair.server).expect("readable");
        assert_eq!(counters.get("MPTcpExtMPCapableSYNRX"), 1);
        assert_eq!(counters.get("MPTcpExtMPJoinAckRx"), 1);
    }
}
