//! What each scheduler does to a connection of two paths, in simulated time: by itself, without the mechanisms that keep slow paths
//! from holding up the window, and whether it gets along with them.

use manypath_sim::networks::Multihomed;
use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};
use manypath_stack::sched::Scheduler;

/// A path: Mbit/s, one-way delay and buffer in milliseconds, loss in percent, and what else its link says.
struct Line {
    mbit: u32,
    delay_ms: u32,
    buffer_ms: u32,
    loss: &'static str,
    more: &'static str,
}

const fn line(mbit: u32, delay_ms: u32, buffer_ms: u32) -> Line {
    Line {
        mbit,
        delay_ms,
        buffer_ms,
        loss: "0%",
        more: "",
    }
}

const FAST: Line = line(8, 10, 20);
const MEDIUM: Line = line(4, 30, 60);
const SLOW: Line = line(1, 150, 600);

/// A client with the paths `a` (the first subflow's) and `b` sends to a server, as the application's lines say.
fn run(scheduler: &str, paths: [&Line; 2], app: &str, seed: u64) -> Report {
    run_with("mechanisms = \"none\"", scheduler, paths, app, seed)
}

/// The same with the default mechanisms.
fn with_mechanisms(scheduler: &str, paths: [&Line; 2], app: &str, seed: u64) -> Report {
    run_with("", scheduler, paths, app, seed)
}

fn run_with(more: &str, scheduler: &str, [a, b]: [&Line; 2], app: &str, seed: u64) -> Report {
    let [a, b] = [a, b].map(|line| {
        format!(
            "rate = \"{}Mbit/s\"\ndelay = \"{}ms\"\nbuffer = \"{}ms\"\nloss = [\"{}\"]\n{}",
            line.mbit, line.delay_ms, line.buffer_ms, line.loss, line.more
        )
    });
    let network = Multihomed {
        head: &format!("title = \"{scheduler}\""),
        paths: &[("a", &a), ("b", &b)],
        access: "rate = \"1Gbit/s\"",
        rest: &format!(
            "[[app]]\nname = \"app\"\nclient = \"client\"\nserver = \"server\"\n{app}\n\
             [app.options]\nscheduler = \"{scheduler}\"\n{more}\n"
        ),
    };
    let scenario = Scenario::parse(&network.text()).expect("the scenario is well-formed");
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    let report = Simulation::new(scenario, options)
        .expect("the scenario makes sense")
        .finish();
    assert!(report.is_good(), "{report}");
    report
}

/// Seconds from start to end of the one connection.
fn took(report: &Report) -> f64 {
    let connection = &report.connections[0];
    connection.over.expect("it ended") - connection.started
}

/// New bytes that the client sent on the path with this local address, as a share of all.
fn share(report: &Report, address: &str) -> f64 {
    let subflows = &report.connections[0].client.subflows;
    let of = |on: bool| {
        let those = subflows.iter().filter(|s| s.tuple.contains(address) || !on);
        those.map(|s| s.sent).sum::<u64>() as f64
    };
    of(true) / of(false)
}

fn counter(report: &Report, host: &str, name: &str) -> u64 {
    let host = report.hosts.iter().find(|h| h.name == host);
    let counters = &host.expect("the host exists").counters;
    counters.iter().find(|(n, _)| *n == name).map_or(0, |c| c.1)
}

const A: &str = "10.1.0.2";
const B: &str = "10.2.0.2";

#[test]
fn round_robin_gives_alike_paths_the_same_and_slow_ones_their_turn() {
    let alike = run("round-robin", [&FAST, &FAST], "upload = \"8MB\"", 1);
    assert!((0.47..0.53).contains(&share(&alike, A)), "{alike}");
    // Requests that fit into either window: each path has its turn, where lowest-rtt uses the fast one alone.
    let app =
        "request = \"1KB\"\nresponse = \"100\"\nrounds = 200\nclient-options = { nodelay = true }";
    let turns = share(&run("round-robin", [&FAST, &SLOW], app, 1), B);
    let lowest = share(&run("lowest-rtt", [&FAST, &SLOW], app, 1), B);
    assert!(
        (0.4..0.6).contains(&turns) && lowest < 0.05,
        "{turns} {lowest}"
    );
}

#[test]
fn redundant_hides_losses_from_request_response_traffic() {
    let lossy = Line {
        loss: "5%",
        ..line(8, 20, 80)
    };
    let app = "request = \"1KB\"\nresponse = \"1KB\"\nrounds = 400\nclient-options = { nodelay = true }\n\
               server-options = { nodelay = true }";
    let seconds = |scheduler| {
        let runs = (1..=3).map(|seed| took(&run(scheduler, [&lossy, &lossy], app, seed)));
        runs.sum::<f64>() / 3.0
    };
    let (copied, alone) = (seconds("redundant"), seconds("lowest-rtt"));
    assert!(
        copied < 0.8 * alone,
        "{copied:.2} s, without copies {alone:.2} s"
    );
    let report = run("redundant", [&lossy, &lossy], app, 1);
    let copies = counter(&report, "client", "copied_bytes");
    assert!(
        copies <= 400 * 1_000,
        "each byte at most once more: {report}"
    );
    assert!(copies > 300 * 1_000, "{report}");
}

