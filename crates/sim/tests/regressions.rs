//! One test for each scenario of `scenarios/` and of its folders under `regressions/`, named by its file: it comes out as it says,
//! and the same twice.
//!
//!     cargo test -p manypath-sim --test regressions option-loss::

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions};

/// Scenarios below a folder, with the names of their tests.
fn scenarios(folder: &Path, name: &str, found: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(OsStr::to_str).unwrap_or_default();
        let name = match name {
            "" => stem.to_owned(),
            above => format!("{above}::{stem}"),
        };
        if path.is_dir() {
            scenarios(&path, &name, found)?;
        } else if path.extension() == Some(OsStr::new("toml")) {
            found.push((name, path));
        }
    }
    Ok(())
}

fn replay(scenario: Scenario) -> Result<Report, Failed> {
    Ok(manypath_sim::replay(scenario, RunOptions::default())?)
}

fn good(report: &Report) -> Result<(), Failed> {
    match report.is_good() {
        true => Ok(()),
        false => Err(report.to_string().into()),
    }
}

fn comes_out(path: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let report = replay(Scenario::parse(&text)?)?;
    good(&report)?;
    if replay(Scenario::parse(&text)?)?.hash != report.hash {
        return Err("another run is another".into());
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut found = Vec::new();
    scenarios(&folder, "", &mut found).expect("the folder is in the repository");
    found.sort();
    assert!(found.len() >= 200, "only {} scenarios", found.len());
    let trials = found
        .into_iter()
        .map(|(name, path)| Trial::test(name, move || comes_out(&path)));
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}
