//! Places for subflows where all of them are taken, and a join asks for one.
//!
//! Who only receives never learns by itself that a path is dead, and such a subflow would keep its place for good. So those
//! that were not heard lately are asked, and the join waits: its SYN comes again a second later. If one is silent then, the join
//! is answered, one beyond the limit, and has the place as soon as it has proved that it is the peer's: tokens may be overheard
//! and sources be made up, and silence may be an outage that is over in a moment. What answers keeps its place. A join of our own
//! is begun beyond the limit as well where one of ours is silent, or only a backup.

use alloc::vec::Vec;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

use crate::api::SubflowEnd;
use crate::conn::subflow::{HandshakeState, Subflow, Uplink};
use crate::conn::{Conn, Cx};
use crate::ids::{SubflowId, SubflowSet};

/// A peer that is there has proved itself by then: it is when our SYN/ACK is repeated (RFC 6298 section 2). A subflow that was
/// heard so lately is not asked.
const PATIENCE: Duration = Duration::from_secs(1);
/// Subflows that one SYN can have asked.
const MOST_ASKED: usize = 8;
/// Questions to each, since one may get lost.
const QUESTIONS: u8 = 3;
/// Least time between them. The SYN comes again after three of these.
const LEAST_PAUSE: Duration = Duration::from_millis(300);
/// How long silence counts after the last question: the first repetitions of a SYN come within it.
const COUNTS: Duration = Duration::from_secs(10);
/// Where all have answered, nobody is asked sooner: joins are refused for the time being.
const ASKED_AGAIN: Duration = Duration::from_secs(4);

/// Subflows that are asked for their places, all of them at the same time.
#[derive(Clone, Copy, Debug)]
struct Round {
    began: Instant,
    asked: SubflowSet,
    pause: Duration,
    /// Questions to each so far.
    questions: u8,
}

impl Round {
    /// When the last question has had its time for an answer.
    fn ends(&self) -> Instant {
        self.began + self.pause.times(u64::from(QUESTIONS))
    }

    fn asks_at(&self) -> Option<Instant> {
        let next = self.began + self.pause.times(u64::from(self.questions));
        (self.questions < QUESTIONS).then_some(next)
    }

    /// It was asked and has said nothing since.
    fn has_not_heard(&self, sf: &Subflow) -> bool {
        self.asked.contains(sf.id()) && sf.receiver_probe.last_received() <= self.began
    }
}

/// The last questions to those that have places.
#[derive(Debug, Default)]
pub(crate) struct Admission(Option<Round>);

impl Admission {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.and_then(|round| round.asks_at())
    }
}

/// What becomes of a join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinVerdict {
    /// There is a place.
    Free,
    /// There is if this join is given up, which did not prove itself in time.
    Of(usize),
    /// One beyond the limit: a silent subflow gives its own up when the join has proved itself.
    Beyond,
    /// It is not known yet: the join gets no answer, and its SYN comes again.
    Waits,
    /// Nor will it be before somebody is asked.
    Ask,
    /// All are in use.
    None,
}

/// What is known of the questions, when all places are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    /// Time since they began, and when they are over.
    since: Duration,
    ends: Duration,
    /// Somebody did not answer.
    silent: bool,
}

/// What becomes of a join when all places are taken by subflows that were up. Pure.
fn decide(answers: Option<Answers>, may_ask: bool) -> JoinVerdict {
    let again = if may_ask {
        JoinVerdict::Ask
    } else {
        JoinVerdict::None
    };
    match answers {
        Some(Answers {
            since,
            ends,
            silent: true,
        }) if since <= ends + COUNTS => match since < ends {
            true => JoinVerdict::Waits,
            false => JoinVerdict::Beyond,
        },
        Some(Answers {
            since,
            silent: false,
            ..
        }) if since < ASKED_AGAIN => JoinVerdict::None,
        _ => again,
    }
}

