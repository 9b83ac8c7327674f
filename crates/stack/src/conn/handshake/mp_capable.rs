//! The MP_CAPABLE handshake of the first subflow (RFC 8684 section 3.1).
//!
//! Owns the decision whether a connection uses Multipath TCP. The rules are pure functions; the connection acts on their results. Must
//! never allow joins before the keys are exchanged.

use manypath_wire::ids::Key;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{Capable, CapableKeys, MptcpOption, VERSION};

use crate::api::{EventKind, FallbackCause};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::RxMapping;
use crate::conn::dss::offset::Numbering;
use crate::conn::events::Events;
use crate::conn::handshake::{Handshake, Keys, Stage};
use crate::conn::level::Level;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::crypto::keys::KeyMaterial;
use crate::pm;
use crate::stats::Counters;

/// Why an MP_CAPABLE is treated as absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// A version or flag that we do not support. // rfc8684:C2,C18
    Unsupported,
    /// No crypto algorithm in common. // rfc8684:C20,C21,C27
    NoCrypto,
}

/// The first MP_CAPABLE of a segment, whatever its form.
pub(crate) fn capable_of<'s>(seg: &'s Segment<'_>) -> Option<&'s Capable> {
    seg.options.mptcp.iter().find_map(|option| match option {
        MptcpOption::Capable(capable) => Some(capable),
        _ => None,
    })
}

/// Whether an MP_CAPABLE is usable. An offer may be of a higher version; an answer, the third packet and the first data may not, as the
/// version is agreed by then. An offer, and the third packet that repeats it, may name further algorithms; an answer selects exactly one.
pub(crate) fn usable(capable: &Capable) -> Result<(), Unusable> {
    let (version_ok, crypto_ok) = match capable.keys {
        CapableKeys::Syn => (capable.version >= VERSION, true),
        CapableKeys::SynAck { .. } => (capable.version == VERSION, capable.other_crypto == 0),
        CapableKeys::Ack { .. } | CapableKeys::Data { .. } => (capable.version == VERSION, true),
    };
    // rfc8684:C2,C18
    if !version_ok || capable.extensibility {
        return Err(Unusable::Unsupported);
    }
    // rfc8684:C20,C21,C26,C27
    if !capable.hmac_sha256 || !crypto_ok {
        return Err(Unusable::NoCrypto);
    }
    Ok(())
}

impl Unusable {
    /// Counts an option that is treated as absent.
    pub(crate) fn count(self, count: &mut Counters) {
        match self {
            Self::NoCrypto => count.capable_no_crypto += 1,
            Self::Unsupported => count.capable_unsupported += 1,
        }
    }
}

/// What the third packet of a handshake, or the first data, shows the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Third {
    /// Both keys, and ours is right.
    Keys { peer: Key, own: Key },
    /// Multipath TCP, but it overtook the keys, which are still in flight. Wait for them.
    Early,
    /// No Multipath TCP. // rfc8684:C31
    Plain,
    /// An MP_CAPABLE that is treated as absent: no Multipath TCP. // rfc8684:C18,C21,C31
    Unusable(Unusable),
    /// Keys that are not ours. // rfc8684:C14
    WrongKeys,
}

/// Evaluates the third packet.
pub(crate) fn third(seg: &Segment<'_>, own: Key) -> Third {
    third_of(seg, |echoed| echoed == own)
}

/// As `third`, for a host that has to recognise its key.
pub(crate) fn third_of(seg: &Segment<'_>, is_own: impl Fn(Key) -> bool) -> Third {
    let capable = capable_of(seg);
    if let Some(Err(why)) = capable.map(usable) {
        return Third::Unusable(why);
    }
    match capable.map(|c| c.keys) {
        Some(
            CapableKeys::Ack { sender, receiver }
            | CapableKeys::Data {
                sender, receiver, ..
            },
        ) => {
            if is_own(receiver) {
                Third::Keys {
                    peer: sender,
                    own: receiver,
                }
            } else {
                Third::WrongKeys
            }
        }
        Some(CapableKeys::Syn | CapableKeys::SynAck { .. }) => Third::Plain,
        None if seg
            .options
            .mptcp
            .iter()
            .any(|o| matches!(o, MptcpOption::Dss(_))) =>
        {
            Third::Early
        }
        None => Third::Plain,
    }
}

