//! Classes: sets of connections that share a rate, by where a client is, who it is and where it goes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manypath_control::report::{ClassReport, LimitReport};
use manypath_control::wire::{LimitOf, LimitOrder};
use manypath_io::Host;
use manypath_io::path::PathSpec;
use manypath_stack::ids::ConnId;
use manypath_stack::{ClassId, Limited, RateLimit};
use serde::Serialize;

use super::admission::{Admission, Seats};
use super::order::{self, MTU, Refused};
use super::pace::{Pace, PaceState, Rein};
use super::path::{PathLimit, Paths, wanted};
use crate::target::rules::{Question, Rule};

/// A class as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassSpec {
    /// Its name, for `status` and `ctl`.
    pub name: String,
    /// Which connections are in it: its `then` is not asked.
    #[serde(rename = "match")]
    pub matches: Rule,
    /// Bits a second to targets.
    pub up: Option<u64>,
    /// Bits a second to clients.
    pub down: Option<u64>,
    /// How many connections it may have, and begin.
    #[serde(flatten)]
    pub admission: Admission,
}

/// One direction of a class.
#[derive(Debug)]
struct Lane {
    id: ClassId,
    pace: Arc<Pace>,
}

/// A class in force.
#[derive(Debug)]
pub(crate) struct Class {
    up: Lane,
    down: Lane,
    seats: Arc<Seats>,
}

/// A stream, for who puts it into a class while others write to it.
#[derive(Clone, Debug)]
pub(crate) enum Bridle {
    /// Of the host.
    Host(Rein),
    /// Of our stack.
    Ours(Host, ConnId),
}

impl Bridle {
    fn join(&self, lane: Option<&Lane>) {
        match self {
            Self::Host(rein) => rein.keep(lane.map(|lane| Arc::clone(&lane.pace))),
            Self::Ours(host, id) => {
                // A connection that is over is in no class.
                let _ = host.classify(*id, [lane.map(|lane| lane.id), None]);
            }
        }
    }
}

/// The classes of a configuration, in its order.
#[derive(Clone, Debug, Default)]
pub struct Classes(Arc<[(Rule, Arc<Class>)]>);

impl Classes {
    fn find(&self, asked: &Question<'_>) -> Option<&Class> {
        let class = self.0.iter().find(|(rule, _)| rule.is_for(asked));
        class.map(|(_, class)| class.as_ref())
    }

    /// The places of the first class that matches.
    pub(crate) fn seats(&self, asked: &Question<'_>) -> Option<&Arc<Seats>> {
        self.find(asked).map(|class| &class.seats)
    }

    /// Puts both streams of a request into the first class that matches, or into none. `inside` leads to the client.
    pub(crate) fn sort(&self, asked: &Question<'_>, inside: &Bridle, outside: &Bridle) {
        if self.0.is_empty() {
            return;
        }
        let class = self.find(asked);
        inside.join(class.map(|class| &class.down));
        outside.join(class.map(|class| &class.up));
    }
}

#[derive(Debug, Default)]
struct Known {
    classes: BTreeMap<String, Arc<Class>>,
    next: u32,
    paths: Paths,
    /// Paths that the command line names.
    named: Vec<PathSpec>,
}

/// The limits of a process, whatever configuration is in force. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Limiter(Arc<Mutex<Known>>);

impl Limiter {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts classes in force, on running connections too; those that are gone have no limit any more.
    #[must_use]
    pub fn apply(&self, host: Option<&Host>, specs: &[ClassSpec]) -> Classes {
        let mut known = self.known();
        for (name, class) in &known.classes {
            if !specs.iter().any(|spec| spec.name == *name) {
                class.up.limit(host, None, None);
                class.down.limit(host, None, None);
                class.seats.set(Admission::default());
            }
        }
        let in_force = specs.iter().map(|spec| {
            let class = match known.classes.get(&spec.name) {
                Some(class) => Arc::clone(class),
                None => {
                    let mut lane = || {
                        known.next += 1;
                        Lane {
                            id: ClassId(known.next),
                            pace: Arc::default(),
                        }
                    };
                    let (up, down) = (lane(), lane());
                    let class = Arc::new(Class {
                        up,
                        down,
                        seats: Arc::default(),
                    });
                    known.classes.insert(spec.name.clone(), Arc::clone(&class));
                    class
                }
            };
            class.up.limit(host, spec.up, None);
            class.down.limit(host, spec.down, None);
            class.seats.set(spec.admission);
            (spec.matches.clone(), class)
        });
        Classes(in_force.collect())
    }

