//! Classes: sets of connections that share a rate, by where a client is, who it is and where it goes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use manypath_control::report::{ClassReport, LimitReport};
use manypath_control::wire::{LimitOf, LimitOrder};
use manypath_io::Host;
use manypath_io::path::{PathSpec, Wanted};
use manypath_stack::ids::ConnId;
use manypath_stack::{ClassId, Limited, RateLimit};
use serde::Serialize;
use tokio::sync::Notify;

use super::admission::{Admission, Seats};
use super::books::{AllCarried, Books};
use super::calendar::Hours;
use super::order::{self, MTU, Refused};
use super::pace::{Pace, PaceState, Rein};
use super::path::{PathLimit, Paths, wanted};
use super::quota::{Carried, QuotaSpec, Ruling};
use super::standing::Standing;
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
    /// Other rates at some hours; the first that holds counts.
    pub schedule: Vec<ClassHours>,
    /// How much it may carry.
    pub quota: Vec<QuotaSpec>,
}

/// What a class may send at some hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassHours {
    /// The hours.
    pub when: Hours,
    /// Bits a second to targets.
    pub up: Option<u64>,
    /// Bits a second to clients.
    pub down: Option<u64>,
}

/// Bits a second up and down.
type Rates = [Option<u64>; 2];

impl ClassSpec {
    /// The rates at a time, with what quotas say.
    fn rates_at(&self, now: Timestamp, ruling: Ruling) -> Rates {
        let mut hours = self.schedule.iter();
        let scheduled = hours.find(|hours| hours.when.hold(now));
        let rates = scheduled.map_or([self.up, self.down], |hours| [hours.up, hours.down]);
        rates.map(|rate| rate.into_iter().chain(ruling.rate).min())
    }
}

/// One direction of a class.
#[derive(Debug)]
struct Lane {
    id: ClassId,
    pace: Arc<Pace>,
    /// Bytes that our stack has sent for it, before the last look and at it.
    ours: Mutex<(u64, u64)>,
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

/// A class that there was, and the rates that were told last.
#[derive(Debug)]
struct KnownClass {
    class: Arc<Class>,
    told: Option<(Rates, bool)>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    classes: BTreeMap<String, KnownClass>,
    next: u32,
    paths: Paths,
    /// Paths that the command line names.
    named: Vec<PathSpec>,
    /// What the configuration says.
    config: Limits,
    pub(super) books: Books,
}

/// What a configuration says of limits.
#[derive(Clone, Debug, Default)]
struct Limits {
    paths: Vec<PathLimit>,
    /// Every interface with a default route is a path besides.
    routed: bool,
    classes: Vec<ClassSpec>,
}

impl Known {
    /// What paths and classes that have quotas have carried.
    pub(super) fn carried(&self, host: Option<&Host>) -> AllCarried {
        let mut all = AllCarried::new();
        let mut paths = self
            .config
            .paths
            .iter()
            .filter(|path| !path.quota.is_empty());
        if let Some(host) = host.filter(|_| paths.clone().next().is_some()) {
            let traffic = host.traffic();
            all.extend(paths.by_ref().map(|path| {
                let known = traffic.get(&path.interface).copied().unwrap_or_default();
                let carried = Carried {
                    up: known.sent,
                    down: known.received,
                };
                ((LimitOf::Path, path.interface.clone()), carried)
            }));
        }
        for spec in self.config.classes.iter().filter(|c| !c.quota.is_empty()) {
            if let Some(known) = self.classes.get(&spec.name) {
                let carried = Carried {
                    up: known.class.up.carried(host),
                    down: known.class.down.carried(host),
                };
                all.insert((LimitOf::Class, spec.name.clone()), carried);
            }
        }
        all
    }