impl Handshake {
    /// The peer acts as if its keys were sent, and they are not here: they are lost, or a middlebox drops packets with them. Repeating our
    /// SYN/ACK makes it resend them, and in time without options, a second before our timer would.
    fn request_keys(&mut self, subflows: &mut Subflows, i: SubflowIdx, seg: &Segment<'_>) {
        let tcp = &mut subflows[i].tcp;
        if tcp.acks_what_was_sent(seg.header.ack) && !core::mem::replace(&mut self.keys_asked, true)
        {
            tcp.repeat_syn();
            subflows.dirty = true;
        }
    }

    /// A segment for a half-open connection that has overtaken the keys: it is not processed yet. If a peer retransmits its first data
    /// without the keys, they will not come any more: Linux does so with data whose mapping a DATA_FIN has lengthened. First data without
    /// keys *and* mapping is no Multipath TCP at all: Linux so retransmits data that a Fast Open server refused, and its later mappings are
    /// wrong by as much. // rfc8684:C14,C31,B4
    pub(crate) fn arrived_before_keys(
        &mut self,
        subflows: &mut Subflows,
        i: SubflowIdx,
        seg: &Segment<'_>,
    ) -> bool {
        let Some(local) = &self.keys.local else {
            return false;
        };
        let early = subflows[i].handshake.state == HandshakeState::CapableSynAck
            && !seg.header.flags.syn()
            && !seg.header.flags.rst()
            && third(seg, local.key()) == Third::Early;
        if early && seg.payload.is_empty() {
            self.request_keys(subflows, i, seg);
        }
        let next = subflows[i].tcp.rcv_nxt();
        if !early || seg.payload.is_empty() || seg.header.seq != next {
            return early;
        }
        let mapped = seg.options.mptcp.dss().is_some_and(|d| d.mapping.is_some());
        let repeated = core::mem::replace(&mut self.keyless_data, true);
        mapped && !repeated
    }

    /// The first subflow can carry data; the peer's first window applies. Bytes beyond it by less than a unit of its scale Linux takes at
    /// subflow level and drops at data level, and with a full buffer behind such a hole it stalls for ever.
    pub(crate) fn on_established_for_data(
        &mut self,
        flight: &mut Flight<'_>,
        events: &mut Events,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) {
        cx.count.conn_established += u64::from(!self.is_established());
        if !self.is_established() {
            events.push(EventKind::Created {
                role: self.role,
                tuple: self.first,
                token: self.keys.token().filter(|_| flight.level.is_multipath()),
            });
        }
        self.stage = self.stage.max(Stage::Established);
        if flight.level.is_multipath() {
            flight.send.data_ack(
                flight.send.una(),
                u64::from(flight.subflows[i].tcp.peer_window_in_units()),
            );
        } else {
            flight.send.open_window();
        }
    }

    /// Whether this is proof enough, on this subflow.
    fn accepts_proof(&self, proof: Proof, send: &SendQueue, level: Level, sf: &Subflow) -> bool {
        match proof {
            // While data is in flight it is the better proof: a path that strips options from data would strip those of every subflow that
            // is made now, and then fallback to TCP is impossible.
            Proof::Option => sf.peer_has_keys() || send.una() == send.next(),
            Proof::Overdue => {
                let known = matches!(
                    sf.handshake.state,
                    HandshakeState::CapableKeys | HandshakeState::Done
                );
                known && level.is_multipath()
            }
        }
    }
}

