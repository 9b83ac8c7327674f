//! Fallback to plain TCP on a running connection: MP_FAIL and the infinite mapping (RFC 8684 section 3.7).
//!
//! After a DSS checksum failure on the last usable subflow, MP_FAIL is sent and the subflow's bytes are held, in subflow order, until the peer
//! answers with MP_FAIL or an infinite mapping. From then on the subflow's order is the stream's order, and the held bytes are part of it.
//! Owns the failure and the switch to raw bytes. Must never count held bytes before the answer or a time-out.

use manypath_tcp::time::Instant;
use manypath_wire::dsn::Dsn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{Fail, Mapping, MptcpOption};

use crate::api::{ConnOptions, ProtocolLevel, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::RxMapping;
use crate::conn::dss::offset::Offset;
use crate::conn::dss::reset_reason::interference;
use crate::conn::fallback::decide::{Event, Failed, Place};
use crate::conn::fallback::{ChecksumFailure, Fallback};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SegmentCx, SubflowIdx};

/// How often a join's third ACK is repeated before nothing waits for its answer.
const PROOFS_IN_VAIN: u8 = 2;

impl Numbers {
    /// MP_FAIL always has 64 bits. // rfc8684:B6
    pub(in crate::conn) fn mp_fail_option(&self, at: Offset) -> Option<MptcpOption> {
        let dsn = self.rx?.dsn(at);
        Some(MptcpOption::Fail(Fail { dsn }))
    }
}

impl Fallback {
    /// Notes a segment received while an MP_FAIL is unanswered, old data again if `again`. A peer from which only segments already in
    /// flight came has not refused to answer: its path is down. Nor has one that retransmits acknowledged data: our acknowledgements do not
    /// reach it either.
    pub(crate) fn received_while_failing(
        &mut self,
        subflows: &Subflows,
        i: SubflowIdx,
        again: bool,
        now: Instant,
    ) {
        let sf = &subflows[i];
        if let Some(checksum_failure) = self
            .checksum_failure
            .as_mut()
            .filter(|f| f.subflow == sf.id())
        {
            checksum_failure.peer_alive |= !again && now > checksum_failure.since + sf.tcp.rto();
        }
    }

    /// The peer received our MP_FAIL. It once had other subflows, so it may continue on this one or restart on it; its infinite mapping
    /// shows which.
    pub(in crate::conn) fn on_mp_fail_answered(
        &mut self,
        subflows: &Subflows,
        i: SubflowIdx,
        cx: &Cx<'_>,
    ) {
        let again_at = cx.now + subflows[i].tcp.rto().times(2);
        if let Some(checksum_failure) = &mut self.checksum_failure {
            (checksum_failure.answered, checksum_failure.again_at) = (true, again_at);
        }
    }

    /// Where our infinite mapping starts: at the first byte that the peer may not have. // rfc8684:B9
    pub(crate) fn infinite_start(&self, ssn: Ssn, at: Offset) -> (Ssn, Offset) {
        self.resend.infinite_from.unwrap_or((ssn, at))
    }

    /// Sends the infinite mapping on a segment of its own, as data may lose it.
    pub(in crate::conn) fn send_infinite_mapping(
        &mut self,
        opts: &ConnOptions,
        numbers: &Numbers,
        send: &SendQueue,
        subflows: &mut Subflows,
        i: SubflowIdx,
    ) {
        let option = subflows.infinite_mapping_without_data(opts, numbers, send, self, i);
        let sf = &mut subflows[i];
        sf.signals.queue.retain(|waiting| *waiting != option);
        sf.signals.queue.push_back(option);
        if sf.signals.is_due() {
            sf.tcp.force_ack();
        }
    }

