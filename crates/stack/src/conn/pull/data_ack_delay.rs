//! Data ACKs advance: each subflow learns how much later they come than its own acknowledgements.

use crate::conn::dss::offset::Offset;
use crate::conn::{Conn, Cx};

impl Conn {
    /// The Data ACK advanced from `before`.
    pub(in crate::conn) fn peer_has_more(&mut self, before: Offset, cx: &Cx<'_>) {
        let una = self.send.una();
        let most = self.data_rto();
        for sf in &mut self.subflows {
            if sf
                .reinjection
                .data_ack_delay
                .answered(before, una, most, cx.now)
            {
                self.schedule.forget();
            }
        }
    }
}
