//! Every attack of the list: memory and work stay within the bounds that the list names, a counter tells of it, and the
//! honest clients beside it keep nine tenths of their goodput.

use manypath_sim::attack::acks::{Liar, Lie};
use manypath_sim::attack::bench::{Setup, run};
use manypath_sim::attack::cases::{Case, all, peace};
use manypath_sim::attack::memory::{Habit, Hoard};

/// Runs the attacks of which `wanted` says so.
fn hold(wanted: impl Fn(&Case) -> bool) {
    let setup = Setup::default();
    let without = peace(&setup);
    // 30 Mbit/s for 10 s, less headers and slow start; and a short connection takes three round trips.
    assert!(without.honest.bulk > 30_000_000, "{without:?}");
    assert!(without.honest.short > 100, "{without:?}");
    assert_eq!(without.honest.failures, 0, "{without:?}");
    let mut complaints = Vec::new();
    for case in all().iter().filter(|case| wanted(case)) {
        let verdict = case.run(&setup, &without);
        assert!(verdict.with.packets > 100, "{case:?} did not take place");
        let of_case = verdict.complaints.iter();
        complaints.extend(of_case.map(|what| format!("{}: {what}", case.name)));
    }
    assert!(complaints.is_empty(), "{complaints:#?}");
}

fn is_about_handshakes(case: &Case) -> bool {
    case.name.contains("join") || case.name.ends_with("flood") || case.name.ends_with("storm")
}

fn is_about_many(case: &Case) -> bool {
    [
        "idle",
        "tiny-acks",
        "join-hoard",
        "one-source",
        "closed-window",
        "tiny-window",
        "unread",
    ]
    .contains(&case.name)
}

#[test]
fn floods_of_handshakes_and_signals() {
    hold(is_about_handshakes);
}

#[test]
fn hostile_segments_on_connections() {
    hold(|case| !is_about_handshakes(case) && !is_about_many(case));
}

#[test]
fn hoards_of_connections() {
    hold(is_about_many);
}

#[test]
fn divided_acknowledgements_gain_nothing() {
    // RFC 3465: the window grows by bytes and not by acknowledgements.
    let got = |lie| {
        let mut liar = Liar::new(lie);
        run(&Setup::default(), &mut liar);
        liar.got
    };
    let (honest, divided) = (got(Lie::None), got(Lie::Divided(20)));
    assert!(honest > 10_000_000, "{honest}");
    assert!(divided <= honest + honest / 50, "{divided} beside {honest}");
}

#[test]
fn a_slow_client_within_its_share_outlives_hoarders() {
    let cases = all();
    let case = cases.iter().find(|case| case.name == "tiny-acks");
    let setup = Setup {
        config: (case.expect("it is in the list").config)(),
        ..Setup::default()
    };
    let mut hoard = Hoard::new(500, 200, Habit::TinyAcks);
    run(&setup, &mut hoard);
    let reset: Vec<usize> = hoard.reset().collect();
    assert!(reset.len() >= 20, "{} of 200 were reset", reset.len());
    // It acknowledges five bytes a second.
    assert!(!reset.contains(&0), "{reset:?}");
}

#[test]
fn two_runs_are_the_same() {
    let setup = Setup::default();
    let cases = all();
    for case in cases.iter().filter(|case| case.name == "closed-window") {
        let once = || {
            let with = case.run(&setup, &peace(&setup)).with;
            (with.honest, with.packets, with.memory, with.counters)
        };
        assert_eq!(once(), once());
    }
}
