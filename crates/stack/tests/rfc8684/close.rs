//! DATA_FIN and FIN: section 3.3.3 and appendix D.

use manypath_stack::{
    CloseCause, ConnOptions, ConnState, EventKind, ProtocolLevel, ReadOutcome, StackError,
};
use manypath_wire::ids::{AddrId, Token};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{Dss, Join, Mapping, MptcpOption};

use crate::script::packet::{Seg, ack, data, fin, rst, syn, syn_ack};
use crate::script::session::{PEER_NONCE, Session, connect, greet, listen};
use crate::script::{World, plain_options};

fn at_end(s: &mut Session) -> bool {
    let now = s.w.now;
    s.w.stack.read(now, s.conn, &mut [0; 10]) == Ok(ReadOutcome::End)
}

#[test]
fn a_data_fin_takes_one_number_of_the_stream_and_none_of_the_subflow() {
    // rfc8684:F1,F2,D9
    let mut s = Session::called();
    s.write(b"bye");
    s.w.find(0, "data", |s| s.has_data());
    s.received = 3;
    s.ack(0);
    let before = s.w.flows[0].rcv;
    s.shutdown();
    let seg = s.w.find(0, "a DATA_FIN", |s| s.is_data_fin());
    assert_eq!((seg.len(), seg.seq), (0, before));
    let map = seg.mapping().expect("with a mapping");
    let expected = s.map_of_own(3, Ssn::new(0), b"");
    let sum = manypath_wire::checksum::dss(
        s.own_dsn(3),
        Ssn::new(0),
        1,
        manypath_wire::checksum::Sum::ZERO,
    );
    assert_eq!((map.dsn, map.ssn, map.len), (expected.dsn, Ssn::new(0), 1));
    assert_eq!(map.checksum, Some(sum), "over the pseudo-header alone");
    assert_eq!(s.info().state, ConnState::FinWait1);
    // Acknowledged by the number behind it.
    s.received = 4;
    s.ack(0);
    assert_eq!(s.info().state, ConnState::FinWait2);
}

#[test]
fn an_unacknowledged_data_fin_is_sent_on_every_subflow() {
    // rfc8684:F2,R3
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    s.ack(other);
    s.w.drain(0);
    s.w.drain(other);
    s.shutdown();
    let said = |s: &mut Session, flow: usize| {
        let all = s.w.drain(flow);
        all.iter().filter(|seg| seg.is_data_fin()).count()
    };
    let once = (said(&mut s, 0), said(&mut s, other));
    assert_eq!(once.0 + once.1, 1, "first where it gets there soonest");
    // That path may be dead, and no data on it will ever tell.
    s.w.advance_ms(2000);
    assert!(said(&mut s, 0) > 0 && said(&mut s, other) > 0);
}

/// The option on the peer's last bytes, from this position on: a mapping with the DATA_FIN behind them.
fn last_of_peer(s: &Session, at: u64, bytes: &[u8], checksum: bool) -> MptcpOption {
    let (dsn, ssn) = (s.peer_dsn(at), s.ssn(0));
    let len = bytes.len() as u16 + 1;
    let sum = manypath_wire::checksum::Sum::of(bytes);
    let sum = manypath_wire::checksum::dss(dsn, ssn, len, sum);
    let mapping = Mapping {
        len,
        checksum: checksum.then_some(sum),
        ..s.map(0, at, bytes)
    };
    MptcpOption::Dss(Dss {
        data_ack: Some(s.data_ack()),
        mapping: Some(mapping),
        data_fin: true,
    })
}

