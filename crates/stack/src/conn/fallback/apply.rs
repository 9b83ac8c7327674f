//! The effects of fallback: here alone the connection descends to a lower protocol level, and a subflow is reset for it. (Plain TCP
//! follows by itself once the infinite mapping was sent, see `level`.)

use manypath_wire::seq::Ssn;

use crate::api::{EventKind, FallbackCause, ProtocolLevel, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::offset::Offset;
use crate::conn::dss::reset_reason::interference;
use crate::conn::fallback::decide::{Action, Event, Report, decide};
use crate::conn::fallback::unmapped::SHORT_WAIT;
use crate::conn::fallback::{ChecksumFailure, UnconfirmedFallback};
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::FinState;
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::types::{Cx, SubflowIdx};
use crate::pm;
use manypath_wire::tcp::mptcp::MptcpOption;

impl Flight<'_> {
    /// Resets a subflow for option loss. // rfc8684:B3
    fn reset_for_option_loss(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.reset_subflow(i, SubflowEnd::OptionsLost, interference(), cx);
    }

    /// Resets a subflow with MP_FAIL. // rfc8684:B6,B11
    fn reset_with_mp_fail(&mut self, i: SubflowIdx, mp_fail: Option<MptcpOption>, cx: &mut Cx<'_>) {
        cx.count.fail_sent += 1;
        self.reset_subflow(i, SubflowEnd::Checksum, mp_fail, cx);
    }
}

impl Conn {
    /// Something happened on a subflow that may end in fallback: decides what follows, and does it.
    pub(in crate::conn) fn fall_back(&mut self, i: SubflowIdx, event: Event, cx: &mut Cx<'_>) {
        let (subflows, send, recv) = (&self.subflows, &self.send, &self.recv);
        let action = decide(&self.fallback.facts(subflows, send, recv, i), event);
        self.apply(i, action, cx);
    }

    fn apply(&mut self, i: SubflowIdx, action: Action, cx: &mut Cx<'_>) {
        match action {
            Action::Keep => {}
            Action::Ignore => cx.count.option_unexpected += 1,
            Action::Reset => self.flight().reset_for_option_loss(i, cx),
            Action::ResetWithFail { at } => {
                let mp_fail = self.numbers.mp_fail_option(at);
                self.recv.discard(self.subflows[i].id());
                self.flight().reset_with_mp_fail(i, mp_fail, cx);
            }
            Action::TryOthers => self.subflows.try_others(&mut self.send, i),
            Action::HoldOn { probe } => {
                if let Some(held) = &mut self.subflows[i].unmapped.held {
                    held.until = cx.now + SHORT_WAIT.0;
                }
                if probe {
                    self.subflows.probe_others(i, cx);
                }
            }
            Action::TakeHeld => {
                self.subflows[i].unmapped.note_out_of_order();
                self.take_held(i, cx);
            }
            Action::DropHeld { reset } => self.drop_held(i, reset, cx),
            Action::ResetHeld => {
                self.subflows[i].unmapped.held = None;
                self.flight().reset_for_option_loss(i, cx);
            }
            Action::Query => self.query(i, cx),
            Action::AwaitAnswer(failed) => {
                // The subflow acknowledged these bytes: TCP will not retransmit them.
                self.subflows[i].maps.rx.clear();
                // Rewritten payload may be longer. If this is the stream, the FIN of the subflow marks its end; else the peer repeats its
                // DATA_FIN. // rfc8684:B13
                self.recv.forget_end();
                let subflow = self.subflows[i].id();
                self.fallback.checksum_failure =
                    Some(ChecksumFailure::new(subflow, failed, cx.now));
                self.mp_fail_due(cx);
            }
            Action::RepeatFail => {
                let rto = self.subflows[i].tcp.rto();
                if let Some(failure) = &mut self.fallback.checksum_failure {
                    *failure = failure.sent_again(cx.now, rto);
                    let at = failure.at();
                    self.subflows.send_mp_fail(&self.numbers, i, at, cx);
                }
            }
            Action::NoteAnswer => self.fallback.on_mp_fail_answered(&self.subflows, i, cx),
            Action::GiveUpFailed => {
                if let Some(failure) = self.fallback.checksum_failure.take() {
                    self.recv.discard(failure.subflow());
                    self.recv.discard(self.subflows[i].id());
                    let mp_fail = self.numbers.mp_fail_option(failure.at());
                    self.flight().reset_with_mp_fail(i, mp_fail, cx);
                }
            }
            Action::Continue { cause, report } => {
                let start = self.subflows.contiguous(&self.send, i);
                self.fall_back_from(i, cause, start, report, cx);
            }
            Action::Resend { cause, report } => {
                if self.subflows[i].drops() {
                    // Some received bytes were dropped: the peer has to resend as well.
                    self.subflows.query_from_here(i, cx);
                }
                self.fall_back_from(i, cause, None, report, cx);
            }
            Action::AnswerQuery => self.answer_query(i, cx),
            Action::FollowPeer { cause } => {
                if self.subflows[i].was_queried() {
                    self.place_held(i, cx);
                }
                if self.descend_with_peer(i, cause, cx) {
                    self.fallback.fallback_confirmed(&mut self.subflows);
                }
            }
            Action::FollowResend { cause, from, known } => {
                self.fallback.resend.by_peer = Some((from, known));
                // The bytes held of the subflow were not the stream.
                self.fallback.checksum_failure = None;
                let unmapped = &mut self.subflows[i].unmapped;
                (unmapped.bytes, unmapped.discarded_mapping) = (0, false);
                self.fallback.withhold_no_more(&mut self.subflows);
                self.place_held(i, cx);
                self.descend_with_peer(i, cause, cx);
            }
        }
    }

