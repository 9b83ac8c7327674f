//! Streams that end one way: a server that has nothing to say ends its own at once, while the client's data waits in a long queue;
//! and clients that are deaf to the end of a stream in the way of Linux.

use manypath_sim::networks::Multihomed;
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::api::SubflowPhase;
use manypath_tcp::time::Instant;

const SLOW_AND_FAR: Multihomed<'_> = Multihomed {
    head: "title = \"The first of two paths is slow\"",
    paths: &[
        (
            "slow",
            "rate = \"18kbit/s\"\ndelay = \"10ms\"\nbuffer = \"15KB\"",
        ),
        (
            "far",
            "rate = \"400kbit/s\"\ndelay = \"550ms\"\nbuffer = \"40KB\"",
        ),
    ],
    access: "rate = \"1Gbit/s\"",
    rest: "[[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\nupload = \"10MB\"",
};

#[test]
fn an_unacknowledged_data_fin_behind_the_peers_data_resets_no_subflow() {
    let scenario = Scenario::parse(&SLOW_AND_FAR.text()).expect("the scenario is well-formed");
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
    let network = Multihomed {
        head: "title = \"A client that is deaf to an end that comes with old data\"",
        paths: &[
            ("a", "rate = \"50Mbit/s\"\ndelay = \"10ms\""),
            ("b", "rate = \"50Mbit/s\"\ndelay = \"15ms\""),
        ],
        access: "rate = \"1Gbit/s\"",
        rest: "[[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\ndownload = \"100KB\"\n\
               options = { checksum = false }",
    };
    let client = "name = \"client\"\n";
    let text = network
        .text()
        .replacen(client, &format!("{client}deaf-to-old-end = {busy}\n"), 1);
    Scenario::parse(&text).expect("the scenario is well-formed")
}

#[test]
fn a_data_fin_reaches_a_client_that_ignores_it_on_old_data() {
    for busy in [false, true] {
        let simulation = Simulation::new(deaf(busy), RunOptions::default());
        let report = simulation.expect("the scenario makes sense").finish();
        assert!(report.is_good(), "{busy}: {report}");
    }
}
