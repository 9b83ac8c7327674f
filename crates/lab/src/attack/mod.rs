//! How our stack fares under attack: every attack of the simulator's list, measured beside honest clients.

mod real;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Instant;

use manypath_sim::attack::bench::{Outcome, Setup};
use manypath_sim::attack::cases::{self, Case, KEPT, Verdict};
use serde::Serialize;

use crate::handover::arm::Failure;
use crate::netns::{self, NetNsError};

pub use real::{Measured, Row as RealRow};

/// One attack and how it went.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub attack: &'static str,
    /// What happens.
    pub what: &'static str,
    /// Hostile packets a second.
    pub rate: f64,
    /// Packets that the server sent for each of them.
    pub answers: f64,
    /// Nanoseconds that the server's stack worked for each of them, beyond what the honest clients cost it. The clock's
    /// own cost is in it, and whatever else ran on this machine.
    pub work: f64,
    /// The server's memory at its highest, in bytes, honest clients included.
    pub memory: usize,
    /// Bytes that it may need.
    pub memory_bound: usize,
    /// Connections at most.
    pub connections: usize,
    /// The part of the long transfer's goodput that was left.
    pub bulk_kept: f64,
    /// The part of the short connections' number that was left.
    pub short_kept: f64,
    /// The counter that tells of it.
    pub counter: &'static str,
    /// Its value.
    pub counted: u64,
    /// What is not as it should be.
    pub complaints: Vec<String>,
}

/// All of them.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Simulated seconds of each.
    pub seconds: f64,
    /// The long transfer without an attack, in bits a second.
    pub bulk_goodput: f64,
    /// Short connections without an attack, each second.
    pub short_rate: f64,
    /// The server's memory without an attack.
    pub memory: usize,
    /// The attacks.
    pub rows: Vec<Row>,
}

/// The names of all attacks.
#[must_use]
pub fn names() -> Vec<&'static str> {
    cases::all().iter().map(|case| case.name).collect()
}

/// Nanoseconds since it was called first.
fn clock() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// Runs those attacks that `wanted` names, all if it names none, and says of each how it went as soon as that is known.
pub fn run(wanted: &[String], mut progress: impl FnMut(&Row)) -> Report {
    let setup = Setup {
        clock: Some(clock),
        ..Setup::default()
    };
    let seconds = setup.time.as_nanos() as f64 / 1e9;
    let without = cases::peace(&setup);
    let mut rows = Vec::new();
    for case in cases::all() {
        if wanted.is_empty() || wanted.iter().any(|name| name == case.name) {
            let row = row(&case, case.run(&setup, &without), &without, seconds);
            progress(&row);
            rows.push(row);
        }
    }
    Report {
        seconds,
        bulk_goodput: without.honest.bulk as f64 * 8.0 / seconds,
        short_rate: without.honest.short as f64 / seconds,
        memory: without.memory.total(),
        rows,
    }
}

fn row(case: &Case, verdict: Verdict, without: &Outcome, seconds: f64) -> Row {
    let with = &verdict.with;
    let each = |value: f64| value / with.packets.max(1) as f64;
    Row {
        attack: case.name,
        what: case.what,
        rate: with.packets as f64 / seconds,
        answers: each(with.answers as f64),
        work: each(with.busy.saturating_sub(without.busy) as f64),
        memory: with.memory.total(),
        memory_bound: case.memory,
        connections: with.connections,
        bulk_kept: verdict.bulk,
        short_kept: verdict.short,
        counter: case.counter,
        counted: with.counters.get(case.counter).unwrap_or(0),
        complaints: verdict.complaints.clone(),
    }
}

impl Row {
    /// It as a line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let mut text = format!(
            "{:<16} {:>8.0} {:>8.2} {:>7.0} {:>8.1} /{:>4.0} {:>6} {:>6.1} % {:>6.1} %  {} {}",
            self.attack,
            self.rate,
            self.answers,
            self.work,
            mb(self.memory),
            mb(self.memory_bound),
            self.connections,
            self.bulk_kept * 100.0,
            self.short_kept * 100.0,
            self.counter,
            self.counted,
        );
        for complaint in &self.complaints {
            // Writing to a String cannot fail.
            let _ = write!(text, "\n                 FAILED: {complaint}");
        }
        text
    }
}

