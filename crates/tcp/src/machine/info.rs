//! A snapshot of one subflow for people and programs that watch.

use super::state::State;
use crate::cc::Algorithm;
use crate::time::Duration;
use crate::units::Rate;

/// Counters since the machine was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// What was sent.
    pub sent: SentCounters,
    /// What arrived.
    pub received: ReceivedCounters,
    /// What acknowledgements and timers told the sender.
    pub recovery: RecoveryCounters,
    /// What arrived and was not accepted, and the answers to it (RFC 5961).
    pub rejected: RejectedCounters,
}

/// What was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct SentCounters {
    /// Wire segments sent, every kind.
    pub segs_out: u64,
    /// Wire segments with payload sent.
    pub data_segs_out: u64,
    /// Payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload bytes sent again.
    pub bytes_retrans: u64,
    /// Wire segments sent again.
    pub segs_retrans: u64,
    /// Tail loss probes sent.
    pub tail_probes: u64,
    /// Zero-window probes sent.
    pub window_probes: u64,
    /// Keepalive probes sent.
    pub keepalives: u64,
    /// Bare acknowledgements sent.
    pub acks_out: u64,
}

/// What arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ReceivedCounters {
    /// Segments received, every verdict.
    pub segs_in: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Segments whose payload had arrived before.
    pub duplicates_in: u64,
    /// Segments kept out of order.
    pub out_of_order_in: u64,
    /// Out-of-order payload bytes refused for lack of room.
    pub reassembly_dropped: u64,
    /// Packets received with the congestion-experienced mark.
    pub ce_in: u64,
}

/// What acknowledgements and timers told the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecoveryCounters {
    /// Payload bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Duplicate selective acknowledgements received (RFC 2883).
    pub dsacks_in: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Times recovery was entered because of marked losses.
    pub recoveries: u64,
    /// Times a reduction was taken back because the loss was none.
    pub undos: u64,
    /// Reductions because of ECN.
    pub ecn_reductions: u64,
    /// Times the path MTU was lowered.
    pub mtu_reductions: u64,
}

/// What arrived and was not accepted, and the answers to it (RFC 5961).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RejectedCounters {
    /// Segments outside the window.
    pub rejected_sequence: u64,
    /// Segments refused by their timestamp.
    pub rejected_paws: u64,
    /// Segments with an unacceptable acknowledgement.
    pub rejected_ack: u64,
    /// Segments refused for another reason.
    pub rejected_other: u64,
    /// Challenge acknowledgements sent (RFC 5961).
    pub challenge_acks: u64,
    /// Challenge acknowledgements withheld by the rate limit.
    pub challenge_acks_limited: u64,
}

/// The state of a subflow at one moment; the words are those of Linux's `tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Connection state.
    pub state: State,
    /// Smoothed round-trip time; absent before the first sample.
    pub srtt: Option<Duration>,
    /// Round-trip time variation.
    pub rttvar: Duration,
    /// Smallest round-trip time seen.
    pub min_rtt: Option<Duration>,
    /// Present retransmission timeout, back-off included.
    pub rto: Duration,
    /// Consecutive timeouts.
    pub backoffs: u8,
    /// Congestion control.
    pub congestion: CongestionInfo,
    /// What both SYNs agreed upon.
    pub options: OptionsInfo,
    /// Payload bytes per data segment without the caller's options.
    pub mss: u32,
    /// Present path MTU estimate, as options plus payload.
    pub path_mss: u32,
    /// The peer's window, from the first unacknowledged byte.
    pub peer_window: u32,
    /// The window last offered to the peer, from the next expected byte.
    pub recv_window: u32,
    /// Bytes waiting out of order.
    pub reassembly: u32,
    /// Counters.
    pub counters: Counters,
}

/// Congestion control of a subflow at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongestionInfo {
    /// Congestion controller.
    pub algorithm: Algorithm,
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Slow-start threshold in bytes.
    pub ssthresh: u32,
    /// Rate at which the window is spread over the round trip.
    pub pacing_rate: Rate,
    /// The highest rate at which data arrived in the last two round trips; zero before the first.
    pub delivery_rate: Rate,
    /// Bytes estimated to be in the network.
    pub inflight: u32,
    /// Loss recovery is under way.
    pub in_recovery: bool,
}

/// What the peer agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionsInfo {
    /// The peer agreed to timestamps.
    pub timestamps: bool,
    /// The peer agreed to selective acknowledgements.
    pub sack: bool,
    /// The peer agreed to explicit congestion notification.
    pub ecn: bool,
    /// Shift of the windows we send.
    pub recv_scale: u8,
    /// Shift of the windows the peer sends.
    pub send_scale: u8,
}

impl super::Machine {
    /// Bytes of memory held beyond the machine itself: out-of-order payload and the notes of what is in flight.
    pub fn memory(&self) -> usize {
        self.recv.memory() + self.send.loss.flight().memory()
    }

    /// Challenge acknowledgements asked for, and those that the limit forbade (RFC 5961 section 7).
    pub fn challenges(&self) -> (u64, u64) {
        (
            self.counters.rejected.challenge_acks,
            self.counters.rejected.challenge_acks_limited,
        )
    }

    /// Bytes of memory that out-of-order payload takes, what small pieces cost included.
    pub fn reassembly_memory(&self) -> usize {
        self.recv.memory()
    }

    /// A snapshot for people and programs that watch.
    pub fn info(&self) -> Info {
        let loss = &self.send.loss;
        Info {
            state: self.state,
            srtt: loss.timing().rtt().srtt(),
            rttvar: loss.timing().rtt().rttvar(),
            min_rtt: loss.timing().rtt().min(),
            rto: loss.rto(),
            backoffs: loss.timing().backoffs(),
            congestion: CongestionInfo {
                algorithm: self.cfg.congestion.algorithm,
                cwnd: loss.cc().cwnd(),
                ssthresh: loss.cc().ssthresh(),
                pacing_rate: loss.pacing_rate(),
                delivery_rate: loss.round().rate().unwrap_or(Rate::ZERO),
                inflight: loss.inflight(),
                in_recovery: loss.in_recovery(),
            },
            options: OptionsInfo {
                timestamps: self.agreed.timestamps,
                sack: self.agreed.sack,
                ecn: self.agreed.ecn,
                recv_scale: self.agreed.recv_scale().shift(),
                send_scale: self.agreed.send_scale().shift(),
            },
            mss: self.mss(),
            path_mss: loss.mss() + self.own_options(),
            peer_window: self.send.window.bytes(),
            recv_window: self.recv.window.open(self.recv.next()),
            reassembly: self.recv.held(),
            counters: self.counters,
        }
    }
}
