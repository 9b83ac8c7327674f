//! Goodput and processor time beside the kernel's: `manypath lab bench`.
//!
//! Two namespaces, one or two veth pairs, MTU 1500. All arms take turns inside every round, so that whatever the machine
//! does in the meantime hits all of them alike; medians over the rounds are compared, as ratios.

pub(crate) mod bulk;
mod cpu;
mod model;
mod ours;
mod table;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::kernel;
use crate::netns::{self, NetNsError};
use crate::testbed::{Pair, SERVER, Testbed};
pub(crate) use bulk::accept;
use bulk::{Received, Transport};
use cpu::Snapshot;
use model::cells;
pub use model::{Arm, Cell, Condition, Measured, Report};
use ours::{Ours, Role, served_at};

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
pub(crate) const CONGESTION: &str = "cubic";
/// Where receivers listen.
const PORT: u16 = 5001;
/// How long one side waits for the other before a measurement counts as failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

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
        kernel: crate::kernel::release(),
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
pub(crate) fn endpoints(pair: &Pair) -> Result<(), NetNsError> {
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
    fn the_kernels_arms_deliver() {
        let pair = match Pair::new("bench-test", &["eth1", "eth2"], CONGESTION) {
            Ok(pair) => pair,
            Err(error) => {
                eprintln!("skipped: {error}");
                return;
            }
        };
        for ns in [&pair.client, &pair.server] {
            if let Err(error) = kernel::prepare(ns, true) {
                eprintln!("skipped: {error}");
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
