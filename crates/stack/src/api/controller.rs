//! A controller of paths: what it sees, what it orders, and how one from outside of this crate is plugged in.
//!
//! What it costs: nothing for a segment. A controller is called for each event that has a [name](EventKind::name) and at its own
//! deadlines, through a pointer if it is from outside.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};

use super::control::Command;
use super::event::EventKind;
use super::info::{ConnInfo, SubflowInfo, SubflowPhase};
use crate::ids::SubflowId;

/// What a controller sees of a subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubflowView {
    /// Its number.
    pub id: SubflowId,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// It carries data, or could.
    pub established: bool,
    /// Either end wants it only when nothing better is left.
    pub backup: bool,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Retransmission time-out, back-off included.
    pub rto: Duration,
    /// Time-outs in a row.
    pub backoffs: u8,
    /// Its path does not answer.
    pub stale: bool,
    /// In congestion avoidance: past slow start, and not repairing a loss.
    pub steady: bool,
    /// Bytes a second that pacing lets go.
    pub pacing_rate: u64,
    /// Payload bytes acknowledged on it.
    pub acked: u64,
    /// Payload bytes sent again on it.
    pub retransmitted: u64,
}

/// What a controller sees of a local address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalView {
    /// The address.
    pub addr: IpAddr,
    /// To be used only when nothing better is left.
    pub backup: bool,
}

/// What a controller sees of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Subflows may be made.
    pub may_join: bool,
    /// Subflows may be asked for: they are made now, or as soon as the connection is fully established.
    pub may_create: bool,
    /// Stream bytes that the application wrote.
    pub written: u64,
    /// Stream bytes that the peer acknowledged at connection level (`snd_una`).
    pub acked: u64,
    /// Subflows that are not ending.
    pub subflows: Vec<SubflowView>,
    /// Local addresses that can be used.
    pub locals: Vec<LocalView>,
    /// Addresses of the peer to connect to, the first subflow's first.
    pub remotes: Vec<SocketAddr>,
}

impl View {
    /// One of its subflows.
    pub fn subflow(&self, id: SubflowId) -> Option<&SubflowView> {
        self.subflows.iter().find(|sf| sf.id == id)
    }
}

impl From<&SubflowInfo> for SubflowView {
    fn from(info: &SubflowInfo) -> Self {
        let tcp = &info.tcp;
        let cc = &tcp.congestion;
        Self {
            id: info.id,
            local: info.tuple.local,
            remote: info.tuple.remote,
            established: info.phase == SubflowPhase::Established,
            backup: info.backup_here || info.backup_there,
            srtt: tcp.srtt,
            rto: tcp.rto,
            backoffs: tcp.backoffs,
            stale: info.stale,
            steady: cc.ssthresh != u32::MAX && cc.cwnd >= cc.ssthresh && !cc.in_recovery,
            pacing_rate: cc.pacing_rate.as_bytes_per_sec(),
            acked: tcp.counters.recovery.bytes_acked,
            retransmitted: tcp.counters.sent.bytes_retrans,
        }
    }
}

impl From<&ConnInfo> for View {
    fn from(info: &ConnInfo) -> Self {
        let lives = |sf: &&SubflowInfo| sf.phase != SubflowPhase::Closing;
        Self {
            may_join: info.may_join,
            may_create: info.may_create,
            written: info.bytes_written,
            acked: info.bytes_acked,
            subflows: info.subflows.iter().filter(lives).map(Into::into).collect(),
            locals: info
                .locals
                .iter()
                .filter(|local| local.up)
                .map(|local| LocalView {
                    addr: local.addr,
                    backup: local.backup,
                })
                .collect(),
            remotes: info.remotes.iter().map(|remote| remote.addr).collect(),
        }
    }
}

/// A command of a controller, or its decision that nothing is to be done, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What is to be done; `None` for a decision to leave things as they are.
    pub command: Option<Command>,
    /// Why.
    pub why: &'static str,
}

impl Order {
    /// Has this done.
    pub const fn give(command: Command, why: &'static str) -> Self {
        Self {
            command: Some(command),
            why,
        }
    }

    /// Leaves things as they are, which the decision log says too.
    pub const fn leave(why: &'static str) -> Self {
        Self { command: None, why }
    }
}

/// A controller of paths: one value for each connection. It decides which subflows there are.
///
/// It is a function of its own state, what happened, and what can be read of the connection; it touches nothing itself. Where no
/// subflow is left, one is made in any case, whatever a controller does: a connection without any ends soon.
pub trait PathController: fmt::Debug + Send {
    /// Something happened, or the [deadline](Self::deadline) has come (`None`): adds to `orders` what is to be done now.
    fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    );

    /// When it wants to look again although nothing happens.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// A [`PathController`] with its name, as the options of a connection hold it: a `static` of the application.
#[derive(Clone, Copy)]
pub struct CustomController {
    name: &'static str,
    make: fn() -> Box<dyn PathController>,
}

impl CustomController {
    /// A controller by its name, which must be its own, and what makes one for a connection.
    pub const fn new(name: &'static str, make: fn() -> Box<dyn PathController>) -> Self {
        Self { name, make }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn make(&self) -> Box<dyn PathController> {
        (self.make)()
    }
}

impl PartialEq for CustomController {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for CustomController {}

impl fmt::Debug for CustomController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}