#[test]
fn redundant_does_not_slow_down_a_bulk_transfer() {
    // Two paths of their own, and two through one link: there every copy would take the place of new data.
    let wide = line(1_000, 1, 10);
    for (name, paths) in [("apart", [&FAST, &SLOW]), ("alike", [&wide, &wide])] {
        let seconds = |scheduler| took(&run(scheduler, paths, "upload = \"12MB\"", 1));
        let (copied, alone) = (seconds("redundant"), seconds("lowest-rtt"));
        assert!(
            copied <= 1.03 * alone,
            "{name}: {copied:.2} s, without copies {alone:.2} s"
        );
    }
}

#[test]
fn blest_keeps_a_slow_path_from_filling_a_small_window() {
    // TCP on the fast path alone takes 4.25 s.
    for window in ["40KB", "100KB", "300KB"] {
        let app = format!("upload = \"4MB\"\nserver-options = {{ recv-buffer = \"{window}\" }}");
        let blest = run("blest", [&FAST, &SLOW], &app, 1);
        let lowest = took(&run("lowest-rtt", [&FAST, &SLOW], &app, 1));
        assert!(took(&blest) < 4.5 && lowest > 6.0, "{lowest} {blest}");
        assert!(counter(&blest, "client", "scheduler_waited") > 0, "{blest}");
    }
    // With a window for both paths it uses both.
    let wide = run("blest", [&FAST, &MEDIUM], "upload = \"12MB\"", 1);
    assert!(share(&wide, B) > 0.2, "{wide}");
}

#[test]
fn ecf_leaves_the_end_of_a_transfer_to_the_fast_path() {
    // Each piece is larger than the fast path's window, and what goes to the slow path comes last.
    let app = "request = \"120KB\"\nresponse = \"100\"\nrounds = 20";
    let seconds = |scheduler| took(&run(scheduler, [&FAST, &SLOW], app, 1));
    let (ecf, lowest) = (seconds("ecf"), seconds("lowest-rtt"));
    assert!(
        ecf < 0.65 * lowest,
        "{ecf:.2} s, with lowest-rtt {lowest:.2} s"
    );
    // A long transfer uses both paths.
    let long = run("ecf", [&FAST, &MEDIUM], "upload = \"12MB\"", 1);
    assert!(share(&long, B) > 0.2, "{long}");
}

#[test]
fn backup_uses_the_second_path_only_while_the_first_is_unresponsive() {
    let whole = run("backup", [&SLOW, &FAST], "upload = \"1MB\"", 1);
    assert!(share(&whole, A) > 0.99, "{whole}");
    let broken = Line {
        more: "outages = [[\"2s\", \"6s\"]]",
        ..FAST
    };
    let report = run("backup", [&broken, &FAST], "upload = \"12MB\"", 1);
    // Twelve seconds of 8 Mbit/s, four of which the first path is silent.
    assert!(took(&report) < 14.5, "{report}");
    assert!((0.2..0.5).contains(&share(&report, B)), "{report}");
}

#[test]
fn every_scheduler_ends_with_the_default_mechanisms_whichever_path_comes_first() {
    for &scheduler in Scheduler::ALL {
        for paths in [[&SLOW, &FAST], [&FAST, &SLOW], [&FAST, &FAST]] {
            let name = scheduler.name();
            let report = with_mechanisms(name, paths, "upload = \"400KB\"", 1);
            // The slow path alone takes 3.4 s, and has a queue of 0.6.
            assert!(took(&report) < 6.0, "{report}");
            with_mechanisms(
                name,
                paths,
                "request = \"100\"\nresponse = \"20KB\"\nrounds = 5",
                1,
            );
        }
    }
}

#[test]
fn backup_keeps_to_one_path_whatever_the_mechanisms_see() {
    let report = with_mechanisms("backup", [&SLOW, &FAST], "upload = \"1MB\"", 1);
    assert!(share(&report, A) > 0.99, "{report}");
}

#[test]
fn a_scheduler_that_is_named_decides_whatever_the_mechanisms() {
    // Bursts that fit into either window: where nothing is left to the quicker path, each has its turn.
    let app = "upload = \"2MB\"\nburst = \"20KB\"\npause = \"100ms\"";
    let second = |scheduler| share(&with_mechanisms(scheduler, [&FAST, &MEDIUM], app, 1), B);
    let (turns, lowest) = (second("round-robin"), second("lowest-rtt"));
    assert!((0.4..0.6).contains(&turns), "{turns}");
    assert!(lowest < 0.2, "{lowest}");
}
