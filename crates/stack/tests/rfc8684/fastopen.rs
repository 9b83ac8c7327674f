//! TCP Fast Open with Multipath TCP: RFC 7413, and RFC 8684 appendix B with erratum 6609.

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::ids::ConnId;
use manypath_stack::{
    ConnOptions, EventKind, FallbackCause, Mode, ProtocolLevel, ReadOutcome, StackConfig,
};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{CapableKeys, Dss, MptcpOption};
use manypath_wire::tcp::options::{FastOpen, Timestamps};

use crate::script::packet::{Pkt, Seg, ack, data, rst, syn, syn_ack};
use crate::script::session::{
    PEER_KEY, PORT, Session, call, capable, listen, map_at, third_packet,
};
use crate::script::{World, plain_options};

const EARLY: &[u8; 20] = b"bytes inside the SYN";

fn options() -> ConnOptions {
    ConnOptions {
        fast_open: true,
        ..plain_options()
    }
}

fn cookie() -> FastOpen {
    FastOpen::new(b"8 bytes!").expect("a valid length")
}

fn with_option(mut pkt: Pkt, option: FastOpen) -> Pkt {
    pkt.options.fastopen = Some(option);
    pkt
}

/// The stack calls, and has written these bytes before its SYN left.
fn call_with(w: &mut World, opts: ConnOptions, early: &[u8]) -> (ConnId, usize, Seg) {
    let conn = w.stack.connect(w.now, call(opts)).expect("a path");
    if !early.is_empty() {
        assert_eq!(w.stack.write(w.now, conn, early), Ok(early.len()));
    }
    let (flow, syn) = w.answer();
    (conn, flow, syn)
}

/// A world in which the stack has a cookie of the peer.
fn acquainted(opts: &ConnOptions) -> World {
    let mut w = World::new(1);
    let (conn, flow, syn) = call_with(&mut w, opts.clone(), b"");
    assert_eq!(syn.options.fastopen, Some(FastOpen::REQUEST));
    assert!(!syn.has_data());
    let mut answer = syn_ack();
    answer.options.fastopen = Some(cookie());
    w.inject(flow, &answer);
    w.stack.abort(w.now, conn).expect("open");
    w.drain(flow);
    w
}

/// The stack showed its cookie with twenty bytes; the peer speaks Multipath TCP and takes `taken` of them.
fn answered(taken: u32) -> (Session, usize) {
    let mut w = acquainted(&options());
    let (conn, flow, syn) = call_with(&mut w, options(), EARLY);
    assert_eq!(syn.options.fastopen, Some(cookie()));
    assert!(syn.capable().is_some());
    assert_eq!(syn.payload, EARLY);
    w.flows[flow].rcv = syn.seq + 1 + taken;
    let keys = CapableKeys::SynAck { sender: PEER_KEY };
    w.inject(flow, &syn_ack().opt(capable(true, keys)));
    let sender = w
        .sent
        .iter()
        .find_map(|s| match s.capable().map(|c| c.keys) {
            Some(CapableKeys::Ack { sender, .. } | CapableKeys::Data { sender, .. }) => {
                Some(sender)
            }
            _ => None,
        });
    let Some(sender) = sender else {
        w.fail("nothing carries the stack's key");
    };
    let own = KeyMaterial::derive(sender);
    (Session::around(w, conn, None, own, true), flow)
}