#[test]
fn a_data_fin_on_the_last_data_counts_in_their_length() {
    // rfc8684:F1,F3
    let mut s = Session::called();
    s.write(b"first ");
    s.received = 6;
    s.ack(0);
    s.w.drain(0);
    let now = s.w.now;
    s.w.stack.write(now, s.conn, b"last").expect("open");
    s.w.stack.shutdown_write(now, s.conn).expect("open");
    let seg = s.w.find(0, "data with DATA_FIN", |s| s.has_data());
    let map = seg.mapping().expect("a mapping");
    assert_eq!((seg.payload.len(), map.len), (4, 5));
    assert!(seg.is_data_fin() && !seg.is_fin());
    // Its own DATA_FIN with data: the stack's Data ACK counts it once everything before is here.
    let bytes = b"answer";
    s.received = 11;
    let option = last_of_peer(&s, 0, bytes, true);
    s.w.inject(0, &data(bytes).opt(option));
    let reply = s.w.find(0, "its Data ACK", |s| !s.has_data());
    assert_eq!(s.acked(&reply), Some(7));
    assert_eq!(s.read(), bytes);
    assert!(at_end(&mut s));
}

#[test]
fn a_data_fin_goes_to_another_subflow_with_the_data_of_one_that_is_gone() {
    // rfc8684:F1,F2
    for first in [&b""[..], b"first "] {
        let mut s = Session::accepted_with(2, plain_options());
        let other = s.join_in(1, 5, false);
        s.ack(other);
        if !first.is_empty() {
            s.write(first);
            s.received = first.len() as u64;
            s.ack(0);
            s.ack(other);
        }
        let now = s.w.now;
        s.w.stack.write(now, s.conn, b"last").expect("open");
        s.w.stack.shutdown_write(now, s.conn).expect("open");
        let carries = |s: &mut Session, flow: usize| {
            let all = s.w.drain(flow);
            // Linux drops it with data that another subflow was quicker with.
            let rides = all.iter().any(|seg| seg.is_data_fin() && seg.has_data());
            s.w.check(!rides, "no DATA_FIN with data that may come twice");
            all.iter().any(|seg| seg.has_data())
        };
        let used = [0, other].map(|flow| carries(&mut s, flow));
        let (used, free) = match used {
            [true, _] => (0, other),
            [false, _] => (other, 0),
        };
        s.w.inject(used, &rst());
        s.w.find(free, "the data again", |s| s.has_data());
        // Long before anything times out.
        s.received = (first.len() + 4) as u64;
        s.ack(free);
        s.w.find(free, "and its end", |s| s.is_data_fin());
    }
}

#[test]
fn a_data_fin_on_data_that_came_before_ends_the_stream_although_a_box_cuts_it() {
    // rfc8684:F1,F3,M2
    for checksum in [false, true] {
        let options = ConnOptions {
            checksum,
            ..plain_options()
        };
        let mut s = Session::accepted_with(1, options);
        s.send(0, 0, b"hello ");
        s.send(0, 6, b"0123456789");
        let last = last_of_peer(&s, 6, b"0123456789", checksum);
        // The option is on the last piece.
        s.w.inject(0, &data(b"01234"));
        s.w.inject(0, &data(b"56789").opt(last));
        assert_eq!(s.read(), b"hello 0123456789");
        assert!(at_end(&mut s));
        assert_eq!(s.info().level, ProtocolLevel::Multipath);
    }
}

#[test]
fn an_aborted_stream_has_no_end() {
    // rfc8684:Z1
    let mut s = Session::accepted_with(1, plain_options());
    s.ack(0);
    let now = s.w.now;
    let taken = s.w.stack.write(now, s.conn, &[7; 200_000]).expect("open");
    s.w.stack.shutdown_write(now, s.conn).expect("open");
    let sent = s.w.drain(0).iter().map(|seg| seg.len()).sum::<u32>();
    assert!((sent as usize) < taken, "some of it waits");
    s.abort();
    for _ in 0..20 {
        let ends = s.w.drain(0).iter().any(|seg| seg.is_data_fin());
        s.w.check(!ends, "no DATA_FIN where it was cut");
        s.w.advance_ms(100);
    }
}

