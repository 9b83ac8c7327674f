//! Paths as a configuration has them: which there are, what each is for, and what may leave by it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU16;

use jiff::Timestamp;
use manypath_io::path::{PathSpec, Wanted};
use manypath_stack::sched::Preference;
use manypath_stack::{IfaceId, RateLimit};
use manypath_tcp::units::Rate;
use serde::Serialize;

use super::calendar::Hours;
use super::order::{MTU, limit};
use super::quota::{QuotaSpec, Ruling};

/// When a path is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// As any other.
    #[default]
    Always,
    /// While those that are used always have no room for what is to be sent.
    Secondary,
    /// Only when nothing better is left: here, and peers are asked to do the same (MP_PRIO).
    Backup,
    /// Not at all: its subflows end.
    Never,
}

impl Priority {
    /// As it is written.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::Secondary => "secondary",
            Self::Backup => "backup",
            Self::Never => "never",
        }
    }
}

/// A rate of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PathRate {
    /// Bits of IP packets a second that leave.
    pub up: Option<u64>,
    /// Bits of IP packets a second that peers are asked to send at most.
    pub down: Option<u64>,
    /// Bytes that may leave at once after a pause; without it, what 20 ms bring.
    pub burst: Option<u64>,
}

impl PathRate {
    /// What leaves, for the stack.
    pub(super) fn limit(&self) -> Option<RateLimit> {
        Some(limit(self.up?, self.burst, MTU))
    }

    /// No faster than this, either way.
    fn at_most(self, bits: Option<u64>) -> Self {
        let Some(bits) = bits else { return self };
        Self {
            up: Some(self.up.map_or(bits, |up| up.min(bits))),
            down: Some(self.down.map_or(bits, |down| down.min(bits))),
            // That of a rate that holds no more says nothing of this one.
            burst: self.burst.filter(|_| self.up.is_some_and(|up| up <= bits)),
        }
    }
}

/// A path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathLimit {
    /// As the configuration calls it.
    pub name: String,
    /// The interface.
    pub interface: String,
    /// Its router, where the host's routes do not name one.
    pub gateway: Option<IpAddr>,
    /// When it is used.
    pub priority: Priority,
    /// Its share of what is sent while several have room.
    pub weight: Option<NonZeroU16>,
    /// It is used while those before it carry so many bits a second and have no room.
    pub overflow: Option<u64>,
    /// What may leave by it.
    pub rate: Option<PathRate>,
    /// Other rates at some hours; the first that holds counts.
    pub schedule: Vec<PathHours>,
    /// How much it may carry.
    pub quota: Vec<QuotaSpec>,
}

/// What may leave by a path at some hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathHours {
    /// The hours.
    pub when: Hours,
    /// What may leave then.
    pub rate: PathRate,
}

/// The rate at a time: that of the first hours that hold, or the usual one.
pub(super) fn rate_at(
    usual: Option<PathRate>,
    schedule: &[PathHours],
    now: Timestamp,
) -> Option<PathRate> {
    let scheduled = schedule.iter().find(|hours| hours.when.hold(now));
    scheduled.map(|hours| hours.rate).or(usual)
}

impl PathLimit {
    /// Whether it needs a device of its own.
    pub(crate) fn is_limited(&self) -> bool {
        self.rate.is_some()
            || self.preference() != Preference::NONE
            || !self.schedule.is_empty()
            || !self.quota.is_empty()
    }

    /// What the stack's schedulers are told of it.
    fn preference(&self) -> Preference {
        Preference {
            secondary: self.priority == Priority::Secondary,
            overflow: self.overflow.map(|bits| Rate::from_bytes_per_sec(bits / 8)),
            weight: self.weight,
        }
    }

    /// The path as it is at a time, with what its quotas say.
    pub(super) fn at(&self, now: Timestamp, ruling: Ruling) -> Self {
        let rate = rate_at(self.rate, &self.schedule, now);
        Self {
            priority: self.priority.max(ruling.priority),
            rate: match ruling.rate {
                Some(_) => Some(rate.unwrap_or_default().at_most(ruling.rate)),
                None => rate,
            },
            ..self.clone()
        }
    }
}

