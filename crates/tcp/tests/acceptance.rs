//! Which segments count: RFC 9293 section 3.10.7.4, RFC 5961, RFC 7323 section 5.

mod common;

use common::script::{A, FA, IRS, R, S, Script};
use manypath_tcp::machine::{
    Config, Ended, Kind, Outcome, Placed, Reject, State, TcpOptions, Verdict,
};
use manypath_wire::tcp::header::Flags;

fn rejected(out: &Outcome, why: Reject) {
    assert_eq!(out.verdict, Verdict::Rejected(why), "{out:?}");
}

#[test]
fn the_window_decides() {
    let mut s = Script::established(Script::config());
    // RFC 9293 3.4 table 6, by cases: before, at, inside, at the end, beyond.
    rejected(&s.inject(0, A, 1, &[]), Reject::Sequence);
    s.expect(Kind::Ack);
    assert!(s.inject(1, A, 1, &[]).acceptable());
    s.expect_none();
    assert!(s.inject(20_000, A, 1, &[]).acceptable());
    assert!(s.inject(30_001, A, 1, &[]).acceptable());
    rejected(&s.inject(30_002, A, 1, b"x"), Reject::Sequence);
    assert_eq!(s.expect(Kind::Ack).ack(), 1);
    rejected(&s.inject(2_000_000_000, A, 1, b"x"), Reject::Sequence);
    s.expect(Kind::Ack);
    let out = s.inject(30_000, A, 1, b"xyz");
    assert!(out.arrival.placed == Placed::OutOfOrder && out.acceptable());
    assert_eq!(
        s.expect(Kind::Ack).sack(),
        [(30_000, 30_001)],
        "the part in the window is kept"
    );
}

#[test]
fn delivered_payload_is_acknowledged_again_and_reported() {
    // RFC 2883 section 4
    let mut s = Script::established(Script::config());
    s.inject(1, A, 1, &[7; 500]);
    s.drain();
    let out = s.inject(1, A, 1, &[7; 500]);
    assert_eq!(out.verdict, Verdict::OldDuplicate);
    assert!(out.arrival.duplicate && out.arrival.in_order().is_none());
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.ack(), ack.sack()), (501, vec![(1, 501)]));
    // Partly new: only the rest is delivered.
    let out = s.inject(251, A, 1, &[8; 500]);
    assert_eq!(
        out.arrival
            .in_order()
            .map(|i| (i.ssn.get(), i.range.clone())),
        Some((501, 250..500))
    );
    assert!(out.arrival.duplicate);
    assert_eq!(s.expect(Kind::Ack).sack(), [(251, 501)]);
    // The report is made once.
    s.inject(2000, A, 1, &[9; 10]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(2000, 2010)]);
}

#[test]
fn a_duplicate_behind_a_hole_is_reported_before_the_run_that_contains_it() {
    // RFC 2883 section 4.2
    let mut s = Script::established(Script::config());
    s.inject(1001, A, 1, &[7; 500]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(1001, 1501)]);
    s.inject(1101, A, 1, &[7; 100]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(1101, 1201), (1001, 1501)]);
    // All of the run again; the report is made once.
    s.inject(1001, A, 1, &[7; 500]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(1001, 1501), (1001, 1501)]);
    s.inject(2001, A, 1, &[7; 500]);
    assert_eq!(s.expect(Kind::Ack).sack(), [(2001, 2501), (1001, 1501)]);
    // Partly new: the run that contains the duplicate comes second, and not once more.
    s.inject(1401, A, 1, &[7; 200]);
    let blocks = [(1401, 1501), (1001, 1601), (2001, 2501)];
    assert_eq!(s.expect(Kind::Ack).sack(), blocks);
}

#[test]
fn only_the_exact_number_resets() {
    // RFC 5961 section 3.2
    let mut s = Script::established(Script::config());
    rejected(&s.inject(2, R, 0, &[]), Reject::Reset);
    assert_eq!(s.expect(Kind::Ack).ack(), 1);
    rejected(&s.inject(29_000, R, 0, &[]), Reject::Reset);
    s.expect(Kind::Ack);
    rejected(&s.inject(30_000, R, 0, &[]), Reject::Reset);
    s.expect(Kind::Ack);
    // Right behind the window, where an ACK of a peer that filled the window stands.
    rejected(&s.inject(30_001, R, 0, &[]), Reject::Sequence);
    rejected(&s.inject(30_100, R, 0, &[]), Reject::Sequence);
    // Payload that reaches into the window does not bring a RST there.
    rejected(&s.inject(0, R, 0, &[7; 20]), Reject::Sequence);
    rejected(&s.inject(0, R, 0, &[]), Reject::Sequence);
    s.expect_none();
    assert_eq!(s.m.state(), State::Established);
    let out = s.inject(1, R, 0, &[]);
    assert!(out.ended == Some(Ended::Reset) && out.acceptable());
    assert_eq!(s.m.state(), State::Closed);
    rejected(&s.inject(1, A, 1, &[]), Reject::Closed);
    s.expect_none();
}

#[test]
fn a_syn_is_challenged() {
    // RFC 5961 section 4.2
    let mut s = Script::established(Script::config());
    rejected(&s.inject(100, S, 0, &[]), Reject::Syn);
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.seq(), ack.ack()), (1, 1));
    rejected(&s.inject(0, S | A, 1, &[]), Reject::Sequence);
    s.expect(Kind::Ack);
    assert_eq!(s.m.state(), State::Established);
}

