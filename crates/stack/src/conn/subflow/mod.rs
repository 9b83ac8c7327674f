//! One subflow as the connection sees it: a TCP machine, its mappings and its handshake (RFC 8684 sections 3.1 to 3.3).
//!
//! Must own no stream bytes, save those that the connection no longer keeps while this subflow still has to be able
//! to retransmit them.

pub(in crate::conn) mod acked_below;
pub(in crate::conn) mod acked_by;
pub(in crate::conn) mod admission;
pub(in crate::conn) mod data_ack_delay;
pub(in crate::conn) mod dirty;
pub(in crate::conn) mod duplicates;
pub(in crate::conn) mod evidence;
pub(in crate::conn) mod held_unmapped;
pub(in crate::conn) mod probe;

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use manypath_tcp::cc::PathSample;
use manypath_tcp::machine::{Kind, Machine, Plan, State};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::checksum::Sum;
use manypath_wire::ids::{AddrId, FourTuple, Nonce};
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::header::Header;
use manypath_wire::tcp::mptcp::MptcpOption;

use crate::api::{
    EndedSubflow, IfaceId, Offload, SubflowEnd, SubflowInfo, SubflowOrigin, SubflowPhase,
};
use crate::conn::dss::mapping::{RxMaps, TxMaps};
use crate::conn::dss::offset::Offset;
use crate::conn::subflow::acked_below::SubflowAckedOnly;
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::data_ack_delay::DataAckDelay;
use crate::conn::subflow::dirty::Tracked;
use crate::conn::subflow::duplicates::Duplicates;
use crate::conn::subflow::evidence::PlainProbe;
use crate::conn::subflow::evidence::{MappingEdge, OptionLoss};
use crate::conn::subflow::held_unmapped::HeldUnmapped;
use crate::conn::subflow::probe::{PathProbe, ReceiverProbe};
use crate::ids::SubflowId;
use manypath_wire::tcp::options::Timestamps;

/// ACKs that may be sent in a row only to carry options. // rfc8684:G2
const SIGNALS_IN_A_ROW: u8 = 2;

/// Factor by which a subflow's data is acknowledged sooner than its handshake if something nearer than the peer must do it. (A very
/// long queue that has drained since looks the same, which only costs a preference.)
const MUCH_SOONER: u64 = 4;

/// Progress of a subflow's MPTCP handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeState {
    /// First subflow, initiator: our SYN offers Multipath TCP.
    CapableSyn,
    /// First subflow, initiator: keys are exchanged, but the peer has not proved that it has ours. // rfc8684:C10
    CapableAck,
    /// First subflow, responder: our SYN/ACK has our key.
    CapableSynAck,
    /// First subflow, responder: keys are here, no DSS yet.
    CapableKeys,
    /// Additional subflow, initiator.
    JoinSyn { nonce: Nonce },
    /// Additional subflow, initiator: our HMAC is in flight, no answer yet. // rfc8684:J11
    JoinAck {
        proof: [u8; 20],
        /// When it was sent, if only once so far.
        sent_at: Option<Instant>,
        repeat_at: Instant,
        repeats: u8,
    },
    /// Additional subflow, responder: our SYN/ACK has our HMAC.
    JoinSynAck { local: Nonce, remote: Nonce },
    /// The handshake is complete.
    Done,
    /// No Multipath TCP on this subflow.
    Plain,
}

/// The option that a RST carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Explanation(pub(crate) Option<MptcpOption>);

/// Whether packets of a subflow can leave the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Uplink {
    /// As far as is known.
    Works,
    /// The link has no carrier, or there is no route.
    Stalled,
    /// The host does not have the address any more.
    NoAddress,
}

/// Addresses and origin of a subflow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) id: SubflowId,
    pub(crate) iface: IfaceId,
    pub(crate) offload: Offload,
    pub(crate) tuple: FourTuple,
    pub(crate) origin: SubflowOrigin,
    pub(crate) local_id: AddrId,
    pub(crate) remote_id: AddrId,
    pub(crate) backup_here: bool,
    pub(crate) backup_there: bool,
}