/// The paths that a stack is to have: those of the command line alone where it names any, and what the configuration has.
#[must_use]
pub fn wanted(named: &[PathSpec], paths: &[PathLimit], routed: bool) -> Wanted {
    let of = |iface: &str| paths.iter().find(|path| path.interface == iface);
    let configured = |path: &PathLimit| PathSpec {
        iface: path.interface.clone(),
        addr: None,
        prefix: None,
        backup: path.priority == Priority::Backup,
        gateway: path.gateway,
        rate: None,
    };
    let given = |spec: &PathSpec| {
        let path = of(&spec.iface);
        PathSpec {
            backup: spec.backup || path.is_some_and(|path| path.priority == Priority::Backup),
            gateway: spec.gateway.or(path.and_then(|path| path.gateway)),
            ..spec.clone()
        }
    };
    let unused = paths.iter().filter(|path| path.priority == Priority::Never);
    Wanted {
        specs: match named.is_empty() {
            true => paths.iter().map(configured).collect(),
            false => named.iter().map(given).collect(),
        },
        routed: routed && named.is_empty(),
        unused: unused.map(|path| path.interface.clone()).collect(),
    }
}

/// Which limits were wanted, and which the stack was told of.
#[derive(Debug, Default)]
pub(super) struct Paths {
    wanted: Vec<PathLimit>,
    told: Vec<(IfaceId, RateLimit)>,
    /// What the schedulers were told of.
    preferred: Vec<(IfaceId, Preference)>,
    /// What peers are asked to send at most, as it was ordered.
    down_by_hand: BTreeMap<String, Option<u64>>,
    /// All are to be told again: what was changed by hand holds until a configuration is put in force.
    renewed: bool,
}

impl Paths {
    /// Other limits are wanted from now on.
    pub(super) fn set(&mut self, limits: &[PathLimit]) {
        self.wanted = limits.to_vec();
        self.down_by_hand.clear();
        self.renewed = true;
    }

    /// The limits have changed by themselves: what was changed by hand holds where they have not.
    pub(super) fn update(&mut self, limits: Vec<PathLimit>) {
        self.wanted = limits;
    }

    /// What the schedulers have to be told for these interfaces, if it is another than before.
    pub(super) fn prefer(
        &mut self,
        found: &[(IfaceId, String)],
    ) -> Option<Vec<(IfaceId, Preference)>> {
        let wanted = |(iface, name): &(IfaceId, String)| {
            let path = self.wanted.iter().find(|path| path.interface == *name)?;
            let preference = path.preference();
            (preference != Preference::NONE).then_some((*iface, preference))
        };
        let mut now: Vec<_> = found.iter().filter_map(wanted).collect();
        // An interface has several addresses.
        now.dedup();
        let is_news = now != self.preferred;
        self.preferred.clone_from(&now);
        is_news.then_some(now)
    }

    /// What peers are asked to send at most, by interface. Backups are as little used as can be asked for.
    pub(super) fn down(&self) -> Vec<(String, u64)> {
        let used = |path: &&PathLimit| path.priority < Priority::Backup;
        let paths = self.wanted.iter().filter(used);
        let down = paths.filter_map(|path| {
            let ordered = self.down_by_hand.get(&path.interface);
            let down = ordered
                .copied()
                .unwrap_or(path.rate.and_then(|rate| rate.down));
            Some((path.interface.clone(), down?))
        });
        down.collect()
    }

    /// Orders what peers are asked to send at most, until other limits are put in force. False: no configuration names such a path.
    pub(super) fn order_down(&mut self, iface: &str, bits: Option<u64>) -> bool {
        let mut paths = self.wanted.iter();
        let known = paths.any(|path| path.interface == iface);
        if known {
            self.down_by_hand.insert(iface.to_owned(), bits);
        }
        known
    }

