//! SYN cookies that keep Multipath TCP: section 3.1, RFC 4987 section 3.6.

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::ids::ListenerId;
use manypath_stack::{FallbackCause, PathEvent, ProtocolLevel, StackConfig, SynCookiePolicy};
use manypath_wire::ids::Key;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{CapableKeys, Dss, MptcpOption};
use manypath_wire::tcp::options::Timestamps;

use crate::script::packet::{Pkt, Seg, ack, data, syn};
use crate::script::session::{PEER_KEY, PORT, Session, capable, listen, map_at, third_packet};
use crate::script::{World, path, plain_options};

fn world(policy: SynCookiePolicy) -> (World, ListenerId) {
    world_with(StackConfig {
        syn_cookies: policy,
        ..StackConfig::default()
    })
}

fn world_with(config: StackConfig) -> (World, ListenerId) {
    let mut w = World::with(config, 2);
    let listener = listen(&mut w, plain_options());
    (w, listener)
}

/// A SYN with everything that a SYN of a real host has.
fn full_syn(mptcp: bool) -> Pkt {
    let mut pkt = syn();
    if mptcp {
        pkt = pkt.opt(capable(true, CapableKeys::Syn));
    }
    pkt.options.timestamps = Some(Timestamps { val: 1, ecr: 0 });
    pkt.options.sack_permitted = true;
    pkt.options.window_scale = Some(7);
    pkt
}

/// The stack answered a SYN and forgot it: nothing is kept, and the key is known to the script alone.
fn answered(w: &mut World, port: u16, mptcp: bool) -> (usize, Seg, Option<KeyMaterial>) {
    let before = w.stack.conns().len();
    let flow = w.dial(0, port, PORT);
    w.inject(flow, &full_syn(mptcp));
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(w.stack.conns().len(), before, "nothing is remembered");
    let key = match answer.capable().map(|c| c.keys) {
        Some(CapableKeys::SynAck { sender }) => Some(KeyMaterial::derive(sender)),
        _ => None,
    };
    (flow, answer, key)
}

fn stamped(mut pkt: Pkt, answer: &Seg) -> Pkt {
    pkt.options.timestamps = Some(Timestamps {
        val: 2,
        ecr: answer.options.timestamps.expect("they were offered").val,
    });
    pkt
}

/// A whole handshake by cookie.
fn opened() -> (Session, usize) {
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, key) = answered(&mut w, 4000, true);
    let own = key.expect("MP_CAPABLE in the SYN/ACK");
    w.inject(flow, &stamped(third_packet(true, own.key()), &answer));
    let conn = w
        .stack
        .accept(listener)
        .expect("the third packet brings it back");
    (Session::around(w, conn, Some(listener), own, true), flow)
}

#[test]
fn the_third_packet_brings_everything_back() {
    // rfc8684:C7,C24
    let (mut s, flow) = opened();
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
    s.ack(flow);
    s.send(flow, 0, b"question");
    assert_eq!(s.read(), b"question");
    s.w.drain(flow);
    s.write(b"answer");
    let seg = s.w.find(flow, "mapped data", Seg::has_data);
    assert_eq!(seg.mapping(), Some(s.map_of_own(0, Ssn::new(1), b"answer")));
    let tcp = s.info().subflows[0].tcp;
    assert!(
        tcp.options.timestamps && tcp.options.sack,
        "what the timestamp hid"
    );
    assert_eq!(tcp.options.send_scale, 7);
    assert_eq!(s.w.count().syn_cookie_accepted, 1);
    s.received = 6;
    s.ack(flow);
    // It can be joined like any other.
    s.join_in(1, 7, false);
    assert_eq!(s.working(), 2);
}

#[test]
fn a_handshake_by_cookie_is_measured() {
    // The echo tells the round trip, which is never too short for what hides in it.
    for late in [1, 30, 200] {
        let (mut w, listener) = world(SynCookiePolicy::Always);
        let (flow, answer, key) = answered(&mut w, 4000, true);
        let own = key.expect("MP_CAPABLE in the SYN/ACK");
        w.advance_ms(late - 1);
        w.inject(flow, &stamped(third_packet(true, own.key()), &answer));
        let conn = w.stack.accept(listener).expect("established");
        let tcp = w.stack.info(conn).expect("open").subflows[0].tcp;
        let srtt = tcp.srtt.expect("measured").as_millis();
        assert!((late..late + 64).contains(&srtt), "{late} {srtt}");
        assert!(tcp.rto.as_millis() < 1_000, "{}", tcp.rto.as_millis());
    }
}