impl Report {
    /// Every bound held and honest clients kept what they should.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(|row| row.complaints.is_empty())
    }

    /// What stands above the lines.
    #[must_use]
    pub fn head() -> &'static str {
        "attack             hostile  answers   ns of  memory MB/bound  conns   honest goodput kept  counter\n\
         \x20                 packets/s  /packet  work/p                           bulk    short"
    }

    /// What stands below them.
    #[must_use]
    pub fn foot(&self) -> String {
        format!(
            "without an attack: {:.1} Mbit/s, {:.1} short connections/s, {:.1} MB; each ran {:.0} s of simulated time; \
             an honest client has to keep {:.0} %",
            self.bulk_goodput / 1e6,
            self.short_rate,
            self.memory as f64 / 1e6,
            self.seconds,
            KEPT * 100.0
        )
    }
}

/// Why nothing could be measured on real packets.
#[derive(Debug, thiserror::Error)]
pub enum AttackError {
    /// The private network could not be built.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// Our own program could not be found.
    #[error("cannot find our own program: {0}")]
    Program(std::io::Error),
    /// The honest clients got nothing even without an attack.
    #[error("without an attack: {0}")]
    Peace(String),
}

/// All attacks on real packets.
#[derive(Clone, Debug, Serialize)]
pub struct RealReport {
    /// Without an attack.
    pub without: Measured,
    /// The attacks.
    pub rows: Vec<RealRow>,
}

/// Prepares for [`real()`]. May replace this process, so it comes before any thread.
///
/// # Errors
/// When private networks are forbidden.
pub fn prepare() -> Result<(), NetNsError> {
    netns::acquire()
}

/// Runs the attacks that need nothing unusual on real packets: `manypath forward` (this program, unless another is
/// named) under attack, beside clients of the host's kernel.
///
/// # Errors
/// See [`AttackError`]. An attack that could not be measured is a row that says why.
pub fn real(
    wanted: &[String],
    program: Option<PathBuf>,
    mut progress: impl FnMut(&RealRow),
) -> Result<RealReport, AttackError> {
    let program = match program {
        Some(program) => program,
        None => std::env::current_exe().map_err(AttackError::Program)?,
    };
    let without = real::run(None, &program).map_err(|failure| match failure {
        Failure::Network(error) => AttackError::Network(error),
        Failure::Arm(why) => AttackError::Peace(why),
    })?;
    let mut rows = Vec::new();
    for case in real::cases() {
        if !wanted.is_empty() && wanted.iter().all(|name| name != case.name) {
            continue;
        }
        let result = match real::run(Some(&case), &program) {
            Ok(measured) => Ok(measured),
            Err(Failure::Arm(why)) => Err(why),
            Err(Failure::Network(error)) => return Err(error.into()),
        };
        let row = real::row(&case, result, &without);
        progress(&row);
        rows.push(row);
    }
    Ok(RealReport { without, rows })
}

impl RealReport {
    /// Honest clients kept what they should.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(RealRow::is_good)
    }

    /// What stands above the lines.
    #[must_use]
    pub fn head() -> &'static str {
        "on real packets    hostile  memory MB/bound   cores    goodput kept\n\
         \x20                packets/s                            bulk    short"
    }

    /// What stands below them.
    #[must_use]
    pub fn foot(&self) -> String {
        let Measured {
            bulk,
            short,
            memory,
            ..
        } = self.without;
        format!(
            "without an attack: {:.1} MB and {short} short connections in 10 s, {:.1} MB resident; two cores or more, and \
             nothing else on them, or the clients compete with the attacker for the processor",
            bulk as f64 / 1e6,
            memory as f64 / 1e6
        )
    }
}
