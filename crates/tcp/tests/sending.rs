//! Sending: segment sizes, Nagle and silly windows (RFC 9293 sections 3.7.4 and 3.8.6.2.1), probes of every kind, limits of
//! patience.

mod common;

use common::script::{A, ISN, SA, Script};
use manypath_tcp::machine::{
    Config, DeadCause, Decision, IcmpOutcome, Keepalive, Kind, Offer, State, TcpOptions, Timeouts,
};
use manypath_tcp::time::Duration;
use manypath_wire::ids::{FourTuple, Mss};
use manypath_wire::ip::icmp;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

#[test]
fn a_burst_is_whole_segments_and_a_tail() {
    let mut s = Script::established(Script::config());
    s.offer.max_burst = 65_535;
    s.offer.option_space = 20;
    s.write(9_000);
    let burst = s.expect_data(Kind::Data, 1, 9001);
    assert_eq!(burst.plan.mss, 980);
    assert!(burst.header.flags.contains(Flags::PSH));
    s.settle();
    s.offer.max_burst = 4_000;
    s.write(100_000);
    let first = s.expect(Kind::Data);
    assert_eq!(first.plan.len, 3920);
    assert!(!first.header.flags.contains(Flags::PSH));
}

#[test]
fn the_caller_may_shorten_a_plan() {
    let mut s = Script::established(Script::config());
    let offer = Offer {
        available: 3000,
        fin: true,
        option_space: 0,
        max_burst: 9000,
        push: true,
        no_nagle: false,
        probe_new: true,
    };
    let Decision::Send(plan) = s.m.decide(s.now, &offer) else {
        panic!("sends")
    };
    assert!(plan.fin && plan.len == 3000 && plan.carries_new(s.m.snd_nxt()));
    let short = plan.shortened(1200);
    assert!(!short.fin);
    s.m.sent(s.now, &short);
    assert_eq!(s.m.snd_nxt(), ISN + 1201);
    assert_eq!(s.m.state(), State::Established);
}

#[test]
fn nagle_keeps_one_small_segment_in_flight() {
    // RFC 9293 3.7.4
    let mut s = Script::established(Config {
        nagle: true,
        ..Script::config()
    });
    s.write(10);
    s.expect_data(Kind::Data, 1, 11);
    s.write(10);
    s.expect_none();
    s.write(1000);
    s.expect_data(Kind::Data, 11, 1011);
    s.expect_none();
    s.inject(1, A, 11, &[]);
    s.expect_data(Kind::Data, 1011, 1021);
    // Nor does what nothing will join, or a FIN.
    s.write(5);
    s.expect_none();
    s.offer.no_nagle = true;
    s.expect_data(Kind::Data, 1021, 1026);
    s.offer.no_nagle = false;
    s.write(5);
    s.expect_none();
    s.offer.fin = true;
    let last = s.expect_data(Kind::Data, 1026, 1031);
    assert!(last.plan.fin);
    let mut s = Script::established(Script::config());
    for i in 0..5 {
        s.write(10);
        s.expect_data(Kind::Data, 1 + 10 * i, 11 + 10 * i);
    }
}

#[test]
fn the_peers_window_is_obeyed_and_silly_ones_are_not_used() {
    // RFC 9293 3.8.6.2.1
    let mut s = Script::established(Script::config());
    s.window = 2500;
    s.inject(1, A, 1, &[]);
    s.write(10_000);
    s.expect_data(Kind::Data, 1, 1001);
    s.expect_data(Kind::Data, 1001, 2001);
    s.expect_none();
    assert_eq!(s.m.peer_window(), 500);
    s.inject(1, A, 2001, &[]);
    s.expect_data(Kind::Data, 2001, 3001);
    // The window shrinks below what is in flight: nothing new, nothing forgotten.
    s.window = 200;
    s.inject(1, A, 2001, &[]);
    assert_eq!(s.m.peer_window(), 0);
    s.expect_none();
}

