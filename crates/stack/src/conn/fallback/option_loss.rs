//! Whether MPTCP options pass on a subflow, and what follows when they stop passing (RFC 8684 section 3.7).
//!
//! Keeps the evidence (`subflow::evidence`); `decide` makes the decision. Must never change recorded evidence by guessing.

use manypath_tcp::machine::Outcome;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;

use crate::api::FallbackCause;
use crate::conn::Conn;
use crate::conn::fallback::Fallback;
use crate::conn::fallback::decide::{Event, Held, Others, Time};
use crate::conn::send::queue::SendQueue;
use crate::conn::send::retransmit::REPEATED_AT_ONCE;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Limit of the wait for other subflows to show that options pass: so many round trips or, where those are short, this time.
const PATIENCE: u64 = 8;
const MOST_PATIENCE: Duration = Duration::from_millis(800);

impl Subflows {
    /// Tests whether options pass on the other subflows, by reinjecting data without Data ACK.
    pub(in crate::conn) fn try_others(&mut self, send: &mut SendQueue, i: SubflowIdx) {
        let (una, sf) = (send.una(), &mut self[i]);
        if !core::mem::replace(&mut sf.evidence.option_loss.others_tried, true) {
            let avoid = Some(sf.id());
            let upto = send.next().min(una + REPEATED_AT_ONCE);
            send.reinject(una..upto, avoid);
        }
    }

    /// Whether the other subflows had time to show that options pass there since they stopped here.
    fn time_since_loss(&mut self, i: SubflowIdx, now: Instant) -> Time {
        let patience = self.patience(i);
        let since = *self[i].evidence.option_loss.since.get_or_insert(now);
        match now.since(since) >= patience {
            true => Time::Enough,
            false => Time::Short,
        }
    }

    /// How long other subflows get to show that options pass on them. RTOs that backed off on an unresponsive path are no measure of that.
    pub(in crate::conn) fn patience(&self, i: SubflowIdx) -> Duration {
        let tcp = &self[i].tcp;
        let round_trips = tcp.srtt().unwrap_or(Duration::ZERO).times(PATIENCE);
        (tcp.rto() + self.data_rto()).min(MOST_PATIENCE.max(round_trips))
    }

    /// Evidence about the other subflows. Of several on which options stopped, the first one counts as proven, so that both ends reset
    /// the same one.
    pub(crate) fn others(&self, i: SubflowIdx) -> Others {
        let others = self.indices().filter(|j| *j != i);
        let passes = |j: SubflowIdx| {
            let (passed, lost) = (self[j].passed_options(), self[j].lost_options());
            match (passed, self[j].is_active()) {
                (true, true) if j < i || !lost => Others::Proven,
                (true, false) if !lost => Others::Silent,
                _ => Others::Unproven,
            }
        };
        let carrying = others.filter(|j| self[*j].carries_data());
        let most = carrying.map(passes).max().unwrap_or(Others::None);
        match self.awaits_pre_established() {
            true => most.max(Others::Unproven),
            false => most,
        }
    }

    /// Options are known to pass on another subflow, but none such received anything about the time from which unmapped bytes are held, or
    /// after: they may have failed unnoticed.
    pub(in crate::conn) fn proof_is_old(
        &self,
        i: SubflowIdx,
        others: Others,
        now: Instant,
    ) -> bool {
        let held = self[i].unmapped.held.as_ref();
        let since = held.map_or(now, |held| held.since);
        let lately = |j: SubflowIdx| j != i && self.is_proven(j) && self.received_lately(j, since);
        others == Others::Proven && !self.indices().any(lately)
    }

    /// Options were seen to pass with data on a subflow, and it is not potentially failed.
    fn is_proven(&self, j: SubflowIdx) -> bool {
        self[j].passed_options() && self[j].is_active()
    }

    /// A segment without options came.
    pub(crate) fn on_segment_without_options(&mut self, send: &mut SendQueue, i: SubflowIdx) {
        self[i].evidence.option_loss.note();
        if self.is_certainly_alone(i) {
            // The data may have its Data ACK, which was lost with the options: reinjection would send it twice. The next data-level
            // time-out decides.
            send.forget_all_reinjections();
        }
    }

    /// Options pass: resets the evidence.
    pub(crate) fn options_pass(&mut self, i: SubflowIdx) {
        let loss = &mut self[i].evidence.option_loss;
        *loss = loss.ended();
    }

    /// An acknowledgement came without options any more: Data ACKs do not come either. True if that is the rule by now. // rfc8684:B5
    pub(crate) fn note_ack_without_options(&mut self, i: SubflowIdx, now: Instant) -> bool {
        let sf = &mut self[i];
        sf.evidence.option_loss.acks = sf.evidence.option_loss.acks.saturating_add(1);
        if sf.evidence.option_loss.since.is_none() {
            sf.evidence.option_loss.since = Some(now);
        }
        sf.evidence.option_loss.is_rule(now, sf.tcp.rto())
    }

    /// The subflow on which nothing was acknowledged at data level for long, while the peer's segments came without options: the Data ACKs
    /// are missing, not the data, and resending would send it twice; or the DATA_FIN is missing, which no data carries. // rfc8684:B5,R3
    pub(crate) fn lacks_data_acks(&self, send: &SendQueue, now: Instant) -> Option<SubflowIdx> {
        let una = send.una();
        let bare = |i: SubflowIdx| {
            let sf = &self[i];
            // With other subflows, the data may have been lost on those.
            let only = self.is_alone(i) && self.is_contiguous(send, i);
            // A peer that has acknowledged nothing of what is in flight may not have received it: it sent without options before, as one
            // that repeats its handshake so does, and the path is slow.
            let only = only && (sf.tcp.snd_una_ssn() != Ssn::new(1) || !sf.tcp.awaits_ack());
            let rule = sf.evidence.option_loss.is_rule(now, sf.tcp.rto());
            sf.evidence.option_loss.is_ongoing()
                && sf.carries_data()
                && (sf.has_subflow_acked_only(una) || only || rule)
        };
        self.indices().find(|i| bare(*i))
    }
}

impl Fallback {
    /// Notes data that was received before: what is withheld, and what comes without options.
    pub(in crate::conn) fn note_repeated(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        seg: &Segment<'_>,
        outcome: &Outcome,
    ) {
        if outcome.arrival.in_order().is_none() {
            self.withheld_again(subflows, i, seg);
        }
        if outcome.arrival.duplicate && seg.options.mptcp.is_empty() {
            subflows[i].evidence.option_loss.note_before();
        }
    }
}

impl Conn {
    /// Options do not pass on a subflow, or no longer.
    pub(crate) fn options_stopped(&mut self, i: SubflowIdx, cause: FallbackCause, cx: &mut Cx<'_>) {
        if self.subflows.held_bytes(&self.recv, i) == Held::Elsewhere {
            // Held bytes need not be the stream, so the peer is queried.
            self.settle_unmapped(i, cx);
        } else if self.subflows.held_bytes(&self.recv, i) != Held::Queried {
            let time = self.subflows.time_since_loss(i, cx.now);
            self.fall_back(i, Event::OptionsStopped { cause, time }, cx);
        }
    }

    /// The peer itself acknowledged data on a subflow, and never at data level. // rfc8684:B3
    pub(in crate::conn) fn on_data_never_acked(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if self.subflows.is_last_usable(i) {
            // No other carries its data.
            self.options_stopped(i, FallbackCause::OptionsLost, cx);
        } else {
            self.fall_back(i, Event::NoDataAck, cx);
        }
    }
}

#[cfg(test)]
mod tests;
