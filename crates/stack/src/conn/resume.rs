//! What goes on as TCP by a record outlives its subflow: another record on a new one says again where the streams go on.
//!
//! Of what came between, nothing but the subflow knew whether it was what the peer sent, so a record says what it was like, too
//! ([`Digest`](super::digest::Digest)): where something rewrote it, there is no way on. So while the subflow is only silent, a new one
//! is no more than *proposed*: each end sends its record there, takes no more payload where it was, and moves when its record is
//! acknowledged and that of the peer is here and right. If it is not right, both stay where they are, as TCP would.
//!
//! Owns the way on after the way down. Must never leave a subflow that may answer again for one that cannot carry on.

use manypath_tcp::time::Instant;
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::ResetReason;

use super::join::mptcp_specific;
use super::offset::Offset;
use super::record::Said;
use super::restart::{Way, long_silence};
use super::send::FinState;
use super::subflow::{Greeting, Subflow};
use super::{Conn, Cx};
use crate::api::{CloseCause, Role, SubflowEnd};
use crate::ids::SubflowId;
use crate::pm;

/// A way on beside the silent one: our record is there.
#[derive(Debug)]
pub(super) struct Proposal {
    pub(super) on: SubflowId,
    /// It is dropped then.
    pub(super) until: Instant,
}

impl Subflow {
    /// Nothing came since so long then that another way on is better, if there is one.
    pub(super) fn is_silent_from(&self) -> Instant {
        self.quiet.heard_at() + long_silence(self.tcp.base_rto())
    }
}

impl Conn {
    /// We fell, and the subflow ended on which the peer's record was to come: until then it may be on a new one. A peer that did not
    /// hear of our fall knows the connection as one of Multipath TCP, and one that fell itself is in the same place.
    pub(super) fn restarts_anew(&self) -> bool {
        let gone = |on| self.position(on).is_none();
        self.awaits_record() && self.restart.on.is_some_and(gone)
    }

    /// The streams were to go on here, or did, and do no more: another record has to say where they are.
    pub(super) fn begins_once_more(&mut self) {
        if self.goes_on_by_record() {
            (self.restart.came, self.restart.again) = (false, true);
            self.restart.sent = self.said_upto();
        }
    }

    /// How far the peer can have come: we may have begun again elsewhere, and not have got as far there.
    fn said_upto(&self) -> Offset {
        let said = self.send.next() + u64::from(self.send.fin != FinState::Open);
        said.max(self.restart.sent)
    }

    /// Both go on where they still are, if silently.
    pub(super) fn may_stay(&self) -> bool {
        let here = |on| self.position(on).is_some();
        self.goes_on_by_record() && self.restart.on.is_some_and(here)
    }

    /// Both go on as TCP, and if that falls silent another way may be looked for.
    pub(super) fn may_seek(&self) -> bool {
        let seeks = self.restart.seeks || self.restart.refuted;
        self.goes_on_by_record() && !seeks
    }

    /// The subflow on which both go on is silent for so long that another one is better, if there is one.
    pub(super) fn silence_lasts(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &self.subflows[i];
        let lasts = cx.now >= sf.is_silent_from() && self.restart.is_on(sf.id());
        if lasts && self.may_seek() {
            self.seek(cx);
        }
    }

    /// The peer's record does not come here, and there is nobody else to ask who is not silent as well: another way has to be made.
    pub(super) fn looks_for_another(&mut self, on: SubflowId, cx: &mut Cx<'_>) {
        let silent = |sf: &Subflow| cx.now >= sf.is_silent_from();
        if self.position(on).is_some() && self.subflows.iter().all(silent) && !self.restart.seeks {
            self.seek(cx);
        }
    }

    /// Another way is looked for, from whatever address to whatever other one: what is silent does not count for one that works.
    fn seek(&mut self, cx: &mut Cx<'_>) {
        self.restart.seeks = true;
        self.tell_manager(pm::Event::Resume, cx);
        for i in 0..self.subflows.len() {
            if cx.now >= self.subflows[i].is_silent_from() {
                self.wants_replacement(i, cx);
            }
        }
    }

