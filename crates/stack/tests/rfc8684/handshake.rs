//! MP_CAPABLE: section 3.1.

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_stack::{FallbackCause, Mode, PathManager, ProtocolLevel, StackError};
use manypath_wire::ids::Key;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{Capable, CapableKeys, DataAck, MptcpOption};

use crate::script::packet::{ack, data, fin, syn, syn_ack};
use crate::script::session::{
    PEER_KEY, PORT, Session, capable, connect, greet, listen, third_packet,
};
use crate::script::{World, ours, plain_options, theirs};

#[test]
fn the_syn_offers_version_one_without_a_key() {
    // rfc8684:C1,C4,C16,C17,C20,D8
    let mut w = World::new(1);
    connect(&mut w, plain_options());
    let (_, syn) = w.answer();
    // Kind, length, subtype and version, flags A and H and none else.
    assert_eq!(syn.raw_option(0), Some(&[30, 4, 0x01, 0x81][..]));
}

#[test]
fn an_administrator_can_do_without_checksums() {
    // rfc8684:C16
    let mut w = World::new(1);
    let mut opts = plain_options();
    opts.checksum = false;
    connect(&mut w, opts);
    let (_, syn) = w.answer();
    assert_eq!(syn.raw_option(0), Some(&[30, 4, 0x01, 0x01][..]));
}

fn answer_to(offer: Capable) -> (World, usize, Option<Capable>) {
    let mut w = World::new(1);
    listen(&mut w, plain_options());
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn().opt(MptcpOption::Capable(offer)));
    let answer = w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    let found = answer.capable().copied();
    (w, flow, found)
}

fn offer() -> Capable {
    Capable::v1(true, CapableKeys::Syn)
}

#[test]
fn the_answer_is_of_our_version_and_names_one_algorithm() {
    // rfc8684:C2,C17,C20,C26
    for version in [1, 2, 15] {
        let (_, _, answer) = answer_to(Capable { version, ..offer() });
        let answer = answer.expect("an answer of version 1");
        assert_eq!(answer.version, 1);
        assert!(answer.hmac_sha256 && !answer.extensibility && answer.other_crypto == 0);
    }
    let (_, _, answer) = answer_to(Capable {
        version: 0,
        ..offer()
    });
    assert_eq!(answer, None, "version 0 is not spoken");
}

#[test]
fn an_offer_that_is_not_understood_gives_plain_tcp() {
    // rfc8684:C18,C20,C21,C27
    for odd in [
        Capable {
            extensibility: true,
            ..offer()
        },
        Capable {
            hmac_sha256: false,
            ..offer()
        },
        Capable {
            hmac_sha256: false,
            other_crypto: 0b1010,
            ..offer()
        },
    ] {
        let (mut w, flow, answer) = answer_to(odd);
        assert_eq!(answer, None, "{odd:?}");
        w.inject(flow, &ack());
        w.inject(flow, &data(b"plain"));
        let reply = w.expect(flow, "an acknowledgement", |s| s.is_bare());
        assert!(reply.is_plain());
    }
}

#[test]
fn a_syn_without_the_option_is_answered_without_it() {
    // rfc8684:C30
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn());
    w.expect(flow, "a plain SYN/ACK", |s| s.is_syn_ack() && s.is_plain());
    w.inject(flow, &ack());
    let conn = w.stack.accept(listener).expect("established");
    let info = w.stack.info(conn).expect("open");
    assert_eq!(info.level, ProtocolLevel::PlainTcp);
}

#[test]
fn an_answer_without_the_option_gives_plain_tcp() {
    // rfc8684:C3,C29,B1,M1
    let mut w = World::new(1);
    let conn = connect(&mut w, plain_options());
    let (flow, _) = w.answer();
    w.inject(flow, &syn_ack());
    w.expect(flow, "a plain third packet", |s| {
        s.is_bare() && s.is_plain()
    });
    let info = w.stack.info(conn).expect("open");
    assert_eq!(info.fallback, Some(FallbackCause::PeerWithout));
    w.stack.write(w.now, conn, b"hello").expect("writable");
    w.expect(flow, "plain data", |s| {
        s.payload == b"hello" && s.is_plain()
    });
    // Options that come later do not bring it back. // rfc8684:B16,C14
    let keys = CapableKeys::Ack {
        sender: PEER_KEY,
        receiver: Key([1; 8]),
    };
    w.inject(flow, &data(b"you too").opt(capable(true, keys)));
    w.expect(flow, "a plain acknowledgement", |s| {
        s.is_bare() && s.is_plain()
    });
    w.inject(flow, &fin());
    let level = w.stack.info(conn).expect("open").level;
    assert_eq!(level, ProtocolLevel::PlainTcp);
}

