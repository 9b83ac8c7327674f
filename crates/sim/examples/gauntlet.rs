//! Runs the gauntlet without ceremony: `cargo run --release -p manypath-sim --example gauntlet -- FIRST COUNT` prints one
//! line for each seed that fails, the table and the hash of all records; with `show`, the plan and the report of each seed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use manypath_sim::gauntlet::{self, Table};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |otherwise: u64| arguments.next().map_or(Ok(otherwise), |text| text.parse());
    let (first, count) = (number(0)?, number(1_000)?);
    let show = arguments.next().is_some();
    let (next, table) = (AtomicU64::new(first), Mutex::new(Table::default()));
    let hashes = Mutex::new(BTreeMap::new());
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let began = Instant::now();
                    let outcome = gauntlet::run(seed).expect("a plan can be built");
                    let took = began.elapsed().as_secs_f64();
                    table.lock().expect("nobody panics with it").add(&outcome);
                    let mut all = hashes.lock().expect("nobody panics with it");
                    all.insert(seed, outcome.twin.hash);
                    drop(all);
                    if show {
                        println!("{}", outcome.scenario.to_toml().unwrap_or_default());
                        println!("{:?}", outcome.twin.fault);
                        println!("{}", outcome.twin.into_report(false));
                    } else if let Some(fault) = &outcome.twin.fault {
                        println!("seed {seed} ({took:.2} s): {} {fault}", fault.kind());
                    } else if took > 1.0 {
                        println!("seed {seed} took {took:.2} s");
                    }
                }
            });
        }
    });
    println!("{}", table.into_inner()?);
    println!(
        "record hash {:016x}",
        gauntlet::hash_of(&hashes.into_inner()?)
    );
    println!("{:.1} s", start.elapsed().as_secs_f64());
    Ok(())
}
