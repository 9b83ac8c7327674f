//! What is known of a subflow when something happens that may end in fallback.

use crate::conn::fallback::decide::{Facts, Failing, Held, Received, Sent};
use crate::conn::fallback::{ChecksumFailure, Fallback, HeldOrder};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::SubflowIdx;

impl Fallback {
    /// What [`decide`](super::decide::decide) needs to know of a subflow.
    pub(in crate::conn) fn facts(
        &self,
        subflows: &Subflows,
        send: &SendQueue,
        recv: &ReceiveQueue,
        i: SubflowIdx,
    ) -> Facts {
        let here = |f: &ChecksumFailure| f.subflow() == subflows[i].id();
        let held_order = self.checksum_failure.filter(here).map(|f| f.held_order());
        let gaps = held_order == Some(HeldOrder::Other) || subflows.has_gaps(recv, i);
        Facts {
            others: subflows.others(i),
            sent: match subflows.is_contiguous(send, i) {
                true => Sent::Contiguous,
                false => Sent::NotContiguous,
            },
            received: match (gaps, subflows[i].drops()) {
                (true, _) => Received::Gaps,
                (false, true) => Received::Dropped,
                (false, false) => Received::Whole,
            },
            held: subflows.held_bytes(recv, i),
            failing: match self.checksum_failure {
                None => Failing::No,
                Some(failure) if failure.held_order() == HeldOrder::Stream => Failing::Continued,
                Some(failure) if failure.is_answered() => Failing::Answered,
                Some(_) => Failing::Unanswered,
            },
            left: subflows.is_last_usable(i),
            joined: subflows.joined,
            proving: subflows.awaits_pre_established(),
        }
    }
}

impl Subflows {
    /// Bytes of a subflow that wait for a mapping.
    pub(in crate::conn) fn held_bytes(&self, recv: &ReceiveQueue, i: SubflowIdx) -> Held {
        match &self[i].unmapped.held {
            None => Held::None,
            Some(held) if held.was_queried() => Held::Queried,
            Some(_) if self.is_whole_stream(recv, i) => Held::Stream,
            Some(_) => Held::Elsewhere,
        }
    }
}
