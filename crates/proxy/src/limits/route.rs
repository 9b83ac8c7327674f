//! Paths that are known by addresses: what a server sends to some networks of its clients, or from some addresses of its own, by whatever interface.

use jiff::Timestamp;
use manypath_io::Host;
use manypath_stack::{ClassId, Limited, Prefix, RateLimit, Route};
use serde::Serialize;

use super::path::{PathHours, PathRate, rate_at};
use crate::target::rules::Network;

/// Such a path, as a configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RouteLimit {
    /// As the configuration calls it.
    pub name: String,
    /// Addresses of this host; all without it.
    pub local: Option<Network>,
    /// Addresses of peers; all without it.
    pub remote: Option<Network>,
    /// What is sent.
    pub rate: Option<PathRate>,
    /// Other rates at some hours; the first that holds counts.
    pub schedule: Vec<PathHours>,
}

impl RouteLimit {
    fn route(&self, class: ClassId) -> Route {
        let prefix = |network: Option<Network>| {
            let (addr, bits) = network?.parts();
            Some(Prefix::new(addr, bits))
        };
        Route {
            local: prefix(self.local),
            remote: prefix(self.remote),
            class,
        }
    }
}

/// One that is in force, and what the stack was told of it.
#[derive(Debug)]
struct KnownRoute {
    spec: RouteLimit,
    class: ClassId,
    told: Option<RateLimit>,
}

/// A limit that is another than before: of which path, and what.
pub(super) type Change = (String, Option<RateLimit>);

/// All that are in force, in the order of the configuration.
#[derive(Debug, Default)]
pub(super) struct Routes(Vec<KnownRoute>);

impl Routes {
    /// Has these from now on; `next` numbers their classes.
    pub(super) fn set(&mut self, host: &Host, specs: &[RouteLimit], next: &mut u32) -> Vec<Change> {
        let mut before = std::mem::take(&mut self.0);
        for spec in specs {
            let known = before.iter().position(|known| known.spec.name == spec.name);
            let class = known.map(|at| before.swap_remove(at).class);
            self.0.push(KnownRoute {
                spec: spec.clone(),
                class: class.unwrap_or_else(|| {
                    *next += 1;
                    ClassId(*next)
                }),
                // What was changed by hand ends.
                told: None,
            });
        }
        let mut changes = Vec::new();
        for gone in before {
            // There need not be one.
            let _ = host.limit(Limited::Class(gone.class), None);
            changes.push((gone.spec.name, None));
        }
        let routes = self.0.iter().map(|known| known.spec.route(known.class));
        host.route(routes.collect());
        changes
    }

    /// Gives each the rate that it has at this time. What was told once may have been changed by hand, and is not told again.
    pub(super) fn rate(&mut self, host: &Host, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for known in &mut self.0 {
            let rate = rate_at(known.spec.rate, &known.spec.schedule, now);
            let limit = rate.and_then(|rate| rate.limit());
            if limit != known.told {
                known.told = limit;
                let _ = host.limit(Limited::Class(known.class), limit);
                changes.push((known.spec.name.clone(), limit));
            }
        }
        changes
    }

    pub(super) fn has_schedules(&self) -> bool {
        self.0.iter().any(|known| !known.spec.schedule.is_empty())
    }

    /// The class of a path by its name.
    pub(super) fn class(&self, name: &str) -> Option<ClassId> {
        let known = self.0.iter().find(|known| known.spec.name == name);
        known.map(|known| known.class)
    }

    /// The name of a path by its class.
    pub(super) fn name(&self, class: ClassId) -> Option<String> {
        let known = self.0.iter().find(|known| known.class == class);
        known.map(|known| known.spec.name.clone())
    }
}