    /// A mapping while an MP_FAIL is unanswered: a peer that did not receive it resends the failed data as new bytes of the subflow. Then
    /// only the new bytes count; and an infinite mapping that names them continues them, and does not begin behind them. // rfc8684:B9,R3
    pub(crate) fn remapped_while_failing(
        &mut self,
        numbers: &Numbers,
        recv: &mut ReceiveQueue,
        sf: &mut Subflow,
        mapping: &Mapping,
        fin: bool,
        segment: SegmentCx,
    ) {
        let (Some(numbers), Some(checksum_failure)) = (numbers.rx, &mut self.checksum_failure)
        else {
            return;
        };
        if checksum_failure.subflow != sf.id() {
            return;
        }
        (checksum_failure.bare, checksum_failure.mapped_at) = (false, segment.delivered);
        let at = numbers.place(mapping.dsn, recv.next());
        let new = segment.delivered.is_some() && mapping.ssn.after(checksum_failure.ssn);
        if new && at == Some(checksum_failure.at) && checksum_failure.subflow == sf.id() {
            (checksum_failure.ssn, checksum_failure.held) = (mapping.ssn, 0);
            recv.discard(checksum_failure.subflow);
        }
        let len = mapping.len.saturating_sub(u16::from(fin));
        if let Some(at) = at.filter(|_| segment.delivered.is_some() && len > 0) {
            checksum_failure.note_mapping(mapping.ssn, at);
            sf.evidence.mapping_edge.note(mapping.ssn, at, len);
        }
    }

    fn place_of_infinite(
        &self,
        numbers: &Numbers,
        recv: &ReceiveQueue,
        subflows: &Subflows,
        i: SubflowIdx,
        mapping: &Mapping,
        segment: SegmentCx,
    ) -> Place {
        let failure = self.checksum_failure;
        if subflows.joined && failure.is_some() && segment.ssn.is_none() {
            return Place::WithoutData;
        }
        let unknown =
            |f: &ChecksumFailure| subflows.is_unplaced(numbers, recv, i, f, mapping, segment);
        if failure.as_ref().is_some_and(unknown) {
            return Place::Unknown;
        }
        let resend = self.resend_of_peer(numbers, recv, subflows, i, mapping, segment);
        match resend {
            Some((from, known)) => Place::Resends { from, known },
            None if self.skips_something(numbers, recv, subflows, i, mapping, segment) => {
                Place::Skips
            }
            None => Place::Continues,
        }
    }
}

impl Subflows {
    /// Another subflow than the failed one delivers something that was not in flight when the peer received the MP_FAIL and left it.
    pub(in crate::conn) fn works_beside_failing(
        &self,
        i: SubflowIdx,
        checksum_failure: &ChecksumFailure,
        now: Instant,
    ) -> bool {
        let other = self
            .find(checksum_failure.subflow)
            .filter(|failed| *failed != i);
        let late = |failed: SubflowIdx| now > checksum_failure.since + self[failed].tcp.rto();
        other.is_some_and(late) && !checksum_failure.answered
    }

    /// MP_FAIL for the next ACK, which is sent now if two have not been sent only for options before. // rfc8684:G2
    pub(crate) fn send_mp_fail(
        &mut self,
        numbers: &Numbers,
        i: SubflowIdx,
        at: Offset,
        cx: &mut Cx<'_>,
    ) {
        let Some(option) = numbers.mp_fail_option(at) else {
            return;
        };
        cx.count.fail_sent += 1;
        let sf = &mut self[i];
        sf.signals
            .queue
            .retain(|waiting| !matches!(waiting, MptcpOption::Fail(_)));
        sf.signals.queue.push_front(option);
        if sf.signals.is_due() {
            sf.tcp.force_ack();
        }
    }

    /// The peer needs an infinite mapping if data in flight has no Data ACK, or, where there were other subflows, for what follows.
    pub(in crate::conn) fn level_of_answer(&self, send: &SendQueue) -> ProtocolLevel {
        match self.joined || send.una() < send.next() {
            true => ProtocolLevel::InfiniteMapping,
            false => ProtocolLevel::PlainTcp,
        }
    }

    /// Every other subflow never came up or is being reset. Those in their handshake do not block fallback: the peer, which may have fallen
    /// back already, will refuse them.
    pub(crate) fn is_alone(&self, i: SubflowIdx) -> bool {
        let idle = |sf: &Subflow| !sf.was_up() || sf.closing.reset_with.is_some();
        self.each().all(|(other, sf)| other == i || idle(sf))
    }

