//! Loss and what follows, seen from outside: RFC 6298, 6675, 8985, 6937, 5682, 3042, 2883, 3168.

mod common;

use common::script::{A, Out, S, SA, Script};
use manypath_tcp::machine::{Config, CongestionConfig, Context, Kind, TcpOptions};
use manypath_tcp::time::Duration;
use manypath_wire::ip::Ecn;
use manypath_wire::tcp::header::Flags;

/// Ten segments in flight.
fn loaded(cfg: Config) -> Script {
    let mut s = Script::established(cfg);
    s.write(10_000);
    assert_eq!(s.drain().len(), 10);
    s.pass(10);
    s
}

#[test]
fn three_segments_behind_a_hole_mean_loss() {
    // RFC 6675 section 5, RFC 8985 section 6.2
    let mut s = loaded(Script::config());
    s.inject_sack(1, &[(1001, 2001)]);
    s.inject_sack(1, &[(1001, 3001)]);
    s.expect_none();
    s.inject_sack(1, &[(1001, 4001)]);
    s.expect_data(Kind::Retransmit, 1, 1001);
    s.expect_none();
    assert!(s.m.in_recovery());
    assert_eq!(s.m.counters().recovery.recoveries, 1);
    s.pass(10);
    s.inject(1, A, 10_001, &[]);
    assert!(!s.m.in_recovery());
    assert_eq!(s.m.cwnd(), 7000, "CUBIC keeps seven tenths");
    assert_eq!(s.m.counters().recovery.timeouts, 0);
}

#[test]
fn one_segment_behind_a_hole_is_reordering_until_time_passed() {
    // RFC 8985 section 6.2: a quarter of the round trip
    let mut s = loaded(Script::config());
    s.inject_sack(1, &[(1001, 2001)]);
    s.expect_none();
    let wait = s.wait().expect("the reordering timer runs");
    assert!(wait <= 5, "{wait}");
    let out = s.timeout();
    assert!(!out.rto_fired);
    s.expect_data(Kind::Retransmit, 1, 1001);
    // It was only late: the peer says so, and nothing is reduced.
    s.pass(1);
    s.inject_sack(10_001, &[]);
    assert!(!s.m.in_recovery());
}

#[test]
fn a_lost_tail_is_probed_before_the_timer() {
    // RFC 8985 section 7
    let mut s = Script::established(Script::config());
    s.write(3000);
    s.drain();
    let wait = s.wait().expect("the probe timer runs");
    assert!(wait < 200, "{wait}");
    let out = s.timeout();
    assert!(!out.rto_fired);
    s.expect_data(Kind::TailProbe, 2001, 3001);
    s.expect_none();
    assert_eq!(s.m.counters().sent.tail_probes, 1);
    s.pass(10);
    s.inject_sack(1, &[(2001, 3001)]);
    // Both go again; proportional reduction lets the second wait for the arrival of the first.
    let mut sent: u32 = s.run(15).iter().map(|(_, o)| o.plan.len).sum();
    s.inject_sack(1001, &[(2001, 3001)]);
    sent += s.run(15).iter().map(|(_, o)| o.plan.len).sum::<u32>();
    assert_eq!(sent, 2000);
    assert_eq!(s.m.counters().recovery.timeouts, 0);
}

#[test]
fn the_unresponsive_timeout_allows_for_pauses_of_the_host() {
    // A probe leaves after two round trips, but what is shorter than a host may pause for says nothing about the path.
    for (round_trip, silent_after) in [(1, 22), (4, 28), (10, 20), (50, 100)] {
        let mut s = Script::established(Script::config());
        for write in 0..60 {
            s.write(2_000);
            s.drain();
            s.pass(round_trip);
            s.inject_sack(2_000 * (write + 1) + 1, &[]);
        }
        s.write(2_000);
        s.drain();
        let sent = s.now;
        while !s.timeout().silent {
            s.drain();
        }
        let after = s.now.since(sent).as_millis();
        assert!(
            after.abs_diff(silent_after) <= 2,
            "{after} ms with {round_trip}"
        );
    }
}

#[test]
fn a_probe_carries_new_data_where_it_can() {
    // RFC 8985 section 7.3
    let mut s = loaded(Script::config());
    s.write(5000);
    s.expect_none();
    s.timeout();
    let probe = s.expect_data(Kind::TailProbe, 10_001, 11_001);
    assert!(probe.plan.carries_new(common::script::ISN + 10_001));
}

