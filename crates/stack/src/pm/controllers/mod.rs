//! Policies that judge how subflows do: the smart controllers of SMAPP and PathFinder.
//!
//! A controller is a deterministic function of its own state, an event and what can be read about the connection; its
//! answer is a list of commands, each with its reason. It touches nothing itself, so the same code runs inside the stack,
//! in another process behind the control socket, and beside the kernel's connections.

mod backup;
mod blocks;
mod lately;
mod lifeline;
mod paper;
mod pathfinder;
mod paths;
mod refresh;
mod streaming;
#[cfg(test)]
mod tests;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::Instant;

use crate::api::{Command, Ending, EventKind, NewSubflow, PathManager, Rule};
pub use crate::api::{LocalView, Order, PathController, SubflowView, View};
use crate::ids::SubflowId;
use crate::pm::Policy;

use backup::Backup;
use lifeline::{Counts, Lifeline};
use paper::Paper;
use pathfinder::Finder;
use paths::Outside;
use refresh::Refresher;
use streaming::Streamer;

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
    Paper(Paper),
    Outside(Box<Outside>),
    Custom(Box<dyn PathController>),
}

impl Kind {
    /// Which subflows count for the [lifeline](Lifeline); `None` for the path manager outside, whose ledger knows more.
    const fn counts(&self) -> Option<Counts> {
        match self {
            Self::Backup(_) | Self::Streamer(_) => Some(Counts::Established),
            Self::Refresher(_) | Self::Finder(_) => Some(Counts::Answering),
            Self::Paper(Paper::Refresh { .. }) => Some(Counts::Answering),
            Self::Paper(_) => Some(Counts::Established),
            Self::Custom(_) => Some(Counts::Established),
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
            PathManager::SmartBackup(own) => match own.rule {
                Rule::Own => Kind::Backup(Backup::new(own)),
                Rule::Paper => Kind::Paper(Paper::backup(own)),
            },
            PathManager::Streaming(own) => match own.rule {
                Rule::Own => Kind::Streamer(Streamer::new(own)),
                Rule::Paper => Kind::Paper(Paper::streaming(own)),
            },
            PathManager::Refresh(own) => match own.rule {
                Rule::Own => Kind::Refresher(Refresher::new(own)),
                Rule::Paper => Kind::Paper(Paper::refresh(own)),
            },
            PathManager::PathFinder(own) => Kind::Finder(Finder::new(own)),
            PathManager::Custom(own) => Kind::Custom(own.make()),
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
            | PathManager::PathFinder(_)
            | PathManager::Custom(_) => Self::of(policy),
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
            Kind::Paper(own) => own.react(now, event, view, &mut orders),
            Kind::Outside(own) => own.react(now, event, view, &mut orders),
            Kind::Custom(own) => own.react(now, event, view, &mut orders),
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
            Kind::Paper(own) => own.deadline(),
            Kind::Outside(own) => own.deadline(),
            Kind::Custom(own) => own.deadline(),
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
