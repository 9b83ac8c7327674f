//! Admission of subflows: which join is accepted when the limit is reached (RFC 8684 sections 3.2 and 3.6).
//!
//! A pure receiver never detects a dead path by itself, and such a subflow would count for good. So subflows not received on lately
//! are probed, and the join waits: its SYN is repeated a second later. If a subflow is unresponsive then, the join gets a SYN/ACK,
//! one beyond the limit, and evicts that subflow once its HMAC is verified: tokens may be overheard and sources spoofed,
//! and an outage may end in a moment. A responsive subflow must never be evicted, save a backup: a join of our own
//! is begun beyond the limit where one is unresponsive, or only a backup.

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};

use crate::api::{ConnOptions, SubflowEnd};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::admission_round::Round;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::liveness::Uplink;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::{SubflowId, SubflowSet};

/// When our SYN/ACK is repeated (RFC 6298 section 2): a genuine peer has authenticated by then. A subflow received on
/// so lately is not probed.
const PATIENCE: Duration = Duration::from_secs(1);
/// Subflows that one SYN can have probed.
const MOST_PROBED: usize = 8;
/// Least time between them. The SYN is repeated after three of these.
const LEAST_PAUSE: Duration = Duration::from_millis(300);
/// How long the result counts after the last probe: the first repetitions of a SYN arrive within it.
const COUNTS: Duration = Duration::from_secs(10);
/// Where all have answered, none is probed sooner: joins are refused meanwhile.
const PROBED_AGAIN: Duration = Duration::from_secs(4);

/// How a join is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinVerdict {
    /// It is within the limit.
    Free,
    /// It is, if this join, which did not authenticate in time, is dropped.
    Of(SubflowIdx),
    /// One beyond the limit: an unresponsive subflow is evicted when the join has authenticated.
    Beyond,
    /// Undecided: the join gets no answer, and its SYN will be repeated.
    Waits,
    /// Undecided until subflows are probed.
    Ask,
    /// The limit is reached.
    None,
}

/// Result of the probes, when the limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answers {
    /// Time since they began, and when they are over.
    since: Duration,
    ends: Duration,
    /// A subflow did not answer.
    silent: bool,
}

/// How a join is treated when the limit is reached by subflows that were up. Pure.
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
        }) if since < PROBED_AGAIN => JoinVerdict::None,
        _ => again,
    }
}

impl Subflows {
    /// The subflow to evict for another one, and why it ends: an unresponsive one, or a backup for one that is none.
    pub(in crate::conn) fn to_evict(&self, to_backup: bool) -> Option<(SubflowIdx, SubflowEnd)> {
        if let Some(silent) = self.silent_subflow() {
            return Some((silent, SubflowEnd::TimedOut));
        }
        let backup = |sf: &Subflow| {
            sf.endpoint.backup_here
                && sf.closing.reset_with.is_none()
                && sf.handshake.state == HandshakeState::Done
        };
        let backup = self.position(backup);
        backup
            .filter(|_| !to_backup)
            .map(|i| (i, SubflowEnd::Replaced))
    }

    /// The subflow not received on for longest among those that left a probe unanswered, for admission or by a receiver, or whose
    /// uplink does not work.
    fn silent_subflow(&self) -> Option<SubflowIdx> {
        let was_queried = |sf: &Subflow| {
            self.admission
                .0
                .is_some_and(|round| round.was_not_received(sf))
        };
        let silent = |(_, sf): &(SubflowIdx, &Subflow)| {
            let is_silent = sf.liveness.reported_unresponsive
                || sf.liveness.uplink != Uplink::Works
                || was_queried(sf);
            is_silent && sf.closing.reset_with.is_none() && !is_half_open(sf)
        };
        let silent = self.each().filter(silent);
        silent
            .min_by_key(|(_, sf)| sf.liveness.receiver_probe.last_received())
            .map(|(i, _)| i)
    }

    /// The oldest join of the peer that has not authenticated in time.
    fn stale_join(&self, now: Instant) -> Option<SubflowIdx> {
        let stale = |(_, sf): &(SubflowIdx, &Subflow)| {
            is_half_open(sf)
                && sf.closing.reset_with.is_none()
                && now.since(sf.stats.opened) >= PATIENCE
        };
        let oldest = self.each().filter(stale);
        oldest.min_by_key(|(_, sf)| sf.stats.opened).map(|(i, _)| i)
    }

    /// Subflows that were up and not received on lately.
    fn not_received_lately(&self, now: Instant) -> impl Iterator<Item = &Subflow> {
        let joining = |sf: &Subflow| {
            matches!(
                sf.handshake.state,
                HandshakeState::JoinSyn { .. } | HandshakeState::JoinAck { .. }
            )
        };
        self.iter().filter(move |sf| {
            let open = sf.tcp.state().is_synchronized() && sf.closing.reset_with.is_none();
            let lately = now.since(sf.liveness.receiver_probe.last_received()) < PATIENCE;
            open && !joining(sf) && !is_half_open(sf) && !lately
        })
    }

