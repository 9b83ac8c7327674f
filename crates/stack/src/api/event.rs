//! What the stack tells its caller.

use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{AddrId, FourTuple, Token};
use manypath_wire::tcp::mptcp::ResetReason;

use super::info::Role;
use super::path::IfaceId;
use crate::ids::{ConnId, ListenerId, SubflowId};

/// Something happened to a connection, or to a local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Instant,
    /// The connection; `None` for what concerns local addresses.
    pub conn: Option<ConnId>,
    /// What happened.
    pub kind: EventKind,
}

/// What happened. Those with a [name](EventKind::name) are for controllers of paths, the others for applications.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A connection of a listener is established and waits in its accept queue.
    Acceptable(ListenerId),
    /// A connection that we opened is established; or the peer has acknowledged the answer to a SYN that was held
    /// ([`Stack::hold_syns`](crate::Stack::hold_syns)).
    Established,
    /// An ICMP error says that the peer of a connection that we are opening cannot be reached. It may pass or be forged, so the SYN is
    /// repeated all the same (RFC 1122 section 4.2.3.9).
    Unreachable,
    /// There is something to read (data or the end of the stream).
    Readable,
    /// There is room to write again.
    Writable,
    /// The peer has acknowledged everything that was written and the end of our stream (RFC 8684 section 3.3.3, RFC 9293 section 3.6).
    Delivered,
    /// The connection is over; reads still return what had arrived.
    Closed(CloseCause),
    /// Multipath TCP was given up, wholly or in part.
    FellBack(FallbackCause),
    /// We are opening a connection: its first SYN leaves now. Subflows can be asked for already; they are made when the
    /// connection may have them, and never if it does not come about or is plain TCP.
    Opening {
        /// Addresses and ports of the first subflow.
        tuple: FourTuple,
        /// Our token; `None` where plain TCP is wanted.
        token: Option<Token>,
    },
    /// A connection has its first subflow.
    Created {
        /// Who opened it.
        role: Role,
        /// Addresses and ports of the first subflow.
        tuple: FourTuple,
        /// Our token; `None` where it is plain TCP.
        token: Option<Token>,
    },
    /// More subflows may be made from now on (RFC 8684 section 3.1: the peer has shown that it has our key).
    JoinsAllowed,
    /// A subflow carries data from now on.
    SubflowUp {
        /// Which one.
        subflow: SubflowId,
        /// Its addresses and ports.
        tuple: FourTuple,
        /// Where its packets leave.
        iface: IfaceId,
        /// Our identifier of its local address.
        local_id: AddrId,
        /// The peer's identifier of its address.
        remote_id: AddrId,
        /// Why it exists.
        origin: SubflowOrigin,
        /// Either end wants it as a backup.
        backup: bool,
    },
    /// A subflow ended.
    SubflowDown {
        /// Which one.
        subflow: SubflowId,
        /// Its addresses and ports.
        tuple: FourTuple,
        /// Why.
        end: SubflowEnd,
    },
    /// The peer announced an address.
    AddressAnnounced {
        /// The peer's number for it.
        id: AddrId,
        /// The address.
        addr: IpAddr,
        /// Its port, where one was given.
        port: Option<u16>,
    },
    /// The peer withdrew an address.
    AddressWithdrawn {
        /// The peer's number for it.
        id: AddrId,
    },
    /// The peer changed the priority of a subflow.
    PriorityChanged {
        /// Which one.
        subflow: SubflowId,
        /// Use it only when nothing better is left.
        backup: bool,
    },
    /// A retransmission time-out, or nothing answered when it was asked whether the path works.
    Timeout {
        /// Of which subflow.
        subflow: SubflowId,
        /// Its addresses and ports.
        tuple: FourTuple,
        /// The time-out that now applies.
        rto: Duration,
        /// How often it was doubled: not at all where nothing was under way.
        backoffs: u8,
    },
    /// The path manager decided something, perhaps that nothing is to be done.
    Decided {
        /// The number of the new entry of the decision log.
        number: u32,
    },
    /// A local address can be used, or its backup flag changed.
    LocalUp {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
        /// Peers are to use it only when nothing better is left.
        backup: bool,
    },
    /// A local address is gone.
    LocalDown {
        /// Its interface.
        iface: IfaceId,
        /// The address.
        addr: IpAddr,
    },
}

