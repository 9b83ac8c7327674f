//! What is learnt about the path from elsewhere than acknowledgements: sizes reported by routers and the interface, a pause.

use manypath_wire::seq::SeqNum;

use super::LossRecovery;
use crate::recovery::pmtu::Report;
use crate::time::Instant;

/// The caller's options take up to this much of a full segment's payload: all option space (RFC 9293 section 3.1).
pub(super) const CALLERS_OPTIONS: u32 = 40;

/// `len` numbers may have been sent in segments with more than `size` bytes of payload and options of the caller, whose length
/// is not recorded. A wrong yes costs one needless retransmission, a wrong no a timeout and the window.
pub(super) fn may_exceed(len: u32, size: u32) -> bool {
    len.saturating_add(CALLERS_OPTIONS) > size
}

impl LossRecovery {
    /// Forgets what was seen of the path, but for its round trip.
    pub(crate) fn forget_path(&mut self) {
        self.round.forget_rates();
        self.end_episode();
        self.cc.forget_path();
    }

    /// A router reports what its link carries; the number `seq` that it quotes is outstanding. True if segments are smaller from
    /// now on; what was too large is then marked lost, which says nothing about congestion (RFC 8201 section 5.4).
    pub(crate) fn on_icmp_too_big(&mut self, now: Instant, seq: SeqNum, report: Report) -> bool {
        let outstanding = seq.within(self.flight.una(), self.flight.outstanding());
        if !outstanding {
            return false;
        }
        let smaller = self.pmtu.on_icmp(now, report, self.timing.base_rto());
        if smaller.is_some() {
            self.on_smaller(now);
        }
        smaller.is_some()
    }

    /// The interface and the peer let segments have `size` bytes of payload and options of the caller from now on. True if that
    /// makes them smaller; as above, it is no congestion.
    pub(crate) fn set_ceiling(&mut self, now: Instant, size: u32) -> bool {
        let smaller = self.pmtu.set_ceiling(size);
        if smaller.is_some() {
            self.on_smaller(now);
        }
        smaller.is_some()
    }

    /// Segments are smaller from now on. What was sent larger leaves again at once, and has a round trip from now on.
    fn on_smaller(&mut self, now: Instant) {
        self.adopt_mss();
        let size = self.mss();
        self.flight.mark_any(|entry| may_exceed(entry.len, size));
        if self.rto_timer.is_set() {
            self.rto_timer.set(now + self.rto());
        }
    }
}
