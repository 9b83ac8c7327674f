//! Loss detection by duplicate acknowledgements, for a peer without SACK (RFC 5681 section 3.2, RFC 6582).

use manypath_wire::seq::SeqNum;

use super::types::{AckIn, Phase};
use crate::recovery::scoreboard::{AckReport, Flight};

/// Duplicate acknowledgements that mean a loss (RFC 5681 section 3.2).
const DUP_THRESH: u32 = 3;

/// Holes in one flight up to which each partial acknowledgement restarts the retransmission timer. More: the timer is left
/// running (RFC 6582 section 4, the "impatient" variant). A trade: below, each hole costs a round trip of fast recovery and no window;
/// above, so many round trips cost more than the timeout that resends all of them in slow start.
const FEW_HOLES: u32 = 8;

/// What duplicate acknowledgements have shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewReno {
    /// No second fast retransmit before this is acknowledged (RFC 6582 section 3.2: "recover").
    recover: SeqNum,
    /// Duplicate acknowledgements in a row.
    dupacks: u32,
    /// Bytes that they say have left the network.
    dupack_bytes: u32,
    /// Whether the first partial acknowledgement of this recovery found more than [`FEW_HOLES`].
    many_holes: Option<bool>,
}

impl NewReno {
    pub(super) fn new(isn: SeqNum) -> NewReno {
        NewReno {
            recover: isn,
            dupacks: 0,
            dupack_bytes: 0,
            many_holes: None,
        }
    }

    /// Bytes that duplicates say have left the network, and that the scoreboard counts as in flight.
    pub(super) fn arrived(&self) -> u32 {
        self.dupack_bytes
    }

    /// Bytes that this acknowledgement says have arrived. Each duplicate stands for one segment (RFC 5681 section 3.2).
    pub(super) fn on_ack(
        &mut self,
        ack: &AckIn<'_>,
        report: &AckReport,
        phase: &Phase,
        (pipe, mss): (u32, u32),
    ) -> u32 {
        if report.acked > 0 {
            // What fills the hole arrived now; the rest of the jump was counted by duplicates.
            let counted = self.dupack_bytes.min(report.acked.saturating_sub(mss));
            self.dupack_bytes = if matches!(phase, Phase::Recovery { .. }) {
                self.dupack_bytes - counted
            } else {
                0
            };
            self.dupack_bytes = self.dupack_bytes.min(pipe);
            self.dupacks = 0;
            return report.acked - counted;
        }
        if !ack.duplicate || matches!(phase, Phase::Loss { .. }) {
            return 0;
        }
        self.dupacks = self.dupacks.saturating_add(1);
        let arrived = mss.min(pipe.saturating_sub(self.dupack_bytes));
        self.dupack_bytes += arrived;
        arrived
    }

    /// Marks what this acknowledgement shows to be lost. Returns how much.
    pub(super) fn detect(
        &mut self,
        ack: &AckIn<'_>,
        report: &AckReport,
        phase: &Phase,
        flight: &mut Flight,
        mss: u32,
    ) -> u32 {
        match phase {
            // RFC 6582 section 3.2 step 2: three duplicates, none of which an earlier recovery provoked.
            Phase::Open if ack.duplicate && self.dupacks == DUP_THRESH => {
                if flight.una().before(self.recover) {
                    0
                } else {
                    flight.mark_head(mss)
                }
            }
            // Step 3: a partial acknowledgement shows the next hole.
            Phase::Recovery { .. } if report.acked > 0 => {
                let lost = flight.mark_head(mss);
                self.dupack_bytes = self.dupack_bytes.min(flight.pipe());
                lost
            }
            Phase::Open | Phase::Recovery { .. } | Phase::Loss { .. } => 0,
        }
    }

    /// This partial acknowledgement does not restart the retransmission timer.
    ///
    /// A peer without SACK shows one hole a round trip. RFC 6582 section 3.2 step 3 has the first partial acknowledgement of a
    /// recovery restart the timer and no further one: a sender that lost fifty segments resends them after the timeout, and does not
    /// need fifty round trips (gauntlet 1012134). Where few are missing, as far as duplicates tell, each one restarts it: on a
    /// long path each hole is soon repaired, and a timeout costs the window.
    pub(super) fn is_impatient(&mut self, una: SeqNum, until: SeqNum, mss: u32) -> bool {
        let missing = until.since(una).saturating_sub(self.dupack_bytes);
        let many = missing > mss.saturating_mul(FEW_HOLES);
        let first = self.many_holes.is_none();
        *self.many_holes.get_or_insert(many) && !first
    }

    /// Fast recovery begins with `nxt` the first number never sent.
    pub(super) fn on_recovery(&mut self, nxt: SeqNum) {
        self.recover = nxt;
        self.many_holes = None;
    }

    /// The retransmission timer fired, with `nxt` the first number never sent.
    pub(super) fn on_rto(&mut self, nxt: SeqNum) {
        self.recover = nxt;
        self.on_recovered();
    }

    /// A recovery ended.
    pub(super) fn on_recovered(&mut self) {
        self.dupacks = 0;
        self.dupack_bytes = 0;
    }

    /// All is acknowledged, or nothing was lost: what duplicates said counts no more.
    pub(super) fn forget_bytes(&mut self) {
        self.dupack_bytes = 0;
    }
}
