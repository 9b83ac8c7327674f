//! Processes one incoming segment: TCP, then options and payload. Rejected segments change no data.

use manypath_tcp::cc::GroupView;
use manypath_tcp::machine::{Context, Ended, Outcome, Reject, Verdict};
use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Flags;

use crate::api::Role;
use crate::conn::Conn;
use crate::conn::fallback::decide::Event;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::FinState;
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::SubflowId;

/// The segment carries a Data ACK.
fn has_data_ack(seg: &Segment<'_>) -> bool {
    let dss = seg.options.mptcp.dss();
    dss.is_some_and(|dss| dss.data_ack.is_some())
}

/// The segment without payload, FIN and PSH.
fn without_payload<'a>(seg: &Segment<'a>) -> Segment<'a> {
    let mut bare = *seg;
    bare.payload = &[];
    bare.payload_sum = None;
    bare.header.flags = seg.header.flags.without(Flags::FIN.with(Flags::PSH));
    bare
}

impl Flight<'_> {
    /// A segment acknowledged data of ours on a subflow, and had a Data ACK or not.
    fn on_subflow_acked(
        &mut self,
        paths: &mut Paths,
        i: SubflowIdx,
        carries_data_ack: bool,
        cx: &mut Cx<'_>,
    ) {
        let una = self.send.una();
        let sf = &mut self.subflows[i];
        let (subflow_acked_only, data_ack_delay) = (
            &mut sf.reinjection.subflow_acked_only,
            &mut sf.reinjection.data_ack_delay,
        );
        subflow_acked_only.acked(una);
        // If an ACK lost its options, the cause of the delay is unknown.
        let counts = carries_data_ack || sf.evidence.acked_by != AckedBy::Peer;
        sf.maps.tx.acked(sf.tcp.snd_una_ssn(), |part| {
            if counts && part.end > una {
                data_ack_delay.acknowledged(part.clone(), cx.now);
            }
            subflow_acked_only.note(part, una);
        });
        let subflow_una = sf.tcp.snd_una_ssn();
        sf.maps.duplicates.acked(subflow_una);
        // Sequence numbers wrap.
        sf.reinjection
            .penalised
            .take_if(|upto| upto.before_eq(subflow_una));
        sf.maps.release_retained();
        if (sf.is_stale() || sf.liveness.potentially_failed) && sf.tcp.backoffs() == 0 {
            self.recovers(paths, i, cx);
        }
    }
}

impl Conn {
    /// Processes a segment of one of our subflows. True: it acknowledges what our handshake never sent, and a RST must be sent (RFC 9293
    /// section 3.10.7.3).
    pub(crate) fn on_segment(&mut self, id: SubflowId, seg: &Segment<'_>, cx: &mut Cx<'_>) -> bool {
        let Some(i) = self.subflows.find(id) else {
            return false;
        };
        // New payload for which the connection has no room at all, though its subflow was once given a window. The subflow is left to
        // retransmit it: data that it acknowledged and the connection dropped would take much longer.
        let established = self.handshake.is_established() && self.level.is_multipath();
        let new =
            !seg.payload.is_empty() && seg.header.seq.after_eq(self.subflows[i].tcp.rcv_nxt());
        let undisturbed = self.fallback.checksum_failure.is_none();
        if established && new && undisturbed && self.recv.allowance() == 0 {
            cx.count.beyond_window_bytes += seg.payload.len() as u64;
            self.subflows[i].tcp.force_ack();
            return self.process_segment(i, &without_payload(seg), cx);
        }
        self.process_segment(i, seg, cx)
    }

