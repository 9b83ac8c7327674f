//! Policies that judge how subflows do: the smart controllers of SMAPP and PathFinder.
//!
//! A controller is a deterministic function of its own state, an event and what can be read about the connection; its
//! answer is a list of commands, each with its reason. It touches nothing itself, so the same code runs inside the stack,
//! in another process behind the control socket, and beside the kernel's connections.

mod backup;
mod lately;
mod lifeline;
mod pathfinder;
mod paths;
mod refresh;
mod streaming;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::{Duration, Instant};

use crate::api::{
    Command, ConnInfo, Ending, EventKind, NewSubflow, PathManager, SubflowInfo, SubflowPhase,
};
use crate::ids::SubflowId;
use crate::pm::Policy;

use backup::Backup;
use lifeline::{Counts, Lifeline};
use pathfinder::Finder;
use paths::Outside;
use refresh::Refresher;
use streaming::Streamer;

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
    fn subflow(&self, id: SubflowId) -> Option<&SubflowView> {
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
    const fn give(command: Command, why: &'static str) -> Self {
        Self {
            command: Some(command),
            why,
        }
    }

    const fn leave(why: &'static str) -> Self {
        Self { command: None, why }
    }
}

/// A controller of one connection.
#[derive(Debug)]
pub struct Controller {
    kind: Kind,
    lifeline: Lifeline,
}

#[derive(Debug)]
enum Kind {
    Backup(Backup),
    Streamer(Streamer),
    Refresher(Refresher),
    Finder(Finder),
    Outside(Box<Outside>),
}

impl Kind {
    /// Which subflows count for the [lifeline](Lifeline); `None` for the path manager outside, whose ledger knows more.
    const fn counts(&self) -> Option<Counts> {
        match self {
            Self::Backup(_) | Self::Streamer(_) => Some(Counts::Established),
            Self::Refresher(_) | Self::Finder(_) => Some(Counts::Answering),
            Self::Outside(_) => None,
        }
    }
}

impl From<Kind> for Controller {
    fn from(kind: Kind) -> Self {
        Self {
            kind,
            lifeline: Lifeline::default(),
        }
    }
}

impl Controller {
    /// The controller of a policy that judges how subflows do; `None` for those that only count addresses, which the
    /// stack's own path manager has.
    pub fn of(policy: PathManager) -> Option<Self> {
        Some(Self::from(match policy {
            PathManager::SmartBackup(own) => Kind::Backup(Backup::new(own)),
            PathManager::Streaming(own) => Kind::Streamer(Streamer::new(own)),
            PathManager::Refresh(own) => Kind::Refresher(Refresher::new(own)),
            PathManager::PathFinder(own) => Kind::Finder(Finder::new(own)),
            PathManager::Passive
            | PathManager::FullMesh
            | PathManager::Ndiffports(_)
            | PathManager::Userspace => return None,
        }))
    }

    /// The controller of any policy, for a connection whose own path manager is passive. `seed` decides how its pauses
    /// are spread.
    pub fn remote(policy: PathManager, seed: u64) -> Option<Self> {
        match policy {
            PathManager::FullMesh => Some(Self::outside(Policy::FullMesh, seed)),
            PathManager::Ndiffports(count) => Some(Self::outside(Policy::Ndiffports(count), seed)),
            PathManager::Passive | PathManager::Userspace => None,
            PathManager::SmartBackup(_)
            | PathManager::Streaming(_)
            | PathManager::Refresh(_)
            | PathManager::PathFinder(_) => Self::of(policy),
        }
    }

    fn outside(policy: Policy, seed: u64) -> Self {
        Self::from(Kind::Outside(Box::new(Outside::new(policy, seed))))
    }

    /// Something happened, or the [deadline](Self::deadline) has come (`None`): what is to be done now.
    pub fn react(&mut self, now: Instant, event: Option<&EventKind>, view: &View) -> Vec<Order> {
        let mut orders = Vec::new();
        match &mut self.kind {
            Kind::Backup(own) => own.react(now, event, view, &mut orders),
            Kind::Streamer(own) => own.react(now, event, view, &mut orders),
            Kind::Refresher(own) => own.react(now, event, view, &mut orders),
            Kind::Finder(own) => own.react(now, event, view, &mut orders),
            Kind::Outside(own) => own.react(now, event, view, &mut orders),
        }
        if let Some(counts) = self.kind.counts() {
            self.lifeline.react(now, event, view, counts, &mut orders);
        }
        orders
    }

    /// When it wants to look again although nothing happens.
    pub fn deadline(&self) -> Option<Instant> {
        let own = match &self.kind {
            Kind::Backup(own) => own.deadline(),
            Kind::Streamer(own) => own.deadline(),
            Kind::Refresher(own) => own.deadline(),
            Kind::Finder(own) => own.deadline(),
            Kind::Outside(own) => own.deadline(),
        };
        own.into_iter().chain(self.lifeline.deadline()).min()
    }

    /// A subflow that it asked for could not even be begun.
    pub fn refused(&mut self, now: Instant, wanted: &NewSubflow) {
        if let Kind::Outside(own) = &mut self.kind {
            own.refused(now, wanted);
        }
    }
}

/// A subflow from one of our addresses to the peer's first.
fn from_address(local: IpAddr, backup: bool) -> Command {
    Command::Create(NewSubflow {
        local: Some(local),
        backup,
        ..NewSubflow::default()
    })
}

/// One more subflow between the addresses of the first, from an unused port.
fn one_more() -> Command {
    Command::Create(NewSubflow::default())
}

fn close(subflow: SubflowId, ending: Ending) -> Command {
    Command::Destroy { subflow, ending }
}
