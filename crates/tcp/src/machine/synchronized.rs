//! Segments in every state but SYN-SENT: acceptance (RFC 9293 section 3.10.7.4, RFC 5961, RFC 7323 section 5), the
//! acknowledgement, the window, the payload, the FIN.

use manypath_wire::ip::Ecn;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

use super::Machine;
use super::outcome::{Context, Outcome, Reject, Verdict};
use super::state::{Change, State};
use crate::recv::{Arrival, Placed};
use crate::time::Instant;

/// What lies so little behind the next byte may be a retransmission, however small our window is now: the largest window without
/// scaling (RFC 9293 section 3.1).
const RECENT: u32 = 1 << 16;

impl Machine {
    /// A segment in SYN-RECEIVED or a synchronized state.
    pub(super) fn on_segment_synchronized(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        ctx: &Context<'_>,
    ) -> Outcome {
        let early = match self.state {
            State::SynReceived => self.on_syn_in_syn_received(now, seg, ctx),
            State::TimeWait => self.on_syn_in_time_wait(seg),
            _ => None,
        };
        if let Some(out) = early {
            return out;
        }
        if let Err(out) = self.accept_segment(now, seg) {
            return out;
        }
        let mut out = Outcome::new(Verdict::Acceptable);
        if self.state == State::SynReceived {
            self.open(now, seg, ctx, &mut out);
        }
        self.on_received(now);
        self.take_timestamp(now, seg);
        self.take_ecn(seg);
        self.take_ack(now, seg, ctx, &mut out);
        self.take_payload(now, seg, &mut out);
        out
    }

    /// The checks in the order of RFC 9293 section 3.10.7.4; `Err` is the final word on a segment that fails.
    fn accept_segment(&mut self, now: Instant, seg: &Segment<'_>) -> Result<(), Outcome> {
        let flags = seg.header.flags;
        let len = seg.len();
        if !flags.rst() && self.is_from_the_past(now, seg) {
            // RFC 7323 5.3 R1: acknowledge and drop.
            self.counters.rejected.rejected_paws += 1;
            self.answer_unacceptable(now, seg);
            return Err(Outcome::rejected(Reject::Paws));
        }
        if let Some(out) = self.check_sequence(now, seg, len) {
            return Err(out);
        }
        if flags.rst() {
            return Err(self.on_reset(now, seg.header.seq));
        }
        if flags.syn() {
            // RFC 5961 4.2: whatever the number, a challenge.
            self.counters.rejected.rejected_other += 1;
            self.challenge(now);
            return Err(Outcome::rejected(Reject::Syn));
        }
        if !flags.ack() {
            self.counters.rejected.rejected_other += 1;
            return Err(Outcome::rejected(Reject::NoAck));
        }
        self.check_ack(now, seg.header.ack)
    }

    fn is_from_the_past(&self, now: Instant, seg: &Segment<'_>) -> bool {
        match (&self.recv.recent, seg.options.timestamps) {
            (Some(recent), Some(t)) => recent.is_old(t.val, now),
            _ => false,
        }
    }

    /// The acceptance test of RFC 9293 section 3.4, in the form that keeps the part of a segment that is in the window.
    fn check_sequence(&mut self, now: Instant, seg: &Segment<'_>, len: u32) -> Option<Outcome> {
        let next = self.recv.next();
        let seq = seg.header.seq;
        let open = self.recv.window.open(next);
        let end = seq + len;
        let starts_in_reach = seq.before_eq(next + open);
        // A segment of no length may stand at the left edge; one with length must reach beyond it.
        let ends_in_reach = if len == 0 {
            end.after_eq(next)
        } else {
            end.after(next)
        };
        if seg.header.flags.rst() {
            // RFC 5961 section 3.2: outside of the window it is dropped without an answer. The number right behind the window is outside,
            // where an ACK of a peer that filled the window stands; a closed window admits the next number.
            if seq == next || seq.after(next) && seq.before(next + open) {
                return None;
            }
            self.counters.rejected.rejected_sequence += 1;
            return Some(Outcome::rejected(Reject::Sequence));
        }
        if starts_in_reach && ends_in_reach {
            return None;
        }
        let flags = seg.header.flags;
        if flags.syn() && flags.ack() && seq == self.recv.irs() {
            // Our acknowledgement of it was lost. An answer with the echo of the first one makes the peer believe that the
            // round trip takes as long as its time-out (RFC 7323 section 4.3).
            self.take_timestamp(now, seg);
        }
        self.answer_unacceptable(now, seg);
        if starts_in_reach && len > 0 && !seg.header.flags.syn() {
            // Sent again because our acknowledgement was lost; RFC 2883: say so.
            self.counters.received.duplicates_in += 1;
            self.recv.note_duplicate(seq, seg.payload.len() as u32);
            if seq.after_eq(next - self.cfg.recv_window) {
                // RFC 7323 4.3 looks at the sequence number alone. Were the echo left at the first arrival, a peer whose
                // timer fired because our acknowledgement was lost would take the time-out for a round trip.
                self.take_timestamp(now, seg);
            }
            if self.state == State::TimeWait && seg.header.flags.fin() {
                self.restart_time_wait(now);
            }
            let mut out = Outcome::new(Verdict::OldDuplicate);
            out.arrival = Arrival::repeated(!seg.payload.is_empty());
            return Some(out);
        }
        if !starts_in_reach && !seg.payload.is_empty() {
            self.recv.note_beyond(end);
        }
        self.counters.rejected.rejected_sequence += 1;
        Some(Outcome::rejected(Reject::Sequence))
    }