#[test]
fn the_first_data_does_as_well_when_the_third_packet_is_lost() {
    // rfc8684:C7,C10,C11
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, key) = answered(&mut w, 4000, true);
    let own = key.expect("MP_CAPABLE in the SYN/ACK");
    let peer = KeyMaterial::derive(PEER_KEY);
    let map = map_at(peer.first_byte(), Ssn::new(1), b"first", true);
    let keys = CapableKeys::Data {
        sender: PEER_KEY,
        receiver: own.key(),
        len: map.len,
        checksum: map.checksum,
    };
    // A later segment that overtakes it cannot be recognised, and is answered as what belongs to nothing (RFC 9293 section 3.10.7.2).
    let irs = w.flows[flow].isn;
    let later = map_at(peer.first_byte() + 5, Ssn::new(6), b"second", true);
    let later = MptcpOption::Dss(Dss {
        data_ack: None,
        mapping: Some(later),
        data_fin: false,
    });
    w.inject(flow, &data(b"second").opt(later).seq(irs + 6));
    w.expect(flow, "RST", |seg| seg.flags.rst());
    assert_eq!(w.count().syn_cookie_failed, 1);
    w.inject(
        flow,
        &stamped(data(b"first").opt(capable(true, keys)), &answer),
    );
    let conn = w.stack.accept(listener).expect("it has the keys");
    let mut s = Session::around(w, conn, Some(listener), own, true);
    assert_eq!(s.read(), b"first");
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn what_follows_a_third_packet_without_room_gets_no_reset() {
    // rfc8684:C7: the peer repeats its first data, by which it is recognised once there is room; a reset meanwhile would end it.
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, key) = answered(&mut w, 4000, true);
    let own = key.expect("MP_CAPABLE in the SYN/ACK");
    let third = stamped(third_packet(true, own.key()), &answer);
    for port in 0..8 {
        let (flow, answer, key) = answered(&mut w, 5000 + port, true);
        let own = key.expect("MP_CAPABLE in the SYN/ACK");
        w.inject(flow, &stamped(third_packet(true, own.key()), &answer));
    }
    w.inject(flow, &third);
    assert_eq!(w.count().syn_backlog_full, 1);
    let irs = w.flows[flow].isn;
    w.inject(flow, &data(b"second").seq(irs + 6));
    w.quiet(flow);
    w.stack
        .accept(listener)
        .expect("the first of those that wait");
    w.inject(flow, &third);
    assert_eq!(w.count().syn_cookie_accepted, 9);
    // Whoever sends what belongs to nothing an hour later is told so.
    w.stack.accept(listener).expect("the next one");
    w.advance_ms(3_600_000);
    let (late, ..) = answered(&mut w, 4001, true);
    let irs = w.flows[late].isn;
    w.inject(late, &data(b"second").seq(irs + 6));
    w.expect(late, "RST", |seg| seg.flags.rst());
}

#[test]
fn the_first_data_without_keys_gives_plain_tcp() {
    // rfc8684:C7,C31: a peer that repeats its data, but not the keys that belong on it, is not left without an answer.
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, _) = answered(&mut w, 4000, true);
    let peer = KeyMaterial::derive(PEER_KEY);
    let map = |bytes| {
        MptcpOption::Dss(Dss {
            data_ack: None,
            mapping: Some(map_at(peer.first_byte(), Ssn::new(1), bytes, true)),
            data_fin: false,
        })
    };
    // Without data the keys may still be on their way.
    let irs = w.flows[flow].isn;
    w.inject(flow, &stamped(ack().opt(map(b"")).seq(irs + 1), &answer));
    w.quiet(flow);
    assert_eq!(w.count().syn_cookie_failed, 1);
    w.inject(flow, &stamped(data(b"first").opt(map(b"first")), &answer));
    let conn = w.stack.accept(listener).expect("it is open");
    let own = KeyMaterial::derive(PEER_KEY);
    let mut s = Session::around(w, conn, Some(listener), own, true);
    assert_eq!(s.read(), b"first");
    assert_eq!(s.info().level, ProtocolLevel::PlainTcp);
    assert_eq!(s.w.count().syn_cookie_accepted, 1);
}

