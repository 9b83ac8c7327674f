//! Which subflow carries the next bytes.
//!
//! A scheduler is a pure function from a snapshot of the paths to a choice, asked at the moment when a segment can
//! leave and never earlier: path properties change while data waits. Owns no state of a connection and must never see
//! a packet.

mod backup;
mod blest;
mod custom;
mod ecf;
#[cfg(test)]
mod fixtures;
mod guard;
mod lowest_rtt;
mod prefer;
mod redundant;
mod round_robin;
mod sooner;
mod view;

use core::fmt;
use core::str::FromStr;

use manypath_tcp::time::Duration;

use crate::ids::{SubflowId, SubflowSet};
pub use blest::Lambda;
pub(crate) use custom::Outside;
pub use custom::{CustomScheduler, Schedule, usable};
pub(crate) use guard::{hold_back, shun_queues};
pub use prefer::Preference;
pub(crate) use prefer::{Carried, Division, Wish, prefer};
pub(crate) use redundant::may_duplicate;
pub(crate) use sooner::leave_to_quicker;
pub use view::{CwndView, HeldBack, PathView, RatesView, Room, RttView, Tier};

/// What is waiting to be sent, and where the connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes that are waiting and that the peer's window lets go.
    pub bytes: u32,
    /// Bytes that are waiting, whether the peer's window lets them go or not.
    pub queued: u64,
    /// Bytes that may be without Data ACK at one time: the connection's send window.
    pub window: u64,
    /// Why the bytes are to be sent.
    pub purpose: Purpose,
    /// What a policy wanted to know at its next question.
    pub history: History,
}

/// Why bytes are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// For the first time.
    Fresh,
    /// Again. These subflows are not to carry them: the one that lost them, and unproven ones.
    Reinjection(SubflowSet),
    /// As a copy, in case that the subflow which carries them is late. These subflows have none to send.
    Duplicate(SubflowSet),
}

/// What a connection keeps between two questions. A policy that needs none of it leaves it alone, so that it survives
/// changes of the policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The subflow that took the last new data.
    pub last: Option<SubflowId>,
    /// ECF let a subflow with room wait for a better one.
    pub waiting: bool,
    /// How much more than its estimate BLEST expects of the fastest subflow.
    pub lambda: Lambda,
}

impl Need {
    /// New data, with a window that holds nothing up.
    pub const fn fresh(bytes: u32) -> Self {
        Self {
            bytes,
            queued: bytes as u64,
            window: u64::MAX,
            purpose: Purpose::Fresh,
            history: History {
                last: None,
                waiting: false,
                lambda: Lambda::INITIAL,
            },
        }
    }

    /// Data that these subflows are not to carry again.
    pub const fn again(bytes: u32, excluded: SubflowSet) -> Self {
        Self {
            purpose: Purpose::Reinjection(excluded),
            ..Self::fresh(bytes)
        }
    }

    fn avoids(&self, subflow: SubflowId) -> bool {
        match self.purpose {
            Purpose::Fresh => false,
            Purpose::Reinjection(without) | Purpose::Duplicate(without) => {
                without.contains(subflow)
            }
        }
    }
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This subflow takes the next bytes.
    Send(SubflowId),
    /// No subflow should take them now; ask again when something changed.
    Wait,
}

/// A scheduling policy, chosen for each connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheduler {
    /// Lowest round trip behind the guard: a subflow gets no new data that would arrive so late that the others stood still before
    /// (mechanism `guard`). Every other policy decides by itself.
    #[default]
    Guarded,
    /// The usable subflow with the lowest round trip that has room.
    LowestRtt,
    /// One after the other, each that has room.
    RoundRobin,
    /// As lowest round trip; and what is in flight is copied to the other subflows while there is nothing new to send.
    Redundant,
    /// Blocking estimation: no slow subflow where it would fill the window for the fast one.
    Blest,
    /// Earliest completion first: no slow subflow where waiting for the fast one ends sooner.
    Ecf,
    /// The oldest usable subflow alone, those from the first address before others; without what repeats elsewhere (M1) or
    /// penalises (M2) those that hold the window up.
    Backup,
    /// One from outside of this crate.
    Custom(&'static CustomScheduler),
}

