//! What the owner of a subflow may read of it.

use manypath_wire::seq::{SeqNum, Ssn};

use super::Machine;
use super::info::Counters;
use super::state::State;
use crate::time::{Duration, Instant};
use crate::units::Rate;

impl Machine {
    /// Connection state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Our initial sequence number.
    pub fn isn(&self) -> SeqNum {
        self.isn
    }

    /// The peer's initial sequence number; zero before its SYN arrived.
    pub fn irs(&self) -> SeqNum {
        self.recv.irs()
    }

    /// First unacknowledged number.
    pub fn snd_una(&self) -> SeqNum {
        self.send.una()
    }

    /// First number never sent.
    pub fn snd_nxt(&self) -> SeqNum {
        self.send.nxt()
    }

    /// Whether an acknowledgement is one of what we sent, not older than a window (RFC 5961 section 5.2).
    pub fn acks_what_was_sent(&self, ack: SeqNum) -> bool {
        let lowest = self.send.una() - self.send.window.largest();
        ack.after_eq(lowest) && ack.before_eq(self.send.nxt())
    }

    /// [`snd_una`](Self::snd_una) relative to our initial sequence number, payload of our SYN not counted.
    pub fn snd_una_ssn(&self) -> Ssn {
        Ssn::of(self.send.una(), self.base)
    }

    /// [`snd_nxt`](Self::snd_nxt) relative to our initial sequence number, payload of our SYN not counted.
    pub fn snd_nxt_ssn(&self) -> Ssn {
        Ssn::of(self.send.nxt(), self.base)
    }

    /// Something is missing before data that arrived: acknowledgements have that to tell.
    pub fn reports_holes(&self) -> bool {
        self.recv.has_blocks()
    }

    /// Next number expected from the peer.
    pub fn rcv_nxt(&self) -> SeqNum {
        self.recv.next()
    }

    /// [`rcv_nxt`](Self::rcv_nxt) relative to the peer's initial sequence number, payload of its SYN not counted.
    pub fn rcv_nxt_ssn(&self) -> Ssn {
        Ssn::of(self.recv.next(), self.recv.base())
    }

    /// How long nothing was sent that wants an acknowledgement. Absent while something is in flight, and before anything was sent.
    pub fn rests(&self, now: Instant) -> Option<Duration> {
        self.send.loss.rests(now)
    }

    /// A time-out may have been none, and new data is to show it, which would lie behind a hole until then (RFC 5682).
    pub fn judges_time_out(&self) -> bool {
        self.send.loss.prefers_new()
    }

    /// How fast data arrived at the peer lately: the highest rate of the last two round trips. Absent before the first.
    pub fn delivery_rate(&self) -> Option<Rate> {
        self.send.loss.round().rate()
    }

    /// How fast the path is known to carry data: the highest delivery rate of the last five to ten seconds, in which the
    /// sender may have been held back by something else. Absent before data was delivered.
    pub fn peak_rate(&self) -> Option<Rate> {
        self.send.loss.round().peak()
    }

    /// As `peak_rate`, but of rates that lasted for a second.
    pub fn sustained_rate(&self) -> Option<Rate> {
        self.send.loss.round().sustained()
    }

    /// Most bytes in the network during this round trip and the last.
    pub fn max_inflight(&self) -> u32 {
        self.send.loss.round().max_inflight()
    }

    /// The last round trip that was measured; absent before the first. Where nothing was left in flight, the peer may have
    /// waited with its acknowledgement: that is not counted if it was longer than the one before.
    pub fn latest_rtt(&self) -> Option<Duration> {
        self.send.loss.timing().latest_rtt()
    }

    /// When the oldest unacknowledged segment was last sent.
    pub fn head_sent_at(&self) -> Option<Instant> {
        self.send.loss.head_sent_at()
    }

    /// The congestion window is below its threshold.
    pub fn in_slow_start(&self) -> bool {
        self.send.loss.cc().in_slow_start()
    }

