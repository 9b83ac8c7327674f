//! From the stack's values to the plain data of a report.
//!
//! Every match is exhaustive and every struct is taken apart by name, so that something new in the stack cannot be
//! forgotten here.

use manypath_stack::api::{
    CloseCause, ConnInfo, ConnState, EndedSubflow, FallbackCause, IfaceId, LocalAddress,
    PeerAddress, ProtocolLevel, Role, SubflowEnd, SubflowInfo, SubflowOrigin, SubflowPhase,
};
use manypath_stack::pm::Decision;
use manypath_tcp::machine::{CongestionInfo, Info, State};
use manypath_tcp::time::Instant;
use manypath_tcp::units::Rate;

use crate::report::{
    ConnReport, EndedReport, LocalAddressReport, RemoteAddressReport, SubflowReport,
};
use crate::wire::DecisionReport;

/// A connection as it is `now`, with the interfaces' names as `iface` knows them.
pub fn connection(
    info: &ConnInfo,
    now: Instant,
    iface: &dyn Fn(IfaceId) -> Option<String>,
) -> ConnReport {
    let ConnInfo {
        id,
        role,
        state,
        level,
        fallback,
        closed,
        local,
        remote,
        token,
        checksum,
        scheduler,
        congestion,
        receive,
        searches,
        path_manager,
        opened,
        bytes_written,
        bytes_acked,
        bytes_received,
        bytes_read,
        bytes_reinjected,
        send_queue,
        recv_queue,
        peer_window,
        memory,
        may_join,
        may_create,
        held_up_by,
        locals,
        remotes,
        subflows,
        ended,
    } = info;
    ConnReport {
        id: id.to_string(),
        role: match role {
            Role::Initiator => "initiator",
            Role::Responder => "responder",
        }
        .to_owned(),
        state: conn_state(*state).to_owned(),
        level: match level {
            ProtocolLevel::Multipath => "multipath",
            ProtocolLevel::NoMoreJoins => "no-more-joins",
            ProtocolLevel::InfiniteMapping => "infinite-mapping",
            ProtocolLevel::PlainTcp => "plain-tcp",
        }
        .to_owned(),
        fallback: fallback.map(|cause| fallback_cause(cause).to_owned()),
        closed: closed.map(|cause| close_cause(cause).to_owned()),
        local: Some(*local),
        remote: Some(*remote),
        token: token.map(|token| token.to_string()),
        checksum: *checksum,
        scheduler: scheduler.to_string(),
        congestion: congestion.to_string(),
        receive: receive.to_string(),
        receive_searches: searches.searches,
        receive_hits: searches.hits,
        receive_steps: searches.steps,
        path_manager: path_manager.to_string(),
        age_us: now.since(*opened).as_micros(),
        bytes_written: *bytes_written,
        bytes_acked: *bytes_acked,
        bytes_received: *bytes_received,
        bytes_read: *bytes_read,
        bytes_reinjected: *bytes_reinjected,
        send_queue: u64::from(*send_queue),
        recv_queue: u64::from(*recv_queue),
        peer_window: *peer_window,
        memory: *memory as u64,
        may_join: *may_join,
        may_create: *may_create,
        held_up_by: held_up_by.map(|id| u32::from(id.0)),
        local_addresses: locals.iter().map(|l| local_address(l, iface)).collect(),
        remote_addresses: remotes.iter().map(remote_address).collect(),
        subflows: subflows.iter().map(|s| subflow(s, now, iface)).collect(),
        ended: ended.iter().map(|e| ended_subflow(e, now)).collect(),
    }
}

/// An entry of the decision log.
#[must_use]
pub fn decision(decision: &Decision, now: Instant) -> DecisionReport {
    DecisionReport {
        number: decision.number,
        ago_us: now.since(decision.at).as_micros(),
        decision: decision.verdict.to_string(),
        reason: decision.reason.to_string(),
    }
}

