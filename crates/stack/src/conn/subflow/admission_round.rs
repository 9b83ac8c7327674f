//! A round of probes that finds out which subflow a join may replace.

use manypath_tcp::time::{Duration, Instant};

use crate::conn::subflow::Subflow;
use crate::ids::SubflowSet;

/// Probes to each, since one may get lost.
const PROBES_OF_EACH: u8 = 3;

/// Subflows probed before one is evicted, all of them at the same time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Round {
    pub(super) began: Instant,
    pub(super) asked: SubflowSet,
    pub(super) pause: Duration,
    /// Probes to each so far.
    pub(super) probes_sent: u8,
}

impl Round {
    /// When the time to answer the last probe is over.
    pub(super) fn ends(&self) -> Instant {
        self.began + self.pause.times(u64::from(PROBES_OF_EACH))
    }

    pub(super) fn probes_at(&self) -> Option<Instant> {
        let next = self.began + self.pause.times(u64::from(self.probes_sent));
        (self.probes_sent < PROBES_OF_EACH).then_some(next)
    }

    /// It was probed, and nothing arrived on it since.
    pub(super) fn was_not_received(&self, sf: &Subflow) -> bool {
        self.asked.contains(sf.id()) && sf.liveness.receiver_probe.last_received() <= self.began
    }
}

/// The last round of probes for admission.
#[derive(Debug, Default)]
pub(crate) struct Admission(pub(super) Option<Round>);

impl Admission {
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.0.and_then(|round| round.probes_at())
    }
}
