//! Congestion control, in integers only.
//!
//! [`Congestion`] owns the congestion window and the slow-start threshold, in bytes. It is told what happened (an
//! acknowledgement, a loss, a timeout, a mark) and never looks at a segment. Slow start, the reductions' bookkeeping and
//! undo are common to all; the increase in congestion avoidance and the size of a reduction are the law of the
//! algorithm. A coupled law sees the connection's other subflows only through the plain [`GroupView`] handed in.

mod cubic;
mod ecn;
mod hystart;
mod lia;
mod pacer;
mod reno;
mod window;

pub use cubic::{Cubic, cube_root};
pub use ecn::EcnEcho;
pub use hystart::{HyStart, Mode as HyStartMode};
pub use lia::{Lia, increase as lia_increase};
pub use pacer::Pacer;
pub use reno::Reno;
pub use window::Window;

use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Which law governs congestion avoidance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// RFC 5681 with appropriate byte counting (RFC 3465).
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// The linked increases of RFC 6356, coupled over the subflows of a connection.
    Lia,
}

/// One path of a connection as coupled congestion control sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathSample {
    /// Congestion window in bytes.
    pub cwnd: u32,
    /// Smoothed round-trip time; zero while unknown.
    pub srtt: Duration,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// The path carries data at present; others are left out of the sums.
    pub usable: bool,
}

/// All paths of a connection, and which of them is asking.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Every subflow's sample.
    pub paths: &'a [PathSample],
    /// Index of the asking subflow in `paths`.
    pub me: usize,
}

impl GroupView<'static> {
    /// A connection of one path that couples with nothing.
    pub const ALONE: GroupView<'static> = GroupView { paths: &[], me: 0 };
}

/// What one acknowledgement says to a congestion controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckSample {
    /// When it arrived.
    pub now: Instant,
    /// Bytes it newly reported as delivered, cumulatively or selectively.
    pub acked: u32,
    /// Bytes held to be in the network before it.
    pub inflight_before: u32,
    /// Bytes held to be in the network after it.
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
    /// Delivery rate that it proves, if it proves one.
    pub rate: Option<Rate>,
    /// The rate was held down by the application, not by the network.
    pub rate_app_limited: bool,
}

/// The state that is particular to an algorithm.
#[derive(Clone, Debug)]
enum Law {
    Reno(Reno),
    Cubic(Cubic),
    Lia(Lia),
}

/// What a reduction replaced, for taking it back.
#[derive(Clone, Debug)]
struct Prior {
    cwnd: u32,
    ssthresh: u32,
    law: Law,
}

/// The congestion controller of one subflow.
#[derive(Clone, Debug)]
pub struct Congestion {
    window: Window,
    hystart: HyStart,
    law: Law,
    prior: Option<Prior>,
    timed_out: bool,
}

impl Congestion {
    /// A controller with an initial window of `initial_window` segments (RFC 6928: 10) of `mss` bytes.
    pub fn new(algorithm: Algorithm, mss: u32, initial_window: u32) -> Congestion {
        let law = match algorithm {
            Algorithm::Reno => Law::Reno(Reno::new()),
            Algorithm::Cubic => Law::Cubic(Cubic::new()),
            Algorithm::Lia => Law::Lia(Lia::new()),
        };
        Congestion {
            window: Window::new(mss, initial_window),
            hystart: HyStart::new(),
            law,
            prior: None,
            timed_out: false,
        }
    }

    /// Which law governs.
    pub fn algorithm(&self) -> Algorithm {
        match self.law {
            Law::Reno(_) => Algorithm::Reno,
            Law::Cubic(_) => Algorithm::Cubic,
            Law::Lia(_) => Algorithm::Lia,
        }
    }

