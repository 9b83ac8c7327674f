//! What is known of a subflow when something happens that may end in fallback.

use crate::conn::Conn;
use crate::conn::fallback::decide::{Facts, Failing, Held, Received, Sent};
use crate::conn::types::SubflowIdx;

impl Conn {
    /// What [`decide`](super::decide::decide) needs to know of a subflow.
    pub(in crate::conn) fn facts(&self, i: SubflowIdx) -> Facts {
        let subflows = &self.subflows;
        Facts {
            others: subflows.others(i),
            sent: match subflows.is_contiguous(&self.send, i) {
                true => Sent::Contiguous,
                false => Sent::Scattered,
            },
            received: match (subflows.has_gaps(&self.recv, i), subflows[i].drops()) {
                (true, _) => Received::Gaps,
                (false, true) => Received::Dropped,
                (false, false) => Received::Whole,
            },
            held: self.held_bytes(i),
            failing: match self.fallback.checksum_failure {
                None => Failing::No,
                Some(failure) if failure.is_answered() => Failing::Answered,
                Some(_) => Failing::Unanswered,
            },
            left: subflows.is_last_usable(i),
            joined: subflows.joined,
            proving: subflows.awaits_pre_established(),
        }
    }

    /// Bytes of a subflow that wait for a mapping.
    pub(in crate::conn) fn held_bytes(&self, i: SubflowIdx) -> Held {
        match &self.subflows[i].unmapped.held {
            None => Held::None,
            Some(held) if held.was_queried() => Held::Queried,
            Some(_) if self.subflows.is_whole_stream(&self.recv, i) => Held::Stream,
            Some(_) => Held::Elsewhere,
        }
    }
}