#[test]
fn a_closed_window_is_probed_with_growing_pauses() {
    // RFC 9293 3.8.6.1
    let mut s = Script::established(Config {
        timeouts: Timeouts {
            give_up: Duration::from_secs(10),
            ..Script::config().timeouts
        },
        ..Script::config()
    });
    s.window = 0;
    s.inject(1, A, 1, &[]);
    s.write(5000);
    let mut times = Vec::new();
    let mut total = 0;
    for _ in 0..9 {
        let waited = s.wait().expect("the persist timer runs");
        let out = s.timeout();
        assert!(!out.rto_fired && out.dead.is_none());
        let probe = s.expect(Kind::WindowProbe);
        assert_eq!(
            (probe.seq(), probe.plan.len),
            (0, 0),
            "one before the first unacknowledged number"
        );
        s.expect_none();
        total += waited;
        times.push(waited);
        s.inject(1, A, 1, &[]);
    }
    assert_eq!(times[1], 2 * times[0]);
    assert_eq!(times[8], times[0] << 8);
    assert!(total > 60_000);
    assert_eq!(s.m.state(), State::Established);
    assert_eq!(s.m.cwnd(), 10_000, "probes are no sign of congestion");
    s.window = 60_000;
    assert!(s.inject(1, A, 1, &[]).window_grew);
    assert_eq!(s.drain().len(), 5);
}

#[test]
fn a_window_that_stays_silly_is_used_after_a_while() {
    let mut s = Script::established(Script::config());
    s.window = 400;
    s.inject(1, A, 1, &[]);
    s.write(5000);
    s.expect_none();
    s.timeout();
    s.expect_data(Kind::Data, 1, 401);
    s.expect_none();
}

#[test]
fn without_payload_nothing_is_probed() {
    let mut s = Script::established(Script::config());
    s.window = 0;
    s.inject(1, A, 1, &[]);
    let sent = s.run(600_000);
    assert!(sent.is_empty(), "{sent:?}");
    // The first byte that comes later is announced by a probe at once.
    s.write(1);
    s.expect(Kind::WindowProbe);
}

#[test]
fn an_idle_peer_is_probed_and_given_up() {
    // RFC 9293 3.8.4
    let keepalive = Keepalive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(2),
        count: 3,
    };
    let mut s = Script::established(Config {
        keepalive: Some(keepalive),
        ..Script::config()
    });
    assert_eq!(s.wait(), Some(10_000));
    s.timeout();
    let probe = s.expect(Kind::KeepAlive);
    assert_eq!(
        (probe.seq(), probe.ack(), probe.plan.len, probe.header.flags),
        (0, 1, 0, A)
    );
    s.expect_none();
    // Answered: silence begins anew.
    s.pass(20);
    s.inject(1, A, 1, &[]);
    assert_eq!(s.wait(), Some(10_000));
    let mut waits = Vec::new();
    let dead = loop {
        waits.push(s.wait().expect("the timer runs"));
        if let Some(dead) = s.timeout().dead {
            break dead;
        }
        s.expect(Kind::KeepAlive);
    };
    assert_eq!(dead, DeadCause::KeepAlive);
    assert_eq!(waits, [10_000, 2_000, 2_000, 2_000]);
    assert_eq!(s.m.state(), State::Closed);
}

#[test]
fn liveness_is_probed_on_request() {
    let mut s = Script::established(Script::config());
    s.m.probe_liveness(s.now);
    assert!(s.m.needs_send(s.now));
    s.expect(Kind::KeepAlive);
    s.expect_none();
}

#[test]
fn the_users_patience_ends_it() {
    // RFC 5482
    let mut s = Script::established(Config {
        user_timeout: Some(Duration::from_secs(3)),
        ..Script::config()
    });
    s.write(2000);
    s.drain();
    s.run(1000);
    // Progress starts the time anew.
    s.inject(1, A, 1001, &[]);
    let start = s.now;
    let dead = loop {
        let out = s.timeout();
        if let Some(dead) = out.dead {
            break dead;
        }
        s.drain();
    };
    assert_eq!(dead, DeadCause::UserTimeout);
    assert_eq!(s.now.since(start), Duration::from_secs(3));
}

