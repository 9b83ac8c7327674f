//! One subflow: a TCP connection without sockets, clocks or bytes to send.
//!
//! The machine owns the sequence numbers, timers, congestion state and the out-of-order bytes of the peer. It never owns
//! the bytes it sends: a [`Plan`] names them by number, and the caller gathers them. It never knows the addresses either:
//! [`Machine::header`] leaves the ports at zero.

mod clock;
mod closing;
mod config;
mod decide;
mod early;
mod emit;
mod handshake;
mod icmp;
mod info;
mod negotiate;
mod outcome;
mod plan;
mod progress;
mod state;
mod synchronized;
mod timeout;

use manypath_wire::segment::Segment;
use manypath_wire::seq::{SeqNum, Ssn};

pub use crate::recv::{Chunk, reassembly_grant};
pub use config::{Config, Keepalive};
pub use icmp::IcmpOutcome;
pub use info::{Counters, Info};
pub use negotiate::SMALLEST_MSS;
pub use outcome::{Context, DeadCause, InOrder, Outcome, Reject, TimeoutOutcome, Verdict};
pub use plan::{Decision, Kind, Offer, Plan};
pub use state::State;

use crate::cc::{Algorithm, PathSample};
use crate::recv::Receiver;
use crate::send::loss::Setup;
use crate::send::{LossRecovery, Prober, Sender};
use crate::time::{Duration, Instant};
use crate::timer::Timer;
use crate::units::Rate;
use clock::StampClock;
use early::Early;
use negotiate::{Agreed, TIMESTAMPS_LEN};

/// One TCP subflow.
#[derive(Debug)]
pub struct Machine {
    cfg: Config,
    state: State,
    isn: SeqNum,
    /// What relative numbers of our stream count from: our SYN, or the last byte that was taken with it.
    base: SeqNum,
    early: Early,
    agreed: Agreed,
    stamps: StampClock,
    recv: Receiver,
    send: Sender,
    prober: Prober,
    time_wait: Timer,
    /// The peer repeated its SYN: our answer has to be repeated too.
    syn_again: bool,
    /// RST is the next and last thing to send.
    reset_due: bool,
    /// The latest time that was told.
    clock: Instant,
    counters: Counters,
}

impl Machine {
    /// An active open. The first [`decide`](Self::decide) yields the SYN.
    pub fn connect(cfg: Config, now: Instant, isn: SeqNum) -> Machine {
        Machine::new(cfg, now, isn, State::SynSent)
    }

    /// A passive open, for the SYN `syn` that a listener accepted. The first [`decide`](Self::decide) yields the
    /// SYN+ACK.
    pub fn accept(cfg: Config, now: Instant, isn: SeqNum, syn: &Segment<'_>) -> Machine {
        let mut machine = Machine::new(cfg, now, isn, State::SynReceived);
        machine.counters.segs_in += 1;
        machine.learn_peer(now, syn);
        machine
    }

    /// A passive open that was forgotten once its SYN+ACK had left, brought back by the segment that acknowledges it:
    /// give that to [`on_segment`](Self::on_segment). When the SYN+ACK left is not known, so nothing is measured by it
    /// but what timestamps tell: if the caller hid something in that of the SYN+ACK, so that it was too old, the round trip
    /// is too long by as much until data was acknowledged, and must not be too short. `window` is what the caller could take then.
    pub fn resume(
        cfg: Config,
        now: Instant,
        isn: SeqNum,
        syn: &Segment<'_>,
        window: u32,
    ) -> Machine {
        let mut machine = Machine::accept(cfg, now, isn, syn);
        machine.set_recv_window(window);
        let plan = Plan {
            syn: true,
            ..machine.plan(Kind::SynAck, isn)
        };
        // Twice, since what was repeated says nothing about time (RFC 6298 section 3).
        machine.sent(now, &plan);
        machine.sent(now, &plan);
        machine.send.loss.forget_when_syn_left();
        machine
    }

    fn new(cfg: Config, now: Instant, isn: SeqNum, state: State) -> Machine {
        let agreed = Agreed::hoped(&cfg);
        let mut loss = LossRecovery::new(
            isn,
            &Setup {
                mss: u32::from(cfg.mss),
                sack: cfg.sack,
                algorithm: cfg.cc,
                initial_window: cfg.initial_window,
                min_rto: cfg.min_rto,
                max_rto: cfg.max_rto,
                paced: cfg.pacing,
            },
        );
        loss.set_capping(cfg.capping);
        Machine {
            state,
            isn,
            base: isn,
            early: Early::default(),
            agreed,
            stamps: StampClock::new(cfg.timestamp_offset),
            recv: Receiver::new(cfg.recv_window),
            send: Sender::new(loss),
            prober: Prober::default(),
            time_wait: Timer::OFF,
            syn_again: false,
            reset_due: false,
            clock: now,
            counters: Counters::default(),
            cfg,
        }
    }

