//! Signs that a path failed, and what is concluded from them.

use std::net::IpAddr;

use manypath_stack::{IfaceId, SubflowEnd};
use manypath_wire::checksum::Sum;
use manypath_wire::tcp::mptcp::{AddrIds, MptcpOption, RemoveAddr};

use crate::script::packet::{Seg, ack};
use crate::script::session::Session;
use crate::script::{path, plain_options};

/// What a router says about a segment of the stack: its host cannot be reached (RFC 792).
fn unreachable(seg: &Seg) -> Vec<u8> {
    let octets = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.octets(),
        IpAddr::V6(_) => unreachable!("the script speaks IPv4"),
    };
    let (from, to) = (seg.tuple.local, seg.tuple.remote);
    let header = |protocol: u8, len: u8, from: [u8; 4], to: [u8; 4]| {
        let mut ip = vec![0x45, 0, 0, len, 0, 0, 0, 0, 64, protocol, 0, 0];
        ip.extend(from);
        ip.extend(to);
        let check = Sum::of(&ip).finish().to_be_bytes();
        ip[10..12].copy_from_slice(&check);
        ip
    };
    let mut quote = header(6, 60, octets(from.ip()), octets(to.ip()));
    quote.extend(from.port().to_be_bytes());
    quote.extend(to.port().to_be_bytes());
    quote.extend(seg.seq.get().to_be_bytes());
    let mut icmp = vec![3, 1, 0, 0, 0, 0, 0, 0];
    icmp.extend(&quote);
    let check = Sum::of(&icmp).finish().to_be_bytes();
    icmp[2..4].copy_from_slice(&check);
    let mut packet = header(1, 20 + icmp.len() as u8, [10, 99, 0, 1], octets(from.ip()));
    packet.extend(&icmp);
    packet
}

#[test]
fn an_icmp_unreachable_subflow_is_reinjected_at_once_and_kept() {
    // rfc8684:R4
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    s.ack(other);
    s.w.drain(0);
    s.w.drain(other);
    s.write(b"where does this go");
    let mut flows = [0, other];
    if s.w
        .sent
        .iter()
        .any(|seg| seg.has_data() && seg.tuple == s.w.flows[other].tuple)
    {
        flows.swap(0, 1);
    }
    let [first, second] = flows;
    let sent = s.w.find(first, "data", Seg::has_data);
    let icmp = unreachable(&sent);
    let iface: IfaceId = s.w.flows[first].iface;
    s.w.inject_bytes(iface, &icmp);
    let again = s.w.find(second, "the same data", Seg::has_data);
    assert_eq!(again.len(), sent.len());
    assert_eq!(s.w.count().subflow_stale, 1);
    assert_eq!(s.working(), 2, "routes flap, and anybody could say so");
    // Once there is nobody else, nobody's word is enough.
    let icmp = unreachable(&again);
    s.w.inject_bytes(s.w.flows[second].iface, &icmp);
    assert_eq!(s.w.count().subflow_stale, 1);
}

#[test]
fn segments_in_flight_do_not_keep_a_removed_address() {
    // rfc8684:A17,A19
    let mut s = Session::accepted_with(2, plain_options());
    let flow = s.join_in(1, 5, false);
    let mut ids = AddrIds::EMPTY;
    assert!(ids.push(manypath_wire::ids::AddrId(5)));
    let removal = MptcpOption::RemoveAddr(RemoveAddr { ids });
    let gone = ack().opt(s.dss(None)).opt(removal);
    s.w.inject(0, &gone);
    s.send(flow, 0, b"sent before");
    s.w.advance_ms(5000);
    assert_eq!(s.read(), b"sent before");
    let end = s.info().ended.last().map(|e| e.end);
    assert_eq!(end, Some(SubflowEnd::AddressGone), "{}", s.w.log());
}

#[test]
fn a_connect_waits_for_its_only_address_to_return() {
    let mut s = Session::greeted(1, plain_options());
    s.w.path_down(0);
    s.w.advance_ms(500);
    assert_eq!((s.info().closed, s.working()), (None, 1), "{}", s.w.log());
    s.w.path_up(path(0, false));
    s.ack(0);
    s.write(b"there again");
    s.w.find(0, "data", |s| s.payload == b"there again");
}