#[test]
fn a_probe_repeats_the_last_segment_where_the_caller_has_other_uses_for_new_data() {
    let mut s = loaded(Script::config());
    s.offer.probe_new = false;
    s.write(5000);
    s.expect_none();
    assert!(!s.m.tail_probe_due());
    s.timeout();
    assert!(s.m.tail_probe_due());
    s.expect_data(Kind::TailProbe, 9001, 10_001);
    assert!(!s.m.tail_probe_due());
}

#[test]
fn a_probe_with_the_first_new_data_after_a_reduction_announces_it() {
    // RFC 3168 6.1.2: a peer that is not told goes on to echo the mark, and the window is reduced a second time for it.
    let mut s = Script::established(Config {
        congestion: CongestionConfig {
            ecn: true,
            ..Script::config().congestion
        },
        ..Script::config()
    });
    s.write(20_000);
    assert_eq!(s.drain().len(), 10);
    s.pass(10);
    s.inject(1, A | Flags::ECE, 2001, &[]);
    s.expect_none();
    s.timeout();
    let probe = s.expect_data(Kind::TailProbe, 10_001, 11_001);
    assert!(probe.header.flags.contains(Flags::CWR));
    assert_eq!(probe.ecn, Ecn::Ect0);
    s.pass(10);
    s.inject(1, A, 11_001, &[]);
    let sent = s.drain();
    assert!(sent.len() > 1 && sent.iter().all(|o| !o.header.flags.contains(Flags::CWR)));
}

#[test]
fn the_acknowledgement_that_ends_the_repair_after_a_timeout_grows_the_window() {
    // RFC 5681 3.1
    let mut s = Script::established(Script::config());
    s.write(1000);
    s.expect_data(Kind::Data, 1, 1001);
    while !s.timeout().rto_fired {
        s.drain();
    }
    s.expect_data(Kind::Retransmit, 1, 1001);
    assert_eq!(s.m.cwnd(), 1000);
    s.pass(10);
    s.inject(1, A, 1001, &[]);
    assert!(!s.m.in_recovery());
    assert_eq!(s.m.cwnd(), 2000);
}

#[test]
fn the_timer_holds_everything_to_be_lost_and_begins_with_one_segment() {
    // RFC 6298 5.4 to 5.6, RFC 5681 3.1
    let mut s = loaded(Script::config());
    let mut fired = false;
    while !fired {
        fired = s.timeout().rto_fired;
        if !fired {
            s.drain();
        }
    }
    assert_eq!(s.m.backoffs(), 1);
    s.expect_data(Kind::Retransmit, 1, 1001);
    s.expect_none();
    assert_eq!(s.m.cwnd(), 1000);
    s.pass(10);
    s.inject_sack(1001, &[]);
    let sent = s.drain();
    assert!((1..=2).contains(&sent.len()), "slow start: {sent:?}");
    assert_eq!(s.m.backoffs(), 0);
}

#[test]
fn an_unacknowledged_retransmission_is_followed_by_an_empty_segment() {
    // RFC 9293 3.10.7.4: whatever the peer has to send itself, that one has a bare acknowledgement for an answer.
    let mut s = loaded(Script::config());
    s.inject(1, A, 1, b"payload of the peer");
    s.drain();
    for asks in [false, true, true] {
        while !s.timeout().rto_fired {
            s.drain();
        }
        let sent = s.drain();
        assert_eq!((sent[0].plan.kind, sent[0].seq()), (Kind::Retransmit, 1));
        let empty = sent.iter().filter(|out| out.plan.kind == Kind::KeepAlive);
        let empty: Vec<_> = empty.map(|out| (out.seq(), out.plan.len)).collect();
        assert_eq!(empty, if asks { vec![(0, 0)] } else { vec![] });
    }
    s.pass(10);
    s.inject_sack(10_001, &[]);
    assert_eq!(s.m.backoffs(), 0);
    s.write(1_000);
    assert!(s.drain().iter().all(|sent| sent.plan.kind == Kind::Data));
}

#[test]
fn an_answer_to_a_retransmission_is_no_round_trip_sample_and_adds_an_empty_segment() {
    // The peer's acknowledgements ride on data that is too large for its path: what arrives is the answer to a duplicate.
    let mut s = loaded(Script::config());
    s.inject(1, A, 1, b"payload of the peer");
    s.drain();
    let before = s.m.rto();
    let empty = |sent: &[Out]| sent.iter().any(|out| out.plan.kind == Kind::KeepAlive);
    for (round, asks) in [(0, false), (1, true), (2, true)] {
        let first = 1 + 1000 * round;
        let mut asked = false;
        while !s.timeout().rto_fired {
            asked |= empty(&s.drain());
        }
        asked |= empty(&s.drain());
        assert_eq!(asked, asks, "round {round}");
        s.pass(1);
        s.inject_sack(first + 1000, &[(first, first + 1000)]);
        s.drain();
        assert!(s.m.rto() <= before, "{:?}, was {before:?}", s.m.rto());
    }
}