#[test]
fn a_syn_waits_no_longer_than_the_user_allows() {
    // RFC 9293 section 3.10.8: in any state
    let config = || Config {
        user_timeout: Some(Duration::from_secs(4)),
        ..Script::config()
    };
    let mut connecting = Script::connecting(config());
    connecting.expect(Kind::Syn);
    let start = connecting.now;
    let dead = loop {
        if let Some(dead) = connecting.timeout().dead {
            break dead;
        }
        connecting.drain();
    };
    assert_eq!(dead, DeadCause::UserTimeout);
    assert_eq!(connecting.now.since(start), Duration::from_secs(4));
    // Time in the handshake does not count for what is sent behind it.
    let mut s = Script::connecting(config());
    s.expect(Kind::Syn);
    s.pass(900);
    assert!(s.inject(0, SA, 1, &[]).established);
    s.drain();
    s.pass(60_000);
    assert_eq!(s.m.state(), State::Established);
}

#[test]
fn data_is_sent_again_with_growing_pauses_and_given_up() {
    // RFC 6298 5.5, RFC 9293 3.8.3
    let mut s = Script::established(Config {
        timeouts: Timeouts {
            give_up: Duration::from_secs(5),
            ..Script::config().timeouts
        },
        options: TcpOptions {
            sack: false,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.write(500);
    s.expect_data(Kind::Data, 1, 501);
    let mut pauses = Vec::new();
    let mut last = s.now;
    let dead = loop {
        let out = s.timeout();
        if out.dead.is_some() {
            break out;
        }
        for sent in s.drain() {
            assert_eq!((sent.seq(), sent.plan.len), (1, 500));
            if sent.plan.kind == Kind::Retransmit {
                pauses.push(s.now.since(last).as_millis());
                last = s.now;
            }
        }
    };
    assert_eq!((dead.dead, dead.backoffs), (Some(DeadCause::Timeout), 5));
    assert_eq!(pauses.len(), 4);
    assert!(
        pauses.windows(2).skip(1).all(|w| w[1] == 2 * w[0]),
        "{pauses:?}"
    );
}

/// Five segments leave, one after the other, each full with the options of a caller of 28 bytes.
fn send_five(s: &mut Script) {
    s.offer.option_space = 28;
    for _ in 0..5 {
        s.write(972);
        s.expect(Kind::Data);
        s.now += Duration::from_millis(1);
    }
}

/// They leave again, and nothing else does, in segments of `mss` payload bytes.
fn assert_all_again(s: &mut Script, mss: u32) {
    let again = s.drain();
    assert!(
        again
            .iter()
            .all(|o| o.plan.kind == Kind::Retransmit && o.plan.mss == mss),
        "{again:?}"
    );
    let bytes: u32 = again.iter().map(|o| o.plan.len).sum();
    assert_eq!(bytes, 5 * 972);
}

/// A router says so of the segment at `seq`.
fn too_big(seq: SeqNum, mtu: u32) -> icmp::Error {
    icmp::Error {
        tuple: FourTuple::new(
            "10.0.0.2:80".parse().expect("valid"),
            "10.0.0.1:4000".parse().expect("valid"),
        ),
        seq,
        kind: icmp::Kind::FragNeeded { mtu },
    }
}

#[test]
fn a_path_that_is_smaller_by_less_than_the_callers_options_has_all_sent_again() {
    // RFC 8201 section 5.4. By as much as PPPoE, a tunnel of IPv4 in IPv4 and GRE take.
    for less in [8, 20, 24] {
        let mut s = Script::established(Script::config());
        send_five(&mut s);
        let cwnd = s.m.cwnd();
        let outcome = s.m.on_icmp(s.now, &too_big(ISN + 1, 1040 - less));
        assert_eq!(outcome, IcmpOutcome::MtuReduced);
        assert_all_again(&mut s, 972 - less);
        assert_eq!(s.m.cwnd(), cwnd, "{less} less");
    }
}

#[test]
fn reports_that_cannot_be_true_are_discarded() {
    // RFC 8201 section 4, RFC 791 section 3.2
    let over = |v6, mtu| {
        let error = too_big(ISN + 1, mtu);
        let tuple = match v6 {
            true => FourTuple::new(
                "[fd00::2]:80".parse().expect("valid"),
                "[fd00::1]:4000".parse().expect("valid"),
            ),
            false => error.tuple,
        };
        icmp::Error { tuple, ..error }
    };
    for (v6, mtu, expected) in [
        (false, 0, 496),
        (false, 1, 1_000),
        (false, 40, 1_000),
        (false, 67, 1_000),
        (false, 576, 536),
        (true, 0, 1_000),
        (true, 576, 1_000),
        (true, 1_000, 1_000),
    ] {
        let mut s = Script::established(Script::config());
        s.write(1_000);
        s.expect(Kind::Data);
        s.m.on_icmp(s.now, &over(v6, mtu));
        assert_eq!(s.m.mss(), expected, "MTU {mtu}");
    }
}

#[test]
fn a_smaller_path_makes_smaller_segments() {
    // RFC 1191, RFC 5927 section 7.2
    let mut s = Script::established(Script::config());
    s.write(3000);
    assert_eq!(s.drain().len(), 3);
    assert_eq!(
        s.m.on_icmp(s.now, &too_big(ISN + 3001, 800)),
        IcmpOutcome::Ignored,
        "never sent"
    );
    assert_eq!(
        s.m.on_icmp(s.now, &too_big(ISN, 800)),
        IcmpOutcome::Ignored,
        "acknowledged"
    );
    assert_eq!(
        s.m.on_icmp(s.now, &too_big(ISN + 1, 1500)),
        IcmpOutcome::Ignored,
        "not smaller"
    );
    assert_eq!(
        s.m.on_icmp(s.now, &too_big(ISN + 1, 800)),
        IcmpOutcome::MtuReduced
    );
    assert_eq!(s.m.mss(), 760);
    let cwnd = s.m.cwnd();
    s.offer.max_burst = 9000;
    let again = s.drain();
    assert!(
        again
            .iter()
            .all(|o| o.plan.kind == Kind::Retransmit && o.plan.mss == 760),
        "{again:?}"
    );
    assert_eq!(again[0].seq(), 1);
    assert!(s.m.cwnd() >= cwnd.min(7600), "no congestion");
}

#[test]
fn an_interface_that_changes_changes_what_is_sent() {
    let mut s = Script::established(Config {
        mss: 1460,
        ..Script::config()
    });
    send_five(&mut s);
    let cwnd = s.m.cwnd();
    s.m.set_mss(s.now, 1460);
    s.expect_none();
    // RFC 8201 section 5.4: no congestion.
    s.m.set_mss(s.now, 900);
    assert_all_again(&mut s, 872);
    assert_eq!((s.m.cwnd(), s.m.mss()), (cwnd, 900));
    s.settle();
    // A larger one is tried by a probe, as far as the peer takes it.
    s.m.set_mss(s.now, 9000);
    assert_eq!(s.m.mss(), 900);
    s.write(20_000);
    let probe = s.expect(Kind::Data);
    assert_eq!(probe.plan.len, 972);
    s.settle();
    assert_eq!(s.m.mss(), 1000);
}

#[test]
fn an_interface_that_changes_before_the_answer_changes_what_is_announced() {
    let mut s = Script::connecting(Config {
        mss: 1460,
        ..Script::config()
    });
    s.m.set_mss(s.now, 1240);
    let syn = s.expect(Kind::Syn);
    assert_eq!(syn.options.mss, Some(Mss(1240)));
}
