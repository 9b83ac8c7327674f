//! The policies that count addresses, for a connection whose own path manager is passive: the same ledger and the same
//! pure functions, fed by the events that any controller gets.

use alloc::vec::Vec;

use manypath_tcp::time::Instant;
use manypath_wire::ids::AddrId;

use super::{Order, View};
use crate::api::{Command, Ending, EventKind, IfaceId, NewSubflow, SubflowOrigin};
use crate::crypto::rng::Rng;
use crate::ids::SubflowId;
use crate::pm::{
    self, Action, Carried, Config, Event, First, Manager, NotCreated, Policy, Verdict,
};

/// Where addresses are, as far as a controller outside can tell: they are told apart by themselves.
const ANYWHERE: IfaceId = IfaceId(0);

/// A path manager fed from outside.
#[derive(Debug)]
pub(super) struct Outside {
    policy: Policy,
    rng: Rng,
    manager: Option<Manager>,
    /// Subflows on which data of ours was acknowledged when it was looked last.
    carried: Vec<SubflowId>,
}

impl Outside {
    pub(super) fn new(policy: Policy, seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            policy,
            rng: Rng::new(bytes),
            manager: None,
            carried: Vec::new(),
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.manager.as_ref().and_then(Manager::deadline)
    }

    /// Begins with what is there already.
    fn begin(&mut self, now: Instant, view: &View) -> Option<()> {
        let first = view.subflows.first().filter(|_| view.may_create)?;
        let config = Config {
            open_wait: manypath_tcp::time::Duration::ZERO,
            ..Config::new(self.policy)
        };
        let mut manager = Manager::new(
            config,
            First {
                iface: ANYWHERE,
                local: first.local,
                remote: first.remote,
                backup: first.backup,
            },
        );
        let mut tell = |event| manager.handle(now, event, &mut self.rng);
        for local in &view.locals {
            tell(Event::LocalUp {
                iface: ANYWHERE,
                addr: local.addr,
                backup: local.backup,
            });
        }
        for (i, remote) in view.remotes.iter().enumerate().skip(1) {
            tell(Event::Advertised {
                id: AddrId(u8::try_from(i).unwrap_or(u8::MAX)),
                addr: remote.ip(),
                port: Some(remote.port()),
                carried_port: remote.port(),
            });
        }
        tell(Event::Ready);
        for sf in &view.subflows {
            let local_id = manager.local_id(ANYWHERE, sf.local.ip())?;
            let subflow = sf.id;
            manager.handle(
                now,
                Event::Opening {
                    subflow,
                    local_id,
                    local: sf.local,
                    remote_id: AddrId(0),
                    remote: sf.remote,
                    origin: SubflowOrigin::Peer,
                },
                &mut self.rng,
            );
            manager.handle(now, Event::Up { subflow }, &mut self.rng);
        }
        self.manager = Some(manager);
        Some(())
    }

    /// A subflow that was asked for could not be made.
    pub(super) fn refused(&mut self, now: Instant, wanted: &NewSubflow) {
        let Some(manager) = &mut self.manager else {
            return;
        };
        let asked = manager
            .log()
            .rev()
            .find_map(|decision| match decision.verdict {
                Verdict::Do(Action::Create(create)) if Some(create.local) == wanted.local => {
                    Some(create)
                }
                _ => None,
            });
        if let Some(create) = asked.filter(|create| Some(create.remote.ip()) == wanted.remote) {
            let why = NotCreated::NoSlot;
            manager.handle(now, Event::CreateFailed { create, why }, &mut self.rng);
        }
    }

    pub(super) fn react(
        &mut self,
        now: Instant,
        event: Option<&EventKind>,
        view: &View,
        orders: &mut Vec<Order>,
    ) {
        if self.manager.is_none() {
            if self.begin(now, view).is_none() {
                return;
            }
        } else if let Some(event) = event {
            self.take_in(now, event, view);
        }
        let carries = view.subflows.iter().filter(|sf| sf.acked > 0);
        self.carried = carries.map(|sf| sf.id).collect();
        let Some(manager) = &mut self.manager else {
            return;
        };
        while let Some(action) = manager.poll(now) {
            if let Action::Create(create) = action {
                orders.push(Order::give(
                    Command::Create(NewSubflow {
                        local: Some(create.local),
                        remote: Some(create.remote.ip()),
                        remote_port: Some(create.remote.port()),
                        backup: create.backup,
                        ..NewSubflow::default()
                    }),
                    why(&manager.log().next_back().map(|d| d.reason)),
                ));
            } else if let Action::Remove { subflow } = action {
                orders.push(Order::give(
                    Command::Destroy {
                        subflow,
                        ending: Ending::Reset,
                    },
                    "its address is gone",
                ));
            }
        }
    }

    fn take_in(&mut self, now: Instant, event: &EventKind, view: &View) {
        let Some(manager) = &mut self.manager else {
            return;
        };
        let told = match *event {
            EventKind::SubflowUp {
                subflow,
                tuple,
                remote_id,
                origin,
                ..
            } => {
                let Some(local_id) = manager.local_id(ANYWHERE, tuple.local.ip()) else {
                    return;
                };
                let opening = Event::Opening {
                    subflow,
                    local_id,
                    local: tuple.local,
                    remote_id,
                    remote: tuple.remote,
                    origin,
                };
                manager.handle(now, opening, &mut self.rng);
                Event::Up { subflow }
            }
            EventKind::SubflowDown {
                subflow,
                tuple,
                end,
            } => {
                let known = manager.ledger().live().iter().any(|l| l.subflow == subflow);
                if !known {
                    // It never came up: its beginning was no event.
                    let Some(local_id) = manager.local_id(ANYWHERE, tuple.local.ip()) else {
                        return;
                    };
                    let opening = Event::Opening {
                        subflow,
                        local_id,
                        local: tuple.local,
                        remote_id: AddrId(0),
                        remote: tuple.remote,
                        origin: SubflowOrigin::PathManager,
                    };
                    manager.handle(now, opening, &mut self.rng);
                }
                // A view has no bytes of subflows that are gone, but earlier ones had.
                let carried = match self.carried.contains(&subflow) {
                    true => Carried::Something,
                    false => Carried::Nothing,
                };
                Event::Ended {
                    subflow,
                    end,
                    carried,
                }
            }
            EventKind::AddressAnnounced { id, addr, port } => Event::Advertised {
                id,
                addr,
                port,
                carried_port: view.remotes.first().map_or(0, core::net::SocketAddr::port),
            },
            EventKind::AddressWithdrawn { id } => Event::Withdrawn { id },
            EventKind::LocalUp { addr, backup, .. } => Event::LocalUp {
                iface: ANYWHERE,
                addr,
                backup,
            },
            EventKind::LocalDown { addr, .. } => Event::LocalDown {
                iface: ANYWHERE,
                addr,
            },
            EventKind::Closed(_) | EventKind::FellBack(_) => Event::Stop,
            _ => return,
        };
        manager.handle(now, told, &mut self.rng);
    }
}

fn why(reason: &Option<pm::Reason>) -> &'static str {
    match reason {
        Some(pm::Reason::LostBefore { .. }) => "the last subflow here was lost",
        Some(pm::Reason::CountWanted(_)) => "the policy wants that many subflows",
        _ => "the policy wants one for each pair of addresses",
    }
}
