//! The shared window, retransmission on several subflows, and backups: sections 3.3.4 to 3.3.8.

use manypath_stack::api::ProtocolLevel;
use manypath_stack::{ConnOptions, EventKind};
use manypath_wire::ids::AddrId;
use manypath_wire::tcp::mptcp::{DataAck, Dss, MptcpOption, Prio, RemoveAddr};

use crate::script::packet::{Seg, ack, data, rst};
use crate::script::plain_options;
use crate::script::session::Session;

fn small_buffer(bytes: u32) -> ConnOptions {
    ConnOptions {
        recv_buffer: bytes,
        ..plain_options()
    }
}

/// Right edge of the stack's window in the peer's stream, as a segment tells it.
fn right_edge(s: &Session, seg: &Seg) -> Option<u64> {
    Some(s.acked(seg)? + u64::from(seg.window))
}

#[test]
fn the_right_edge_never_moves_left() {
    // rfc8684:W1,W2
    let mut s = Session::accepted_with(2, small_buffer(10_000));
    let other = s.join_in(1, 5, false);
    let (mut at, mut edge) = (0, 10_000);
    for round in 0..9 {
        let flow = [0, other][round % 2];
        s.send(flow, at, &[3; 1000]);
        at += 1000;
        for flow in [0, other] {
            for seg in s.w.drain(flow) {
                let told = right_edge(&s, &seg).expect("a Data ACK");
                s.w.check(told >= edge, "the right edge moved left");
                edge = told;
            }
        }
    }
    assert_eq!(edge, 10_000, "nothing was read: the window only shrank");
    // Reading moves it on, and the peer hears of it.
    assert_eq!(s.read().len(), 9000);
    let mut segs = s.w.drain(0);
    segs.extend(s.w.drain(other));
    let told = segs.iter().filter_map(|seg| right_edge(&s, seg)).max();
    assert_eq!(told, Some(19_000));
}

#[test]
fn one_window_serves_all_subflows_and_is_kept_by_data_number() {
    // rfc8684:W2,D25
    let mut s = Session::accepted_with(2, small_buffer(10_000));
    let other = s.join_in(1, 5, false);
    s.send(0, 0, &[3; 1000]);
    s.ack(other);
    s.w.drain(0);
    // Data on the other subflow counts against the same window, from the Data ACK.
    s.send(other, 1000, &[3; 1000]);
    let reply = s.w.find(other, "an acknowledgement", |s| s.is_bare());
    assert_eq!(s.acked(&reply), Some(2000));
    assert_eq!(reply.window, 8000);
    // In the subflow's window, far beyond the connection's: dropped, not acknowledged above.
    s.send(other, 40_000, &[4; 1000]);
    let reply = s.w.find(other, "an acknowledgement", |s| s.is_bare());
    assert_eq!(s.acked(&reply), Some(2000));
    assert_eq!(reply.ack, s.w.flows[other].nxt, "acknowledged below");
    assert_eq!(s.w.count().beyond_window_bytes, 1000);
    assert_eq!(s.read().len(), 2000);
}

#[test]
fn as_much_may_wait_to_be_sent_as_to_be_read() {
    // rfc8684:W8
    let opts = ConnOptions::default();
    assert!(opts.send_buffer >= opts.recv_buffer);
}

fn sent_upto(s: &mut Session, flow: usize) -> u64 {
    let ends = s.w.drain(flow).into_iter().filter_map(|seg| {
        let map = seg.mapping()?;
        Some(s.position(&map) + u64::from(map.len))
    });
    let ends: Vec<_> = ends.collect();
    ends.into_iter().max().unwrap_or(0)
}

#[test]
fn a_window_counts_for_the_connection_only_beside_a_data_ack() {
    // rfc8684:D20
    let mut s = Session::called();
    s.w.flows[0].window = 2000;
    s.ack(0);
    // The first window of the connection was 65535; only Data ACK + 65535 can be more.
    let limit = 65_535;
    s.w.flows[0].window = 65_535;
    s.write(&[1; 150_000]);
    let mut upto = sent_upto(&mut s, 0);
    for _ in 0..200 {
        // Everything acknowledged below with a fresh window, nothing above.
        let option = MptcpOption::Dss(Dss::default());
        s.w.inject(0, &ack().opt(option));
        upto = upto.max(sent_upto(&mut s, 0));
    }
    assert!(upto <= limit, "{upto} went out beyond the window");
    s.received = upto;
    s.ack(0);
    let more = sent_upto(&mut s, 0);
    assert!(more > limit, "{more}");
}

