//! Opening: RFC 9293 sections 3.5 and 3.10.7, RFC 7323 section 2, RFC 3168 section 6.1.1.

mod common;

use common::script::{A, IRS, ISN, R, RA, S, SA, Script};
use manypath_tcp::machine::{
    Config, CongestionConfig, DeadCause, Ended, IcmpOutcome, Kind, Reject, State, TcpOptions,
    Timeouts, Verdict,
};
use manypath_tcp::time::Duration;
use manypath_wire::ids::{FourTuple, Mss};
use manypath_wire::ip::icmp;
use manypath_wire::tcp::header::Flags;

fn rejected(out: &manypath_tcp::machine::Outcome, why: Reject) {
    assert_eq!(out.verdict, Verdict::Rejected(why));
}

#[test]
fn an_active_open() {
    let mut s = Script::connecting(Config {
        recv_window: 1 << 20,
        congestion: CongestionConfig {
            ecn: true,
            ..CongestionConfig::default()
        },
        ..Config::default()
    });
    let syn = s.expect(Kind::Syn);
    assert_eq!(syn.header.flags, S | Flags::ECE | Flags::CWR);
    assert_eq!(syn.header.window, u16::MAX);
    assert_eq!(syn.options.mss, Some(Mss(1460)));
    // 2^20 bytes need a shift of five: 65535 << 4 is 16 bytes short.
    assert_eq!(syn.options.window_scale, Some(5));
    assert!(syn.options.sack_permitted);
    assert_eq!(syn.options.timestamps.map(|t| t.ecr), Some(0));
    s.expect_none();
    s.pass(30);
    s.stamps = true;
    s.tsecr = syn.options.timestamps.map_or(0, |t| t.val);
    let out = s.inject_with(0, SA, 1, &[], |p| p.options.window_scale = Some(3));
    assert!(out.established && out.acceptable());
    assert_eq!(s.m.state(), State::Established);
    assert_eq!(s.m.srtt().map(|t| t.as_millis()), Some(30));
    let ack = s.expect(Kind::Ack);
    assert_eq!((ack.seq(), ack.ack(), ack.header.flags), (1, 1, A));
    assert_eq!(ack.options.timestamps.map(|t| t.ecr), Some(1000));
    assert_eq!(u32::from(ack.header.window) << 5, 1 << 20);
    // RFC 7323 2.2: the window of a SYN is never scaled, later ones are.
    assert_eq!(s.m.peer_window_field_scaled(), 60_000);
    s.inject(1, A, 1, &[]);
    assert_eq!(s.m.peer_window_field_scaled(), 480_000);
    // Timestamps take 12 bytes of each segment.
    assert_eq!(s.m.mss(), 988);
    assert_eq!(s.m.data_mss(20), 968);
}

#[test]
fn extensions_count_only_when_both_ends_offer_them() {
    let mut s = Script::connecting(Config {
        recv_window: 1 << 20,
        ..Config::default()
    });
    s.expect(Kind::Syn);
    s.inject_with(0, SA, 1, &[], |p| {
        p.options.sack_permitted = false;
        p.options.mss = None;
    });
    let info = s.m.info();
    assert!(!info.options.timestamps && !info.options.sack && !info.options.ecn);
    assert_eq!((info.options.recv_scale, info.options.send_scale), (0, 0));
    assert_eq!(s.m.mss(), 536, "RFC 9293 3.7.1: the default of IPv4");
    let ack = s.expect(Kind::Ack);
    assert_eq!(ack.header.window, u16::MAX);
    assert_eq!(ack.options.timestamps, None);
}

#[test]
fn the_answer_to_a_syn_that_was_sent_again_since_measures_nothing() {
    // RFC 6298 section 3: a lost answer comes again with the same echo, and would make the path as long as its time-out.
    for (second, srtt, rto) in [(false, None, 3_000), (true, Some(5), 205)] {
        let mut s = Script::connecting(Config::default());
        let first = s.expect(Kind::Syn).options.timestamps.expect("timestamps");
        s.timeout();
        let again = s.expect(Kind::Syn).options.timestamps.expect("timestamps");
        s.pass(5);
        s.stamps = true;
        s.tsecr = if second { again.val } else { first.val };
        assert!(s.inject(0, SA, 1, &[]).established);
        assert_eq!(s.m.srtt().map(|t| t.as_millis()), srtt);
        assert_eq!(s.m.rto().as_millis(), rto);
        // What is measured by other means counts only then.
        s.m.first_measured(s.now, Duration::from_millis(40));
        assert_eq!(s.m.srtt().map(|t| t.as_millis()), srtt.or(Some(40)));
    }
}

