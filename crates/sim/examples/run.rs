//! Runs a scenario file: `cargo run --release -p manypath-sim --example run -- FILE [SEED] [CAPTURE] [spurious]`, prints the
//! report and how many segments a second were simulated. With `spurious`, the stacks' timers are called at every event.

use std::time::Instant;

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let file = arguments.next().ok_or("a scenario file, please")?;
    let seed = arguments.next().map(|seed| seed.parse()).transpose()?;
    let capture = arguments.next().map(std::fs::File::create).transpose()?;
    let options = RunOptions {
        spurious_timeouts: arguments.next().is_some(),
        seed,
        capture: capture.map(|file| Box::new(std::io::BufWriter::new(file)) as _),
    };
    let scenario = Scenario::parse(&std::fs::read_to_string(&file)?)?;
    let simulation = Simulation::new(scenario, options)?;
    let start = Instant::now();
    let report = simulation.finish();
    let took = start.elapsed().as_secs_f64();
    print!("{report}");
    for host in &report.hosts {
        println!("  {}: {:?}", host.name, host.counters);
    }
    println!(
        "{:.0} segments/s ({took:.3} s)",
        report.segments as f64 / took
    );
    if report.is_good() {
        Ok(())
    } else {
        Err("not as it should be".into())
    }
}
