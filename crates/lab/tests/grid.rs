//! The grid's tables in the repository, `tests/grid.csv` of bulk transfers and `tests/requests.csv` of requests, are what the
//! grid gives: checked on a few networks. The commands `manypath lab grid --out FOLDER` and `manypath lab grid --requests
//! --seeds 0..200 --out FOLDER` write all of them anew.

use std::collections::BTreeMap;

use manypath_lab::grid::{Load, Options, Variant, run};

/// What is written of bulk transfers.
fn bulk() -> BTreeMap<u64, f64> {
    ratios(include_str!("grid.csv"))
}

/// What is written of requests.
fn requests() -> BTreeMap<u64, f64> {
    ratios(include_str!("requests.csv"))
}

/// A table's ratios to TCP on the best path, by network.
fn ratios(text: &str) -> BTreeMap<u64, f64> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let column = heads.iter().position(|head| *head == "default_to_best");
    let column = column.expect("the default settings' column");
    let cells = |line: &str| {
        let cells: Vec<&str> = line.split(',').collect();
        let seed = cells[0].parse().expect("a number");
        (seed, cells[column].parse().expect("a ratio"))
    };
    lines.map(cells).collect()
}

#[test]
fn the_table_has_every_network_and_does_not_get_worse() {
    let table = bulk();
    assert!(table.len() >= 500 && table.keys().copied().eq(0..table.len() as u64));
    let slower = table.iter().filter(|(_, ratio)| **ratio < 0.95);
    let slower: Vec<u64> = slower.map(|(seed, _)| *seed).collect();
    assert!(
        slower.is_empty(),
        "slower than TCP on the best path: {slower:?}"
    );
    let mut ratios: Vec<f64> = table.values().copied().collect();
    ratios.sort_by(f64::total_cmp);
    assert!(ratios[ratios.len() / 2] >= 1.0);
}

#[test]
fn requests_are_seldom_slower() {
    let table = requests();
    assert!(table.len() >= 200 && table.keys().copied().eq(0..table.len() as u64));
    let slower = table.values().filter(|ratio| **ratio < 0.95).count();
    assert!(slower <= table.len() / 10, "{slower} of {}", table.len());
}

/// Networks of a table come out as it says; what the stack does in a second decides which packets are lost later.
fn still_as(table: &BTreeMap<u64, f64>, load: Load, seeds: std::ops::Range<u64>, least: f64) {
    let options = Options {
        seeds,
        load,
        variants: vec![Variant::default_settings()],
        jobs: None,
    };
    let report = run(&options, |_| {}).expect("the networks fit the simulator");
    for row in &report.rows {
        let (now, then) = (row.ratio(0), table[&row.network.seed]);
        assert!(now >= least, "network {}: {now}", row.network.seed);
        assert!(
            (now / then - 1.0).abs() < 0.1,
            "network {}: {now}, not {then}",
            row.network.seed
        );
    }
}

#[test]
fn a_few_networks_still_come_out_as_the_tables_say() {
    still_as(&bulk(), Load::Bulk, 0..5, 0.95);
    still_as(&requests(), Load::Requests, 0..8, 0.85);
}