impl Conn {
    /// Whether there is a place for a join.
    pub(crate) fn admit_join(&self, now: Instant) -> JoinVerdict {
        if self.free_subflow().is_some() {
            return JoinVerdict::Free;
        }
        if let Some(i) = self.stale_join(now) {
            return JoinVerdict::Of(i);
        }
        // One join at a time may be beyond the limit, ours and the peer's counted together.
        if self.subflows.len() > usize::from(self.opts.max_subflows) {
            return JoinVerdict::Waits;
        }
        // Either is over in a moment.
        let passing = |sf: &Subflow| is_half_open(sf) || sf.reset_with.is_some();
        if self.subflows.iter().any(passing) {
            return JoinVerdict::Waits;
        }
        let answers = self.admission.0.map(|round| Answers {
            since: now.since(round.began),
            ends: round.ends().since(round.began),
            silent: self.silent_subflow().is_some(),
        });
        decide(answers, self.unheard(now).next().is_some())
    }

    /// A name for a join of our own: within the limit, or one beyond it where a subflow is silent, or only a backup, whose place it
    /// takes when it is up.
    pub(crate) fn name_for_own_join(&self, backup: bool) -> Option<SubflowId> {
        let one_beyond = self.subflows.len() == usize::from(self.opts.max_subflows);
        match one_beyond && self.gives_way(backup).is_some() {
            true => self.free_name(),
            false => self.free_subflow(),
        }
    }

    /// The subflow that gives its place up to another one, and why it ends: a silent one, or a backup to one that is none.
    fn gives_way(&self, to_backup: bool) -> Option<(usize, SubflowEnd)> {
        if let Some(silent) = self.silent_subflow() {
            return Some((silent, SubflowEnd::TimedOut));
        }
        let backup = |sf: &Subflow| {
            sf.endpoint.backup_here
                && sf.reset_with.is_none()
                && sf.handshake == HandshakeState::Done
        };
        let backup = self.subflows.iter().position(backup);
        backup
            .filter(|_| !to_backup)
            .map(|i| (i, SubflowEnd::Replaced))
    }

    /// The subflow unheard for longest of those that did not answer when they were asked, for its place or whether it works, or from
    /// which nothing leaves at present.
    fn silent_subflow(&self) -> Option<usize> {
        let was_queried = |sf: &Subflow| {
            self.admission
                .0
                .is_some_and(|round| round.has_not_heard(sf))
        };
        let silent = |(_, sf): &(usize, &Subflow)| {
            let is_silent =
                sf.reported_unresponsive || sf.uplink != Uplink::Works || was_queried(sf);
            is_silent && sf.reset_with.is_none() && !is_half_open(sf)
        };
        let silent = self.subflows.iter().enumerate().filter(silent);
        silent
            .min_by_key(|(_, sf)| sf.receiver_probe.last_received())
            .map(|(i, _)| i)
    }

    /// A join has proved itself and needs a place. Where it was one beyond the limit, that of a subflow which is silent to this
    /// moment, or of a backup. `false` if there is none: then the join is refused for the time being.
    pub(crate) fn takes_over_place(&mut self, i: usize, cx: &mut Cx<'_>) -> bool {
        let staying = |sf: &&Subflow| sf.reset_with.is_none();
        let taken = self.subflows.iter().filter(staying).count();
        if taken <= usize::from(self.opts.max_subflows) {
            return true;
        }
        match self.gives_way(self.subflows[i].endpoint.backup_here) {
            Some((other, end)) => {
                cx.count.subflow_evicted += 1;
                // Where it only seemed dead, the peer hears that it is gone.
                self.reset_subflow(other, end, no_place(), cx);
                true
            }
            None => {
                cx.count.join_refused += 1;
                // One of our own may be made again.
                self.reset_subflow(i, SubflowEnd::Replaced, no_place(), cx);
                false
            }
        }
    }

    /// The oldest join of the peer that has not proved itself in time.
    fn stale_join(&self, now: Instant) -> Option<usize> {
        let stale = |(_, sf): &(usize, &Subflow)| {
            is_half_open(sf) && sf.reset_with.is_none() && now.since(sf.opened) >= PATIENCE
        };
        let oldest = self.subflows.iter().enumerate().filter(stale);
        oldest.min_by_key(|(_, sf)| sf.opened).map(|(i, _)| i)
    }

