//! Detects split-TCP proxies: subflow data is acknowledged without a Data ACK (RFC 8684 section 3.7).
//!
//! Either options do not pass, and the subflow has to end; or a proxy acknowledges on its own, and the peer's segments follow
//! a round trip later, with options, for sequence numbers that are acknowledged by then. One data-level time-out tells which.
//! A proxied subflow stays, but as a backup: its round trip is the proxy's and its window the proxy's buffer, so a scheduler
//! would take a slow path for the fastest, and only the connection detects, late, what is lost behind the proxy. A proxy
//! at the far end answers no sooner than the peer did in the handshake: its subflow is scheduled like any other.
//!
//! Owns the proxy state of joined subflows. Must never judge the first subflow, which falls back to TCP or waits first.

use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

impl Subflows {
    /// First data of a joined subflow was acknowledged without a Data ACK.
    pub(crate) fn on_ack_without_data_ack(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let until = cx.now + self.data_rto();
        let sf = &mut self[i];
        if sf.evidence.acked_by == AckedBy::Peer {
            let data_ack_seen = false;
            sf.evidence.acked_by = AckedBy::Unknown {
                until,
                data_ack_seen,
            };
        }
    }

    /// A data-level time-out is over. If it was no proxy that acknowledged the data, no options pass: true. // rfc8684:B3
    pub(crate) fn acked_without_options(
        &mut self,
        send: &SendQueue,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) -> bool {
        let (una, sf) = (send.una(), &mut self[i]);
        let arrived = sf.evidence.first_end.is_some_and(|end| una >= end);
        let proxy = sf.evidence.acked_by.at_the_end(arrived);
        cx.count.subflow_proxied += u64::from(proxy.is_some());
        sf.evidence.acked_by = proxy.unwrap_or(AckedBy::Peer);
        proxy.is_none()
    }
}
