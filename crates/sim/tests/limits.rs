//! Limits of what leaves by a path, in simulated time.

use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};

/// Seconds of each transfer.
const SECONDS: f64 = 10.0;

/// An upload over two paths of 10 Mbit/s, of which the first may send no more than `limit`; `card` is what else its interface has.
fn upload(limit: &str, card: &str, megabytes: f64) -> Report {
    let text = format!(
        "title = \"A limit\"\n\
         [[host]]\nname = \"client\"\n\
         interface = [{{ name = \"a\", addresses = [\"10.0.1.1\"], limit = \"{limit}\"{card} }}, \
         {{ name = \"b\", addresses = [\"10.0.2.1\"] }}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.0.0.1\"] }}]\n\
         [[router]]\nname = \"internet\"\n\
         [[link]]\nname = \"a\"\nends = [\"client.a\", \"internet\"]\nrate = \"10Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"\n\
         [[link]]\nname = \"b\"\nends = [\"client.b\", \"internet\"]\nrate = \"10Mbit/s\"\ndelay = \"20ms\"\nbuffer = \"80ms\"\n\
         [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"1Gbit/s\"\n\
         [[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\nupload = \"{megabytes}MB\"\n"
    );
    let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
    let report = Simulation::new(scenario, RunOptions::default())
        .expect("the scenario makes sense")
        .finish();
    assert!(report.is_good(), "{report}");
    report
}

/// Seconds that the transfer took, and the bits that the first path carried away from the client.
fn carried(report: &Report) -> (f64, f64) {
    let connection = &report.connections[0];
    let seconds = connection.over.expect("it ended") - connection.started;
    let link = report.links.iter().find(|link| link.name == "a");
    let bytes = link.expect("the first path").out.delivered_bytes;
    (seconds, bytes as f64 * 8.0)
}

/// The limit holds from the first byte on, is used, and the other path is as full as without it.
fn holds_and_adds_up(limit: &str, rate: f64, card: &str) {
    let payload = 0.94 * (rate + 10e6);
    let (seconds, bits) = carried(&upload(limit, card, payload * SECONDS / 8e6));
    let burst = (rate * 0.02).max(3.0 * 1500.0 * 8.0);
    assert!(bits <= rate * seconds + burst, "{bits} in {seconds} s");
    assert!(bits >= 0.9 * rate * seconds, "{bits} in {seconds} s");
    assert!(seconds < SECONDS / 0.95, "{seconds} s");
}

#[test]
fn a_limited_path_and_a_free_one_carry_the_limit_and_the_rate() {
    holds_and_adds_up("3Mbit/s", 3e6, "");
}

#[test]
fn bursts_of_the_card_do_not_exceed_the_limit() {
    holds_and_adds_up("3Mbit/s", 3e6, ", offload = \"64KB\"");
}

#[test]
fn a_limit_of_a_few_packets_a_second_holds_and_stalls_nothing() {
    let (seconds, bits) = carried(&upload("50kbit/s", "", 10.0));
    assert!(
        bits <= 50e3 * seconds + 3.0 * 1500.0 * 8.0,
        "{bits} in {seconds} s"
    );
    // The other path alone: 8.7 s at 9.3 Mbit/s.
    assert!(seconds < 9.2, "{seconds} s");
}

#[test]
fn a_limit_above_the_rate_changes_nothing() {
    let (seconds, bits) = carried(&upload("100Mbit/s", "", 20.0));
    assert!(
        seconds < 9.3 && bits > 0.9 * 10e6 * seconds * 0.9,
        "{bits} in {seconds} s"
    );
}
