//! The benchmark without the command around it. Arguments: `kernel`, `sends`, `receives` and `ours` choose arms, a number is the
//! count of rounds, and a path names the program that has the `perf` command.

use manypath_lab::bench::{Arm, Options, run};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "kernel" => options.arms.extend([Arm::KernelTcp, Arm::KernelMptcp]),
            "sends" => options.arms.push(Arm::OursSends),
            "receives" => options.arms.push(Arm::OursReceives),
            "ours" => options.arms.push(Arm::Ours),
            other => match other.parse() {
                Ok(rounds) => options.rounds = rounds,
                Err(_) => options.program = Some(other.into()),
            },
        }
    }
    print!("{}", run(&options)?.table());
    Ok(())
}
