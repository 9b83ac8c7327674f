//! What it means that nothing arrived.

use super::{CALLERS_OPTIONS, LossRecovery, Phase, TimerEffect};
use crate::recovery::spurious::Frto;
use crate::recovery::tlp::PAUSE;
use crate::time::Instant;

impl LossRecovery {
    /// Time passed. Before [`deadline`](Self::deadline) this changes nothing.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> TimerEffect {
        if self.rack_timer.take_due(now) {
            let (outstanding, undelivered) = (
                self.flight.outstanding(),
                self.flight.outstanding() - self.flight.sacked(),
            );
            let lost = self.detect_by_time(now);
            if self.judge_mtu_probe(now, lost) > 0 && self.phase == Phase::Open {
                self.enter_recovery(now, outstanding, undelivered);
            }
        }
        let late = self.late_timer.take_due(now);
        let mut silent = self.silence_timer.take_due(now);
        if self.tlp_timer.take_due(now) {
            // A probe costs a segment; to give the path up may cost money.
            match self.rtt.srtt().is_none_or(|srtt| srtt.times(2) >= PAUSE) {
                true => silent = true,
                false => self.silence_timer.set(now + PAUSE),
            }
            // RFC 8985 section 7.3. The probe leaves as soon as the caller has room for it.
            self.probe_due = true;
            self.rto_timer.set(now + self.rto());
        }
        let rto_fired = self.rto_timer.take_due(now);
        if rto_fired {
            self.on_retransmission_timeout(now);
        }
        TimerEffect {
            rto_fired,
            late,
            silent,
            withheld: self.withheld && (self.probe_due || rto_fired),
            backoffs: self.rto.backoffs(),
        }
    }

    /// RFC 6298 section 5.4 to 5.6, RFC 5681 section 3.1, RFC 8985 section 6.3, RFC 5682 section 2.1 step 1.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        let repeated = self.rto.backoffs() > 0;
        self.rto.back_off(&self.rtt);
        self.rto_timer.set(now + self.rto());
        self.begin_again(now, repeated);
    }

    /// Somebody knows that a path which let timers expire may work again: what is outstanding is tried at once, as when
    /// the timer expires, but without backing off further. True if something is sent for it.
    pub(crate) fn try_again(&mut self, now: Instant) -> bool {
        let silent = self.rto.backoffs() > 0 && !self.flight.is_empty();
        if silent {
            self.rto_timer.set(now + self.rto());
            self.begin_again(now, true);
        }
        silent
    }

    /// As [`try_again`](Self::try_again), although no timer may have expired yet.
    pub(crate) fn begin_anew(&mut self, now: Instant) -> bool {
        let waits = !self.flight.is_empty();
        if waits {
            self.rto_timer.set(now + self.rto());
            self.begin_again(now, self.rto.backoffs() > 0);
        }
        waits
    }

    /// Everything that the timer's expiry means but its own length.
    fn begin_again(&mut self, now: Instant, repeated: bool) {
        let Some(head) = self.flight.head().copied() else {
            return;
        };
        if head.control.syn {
            // The handshake has no window to reduce yet; what follows its loss is decided when it is answered.
            self.flight.mark_any(|_| true);
            return;
        }
        self.pmtu.on_probe_lost(now);
        if !repeated {
            self.begin_timeout_episode(now);
        } else {
            self.frto = Frto::Off;
            self.cc.on_rto(now, self.flight.outstanding(), true);
        }
        if self.flight.reneged() {
            self.flight.forget_sacks();
        }
        if self.setup.sack {
            let view = self.rack_view(now);
            self.rack.on_rto(&mut self.flight, &view);
        } else {
            self.flight.mark_any(|_| true);
        }
        self.phase = Phase::Loss {
            until: self.flight.nxt(),
        };
        self.recover = self.flight.nxt();
        self.duplicates = 0;
        self.duplicate_bytes = 0;
        self.tlp.forget();
        self.tlp_timer.stop();
        self.rack_timer.stop();
        self.silence_timer.stop();
        self.late_timer.stop();
        self.probe_due = false;
        self.head_due = true;
        self.pacer.reset();
        // It need not be a whole one of this path: it may have been one elsewhere.
        let size = self.mss.min(head.len + CALLERS_OPTIONS);
        if let Some(smaller) = self.pmtu.on_timeout(now, size, self.rto.backoffs()) {
            self.set_mss(smaller);
        }
    }

    /// The first of perhaps several timeouts in a row: reduces the window and asks whether the timer was right.
    fn begin_timeout_episode(&mut self, now: Instant) {
        let judged = self.phase == Phase::Open && self.flight.outstanding() > self.mss;
        match self.phase {
            Phase::Open => self.end_episode(),
            // The loss of a retransmission lowers the threshold a second time (RFC 5681 section 4.3), but from where recovery has
            // put it: the window is what was let out by and by.
            Phase::Recovery { .. } => self.cc.set_cwnd(self.cc.ssthresh()),
            Phase::Loss { .. } => {}
        }
        self.cc.on_rto(now, self.flight.outstanding(), false);
        if !self.evidence.is_open() {
            self.evidence.begin(self.flight.una());
        }
        self.evidence_until = None;
        self.frto = Frto::on_timeout(self.flight.nxt(), judged);
        self.frto_sent = 0;
        self.ecn.on_other_reduction(self.flight.sent_total());
    }
}
