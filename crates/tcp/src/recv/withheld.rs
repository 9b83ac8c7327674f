//! What acknowledgements have said, and what they hold back.
//!
//! Holding back serves Multipath TCP alone: bytes that arrived without a mapping may have to come again with one, or show that the peer
//! has fallen back (RFC 8684 section 3.7).

use core::num::NonZeroU32;

use manypath_wire::seq::SeqNum;

/// The acknowledgement number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acked {
    /// The next number expected when the last acknowledgement left (Last.ACK.sent of RFC 7323 section 4.3).
    last_sent: SeqNum,
    /// What that acknowledgement said. It stays behind `last_sent` while something is held back.
    said: SeqNum,
    /// Of what arrived last, so many bytes are not acknowledged.
    withheld: Option<NonZeroU32>,
}

impl Acked {
    pub(super) fn new() -> Acked {
        let zero = SeqNum::new(0);
        Acked {
            last_sent: zero,
            said: zero,
            withheld: None,
        }
    }

    /// The peer's stream begins at `next`.
    pub(super) fn begin(&mut self, next: SeqNum) {
        self.last_sent = next;
        self.said = next;
    }

    pub(super) fn last_sent(&self) -> SeqNum {
        self.last_sent
    }

    /// What acknowledgements say where `next` is expected: that, less what is held back. It never goes back. In front of a hole
    /// nothing is held back: a peer that waits for the acknowledgement of what comes before would not fill it.
    pub(super) fn number(&self, next: SeqNum, has_hole: bool) -> SeqNum {
        match self.withheld.filter(|_| !has_hole) {
            None => self.said.max(next),
            Some(bytes) => self.said.max(next - bytes.get()),
        }
    }

    /// An acknowledgement of `said` left where `next` is expected.
    pub(super) fn sent(&mut self, next: SeqNum, said: SeqNum) {
        self.last_sent = next;
        self.said = said;
    }

    /// From now on the last `bytes` of what arrives stay unacknowledged. True if those are fewer than before.
    pub(super) fn withhold(&mut self, bytes: Option<NonZeroU32>) -> bool {
        bytes < core::mem::replace(&mut self.withheld, bytes)
    }
}
