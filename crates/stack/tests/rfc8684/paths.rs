//! ADD_ADDR, REMOVE_ADDR and MP_PRIO: section 3.4.

use std::net::IpAddr;

use manypath_stack::crypto::mac;
use manypath_stack::{ConnOptions, EventKind, PathManager, SubflowEnd};
use manypath_wire::ids::AddrId;
use manypath_wire::tcp::mptcp::{AddAddr, AddrIds, MptcpOption, RemoveAddr};

use crate::script::packet::{Pkt, Seg, ack, data};
use crate::script::session::Session;
use crate::script::{ours, path, plain_options, theirs};

fn mesh() -> ConnOptions {
    ConnOptions {
        path_manager: PathManager::FullMesh,
        ..plain_options()
    }
}

fn announced(seg: &Seg) -> Option<AddAddr> {
    seg.options.mptcp.add_addrs().next().copied()
}

fn with(add: AddAddr) -> Pkt {
    ack().opt(MptcpOption::AddAddr(add))
}

fn remove(ids: &[u8]) -> MptcpOption {
    let ids: AddrIds = ids.iter().copied().map(AddrId).collect();
    MptcpOption::RemoveAddr(RemoveAddr { ids })
}

#[test]
fn addresses_are_announced_with_an_hmac_until_echoed() {
    // rfc8684:A2,A6,A8,A9,A10,A14
    let mut s = Session::accepted_with(1, plain_options());
    s.w.path_up(path(1, false));
    s.w.path_up(path(2, false));
    let mut seen = Vec::new();
    for number in [1, 2] {
        let seg = s.w.find(0, "an announcement", |s| announced(s).is_some());
        assert!(seg.is_bare(), "on an acknowledgement of its own");
        let add = announced(&seg).expect("just checked");
        assert_eq!((add.addr, add.port, add.echo), (ours(number), None, false));
        let code = mac::add_addr(s.keys(), add.addr_id, add.addr, None);
        assert_eq!(add.hmac, Some(code), "the sender's key first");
        assert_eq!(seg.raw_option(3).map(|o| (o.len(), o[2])), Some((16, 0x30)));
        seen.push(add);
    }
    assert_ne!(seen[0].addr_id, seen[1].addr_id);
    assert!(seen.iter().all(|add| add.addr_id != AddrId(0)));
    // The first is echoed, the second is not.
    s.w.inject(0, &with(seen[0].to_echo()));
    s.w.advance_ms(1500);
    let again: Vec<_> = s.w.drain(0).iter().filter_map(announced).collect();
    assert_eq!(again, [seen[1]], "only that one, the same");
    s.w.inject(0, &with(seen[1].to_echo()));
    s.w.advance_ms(20_000);
    s.w.quiet(0);
}

#[test]
fn a_fresh_announcement_is_echoed_without_an_hmac() {
    // rfc8684:A9
    let mut s = Session::accepted();
    let add = s.add_addr(7, 3, Some(8080));
    s.w.inject(0, &with(add));
    let seg = s.w.expect(0, "the echo", |s| announced(s).is_some());
    assert_eq!(announced(&seg), Some(add.to_echo()));
    assert_eq!(seg.raw_option(3).map(|o| (o.len(), o[2])), Some((10, 0x31)));
    assert!(s.w.happened(|e| matches!(e, EventKind::AddressAnnounced { .. })));
    // The echo was lost.
    s.w.inject(0, &with(add));
    s.w.find(0, "the echo again", |s| announced(s).is_some());
}

#[test]
fn an_add_addr_with_a_wrong_hmac_is_ignored() {
    // rfc8684:A6,A7
    let mut s = Session::called_with(2, mesh());
    // Codes of the wrong key order, for another id, of another port.
    let wrong_order = mac::add_addr(s.keys(), AddrId(7), theirs(1), None);
    let good = s.add_addr(7, 1, None);
    let other_id = s.add_addr(8, 1, None).hmac;
    let other_port = s.add_addr(7, 1, Some(80)).hmac;
    for hmac in [Some(wrong_order), other_id, other_port, Some([0; 8])] {
        s.w.inject(0, &with(AddAddr { hmac, ..good }));
    }
    s.w.advance_ms(20);
    let echoed =
        s.w.drain(0)
            .iter()
            .any(|seg| announced(seg).is_some_and(|a| a.echo));
    s.w.check(!echoed, "no echo");
    assert_eq!(s.w.count().add_addr_bad_hmac, 4);
    let joined =
        s.w.sent
            .iter()
            .any(|seg| seg.tuple.remote.ip() == theirs(1));
    s.w.check(!joined, "no join there");
}

