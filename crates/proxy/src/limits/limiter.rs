//! The limits of a process: put in force, changed by order, and told.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use manypath_control::report::{ClassReport, LimitReport};
use manypath_control::wire::{LimitOf, LimitOrder};
use manypath_io::Host;
use manypath_io::path::PathSpec;
use manypath_stack::{Limited, RateLimit};
use tokio::sync::Notify;

use super::admission::Admission;
use super::class::{COUNTS_ONLY, ClassSpec, Classes, KnownClass, Lane, WAYS, burst_of};
use super::known::Known;
use super::news::News;
use super::order::{self, Refused};
use super::pace::PaceState;
use super::path::PathLimit;
use super::route::{self, RouteLimit};

/// The limits of a process, whatever configuration is in force. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Limiter(pub(super) Arc<Inner>);

#[derive(Debug, Default)]
pub(super) struct Inner {
    known: Mutex<Known>,
    /// Other limits are in force: time passes differently for them.
    pub(super) changed: Notify,
    pub(super) news: News,
}

impl Limiter {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts classes in force, on running connections too; those that are gone have no limit any more.
    #[must_use]
    pub fn apply(&self, host: Option<&Host>, specs: &[ClassSpec]) -> Classes {
        let (mut known, news) = (self.known(), &self.0.news);
        let known = &mut *known;
        known.config.classes = specs.to_vec();
        for (name, gone) in &mut known.classes {
            if !specs.iter().any(|spec| spec.name == *name) {
                gone.tell(host, [None, None], false);
                for way in WAYS {
                    news.limit(LimitOf::Class, &format!("{name}/{way}"), None, 0);
                }
                gone.class.seats.set(Admission::default());
                gone.class.seats.close(false);
                if let Some(host) = host {
                    gone.class.weigh(host, None);
                }
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
            if let Some(host) = host {
                entry.class.weigh(host, spec.weight);
            }
            in_force.push((spec.matches.clone(), Arc::clone(&entry.class)));
        }
        known.rate_classes(host, Timestamp::now(), news);
        Classes(in_force.into())
    }

    /// The command line names these paths: there are no others.
    pub fn insist_on(&self, named: &[PathSpec]) {
        self.known().named = named.to_vec();
    }

    /// Puts paths and their limits in force; `routed`: every interface with a default route is one besides.
    pub(crate) fn apply_paths(
        &self,
        host: &Host,
        limits: &[PathLimit],
        routes: &[RouteLimit],
        routed: bool,
    ) {
        let mut guard = self.known();
        let known = &mut *guard;
        (known.config.paths, known.config.routed) = (limits.to_vec(), routed);
        let (paths, _) = known.paths_now(Timestamp::now());
        known.paths.set(&paths);
        let ended = known.routes.set(host, routes, &mut known.next);
        drop(guard);
        self.tell_routes(ended);
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
        self.known().rate_classes(host, now, &self.0.news);
        if let Some(host) = host {
            self.rate_paths(host, now);
        }
    }

    fn rate_paths(&self, host: &Host, now: Timestamp) {
        let mut known = self.known();
        let (paths, wanted) = known.paths_now(now);
        known.paths.update(paths);
        let changed = known.standings_changed(now);
        let routes = known.routes.rate(host, now);
        drop(known);
        self.tell_routes(routes);
        for standing in &changed {
            self.0.news.path(standing);
        }
        // What cannot be had now is told by the stack, and tried again.
        let _ = host.want_paths(wanted);
        self.follow(host);
    }

    fn tell_routes(&self, changes: Vec<route::Change>) {
        if !changes.is_empty() {
            self.0.changed.notify_one();
        }
        for (name, limit) in changes {
            self.tell_path(&name, limit);
        }
    }

    fn tell_path(&self, name: &str, limit: Option<RateLimit>) {
        let (rate, burst) = (
            limit.map(|limit| limit.bits_per_sec),
            limit.map_or(0, |limit| limit.burst),
        );
        self.0.news.limit(LimitOf::Path, name, rate, burst);
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
        if !changes.is_empty() {
            self.0.changed.notify_one();
        }
        for (iface, limit) in changes {
            // There is always an interface.
            let _ = host.limit(Limited::Path(iface), limit);
            let name = found.iter().find(|(known, _)| *known == iface);
            if let Some((_, name)) = name {
                self.tell_path(name, limit);
            }
        }
    }

    /// Carries out an order of the control socket.
    pub(crate) fn obey(&self, host: Option<&Host>, asked: &LimitOrder) -> Result<(), Refused> {
        self.carry_out(host, asked)?;
        let burst = asked
            .burst
            .unwrap_or_else(|| burst_of(asked.bits_per_second));
        let tell = |name: &str| {
            let news = &self.0.news;
            news.limit(asked.of, name, asked.bits_per_second, burst);
        };
        match (asked.of, order::ways(asked)) {
            (LimitOf::Class, (name, which)) => {
                let ways = WAYS.into_iter().zip(which).filter(|(_, is)| *is);
                ways.for_each(|(way, _)| tell(&format!("{name}/{way}")));
            }
            _ => tell(&asked.name),
        }
        self.0.changed.notify_one();
        Ok(())
    }

    fn carry_out(&self, host: Option<&Host>, asked: &LimitOrder) -> Result<(), Refused> {
        let mut known = self.known();
        let (name, which) = order::ways(asked);
        if let (LimitOf::Path, iface, [false, true]) = (asked.of, name, which) {
            let ordered = known.paths.order_down(iface, asked.bits_per_second);
            return ordered.then_some(()).ok_or_else(|| order::missing(asked));
        }
        if asked.of != LimitOf::Class {
            let host = host.ok_or(("invalid", "nothing here uses our stack".to_owned()))?;
            let route = known.routes.class(&asked.name);
            let route = route.filter(|_| asked.of == LimitOf::Path);
            return order::obey(host, asked, route);
        }
        let Some(KnownClass { class, .. }) = known.classes.get(name) else {
            return Err(order::missing(asked));
        };
        let lanes = class.lanes().into_iter().zip(which).filter(|(_, is)| *is);
        for ((_, lane), _) in lanes {
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
            let lanes = known.class.lanes();
            lanes.map(|(way, lane)| (format!("{name}/{way}"), lane))
        });
        let lanes: Vec<(String, &Lane)> = lanes.collect();
        let name = |id| {
            let mut lanes = lanes.iter();
            let class = lanes.find(|(_, lane)| lane.id == id);
            let class = class.map(|(name, _)| (LimitOf::Class, name.clone()));
            class.or_else(|| Some((LimitOf::Path, known.routes.name(id)?)))
        };
        let mut all = host.map_or(Vec::new(), |host| order::reports(host, &name));
        all.retain(|limit| (limit.bits_per_second, limit.burst) != COUNTS_ONLY);
        all.extend(known.asking.reports(&known.paths.down()));
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
    report.held_us += order::micros(state.held);
    report.waits += state.waits;
}
