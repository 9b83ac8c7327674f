//! The `manypath` command.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod confine;
mod ctl_args;
mod demo_args;
mod exit;
mod figure_args;
mod limit_args;
mod lines;
mod live;
mod memory;
mod proxy_args;
mod runtime;
mod setup;
mod signals;
mod words;

use std::process::ExitCode;

use clap::Parser;
pub(crate) use manypath_proxy::units;

use args::{Cli, Command};
use exit::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.command.puts_back() {
        signals::catch(cli.command.reloads());
    }
    runtime::start_log(cli.verbose, cli.quiet);
    let code = match dispatch(cli.command, cli.quiet) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.tell();
            failure.exit_code()
        }
    };
    lines::flush();
    code
}

fn dispatch(command: Command, quiet: bool) -> Result<(), Failure> {
    match command {
        Command::Forward(args) => commands::forward::run(args),
        Command::Proxy(args) => commands::proxy::run(args),
        Command::Check(args) => commands::proxy::run_check(&args),
        Command::Reload(args) => commands::proxy::run_reload(&args),
        Command::Password(args) => commands::password::run(&args),
        Command::Undo(_) => commands::undo::run(),
        Command::Perf(args) => commands::perf::run(args),
        Command::Status(args) => commands::status::run(&args),
        Command::Ctl(args) => commands::ctl::run(args),
        Command::Demo(args) => commands::demo::run(args),
        Command::Lab(args) => commands::lab::run(args, quiet),
        Command::Completions(args) => commands::completions::run(args),
    }
}
