//! MP_JOIN: section 3.2.

use manypath_stack::crypto::mac::JoinMac;
use manypath_stack::{PathManager, SubflowEnd, SubflowPhase};
use manypath_wire::ids::{AddrId, Nonce, Token};
use manypath_wire::tcp::mptcp::{Join, MptcpOption, ResetReason};

use crate::script::packet::{ack, syn, syn_ack};
use crate::script::session::{PEER_NONCE, PORT, Session, greet, listen, third_packet};
use crate::script::{World, ours, path, plain_options};

#[test]
fn a_join_authenticates_both_ends() {
    // rfc8684:J1,J3,J4,J5,J9,J11,J12,C28
    let mut s = Session::called_with(2, plain_options());
    let (flow, syn) = s.open_out(1);
    let Some(&Join::Syn {
        backup,
        addr_id,
        token,
        ..
    }) = syn.join()
    else {
        s.w.fail("no MP_JOIN");
    };
    assert_eq!((backup, token), (false, s.peer.token));
    assert!(syn.capable().is_none(), "MP_CAPABLE opens connections only");
    assert_ne!(addr_id, AddrId(0), "0 is the first subflow's address");
    assert_eq!(syn.raw_option(1).map(|o| (o.len(), o[2])), Some((12, 0x10)));
    let answer = s.join_answer(&syn, 9, false);
    s.w.inject(flow, &answer);
    s.write(b"early");
    let third = s.w.expect(flow, "the third packet", |s| s.is_bare());
    let (Some(&Join::Syn { nonce, .. }), Some(&Join::Ack { hmac })) = (syn.join(), third.join())
    else {
        s.w.fail("no MP_JOIN in the third packet");
    };
    let expected = JoinMac::compute(s.keys(), nonce, PEER_NONCE).ack();
    assert_eq!(hmac, expected);
    let raw = third.raw_option(1).map(|o| (o.len(), o[2], o[3]));
    assert_eq!(raw, Some((24, 0x10, 0)), "reserved bits are zero");
    let info = s.info();
    let sub = info.subflows.iter().find(|i| i.id.0 == 1).expect("there");
    assert_eq!(sub.phase, SubflowPhase::PreEstablished);
    assert_eq!((sub.local_id, sub.remote_id), (addr_id, AddrId(9)));
}

#[test]
fn the_third_packet_of_a_join_is_repeated_until_it_is_answered() {
    // rfc8684:J11,J12
    let mut s = Session::called_with(2, plain_options());
    let (flow, syn) = s.open_out(1);
    let answer = s.join_answer(&syn, 9, false);
    s.w.inject(flow, &answer);
    s.w.expect(flow, "the third packet", |s| s.join().is_some());
    // Data flows on the first subflow alone, however little its window leaves.
    s.w.flows[0].window = 1000;
    s.ack(0);
    s.write(&[1; 4000]);
    s.w.advance_ms(4000);
    let sent = s.w.drain(flow);
    assert!(sent.len() >= 2, "repeated\n{}", s.w.log());
    let proofs = |seg: &crate::script::packet::Seg| matches!(seg.join(), Some(Join::Ack { .. }));
    s.w.check(sent.iter().all(proofs), "every packet proves again");
    s.w.check(sent.iter().all(|seg| !seg.has_data()), "no data before");
    s.ack(flow);
    s.w.drain(flow);
    assert_eq!(s.working(), 2);
    s.w.advance_ms(8000);
    let again = s.w.drain(flow).iter().any(|seg| seg.join().is_some());
    s.w.check(!again, "answered: not repeated any more");
}

#[test]
fn the_fourth_packet_measures_where_the_syn_did_not() {
    // rfc8684:J11
    let mut s = Session::called_with(2, plain_options());
    let (flow, syn) = s.open_out(1);
    // Which of the two SYNs is answered nobody knows.
    s.w.advance_ms(1_002);
    s.w.expect(flow, "the SYN again", |s| s.is_syn());
    let answer = s.join_answer(&syn, 9, false);
    s.w.inject(flow, &answer);
    s.w.expect(flow, "the third packet", |s| s.join().is_some());
    let srtt = |s: &Session| s.info().subflows[1].tcp.srtt;
    assert_eq!(srtt(&s), None);
    s.w.advance_ms(7);
    s.ack(flow);
    let measured = srtt(&s).expect("a round trip");
    assert!((7..=8).contains(&measured.as_millis()), "{measured:?}");
}

