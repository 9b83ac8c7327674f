//! What can be read about a connection.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::cc::Algorithm;
use manypath_tcp::machine::Info as TcpInfo;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{AddrId, FourTuple, Token};

use super::event::{CloseCause, FallbackCause, SubflowEnd, SubflowOrigin};
use super::path::IfaceId;
use super::policy::PathManager;
use super::{ReceiveAlgorithm, ReceiveSearches};
use crate::ids::{ConnId, SubflowId};
use crate::sched::Scheduler;

/// Who opened a connection or subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// We did.
    Initiator,
    /// The peer did.
    Responder,
}

/// Where on the way from Multipath TCP down to TCP a connection stands. It only goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolLevel {
    /// Full Multipath TCP.
    Multipath,
    /// Multipath TCP on the subflows that exist; no more joins.
    NoMoreJoins,
    /// One subflow with an infinite mapping.
    InfiniteMapping,
    /// Plain TCP.
    PlainTcp,
}

/// The connection-level state (RFC 8684 appendix D, without its M_ prefix).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnState {
    /// The first subflow is in its handshake.
    Opening,
    /// Data flows both ways.
    Established,
    /// We closed; our DATA_FIN is not acknowledged.
    FinWait1,
    /// We closed and the peer acknowledged it.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed; our DATA_FIN is not acknowledged.
    LastAck,
    /// Both closed at once.
    Closing,
    /// Both DATA_FINs are acknowledged; subflows are finishing.
    TimeWait,
    /// We sent MP_FASTCLOSE and wait for the resets.
    FastCloseWait,
    /// Over.
    Closed,
}

/// Where a subflow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubflowPhase {
    /// TCP handshake.
    Handshake,
    /// Joined, but the peer's fourth packet is not here yet: no data (RFC 8684 section 3.2).
    PreEstablished,
    /// Carries data.
    Established,
    /// Finishing or being reset.
    Closing,
}

/// Bytes of memory that a stack holds. What an operating system has not yet given to a large buffer does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Connections with their queues and subflows.
    pub connections: usize,
    /// Tables that find them.
    pub tables: usize,
    /// Records of TIME-WAIT.
    pub time_wait: usize,
    /// Events and answers that wait.
    pub queues: usize,
}

impl Memory {
    /// All of it.
    pub fn total(&self) -> usize {
        let Self {
            connections,
            tables,
            time_wait,
            queues,
        } = *self;
        connections + tables + time_wait + queues
    }
}

/// Which calls of an application would do something at once, if only fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Readiness {
    /// A read gives bytes, the end of the stream, or an error.
    pub readable: bool,
    /// A write takes bytes, or fails.
    pub writable: bool,
}