    /// What has to be told for these interfaces. What was told once may have been changed since, and is not told again.
    pub(super) fn follow(
        &mut self,
        found: &[(IfaceId, String)],
    ) -> Vec<(IfaceId, Option<RateLimit>)> {
        let wanted = |(iface, name): &(IfaceId, String)| {
            let path = self.wanted.iter().find(|path| path.interface == *name)?;
            Some((*iface, path.rate?.limit()?))
        };
        let now: Vec<(IfaceId, RateLimit)> = found.iter().filter_map(wanted).collect();
        let renewed = std::mem::take(&mut self.renewed);
        let is_new = |told: &&(IfaceId, RateLimit)| renewed || !self.told.contains(told);
        let new = now.iter().filter(is_new);
        let mut changes: Vec<_> = new.map(|(iface, limit)| (*iface, Some(*limit))).collect();
        let gone = self.told.iter().map(|(iface, _)| *iface);
        let gone = gone.filter(|iface| !now.iter().any(|(other, _)| other == iface));
        changes.extend(gone.map(|iface| (iface, None)));
        self.told = now;
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wants(up: u64) -> PathLimit {
        PathLimit {
            name: "lte".into(),
            interface: "wwan0".into(),
            gateway: None,
            priority: Priority::Always,
            weight: None,
            overflow: None,
            rate: Some(PathRate {
                up: Some(up),
                ..PathRate::default()
            }),
            schedule: Vec::new(),
            quota: Vec::new(),
        }
    }

    #[test]
    fn hours_take_the_place_of_the_rate_and_a_quota_is_never_faster_than_either() {
        let hours = |when: &str, up| PathHours {
            when: Hours::read(when).expect("right"),
            rate: PathRate {
                up: Some(up),
                burst: Some(9000),
                ..PathRate::default()
            },
        };
        let path = PathLimit {
            schedule: vec![hours("08:00-18:00 UTC", 50), hours("00:00-24:00 UTC", 200)],
            ..wants(100)
        };
        let ruling = |priority, rate| Ruling { priority, rate };
        let free = Ruling::default();
        for (now, ruling, priority, up, burst) in [
            (
                "2026-11-30T09:00:00Z",
                free,
                Priority::Always,
                50,
                Some(9000),
            ),
            (
                "2026-11-30T19:00:00Z",
                free,
                Priority::Always,
                200,
                Some(9000),
            ),
            (
                "2026-11-30T09:00:00Z",
                ruling(Priority::Backup, Some(50)),
                Priority::Backup,
                50,
                Some(9000),
            ),
            (
                "2026-11-30T09:00:00Z",
                ruling(Priority::Never, Some(49)),
                Priority::Never,
                49,
                None,
            ),
        ] {
            let now: Timestamp = now.parse().expect("a time");
            let then = path.at(now, ruling);
            let rate = then.rate.expect("there is one");
            assert_eq!(
                (then.priority, rate.up, rate.burst),
                (priority, Some(up), burst),
                "{now}"
            );
            assert_eq!(rate.down, ruling.rate, "{now}");
        }
        let unlimited = PathLimit {
            rate: None,
            ..wants(1)
        };
        let now = Timestamp::now();
        assert_eq!(unlimited.at(now, free).rate, None);
        let slow = unlimited.at(now, ruling(Priority::Always, Some(8))).rate;
        let both = PathRate {
            up: Some(8),
            down: Some(8),
            burst: None,
        };
        assert_eq!(slow, Some(both));
    }

    #[test]
    fn the_command_line_says_which_paths_there_are_and_the_file_what_they_are_for() {
        let with = |priority| PathLimit {
            priority,
            ..wants(8)
        };
        let spec = |text: &str| text.parse::<PathSpec>().expect("well-formed");
        for (named, paths, routed, specs, unused) in [
            (&[][..], vec![], true, &[][..], &[][..]),
            (&[], vec![with(Priority::Always)], true, &["wwan0"], &[]),
            (
                &[],
                vec![with(Priority::Backup)],
                false,
                &["wwan0,backup"],
                &[],
            ),
            (
                &[],
                vec![with(Priority::Never)],
                true,
                &["wwan0"],
                &["wwan0"],
            ),
            (
                &["eth0"],
                vec![with(Priority::Backup)],
                true,
                &["eth0"],
                &[],
            ),
            (
                &["eth0", "wwan0,rate=5mbit"],
                vec![with(Priority::Backup)],
                true,
                &["eth0", "wwan0,backup,rate=5mbit"],
                &[],
            ),
        ] {
            let named: Vec<PathSpec> = named.iter().copied().map(spec).collect();
            let wanted = wanted(&named, &paths, routed);
            let found: Vec<String> = wanted.specs.iter().map(ToString::to_string).collect();
            assert_eq!(found, specs, "{named:?} {paths:?}");
            assert_eq!(wanted.unused, unused);
            assert_eq!(wanted.routed, routed && named.is_empty());
        }
    }

    #[test]
    fn an_interface_gets_its_limit_once_and_when_it_comes_back() {
        let mut paths = Paths::default();
        let there = [
            (IfaceId(2), "eth0".to_owned()),
            (IfaceId(3), "wwan0".to_owned()),
        ];
        assert_eq!(paths.follow(&there), []);
        paths.set(&[wants(1_000_000)]);
        let limit = RateLimit::new(1_000_000, MTU);
        assert_eq!(paths.follow(&there), [(IfaceId(3), Some(limit))]);
        assert_eq!(paths.follow(&there), []);
        paths.set(&[wants(1_000_000)]);
        assert_eq!(paths.follow(&there), [(IfaceId(3), Some(limit))]);
        assert_eq!(paths.follow(&there[..1]), [(IfaceId(3), None)]);
        let back = [(IfaceId(7), "wwan0".to_owned())];
        assert_eq!(paths.follow(&back), [(IfaceId(7), Some(limit))]);
    }

    #[test]
    fn schedulers_are_told_what_has_changed() {
        let mut paths = Paths::default();
        let there = [
            (IfaceId(3), "wwan0".to_owned()),
            (IfaceId(3), "wwan0".to_owned()),
        ];
        paths.set(&[wants(8)]);
        assert_eq!(paths.prefer(&there), None);
        let path = PathLimit {
            priority: Priority::Secondary,
            weight: NonZeroU16::new(2),
            overflow: Some(30_000_000),
            ..wants(8)
        };
        paths.set(std::slice::from_ref(&path));
        let wanted = Preference {
            secondary: true,
            weight: NonZeroU16::new(2),
            overflow: Some(Rate::from_bytes_per_sec(3_750_000)),
        };
        assert_eq!(paths.prefer(&there), Some(vec![(IfaceId(3), wanted)]));
        assert_eq!(paths.prefer(&there), None);
        assert_eq!(paths.prefer(&[]), Some(Vec::new()));
    }

    #[test]
    fn what_is_ordered_of_down_holds_until_other_limits_are_put_in_force() {
        let mut paths = Paths::default();
        let with_down = |priority| PathLimit {
            priority,
            rate: Some(PathRate {
                down: Some(8),
                ..PathRate::default()
            }),
            ..wants(1)
        };
        let wwan0 = |bits| vec![("wwan0".to_owned(), bits)];
        paths.set(&[with_down(Priority::Always)]);
        assert_eq!(paths.down(), wwan0(8));
        assert!(paths.order_down("wwan0", Some(5)) && !paths.order_down("eth0", Some(5)));
        paths.update(vec![with_down(Priority::Secondary)]);
        assert_eq!(paths.down(), wwan0(5));
        assert!(paths.order_down("wwan0", None));
        assert_eq!(paths.down(), []);
        paths.set(&[with_down(Priority::Always)]);
        assert_eq!(paths.down(), wwan0(8));
        // It is as little used as can be.
        paths.set(&[with_down(Priority::Backup)]);
        assert_eq!(paths.down(), []);
    }

    #[test]
    fn a_limit_that_is_not_wanted_any_more_ends() {
        let mut paths = Paths::default();
        let there = [(IfaceId(3), "wwan0".to_owned())];
        paths.set(&[wants(8)]);
        assert_eq!(paths.follow(&there).len(), 1);
        paths.set(&[]);
        assert_eq!(paths.follow(&there), [(IfaceId(3), None)]);
    }
}
