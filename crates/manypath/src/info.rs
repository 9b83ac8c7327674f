//! What can be read of a connection and its subflows.

use crate::{Congestion, PathManager, Scheduler, SubflowId};
use manypath_stack as stack;
use std::net::SocketAddr;
use std::time::Duration;

/// A connection at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Info {
    /// Our address and port of the first subflow, even after that is gone (RFC 6897 section 4.2).
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Multipath TCP is in use. False over plain TCP, from the start or since a fallback (RFC 8684 section 3.7).
    pub multipath: bool,
    /// Our token, by which the peer's joins name the connection; `None` over plain TCP.
    pub token: Option<u32>,
    /// How long it has existed.
    pub age: Duration,
    /// Scheduler in use.
    pub scheduler: Scheduler,
    /// Congestion control of new subflows.
    pub congestion: Congestion,
    /// Path manager in use.
    pub path_manager: PathManager,
    /// Bytes that the application wrote.
    pub bytes_written: u64,
    /// Of these, acknowledged by the peer (Data ACK).
    pub bytes_acked: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Of these, read by the application.
    pub bytes_read: u64,
    /// Bytes sent again on another subflow.
    pub bytes_reinjected: u64,
    /// The subflows that are there now. The counts of those that have ended are gone with them.
    pub subflows: Vec<SubflowInfo>,
}

/// Where a subflow stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubflowState {
    /// In its handshake.
    Opening,
    /// Carries data, or could.
    Established,
    /// Finishing, or being reset.
    Closing,
}

/// A subflow at one moment.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SubflowInfo {
    /// Its number within the connection.
    pub id: SubflowId,
    /// The name of the interface that its packets leave by, while there is one.
    pub interface: Option<String>,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Where it stands.
    pub state: SubflowState,
    /// Either end wants it to be used only when nothing better is left.
    pub backup: bool,
    /// Its path does not answer: other subflows are used as long as there are some.
    pub stale: bool,
    /// Smoothed round-trip time; `None` before the first measurement. Measured by what we send: where only the peer sends, it stays as it was.
    pub rtt: Option<Duration>,
    /// Variation of the round-trip time (RFC 6298 section 2).
    pub rtt_var: Duration,
    /// Retransmission timeout, back-off included.
    pub rto: Duration,
    /// Congestion window, bytes.
    pub cwnd: u32,
    /// Bytes in the network.
    pub inflight: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// What was delivered lately, bytes a second; zero while unknown.
    pub delivery_rate: u64,
    /// Stream bytes sent on it for the first time.
    pub bytes_sent: u64,
    /// Stream bytes that arrived on it in order, copies of what came by another subflow too: the sum can exceed
    /// [`Info::bytes_received`].
    pub bytes_received: u64,
    /// Bytes sent again on it.
    pub bytes_retransmitted: u64,
    /// How long it has existed.
    pub age: Duration,
}

/// The connection, with what else the host knows.
pub(crate) fn of(host: &manypath_io::Host, info: stack::ConnInfo) -> Info {
    let now = host.now();
    Info {
        local: info.local,
        remote: info.remote,
        multipath: info.level != stack::ProtocolLevel::PlainTcp,
        token: info.token.map(|token| token.0),
        age: now.since(info.opened).into(),
        scheduler: info.scheduler,
        congestion: info.congestion,
        path_manager: PathManager(info.path_manager),
        bytes_written: info.bytes_written,
        bytes_acked: info.bytes_acked,
        bytes_received: info.bytes_received,
        bytes_read: info.bytes_read,
        bytes_reinjected: info.bytes_reinjected,
        subflows: info
            .subflows
            .iter()
            .map(|subflow| SubflowInfo {
                age: now.since(subflow.opened).into(),
                interface: host.iface_name(subflow.iface),
                ..of_subflow(subflow)
            })
            .collect(),
    }
}

fn of_subflow(info: &stack::SubflowInfo) -> SubflowInfo {
    let (tcp, congestion) = (&info.tcp, &info.tcp.congestion);
    SubflowInfo {
        id: info.id,
        interface: None,
        local: info.tuple.local,
        remote: info.tuple.remote,
        state: match info.phase {
            stack::SubflowPhase::Handshake | stack::SubflowPhase::PreEstablished => {
                SubflowState::Opening
            }
            stack::SubflowPhase::Established => SubflowState::Established,
            stack::SubflowPhase::Closing => SubflowState::Closing,
        },
        backup: info.backup_here || info.backup_there,
        stale: info.stale,
        rtt: tcp.srtt.map(Into::into),
        rtt_var: tcp.rttvar.into(),
        rto: tcp.rto.into(),
        cwnd: congestion.cwnd,
        inflight: congestion.inflight,
        mss: tcp.mss,
        delivery_rate: congestion.delivery_rate.as_bytes_per_sec(),
        bytes_sent: info.bytes_sent,
        bytes_received: info.bytes_received,
        bytes_retransmitted: tcp.counters.sent.bytes_retrans,
        age: Duration::ZERO,
    }
}