fn local_address(
    local: &LocalAddress,
    iface_name: &dyn Fn(IfaceId) -> Option<String>,
) -> LocalAddressReport {
    let LocalAddress {
        id,
        iface,
        addr,
        backup,
        up,
        announced,
    } = local;
    LocalAddressReport {
        id: id.0,
        iface: iface_name(*iface).unwrap_or_else(|| iface.0.to_string()),
        address: Some(*addr),
        backup: *backup,
        up: *up,
        announced: *announced,
    }
}

fn remote_address(remote: &PeerAddress) -> RemoteAddressReport {
    let PeerAddress {
        id,
        addr,
        announced,
    } = remote;
    RemoteAddressReport {
        id: id.0,
        address: Some(*addr),
        announced: *announced,
    }
}

fn subflow(
    info: &SubflowInfo,
    now: Instant,
    name_of: &dyn Fn(IfaceId) -> Option<String>,
) -> SubflowReport {
    let SubflowInfo {
        id,
        iface,
        tuple,
        local_id,
        remote_id,
        origin,
        phase,
        backup_here,
        backup_there,
        stale,
        opened,
        bytes_sent,
        bytes_reinjected,
        bytes_received,
        tcp,
    } = info;
    // Everything else of TCP's snapshot is about options and counters that nobody steers by.
    let Info {
        state,
        srtt,
        rttvar,
        min_rtt,
        rto,
        backoffs,
        congestion,
        mss,
        peer_window,
        counters,
        ..
    } = tcp;
    let CongestionInfo {
        cwnd,
        ssthresh,
        pacing_rate,
        delivery_rate,
        inflight,
        in_recovery,
        ..
    } = congestion;
    SubflowReport {
        id: u32::from(id.0),
        iface: name_of(*iface).unwrap_or_else(|| iface.0.to_string()),
        local: Some(tuple.local),
        remote: Some(tuple.remote),
        local_id: local_id.0,
        remote_id: remote_id.0,
        origin: subflow_origin(*origin).to_owned(),
        phase: match phase {
            SubflowPhase::Handshake => "handshake",
            SubflowPhase::PreEstablished => "pre-established",
            SubflowPhase::Established => "established",
            SubflowPhase::Closing => "closing",
        }
        .to_owned(),
        tcp_state: tcp_state(*state).to_owned(),
        backup_here: *backup_here,
        backup_there: *backup_there,
        stale: *stale,
        age_us: now.since(*opened).as_micros(),
        srtt_us: srtt.map(|t| t.as_micros()),
        min_rtt_us: min_rtt.map(|t| t.as_micros()),
        rttvar_us: rttvar.as_micros(),
        rto_us: rto.as_micros(),
        backoffs: *backoffs,
        cwnd: u64::from(*cwnd),
        ssthresh: (*ssthresh != u32::MAX).then_some(u64::from(*ssthresh)),
        pacing_rate: (*pacing_rate != Rate::MAX).then_some(pacing_rate.as_bytes_per_sec()),
        delivery_rate: delivery_rate.as_bytes_per_sec(),
        inflight: u64::from(*inflight),
        mss: u64::from(*mss),
        peer_window: u64::from(*peer_window),
        in_recovery: *in_recovery,
        bytes_sent: *bytes_sent,
        bytes_received: *bytes_received,
        bytes_reinjected: *bytes_reinjected,
        bytes_acked: counters.recovery.bytes_acked,
        bytes_retransmitted: counters.sent.bytes_retrans,
        retransmissions: counters.sent.segs_retrans,
        timeouts: counters.recovery.timeouts,
    }
}

fn ended_subflow(info: &EndedSubflow, now: Instant) -> EndedReport {
    let EndedSubflow {
        id,
        tuple,
        origin,
        end,
        at,
        lived,
        bytes_sent,
        bytes_received,
    } = info;
    EndedReport {
        id: u32::from(id.0),
        local: Some(tuple.local),
        remote: Some(tuple.remote),
        origin: subflow_origin(*origin).to_owned(),
        end: subflow_end(*end),
        ago_us: now.since(*at).as_micros(),
        lived_us: lived.as_micros(),
        bytes_sent: *bytes_sent,
        bytes_received: *bytes_received,
    }
}