#[test]
fn the_largest_window_of_all_subflows_counts() {
    // rfc8684:W5,W6
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.write(&[1; 9_000]);
    s.received = 9_000;
    s.w.flows[0].window = 3_000;
    s.ack(0);
    // The first window of all was 65535, from the start of the stream.
    assert_eq!(s.info().peer_window, 65_535 - 9_000);
    s.w.flows[other].window = 60_000;
    s.ack(other);
    assert_eq!(s.info().peer_window, 60_000, "relative to the Data ACK");
    // A smaller offer does not take it back.
    s.ack(0);
    assert_eq!(s.info().peer_window, 60_000);
}

#[test]
fn each_subflow_keeps_to_its_own_window() {
    // rfc8684:W7
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.w.flows[0].window = 3000;
    s.ack(0);
    s.w.flows[other].window = 2000;
    s.ack(other);
    s.w.drain(0);
    s.w.drain(other);
    s.write(&[1; 50_000]);
    let bytes = |segs: Vec<Seg>| segs.iter().map(|seg| seg.payload.len()).sum::<usize>();
    let on_first = bytes(s.w.drain(0));
    let on_other = bytes(s.w.drain(other));
    assert!((1..=3000).contains(&on_first), "{on_first}");
    assert!((1..=2000).contains(&on_other), "{on_other}");
}

#[test]
fn reinjected_data_is_still_retransmitted_on_its_subflow() {
    // rfc8684:R1,R2,D21
    let mut s = Session::called_with(2, plain_options());
    s.write(b"first");
    let lost = s.w.find(0, "data", |s| s.has_data());
    let other = s.join_out(1, 5, false);
    // No answer on the first subflow: its timer fires, and the other one takes the data.
    s.w.advance_ms(1500);
    let again =
        s.w.find(other, "the data elsewhere", |s| s.payload == b"first");
    let map = again.mapping().expect("a mapping");
    assert_eq!(s.position(&map), 0);
    s.received = 5;
    s.ack(other);
    assert_eq!(s.info().bytes_acked, 5);
    // Acknowledged above; below, the first subflow still owes it, byte by byte the same.
    s.w.drain(0);
    s.w.advance_ms(6000);
    let repeated = s.w.find(0, "the data on the first", |s| s.has_data());
    assert_eq!(repeated.payload, lost.payload);
    assert_eq!(
        (repeated.seq, repeated.mapping()),
        (lost.seq, lost.mapping())
    );
    s.ack(0);
    s.w.drain(0);
    s.w.advance_ms(6000);
    let more = s.w.drain(0).iter().any(|seg| seg.has_data());
    s.w.check(!more, "acknowledged below: not repeated");
}

#[test]
fn a_received_mp_prio_makes_a_subflow_a_backup() {
    // rfc8684:P1,P2
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    let prio = |backup| MptcpOption::Prio(Prio { backup });
    let pkt = ack().opt(s.dss(None)).opt(prio(true));
    s.w.inject(0, &pkt);
    assert!(s.w.happened(|e| matches!(e, EventKind::PriorityChanged { backup: true, .. })));
    s.w.drain(0);
    s.write(&[1; 3000]);
    let on_first = s.w.drain(0).iter().any(|seg| seg.has_data());
    s.w.check(!on_first, "no data on the backup");
    s.w.find(other, "data", |s| s.has_data());
    s.received = 3000;
    s.ack(other);
    // One direction and one subflow: the peer's own data on it is welcome.
    s.send(0, 0, b"still");
    assert_eq!(s.read(), b"still");
    // And back.
    let pkt = ack().opt(s.dss(None)).opt(prio(false));
    s.w.inject(0, &pkt);
    let pkt = ack().opt(s.dss(None)).opt(prio(true));
    s.w.inject(other, &pkt);
    s.w.drain(other);
    s.write(&[1; 3000]);
    s.w.find(0, "data", |s| s.has_data());
    // A backup stands in when nothing else is left.
    let again = ack().opt(s.dss(None)).opt(prio(true));
    s.w.inject(0, &again);
    s.w.inject(0, &rst());
    s.w.advance_ms(2000);
    s.w.find(other, "data on the backup", |s| s.has_data());
}

#[test]
fn duplicate_acks_with_options_are_no_sign_of_congestion() {
    // rfc8684:G1,A15
    let mut s = Session::called();
    s.write(&[1; 6000]);
    s.w.drain(0);
    let una = s.w.flows[0].irs + 1;
    let window = s.info().subflows[0].tcp.congestion.cwnd;
    for id in 0..5 {
        let add = s.add_addr(10 + id, 1, None);
        let pkt = ack().opt(MptcpOption::AddAddr(add)).acking(una);
        s.w.inject(0, &pkt);
    }
    let again =
        s.w.drain(0)
            .iter()
            .any(|seg| seg.has_data() && seg.seq == una);
    s.w.check(!again, "no fast retransmission");
    assert_eq!(s.info().subflows[0].tcp.congestion.cwnd, window);
    // The same without options is one.
    for _ in 0..5 {
        let pkt = ack().opt(s.dss(None)).acking(una);
        s.w.inject(0, &pkt);
    }
    s.w.find(0, "a fast retransmission", |seg| {
        seg.has_data() && seg.seq == una
    });
}