    /// All quotas, and whose each is.
    fn quotas(&self) -> Vec<super::books::Wanted> {
        let of = |of, name: &str, counted: &str, spec: &QuotaSpec| super::books::Wanted {
            of,
            name: name.to_owned(),
            counted: counted.to_owned(),
            spec: spec.clone(),
        };
        let paths = self.config.paths.iter().flat_map(|path| {
            let each = path.quota.iter();
            each.map(|spec| of(LimitOf::Path, &path.name, &path.interface, spec))
        });
        let classes = self.config.classes.iter().flat_map(|class| {
            let each = class.quota.iter();
            each.map(|spec| of(LimitOf::Class, &class.name, &class.name, spec))
        });
        paths.chain(classes).collect()
    }

    pub(super) fn has_schedules(&self) -> bool {
        let mut paths = self.config.paths.iter();
        let mut classes = self.config.classes.iter();
        paths.any(|path| !path.schedule.is_empty())
            || classes.any(|class| !class.schedule.is_empty())
    }

    /// When each path is used at this time.
    pub(super) fn standings(&self, now: Timestamp) -> Vec<Standing> {
        let is_path = |path: &&PathLimit| {
            self.named.is_empty() || self.named.iter().any(|spec| spec.iface == path.interface)
        };
        let paths = self.config.paths.iter().filter(is_path);
        let standing = |path: &PathLimit| {
            let spent = self.books.spent(LimitOf::Path, &path.name, now);
            Standing::of(&path.interface, path.priority, &spent)
        };
        paths.map(standing).collect()
    }

    /// The paths as they are at this time, and which there are to be.
    fn paths_now(&self, now: Timestamp) -> (Vec<PathLimit>, Wanted) {
        let Limits { paths, routed, .. } = &self.config;
        let at = |path: &PathLimit| path.at(now, self.books.ruling(LimitOf::Path, &path.name));
        let paths: Vec<PathLimit> = paths.iter().map(at).collect();
        let wanted = wanted(&self.named, &paths, *routed);
        (paths, wanted)
    }

    /// Gives classes the rates that they have at this time. What was told once may have been changed by hand, and is not told again.
    pub(super) fn rate_classes(&mut self, host: Option<&Host>, now: Timestamp) {
        for spec in &self.config.classes {
            let ruling = self.books.ruling(LimitOf::Class, &spec.name);
            let rates = spec.rates_at(now, ruling);
            if let Some(known) = self.classes.get_mut(&spec.name) {
                known.tell(host, rates, !spec.quota.is_empty());
            }
        }
    }
}

impl KnownClass {
    fn tell(&mut self, host: Option<&Host>, rates: Rates, counted: bool) {
        if self.told == Some((rates, counted)) {
            return;
        }
        self.told = Some((rates, counted));
        let lanes = [&self.class.up, &self.class.down];
        for (lane, rate) in lanes.into_iter().zip(rates) {
            lane.limit(host, rate, None);
            if let Some(host) = host.filter(|_| counted && rate.is_none()) {
                // The stack counts where there is a limit.
                let _ = host.limit(Limited::Class(lane.id), Some(UNLIMITED));
            }
        }
    }
}

/// How a limit is shown that only counts.
const COUNTS_ONLY: (u64, u64) = (UNLIMITED.bits_per_sec, UNLIMITED.burst);

/// A limit that only counts.
const UNLIMITED: RateLimit = RateLimit {
    bits_per_sec: u64::MAX,
    burst: u64::MAX,
};

/// The limits of a process, whatever configuration is in force. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Limiter(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    known: Mutex<Known>,
    /// Other limits are in force: time passes differently for them.
    pub(super) changed: Notify,
}

impl Limiter {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts classes in force, on running connections too; those that are gone have no limit any more.
    #[must_use]
    pub fn apply(&self, host: Option<&Host>, specs: &[ClassSpec]) -> Classes {
        let mut known = self.known();
        let known = &mut *known;
        known.config.classes = specs.to_vec();
        for (name, gone) in &mut known.classes {
            if !specs.iter().any(|spec| spec.name == *name) {
                gone.tell(host, [None, None], false);
                gone.class.seats.set(Admission::default());
            }
        }
        let mut in_force = Vec::new();
        for spec in specs {
            let next = &mut known.next;
            let entry = known.classes.entry(spec.name.clone());
            let entry = entry.or_insert_with(|| KnownClass::new(next));
            // What was changed by hand ends.
            entry.told = None;
            entry.class.seats.set(spec.admission);
            in_force.push((spec.matches.clone(), Arc::clone(&entry.class)));
        }
        known.rate_classes(host, Timestamp::now());
        Classes(in_force.into())
    }