#[derive(Debug)]
pub(crate) struct Subflow {
    pub(crate) endpoint: Endpoint,
    pub(crate) tcp: Tracked<Machine>,
    pub(crate) handshake: HandshakeState,
    pub(crate) tx: TxMaps,
    pub(crate) rx: RxMaps,
    /// Duplicates of other subflows' data that it carries.
    pub(crate) duplicates: Duplicates,
    /// Options that wait for an ACK without data.
    pub(crate) signals: VecDeque<MptcpOption>,
    /// ACKs without data sent in a row to carry options. // rfc8684:G2
    pub(crate) bare_signals: u8,
    /// When that count is reset although the peer did not advance.
    pub(crate) signals_again: Option<Instant>,
    /// Since when a retransmission time-out is pending; its data was reinjected.
    pub(crate) stale_since: Option<Instant>,
    /// Nothing was acknowledged on it for two round trips.
    pub(crate) potentially_failed: bool,
    /// Whether its packets can leave the host.
    pub(crate) uplink: Uplink,
    /// The path manager knows that it is unresponsive.
    pub(crate) reported_unresponsive: bool,
    /// It answers again, but a join to replace it may still be quicker.
    pub(crate) contested: bool,
    /// The subflow that this one replaces, and which ends when options are seen to pass here.
    pub(crate) replaces: Option<SubflowId>,
    /// What is mapped before this SSN was reinjected since it last answered.
    pub(crate) reinjected_below: Option<Ssn>,
    /// End of its data that another one retransmitted because the window was full.
    pub(crate) repeated: Offset,
    /// The next SSN when it was penalised; it may be again when everything before is acknowledged.
    pub(crate) penalised: Option<Ssn>,
    /// How often it was reprobed after a rest.
    pub(crate) reprobes: u32,
    /// Receiver's probes while nothing is in flight.
    pub(crate) receiver_probe: ReceiverProbe,
    /// When it last retransmitted at once on a sign of life.
    pub(crate) retried_at: Option<Instant>,
    /// Send FIN when all that was mapped is sent.
    pub(crate) finish: bool,
    /// The peer sent its FIN.
    pub(crate) peer_finished: bool,
    /// Until when that is not answered: the peer may have fallen back, and the evidence may be late.
    pub(in crate::conn) fin_waits: Option<Instant>,
    /// Payload arrived on it with a mapping: options pass beside the peer's data. // rfc8684:B2
    pub(crate) data_came_mapped: bool,
    /// Mappings received, and those received before the present segment.
    pub(crate) mappings: u64,
    pub(crate) mappings_before: u64,
    /// Data of ours was acknowledged on it beside an option: the peer saw our mappings. // rfc8684:B2
    pub(crate) data_was_acked: bool,
    /// Which host acknowledges its data.
    pub(crate) acked_by: AckedBy,
    /// Where the first data that it carried ends in the stream.
    pub(crate) first_end: Option<Offset>,
    /// Evidence of option loss.
    pub(crate) option_loss: OptionLoss,
    /// The peer's mapping edge, in the SSNs that its mappings name.
    pub(crate) mapping_edge: MappingEdge,
    /// SSNs on which a peer unaware of our fallback retransmits what came before. // rfc8684:R3
    pub(in crate::conn) retransmitted_after_fallback: Option<Range<Ssn>>,
    /// The peer's sequence number shows data that did not arrive.
    pub(crate) behind: bool,
    /// Payload that waits for its mapping. // rfc8684:D11
    pub(crate) held_unmapped: Option<HeldUnmapped>,
    /// Payload without mapping since the last mapped byte, and since when.
    pub(crate) unmapped: u64,
    pub(crate) unmapped_since: Option<Instant>,
    /// The last mapping was discarded, though the subflow acknowledged it.
    pub(crate) discarded_mapping: bool,
    /// When MP_FAIL was last sent to state that the order of this subflow is the stream's. The peer falls back when it receives it, even
    /// if a mapping has by then explained the data in question.
    pub(in crate::conn) mp_fail_sent_at: Option<Instant>,
    /// Data acked at subflow level only.
    pub(crate) subflow_acked_only: SubflowAckedOnly,
    /// How much later than the subflow's ACK the Data ACK arrives.
    pub(crate) data_ack_delay: DataAckDelay,
    /// It is being reset, with this option.
    pub(crate) reset_with: Option<Explanation>,
    /// The cause to report when it is gone.
    pub(crate) end: Option<SubflowEnd>,
    pub(crate) opened: Instant,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_reinjected: u64,
    pub(crate) bytes_received: u64,
    /// When an unanswered keepalive probe ends it. // rfc8684:A17
    pub(crate) probe_until: Option<Instant>,
    /// Handshake packets are sent without MPTCP options: a middlebox may drop packets that have them.
    pub(crate) plain: bool,
    /// When that is tried, unless an answer arrives before.
    pub(crate) option_retry_at: Option<Instant>,
    /// Whether the path carries segments without options.
    pub(crate) plain_probe: PlainProbe,
    /// ACKs alternate between MP_CAPABLE and DATA_FIN.
    pub(crate) handshake_next: bool,
    up_since: Option<Instant>,
    /// Round trip of its handshake, which a split-TCP proxy lets pass.
    pub(crate) handshake_rtt: Option<Duration>,
    /// Bytes with a Data ACK that the send queue freed while this subflow still has to retransmit them.
    retained: Vec<(Offset, Box<[u8]>)>,
}