#[test]
fn fast_open_payload_is_excluded_from_the_data_sequence() {
    // rfc8684:O3,O2
    let (mut s, flow) = answered(20);
    let third = s.w.expect(flow, "the third packet", |s| s.is_bare());
    assert!(matches!(
        third.capable().map(|c| c.keys),
        Some(CapableKeys::Ack { .. })
    ));
    s.write(b"after");
    let first =
        s.w.expect(flow, "the first mapped data", |s| s.payload == b"after");
    // The SYN has the first number, this the second; the subflow counts from it as well.
    let map = s.map_of_own(0, Ssn::new(1), b"after");
    let Some(CapableKeys::Data { len, checksum, .. }) = first.capable().map(|c| c.keys) else {
        s.w.fail("the first data has no MP_CAPABLE");
    };
    assert_eq!((len, checksum), (map.len, map.checksum));
    assert_eq!(first.seq, s.w.flows[flow].irs + 21);
    s.received = 5;
    s.ack(flow);
    s.write(b"more");
    let next = s.w.find(flow, "mapped data", |s| s.payload == b"more");
    assert_eq!(next.mapping(), Some(s.map_of_own(5, Ssn::new(6), b"more")));
    assert_eq!(s.w.count().fast_open_taken, 1);
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn unaccepted_fast_open_payload_is_retransmitted_with_a_mapping() {
    // rfc8684:O4
    for taken in [0u32, 7] {
        let (mut s, flow) = answered(taken);
        let rest = &EARLY[taken as usize..];
        let again = s.w.find(flow, "the rest", |s| s.has_data());
        assert_eq!(again.payload, rest);
        assert_eq!(again.seq, s.w.flows[flow].irs + 1 + taken);
        let map = s.map_of_own(0, Ssn::new(1), rest);
        let Some(CapableKeys::Data { len, checksum, .. }) = again.capable().map(|c| c.keys) else {
            s.w.fail("the first data has no MP_CAPABLE");
        };
        assert_eq!((len, checksum), (map.len, map.checksum));
        s.received = rest.len() as u64;
        s.ack(flow);
        assert_eq!(s.info().level, ProtocolLevel::Multipath);
        s.w.advance_ms(3000);
        let again = s.w.drain(flow).into_iter().filter(Seg::has_data).count();
        assert_eq!(again, 0, "everything is acknowledged");
    }
}

#[test]
fn an_early_answer_does_not_confirm_mptcp() {
    // rfc8684:O5,C13
    let (mut s, flow) = answered(20);
    s.w.drain(flow);
    let early = MptcpOption::Dss(Dss {
        data_ack: None,
        mapping: Some(s.map(flow, 0, b"early answer")),
        data_fin: false,
    });
    s.w.inject(flow, &data(b"early answer").opt(early));
    assert_eq!(s.read(), b"early answer");
    s.write(b"x");
    let first = s.w.find(flow, "data", |s| s.has_data());
    assert!(
        matches!(
            first.capable().map(|c| c.keys),
            Some(CapableKeys::Data { .. })
        ),
        "MP_CAPABLE is repeated until the keys are known to be there"
    );
}

#[test]
fn fast_open_without_mptcp_follows_rfc_7413() {
    // RFC 7413 section 4.2.1
    for taken in [0u32, 12, 20] {
        let mut opts = options();
        opts.mode = Mode::PlainTcp;
        let mut w = acquainted(&opts);
        let (conn, flow, syn) = call_with(&mut w, opts, EARLY);
        assert_eq!(syn.payload, EARLY);
        w.flows[flow].rcv = syn.seq + 1 + taken;
        w.inject(flow, &syn_ack());
        let sent: Vec<u8> = w.drain(flow).into_iter().flat_map(|s| s.payload).collect();
        assert_eq!(sent, EARLY[taken as usize..]);
        w.inject(flow, &ack());
        w.stack.write(w.now, conn, b"more").expect("writable");
        w.find(flow, "more", |s| s.payload == b"more" && s.is_plain());
    }
}

#[test]
fn a_syn_that_stays_unanswered_is_repeated_without_and_the_path_remembered() {
    // RFC 7413 section 4.1.3.1
    let mut w = acquainted(&options());
    let (_, flow, syn) = call_with(&mut w, options(), EARLY);
    assert!(syn.has_data());
    w.advance_ms(1100);
    let again = w.expect(flow, "the SYN again", Seg::is_syn);
    assert!(!again.has_data() && again.options.fastopen.is_none());
    assert!(again.capable().is_some());
    w.inject(flow, &syn_ack());
    w.find(flow, "the data after the handshake", |s| s.payload == EARLY);
    let (_, _, next) = call_with(&mut w, options(), EARLY);
    assert!(next.options.fastopen.is_none() && !next.has_data());
}

#[test]
fn an_unanswered_fast_open_syn_is_remembered() {
    // RFC 7413 section 4.1.3: a firewall may drop everything of the two ports once it saw such a SYN.
    for (end, remembered) in [
        ("time", true),
        ("gave up", true),
        ("at once", false),
        ("reset", false),
    ] {
        let mut w = acquainted(&options());
        let (conn, flow, syn) = call_with(&mut w, options(), EARLY);
        assert!(syn.has_data());
        match end {
            "time" => w.advance_ms(600_000),
            "gave up" => {
                w.advance_ms(1_100);
                w.stack.abort(w.now, conn).expect("open");
            }
            "at once" => w.stack.abort(w.now, conn).expect("open"),
            _ => w.inject(flow, &rst()),
        }
        w.drain(flow);
        let (_, _, next) = call_with(&mut w, options(), EARLY);
        assert_eq!(next.options.fastopen.is_none(), remembered, "{end}");
        assert_eq!(next.has_data(), !remembered, "{end}");
    }
}

#[test]
fn a_rejected_cookie_is_forgotten() {
    let mut w = acquainted(&options());
    let (_, flow, syn) = call_with(&mut w, options(), EARLY);
    w.flows[flow].rcv = syn.seq + 1;
    w.inject(flow, &syn_ack());
    let (_, _, next) = call_with(&mut w, options(), EARLY);
    assert_eq!(next.options.fastopen, Some(FastOpen::REQUEST));
    assert_eq!(w.stack.cookies().count(), 0);
}

/// A SYN of the peer with everything that a SYN of a real host has.
fn full_syn(option: FastOpen) -> Pkt {
    let mut pkt = with_option(syn(), option).opt(capable(true, CapableKeys::Syn));
    pkt.options.timestamps = Some(Timestamps { val: 1, ecr: 0 });
    pkt.options.sack_permitted = true;
    pkt.options.window_scale = Some(7);
    pkt
}

/// The peer gets a cookie of a listener.
fn cookie_of(w: &mut World) -> FastOpen {
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &full_syn(FastOpen::REQUEST));
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    let granted = answer.options.fastopen.expect("a cookie");
    // rfc8684:O2: it is short enough for a place beside MP_CAPABLE with a key, and beside all else.
    assert!(granted.cookie().len() >= 4 && answer.capable().is_some());
    assert!(answer.options.timestamps.is_some() && answer.options.window_scale.is_some());
    granted
}

