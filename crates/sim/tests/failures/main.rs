//! Paths that fail, one way after the other: the transfer goes on, and the reader hardly notices.
//!
//! Two bounds hold for every failure with another path alive. The reader waits no longer than two retransmission
//! time-outs of the failed path, or 200 ms. A path that is back carries new data again within two of its round trips
//! after the stack learnt of it.

mod bench;
mod idle;

use bench::{Bench, Line, Setup, Way};
use manypath_tcp::time::{Duration, Instant};

/// Pairs of paths; the first of each fails.
const PAIRS: [(Line, Line); 6] = [
    (Line::new(8, 10, 80), Line::new(20, 25, 100)),
    (Line::new(20, 25, 100), Line::new(8, 10, 80)),
    (Line::new(50, 5, 50), Line::new(10, 40, 100)),
    (Line::new(8, 10, 80), Line::new(2, 75, 200)),
    (Line::new(100, 1, 20), Line::new(100, 1, 20)),
    (Line::new(20, 100, 200), Line::new(20, 20, 50)),
];

const WAYS: [Way; 2] = [Way::Up, Way::Down];

/// What a step of the watch may add.
const STEPS: Duration = Duration::from_millis(2);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn patience(rto: Duration) -> Duration {
    rto.times(2).max(ms(200))
}

fn each(mut check: impl FnMut(Line, Line, Way)) {
    for (a, b) in PAIRS {
        for way in WAYS {
            check(a, b, way);
        }
    }
}

#[test]
fn an_unresponsive_path_does_not_stall_the_reader_and_recovers() {
    each(|a, b, way| {
        let setup = Setup {
            outages: &[(2.0, 12.0)],
            ..Setup::default()
        };
        let seen = Bench::new(a, b, way, setup).cut(2.0, 12.0);
        let what = format!("{a:?} {b:?} {way:?} {seen:?}");
        assert!(seen.stall <= patience(seen.rto), "{what}");
        // It is asked every second, and the answer takes a round trip.
        assert!(seen.learnt <= Some(ms(1_010) + seen.round_trip), "{what}");
        let failback = seen.fresh.expect(&what);
        assert!(failback <= seen.round_trip.times(2) + STEPS, "{what}");
    });
}

/// What a time-out sends again is what was under way on the path that failed, each byte once. (Segments that are repeated
/// there to ask whether the path works are a few a second.)
#[test]
fn an_unresponsive_path_does_not_double_the_load() {
    each(|a, b, way| {
        let setup = Setup {
            outages: &[(2.0, 12.0)],
            ..Setup::default()
        };
        let mut bench = Bench::new(a, b, way, setup);
        bench.sim.run_until(Instant::from_secs(2));
        let (before, under_way) = (bench.sender(), bench.over_a()[0].tcp.congestion.inflight);
        bench.sim.run_until(Instant::from_millis(11_900));
        let sent_again = bench.sender().bytes_reinjected - before.bytes_reinjected;
        let what = format!("{a:?} {b:?} {way:?}: {sent_again} of {under_way}");
        assert!(sent_again > 0, "{what}");
        assert!(sent_again <= u64::from(under_way) * 5 / 4, "{what}");
    });
}

/// An address goes away and comes back; the host that has it knows at once.
#[test]
fn a_removed_address_does_not_stall_the_reader_and_recovers() {
    let event = |at: &str, what: &str| {
        format!(
            "[[event]]\ndo = \"{what}\"\nat = \"{at}\"\ninterface = \"client.a\"\naddress = \"10.1.0.2\"\n"
        )
    };
    let events = event("2s", "remove-address") + &event("6s", "add-address");
    each(|a, b, way| {
        let setup = Setup {
            events: &events,
            ..Setup::default()
        };
        let seen = Bench::new(a, b, way, setup).cut(2.0, 6.0);
        let what = format!("{a:?} {b:?} {way:?} {seen:?}");
        assert!(seen.stall <= patience(seen.rto), "{what}");
        let (learnt, fresh) = (seen.learnt.expect(&what), seen.fresh.expect(&what));
        // The peer still has the old subflow between these ports, for its reset could not leave: a challenge takes a round trip.
        assert!(learnt + fresh <= seen.round_trip.times(3) + STEPS, "{what}");
    });
}

/// The last router says that there is no way any more. Anybody could say so: the path is left at once, but not for good.
#[test]
fn an_icmp_unreachable_path_does_not_stall_the_reader_and_recovers() {
    each(|a, b, way| {
        let setup = Setup {
            boxes: "{ kind = \"blackhole\", after = \"2s\", lasts = \"6s\", tells = true }",
            ..Setup::default()
        };
        let seen = Bench::new(a, b, way, setup).cut(2.0, 8.0);
        let what = format!("{a:?} {b:?} {way:?} {seen:?}");
        assert!(seen.stall <= patience(seen.rto), "{what}");
        let failback = seen.fresh.expect(&what);
        assert!(failback <= seen.round_trip.times(2) + STEPS, "{what}");
    });
}