impl EventKind {
    /// The name by which a controller knows it: that of Linux's `mptcp_pm` family (`MPTCP_EVENT_*`) where there is one,
    /// else that of SMAPP section 3. `None` for what only concerns the application that reads and writes.
    pub const fn name(&self) -> Option<&'static str> {
        Some(match self {
            Self::Opening { .. } => "opening",
            Self::Created { .. } => "created",
            Self::JoinsAllowed => "established",
            Self::Closed(_) => "closed",
            Self::FellBack(_) => "fallback",
            Self::SubflowUp { .. } => "sub_established",
            Self::SubflowDown { .. } => "sub_closed",
            Self::AddressAnnounced { .. } => "announced",
            Self::AddressWithdrawn { .. } => "removed",
            Self::PriorityChanged { .. } => "sub_priority",
            Self::Timeout { .. } => "timeout",
            Self::Decided { .. } => "decision",
            Self::LocalUp { .. } => "new_local_addr",
            Self::LocalDown { .. } => "del_local_addr",
            Self::Acceptable(_)
            | Self::Established
            | Self::Unreachable
            | Self::Readable
            | Self::Writable
            | Self::Delivered => {
                return None;
            }
        })
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// Both directions were closed in order.
    Finished,
    /// The peer refused it.
    Refused,
    /// The peer reset or fast-closed it.
    ResetByPeer,
    /// Our application aborted it.
    Aborted,
    /// The peer stopped answering.
    TimedOut,
    /// The network says that the peer cannot be reached.
    Unreachable,
    /// The last subflow is gone and no new one came up in time.
    NoSubflow,
}

/// Why Multipath TCP was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackCause {
    /// Plain TCP was asked for on our side.
    NotWanted,
    /// The peer's SYN or SYN/ACK had no (usable) MP_CAPABLE.
    PeerWithout,
    /// The third packet of the handshake had no MP_CAPABLE.
    ThirdAckWithout,
    /// The first data, or the acknowledgement of ours, had no DSS.
    FirstDataWithout,
    /// Options vanished in the middle of the connection.
    OptionsLost,
    /// A DSS checksum did not match: something on the path rewrites payload.
    Checksum,
    /// The peer sent MP_FAIL.
    PeerFailed,
    /// The peer sent an infinite mapping.
    PeerInfinite,
}

/// Why a subflow exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubflowOrigin {
    /// It opened the connection.
    First,
    /// Our path manager made it.
    PathManager,
    /// The path manager made it again after a loss.
    Recreated,
    /// The application asked for it.
    Command,
    /// The peer joined.
    Peer,
}

/// Why a subflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubflowEnd {
    /// FINs were exchanged.
    Finished,
    /// The peer reset it, perhaps saying why (RFC 8684 section 3.6).
    ResetByPeer {
        /// What the peer gave as its reason.
        reason: Option<ResetReason>,
        /// The peer says that trying again makes sense.
        transient: bool,
    },
    /// The peer refused its SYN.
    Refused,
    /// Too many retransmission time-outs.
    TimedOut,
    /// The network says that the peer cannot be reached by it.
    Unreachable,
    /// The application or policy removed it.
    Administrative,
    /// Its local or remote address is gone.
    AddressGone,
    /// Its path was silent, and another subflow took its place there.
    Replaced,
    /// A DSS checksum did not match.
    Checksum,
    /// The peer failed to prove that it knows the keys.
    BadHmac,
    /// The path or peer removes our options.
    OptionsLost,
    /// The peer broke a rule of the protocol on it.
    ProtocolError,
    /// The whole connection ended or was aborted.
    ConnectionClosed,
}

impl SubflowEnd {
    /// Something on the path took options away or changed payload.
    pub(crate) const fn is_by_middlebox(self) -> bool {
        let reason = match self {
            Self::Checksum | Self::OptionsLost => return true,
            Self::ResetByPeer { reason, .. } => reason,
            _ => None,
        };
        matches!(reason, Some(ResetReason::MiddleboxInterference))
    }
}
