//! What the send queue keeps of sent data, and what subflows that are behind keep themselves.

use alloc::vec::Vec;

use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;

impl SendQueue {
    /// A loss is being repaired, which delays the Data ACK and with it room in the buffer, and less than a segment of the
    /// written data is unsent: the room that is left must do until then.
    pub(in crate::conn) fn is_short_of_data(&self, subflows: &Subflows) -> bool {
        let unsent = self.end().since(self.next());
        let room = self.room() as u64;
        subflows.iter().any(|sf| {
            let segment = u64::from(sf.tcp.mss());
            // What a stale one carries was reinjected.
            let repairs = sf.tcp.in_recovery() && !sf.is_stale();
            repairs && unsent < segment && unsent + room >= segment
        })
    }

    /// Frees what both levels acknowledged; a subflow that is behind keeps its own copy of what the others do not need.
    // rfc8684:D21,R2
    pub(in crate::conn) fn free_acked(&mut self, subflows: &mut Subflows) {
        if self.pinned() == 0 && self.queued() == 0 {
            return;
        }
        let una = self.una();
        let held = subflows.iter().filter_map(|sf| sf.maps.tx.lowest()).min();
        self.free(held);
        if self.pinned() <= u64::from(self.capacity()) {
            return;
        }
        for sf in subflows.iter_mut() {
            let parts: Vec<_> = sf
                .maps
                .tx
                .iter()
                .filter(|m| m.at < una && self.holds(m.at))
                .map(|m| (m.at, self.copy_out(m.at..m.at + u64::from(m.len))))
                .collect();
            for (at, bytes) in parts {
                sf.maps.retain(at, bytes);
            }
        }
        self.free(None);
    }
}