#[test]
fn a_reset_subflow_does_not_stall_the_reader_and_is_replaced() {
    each(|a, b, way| {
        let setup = Setup {
            boxes: "{ kind = \"reset\", after = \"2s\", times = 1 }",
            ..Setup::default()
        };
        let mut bench = Bench::new(a, b, way, setup);
        bench.sim.run_until(Instant::from_millis(1_900));
        let rto = bench.over_a()[0].tcp.rto;
        let (stall, fresh) = bench.until_new(1.9, 6.0);
        let what = format!("{a:?} {b:?} {way:?}: {stall:?} {fresh:?}");
        assert!(stall <= patience(rto), "{what}");
        let ended = bench.sender().ended;
        assert_eq!(ended.len(), 1, "{what} {ended:?}");
        // What is queued there goes first.
        let round_trip = ms(u64::from(2 * a.delay_ms + a.buffer_ms));
        assert!(fresh <= Some(round_trip.times(2) + STEPS), "{what}");
    });
}

/// Both paths are silent for a while: nothing can be faster than the first repetition after that.
#[test]
fn an_outage_of_all_paths_ends_with_the_first_retransmission() {
    let (a, b) = PAIRS[0];
    for way in WAYS {
        let setup = Setup {
            outages: &[(2.0, 8.0)],
            outages_b: &[(2.0, 7.0)],
            ..Setup::default()
        };
        let stall = Bench::new(a, b, way, setup).stall(1.9, 20.0);
        assert!(
            stall >= ms(5_000) && stall <= ms(11_000),
            "{way:?} {stall:?}"
        );
    }
}

/// The client's address on path `name` comes or goes.
fn address(at: &str, what: &str, name: &str, n: u8) -> String {
    format!(
        "[[event]]\ndo = \"{what}\"\nat = \"{at}\"\ninterface = \"client.{name}\"\naddress = \"10.{n}.0.2\"\n"
    )
}

#[test]
fn a_connection_without_addresses_continues_when_one_returns() {
    // rfc8684:F10
    let (a, b) = PAIRS[0];
    for way in WAYS {
        let events = address("2s", "remove-address", "a", 1)
            + &address("2.1s", "remove-address", "b", 2)
            + &address("5s", "add-address", "b", 2);
        let setup = Setup {
            events: &events,
            ..Setup::default()
        };
        let mut bench = Bench::new(a, b, way, setup);
        let stall = bench.stall(1.9, 8.0);
        // From 2.1 s to 5 s, a join, and what was in flight on the way.
        assert!(stall <= ms(2_900 + 4 * 50 + 200), "{way:?} {stall:?}");
        assert!(bench.sender().closed.is_none());
    }
}

#[test]
fn a_connection_without_subflows_ends_after_break_before_make() {
    // rfc8684:F10 rfc8684:D4
    let (a, b) = PAIRS[0];
    for way in WAYS {
        let setup = Setup {
            app: Some("upload = \"900MB\"\noptions = { break-before-make = \"5s\" }"),
            // The last subflow ends by a reset: one that only loses its address goes on until its own time-outs.
            boxes: "{ kind = \"reset\", after = \"2.1s\" }, { kind = \"blackhole\", after = \"2.12s\" }",
            events: &address("2s", "remove-address", "b", 2),
            ..Setup::default()
        };
        let mut bench = Bench::new(a, b, way, setup);
        bench
            .sim
            .run_until(manypath_tcp::time::Instant::from_millis(7_050));
        let client = &bench.sim.hosts()[0];
        assert_eq!(client.endpoints()[0].record.over, None);
        bench
            .sim
            .run_until(manypath_tcp::time::Instant::from_millis(7_200));
        let record = &bench.sim.hosts()[0].endpoints()[0].record;
        assert_eq!(
            record.failure,
            Some(manypath_stack::api::CloseCause::NoSubflow)
        );
    }
}

/// The user's limit is about the data, not about each subflow after the other, and nobody waits for new subflows beyond it (RFC 5482).
#[test]
fn a_connection_without_data_acks_ends_with_the_users_timeout() {
    let (a, b) = PAIRS[0];
    let setup = Setup {
        app: Some("upload = \"900MB\"\noptions = { user-timeout = \"8s\" }"),
        outages: &[(2.0, 100.0)],
        outages_b: &[(2.0, 100.0)],
        ..Setup::default()
    };
    let mut bench = Bench::new(a, b, Way::Up, setup);
    let failure = |bench: &Bench| bench.sim.hosts()[0].endpoints()[0].record.failure;
    bench.sim.run_until(Instant::from_millis(9_900));
    assert_eq!(failure(&bench), None);
    bench.sim.run_until(Instant::from_millis(10_400));
    let timed_out = manypath_stack::api::CloseCause::TimedOut;
    assert_eq!(failure(&bench), Some(timed_out));
}

/// One path is silent for longer than the user's limit, while the other delivers.
#[test]
fn a_silent_path_does_not_end_a_connection_by_the_users_timeout() {
    let (a, b) = PAIRS[0];
    let setup = Setup {
        app: Some("upload = \"900MB\"\noptions = { user-timeout = \"3s\" }"),
        outages: &[(2.0, 100.0)],
        ..Setup::default()
    };
    let mut bench = Bench::new(a, b, Way::Up, setup);
    bench.sim.run_until(Instant::from_secs(12));
    assert!(bench.sender().closed.is_none());
}