    /// Takes a segment that belongs to this subflow. Afterwards [`take_ready`](Self::take_ready) must be called until
    /// it yields nothing, if the outcome says so, before the next segment.
    pub fn on_segment(&mut self, now: Instant, seg: &Segment<'_>, ctx: &Context<'_>) -> Outcome {
        self.tick(now);
        self.counters.segs_in += 1;
        if self.reset_due || self.state == State::Closed {
            self.counters.rejected_other += 1;
            return Outcome::rejected(Reject::Closed);
        }
        let out = match self.state {
            State::SynSent => self.on_segment_syn_sent(now, seg, ctx),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait
            | State::Closed => self.on_segment_synchronized(now, seg, ctx),
        };
        self.watch_window(now);
        out
    }

    /// The next payload that had arrived out of order and is now in order.
    pub fn take_ready(&mut self) -> Option<Chunk> {
        self.recv.take_ready()
    }

    /// What the caller can take now, in bytes from the next expected one. The peer is told more only when that is worth
    /// a segment (RFC 9293 section 3.8.6.2.2), and what it was told is never taken back.
    pub fn set_recv_window(&mut self, bytes: u32) {
        self.recv.window.set_wish(bytes);
        self.tell_larger_window();
    }

    /// As [`set_recv_window`](Self::set_recv_window) for a window that several subflows share and whose right edge is
    /// kept by the caller in a number space of its own: it is told just so, rounded up to the scale's unit. The peer
    /// obeys the window of each subflow, so each tells of a larger one when it is worth a segment.
    pub fn share_recv_window(&mut self, bytes: u32) {
        self.note_recv_window(bytes);
        self.tell_larger_window();
    }

    /// As [`share_recv_window`](Self::share_recv_window), but nothing is sent for it: the next segment tells it.
    pub fn note_recv_window(&mut self, bytes: u32) {
        self.recv.window.set_shared(bytes);
    }

    /// Accepts at most `bytes` from the next expected one, whatever was told while the window was shared.
    pub fn confine_recv_window(&mut self, bytes: u32) {
        self.recv.window.confine(self.recv.next(), bytes);
    }

    /// Out-of-order payload may take this many bytes of memory, what is held already included. At the start that is twice
    /// the largest window and a little; a caller with several subflows has them share it.
    pub fn grant_reassembly(&mut self, bytes: usize) {
        self.recv.grant(bytes);
    }

    fn tell_larger_window(&mut self) {
        let due = self
            .recv
            .window
            .update_due(self.recv.next(), self.recv_step());
        if due && self.state.may_receive() {
            self.recv.ack.force();
        }
    }

    /// An acknowledgement is sent at the next opportunity even if nothing arrived.
    pub fn force_ack(&mut self) {
        self.recv.ack.force();
    }

    /// Leaves the last `bytes` of what the peer sends unacknowledged, though they are delivered. The peer goes on sending,
    /// and repeats those bytes by its timer, which is told apart from whatever else it might send for want of an answer
    /// above TCP. What was acknowledged stays so; zero ends it.
    pub fn withhold(&mut self, bytes: u32) {
        if bytes < self.recv.withheld() {
            self.recv.ack.force();
        }
        self.recv.withhold(bytes);
    }

    /// The segment repeats, of what arrived, only what is withheld.
    pub fn repeats_withheld(&self, seg: &Segment<'_>) -> bool {
        let (from, end) = (seg.header.seq, seg.header.seq + seg.len());
        from.after_eq(self.recv.acknowledges()) && end.before_eq(self.recv.next())
    }

    /// Sends one probe that the peer has to answer, if nothing is in flight that it has to answer anyway.
    pub fn probe_liveness(&mut self, now: Instant) {
        self.tick(now);
        if self.state.is_synchronized() && !self.send.loss.outstanding() {
            self.prober.request();
        }
    }

    /// Sends one probe that the peer has to answer, whatever is in flight.
    pub fn probe(&mut self, now: Instant) {
        self.tick(now);
        if self.state.is_synchronized() {
            self.prober.request();
        }
    }

    /// While another subflow can carry the data, a silent path is asked at least this often whether it works again: the
    /// back-off of the retransmission timer ends there, unless the path's own round trip needs longer. `None`: RFC 6298.
    pub fn set_probe_interval(&mut self, now: Instant, longest: Option<Duration>) {
        self.tick(now);
        self.send.loss.set_rto_ceiling(now, longest);
    }

    /// The path may work again: its link is up, its address is back, a route changed. What timed out is tried at once
    /// instead of when the timer expires next. True if a segment leaves for it.
    pub fn on_path_hint(&mut self, now: Instant) -> bool {
        self.tick(now);
        self.state != State::Closed && !self.reset_due && self.send.loss.on_path_hint(now)
    }

