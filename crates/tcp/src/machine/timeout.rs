//! Everything that happens because time passed, and when it will.

use super::Machine;
use super::outcome::{DeadCause, TimeoutOutcome};
use super::state::{Change, State};
use crate::send::Alarm;
use crate::time::Instant;
use crate::timer::Soonest;

/// A trade: one timeout is often a lost segment, each further one costs the connection a doubled wait.
///
/// Timeouts in a row from which on an empty segment below SND.UNA accompanies the retransmission, where the peer sends as well. It
/// may let each acknowledgement ride on a data segment, and a path that drops those for their size then drops every
/// acknowledgement: Linux answers a repetition of exactly what it acknowledged last with a retransmission of its own. An
/// empty segment outside its window gets a bare acknowledgement from any peer (RFC 9293 section 3.10.7.4). A peer that has
/// acknowledged by the answer to a repetition once gets one with each probe.
const UNANSWERED: u8 = 2;

impl Machine {
    /// The earliest time at which [`on_timeout`](Self::on_timeout) changes something, or at which something that
    /// [`decide`](Self::decide) held back may be sent. What is due already is not a deadline: `decide` yields it.
    pub fn deadline(&self) -> Option<Instant> {
        if self.state == State::Closed || self.reset_due {
            return None;
        }
        let send = &self.send;
        let mut soonest = Soonest::default();
        soonest.consider_timer(&self.time_wait);
        soonest.consider(self.recv.ack.deadline());
        soonest.consider(send.loss.deadline());
        soonest.consider(send.persist.deadline());
        soonest.consider(self.prober.deadline());
        soonest.consider(self.user_deadline());
        soonest.consider(self.pacing_deadline());
        soonest.get()
    }

    /// When pacing lets something go that the windows allow.
    fn pacing_deadline(&self) -> Option<Instant> {
        let loss = &self.send.loss;
        let ready = loss.pacing_ready(self.clock);
        if ready <= self.clock {
            return None;
        }
        let new = self.may_send()
            && self.send.fin.is_none()
            && loss.allowance() > 0
            && self.send.window_room() > 0;
        (new || loss.next_retransmit(self.mss(), 0).is_some()).then_some(ready)
    }

    /// RFC 5482: unacknowledged data must not wait longer than the user allows, nor does a SYN (RFC 9293 section 3.10.8: in any state).
    fn user_deadline(&self) -> Option<Instant> {
        Some(self.send.waiting_since? + self.cfg.user_timeout?)
    }

    /// Time passed. Calling it before [`deadline`](Self::deadline) changes nothing.
    pub fn on_timeout(&mut self, now: Instant) -> TimeoutOutcome {
        self.tick(now);
        let mut out = TimeoutOutcome {
            backoffs: self.backoffs(),
            ..TimeoutOutcome::default()
        };
        if self.state == State::Closed || self.reset_due {
            return out;
        }
        if self.time_wait.take_due(now) {
            self.change(Change::Expired);
            return out;
        }
        if self.user_deadline().is_some_and(|at| now >= at) {
            return self.die(DeadCause::UserTimeout, out);
        }
        self.recv.ack.on_timeout(now);
        self.send.persist.on_timeout(now);
        let busy = self.send.loss.outstanding();
        match self
            .prober
            .on_timeout(now, busy, self.cfg.keepalive.as_ref())
        {
            Alarm::Dead => return self.die(DeadCause::KeepAlive, out),
            Alarm::Probe | Alarm::Quiet => {}
        }
        let effect = self.send.loss.on_timeout(now);
        out.rto_fired = effect.rto_fired;
        out.late = effect.late;
        out.silent = effect.silent;
        out.backoffs = effect.backoffs;
        if effect.rto_fired {
            self.counters.recovery.timeouts += 1;
            if let Some(cause) = self.given_up(now, effect.backoffs) {
                return self.die(cause, out);
            }
        }
        let unanswered = effect.rto_fired && effect.backoffs >= UNANSWERED;
        let lacks_acks = self.send.loss.lacks_acks(effect.rto_fired);
        if (unanswered || lacks_acks) && self.peer_sends() {
            self.prober.request();
        }
        self.watch_window(now);
        out
    }

    /// Payload of the peer came, and more may come.
    fn peer_sends(&self) -> bool {
        let came = self.recv.next().after(self.recv.irs() + 1);
        self.state.is_synchronized() && came && !self.recv.fin_done()
    }

    /// The timer has expired too often, or for too long. A peer whose window is closed and that answers makes progress by
    /// that (RFC 9293 section 3.8.6.1).
    fn given_up(&self, now: Instant, timeouts: u8) -> Option<DeadCause> {
        match self.state {
            State::SynSent => {
                (timeouts > self.cfg.timeouts.syn_retries).then_some(DeadCause::SynTimeout)
            }
            State::SynReceived => {
                (timeouts > self.cfg.timeouts.syn_ack_retries).then_some(DeadCause::SynTimeout)
            }
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => {
                let since = self.send.waiting_since?;
                (now.since(since) >= self.cfg.timeouts.give_up).then_some(DeadCause::Timeout)
            }
        }
    }

    fn die(&mut self, cause: DeadCause, mut out: TimeoutOutcome) -> TimeoutOutcome {
        self.change(Change::Abort);
        out.dead = Some(cause);
        out
    }
}