#[test]
fn a_third_packet_without_keys_or_with_wrong_ones_gives_plain_tcp() {
    // rfc8684:C7,C14,C31
    for (pkt, bad) in [(ack(), 0), (third_packet(true, Key([9; 8])), 1)] {
        let (mut w, listener) = world(SynCookiePolicy::Always);
        let (flow, answer, _) = answered(&mut w, 4000, true);
        w.inject(flow, &stamped(pkt, &answer));
        let conn = w.stack.accept(listener).expect("TCP");
        let info = w.stack.info(conn).expect("open");
        assert_eq!(info.level, ProtocolLevel::PlainTcp);
        assert_eq!(info.fallback, Some(FallbackCause::PeerWithout));
        assert_eq!(w.count().capable_bad_key, bad);
    }
}

#[test]
fn plain_tcp_by_cookie_with_and_without_timestamps() {
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, key) = answered(&mut w, 4000, false);
    assert_eq!(key, None); // rfc8684:C30
    w.inject(flow, &stamped(ack(), &answer));
    let conn = w.stack.accept(listener).expect("TCP");
    assert_eq!(
        w.stack.info(conn).expect("open").subflows[0]
            .tcp
            .options
            .send_scale,
        7
    );

    let flow = w.dial(0, 4001, PORT);
    let mut pkt = syn();
    pkt.options.sack_permitted = true;
    pkt.options.window_scale = Some(7);
    w.inject(flow, &pkt);
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    // What cannot be kept is not agreed on.
    assert!(answer.options.window_scale.is_none() && !answer.options.sack_permitted);
    w.inject(flow, &data(b"at once"));
    let conn = w.stack.accept(listener).expect("TCP");
    let tcp = w.stack.info(conn).expect("open").subflows[0].tcp;
    assert!(!tcp.options.sack && !tcp.options.timestamps && tcp.options.send_scale == 0);
}

#[test]
fn a_small_window_before_it_is_accepted_holds_by_cookie_too() {
    // What TCP acknowledges is part of the stream, also where a device joined many segments.
    for size in [1_000, 40_000] {
        let (mut w, listener) = world_with(StackConfig {
            syn_cookies: SynCookiePolicy::Always,
            unaccepted_window: 4_000,
            ..StackConfig::default()
        });
        let (flow, answer, _) = answered(&mut w, 4000, false);
        w.inject(flow, &stamped(ack(), &answer));
        let first = w.flows[flow].nxt;
        for _ in 0..40_000 / size {
            w.inject(flow, &stamped(data(&vec![7; size]), &answer));
        }
        w.advance_ms(100);
        let told = w.drain(flow).pop().expect("an acknowledgement");
        let conn = w.stack.accept(listener).expect("TCP");
        let own = KeyMaterial::derive(PEER_KEY);
        let mut s = Session::around(w, conn, Some(listener), own, true);
        let taken = s.read().len();
        assert_eq!(told.ack, first + taken as u32);
        assert!((4_000..6_000).contains(&taken), "{taken}");
        assert_eq!(s.w.count().beyond_window_bytes, 0);
        assert_eq!(answer.window, 4_000);
    }
}

#[test]
fn an_ack_with_a_wrong_or_expired_cookie_opens_nothing() {
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, key) = answered(&mut w, 4000, true);
    let own = key.expect("a key").key();
    let guessed = w.flows[flow].irs + 2;
    w.inject(
        flow,
        &stamped(third_packet(true, own), &answer).acking(guessed),
    );
    assert_eq!(w.stack.accept(listener), None);
    assert_eq!(w.count().syn_cookie_failed, 1);
    w.advance_ms(129_000);
    w.drain(flow);
    w.inject(flow, &stamped(third_packet(true, own), &answer));
    assert_eq!(w.stack.accept(listener), None);
    w.expect(flow, "a reset, as for anything unknown", Seg::is_rst);
}