fn with_payload(mut pkt: Pkt, bytes: &[u8]) -> Pkt {
    pkt.payload = bytes.to_vec();
    pkt
}

/// The peer's SYN with a good cookie and twenty bytes was taken.
fn accepted(mptcp: bool) -> (Session, usize) {
    let mut w = World::new(1);
    let listener = listen(&mut w, options());
    let granted = cookie_of(&mut w);
    let flow = w.dial(0, 4001, PORT);
    let mut pkt = with_payload(with_option(syn(), granted), EARLY);
    if mptcp {
        pkt = pkt.opt(capable(true, CapableKeys::Syn));
    }
    w.inject(flow, &pkt);
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(answer.ack, w.flows[flow].isn + 21, "the payload is taken");
    let conn = w.stack.accept(listener).expect("there is data to answer");
    let key = match answer.capable().map(|c| c.keys) {
        Some(CapableKeys::SynAck { sender }) if mptcp => sender,
        None if !mptcp => PEER_KEY,
        _ => w.fail("MP_CAPABLE in the SYN/ACK is wrong"),
    };
    let own = KeyMaterial::derive(key);
    (Session::around(w, conn, Some(listener), own, true), flow)
}

#[test]
fn a_listener_takes_the_data_and_may_answer_before_the_third_packet() {
    // rfc8684:O3,O5
    let (mut s, flow) = accepted(true);
    assert_eq!(s.read(), EARLY);
    s.write(b"the answer");
    let answer =
        s.w.expect(flow, "an early answer", |s| s.payload == b"the answer");
    let dss = answer.dss().copied();
    let map = s.map_of_own(0, Ssn::new(1), b"the answer");
    assert_eq!(dss.and_then(|d| d.mapping), Some(map));
    assert_eq!(
        dss.and_then(|d| d.data_ack),
        None,
        "there is no key to count from"
    );
    s.received = 10;
    let pkt = third_packet(true, s.own.key());
    s.w.inject(flow, &pkt);
    s.w.drain(flow);
    // The first byte behind the SYN is the second of the data sequence, and number one of the subflow.
    let map = map_at(s.peer_dsn(0), Ssn::new(1), b"and more", true);
    let dss = s.dss(Some(map));
    s.w.inject(flow, &data(b"and more").opt(dss));
    assert_eq!(s.read(), b"and more");
    s.w.advance_ms(100);
    let acked = s.w.find(flow, "a Data ACK", |s| s.dss().is_some());
    assert_eq!(s.acked(&acked), Some(8));
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
    assert_eq!(s.w.count().fast_open_accepted, 1);
    s.w.check(
        s.w.happened(|e| matches!(e, EventKind::Acceptable(_))),
        "the listener heard of it",
    );
}

#[test]
fn an_early_connection_can_be_closed_early() {
    // rfc8684:O5,F1
    let (mut s, flow) = accepted(true);
    s.read();
    s.write(b"all of it");
    s.shutdown();
    s.w.drain(flow);
    s.received = 9;
    let pkt = third_packet(true, s.own.key());
    s.w.inject(flow, &pkt);
    s.ack(flow);
    let fin = s.w.find(flow, "DATA_FIN", Seg::is_data_fin);
    assert_eq!(s.position(&fin.mapping().expect("it is mapped")), 9);
}

#[test]
fn early_data_survives_the_loss_of_the_options() {
    // rfc8684:O3,C31
    let (mut s, flow) = accepted(true);
    s.read();
    s.write(b"early");
    s.w.drain(flow);
    s.w.inject(flow, &ack());
    assert_eq!(s.info().fallback, Some(FallbackCause::ThirdAckWithout));
    s.w.inject(flow, &data(b"plain"));
    assert_eq!(s.read(), b"plain");
    s.write(b" late");
    s.w.find(flow, "plain data", |s| {
        s.payload == b" late" && s.is_plain()
    });
}

