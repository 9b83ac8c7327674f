//! Which subflow carries the next bytes.
//!
//! A scheduler is a pure function from a snapshot of the paths to a choice, asked at the moment when a segment can
//! leave and never earlier: path properties change while data waits. Owns no state of a connection and must never see
//! a packet.

mod lowest_rtt;

use core::fmt;
use core::str::FromStr;

use manypath_tcp::time::Duration;

use crate::ids::{SubflowId, SubflowSet};

/// What a scheduler may know about one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// Which one.
    pub subflow: SubflowId,
    /// It carries data: handshake done, not pre-established, not closing.
    pub established: bool,
    /// Its receiver asked that it be used only when nothing better is left (flag B of MP_JOIN or MP_PRIO).
    pub backup: bool,
    /// A retransmission time-out is pending on it: what is sent there now may not arrive for long.
    pub stale: bool,
    /// Smoothed round trip; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Current retransmission time-out, back-off included.
    pub rto: Duration,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Bytes that the congestion window leaves free.
    pub cwnd_room: u32,
    /// Bytes of new data that congestion window, peer window and pacing permit right now.
    pub can_send: u32,
    /// Only the pacer holds it back; it may send again within moments.
    pub pacing_blocked: bool,
    /// Payload bytes of a full segment.
    pub mss: u32,
}

/// What is waiting to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes that are waiting.
    pub bytes: u32,
    /// `Some` when they were sent before: the subflows that carried them, which gain nothing by carrying them again.
    pub reinjection: Option<SubflowSet>,
}

impl Need {
    /// New data.
    pub const fn fresh(bytes: u32) -> Self {
        Self {
            bytes,
            reinjection: None,
        }
    }

    /// Data that these subflows have already carried.
    pub const fn again(bytes: u32, carried_by: SubflowSet) -> Self {
        Self {
            bytes,
            reinjection: Some(carried_by),
        }
    }

    fn avoids(&self, subflow: SubflowId) -> bool {
        self.reinjection
            .is_some_and(|carried_by| carried_by.contains(subflow))
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
pub enum Scheduler {
    /// The usable subflow with the lowest round trip that has room.
    #[default]
    LowestRtt,
}

impl Scheduler {
    /// Every policy, for lists in help texts.
    pub const ALL: &'static [Self] = &[Self::LowestRtt];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::LowestRtt => "lowest-rtt",
        }
    }

    /// Chooses the subflow for what is waiting.
    pub fn pick(self, paths: &[PathView], need: Need) -> Choice {
        if need.bytes == 0 {
            return Choice::Wait;
        }
        match self {
            Self::LowestRtt => lowest_rtt::pick(paths, need),
        }
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

/// How good a class of subflows is; only the best class that exists is used.
///
/// A stale regular subflow ranks below a fresh backup: after a time-out it is not "available" in the sense of flag B,
/// and a backup that waits for the last retransmission would be no backup. // rfc8684:P1
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Regular,
    Backup,
    StaleRegular,
    StaleBackup,
}

impl Tier {
    fn of(path: &PathView) -> Self {
        match (path.stale, path.backup) {
            (false, false) => Self::Regular,
            (false, true) => Self::Backup,
            (true, false) => Self::StaleRegular,
            (true, true) => Self::StaleBackup,
        }
    }
}

/// The subflows among which a policy may choose: those of the best class that exists, without those that carried the
/// data before. Every policy goes through here, so that none can forget what flag B means. // rfc8684:P1 rfc8684:J6
fn candidates<'a>(paths: &'a [PathView], need: &Need) -> impl Iterator<Item = &'a PathView> {
    let need = *need;
    let usable = paths.iter().filter(|path| path.established);
    let best = usable.clone().map(Tier::of).min();
    usable.filter(move |path| Some(Tier::of(path)) == best && !need.avoids(path.subflow))
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &scheduler in Scheduler::ALL {
            assert_eq!(scheduler.to_string().parse(), Ok(scheduler));
        }
        assert_eq!("no-such".parse::<Scheduler>(), Err(UnknownScheduler));
        assert!(UnknownScheduler.to_string().contains("lowest-rtt"));
    }

    #[test]
    fn nothing_waiting_needs_nobody() {
        assert_eq!(Scheduler::LowestRtt.pick(&[], Need::fresh(0)), Choice::Wait);
        assert_eq!(Scheduler::LowestRtt.pick(&[], Need::fresh(1)), Choice::Wait);
    }
}
