//! A server that has nothing to say ends its stream at once; the client's data waits in a long queue.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::api::SubflowPhase;
use manypath_tcp::time::Instant;

const TEXT: &str = r#"
title = "The first of two paths is slow"

[[host]]
name = "client"
interface = [{ name = "slow", addresses = ["10.1.0.2"] }, { name = "far", addresses = ["10.2.0.2"] }]

[[host]]
name = "server"
interface = [{ name = "eth0", addresses = ["10.9.0.1"] }]

[[router]]
name = "internet"

[[link]]
name = "slow"
ends = ["client.slow", "internet"]
rate = "18kbit/s"
delay = "10ms"
buffer = "15KB"

[[link]]
name = "far"
ends = ["client.far", "internet"]
rate = "400kbit/s"
delay = "550ms"
buffer = "40KB"

[[link]]
name = "access"
ends = ["internet", "server.eth0"]
rate = "1Gbit/s"

[[app]]
name = "app"
client = "client"
server = "server"
upload = "10MB"
"#;

#[test]
fn a_data_fin_that_waits_behind_the_peers_data_costs_no_subflow() {
    let scenario = Scenario::parse(TEXT).expect("the scenario is well-formed");
    let options = RunOptions::default();
    let mut simulation = Simulation::new(scenario, options).expect("the scenario makes sense");
    simulation.run_until(Instant::from_secs(20));
    let client = &simulation.hosts()[0];
    let endpoint = client.endpoints().first().expect("it is connected");
    let info = client.stack.info(endpoint.conn).expect("it goes on");
    let phases: Vec<SubflowPhase> = info.subflows.iter().map(|sf| sf.phase).collect();
    assert_eq!(phases, [SubflowPhase::Established; 2]);
}
