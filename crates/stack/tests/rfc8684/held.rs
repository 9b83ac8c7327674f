//! SYNs with payload that the application answers when it has decided (RFC 8803 section 3.2), and our own SYNs with payload and
//! without Fast Open.

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{ConnOptions, EventKind, ProtocolLevel, ReadOutcome, StackConfig};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::CapableKeys;

use crate::script::packet::{Pkt, Seg, ack, data, rst, syn, syn_ack};
use crate::script::session::{PORT, Session, call, capable, listen, map_at, third_packet};
use crate::script::{World, plain_options};

const EARLY: &[u8; 20] = b"where I want to go, ";

fn asking(mptcp: bool) -> Pkt {
    let mut pkt = syn();
    pkt.payload = EARLY.to_vec();
    match mptcp {
        true => pkt.opt(capable(true, CapableKeys::Syn)),
        false => pkt,
    }
}

/// A SYN with twenty bytes is held, and its connection accepted.
fn held(w: &mut World, mptcp: bool) -> (ListenerId, ConnId, usize) {
    let listener = listen(w, plain_options());
    w.stack.hold_syns(listener, true).expect("it listens");
    let flow = w.dial(0, 4001, PORT);
    w.inject(flow, &asking(mptcp));
    w.quiet(flow);
    let conn = w.stack.accept(listener).expect("there is data to read");
    assert!(w.stack.is_held(conn));
    let mut bytes = [0; 64];
    let read = w.stack.read(w.now, conn, &mut bytes);
    assert_eq!(read, Ok(ReadOutcome::Data(20)));
    assert_eq!(bytes[..20], EARLY[..]);
    (listener, conn, flow)
}

fn answer(w: &mut World, conn: ConnId, flow: usize, proven: bool) -> Seg {
    w.stack.answer_syn(w.now, conn, proven).expect("held");
    assert!(!w.stack.is_held(conn));
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(answer.ack, w.flows[flow].isn + 21, "the payload is taken");
    answer
}

#[test]
fn a_held_syn_is_answered_when_the_application_says_so_and_multipath_goes_on() {
    let mut w = World::new(1);
    let (listener, conn, flow) = held(&mut w, true);
    // Its SYN comes again meanwhile, without the payload as peers do; nothing is said before its time.
    w.advance_ms(1000);
    w.inject(flow, &syn().opt(capable(true, CapableKeys::Syn)));
    w.flows[flow].nxt = w.flows[flow].isn + 21;
    w.advance_ms(5000);
    w.quiet(flow);
    let syn_ack = answer(&mut w, conn, flow, false);
    let Some(CapableKeys::SynAck { sender }) = syn_ack.capable().map(|c| c.keys) else {
        w.fail("no MP_CAPABLE");
    };
    let own = KeyMaterial::derive(sender);
    let mut s = Session::around(w, conn, Some(listener), own, true);
    s.write(b"the answer");
    s.w.quiet(flow);
    assert!(s.w.stack.is_early(conn));
    let third = third_packet(true, s.own.key());
    s.w.inject(flow, &third);
    assert!(!s.w.stack.is_early(conn));
    s.w.check(
        s.w.happened(|e| matches!(e, EventKind::Established)),
        "the peer has acknowledged the answer",
    );
    let first = s.w.find(flow, "data behind the handshake", |s| {
        s.payload == b"the answer"
    });
    assert_eq!(
        first.mapping(),
        Some(s.map_of_own(0, Ssn::new(1), b"the answer"))
    );
    let map = map_at(s.peer_dsn(0), Ssn::new(1), b"and more", true);
    let dss = s.dss(Some(map));
    s.w.inject(flow, &data(b"and more").opt(dss));
    assert_eq!(s.read(), b"and more");
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
    assert_eq!(s.w.count().syn_held, 1);
    assert_eq!(s.w.count().fast_open_accepted, 0);
}

#[test]
fn a_proven_peer_gets_data_right_behind_the_answer() {
    let mut w = World::new(1);
    let (_, conn, flow) = held(&mut w, false);
    w.stack.write(w.now, conn, b"early").expect("writable");
    w.quiet(flow);
    answer(&mut w, conn, flow, true);
    w.find(flow, "data behind the SYN/ACK", |s| s.payload == b"early");
    w.inject(flow, &ack());
    w.inject(flow, &data(b"late"));
    let mut bytes = [0; 8];
    let read = w.stack.read(w.now, conn, &mut bytes);
    assert_eq!(read, Ok(ReadOutcome::Data(4)));
}