    /// Subflows that were up and not heard lately.
    fn unheard(&self, now: Instant) -> impl Iterator<Item = &Subflow> {
        let joining = |sf: &Subflow| {
            matches!(
                sf.handshake,
                HandshakeState::JoinSyn { .. } | HandshakeState::JoinAck { .. }
            )
        };
        self.subflows.iter().filter(move |sf| {
            let open = sf.tcp.state().is_synchronized() && sf.reset_with.is_none();
            let lately = now.since(sf.receiver_probe.last_received()) < PATIENCE;
            open && !joining(sf) && !is_half_open(sf) && !lately
        })
    }

    /// Gives up the join that has to make room, or asks those that may have to.
    pub(crate) fn make_room(&mut self, cx: &mut Cx<'_>) {
        match self.admit_join(cx.now) {
            JoinVerdict::Of(i) => {
                cx.count.join_evicted += 1;
                let sf = &mut self.subflows[i];
                sf.end.get_or_insert(SubflowEnd::TimedOut);
                sf.tcp.forget();
            }
            JoinVerdict::Ask => self.probe_for_admission(cx),
            JoinVerdict::Free | JoinVerdict::Beyond | JoinVerdict::Waits | JoinVerdict::None => {}
        }
    }

    fn probe_for_admission(&mut self, cx: &mut Cx<'_>) {
        let mut unheard: Vec<&Subflow> = self.unheard(cx.now).collect();
        unheard.sort_by_key(|sf| sf.receiver_probe.last_received());
        unheard.truncate(MOST_ASKED);
        let mut asked = SubflowSet::EMPTY;
        let mut pause = LEAST_PAUSE;
        for sf in unheard {
            asked.insert(sf.id());
            // What an answer takes at most, however often its timer has expired by now.
            pause = pause.max(sf.tcp.base_rto());
        }
        self.admission.0 = Some(Round {
            began: cx.now,
            asked,
            pause,
            questions: 0,
        });
        self.admission_due(cx);
    }

    /// Asks those once more that have not answered.
    pub(crate) fn admission_due(&mut self, cx: &mut Cx<'_>) {
        let Some(round) = &mut self.admission.0 else {
            return;
        };
        if round.asks_at().is_none_or(|at| at > cx.now) {
            return;
        }
        round.questions += 1;
        let round = *round;
        let silent = |sf: &&mut Subflow| round.has_not_heard(sf) && sf.reset_with.is_none();
        for sf in self.subflows.iter_mut().filter(silent) {
            cx.count.place_asked += 1;
            sf.tcp.probe(cx.now);
        }
    }
}

/// What a subflow is told that has no place: there may be one later. // rfc8684:T3
fn no_place() -> Option<MptcpOption> {
    Some(MptcpOption::Reset(Reset {
        transient: true,
        reason: ResetReason::LackOfResources,
    }))
}

/// A join of the peer that has not proved itself.
fn is_half_open(sf: &Subflow) -> bool {
    matches!(sf.handshake, HandshakeState::JoinSynAck { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(ms: u64, silent: bool) -> Option<Answers> {
        Some(Answers {
            since: Duration::from_millis(ms),
            ends: Duration::from_millis(900),
            silent,
        })
    }

    #[test]
    fn only_what_was_asked_in_vain_gives_its_place_up() {
        for (answers, may_ask, expected) in [
            (None, false, JoinVerdict::None),
            (None, true, JoinVerdict::Ask),
            (after(500, true), true, JoinVerdict::Waits),
            (after(500, false), true, JoinVerdict::None),
            (after(3_900, false), true, JoinVerdict::None),
            (after(4_000, false), true, JoinVerdict::Ask),
            (after(4_000, false), false, JoinVerdict::None),
            (after(900, true), true, JoinVerdict::Beyond),
            (after(10_900, true), false, JoinVerdict::Beyond),
            (after(11_000, true), true, JoinVerdict::Ask),
        ] {
            let is = decide(answers, may_ask);
            assert_eq!(is, expected, "{answers:?} {may_ask}");
        }
    }
}