/// Whether data is acknowledged so much sooner than the handshake was that something nearer than the peer must do it. Pure.
fn answered_on_the_way(handshake: Option<Duration>, data: Option<Duration>) -> bool {
    let both = handshake.zip(data);
    both.is_some_and(|(handshake, data)| data.times(MUCH_SOONER) < handshake)
}

impl Subflow {
    pub(crate) fn new(
        endpoint: Endpoint,
        tcp: Machine,
        handshake: HandshakeState,
        now: Instant,
    ) -> Self {
        Self {
            endpoint,
            tcp: Tracked::new(tcp),
            handshake,
            tx: TxMaps::default(),
            rx: RxMaps::default(),
            duplicates: Duplicates::default(),
            signals: VecDeque::new(),
            bare_signals: 0,
            signals_again: None,
            stale_since: None,
            potentially_failed: false,
            uplink: Uplink::Works,
            reported_unresponsive: false,
            contested: false,
            replaces: None,
            reinjected_below: None,
            repeated: Offset::ZERO,
            penalised: None,
            reprobes: 0,
            plain: false,
            option_retry_at: None,
            plain_probe: PlainProbe::None,
            receiver_probe: ReceiverProbe::new(now),
            retried_at: None,
            finish: false,
            peer_finished: false,
            fin_waits: None,
            data_came_mapped: false,
            mappings: 0,
            mappings_before: 0,
            data_was_acked: false,
            acked_by: AckedBy::Peer,
            first_end: None,
            option_loss: OptionLoss::default(),
            mapping_edge: MappingEdge::default(),
            retransmitted_after_fallback: None,
            behind: false,
            held_unmapped: None,
            unmapped: 0,
            unmapped_since: None,
            discarded_mapping: false,
            mp_fail_sent_at: None,
            subflow_acked_only: SubflowAckedOnly::default(),
            data_ack_delay: DataAckDelay::default(),
            reset_with: None,
            end: None,
            opened: now,
            bytes_sent: 0,
            bytes_reinjected: 0,
            bytes_received: 0,
            probe_until: None,
            handshake_next: true,
            up_since: None,
            handshake_rtt: None,
            retained: Vec::new(),
        }
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.endpoint.id
    }

    pub(crate) fn is_first(&self) -> bool {
        self.endpoint.origin == SubflowOrigin::First
    }