    /// The command line names these paths: there are no others.
    pub fn insist_on(&self, named: &[PathSpec]) {
        self.known().named = named.to_vec();
    }

    /// Puts paths and their limits in force; `routed`: every interface with a default route is one besides.
    pub(crate) fn apply_paths(&self, host: &Host, limits: &[PathLimit], routed: bool) {
        let mut known = self.known();
        (known.config.paths, known.config.routed) = (limits.to_vec(), routed);
        let (paths, _) = known.paths_now(Timestamp::now());
        known.paths.set(&paths);
        drop(known);
        self.rate_paths(host, Timestamp::now());
    }

    /// Puts the quotas of paths and classes in force, which this file keeps. Comes after both.
    pub(crate) fn apply_quotas(&self, host: Option<&Host>, file: &Path) {
        let now = Timestamp::now();
        let mut known = self.known();
        let (quotas, carried) = (known.quotas(), known.carried(host));
        known.books.set(quotas, file, &carried, now);
        drop(known);
        self.act(host, now);
        self.0.changed.notify_one();
    }

    /// Gives paths and classes what they have at this time.
    pub(super) fn act(&self, host: Option<&Host>, now: Timestamp) {
        self.known().rate_classes(host, now);
        if let Some(host) = host {
            self.rate_paths(host, now);
        }
    }

    fn rate_paths(&self, host: &Host, now: Timestamp) {
        let mut known = self.known();
        let (paths, wanted) = known.paths_now(now);
        known.paths.update(paths);
        drop(known);
        // What cannot be had now is told by the stack, and tried again.
        let _ = host.want_paths(wanted);
        self.follow(host);
    }

    /// Interfaces have come or gone: those that came get their limits.
    pub(crate) fn follow(&self, host: &Host) {
        let found = order::ifaces(host);
        let mut known = self.known();
        let (changes, preferred) = (known.paths.follow(&found), known.paths.prefer(&found));
        drop(known);
        if let Some(preferred) = preferred {
            host.prefer(preferred);
        }
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
        let Some(KnownClass { class, .. }) = known.classes.get(name) else {
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
        let all = known.classes.iter().map(|(name, known)| {
            let (admission, open, refused) = known.class.seats.state();
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
        let lanes = known.classes.iter().flat_map(|(name, known)| {
            [("up", &known.class.up), ("down", &known.class.down)]
                .map(|(way, lane)| (format!("{name}/{way}"), lane))
        });
        let lanes: Vec<(String, &Lane)> = lanes.collect();
        let name = |id| {
            let mut lanes = lanes.iter();
            Some(lanes.find(|(_, lane)| lane.id == id)?.0.clone())
        };
        let mut all = host.map_or(Vec::new(), |host| order::reports(host, &name));
        all.retain(|limit| (limit.bits_per_second, limit.burst) != COUNTS_ONLY);
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

impl KnownClass {
    fn new(next: &mut u32) -> Self {
        let mut lane = || {
            *next += 1;
            Lane {
                id: ClassId(*next),
                pace: Arc::default(),
                ours: Mutex::default(),
            }
        };
        let class = Class {
            up: lane(),
            down: lane(),
            seats: Arc::default(),
        };
        Self {
            class: Arc::new(class),
            told: None,
        }
    }
}

impl Lane {
    /// Bytes that streams of the host have written, and that our stack has sent.
    fn carried(&self, host: Option<&Host>) -> u64 {
        let limit = host.and_then(|host| host.limit_of(Limited::Class(self.id)));
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = limit.map(|limit| limit.sent) {
            let (total, seen) = *ours;
            // One that was set anew counts from zero.
            let new = now.checked_sub(seen).unwrap_or(now);
            *ours = (total + new, now);
        }
        ours.0 + self.pace.written()
    }

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