    /// Changes the law and keeps the window.
    pub fn set_algorithm(&mut self, algorithm: Algorithm) {
        if algorithm != self.algorithm() {
            self.law = match algorithm {
                Algorithm::Reno => Law::Reno(Reno::new()),
                Algorithm::Cubic => Law::Cubic(Cubic::new()),
                Algorithm::Lia => Law::Lia(Lia::new()),
            };
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

    /// The first congestion window, before anything was acknowledged, becomes `segments` segments: for a handshake that
    /// lost its SYN (RFC 5681 section 3.1: one segment), or whose segment size was not known before.
    pub fn restart_initial(&mut self, segments: u32) {
        self.window.restart_initial(segments);
    }

    /// An acknowledgement of new data outside of fast recovery. Grows the window where the sender uses it.
    pub fn on_ack(&mut self, ack: &AckSample, group: &GroupView<'_>) {
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
        if self.window.in_slow_start() || acked == 0 {
            return;
        }
        if !ack.cwnd_limited {
            if let Law::Cubic(cubic) = &mut self.law {
                cubic.on_idle_until(ack.now);
            }
            return;
        }
        match &mut self.law {
            Law::Reno(reno) => reno.avoid(&mut self.window, acked),
            Law::Cubic(cubic) => cubic.avoid(&mut self.window, acked, ack.now, ack.srtt),
            Law::Lia(lia) => lia.avoid(&mut self.window, acked, ack.srtt, group),
        }
    }

    /// The threshold after a reduction when `flight` bytes were outstanding (RFC 5681 equation 4, RFC 9438 section 4.6).
    fn reduced(&mut self, flight: u32) -> u32 {
        let flight = flight.min(self.window.cwnd());
        let target = match &mut self.law {
            Law::Reno(_) | Law::Lia(_) => flight / 2,
            Law::Cubic(cubic) => cubic.reduce(self.window.cwnd(), flight),
        };
        target.max(self.window.mss().saturating_mul(2))
    }

    fn remember(&mut self) {
        self.prior = Some(Prior {
            cwnd: self.window.cwnd(),
            ssthresh: self.window.ssthresh(),
            law: self.law.clone(),
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

    /// Fast recovery ended: the window is the threshold (RFC 6937 section 3).
    pub fn on_recovered(&mut self) {
        self.window.set_cwnd(self.window.ssthresh());
        self.prior = None;
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
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.on_timeout();
        }
        self.timed_out = true;
        self.window.set_cwnd(self.window.mss());
    }

    /// A path that carried nothing for several timeouts in a row answers again. Nothing of ours is left in its queues,
    /// and nothing is known of them: like a connection that begins, or that was idle for long, it starts with the
    /// restart window of `segments` segments (RFC 5681 section 4.1, RFC 6928), but not above the threshold that the
    /// first of the timeouts set.
    pub fn after_outage(&mut self, segments: u32) {
        let restart = self.window.mss().saturating_mul(segments.max(1));
        let target = restart.min(self.window.ssthresh());
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

    /// The last reduction answered a loss that was none: window and threshold return to what they were (RFC 4015
    /// section 4).
    pub fn on_undo(&mut self) {
        if let Some(prior) = self.prior.take() {
            self.window.set_cwnd(self.window.cwnd().max(prior.cwnd));
            self.window
                .set_ssthresh(self.window.ssthresh().max(prior.ssthresh));
            self.law = prior.law;
        }
    }

    /// What the last reduction replaced can no longer be taken back.
    pub fn forget_prior(&mut self) {
        self.prior = None;
    }

    /// Sending starts again after nothing was outstanding since `since`: the window decays by half for every
    /// retransmission timeout that passed, down to the restart window, and the threshold remembers three quarters of it
    /// (RFC 5681 section 4.1, RFC 7661 section 4.4).
    pub fn on_idle(&mut self, now: Instant, since: Instant, rto: Duration) {
        self.window.decay(now.since(since), rto);
        if let Law::Cubic(cubic) = &mut self.law {
            cubic.on_idle_until(now);
        }
    }

    /// How fast to send: the window over the round trip, doubled in slow start so that the next window's growth fits,
    /// and with a fifth to spare in congestion avoidance so that pacing does not limit by itself. [`Rate::MAX`] before
    /// the first round-trip sample.
    pub fn pacing_rate(&self, srtt: Duration) -> Rate {
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
