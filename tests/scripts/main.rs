//! Plays every packet script of this folder against our stack and against the Linux kernel, and prints a table:
//! `cargo test -p manypath-tests --test scripts [PART OF A NAME...]`. See `README.md` for the language.

use std::collections::VecDeque;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;

use manypath_lab::netns;
use manypath_tests::script::kernel::Kernel;
use manypath_tests::script::ours::Ours;
use manypath_tests::script::run::{Outcome, play};
use manypath_tests::script::{ArmName, Script, parse};

/// Scripts that wait for the kernel at the same time: they wait far more than they work.
const AT_ONCE: usize = 8;

/// How long a thread may wait for a processor in all while it plays a script. When it waits longer, the kernel's timers may
/// expire before its packets are answered, and a script that fails by that has shown nothing: it is played again.
const LATE: Duration = Duration::from_millis(50);
/// How often a script is played at most.
const TRIALS: usize = 5;

/// Whose devices lead to the scripts.
const TUN: &str = "/dev/net/tun";

/// The kernel whose differences the scripts tell. What another version does differently is printed, and no failure.
const RECORDED: &str = "6.18.";

/// What a script came to on one arm.
#[derive(Debug)]
enum Cell {
    Played(Outcome),
    /// It does not apply there, or cannot be played.
    Skipped(String),
}

impl Cell {
    fn word(&self) -> &'static str {
        match self {
            Self::Played(Outcome::AsWanted) => "as wanted",
            Self::Played(Outcome::Differs(_)) => "differs",
            Self::Played(Outcome::Failed(_)) => "FAILED",
            Self::Skipped(_) => "-",
        }
    }
}

fn load(filters: &[String]) -> Result<Vec<Script>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut scripts = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.extension().is_none_or(|ending| ending != "script") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        if filters.is_empty() || filters.iter().any(|part| name.contains(part.as_str())) {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
            scripts.push(parse::script(&name, &text)?);
        }
    }
    scripts.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(scripts)
}

fn ours(script: &Script) -> Cell {
    match &script.skip {
        Some((ArmName::Ours, why)) => Cell::Skipped(why.clone()),
        _ => match play(script, || Ok(Ours::new(&script.settings))) {
            Ok(outcome) => Cell::Played(outcome),
            Err(why) => Cell::Played(Outcome::Failed(why)),
        },
    }
}

fn kernel(script: &Script) -> Cell {
    if let Some((ArmName::Kernel, why)) = &script.skip {
        return Cell::Skipped(why.clone());
    }
    for _ in 0..TRIALS {
        let before = waited();
        let outcome =
            play(script, || Kernel::new(&script.settings)).unwrap_or_else(Outcome::Failed);
        let in_time = waited()
            .zip(before)
            .is_none_or(|(now, then)| now - then < LATE);
        if in_time || !matches!(outcome, Outcome::Failed(_)) {
            return Cell::Played(outcome);
        }
    }
    Cell::Skipped("the machine is too busy to answer the kernel in time".to_owned())
}

/// How long this thread has waited for a processor in all; `None` where the system does not count it.
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// All scripts against the kernel, some at a time, in the order of the scripts.
fn kernels(scripts: &[Script]) -> Vec<Cell> {
    let queue: Mutex<VecDeque<usize>> = Mutex::new((0..scripts.len()).collect());
    let cells: Vec<Mutex<Option<Cell>>> = scripts.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(next) = take(&queue) {
                    let cell = kernel(&scripts[next]);
                    *cells[next].lock().expect("nobody panics with it") = Some(cell);
                }
            });
        }
    });
    let done = |cell: Mutex<Option<Cell>>| {
        let cell = cell.into_inner().expect("nobody panics with it");
        cell.expect("every number was in the queue")
    };
    cells.into_iter().map(done).collect()
}

fn take(queue: &Mutex<VecDeque<usize>>) -> Option<usize> {
    queue.lock().expect("nobody panics with it").pop_front()
}

/// Why there is no second arm here, if there is none.
fn without_kernel() -> Option<String> {
    // An ordinary user's test program starts again as root of a namespace of its own, where all this is permitted.
    if let Err(error) = netns::acquire() {
        return Some(error.to_string());
    }
    if !Path::new("/proc/sys/net/mptcp/enabled").exists() {
        return Some("this kernel has no Multipath TCP".to_owned());
    }
    let tun = std::fs::File::options().read(true).write(true).open(TUN);
    tun.err().map(|error| format!("{TUN}: {error}"))
}

fn main() -> ExitCode {
    // What `cargo test` passes on to ordinary test programs means nothing here.
    let filters: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let missing = without_kernel();
    let scripts = match load(&filters) {
        Ok(scripts) => scripts,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    if scripts.is_empty() && !filters.is_empty() {
        println!("no script has that in its name");
        return ExitCode::SUCCESS;
    }
    let first: Vec<Cell> = scripts.iter().map(ours).collect();
    let second = match &missing {
        None => kernels(&scripts),
        Some(why) => {
            println!("skipped on the Linux kernel: {why}");
            let skipped = scripts.iter().map(|_| Cell::Skipped(why.clone()));
            skipped.collect()
        }
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let recorded = release.starts_with(RECORDED);
    if !recorded {
        println!(
            "Linux {} is not {RECORDED}x, whose differences the scripts know",
            release.trim()
        );
    }
    table(&scripts, &first, &second, recorded)
}

fn table(scripts: &[Script], ours: &[Cell], kernel: &[Cell], recorded: bool) -> ExitCode {
    let (mut failures, mut failed) = (String::new(), false);
    let mut count = [[0usize; 4]; 2];
    println!("{:<34} {:<10} {:<10} what", "script", "ours", "kernel");
    for (script, cells) in scripts.iter().zip(ours.iter().zip(kernel)) {
        let cells = [(ArmName::Ours, cells.0), (ArmName::Kernel, cells.1)];
        let [a, b] = cells.map(|(_, cell)| cell.word());
        println!("{:<34} {a:<10} {b:<10} {}", script.name, script.title);
        for (arm, cell) in cells {
            let column = &mut count[usize::from(arm == ArmName::Kernel)];
            match cell {
                Cell::Played(Outcome::AsWanted) => column[0] += 1,
                Cell::Played(Outcome::Differs(reasons)) => {
                    column[1] += 1;
                    for reason in reasons {
                        println!("{:<34} {arm}: {reason}", "");
                    }
                }
                Cell::Played(Outcome::Failed(why)) => {
                    column[2] += 1;
                    failed |= recorded || arm == ArmName::Ours;
                    failures += &format!("\n{} on {arm}: {why}", script.name);
                }
                Cell::Skipped(why) => {
                    column[3] += 1;
                    println!("{:<34} {arm}: not played: {why}", "");
                }
            }
        }
    }
    for (arm, [wanted, differs, failed, skipped]) in ["ours", "kernel"].iter().zip(count) {
        println!(
            "{arm}: {wanted} as wanted, {differs} differ, {failed} failed, {skipped} not played"
        );
    }
    println!("{failures}");
    match failed || scripts.is_empty() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
}
