//! How many segments a second the simulator carries on one core, oracles on: a download over two fast paths, one subflow each, with
//! network cards that split and merge, and with cards that do nothing.
#![expect(
    missing_docs,
    reason = "criterion's macro makes an undocumented function"
)]

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};

/// Two paths of 10 Gbit/s; `card` is what each interface can do.
fn scenario(card: &str) -> String {
    let mut text = String::from("title = \"speed\"\n");
    for (host, last) in [("client", 2), ("server", 1)] {
        text += &format!("[[host]]\nname = \"{host}\"\n");
        for path in [1, 2] {
            text += &format!(
                "[[host.interface]]\nname = \"i{path}\"\naddresses = [\"10.{path}.0.{last}\"]\n{card}\n"
            );
        }
    }
    for path in [1, 2] {
        text += &format!(
            "[[link]]\nname = \"l{path}\"\nends = [\"client.i{path}\", \"server.i{path}\"]\nrate = \"10Gbit/s\"\ndelay = \"100us\"\nbuffer = \"400KB\"\n"
        );
    }
    text + "[[app]]\nname = \"download\"\nclient = \"client\"\nserver = \"server\"\ndownload = \"100MB\"\noptions = { recv-buffer = \"1MB\", send-buffer = \"1MB\", max-subflows = 2 }\n"
}

fn run(text: &str) -> Report {
    let scenario = Scenario::parse(text).expect("made above");
    let simulation = Simulation::new(scenario, RunOptions::default()).expect("made above");
    let report = simulation.finish();
    assert!(report.is_good(), "{report}");
    report
}

fn speed(c: &mut Criterion) {
    let mut group = c.benchmark_group("segments");
    group.sample_size(10);
    let cards = [
        ("with offload", "offload = \"64KB\"\ncoalesce = \"50us\""),
        ("without offload", ""),
    ];
    for (name, card) in cards {
        let text = scenario(card);
        group.throughput(Throughput::Elements(run(&text).segments));
        group.bench_function(name, |b| b.iter(|| run(black_box(&text))));
    }
    group.finish();
}

criterion_group!(benches, speed);
criterion_main!(benches);
