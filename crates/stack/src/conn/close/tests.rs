//! The states of a connection's end (RFC 8684 appendix D).

use super::*;
use crate::api::{FallbackCause, ProtocolLevel};
use crate::conn::tests::Bench;

/// How far our own direction has come.
fn fin(bench: &mut Bench, state: FinState) {
    bench.conn.send.fin.state = state;
}

/// The first subflow ends without a packet, and is removed.
fn end_first(bench: &mut Bench, end: SubflowEnd) {
    let sf = &mut bench.conn.subflows[SubflowIdx::FIRST];
    sf.closing.end = Some(end);
    sf.tcp.forget();
    bench.with(|conn, cx| conn.remove_closed(cx));
}

#[test]
fn states_are_those_of_appendix_d() {
    // rfc8684:F11
    // Our DATA_FIN; whether the peer's is here; whether it was when we closed.
    for (own, finished, second, state) in [
        (FinState::Open, false, false, ConnState::Established),
        (FinState::Open, true, false, ConnState::CloseWait),
        (FinState::Queued, false, false, ConnState::FinWait1),
        (FinState::Sent, false, false, ConnState::FinWait1),
        (FinState::Sent, true, false, ConnState::Closing),
        (FinState::Queued, true, true, ConnState::LastAck),
        (FinState::Sent, true, true, ConnState::LastAck),
        (FinState::Acked, false, false, ConnState::FinWait2),
        (FinState::Acked, true, false, ConnState::TimeWait),
        (FinState::Acked, true, true, ConnState::TimeWait),
    ] {
        let mut bench = Bench::new(1, true);
        if finished {
            bench.receive_end();
        }
        fin(&mut bench, own);
        bench.conn.life.closed_second = second;
        assert_eq!(
            bench.conn.state(),
            state,
            "{own:?}, finished: {finished}, second: {second}"
        );
    }
}

#[test]
fn a_closed_connection_is_in_time_wait_while_it_has_subflows_to_finish() {
    for (cause, state) in [
        (CloseCause::Finished, ConnState::TimeWait),
        (CloseCause::ResetByPeer, ConnState::Closed),
        (CloseCause::TimedOut, ConnState::Closed),
    ] {
        let mut bench = Bench::new(1, true);
        bench.with(|conn, cx| conn.ending().finish(cause, cx));
        assert_eq!(bench.conn.state(), state, "{cause:?}");
    }
}

#[test]
fn an_abort_waits_for_the_answer_to_its_mp_fastclose() {
    // rfc8684:Z1,Z5
    let mut bench = Bench::new(2, true);
    bench.with(|conn, cx| conn.ending().abort(cx));
    assert_eq!(bench.conn.state(), ConnState::FastCloseWait);
    let resets = bench.conn.subflows.iter();
    let resets = resets.filter(|sf| sf.closing.reset_with.is_some()).count();
    assert_eq!(resets, 1, "the option goes on the other subflow");
}

/// What is outstanding keeps the data-level timer running; a closed window alone has its own.
#[test]
fn the_data_fin_is_outstanding_once_all_data_was_sent() {
    // rfc8684:F2,F3
    for (written, sent, own, outstanding) in [
        (0, 0, FinState::Open, Outstanding::Nothing),
        (100, 50, FinState::Open, Outstanding::Data),
        (100, 0, FinState::Open, Outstanding::Window),
        (0, 0, FinState::Queued, Outstanding::Data),
        (100, 0, FinState::Queued, Outstanding::Window),
        (0, 0, FinState::Sent, Outstanding::Data),
        (0, 0, FinState::Acked, Outstanding::Nothing),
    ] {
        let mut bench = Bench::new(1, true);
        bench.write(written, sent);
        fin(&mut bench, own);
        let found = bench.conn.send.outstanding();
        assert_eq!(found, outstanding, "{sent} of {written}, {own:?}");
    }
}

