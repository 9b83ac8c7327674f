//! Additional subflows: the MP_JOIN handshake from both sides (RFC 8684 section 3.2).
//!
//! Owns the HMAC checks. Must never let a subflow carry data before the peer's HMAC is verified.

use core::net::SocketAddr;

use manypath_tcp::machine::Machine;
use manypath_tcp::time::Duration;
use manypath_wire::ids::Nonce;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{Join, MptcpOption};

use crate::api::{ConnOptions, EventKind, PathManager, SubflowEnd, SubflowOrigin};
use crate::conn::Conn;
use crate::conn::dss::reset_reason::{interference, lack_of_resources, mptcp_specific};
use crate::conn::events::Events;
use crate::conn::handshake::{Handshake, Keys, Stage};
use crate::conn::life::Life;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::subflow::{Endpoint, Subflow};
use crate::conn::types::{Cx, SubflowIdx};
use crate::crypto::mac::{self, JoinMac, equal};
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

/// Whether subflows can be added now, by us or by the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Joins {
    /// The connection is open, and its protocol level allows joins.
    pub(in crate::conn) possible: bool,
    pub(in crate::conn) stage: Stage,
    /// The peer's key is known.
    pub(in crate::conn) keys: bool,
    /// Whether the connection falls back is undecided, and a join has to wait for that. A refusal would be final (RFC 8684 section 3.6),
    /// and the decision usually takes a moment.
    pub(in crate::conn) undecided: bool,
}

impl Joins {
    /// A subflow may be added now. // rfc8684:C15
    pub(crate) fn may_join(self) -> bool {
        self.are_accepted() && self.stage == Stage::FullyEstablished
    }

    /// A subflow may be requested: it is made now, or as soon as the connection is fully established. // rfc8684:C15
    pub(crate) fn may_create(self) -> bool {
        self.may_join() || self.will_follow()
    }

    /// Joins will be possible soon, as far as is known.
    pub(crate) fn will_follow(self) -> bool {
        self.possible && self.stage < Stage::FullyEstablished
    }

    /// The peer may join now. // rfc8684:C15
    pub(crate) fn are_accepted(self) -> bool {
        self.are_known() && !self.undecided
    }

    /// The peer may join as soon as it is decided whether the connection falls back.
    pub(crate) fn must_wait(self) -> bool {
        self.are_known() && self.undecided
    }

    fn are_known(self) -> bool {
        self.possible && self.keys && self.stage >= Stage::Established
    }

    /// A replacement for an unresponsive subflow could be created.
    pub(in crate::conn) fn may_replace(self, opts: &ConnOptions) -> bool {
        opts.path_manager != PathManager::Passive && self.may_join()
    }
}

impl Handshake {
    /// The peer forbids joins there. // rfc8684:C19
    pub(crate) fn forbids_join_to(&self, remote: SocketAddr) -> bool {
        self.keys.no_joins_to_first && remote == self.first.remote
    }

    /// The SYN/ACK of a join that we initiated.
    pub(crate) fn join_answered(
        &mut self,
        flight: &mut Flight<'_>,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) {
        let HandshakeState::JoinSyn { nonce } = flight.subflows[i].handshake.state else {
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
            flight.reset_subflow(i, SubflowEnd::OptionsLost, mptcp_specific(), cx);
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
            flight.reset_subflow(i, SubflowEnd::BadHmac, mptcp_specific(), cx);
            return;
        }
        if flight.subflows.awaits_fallback_of_peer(cx.now) {
            flight.reset_subflow(i, SubflowEnd::Replaced, interference(), cx);
            return;
        }
        let proof = JoinMac::compute(keys, nonce, theirs).ack();
        let sf = &mut flight.subflows[i];
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

    /// The third packet of a join that the peer initiated. True: the subflow is established.
    pub(crate) fn join_proved(
        &self,
        flight: &mut Flight<'_>,
        opts: &ConnOptions,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let HandshakeState::JoinSynAck { local, remote } = flight.subflows[i].handshake.state
        else {
            return false;
        };
        let Some(keys) = self.keys.pair() else {
            return false;
        };
        let proof = || JoinMac::compute(keys.reversed(), remote, local).ack();
        match join_of(seg) {
            Some(Join::Ack { hmac }) if equal(&proof(), hmac) => {
                let admitted = flight.evicts_for(opts, i, cx);
                if admitted {
                    flight.subflows.join_established(i, cx);
                    flight.subflows[i].tcp.force_ack(); // rfc8684:J10
                }
                admitted
            }
            // rfc8684:J14,J16
            Some(_) => {
                cx.count.join_ack_bad_hmac += 1;
                flight.reset_subflow(i, SubflowEnd::BadHmac, mptcp_specific(), cx);
                false
            }
            None => {
                cx.count.join_option_missing += 1;
                flight.reset_subflow(i, SubflowEnd::OptionsLost, mptcp_specific(), cx);
                false
            }
        }
    }
}

impl Subflows {
    /// Adds a subflow; its TCP machine decides what is sent next.
    pub(crate) fn add_join(
        &mut self,
        endpoint: Endpoint,
        tcp: Machine,
        handshake: HandshakeState,
        cx: &mut Cx<'_>,
    ) {
        self.next_id = endpoint.id.0.wrapping_add(1);
        match handshake {
            HandshakeState::JoinSyn { .. } => cx.count.join_sent += 1,
            HandshakeState::JoinSynAck { .. } => cx.count.join_received += 1,
            _ => {}
        }
        self.add(Subflow::new(endpoint, tcp, handshake, cx.now));
    }