#[test]
fn a_listener_serves_plain_tcp_early_too() {
    let (mut s, flow) = accepted(false);
    assert_eq!(s.read(), EARLY);
    s.write(b"early");
    s.w.expect(flow, "an early answer", |s| {
        s.payload == b"early" && s.is_plain()
    });
    s.w.inject(flow, &ack());
    s.w.inject(flow, &data(b"late"));
    assert_eq!(s.read(), b"late");
}

#[test]
fn a_lost_syn_ack_is_repeated_and_early_data_behind_it() {
    let (mut s, flow) = accepted(true);
    s.read();
    s.write(b"early");
    s.w.drain(flow);
    s.w.advance_ms(1100);
    let again = s.w.expect(flow, "the SYN/ACK again", Seg::is_syn_ack);
    assert_eq!(again.ack, s.w.flows[flow].isn + 21);
    let irs = s.w.flows[flow].irs;
    let pkt = third_packet(true, s.own.key()).acking(irs + 1);
    s.w.inject(flow, &pkt);
    s.w.advance_ms(300);
    let data = s.w.find(flow, "the data again", Seg::has_data);
    assert_eq!((data.seq, data.payload), (irs + 1, b"early".to_vec()));
}

#[test]
fn a_bad_cookie_and_no_cookie_give_an_ordinary_handshake() {
    // rfc8684:O4 as the peer sees it
    for shown in [Some(cookie()), None] {
        let mut w = World::new(1);
        let listener = listen(&mut w, options());
        let flow = w.dial(0, 4001, PORT);
        let mut pkt = with_payload(syn(), EARLY).opt(capable(true, CapableKeys::Syn));
        pkt.options.fastopen = shown;
        w.inject(flow, &pkt);
        let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
        assert_eq!(answer.ack, w.flows[flow].isn + 1, "nothing is taken");
        assert_eq!(answer.options.fastopen.is_some(), shown.is_some());
        assert_eq!(w.stack.accept(listener), None);
    }
}

#[test]
fn a_listener_without_fast_open_neither_issues_nor_accepts_cookies() {
    let mut w = World::new(1);
    listen(&mut w, plain_options());
    let flow = w.dial(0, 4001, PORT);
    w.inject(flow, &with_payload(full_syn(FastOpen::REQUEST), b"x"));
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(answer.ack, w.flows[flow].isn + 1);
    assert_eq!(answer.options.fastopen, None);
}

#[test]
fn of_the_data_in_a_syn_no_more_is_taken_than_there_is_room_for() {
    let config = StackConfig {
        unaccepted_window: 7,
        ..StackConfig::default()
    };
    let mut w = World::with(config, 1);
    let listener = listen(&mut w, options());
    let granted = cookie_of(&mut w);
    let flow = w.dial(0, 4001, PORT);
    w.inject(flow, &with_payload(with_option(syn(), granted), EARLY));
    let answer = w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!((answer.ack, answer.window), (w.flows[flow].isn + 8, 0));
    let conn = w.stack.accept(listener).expect("the first");
    let mut part = [0; 64];
    assert_eq!(
        w.stack.read(w.now, conn, &mut part),
        Ok(ReadOutcome::Data(7))
    );
}

#[test]
fn early_connections_are_limited() {
    // RFC 7413 section 5.1
    let config = StackConfig {
        max_early: 1,
        ..StackConfig::default()
    };
    let mut w = World::with(config, 1);
    let listener = listen(&mut w, options());
    let granted = cookie_of(&mut w);
    let pkt = with_payload(with_option(syn(), granted), EARLY);
    let first = w.dial(0, 4001, PORT);
    w.inject(first, &pkt);
    let second = w.dial(0, 4002, PORT);
    w.inject(second, &pkt);
    let answer = w.expect(second, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(
        answer.ack,
        w.flows[second].isn + 1,
        "one is under way already"
    );
    assert_eq!(w.count().fast_open_limited, 1);
    // Its handshake ends, and there is room again.
    w.flows[first].nxt = w.flows[first].isn + 21;
    w.inject(first, &ack());
    let conn = w.stack.accept(listener).expect("the first");
    let mut part = [0; 64];
    assert_eq!(
        w.stack.read(w.now, conn, &mut part),
        Ok(ReadOutcome::Data(20))
    );
    let third = w.dial(0, 4003, PORT);
    w.inject(third, &pkt);
    let answer = w.expect(third, "SYN/ACK", Seg::is_syn_ack);
    assert_eq!(answer.ack, w.flows[third].isn + 21);
}
