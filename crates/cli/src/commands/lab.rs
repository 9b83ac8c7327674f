//! `manypath lab`.

use manypath_lab::bench::{self, BenchError};

use crate::args::{BenchArgs, LabArgs, LabCommand};
use crate::commands::{namespace_failure, print_json, print_text};
use crate::exit::Failure;

/// Runs the wanted experiment. It may replace this process, so it comes before any thread or runtime.
pub(crate) fn run(args: LabArgs) -> Result<(), Failure> {
    match args.command {
        LabCommand::Bench(args) => bench(&args),
    }
}

fn bench(args: &BenchArgs) -> Result<(), Failure> {
    let options = bench::Options {
        rounds: args.rounds,
        time: args.time,
        ..bench::Options::default()
    };
    let report = bench::run(&options).map_err(|error| {
        let message = error.to_string();
        match error {
            BenchError::Network(network) => namespace_failure(&network),
            BenchError::Accounting(source) | BenchError::Program(source) => {
                Failure::from_io(message, source.kind())
            }
        }
    })?;
    if args.json {
        print_json(&report)
    } else {
        print_text(&report.table())
    }
}
