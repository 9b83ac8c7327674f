//! The controllers by the rules of the SMAPP paper.

use super::*;

#[test]
fn the_papers_backup_moves_when_a_time_out_passes_the_threshold_and_not_before() {
    let mut bench = Bench::new("smart-backup:rule=paper");
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
    for _ in 0..5 {
        assert_eq!(bench.timeout(0, 1_000), NOTHING, "however often it expires");
    }
    let moves = ["reset subflow 0", "create 10.1.0.1 -> *"];
    assert_eq!(bench.timeout(0, 1_001), moves);
    bench.ended(0, SubflowEnd::Administrative);
    assert_eq!(bench.up(1, "10.1.0.1:5000"), NOTHING);
    assert_eq!(bench.wait(60_000), NOTHING, "it never looks back");
}

#[test]
fn the_papers_backup_stays_where_there_is_nothing_to_move_to() {
    let mut bench = Bench::new("smart-backup:rule=paper");
    bench.view.locals.truncate(1);
    assert_eq!(bench.timeout(0, 5_000), NOTHING);
}

#[test]
fn the_papers_streaming_looks_once_half_way_through_a_block() {
    for (acked, expected) in [
        (32 << 10, &NOTHING[..]),
        ((32 << 10) - 1, &["create 10.1.0.1 -> *"]),
    ] {
        let mut bench = Bench::new("streaming:rule=paper");
        bench.view.written = 64 << 10;
        assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), NOTHING);
        bench.view.acked = acked;
        let mut ordered = Vec::new();
        for _ in 0..45 {
            ordered.extend(bench.wait(20));
        }
        assert_eq!(ordered, expected, "{acked}");
    }
}

#[test]
fn the_papers_streaming_closes_what_passes_the_bound_although_it_is_the_only_one() {
    let mut bench = Bench::new("streaming:rule=paper");
    assert_eq!(bench.timeout(0, 1_000), NOTHING);
    assert_eq!(bench.timeout(0, 1_001), ["reset subflow 0"]);
}

#[test]
fn the_papers_refresh_replaces_the_lowest_pacing_rate_each_time_even_where_all_are_alike() {
    let mut bench = Bench::new("refresh:subflows=3,rule=paper");
    let more = ["create * -> *"; 2];
    assert_eq!(bench.tell(Some(EventKind::JoinsAllowed)), more);
    bench.up(1, "10.0.0.1:5001");
    bench.up(2, "10.0.0.1:5002");
    for (sf, rate) in bench.view.subflows.iter_mut().zip([8, 4, 8]) {
        sf.pacing_rate = rate;
        // What was acknowledged does not count.
        sf.acked = 1_000_000 / rate;
    }
    assert_eq!(bench.wait(2_499), NOTHING);
    assert_eq!(bench.wait(1), ["close subflow 1", "create * -> *"]);
    for sf in &mut bench.view.subflows {
        sf.pacing_rate = 8;
    }
    assert_eq!(bench.wait(2_500), ["close subflow 0", "create * -> *"]);
}
