//! What passed on a subflow, and what follows when options stop passing.
//!
//! Owns what was seen on a subflow. The decision is [`decide`]'s. Must never change what was recorded by guessing.

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::Ssn;

use crate::api::{FallbackCause, SubflowEnd};
use crate::conn::dss::offset::Offset;
use crate::conn::fallback::{FallbackAction, Others, Standing, decide};
use crate::conn::pipeline::ingest::interference;
use crate::conn::send::retransmit::REPEATED_AT_ONCE;
use crate::conn::{Conn, Cx};

/// Segments without options in a row, among acknowledgements that advance, that make a rule.
const BARE: u8 = 3;

/// Round trips and, where those are short, the longest time that other subflows get to show that options pass on them.
const PATIENCE: u64 = 8;
const MOST_PATIENCE: Duration = Duration::from_millis(800);

/// What a subflow shows about options that do not pass.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionLoss {
    /// The peer spoke without options since it last did with some.
    pub(in crate::conn) heard: bool,
    /// It once did.
    pub(in crate::conn) ever: bool,
    /// Data came without any, which answered first data of ours: if no other piece of its segment has one, none passes.
    pub(in crate::conn) awaits_option: bool,
    /// What has no Data ACK was given to other subflows.
    others_tried: bool,
    pub(in crate::conn) acks: u8,
    pub(in crate::conn) since: Option<Instant>,
    pub(in crate::conn) repeats: u8,
    pub(in crate::conn) repeated: Option<Instant>,
}

impl OptionLoss {
    /// What came says as little as a segment without options.
    pub(in crate::conn) fn note(&mut self) {
        (self.heard, self.ever) = (true, true);
    }

    /// Acknowledgements have come without options for so long that none will come with some.
    fn is_rule(&self, now: Instant, rto: Duration) -> bool {
        self.acks >= BARE && self.since.is_some_and(|since| now.since(since) >= rto)
    }
}

/// How far the peer's mappings on a subflow went, in its own numbers, which nothing on the way changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MappingEdge {
    ends: Option<(Ssn, Offset)>,
}

impl MappingEdge {
    /// A mapping came.
    pub(crate) fn note(&mut self, ssn: Ssn, at: Offset, len: u16) {
        let (end, upto) = (ssn + u32::from(len), at + u64::from(len));
        let (last, most) = self.ends.unwrap_or((end, upto));
        let last = if end.after(last) { end } else { last };
        self.ends = Some((last, most.max(upto)));
    }

    /// A mapping says again, as new bytes of the subflow, what was said before.
    pub(in crate::conn) fn repeats(&self, ssn: Ssn, at: Offset, len: u16) -> bool {
        let again = |(last, most)| !ssn.before(last) && at + u64::from(len) <= most;
        self.ends.is_some_and(again)
    }

    /// Bytes from this number on were never mapped.
    pub(crate) fn ends_before(&self, ssn: Ssn) -> bool {
        self.ends.is_some_and(|(last, _)| !ssn.before(last))
    }
}

impl Conn {
    /// A subflow acknowledges, and what it brings has no options any more: neither do Data ACKs come. // rfc8684:B5
    pub(crate) fn on_ack_without_options(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        sf.option_loss.acks = sf.option_loss.acks.saturating_add(1);
        if sf.option_loss.since.is_none() {
            sf.option_loss.since = Some(cx.now);
        }
        if sf.option_loss.is_rule(cx.now, sf.tcp.rto()) {
            self.options_stopped(i, FallbackCause::OptionsLost, cx);
        }
    }

