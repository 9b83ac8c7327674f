//! Streams that end one way: a server that has nothing to say ends its own at once, while the client's data waits in a long queue;
//! and clients that are deaf to the end of a stream in the way of Linux.

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

/// A download over two paths to a client that is busy when a lone DATA_FIN comes, or not.
fn deaf(busy: bool) -> Scenario {
    let text = format!(
        r#"
title = "A client that is deaf to an end that comes with old data"

[[host]]
name = "client"
interface = [{{ name = "a", addresses = ["10.1.0.2"] }}, {{ name = "b", addresses = ["10.2.0.2"] }}]
deaf-to-old-end = {busy}

[[host]]
name = "server"
interface = [{{ name = "eth0", addresses = ["10.9.0.1"] }}]

[[router]]
name = "internet"

[[link]]
name = "a"
ends = ["client.a", "internet"]
rate = "50Mbit/s"
delay = "10ms"

[[link]]
name = "b"
ends = ["client.b", "internet"]
rate = "50Mbit/s"
delay = "15ms"

[[link]]
name = "access"
ends = ["internet", "server.eth0"]
rate = "1Gbit/s"

[[app]]
name = "app"
client = "client"
server = "server"
download = "100KB"
options = {{ checksum = false }}
"#
    );
    Scenario::parse(&text).expect("the scenario is well-formed")
}

#[test]
fn the_end_of_a_stream_reaches_a_client_that_is_deaf_to_old_ends() {
    for busy in [false, true] {
        let simulation = Simulation::new(deaf(busy), RunOptions::default());
        let report = simulation.expect("the scenario makes sense").finish();
        assert!(report.is_good(), "{busy}: {report}");
    }
}