    /// As `is_alone`, or the others are potentially failed: a peer that continues with one resets them, but the RST may not get through
    /// there.
    pub(in crate::conn) fn is_last_usable(&self, i: SubflowIdx) -> bool {
        let mut others = self.indices().filter(|other| *other != i);
        self.is_alone(i) || others.all(|other| !self[other].is_active())
    }

    /// As `is_alone`; and no other subflow ever came up, nor can have at the peer by a third ACK of ours: both ends send in stream order on
    /// this one.
    pub(crate) fn is_certainly_alone(&self, i: SubflowIdx) -> bool {
        self.is_alone(i) && !self.joined && !self.has_pre_established()
    }

    /// A third ACK of ours is unanswered: its subflow may have come up for the peer.
    pub(crate) fn has_pre_established(&self) -> bool {
        self.pre_established_within(u8::MAX)
    }

    /// As `has_pre_established`, and it was not repeated in vain so often that nothing should wait for it.
    pub(crate) fn awaits_pre_established(&self) -> bool {
        self.pre_established_within(PROOFS_IN_VAIN)
    }

    fn pre_established_within(&self, most: u8) -> bool {
        let under_way = |sf: &Subflow| match sf.handshake.state {
            HandshakeState::JoinAck { repeats, .. } => {
                repeats < most && sf.closing.reset_with.is_none()
            }
            _ => false,
        };
        self.iter().any(under_way)
    }

    /// SSN and offset of the first byte without Data ACK, if the subflow's order is the stream's from there on.
    pub(in crate::conn) fn contiguous(
        &self,
        send: &SendQueue,
        i: SubflowIdx,
    ) -> Option<(Ssn, Offset)> {
        let (una, next) = (send.una(), send.next());
        let ssn = self[i].maps.tx.contiguous(una, next)?;
        Some((ssn, una))
    }

    /// What is in flight on a subflow is in stream order.
    pub(crate) fn is_contiguous(&self, send: &SendQueue, i: SubflowIdx) -> bool {
        self.contiguous(send, i).is_some()
    }

    /// The peer's data on this subflow is not the next part of its stream.
    pub(in crate::conn) fn has_gaps(&self, recv: &ReceiveQueue, i: SubflowIdx) -> bool {
        let ahead = |m: &RxMapping| m.at > recv.next() || m.lost || m.incomplete;
        recv.has_holes() || self[i].maps.rx.partial().is_some_and(ahead)
    }

    /// The peer restarts on the subflow that failed, and it is unknown at which of the received bytes; or it restarts with data that
    /// arrived on other subflows: what is rewritten may have another length, so nobody can count which bytes to skip.
    fn is_unplaced(
        &self,
        numbers: &Numbers,
        recv: &ReceiveQueue,
        i: SubflowIdx,
        failure: &ChecksumFailure,
        mapping: &Mapping,
        segment: SegmentCx,
    ) -> bool {
        let (next, sf) = (recv.next(), &self[i]);
        let again = failure.subflow == sf.id() && sf.evidence.mapping_edge.ends_before(mapping.ssn);
        let known = recv
            .position_of(numbers, mapping)
            .is_some_and(|at| at < next);
        let unknown = |here: Ssn| !failure.begins_here(mapping.ssn, here);
        again && (known || segment.ssn.is_some_and(unknown))
    }
}

impl Flight<'_> {
    /// Resets all subflows but this one.
    pub(in crate::conn) fn leave_others(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        for other in self.subflows.indices().filter(|other| *other != i) {
            // One that never came up gave no evidence of option loss.
            let end = match self.subflows[other].was_up() {
                true => SubflowEnd::OptionsLost,
                false => SubflowEnd::Replaced,
            };
            self.reset_subflow(other, end, interference(), cx);
        }
    }

    /// Old data was resent with an infinite mapping, as the beginning of what is no longer mapped: the sender fell back when nothing was
    /// missing here. // rfc8684:B14
    pub(in crate::conn) fn repeated_infinite(
        &self,
        recv: &ReceiveQueue,
        i: SubflowIdx,
        seg: &Segment<'_>,
    ) -> Option<Mapping> {
        let mapping = seg.options.mptcp.dss().and_then(|dss| dss.mapping);
        let mapping = mapping.filter(Mapping::is_infinite)?;
        let (subflows, sf) = (&*self.subflows, &self.subflows[i]);
        let whole = !sf.drops()
            && !subflows.has_gaps(recv, i)
            && subflows.is_contiguous(self.send, i)
            && subflows.is_certainly_alone(i);
        let acks = sf.tcp.acks_what_was_sent(seg.header.ack);
        (self.level.is_multipath() && acks && whole).then_some(mapping)
    }
}