    fn process_segment(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) -> bool {
        if self
            .handshake
            .arrived_before_keys(&mut self.subflows, i, seg)
        {
            cx.count.option_unexpected += 1;
            return false;
        }
        let handshake_is_done = matches!(
            self.subflows[i].handshake.state,
            HandshakeState::Done | HandshakeState::Plain
        );
        self.subflows.dirty |= !(handshake_is_done && self.handshake.is_established());
        let tcp = &self.subflows[i].tcp;
        if !seg.payload.is_empty()
            && (seg.header.seq != tcp.rcv_nxt() || tcp.reassembly_memory() > 0)
        {
            self.subflows.share_reassembly(&self.opts, &self.recv, i);
        }
        // Duplicate ACKs that were sent for an option are no sign of loss. // rfc8684:G1,A15
        let congestion_signal_ok = !seg.options.mptcp.has_signal();
        self.handshake
            .on_handshake_repeated(&mut self.subflows, self.level, i, seg, cx);
        self.subflows[i].evidence.mappings_before = self.subflows[i].evidence.mappings;
        let ctx = Context {
            group: GroupView {
                paths: &self.subflows.samples,
                me: i.0,
            },
            congestion_signal_ok,
        };
        let tcp = &mut self.subflows.list[i.0].tcp;
        let before = tcp.challenges();
        let outcome = tcp.on_segment(cx.now, seg, &ctx);
        let after = tcp.challenges();
        cx.count.challenge_ack += after.0 - before.0;
        cx.count.reply_limited += after.1 - before.1;
        if outcome.ended == Some(Ended::Reset) {
            self.subflows.dirty = true;
            self.ending().on_reset(i, seg, cx);
            return false;
        }
        if let Verdict::Rejected(why) = outcome.verdict {
            cx.count.segment_unacceptable += u64::from(why != Reject::Closed);
            cx.count.option_unacceptable_segment += u64::from(!seg.options.mptcp.is_empty());
            // A RST that may be forged (RFC 5961 section 3.2). If the peer sent it just before its address went, the challenge ACK is not
            // answered, and a pure receiver would wait for ever: the subflow is probed.
            if why == Reject::Reset
                && self.subflows[i].carries_data()
                && self.joins().may_replace(&self.opts)
            {
                self.subflows[i].liveness.receiver_probe.probe_now(cx.now);
            }
            return why == Reject::Handshake;
        }
        self.after_tcp(i, seg, &outcome, cx);
        false
    }

    /// What a segment that TCP accepted, or had before, means for the connection.
    fn after_tcp(&mut self, i: SubflowIdx, seg: &Segment<'_>, outcome: &Outcome, cx: &mut Cx<'_>) {
        let tcp = &self.subflows[i].tcp;
        let ssn = tcp.rcv_nxt_ssn() - tcp.rcv_nxt().since(seg.header.seq);
        cx.segment.ssn = Some(ssn).filter(|_| !seg.payload.is_empty());
        self.subflows.probe_answered(i, seg, cx);
        self.fallback
            .note_repeated(&mut self.subflows, i, seg, outcome);
        if outcome.established {
            self.on_established(i, seg, cx);
        } else if !seg.header.flags.syn() {
            let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
            if flight.join_confirmed(&self.opts, i, cx) {
                self.give_up_failed_subflow(cx);
            }
        }
        if outcome.acked > 0 || outcome.fin_acked {
            let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
            flight.on_subflow_acked(&mut self.paths, i, has_data_ack(seg), cx);
            if !self.level.is_multipath() {
                self.fallback
                    .on_subflow_acked(&mut self.subflows, &mut self.send, i);
            }
        } else if outcome.acceptable() {
            self.subflows.on_peer_alive(i, cx);
        }
        if outcome.verdict == Verdict::OldDuplicate && self.handshake.keys.remote.is_some() {
            let flight = Flight::new(&mut self.subflows, &mut self.send, self.level);
            if let Some(mapping) = flight.repeated_infinite(&self.recv, i, seg) {
                self.on_infinite(i, &mapping, cx);
            }
        }
        let payload = outcome.arrival.in_order().is_some();
        if self.subflows.on_received(i, payload, cx) && self.joins().may_replace(&self.opts) {
            self.subflows.arm_receiver_probe(cx.now);
        }
        self.subflows.on_plain_probe_answer(i, seg);
        let again = outcome.verdict == Verdict::OldDuplicate && outcome.arrival.duplicate;
        self.fallback
            .received_while_failing(&self.subflows, i, again, cx.now);
        cx.count.reassembly_refused_bytes += u64::from(outcome.arrival.refused);
        cx.segment.delivered = outcome.arrival.in_order().map(|part| part.ssn);
        if outcome.acceptable() && self.subflows[i].closing.reset_with.is_none() {
            self.take_options(i, seg, outcome, cx);
        }
        if let Some(part) = outcome.arrival.in_order() {
            let whole = part.range.len() == seg.payload.len();
            self.take_payload(
                i,
                part.ssn,
                &seg.payload[part.range.clone()],
                seg.payload_sum.filter(|_| whole),
                cx,
            );
        }
        cx.segment.delivered = None;
        if outcome.arrival.more_ready() {
            while let Some(chunk) = self.subflows[i].tcp.take_ready() {
                self.take_payload(i, chunk.ssn, &chunk.bytes, None, cx);
            }
        }
        self.match_unmapped(i, cx);
        if outcome.arrival.fin {
            let bare = !seg.header.flags.fin() || seg.options.mptcp.is_empty();
            self.on_subflow_fin(i, bare, cx);
            self.fallback.withhold_no_more(&mut self.subflows);
            // No mapping can follow, and a peer that closes its only subflow without an answer at data level has fallen back
            // already. // rfc8684:B13
            if !self.subflows[i].was_queried() {
                self.settle_unmapped(i, cx);
            }
            if self
                .fallback
                .checksum_failure
                .is_some_and(|failure| failure.subflow() == self.subflows[i].id())
            {
                self.fall_back(i, Event::FinWhileFailing, cx);
            }
        }
        // In-order data, a FIN or an ACK that advances allows signals again. // rfc8684:G2
        if outcome.arrival.in_order().is_some() || outcome.arrival.fin || outcome.acked > 0 {
            self.subflows[i].signals.on_advance();
        }
        self.subflows.refresh_sample_if_coupled(&self.opts, i);
        Flight::new(&mut self.subflows, &mut self.send, self.level).on_came_up(
            &mut self.life,
            &mut self.paths,
            &mut self.events,
            i,
            cx,
        );
        self.subflows.dirty |=
            outcome.acked > 0 || outcome.fin_acked || outcome.arrival.fin || outcome.established;
    }

