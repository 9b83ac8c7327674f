//! MP_FASTCLOSE and MP_TCPRST: sections 3.5 and 3.6.

use manypath_stack::{CloseCause, EventKind, PathManager, ReadOutcome, StackError, SubflowEnd};
use manypath_wire::ids::Key;
use manypath_wire::tcp::mptcp::{FastClose, MptcpOption, Reset, ResetReason};

use crate::script::packet::{Seg, ack, rst};
use crate::script::plain_options;
use crate::script::session::Session;

fn close(key: Key) -> MptcpOption {
    MptcpOption::FastClose(FastClose { key })
}

fn closes(s: &Session, seg: &Seg) -> bool {
    let expected = FastClose { key: s.peer.key() };
    seg.options.mptcp.fastclose() == Some(expected)
}

#[test]
fn an_abort_sends_mp_fastclose_on_one_subflow_and_resets_the_others() {
    // rfc8684:Z1
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    s.abort();
    let first = s.w.drain(0);
    let second = s.w.drain(other);
    let (on_ack, on_rst) = if first.iter().any(Seg::is_rst) {
        (second, first)
    } else {
        (first, second)
    };
    let told = on_ack.iter().any(|seg| seg.is_bare() && closes(&s, seg));
    s.w.check(
        told,
        "MP_FASTCLOSE with the peer's key on an acknowledgement",
    );
    s.w.check(!on_ack.iter().any(Seg::is_rst), "and no RST there");
    s.w.check(on_rst.iter().any(Seg::is_rst), "a RST on the other");
    let known = s.w.stack.write(s.w.now, s.conn, b"x");
    assert_eq!(known, Err(StackError::NoSuchHandle));
    // The peer answers with a reset: over.
    let answer = if told { rst() } else { ack() };
    let flow = if on_ack.first().map(|seg| seg.tuple) == Some(s.w.flows[0].tuple) {
        0
    } else {
        other
    };
    s.w.inject(flow, &answer);
    s.w.advance_ms(10_000);
    s.w.quiet(flow);
    assert!(s.w.stack.conns().is_empty());
}

#[test]
fn a_fast_close_is_repeated_three_times_and_then_ends_with_a_reset() {
    // rfc8684:Z5,Z6
    let mut s = Session::called();
    s.abort();
    s.w.advance_ms(60_000);
    let sent = s.w.drain(0);
    let on_acks = sent
        .iter()
        .filter(|seg| seg.is_bare() && closes(&s, seg))
        .count();
    assert_eq!(on_acks, 1 + 3, "{}", s.w.log());
    let last = sent.last().expect("something was sent");
    assert!(last.is_rst() && closes(&s, last), "{}", s.w.log());
    assert!(s.w.stack.conns().is_empty());
}

#[test]
fn what_is_in_flight_at_an_abort_is_sent_again_as_it_was_and_nothing_new_is() {
    // rfc8684:Z1
    let mut s = Session::called();
    s.write(b"lost on the way");
    let first = s.w.drain(0);
    assert!(first.iter().any(|seg| seg.payload == b"lost on the way"));
    s.abort();
    s.w.advance_ms(60_000);
    for seg in s.w.drain(0) {
        let again = seg.payload.is_empty() || b"lost on the way".ends_with(&seg.payload);
        assert!(again, "{:?}: {}", seg.payload, s.w.log());
    }
    assert!(s.w.stack.conns().is_empty());
}

#[test]
fn a_peer_that_may_not_know_us_yet_gets_a_reset_with_the_option() {
    // rfc8684:Z2
    let mut s = Session::greeted(1, plain_options());
    s.w.drain(0);
    s.abort();
    let seg = s.w.expect(0, "a reset", |s| s.is_rst());
    assert!(closes(&s, &seg), "{}", s.w.log());
    s.w.advance_ms(10_000);
    s.w.quiet(0);
}

#[test]
fn a_fast_close_of_the_peer_ends_everything() {
    // rfc8684:Z3
    for with_rst in [false, true] {
        let mut s = Session::accepted_with(2, plain_options());
        let other = s.join_in(1, 5, false);
        s.write(b"pending");
        s.w.drain(0);
        s.w.drain(other);
        let pkt = if with_rst { rst() } else { ack() };
        s.w.inject(0, &pkt.opt(close(s.own.key())));
        s.w.find(other, "a reset", |s| s.is_rst());
        if !with_rst {
            s.w.find(0, "a reset", |s| s.is_rst());
        }
        assert!(s.w.happened(|e| *e == EventKind::Closed(CloseCause::ResetByPeer)));
        let now = s.w.now;
        assert_eq!(s.w.stack.write(now, s.conn, b"x"), Err(StackError::Reset));
        assert_eq!(s.info().subflows.len(), 0);
    }
}

