//! `manypath completions`.

use std::io::Write;

use clap::{Args, CommandFactory};

use crate::args::Cli;
use crate::exit::Failure;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn run(args: CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "manypath", &mut script);
    std::io::stdout()
        .write_all(&script)
        .map_err(|e| Failure::stdout(&e))
}
