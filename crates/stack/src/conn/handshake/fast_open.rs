//! TCP Fast Open on a connection (RFC 7413, RFC 8684 appendix B).
//!
//! Payload of a SYN belongs to the stream and not to the data sequence space: the SYN has the first data sequence number and the first byte
//! *behind* that payload the second. Internal offsets count from the very first byte; only the translation to data sequence numbers begins
//! later.
//!
//! Owns what a handshake revealed about Fast Open. Must never map payload of a SYN.

use manypath_tcp::machine::State;
use manypath_wire::ids::Mss;
use manypath_wire::segment::Segment;

use crate::api::{Role, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::offset::{Numbering, Offset};
use crate::conn::handshake::{FastOpenOutcome, Handshake};
use crate::conn::recv::queue::Placed;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Whether a connection attempt ended because its SYNs went unanswered (RFC 7413 section 4.1.3): not if there was an answer or our own
/// address went. The application may give up at any time; that counts only if a SYN without the option (`repeated`) went unanswered, too.
/// Pure.
fn is_silence(end: SubflowEnd, repeated: bool) -> bool {
    match end {
        SubflowEnd::TimedOut | SubflowEnd::Unreachable => true,
        SubflowEnd::ConnectionClosed => repeated,
        _ => false,
    }
}

impl Subflows {
    /// Bytes that our SYN may carry.
    pub(crate) fn early_bytes(&self, send: &SendQueue, i: SubflowIdx) -> u64 {
        let sf = &self[i];
        let first = matches!(
            sf.handshake.state,
            HandshakeState::CapableSyn | HandshakeState::Plain
        );
        if first && sf.tcp.state() == State::SynSent && sf.tcp.offered_fast_open() {
            send.queued()
        } else {
            0
        }
    }

    /// The peer's SYN waits for its answer.
    pub(crate) fn is_held(&self) -> bool {
        self.iter().any(|sf| sf.tcp.is_held())
    }

    /// The peer's third packet is still to come.
    pub(crate) fn is_early(&self) -> bool {
        self.iter().any(|sf| sf.tcp.is_early())
    }
}

impl Handshake {
    /// The first subflow ends, perhaps before any answer. Some firewalls drop all packets between two ports between which a SYN with the
    /// option came, so that those without get through no more: other ports have to do without from the beginning.
    pub(crate) fn early_unanswered(&mut self, sf: &Subflow, end: SubflowEnd) {
        let opening = self.role == Role::Initiator && !self.is_established() && sf.is_first();
        let repeated = sf.tcp.counters().sent.segs_retrans > 0;
        if opening && sf.tcp.offered_fast_open() && is_silence(end, repeated) {
            self.fast_open_outcome = Some(FastOpenOutcome::Silence);
        }
    }

    /// What the last handshake revealed about Fast Open, once.
    pub(crate) fn take_fast_open(&mut self) -> Option<FastOpenOutcome> {
        self.fast_open_outcome.take()
    }

    /// The peer answered our SYN: payload that it took is delivered, the rest was never sent. // rfc8684:O3,O4
    pub(crate) fn early_answered(
        &mut self,
        numbers: &mut Numbers,
        send: &mut SendQueue,
        subflows: &mut Subflows,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) {
        let tcp = &subflows[i].tcp;
        if !tcp.offered_fast_open() {
            return;
        }
        let taken = tcp.early_taken();
        let carried = tcp.early_sent();
        let repeated = tcp.counters().sent.segs_retrans > 0;
        self.fast_open_outcome = match seg.options.fastopen {
            Some(cookie) if !cookie.cookie().is_empty() => Some(FastOpenOutcome::Cookie {
                cookie,
                mss: seg.options.mss.map_or(536, |Mss(mss)| mss),
            }),
            _ if taken > 0 => None,
            _ if repeated => Some(FastOpenOutcome::Silence),
            _ if carried > 0 && tcp.named_fast_open() => Some(FastOpenOutcome::Refusal),
            // No cookie was to blame: the peer, or a box before it, takes no payload with SYNs.
            _ if carried > 0 => Some(FastOpenOutcome::Silence),
            _ => None,
        };
        cx.count.fast_open_cookie += u64::from(matches!(
            self.fast_open_outcome,
            Some(FastOpenOutcome::Cookie { .. })
        ));
        if taken == 0 {
            return;
        }
        cx.count.fast_open_taken += 1;
        send.sent(taken);
        numbers.tx_start = send.next();
        send.subflow_acked(numbers.tx_start);
        subflows[i].stats.bytes_sent += u64::from(taken);
        if let Some(local) = &self.keys.local {
            numbers.tx = Some(Numbering::behind(local.idsn, numbers.tx_start)); // rfc8684:O3
        }
    }
}

impl Numbers {
    /// A DSS of the peer proves that it has our keys, unless it may have been sent before they could arrive: a host that took payload of
    /// our SYN answers that early, with mappings without a Data ACK (erratum 6609). // rfc8684:C13,O5
    pub(crate) fn proves_keys(&self, has_data_ack: bool) -> bool {
        has_data_ack || self.tx_start == Offset::ZERO
    }
}

impl Conn {
    /// The peer's SYN came with payload that is taken, the beginning of its stream, for its cookie or since its answer waits for the
    /// application; that may read it, and may answer, before the handshake is over. // rfc8684:O3,O5
    pub(crate) fn open_early(&mut self, payload: &[u8], cx: &mut Cx<'_>) {
        let (placed, advanced) = self.recv.accept(None, Offset::ZERO, payload);
        debug_assert_eq!(placed, Placed::Stored, "the first bytes of a fresh queue");
        self.numbers.rx_start = self.recv.next();
        self.subflows[SubflowIdx::FIRST].stats.bytes_received += payload.len() as u64;
        cx.count.bytes_in += payload.len() as u64;
        let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
        self.handshake
            .on_established_for_data(flight, &mut self.events, SubflowIdx::FIRST, cx);
        if advanced > 0 {
            self.events.report_readable(self.handshake.is_established());
        }
        Flight::new(&mut self.subflows, &mut self.send, self.level).on_came_up(
            &mut self.life,
            &mut self.paths,
            &mut self.events,
            SubflowIdx::FIRST,
            cx,
        );
    }
}
