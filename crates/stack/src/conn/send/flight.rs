//! The subflows together with the data that they have in flight.
//!
//! A subflow that is reset, or whose path seems to have failed, leaves its data to the others (RFC 8684 section 3.3.6), so that its end
//! concerns the send queue as well. What makes a path stale is in `failover`.

use manypath_wire::tcp::mptcp::{MptcpOption, ResetReason};

use crate::api::{SubflowEnd, SubflowPhase};
use crate::conn::dss::reset_reason::interference;
use crate::conn::level::Level;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::{RemovedSubflow, Subflows};
use crate::conn::types::{Cx, SubflowIdx};

/// Ended subflows that are kept for status.
const MOST_ENDED: usize = 32;

/// A view of the connection: its subflows, and the send queue that takes back what they have in flight.
pub(crate) struct Flight<'a> {
    pub(in crate::conn) subflows: &'a mut Subflows,
    pub(in crate::conn) send: &'a mut SendQueue,
    /// With plain TCP nothing can be reinjected.
    pub(in crate::conn) level: Level,
}

impl<'a> Flight<'a> {
    pub(in crate::conn) fn new(
        subflows: &'a mut Subflows,
        send: &'a mut SendQueue,
        level: Level,
    ) -> Self {
        Self {
            subflows,
            send,
            level,
        }
    }
}

impl Flight<'_> {
    /// Resets all subflows: the connection is closed.
    pub(in crate::conn) fn close_all(&mut self, cx: &mut Cx<'_>) {
        for i in self.subflows.indices() {
            self.reset_subflow(i, SubflowEnd::ConnectionClosed, None, cx);
        }
    }

    /// Resets one subflow; what it carried is reinjected on the others.
    pub(crate) fn reset_subflow(
        &mut self,
        i: SubflowIdx,
        end: SubflowEnd,
        why: Option<MptcpOption>,
        cx: &mut Cx<'_>,
    ) {
        if self.subflows[i].closing.reset_with.is_some() {
            return;
        }
        cx.count.subflow_reset_by_us += 1;
        self.subflows.dirty = true;
        self.reinject_all(i);
        if end.is_by_middlebox() {
            self.subflows.probe_others(i, cx);
        }
        self.subflows[i].reset(end, why);
        self.subflows.refresh_sample(i);
    }

    /// The connection is finished: so are its subflows, and those that never came up are reset.
    pub(in crate::conn) fn finish_subflows(&mut self, cx: &mut Cx<'_>) {
        for i in self.subflows.indices() {
            match self.subflows[i].phase() {
                SubflowPhase::Handshake | SubflowPhase::PreEstablished => {
                    self.reset_subflow(i, SubflowEnd::ConnectionClosed, None, cx);
                }
                SubflowPhase::Established | SubflowPhase::Closing => {
                    self.subflows[i].closing.finish = true
                }
            }
        }
    }

    /// A path manager or the application removes a subflow that works: with a FIN. // rfc8684:A21
    pub(crate) fn finish_subflow(&mut self, i: SubflowIdx, end: SubflowEnd) {
        self.reinject_all(i);
        let sf = &mut self.subflows[i];
        sf.closing.end.get_or_insert(end);
        sf.closing.finish = true;
        self.subflows.refresh_sample(i);
    }

    /// A subflow's address is gone. // rfc8684:A19
    pub(crate) fn address_gone(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.reset_subflow(i, SubflowEnd::AddressGone, interference(), cx);
    }

    /// Takes out a subflow that ended; what it carried is reinjected on the others.
    pub(in crate::conn) fn remove(
        &mut self,
        i: SubflowIdx,
        end: SubflowEnd,
        cx: &mut Cx<'_>,
    ) -> Subflow {
        // Where acknowledgements lose their options, so does the RST that would give the reason.
        if end.is_by_middlebox() || self.subflows[i].evidence.option_loss.acks > 0 {
            self.reinject_subflow_acked(i);
        }
        self.reinject_all(i);
        let (sf, subflows) = (self.subflows.remove(i), &mut *self.subflows);
        let silently = matches!(
            end,
            SubflowEnd::AddressGone | SubflowEnd::TimedOut | SubflowEnd::Unreachable
        );
        // Our MP_JOIN ACK may have arrived: then the peer had another subflow.
        subflows.joined |= silently && matches!(sf.handshake.state, HandshakeState::JoinAck { .. });
        subflows.new_one_lost |= sf.stats.bytes_sent > 0 && !sf.evidence.data_was_acked;
        self.send.unavoid(sf.id());
        cx.count.subflow_closed += 1;
        subflows.removed.push(RemovedSubflow {
            subflow: sf.id(),
            tuple: sf.endpoint.tuple,
            last_ack: sf.last_ack(cx.now),
        });
        if subflows.ended.len() == MOST_ENDED {
            subflows.ended.pop_front();
        }
        subflows.ended.push_back(sf.ended(end, cx.now));
        let refused = matches!(
            end,
            SubflowEnd::Refused
                | SubflowEnd::ResetByPeer {
                    transient: false,
                    ..
                }
        );
        if refused && !sf.was_up() {
            let unknown_token = Some(ResetReason::MptcpSpecific);
            let token_unknown =
                matches!(end, SubflowEnd::ResetByPeer { reason, .. } if reason == unknown_token);
            subflows.probe_after_refusal(sf.stats.opened, token_unknown, cx.now);
        }
        sf
    }
}