#[test]
fn an_unresponsive_path_is_probed_each_second_and_restarts_like_an_idle_one() {
    // RFC 6298 5.5 with a bound, RFC 5681 4.1
    let mut s = loaded(Script::config());
    assert!(!s.m.on_path_hint(s.now), "it is not silent");
    let second = Duration::from_secs(1);
    s.m.set_probe_interval(s.now, Some(second));
    let mut last = s.now;
    while s.m.backoffs() < 30 {
        assert_eq!(s.timeout().dead, None);
        if s.drain()
            .iter()
            .any(|sent| sent.plan.kind == Kind::Retransmit)
        {
            assert!(
                s.now.since(last) <= second.times(2),
                "the first one follows a probe"
            );
            last = s.now;
        }
    }
    assert!(s.m.rto() <= second);
    s.pass(100);
    s.expect_none();
    assert!(s.m.on_path_hint(s.now), "the link is up again");
    let head = s.expect(Kind::Retransmit);
    assert_eq!((head.seq(), s.m.backoffs()), (1, 30));
    s.pass(10);
    s.inject_sack(1 + head.plan.len, &[]);
    assert_eq!(s.m.backoffs(), 0);
    assert!(s.m.cwnd() >= 10 * s.m.mss(), "{}", s.m.cwnd());
    s.m.set_probe_interval(s.now, None);
    let sent: u32 = s.drain().iter().map(|sent| sent.plan.len).sum();
    assert!(sent >= 4_000, "{sent}");
}

#[test]
fn a_spurious_timeout_is_taken_back() {
    // RFC 5682, RFC 3522: the echo tells that the first transmission arrived.
    let mut s = loaded(Config {
        options: TcpOptions {
            timestamps: true,
            ..Script::config().options
        },
        ..Script::config()
    });
    let cwnd = s.m.cwnd();
    let first = s.now.as_millis() as u32 - 10;
    while !s.timeout().rto_fired {
        s.drain();
    }
    s.expect(Kind::Retransmit);
    assert!(s.m.cwnd() < cwnd);
    s.pass(1);
    s.tsecr = first;
    s.tsval += 1;
    s.inject_sack(4000, &[]);
    assert_eq!(s.m.counters().recovery.undos, 1);
    assert!(s.m.cwnd() >= cwnd);
    assert!(s.drain().iter().all(|o| o.plan.kind != Kind::Retransmit));
}

#[test]
fn a_reported_duplicate_takes_a_reduction_back() {
    // RFC 2883, RFC 3708
    let mut s = loaded(Script::config());
    let cwnd = s.m.cwnd();
    s.inject_sack(1, &[(1001, 4001)]);
    s.expect_data(Kind::Retransmit, 1, 1001);
    // The original was only late.
    s.pass(2);
    s.inject_sack(4001, &[]);
    s.pass(8);
    s.inject_sack(4001, &[(1, 1001)]);
    assert_eq!(s.m.counters().recovery.dsacks_in, 1);
    assert!(s.m.cwnd() >= cwnd, "{} of {cwnd}", s.m.cwnd());
}

