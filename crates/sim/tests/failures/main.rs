//! Paths that fail, one way after the other: the transfer goes on, and the reader hardly notices.
//!
//! Two bounds hold for every failure with another path alive. The reader waits no longer than two retransmission
//! time-outs of the failed path, or 200 ms. A path that is back carries new data again within two of its round trips
//! after the sender learnt of it.

mod bench;

use bench::{Bench, Line, Way};
use manypath_tcp::time::Duration;

/// Pairs of paths; the first of each fails.
const PAIRS: [(Line, Line); 6] = [
    (Line::new(8, 10, 80), Line::new(20, 25, 100)),
    (Line::new(20, 25, 100), Line::new(8, 10, 80)),
    (Line::new(50, 5, 50), Line::new(10, 40, 100)),
    (Line::new(8, 10, 80), Line::new(2, 75, 200)),
    (Line::new(100, 1, 20), Line::new(100, 1, 20)),
    (Line::new(20, 100, 200), Line::new(20, 20, 50)),
];

fn each(mut check: impl FnMut(Line, Line, Way)) {
    for (a, b) in PAIRS {
        for way in [Way::Up, Way::Down] {
            check(a, b, way);
        }
    }
}

#[test]
fn a_path_that_falls_silent_stalls_nobody_and_comes_back() {
    each(|a, b, way| {
        let mut bench = Bench::new(a, b, way, "", &[(2.0, 12.0)]);
        let seen = bench.cut(2.0, 12.0);
        let patience = seen.rto.times(2).max(Duration::from_millis(200));
        assert!(seen.stall <= patience, "{a:?} {b:?} {way:?} {seen:?}");
        // It is asked every second, and the answer takes a round trip.
        let soon = Duration::from_millis(1_010) + seen.round_trip;
        assert!(seen.learnt <= Some(soon), "{a:?} {b:?} {way:?} {seen:?}");
        let failback = seen.round_trip.times(2) + Duration::from_millis(2);
        assert!(seen.fresh <= Some(failback), "{a:?} {b:?} {way:?} {seen:?}");
        assert!(seen.fresh.is_some(), "{a:?} {b:?} {way:?} {seen:?}");
    });
}
