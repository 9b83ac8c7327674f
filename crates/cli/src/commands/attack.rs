//! `manypath lab attack`.

use manypath_lab::attack;

use crate::args::AttackArgs;
use crate::commands::{print_json, print_text};
use crate::exit::{Code, Failure};

/// Runs the attacks and prints their table.
pub(crate) fn run(args: &AttackArgs) -> Result<(), Failure> {
    if !args.json {
        print_text(&format!("{}\n", attack::Report::head()))?;
    }
    let mut written = Ok(());
    let report = attack::run(&args.only, |row| {
        if !args.json && written.is_ok() {
            written = print_text(&format!("{}\n", row.line()));
        }
    });
    written?;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&format!("{}\n", report.foot()))?;
    }
    if report.is_good() {
        Ok(())
    } else {
        Err(Failure::new(
            Code::Failure,
            "an attack did more than it should be able to",
        ))
    }
}