    /// Held bytes are missing at data level, and will be resent.
    fn drop_held(&mut self, i: SubflowIdx, reset: bool, cx: &mut Cx<'_>) {
        let held = self.subflows[i].unmapped.held.take();
        let lost = held.map_or(0, |held| held.bytes.len());
        self.subflows[i].unmapped.since.get_or_insert(cx.now);
        self.fallback.withhold_no_more(&mut self.subflows);
        self.discard_unmapped(i, lost, cx);
        if reset {
            self.flight().reset_for_option_loss(i, cx);
        }
    }

    /// Queries the peer by MP_FAIL where the held bytes belong.
    fn query(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let (at, patience) = (self.recv.next(), self.subflows.patience(i));
        let Some(held) = &mut self.subflows[i].unmapped.held else {
            return;
        };
        held.queried = true;
        held.until = cx.now + patience.times(2);
        // The others' RSTs may reach the peer after this.
        held.fail_at = Some(cx.now + SHORT_WAIT.0);
        let cause = FallbackCause::OptionsLost;
        self.level.descend(ProtocolLevel::NoMoreJoins, cause);
        for other in self.subflows.indices().filter(|other| *other != i) {
            self.flight().reset_for_option_loss(other, cx);
        }
        self.subflows.send_mp_fail(&self.numbers, i, at, cx);
    }

    /// The last segment had options: the peer does not know that this data came without, and gets its acknowledgement only when it does.
    fn stop_withholding(&mut self, i: SubflowIdx) {
        let evidence = &self.subflows[i].evidence;
        if !evidence.data_came_mapped && evidence.option_loss.is_ongoing() {
            self.fallback.withhold_no_more(&mut self.subflows);
        }
    }

    /// Falls back to an infinite mapping, and lets the peer know.
    fn fall_back_from(
        &mut self,
        i: SubflowIdx,
        cause: FallbackCause,
        start: Option<(Ssn, Offset)>,
        report: Report,
        cx: &mut Cx<'_>,
    ) {
        let at = self.recv.next();
        if report == Report::Unconfirmed {
            self.stop_withholding(i);
        }
        if self.descend(i, ProtocolLevel::InfiniteMapping, cause, start, cx) && self.subflows.joined
        {
            // An unaware peer resends, as new bytes of this subflow, what others delivered, or continues with what it takes for the next
            // part.
            self.subflows.query_if_needed(i, cx);
        }
        self.report(i, report, at, cx);
    }

    /// The peer fell back: an infinite mapping of our own is due if it needs one.
    fn descend_with_peer(&mut self, i: SubflowIdx, cause: FallbackCause, cx: &mut Cx<'_>) -> bool {
        let level = self.subflows.level_of_answer(&self.send);
        let start = self.subflows.contiguous(&self.send, i);
        self.descend(i, level, cause, start, cx)
    }

    /// Lets the peer know, beside the infinite mapping.
    fn report(&mut self, i: SubflowIdx, report: Report, at: Offset, cx: &mut Cx<'_>) {
        match report {
            Report::None => {}
            Report::Unconfirmed => {
                let again_at = cx.now + self.subflows[i].tcp.rto();
                self.fallback.unconfirmed = Some(UnconfirmedFallback { at, again_at });
                self.subflows.send_mp_fail(&self.numbers, i, at, cx);
            }
            Report::Answer => {
                self.subflows.send_mp_fail(&self.numbers, i, at, cx); // rfc8684:B10
                if self.subflows.joined {
                    self.send_infinite_mapping(i);
                    self.subflows.query_if_needed(i, cx);
                }
            }
        }
    }

