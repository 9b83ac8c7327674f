//! The handover without the command around it. The argument names the program that has the `forward` command.

use manypath_lab::handover::{Options, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options {
        program: std::env::args_os().nth(1).map(Into::into),
        quick: false,
        verbose: true,
    };
    print!("{}", run(&options)?.table());
    Ok(())
}