    /// Its phase as reported to the application.
    pub(crate) fn phase(&self) -> SubflowPhase {
        if self.reset_with.is_some() || self.finish || self.peer_finished {
            return SubflowPhase::Closing;
        }
        match self.handshake {
            HandshakeState::JoinAck { .. } => SubflowPhase::PreEstablished,
            HandshakeState::JoinSyn { .. } | HandshakeState::JoinSynAck { .. } => {
                SubflowPhase::Handshake
            }
            HandshakeState::CapableSynAck | HandshakeState::Plain if self.tcp.is_open_early() => {
                SubflowPhase::Established
            }
            HandshakeState::CapableSyn | HandshakeState::CapableSynAck => SubflowPhase::Handshake,
            HandshakeState::CapableAck | HandshakeState::CapableKeys | HandshakeState::Done => {
                SubflowPhase::Established
            }
            HandshakeState::Plain
                if matches!(self.tcp.state(), State::SynSent | State::SynReceived) =>
            {
                SubflowPhase::Handshake
            }
            HandshakeState::Plain => SubflowPhase::Established,
        }
    }

    /// Stream data may be sent on it. // rfc8684:J12
    pub(crate) fn carries_data(&self) -> bool {
        let introduced = match self.handshake {
            HandshakeState::JoinAck { .. }
            | HandshakeState::JoinSyn { .. }
            | HandshakeState::JoinSynAck { .. } => false,
            HandshakeState::CapableSyn | HandshakeState::CapableSynAck => false,
            HandshakeState::CapableAck
            | HandshakeState::CapableKeys
            | HandshakeState::Done
            | HandshakeState::Plain => true,
        };
        let open = matches!(self.tcp.state(), State::Established | State::CloseWait);
        (introduced && open || self.tcp.is_open_early())
            && self.reset_with.is_none()
            && !self.finish
    }

    /// How it probes its path at present.
    pub(crate) fn question(&self) -> PathProbe {
        let joining = matches!(
            self.handshake,
            HandshakeState::JoinSyn { .. } | HandshakeState::JoinAck { .. }
        );
        if joining && self.reset_with.is_none() && self.endpoint.origin == SubflowOrigin::Recreated
        {
            PathProbe::Rejoin
        } else if self.is_stale() {
            PathProbe::Stale
        } else {
            PathProbe::None
        }
    }

