//! The gauntlet: where plain TCP gets through, Multipath TCP gets through. `MANYPATH_SEEDS=FIRST..END` runs others than the
//! usual three hundred; `manypath lab gauntlet` runs thousands and cuts down what fails.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use manypath_sim::gauntlet::{self, Table};

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("MANYPATH_SEEDS").unwrap_or_else(|_| "0..300".into());
    let (first, end) = text.split_once("..").expect("MANYPATH_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

#[test]
fn where_tcp_gets_through_multipath_tcp_gets_through() {
    let seeds = seeds();
    let next = AtomicU64::new(seeds.start);
    let found = Mutex::new((Table::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let outcome = gauntlet::run(seed).expect("a plan can be built");
                    let mut found = found.lock().expect("nobody panics with it");
                    found.0.add(&outcome);
                    if let Some(fault) = &outcome.twin.fault {
                        found.1.push(format!("seed {seed}: {fault}"));
                    }
                }
            });
        }
    });
    let (table, faults) = found.into_inner().expect("nobody panics with it");
    assert!(faults.is_empty(), "{}\n{table}", faults.join("\n"));
    // The gauntlet would be worth nothing if its networks were too kind, or too cruel for anybody.
    let met = table.boxes.len();
    assert!(met >= 10, "only {met} kinds of boxes were met\n{table}");
    let runs = table.all.met();
    assert!(
        table.all.kept * 2 > runs && table.all.fell_back * 20 > runs,
        "{table}"
    );
}