#[test]
fn a_fast_close_with_a_wrong_key_is_ignored() {
    // rfc8684:Z3
    let mut s = Session::accepted();
    s.w.inject(0, &ack().opt(close(s.peer.key())));
    s.w.inject(0, &ack().opt(close(Key([0; 8]))));
    assert_eq!(s.w.count().fastclose_bad_key, 2);
    assert_eq!((s.info().closed, s.working()), (None, 1));
    s.send(0, 0, b"alive");
    assert_eq!(s.read(), b"alive");
}

#[test]
fn two_fast_closes_that_cross_end_by_reset() {
    // rfc8684:Z4
    let mut s = Session::called();
    s.abort();
    s.w.find(0, "MP_FASTCLOSE", |s| s.options.mptcp.fastclose().is_some());
    s.w.inject(0, &ack().opt(close(s.own.key())));
    s.w.expect(0, "a reset", |s| s.is_rst());
    s.w.advance_ms(10_000);
    s.w.quiet(0);
    assert!(s.w.stack.conns().is_empty());
}

#[test]
fn keys_are_on_the_wire_in_two_options_only() {
    // rfc8684:S4
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    let keep = |s: &mut Session| [s.w.drain(0), s.w.drain(other)].concat();
    s.write(b"data");
    let mut segs = keep(&mut s);
    let add = s.add_addr(7, 3, None);
    s.w.inject(0, &ack().opt(MptcpOption::AddAddr(add)));
    segs.extend(keep(&mut s));
    let key = s.own.key().0;
    let shows = |seg: &Seg| seg.bytes.windows(8).any(|part| part == key);
    s.w.check(!segs.is_empty() && !segs.iter().any(shows), "no key");
    s.abort();
    let last = keep(&mut s);
    let peers = s.peer.key().0;
    let told = |seg: &Seg| seg.bytes.windows(8).any(|part| part == peers);
    s.w.check(last.iter().any(told), "the peer's key, to end it");
    s.w.check(!last.iter().any(shows), "not ours");
}

fn told(reason: ResetReason, transient: bool) -> MptcpOption {
    MptcpOption::Reset(Reset { transient, reason })
}

#[test]
fn a_reset_ends_one_subflow_with_its_reason() {
    // rfc8684:T1,T2,S1
    let mut s = Session::called_with(2, plain_options());
    let other = s.join_out(1, 5, false);
    let reason = ResetReason::LackOfResources;
    // Bits U, V and W are set: they do not count.
    let pkt = rst().opt(told(reason, true)).patch(|tcp| tcp[22] |= 0x0e);
    s.w.inject(other, &pkt);
    let end = SubflowEnd::ResetByPeer {
        reason: Some(reason),
        transient: true,
    };
    assert_eq!(s.info().ended.last().map(|e| e.end), Some(end));
    assert_eq!((s.info().closed, s.working()), (None, 1));
    let now = s.w.now;
    let read = s.w.stack.read(now, s.conn, &mut [0; 4]);
    assert_eq!(read, Ok(ReadOutcome::Empty));
    // The stack's own: the bits are zero. The next join is refused for a code that is wrong.
    let (flow, _) = s.open_out(1);
    s.w.inject(flow, &crate::script::packet::syn_ack());
    let seg = s.w.find(flow, "a reset", |s| s.is_rst());
    assert_eq!(seg.raw_option(8), Some(&[30, 4, 0x80, 1][..]));
}

#[test]
fn a_path_that_was_refused_for_good_is_not_tried_again_and_a_transient_one_is() {
    // rfc8684:T3,T4
    for (transient, again) in [(false, false), (true, true)] {
        let mut opts = plain_options();
        opts.path_manager = PathManager::FullMesh;
        let mut s = Session::called_with(2, opts);
        s.w.advance_ms(50);
        let (flow, syn) = s.w.answer();
        let answer = s.join_answer(&syn, 9, false);
        s.w.inject(flow, &answer);
        s.ack(flow);
        let reason = ResetReason::AdministrativelyProhibited;
        s.w.inject(flow, &rst().opt(told(reason, transient)));
        s.w.drain(flow);
        s.w.advance_ms(60_000);
        let joined =
            s.w.sent
                .iter()
                .any(|seg| seg.is_syn() && seg.join().is_some());
        assert_eq!(joined, again, "{}", s.w.log());
    }
}
