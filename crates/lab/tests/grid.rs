//! The grid's table in the repository, `tests/grid.csv`, is what the grid gives: checked on a few networks. The command
//! `manypath lab grid --out FOLDER` writes all of it anew.

use std::collections::BTreeMap;

use manypath_lab::grid::{Options, Variant, run};

/// The table's ratios to TCP on the best path, by network.
fn table() -> BTreeMap<u64, f64> {
    let text = include_str!("grid.csv");
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
    let table = table();
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
fn a_few_networks_still_come_out_as_the_table_says() {
    let table = table();
    let options = Options {
        seeds: 0..5,
        variants: vec![Variant::default_settings()],
        jobs: None,
    };
    let report = run(&options, |_| {}).expect("the networks fit the simulator");
    for row in &report.rows {
        let (now, then) = (row.ratio(0), table[&row.network.seed]);
        assert!(now >= 0.95, "network {}: {now}", row.network.seed);
        // What the stack does in a second decides which packets are lost later.
        assert!(
            (now / then - 1.0).abs() < 0.1,
            "network {}: {now}, not {then}",
            row.network.seed
        );
    }
}