#[test]
fn the_fourth_packet_measures_nothing_where_the_third_was_sent_again() {
    // rfc8684:J11
    for asked_again in [true, false] {
        let mut s = Session::called_with(2, plain_options());
        let (flow, syn) = s.open_out(1);
        s.w.advance_ms(1_002);
        s.w.expect(flow, "the SYN again", |s| s.is_syn());
        let answer = s.join_answer(&syn, 9, false);
        s.w.inject(flow, &answer);
        s.w.expect(flow, "the third packet", |s| s.join().is_some());
        if asked_again {
            s.w.advance_ms(1_000);
            s.w.inject(flow, &answer);
        } else {
            s.w.advance_ms(3_100);
        }
        s.w.find(flow, "the third packet again", |s| s.join().is_some());
        s.w.advance_ms(7);
        s.ack(flow);
        assert_eq!(s.info().subflows[1].tcp.srtt, None);
    }
}

#[test]
fn a_join_of_the_peer_is_answered_with_hmac_and_a_fourth_ack() {
    // rfc8684:J3,J5,J7,J9,J10,J17
    let mut s = Session::accepted_with(2, plain_options());
    // Nobody listens any more, and never did on this port.
    let listener = s.listener.expect("it listens");
    assert_eq!(s.w.stack.close_listener(s.w.now, listener), Ok(()));
    let flow = s.w.dial(1, 4001, 9999);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    let raw = answer.raw_option(1).map(|o| (o.len(), o[2]));
    assert_eq!(raw, Some((16, 0x10)), "no backup, reserved bits zero");
    let third = s.join_ack(&answer);
    s.w.quiet(flow);
    // The fourth packet may be lost, before which the peer sends no data.
    for _ in 0..2 {
        s.w.inject(flow, &third);
        s.w.expect(flow, "the fourth packet", |s| {
            s.is_bare() && s.join().is_none()
        });
        s.w.quiet(flow);
    }
    assert_eq!(s.working(), 2);
    // From here on the addresses and ports name the subflow. // rfc8684:J18
    s.send(flow, 0, b"joined");
    assert_eq!(s.read(), b"joined");
}

#[test]
fn every_attempt_has_a_nonce_of_its_own() {
    // rfc8684:J2,S4
    let mut s = Session::accepted_with(2, plain_options());
    let mut nonces = Vec::new();
    for port in 0..8 {
        let flow = s.w.dial(1, 5000 + port, PORT);
        let syn = s.join_syn(5, false);
        s.w.inject(flow, &syn);
        let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
        let Some(&Join::SynAck { nonce, .. }) = answer.join() else {
            s.w.fail("no MP_JOIN");
        };
        nonces.push(nonce.0);
    }
    nonces.sort_unstable();
    nonces.dedup();
    assert_eq!(nonces.len(), 8);
}

#[test]
fn an_unknown_token_is_answered_by_a_reset_with_its_reason() {
    // rfc8684:J8,E1
    let mut s = Session::accepted_with(2, plain_options());
    let flow = s.w.dial(1, 4001, PORT);
    let join = Join::Syn {
        backup: false,
        addr_id: AddrId(5),
        token: Token(s.own.token.0 ^ 1),
        nonce: PEER_NONCE,
    };
    s.w.inject(flow, &syn().opt(MptcpOption::Join(join)));
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MptcpSpecific));
    assert_eq!(s.w.count().join_unknown_token, 1);
}

#[test]
fn a_join_beyond_the_limit_is_refused_as_transient() {
    // rfc8684:J8,J19,T3
    let mut opts = plain_options();
    opts.max_subflows = 1;
    let mut s = Session::accepted_with(2, opts);
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::LackOfResources));
    assert_eq!(reset.raw_option(8), Some(&[30, 4, 0x81, 2][..]));
}

/// Keepalives that went on the first subflow: what there is beside announcements.
fn questions(s: &mut Session) -> usize {
    let sent = s.w.drain(0);
    sent.iter().filter(|s| s.raw_option(3).is_none()).count()
}

#[test]
fn a_responsive_subflow_keeps_its_place_and_an_unresponsive_one_is_evicted() {
    // rfc8684:J19
    let mut opts = plain_options();
    opts.max_subflows = 1;
    let mut s = Session::accepted_with(2, opts);
    s.w.advance_ms(1_500);
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    s.w.quiet(flow);
    assert_eq!(questions(&mut s), 1);
    // While it is being asked, further joins have it asked no more.
    s.w.inject(flow, &syn);
    s.w.quiet(flow);
    assert_eq!(questions(&mut s), 0);
    s.ack(0);
    s.w.advance_ms(1_000);
    s.w.inject(flow, &syn);
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::LackOfResources));
    assert_eq!(questions(&mut s), 0);
    s.w.advance_ms(4_000);
    s.w.inject(flow, &syn);
    s.w.quiet(flow);
    s.w.advance_ms(4_000);
    assert_eq!(questions(&mut s), 3);
    assert_eq!(s.working(), 1, "nobody needs its place yet");
    s.w.inject(flow, &syn);
    let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    assert_eq!(s.w.count().subflow_evicted, 0, "anybody may say a token");
    let third = s.join_ack(&answer);
    s.w.inject(flow, &third);
    s.w.expect(flow, "the fourth packet", |s| s.is_bare());
    assert_eq!(s.w.count().subflow_evicted, 1);
    let reset = s.w.find(0, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::LackOfResources));
    assert_eq!(s.working(), 1, "it took the place");
}

