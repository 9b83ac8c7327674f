//! What it means that nothing arrived.

use super::path::CALLERS_OPTIONS;
use super::types::Phase;
use super::{LossRecovery, TimerEffect};
use crate::recovery::spurious::Frto;
use crate::time::Instant;

impl LossRecovery {
    /// Time passed. Before [`deadline`](Self::deadline) this changes nothing.
    pub(crate) fn on_timeout(&mut self, now: Instant) -> TimerEffect {
        if self.detection.take_due(now) {
            let before = self.before();
            let lost = self.detect_by_time(now);
            if self.judge_mtu_probe(now, lost) > 0 && self.phase == Phase::Open {
                self.enter_recovery(now, &before);
            }
        }
        let fired = self.tail.on_timeout(now, self.timing.rtt().srtt());
        if fired.probe {
            // RFC 8985 section 7.3.
            self.rto_timer.set(now + self.rto());
        }
        let rto_fired = self.rto_timer.take_due(now);
        if rto_fired {
            self.on_retransmission_timeout(now);
        }
        TimerEffect {
            rto_fired,
            late: fired.late,
            silent: fired.silent,
            backoffs: self.timing.backoffs(),
        }
    }

    /// The peer acknowledges only by its answers to retransmissions, and a timer waits in vain for more; `rto_fired`: the
    /// retransmission timer just did.
    pub(crate) fn lacks_acks(&self, rto_fired: bool) -> bool {
        self.timing.acks_missing() && (self.tail.is_due() || rto_fired)
    }

    /// RFC 6298 section 5.4 to 5.6, RFC 5681 section 3.1, RFC 8985 section 6.3, RFC 5682 section 2.1 step 1.
    fn on_retransmission_timeout(&mut self, now: Instant) {
        let repeated = self.timing.backoffs() > 0;
        self.timing.back_off();
        self.rto_timer.set(now + self.rto());
        self.resend_all(now, repeated);
    }

    /// All that the timer's expiry means but its own length.
    pub(super) fn resend_all(&mut self, now: Instant, repeated: bool) {
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
            self.undo.frto = Frto::Off;
            self.cc.on_rto(now, self.flight.outstanding(), true);
        }
        if self.flight.reneged() {
            self.flight.forget_sacks();
        }
        let view = self.rack_view(now);
        self.detection.on_rto(&mut self.flight, &view);
        let nxt = self.flight.nxt();
        self.phase = Phase::Loss { until: nxt };
        self.detection.newreno.on_rto(nxt);
        self.detection.stop();
        self.tail.on_rto();
        self.head_due = true;
        if let Some(pacer) = &mut self.pacer {
            pacer.reset();
        }
        // It need not be a whole one of this path: it may have been one elsewhere.
        let size = self.mss().min(head.len + CALLERS_OPTIONS);
        if let Some(_smaller) = self.pmtu.on_timeout(now, size, self.timing.backoffs()) {
            self.adopt_mss();
        }
    }

    /// The first of perhaps several timeouts in a row: reduces the window and lets F-RTO judge whether the timer was right.
    fn begin_timeout_episode(&mut self, now: Instant) {
        let judged = self.phase == Phase::Open && self.flight.outstanding() > self.mss();
        match self.phase {
            Phase::Open => self.end_episode(),
            // The loss of a retransmission lowers the threshold a second time (RFC 5681 section 4.3), but from where recovery has
            // put it: the window is what was let out by and by.
            Phase::Recovery { .. } => self.cc.set_cwnd(self.cc.ssthresh()),
            Phase::Loss { .. } => {}
        }
        self.cc.on_rto(now, self.flight.outstanding(), false);
        self.undo.evidence.begin_or_continue(self.flight.una());
        self.undo.frto = Frto::on_timeout(self.flight.nxt(), judged);
        self.ecn.on_other_reduction(self.flight.sent_total());
    }
}
