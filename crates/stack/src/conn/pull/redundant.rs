//! Which part of what other subflows have in flight a subflow could duplicate, for the redundant scheduler and for reprobes.
//!
//! How far duplication has proceeded on a subflow is in `subflow/duplicates`. Whether a duplicate is sent is the scheduler's choice.

use core::ops::Range;

use crate::conn::dss::offset::Offset;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::SubflowIdx;

impl Subflows {
    /// What a subflow could duplicate.
    pub(crate) fn duplicate_for(
        &mut self,
        send: &SendQueue,
        i: SubflowIdx,
    ) -> Option<Range<Offset>> {
        let una = send.una();
        let (before, rest) = self.list.split_at_mut(i.0);
        let (sf, after) = rest.split_first_mut()?;
        let others = before
            .iter()
            .chain(after.iter())
            .map(|other| &other.maps.tx);
        sf.maps.duplicates.next(una, &sf.maps.tx, others)
    }
}
