//! `manypath lab grid`.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use manypath_lab::grid::{self, Load, Options, Variant};
use manypath_lab::write_whole;

use crate::args::GridArgs;
use crate::commands::{print_json, print_text};
use crate::exit::Failure;
use crate::runtime::say;

/// Networks between two words about progress.
const EVERY: u64 = 25;

/// The table in this folder, which is made where it is not there. An error if it cannot be written.
fn writable(folder: &Path, name: &str) -> Result<PathBuf, Failure> {
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    let table = folder.join(name);
    let new = !table.exists();
    let opened = OpenOptions::new().append(true).create(true).open(&table);
    opened.map_err(|error| Failure::file(&table, &error))?;
    if new {
        // It was made to see that it can be.
        std::fs::remove_file(&table).map_err(|error| Failure::file(&table, &error))?;
    }
    Ok(table)
}

/// Runs the networks and tells how Multipath TCP fared.
pub(crate) fn run(args: &GridArgs, quiet: bool) -> Result<(), Failure> {
    let mut variants = vec![Variant::default_settings()];
    if args.all {
        variants.extend(Variant::others());
    }
    for words in &args.with {
        let variant = Variant::parse(words);
        variants.push(variant.map_err(|what| {
            Failure::usage(format!("--with '{words}': {what}"))
                .hint("write for example --with 'scheduler=blest congestion=lia'")
        })?);
    }
    let (load, name) = match args.requests {
        true => (Load::Requests, "requests.csv"),
        false => (Load::Bulk, "grid.csv"),
    };
    let options = Options {
        seeds: args.seeds.clone(),
        load,
        variants,
        jobs: args.jobs,
    };
    // Before the work, so that it is not in vain.
    let table = args.out.as_deref().map(|folder| writable(folder, name));
    let table = table.transpose()?;
    let (done, started) = (AtomicU64::new(0), Instant::now());
    let total = args.seeds.end - args.seeds.start;
    let report = grid::run(&options, |_| {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if !quiet && done % EVERY == 0 {
            let seconds = started.elapsed().as_secs();
            say(&format!(
                "manypath: {done} of {total} networks, {seconds} s"
            ));
        }
    })
    .map_err(|error| Failure::usage(error.to_string()))?;
    // A full disk costs no report, and a reader that went away no table.
    let printed = match args.json {
        true => print_json(&report),
        false => print_text(&format!("{report}")),
    };
    if let Some(path) = &table {
        // A part takes no whole one's place.
        let path = &match report.interrupted {
            true => path.with_extension("partial.csv"),
            false => path.clone(),
        };
        write_whole(path, report.csv().as_bytes()).map_err(|error| Failure::file(path, &error))?;
    }
    printed?;
    if report.interrupted {
        return Err(Failure::stopped(""));
    }
    super::lab::verdict(
        report.is_good(),
        "slower than TCP on the best path somewhere",
    )
}