#[test]
fn add_addr_on_data_is_followed_before_the_data_is_read() {
    // rfc8684:A5
    let mut s = Session::called_with(1, mesh());
    let add = s.add_addr(7, 4, None);
    // Two in a row, so that the acknowledgement leaves in the turn in which the join is begun.
    let map = s.map(0, 0, b"data with it");
    let first = data(b"data ").opt(s.dss(Some(map)));
    s.w.inject(0, &first);
    s.w.inject(0, &data(b"with it").opt(MptcpOption::AddAddr(add)));
    let joins = |seg: &Seg| seg.is_syn() && seg.tuple.remote.ip() == theirs(4);
    let joined = s.w.sent.iter().any(joins);
    s.w.check(joined, "a join before anything else happens");
}

#[test]
fn joins_follow_announcements_to_their_port() {
    // rfc8684:A5,A12,S3
    let mut s = Session::called_with(1, mesh());
    let add = s.add_addr(7, 4, None);
    s.w.inject(0, &with(add));
    s.w.advance_ms(50);
    let (_, syn) = s.w.answer();
    let port = s.w.flows[0].tuple.remote.port();
    assert_eq!(
        (syn.tuple.remote.ip(), syn.tuple.remote.port()),
        (theirs(4), port)
    );
    // The same address again, at another port, which is tried.
    let moved = s.add_addr(7, 4, Some(8081));
    s.w.inject(0, &with(moved));
    s.w.advance_ms(50);
    let (_, syn) = s.w.answer();
    assert_eq!(
        (syn.tuple.remote.ip(), syn.tuple.remote.port()),
        (theirs(4), 8081)
    );
}

#[test]
fn an_id_keeps_its_address_until_it_is_removed() {
    // rfc8684:A12,A13,A20
    let mut s = Session::accepted();
    let first = s.add_addr(7, 3, None);
    s.w.inject(0, &with(first));
    assert_eq!(s.w.count().add_addr_accepted, 1);
    let other = s.add_addr(7, 4, None);
    s.w.inject(0, &with(other));
    assert_eq!(
        (s.w.count().add_addr_accepted, s.w.count().add_addr_ignored),
        (1, 1)
    );
    let gone = ack().opt(s.dss(None)).opt(remove(&[7]));
    s.w.inject(0, &gone);
    assert!(s.w.happened(|e| matches!(e, EventKind::AddressWithdrawn { id: AddrId(7) })));
    s.w.inject(0, &with(other));
    assert_eq!(s.w.count().add_addr_accepted, 2);
}

#[test]
fn ids_of_our_own_are_not_given_to_another_address_at_once() {
    // rfc8684:A2,A13,A16
    let mut s = Session::accepted_with(1, plain_options());
    s.w.path_up(path(1, false));
    let seg = s.w.find(0, "an announcement", |s| announced(s).is_some());
    let first = announced(&seg).expect("just checked");
    s.w.inject(0, &with(first.to_echo()));
    s.w.path_down(1);
    let seg = s.w.find(0, "its withdrawal", |s| {
        s.options.mptcp.remove_addrs().next().is_some()
    });
    let ids: Vec<_> = seg.options.mptcp.remove_addrs().collect();
    assert_eq!(ids[0].ids.as_slice(), [first.addr_id]);
    s.send(0, 0, b"x");
    s.w.path_up(path(2, false));
    let seg =
        s.w.find(0, "another announcement", |s| announced(s).is_some());
    let second = announced(&seg).expect("just checked");
    assert_eq!(second.addr, ours(2));
    assert_ne!(second.addr_id, first.addr_id);
}

#[test]
fn a_withdrawn_address_is_tested_before_its_subflows_are_given_up() {
    // rfc8684:A17,A19
    for answers in [true, false] {
        let mut s = Session::accepted_with(2, plain_options());
        let flow = s.join_in(1, 5, false);
        let gone = ack().opt(s.dss(None)).opt(remove(&[5]));
        s.w.inject(0, &gone);
        let before = s.w.flows[flow].rcv;
        let probe =
            s.w.expect(flow, "a keepalive", |s| s.len() == 0 && !s.is_rst());
        assert_eq!(probe.seq, before - 1, "a number that has to be answered");
        assert_eq!(s.working(), 2);
        if answers {
            s.ack(flow);
        }
        s.w.advance_ms(5000);
        let reset = s.w.drain(flow).iter().any(|seg| seg.is_rst());
        assert_eq!(reset, !answers, "{}", s.w.log());
        assert_eq!(s.working(), if answers { 2 } else { 1 });
        if !answers {
            let end = s.info().ended.last().map(|e| e.end);
            assert_eq!(end, Some(SubflowEnd::AddressGone));
        }
    }
}