#[test]
fn an_abort_repeats_mp_fastclose_until_answered_and_sends_no_data_fin() {
    // rfc8684:Z1,Z2,Z5,Z6; RFC 9293 section 3.10.5
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    s.write(b"half of it");
    s.received = 10;
    s.ack(0);
    s.w.drain(0);
    s.w.drain(other);
    s.abort();
    let says_so = |seg: &Seg| seg.raw_option(7).is_some();
    let there = s.w.drain(other);
    assert!(there.iter().any(|seg| seg.is_rst() && says_so(seg)));
    // The first one is lost. What the peer sends meanwhile has the next one as its answer.
    let mut said = s.w.drain(0);
    assert!(said.iter().any(says_so));
    s.w.advance_ms(50);
    let data = s.segment(0, 0, b"go on");
    s.w.inject(0, &data);
    s.w.advance_ms(50);
    let answer = s.w.drain(0);
    assert!(answer.iter().any(says_so), "{answer:?}");
    // Nor is anything else said: an announcement wants an echo, which nobody needs any more.
    let add = s.add_addr(9, 1, None);
    s.w.inject(0, &ack().opt(MptcpOption::AddAddr(add)));
    let more = s.w.drain(0);
    assert!(more.iter().all(says_so), "{more:?}");
    let end = fin().opt(s.dss(None));
    s.w.inject(0, &end);
    said.extend(answer);
    s.w.advance_ms(30_000);
    said.extend(s.w.drain(0));
    said.extend(there);
    let ends = |seg: &Seg| seg.is_fin() || seg.is_data_fin();
    assert!(!said.iter().any(ends), "the peer takes it for the whole");
    assert!(said.iter().filter(|seg| says_so(seg)).count() > 4);
    assert!(said.iter().any(|seg| seg.is_rst() && says_so(seg)));
}

#[test]
fn an_aborted_connect_ends_at_once_whatever_was_written() {
    // RFC 9293 section 3.10.4, SYN-SENT
    for written in [&b""[..], b"hello"] {
        for abort in [false, true] {
            let mut w = World::new(1);
            let conn = connect(&mut w, plain_options());
            let (flow, _) = w.answer();
            let now = w.now;
            assert_eq!(w.stack.write(now, conn, written), Ok(written.len()));
            let done = match abort {
                true => w.stack.abort(now, conn),
                false => w.stack.close(now, conn),
            };
            assert_eq!(done, Ok(()));
            w.flush();
            w.advance_ms(120_000);
            w.quiet(flow);
            assert_eq!(w.stack.connections(), 0);
            // An answer that comes late belongs to nothing.
            w.inject(flow, &syn_ack());
            w.expect(flow, "a reset", Seg::is_rst);
        }
    }
}

#[test]
fn a_syn_without_third_ack_is_answered_six_times() {
    let mut w = World::new(1);
    listen(&mut w, plain_options());
    let (flow, _, _) = greet(&mut w, true);
    w.advance_ms(300_000);
    let again = w.drain(flow);
    assert_eq!(again.iter().filter(|seg| seg.is_syn_ack()).count(), 5);
    assert!(again.iter().all(|seg| seg.is_syn_ack()));
    assert_eq!(w.stack.connections(), 0);
}

#[test]
fn a_data_fin_is_acknowledged_only_when_everything_before_it_is_here() {
    // rfc8684:F3
    let mut s = Session::accepted_with(2, plain_options());
    let other = s.join_in(1, 5, false);
    let early = ack().opt(s.data_fin(8));
    s.w.inject(other, &early);
    let reply = s.w.find(other, "an acknowledgement", |s| s.is_bare());
    assert_eq!(s.acked(&reply), Some(0));
    s.send(0, 4, b"5678");
    assert!(!at_end(&mut s));
    s.send(0, 0, b"1234");
    let reply = s.w.drain(0).pop().expect("an acknowledgement");
    assert_eq!(s.acked(&reply), Some(9));
    assert_eq!(s.read(), b"12345678");
    assert!(at_end(&mut s));
    assert_eq!(s.info().state, ConnState::CloseWait);
}