    /// Options do not pass on a subflow, or not any more.
    pub(crate) fn options_stopped(&mut self, i: usize, cause: FallbackCause, cx: &mut Cx<'_>) {
        if self.subflows[i].was_queried() {
            // The peer's answer decides about both directions.
            return;
        }
        if self.subflows[i].held_unmapped.is_some() && !self.goes_on_with_stream(i) {
            // What is held need not be the stream, so the peer has to be asked.
            self.settle_unmapped(i, cx);
            return;
        }
        match decide(self.evidence_of_loss(i, cx)) {
            FallbackAction::Reset => {
                self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx)
            }
            FallbackAction::Wait => self.try_others(i),
            FallbackAction::GoOn => self.fall_back_to_infinite(i, cause, cx),
            FallbackAction::Again => self.resend_from_data_ack(i, cause, cx),
        }
    }

    /// Lets the other subflows show whether options pass on them, by what has no Data ACK.
    fn try_others(&mut self, i: usize) {
        let (una, sf) = (self.send.una(), &mut self.subflows[i]);
        if !core::mem::replace(&mut sf.option_loss.others_tried, true) {
            let avoid = Some(sf.id());
            let upto = self.send.next().min(una + REPEATED_AT_ONCE);
            self.send.reinject(una..upto, avoid);
        }
    }

    fn evidence_of_loss(&mut self, i: usize, cx: &Cx<'_>) -> Standing {
        let patience = self.patience(i);
        let since = *self.subflows[i].option_loss.since.get_or_insert(cx.now);
        Standing {
            others: self.others(i),
            waited: cx.now.since(since) >= patience,
            straight: self.is_straight(i),
        }
    }

    /// How long other subflows may take to show that options pass on them. Time-outs that doubled while a path was silent
    /// say nothing about that.
    pub(in crate::conn) fn patience(&self, i: usize) -> Duration {
        let tcp = &self.subflows[i].tcp;
        let round_trips = tcp.srtt().unwrap_or(Duration::ZERO).times(PATIENCE);
        (tcp.rto() + self.data_rto()).min(MOST_PATIENCE.max(round_trips))
    }

    /// What is known of the other subflows. One that is silent proves nothing. Of several on which options stopped, the first
    /// one counts as good, so that both ends leave the same one.
    pub(crate) fn others(&self, i: usize) -> Others {
        let others = (0..self.subflows.len()).filter(|j| *j != i);
        let passes =
            |j: usize| match self.is_proven(j) && (j < i || !self.subflows[j].lost_options()) {
                true => Others::Proven,
                false => Others::Unproven,
            };
        let carrying = others.filter(|j| self.subflows[*j].carries_data());
        let most = carrying.map(passes).max().unwrap_or(Others::None);
        match self.awaits_proof() {
            true => most.max(Others::Unproven),
            false => most,
        }
    }

    /// Options are known to pass on another subflow, but none of those was heard about the time from which on bytes without a
    /// mapping are held, or after: they may have died unnoticed.
    pub(in crate::conn) fn proof_is_old(&self, i: usize, others: Others, now: Instant) -> bool {
        let held = self.subflows[i].held_unmapped.as_ref();
        let since = held.map_or(now, |held| held.since);
        let lately = |j: usize| j != i && self.is_proven(j) && self.received_lately(j, since);
        others == Others::Proven && !(0..self.subflows.len()).any(lately)
    }

    /// Options were seen to pass with data on a subflow, they did not stop, and it is not known to be silent.
    fn is_proven(&self, j: usize) -> bool {
        let sf = &self.subflows[j];
        (sf.data_was_acked || sf.data_came_mapped) && sf.answers()
    }

    /// A segment without options came.
    pub(crate) fn on_segment_without_options(&mut self, i: usize) {
        self.subflows[i].option_loss.note();
        if self.is_certainly_alone(i) {
            // What seemed to be missing may have its Data ACK, which did not pass: to send it again would be to say it twice.
            // When the data-level timer fires next, that is decided.
            self.send.forget_all_reinjections();
        }
    }

    /// Nothing was acknowledged at data level for long, and what the peer sent meanwhile came without options: not the data
    /// is missing but the Data ACKs, and to send it again would be to say it twice; or the DATA_FIN is, which no data
    /// carries. True if the connection went down.
    // rfc8684:B5,R3
    pub(crate) fn fall_back_without_data_acks(&mut self, cx: &mut Cx<'_>) -> bool {
        if !self.fallback.is_multipath() {
            return false;
        }
        let una = self.send.una();
        let bare = |i: usize| {
            let sf = &self.subflows[i];
            // Where there were others, what is missing may have gone with them.
            let only = self.is_alone(i) && self.is_straight(i);
            let rule = sf.option_loss.is_rule(cx.now, sf.tcp.rto());
            sf.option_loss.heard
                && sf.carries_data()
                && (sf.has_subflow_acked_only(una) || only || rule)
        };
        if let Some(i) = (0..self.subflows.len()).find(|i| bare(*i)) {
            self.options_stopped(i, FallbackCause::OptionsLost, cx);
        }
        !self.fallback.is_multipath()
    }

    /// Options pass, on what this one came with.
    pub(crate) fn options_pass(&mut self, i: usize) {
        let ever = self.subflows[i].option_loss.ever;
        self.subflows[i].option_loss = OptionLoss {
            ever,
            ..OptionLoss::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_last_mapping_was_never_mapped() {
        let mut told = MappingEdge::default();
        assert!(!told.ends_before(Ssn::new(1)), "nothing was told");
        told.note(Ssn::new(1), Offset::ZERO, 724);
        // A peer that begins again has said nothing but this so far.
        assert!(told.ends_before(Ssn::new(725)));
        assert!(!told.ends_before(Ssn::new(724)));
        // The same again, as new bytes, and then a mapping from before once more.
        told.note(Ssn::new(725), Offset::ZERO, 724);
        told.note(Ssn::new(1), Offset::ZERO, 724);
        assert!(!told.ends_before(Ssn::new(725)));
        assert!(told.ends_before(Ssn::new(1449)));
    }
}
