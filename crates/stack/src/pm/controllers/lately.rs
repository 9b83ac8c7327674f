//! What a subflow carried of the last blocks of a stream, and how much of it had to be repeated.

use super::SubflowView;
use crate::ids::SubflowId;

/// A subflow that repeats this many percent of what it sends is in trouble.
pub(super) const LOSSY: u64 = 4;

/// So many blocks in a row of which much was repeated are no chance, nor an overshoot of slow start.
const LOSSY_BLOCKS: u8 = 2;

/// Bytes that a subflow had acknowledged, and those that it repeated.
type Carried = (u64, u64);

/// How many in a hundred bytes were repeated, of a block or of more.
fn repeated((acked, repeated): Carried, block: u64) -> u64 {
    repeated.saturating_mul(100) / (acked + repeated).max(block).max(1)
}

/// How a subflow did with the last blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lately {
    pub(super) id: SubflowId,
    /// Acknowledged of the last block.
    pub(super) last: u64,
    /// In all, up to the last look.
    whole: Carried,
    /// Of the last blocks, each counting half as much as the one after it.
    recent: Carried,
    /// Blocks in a row of which it repeated much.
    lossy: u8,
}

impl Lately {
    pub(super) fn new(id: SubflowId) -> Self {
        Self {
            id,
            last: 0,
            whole: (0, 0),
            recent: (0, 0),
            lossy: 0,
        }
    }

    /// It repeated much of each of the last blocks.
    pub(super) fn is_lossy(&self) -> bool {
        self.lossy >= LOSSY_BLOCKS
    }

    /// How many percent of the last blocks, and of what came since, `sf` repeated.
    pub(super) fn share(&self, sf: &SubflowView, block: u64) -> u64 {
        repeated(self.recent(sf), block)
    }

    /// The same a block later.
    pub(super) fn after(self, sf: &SubflowView, block: u64) -> Self {
        let (acked, again) = self.recent(sf);
        let much = repeated(self.since(sf), block) >= LOSSY;
        Self {
            id: self.id,
            last: self.since(sf).0,
            whole: (sf.acked, sf.retransmitted),
            recent: (acked / 2, again / 2),
            lossy: u8::from(much) * self.lossy.saturating_add(1),
        }
    }

    fn recent(&self, sf: &SubflowView) -> Carried {
        let new = self.since(sf);
        (self.recent.0 + new.0, self.recent.1 + new.1)
    }

    /// Since the last look.
    fn since(&self, sf: &SubflowView) -> Carried {
        let (acked, repeated) = self.whole;
        (
            sf.acked.saturating_sub(acked),
            sf.retransmitted.saturating_sub(repeated),
        )
    }
}