    fn probe_for_admission(&mut self, cx: &mut Cx<'_>) {
        let mut not_received_lately: Vec<&Subflow> = self.not_received_lately(cx.now).collect();
        not_received_lately.sort_by_key(|sf| sf.liveness.receiver_probe.last_received());
        not_received_lately.truncate(MOST_PROBED);
        let mut asked = SubflowSet::EMPTY;
        let mut pause = LEAST_PAUSE;
        for sf in not_received_lately {
            asked.insert(sf.id());
            // What an answer takes at most, however often its timer has backed off by now.
            pause = pause.max(sf.tcp.base_rto());
        }
        self.admission.0 = Some(Round {
            began: cx.now,
            asked,
            pause,
            probes_sent: 0,
        });
        self.admission_due(cx);
    }

    /// Probes those again that have not answered.
    pub(crate) fn admission_due(&mut self, cx: &mut Cx<'_>) {
        let Some(round) = &mut self.admission.0 else {
            return;
        };
        if round.probes_at().is_none_or(|at| at > cx.now) {
            return;
        }
        round.probes_sent += 1;
        let round = *round;
        let silent =
            |sf: &&mut Subflow| round.was_not_received(sf) && sf.closing.reset_with.is_none();
        for sf in self.iter_mut().filter(silent) {
            cx.count.admission_probed += 1;
            sf.tcp.probe(cx.now);
        }
    }

    /// A free ID, whatever the limit. There is none beside 256 others.
    pub(crate) fn free_name(&self) -> Option<SubflowId> {
        // IDs are not reused at once, so that late events of an ended subflow cannot be mistaken.
        (0..=u8::MAX)
            .map(|step| SubflowId(self.next_id.wrapping_add(step)))
            .find(|id| self.find(*id).is_none())
    }

    /// A free ID for one more subflow, within the connection's limit. // rfc8684:J19
    pub(crate) fn free_subflow(&self, opts: &ConnOptions) -> Option<SubflowId> {
        let has_room = self.len() < usize::from(opts.max_subflows);
        if has_room { self.free_name() } else { None }
    }

    /// Whether a join is admitted.
    pub(crate) fn admit_join(&self, opts: &ConnOptions, now: Instant) -> JoinVerdict {
        if self.free_subflow(opts).is_some() {
            return JoinVerdict::Free;
        }
        if let Some(i) = self.stale_join(now) {
            return JoinVerdict::Of(i);
        }
        // One join at a time may be beyond the limit, ours and the peer's counted together.
        if self.len() > usize::from(opts.max_subflows) {
            return JoinVerdict::Waits;
        }
        // Either is over in a moment.
        let passing = |sf: &Subflow| is_half_open(sf) || sf.closing.reset_with.is_some();
        if self.iter().any(passing) {
            return JoinVerdict::Waits;
        }
        let answers = self.admission.0.map(|round| Answers {
            since: now.since(round.began),
            ends: round.ends().since(round.began),
            silent: self.silent_subflow().is_some(),
        });
        decide(answers, self.not_received_lately(now).next().is_some())
    }

    /// An id for a join of our own: within the limit, or one beyond it where a subflow is unresponsive, or only a backup, which is
    /// evicted when the join is up.
    pub(crate) fn name_for_own_join(&self, opts: &ConnOptions, backup: bool) -> Option<SubflowId> {
        let one_beyond = self.len() == usize::from(opts.max_subflows);
        match one_beyond && self.to_evict(backup).is_some() {
            true => self.free_name(),
            false => self.free_subflow(opts),
        }
    }

    /// Drops the join that has to make room, or probes the subflows that may have to.
    pub(crate) fn room_for_join(&mut self, opts: &ConnOptions, cx: &mut Cx<'_>) {
        match self.admit_join(opts, cx.now) {
            JoinVerdict::Of(i) => {
                cx.count.join_evicted += 1;
                let sf = &mut self[i];
                sf.closing.end.get_or_insert(SubflowEnd::TimedOut);
                sf.tcp.forget();
            }
            JoinVerdict::Ask => self.probe_for_admission(cx),
            JoinVerdict::Free | JoinVerdict::Beyond | JoinVerdict::Waits | JoinVerdict::None => {}
        }
    }
}

/// A join of the peer that has not authenticated.
fn is_half_open(sf: &Subflow) -> bool {
    matches!(sf.handshake.state, HandshakeState::JoinSynAck { .. })
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
    fn only_a_subflow_that_left_probes_unanswered_is_evicted() {
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