    /// MP_FAIL from a peer that was queried about its bytes: the answer, or its own query. Either way it takes what we send without
    /// mappings from now on, and has to learn where that begins. Its infinite mapping will show where its own stream continues, and until
    /// then its bytes are held. No further MP_FAIL answers it, or the exchange would never end.
    // rfc8684:B10
    fn answer_query(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let level = ProtocolLevel::InfiniteMapping;
        let start = self.subflows.contiguous(&self.send, i);
        self.descend(i, level, FallbackCause::PeerFailed, start, cx);
        self.fallback.resend.query_sent = true;
        self.send_infinite_mapping(i);
    }

    fn send_infinite_mapping(&mut self, i: SubflowIdx) {
        self.fallback.send_infinite_mapping(
            &self.opts,
            &self.numbers,
            &self.send,
            &mut self.subflows,
            i,
        );
    }

    /// Descends, if the connection is not there or lower already. From `start` on what is in flight continues the stream; without it, what
    /// is in flight is void, and everything without Data ACK is resent. // rfc8684:B4,B9
    fn descend(
        &mut self,
        i: SubflowIdx,
        level: ProtocolLevel,
        cause: FallbackCause,
        start: Option<(Ssn, Offset)>,
        cx: &mut Cx<'_>,
    ) -> bool {
        if !self.level.descend(level, cause) {
            return false;
        }
        match start {
            Some(_) => self.fallback.resend.infinite_from = start,
            None => self
                .fallback
                .rewinds_to_data_ack(&mut self.send, &self.subflows, i),
        }
        self.count_fallback(cause, cx);
        self.become_plain(i, cx);
        true
    }

    /// Counts a fallback, and lets the path manager and the application know.
    fn count_fallback(&mut self, cause: FallbackCause, cx: &mut Cx<'_>) {
        match cause {
            FallbackCause::NotWanted => {}
            FallbackCause::PeerWithout => cx.count.fallback_handshake += 1,
            FallbackCause::ThirdAckWithout => cx.count.fallback_third_ack += 1,
            FallbackCause::FirstDataWithout => cx.count.fallback_first_data += 1,
            FallbackCause::OptionsLost => cx.count.fallback_options_lost += 1,
            FallbackCause::Checksum => cx.count.fallback_checksum += 1,
            FallbackCause::PeerFailed => cx.count.fallback_peer_fail += 1,
            FallbackCause::PeerInfinite => cx.count.fallback_peer_infinite += 1,
        }
        self.paths.notify_manager(pm::Event::Stop, cx);
        self.events.push(EventKind::FellBack(cause));
    }

    /// Falls back without sending an option: no option would arrive.
    pub(in crate::conn) fn fall_back_silently(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if self
            .level
            .descend(ProtocolLevel::PlainTcp, FallbackCause::OptionsLost)
        {
            self.count_fallback(FallbackCause::OptionsLost, cx);
            self.become_plain(i, cx);
        }
    }

    /// Falls back during the handshake.
    pub(in crate::conn) fn go_plain(
        &mut self,
        i: SubflowIdx,
        cause: FallbackCause,
        cx: &mut Cx<'_>,
    ) {
        self.subflows[i].handshake.state = HandshakeState::Plain;
        if self.level.descend(ProtocolLevel::PlainTcp, cause) {
            self.count_fallback(cause, cx);
        }
        self.send.open_window();
    }

    /// Switches the only subflow to raw bytes in both directions, and gives up joins under way.
    fn become_plain(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.flight().leave_others(i, cx);
        let end = self.recv.forget_end();
        self.count_waiting(i);
        // A rewritten stream ends elsewhere than the peer's DATA_FIN marks, and its FIN shows where. // rfc8684:B13
        if let Some(end) = end.filter(|end| *end == self.recv.next()) {
            self.recv.note_end(end);
        }
        self.fallback.withholds_until_answered(&self.subflows, i);
        let sf = &mut self.subflows[i];
        sf.handshake.state = HandshakeState::Plain;
        sf.evidence.acked_by = AckedBy::Peer;
        sf.maps.rx.clear();
        sf.signals.queue.clear();
        let peer_finished = sf.closing.peer_finished;
        // From here on only the subflow's own right edge limits the peer, and its bytes are stored or lost.
        sf.tcp.confine_recv_window(self.recv.allowance());
        self.send.open_window();
        self.send.forget_all_reinjections();
        // No acknowledgement but the subflow's exists any more. // rfc8684:B13
        if self.fallback.resend.from.is_none() {
            let upto = self.subflows[i].maps.tx.lowest();
            self.send
                .subflow_acked(upto.unwrap_or_else(|| self.send.next()));
        }
        // From here on a FIN of the subflow ends the stream: a DATA_FIN that was sent already is repeated as one, and a FIN received before
        // fallback counts now.
        if matches!(self.send.fin.state, FinState::Sent | FinState::Acked) {
            self.send.fin.state = FinState::Queued;
        }
        if peer_finished {
            self.ends_with_subflow(i);
        }
    }
}