#[test]
fn a_handshake_that_was_forgotten_is_measured_by_the_echo_alone() {
    // RFC 4987 section 3.6. It was no time-out that had the SYN/ACK sent (RFC 6298 section 5.7), unless the answer is so late
    // that one would have.
    for (age, srtt, rto) in [
        (Some(40), Some(40), 240),
        (Some(1_200), None, 3_000),
        (None, None, 1_000),
    ] {
        let mut s = Script::resuming(Config {
            options: TcpOptions {
                timestamps: age.is_some(),
                ..TcpOptions::default()
            },
            ..Config::default()
        });
        let clock = s.now.as_millis() as u32;
        s.tsecr = clock - age.unwrap_or(0);
        assert!(s.inject(1, A, 1, &[]).established);
        assert_eq!(s.m.srtt().map(|t| t.as_millis()), srtt);
        assert_eq!(s.m.rto().as_millis(), rto);
        assert_eq!(s.m.cwnd(), 10 * s.m.mss());
        // The echo may be older than the SYN/ACK. What data measures counts alone.
        s.write(100);
        let first = s.expect(Kind::Data);
        s.pass(5);
        s.tsecr = first.options.timestamps.map_or(0, |t| t.val);
        let _ = s.inject(1, A, 101, &[]);
        assert_eq!(s.m.srtt().map(|t| t.as_millis()), Some(5));
        assert_eq!(s.m.min_rtt().map(|t| t.as_millis()), Some(5));
    }
}

#[test]
fn a_late_answer_measures_where_the_syn_was_sent_again_only_shortly_after() {
    // The doubt is as long as the pause between both: here 100 of 1,200 ms.
    let mut s = Script::connecting(Config::default());
    let first = s.expect(Kind::Syn).options.timestamps.expect("timestamps");
    s.timeout();
    let again = s.expect(Kind::Syn).options.timestamps.expect("timestamps");
    let pause = again.val - first.val;
    s.pass(7 * u64::from(pause));
    s.stamps = true;
    s.tsecr = first.val;
    assert!(s.inject(0, SA, 1, &[]).established);
    let measured = s.m.srtt().map(|t| t.as_millis());
    assert!(measured.is_some_and(|ms| ms >= 8_000), "{measured:?}");
}

#[test]
fn a_handshake_with_three_timeouts_is_followed_by_one_segment_and_measures() {
    // RFC 6928 section 2; it is no outage, after which a path that is known would get back its first window.
    let mut s = Script::connecting(Config::default());
    s.expect(Kind::Syn);
    let mut last = None;
    for _ in 0..3 {
        s.timeout();
        last = s.expect(Kind::Syn).options.timestamps;
    }
    s.pass(5);
    s.stamps = true;
    s.tsecr = last.expect("timestamps").val;
    assert!(s.inject(0, SA, 1, &[]).established);
    assert_eq!(s.m.cwnd(), s.m.mss());
    assert_eq!(s.m.srtt().map(|t| t.as_millis()), Some(5));
}

#[test]
fn a_syn_is_repeated_with_growing_pauses_and_given_up() {
    // RFC 6298 2.1 and 5.5
    let mut s = Script::connecting(Config {
        timeouts: Timeouts {
            syn_retries: 3,
            ..Script::config().timeouts
        },
        congestion: CongestionConfig {
            ecn: true,
            ..Script::config().congestion
        },
        ..Script::config()
    });
    s.expect(Kind::Syn);
    let mut waits = Vec::new();
    loop {
        waits.push(s.wait().expect("the SYN is timed"));
        let out = s.timeout();
        assert!(out.rto_fired);
        if out.dead.is_some() {
            assert_eq!(out.dead, Some(DeadCause::SynTimeout));
            break;
        }
        // RFC 3168 6.1.1.1: without ECN the second time.
        assert_eq!(s.expect(Kind::Syn).header.flags, S);
        s.expect_none();
    }
    assert_eq!(waits, [1000, 2000, 4000, 8000]);
    assert_eq!(s.m.state(), State::Closed);
    assert_eq!(s.m.deadline(), None);
    s.expect_none();
}

#[test]
fn only_an_answer_to_our_syn_counts() {
    // RFC 9293 3.10.7.3
    let mut s = Script::connecting(Script::config());
    s.expect(Kind::Syn);
    rejected(&s.inject(0, SA, 2, &[]), Reject::Handshake);
    rejected(&s.inject(0, A, 7, &[]), Reject::Handshake);
    rejected(&s.inject(0, RA, 2, &[]), Reject::Ack);
    rejected(&s.inject(0, R, 0, &[]), Reject::Reset);
    rejected(&s.inject(0, A, 1, &[]), Reject::NoSyn);
    assert_eq!(s.m.state(), State::SynSent);
    let out = s.inject(0, RA, 1, &[]);
    assert!(out.ended == Some(Ended::Reset));
    assert_eq!(s.m.state(), State::Closed);
}