    /// It answers again: the other ways are not wanted any more.
    pub(super) fn silence_is_over(&mut self, i: usize, cx: &mut Cx<'_>) {
        if self.restart.is_on(self.subflows[i].id()) && core::mem::take(&mut self.restart.seeks) {
            self.tell_manager(pm::Event::Stop, cx);
            // With a proof of ours the peer may have gone on there already.
            let asking = |sf: &Subflow| matches!(sf.greeting, Greeting::JoinSyn { .. });
            for other in 0..self.subflows.len() {
                if asking(&self.subflows[other]) {
                    self.reset_subflow(other, SubflowEnd::Replaced, None, cx);
                }
            }
        }
    }

    /// A join may be the way on.
    pub(super) fn seeks_a_way(&self) -> bool {
        self.restart.seeks || self.restarts_anew()
    }

    /// The last subflow is gone. After a fall by a record, a new one is the way on.
    pub(super) fn seeks_another_way(&mut self, cx: &mut Cx<'_>) {
        self.begins_once_more();
        if self.restarts_anew() {
            self.tell_manager(pm::Event::Resume, cx);
        }
    }

    /// The peer wants no join after the subflow ended on which both had gone on: it does not know the connection any more, or the
    /// streams are not what they were.
    pub(super) fn is_forgotten(&self, end: SubflowEnd) -> bool {
        self.restart.again && self.restarts_anew() && refuses(end)
    }

    /// A subflow came up beside the one that we fell on, or after it: the peer, which made it or took it, wants to go on there.
    pub(super) fn restart_on_new(&mut self, i: usize, cx: &mut Cx<'_>) {
        let old = self.restart.on.and_then(|on| self.position(on));
        match old {
            // Where the peer goes on, its record will say.
            Some(_) if self.awaits_record() => {}
            Some(_) if self.restart.refuted => self.refuse(i, cx),
            Some(_) if self.is_proposing() => {}
            Some(_) => self.propose(i, cx),
            None => {
                self.begins_once_more();
                self.restart_on(i, cx);
            }
        }
    }

    /// Both ends make sure of each other on a new subflow.
    pub(super) fn is_proposing(&self) -> bool {
        self.restart.proposed.is_some()
    }

    /// What comes where we were, while both make sure of each other elsewhere, is sent again there or here: our record has said
    /// how far we are.
    pub(super) fn is_left_behind(&self, i: usize, seg: &Segment<'_>) -> bool {
        let carries = !seg.payload.is_empty() || seg.header.flags.fin();
        let here = self.restart.is_on(self.subflows[i].id());
        here && self.is_proposing() && carries && !seg.header.flags.rst()
    }

    /// Puts our record on a new subflow, while the one where we are is silent and may answer again.
    fn propose(&mut self, i: usize, cx: &mut Cx<'_>) {
        if !self.put_record(i) {
            return;
        }
        self.restart.sent = self.said_upto();
        let sf = &self.subflows[i];
        let replaced = self.restart.proposed.replace(Proposal {
            on: sf.id(),
            until: cx.now + long_silence(sf.tcp.base_rto()),
        });
        let replaced = replaced.and_then(|proposal| self.position(proposal.on));
        if let Some(other) = replaced {
            self.reset_subflow(other, SubflowEnd::Replaced, None, cx);
        }
        self.unsettled = true;
    }

