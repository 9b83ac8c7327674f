//! `manypath lab handover`.

use manypath_lab::handover::{self, HandoverError, Options};

use crate::args::HandoverArgs;
use crate::commands::{namespace_failure, print_json, print_text};
use crate::exit::{Code, Failure};

/// Runs every transfer and prints what came out.
pub(crate) fn run(args: &HandoverArgs) -> Result<(), Failure> {
    let options = Options {
        quick: args.quick,
        verbose: true,
        ..Options::default()
    };
    let report = handover::run(&options).map_err(|error| {
        let message = error.to_string();
        match error {
            HandoverError::Network(network) => namespace_failure(&network),
            HandoverError::Program(source) => Failure::from_io(message, source.kind()),
            HandoverError::Simulation(_) => Failure::new(Code::Failure, message),
        }
    })?;
    if args.json {
        print_json(&report)
    } else {
        print_text(&report.table())
    }
}