#[test]
fn a_token_that_is_taken_is_not_given_again() {
    // rfc8684:C8
    let (mut w, listener) = world(SynCookiePolicy::Always);
    let (flow, answer, first) = answered(&mut w, 4000, true);
    // The SYN comes again before and after its connection exists: the key changes once its token is taken.
    let again = |w: &mut World| {
        let copy = w.dial(0, 4000, PORT);
        w.flows[copy].isn = w.flows[flow].isn;
        copy
    };
    let copy = again(&mut w);
    w.flows.swap(flow, copy);
    w.inject(flow, &full_syn(true));
    let second = w.find(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(
        second.capable().map(|c| c.keys),
        answer.capable().map(|c| c.keys)
    );
    w.inject(
        flow,
        &stamped(third_packet(true, first.expect("a key").key()), &answer),
    );
    assert!(w.stack.accept(listener).is_some());
}

#[test]
fn cookies_begin_when_the_backlog_is_full_of_young_handshakes() {
    let (mut w, listener) = world(SynCookiePolicy::WhenFull);
    for port in 0..8 {
        let flow = w.dial(0, 5000 + port, PORT);
        w.inject(flow, &full_syn(true));
    }
    assert_eq!(w.count().syn_cookie_sent, 0);
    let (flow, answer, key) = answered(&mut w, 4000, true);
    assert_eq!(w.count().syn_cookie_sent, 1);
    // Its third packet proves its address: handshakes that others may never finish do not stand in its way.
    let own = key.expect("a key");
    w.inject(flow, &stamped(third_packet(true, own.key()), &answer));
    let conn = w.stack.accept(listener).expect("established");
    let info = w.stack.info(conn).expect("open");
    assert_eq!(info.level, ProtocolLevel::Multipath);
}

#[test]
fn an_evicted_half_open_connection_sends_nothing_and_a_repeated_syn_protects_it() {
    // RFC 4987 section 3.4: to a client whose SYN/ACK was lost a reset would be a refusal.
    let (mut w, listener) = world(SynCookiePolicy::WhenFull);
    let mut flows = Vec::new();
    for port in 0..8 {
        flows.push(w.dial(0, 5000 + port, PORT));
        w.inject(flows[usize::from(port)], &full_syn(true));
    }
    w.advance_ms(700);
    let again = |w: &World, flow: usize| full_syn(true).seq(w.flows[flow].isn);
    let first = again(&w, flows[0]);
    w.inject(flows[0], &first);
    let answer = w.find(flows[0], "SYN/ACK", Seg::is_syn_ack);
    w.advance_ms(500);
    w.drain(flows[1]);
    let late = w.dial(0, 6000, PORT);
    w.inject(late, &full_syn(true));
    w.expect(late, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(w.count().half_open_evicted, 1);
    assert!(!w.sent.iter().any(Seg::is_rst));
    w.quiet(flows[1]);
    // Who had to go is let in when it asks again.
    let second = again(&w, flows[1]);
    w.inject(flows[1], &second);
    w.expect(flows[1], "SYN/ACK", Seg::is_syn_ack);
    // Who had asked again never had to go.
    let Some(CapableKeys::SynAck { sender }) = answer.capable().map(|c| c.keys) else {
        w.fail("MP_CAPABLE in the SYN/ACK");
    };
    w.inject(flows[0], &stamped(third_packet(true, sender), &answer));
    assert!(w.stack.accept(listener).is_some());
}

#[test]
fn without_them_a_full_backlog_drops_syns() {
    let (mut w, _) = world(SynCookiePolicy::Never);
    for port in 0..9 {
        let flow = w.dial(0, 5000 + port, PORT);
        w.inject(flow, &full_syn(true));
    }
    assert_eq!(
        (w.count().syn_backlog_full, w.count().syn_cookie_sent),
        (1, 0)
    );
    let now = w.now;
    w.stack
        .handle_path_event(now, PathEvent::Up(path(0, false)));
}