/// A session with one place that is held by a silent subflow, and a join whose SYN was answered.
fn answered_beyond_the_limit() -> (Session, usize, crate::script::packet::Seg) {
    let mut opts = plain_options();
    opts.max_subflows = 1;
    let mut s = Session::accepted_with(2, opts);
    s.w.advance_ms(1_500);
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    s.w.advance_ms(1_000);
    let flow = s.w.dial(1, 4002, PORT);
    s.w.inject(flow, &syn);
    let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    (s, flow, answer)
}

#[test]
fn our_join_and_the_peers_are_counted_together_beyond_the_limit() {
    // rfc8684:J19
    let mut opts = plain_options();
    opts.max_subflows = 1;
    let mut s = Session::accepted_with(2, opts);
    s.w.advance_ms(1_500);
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    s.w.advance_ms(1_000);
    // The first subflow is silent by now, so a join of our own is begun beyond the limit.
    s.open_out(1);
    assert_eq!(s.info().subflows.len(), 2);
    s.w.inject(flow, &syn);
    s.w.quiet(flow);
    assert_eq!(s.info().subflows.len(), 2, "there is one at a time");
}

#[test]
fn a_confirmed_join_replaces_an_unresponsive_subflow() {
    // rfc8684:J19
    let (mut s, flow, answer) = answered_beyond_the_limit();
    let third = s.join_ack(&answer);
    s.w.inject(flow, &third);
    s.w.expect(flow, "the fourth packet", |s| s.is_bare());
    s.send(flow, 0, b"joined");
    assert_eq!(s.read(), b"joined");
    assert_eq!(s.working(), 1);
}

#[test]
fn a_subflow_that_responds_before_the_join_is_confirmed_is_kept() {
    // rfc8684:J19,T3
    let (mut s, flow, answer) = answered_beyond_the_limit();
    s.ack(0);
    let third = s.join_ack(&answer);
    s.w.inject(flow, &third);
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::LackOfResources));
    assert_eq!(s.w.count().subflow_evicted, 0);
    s.send(0, 0, b"still here");
    assert_eq!(s.read(), b"still here");
}

#[test]
fn a_join_with_the_token_alone_evicts_nothing() {
    // rfc8684:J19
    let (mut s, _, _) = answered_beyond_the_limit();
    for round in 0..40u16 {
        let flow = s.w.dial(1, 5000 + round, PORT);
        let syn = s.join_syn(5, false);
        s.w.inject(flow, &syn);
        s.w.advance_ms(500);
        assert!(s.info().subflows.len() <= 2, "one beyond the limit");
    }
    let count = s.w.count();
    assert_eq!(count.subflow_evicted, 0);
    assert!(count.join_evicted > 5, "{}", count.join_evicted);
    s.send(0, 0, b"still here");
    assert_eq!(s.read(), b"still here");
}

fn refused_after(
    third: impl Fn(&Session, &crate::script::packet::Seg) -> crate::script::packet::Pkt,
) {
    let mut s = Session::accepted_with(2, plain_options());
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, false);
    s.w.inject(flow, &syn);
    let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    let pkt = third(&s, &answer);
    s.w.inject(flow, &pkt);
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MptcpSpecific));
    assert_eq!(s.working(), 1, "the connection lives on");
}

#[test]
fn a_wrong_or_missing_hmac_in_the_third_ack_is_answered_by_a_reset() {
    // rfc8684:J14,J16,E1
    refused_after(|s, answer| {
        let Some(&Join::SynAck { nonce, .. }) = answer.join() else {
            s.w.fail("no MP_JOIN");
        };
        // The right code in the wrong order of keys.
        let hmac = JoinMac::compute(s.keys(), PEER_NONCE, nonce).ack();
        ack().opt(MptcpOption::Join(Join::Ack { hmac }))
    });
    refused_after(|_, _| ack());
}

#[test]
fn a_wrong_hmac_in_the_syn_ack_is_answered_by_a_reset() {
    // rfc8684:J13,J16,E1
    let mut s = Session::called_with(2, plain_options());
    let (flow, _) = s.open_out(1);
    let wrong = Join::SynAck {
        backup: false,
        addr_id: AddrId(9),
        hmac: [3; 8],
        nonce: Nonce(4),
    };
    s.w.inject(flow, &syn_ack().opt(MptcpOption::Join(wrong)));
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MptcpSpecific));
    let ended = s.info().ended;
    assert_eq!(ended.last().map(|e| e.end), Some(SubflowEnd::BadHmac));
}

