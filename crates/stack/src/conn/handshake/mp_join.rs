//! Additional subflows: the MP_JOIN handshake from both sides (RFC 8684 section 3.2).
//!
//! Owns the HMAC checks. Must never let a subflow carry data before the peer's HMAC is verified.

use core::net::SocketAddr;

use manypath_tcp::machine::Machine;
use manypath_tcp::time::Duration;
use manypath_wire::ids::Nonce;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{Join, MptcpOption};

use crate::api::{EventKind, SubflowEnd, SubflowOrigin};
use crate::conn::dss::reset_reason::interference;
use crate::conn::dss::reset_reason::mptcp_specific;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::{Endpoint, Subflow};
use crate::conn::types::SubflowIdx;
use crate::conn::{Conn, Cx};
use crate::crypto::mac::{JoinMac, Keys, equal};
use crate::ids::SubflowId;
use crate::pm;

/// Third packets sent before the join is given up.
const MOST_REPEATS: u8 = 7;

/// The first MP_JOIN of a segment.
pub(crate) fn join_of<'s>(seg: &'s Segment<'_>) -> Option<&'s Join> {
    seg.options.mptcp.iter().find_map(|option| match option {
        MptcpOption::Join(join) => Some(join),
        _ => None,
    })
}

impl Conn {
    /// Our key first, as in the HMACs that we send. // rfc8684:J9
    pub(crate) fn keys(&self) -> Option<Keys> {
        Some(Keys {
            sender: self.keys.local.as_ref()?.key(),
            receiver: self.keys.remote.as_ref()?.key(),
        })
    }

    /// A subflow may be added now. // rfc8684:C15
    pub(crate) fn may_join(&self) -> bool {
        self.fallback.may_join()
            && self.handshake.is_fully_established()
            && self.life.closed.is_none()
            && !self.fallback_undecided()
            && self.keys.remote.is_some()
    }

    /// A subflow may be requested: it is made now, or as soon as the connection is fully established. // rfc8684:C15
    pub(crate) fn may_create(&self) -> bool {
        self.may_join() || self.joins_follow()
    }

    /// Joins will be possible soon, as far as is known.
    pub(crate) fn joins_follow(&self) -> bool {
        self.fallback.may_join()
            && !self.handshake.is_fully_established()
            && self.life.closed.is_none()
    }

    /// The peer forbids joins there. // rfc8684:C19
    pub(crate) fn forbids_join_to(&self, remote: SocketAddr) -> bool {
        self.keys.no_joins_to_first && remote == self.handshake.first.remote
    }

    /// The peer may join now. // rfc8684:C15
    pub(crate) fn accepts_joins(&self) -> bool {
        self.takes_joins() && !self.fallback_undecided()
    }

    /// Whether the connection falls back is undecided, and a join has to wait for that. A refusal would be final (RFC 8684 section 3.6),
    /// and the decision usually takes a moment.
    pub(crate) fn keeps_joins_waiting(&self) -> bool {
        self.takes_joins() && self.fallback_undecided()
    }

    fn takes_joins(&self) -> bool {
        self.fallback.may_join()
            && self.handshake.is_established()
            && self.life.closed.is_none()
            && self.keys.remote.is_some()
    }

    /// A free ID for one more subflow, within the connection's limit. // rfc8684:J19
    pub(crate) fn free_subflow(&self) -> Option<SubflowId> {
        if self.subflows.len() >= usize::from(self.opts.max_subflows) {
            return None;
        }
        self.free_name()
    }

    /// A free ID, whatever the limit. There is none beside 256 others.
    pub(crate) fn free_name(&self) -> Option<SubflowId> {
        // IDs are not reused at once, so that late events of an ended subflow cannot be mistaken.
        (0..=u8::MAX)
            .map(|step| SubflowId(self.subflows.next_id.wrapping_add(step)))
            .find(|id| self.subflows.find(*id).is_none())
    }

    /// Notifies the path manager of a subflow as soon as its SYN exists.
    pub(crate) fn tell_opening(&mut self, endpoint: &Endpoint, cx: &mut Cx<'_>) {
        let opening = pm::Event::Opening {
            subflow: endpoint.id,
            local_id: endpoint.local_id,
            local: endpoint.tuple.local,
            remote_id: endpoint.remote_id,
            remote: endpoint.tuple.remote,
            origin: endpoint.origin,
        };
        self.tell_manager(opening, cx);
    }

    /// Adds a subflow; its TCP machine decides what is sent next.
    pub(crate) fn add_subflow(
        &mut self,
        endpoint: Endpoint,
        tcp: Machine,
        handshake: HandshakeState,
        cx: &mut Cx<'_>,
    ) {
        self.subflows.next_id = endpoint.id.0.wrapping_add(1);
        self.tell_opening(&endpoint, cx);
        match handshake {
            HandshakeState::JoinSyn { .. } => cx.count.join_sent += 1,
            HandshakeState::JoinSynAck { .. } => cx.count.join_received += 1,
            _ => {}
        }
        self.subflows
            .add(Subflow::new(endpoint, tcp, handshake, cx.now));
    }

