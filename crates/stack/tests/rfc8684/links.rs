//! Links that lose their carrier, and addresses that go and come back, as hosts have them.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::{
    CloseCause, ConnectOptions, IfaceId, Mode, Path, PathEvent, StackError, SubflowEnd,
};
use manypath_tcp::time::Duration;

use crate::script::packet::{Seg, ack, data, syn, syn_ack};
use crate::script::session::{PORT, Session, call, connect, listen};
use crate::script::{World, ours, path, plain_options};

fn says_removal(seg: &Seg) -> bool {
    seg.options.mptcp.remove_addrs().next().is_some()
}

/// A session with a second subflow, where data is on its way on the first of the two flows returned.
fn with_data_under_way(backup: bool) -> (Session, usize, usize) {
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, backup);
    s.ack(other);
    s.w.drain(0);
    s.w.drain(other);
    s.write(b"under way");
    let on = |s: &Session, flow: usize| {
        let tuple = s.w.flows[flow].tuple;
        s.w.sent
            .iter()
            .any(|seg| seg.has_data() && seg.tuple == tuple)
    };
    let (first, second) = if on(&s, other) {
        (other, 0)
    } else {
        (0, other)
    };
    s.w.find(first, "data", Seg::has_data);
    (s, first, second)
}

#[test]
fn loss_of_carrier_moves_data_at_once_and_signals_nothing() {
    // rfc8684:R4
    for backup in [false, true] {
        let (mut s, first, second) = with_data_under_way(backup);
        assert!(!backup || first == 0, "a backup is for later");
        s.w.path_stalled(first as u8);
        let again = s.w.find(second, "the same data", Seg::has_data);
        assert_eq!(again.payload, b"under way");
        s.received += 9;
        s.ack(second);
        s.write(b"new data");
        s.w.find(second, "new data", |s| s.payload == b"new data");
        s.received += 8;
        s.ack(second);
        s.w.advance_ms(2000);
        assert_eq!(s.working(), 2);
        assert!(s.info().subflows.iter().any(|sf| sf.stale));
        let told = |seg: &Seg| seg.is_rst() || says_removal(seg);
        assert!(!s.w.sent.iter().any(told), "{}", s.w.log());
    }
}

#[test]
fn what_was_under_way_is_sent_again_the_moment_the_carrier_is_back() {
    let mut s = Session::accepted();
    s.w.drain(0);
    s.write(b"under way");
    s.w.find(0, "data", Seg::has_data);
    s.w.path_stalled(0);
    s.w.advance_ms(2000);
    s.w.drain(0);
    s.w.path_up(path(0, false));
    s.w.find(0, "it again", |s| s.payload == b"under way");
    s.received += 9;
    s.ack(0);
    assert_eq!((s.working(), s.info().closed), (1, None));
    assert!(!s.info().subflows[0].stale);
    s.send(0, 0, b"and the peer's");
    assert_eq!(s.read(), b"and the peer's");
}

#[test]
fn a_link_with_carrier_again_and_nothing_in_flight_is_used() {
    let (mut s, first, second) = with_data_under_way(false);
    s.received += 9;
    s.ack(first);
    s.w.path_stalled(second as u8);
    s.w.advance_ms(2000);
    s.w.drain(second);
    s.w.path_up(path(second as u8, false));
    s.w.expect(second, "a keepalive", |s| s.len() == 0 && !s.is_rst());
    assert!(
        s.info().subflows.iter().all(|sf| !sf.stale),
        "{}",
        s.w.log()
    );
}

#[test]
fn the_only_address_may_go_and_come_back_on_another_interface() {
    for passive in [false, true] {
        let mut s = Session::accepted();
        s.w.drain(0);
        s.write(b"under way");
        s.w.find(0, "data", Seg::has_data);
        s.w.path_down(0);
        s.w.advance_ms(1000);
        assert!(!s.w.sent.iter().any(Seg::is_rst), "{}", s.w.log());
        s.w.drain(0);
        let back = Path {
            iface: IfaceId(7),
            ..path(0, false)
        };
        let event = if passive {
            PathEvent::Passive(back)
        } else {
            PathEvent::Up(back)
        };
        s.w.stack.handle_path_event(s.w.now, event);
        s.w.find(0, "it again", |s| s.payload == b"under way");
        assert_eq!(s.w.left_by, Some(IfaceId(7)));
        s.received += 9;
        s.w.flows[0].iface = IfaceId(7);
        s.ack(0);
        s.send(0, 0, b"goes on");
        assert_eq!(s.read(), b"goes on");
    }
}