impl Scheduler {
    /// Every policy of this crate, for lists in help texts.
    pub const ALL: &'static [Self] = &[
        Self::Guarded,
        Self::LowestRtt,
        Self::RoundRobin,
        Self::Redundant,
        Self::Blest,
        Self::Ecf,
        Self::Backup,
    ];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guarded => "guarded",
            Self::LowestRtt => "lowest-rtt",
            Self::RoundRobin => "round-robin",
            Self::Redundant => "redundant",
            Self::Blest => "blest",
            Self::Ecf => "ecf",
            Self::Backup => "backup",
            Self::Custom(custom) => custom.name(),
        }
    }

    /// Who decides where new data goes, in a few words.
    pub const fn says(self) -> &'static str {
        match self {
            Self::Guarded => "lowest round trip, behind the guard if that mechanism is on",
            Self::LowestRtt => "lowest round trip, nothing else",
            Self::RoundRobin => "each in turn, nothing else",
            Self::Redundant => "lowest round trip, and duplicates on the others",
            Self::Blest => "blocking estimation, nothing else",
            Self::Ecf => "earliest completion, nothing else",
            Self::Backup => "one path while it works",
            Self::Custom(_) => "a scheduler of the application",
        }
    }

    /// It has duplicates sent of what is in flight ([`Purpose::Duplicate`]).
    pub const fn duplicates(self) -> bool {
        matches!(self, Self::Redundant)
    }

    /// It spreads new data over subflows. One that does not has its reasons, and nobody may choose in its place.
    pub const fn spreads(self) -> bool {
        !matches!(self, Self::Backup)
    }

    /// Chooses the subflow for what is waiting. What was sent before goes where it arrives first, whatever the policy.
    pub fn pick(self, paths: &[PathView], need: Need) -> Choice {
        if need.bytes == 0 {
            return Choice::Wait;
        }
        match need.purpose {
            Purpose::Duplicate(_) => return redundant::pick_copy(paths, need),
            Purpose::Reinjection(_) => return lowest_rtt::pick_soonest(paths, need),
            Purpose::Fresh => {}
        }
        match self {
            // The connection asks schedulers from outside itself, by the state that they have ([`Outside`]): this is for whoever did not.
            Self::Custom(_) => lowest_rtt::pick(paths, need),
            Self::Guarded | Self::LowestRtt | Self::Redundant => lowest_rtt::pick(paths, need),
            Self::RoundRobin => round_robin::pick(paths, need),
            Self::Blest => blest::pick(paths, need),
            Self::Ecf => ecf::pick(paths, need),
            Self::Backup => backup::pick(paths, need),
        }
    }

    /// What to keep of a question until the next one. Who took the data is for the caller to note, if anything left.
    #[must_use]
    pub fn remember(self, paths: &[PathView], need: Need) -> History {
        let mut history = need.history;
        if self == Self::Ecf && need.purpose == Purpose::Fresh {
            history.waiting = ecf::waits_on(paths, need);
        }
        history
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A scheduler of that name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownScheduler;

impl fmt::Display for UnknownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scheduler; there are:")?;
        Scheduler::ALL
            .iter()
            .try_for_each(|known| write!(f, " {known}"))
    }
}

impl core::error::Error for UnknownScheduler {}

impl FromStr for Scheduler {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.name() == name)
            .ok_or(UnknownScheduler)
    }
}

/// The subflows among which a policy may choose: those of the best class that exists, without those that
/// are not to carry the data. Every policy goes through here, so that none can forget what flag B means. // rfc8684:P1 rfc8684:J6
fn candidates<'a>(paths: &'a [PathView], need: &Need) -> impl Iterator<Item = &'a PathView> {
    let need = *need;
    let best = paths.iter().filter_map(|path| path.tier).min();
    let usable = paths.iter().filter(|path| path.tier.is_some());
    usable.filter(move |path| path.tier == best && !need.avoids(path.subflow))
}