impl Numbers {
    fn learn_key(&mut self, keys: &mut Keys, key: Key) {
        let remote = KeyMaterial::derive(key);
        self.rx = Some(Numbering::behind(remote.idsn, self.rx_start)); // rfc8684:C23
        keys.remote = Some(remote);
    }

    /// An MP_CAPABLE that came with data maps the first bytes; one that is treated as absent maps nothing. // rfc8684:C11,C12,C18
    pub(crate) fn capable_mapping(&self, capable: &Capable) -> Option<RxMapping> {
        let CapableKeys::Data { len, checksum, .. } = capable.keys else {
            return None;
        };
        usable(capable).ok()?;
        Some(RxMapping::new(
            manypath_wire::seq::Ssn::new(1),
            self.rx_start,
            len,
            len,
            checksum,
        ))
    }
}

/// What shows that joins may be made: the peer has our keys, as far as can be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Proof {
    /// A DSS of the peer, or an address that it announces. // rfc8684:C13,C15
    Option,
    /// Data was to prove that options pass with it, and none came through: perhaps the path drops it for them. Keys are exchanged, so
    /// another path may prove better.
    Overdue,
}

impl Conn {
    /// The initiator's handshake of the first subflow is complete: Multipath TCP or not?
    pub(crate) fn on_syn_ack(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        self.handshake.early_answered(
            &mut self.numbers,
            &mut self.send,
            &mut self.subflows,
            i,
            seg,
            cx,
        );
        (
            self.subflows[i].handshake.plain,
            self.subflows[i].handshake.option_retry_at,
        ) = (false, None);
        let answer = capable_of(seg)
            .filter(|_| self.level.is_multipath() && self.handshake.keys.local.is_some());
        let keys = answer.and_then(|capable| match (usable(capable), capable.keys) {
            (Ok(()), CapableKeys::SynAck { sender }) => Some((sender, *capable)),
            (Err(why), _) => {
                why.count(cx.count);
                None
            }
            (Ok(()), _) => None,
        });
        match keys {
            Some((key, capable)) => {
                self.numbers.learn_key(&mut self.handshake.keys, key);
                self.numbers.checksum |= capable.checksum_required; // rfc8684:C24
                self.handshake.keys.no_joins_to_first |= capable.no_joins_here;
                self.subflows[i].handshake.state = HandshakeState::CapableAck;
                self.subflows.probe_for_first_ack(&self.opts, i, cx);
            }
            // rfc8684:C3,C29,B1,M1
            None => self.descent().go_plain(i, FallbackCause::PeerWithout, cx),
        }
        let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
        self.handshake
            .on_established_for_data(flight, &mut self.events, i, cx);
        self.events.push(EventKind::Established);
    }

    /// The responder's handshake of the first subflow is complete: Multipath TCP or not?
    pub(crate) fn on_third_ack(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        if self.subflows[i].handshake.state == HandshakeState::CapableSynAck {
            let own = self.handshake.keys.local.as_ref().map(|local| local.key());
            match own.map_or(Third::Plain, |own| third(seg, own)) {
                Third::Keys { peer, .. } => {
                    self.numbers.learn_key(&mut self.handshake.keys, peer);
                    // The third packet confirms what was negotiated. // rfc8684:C24
                    self.numbers.checksum |= capable_of(seg).is_some_and(|c| c.checksum_required);
                    // It took our answer to an offer, even if it sent a SYN without one since. // rfc8684:H5
                    (
                        self.subflows[i].handshake.state,
                        self.subflows[i].handshake.plain,
                    ) = (HandshakeState::CapableKeys, false);
                    self.handshake.proof_until = Some(cx.now + self.subflows[i].tcp.rto());
                }
                Third::WrongKeys => {
                    cx.count.capable_bad_key += 1;
                    self.descent()
                        .go_plain(i, FallbackCause::ThirdAckWithout, cx);
                }
                Third::Unusable(why) => {
                    why.count(cx.count);
                    self.descent()
                        .go_plain(i, FallbackCause::ThirdAckWithout, cx);
                }
                Third::Early | Third::Plain => {
                    self.descent()
                        .go_plain(i, FallbackCause::ThirdAckWithout, cx)
                }
            }
        }
        let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
        self.handshake
            .on_established_for_data(flight, &mut self.events, i, cx);
    }