    /// A retransmission time-out is pending.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale_since.is_some()
    }

    /// It carries data and its path is not potentially failed.
    pub(crate) fn answers(&self) -> bool {
        self.carries_data() && !self.is_potentially_failed()
    }

    /// Its path may have failed: a time-out is pending, nothing was acknowledged for two round trips, or its packets
    /// cannot leave the host. Others carry its data, backups too.
    pub(crate) fn is_potentially_failed(&self) -> bool {
        self.is_stale() || self.potentially_failed || self.uplink != Uplink::Works
    }

    /// The peer was queried where unmapped data belongs.
    pub(crate) fn was_queried(&self) -> bool {
        self.held_unmapped
            .as_ref()
            .is_some_and(HeldUnmapped::was_queried)
    }

    /// Data is held, and the peer has not answered the query where it belongs.
    pub(in crate::conn) fn awaits_its_place(&self) -> bool {
        let held = self.held_unmapped.as_ref();
        held.is_some_and(|held| held.was_queried() && !held.is_needless())
    }

    /// What arrived last on it, data or acknowledgements, lacked options that it should have.
    pub(crate) fn lost_options(&self) -> bool {
        self.option_loss.acks > 0 || self.drops() || self.held_unmapped.is_some()
    }

    /// Some of what arrived last was acknowledged and discarded: the subflow's order is not the stream's.
    pub(crate) fn drops(&self) -> bool {
        self.unmapped > 0 || self.discarded_mapping
    }

    /// It acknowledged this byte, and there is no Data ACK for it.
    pub(crate) fn has_subflow_acked_only(&self, at: Offset) -> bool {
        self.subflow_acked_only.contains(at)
    }

    /// It is used when nothing better is left: a backup by the peer's flag or by ours, or its data is acknowledged on the way. The flag
    /// that we send holds for our data as well: a host that calls a path a backup means both directions.
    // rfc8684:P1,P2
    pub(crate) fn is_backup(&self) -> bool {
        let flagged = self.endpoint.backup_here || self.endpoint.backup_there;
        let answered = match self.acked_by {
            AckedBy::Peer => false,
            AckedBy::Unknown { .. } => true,
            AckedBy::Proxy => self.handshake_rtt.is_none() || self.is_answered_on_the_way(),
        };
        flagged || answered
    }

    /// Bytes a second that its congestion window allows now.
    pub(crate) fn rate(&self) -> u64 {
        self.rate_of(self.tcp.cwnd())
    }

    /// A proxy acknowledges its data, which need not reach the peer.
    pub(crate) fn is_answered_on_the_way(&self) -> bool {
        answered_on_the_way(self.handshake_rtt, self.tcp.min_rtt())
    }

    /// A proxy near by acknowledges its data, and the peer is behind it.
    pub(crate) fn is_behind_a_proxy(&self) -> bool {
        self.acked_by == AckedBy::Proxy && self.is_answered_on_the_way()
    }

    /// Bytes a second that a congestion window would allow.
    pub(crate) fn rate_of(&self, cwnd: u32) -> u64 {
        let round_trip = self.tcp.srtt().map_or(0, Duration::as_micros).max(1);
        u64::from(cwnd) * 1_000_000 / round_trip
    }

    /// Its part in the coupled congestion control of the others. A backup that is not in use takes no share of any bottleneck,
    /// and its window is no reason for the others to grow less.
    pub(crate) fn sample(&self) -> PathSample {
        let mut sample = self.tcp.path_sample();
        sample.usable &= self.answers() && (!self.is_backup() || self.tcp.awaits_ack());
        sample
    }

    /// True on the first call after the subflow became able to carry data.
    pub(crate) fn take_up(&mut self, now: Instant) -> bool {
        let up = self.up_since.is_none() && self.carries_data();
        if up {
            self.up_since = Some(now);
            self.handshake_rtt = self.tcp.srtt();
        }
        up
    }

    pub(crate) fn was_up(&self) -> bool {
        self.up_since.is_some()
    }

    /// Keeps acknowledged bytes that only this subflow still needs.
    pub(crate) fn retain(&mut self, at: Offset, bytes: Box<[u8]>) {
        self.retained.push((at, bytes));
    }

    fn retained_bytes(&self) -> usize {
        self.retained.iter().map(|(_, bytes)| bytes.len()).sum()
    }

    /// Bytes of memory held beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.tcp.memory()
            + self.tx.memory()
            + self.rx.memory()
            + self.duplicates.memory()
            + self.signals.capacity() * size_of::<MptcpOption>()
            + self.retained_bytes()
            + self.held_unmapped.as_ref().map_or(0, HeldUnmapped::memory)
            + self.subflow_acked_only.memory()
            + self.data_ack_delay.memory()
    }

    /// Frees what it no longer has to retransmit.
    pub(crate) fn release_retained(&mut self) {
        if self.retained.is_empty() {
            return;
        }
        let tx = &self.tx;
        self.retained.retain(|(at, bytes)| {
            let end = *at + bytes.len() as u64;
            tx.iter()
                .any(|m| m.at < end && *at < m.at + u64::from(m.len))
        });
    }

    /// Payload that only this subflow keeps; `None` if it does not have it.
    pub(crate) fn retained_payload(&self, at: Offset, out: &mut [u8]) -> Option<Sum> {
        let end = at + out.len() as u64;
        let (start, bytes) = self
            .retained
            .iter()
            .find(|(start, bytes)| *start <= at && end <= *start + bytes.len() as u64)?;
        let from = (at - *start) as usize;
        out.copy_from_slice(&bytes[from..from + out.len()]);
        Some(Sum::of(out))
    }

    /// An ACK was sent only to carry an option. // rfc8684:G2
    pub(crate) fn signal_left(&mut self, now: Instant) {
        self.bare_signals = self.bare_signals.saturating_add(1);
        if self.bare_signals >= SIGNALS_IN_A_ROW {
            self.signals_again = Some(now + self.tcp.rto());
        }
    }

    /// The peer advanced, or enough time passed: options may have ACKs of their own again.
    pub(crate) fn signals_welcome(&mut self) {
        self.bare_signals = 0;
        self.signals_again = None;
    }

    /// An option waits that may have an ACK of its own. // rfc8684:G2
    pub(crate) fn signal_ready(&self) -> bool {
        !self.signals.is_empty()
            && self.bare_signals < SIGNALS_IN_A_ROW
            && matches!(
                self.handshake,
                HandshakeState::CapableKeys | HandshakeState::Done | HandshakeState::Plain
            )
            && self.reset_with.is_none()
    }

    /// When the next waiting option may be sent by itself.
    pub(crate) fn signal_deadline(&self) -> Option<Instant> {
        self.signals_again.filter(|_| !self.signals.is_empty())
    }

    /// Begins a reset, with the option that explains it.
    pub(crate) fn reset(&mut self, end: SubflowEnd, why: Option<MptcpOption>) {
        if self.reset_with.is_none() {
            self.reset_with = Some(Explanation(why));
            self.end.get_or_insert(end);
            self.tcp.abort();
        }
    }

    /// The ACK that TIME-WAIT has to repeat.
    pub(crate) fn last_ack(&self, now: Instant) -> Option<LastAck> {
        if self.tcp.state() != State::TimeWait {
            return None;
        }
        let plan = Plan {
            kind: Kind::Ack,
            seq: self.tcp.snd_nxt(),
            ssn: self.tcp.snd_nxt_ssn(),
            len: 0,
            fin: false,
            syn: false,
            push: false,
            mss: self.tcp.mss(),
        };
        let (header, options) = self.tcp.header(now, &plan);
        let tuple = self.endpoint.tuple;
        let header = Header {
            src_port: tuple.local.port(),
            dst_port: tuple.remote.port(),
            ..header
        };
        Some(LastAck {
            iface: self.endpoint.iface,
            header,
            timestamps: options.timestamps,
        })
    }

    pub(crate) fn info(&self) -> SubflowInfo {
        SubflowInfo {
            id: self.endpoint.id,
            iface: self.endpoint.iface,
            tuple: self.endpoint.tuple,
            local_id: self.endpoint.local_id,
            remote_id: self.endpoint.remote_id,
            origin: self.endpoint.origin,
            phase: self.phase(),
            backup_here: self.endpoint.backup_here,
            backup_there: self.endpoint.backup_there,
            stale: self.is_stale()
                || self.receiver_probe.unresponsive
                || self.uplink != Uplink::Works,
            opened: self.opened,
            bytes_sent: self.bytes_sent,
            bytes_reinjected: self.bytes_reinjected,
            bytes_received: self.bytes_received,
            tcp: self.tcp.info(),
        }
    }

    pub(crate) fn ended(&self, end: SubflowEnd, now: Instant) -> EndedSubflow {
        EndedSubflow {
            id: self.endpoint.id,
            tuple: self.endpoint.tuple,
            origin: self.endpoint.origin,
            end,
            at: now,
            lived: lived(self.opened, now),
            bytes_sent: self.bytes_sent,
            bytes_received: self.bytes_received,
        }
    }
}

fn lived(from: Instant, to: Instant) -> Duration {
    to.since(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_detected_by_an_rtt_far_below_the_handshake() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (handshake, data, proxied) in [
            (ms(45), ms(0), true),
            (ms(600), ms(30), true),
            (ms(45), ms(45), false),
            (ms(45), ms(12), false),
            (ms(45), ms(200), false),
            (ms(45), None, false),
            (None, ms(0), false),
        ] {
            let is = answered_on_the_way(handshake, data);
            assert_eq!(is, proxied, "{handshake:?} {data:?}");
        }
    }
}

/// The acknowledgement that a subflow in TIME-WAIT has to be able to repeat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastAck {
    pub(crate) iface: IfaceId,
    pub(crate) header: Header,
    pub(crate) timestamps: Option<Timestamps>,
}
