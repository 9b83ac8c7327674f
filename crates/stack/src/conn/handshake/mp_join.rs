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
use crate::conn::Conn;
use crate::conn::dss::reset_reason::{interference, mptcp_specific};
use crate::conn::handshake::{Handshake, Keys};
use crate::conn::level::Level;
use crate::conn::life::Life;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::subflow::{Endpoint, Subflow};
use crate::conn::types::{Cx, SubflowIdx};
use crate::crypto::mac::{self, JoinMac, equal};
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

impl Keys {
    /// Our key first, as in the HMACs that we send. // rfc8684:J9
    pub(crate) fn pair(&self) -> Option<mac::Keys> {
        Some(mac::Keys {
            sender: self.local.as_ref()?.key(),
            receiver: self.remote.as_ref()?.key(),
        })
    }

    /// The HMAC with which our SYN/ACK proves that we have the keys. // rfc8684:J7,J9
    pub(crate) fn syn_ack_proof(&self, local: Nonce, remote: Nonce) -> Option<[u8; 8]> {
        Some(JoinMac::compute(self.pair()?, local, remote).syn_ack())
    }
}

impl Handshake {
    /// The peer forbids joins there. // rfc8684:C19
    pub(crate) fn forbids_join_to(&self, remote: SocketAddr) -> bool {
        self.keys.no_joins_to_first && remote == self.first.remote
    }

    fn takes_joins(&self, level: Level, life: &Life) -> bool {
        level.may_join()
            && self.is_established()
            && life.closed.is_none()
            && self.keys.remote.is_some()
    }

    /// The SYN/ACK of a join that we initiated.
    pub(crate) fn join_answered(
        &mut self,
        send: &mut SendQueue,
        subflows: &mut Subflows,
        level: Level,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) {
        let HandshakeState::JoinSyn { nonce } = subflows[i].handshake.state else {
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
            subflows.reset_subflow(
                send,
                level,
                i,
                SubflowEnd::OptionsLost,
                mptcp_specific(),
                cx,
            );
            return;
        };
        let Some(keys) = self.keys.pair() else {
            return;
        };
        if !equal(
            &JoinMac::compute(keys.reversed(), theirs, nonce).syn_ack(),
            &hmac,
        ) {
            cx.count.join_syn_ack_bad_hmac += 1; // rfc8684:J13
            subflows.reset_subflow(send, level, i, SubflowEnd::BadHmac, mptcp_specific(), cx);
            return;
        }
        if subflows.awaits_fallback_of_peer(cx.now) {
            subflows.reset_subflow(send, level, i, SubflowEnd::Replaced, interference(), cx);
            return;
        }
        let proof = JoinMac::compute(keys, nonce, theirs).ack();
        let sf = &mut subflows[i];
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
}

impl Subflows {
    /// A free ID, whatever the limit. There is none beside 256 others.
    pub(crate) fn free_name(&self) -> Option<SubflowId> {
        // IDs are not reused at once, so that late events of an ended subflow cannot be mistaken.
        (0..=u8::MAX)
            .map(|step| SubflowId(self.next_id.wrapping_add(step)))
            .find(|id| self.find(*id).is_none())
    }

    /// Repeats the third ACK until it is answered. // rfc8684:J11
    pub(crate) fn repeat_proofs(&mut self, send: &mut SendQueue, level: Level, cx: &mut Cx<'_>) {
        for i in self.indices() {
            let rto = self[i].tcp.rto();
            let HandshakeState::JoinAck {
                sent_at,
                repeat_at,
                repeats,
                ..
            } = &mut self[i].handshake.state
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
                self.reset_subflow(send, level, i, SubflowEnd::TimedOut, mptcp_specific(), cx);
            } else {
                self[i].tcp.force_ack();
            }
        }
    }
}

impl Conn {
    /// A subflow may be added now. // rfc8684:C15
    pub(crate) fn may_join(&self) -> bool {
        self.level.may_join()
            && self.handshake.is_fully_established()
            && self.life.closed.is_none()
            && !self.fallback.fallback_undecided(&self.subflows)
            && self.handshake.keys.remote.is_some()
    }

    /// A subflow may be requested: it is made now, or as soon as the connection is fully established. // rfc8684:C15
    pub(crate) fn may_create(&self) -> bool {
        self.may_join() || self.joins_follow()
    }