#[test]
fn an_answer_without_the_option_is_answered_by_a_reset() {
    // rfc8684:J15,J16,E1,M1
    let mut s = Session::called_with(2, plain_options());
    let (flow, _) = s.open_out(1);
    s.w.inject(flow, &syn_ack());
    let reset = s.w.expect(flow, "a reset", |s| s.is_rst());
    assert_eq!(reset.reason(), Some(ResetReason::MptcpSpecific));
    assert_eq!(s.working(), 1);
}

#[test]
fn backup_is_requested_in_the_handshake() {
    // rfc8684:J6,P1
    let mut s = Session::accepted_with(2, plain_options());
    s.w.path_up(path(1, true));
    // Both ends say so: the peer of its address, the stack of its own.
    let flow = s.w.dial(1, 4001, PORT);
    let syn = s.join_syn(5, true);
    s.w.inject(flow, &syn);
    let answer = s.w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    let asked = matches!(answer.join(), Some(Join::SynAck { backup: true, .. }));
    s.w.check(asked, "flag B of the path");
    let third = s.join_ack(&answer);
    s.w.inject(flow, &third);
    s.w.drain(flow);
    // No data on the backup, even when the other subflow's window is closed.
    s.w.flows[0].window = 2000;
    s.ack(0);
    s.write(&[1; 10_000]);
    s.w.advance_ms(100);
    let on_backup = s.w.drain(flow).iter().any(|seg| seg.has_data());
    s.w.check(!on_backup, "no data on the backup");
    // When it is the only one left, it carries them.
    s.w.inject(0, &crate::script::packet::rst());
    s.w.advance_ms(100);
    s.w.find(flow, "the data on the backup", |seg| seg.has_data());
}

#[test]
fn a_port_is_taken_at_all_addresses_at_once() {
    // rfc8684:H1,H2
    let mut s = Session::called_with(2, plain_options());
    let (_, first) = s.open_out(1);
    let port = first.tuple.local.port();
    assert_eq!(port, s.w.flows[0].tuple.local.port());
    // Connections that begin at the second address stay clear of the ports of the first, and the other way round.
    let mut ports = vec![port];
    for number in [0, 1, 0, 1] {
        let mut opts = crate::script::session::call(plain_options());
        opts.local = Some(ours(number));
        let now = s.w.now;
        s.w.stack.connect(now, opts).expect("a path leads there");
        let (_, syn) = s.w.answer();
        ports.push(syn.tuple.local.port());
    }
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 5);
}

#[test]
fn joins_go_from_the_address_that_was_named_with_an_id_of_its_own() {
    // rfc8684:A2,J3,H1
    let mut s = Session::called_with(3, plain_options());
    let mut ids = vec![0];
    for number in [1, 2] {
        let (flow, syn) = s.open_out(number);
        let Some(&Join::Syn { addr_id, .. }) = syn.join() else {
            s.w.fail("no MP_JOIN");
        };
        assert_eq!(syn.tuple.local.ip(), ours(number));
        assert_eq!(s.w.flows[flow].tuple.remote.port(), PORT);
        let first = s.w.flows[0].tuple.local.port();
        assert_eq!(syn.tuple.local.port(), first, "the same port if it is free");
        ids.push(addr_id.0);
    }
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[test]
fn a_path_that_drops_data_with_options_does_not_prevent_joins() {
    // rfc8684:C15: an address that the peer announces proves as well as a DSS that it has our keys.
    let mut opts = plain_options();
    opts.path_manager = PathManager::FullMesh;
    let mut s = Session::greeted(2, opts);
    s.write(b"lost");
    s.w.drain(0);
    let add = s.add_addr(3, 1, None);
    let none = s.w.flows[0].irs + 1;
    s.w.inject(0, &ack().opt(MptcpOption::AddAddr(add)).acking(none));
    s.w.advance_ms(50);
    // While data is on its way it may still be the proof.
    assert_eq!(s.w.flows.len(), 1);
    s.w.advance_ms(2000);
    let (_, syn) = s.w.answer();
    assert!(syn.join().is_some(), "{}", s.w.log());
}

#[test]
fn a_client_that_sends_nothing_receives_add_addr() {
    // rfc8684:C15: keys are exchanged, which is proof enough when nothing else comes.
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let (flow, _, sender) = greet(&mut w, true);
    w.inject(flow, &third_packet(true, sender));
    w.stack.accept(listener).expect("established");
    w.path_up(path(1, false));
    w.advance_ms(1500);
    w.find(flow, "its other address", |s| {
        s.options
            .mptcp
            .iter()
            .any(|o| matches!(o, MptcpOption::AddAddr(_)))
    });
}