#[test]
fn announcements_are_soft_state_and_bounded() {
    // rfc8684:A4,S3
    let mut s = Session::accepted();
    for id in 1..=200 {
        let add = s.add_addr(id, id, None);
        s.w.inject(0, &with(add));
    }
    let (taken, ignored) = (s.w.count().add_addr_accepted, s.w.count().add_addr_ignored);
    assert!(
        (8..=32).contains(&taken) && taken + ignored == 200,
        "{taken} taken"
    );
    // What is known may be refreshed, and the connection does not mind.
    let add = s.add_addr(1, 1, None);
    s.w.inject(0, &with(add));
    assert_eq!(s.w.count().add_addr_accepted, taken + 1);
    s.send(0, 0, b"fine");
    assert_eq!(s.read(), b"fine");
}

#[test]
fn a_withdrawn_address_gets_no_new_subflows() {
    // rfc8684:A17
    let mut s = Session::called_with(1, mesh());
    let add = s.add_addr(7, 4, None);
    s.w.inject(0, &with(add));
    let gone = ack().opt(s.dss(None)).opt(remove(&[7]));
    s.w.inject(0, &gone);
    s.w.advance_ms(50);
    s.w.path_up(path(1, false));
    s.w.advance_ms(50);
    let there = |seg: &Seg| seg.is_syn() && seg.tuple.remote.ip() == theirs(4);
    let from_new =
        s.w.sent
            .iter()
            .any(|seg| there(seg) && seg.tuple.local.ip() == ours(1));
    s.w.check(!from_new, "no join to a withdrawn address");
}

#[test]
fn an_unknown_id_is_ignored() {
    // rfc8684:A20
    let mut s = Session::accepted_with(2, plain_options());
    let flow = s.join_in(1, 5, false);
    let gone = ack().opt(s.dss(None)).opt(remove(&[99, 200]));
    s.w.inject(0, &gone);
    s.w.advance_ms(5000);
    assert_eq!(s.w.count().remove_addr_unknown, 2);
    assert_eq!(s.working(), 2);
    let probed = s.w.drain(flow).iter().any(|seg| seg.len() == 0);
    s.w.check(!probed, "nothing is tested");
}

#[test]
fn a_working_subflow_is_closed_by_fin() {
    // rfc8684:A21
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    let id = s.info().subflows[1].id;
    let now = s.w.now;
    assert_eq!(s.w.stack.remove_subflow(now, s.conn, id), Ok(()));
    let seg = s.w.find(other, "a FIN", |s| s.is_fin());
    assert!(!seg.is_rst());
    s.w.advance_ms(50);
    let removed = |seg: &Seg| seg.options.mptcp.remove_addrs().next().is_some();
    let told = s.w.sent.iter().any(removed);
    s.w.check(!told, "no REMOVE_ADDR");
    s.w.inject(other, &crate::script::packet::fin());
    assert_eq!(s.working(), 1);
}

#[test]
fn an_address_that_goes_takes_its_subflows_along() {
    // rfc8684:A16,A19,S2
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.w.path_down(1);
    let seg = s.w.find(0, "a withdrawal", |s| {
        s.options.mptcp.remove_addrs().next().is_some()
    });
    assert!(seg.is_bare());
    s.w.find(other, "a reset", |s| s.is_rst());
    s.send(0, 0, b"on the other");
    assert_eq!(s.read(), b"on the other");
}

#[test]
fn announcements_belong_to_one_connection() {
    // rfc8684:A22,A3
    let mut s = Session::called_with(2, mesh());
    let other = crate::script::session::connect(&mut s.w, mesh());
    let add = s.add_addr(7, 1, None);
    s.w.inject(0, &with(add));
    let listed = s.w.stack.info(other).expect("open").subflows.len();
    assert_eq!(listed, 1);
    let decisions = s.w.stack.decisions(other).expect("open");
    let spoke_of = |ip: IpAddr| {
        decisions
            .iter()
            .any(|d| format!("{d}").contains(&ip.to_string()))
    };
    assert!(!spoke_of(theirs(1)), "{decisions:?}");
}
