//! What only a connection of several subflows asks of loss recovery, beside [`capping`](super::capping).

use super::LossRecovery;
use super::types::Phase;
use crate::time::{Duration, Instant};

impl LossRecovery {
    /// The window as a rate for other paths: during fast recovery, what it will be after it.
    pub(crate) fn lasting_cwnd(&self) -> u32 {
        match self.phase {
            Phase::Recovery { .. } => self.cc.ssthresh(),
            _ => self.cc.cwnd(),
        }
    }

    /// Halves window and threshold because this path holds up others. A recovery under way has done as much.
    pub(crate) fn penalise(&mut self) -> bool {
        let open = self.phase == Phase::Open;
        if open {
            self.end_episode();
            self.cc.penalise();
        }
        open
    }

    /// Undoes penalties.
    pub(crate) fn undo_penalties(&mut self) {
        self.cc.undo_penalties();
    }

    /// Bounds the back-off of the retransmission timer while another path carries the data, or no longer.
    pub(crate) fn set_rto_ceiling(&mut self, now: Instant, ceiling: Option<Duration>) {
        let runs = self.rto_timer.is_set();
        if runs && ceiling.is_none() {
            self.timing.lift_ceiling();
        } else if self.timing.set_ceiling(ceiling) && runs {
            self.rto_timer.set_at_latest(now + self.rto());
        }
    }

    /// Something else than an acknowledgement measured a round trip. It counts if nothing else has.
    pub(crate) fn first_measured(&mut self, now: Instant, rtt: Duration) {
        self.timing.first_measured(now, rtt);
    }

    /// A path on which timers expired may work again: what is outstanding is resent at once, as when the timer expires, but
    /// without backing off further. True if something is sent for it.
    pub(crate) fn on_path_hint(&mut self, now: Instant) -> bool {
        let silent = self.timing.backoffs() > 0 && !self.flight.is_empty();
        if silent {
            self.rto_timer.set(now + self.rto());
            self.resend_all(now, true);
        }
        silent
    }

    /// As [`on_path_hint`](Self::on_path_hint), although no timer may have expired yet.
    pub(crate) fn on_path_restored(&mut self, now: Instant) -> bool {
        let waits = !self.flight.is_empty();
        if waits {
            self.rto_timer.set(now + self.rto());
            self.resend_all(now, self.timing.backoffs() > 0);
        }
        waits
    }
}