#[test]
fn challenges_are_limited() {
    // RFC 5961 section 7
    let mut s = Script::established(Script::config());
    let mut answers = 0;
    for _ in 0..1000 {
        s.inject(100, S, 0, &[]);
        answers += s.drain().len();
    }
    assert_eq!(answers, 5);
    let c = *s.m.counters();
    assert_eq!(
        (c.rejected.challenge_acks, c.rejected.challenge_acks_limited),
        (5, 995)
    );
    s.pass(1000);
    s.inject(100, S, 0, &[]);
    s.expect(Kind::Ack);
}

#[test]
fn acknowledgements_have_bounds_on_both_sides() {
    // RFC 5961 section 5.2
    let mut s = Script::established(Script::config());
    s.write(5000);
    s.drain();
    rejected(&s.inject(1, A, 5002, b"evil"), Reject::Ack);
    assert_eq!(s.expect(Kind::Ack).ack(), 1);
    assert!(s.inject(1, A, 5001, &[]).acceptable());
    assert_eq!(s.m.counters().recovery.bytes_acked, 5000);
    // Old by less than the largest window: fine, the payload counts.
    let out = s.inject(1, A, 1, b"good");
    assert!(out.arrival.in_order().is_some());
    s.drain();
    rejected(
        &s.inject_with(5, A, 0, b"evil", |p| p.header.ack -= 70_000),
        Reject::Ack,
    );
}

#[test]
fn a_segment_without_ack_is_dropped() {
    let mut s = Script::established(Script::config());
    rejected(&s.inject(1, Flags::PSH, 0, b"data"), Reject::NoAck);
    assert_eq!(s.m.rcv_nxt(), IRS + 1);
    s.expect_none();
}

#[test]
fn old_timestamps_are_refused() {
    // RFC 7323 section 5.3
    let mut s = Script::established(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.tsval = 2000;
    assert!(s.inject(1, A, 1, &[1; 10]).acceptable());
    s.expect(Kind::Ack);
    s.tsval = 1999;
    rejected(&s.inject(11, A, 1, &[1; 10]), Reject::Paws);
    let ack = s.expect(Kind::Ack);
    assert_eq!(ack.ack(), 11);
    assert_eq!(ack.options.timestamps.map(|t| t.ecr), Some(2000));
    assert_eq!(s.m.counters().rejected.rejected_paws, 1);
    // RST is exempt: it carries no timestamp that has to grow.
    assert!(s.inject(11, R, 0, &[]).ended == Some(Ended::Reset));
}

#[test]
fn the_echo_is_that_of_the_segment_whose_acknowledgement_is_owed() {
    // RFC 7323 section 4.3
    let mut s = Script::established(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    // Beyond the hole: the echo stays at the last segment in order.
    s.tsval = 1500;
    s.inject(11, A, 1, &[1; 10]);
    assert_eq!(
        s.expect(Kind::Ack).options.timestamps.map(|t| t.ecr),
        Some(1000)
    );
    s.tsval = 1600;
    s.inject(1, A, 1, &[1; 10]);
    assert_eq!(
        s.expect(Kind::Ack).options.timestamps.map(|t| t.ecr),
        Some(1600)
    );
}

#[test]
fn segments_of_a_peer_that_stops_sending_timestamps_are_accepted() {
    // RFC 7323 3.2 says SHOULD drop; a middlebox that strips the option would end the connection, so it is taken.
    let mut s = Script::established(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.stamps = false;
    assert!(s.inject(1, A, 1, &[1; 10]).arrival.in_order().is_some());
}

#[test]
fn nothing_comes_after_the_end() {
    let mut s = Script::established(Script::config());
    let out = s.inject(1, FA, 1, b"bye");
    assert!(out.arrival.fin);
    assert_eq!(s.m.state(), State::CloseWait);
    assert_eq!(s.expect(Kind::Ack).ack(), 5);
    let out = s.inject(5, A, 1, b"ghost");
    assert!(out.arrival.in_order().is_none());
    assert_eq!(s.m.rcv_nxt(), IRS + 5);
    // A FIN that is still out of order fixes the end too.
    let mut s = Script::established(Script::config());
    assert!(s.inject(11, FA, 1, b"0123456789").arrival.placed == Placed::OutOfOrder);
    rejected(&s.inject(21, A, 1, b"ghost"), Reject::AfterFin);
    rejected(&s.inject(11, FA, 1, b"01234"), Reject::AfterFin);
    let out = s.inject(1, A, 1, b"0123456789");
    assert!(out.arrival.fin && out.arrival.more_ready());
    assert_eq!(
        s.m.take_ready().map(|c| c.bytes.to_vec()),
        Some(b"0123456789".to_vec())
    );
    assert_eq!(s.expect(Kind::Ack).ack(), 22);
}

#[test]
fn the_echo_follows_a_segment_sent_again_because_our_answer_was_lost() {
    // RFC 7323 section 4.3
    let mut s = Script::established(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.tsval = 2000;
    s.inject(1, A, 1, &[1; 10]);
    s.drain();
    s.tsval = 9000;
    let out = s.inject(1, A, 1, &[1; 10]);
    assert_eq!(out.verdict, Verdict::OldDuplicate);
    assert_eq!(
        s.expect(Kind::Ack).options.timestamps.map(|t| t.ecr),
        Some(9000)
    );
    // A number from far outside says nothing about the peer's clock.
    s.tsval = 20_000;
    s.inject_with(1, A, 1, &[1; 10], |p| p.header.seq -= 1_000_000);
    assert_eq!(
        s.expect(Kind::Ack).options.timestamps.map(|t| t.ecr),
        Some(9000)
    );
}