#[test]
fn nothing_is_taken_from_a_segment_that_tcp_does_not_accept() {
    // rfc8684:G3,A1,A18
    let mut s = Session::called_with(2, plain_options());
    s.join_out(1, 5, false);
    s.write(b"data");
    s.w.drain(0);
    let old = s.w.flows[0].nxt;
    s.send(0, 0, b"old");
    assert_eq!(s.read(), b"old");
    let far = s.w.flows[0].nxt + 500_000;
    let all = MptcpOption::Dss(Dss {
        data_ack: Some(DataAck::Long(s.own_dsn(4).get())),
        ..Dss::default()
    });
    let close = MptcpOption::FastClose(manypath_wire::tcp::mptcp::FastClose { key: s.own.key() });
    let fail = s.fail_at(0);
    let add = MptcpOption::AddAddr(s.add_addr(9, 1, None));
    let prio = MptcpOption::Prio(Prio { backup: true });
    // The second subflow's address. // rfc8684:A18
    let ids = [AddrId(5)].into_iter().collect();
    let remove = MptcpOption::RemoveAddr(RemoveAddr { ids });
    for option in [all, close, fail, add, prio, remove] {
        s.w.inject(0, &ack().opt(option).seq(far));
        s.w.inject(0, &data(b"x").opt(option).seq(far));
        s.w.inject(0, &data(b"old").opt(option).seq(old));
        s.w.inject(0, &rst().opt(option).seq(far));
        // And for an acknowledgement of what was never sent.
        let unsent = s.w.flows[0].rcv + 100_000;
        s.w.inject(0, &ack().opt(option).acking(unsent));
    }
    let info = s.info();
    assert_eq!(
        (info.closed, info.bytes_acked, info.subflows.len()),
        (None, 0, 2)
    );
    assert!(info.subflows.iter().all(|sub| !sub.backup_there));
    let count = s.w.count();
    assert_eq!((count.fastclose_received, count.fail_received), (0, 0));
    assert_eq!((count.add_addr_accepted, count.prio_received), (0, 0));
    assert!(count.option_unacceptable_segment >= 10);
}

#[test]
fn at_most_two_signals_without_data_are_sent_in_a_row() {
    // rfc8684:G2,A15
    let mut s = Session::accepted();
    s.w.drain(0);
    // Five announcements of the peer want five echoes.
    for id in 0..5 {
        let add = s.add_addr(10 + id, 1, None);
        let pkt = ack().opt(MptcpOption::AddAddr(add));
        s.w.inject(0, &pkt);
    }
    let bare = |segs: Vec<Seg>| {
        let echo = |seg: &&Seg| seg.options.mptcp.add_addrs().next().is_some();
        segs.iter().filter(echo).count()
    };
    let sent = bare(s.w.drain(0));
    assert!((1..=2).contains(&sent), "{sent} in a row\n{}", s.w.log());
    // Progress of the peer makes room for more.
    s.send(0, 0, b"x");
    let sent = bare(s.w.drain(0));
    assert!(
        (1..=2).contains(&sent),
        "{sent} after progress\n{}",
        s.w.log()
    );
}

/// Writes with the peer's window closed, and lets it open without a word.
fn closed_window_is_asked_about(mut s: Session) {
    s.w.drain(0);
    s.w.flows[0].window = 0;
    s.w.inject(0, &ack());
    s.write(b"wait");
    let silent = s.w.drain(0).iter().all(|seg| !seg.has_data());
    s.w.check(silent, "the window is closed");
    for round in 0..4u64 {
        s.w.advance_ms(1000 << round);
        let probe = s.w.find(0, "a question about the window", |s| s.len() == 0);
        s.w.check(!probe.is_rst(), "the connection goes on");
        s.w.drain(0);
        s.w.inject(0, &ack());
    }
    // The answer to a question tells that it is open.
    s.w.advance_ms(16_000);
    s.w.find(0, "a question about the window", |s| s.len() == 0);
    s.w.flows[0].window = 60_000;
    s.w.inject(0, &ack());
    s.w.find(0, "the data", |s| s.payload == b"wait");
}

#[test]
fn a_closed_window_of_plain_tcp_is_probed() {
    // RFC 9293 section 3.8.6.1
    let mut s = Session::greeted(1, plain_options());
    s.w.drain(0);
    s.w.inject(0, &data(b"plain"));
    assert_eq!(s.read(), b"plain");
    assert_ne!(s.info().level, ProtocolLevel::Multipath);
    closed_window_is_asked_about(s);
}

#[test]
fn a_closed_window_of_the_only_subflow_is_probed() {
    // RFC 9293 section 3.8.6.1: above, the window of an earlier Data ACK is still open.
    closed_window_is_asked_about(Session::called_with(1, plain_options()));
}
