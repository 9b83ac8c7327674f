//! The grid's tables in the repository, `tests/grid.csv` of bulk transfers and `tests/requests.csv` of requests, are what the
//! grid gives: checked on a few networks. The commands `manypath lab grid --out FOLDER` and `manypath lab grid --requests
//! --seeds 0..200 --out FOLDER` write all of them anew. `tests/grid-all.csv`, by which the default settings were chosen, is
//! `manypath lab grid --all --seeds 0..24 --out FOLDER`.

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

/// A table's ratios to TCP on the best path with the default settings, by network.
fn ratios(text: &str) -> BTreeMap<u64, f64> {
    ratios_of(text, "default")
}

/// A table's ratios to TCP on the best path with some settings, by network.
fn ratios_of(text: &str, settings: &str) -> BTreeMap<u64, f64> {
    let mut lines = text.lines();
    let heads: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let name = format!("{settings}_to_best");
    let column = heads.iter().position(|head| *head == name);
    let column = column.expect("the settings' column");
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

/// Decision 11 says of every scheduler, controller and mechanism what the table says, and that none does better at worst.
#[test]
fn the_defaults_are_chosen_by_what_was_measured() {
    let text = include_str!("grid-all.csv");
    let decision = include_str!("../../../docs/decisions/0011-defaults-by-measurement.md");
    let rows = decision.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split('|').collect()).skip(1).collect();
    let heads = text.lines().next().expect("a head").split(',');
    let settings = heads.filter(|head| head.ends_with("_whole_to_best"));
    assert_eq!(rows.len(), settings.count(), "a row for each settings");
    let worst = ratios(text).into_values().fold(9.0, f64::min);
    for row in rows {
        let name = row[1].trim().trim_matches('`').replace(',', "+");
        let name = if name == "default settings" {
            "default"
        } else {
            &name
        };
        let mut ratios: Vec<f64> = ratios_of(text, name).into_values().collect();
        ratios.sort_by(f64::total_cmp);
        let below = ratios.iter().filter(|ratio| **ratio < 0.95).count();
        let number = |cell: &str| -> f64 { cell.trim().parse().expect("a number") };
        assert!((number(row[2]) - ratios[0]).abs() < 0.001, "{name}");
        assert!(
            (number(row[3]) - ratios[ratios.len() / 2]).abs() < 0.001,
            "{name}"
        );
        assert!((number(row[4]) - below as f64).abs() < 0.5, "{name}");
        assert!(ratios[0] < worst + 0.002, "{name} is better");
    }
}

#[test]
fn requests_are_seldom_slower() {
    let table = requests();
    assert!(table.len() >= 200 && table.keys().copied().eq(0..table.len() as u64));
    let slower = table.values().filter(|ratio| **ratio < 0.95).count();
    assert!(slower <= table.len() / 40, "{slower} of {}", table.len());
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
