//! The effects of what `decide` says. Fallback in the handshake is decided in `handshake/mp_capable`, and carried out by `descent`.

use manypath_wire::tcp::mptcp::MptcpOption;

use crate::api::{FallbackCause, ProtocolLevel, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::offset::Offset;
use crate::conn::dss::reset_reason::interference;
use crate::conn::fallback::ChecksumFailure;
use crate::conn::fallback::decide::{Action, Event, decide};
use crate::conn::fallback::unmapped::SHORT_WAIT;
use crate::conn::send::flight::Flight;
use crate::conn::types::{Cx, SubflowIdx};

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

    /// Queries the peer by MP_FAIL where the held bytes belong.
    fn query(&mut self, numbers: &Numbers, i: SubflowIdx, at: Offset, cx: &mut Cx<'_>) {
        let patience = self.subflows.patience(i);
        let Some(held) = &mut self.subflows[i].unmapped.held else {
            return;
        };
        held.queried = true;
        held.until = cx.now + patience.times(2);
        // The others' RSTs may reach the peer after this.
        held.fail_at = Some(cx.now + SHORT_WAIT.0);
        for other in self.subflows.indices().filter(|other| *other != i) {
            self.reset_for_option_loss(other, cx);
        }
        self.subflows.send_mp_fail(numbers, i, at, cx);
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
            Action::WaitForMapping { probe } => {
                if let Some(held) = &mut self.subflows[i].unmapped.held {
                    held.until = cx.now + SHORT_WAIT.0;
                }
                if probe {
                    self.subflows.probe_others(i, cx);
                }
            }
            Action::MapHeld => {
                self.subflows[i].unmapped.note_out_of_order();
                self.take_held(i, cx);
            }
            Action::DiscardHeld { reset } => self.drop_held(i, reset, cx),
            Action::ResetHeld => {
                self.subflows[i].unmapped.held = None;
                self.flight().reset_for_option_loss(i, cx);
            }
            Action::Query => {
                let cause = FallbackCause::OptionsLost;
                self.level.descend(ProtocolLevel::NoMoreJoins, cause);
                let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                flight.query(&self.numbers, i, self.recv.next(), cx);
            }
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
            Action::ResetFailed => {
                if let Some(failure) = self.fallback.checksum_failure.take() {
                    self.recv.discard(failure.subflow());
                    self.recv.discard(self.subflows[i].id());
                    let mp_fail = self.numbers.mp_fail_option(failure.at());
                    self.flight().reset_with_mp_fail(i, mp_fail, cx);
                }
            }
            Action::Continue { cause, report } => {
                let start = self.subflows.contiguous(&self.send, i);
                self.descent().fall_back_from(i, cause, start, report, cx);
            }
            Action::Resend { cause, report } => {
                if self.subflows[i].drops() {
                    // Some received bytes were dropped: the peer has to resend as well.
                    self.subflows.query_from_here(i, cx);
                }
                self.descent().fall_back_from(i, cause, None, report, cx);
            }
            Action::AnswerQuery => self.descent().answer_query(i, cx),
            Action::FollowPeer { cause } => {
                if self.subflows[i].was_queried() {
                    self.incoming().place_held(i, cx);
                }
                if self.descent().descend_with_peer(i, cause, cx) {
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
                self.incoming().place_held(i, cx);
                self.descent().descend_with_peer(i, cause, cx);
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
}
