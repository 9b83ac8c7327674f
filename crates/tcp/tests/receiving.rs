//! Receiving: acknowledgement policy (RFC 9293 section 3.8.6.3, RFC 5681 section 4.2), SACK (RFC 2018), windows.

mod common;

use common::script::{A, FA, Script};
use manypath_tcp::machine::{Config, CongestionConfig, Kind, Placed, TcpOptions};
use manypath_tcp::time::Duration;
use manypath_wire::ip::Ecn;
use manypath_wire::tcp::header::Flags;

/// Beyond the segments at the start that are all acknowledged at once.
fn warmed(cfg: Config) -> (Script, u32) {
    let mut s = Script::established(cfg);
    let mut next = 1;
    for _ in 0..20 {
        s.inject(next, A, 1, &[0; 1000]);
        next += 1000;
        s.drain();
        s.pass(100);
        s.m.on_timeout(s.now);
        s.drain();
        s.m.set_recv_window(30_000);
        s.drain();
    }
    (s, next)
}

#[test]
fn the_first_segments_are_acknowledged_at_once() {
    let mut s = Script::established(Script::config());
    for i in 0..10 {
        s.inject(1 + 100 * i, A, 1, &[0; 100]);
        s.expect(Kind::Ack);
    }
}

#[test]
fn an_acknowledgement_waits_for_the_second_segment_or_the_timer() {
    // RFC 9293 3.8.6.3
    let (mut s, next) = warmed(Script::config());
    s.inject(next, A, 1, &[0; 1000]);
    s.expect_none();
    assert_eq!(s.wait(), Some(40));
    s.inject(next + 1000, A, 1, &[0; 1000]);
    assert_eq!(s.expect(Kind::Ack).ack(), next + 2000);
    s.expect_none();
    assert_eq!(s.wait(), None);
    s.inject(next + 2000, A, 1, &[0; 10]);
    s.expect_none();
    s.timeout();
    assert_eq!(s.expect(Kind::Ack).ack(), next + 2010);
    assert_eq!(s.wait(), None);
}

#[test]
fn payload_carries_the_owed_acknowledgement() {
    let (mut s, next) = warmed(Script::config());
    s.inject(next, A, 1, &[0; 1000]);
    s.expect_none();
    s.write(10);
    assert_eq!(s.expect(Kind::Data).ack(), next + 1000);
    s.expect_none();
}

#[test]
fn a_joined_burst_is_acknowledged_at_once() {
    let (mut s, next) = warmed(Script::config());
    s.inject(next, A, 1, &[0; 8000]);
    s.expect(Kind::Ack);
}

#[test]
fn holes_are_sacked_at_once_with_the_newest_block_first() {
    // RFC 5681 4.2, RFC 2018 section 4
    let (mut s, n) = warmed(Script::config());
    let out = s.inject(n + 1000, A, 1, &[0; 1000]);
    assert!(out.arrival.placed == Placed::OutOfOrder);
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.ack(), ack.sack()), (n, vec![(n + 1000, n + 2000)]));
    s.inject(n + 3000, A, 1, &[0; 1000]);
    assert_eq!(
        s.expect(Kind::Ack).sack(),
        [(n + 3000, n + 4000), (n + 1000, n + 2000)]
    );
    s.inject(n + 5000, A, 1, &[0; 1000]);
    s.expect(Kind::Ack);
    s.inject(n + 7000, A, 1, &[0; 1000]);
    s.expect(Kind::Ack);
    s.inject(n + 9000, A, 1, &[0; 1000]);
    let blocks = s.expect(Kind::Ack).sack();
    assert_eq!(blocks.len(), 4);
    assert_eq!(blocks[0], (n + 9000, n + 10_000));
    // Filling a hole is told at once too.
    let out = s.inject(n, A, 1, &[0; 1000]);
    assert!(out.arrival.more_ready());
    assert_eq!(s.m.take_ready().map(|c| c.bytes.len()), Some(1000));
    assert_eq!(s.m.take_ready(), None);
    assert_eq!(s.expect(Kind::Ack).ack(), n + 2000);
    s.expect_none();
}

#[test]
fn below_what_came_too_early_each_segment_is_acknowledged_at_once() {
    // RFC 5681 4.2: the peer repairs, one segment after the other, and has a hole here that nothing is kept behind.
    let (mut s, n) = warmed(Script::config());
    s.inject(n + 900_000, A, 1, &[0; 1000]);
    assert_eq!(s.expect(Kind::Ack).sack(), []);
    for i in 0..40 {
        s.inject(n + 1000 * i, A, 1, &[0; 1000]);
        assert_eq!(s.expect(Kind::Ack).ack(), n + 1000 * (i + 1));
        s.m.set_recv_window(30_000);
        s.drain();
    }
}