    /// An unacceptable segment is acknowledged (RFC 9293 section 3.10.7.4), at once where it repeats what arrived not long
    /// ago: our acknowledgement was lost. Others, which an attacker can send who knows the ports, only at a bounded rate; and
    /// empty ones and SYNs at the rate of challenges (RFC 5961 section 4), or two confused ends would answer each other
    /// for ever.
    fn answer_unacceptable(&mut self, now: Instant, seg: &Segment<'_>) {
        let next = self.recv.next();
        let seq = seg.header.seq;
        let recent = seq.before(next) && seq.after_eq(next - self.cfg.recv_window.max(RECENT));
        if seg.is_empty() || seg.header.flags.syn() {
            self.challenge(now);
        } else if recent {
            self.recv.ack.force();
        } else if !self.recv.ack.stray(now) {
            self.counters.rejected.challenge_acks_limited += 1;
        }
    }

    /// RFC 5961 section 3.2: only the exact next number resets; elsewhere in the window a challenge.
    fn on_reset(&mut self, now: Instant, seq: SeqNum) -> Outcome {
        if seq == self.recv.next() {
            return self.reset_by_peer();
        }
        self.counters.rejected.rejected_other += 1;
        self.challenge(now);
        Outcome::rejected(Reject::Reset)
    }

    /// RFC 5961 section 5.2: SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
    fn check_ack(&mut self, now: Instant, ack: SeqNum) -> Result<(), Outcome> {
        if self.state == State::SynReceived {
            // RFC 9293 3.10.7.4: anything else than our SYN (and what followed) is answered by a reset.
            if self.answers_syn(ack) {
                return Ok(());
            }
            self.counters.rejected.rejected_ack += 1;
            return Err(Outcome::rejected(Reject::Handshake));
        }
        if self.acks_what_was_sent(ack) {
            return Ok(());
        }
        self.counters.rejected.rejected_ack += 1;
        self.challenge(now);
        Err(Outcome::rejected(Reject::Ack))
    }

    pub(super) fn take_timestamp(&mut self, now: Instant, seg: &Segment<'_>) {
        let last = self.recv.last_ack_sent();
        if let (Some(recent), Some(t)) = (&mut self.recv.recent, seg.options.timestamps) {
            recent.observe(t.val, seg.header.seq, last, now);
        }
    }

    /// RFC 3168 section 6.1.3: echo a mark until the peer says that it reduced.
    fn take_ecn(&mut self, seg: &Segment<'_>) {
        if !self.agreed.ecn {
            return;
        }
        if seg.header.flags.contains(Flags::CWR) {
            self.recv.ecn_echo = false;
        }
        if seg.ip.ecn == Ecn::Ce {
            self.counters.received.ce_in += 1;
            if !seg.payload.is_empty() {
                self.recv.ecn_echo = true;
            }
        }
    }

    /// Takes the payload and FIN of an accepted segment.
    pub(super) fn take_payload(&mut self, now: Instant, seg: &Segment<'_>, out: &mut Outcome) {
        let fin = seg.header.flags.fin();
        if seg.payload.is_empty() && !fin {
            return;
        }
        // A SYN takes the number before the first byte.
        let seq = seg.header.seq + u32::from(seg.header.flags.syn());
        let step = self.recv_step();
        let what = (seq, seg.payload, fin);
        let Some((got, advanced)) = self.recv.accept(now, what, step, self.cfg.delayed_ack) else {
            self.counters.rejected.rejected_other += 1;
            out.verdict = Verdict::Rejected(Reject::AfterFin);
            self.challenge(now);
            return;
        };
        if let (Some(t), true) = (seg.options.timestamps, self.agreed.timestamps) {
            if let Some(echo) = self.stamps.echo(now, t.ecr) {
                self.recv.note_echo(t.ecr, echo.rtt);
            }
        }
        self.counters.received.bytes_received += u64::from(advanced);
        self.counters.received.duplicates_in += u64::from(got.duplicate);
        self.counters.received.out_of_order_in += u64::from(got.placed == Placed::OutOfOrder);
        self.counters.received.reassembly_dropped += u64::from(got.refused);
        let fin = got.fin;
        out.arrival = got;
        if fin {
            self.change(Change::FinReceived);
            if self.state == State::TimeWait {
                self.restart_time_wait(now);
            }
        }
    }
}