    fn on_established(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        match (
            self.subflows[i].handshake.state.clone(),
            self.handshake.role,
        ) {
            (HandshakeState::CapableSyn, _) | (HandshakeState::Plain, Role::Initiator) => {
                self.on_syn_ack(i, seg, cx)
            }
            (HandshakeState::CapableSynAck, _) | (HandshakeState::Plain, Role::Responder) => {
                self.on_third_ack(i, seg, cx)
            }
            (HandshakeState::JoinSyn { .. }, _) => {
                let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                self.handshake.join_answered(flight, i, seg, cx);
            }
            (HandshakeState::JoinSynAck { .. }, _) => {
                let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                if self.handshake.join_proved(flight, &self.opts, i, seg, cx) {
                    self.give_up_failed_subflow(cx);
                }
            }
            (
                HandshakeState::CapableAck
                | HandshakeState::CapableKeys
                | HandshakeState::JoinAck { .. }
                | HandshakeState::Done,
                _,
            ) => {}
        }
    }

    /// A FIN closes one direction of only this subflow; the stream goes on elsewhere. // rfc8684:S1
    fn on_subflow_fin(&mut self, i: SubflowIdx, bare: bool, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows.list[i.0];
        sf.closing.peer_finished = true;
        // If the peer fell back it ends the stream, and ours would end what the application has not written yet.
        let may_be_plain = bare && self.level.is_multipath() && !self.subflows.joined;
        let open = self.send.fin.state == FinState::Open && !self.recv.finished();
        sf.closing.fin_waits = (may_be_plain && open).then(|| cx.now + sf.tcp.rto());
        if !self.level.is_multipath() {
            self.incoming().ends_with_subflow(i);
        } else if self.life.fast_close.is_some() {
            // We abort, which is no orderly close.
        } else if self.recv.finished() && self.send.lacks_data_fin_only() {
            // The peer has nothing left to send, not even a Data ACK of our DATA_FIN.
            if self.fallback.checksum_failure.is_none() {
                Flight::new(&mut self.subflows, &mut self.send, self.level).finish_with_data_fin(
                    &self.recv,
                    &self.numbers,
                    &self.data_timer,
                );
            }
        } else if !self.recv.finished() {
            // The stream must go on elsewhere: a path that died unnoticed would leave the reader waiting for ever.
            self.subflows.probe_others(i, cx);
        }
    }
}