    /// The peer's record came on another subflow than the one where both are. Of two that were proposed at once, that of who opened
    /// the connection counts.
    pub(super) fn proposal_answered(
        &mut self,
        i: usize,
        heard: (Said, Ssn),
        rest: &[u8],
        cx: &mut Cx<'_>,
    ) {
        if self.restart.refuted {
            self.refuse(i, cx);
            return;
        }
        if !self.is_proposed(i) && self.subflows[i].record_end.is_some() {
            // It was proposed once, and given up.
            return;
        }
        match self.subflows[i].said.replace(heard) {
            // The other half says the same.
            Some(known) if known == heard => {
                self.moves_if_agreed(i, rest, cx);
                return;
            }
            Some(_) => {
                self.drops_proposal(i, cx);
                return;
            }
            None => {}
        }
        // What is acknowledged here lets the peer move.
        self.restart.sent = self.said_upto();
        match self.goes_on_at(heard.0) {
            Way::On(_) => {}
            Way::Old => {
                self.drops_proposal(i, cx);
                return;
            }
            Way::None => {
                self.is_refuted(cx);
                return;
            }
        }
        let elsewhere = self.is_proposing() && !self.is_proposed(i);
        if elsewhere && self.role == Role::Initiator {
            // It will follow.
            return;
        }
        if !self.is_proposed(i) {
            self.propose(i, cx);
        }
        self.moves_if_agreed(i, rest, cx);
    }

    /// What the peer's record said on a subflow, if it did, is not true any more.
    fn is_overtaken(&self, i: usize) -> bool {
        let said = self.subflows[i].said;
        said.is_some_and(|(said, _)| !matches!(self.goes_on_at(said), Way::On(_)))
    }

    fn is_proposed(&self, i: usize) -> bool {
        let id = self.subflows[i].id();
        let proposal = self.restart.proposed.as_ref();
        proposal.is_some_and(|proposal| proposal.on == id)
    }

    /// Moves where the peer's record is here and right, and it has ours: that is acknowledged, or something, `rest`, follows its own.
    pub(super) fn moves_if_agreed(&mut self, i: usize, rest: &[u8], cx: &mut Cx<'_>) {
        if !self.is_proposed(i) {
            return;
        }
        let sf = &self.subflows[i];
        let has_ours = sf.record.is_none() || !rest.is_empty();
        let Some((said, _)) = sf.said.filter(|_| has_ours && sf.carries_data()) else {
            return;
        };
        match self.goes_on_at(said) {
            Way::On(_) => self.moves_to(i, rest, cx),
            Way::Old => self.drops_proposal(i, cx),
            Way::None => self.is_refuted(cx),
        }
    }

    /// What comes behind the peer's record says that it has moved, and is the stream.
    pub(super) fn comes_behind_record(
        &mut self,
        i: usize,
        ssn: Ssn,
        bytes: &[u8],
        cx: &mut Cx<'_>,
    ) {
        let from = self.subflows[i].said.map(|(_, from)| from);
        let behind = |from: Ssn| match from.after(ssn) {
            true => bytes.get(from.since(ssn) as usize..),
            false => Some(bytes),
        };
        if let Some(rest) = from.and_then(behind).filter(|rest| !rest.is_empty()) {
            self.moves_if_agreed(i, rest, cx);
        }
    }

    /// Goes on on the subflow that was proposed.
    fn moves_to(&mut self, i: usize, rest: &[u8], cx: &mut Cx<'_>) {
        self.restart.proposed = None;
        let old = self.restart.on.and_then(|on| self.position(on));
        self.begins_once_more();
        self.go_on_behind(i, cx);
        if let Some(old) = old {
            self.reset_subflow(old, SubflowEnd::Replaced, None, cx);
        }
        if let Some(heard) = self.subflows[i].said.take() {
            self.follow_record(i, heard, rest, cx);
        }
    }

    /// What one end read is not what the other one sent: both stay where they are, and no other way is looked for.
    fn is_refuted(&mut self, cx: &mut Cx<'_>) {
        self.restart.proposed = None;
        (self.restart.seeks, self.restart.refuted) = (false, true);
        self.tell_manager(pm::Event::Stop, cx);
        for i in 0..self.subflows.len() {
            if self.fell_elsewhere(i) {
                self.refuse(i, cx);
            }
        }
    }

