//! Closing: RFC 9293 sections 3.6 and 3.10.7.4, RFC 6191.

mod common;

use common::script::{A, FA, R, S, Script};
use manypath_tcp::machine::{Config, Ended, Kind, State, TcpOptions, Timeouts};
use manypath_tcp::time::Duration;

fn closing(cfg: Config) -> Script {
    let mut s = Script::established(cfg);
    s.offer.fin = true;
    s
}

#[test]
fn we_close_first() {
    // RFC 9293 3.6 figure 12
    let mut s = closing(Script::config());
    s.write(1500);
    s.expect_data(Kind::Data, 1, 1001);
    let last = s.expect_data(Kind::Data, 1001, 1501);
    assert!(last.plan.fin && last.header.flags.fin());
    assert_eq!(s.m.state(), State::FinWait1);
    s.expect_none();
    assert!(!s.inject(1, A, 1501, &[]).fin_acked);
    let out = s.inject(1, A, 1502, &[]);
    assert!(out.fin_acked);
    assert_eq!(
        s.m.counters().recovery.bytes_acked,
        1500,
        "the FIN is no byte"
    );
    assert_eq!(s.m.state(), State::FinWait2);
    let out = s.inject(1, A, 1502, b"still");
    assert!(out.arrival.in_order().is_some());
    s.expect(Kind::Ack);
    let out = s.inject(6, FA, 1502, &[]);
    assert!(out.arrival.fin);
    assert_eq!(s.m.state(), State::TimeWait);
    assert_eq!(s.expect(Kind::Ack).ack(), 7);
    // A FIN sent again is acknowledged again and the wait begins anew.
    s.pass(30_000);
    s.inject(6, FA, 1502, &[]);
    s.expect(Kind::Ack);
    assert_eq!(s.wait(), Some(60_000));
    s.timeout();
    assert_eq!(s.m.state(), State::Closed);
    assert_eq!(s.wait(), None);
}

#[test]
fn the_peer_closes_first() {
    let mut s = Script::established(Script::config());
    assert!(s.inject(1, FA, 1, &[]).arrival.fin);
    assert_eq!(s.m.state(), State::CloseWait);
    s.expect(Kind::Ack);
    s.write(100);
    s.expect_data(Kind::Data, 1, 101);
    s.offer.fin = true;
    let fin = s.expect(Kind::Fin);
    assert_eq!((fin.seq(), fin.plan.len), (101, 0));
    assert_eq!(s.m.state(), State::LastAck);
    assert!(s.inject(2, A, 102, &[]).fin_acked);
    assert_eq!(s.m.state(), State::Closed);
}

#[test]
fn both_close_at_once() {
    // RFC 9293 3.6 figure 13
    let mut s = closing(Script::config());
    s.expect(Kind::Fin);
    s.inject(1, FA, 1, &[]);
    assert_eq!(s.m.state(), State::Closing);
    s.expect(Kind::Ack);
    s.inject(2, A, 2, &[]);
    assert_eq!(s.m.state(), State::TimeWait);
}

#[test]
fn fin_and_its_acknowledgement_in_one_segment() {
    let mut s = closing(Script::config());
    s.expect(Kind::Fin);
    let out = s.inject(1, FA, 2, &[]);
    assert!(out.arrival.fin && out.fin_acked);
    assert_eq!(s.m.state(), State::TimeWait);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut s = closing(Config {
        options: TcpOptions {
            sack: false,
            ..Script::config().options
        },
        ..Script::config()
    });
    s.write(100);
    s.expect_data(Kind::Data, 1, 101);
    s.expect_none();
    while !s.timeout().rto_fired {
        s.drain();
    }
    let again = s.expect_data(Kind::Retransmit, 1, 101);
    assert!(again.plan.fin);
    s.inject(1, A, 102, &[]);
    assert_eq!(s.m.state(), State::FinWait2);
}

#[test]
fn abort_sends_one_reset() {
    let mut s = Script::established(Script::config());
    s.write(1000);
    s.drain();
    s.m.abort();
    let reset = s.expect(Kind::Reset);
    assert!(reset.header.flags.rst());
    assert_eq!((reset.seq(), reset.ack()), (1001, 1));
    assert_eq!(s.m.state(), State::Closed);
    s.expect_none();
    assert_eq!(s.wait(), None);
    // Before the peer knows of us there is nobody to tell.
    let mut s = Script::connecting(Script::config());
    s.expect(Kind::Syn);
    s.m.abort();
    s.expect_none();
    assert_eq!(s.m.state(), State::Closed);
}

#[test]
fn a_new_connection_may_end_time_wait() {
    // RFC 9293 3.10.7.4, RFC 6191
    let waiting = |timestamps| {
        let mut s = closing(Config {
            options: TcpOptions {
                timestamps,
                ..Script::config().options
            },
            ..Script::config()
        });
        s.expect(Kind::Fin);
        s.inject(1, FA, 2, &[]);
        s.drain();
        assert_eq!(s.m.state(), State::TimeWait);
        s
    };
    let mut s = waiting(false);
    assert!(s.inject(1, S, 0, &[]).ended.is_none());
    assert_eq!(s.m.state(), State::TimeWait);
    assert!(s.inject(100, S, 0, &[]).ended == Some(Ended::Reopen));
    assert_eq!(s.m.state(), State::Closed);
    let mut s = waiting(true);
    s.tsval += 1;
    assert!(s.inject_with(0, S, 0, &[], |p| p.header.seq -= 500).ended == Some(Ended::Reopen));
}

#[test]
fn time_wait_is_not_assassinated_by_an_inexact_reset() {
    // RFC 1337, RFC 5961
    let mut s = closing(Script::config());
    s.expect(Kind::Fin);
    s.inject(1, FA, 2, &[]);
    s.drain();
    s.inject(100, R, 0, &[]);
    assert_eq!(s.m.state(), State::TimeWait);
}

#[test]
fn time_wait_lasts_as_configured() {
    let mut s = closing(Config {
        timeouts: Timeouts {
            time_wait: Duration::from_secs(1),
            ..Script::config().timeouts
        },
        ..Script::config()
    });
    s.expect(Kind::Fin);
    s.inject(1, FA, 2, &[]);
    s.drain();
    assert_eq!(s.wait(), Some(1000));
}
