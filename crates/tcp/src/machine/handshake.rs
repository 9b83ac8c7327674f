//! Opening: SYN-SENT and SYN-RECEIVED (RFC 9293 sections 3.5, 3.10.7.3 and 3.10.7.4).

use manypath_wire::segment::Segment;

use super::Machine;
use super::negotiate::Agreed;
use super::outcome::{Context, Outcome, Reject, Verdict};
use super::state::Change;
use crate::recv::Recent;
use crate::time::Instant;

impl Machine {
    /// A segment in SYN-SENT.
    pub(super) fn on_segment_syn_sent(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        ctx: &Context<'_>,
    ) -> Outcome {
        let flags = seg.header.flags;
        let ack_ok = flags.ack() && self.answers_syn(seg.header.ack);
        if flags.ack() && !ack_ok {
            self.counters.rejected.rejected_ack += 1;
            // RFC 9293 3.10.7.3: answered by a reset at the number it acknowledges, unless it is one itself.
            if flags.rst() {
                return Outcome::rejected(Reject::Ack);
            }
            // It is the challenge of an old connection between these ports, which that reset ends (RFC 5961 section 4): the SYN behind it
            // is accepted. Once, so that forged segments gain nothing; Linux does the same.
            if self.counters.rejected.rejected_ack == 1 {
                self.repeat_syn();
            }
            return Outcome::rejected(Reject::Handshake);
        }
        if flags.rst() {
            if !ack_ok {
                self.counters.rejected.rejected_other += 1;
                return Outcome::rejected(Reject::Reset);
            }
            return self.reset_by_peer();
        }
        if !flags.syn() {
            self.counters.rejected.rejected_other += 1;
            return Outcome::rejected(Reject::NoSyn);
        }
        self.learn_peer(now, seg);
        let mut out = Outcome::new(Verdict::Acceptable);
        if ack_ok {
            self.open(now, seg, ctx, &mut out);
            self.recv.ack.force();
            self.take_payload(now, seg, &mut out);
        } else {
            // RFC 9293 3.5, simultaneous open: answer with SYN+ACK at the same number.
            self.change(Change::SynCrossed);
            self.syn_again = true;
        }
        out
    }

    /// Takes the peer's SYN: its numbers, its options, its window.
    pub(super) fn learn_peer(&mut self, now: Instant, seg: &Segment<'_>) {
        self.agreed = Agreed::with_peer(&self.cfg, seg);
        self.recv.begin(seg.header.seq, self.agreed.recv_scale());
        if self.agreed.timestamps {
            self.recv.recent = seg.options.timestamps.map(|t| Recent::new(t.val, now));
        }
        let ack = if seg.header.flags.ack() {
            seg.header.ack
        } else {
            self.isn
        };
        self.send.window.begin(
            seg.header.window,
            seg.header.seq,
            ack,
            self.agreed.send_scale(),
        );
        self.on_received(now);
        self.adopt_agreed();
    }

    /// Our SYN is acknowledged: both directions are open. The acknowledgement itself is taken by the caller's next step
    /// or, when the segment is a SYN+ACK, here.
    pub(super) fn open(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        ctx: &Context<'_>,
        out: &mut Outcome,
    ) {
        self.syn_again = false;
        self.on_received(now);
        self.settle_early(seg.header.ack);
        self.change(Change::Open);
        out.established = true;
        if seg.header.flags.syn() {
            self.take_ack(now, seg, ctx, out);
        }
        out.window_grew = true;
    }

    /// Our SYN was sent at least once, so it can be acknowledged.
    pub(super) fn syn_left(&self) -> bool {
        self.send.nxt() != self.isn
    }

    /// Sends the SYN once more, beside what its timer does: it is to say something else this time, or to be answered otherwise.
    pub fn repeat_syn(&mut self) {
        let opening = matches!(
            self.state,
            super::State::SynSent | super::State::SynReceived
        );
        self.syn_again |= opening && self.syn_left();
    }

    /// RFC 9293 3.10.7.4 for a SYN in SYN-RECEIVED: the peer's SYN again, or the SYN+ACK of a simultaneous open.
    /// `None` when the segment is to be treated like any other.
    pub(super) fn on_syn_in_syn_received(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        ctx: &Context<'_>,
    ) -> Option<Outcome> {
        let flags = seg.header.flags;
        if !flags.syn() || flags.rst() || seg.header.seq != self.recv.irs() {
            return None;
        }
        if flags.ack() {
            if !self.answers_syn(seg.header.ack) {
                self.counters.rejected.rejected_ack += 1;
                return Some(Outcome::rejected(Reject::Handshake));
            }
            let mut out = Outcome::new(Verdict::Acceptable);
            self.open(now, seg, ctx, &mut out);
            self.recv.ack.force();
            return Some(out);
        }
        // RFC 7323 4.3: the answer echoes the SYN that asked for it, not the first one.
        self.take_timestamp(now, seg);
        // The answer was lost: give it again, but not more often than challenges are answered.
        if self.syn_left() && self.challenge(now) {
            self.syn_again = true;
        }
        Some(Outcome::new(Verdict::OldDuplicate))
    }
}