#[test]
fn a_data_fin_is_repeated_until_it_is_acknowledged() {
    // rfc8684:F1,D4
    let mut s = Session::called();
    s.shutdown();
    s.w.find(0, "a DATA_FIN", |s| s.is_data_fin());
    s.w.advance_ms(5000);
    s.w.find(0, "the DATA_FIN again", |s| s.is_data_fin());
    assert_eq!(s.info().state, ConnState::FinWait1);
}

#[test]
fn an_unacknowledged_data_fin_lets_subflows_end_and_is_never_sent_on_old_data() {
    // rfc8684:F1,F2,F4
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.write(b"last");
    s.w.find(0, "data", |s| s.has_data());
    s.received = 4;
    s.ack(0);
    s.shutdown();
    // A silent peer proves nothing: its path may be down.
    s.w.advance_ms(5_000);
    for flow in [0, other] {
        let repeats = s.w.drain(flow);
        assert!(repeats.iter().any(Seg::is_data_fin));
        assert!(!repeats.iter().any(|seg| seg.has_data() || seg.is_fin()));
    }
    // It is heard, if only there, and acknowledges everything else.
    s.ack(other);
    s.w.advance_ms(20_000);
    let here = s.w.drain(other);
    assert!(here.iter().any(|seg| seg.is_fin() && !seg.is_data_fin()));
    assert!(here.iter().any(|seg| !seg.is_fin() && seg.is_data_fin()));
    let all = here.into_iter().chain(s.w.drain(0));
    assert!(!all.into_iter().any(|seg| seg.has_data()), "nothing is new");
    s.received = 5;
    s.ack(0);
    assert_eq!(s.info().state, ConnState::FinWait2);
    s.send(0, 0, b"answer");
    assert_eq!(s.read(), b"answer");
}

#[test]
fn a_data_fin_is_sent_alone_when_its_data_was_reinjected() {
    // rfc8684:F1,F2,D9
    for checksum in [true, false] {
        let mut opts = plain_options();
        opts.checksum = checksum;
        let mut s = Session::called_with(2, opts);
        s.write(b"first");
        s.received = 5;
        s.ack(0);
        s.w.drain(0);
        let now = s.w.now;
        assert_eq!(s.w.stack.write(now, s.conn, b"last"), Ok(4));
        s.shutdown();
        // There was no other way yet, so the DATA_FIN rode on what was new then.
        let first = s.w.find(0, "the end", Seg::has_data);
        assert!(first.is_data_fin());
        let other = s.join_out(1, 5, false);
        s.w.advance_ms(1_500);
        let elsewhere = s.w.find(other, "the same data", Seg::has_data);
        assert!(!elsewhere.is_data_fin());
        s.w.drain(0);
        s.w.advance_ms(5_000);
        let again = s.w.find(0, "the data again", Seg::has_data);
        let map = again.mapping().expect("a mapping");
        let expected = s.map_of_own(5, map.ssn, b"last");
        assert_eq!((again.is_data_fin(), map), (false, expected));
    }
}

#[test]
fn the_connection_is_closed_when_both_data_fins_are_acknowledged_and_not_before() {
    // rfc8684:F4,F5,F6,F9,F11,D4
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.shutdown();
    s.w.advance_ms(3000);
    for flow in [0, other] {
        let fins = s.w.drain(flow).iter().any(|seg| seg.is_fin());
        s.w.check(!fins, "no FIN while the DATA_FIN is outstanding");
    }
    s.received = 1;
    s.ack(0);
    assert_eq!(s.info().state, ConnState::FinWait2);
    for flow in [0, other] {
        let fins = s.w.drain(flow).iter().any(|seg| seg.is_fin());
        s.w.check(!fins, "the peer may still send");
    }
    s.send(0, 0, b"more");
    assert_eq!(s.read(), b"more");
    let last = ack().opt(s.data_fin(4));
    s.w.inject(0, &last);
    assert!(s.w.happened(|e| *e == EventKind::Closed(CloseCause::Finished)));
    for flow in [0, other] {
        let last = s.w.find(flow, "a FIN", |s| s.is_fin());
        s.w.check(!last.is_data_fin(), "the DATA_FIN went long before");
        let answer = fin().opt(s.dss(None));
        s.w.inject(flow, &answer);
    }
    assert_eq!(s.info().state, ConnState::Closed);
    assert_eq!(s.w.stack.time_waits(), 2);
}

