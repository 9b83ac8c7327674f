//! `manypath lab attack`.

use manypath_lab::attack::{self, AttackError};

use crate::args::AttackArgs;
use crate::commands::lab::verdict;
use crate::commands::{namespace_failure, print_json, print_text};
use crate::exit::{Code, Failure};

/// Runs the attacks and prints their table.
pub(crate) fn run(args: &AttackArgs) -> Result<(), Failure> {
    if args.real {
        return real(args);
    }
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
    conclude(args, &report, report.foot(), report.is_good())
}

fn real(args: &AttackArgs) -> Result<(), Failure> {
    attack::prepare().map_err(|error| namespace_failure(&error))?;
    if !args.json {
        print_text(&format!("{}\n", attack::RealReport::head()))?;
    }
    let mut written = Ok(());
    let report = attack::real(&args.only, None, |row| {
        if !args.json && written.is_ok() {
            written = print_text(&format!("{}\n", row.line()));
        }
    })
    .map_err(|error| {
        let message = error.to_string();
        match error {
            AttackError::Network(network) => namespace_failure(&network),
            AttackError::Program(source) => Failure::from_io(message, source.kind()),
            AttackError::Peace(_) => Failure::new(Code::Failure, message),
        }
    })?;
    written?;
    conclude(args, &report, report.foot(), report.is_good())
}

fn conclude(
    args: &AttackArgs,
    report: &impl serde::Serialize,
    foot: impl std::fmt::Display,
    good: bool,
) -> Result<(), Failure> {
    if args.json {
        print_json(report)?;
    } else {
        print_text(&format!("{foot}\n"))?;
    }
    verdict(good, "an attack did more than it should be able to")
}
