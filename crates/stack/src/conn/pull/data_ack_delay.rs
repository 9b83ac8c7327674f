//! Data ACKs advance: each subflow learns how much later they come than its own acknowledgements.

use crate::conn::dss::offset::Offset;
use crate::conn::pull::path_view::Schedule;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::Cx;

impl Subflows {
    /// The Data ACK advanced from `before`.
    pub(in crate::conn) fn note_data_ack_delay(
        &mut self,
        send: &SendQueue,
        schedule: &mut Schedule,
        before: Offset,
        cx: &Cx<'_>,
    ) {
        let una = send.una();
        let most = self.data_rto();
        for sf in self.iter_mut() {
            if sf
                .reinjection
                .data_ack_delay
                .answered(before, una, most, cx.now)
            {
                schedule.forget();
            }
        }
    }
}