#[test]
fn a_syn_that_is_refused_leaves_time_wait_alone_and_one_that_joins_begins_beyond_it() {
    // RFC 9293 section 3.10.7.4
    let mut s = Session::accepted_with(2, plain_options());
    let flow = s.join_in(1, 7, false);
    let now = s.w.now;
    let id = s.info().subflows[1].id;
    assert_eq!(s.w.stack.remove_subflow(now, s.conn, id), Ok(()));
    let last = s.w.find(flow, "a FIN", Seg::is_fin);
    let answer = fin().opt(s.dss(None));
    s.w.inject(flow, &answer);
    assert_eq!(s.w.stack.time_waits(), 1);
    s.w.drain(flow);
    // A SYN beyond the old numbers that nobody wants.
    let isn = s.w.flows[flow].nxt + 100_000;
    let unwanted = MptcpOption::Join(Join::Syn {
        backup: false,
        addr_id: AddrId(7),
        token: Token(s.own.token.0 ^ 1),
        nonce: PEER_NONCE,
    });
    s.w.inject(flow, &syn().opt(unwanted).seq(isn));
    s.w.expect(flow, "a reset", Seg::is_rst);
    // The FIN again: our acknowledgement was lost.
    let again = answer.seq(s.w.flows[flow].nxt - 1);
    s.w.inject(flow, &again);
    let reply = s.w.expect(flow, "an acknowledgement", Seg::is_bare);
    assert_eq!(reply.ack, s.w.flows[flow].nxt);
    let join = s.join_syn(7, false).seq(isn);
    s.w.inject(flow, &join);
    let answer = s.w.expect(flow, "SYN/ACK", Seg::is_syn_ack);
    assert!(answer.seq.after(last.seq + 1));
    assert!(answer.seq.since(last.seq) > 1 << 16);
    assert_eq!(
        (s.w.stack.time_waits(), s.w.count().time_wait_reused),
        (0, 1)
    );
}

#[test]
fn data_in_flight_keeps_the_subflows_open() {
    // rfc8684:F4
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.write(&[7; 2000]);
    s.shutdown();
    // The peer is done; its DATA_FIN is taken, ours not acknowledged, nor the data.
    let done = ack().opt(s.data_fin(0));
    s.w.inject(other, &done);
    assert_eq!(s.info().state, ConnState::Closing);
    s.w.advance_ms(100);
    for flow in [0, other] {
        let fins = s.w.drain(flow).iter().any(|seg| seg.is_fin());
        s.w.check(!fins, "no FIN while data is outstanding");
    }
    s.received = 2001;
    s.ack(0);
    assert!(s.w.happened(|e| *e == EventKind::Closed(CloseCause::Finished)));
    s.w.find(0, "a FIN", |s| s.is_fin());
    s.w.find(other, "a FIN", |s| s.is_fin());
}

#[test]
fn both_may_close_at_once() {
    // rfc8684:F11
    let mut s = Session::called();
    s.shutdown();
    let crossed = ack().opt(s.data_fin(0));
    s.w.inject(0, &crossed);
    assert_eq!(s.info().state, ConnState::Closing);
    s.received = 1;
    s.ack(0);
    assert_eq!(s.info().state, ConnState::TimeWait);
    // The other order: the peer first.
    let mut s = Session::called();
    let first = ack().opt(s.data_fin(0));
    s.w.inject(0, &first);
    assert_eq!(s.info().state, ConnState::CloseWait);
    s.shutdown();
    assert_eq!(s.info().state, ConnState::LastAck);
}

