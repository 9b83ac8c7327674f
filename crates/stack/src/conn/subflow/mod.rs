//! One subflow as the connection sees it: a TCP machine, its mappings and its handshake (RFC 8684 sections 3.1 to 3.3).
//!
//! Must own no stream bytes, save those that the connection no longer keeps while this subflow still has to be able
//! to retransmit them.

pub(in crate::conn) mod acked_below;
pub(in crate::conn) mod acked_by;
pub(in crate::conn) mod admission;
pub(in crate::conn) mod admission_round;
pub(in crate::conn) mod closing;
pub(in crate::conn) mod data_ack_delay;
pub(in crate::conn) mod dirty;
pub(in crate::conn) mod duplicates;
pub(in crate::conn) mod evidence;
pub(in crate::conn) mod handshake;
pub(in crate::conn) mod held_unmapped;
pub(in crate::conn) mod liveness;
pub(in crate::conn) mod maps;
pub(in crate::conn) mod probe;
pub(in crate::conn) mod reinjection;
pub(in crate::conn) mod signals;
pub(in crate::conn) mod table;

use manypath_tcp::cc::PathSample;
use manypath_tcp::machine::{Kind, Machine, Plan, State};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::{AddrId, FourTuple};
use manypath_wire::tcp::header::Header;
use manypath_wire::tcp::mptcp::MptcpOption;
use manypath_wire::tcp::options::Timestamps;

use crate::api::{
    EndedSubflow, IfaceId, Offload, SubflowEnd, SubflowInfo, SubflowOrigin, SubflowPhase,
};
use crate::conn::dss::offset::Offset;
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::closing::Closing;
use crate::conn::subflow::dirty::Tracked;
use crate::conn::subflow::evidence::Evidence;
use crate::conn::subflow::handshake::{Handshake, HandshakeState};
use crate::conn::subflow::held_unmapped::{HeldUnmapped, Unmapped};
use crate::conn::subflow::liveness::Liveness;
use crate::conn::subflow::maps::Maps;
use crate::conn::subflow::probe::PathProbe;
use crate::conn::subflow::reinjection::Reinjection;
use crate::conn::subflow::signals::Signals;
use crate::ids::SubflowId;

/// RTT assumed before the first sample.
const FIRST_ROUND_TRIP: Duration = Duration::from_secs(1);
/// Factor by which a subflow's data is acknowledged sooner than its handshake if something nearer than the peer must do it. (A very
/// long queue that has drained since looks the same, which only costs a preference.)
const MUCH_SOONER: u64 = 4;

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

/// One subflow, in the parts that own its state.
#[derive(Debug)]
pub(crate) struct Subflow {
    pub(crate) endpoint: Endpoint,
    pub(crate) tcp: Tracked<Machine>,
    pub(crate) handshake: Handshake,
    pub(crate) maps: Maps,
    /// Payload without a mapping.
    pub(crate) unmapped: Unmapped,
    /// Options that wait for an ACK without data.
    pub(crate) signals: Signals,
    pub(crate) liveness: Liveness,
    pub(crate) reinjection: Reinjection,
    pub(crate) evidence: Evidence,
    pub(crate) closing: Closing,
    pub(crate) stats: Stats,
}

/// What a subflow carried so far.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) opened: Instant,
    /// Stream bytes sent, first transmissions and reinjections.
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_reinjected: u64,
    pub(crate) bytes_received: u64,
}

