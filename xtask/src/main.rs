//! Checks and chores of the workspace: `cargo xtask help` lists them.
#![forbid(unsafe_code)]

mod api;
mod arch;
mod check;
mod compliance;
mod hosts;
mod licences;
mod limits;
mod parts;
mod results;
mod source;
mod workspace;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask check [--only STEP]... [--skip STEP]... [--strict] [--list]
    Run every check of the workspace, or only the named ones.
  --strict  accepted for older callers: incomplete rows of RFC 8684 are an error always

cargo xtask compliance [--strict] [--missing] [--json]
    The rows of RFC 8684 and where they are obeyed and tested.
    --strict   exit with 1 if a core row has neither both nor an exception
    --missing  show only the rows that lack something

cargo xtask api [--write]
    The public interface of the library manypath.
    --write    freeze it in crates/manypath/api.txt, which `check` holds it against

cargo xtask hosts [--write]
    Run the tests of what hosts and paths do to connections, and show which situations hold with which attachment.
    --write    make docs/hosts.md of xtask/data/hosts.toml instead
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::from(2)
        }
    }
}

/// Runs one command line. `Ok(false)` means that a check failed, `Err` that it could not run.
fn run(args: &[String]) -> Result<bool, String> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "check" => check::run(&check::Options::parse(rest)?),
        "compliance" => compliance::run(&compliance::Options::parse(rest)?),
        "hosts" => hosts::run(rest),
        "api" => api::run(rest, &source::load()?),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(true)
        }
        other => Err(format!("no command '{other}'; try `cargo xtask help`")),
    }
}
