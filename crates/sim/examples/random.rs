//! Runs random networks: `cargo run --release -p manypath-sim --example random -- FIRST COUNT [show]` prints what went
//! wrong; with `show`, the whole report of each seed.

use std::time::Instant;

use manypath_sim::{RunOptions, random};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let (first, count) = (number(0)?, number(1_000)?);
    if arguments.next().is_some() {
        for seed in first..first + count {
            println!("{}", random::text(seed));
            println!("{}", random::run(seed, RunOptions::default())?);
        }
        return Ok(());
    }
    let start = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let summary = random::run_many(first..first + count, threads);
    let took = start.elapsed().as_secs_f64();
    for failure in &summary.failures {
        let lines = failure.what.lines().filter(|line| {
            line.contains("VIOLATION")
                || line.contains("EXPECTED")
                || line.contains("panic")
                || line.contains("second run")
        });
        println!("seed {}", failure.seed);
        for line in lines.take(3) {
            println!("  {line}");
        }
    }
    println!(
        "{} of {} seeds failed; {} segments in {took:.1} s, {:.0} a second",
        summary.failures.len(),
        summary.runs,
        summary.segments,
        summary.segments as f64 / took
    );
    if summary.failures.is_empty() {
        Ok(())
    } else {
        Err("not all runs were good".into())
    }
}
