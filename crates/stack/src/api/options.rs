//! What a connection or listener may be asked to do.

use core::net::{IpAddr, SocketAddr};

use manypath_tcp::cc::Algorithm;
use manypath_tcp::machine::Keepalive;
use manypath_tcp::time::Duration;

use super::Mechanisms;
use super::ReceiveAlgorithm;
use super::policy::PathManager;
use crate::sched::Scheduler;

/// Bytes of the largest window that there is, and so of the largest buffer that is of use (RFC 7323 section 2.3).
pub const LARGEST_BUFFER: u32 = 1 << 30;

/// Whether a connection tries Multipath TCP at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Mode {
    /// Offer or accept Multipath TCP and fall back to TCP where the peer or the path cannot.
    #[default]
    Multipath,
    /// Plain TCP from the start.
    PlainTcp,
}

/// How a connection behaves. Every field can be left at its default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnOptions {
    /// Multipath TCP or plain TCP.
    pub mode: Mode,
    /// Which subflow carries the next data.
    pub scheduler: Scheduler,
    /// What keeps the connection from being slower than its best path.
    pub mechanisms: Mechanisms,
    /// Congestion control of every subflow.
    pub congestion: Algorithm,
    /// How the place of data that arrives out of order is found.
    pub receive: ReceiveAlgorithm,
    /// Which subflows exist.
    pub path_manager: PathManager,
    /// Require DSS checksums (RFC 8684 section 3.1, flag A). They are also used when the peer requires them.
    pub checksum: bool,
    /// Send 64-bit data sequence numbers; otherwise 32-bit ones, which save four bytes a segment.
    pub long_dsn: bool,
    /// Bytes that may wait for their Data ACK.
    pub send_buffer: u32,
    /// Bytes that may wait for the application: the connection's shared receive window. More than
    /// [`LARGEST_BUFFER`] counts as that.
    pub recv_buffer: u32,
    /// Do not wait to fill segments: turns Nagle's algorithm off, by which one small segment may be under way on a subflow, and
    /// with more to write than there was room for, none behind others.
    pub nodelay: bool,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// TCP Fast Open (RFC 7413). A connection that is opened asks the peer for a cookie, and once it has one its SYN
    /// takes along what was written before it left. A listener gives cookies, and takes what SYNs with good cookies
    /// bring. Such data may reach the application twice if the network duplicates a SYN at the wrong time: only for
    /// applications that can bear it, hence off unless asked for.
    pub fast_open: bool,
    /// The SYN takes along what was written before it left, without Fast Open: for peers that are known to take it, as those of the
    /// Convert Protocol do (RFC 8803). Where it is not taken, or its SYN is lost, connections between the two addresses do
    /// without for an hour.
    pub data_in_syn: bool,
    /// Spread transmissions over the round trip.
    pub pacing: bool,
    /// Probe idle subflows.
    pub keepalive: Option<Keepalive>,
    /// Give up when data, or a SYN, stays unacknowledged for so long (RFC 5482; RFC 9293 section 3.10.8: in any state).
    pub user_timeout: Option<Duration>,
    /// How long a connection without any subflow waits for a new one (break before make).
    pub break_before_make: Duration,
    /// Largest number of subflows at one time.
    pub max_subflows: u16,
}

impl ConnOptions {
    /// Subflows on which new data would hold up the others are excluded.
    pub(crate) fn is_guarded(&self) -> bool {
        self.mechanisms.guard && self.scheduler == Scheduler::Guarded
    }
}

impl Default for ConnOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Multipath,
            scheduler: Scheduler::default(),
            mechanisms: Mechanisms::default(),
            congestion: Algorithm::Cubic,
            receive: ReceiveAlgorithm::default(),
            path_manager: PathManager::Passive,
            checksum: true, // rfc8684:C16,D8
            long_dsn: true,
            send_buffer: 8 << 20, // rfc8684:W8: never smaller than the receive buffer
            recv_buffer: 8 << 20,
            nodelay: false,
            ecn: false,
            fast_open: false,
            data_in_syn: false,
            pacing: true,
            keepalive: None,
            user_timeout: None,
            break_before_make: Duration::from_secs(60),
            max_subflows: 64,
        }
    }
}

/// What `connect` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The peer.
    pub remote: SocketAddr,
    /// The first subflow's local address; `None` takes the first path of the peer's family that is not a backup.
    pub local: Option<IpAddr>,
    /// How the connection behaves.
    pub conn: ConnOptions,
}

/// What `listen` needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// The address and port; an unspecified address stands for every local address of its family, and
    /// `[::]` for both families.
    pub addr: SocketAddr,
    /// Connections that may be in the handshake or wait for `accept`; at most 1,024 of them in the handshake. What finds no
    /// place is answered by cookies, see [`SynCookiePolicy`](crate::stack::SynCookiePolicy).
    pub backlog: usize,
    /// How accepted connections behave.
    pub conn: ConnOptions,
}