#[test]
fn an_answer_that_is_not_understood_gives_plain_tcp() {
    // rfc8684:C2,C18,C21
    let keys = CapableKeys::SynAck { sender: PEER_KEY };
    let good = Capable::v1(true, keys);
    for odd in [
        Capable { version: 0, ..good },
        Capable { version: 2, ..good },
        Capable {
            extensibility: true,
            ..good
        },
        Capable {
            hmac_sha256: false,
            ..good
        },
        Capable {
            other_crypto: 1,
            ..good
        },
    ] {
        let mut w = World::new(1);
        connect(&mut w, plain_options());
        let (flow, _) = w.answer();
        w.inject(flow, &syn_ack().opt(MptcpOption::Capable(odd)));
        w.expect(flow, "a plain third packet", |s| {
            s.is_bare() && s.is_plain()
        });
    }
}

#[test]
fn the_third_packet_has_both_keys_and_the_first_data_repeats_them() {
    // rfc8684:C9,C10,C11,C13
    let mut s = Session::greeted(1, plain_options());
    let third = s.w.expect(0, "the third packet", |s| s.is_bare());
    let keys = third.capable().expect("with MP_CAPABLE").keys;
    let (sender, receiver) = (s.own.key(), PEER_KEY);
    assert_eq!(keys, CapableKeys::Ack { sender, receiver });
    s.write(b"first");
    let first = s.w.expect(0, "the first data", |s| s.payload == b"first");
    let map = s.map_of_own(0, Ssn::new(1), b"first");
    let expected = CapableKeys::Data {
        sender,
        receiver,
        len: 5,
        checksum: map.checksum,
    };
    assert_eq!(first.capable().map(|c| c.keys), Some(expected));
    assert!(first.dss().is_none());
    // Lost: it is repeated with the keys.
    s.w.advance_ms(700);
    let again =
        s.w.find(0, "the first data again", |s| s.payload == b"first");
    assert_eq!(again.capable().map(|c| c.keys), Some(expected));
    // A DSS of the responder is the proof.
    s.received = 5;
    s.ack(0);
    s.w.drain(0);
    s.write(b"second");
    s.w.expect(0, "data with a DSS", |s| {
        s.payload == b"second" && s.capable().is_none() && s.mapping().is_some()
    });
}

