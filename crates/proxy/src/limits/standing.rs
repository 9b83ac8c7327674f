//! When each path of a configuration is used at present, and which quota says so where that is not what the configuration says. Pure.

use jiff::Timestamp;
use manypath_control::report::PathReport;

use super::path::Priority;
use super::quota::{QuotaSpec, Ruling};

/// A quota that is used up, and when its next period begins.
pub(super) type Spent<'a> = (&'a QuotaSpec, Timestamp);

/// When a path is used at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(super) interface: String,
    pub(super) priority: Priority,
    /// The quota that says so, and until when it does; `None`: the configuration says so.
    pub(super) reason: Option<String>,
}

impl Standing {
    /// Of a path that is configured so.
    pub(super) fn of(interface: &str, configured: Priority, spent: &[Spent<'_>]) -> Self {
        let ruling = Ruling::of(spent.iter().map(|(spec, _)| &spec.then)).priority;
        let priority = configured.max(ruling);
        let rules =
            |(spec, _): &&Spent<'_>| Ruling::of([&spec.then].into_iter()).priority == priority;
        // Where several say the same, the path is back when the last of them ends.
        let last = spent.iter().filter(rules).max_by_key(|(_, back)| *back);
        let reason = last.filter(|_| priority > configured).map(|(spec, back)| {
            let back = spec.reset.clock_at(*back);
            format!("its quota of {} is used up, back at {back}", spec.what())
        });
        Self {
            interface: interface.to_owned(),
            priority,
            reason,
        }
    }
}

/// Notes in reports of paths when each is used, and adds those that are taken out and so are none of the stack's at present.
pub(crate) fn note(standings: &[Standing], paths: &mut Vec<PathReport>) {
    for standing in standings {
        let note = |path: &mut PathReport| {
            path.priority = Some(standing.priority.name().to_owned());
            path.reason.clone_from(&standing.reason);
        };
        let mut known = paths
            .iter_mut()
            .filter(|path| path.iface == standing.interface);
        if let Some(first) = known.next() {
            note(first);
            known.for_each(note);
        } else if standing.priority == Priority::Never {
            let mut path = PathReport {
                iface: standing.interface.clone(),
                ..PathReport::default()
            };
            note(&mut path);
            paths.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::calendar::{Period, Reset};
    use super::super::quota::{Count, Then};
    use super::*;

    fn spec(period: Period, then: Then) -> QuotaSpec {
        let reset = match period {
            Period::Day => "00:00 UTC",
            Period::Week => "mon 00:00 UTC",
            Period::Month => "1st 00:00 Europe/Brussels",
        };
        QuotaSpec {
            amount: 5_000_000_000,
            reset: Reset::read(period, reset).expect("right"),
            count: Count::Both,
            then,
        }
    }

    #[test]
    fn the_strictest_quota_is_named_and_when_the_path_is_back() {
        let now: Timestamp = "2026-11-30T12:00:00Z".parse().expect("a time");
        let back = |spec: &QuotaSpec| spec.reset.next(now);
        let day = spec(Period::Day, Then::Backup);
        let week = spec(Period::Week, Then::Backup);
        let month = spec(Period::Month, Then::Never);
        let slow = spec(Period::Week, Then::Rate(8));
        let by_day = "its quota of 5GB a day is used up, back at 2026-12-01 00:00 UTC";
        let by_week = "its quota of 5GB a week is used up, back at 2026-12-07 00:00 UTC";
        let by_month =
            "its quota of 5GB a month is used up, back at 2026-12-01 00:00 Europe/Brussels";
        for (configured, spent, priority, reason) in [
            (Priority::Always, vec![], Priority::Always, None),
            (Priority::Never, vec![], Priority::Never, None),
            (Priority::Secondary, vec![&slow], Priority::Secondary, None),
            (
                Priority::Secondary,
                vec![&day],
                Priority::Backup,
                Some(by_day),
            ),
            (Priority::Backup, vec![&day], Priority::Backup, None),
            (
                Priority::Always,
                vec![&week, &day],
                Priority::Backup,
                Some(by_week),
            ),
            (
                Priority::Always,
                vec![&week, &month, &slow],
                Priority::Never,
                Some(by_month),
            ),
            (Priority::Never, vec![&month], Priority::Never, None),
        ] {
            let spent: Vec<Spent<'_>> = spent.into_iter().map(|spec| (spec, back(spec))).collect();
            let standing = Standing::of("wwan0", configured, &spent);
            assert_eq!(standing.priority, priority, "{spent:?}");
            assert_eq!(standing.reason.as_deref(), reason, "{spent:?}");
        }
    }

    #[test]
    fn a_path_that_is_taken_out_is_shown_and_one_that_is_there_is_not_shown_twice() {
        let standing = |interface: &str, priority, reason: Option<&str>| Standing {
            interface: interface.to_owned(),
            priority,
            reason: reason.map(str::to_owned),
        };
        let there = |iface: &str| PathReport {
            iface: iface.to_owned(),
            up: true,
            ..PathReport::default()
        };
        let mut paths = vec![there("eth0"), there("eth0"), there("wlan0")];
        let standings = [
            standing("eth0", Priority::Backup, Some("its quota")),
            standing("wwan0", Priority::Never, Some("its other quota")),
            // It is missing for another reason, or has no subflows yet.
            standing("eth7", Priority::Always, None),
        ];
        note(&standings, &mut paths);
        let found: Vec<_> = paths
            .iter()
            .map(|p| {
                (
                    p.iface.as_str(),
                    p.up,
                    p.priority.as_deref(),
                    p.reason.as_deref(),
                )
            })
            .collect();
        let expected = [
            ("eth0", true, Some("backup"), Some("its quota")),
            ("eth0", true, Some("backup"), Some("its quota")),
            ("wlan0", true, None, None),
            ("wwan0", false, Some("never"), Some("its other quota")),
        ];
        assert_eq!(found, expected);
    }
}