    /// There is no way on here. Who has no other one any more is told by this that the connection ended.
    fn refuse(&mut self, i: usize, cx: &mut Cx<'_>) {
        self.reset_subflow(i, SubflowEnd::ProtocolError, mptcp_specific(), cx);
    }

    /// Nothing came of what was proposed on one, or what was said there is true no more: there may be another one.
    fn drops_proposal(&mut self, i: usize, cx: &mut Cx<'_>) {
        let id = self.subflows[i].id();
        self.restart.proposed.take_if(|proposal| proposal.on == id);
        self.reset_subflow(i, SubflowEnd::TimedOut, None, cx);
        self.proposes_another(id, cx);
    }

    fn proposes_another(&mut self, instead: SubflowId, cx: &mut Cx<'_>) {
        let usable = |i: &usize| {
            self.fell_elsewhere(*i) && self.takes_record(*i, instead) && !self.is_overtaken(*i)
        };
        if self.may_stay()
            && !self.is_proposing()
            && let Some(i) = (0..self.subflows.len()).find(usable)
        {
            self.propose(i, cx);
        }
    }

    /// Nothing came of what was proposed in time.
    pub(super) fn proposal_overdue(&mut self, cx: &mut Cx<'_>) {
        let over = |proposal: &mut Proposal| proposal.until <= cx.now;
        let Some(proposal) = self.restart.proposed.take_if(over) else {
            return;
        };
        if let Some(i) = self.position(proposal.on) {
            self.drops_proposal(i, cx);
        }
    }

    /// A subflow is about to be gone: the one where both are, or the one that was proposed instead.
    pub(super) fn goes_on_without(&mut self, ended: SubflowId, end: SubflowEnd, cx: &mut Cx<'_>) {
        let here = |proposal: &mut Proposal| proposal.on == ended;
        if self.restart.proposed.take_if(here).is_some() {
            match refuses(end) {
                true => self.is_refuted(cx),
                false => self.proposes_another(ended, cx),
            }
        } else if self.may_stay() && self.restart.is_on(ended) {
            match end == SubflowEnd::Finished && self.recv.finished() {
                true => self.is_over_before_it_moves(cx),
                false => self.moves_from(ended, cx),
            }
        }
    }

    /// Both ends said all they had where they were.
    fn is_over_before_it_moves(&mut self, cx: &mut Cx<'_>) {
        self.restart.proposed = None;
        self.finish(CloseCause::Finished, cx);
        for i in 0..self.subflows.len() {
            if self.fell_elsewhere(i) {
                self.reset_subflow(i, SubflowEnd::ConnectionClosed, None, cx);
            }
        }
    }

    /// The subflow is about to be gone on which both are: the one that is proposed is the way on, or another one that is there.
    fn moves_from(&mut self, ended: SubflowId, cx: &mut Cx<'_>) {
        let proposed = self.restart.proposed.take();
        let proposed = proposed.and_then(|proposal| self.position(proposal.on));
        let works = |i: &usize| self.may_go_on_with(*i) && !self.is_overtaken(*i);
        let usable = |i: &usize| self.takes_record(*i, ended) && !self.is_overtaken(*i);
        if let Some(i) = proposed.filter(works) {
            self.moves_to(i, &[], cx);
        } else if let Some(i) = (0..self.subflows.len()).find(usable) {
            self.begins_once_more();
            self.restart_on(i, cx);
        }
        if let Some(i) = proposed.filter(|i| self.fell_elsewhere(*i)) {
            self.reset_subflow(i, SubflowEnd::TimedOut, None, cx);
        }
    }
}

/// The peer wants nothing there, now or later. What a middlebox does, or a peer that has no place at present, tells nothing.
fn refuses(end: SubflowEnd) -> bool {
    matches!(
        end,
        SubflowEnd::ResetByPeer {
            reason: Some(ResetReason::MptcpSpecific),
            transient: false,
        }
    )
}