    fn join_established(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self[i].handshake.state = HandshakeState::Done;
        self.joined = true;
        cx.count.join_established += 1;
    }
}

impl Flight<'_> {
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

    /// Any segment of the peer after our third ACK is the fourth packet: the subflow is established. True if it is by this one.
    // rfc8684:J11
    pub(crate) fn join_confirmed(
        &mut self,
        opts: &ConnOptions,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) -> bool {
        let HandshakeState::JoinAck { sent_at, .. } = self.subflows[i].handshake.state else {
            return false;
        };
        if !self.evicts_for(opts, i, cx) {
            return false;
        }
        // A SYN that was retransmitted may have given no RTT sample.
        if let Some(sent_at) = sent_at {
            let sample = cx.now.since(sent_at);
            self.subflows[i].tcp.first_measured(cx.now, sample);
        }
        self.subflows.join_established(i, cx);
        true
    }

    /// A join has authenticated. If it was one beyond the limit, it evicts a subflow that is unresponsive to this
    /// moment, or a backup. `false` if there is none: then this join is refused, and a later one need not be.
    pub(crate) fn evicts_for(
        &mut self,
        opts: &ConnOptions,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) -> bool {
        let staying = |sf: &&Subflow| sf.closing.reset_with.is_none();
        let taken = self.subflows.iter().filter(staying).count();
        if taken <= usize::from(opts.max_subflows) {
            return true;
        }
        match self
            .subflows
            .to_evict(self.subflows[i].endpoint.backup_here)
        {
            Some((other, end)) => {
                cx.count.subflow_evicted += 1;
                // If it only seemed dead, the RST informs the peer.
                self.reset_subflow(other, end, lack_of_resources(), cx);
                true
            }
            None => {
                cx.count.join_refused += 1;
                // One of our own may be made again.
                self.reset_subflow(i, SubflowEnd::Replaced, lack_of_resources(), cx);
                false
            }
        }
    }

    /// Reports once that a subflow carries data, also to the path manager.
    pub(crate) fn on_came_up(
        &mut self,
        life: &mut Life,
        paths: &mut Paths,
        events: &mut Events,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) {
        if !self.subflows[i].on_came_up(cx.now) {
            return;
        }
        life.close_timeout = None;
        let endpoint = self.subflows[i].endpoint;
        events.push(EventKind::SubflowUp {
            subflow: endpoint.id,
            tuple: endpoint.tuple,
            iface: endpoint.iface,
            local_id: endpoint.local_id,
            remote_id: endpoint.remote_id,
            origin: endpoint.origin,
            backup: endpoint.backup_here || endpoint.backup_there,
        });
        paths.notify_manager(
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

impl Paths {
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
        self.notify_manager(opening, cx);
    }
}

impl Conn {
    /// Whether subflows can be added.
    pub(crate) fn joins(&self) -> Joins {
        Joins {
            possible: self.level.may_join() && self.life.closed.is_none(),
            stage: self.handshake.stage,
            keys: self.handshake.keys.remote.is_some(),
            undecided: self.fallback.fallback_undecided(&self.subflows),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_wait_for_the_keys_the_proof_and_the_decision_about_fallback() {
        // rfc8684:C15
        use Stage::{Established, FullyEstablished, Opening};
        // The level allows joins, the peer's key is known, fallback is undecided; then: we may join, we may request it, the peer may join,
        // its join has to wait.
        for (possible, stage, keys, undecided, expected) in [
            (
                true,
                FullyEstablished,
                true,
                false,
                (true, true, true, false),
            ),
            (
                true,
                FullyEstablished,
                true,
                true,
                (false, false, false, true),
            ),
            (true, Established, true, false, (false, true, true, false)),
            (true, Established, true, true, (false, true, false, true)),
            (true, Established, false, false, (false, true, false, false)),
            (true, Opening, false, false, (false, true, false, false)),
            (
                false,
                FullyEstablished,
                true,
                false,
                (false, false, false, false),
            ),
            (false, Established, true, true, (false, false, false, false)),
        ] {
            let joins = Joins {
                possible,
                stage,
                keys,
                undecided,
            };
            let found = (
                joins.may_join(),
                joins.may_create(),
                joins.are_accepted(),
                joins.must_wait(),
            );
            assert_eq!(found, expected, "{joins:?}");
        }
    }
}