/// The peer's FIN on the last subflow is answered by ours when the peer lacks nothing.
#[test]
fn the_last_subflow_is_finished_when_everything_has_its_data_ack() {
    // rfc8684:F4,F7
    for (written, own, finished, finishes) in [
        (0, FinState::Open, false, true),
        (1, FinState::Open, false, false),
        // The peer may have fallen back, and waits for more on this subflow.
        (0, FinState::Open, true, false),
        (0, FinState::Queued, false, false),
        (0, FinState::Sent, true, false),
        (0, FinState::Acked, true, true),
    ] {
        let mut bench = Bench::new(1, true);
        bench.write(written, 0);
        if finished {
            bench.receive_end();
        }
        fin(&mut bench, own);
        let last = SubflowIdx::FIRST;
        bench.conn.subflows[last].closing.peer_finished = true;
        bench.conn.ending().answer_fins(false);
        let closing = &bench.conn.subflows[last].closing;
        assert_eq!(closing.finish, finishes, "{written} {own:?} {finished}");
    }
}

#[test]
fn a_subflow_beside_others_is_finished_whatever_is_owed() {
    let mut bench = Bench::new(2, true);
    bench.write(100, 0);
    bench.conn.subflows[SubflowIdx::FIRST].closing.peer_finished = true;
    bench.conn.ending().answer_fins(false);
    let finish: alloc::vec::Vec<bool> = bench
        .conn
        .subflows
        .iter()
        .map(|sf| sf.closing.finish)
        .collect();
    assert_eq!(finish, [true, false]);
}

/// What the application is told when the last subflow has gone and no other may be made.
#[test]
fn the_end_of_the_last_subflow_gives_the_cause() {
    // rfc8684:F10
    let reset = SubflowEnd::ResetByPeer {
        reason: None,
        transient: false,
    };
    for (end, finished, cause) in [
        (SubflowEnd::Refused, false, CloseCause::Refused),
        (SubflowEnd::TimedOut, false, CloseCause::TimedOut),
        (SubflowEnd::Unreachable, false, CloseCause::Unreachable),
        (SubflowEnd::AddressGone, false, CloseCause::NoSubflow),
        (SubflowEnd::ConnectionClosed, false, CloseCause::Aborted),
        (SubflowEnd::Finished, true, CloseCause::Finished),
        // The end of a subflow is not that of the stream.
        (SubflowEnd::Finished, false, CloseCause::ResetByPeer),
        (SubflowEnd::OptionsLost, false, CloseCause::ResetByPeer),
        (reset, false, CloseCause::ResetByPeer),
    ] {
        let mut bench = Bench::new(1, true);
        let (level, why) = (ProtocolLevel::NoMoreJoins, FallbackCause::Checksum);
        assert!(bench.conn.level.descend(level, why));
        if finished {
            bench.receive_end();
        }
        end_first(&mut bench, end);
        assert_eq!(bench.conn.life.closed, Some(cause), "{end:?}");
    }
}

#[test]
fn without_subflows_the_connection_waits_for_a_join_where_it_may() {
    // rfc8684:D4,F10
    let mut bench = Bench::new(1, true);
    end_first(&mut bench, SubflowEnd::AddressGone);
    assert_eq!(bench.conn.life.closed, None);
    let until = bench.now + bench.conn.opts.break_before_make;
    assert_eq!(bench.conn.life.close_timeout, Some(until));
}

#[test]
fn a_subflow_counts_as_useful_by_what_it_carried() {
    for (sent, received, acked, expected) in [
        (0, 0, false, pm::Carried::Nothing),
        (USEFUL - 1, 0, false, pm::Carried::Nothing),
        (1, 0, true, pm::Carried::Something),
        (USEFUL, 0, false, pm::Carried::Much),
        (0, USEFUL, true, pm::Carried::Much),
    ] {
        let mut bench = Bench::new(1, true);
        let sf = &mut bench.conn.subflows[SubflowIdx::FIRST];
        (sf.stats.bytes_sent, sf.stats.bytes_received) = (sent, received);
        sf.evidence.data_was_acked = acked;
        assert_eq!(carried(sf), expected, "{sent} {received} {acked}");
    }
}
