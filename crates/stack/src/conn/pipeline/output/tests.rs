//! Where the payload of a segment comes from, and what its mapping carries.

use manypath_wire::seq::Ssn;

use super::*;
use crate::conn::pipeline::offer::longest_burst;
use crate::conn::tests::{Bench, at};

const FIRST: SubflowIdx = SubflowIdx::FIRST;

fn mapping(ssn: u32, position: u64, len: u16, fin: bool) -> TxMapping {
    TxMapping {
        ssn: Ssn::new(ssn),
        at: at(position),
        len,
        checksum: None,
        fin,
    }
}

/// A plan of the first subflow for new data.
fn plan(bench: &mut Bench, bytes: u64) -> Plan {
    let offer = bench.conn.offers().offer(FIRST, bytes, false);
    match bench.conn.subflows[FIRST].tcp.decide(bench.now, &offer) {
        Decision::Send(plan) => plan,
        Decision::Idle => panic!("there is data to send"),
    }
}

/// Whether a segment of the first subflow with these bytes carries the DATA_FIN.
fn mapping_takes_data_fin(bench: &Bench, begin: u64, len: u32) -> bool {
    let conn = &bench.conn;
    let (numbers, subflows) = (&conn.numbers, &conn.subflows);
    subflows.mapping_takes_data_fin(numbers, &conn.send, conn.level, FIRST, at(begin), len)
}

fn awaits_first_data(bench: &Bench) -> bool {
    let conn = &bench.conn;
    conn.subflows.awaits_first_data(&conn.handshake, conn.level)
}

#[test]
fn the_data_fin_is_on_the_last_data_where_it_cannot_arrive_twice() {
    // rfc8684:F1
    // What is closed and written, where the segment begins and how long it is, how many subflows work.
    for (name, own, begin, len, subflows, carries) in [
        ("the last bytes", FinState::Queued, 60, 40, 1, true),
        ("bytes before the last", FinState::Queued, 0, 60, 1, false),
        ("an open stream", FinState::Open, 60, 40, 1, false),
        ("sent before", FinState::Sent, 60, 40, 1, false),
        ("another subflow works", FinState::Queued, 60, 40, 2, false),
    ] {
        let mut bench = Bench::new(subflows, true);
        bench.write(100, 60);
        bench.conn.send.fin.state = own;
        assert_eq!(
            mapping_takes_data_fin(&bench, begin, len),
            carries,
            "{name}"
        );
    }
}

#[test]
fn the_data_fin_is_on_the_last_data_beside_an_unresponsive_subflow() {
    let mut bench = Bench::new(2, true);
    bench.write(100, 60);
    bench.conn.send.fin.state = FinState::Queued;
    let now = bench.now;
    bench.conn.subflows[SubflowIdx(1)].liveness.stale_since = Some(now);
    assert!(mapping_takes_data_fin(&bench, 60, 40));
}

#[test]
fn a_retransmitted_mapping_loses_its_data_fin_where_its_data_was_sent_twice() {
    let mut bench = Bench::new(1, true);
    bench.write(100, 100);
    let last = mapping(1, 60, 40, true);
    assert!(bench.conn.send.as_repeated(last).fin);
    bench.conn.send.note_repeated(at(100));
    assert!(!bench.conn.send.as_repeated(last).fin);
}

#[test]
fn new_data_comes_from_where_it_was_offered() {
    let mut bench = Bench::new(1, true);
    bench.write(5_000, 0);
    let plan = plan(&mut bench, 5_000);
    let (settled, source) = bench
        .conn
        .offers()
        .settle(FIRST, plan, Source::New(at(0)))
        .expect("it has a source");
    assert_eq!((settled, source), (plan, Source::New(at(0))));
}

#[test]
fn a_retransmission_ends_with_the_mapping_of_its_first_byte() {
    // rfc8684:D9
    let mut bench = Bench::new(1, true);
    bench.write(5_000, 1_000);
    let fresh = plan(&mut bench, 5_000);
    let maps = [mapping(1, 0, 300, false), mapping(301, 300, 700, false)];
    for map in maps {
        bench.conn.subflows[FIRST].maps.tx.push(map);
    }
    let sent = Plan {
        len: 1_000,
        fin: false,
        ..fresh
    };
    let now = bench.now;
    bench.conn.subflows[FIRST].tcp.sent(now, &sent);
    for (ssn, len, from, left) in [
        (1, 1_000, maps[0], 300),
        (101, 1_000, maps[0], 200),
        (301, 500, maps[1], 500),
        (901, 500, maps[1], 100),
    ] {
        let again = Plan {
            kind: Kind::Retransmit,
            seq: sent.seq + (ssn - 1),
            ssn: Ssn::new(ssn),
            len,
            ..sent
        };
        let found = bench.conn.offers().settle(FIRST, again, Source::Empty);
        let (settled, source) = found.expect("it is mapped");
        assert_eq!((settled.len, source), (left, Source::Mapped(from)), "{ssn}");
    }
}

#[test]
fn a_segment_is_pushed_when_nothing_is_known_to_follow() {
    for (nodelay, own, writer_has_more, pushes) in [
        (true, FinState::Open, true, true),
        (false, FinState::Open, true, false),
        (false, FinState::Open, false, true),
        (false, FinState::Queued, true, true),
    ] {
        let mut bench = Bench::new(1, true);
        bench.conn.opts.nodelay = nodelay;
        bench.conn.send.fin.state = own;
        bench.conn.send.writer_has_more = writer_has_more;
        assert_eq!(
            bench.conn.send.pushes(&bench.conn.opts),
            pushes,
            "{nodelay} {own:?}"
        );
    }
}

#[test]
fn a_fin_of_a_subflow_waits_for_nothing_but_the_final_byte() {
    for (finish, ready) in [(false, false), (true, true)] {
        let mut bench = Bench::new(1, true);
        bench.conn.subflows[FIRST].closing.finish = finish;
        assert_eq!(bench.conn.offers().fin_ready(FIRST), ready);
    }
}

#[test]
fn no_window_is_advertised_with_options_before_the_initiators_first_data() {
    for (state, awaits) in [
        (HandshakeState::CapableKeys, true),
        (HandshakeState::CapableAck, false),
        (HandshakeState::Plain, false),
    ] {
        let mut bench = Bench::new(1, true);
        bench.conn.subflows[FIRST].handshake.state = state.clone();
        assert_eq!(awaits_first_data(&bench), awaits, "{state:?}");
    }
}

#[test]
fn a_checksummed_burst_is_a_small_part_of_the_window() {
    for (name, window, checksum, longest) in [
        ("narrow", 25_000, true, 3_125),
        ("wide", 100_000, true, 12_500),
        (
            "so wide that the mapping is the bound",
            1 << 20,
            true,
            65_534,
        ),
        ("closed", 0, true, 0),
        ("acknowledged segment by segment", 25_000, false, 65_534),
    ] {
        assert_eq!(longest_burst(window, checksum), longest, "{name}");
    }
}
