//! Random networks, all oracles on. `MANYPATH_SEEDS=FIRST..END` runs others than the usual two hundred.

use manypath_sim::random;

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("MANYPATH_SEEDS").unwrap_or_else(|_| "0..200".into());
    let (first, end) = text.split_once("..").expect("MANYPATH_SEEDS is FIRST..END");
    first.parse().expect("a number")..end.parse().expect("a number")
}

// Among much else this holds, on every packet of every run: rfc8684:D5, W1, W2, W7, F1.
#[test]
fn random_networks_break_no_rule_and_every_run_ends() {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let summary = random::run_many(seeds(), threads);
    let texts: Vec<String> = summary
        .failures
        .iter()
        .take(3)
        .map(ToString::to_string)
        .collect();
    assert!(
        summary.failures.is_empty(),
        "{} of {} seeds failed\n{}",
        summary.failures.len(),
        summary.runs,
        texts.join("\n")
    );
}