fn conn_state(state: ConnState) -> &'static str {
    match state {
        ConnState::Opening => "opening",
        ConnState::Established => "established",
        ConnState::FinWait1 => "fin-wait-1",
        ConnState::FinWait2 => "fin-wait-2",
        ConnState::CloseWait => "close-wait",
        ConnState::LastAck => "last-ack",
        ConnState::Closing => "closing",
        ConnState::TimeWait => "time-wait",
        ConnState::FastCloseWait => "fastclose-wait",
        ConnState::Closed => "closed",
    }
}

fn tcp_state(state: State) -> &'static str {
    match state {
        State::SynSent => "syn-sent",
        State::SynReceived => "syn-received",
        State::Established => "established",
        State::FinWait1 => "fin-wait-1",
        State::FinWait2 => "fin-wait-2",
        State::CloseWait => "close-wait",
        State::Closing => "closing",
        State::LastAck => "last-ack",
        State::TimeWait => "time-wait",
        State::Closed => "closed",
    }
}

fn fallback_cause(cause: FallbackCause) -> &'static str {
    match cause {
        FallbackCause::NotWanted => "plain TCP was asked for on this side",
        FallbackCause::PeerWithout => "the peer or the path has no Multipath TCP",
        FallbackCause::ThirdAckWithout => "no MP_CAPABLE in the third packet",
        FallbackCause::FirstDataWithout => "no DSS with the first data",
        FallbackCause::OptionsLost => "options vanished on the way",
        FallbackCause::Checksum => "a checksum failed: something rewrites the payload",
        FallbackCause::PeerFailed => "the peer sent MP_FAIL",
        FallbackCause::PeerInfinite => "the peer sent an infinite mapping",
    }
}

fn close_cause(cause: CloseCause) -> &'static str {
    match cause {
        CloseCause::Finished => "both sides closed it",
        CloseCause::Refused => "refused by the peer",
        CloseCause::ResetByPeer => "reset by the peer",
        CloseCause::Aborted => "aborted on this side",
        CloseCause::TimedOut => "the peer stopped answering",
        CloseCause::Unreachable => "the peer is unreachable",
        CloseCause::NoSubflow => "no subflow was left",
    }
}

fn subflow_origin(origin: SubflowOrigin) -> &'static str {
    match origin {
        SubflowOrigin::First => "opened the connection",
        SubflowOrigin::PathManager => "path manager",
        SubflowOrigin::Recreated => "path manager, again after a loss",
        SubflowOrigin::Command => "on request",
        SubflowOrigin::Peer => "joined by the peer",
    }
}

fn subflow_end(end: SubflowEnd) -> String {
    let text = match end {
        SubflowEnd::Finished => "closed in order",
        SubflowEnd::ResetByPeer { reason, transient } => {
            let reason = reason.map_or_else(|| "no reason given".to_owned(), |r| r.to_string());
            let trying = if transient {
                ", trying again makes sense"
            } else {
                ""
            };
            return format!("reset by the peer: {reason}{trying}");
        }
        SubflowEnd::Refused => "refused by the peer",
        SubflowEnd::TimedOut => "no answer after repeated retransmissions",
        SubflowEnd::Unreachable => "the peer is unreachable by it",
        SubflowEnd::Administrative => "removed on request",
        SubflowEnd::Replaced => "another one took its place on a path that had been silent",
        SubflowEnd::AddressGone => "its address or interface is gone",
        SubflowEnd::Checksum => "a checksum failed: something rewrites the payload",
        SubflowEnd::BadHmac => "the peer could not prove that it belongs to the connection",
        SubflowEnd::OptionsLost => "options vanished on the way",
        SubflowEnd::ProtocolError => "the peer broke a rule of the protocol",
        SubflowEnd::ConnectionClosed => "the connection ended",
    };
    text.to_owned()
}
