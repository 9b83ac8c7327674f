//! Limits by the addresses of a subflow, in simulated time: a server with one interface tells the paths of its clients apart by them.

use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_stack::{ClassId, Prefix, RateLimit, Route, Stack};
use manypath_tcp::time::{Duration, Instant};

const SECOND: Duration = Duration::from_secs(1);
const CLASS: ClassId = ClassId(5);

/// Downloads over two paths of 100 Mbit/s and 10 ms that never end.
fn downloads(connections: u32) -> Simulation {
    let text = format!(
        "title = \"Routes\"\nlimit = \"300s\"\n\
         [[host]]\nname = \"client\"\n\
         interface = [{{ name = \"a\", addresses = [\"10.0.1.1\"] }}, {{ name = \"b\", addresses = [\"10.0.2.1\"] }}]\n\
         [[host]]\nname = \"server\"\ninterface = [{{ name = \"eth0\", addresses = [\"10.0.0.1\"], offload = \"64KB\" }}]\n\
         [[router]]\nname = \"internet\"\n\
         [[link]]\nname = \"a\"\nends = [\"client.a\", \"internet\"]\nrate = \"100Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"\n\
         [[link]]\nname = \"b\"\nends = [\"client.b\", \"internet\"]\nrate = \"100Mbit/s\"\ndelay = \"10ms\"\nbuffer = \"80ms\"\n\
         [[link]]\nname = \"access\"\nends = [\"internet\", \"server.eth0\"]\nrate = \"1Gbit/s\"\n\
         [[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\ndownload = \"2GB\"\nconnections = {connections}\n"
    );
    let scenario = Scenario::parse(&text).expect("the scenario is well-formed");
    let simulation = Simulation::new(scenario, RunOptions::default());
    let mut simulation = simulation.expect("the scenario makes sense");
    simulation.run_until(Instant::ZERO + Duration::from_millis(1));
    simulation
}

/// Runs for so long, and gives the bits that each path has carried to the client.
fn bits_in(simulation: &mut Simulation, time: Duration) -> [f64; 2] {
    let carried = |simulation: &Simulation| {
        let links = simulation.report().links;
        ["a", "b"].map(|name| {
            let link = links.iter().find(|link| link.name == name);
            link.expect("a link").back.delivered_bytes
        })
    };
    let before = carried(simulation);
    let until = simulation.now() + time;
    simulation.run_until(until);
    let after = carried(simulation);
    [0, 1].map(|i| (after[i] - before[i]) as f64 * 8.0)
}

fn server<R>(simulation: &mut Simulation, f: impl FnOnce(&mut Stack, Instant) -> R) -> R {
    simulation.act("server", f).expect("the server")
}

fn limit(simulation: &mut Simulation, rate: Option<u64>) {
    let limit = rate.map(|rate| RateLimit::new(rate, 1500));
    server(simulation, |stack, now| {
        stack.limit_class(now, CLASS, limit)
    });
}

fn to_the_second_path() -> Vec<Route> {
    let remote = Prefix::new("10.0.2.0".parse().expect("an address"), 24);
    vec![Route {
        local: None,
        remote: Some(remote),
        class: CLASS,
    }]
}

#[test]
fn a_path_is_limited_by_its_remote_addresses_and_the_other_one_is_full() {
    for connections in [1, 8, 64] {
        let mut run = downloads(connections);
        limit(&mut run, Some(10_000_000));
        server(&mut run, |stack, now| {
            stack.route(now, to_the_second_path())
        });
        let _ = bits_in(&mut run, SECOND);
        let _ = bits_in(&mut run, SECOND);
        let [first, second] = bits_in(&mut run, Duration::from_secs(10));
        assert!(second > 95e6 && second < 102e6, "{connections}: {second}");
        assert!(first > 900e6, "{connections}: {first}");
        limit(&mut run, None);
        let _ = bits_in(&mut run, SECOND);
        let [_, second] = bits_in(&mut run, SECOND);
        assert!(second > 60e6, "{connections}: {second} without a limit");
    }
}

#[test]
fn routes_of_one_connection_are_its_own() {
    let mut run = downloads(2);
    limit(&mut run, Some(4_000_000));
    let _ = bits_in(&mut run, Duration::from_millis(200));
    server(&mut run, |stack, now| {
        let first = stack.conns()[0];
        let done = stack.route_connection(now, first, to_the_second_path());
        done.expect("it is there");
    });
    let _ = bits_in(&mut run, SECOND);
    let before = server(&mut run, |stack, _| stack.class_limit(CLASS));
    let [first, second] = bits_in(&mut run, Duration::from_secs(4));
    // The other connection has what is left of the second path.
    assert!(first > 300e6 && second > 300e6, "{first} {second}");
    let after = server(&mut run, |stack, _| stack.class_limit(CLASS));
    let [before, after] = [before, after].map(|state| state.expect("a limit"));
    let sent = (after.sent - before.sent) as f64 * 8.0;
    assert!(sent > 15e6 && sent < 16.4e6, "{sent}");
    assert!(after.held.elsewhere > before.held.elsewhere);
}