#[test]
fn an_address_that_is_gone_ends_its_subflow_once_another_one_works() {
    // rfc8684:A16,A19
    let mut s = Session::accepted();
    s.w.path_down(0);
    assert_eq!(s.working(), 1);
    s.w.path_up(path(1, false));
    let other = s.join_in(1, 5, false);
    s.ack(other);
    assert_eq!(s.w.count().remove_addr_sent, 1, "{}", s.w.log());
    s.w.find(0, "a reset", Seg::is_rst);
    assert_eq!(s.working(), 1);
    let end = s.info().ended.last().map(|e| e.end);
    assert_eq!(end, Some(SubflowEnd::AddressGone));
}

#[test]
fn plain_tcp_goes_on_when_its_address_is_back_and_ends_by_its_own_time_outs() {
    for returns in [true, false] {
        let mut w = World::new(2);
        let mut opts = plain_options();
        opts.mode = Mode::PlainTcp;
        let id = connect(&mut w, opts);
        let (flow, _) = w.answer();
        w.inject(flow, &syn_ack());
        w.drain(flow);
        let now = w.now;
        assert_eq!(w.stack.write(now, id, b"under way"), Ok(9));
        w.find(flow, "data", Seg::has_data);
        w.path_down(0);
        assert!(!w.sent.iter().any(Seg::is_rst), "{}", w.log());
        if returns {
            w.path_up(path(0, false));
            w.find(flow, "it again", |s| s.payload == b"under way");
            w.inject(flow, &ack());
            w.inject(flow, &data(b"answer"));
            let mut out = [0; 16];
            let now = w.now;
            let read = w.stack.read(now, id, &mut out);
            assert!(format!("{read:?}").contains('6'), "{read:?}");
        } else {
            w.advance(Duration::from_secs(60));
            assert_eq!(w.stack.info(id).expect("open").closed, None);
            w.advance(Duration::from_secs(3600));
            let closed = w.stack.info(id).expect("open").closed;
            assert_eq!(closed, Some(CloseCause::TimedOut));
        }
    }
}

#[test]
fn a_packet_is_taken_by_whichever_interface_it_comes() {
    // RFC 1122 section 3.3.4.2
    let mut w = World::new(2);
    listen(&mut w, plain_options());
    let flow = w.dial(0, 4000, PORT);
    w.flows[flow].iface = IfaceId(1);
    w.inject(flow, &syn());
    w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    assert_eq!(w.left_by, Some(IfaceId(0)), "the interface of the address");
    let stranger = w.dial(3, 4001, PORT);
    w.flows[stranger].iface = IfaceId(1);
    w.inject(stranger, &syn());
    w.quiet(stranger);
    assert_eq!(w.count().drop_not_local, 1);
}

#[test]
fn a_passive_address_is_listened_on_and_opens_nothing() {
    let mut w = World::new(1);
    let extra = path(1, false);
    w.stack.handle_path_event(w.now, PathEvent::Passive(extra));
    listen(&mut w, plain_options());
    let flow = w.dial(1, 4000, PORT);
    w.inject(flow, &syn());
    w.expect(flow, "SYN/ACK", |s| s.is_syn_ack());
    assert_eq!(w.stack.paths().len(), 1);
    assert!(w.stack.is_ours(ours(1)));
    connect(&mut w, plain_options());
    let (_, first) = w.answer();
    assert_eq!(first.tuple.local.ip(), ours(0));
}

#[test]
fn addresses_that_no_host_has_are_refused_and_dropped() {
    // RFC 9293 section 3.9.2.3: MUST-46, MUST-57, MUST-63
    let mut w = World::new(1);
    w.stack
        .set_broadcasts(vec!["10.0.0.255".parse().expect("a literal")]);
    listen(&mut w, plain_options());
    let ip = |text: &str| text.parse::<IpAddr>().expect("a literal");
    for text in [
        "0.0.0.0",
        "0.0.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "10.0.0.255",
        "240.0.0.1",
        "ff02::1",
        "::",
    ] {
        let opts = ConnectOptions {
            remote: SocketAddr::new(ip(text), PORT),
            ..call(plain_options())
        };
        let now = w.now;
        assert_eq!(
            w.stack.connect(now, opts),
            Err(StackError::BadAddress),
            "{text}"
        );
    }
    let sources = [
        "0.0.0.1",
        "127.0.0.1",
        "224.0.0.1",
        "240.0.0.1",
        "10.0.0.1",
        "10.0.0.255",
    ];
    for (dropped, text) in (1..).zip(sources) {
        let flow = w.dial(0, 4000, PORT);
        w.flows[flow].tuple.remote.set_ip(ip(text));
        w.inject(flow, &syn());
        w.quiet(flow);
        assert_eq!(w.count().drop_bad_address, dropped, "{text}");
    }
    let mapped = ConnectOptions {
        remote: "[::ffff:10.0.0.2]:80".parse().expect("a literal"),
        ..call(plain_options())
    };
    let now = w.now;
    w.stack.connect(now, mapped).expect("it is IPv4");
    let (_, syn) = w.answer();
    assert_eq!(syn.tuple.remote.ip(), ip("10.0.0.2"));
}
