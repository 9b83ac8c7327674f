//! The receive algorithms are told apart by their cost alone.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};

#[test]
fn every_receive_algorithm_gives_the_same_packets() {
    let hashes = ["list", "tree", "shortcuts", "all-shortcuts"].map(|algorithm| {
        let text = format!(
            r#"
title = "Receive algorithms"

[[host]]
name = "client"
interface = [{{ name = "eth0", addresses = ["10.1.0.2"] }}]

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[link]]
name = "link"
ends = ["client.eth0", "server.eth0"]
rate = "20Mbit/s"
delay = "20ms"
buffer = "40ms"
loss = ["1%"]

[[app]]
name = "app"
client = "client"
server = "server"
download = "8MB"
options = {{ receive = "{algorithm}" }}
client-options = {{ path-manager = "ndiffports:8" }}
"#
        );
        let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
        let report = Simulation::new(scenario, RunOptions::default())
            .expect("the scenario makes sense")
            .finish();
        assert!(report.is_good(), "{report}");
        report.hash
    });
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
}
