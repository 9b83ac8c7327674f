//! The gauntlet on all processors: many seeds of the simulator's random networks, boxes, events and applications, each
//! with plain TCP and with Multipath TCP.
//!
//! Owns threads, time and files; what a seed is and whether it failed is the simulator's business.

mod failure;
mod show;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manypath_sim::gauntlet::{self, Table};
use serde::Serialize;

use crate::interrupt;

pub use crate::demo::Show;
pub use failure::FailingSeed;

/// How many failing seeds are cut down; of the others only the numbers and faults are told.
const SHRUNK: usize = 10;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which seeds.
    pub seeds: Range<u64>,
    /// Stop when so much time is over, whatever is left.
    pub time: Option<Duration>,
    /// Threads; by default one for each processor.
    pub jobs: Option<NonZero<usize>>,
    /// Where the scenarios and captures of failing seeds go.
    pub out: PathBuf,
    /// How progress is shown.
    pub show: Show,
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Report {
    /// The first seed.
    pub first: u64,
    /// The seed after the last one that was asked for.
    pub end: u64,
    /// Seeds that were run.
    pub run: u64,
    /// Somebody stopped it before the last seed.
    pub interrupted: bool,
    /// Seconds that it took.
    pub seconds: f64,
    /// A hash of everything that was delivered in all runs, in hexadecimal: the same seeds give the same hash.
    pub hash: String,
    /// What became of the runs.
    pub table: Table,
    /// Seeds that failed, by rising number.
    pub failing: Vec<FailingSeed>,
    /// Seeds that would not do, but with other losses, or without what happened on the path of TCP when that was done.
    pub unlucky: Vec<u64>,
    /// Seeds of which a connection ended early, where RFC 8684 section 3.7 has no way on.
    pub no_way_on: Vec<u64>,
}

impl Report {
    /// No seed failed.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.failing.is_empty()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.table)?;
        writeln!(
            f,
            "\n{} seeds from {} in {:.1} s, {} failed, hash {}",
            self.run,
            self.first,
            self.seconds,
            self.failing.len(),
            self.hash
        )?;
        for (seeds, what) in [
            (
                &self.unlucky,
                "would not do, but with other losses, or without what happened on the path of TCP when that was done",
            ),
            (
                &self.no_way_on,
                "ended early, where the standard has no way on (RFC 8684 section 3.7)",
            ),
        ] {
            if !seeds.is_empty() {
                writeln!(f, "{} {what}: {seeds:?}", seeds.len())?;
            }
        }
        for failing in &self.failing {
            writeln!(f, "seed {}: {}", failing.seed, failing.fault)?;
        }
        Ok(())
    }
}

/// Why it could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum GauntletError {
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A plan does not fit the simulator.
    #[error("seed {seed}: {what}")]
    Plan {
        /// The seed.
        seed: u64,
        /// What is wrong with its plan.
        what: String,
    },
}

/// What the threads have found so far.
#[derive(Debug, Default)]
struct Found {
    table: Table,
    hashes: BTreeMap<u64, u64>,
    failing: Vec<FailingSeed>,
    unlucky: Vec<u64>,
    no_way_on: Vec<u64>,
    error: Option<GauntletError>,
}

/// Runs the seeds. Ctrl-C stops it, and what was done so far is reported.
pub fn run(options: &Options) -> Result<Report, GauntletError> {
    interrupt::stoppable(|stop| run_until(options, stop))
}

fn run_until(options: &Options, stop: &AtomicBool) -> Result<Report, GauntletError> {
    let started = Instant::now();
    let deadline = options.time.map(|time| started + time);
    let next = AtomicU64::new(options.seeds.start);
    let found = Mutex::new(Found::default());
    let view = show::View::new(options.show, options.seeds.end - options.seeds.start);
    let jobs = options
        .jobs
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get);
    let work = || {
        loop {
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if late || seed >= options.seeds.end || stop.load(Ordering::Relaxed) {
                return;
            }
            if let Err(error) = one(options, seed, &found, &view) {
                lock(&found).error.get_or_insert(error);
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    view.finish();
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = found.error {
        return Err(error);
    }
    found.failing.sort_by_key(|failing| failing.seed);
    found.unlucky.sort_unstable();
    found.no_way_on.sort_unstable();
    let run = found.hashes.len() as u64;
    Ok(Report {
        first: options.seeds.start,
        end: options.seeds.end,
        run,
        interrupted: stop.load(Ordering::Relaxed),
        seconds: started.elapsed().as_secs_f64(),
        hash: format!("{:016x}", gauntlet::hash_of(&found.hashes)),
        table: found.table,
        failing: found.failing,
        unlucky: found.unlucky,
        no_way_on: found.no_way_on,
    })
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    // A thread that panicked while adding a seed loses that one; the scope tells of the panic.
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

fn one(
    options: &Options,
    seed: u64,
    found: &Mutex<Found>,
    view: &show::View,
) -> Result<(), GauntletError> {
    let outcome = gauntlet::run(seed).map_err(|error| GauntletError::Plan {
        seed,
        what: error.to_string(),
    })?;
    let mut count = {
        let mut found = lock(found);
        found.table.add(&outcome);
        found.hashes.insert(seed, outcome.twin.hash);
        if outcome.twin.unlucky {
            found.unlucky.push(seed);
        }
        if outcome.twin.no_way_on {
            found.no_way_on.push(seed);
        }
        found.failing.len()
    };
    if let Some(fault) = &outcome.twin.fault {
        let failing = if count < SHRUNK {
            FailingSeed::shrunk(seed, fault, &outcome.scenario, &options.out)?
        } else {
            FailingSeed::bare(seed, fault)
        };
        view.failed(&failing);
        let mut found = lock(found);
        found.failing.push(failing);
        count = found.failing.len();
    }
    view.step(count);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seeds: Range<u64>, jobs: usize) -> Options {
        Options {
            seeds,
            time: None,
            jobs: NonZero::new(jobs),
            out: std::env::temp_dir(),
            show: Show::Nothing,
        }
    }

    #[test]
    fn the_same_seeds_give_the_same_hash_on_any_number_of_threads() {
        let one = run(&options(3..13, 1)).unwrap();
        let two = run(&options(3..13, 2)).unwrap();
        assert_eq!((one.run, one.interrupted), (10, false));
        assert_eq!((&one.hash, &one.table), (&two.hash, &two.table));
        let other = run(&options(4..14, 2)).unwrap();
        assert_ne!(one.hash, other.hash);
    }

    #[test]
    fn time_and_signals_stop_it_with_a_report() {
        let mut options = options(0..u64::MAX, 1);
        options.time = Some(Duration::ZERO);
        let report = run(&options).unwrap();
        assert!(!report.interrupted && report.run == 0 && report.is_good());
        options.time = None;
        let report = run_until(&options, &AtomicBool::new(true)).unwrap();
        assert!(report.interrupted && report.run == 0);
    }
}
