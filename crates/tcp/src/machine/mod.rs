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
mod multipath;
mod negotiate;
mod outcome;
mod plan;
mod progress;
mod state;
mod synchronized;
mod timeout;
mod view;

use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;

pub use crate::recv::{Arrival, Chunk, InOrder, Placed, reassembly_grant};
pub use config::{Config, CongestionConfig, Keepalive, TcpOptions, Timeouts};
pub use icmp::IcmpOutcome;
pub use info::{
    CongestionInfo, Counters, Info, OptionsInfo, ReceivedCounters, RecoveryCounters,
    RejectedCounters, SentCounters,
};
pub use negotiate::SMALLEST_MSS;
pub use outcome::{Context, DeadCause, Ended, Outcome, Reject, TimeoutOutcome, Verdict};
pub use plan::{Decision, Kind, Offer, Plan};
pub use state::State;

use crate::cc::Algorithm;
use crate::recv::Receiver;
use crate::send::loss::Setup;
use crate::send::{LossRecovery, Prober, Sender};
use crate::time::{Duration, Instant};
use crate::timer::Timer;
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
    /// The latest time that a call passed.
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
        machine.counters.received.segs_in += 1;
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
                sack: cfg.options.sack,
                algorithm: cfg.congestion.algorithm,
                initial_window: cfg.congestion.initial_window,
                min_rto: cfg.timeouts.min_rto,
                max_rto: cfg.timeouts.max_rto,
                paced: cfg.congestion.pacing,
            },
        );
        loss.set_capping(cfg.congestion.capping);
        Machine {
            state,
            isn,
            base: isn,
            early: Early::default(),
            agreed,
            stamps: StampClock::new(cfg.options.timestamp_offset),
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
        self.counters.received.segs_in += 1;
        if self.reset_due || self.state == State::Closed {
            self.counters.rejected.rejected_other += 1;
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

    /// What the caller can take now, in bytes from the next expected one. More is advertised only when that is worth
    /// a segment (RFC 9293 section 3.8.6.2.2), and what was advertised is never taken back.
    pub fn set_recv_window(&mut self, bytes: u32) {
        self.recv.window.set_desired(bytes);
        self.tell_larger_window();
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

    /// Changes the keepalive setting; the present silence counts from now.
    pub fn set_keepalive(&mut self, now: Instant, keepalive: Option<Keepalive>) {
        self.cfg.keepalive = keepalive;
        self.on_received(now);
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
    fn on_received(&mut self, now: Instant) {
        self.prober.on_received(now, self.cfg.keepalive.as_ref());
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
            self.counters.recovery.mtu_reductions += 1;
        }
    }

    /// Changes the algorithm of congestion avoidance and keeps the window.
    pub fn set_congestion(&mut self, algorithm: Algorithm) {
        self.send.loss.set_algorithm(algorithm);
    }
}