    /// Joins will be possible soon, as far as is known.
    pub(crate) fn joins_follow(&self) -> bool {
        self.level.may_join()
            && !self.handshake.is_fully_established()
            && self.life.closed.is_none()
    }

    /// The peer may join now. // rfc8684:C15
    pub(crate) fn accepts_joins(&self) -> bool {
        self.handshake.takes_joins(self.level, &self.life)
            && !self.fallback.fallback_undecided(&self.subflows)
    }

    /// Whether the connection falls back is undecided, and a join has to wait for that. A refusal would be final (RFC 8684 section 3.6),
    /// and the decision usually takes a moment.
    pub(crate) fn keeps_joins_waiting(&self) -> bool {
        self.handshake.takes_joins(self.level, &self.life)
            && self.fallback.fallback_undecided(&self.subflows)
    }

    /// A free ID for one more subflow, within the connection's limit. // rfc8684:J19
    pub(crate) fn free_subflow(&self) -> Option<SubflowId> {
        if self.subflows.len() >= usize::from(self.opts.max_subflows) {
            return None;
        }
        self.subflows.free_name()
    }

    /// Notifies the path manager of a subflow as soon as its SYN exists.
    pub(crate) fn notify_opening(&mut self, endpoint: &Endpoint, cx: &mut Cx<'_>) {
        let opening = pm::Event::Opening {
            subflow: endpoint.id,
            local_id: endpoint.local_id,
            local: endpoint.tuple.local,
            remote_id: endpoint.remote_id,
            remote: endpoint.tuple.remote,
            origin: endpoint.origin,
        };
        self.paths.notify_manager(opening, cx);
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
        self.notify_opening(&endpoint, cx);
        match handshake {
            HandshakeState::JoinSyn { .. } => cx.count.join_sent += 1,
            HandshakeState::JoinSynAck { .. } => cx.count.join_received += 1,
            _ => {}
        }
        self.subflows
            .add(Subflow::new(endpoint, tcp, handshake, cx.now));
    }

    /// The third packet of a join that the peer initiated.
    pub(crate) fn join_proved(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        let HandshakeState::JoinSynAck { local, remote } = self.subflows[i].handshake.state else {
            return;
        };
        let Some(keys) = self.handshake.keys.pair() else {
            return;
        };
        match join_of(seg) {
            Some(Join::Ack { hmac })
                if equal(
                    &JoinMac::compute(keys.reversed(), remote, local).ack(),
                    hmac,
                ) =>
            {
                if !self.evicts_for(i, cx) {
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
                self.subflows.reset_subflow(
                    &mut self.send,
                    self.level,
                    i,
                    SubflowEnd::BadHmac,
                    mptcp_specific(),
                    cx,
                );
            }
            None => {
                cx.count.join_option_missing += 1;
                self.subflows.reset_subflow(
                    &mut self.send,
                    self.level,
                    i,
                    SubflowEnd::OptionsLost,
                    mptcp_specific(),
                    cx,
                );
            }
        }
    }

    /// Any segment of the peer after our third ACK is the fourth packet: the subflow is established. // rfc8684:J11
    pub(crate) fn join_confirmed(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if let HandshakeState::JoinAck { sent_at, .. } = self.subflows[i].handshake.state {
            if !self.evicts_for(i, cx) {
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

    /// Reports once that a subflow carries data, also to the path manager.
    pub(crate) fn on_came_up(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if !self.subflows[i].on_came_up(cx.now) {
            return;
        }
        self.life.close_timeout = None;
        let endpoint = self.subflows[i].endpoint;
        self.events.push(EventKind::SubflowUp {
            subflow: endpoint.id,
            tuple: endpoint.tuple,
            iface: endpoint.iface,
            local_id: endpoint.local_id,
            remote_id: endpoint.remote_id,
            origin: endpoint.origin,
            backup: endpoint.backup_here || endpoint.backup_there,
        });
        self.paths.notify_manager(
            pm::Event::Up {
                subflow: endpoint.id,
            },
            cx,
        );
        self.subflows
            .reinject_from_stale(&mut self.send, self.level, i);
        if endpoint.origin == SubflowOrigin::Recreated {
            self.subflows.replaces(&mut self.send, self.level, i, cx);
        }
    }
}
