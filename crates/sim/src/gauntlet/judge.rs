//! The judgement: what plain TCP delivers, Multipath TCP has to deliver, the same bytes and about as fast.

use core::fmt;

use manypath_tcp::time::Duration;

use super::twin::{Arm, seconds};
use crate::oracle::Rule;

/// What is wrong with a pair of runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// One of them panicked.
    Panic(String),
    /// A host broke a rule of the protocol, in the run with or without Multipath TCP.
    Rule {
        /// The run with plain TCP.
        plain: bool,
        /// Which rule.
        what: String,
    },
    /// Readers got other bytes than were sent, or than plain TCP delivered where something rewrites.
    Bytes(String),
    /// Plain TCP delivered everything, Multipath TCP did not.
    Undelivered(String),
    /// It took more than twice the time of plain TCP and two seconds.
    Late {
        /// Plain TCP's time.
        tcp: Duration,
        /// Ours.
        ours: Duration,
    },
    /// Something was left over after the end, which plain TCP cleaned up.
    Unended(String),
    /// After an outage at the end one side holds a connection that the other one does not have any more.
    HalfOpen(String),
    /// A second run left another record.
    Unrepeatable,
}

impl Fault {
    /// One word for the kind of fault.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Panic(_) => "panic",
            Self::Rule { .. } => "rule",
            Self::Bytes(_) => "bytes",
            Self::Undelivered(_) => "undelivered",
            Self::Late { .. } => "late",
            Self::Unended(_) => "unended",
            Self::HalfOpen(_) => "half-open",
            Self::Unrepeatable => "unrepeatable",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Panic(what) => write!(f, "panic: {what}"),
            Self::Rule { plain: true, what } => write!(f, "plain TCP breaks a rule: {what}"),
            Self::Rule { plain: false, what } => write!(f, "breaks a rule: {what}"),
            Self::Bytes(what) => write!(f, "wrong bytes: {what}"),
            Self::Undelivered(what) => write!(f, "TCP delivers, Multipath TCP does not: {what}"),
            Self::Late { tcp, ours } => write!(
                f,
                "TCP takes {:.3} s, Multipath TCP {:.3} s",
                seconds(*tcp),
                seconds(*ours)
            ),
            Self::Unended(what) => write!(f, "does not end as TCP does: {what}"),
            Self::HalfOpen(what) => {
                write!(f, "half-open for good after an outage at the end: {what}")
            }
            Self::Unrepeatable => write!(f, "a second run with the same seed differs"),
        }
    }
}

/// The longest time that is as good as plain TCP's.
pub(super) fn allowed(tcp: Duration) -> Duration {
    tcp.times(2) + Duration::from_secs(2)
}

/// Judges a pair of runs. `limit`: virtual time after which runs were stopped. `same_streams`: whatever rewrites streams
/// does that to both runs alike, so that readers have to get the same. (Elsewhere the readers' own check has to do: each
/// byte is as sent or as rewritten. Another path may be free of what rewrites, and damage is random.)
pub(super) fn judge(
    tcp: &Result<Arm, String>,
    ours: &Result<Arm, String>,
    limit: Duration,
    same_streams: bool,
) -> Option<Fault> {
    let (tcp, ours) = match (tcp, ours) {
        (Ok(tcp), Ok(ours)) => (tcp, ours),
        (Err(panic), _) | (_, Err(panic)) => return Some(Fault::Panic(panic.clone())),
    };
    let first = |arm: &Arm, rule| {
        let broken = arm.violations.iter().find(|found| found.rule == rule);
        broken.map(ToString::to_string)
    };
    for (plain, arm) in [(true, tcp), (false, ours)] {
        if let Some(what) = first(arm, Rule::Wire) {
            return Some(Fault::Rule { plain, what });
        }
    }
    // Readers know what boxes do to the stream: whatever else they find is wrong, with plain TCP as well.
    for (arm, whose) in [(tcp, "plain TCP: "), (ours, "")] {
        if let Some(what) = first(arm, Rule::Stream) {
            return Some(Fault::Bytes(format!("{whose}{what}")));
        }
    }
    // Stopped while it might still have delivered: nothing to compare with.
    let time = tcp.whole.filter(|time| allowed(*time) < limit)?;
    let Some(taken) = ours.whole else {
        let why = unwhole(ours);
        return Some(Fault::Undelivered(why));
    };
    if same_streams && tcp.streams != ours.streams {
        let what = "other bytes than plain TCP delivers behind the same boxes";
        return Some(Fault::Bytes(what.to_owned()));
    }
    // Who delivers what was sent may take longer than who delivers what was changed on the way.
    let better = tcp.altered > 0 && ours.altered == 0;
    if taken > allowed(time) && !better {
        return Some(Fault::Late {
            tcp: time,
            ours: taken,
        });
    }
    match (first(tcp, Rule::End), first(ours, Rule::End)) {
        (None, Some(what)) => Some(Fault::Unended(what)),
        _ => None,
    }
}

