//! Each middlebox, at the client's end and at the server's, with one path and with two: what TCP gets through,
//! Multipath TCP gets through in about the same time, byte for byte. What is left of Multipath TCP afterwards is no less
//! than the table says.
// rfc8684:M2

mod boxes_table;

use manypath_sim::middlebox::{BoxSpec, Way};
use manypath_sim::report::SubflowReport;
use manypath_sim::scenario::{EndSpec, PlacedBox, Scenario};
use manypath_sim::{Report, RunOptions, Simulation};

/// Two hosts, one or two links, of which the first has the boxes; both ends send and read. One path speaks IPv4; of two,
/// the one with the boxes speaks IPv6, and the hosts' cards segment.
fn scenario(paths: usize, boxes: &[PlacedBox], plain_tcp: bool) -> Scenario {
    let mut text = String::from("title = \"boxes\"\nlimit = \"120s\"\n");
    for (host, last) in [("client", 2), ("server", 1)] {
        text += &format!("[[host]]\nname = \"{host}\"\n");
        for path in 0..paths {
            let (address, card) = match (paths, path) {
                (1, _) => (format!("10.0.0.{last}"), ""),
                (_, 0) => (format!("fd00::{last}"), "offload = \"64KB\"\n"),
                _ => (format!("10.1.0.{last}"), "offload = \"64KB\"\n"),
            };
            text += &format!(
                "[[host.interface]]\nname = \"i{path}\"\naddresses = [\"{address}\"]\n{card}"
            );
        }
    }
    for path in 0..paths {
        text += &format!(
            "[[link]]\nname = \"l{path}\"\nends = [\"client.i{path}\", \"server.i{path}\"]\n\
             rate = \"10Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"100ms\"\n"
        );
    }
    text += &format!(
        "[[app]]\nname = \"both ways\"\nclient = \"client\"\nserver = \"server\"\n\
         upload = \"400KB\"\ndownload = \"400KB\"\noptions = {{ plain-tcp = {plain_tcp} }}\n"
    );
    let mut scenario = Scenario::parse(&text).expect("well-formed");
    scenario.links[0].boxes = boxes.to_vec();
    scenario
}

fn run(scenario: Scenario) -> Report {
    Simulation::new(scenario, RunOptions::default())
        .expect("it makes sense")
        .finish()
}

/// Boxes out of their tables, nearest to the end first; at the server's end they stand mirrored.
fn chain(tables: &str, at: EndSpec) -> Vec<PlacedBox> {
    #[derive(serde::Deserialize)]
    struct Chain {
        #[serde(rename = "box")]
        boxes: Vec<PlacedBox>,
    }
    let chain: Chain = toml::from_str(&format!("box = [{tables}]"))
        .unwrap_or_else(|error| panic!("{tables}: {error}"));
    let mut boxes = chain.boxes;
    for placed in &mut boxes {
        placed.at = at;
        if let (BoxSpec::Nat(nat), EndSpec::Second) = (&mut placed.spec, at) {
            nat.inside = Way::In;
        }
    }
    boxes
}

/// What is left of Multipath TCP.
/// The better, the larger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    /// Plain TCP, or the infinite mapping on the way there.
    Fell,
    /// A subflow less.
    Lost,
    /// All of it: every path had a subflow to the end.
    Kept,
}

impl Left {
    fn read(word: &str) -> Self {
        match word {
            "fell" => Self::Fell,
            "lost" => Self::Lost,
            "kept" => Self::Kept,
            other => panic!("{other} is no word of the table"),
        }
    }
}

fn left(report: &Report, paths: usize) -> Left {
    let connection = &report.connections[0];
    let ends = [Some(&connection.client), connection.server.as_ref()];
    let ends = || ends.into_iter().flatten();
    // Subflows that never carried anything are tries across the paths, where there is no way.
    let used = |s: &&SubflowReport| s.sent + s.received > 0;
    let subflows = || ends().flat_map(|end| &end.subflows).filter(used);
    let orderly = |end: &str| ["Finished", "ConnectionClosed"].contains(&end);
    if ends().any(|end| end.level.as_deref() != Some("Multipath")) {
        Left::Fell
    } else if connection.client.subflows_up < paths
        || !subflows().all(|s| s.end.as_deref().is_none_or(orderly))
    {
        Left::Lost
    } else {
        Left::Kept
    }
}

/// Runs a chain both ways over TCP and over Multipath TCP. An error says what was not as it should be.
fn outcome(tables: &str, at: EndSpec, paths: usize) -> Result<Left, String> {
    let boxes = chain(tables, at);
    let place = format!("{tables} at {at:?}, {paths} paths");
    let tcp = run(scenario(paths, &boxes, true));
    let ours = run(scenario(paths, &boxes, false));
    if let (true, false) = (tcp.is_good(), ours.is_good()) {
        return Err(format!("{place}: TCP delivers, and this is:\n{ours}"));
    }
    let over = |report: &Report| report.connections[0].over.unwrap_or(f64::INFINITY);
    if over(&ours) > 2.0 * over(&tcp) + 2.0 {
        let (tcp, ours) = (over(&tcp), over(&ours));
        return Err(format!("{place}: {ours:.3} s, TCP takes {tcp:.3} s"));
    }
    Ok(left(&ours, paths))
}

#[test]
fn what_tcp_gets_through_multipath_tcp_gets_through() {
    let mut wrong = Vec::new();
    for (tables, expected) in boxes_table::TABLE {
        let ends = [EndSpec::First, EndSpec::Second];
        let cases = ends.iter().flat_map(|at| [(*at, 1), (*at, 2)]);
        let mut words = expected.split(' ').map(Left::read);
        for (at, paths) in cases {
            let least = words.next().expect("four words in each row");
            match outcome(tables, at, paths) {
                Ok(left) if left >= least => {}
                Ok(left) => wrong.push(format!(
                    "{tables} at {at:?}, {paths} paths: {left:?}, expected {least:?} at least"
                )),
                Err(what) => wrong.push(what),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