#[test]
fn to_a_peer_that_has_proved_nothing_the_answer_alone_is_sent_and_repeated() {
    let mut w = World::new(1);
    let (_, conn, flow) = held(&mut w, false);
    w.stack.write(w.now, conn, &[7; 5000]).expect("writable");
    answer(&mut w, conn, flow, false);
    w.advance_ms(1100);
    let again = w.drain(flow);
    assert!(again.iter().all(|s| s.is_syn_ack()) && !again.is_empty());
    w.inject(flow, &ack());
    w.find(flow, "data behind the handshake", Seg::has_data);
}

#[test]
fn a_held_syn_can_be_refused_and_its_client_may_give_up() {
    for refused in [true, false] {
        let mut w = World::new(1);
        let (_, conn, flow) = held(&mut w, true);
        if refused {
            w.stack.abort(w.now, conn).expect("open");
            let answer = w.expect(flow, "a refusal", Seg::is_rst);
            assert_eq!(answer.ack, w.flows[flow].isn + 21, "the client believes it");
        } else {
            w.inject(flow, &rst().seq(w.flows[flow].isn + 21));
            w.stack.close(w.now, conn).ok();
        }
        w.advance_ms(100);
        assert!(w.stack.info(conn).is_err(), "it is forgotten");
        w.inject(flow, &ack());
        w.expect(flow, "no such connection", Seg::is_rst);
    }
}

#[test]
fn an_acknowledgement_of_an_answer_that_was_not_sent_is_no_proof() {
    let mut w = World::new(1);
    let (_, conn, flow) = held(&mut w, false);
    w.inject(flow, &ack().acking(manypath_wire::seq::SeqNum::new(77)));
    w.drain(flow);
    assert!(w.stack.is_held(conn), "a guess opens nothing");
    answer(&mut w, conn, flow, false);
}

#[test]
fn syns_that_are_held_are_limited_and_further_ones_are_answered_without_their_payload() {
    let config = StackConfig {
        max_early: 1,
        ..StackConfig::default()
    };
    let mut w = World::with(config, 1);
    let (_, conn, first) = held(&mut w, false);
    let second = w.dial(0, 4002, PORT);
    w.inject(second, &asking(false));
    let at_once = w.expect(second, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(at_once.ack, w.flows[second].isn + 1);
    answer(&mut w, conn, first, false);
    w.flows[first].nxt = w.flows[first].isn + 21;
    w.inject(first, &ack());
    let third = w.dial(0, 4003, PORT);
    w.inject(third, &asking(false));
    w.quiet(third);
}

#[test]
fn a_syn_without_payload_is_answered_at_once() {
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    w.stack.hold_syns(listener, true).expect("it listens");
    let flow = w.dial(0, 4001, PORT);
    w.inject(flow, &syn());
    w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
}

fn eager() -> ConnOptions {
    ConnOptions {
        data_in_syn: true,
        ..plain_options()
    }
}

/// The stack calls with twenty bytes.
fn called(w: &mut World) -> (ConnId, usize, Seg) {
    let conn = w.stack.connect(w.now, call(eager())).expect("a path");
    assert_eq!(w.stack.write(w.now, conn, EARLY), Ok(EARLY.len()));
    let (flow, syn) = w.answer();
    (conn, flow, syn)
}

#[test]
fn a_syn_of_ours_takes_data_along_without_fast_open() {
    let mut w = World::new(1);
    let (conn, flow, first) = called(&mut w);
    assert_eq!(first.payload, EARLY);
    assert_eq!(first.options.fastopen, None);
    // Held by the peer for longer than our timer, which repeats the SYN alone.
    w.advance_ms(1100);
    let again = w.expect(flow, "the SYN again", Seg::is_syn);
    assert!(!again.has_data());
    w.flows[flow].rcv = first.seq + 21;
    w.inject(flow, &syn_ack());
    assert!(w.drain(flow).iter().all(|s| !s.has_data()), "it is taken");
    w.stack.write(w.now, conn, b"more").expect("writable");
    w.find(flow, "more", |s| s.payload == b"more");
    let (_, _, next) = called(&mut w);
    assert_eq!(next.payload, EARLY, "what worked is done again");
}

#[test]
fn data_that_a_syn_took_along_in_vain_follows_and_the_next_syn_is_without() {
    for lost in [false, true] {
        let mut w = World::new(1);
        let (_, flow, first) = called(&mut w);
        assert_eq!(first.payload, EARLY);
        if lost {
            w.advance_ms(1100);
            w.expect(flow, "the SYN again", Seg::is_syn);
        }
        w.inject(flow, &syn_ack());
        w.find(flow, "the data after the handshake", |s| s.payload == EARLY);
        let (_, _, next) = called(&mut w);
        assert!(!next.has_data());
    }
}