/// What kept readers from having everything.
fn unwhole(arm: &Arm) -> String {
    let ends = arm.report.connections.iter().flat_map(|connection| {
        let ends = [
            ("client", Some(&connection.client)),
            ("server", connection.server.as_ref()),
        ];
        ends.map(|(name, end)| match end {
            Some(end) => {
                let failure = end.failure.as_deref().unwrap_or("no failure");
                format!("{name} sent {}, read {}, {failure}", end.sent, end.read)
            }
            None => format!("no {name}"),
        })
    });
    ends.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Violation;
    use manypath_tcp::time::Instant;

    const LIMIT: Duration = Duration::from_secs(100);

    fn arm(whole: Option<u64>) -> Arm {
        Arm {
            whole: whole.map(Duration::from_millis),
            ..Arm::default()
        }
    }

    fn broken(mut arm: Arm, rule: Rule) -> Arm {
        arm.violations.push(Violation {
            time: Instant::ZERO,
            host: "client".into(),
            rule,
            what: "x".into(),
        });
        arm
    }

    fn kind(tcp: Arm, ours: Arm) -> Option<&'static str> {
        judge(&Ok(tcp), &Ok(ours), LIMIT, true).map(|fault| fault.kind())
    }

    #[test]
    fn tcp_is_the_measure() {
        for (tcp, ours, fault) in [
            (Some(1_000), Some(4_000), None),
            (Some(1_000), Some(4_001), Some("late")),
            (Some(1_000), None, Some("undelivered")),
            (None, None, None),
            (None, Some(90_000), None),
            (Some(60_000), None, None),
        ] {
            assert_eq!(kind(arm(tcp), arm(ours)), fault, "{tcp:?} {ours:?}");
        }
        let damaged = |whole| Arm {
            altered: 1,
            ..arm(Some(whole))
        };
        assert_eq!(kind(damaged(1_000), arm(Some(9_000))), None);
        assert_eq!(kind(damaged(1_000), damaged(9_000)), Some("late"));
    }

    #[test]
    fn rules_hold_and_streams_are_right_in_both_runs() {
        let good = || arm(Some(1));
        for (tcp, ours, fault) in [
            (broken(good(), Rule::Wire), good(), Some("rule")),
            (good(), broken(good(), Rule::Wire), Some("rule")),
            (arm(None), broken(arm(None), Rule::Stream), Some("bytes")),
            (broken(good(), Rule::Stream), good(), Some("bytes")),
            (good(), broken(good(), Rule::End), Some("unended")),
            (broken(good(), Rule::End), broken(good(), Rule::End), None),
        ] {
            assert_eq!(kind(tcp, ours), fault);
        }
        let panic = judge(&Ok(good()), &Err("p".into()), LIMIT, true);
        assert_eq!(panic, Some(Fault::Panic("p".into())));
    }

    #[test]
    fn behind_the_same_boxes_readers_get_the_same() {
        let with = |heard: u64| {
            let mut arm = arm(Some(1));
            arm.streams = vec![heard];
            Ok(arm)
        };
        assert_eq!(judge(&with(1), &with(1), LIMIT, true), None);
        assert_eq!(judge(&with(1), &with(2), LIMIT, false), None);
        let fault = judge(&with(1), &with(2), LIMIT, true);
        assert_eq!(fault.map(|fault| fault.kind()), Some("bytes"));
    }
}