    /// The command line names these paths: there are no others.
    pub fn insist_on(&self, named: &[PathSpec]) {
        self.known().named = named.to_vec();
    }

    /// Puts paths and their limits in force; `routed`: every interface with a default route is one besides.
    pub(crate) fn apply_paths(&self, host: &Host, limits: &[PathLimit], routed: bool) {
        let mut known = self.known();
        known.paths.set(limits);
        let wanted = wanted(&known.named, limits, routed);
        drop(known);
        // What cannot be had now is told by the stack, and tried again.
        let _ = host.want_paths(wanted);
        self.follow(host);
    }

    /// Interfaces have come or gone: those that came get their limits.
    pub(crate) fn follow(&self, host: &Host) {
        let found = order::ifaces(host);
        let changes = self.known().paths.follow(&found);
        for (iface, limit) in changes {
            // There is always an interface.
            let _ = host.limit(Limited::Path(iface), limit);
        }
    }

    /// Carries out an order of the control socket.
    pub(crate) fn obey(&self, host: Option<&Host>, asked: &LimitOrder) -> Result<(), Refused> {
        if asked.of != LimitOf::Class {
            return match host {
                Some(host) => order::obey(host, asked),
                None => Err(("invalid", "nothing here uses our stack".to_owned())),
            };
        }
        let known = self.known();
        let (name, which) = match asked.name.rsplit_once('/') {
            Some((name, "up")) => (name, [true, false]),
            Some((name, "down")) => (name, [false, true]),
            _ => (asked.name.as_str(), [true, true]),
        };
        let Some(class) = known.classes.get(name) else {
            return Err(order::missing(asked));
        };
        for (lane, _) in [&class.up, &class.down]
            .into_iter()
            .zip(which)
            .filter(|(_, is)| *is)
        {
            lane.limit(host, asked.bits_per_second, asked.burst);
        }
        Ok(())
    }

    /// The classes that count connections.
    #[must_use]
    pub fn classes(&self) -> Vec<ClassReport> {
        let known = self.known();
        let all = known.classes.iter().map(|(name, class)| {
            let (admission, open, refused) = class.seats.state();
            ClassReport {
                name: name.clone(),
                connections: open,
                most_connections: admission.connections,
                connection_rate: admission.connection_rate.map(|rate| rate.to_string()),
                refused,
            }
        });
        all.filter(|class| {
            let free = class.most_connections.is_none() && class.connection_rate.is_none();
            !free || class.refused > 0
        })
        .collect()
    }

    /// All limits, and what each does.
    #[must_use]
    pub fn reports(&self, host: Option<&Host>) -> Vec<LimitReport> {
        let known = self.known();
        let lanes = known.classes.iter().flat_map(|(name, class)| {
            [("up", &class.up), ("down", &class.down)]
                .map(|(way, lane)| (format!("{name}/{way}"), lane))
        });
        let lanes: Vec<(String, &Lane)> = lanes.collect();
        let name = |id| {
            let mut lanes = lanes.iter();
            Some(lanes.find(|(_, lane)| lane.id == id)?.0.clone())
        };
        let mut all = host.map_or(Vec::new(), |host| order::reports(host, &name));
        for (name, lane) in &lanes {
            let Some(state) = lane.pace.state() else {
                continue;
            };
            match all
                .iter_mut()
                .find(|r| r.of == LimitOf::Class && r.name == *name)
            {
                Some(report) => add(report, &state),
                None => {
                    let mut report = LimitReport {
                        of: LimitOf::Class,
                        name: name.clone(),
                        bits_per_second: state.bits_per_second,
                        ..LimitReport::default()
                    };
                    add(&mut report, &state);
                    all.push(report);
                }
            }
        }
        all
    }
}

fn add(report: &mut LimitReport, state: &PaceState) {
    report.held_us += u64::try_from(state.held.as_micros()).unwrap_or(u64::MAX / 2);
    report.waits += state.waits;
}

impl Lane {
    fn limit(&self, host: Option<&Host>, rate: Option<u64>, burst: Option<u64>) {
        self.pace.set(rate);
        if let Some(host) = host {
            let limit = rate.map(|rate| order::limit(rate, burst, MTU));
            let limit: Option<RateLimit> = limit;
            // Classes need not be there before.
            let _ = host.limit(Limited::Class(self.id), limit);
        }
    }
}
