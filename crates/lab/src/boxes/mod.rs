//! Each middlebox of the simulator alone on real packets: `manypath lab boxes`.
//!
//! Two namespaces and one or two emulated paths between them, the box on one of the paths, and one connection, for every
//! pair of client and server out of the kernel and ours: some megabytes up, the same down, and an orderly end. The
//! kernel's TCP on the only path shows what the box leaves possible at all.

mod cases;
mod cell;
mod model;
mod relay;
mod table;
mod talk;
mod watch;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::demo::Show;
use crate::interrupt;
use crate::netns::{self, NetNsError};
pub use cases::{Case, cases, of_scenario};
use cell::Setting;
pub use model::{Arm, Cell, Outcome, Place, Report, Row, Stack};

/// Congestion control of every end.
const CONGESTION: &str = "cubic";
/// More runs of cells in which ours and the kernel's seem to differ.
const MORE_RUNS: usize = 4;

/// What to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// The boxes; a row for each of them in each place.
    pub cases: Vec<Case>,
    /// Bytes each way, where a case does not say otherwise.
    pub bytes: usize,
    /// How long one cell may take, pauses left out.
    pub limit: Duration,
    /// Cells at one time.
    pub jobs: usize,
    /// Seed of everything random.
    pub seed: u64,
    /// The program that has the `forward` command; this very program if absent.
    pub program: Option<PathBuf>,
    /// How progress is shown.
    pub show: Show,
}

impl Options {
    /// The whole table, or the quick one.
    #[must_use]
    pub fn new(quick: bool) -> Self {
        let mut cases = cases();
        cases.retain(|case| case.quick || !quick);
        Self {
            cases,
            bytes: if quick { 600_000 } else { 2_000_000 },
            limit: Duration::from_secs(if quick { 10 } else { 15 }),
            jobs: std::thread::available_parallelism().map_or(2, usize::from) * 4,
            seed: 1,
            program: None,
            show: Show::Auto,
        }
    }
}

/// Why the table could not be made.
#[derive(Debug, thiserror::Error)]
pub enum BoxesError {
    /// The private network could not be built.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// Our own program could not be found, or a folder for its sockets not be made.
    #[error("cannot start our own program: {0}")]
    Program(io::Error),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
}

/// A cell that is still to be run, by its place in the table.
#[derive(Debug, Clone, Copy)]
struct Task {
    row: usize,
    case: usize,
    arm: Arm,
}

type Done = (Task, Result<Cell, NetNsError>);

/// Runs every cell. Bounded: no cell takes longer than the limit, its pause and the time to build its network. It may
/// replace this process, see [`netns::acquire`].
///
/// # Errors
/// When namespaces are forbidden or we are interrupted. A cell that fails is an [`Outcome::Failed`].
pub fn run(options: &Options) -> Result<Report, BoxesError> {
    netns::acquire()?;
    interrupt::stoppable(|stop| all(options, stop))
}

/// What the workers need, for as long as they work.
struct Crew<'a> {
    options: Arc<Options>,
    program: PathBuf,
    runtime: PathBuf,
    bar: ProgressBar,
    stop: &'a AtomicBool,
}

fn all(options: &Options, stop: &AtomicBool) -> Result<Report, BoxesError> {
    let program = match &options.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(BoxesError::Program)?,
    };
    let folder = tempfile::Builder::new()
        .prefix("manypath-boxes-")
        .tempdir()
        .map_err(BoxesError::Program)?;
    let (mut rows, tasks) = plan(&options.cases);
    let crew = Crew {
        options: Arc::new(options.clone()),
        program,
        runtime: folder.path().to_owned(),
        bar: progress(options.show, tasks.len()),
        stop,
    };
    let lines = crew.bar.is_hidden() && options.show != Show::Nothing;
    let mut left = tasks.len();
    let done = crew.work(tasks, options.jobs, |task, cell| {
        left -= 1;
        let row = &mut rows[task.row];
        crew.bar
            .set_message(format!("{}, {}", row.name, row.place.name()));
        row.cells.push(cell);
        if row.cells.len() == arms(row.place).len() {
            row.cells.sort_by_key(|cell| cell.arm);
            if lines {
                eprintln!("{}  ({left} cells to go)", table::line(row));
            }
        }
    });
    // Where ours and the kernel's seem to differ, chance or a busy machine may have had a hand in it: both run more often,
    // with less beside them, and the median counts.
    let done = done.and_then(|()| {
        let doubtful = doubtful(&rows);
        crew.bar.inc_length(doubtful.len() as u64);
        if lines && !doubtful.is_empty() {
            eprintln!("{} more runs where the two differ", doubtful.len());
        }
        let mut again: BTreeMap<(usize, Arm), Vec<Cell>> = BTreeMap::new();
        crew.work(doubtful, options.jobs.div_ceil(2), |task, cell| {
            again.entry((task.row, task.arm)).or_default().push(cell);
        })?;
        for ((row, _), cells) in again {
            rows[row].take_median(cells);
        }
        Ok(())
    });
    crew.bar.finish_and_clear();
    done?;
    Ok(Report {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: crate::kernel::release(),
        bytes: options.bytes,
        seed: options.seed,
        rows,
    })
}