impl Conn {
    /// A DSS checksum did not match: a middlebox rewrites payload on this path. // rfc8684:B6,B8,B9,B11
    pub(crate) fn on_checksum_failure(&mut self, i: SubflowIdx, m: &RxMapping, cx: &mut Cx<'_>) {
        cx.count.dss_checksum_failed += 1;
        let event = Event::ChecksumFailed {
            failed: Failed {
                at: m.at,
                ssn: m.ssn,
                len: m.len,
            },
            contiguous: m.at == self.recv.next() && !self.recv.has_holes() && !m.lost,
        };
        self.fall_back(i, event, cx);
    }

    /// Repeats MP_FAIL until it is answered; the acknowledgement that carries it may be lost. // rfc8684:B9
    pub(crate) fn mp_fail_due(&mut self, cx: &mut Cx<'_>) {
        let due = |f: &ChecksumFailure| f.again_at <= cx.now;
        let Some(failure) = self.fallback.checksum_failure.filter(due) else {
            return;
        };
        if let Some(i) = self.subflows.find(failure.subflow) {
            let event = Event::FailDue {
                sent: failure.sent,
                alive: failure.peer_alive,
                lost: self.subflows[i].evidence.option_loss.is_ongoing(),
            };
            self.fall_back(i, event, cx);
        }
    }

    /// Another subflow came up, or recovered, while an MP_FAIL is unanswered. The peer began to use it before it received the MP_FAIL, and
    /// will not answer now (nor do we, see [`decide`](super::decide::decide)): the failed data is resent there. // rfc8684:B8
    pub(crate) fn give_up_failed_subflow(&mut self, cx: &mut Cx<'_>) {
        let failed = self.fallback.checksum_failure;
        if let Some(i) = failed.and_then(|f| self.subflows.find(f.subflow)) {
            self.fall_back(i, Event::OtherWorks, cx);
        }
    }

    /// The peer could not verify our data, or answers our MP_FAIL. // rfc8684:B7,B10,B13
    pub(crate) fn on_mp_fail(&mut self, i: SubflowIdx, fail: Fail, cx: &mut Cx<'_>) {
        cx.count.fail_received += 1;
        if self.subflows[i].unmapped.held.is_some() && !self.subflows[i].was_queried() {
            // The answer, or an MP_FAIL about our data.
            self.settle_unmapped(i, cx);
            return;
        }
        let numbers = self.numbers.tx;
        let from = numbers.and_then(|n| n.offset(Dsn::new(fail.dsn.get()), self.send.una()));
        let event = Event::Fail {
            known: from.is_some_and(|from| from <= self.send.next()),
            next: self.recv.next(),
        };
        self.fall_back(i, event, cx);
    }

    /// From now on the peer's subflow order is the stream's order. // rfc8684:B14,B15,D18
    pub(crate) fn on_infinite(&mut self, i: SubflowIdx, mapping: &Mapping, cx: &mut Cx<'_>) {
        if self.life.fast_close.is_some() {
            self.ending().reset_for_fast_close(i, cx);
            return;
        }
        let place = self.fallback.place_of_infinite(
            &self.numbers,
            &self.recv,
            &self.subflows,
            i,
            mapping,
            cx.segment,
        );
        if let (Place::WithoutData, Some(failure), Some(at)) = (
            place,
            &mut self.fallback.checksum_failure,
            self.recv.position_of(&self.numbers, mapping),
        ) {
            failure.note_infinite(mapping.ssn, at);
        }
        let next = self.recv.next();
        self.fall_back(i, Event::Infinite { place, next }, cx);
    }
}

#[cfg(test)]
mod tests;
