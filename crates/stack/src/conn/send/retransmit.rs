//! Data-level retransmission: what subflows have acknowledged and the peer's connection lacks (RFC 8684 section 3.3.6).
//!
//! Owns which part is resent; the data timer decides when. Must never resend what a working subflow still carries.

use crate::conn::send::data_rto::DataTimer;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;
use crate::ids::SubflowId;

/// Bytes resent before the peer has shown that it lacks them.
pub(in crate::conn) const REPEATED_AT_ONCE: u64 = 64 * 1024;

impl SendQueue {
    /// The subflow that acknowledged data without a Data ACK, if another one can carry it.
    fn subflow_acked_only_on(&self, subflows: &Subflows) -> Option<SubflowId> {
        let una = self.una();
        let subflow_acked_only = |sf: &Subflow| sf.has_subflow_acked_only(una);
        let found = subflows.iter().find(|sf| subflow_acked_only(sf))?;
        // A backup carries data only if nothing better is left. // rfc8684:P1
        let takes = |sf: &Subflow| sf.is_active() && (found.is_backup() || !sf.is_backup());
        let mut others = subflows.iter().filter(|sf| !subflow_acked_only(sf));
        others.any(takes).then(|| found.id())
    }

    /// Resends at most this many bytes from the first one without Data ACK on. // rfc8684:R3
    pub(in crate::conn) fn retransmit_missing(
        &mut self,
        data_timer: &mut DataTimer,
        subflows: &Subflows,
        most: u64,
    ) {
        let una = self.una();
        // Data in flight on an unresponsive subflow is resent, unless all are unresponsive.
        let silent_too = !subflows.has_responsive();
        let moving = subflows.iter();
        let moving = moving.filter(|sf| silent_too || sf.is_active());
        let in_flight = moving.flat_map(|sf| sf.maps.tx.iter());
        let behind = in_flight.filter(|m| m.at + u64::from(m.len) > una);
        let upto = behind
            .map(|m| m.at)
            .chain([una + most.max(1), self.next()])
            .min()
            .unwrap_or(una);
        data_timer.retransmitted_to = (una < upto).then_some(upto);
        if una < upto {
            let avoid = self.subflow_acked_only_on(subflows);
            self.reinject(una..upto, avoid);
        }
    }

    /// New data has its Data ACK. If it ends exactly where the resent part does, what follows is missing as well.
    pub(in crate::conn) fn retransmit_next(
        &mut self,
        data_timer: &mut DataTimer,
        subflows: &Subflows,
    ) {
        let (una, upto) = (self.una(), data_timer.retransmitted_to);
        if upto.is_some_and(|upto| una >= upto) {
            data_timer.retransmitted_to = None;
        }
        if upto == Some(una) {
            self.retransmit_missing(data_timer, subflows, REPEATED_AT_ONCE);
        }
    }
}