/// What to run more often: the kernel with itself, and those of ours that do worse, or ours with itself where it does
/// better.
fn doubtful(rows: &[Row]) -> VecDeque<Task> {
    let mut tasks = VecDeque::new();
    for (index, row) in rows.iter().enumerate() {
        let mut arms = row.worse();
        if row.better() {
            arms.push(Arm::Ours);
        }
        if !arms.is_empty() {
            arms.push(Arm::Kernel);
        }
        for arm in arms {
            let task = Task {
                row: index,
                case: index / Place::ALL.len(),
                arm,
            };
            tasks.extend([task; MORE_RUNS]);
        }
    }
    tasks
}

impl Crew<'_> {
    /// Carries out tasks, so many at one time, and hands over what comes of each.
    fn work(
        &self,
        tasks: VecDeque<Task>,
        jobs: usize,
        mut take: impl FnMut(Task, Cell),
    ) -> Result<(), BoxesError> {
        let mut left = tasks.len();
        let queue = Arc::new(Mutex::new(tasks));
        let (tell, done) = channel();
        for _ in 0..jobs.max(1) {
            let (queue, tell) = (Arc::clone(&queue), tell.clone());
            let (options, program) = (Arc::clone(&self.options), self.program.clone());
            let runtime = self.runtime.clone();
            std::thread::spawn(move || {
                let setting = Setting {
                    options: &options,
                    program: &program,
                    runtime: &runtime,
                };
                work(&setting, &queue, &tell);
            });
        }
        drop(tell);
        while left > 0 {
            match done.recv_timeout(Duration::from_millis(100)) {
                Ok((task, cell)) => {
                    left -= 1;
                    self.bar.inc(1);
                    take(task, cell?);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(BoxesError::Program(io::Error::other("a worker panicked")));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            // The workers are left where they are: they end with the program, and their namespaces with them.
            if self.stop.load(Ordering::Relaxed) {
                return Err(BoxesError::Interrupted);
            }
        }
        Ok(())
    }
}

/// The arms of a row: TCP has one path only.
fn arms(place: Place) -> &'static [Arm] {
    match place {
        Place::Only => &Arm::ALL,
        Place::First | Place::Second => &Arm::ALL[1..],
    }
}

/// Empty rows, and what fills them.
fn plan(cases: &[Case]) -> (Vec<Row>, VecDeque<Task>) {
    let mut rows = Vec::new();
    let mut tasks = VecDeque::new();
    for (index, case) in cases.iter().enumerate() {
        for place in Place::ALL {
            for arm in arms(place) {
                tasks.push_back(Task {
                    row: rows.len(),
                    case: index,
                    arm: *arm,
                });
            }
            rows.push(Row {
                name: case.name.clone(),
                chain: case.chain.clone(),
                place,
                cells: Vec::new(),
            });
        }
    }
    (rows, tasks)
}

fn work(setting: &Setting<'_>, queue: &Mutex<VecDeque<Task>>, tell: &Sender<Done>) {
    loop {
        let next = queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        let Some(task) = next else { return };
        let place = Place::ALL[task.row % Place::ALL.len()];
        let case = &setting.options.cases[task.case];
        let cell = cell::run(setting, case, place, task.arm);
        if tell.send((task, cell)).is_err() {
            // Nobody wants to know any more.
            return;
        }
    }
}

fn progress(show: Show, cells: usize) -> ProgressBar {
    let bars = show == Show::Auto && io::stderr().is_terminal();
    if !bars {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} cells, {elapsed}  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::with_draw_target(Some(cells as u64), ProgressDrawTarget::stderr());
    bar.set_style(style);
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_planned_once_and_in_order() {
        let options = Options::new(false);
        let (rows, tasks) = plan(&options.cases);
        assert_eq!(rows.len(), options.cases.len() * 3);
        assert_eq!(tasks.len(), options.cases.len() * 13);
        for task in tasks {
            let row = &rows[task.row];
            assert_eq!(row.place, Place::ALL[task.row % 3]);
            assert_eq!(row.name, options.cases[task.case].name);
        }
        assert!(Options::new(true).cases.len() < options.cases.len());
    }
}
