//! What a configuration says of limits, and what of it is in force at this time.

use std::collections::BTreeMap;

use jiff::Timestamp;
use manypath_control::wire::LimitOf;
use manypath_io::Host;
use manypath_io::path::{PathSpec, Wanted};

use super::asking::Asking;
use super::books::{AllCarried, Books};
use super::class::{ClassSpec, KnownClass, WAYS, burst_of};
use super::news::News;
use super::path::{PathLimit, Paths, Priority, wanted};
use super::quota::{Carried, QuotaSpec};
use super::route::Routes;
use super::standing::Standing;

/// The classes, paths and quotas in force.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) classes: BTreeMap<String, KnownClass>,
    pub(super) next: u32,
    pub(super) paths: Paths,
    /// Paths that the command line names.
    pub(super) named: Vec<PathSpec>,
    /// What the configuration says.
    pub(super) config: Limits,
    pub(super) books: Books,
    pub(super) routes: Routes,
    pub(super) asking: Asking,
    /// When each path was used at the last look.
    standings: Vec<Standing>,
}

/// What a configuration says of limits.
#[derive(Clone, Debug, Default)]
pub(super) struct Limits {
    pub(super) paths: Vec<PathLimit>,
    /// Every interface with a default route is a path besides.
    pub(super) routed: bool,
    pub(super) classes: Vec<ClassSpec>,
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
    pub(super) fn quotas(&self) -> Vec<super::books::Wanted> {
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
        self.routes.has_schedules()
            || paths.any(|path| !path.schedule.is_empty())
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

    /// The paths that are used more or less than at the last look. Those that are new are no change.
    pub(super) fn standings_changed(&mut self, now: Timestamp) -> Vec<Standing> {
        let now = self.standings(now);
        let before = std::mem::replace(&mut self.standings, now.clone());
        let is_change = |standing: &Standing| {
            let mut before = before.iter();
            before.any(|other| other.interface == standing.interface && other != standing)
        };
        now.into_iter().filter(is_change).collect()
    }

    /// The paths as they are at this time, and which there are to be.
    pub(super) fn paths_now(&self, now: Timestamp) -> (Vec<PathLimit>, Wanted) {
        let Limits { paths, routed, .. } = &self.config;
        let at = |path: &PathLimit| path.at(now, self.books.ruling(LimitOf::Path, &path.name));
        let paths: Vec<PathLimit> = paths.iter().map(at).collect();
        let wanted = wanted(&self.named, &paths, *routed);
        (paths, wanted)
    }

    /// Gives classes the rates that they have at this time. What was told once may have been changed by hand, and is not told again.
    pub(super) fn rate_classes(&mut self, host: Option<&Host>, now: Timestamp, news: &News) {
        for spec in &self.config.classes {
            let ruling = self.books.ruling(LimitOf::Class, &spec.name);
            let rates = spec.rates_at(now, ruling);
            if let Some(known) = self.classes.get_mut(&spec.name) {
                known.class.seats.close(ruling.priority == Priority::Never);
                if !known.tell(host, rates, !spec.quota.is_empty()) {
                    continue;
                }
                for (way, rate) in WAYS.into_iter().zip(rates) {
                    let name = format!("{}/{way}", spec.name);
                    news.limit(LimitOf::Class, &name, rate, burst_of(rate));
                }
            }
        }
    }
}