#[test]
fn a_passive_open_answers_what_was_offered() {
    let mut s = Script::accepting(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    let answer = s.expect(Kind::SynAck);
    assert_eq!(answer.header.flags, SA);
    assert_eq!((answer.seq(), answer.ack()), (0, 1));
    assert_eq!(
        answer.options.window_scale, None,
        "the peer did not offer scaling"
    );
    assert_eq!(answer.options.timestamps.map(|t| t.ecr), Some(1000));
    assert!(answer.options.sack_permitted);
    s.expect_none();
    s.pass(20);
    s.tsecr = answer.options.timestamps.map_or(0, |t| t.val);
    let out = s.inject(1, A, 1, b"first");
    assert!(out.established && out.acceptable());
    assert_eq!(
        out.arrival
            .in_order()
            .map(|i| (i.ssn.get(), i.range.clone())),
        Some((1, 0..5))
    );
    assert_eq!(s.m.state(), State::Established);
    assert_eq!(s.m.srtt().map(|t| t.as_millis()), Some(20));
}

#[test]
fn the_answer_is_repeated_when_lost() {
    let mut s = Script::accepting(Config {
        timeouts: Timeouts {
            syn_ack_retries: 2,
            ..Script::config().timeouts
        },
        ..Script::config()
    });
    s.expect(Kind::SynAck);
    // The peer repeats its SYN: answered at once.
    let out = s.inject(0, S, 0, &[]);
    assert_eq!(out.verdict, Verdict::OldDuplicate);
    s.expect(Kind::SynAck);
    s.expect_none();
    // Nothing at all: by the timer.
    s.timeout();
    s.expect(Kind::SynAck);
    s.timeout();
    s.expect(Kind::SynAck);
    assert_eq!(s.timeout().dead, Some(DeadCause::SynTimeout));
}

#[test]
fn a_wrong_acknowledgement_opens_nothing() {
    // RFC 9293 3.10.7.4, SYN-RECEIVED
    let mut s = Script::accepting(Script::config());
    s.expect(Kind::SynAck);
    rejected(&s.inject(1, A, 2, &[]), Reject::Handshake);
    rejected(&s.inject(1, A, 0, &[]), Reject::Handshake);
    rejected(&s.inject(5_000_000, A, 1, &[]), Reject::Sequence);
    assert_eq!(s.m.state(), State::SynReceived);
    assert!(s.inject(1, RA, 1, &[]).ended == Some(Ended::Reset));
}

#[test]
fn crossing_syns_open_one_connection() {
    // RFC 9293 3.5 figure 8
    let mut s = Script::connecting(Script::config());
    s.expect(Kind::Syn);
    let out = s.inject(0, S, 0, &[]);
    assert!(out.acceptable() && !out.established);
    assert_eq!(s.m.state(), State::SynReceived);
    let answer = s.expect(Kind::SynAck);
    assert_eq!((answer.seq(), answer.ack()), (0, 1));
    let out = s.inject(0, SA, 1, &[]);
    assert!(out.established);
    assert_eq!(s.m.state(), State::Established);
    assert_eq!((s.m.snd_una(), s.m.rcv_nxt()), (ISN + 1, IRS + 1));
}

#[test]
fn payload_on_a_syn_ack_is_taken() {
    let mut s = Script::connecting(Script::config());
    s.expect(Kind::Syn);
    let out = s.inject(0, SA, 1, b"early");
    assert!(out.established);
    assert_eq!(
        out.arrival
            .in_order()
            .map(|i| (i.ssn.get(), i.range.clone())),
        Some((1, 0..5))
    );
    assert_eq!(s.expect(Kind::Ack).ack(), 6);
}

#[test]
fn a_hard_icmp_error_ends_only_an_attempt() {
    // RFC 5461 4.1, RFC 5927 4.1
    let tuple = FourTuple::new(
        "10.0.0.2:80".parse().expect("valid"),
        "10.0.0.1:4000".parse().expect("valid"),
    );
    let error = |seq| icmp::Error {
        tuple,
        seq,
        kind: icmp::Kind::Unreachable { code: 3 },
    };
    let mut s = Script::connecting(Script::config());
    s.expect(Kind::Syn);
    assert_eq!(s.m.on_icmp(s.now, &error(ISN + 1)), IcmpOutcome::Ignored);
    assert_eq!(s.m.on_icmp(s.now, &error(ISN)), IcmpOutcome::Refused);
    assert_eq!(s.m.state(), State::Closed);
    let mut s = Script::established(Script::config());
    s.write(100);
    s.expect(Kind::Data);
    assert_eq!(
        s.m.on_icmp(s.now, &error(ISN + 1)),
        IcmpOutcome::Unreachable
    );
    assert_eq!(s.m.state(), State::Established);
}

#[test]
fn the_first_window_is_ten_segments() {
    // RFC 6928
    let mut s = Script::established(Script::config());
    s.write(50_000);
    let sent = s.drain();
    assert_eq!(sent.len(), 10);
    assert!(
        sent.iter()
            .all(|o| o.plan.len == 1000 && o.plan.kind == Kind::Data)
    );
}

#[test]
fn a_repeated_syn_is_echoed_itself() {
    // RFC 7323 4.3: else the peer takes the time between its attempts for a round trip.
    let mut s = Script::accepting(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.expect(Kind::SynAck);
    s.tsval = 2000;
    s.inject(0, S, 0, &[]);
    assert_eq!(
        s.expect(Kind::SynAck).options.timestamps.map(|t| t.ecr),
        Some(2000)
    );
}
