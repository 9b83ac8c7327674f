//! What scenarios can say, and what of it is refused.

use manypath_sim::endpoint::Phase;
use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};
use manypath_tcp::time::Instant;

fn run(text: &str, options: RunOptions) -> Report {
    let scenario = Scenario::parse(text).expect("shipped scenarios are well-formed");
    manypath_sim::replay(scenario, options).expect("shipped scenarios make sense")
}

/// A subflow that is silent for the first time after a pause is not one that the path has forgotten.
#[test]
fn an_unresponsive_subflow_after_a_pause_is_not_taken_for_an_expired_nat_binding() {
    let report = run(
        include_str!("../../../scenarios/regressions/unresponsive/cut-after-a-pause.toml"),
        RunOptions::default(),
    );
    assert!(!report.to_string().contains("Replaced"), "{report}");
}

/// Ten connections, two at one time: the next begins when one has ended, and never before.
#[test]
fn connections_wait_for_the_end_of_others() {
    let text = |parallel: &str| {
        format!(
            "title = \"in turn\"\n\
             [[host]]\nname = \"c\"\ninterface = [{{ name = \"e\", addresses = [\"10.0.0.1\"] }}]\n\
             [[host]]\nname = \"s\"\ninterface = [{{ name = \"e\", addresses = [\"10.0.0.2\"] }}]\n\
             [[link]]\nname = \"l\"\nends = [\"c.e\", \"s.e\"]\nrate = \"8Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"100ms\"\n\
             [[app]]\nname = \"a\"\nclient = \"c\"\nserver = \"s\"\nconnections = 10\nspacing = \"1ms\"\n{parallel}\n\
             request = \"100B\"\nresponse = \"20KB\"\nrounds = 1\noptions = {{ plain-tcp = true }}\n"
        )
    };
    let most_at_once = |text: &str| {
        let scenario = Scenario::parse(text).expect("well-formed");
        let mut sim = Simulation::new(scenario, RunOptions::default()).expect("it makes sense");
        let mut most = 0;
        for millis in 1..2_000 {
            sim.run_until(Instant::from_millis(millis));
            let ends = sim.hosts()[0].endpoints().iter();
            most = most.max(ends.filter(|end| end.phase != Phase::Over).count());
        }
        assert_eq!(sim.hosts()[0].endpoints().len(), 10);
        most
    };
    assert_eq!(most_at_once(&text("parallel = 2")), 2);
    assert_eq!(most_at_once(&text("")), 10);
}

/// What parses and still cannot be meant is refused before anything runs.
#[test]
fn a_scenario_without_sense_is_refused() {
    let good = "title = \"small\"\n\
         [[host]]\nname = \"c\"\ninterface = [{ name = \"e\", addresses = [\"10.0.0.1\"] }]\n\
         [[host]]\nname = \"s\"\ninterface = [{ name = \"e\", addresses = [\"10.0.0.2\"] }]\n\
         [[link]]\nname = \"l\"\nends = [\"c.e\", \"s.e\"]\nrate = \"8Mbit/s\"\nbuffer = \"100ms\"\noutages = [[\"5s\", \"10s\"]]\n\
         [[app]]\nname = \"a\"\nclient = \"c\"\nserver = \"s\"\nupload = \"1KB\"\noptions = { recv-buffer = \"1MB\" }\n";
    let built = |text: &str| {
        let scenario = Scenario::parse(text).expect("well-formed");
        Simulation::new(scenario, RunOptions::default())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    assert_eq!(built(good), Ok(()));
    for (from, to, what) in [
        (
            "[\"5s\", \"10s\"]",
            "[\"10s\", \"5s\"]",
            "ends before it begins",
        ),
        ("10.0.0.2", "10.0.0.1", "address 10.0.0.1"),
        ("server = \"s\"", "server = \"c\"", "same host"),
        ("\"1MB\"", "\"0B\"", "receive buffer"),
        ("\"1MB\"", "\"1073741825B\"", "receive buffer"),
    ] {
        let error = built(&good.replace(from, to)).expect_err(to);
        assert!(error.contains(what), "{to}: {error}");
    }
}