#[test]
fn keys_and_mapping_of_the_first_data_are_as_good_as_a_dss() {
    // rfc8684:C10,C11,C12
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let (flow, answer, sender) = greet(&mut w, true);
    // The third packet is lost; the first data comes in two pieces that both carry the option.
    let (own, peer) = (KeyMaterial::derive(sender), KeyMaterial::derive(PEER_KEY));
    let map = crate::script::session::map_at(peer.first_byte(), Ssn::new(1), b"firstdata", true);
    let keys = CapableKeys::Data {
        sender: PEER_KEY,
        receiver: sender,
        len: 9,
        checksum: map.checksum,
    };
    w.inject(flow, &data(b"first").opt(capable(true, keys)));
    w.inject(flow, &data(b"data").opt(capable(true, keys)));
    let conn = w.stack.accept(listener).expect("established");
    let mut s = Session::around(w, conn, Some(listener), own, true);
    assert_eq!(s.read(), b"firstdata");
    let reply = s.w.find(0, "the Data ACK", |seg| {
        seg.dss().is_some_and(|d| d.data_ack.is_some()) && seg.ack == answer.ack + 9
    });
    assert_eq!(s.acked(&reply), Some(9));
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn keys_and_mapping_are_accepted_after_data_went_the_other_way() {
    // rfc8684:C12
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let (flow, answer, sender) = greet(&mut w, true);
    w.inject(flow, &third_packet(true, sender));
    let conn = w.stack.accept(listener).expect("established");
    let mut s = Session::around(w, conn, Some(listener), KeyMaterial::derive(sender), true);
    s.write(b"server first");
    s.w.expect(0, "data with a DSS", |s| s.mapping().is_some());
    // The initiator had not seen that when it sent its own first data.
    let map = s.map(0, 0, b"client first");
    let keys = CapableKeys::Data {
        sender: PEER_KEY,
        receiver: sender,
        len: 12,
        checksum: map.checksum,
    };
    let before = answer.seq + 1;
    let pkt = data(b"client first")
        .opt(capable(true, keys))
        .acking(before);
    s.w.inject(0, &pkt);
    assert_eq!(s.read(), b"client first");
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn keys_that_are_not_ours_end_multipath_for_good() {
    // rfc8684:C14,B16
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn().opt(capable(true, CapableKeys::Syn)));
    w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    w.inject(flow, &third_packet(true, Key([9; 8])));
    let conn = w.stack.accept(listener).expect("established all the same");
    w.stack.write(w.now, conn, b"hello").expect("writable");
    w.find(flow, "plain data", |s| {
        s.payload == b"hello" && s.is_plain()
    });
    w.inject(flow, &data(b"hi"));
    w.advance_ms(100);
    let plain = w.drain(flow).iter().all(|s| s.is_plain());
    w.check(plain, "no option after the compromise");
}

#[test]
fn a_third_packet_without_the_option_gives_plain_tcp() {
    // rfc8684:C31
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn().opt(capable(true, CapableKeys::Syn)));
    w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    w.inject(flow, &ack());
    let conn = w.stack.accept(listener).expect("established");
    let info = w.stack.info(conn).expect("open");
    assert_eq!(info.fallback, Some(FallbackCause::ThirdAckWithout));
    w.inject(flow, &data(b"plain"));
    w.expect(flow, "a plain acknowledgement", |s| {
        s.is_bare() && s.is_plain()
    });
}

#[test]
fn after_a_syn_without_the_option_mappings_are_used_once_keys_are_confirmed() {
    // rfc8684:C31,H5
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let (flow, _, sender) = greet(&mut w, true);
    let again = w.flows[flow].nxt - 1;
    w.inject(flow, &syn().seq(again));
    let second = w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    w.check(second.is_plain(), "no option for who asks without");
    w.inject(flow, &third_packet(true, sender));
    let conn = w.stack.accept(listener).expect("established");
    w.stack.write(w.now, conn, b"first").expect("open");
    let spoken = w.expect(flow, "data", |s| s.has_data());
    w.check(spoken.mapping().is_some(), "with a mapping");
}

#[test]
fn a_server_sends_no_option_before_the_first_data() {
    // rfc8684:B4: an option of ours would hide from the client that the path takes options from data.
    let mut w = World::new(1);
    let mut opts = plain_options();
    opts.recv_buffer = 4 << 20;
    let listener = listen(&mut w, opts);
    let (flow, _, sender) = greet(&mut w, true);
    w.inject(flow, &third_packet(true, sender));
    // The window of a connection that somebody has taken is larger than before.
    w.stack.accept(listener).expect("established");
    w.advance_ms(300);
    let asked = w.drain(flow);
    let tells = asked.iter().any(|seg| !seg.is_plain() || seg.has_data());
    w.check(!tells, "a question at most, where the client stands");
    w.inject(flow, &data(b"plain"));
    let first = w.expect(flow, "a plain acknowledgement", |s| s.is_bare());
    w.check(first.is_plain(), "no option behind data without one");
}

#[test]
fn a_client_whose_data_is_dropped_for_its_options_is_answered_without() {
    // rfc8684:B1,H5
    for lost in [0, 5] {
        let mut w = World::new(1);
        listen(&mut w, plain_options());
        let (flow, _, sender) = greet(&mut w, true);
        w.inject(flow, &third_packet(true, sender));
        w.drain(flow);
        let mut told = Vec::new();
        for _ in 0..30 {
            w.advance_ms(100);
            for asked in w.drain(flow) {
                // A segment from before what is expected makes its receiver say where it stands.
                if asked.seq == w.flows[flow].rcv - 1 {
                    let stands = w.flows[flow].nxt + lost;
                    w.inject(flow, &third_packet(true, sender).seq(stands));
                } else {
                    told.push(asked);
                }
            }
        }
        assert_eq!(told.len(), usize::from(lost > 0), "{}", w.log());
        let plain = told.iter().all(|seg| seg.is_plain() && seg.is_bare());
        w.check(plain, "an answer without options, if any");
    }
}