    /// Nothing of the path has ended its first slow start: no loss, no mark, no queue; at most a penalty has.
    pub fn is_unproven(&self) -> bool {
        self.send.loss.cc().is_unproven()
    }

    /// Congestion window in bytes.
    pub fn cwnd(&self) -> u32 {
        self.send.loss.cc().cwnd()
    }

    /// Smoothed round-trip time; absent before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.send.loss.timing().rtt().srtt()
    }

    /// The same for somebody who compares paths: what was measured before the path rested ages, down to the smallest recent one, until
    /// something is measured again. A path that is left alone because it had a queue is never measured without one otherwise.
    pub fn aged_srtt(&self, now: Instant) -> Option<Duration> {
        self.send.loss.aged_srtt(now)
    }

    /// Variation of the round-trip time; zero before the first measurement.
    pub fn rttvar(&self) -> Duration {
        self.send.loss.timing().rtt().rttvar()
    }

    /// Round trip as the receiver of data sees it, from the echoes of its acknowledgements; absent without timestamps
    /// and before payload came.
    pub fn recv_rtt(&self) -> Option<Duration> {
        self.recv.rtt()
    }

    /// Smallest recent round-trip time; absent before the first sample.
    pub fn min_rtt(&self) -> Option<Duration> {
        self.send.loss.timing().rtt().min()
    }

    /// Present retransmission timeout, back-off included.
    pub fn rto(&self) -> Duration {
        self.send.loss.rto()
    }

    /// The retransmission timeout without back-off.
    pub fn base_rto(&self) -> Duration {
        self.send.loss.timing().base_rto()
    }

    /// Bytes estimated to be in the network.
    pub fn inflight(&self) -> u32 {
        self.send.loss.inflight()
    }

    /// Something that was sent is not acknowledged.
    pub fn awaits_ack(&self) -> bool {
        self.send.loss.outstanding()
    }

    /// Bytes of new payload that the peer's window allows beyond what was sent.
    pub fn peer_window(&self) -> u32 {
        self.send.window_room()
    }

    /// The window of the peer's last accepted segment in bytes, scale applied, from the number it acknowledged.
    pub fn peer_window_field_scaled(&self) -> u32 {
        self.send.window.bytes()
    }

    /// As [`peer_window`](Self::peer_window), in whole units of the peer's scale: a SYN's window is in bytes, and the first one
    /// after it may be the same rounded down (RFC 7323 section 2.4).
    pub fn peer_window_in_units(&self) -> u32 {
        let bytes = self.peer_window();
        bytes - bytes % self.agreed.send_scale().unit()
    }

    /// What a window field of the peer's means in bytes, outside of the handshake.
    pub fn peer_window_of(&self, field: u16) -> u32 {
        self.agreed.send_scale().expand(field)
    }

    /// Payload bytes of a full data segment on which the caller puts `option_space` bytes of options.
    pub fn data_mss(&self, option_space: u8) -> u32 {
        self.send
            .loss
            .mss()
            .saturating_sub(u32::from(option_space))
            .max(1)
    }

    /// Payload bytes of a full data segment without options of the caller.
    pub fn mss(&self) -> u32 {
        self.data_mss(0)
    }

    /// Timestamps were agreed on: they take 12 bytes of every segment's option space.
    pub fn uses_timestamps(&self) -> bool {
        self.agreed.timestamps
    }

    /// Loss recovery is under way.
    pub fn in_recovery(&self) -> bool {
        self.send.loss.in_recovery()
    }

    /// Consecutive retransmission timeouts.
    pub fn backoffs(&self) -> u8 {
        self.send.loss.timing().backoffs()
    }

    /// Our FIN was sent.
    pub fn fin_sent(&self) -> bool {
        self.send.fin.is_some()
    }

    /// The peer's FIN arrived in order.
    pub fn fin_received(&self) -> bool {
        self.recv.fin_done()
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
