//! The acknowledgement and window of an accepted segment (RFC 9293 section 3.10.7.4, "ESTABLISHED STATE").

use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Flags;

use super::Machine;
use super::outcome::{Context, Outcome};
use super::state::{Change, State};
use crate::send::loss::{AckEffect, AckIn, Reduction};
use crate::time::Instant;

impl Machine {
    /// Takes the acknowledgement, SACK blocks, window and congestion echo. The acknowledgement number is at most
    /// SND.NXT and not older than the largest window.
    pub(super) fn take_ack(
        &mut self,
        now: Instant,
        seg: &Segment<'_>,
        ctx: &Context<'_>,
        out: &mut Outcome,
    ) {
        let una = self.send.una();
        let ack = seg.header.ack;
        let window_before = self.send.window.bytes();
        if seg.header.flags.syn() {
            // The window of a SYN was taken with the SYN, unscaled.
        } else if ack.after_eq(una) {
            out.window_grew |= self
                .send
                .window
                .update(una, seg.header.seq, ack, seg.header.window);
        }
        if ack.before(una) {
            return;
        }
        let window_moved = self.send.window.bytes() != window_before;
        let effect =
            self.send
                .loss
                .on_ack(now, &self.ack_in(now, seg, ctx, window_moved), &ctx.group);
        self.apply(now, &effect, out);
        if self.send.window.bytes() == 0 {
            // RFC 9293 3.8.6.1: a peer that answers lives, however long its window stays closed.
            self.send.note_progress(now);
        }
    }

    fn ack_in<'a>(
        &self,
        now: Instant,
        seg: &'a Segment<'_>,
        ctx: &Context<'_>,
        window_moved: bool,
    ) -> AckIn<'a> {
        let ack = seg.header.ack;
        let echo = match seg.options.timestamps {
            Some(t) if self.agreed.timestamps => self.stamps.echo(now, t.ecr),
            _ => None,
        };
        // RFC 5681 section 2. What arrived for the sake of its options is no duplicate (rfc8684:G1).
        let duplicate = ctx.congestion_signal_ok
            && ack == self.send.una()
            && seg.is_empty()
            && !window_moved
            && self.send.loss.outstanding();
        AckIn {
            ack,
            sack: if self.send.loss.uses_sack() {
                seg.options.sack.as_slice()
            } else {
                &[]
            },
            echo,
            duplicate,
            ece: self.agreed.ecn
                && seg.header.flags.contains(Flags::ECE)
                && !seg.header.flags.syn(),
            app_limited: self.is_underused(now),
        }
    }

    /// The congestion window is not what holds the sender back at present.
    fn is_underused(&self, now: Instant) -> bool {
        let loss = &self.send.loss;
        // Less than an eighth is left over on purpose, to build larger bursts; and the pacer may hold the rest.
        loss.allowance() >= loss.mss() + loss.cc().cwnd() / 8 && loss.pacing_ready(now) <= now
    }

    fn apply(&mut self, now: Instant, effect: &AckEffect, out: &mut Outcome) {
        let control = u32::from(effect.control.syn) + u32::from(effect.control.fin);
        out.acked = effect.newly_acked.saturating_sub(control);
        self.counters.recovery.bytes_acked += u64::from(out.acked);
        self.counters.recovery.dsacks_in += u64::from(effect.dsack);
        self.counters.recovery.undos += u64::from(effect.undone);
        match effect.reduced {
            Some(Reduction::Loss) => self.counters.recovery.recoveries += 1,
            Some(Reduction::Ecn) => {
                self.counters.recovery.ecn_reductions += 1;
                self.send.cwr_due = true;
            }
            None => {}
        }
        if effect.newly_acked > 0 {
            self.send.note_progress(now);
        }
        if effect.control.fin {
            out.fin_acked = true;
            self.change(Change::FinAcked);
            if self.state == State::TimeWait {
                self.restart_time_wait(now);
            }
        }
    }

    /// Starts or stops the persist timer: it runs while only the peer's window keeps us from sending.
    pub(super) fn watch_window(&mut self, now: Instant) {
        let room = self.send.window_room();
        let usable = self.mss().min(self.send.window.largest() / 2).max(1);
        let blocked = self.state.may_send()
            && self.send.fin.is_none()
            && !self.send.loss.outstanding()
            && room < usable;
        let rto = self.send.loss.rto();
        self.send.persist.watch(now, blocked, rto);
    }
}