#[test]
fn timestamps_leave_room_for_three_blocks() {
    let mut s = Script::established(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    for i in 1..5 {
        s.inject(2000 * i, A, 1, &[0; 1000]);
    }
    let ack = s.expect(Kind::Ack);
    assert_eq!(ack.sack().len(), 3);
    assert_eq!(ack.options.wire_len(40), 40);
}

#[test]
fn without_agreement_no_block_is_sent() {
    let mut s = Script::established(Config {
        options: TcpOptions {
            sack: false,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.inject(2000, A, 1, &[0; 1000]);
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.ack(), ack.sack()), (1, vec![]));
}

#[test]
fn a_hole_is_sacked_before_payload_acknowledges_without_it() {
    let mut s = Script::established(Script::config());
    s.write(1000);
    s.inject(2000, A, 1, &[0; 1000]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(2000, 3000)]);
    let data = s.expect(Kind::Data);
    assert_eq!((data.sack(), data.plan.len), (vec![], 1000));
}

#[test]
fn hostile_overlaps_keep_the_first_bytes() {
    let mut s = Script::established(Script::config());
    s.inject(5, A, 1, b"GOOD");
    s.drain();
    s.inject(3, A, 1, b"evilevil");
    s.drain();
    let out = s.inject(1, A, 1, b"abcdEVIL");
    let first = out
        .arrival
        .in_order()
        .map(|i| i.range.clone())
        .expect("the stream goes on");
    let mut got = b"abcdEVIL"[first].to_vec();
    while let Some(chunk) = s.m.take_ready() {
        got.extend_from_slice(&chunk.bytes);
    }
    assert_eq!(got, b"abevGOODil");
}

#[test]
fn what_was_offered_is_not_taken_back() {
    // RFC 9293 3.8.6: a receiver should not shrink the window.
    let (mut s, n) = warmed(Script::config());
    s.m.set_recv_window(0);
    s.inject(n, A, 1, &[0; 10_000]);
    assert_eq!(s.expect(Kind::Ack).header.window, 20_000);
    s.inject(n + 10_000, A, 1, &[0; 20_000]);
    assert_eq!(s.expect(Kind::Ack).header.window, 0);
    // A probe is answered.
    let out = s.inject(n + 30_000, A, 1, &[0; 1]);
    assert!(out.arrival.in_order().is_none());
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.ack(), ack.header.window), (n + 30_000, 0));
    // Less than a segment is not told; a useful window is, at once.
    s.m.set_recv_window(900);
    s.expect_none();
    s.m.set_recv_window(2000);
    assert_eq!(s.expect(Kind::Ack).header.window, 2000);
    s.m.set_recv_window(2500);
    s.expect_none();
}

#[test]
fn congestion_marks_are_echoed_until_answered() {
    // RFC 3168 6.1.3
    let mut s = Script::established(Config {
        congestion: CongestionConfig {
            ecn: true,
            ..Script::config().congestion
        },
        ..Script::config()
    });
    s.ecn = Ecn::Ce;
    s.inject(1, A, 1, &[0; 1000]);
    assert!(s.expect(Kind::Ack).header.flags.contains(Flags::ECE));
    s.ecn = Ecn::Ect0;
    s.inject(1001, A, 1, &[0; 1000]);
    assert!(s.expect(Kind::Ack).header.flags.contains(Flags::ECE));
    s.inject(2001, A | Flags::CWR, 1, &[0; 1000]);
    assert!(!s.expect(Kind::Ack).header.flags.contains(Flags::ECE));
    // The reduction and a new mark in one segment: the mark counts.
    s.ecn = Ecn::Ce;
    s.inject(3001, A | Flags::CWR, 1, &[0; 1000]);
    assert!(s.expect(Kind::Ack).header.flags.contains(Flags::ECE));
}

#[test]
fn a_fin_is_acknowledged_at_once() {
    let (mut s, n) = warmed(Script::config());
    let out = s.inject(n, FA, 1, &[0; 10]);
    assert!(out.arrival.fin);
    assert_eq!(s.expect(Kind::Ack).ack(), n + 11);
}

#[test]
fn the_delay_is_the_callers() {
    let (mut s, n) = warmed(Config {
        delayed_ack: Duration::from_millis(200),
        ..Script::config()
    });
    s.inject(n, A, 1, &[0; 10]);
    assert_eq!(s.wait(), Some(200));
    s.m.force_ack();
    s.expect(Kind::Ack);
}