/// A connection as a whole.
#[derive(Clone, Debug)]
pub struct ConnInfo {
    /// Its handle.
    pub id: ConnId,
    /// Who opened it.
    pub role: Role,
    /// State.
    pub state: ConnState,
    /// Multipath TCP, or how far it fell back.
    pub level: ProtocolLevel,
    /// Why it fell back, where it did.
    pub fallback: Option<FallbackCause>,
    /// Why it ended, where it did.
    pub closed: Option<CloseCause>,
    /// Local address and port of the first subflow, even after that is gone. // rfc8684:S2
    pub local: SocketAddr,
    /// The peer's, likewise.
    pub remote: SocketAddr,
    /// Our token, where Multipath TCP was negotiated.
    pub token: Option<Token>,
    /// DSS checksums are in use.
    pub checksum: bool,
    /// Scheduler in use.
    pub scheduler: Scheduler,
    /// Congestion control of new subflows.
    pub congestion: Algorithm,
    /// How the place of data that arrives out of order is found.
    pub receive: ReceiveAlgorithm,
    /// What that cost.
    pub searches: ReceiveSearches,
    /// Path manager in use.
    pub path_manager: PathManager,
    /// When it was opened.
    pub opened: Instant,
    /// Stream bytes written by the application.
    pub bytes_written: u64,
    /// Stream bytes acknowledged by the peer at connection level.
    pub bytes_acked: u64,
    /// Stream bytes received in order.
    pub bytes_received: u64,
    /// Stream bytes read by the application.
    pub bytes_read: u64,
    /// Stream bytes sent a second time on another subflow.
    pub bytes_reinjected: u64,
    /// Bytes in the send buffer, not yet acknowledged.
    pub send_queue: u32,
    /// Bytes received and not yet read.
    pub recv_queue: u32,
    /// Bytes of memory in its queues.
    pub memory: usize,
    /// Room that the peer's window leaves, in bytes.
    pub peer_window: u64,
    /// Subflows may be added now.
    pub may_join: bool,
    /// Subflows may be asked for: they are made now, or as soon as the connection is fully established.
    pub may_create: bool,
    /// The subflow that carries the oldest byte without Data ACK: who holds the window up while it is closed.
    pub held_up_by: Option<SubflowId>,
    /// Our addresses as this connection knows them.
    pub locals: Vec<LocalAddress>,
    /// The peer's addresses as this connection knows them.
    pub remotes: Vec<PeerAddress>,
    /// Live subflows.
    pub subflows: Vec<SubflowInfo>,
    /// The subflows that ended last, newest last; bounded.
    pub ended: Vec<EndedSubflow>,
}

/// An address of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAddress {
    /// Its identifier.
    pub id: AddrId,
    /// Its interface.
    pub iface: IfaceId,
    /// The address.
    pub addr: IpAddr,
    /// Peers are to use it only when nothing better is left.
    pub backup: bool,
    /// It can be used now.
    pub up: bool,
    /// The peer was told of it.
    pub announced: bool,
}

/// An address of the peer that a subflow can be made to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress {
    /// The peer's identifier of it.
    pub id: AddrId,
    /// Address and port.
    pub addr: SocketAddr,
    /// The peer announced it, as opposed to joining from it or being called there.
    pub announced: bool,
}

/// A live subflow.
#[derive(Clone, Debug)]
pub struct SubflowInfo {
    /// Its number within the connection.
    pub id: SubflowId,
    /// Where its packets leave.
    pub iface: IfaceId,
    /// Addresses and ports.
    pub tuple: FourTuple,
    /// Our address identifier.
    pub local_id: AddrId,
    /// The peer's address identifier.
    pub remote_id: AddrId,
    /// Why it exists.
    pub origin: SubflowOrigin,
    /// Where it stands.
    pub phase: SubflowPhase,
    /// It is a backup for what we send, and we asked the peer to use it as one.
    pub backup_here: bool,
    /// The peer asked us to use it as a backup.
    pub backup_there: bool,
    /// Its path does not answer: a retransmission time-out, ICMP unreachable, no uplink, or a receiver's probes without an answer. Not
    /// scheduled while another is usable, but for the last of these.
    pub stale: bool,
    /// When its SYN was sent or received.
    pub opened: Instant,
    /// Stream bytes sent on it for the first time.
    pub bytes_sent: u64,
    /// Stream bytes sent on it that another subflow had sent before.
    pub bytes_reinjected: u64,
    /// Stream bytes that arrived on it in order.
    pub bytes_received: u64,
    /// Everything TCP knows about it.
    pub tcp: TcpInfo,
}

/// A subflow that is gone.
#[derive(Clone, Copy, Debug)]
pub struct EndedSubflow {
    /// Its number within the connection.
    pub id: SubflowId,
    /// Addresses and ports.
    pub tuple: FourTuple,
    /// Why it existed.
    pub origin: SubflowOrigin,
    /// Why it ended.
    pub end: SubflowEnd,
    /// When it ended.
    pub at: Instant,
    /// How long it had lived.
    pub lived: Duration,
    /// Stream bytes sent on it.
    pub bytes_sent: u64,
    /// Stream bytes received on it.
    pub bytes_received: u64,
}