    /// The SYN/ACK of a join that we initiated.
    pub(crate) fn join_answered(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        let HandshakeState::JoinSyn { nonce } = self.subflows[i].handshake.state else {
            return;
        };
        let Some(&Join::SynAck {
            backup,
            addr_id,
            hmac,
            nonce: theirs,
        }) = join_of(seg)
        else {
            cx.count.join_option_missing += 1; // rfc8684:J15
            self.reset_subflow(i, SubflowEnd::OptionsLost, mptcp_specific(), cx);
            return;
        };
        let Some(keys) = self.keys() else { return };
        if !equal(
            &JoinMac::compute(keys.reversed(), theirs, nonce).syn_ack(),
            &hmac,
        ) {
            cx.count.join_syn_ack_bad_hmac += 1; // rfc8684:J13
            self.reset_subflow(i, SubflowEnd::BadHmac, mptcp_specific(), cx);
            return;
        }
        if self.awaits_fallback_of_peer(cx.now) {
            self.reset_subflow(i, SubflowEnd::Replaced, interference(), cx);
            return;
        }
        let proof = JoinMac::compute(keys, nonce, theirs).ack();
        let sf = &mut self.subflows[i];
        let repeat_at = cx.now + sf.tcp.rto();
        sf.endpoint.remote_id = addr_id; // rfc8684:J4
        sf.endpoint.backup_there = backup;
        sf.handshake.state = HandshakeState::JoinAck {
            proof,
            sent_at: Some(cx.now),
            repeat_at,
            repeats: 0,
        };
        sf.tcp.force_ack();
    }

    /// The third packet of a join that the peer initiated.
    pub(crate) fn join_proved(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        let HandshakeState::JoinSynAck { local, remote } = self.subflows[i].handshake.state else {
            return;
        };
        let Some(keys) = self.keys() else { return };
        match join_of(seg) {
            Some(Join::Ack { hmac })
                if equal(
                    &JoinMac::compute(keys.reversed(), remote, local).ack(),
                    hmac,
                ) =>
            {
                if !self.takes_over_place(i, cx) {
                    return;
                }
                self.subflows[i].handshake.state = HandshakeState::Done;
                self.subflows.joined = true;
                self.subflows[i].tcp.force_ack(); // rfc8684:J10
                cx.count.join_established += 1;
                self.better_than_failing(cx);
            }
            // rfc8684:J14,J16
            Some(_) => {
                cx.count.join_ack_bad_hmac += 1;
                self.reset_subflow(i, SubflowEnd::BadHmac, mptcp_specific(), cx);
            }
            None => {
                cx.count.join_option_missing += 1;
                self.reset_subflow(i, SubflowEnd::OptionsLost, mptcp_specific(), cx);
            }
        }
    }

    /// Any segment of the peer after our third ACK is the fourth packet: the subflow is established. // rfc8684:J11
    pub(crate) fn join_confirmed(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if let HandshakeState::JoinAck { sent_at, .. } = self.subflows[i].handshake.state {
            if !self.takes_over_place(i, cx) {
                return;
            }
            let sf = &mut self.subflows[i];
            // A SYN that was retransmitted may have given no RTT sample.
            if let Some(sent_at) = sent_at {
                sf.tcp.first_measured(cx.now, cx.now.since(sent_at));
            }
            sf.handshake.state = HandshakeState::Done;
            self.subflows.joined = true;
            cx.count.join_established += 1;
            self.better_than_failing(cx);
        }
    }

    /// Repeats the third ACK until it is answered. // rfc8684:J11
    pub(crate) fn repeat_proofs(&mut self, cx: &mut Cx<'_>) {
        for i in self.subflows.indices() {
            let rto = self.subflows[i].tcp.rto();
            let HandshakeState::JoinAck {
                sent_at,
                repeat_at,
                repeats,
                ..
            } = &mut self.subflows[i].handshake.state
            else {
                continue;
            };
            if *repeat_at > cx.now {
                continue;
            }
            *sent_at = None;
            *repeats += 1;
            *repeat_at = cx.now + Duration::from_nanos(rto.as_nanos() << (*repeats).min(8));
            if *repeats > MOST_REPEATS {
                self.reset_subflow(i, SubflowEnd::TimedOut, mptcp_specific(), cx);
            } else {
                self.subflows[i].tcp.force_ack();
            }
        }
    }

    /// The HMAC with which our SYN/ACK proves that we have the keys. // rfc8684:J7,J9
    pub(crate) fn syn_ack_proof(&self, local: Nonce, remote: Nonce) -> Option<[u8; 8]> {
        Some(JoinMac::compute(self.keys()?, local, remote).syn_ack())
    }

    /// Reports once that a subflow carries data, also to the path manager.
    pub(crate) fn take_up(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if !self.subflows[i].take_up(cx.now) {
            return;
        }
        self.life.lonely_until = None;
        let endpoint = self.subflows[i].endpoint;
        self.push_event(EventKind::SubflowUp {
            subflow: endpoint.id,
            tuple: endpoint.tuple,
            iface: endpoint.iface,
            local_id: endpoint.local_id,
            remote_id: endpoint.remote_id,
            origin: endpoint.origin,
            backup: endpoint.backup_here || endpoint.backup_there,
        });
        self.tell_manager(
            pm::Event::Up {
                subflow: endpoint.id,
            },
            cx,
        );
        self.reinject_from_stale(i);
        if endpoint.origin == SubflowOrigin::Recreated {
            self.replaces(i, cx);
        }
    }
}
