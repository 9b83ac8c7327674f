//! Congestion control, in integers only.
//!
//! [`Congestion`] owns the congestion window and the slow-start threshold, in bytes. It is told what happened (an
//! acknowledgement, a loss, a timeout, a mark) and never looks at a segment. Slow start, the reductions' bookkeeping and
//! undo are common to all; the increase in congestion avoidance and the size of a reduction are those of the
//! [`Algorithm`].
//!
//! What serves Multipath TCP alone stands in `multipath`: the coupled algorithms, which see the other subflows only through the
//! plain [`GroupView`] handed in, penalties, and the cap on windows with excessive queues.

mod algorithm;
mod algorithm_state;
mod bbr;
mod cubic;
mod custom;
mod ecn;
mod hystart;
mod multipath;
mod pacer;
mod reno;
mod window;

#[cfg(test)]
mod tests;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use bbr::Bbr;
pub use cubic::{Cubic, cube_root};
pub use custom::{CongestionControl, CustomCongestion};
pub use ecn::EcnEcho;
pub use hystart::{HyStart, Mode as HyStartMode};
pub use multipath::{
    Balia, GroupView, Lia, Olia, PathSample, WVegas, balia_increase, cap, lia_increase,
    olia_increase,
};
pub use pacer::Pacer;
pub use reno::Reno;
pub use window::Window;

use algorithm_state::AlgorithmState;

use crate::time::{Duration, Instant};
use crate::units::Rate;

/// What one acknowledgement says to a congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Instant,
    /// Bytes it newly reported as delivered, cumulatively or selectively.
    pub acked: u32,
    /// Bytes estimated to be in the network before it.
    pub inflight_before: u32,
    /// Bytes estimated to be in the network after it.
    pub inflight_after: u32,
    /// Largest amount that was in the network during the last round trip.
    pub max_inflight: u32,
    /// The window, and nothing else, held the sender back during the last round trip.
    pub cwnd_limited: bool,
    /// Round-trip time of the newest segment that it acknowledged, if it was unambiguous.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time; zero before the first sample.
    pub srtt: Duration,
    /// Smallest recent round-trip time; zero before the first sample.
    pub min_rtt: Duration,
    /// All bytes ever cumulatively acknowledged, this acknowledgement included.
    pub acked_total: u64,
    /// All bytes ever sent for the first time.
    pub sent_total: u64,
    /// All bytes ever delivered, those included that are not cumulatively acknowledged.
    pub delivered_total: u64,
    /// Bytes that it showed to be lost.
    pub lost: u32,
    /// Delivery rate that it proves, if it proves one.
    pub rate: Option<Rate>,
    /// The rate was held down by the application, not by the network.
    pub rate_app_limited: bool,
}

/// What a reduction replaced, for taking it back.
#[derive(Clone, Debug)]
struct Prior {
    window: Window,
    algorithm: AlgorithmState,
    unpenalised: Option<u32>,
}

/// The congestion controller of one subflow.
#[derive(Clone, Debug)]
pub struct Congestion {
    window: Window,
    hystart: HyStart,
    algorithm: AlgorithmState,
    prior: Option<Prior>,
    timed_out: bool,
    /// The threshold before the first of several penalties, unless a loss has lowered it since.
    unpenalised: Option<u32>,
}

impl Congestion {
    /// A controller with an initial window of `initial_window` segments (RFC 6928: 10) of `mss` bytes.
    pub fn new(algorithm: Algorithm, mss: u32, initial_window: u32) -> Congestion {
        Congestion {
            window: Window::new(mss, initial_window),
            hystart: HyStart::new(),
            algorithm: AlgorithmState::new(algorithm),
            prior: None,
            timed_out: false,
            unpenalised: None,
        }
    }