#[test]
fn limited_transmit_and_fast_retransmit_without_sack() {
    // RFC 3042, RFC 5681 3.2
    let mut s = loaded(Config {
        options: TcpOptions {
            sack: false,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.write(5000);
    s.expect_none();
    s.inject(1, A, 1, &[]);
    s.expect_data(Kind::Data, 10_001, 11_001);
    s.expect_none();
    s.inject(1, A, 1, &[]);
    s.expect_data(Kind::Data, 11_001, 12_001);
    s.expect_none();
    s.inject(1, A, 1, &[]);
    s.expect_data(Kind::Retransmit, 1, 1001);
    s.expect_none();
    s.pass(10);
    s.inject(1, A, 12_001, &[]);
    assert_eq!(s.m.counters().recovery.timeouts, 0);
    assert!(!s.m.in_recovery());
}

#[test]
fn duplicate_acks_that_carry_options_are_no_loss_signal() {
    // rfc8684:G1
    let mut s = loaded(Config {
        options: TcpOptions {
            sack: false,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.write(5000);
    s.ctx = Context {
        congestion_signal_ok: false,
        ..common::PLAIN
    };
    for _ in 0..5 {
        s.inject(1, A, 1, &[]);
    }
    s.expect_none();
    assert_eq!((s.m.cwnd(), s.m.in_recovery()), (10_000, false));
}

#[test]
fn neighbouring_losses_leave_in_one_burst() {
    let mut s = loaded(Script::config());
    s.offer.max_burst = 65_535;
    s.inject_sack(1, &[(5001, 10_001)]);
    let again = s.expect(Kind::Retransmit);
    assert_eq!(
        (again.seq(), again.plan.len % 1000, again.plan.mss),
        (1, 0, 1000)
    );
    assert!(again.plan.len > 1000);
}

#[test]
fn recovery_sends_no_more_than_arrives() {
    // RFC 6937 (proportional rate reduction)
    let mut s = loaded(Script::config());
    s.write(50_000);
    s.inject_sack(1, &[(1001, 4001)]);
    let mut sent = s.drain().len();
    for end in [5001, 6001, 7001, 8001, 9001, 10_001] {
        s.inject_sack(1, &[(1001, end)]);
        sent += s.drain().len();
    }
    // Nine segments left the network; seven tenths of them may enter it.
    assert!((5..=8).contains(&sent), "{sent}");
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    // RFC 7661
    let mut s = Script::established(Script::config());
    for _ in 0..50 {
        s.write(500);
        s.settle();
        s.pass(20);
    }
    assert!(s.m.cwnd() <= 12_000, "{}", s.m.cwnd());
}

#[test]
fn a_syn_ack_lost_twice_leaves_a_first_window_of_one_segment() {
    // RFC 5681 3.1 with RFC 6928 2
    let mut s = Script::accepting(Script::config());
    s.expect(Kind::SynAck);
    for _ in 0..2 {
        s.timeout();
        s.expect(Kind::SynAck);
    }
    s.pass(10);
    assert!(s.inject(1, A, 1, &[]).established);
    s.write(50_000);
    assert_eq!(s.drain().len(), 1);
}

#[test]
fn a_repeated_syn_of_the_peer_costs_no_window() {
    let mut s = Script::accepting(Script::config());
    s.expect(Kind::SynAck);
    s.inject(0, S, 0, &[]);
    s.expect(Kind::SynAck);
    s.pass(10);
    assert!(s.inject(1, A, 1, &[]).established);
    s.write(50_000);
    assert!(!s.drain().is_empty());
}

#[test]
fn a_syn_lost_twice_means_a_first_window_of_one_segment() {
    // RFC 5681 3.1 with RFC 6928 2, RFC 6298 5.7
    for (losses, usual) in [(1, true), (2, false)] {
        let mut s = Script::connecting(Script::config());
        s.expect(Kind::Syn);
        for _ in 0..losses {
            s.timeout();
            s.expect(Kind::Syn);
        }
        s.pass(10);
        s.inject(0, SA, 1, &[]);
        s.expect(Kind::Ack);
        s.write(50_000);
        assert_eq!(s.drain().len() > 1, usual, "{losses}");
    }
}

#[test]
fn only_new_data_may_be_marked_and_a_reduction_is_announced() {
    // RFC 3168 6.1.2, 6.1.4
    let mut s = Script::established(Config {
        congestion: CongestionConfig {
            ecn: true,
            ..Script::config().congestion
        },
        ..Script::config()
    });
    s.write(20_000);
    let sent = s.drain();
    assert!(
        sent.iter()
            .all(|o| o.ecn == Ecn::Ect0 && !o.header.flags.contains(Flags::CWR))
    );
    let before = s.m.cwnd();
    s.inject(1, A | Flags::ECE, 2001, &[]);
    assert!(s.m.cwnd() < before);
    s.inject(1, A | Flags::ECE, 4001, &[]);
    let reduced = s.m.cwnd();
    s.inject(1, A | Flags::ECE, 9001, &[]);
    assert_eq!(s.m.cwnd(), reduced, "once a window");
    let sent = s.drain();
    assert!(sent[0].header.flags.contains(Flags::CWR));
    assert!(
        sent[1..]
            .iter()
            .all(|o| !o.header.flags.contains(Flags::CWR))
    );
    let out = s.inject(1, A, 9001, &[7; 10]);
    assert!(out.arrival.in_order().is_some());
    assert_eq!(s.expect(Kind::Ack).ecn, Ecn::NotEct);
}
