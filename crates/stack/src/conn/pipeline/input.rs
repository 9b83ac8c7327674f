//! One segment from the subflow's verdict to everything that follows from it.

use manypath_tcp::cc::GroupView;
use manypath_tcp::machine::{Context, Reject, Verdict};
use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::MptcpOption;

use crate::api::{CloseCause, FallbackCause, Role, SubflowEnd};
use crate::conn::failover::pep::AnsweredBy;
use crate::conn::send::queue::FinState;
use crate::conn::subflow::Greeting;
use crate::conn::{Conn, Cx};
use crate::ids::SubflowId;

/// It has a Data ACK.
fn has_data_ack(seg: &Segment<'_>) -> bool {
    let dss = seg.options.mptcp.dss();
    dss.is_some_and(|dss| dss.data_ack.is_some())
}

/// What else it says.
fn without_payload<'a>(seg: &Segment<'a>) -> Segment<'a> {
    let mut bare = *seg;
    bare.payload = &[];
    bare.payload_sum = None;
    bare.header.flags = seg.header.flags.without(Flags::FIN.with(Flags::PSH));
    bare
}

impl Conn {
    /// A segment of one of our subflows. True: its sender takes us for somebody else and has to be told by a reset (RFC
    /// 9293 section 3.10.7.3).
    pub(crate) fn on_segment(&mut self, id: SubflowId, seg: &Segment<'_>, cx: &mut Cx<'_>) -> bool {
        let Some(i) = self.position(id) else {
            return false;
        };
        if self.is_full_for(i, seg) {
            cx.count.beyond_window_bytes += seg.payload.len() as u64;
            self.subflows[i].tcp.force_ack();
            return self.on_admitted(i, &without_payload(seg), cx);
        }
        self.on_admitted(i, seg, cx)
    }

    /// New payload for which the connection has no room left at all, though its subflow was once told of a window. It is left
    /// to the subflow to send it again: what a subflow acknowledged and the connection dropped would take much longer.
    fn is_full_for(&self, i: usize, seg: &Segment<'_>) -> bool {
        let established = self.established && self.lattice.speaks_multipath();
        let new =
            !seg.payload.is_empty() && seg.header.seq.after_eq(self.subflows[i].tcp.rcv_nxt());
        established && new && self.failing.is_none() && self.recv.allowance() == 0
    }