#[test]
fn data_that_overtakes_the_third_packet_waits_for_the_keys() {
    // rfc8684:C31
    let mut w = World::new(1);
    let listener = listen(&mut w, plain_options());
    let (flow, _, sender) = greet(&mut w, true);
    let own = KeyMaterial::derive(sender);
    let peer = KeyMaterial::derive(PEER_KEY);
    let map = crate::script::session::map_at(peer.first_byte(), Ssn::new(1), b"early", true);
    let early = data(b"early").opt(MptcpOption::Dss(manypath_wire::tcp::mptcp::Dss {
        data_ack: None,
        mapping: Some(map),
        data_fin: false,
    }));
    let start = w.flows[flow].nxt;
    w.inject(flow, &early);
    assert!(w.stack.accept(listener).is_none(), "not without the keys");
    w.inject(flow, &third_packet(true, sender).seq(start));
    w.inject(flow, &early.seq(start));
    let conn = w.stack.accept(listener).expect("established");
    let mut s = Session::around(w, conn, Some(listener), own, true);
    assert_eq!(s.read(), b"early");
    assert_eq!(s.info().level, ProtocolLevel::Multipath);
}

#[test]
fn first_data_that_is_repeated_without_the_keys_is_plain_tcp() {
    // rfc8684:C10,C31: the third packet is lost, and the peer does not say its keys again.
    let peer = KeyMaterial::derive(PEER_KEY);
    for (has_mapping, third, expected) in [
        (true, false, ProtocolLevel::PlainTcp),
        (true, true, ProtocolLevel::Multipath),
        // Without a mapping once is enough. // rfc8684:B4
        (false, false, ProtocolLevel::PlainTcp),
    ] {
        let mut w = World::new(1);
        let listener = listen(&mut w, plain_options());
        let (flow, _, sender) = greet(&mut w, true);
        let dss = |mapping| {
            MptcpOption::Dss(manypath_wire::tcp::mptcp::Dss {
                data_ack: Some(DataAck::Short(7)),
                mapping,
                data_fin: false,
            })
        };
        let map = crate::script::session::map_at(peer.first_byte(), Ssn::new(1), b"early", true);
        let start = w.flows[flow].nxt;
        let first = data(b"early")
            .opt(dss(has_mapping.then_some(map)))
            .seq(start);
        // What may only be out of order tells nothing: a bare acknowledgement, and data that is not the first.
        for _ in 0..3 {
            w.inject(flow, &ack().opt(dss(None)).seq(start));
            w.inject(flow, &data(b"later").opt(dss(None)).seq(start + 5));
        }
        if has_mapping {
            w.inject(flow, &first);
            assert!(
                w.stack.accept(listener).is_none(),
                "the keys may still come"
            );
        }
        if third {
            w.inject(flow, &third_packet(true, sender).seq(start));
        }
        w.inject(flow, &first);
        let conn = w.stack.accept(listener).expect("established");
        let level = w.stack.info(conn).expect("open").level;
        assert_eq!(level, expected);
    }
}

#[test]
fn token_and_first_numbers_come_from_the_key() {
    // rfc8684:C22,C23,C33
    let material = KeyMaterial::derive(PEER_KEY);
    assert_eq!(material.token.0, 0xc1f1_2b87);
    assert_eq!(material.first_byte().get(), 0xde99_9903_8d0a_29a2);
    // On the wire: the first byte of the stack's stream, and the token in its join.
    let mut s = Session::called_with(2, plain_options());
    s.write(b"x");
    let first = s.w.expect(0, "the first data", |s| s.mapping().is_some());
    let dsn = first.mapping().expect("just checked").dsn;
    assert_eq!(dsn.expand(s.own_dsn(0)), s.own.idsn + 1);
}

#[test]
fn checksums_are_used_if_either_side_wants_them() {
    // rfc8684:C24
    for (ours, peers) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut w = World::new(1);
        let mut opts = plain_options();
        opts.checksum = ours;
        let conn = connect(&mut w, opts);
        let (flow, _) = w.answer();
        let keys = CapableKeys::SynAck { sender: PEER_KEY };
        w.inject(flow, &syn_ack().opt(capable(peers, keys)));
        let third = w.expect(flow, "the third packet", |s| s.capable().is_some());
        let agreed = ours || peers;
        let confirmed = third.capable().map(|c| c.checksum_required);
        assert_eq!(confirmed, Some(agreed), "{ours} {peers}");
        w.stack.write(w.now, conn, b"data").expect("writable");
        let first = w.expect(flow, "first data", |s| s.has_data());
        let len = first.raw_option(0).map(<[u8]>::len);
        assert_eq!(len, Some(if agreed { 24 } else { 22 }));
    }
}

