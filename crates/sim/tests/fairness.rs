//! Coupled congestion control where it matters: several subflows of one connection through the bottleneck of somebody
//! else's single TCP (RFC 6356 section 2, goal 2).

use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};

/// One connection of `subflows` subflows and one plain TCP through 20 Mbit/s.
fn shared_bottleneck(congestion: &str, subflows: u32, seed: u64) -> Report {
    let text = format!(
        r#"
title = "Shared bottleneck"

[[host]]
name = "multi"
interface = [{{ name = "eth0", addresses = ["10.1.0.2"] }}]

[[host]]
name = "single"
interface = [{{ name = "eth0", addresses = ["10.3.0.2"] }}]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "left"

[[router]]
name = "right"

[[link]]
name = "multi access"
ends = ["multi.eth0", "left"]
rate = "1Gbit/s"
delay = "1ms"

[[link]]
name = "single access"
ends = ["single.eth0", "left"]
rate = "1Gbit/s"
delay = "1ms"

[[link]]
name = "bottleneck"
ends = ["left", "right"]
rate = "20Mbit/s"
delay = "20ms"
buffer = "50ms"

[[link]]
name = "server access"
ends = ["right", "server.eth0"]
rate = "1Gbit/s"

[[app]]
name = "multi"
client = "multi"
server = "server"
upload = "40MB"
options = {{ congestion = "{congestion}" }}
client-options = {{ path-manager = "ndiffports:{subflows}" }}

[[app]]
name = "single"
client = "single"
server = "server"
upload = "40MB"
options = {{ congestion = "reno", plain-tcp = true }}
"#
    );
    let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    Simulation::new(scenario, options)
        .expect("the scenario makes sense")
        .finish()
}

/// Goodput of the connection over that of the plain TCP.
fn advantage(report: &Report) -> f64 {
    let goodput = |app: &str| {
        let connection = report.connections.iter().find(|c| c.app == app);
        connection
            .and_then(|c| c.goodput)
            .expect("both transfers end")
    };
    goodput("multi") / goodput("single")
}

#[test]
fn coupled_subflows_take_no_more_than_one_tcp() {
    // rfc8684:K1
    // Who meets a full buffer first is chance, so single runs spread; the mean over several is what is promised.
    const SEEDS: std::ops::RangeInclusive<u64> = 1..=6;
    for subflows in [2, 4] {
        let ratios: Vec<f64> = SEEDS
            .map(|seed| {
                let report = shared_bottleneck("lia", subflows, seed);
                assert!(report.is_good(), "{report}");
                advantage(&report)
            })
            .collect();
        let mean = ratios.iter().sum::<f64>() / ratios.len() as f64;
        assert!(
            (0.75..1.25).contains(&mean),
            "{subflows} subflows got {mean:.2} times a TCP: {ratios:.2?}"
        );
    }
}

#[test]
fn the_bottleneck_tells_uncoupled_subflows_apart() {
    // Without this the test above could pass on a network in which nobody competes.
    let report = shared_bottleneck("reno", 4, 1);
    assert!(advantage(&report) > 1.4, "{report}");
}