    /// Allows further subflows, once, if the proof suffices.
    pub(in crate::conn) fn on_proof(&mut self, i: SubflowIdx, proof: Proof, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        let first = matches!(
            sf.handshake.state,
            HandshakeState::CapableAck | HandshakeState::CapableKeys
        );
        if first && proof == Proof::Option {
            sf.handshake.state = HandshakeState::Done;
        }
        let enough = self
            .handshake
            .accepts_proof(proof, &self.send, self.level, sf);
        if self.handshake.is_fully_established() || !enough {
            return;
        }
        self.handshake.stage = Stage::FullyEstablished;
        self.handshake.proof_until = None;
        if self.handshake.keys.no_joins_to_first {
            self.paths
                .notify_manager(pm::Event::PeerForbidsFirstAddress, cx); // rfc8684:C19
        }
        self.paths.notify_manager(pm::Event::Ready, cx);
        // Payload that arrived before did not arm the checks.
        if self.subflows.payload_came() && self.joins().may_replace(&self.opts) {
            self.subflows.arm_receiver_probe(cx.now);
        }
        self.events.push(EventKind::JoinsAllowed);
        self.paths.release_early_commands();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; 8]);
    const OFFER: CapableKeys = CapableKeys::Syn;
    const ANSWER: CapableKeys = CapableKeys::SynAck { sender: KEY };
    const THIRD: CapableKeys = CapableKeys::Ack {
        sender: KEY,
        receiver: KEY,
    };
    const DATA: CapableKeys = CapableKeys::Data {
        sender: KEY,
        receiver: KEY,
        len: 5,
        checksum: None,
    };

    #[test]
    fn an_offer_may_be_of_a_higher_version_and_what_follows_has_the_agreed_one() {
        // rfc8684:C2
        let unsupported = Err(Unusable::Unsupported);
        for (keys, version, expected) in [
            (OFFER, 0, unsupported),
            (OFFER, 1, Ok(())),
            (OFFER, 7, Ok(())),
            (ANSWER, 0, unsupported),
            (ANSWER, 1, Ok(())),
            (ANSWER, 2, unsupported),
            (THIRD, 0, unsupported),
            (THIRD, 1, Ok(())),
            (THIRD, 2, unsupported),
            (DATA, 0, unsupported),
            (DATA, 1, Ok(())),
            (DATA, 2, unsupported),
        ] {
            let capable = Capable {
                version,
                ..Capable::v1(true, keys)
            };
            assert_eq!(usable(&capable), expected, "{capable:?}");
        }
    }

    #[test]
    fn unsupported_flags_make_the_option_unusable() {
        // rfc8684:C18,C20,C21,C26,C27
        // Bit B, bit H, bits D to G.
        let (unsupported, no_crypto) = (Err(Unusable::Unsupported), Err(Unusable::NoCrypto));
        for (extensibility, hmac_sha256, other_crypto, offer, answer, later) in [
            (false, true, 0, Ok(()), Ok(()), Ok(())),
            (true, true, 0, unsupported, unsupported, unsupported),
            (false, false, 0, no_crypto, no_crypto, no_crypto),
            (false, false, 0b0100, no_crypto, no_crypto, no_crypto),
            (false, true, 0b0100, Ok(()), no_crypto, Ok(())),
        ] {
            for (keys, expected) in [
                (OFFER, offer),
                (ANSWER, answer),
                (THIRD, later),
                (DATA, later),
            ] {
                let capable = Capable {
                    extensibility,
                    hmac_sha256,
                    other_crypto,
                    ..Capable::v1(true, keys)
                };
                assert_eq!(usable(&capable), expected, "{capable:?}");
            }
        }
    }
}