#[test]
fn no_join_is_made_before_a_dss_was_received() {
    // rfc8684:C15
    let mut opts = plain_options();
    opts.path_manager = PathManager::FullMesh;
    let mut s = Session::greeted(2, opts);
    s.w.drain(0);
    let now = s.w.now;
    let remote = (theirs(1), PORT).into();
    let early =
        s.w.stack
            .create_subflow(now, s.conn, ours(1), remote, false);
    assert_eq!(early, Err(StackError::InvalidState));
    s.w.advance_ms(5000);
    let joined = s.w.sent.iter().any(|seg| seg.is_syn());
    s.w.check(!joined, "no SYN before the DSS");
    s.ack(0);
    s.w.advance_ms(50);
    let (_, syn) = s.w.answer();
    assert!(syn.join().is_some());
}

#[test]
fn a_peer_that_wants_no_joins_at_its_address_gets_none_there() {
    // rfc8684:C19
    let mut opts = plain_options();
    opts.path_manager = PathManager::FullMesh;
    let mut w = World::new(2);
    let conn = connect(&mut w, opts);
    let (flow, _) = w.answer();
    let keys = CapableKeys::SynAck { sender: PEER_KEY };
    let answer = Capable {
        no_joins_here: true,
        ..Capable::v1(true, keys)
    };
    w.inject(flow, &syn_ack().opt(MptcpOption::Capable(answer)));
    let third = w.expect(flow, "the third packet", |s| s.capable().is_some());
    let Some(CapableKeys::Ack { sender, .. }) = third.capable().map(|c| c.keys) else {
        w.fail("no keys");
    };
    let mut s = Session::around(w, conn, None, KeyMaterial::derive(sender), true);
    s.ack(flow);
    s.w.advance_ms(5000);
    let joined = s.w.sent.iter().any(|seg| seg.is_syn());
    s.w.check(!joined, "no join to the first address");
    // Nor when the application asks.
    let remote = (theirs(0), PORT).into();
    let now = s.w.now;
    let asked = s.w.stack.create_subflow(now, conn, ours(1), remote, false);
    assert_eq!(asked, Err(StackError::InvalidState));
    // An address that the peer announces is another matter.
    let add = s.add_addr(3, 1, None);
    s.w.inject(flow, &ack().opt(MptcpOption::AddAddr(add)));
    s.w.advance_ms(100);
    let (_, syn) = s.w.answer();
    assert_eq!(syn.tuple.remote.ip(), theirs(1));
}

#[test]
fn an_unanswered_syn_is_retried_without_the_option() {
    // rfc8684:C32,H5
    let mut w = World::new(1);
    connect(&mut w, plain_options());
    let (flow, first) = w.answer();
    assert!(first.capable().is_some());
    let mut seen = Vec::new();
    for hundredth in 1..=1_600 {
        w.advance_ms(10);
        for syn in w.drain(flow) {
            seen.push((hundredth, syn.capable().is_some()));
        }
    }
    // The pauses double, among those with the offer and among those without (RFC 6298 section 5.5).
    let offers = [100, 300, 700, 1_500].map(|at| (at, true));
    let mut expected = offers.to_vec();
    expected.extend([130, 330, 730, 1_530].map(|at| (at, false)));
    expected.sort_unstable();
    assert_eq!(seen, expected, "{}", w.log());
}

#[test]
fn plain_tcp_can_be_asked_for() {
    // rfc8684:C30
    let mut w = World::new(1);
    let mut opts = plain_options();
    opts.mode = Mode::PlainTcp;
    connect(&mut w, opts.clone());
    let (_, first) = w.answer();
    assert!(first.is_plain());
    listen(&mut w, opts);
    let flow = w.dial(0, 4000, PORT);
    w.inject(flow, &syn().opt(capable(true, CapableKeys::Syn)));
    w.expect(flow, "a plain SYN/ACK", |s| s.is_syn_ack() && s.is_plain());
}
