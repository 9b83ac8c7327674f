//! Which subflows there should be, and which addresses the peer should know: pure functions of the ledger.

mod full_mesh;
mod ndiffports;
mod server;
mod upkeep;

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;

use super::ledger::{Ledger, Local, Remote};
use super::{Action, Create, Reason};
use crate::api::{PathManager, SubflowOrigin};

/// A way to choose subflows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Makes and announces nothing; the peer may join.
    #[default]
    Passive,
    /// Announces every local address and makes nothing: the peer is the one that joins.
    Server,
    /// One subflow for each pair of a local address and an address of the peer.
    FullMesh,
    /// This many subflows between the first pair of addresses; without any that works, as [`FullMesh`](Self::FullMesh).
    Ndiffports(u8),
}

impl From<PathManager> for Policy {
    fn from(wanted: PathManager) -> Self {
        match wanted {
            // A server says where it can be reached.
            PathManager::Passive => Self::Server,
            PathManager::FullMesh => Self::FullMesh,
            PathManager::Ndiffports(count) => Self::Ndiffports(count),
            // Controllers decide, and the manager keeps the ledger.
            PathManager::Userspace
            | PathManager::SmartBackup(_)
            | PathManager::Streaming(_)
            | PathManager::Refresh(_)
            | PathManager::PathFinder(_)
            | PathManager::Custom(_) => Self::Passive,
        }
    }
}

/// What a policy wants at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The first thing to do.
    pub(super) todo: Option<(Action, Reason)>,
    /// Pairs that the policy wants and that cannot be had now.
    pub(super) declined: Vec<((AddrId, IpAddr), SocketAddr, Reason)>,
    /// When time alone makes something possible.
    pub(super) next: Option<Instant>,
}

impl Plan {
    fn act(action: Action, reason: Reason) -> Self {
        Self {
            todo: Some((action, reason)),
            ..Self::default()
        }
    }

    fn wait_until(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Asks the ledger about a pair that the policy wants; `true` if it became the thing to do.
    fn want(
        &mut self,
        ledger: &Ledger,
        now: Instant,
        local: &Local,
        remote: &Remote,
        why: Reason,
    ) -> bool {
        match ledger.permit(now, local, remote) {
            Ok(again) => {
                let create = Create {
                    local_id: local.id,
                    iface: local.iface,
                    local: local.addr,
                    remote: remote.addr,
                    remote_id: remote.id,
                    backup: local.backup,
                    origin: match again {
                        Some(_) => SubflowOrigin::Recreated,
                        None => SubflowOrigin::PathManager,
                    },
                };
                self.todo = Some((Action::Create(create), again.unwrap_or(why)));
                true
            }
            Err(reason) => {
                let full = reason == Reason::TooManySubflows;
                let room = || ledger.makes_room(now, local, remote);
                match full.then(room).flatten() {
                    Some((subflow, at)) if at <= now => {
                        self.todo = Some((Action::Remove { subflow }, Reason::Silent));
                        return true;
                    }
                    Some((_, at)) => self.wait_until(at),
                    None => {}
                }
                if let Reason::BackingOff { until, .. } = reason {
                    self.wait_until(until);
                }
                self.declined
                    .push(((local.id, local.addr), remote.addr, reason));
                false
            }
        }
    }
}

impl Policy {
    /// What is to be done first, and what stands in the way of the rest.
    pub(super) fn plan(self, ledger: &Ledger, now: Instant) -> Plan {
        if let Some(plan) = upkeep::plan(ledger) {
            return plan;
        }
        // rfc8684:C15: nothing is opened or announced before the connection is fully established
        let Some(open_at) = ledger.open_at() else {
            return Plan::default();
        };
        match self {
            Self::Passive => Plan::default(),
            Self::Server => server::plan(ledger),
            Self::FullMesh | Self::Ndiffports(_) if open_at > now => {
                Plan {
                    next: Some(open_at),
                    ..Plan::default()
                } // rfc8684:H4
            }
            Self::FullMesh => full_mesh::plan(ledger, now),
            Self::Ndiffports(count) => ndiffports::plan(ledger, now, count),
        }
    }
}