    /// Packets of this connection can leave the host again, which they could not for a while: what is in flight is held to be
    /// lost and sent again at once, whether or not its timer has expired. True if something is in flight.
    pub fn on_path_restored(&mut self, now: Instant) -> bool {
        self.tick(now);
        self.state != State::Closed && !self.reset_due && self.send.loss.on_path_restored(now)
    }

    /// Changes the keepalive setting; the present silence counts from now.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        self.cfg.keepalive = keepalive;
        self.heard(now);
    }

    /// Changes the user timeout (RFC 5482).
    pub fn set_user_timeout(&mut self, timeout: Option<Duration>) {
        self.cfg.user_timeout = timeout;
    }

    /// Switches Nagle's rule.
    pub fn set_nagle(&mut self, nagle: bool) {
        self.cfg.nagle = nagle;
    }

    fn tick(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
    }

    /// The peer lives.
    fn heard(&mut self, now: Instant) {
        self.prober.heard(now, self.cfg.keepalive.as_ref());
    }

    /// Bytes that options of this layer take in every data segment.
    fn own_options(&self) -> u32 {
        if self.agreed.timestamps {
            TIMESTAMPS_LEN
        } else {
            0
        }
    }

    /// The smallest gain of window worth telling, and the largest payload one wire segment can bring us.
    fn recv_step(&self) -> u32 {
        u32::from(self.cfg.mss)
    }

    /// The peer's SYN is known: sizes follow from it.
    fn adopt_agreed(&mut self) {
        let size = self.largest_payload(self.cfg.mss);
        self.send.loss.negotiated(self.agreed.sack, size);
    }

    /// What interface and peer let a segment have beside our own options.
    fn largest_payload(&self, mss: u16) -> u32 {
        u32::from(self.agreed.peer_mss.min(mss)) - self.own_options()
    }

    /// The interface carries packets of another size from now on; `mss` as in [`Config::mss`]. What we have announced to the peer
    /// stays as it is, and is what we have to expect.
    pub fn set_mss(&mut self, now: Instant, mss: u16) {
        self.tick(now);
        let mss = mss.max(SMALLEST_MSS);
        if self.state == State::SynSent {
            self.cfg.mss = mss;
        } else if self.send.loss.set_ceiling(now, self.largest_payload(mss)) {
            self.counters.mtu_reductions += 1;
        }
    }

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

    /// Caps the congestion window where the smoothed round trip is twice the base, or no longer
    /// ([`cap()`](crate::cc::cap())).
    pub fn set_capping(&mut self, on: bool) {
        self.send.loss.set_capping(on);
    }

    /// Halves congestion window and threshold because this subflow holds up its siblings. False: a recovery under way
    /// has reduced them already.
    pub fn penalise(&mut self) -> bool {
        self.send.loss.penalise()
    }

    /// A penalty holds that nothing has taken back.
    pub fn is_penalised(&self) -> bool {
        self.send.loss.cc().is_penalised()
    }

    /// No sibling is left that this subflow could hold up: slow start undoes penalties.
    pub fn undo_penalties(&mut self) {
        self.send.loss.undo_penalties();
    }

    /// How long nothing was sent that wants an acknowledgement. Absent while something is in flight, and before anything was sent.
    pub fn rests(&self, now: Instant) -> Option<Duration> {
        self.send.loss.rests(now)
    }

    /// Nothing was sent for so long that what was seen of the path counts no more: it is like a new one, of which the round trip
    /// is known.
    pub fn forget_path(&mut self) {
        self.send.loss.forget_path();
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

    /// Something that TCP does not know as an answer took so long. It counts as long as no round trip was measured.
    pub fn first_measured(&mut self, now: Instant, rtt: Duration) {
        self.send.loss.first_measured(now, rtt);
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

    /// Changes the law of congestion avoidance and keeps the window.
    pub fn set_congestion(&mut self, algorithm: Algorithm) {
        self.send.loss.set_algorithm(algorithm);
    }

    /// Congestion window in bytes.
    pub fn cwnd(&self) -> u32 {
        self.send.loss.cc().cwnd()
    }

    /// Smoothed round-trip time; absent before the first sample.
    pub fn srtt(&self) -> Option<Duration> {
        self.send.loss.timing().rtt().srtt()
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

    /// Bytes held to be in the network.
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
        bytes - bytes % self.agreed.send_scale.unit()
    }

    /// What a window field of the peer's means in bytes, outside of the handshake.
    pub fn peer_window_of(&self, field: u16) -> u32 {
        self.agreed.send_scale.expand(field)
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

    /// Something sent is not acknowledged.
    pub fn has_outstanding(&self) -> bool {
        self.send.loss.outstanding()
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

    /// What the other subflows' congestion control has to know of this one.
    pub fn path_sample(&self) -> PathSample {
        PathSample {
            cwnd: self.send.loss.lasting_cwnd(),
            srtt: self.srtt().unwrap_or(Duration::ZERO),
            mss: self.mss(),
            usable: self.state.may_send() && self.srtt().is_some(),
            interloss: self.send.loss.cc().interloss(),
        }
    }
}