/// Whether data is acknowledged so much sooner than the handshake was that something nearer than the peer must do it. Pure.
fn acked_by_proxy(handshake: Option<Duration>, data: Option<Duration>) -> bool {
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
            handshake: Handshake::new(handshake),
            maps: Maps::default(),
            unmapped: Unmapped::default(),
            signals: Signals::default(),
            liveness: Liveness::new(now),
            reinjection: Reinjection::default(),
            evidence: Evidence::default(),
            closing: Closing::default(),
            stats: Stats {
                opened: now,
                bytes_sent: 0,
                bytes_reinjected: 0,
                bytes_received: 0,
            },
        }
    }

    pub(crate) fn id(&self) -> SubflowId {
        self.endpoint.id
    }

    /// Both are between the same addresses.
    pub(in crate::conn) fn has_same_addresses(&self, other: &Self) -> bool {
        let of = |sf: &Self| {
            (
                sf.endpoint.iface,
                sf.endpoint.tuple.local.ip(),
                sf.endpoint.tuple.remote,
            )
        };
        of(self) == of(other)
    }

    pub(crate) fn is_first(&self) -> bool {
        self.endpoint.origin == SubflowOrigin::First
    }

    /// Its phase as reported to the application.
    pub(crate) fn phase(&self) -> SubflowPhase {
        if self.closing.has_begun() {
            return SubflowPhase::Closing;
        }
        match self.handshake.state {
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
        let handshake_is_complete = match self.handshake.state {
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
        (handshake_is_complete && open || self.tcp.is_open_early())
            && self.closing.reset_with.is_none()
            && !self.closing.finish
    }

    /// How it probes its path at present.
    pub(crate) fn path_probe(&self) -> PathProbe {
        let joining = matches!(
            self.handshake.state,
            HandshakeState::JoinSyn { .. } | HandshakeState::JoinAck { .. }
        );
        if joining
            && self.closing.reset_with.is_none()
            && self.endpoint.origin == SubflowOrigin::Recreated
        {
            PathProbe::Rejoin
        } else if self.is_stale() {
            PathProbe::Stale
        } else {
            PathProbe::None
        }
    }

    /// Since a retransmission time-out, ICMP unreachable or the loss of its uplink, until it answers.
    pub(crate) fn is_stale(&self) -> bool {
        self.liveness.is_stale()
    }

    /// It carries data and its path is not potentially failed.
    pub(crate) fn is_active(&self) -> bool {
        self.carries_data() && !self.is_potentially_failed()
    }

    /// Its path may have failed: it is stale, nothing was acknowledged for two round trips, or its packets
    /// cannot leave the host. Others carry its data, backups too.
    pub(crate) fn is_potentially_failed(&self) -> bool {
        self.liveness.is_potentially_failed()
    }

    /// The peer was queried where unmapped data belongs.
    pub(crate) fn was_queried(&self) -> bool {
        self.unmapped
            .held
            .as_ref()
            .is_some_and(HeldUnmapped::was_queried)
    }

    /// Data is held, and the peer has not answered the query where it belongs.
    pub(in crate::conn) fn awaits_its_place(&self) -> bool {
        let held = self.unmapped.held.as_ref();
        held.is_some_and(|held| held.was_queried() && !held.is_needless())
    }

    /// Options passed with data, in one direction at least.
    pub(crate) fn passed_options(&self) -> bool {
        self.evidence.data_was_acked || self.evidence.data_came_mapped
    }

    /// What arrived last on it, data or acknowledgements, lacked options that it should have.
    pub(crate) fn lost_options(&self) -> bool {
        self.evidence.option_loss.acks > 0 || self.drops() || self.unmapped.held.is_some()
    }

    /// Some of what arrived last was acknowledged and discarded: the subflow's order is not the stream's.
    pub(crate) fn drops(&self) -> bool {
        self.unmapped.discards()
    }

    /// It acknowledged this byte, and there is no Data ACK for it.
    pub(crate) fn has_subflow_acked_only(&self, at: Offset) -> bool {
        self.reinjection.subflow_acked_only.contains(at)
    }

    /// It is used when nothing better is left: a backup by the peer's flag or by ours, or its data is acknowledged on the way. The flag
    /// that we send holds for our data as well: a host that calls a path a backup means both directions.
    // rfc8684:P1,P2
    pub(crate) fn is_backup(&self) -> bool {
        let flagged = self.endpoint.backup_here || self.endpoint.backup_there;
        let answered = match self.evidence.acked_by {
            AckedBy::Peer => false,
            AckedBy::Unknown { .. } => true,
            AckedBy::Proxy => self.handshake.rtt.is_none() || self.is_acked_by_proxy(),
        };
        flagged || answered
    }

    /// Bytes a second that its congestion window allows now.
    pub(crate) fn rate(&self) -> u64 {
        self.rate_of(self.tcp.cwnd())
    }

    /// A proxy acknowledges its data, which need not reach the peer.
    pub(crate) fn is_acked_by_proxy(&self) -> bool {
        acked_by_proxy(self.handshake.rtt, self.tcp.min_rtt())
    }

    /// A proxy near by acknowledges its data, and the peer is behind it.
    pub(crate) fn is_behind_a_proxy(&self) -> bool {
        self.evidence.acked_by == AckedBy::Proxy && self.is_acked_by_proxy()
    }

    /// Smoothed round-trip time, assumed before the first sample.
    pub(in crate::conn) fn round_trip(&self) -> Duration {
        self.tcp.srtt().unwrap_or(FIRST_ROUND_TRIP)
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
        sample.usable &= self.is_active() && (!self.is_backup() || self.tcp.awaits_ack());
        sample
    }

    /// True on the first call after the subflow became able to carry data.
    pub(crate) fn on_came_up(&mut self, now: Instant) -> bool {
        let up = !self.handshake.was_up() && self.carries_data();
        if up {
            self.handshake.ends(now, self.tcp.srtt());
        }
        up
    }

    pub(crate) fn was_up(&self) -> bool {
        self.handshake.was_up()
    }

    /// Bytes of memory held beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.tcp.memory()
            + self.maps.memory()
            + self.signals.memory()
            + self.unmapped.held.as_ref().map_or(0, HeldUnmapped::memory)
            + self.reinjection.subflow_acked_only.memory()
            + self.reinjection.data_ack_delay.memory()
    }

    /// An option waits that may have an ACK of its own. // rfc8684:G2
    pub(crate) fn signal_ready(&self) -> bool {
        self.signals.is_due()
            && self.handshake.passes_signals()
            && self.closing.reset_with.is_none()
    }

    /// Begins a reset, with the option that explains it.
    pub(crate) fn reset(&mut self, end: SubflowEnd, why: Option<MptcpOption>) {
        if self.closing.reset(end, why) {
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
            stale: self.liveness.is_unresponsive(),
            opened: self.stats.opened,
            bytes_sent: self.stats.bytes_sent,
            bytes_reinjected: self.stats.bytes_reinjected,
            bytes_received: self.stats.bytes_received,
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
            lived: lived(self.stats.opened, now),
            bytes_sent: self.stats.bytes_sent,
            bytes_received: self.stats.bytes_received,
        }
    }

    /// The peer has shown on it that it has our keys: a mapping came, or a Data ACK.
    pub(in crate::conn) fn peer_has_keys(&self) -> bool {
        self.evidence.data_was_acked || self.evidence.data_came_mapped
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
            let is = acked_by_proxy(handshake, data);
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