    fn on_admitted(&mut self, i: usize, seg: &Segment<'_>, cx: &mut Cx<'_>) -> bool {
        let id = self.subflows[i].id();
        if self.overtook_keys(i, seg) {
            cx.count.option_unexpected += 1;
            return false;
        }
        let greeted = matches!(self.subflows[i].greeting, Greeting::Done | Greeting::Plain);
        self.unsettled |= !(greeted && self.established);
        let tcp = &self.subflows[i].tcp;
        if !seg.payload.is_empty()
            && (seg.header.seq != tcp.rcv_nxt() || tcp.reassembly_memory() > 0)
        {
            self.share_reassembly(i);
        }
        // Duplicate acknowledgements that exist for an option say nothing about loss. // rfc8684:G1,A15
        let congestion_signal_ok = !seg.options.mptcp.has_signal();
        self.greeted_again(i, seg, cx);
        self.subflows[i].mappings_before = self.subflows[i].mappings;
        let ctx = Context {
            group: GroupView {
                paths: &self.samples,
                me: i,
            },
            congestion_signal_ok,
        };
        let tcp = &mut self.subflows[i].tcp;
        let before = tcp.challenges();
        let outcome = tcp.on_segment(cx.now, seg, &ctx);
        let after = tcp.challenges();
        cx.count.challenge_ack += after.0 - before.0;
        cx.count.reply_limited += after.1 - before.1;
        if outcome.reset {
            self.unsettled = true;
            self.on_reset(i, seg, cx);
            return false;
        }
        if let Verdict::Rejected(why) = outcome.verdict {
            cx.count.segment_unacceptable += u64::from(why != Reject::Closed);
            cx.count.option_unacceptable_segment += u64::from(!seg.options.mptcp.is_empty());
            if why == Reject::Reset {
                self.doubt_after_reset(i, cx.now);
            }
            return why == Reject::Handshake;
        }
        self.probe_answered(i, seg, cx);
        self.note_repeated(i, seg, &outcome, cx);
        if outcome.established {
            self.on_established(i, seg, cx);
        } else if !seg.header.flags.syn() {
            self.join_confirmed(i, cx);
        }
        if outcome.acked > 0 || outcome.fin_acked {
            self.on_subflow_acked(i, has_data_ack(seg), cx);
        } else if outcome.acceptable() {
            self.on_sign_of_life(i, cx);
        }
        if outcome.verdict == Verdict::OldDuplicate {
            self.take_repeated_infinite(i, seg, cx);
        }
        self.note_heard(i, outcome.in_order.is_some(), cx);
        self.bare_question_answered(i, seg);
        let again = outcome.verdict == Verdict::OldDuplicate && outcome.duplicate_data;
        self.heard_while_failing(i, again, cx.now);
        cx.count.reassembly_refused_bytes += u64::from(outcome.refused);
        self.delivered_ssn = outcome.in_order.as_ref().map(|part| part.ssn);
        let tcp = &self.subflows[i].tcp;
        let ssn = tcp.rcv_nxt_ssn() - tcp.rcv_nxt().since(seg.header.seq);
        self.segment_ssn = Some(ssn).filter(|_| !seg.payload.is_empty());
        if outcome.acceptable() && self.subflows[i].reset_with.is_none() {
            self.take_options(i, seg, &outcome, cx);
        }
        if let Some(part) = &outcome.in_order {
            let whole = part.range.len() == seg.payload.len();
            self.take_payload(
                i,
                part.ssn,
                &seg.payload[part.range.clone()],
                seg.payload_sum.filter(|_| whole),
                cx,
            );
        }
        self.delivered_ssn = None;
        if outcome.more_ready {
            while let Some(chunk) = self.subflows[i].tcp.take_ready() {
                self.take_payload(i, chunk.ssn, &chunk.bytes, None, cx);
            }
        }
        self.explain(i, cx);
        if outcome.fin {
            let bare = !seg.header.flags.fin() || seg.options.mptcp.is_empty();
            self.on_subflow_fin(i, bare, cx);
            self.withhold_no_more();
            // Nothing more comes that could explain it, and a peer that ends its only subflow without an answer at data level
            // has fallen to TCP already. // rfc8684:B13
            if !self.subflows[i].was_asked() {
                self.settle_unmapped(i, cx);
            }
            if self.failing.is_some_and(|failing| failing.subflow() == id) {
                self.fall_to_infinite(i, FallbackCause::Checksum, cx);
            }
        }
        // An acknowledgement that moves the peer on makes room for signals again. // rfc8684:G2
        if outcome.in_order.is_some() || outcome.acked > 0 {
            self.subflows[i].signals_welcome();
        }
        self.refresh_sample(i);
        self.take_up(i, cx);
        self.unsettled |=
            outcome.acked > 0 || outcome.fin_acked || outcome.fin || outcome.established;
        false
    }

    fn on_established(&mut self, i: usize, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        match (self.subflows[i].greeting.clone(), self.role) {
            (Greeting::CapableSyn, _) | (Greeting::Plain, Role::Initiator) => {
                self.called_back(i, seg, cx)
            }
            (Greeting::CapableSynAck, _) | (Greeting::Plain, Role::Responder) => {
                self.call_accepted(i, seg, cx)
            }
            (Greeting::JoinSyn { .. }, _) => self.join_answered(i, seg, cx),
            (Greeting::JoinSynAck { .. }, _) => self.join_proved(i, seg, cx),
            (
                Greeting::CapableAck
                | Greeting::CapableKeys
                | Greeting::JoinAck { .. }
                | Greeting::Done,
                _,
            ) => {}
        }
    }