/// The fastest candidate, which cannot send at this moment, and the fastest that can: what BLEST and ECF compare. `None`
/// where there is nothing to compare: the fastest one can send, nobody can, or nothing that is under way on the fastest
/// one would bring the question up again.
fn fast_and_slow<'a>(
    paths: &'a [PathView],
    need: &Need,
) -> Option<(&'a PathView, &'a PathView, RoundTrips)> {
    let measured = || candidates(paths, need).filter_map(|path| Some((path, path.rtt.srtt?)));
    let by_round_trip = |&(path, srtt): &(&PathView, Duration)| (srtt, path.subflow);
    let (fast, fast_rtt) = measured().min_by_key(by_round_trip)?;
    let can_send = |(path, _): &(&PathView, Duration)| path.room.is_open();
    let (slow, slow_rtt) = measured().filter(can_send).min_by_key(by_round_trip)?;
    let wakes = fast.inflight > 0 && !fast.room.is_open();
    let round_trips = RoundTrips {
        fast: micros(fast_rtt),
        slow: micros(slow_rtt),
    };
    (wakes && fast.cwnd.bytes > 0).then_some((fast, slow, round_trips))
}

/// Two smoothed round trips in microseconds, at least one each.
#[derive(Clone, Copy, Debug)]
struct RoundTrips {
    fast: u128,
    slow: u128,
}

/// Microseconds, at least one and at most an hour, which no product of the comparisons overflows with.
fn micros(span: Duration) -> u128 {
    u128::from(span.as_micros().clamp(1, 3_600_000_000))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::fixtures::{backup, closing, full, path, stale, with};
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &scheduler in Scheduler::ALL {
            assert_eq!(scheduler.to_string().parse(), Ok(scheduler));
            assert!(!scheduler.says().is_empty());
        }
        assert_eq!("no-such".parse::<Scheduler>(), Err(UnknownScheduler));
        assert!(UnknownScheduler.to_string().contains("lowest-rtt"));
    }

    #[test]
    fn nothing_waiting_needs_nobody() {
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.pick(&[path(0, 9)], Need::fresh(0)), Choice::Wait);
            assert_eq!(scheduler.pick(&[], Need::fresh(1)), Choice::Wait);
        }
    }

    #[test]
    fn no_policy_uses_a_backup_or_an_unresponsive_path_while_another_works() {
        // rfc8684:P1 rfc8684:J6
        let rests = [backup(path(0, 1)), stale(path(1, 1)), closing(path(2, 1))];
        let mut paths = rests.to_vec();
        paths.push(path(3, 900));
        for scheduler in Scheduler::ALL {
            let pick = |paths: &[PathView]| scheduler.pick(paths, Need::fresh(1_000));
            assert_eq!(pick(&paths), Choice::Send(SubflowId(3)), "{scheduler}");
            paths[3] = full(path(3, 900));
            assert_eq!(pick(&paths), Choice::Wait, "{scheduler}");
            paths[3] = path(3, 900);
            assert_eq!(pick(&rests), Choice::Send(SubflowId(0)), "{scheduler}");
        }
    }

    #[test]
    fn every_policy_sends_again_where_it_arrives_first() {
        // rfc8684:R4
        let paths = [path(0, 10), path(1, 90), path(2, 50)];
        let need = Need::again(1_000, SubflowSet::of(SubflowId(0)));
        for scheduler in Scheduler::ALL {
            assert_eq!(scheduler.pick(&paths, need), Choice::Send(SubflowId(2)));
            assert_eq!(scheduler.remember(&paths, need), need.history);
        }
        // The queue of one with a short round trip counts.
        let queued = with(path(2, 50), |view| {
            view.expected_delivery = Duration::from_millis(91)
        });
        for scheduler in Scheduler::ALL {
            let paths = [path(0, 10), path(1, 90), queued];
            assert_eq!(scheduler.pick(&paths, need), Choice::Send(SubflowId(1)));
        }
    }
}