#[test]
fn the_last_subflow_is_not_closed_over_data() {
    // rfc8684:F4,A21,S1
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.write(b"data");
    let now = s.w.now;
    let ids: Vec<_> = s.info().subflows.iter().map(|sub| sub.id).collect();
    let removed = s.w.stack.remove_subflow(now, s.conn, ids[1]);
    assert_eq!(removed, Ok(()));
    // A working subflow goes by FIN; no REMOVE_ADDR, no RST.
    let seg = s.w.find(other, "a FIN", |s| s.is_fin());
    assert!(!seg.is_rst() && seg.options.mptcp.remove_addrs().next().is_none());
    let refused = s.w.stack.remove_subflow(now, s.conn, ids[0]);
    assert_eq!(refused, Err(StackError::InvalidState));
    // A FIN of the peer on it closes neither the connection nor our direction.
    let theirs = fin().opt(s.dss(None));
    s.w.inject(0, &theirs);
    s.w.advance_ms(50);
    let fins = s.w.drain(0).iter().any(|seg| seg.is_fin());
    s.w.check(!fins, "data has no Data ACK yet");
    assert_eq!(s.info().closed, None);
    s.received = 4;
    s.ack(0);
    s.w.find(0, "a FIN", |s| s.is_fin());
}

#[test]
fn without_subflows_the_connection_waits_for_a_new_one() {
    // rfc8684:F10,D4,S1,S2
    let mut s = Session::accepted_with(2, plain_options());
    s.write(b"unfinished");
    s.w.find(0, "data", |s| s.has_data());
    s.received = 10;
    s.w.inject(0, &fin().opt(s.dss(None)));
    s.w.find(0, "a FIN", |s| s.is_fin());
    s.w.inject(0, &ack());
    let info = s.info();
    assert_eq!((info.subflows.len(), info.closed), (0, None));
    assert_eq!(info.remote, s.w.flows[0].tuple.remote);
    s.w.advance_ms(10_000);
    // The peer comes back by another path and everything goes on.
    let again = s.join_in(1, 5, false);
    s.write(b" business");
    let seg = s.w.find(again, "data", |s| s.has_data());
    let map = seg.mapping().expect("a mapping");
    assert_eq!(s.position(&map), 10);
    s.send(again, 0, b"hello again");
    assert_eq!(s.read(), b"hello again");
    // And not for ever.
    s.received = 19;
    let end = fin().opt(s.dss(None));
    s.w.inject(again, &end);
    s.w.inject(again, &ack());
    s.w.advance_ms(59_000);
    assert_eq!(s.info().closed, None);
    s.w.advance_ms(2_000);
    assert_eq!(s.info().closed, Some(CloseCause::NoSubflow));
}

#[test]
fn a_fin_goes_on_every_subflow() {
    // rfc8684:F6,F7
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    // The other subflow fails: its data is never acknowledged there, and goes by the first.
    s.w.flows[0].window = 0;
    s.w.inject(0, &ack());
    s.write(b"lost");
    s.w.find(other, "data", |s| s.has_data());
    s.w.flows[0].window = 60_000;
    s.ack(0);
    s.w.advance_ms(250);
    s.w.find(0, "the data", |s| s.has_data());
    s.received = 4;
    s.ack(0);
    s.shutdown();
    s.received = 5;
    let done = ack().opt(s.data_fin(0));
    s.w.inject(0, &done);
    s.w.find(0, "a FIN", |s| s.is_fin());
    s.w.advance_ms(3000);
    // Below, the failed subflow owes its data first; the FIN follows when they are acknowledged.
    s.ack(other);
    s.w.advance_ms(3000);
    s.w.find(other, "a FIN on the failed subflow", |s| s.is_fin());
}

#[test]
fn a_repeated_data_fin_is_not_answered_while_data_is_missing() {
    // rfc8684:F3: two hosts that both wait for data would answer each other for ever.
    let mut s = Session::accepted_with(2, plain_options());
    s.shutdown();
    let early = ack().opt(s.data_fin(8));
    s.w.inject(0, &early);
    s.w.drain(0);
    s.w.inject(0, &early);
    assert!(s.w.drain(0).is_empty());
}