    fn on_subflow_acked(&mut self, i: usize, says_data_ack: bool, cx: &mut Cx<'_>) {
        let una = self.send.una();
        self.subflows[i].swallowed.acked(una);
        let sf = &mut self.subflows[i];
        let (swallowed, lag) = (&mut sf.swallowed, &mut sf.lag);
        // Of who lost its options nobody knows what it waits for.
        let counts = says_data_ack || sf.answered_by != AnsweredBy::Peer;
        sf.tx.acked(sf.tcp.snd_una_ssn(), |part| {
            if counts && part.end > una {
                lag.acknowledged(part.clone(), cx.now);
            }
            swallowed.note(part, una);
        });
        let subflow_una = sf.tcp.snd_una_ssn();
        sf.copies.acked(subflow_una);
        // Numbers come round.
        sf.penalised.take_if(|upto| upto.before_eq(subflow_una));
        sf.release_retained();
        if (sf.is_stale() || sf.suspect) && sf.tcp.backoffs() == 0 {
            self.answers_again(i, cx);
        }
        if !self.lattice.speaks_multipath() {
            self.withheld_answered(i);
            // rfc8684:B13
            let una = self.subflows[i].tcp.snd_una_ssn();
            let counts = self.again_from.is_none_or(|from| !una.before(from));
            let upto = self.subflows[i]
                .tx
                .first_unacked(una)
                .unwrap_or_else(|| self.send.next());
            if counts {
                self.send.subflow_acked(upto);
            }
            // Numbers come round.
            self.again_from.take_if(|from| una.after(*from));
        }
    }

    /// A RST ends this one subflow, unless it says more. // rfc8684:S1
    fn on_reset(&mut self, i: usize, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        cx.count.subflow_reset_by_peer += 1;
        let handshake = !self.subflows[i].was_up() && !self.established;
        let (mut fast_close, mut changed) = (None, false);
        let (mut reason, mut transient) = (None, false);
        for option in seg.options.mptcp.iter() {
            match option {
                MptcpOption::FastClose(close) => fast_close = Some(close.key),
                // What it carried travels on the other subflows, or on the next one. // rfc8684:B6,B7
                MptcpOption::Fail(_) => {
                    cx.count.fail_received += 1;
                    changed = true;
                }
                MptcpOption::Reset(why) => {
                    // rfc8684:T1,T2,T3
                    cx.count.tcprst_received += 1;
                    reason = Some(why.reason);
                    transient = why.transient;
                }
                MptcpOption::Capable(_) | MptcpOption::Join(_) | MptcpOption::Dss(_) => {}
                MptcpOption::AddAddr(_) | MptcpOption::RemoveAddr(_) | MptcpOption::Prio(_) => {}
                MptcpOption::Private(_) => {}
            }
        }
        let end = if handshake {
            SubflowEnd::Refused
        } else if changed {
            SubflowEnd::Checksum
        } else {
            SubflowEnd::ResetByPeer { reason, transient }
        };
        self.subflows[i].end.get_or_insert(end);
        if let Some(key) = fast_close {
            self.on_fast_close(i, key, cx);
        } else if !self.lattice.speaks_multipath() && self.closed.is_none() && !handshake {
            self.finish(CloseCause::ResetByPeer, cx);
        }
    }

    /// A FIN ends one direction of this one subflow; the stream goes on elsewhere. // rfc8684:S1
    fn on_subflow_fin(&mut self, i: usize, bare: bool, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        sf.peer_finished = true;
        // Of who fell to TCP it ends the stream, and ours would end what the application has not written yet.
        let may_be_plain = bare && self.lattice.speaks_multipath() && !self.joined;
        let open = self.send.fin == FinState::Open && !self.recv.finished();
        sf.fin_waits = (may_be_plain && open).then(|| cx.now + sf.tcp.rto());
        if !self.lattice.speaks_multipath() {
            self.ends_with_subflow(i);
        } else if self.fast_close.is_some() {
            // Our own end is not one in order.
        } else if self.recv.finished() && self.send.lacks_fin_only() {
            // It has nothing left to say, not even a Data ACK of our DATA_FIN.
            self.finish_with_data_fin();
        } else if !self.recv.finished() {
            // The stream is to go on elsewhere: a path that has died there unnoticed would leave the reader waiting for ever.
            self.doubt_others(i, cx);
        }
    }
}