    /// Which algorithm governs.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm.algorithm()
    }

    /// Changes the algorithm and keeps the window.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        if algorithm != self.algorithm() {
            self.algorithm = AlgorithmState::new(algorithm);
            self.prior = None;
        }
    }

    /// Congestion window in bytes, never less than one segment.
    pub fn cwnd(&self) -> u32 {
        self.window.cwnd()
    }

    /// Slow-start threshold in bytes; `u32::MAX` before the first reduction.
    pub fn ssthresh(&self) -> u32 {
        self.window.ssthresh()
    }

    /// The window is below the threshold (RFC 5681 section 3.1).
    pub fn in_slow_start(&self) -> bool {
        self.window.in_slow_start()
    }

    /// Says whether transmissions are paced: RFC 9406 section 4.2 lets a paced sender count every acknowledged byte in
    /// slow start and holds others to eight segments an acknowledgement.
    pub fn set_paced(&mut self, paced: bool) {
        self.window
            .set_slow_start_limit(if paced { None } else { Some(8) });
    }

    /// The segment size changed. The window keeps its bytes, but grows to one segment where it was smaller.
    pub fn set_mss(&mut self, mss: u32) {
        self.window.set_mss(mss);
    }

    /// The initial window in bytes (RFC 6928).
    pub fn initial_window(&self) -> u32 {
        self.window.initial()
    }

    /// The segment size is known, and nothing but the SYN was sent.
    pub fn begin(&mut self) {
        self.window.set_cwnd(self.window.initial());
    }

    /// The first congestion window, before anything was acknowledged, becomes `segments` segments: for a handshake that
    /// lost its SYN (RFC 5681 section 3.1: one segment).
    pub fn restart_initial(&mut self, segments: u32) {
        self.window.restart_initial(segments);
    }

    /// Any acknowledgement of something new, in whatever phase, before [`on_ack`](Self::on_ack). `recovering` says that
    /// fast recovery sets the window and that `on_ack` does not follow.
    pub fn observe(&mut self, ack: &AckSample, recovering: bool) {
        self.algorithm.observe(&mut self.window, ack, recovering);
    }

    /// An acknowledgement of new data outside of fast recovery. Grows the window where the sender uses it.
    pub fn on_ack(&mut self, ack: &AckSample, group: &GroupView<'_>) {
        self.algorithm.compare(&self.window, ack, group);
        if self.algorithm.takes_over(&mut self.window, ack, group) {
            return;
        }
        let mut acked = ack.acked;
        if self.window.in_slow_start() {
            let initial = self.window.ssthresh() == u32::MAX;
            let divisor = if initial { self.hystart.on_ack(ack) } else { 1 };
            if self.hystart.is_done() && initial {
                self.window.leave_slow_start();
            } else if ack.max_inflight.saturating_mul(2) >= self.window.cwnd() {
                // RFC 7661 section 4.3: a window that the sender does not fill by half is not validated and must not grow.
                acked = self.window.slow_start(acked, divisor);
            } else {
                acked = 0;
            }
        }
        if self.window.in_slow_start() {
            self.algorithm.on_slow_start(ack.now);
            return;
        }
        if acked == 0 {
            return;
        }
        if !ack.cwnd_limited {
            self.algorithm.on_idle_until(ack.now);
            return;
        }
        self.algorithm.avoid(&mut self.window, acked, ack, group);
    }

    /// The threshold after a reduction when `flight` bytes were outstanding (RFC 5681 equation 4, RFC 9438 section 4.6).
    fn reduced(&mut self, flight: u32) -> u32 {
        let flight = flight.min(self.window.cwnd());
        self.unpenalised = None;
        let target = self.algorithm.reduce(&mut self.window, flight);
        target.max(self.window.least_reduced())
    }

    fn remember(&mut self) {
        self.prior = Some(Prior {
            window: self.window.clone(),
            algorithm: self.algorithm.clone(),
            unpenalised: self.unpenalised,
        });
    }

    /// Losses were found and fast recovery begins, with `flight` bytes outstanding before the acknowledgement that told
    /// so. Lowers the threshold; the window itself follows it under proportional rate reduction
    /// ([`set_cwnd`](Self::set_cwnd)) and arrives there with [`on_recovered`](Self::on_recovered).
    pub fn on_loss(&mut self, _now: Instant, flight: u32) {
        self.remember();
        self.timed_out = false;
        let ssthresh = self.reduced(flight);
        self.window.set_ssthresh(ssthresh);
    }

    /// Fast recovery sets the window for the time it lasts (RFC 6937).
    pub fn set_cwnd(&mut self, bytes: u32) {
        self.window.set_cwnd(bytes);
    }

    /// Fast recovery ended: the window is the threshold (RFC 6937 section 3). What it replaced can still be restored: a peer that
    /// reports its retransmissions as duplicates does so after the last of them.
    pub fn on_recovered(&mut self) {
        self.window.set_cwnd(self.window.ssthresh());
    }

    /// The retransmission timer fired. The window becomes one segment; the threshold is lowered only by the first of
    /// several timeouts in a row (RFC 5681 section 3.1), which is what `repeated` tells.
    pub fn on_rto(&mut self, _now: Instant, flight: u32, repeated: bool) {
        if !repeated {
            if self.prior.is_none() {
                self.remember();
            }
            let ssthresh = self.reduced(flight);
            self.window.set_ssthresh(ssthresh);
        }
        self.algorithm.on_timeout();
        self.timed_out = true;
        self.window.set_cwnd(self.window.mss());
    }

    /// A path that carried nothing for several timeouts in a row answers again. Nothing of ours is left in its queues,
    /// and nothing is known of them: like a connection that begins, or that was idle for long, it starts with the
    /// restart window, which is the initial one (RFC 5681 section 4.1, RFC 6928), but not above the threshold that the first
    /// of the timeouts set.
    pub fn after_outage(&mut self) {
        let target = self.window.initial().min(self.window.ssthresh());
        self.window.set_cwnd(self.window.cwnd().max(target));
    }

    /// The peer echoed a congestion mark: the same reduction as for a loss, at once and without retransmission (RFC 3168
    /// section 6.1.2). The caller sees to it that this happens once a window ([`EcnEcho`]).
    pub fn on_ecn(&mut self, _now: Instant, flight: u32) {
        let ssthresh = self.reduced(flight);
        self.window.set_ssthresh(ssthresh);
        self.window.set_cwnd(ssthresh.min(self.window.cwnd()));
        self.prior = None;
    }

    /// Nothing was sent for so long that what the path takes is as unknown as on a new connection. BBR's model forgets by itself.
    pub fn forget_path(&mut self) {
        if self.algorithm() == Algorithm::Bbr {
            return;
        }
        (self.unpenalised, self.prior) = (None, None);
        self.hystart = HyStart::new();
        self.algorithm = AlgorithmState::new(self.algorithm());
        self.window.set_cwnd(self.window.initial());
        self.window.set_ssthresh(u32::MAX);
    }

    /// The last reduction answered a loss that was none: window and threshold return to what they were (RFC 4015
    /// section 4).
    pub fn on_undo(&mut self) {
        if let Some(prior) = self.prior.take() {
            self.window.take_back(&prior.window);
            self.unpenalised = prior.unpenalised;
            // What BBR measured since is true all the same.
            if self.algorithm() != Algorithm::Bbr {
                self.algorithm = prior.algorithm;
            }
        }
    }

    /// What the last reduction replaced can no longer be taken back.
    pub fn forget_prior(&mut self) {
        self.prior = None;
    }

    /// The algorithm keeps the flight small to measure something else than the rate: what is sent now shows less than the path takes,
    /// as if the application had had no more.
    pub fn holds_rate_down(&self) -> bool {
        matches!(&self.algorithm, AlgorithmState::Bbr(bbr) if bbr.holds_rate_down())
    }

    /// Sending starts again after nothing was outstanding since `since`: the window decays by half for every
    /// retransmission timeout that passed, down to the restart window, and the threshold remembers three quarters of it
    /// (RFC 5681 section 4.1, RFC 7661 section 4.4).
    pub fn on_idle(&mut self, now: Instant, since: Instant, rto: Duration) {
        // BBR's model, not its window, says what the path takes.
        if self.algorithm() != Algorithm::Bbr {
            self.window.decay(now.since(since), rto);
        }
        self.algorithm.on_restart(now);
    }

    /// How fast to send: the window over the round trip, doubled in slow start so that the next window's growth fits,
    /// and with a fifth to spare in congestion avoidance so that pacing does not limit by itself (Linux: `tcp_pacing_ss_ratio`,
    /// `tcp_pacing_ca_ratio`). [`Rate::MAX`] before
    /// the first round-trip sample.
    pub fn pacing_rate(&self, srtt: Duration) -> Rate {
        if let AlgorithmState::Bbr(bbr) = &self.algorithm {
            return bbr.pacing_rate(self.cwnd(), srtt);
        }
        if srtt.is_zero() {
            return Rate::MAX;
        }
        let rate = Rate::per(u64::from(self.cwnd()), srtt);
        // As the window nears the threshold the growth of the next round is that of avoidance.
        if self.cwnd() < self.ssthresh() / 2 {
            rate.ratio(2, 1)
        } else {
            rate.ratio(6, 5)
        }
    }
}
