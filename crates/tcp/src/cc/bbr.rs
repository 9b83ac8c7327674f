//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), in integers.
//!
//! BBR measures the path instead of waiting for losses: the bottleneck's bandwidth as the largest delivery rate of ten
//! round trips, the propagation delay as the shortest round trip of ten seconds. It paces at a gain times the bandwidth and
//! holds a gain times the product of both in flight. It is not coupled: several subflows on one link each take a share, and
//! against loss-based senders at short buffers it takes more than its own. The later versions, which bound that by losses,
//! are not what is here.
//!
//! Two things follow from where it stands. Fast recovery shrinks the window itself by proportional rate reduction towards
//! the threshold, which is the window from before: the draft's packet conservation and its restoring (section 4.2.3)
//! come out of that. And as there is no randomness here, the phase in which the cycle of gains begins (section 4.3.4)
//! is drawn from the clock.

use super::{AckSample, Window};
use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Round trips that the bandwidth is the maximum of (section 4.1.1, BtlBwFilterLen).
const BANDWIDTH_ROUNDS: usize = 10;
/// How long the shortest round trip is believed (section 4.1.2, RTpropFilterLen).
const ROUND_TRIP_MEMORY: Duration = Duration::from_secs(10);
/// How long the flight is kept small to measure it (section 4.3.5, ProbeRTTDuration).
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
/// Segments in flight at least (section 4.2.3, BBRMinPipeCwnd).
const LEAST_SEGMENTS: u32 = 4;
/// Rounds without a quarter more bandwidth that mean a full pipe (section 4.3.2).
const FULL_ROUNDS: u8 = 3;
/// Pacing gains of the phases of ProbeBW (section 4.3.4).
const CYCLE: [Gain; 8] = [
    Gain(5, 4),
    Gain(3, 4),
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
    Gain::UNIT,
];

/// A factor: numerator and denominator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gain(u64, u64);

impl Gain {
    const UNIT: Self = Self(1, 1);
    /// 2/ln(2) (section 4.2.1, BBRHighGain).
    const HIGH: Self = Self(2_885, 1_000);
    /// Its inverse (section 4.3.3).
    const DRAIN: Self = Self(1_000, 2_885);
    /// The window's gain in ProbeBW (section 4.2.3).
    const WINDOW: Self = Self(2, 1);
}

/// The state machine of section 4.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Doubles the rate each round trip until the bandwidth stops growing.
    Startup,
    /// Empties the queue that Startup built.
    Drain,
    /// Cycles the gain; since when in this phase.
    ProbeBw { phase: usize, since: Instant },
    /// Keeps the flight small for a moment, which has begun once `until` is known.
    ProbeRtt { until: Option<Instant>, round: u64 },
}

/// The largest rate that a round measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Measured {
    round: u64,
    rate: Rate,
}

impl Measured {
    const NOTHING: Self = Self {
        round: 0,
        rate: Rate::ZERO,
    };
}

/// The algorithm on one subflow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bbr {
    state: State,
    /// Those of the last rounds that measured something.
    rates: [Measured; BANDWIDTH_ROUNDS],
    /// Number of the present round.
    round: u64,
    /// It ends when this many bytes are acknowledged in total.
    round_end: u64,
    round_trip: Option<Duration>,
    /// When that was measured.
    measured: Instant,
    /// The largest bandwidth that counted as growth, and rounds since.
    full_bandwidth: Rate,
    rounds_without_growth: u8,
    filled: bool,
    /// The window before ProbeRTT.
    saved: u32,
    /// Sending has started again after silence, and nothing was delivered since.
    restarted: bool,
}

impl Default for Bbr {
    fn default() -> Self {
        Self {
            state: State::Startup,
            rates: [Measured::NOTHING; BANDWIDTH_ROUNDS],
            round: 0,
            round_end: 0,
            round_trip: None,
            measured: Instant::ZERO,
            full_bandwidth: Rate::ZERO,
            rounds_without_growth: 0,
            filled: false,
            saved: 0,
            restarted: false,
        }
    }
}

impl Bbr {
    /// Nothing measured yet.
    pub fn new() -> Bbr {
        Bbr::default()
    }

    /// Sending starts again after nothing was in flight (section 4.3.4.4).
    pub fn on_restart(&mut self) {
        self.restarted = true;
    }

    /// The bottleneck's bandwidth; zero before the first measurement.
    pub fn bandwidth(&self) -> Rate {
        let rates = self.rates.iter().map(|measured| measured.rate);
        rates.max().unwrap_or(Rate::ZERO)
    }

    /// An acknowledgement outside of fast recovery: measures, and sets the window (section 4.2.3).
    pub fn on_ack(&mut self, window: &mut Window, ack: &AckSample) {
        self.observe(window, ack, false);
        let target = self.inflight(self.window_gain(), window);
        let least = least_window(window);
        if let State::ProbeRtt { .. } = self.state {
            window.set_cwnd(window.cwnd().min(least));
            return;
        }
        let grown = window.cwnd().saturating_add(ack.acked);
        if self.filled {
            window.set_cwnd(grown.min(target).max(least));
        } else if window.cwnd() < target || ack.delivered_total < u64::from(window.initial()) {
            window.set_cwnd(grown.max(least));
        }
        if self.filled && window.in_slow_start() {
            window.leave_slow_start();
        }
    }

    /// The flight is kept small: what is delivered of it says nothing about the bandwidth (section 4.3.5).
    pub fn holds_rate_down(&self) -> bool {
        matches!(self.state, State::ProbeRtt { .. })
    }

    /// Updates the model and the state (section 4.2.2); in fast recovery, too.
    pub fn observe(&mut self, window: &mut Window, ack: &AckSample, recovering: bool) {
        let new_round = ack.acked_total >= self.round_end;
        if new_round {
            self.round += 1;
            self.round_end = ack.sent_total.max(ack.acked_total + 1);
        }
        if let Some(rate) = ack.rate {
            // Section 4.1.1.4: what the application held down counts only if it is more all the same.
            let limited = ack.rate_app_limited || self.holds_rate_down();
            if !limited || rate >= self.bandwidth() {
                self.note_rate(rate);
            }
        }
        if new_round && !self.filled && !ack.rate_app_limited {
            self.judge_growth();
        }
        self.advance(window, ack);
        self.measure_round_trip(window, ack, recovering);
    }

    /// The window that something short has made `cwnd` (section 4.3.5 and BBRSaveCwnd of section 4.4): what is returned to after it.
    pub fn lasting(&self, cwnd: u32) -> u32 {
        match self.state {
            State::ProbeRtt { .. } => cwnd.max(self.saved),
            State::Startup | State::Drain | State::ProbeBw { .. } => cwnd,
        }
    }

    /// Section 4.1.1.5: the window of rounds moves on with what is measured. Rounds without a measurement, however many, forget
    /// nothing.
    fn note_rate(&mut self, rate: Rate) {
        let rounds = BANDWIDTH_ROUNDS as u64;
        for old in &mut self.rates {
            if self.round - old.round >= rounds {
                *old = Measured::NOTHING;
            }
        }
        // What is left in this place is of this very round.
        let place = &mut self.rates[(self.round % rounds) as usize];
        *place = Measured {
            round: self.round,
            rate: rate.max(place.rate),
        };
    }

    /// Section 4.3.2.2: three rounds without a quarter more mean that the pipe is full.
    fn judge_growth(&mut self) {
        let bandwidth = self.bandwidth();
        if bandwidth >= self.full_bandwidth.ratio(5, 4) && bandwidth > Rate::ZERO {
            self.full_bandwidth = bandwidth;
            self.rounds_without_growth = 0;
            return;
        }
        self.rounds_without_growth += 1;
        self.filled = self.rounds_without_growth >= FULL_ROUNDS;
    }

    /// Moves between Startup, Drain and the phases of ProbeBW.
    fn advance(&mut self, window: &Window, ack: &AckSample) {
        if self.state == State::Startup && self.filled {
            self.state = State::Drain;
        }
        match self.state {
            State::Drain if ack.inflight_after <= self.inflight(Gain::UNIT, window) => {
                self.enter_probe_bw(ack.now);
            }
            State::ProbeBw { phase, since } if self.phase_ends(phase, since, window, ack) => {
                self.state = State::ProbeBw {
                    phase: (phase + 1) % CYCLE.len(),
                    since: ack.now,
                };
            }
            State::Startup | State::Drain | State::ProbeBw { .. } | State::ProbeRtt { .. } => {}
        }
    }

    /// Section 4.3.4.2: any phase but the one that drains.
    fn enter_probe_bw(&mut self, now: Instant) {
        let phase = match (now.as_micros() % (CYCLE.len() as u64 - 1)) as usize {
            0 => 0,
            other => other + 1,
        };
        self.state = State::ProbeBw { phase, since: now };
    }

    /// Section 4.3.4.3: a round trip; more while the probe has not filled its flight, less once the queue is empty.
    fn phase_ends(&self, phase: usize, since: Instant, window: &Window, ack: &AckSample) -> bool {
        let whole = ack.now.since(since) > self.round_trip.unwrap_or(Duration::ZERO);
        let gain = CYCLE[phase];
        match gain.0.cmp(&gain.1) {
            core::cmp::Ordering::Equal => whole,
            core::cmp::Ordering::Greater => {
                whole && (ack.lost > 0 || ack.inflight_before >= self.inflight(gain, window))
            }
            core::cmp::Ordering::Less => {
                whole || ack.inflight_before <= self.inflight(Gain::UNIT, window)
            }
        }
    }

    /// Sections 4.1.2 and 4.3.5.
    fn measure_round_trip(&mut self, window: &mut Window, ack: &AckSample, recovering: bool) {
        let expired = self.round_trip.is_some() && ack.now.since(self.measured) > ROUND_TRIP_MEMORY;
        if let Some(rtt) = ack.rtt {
            if expired || self.round_trip.is_none_or(|known| rtt <= known) {
                self.round_trip = Some(rtt);
                self.measured = ack.now;
            }
        }
        // Section 4.3.5: silence drained the queue as well as a probe would.
        let restarted = core::mem::take(&mut self.restarted);
        if expired && !restarted && !self.holds_rate_down() {
            self.saved = match recovering {
                // What it was, which is the threshold where losses say nothing.
                true => window.cwnd().max(window.ssthresh()),
                false => window.cwnd(),
            };
            self.state = State::ProbeRtt {
                until: None,
                round: 0,
            };
        }
        let State::ProbeRtt { until, round } = self.state else {
            return;
        };
        match until {
            None if ack.inflight_after <= least_window(window) => {
                self.state = State::ProbeRtt {
                    until: Some(ack.now + PROBE_RTT_TIME),
                    round: self.round,
                };
            }
            Some(until) if ack.now >= until && self.round > round => {
                self.measured = ack.now;
                window.set_cwnd(window.cwnd().max(self.saved));
                if self.filled {
                    self.enter_probe_bw(ack.now);
                } else {
                    self.state = State::Startup;
                }
            }
            None | Some(_) => {}
        }
    }

    fn pacing_gain(&self) -> Gain {
        match self.state {
            State::Startup => Gain::HIGH,
            State::Drain => Gain::DRAIN,
            // Section 4.3.4.4: exactly the bandwidth, which fills an empty path in a round trip.
            State::ProbeBw { .. } if self.restarted => Gain::UNIT,
            State::ProbeBw { phase, .. } => CYCLE[phase],
            State::ProbeRtt { .. } => Gain::UNIT,
        }
    }

    fn window_gain(&self) -> Gain {
        match self.state {
            State::Startup | State::Drain => Gain::HIGH,
            State::ProbeBw { .. } => Gain::WINDOW,
            State::ProbeRtt { .. } => Gain::UNIT,
        }
    }

    /// Bytes in flight for a gain (section 4.2.3): that much of the bandwidth-delay product, and three bursts, without
    /// which stretched acknowledgements leave the pipe empty.
    fn inflight(&self, gain: Gain, window: &Window) -> u32 {
        let Some(round_trip) = self.round_trip else {
            return window.initial();
        };
        let bandwidth = self.bandwidth();
        let product = bandwidth.ratio(gain.0, gain.1).bytes_in(round_trip);
        let bursts = 3 * u64::from(super::Pacer::quantum(bandwidth, window.mss()));
        u32::try_from(product.saturating_add(bursts))
            .unwrap_or(u32::MAX)
            .max(least_window(window))
    }

    /// How fast to send (section 4.2.1); before the first measurement, what the window and the round trip give.
    pub fn pacing_rate(&self, cwnd: u32, srtt: Duration) -> Rate {
        let bandwidth = self.bandwidth();
        let Gain(num, den) = self.pacing_gain();
        let by_window = match srtt.is_zero() {
            true => Rate::MAX,
            false => Rate::per(u64::from(cwnd), srtt).ratio(Gain::HIGH.0, Gain::HIGH.1),
        };
        if bandwidth == Rate::ZERO {
            return by_window;
        }
        let rate = bandwidth.ratio(num, den);
        // Until the pipe is full, a measurement never slows down what the first window began.
        if self.filled {
            rate
        } else {
            rate.max(by_window)
        }
    }
}

fn least_window(window: &Window) -> u32 {
    window.mss().saturating_mul(LEAST_SEGMENTS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: u32 = 1_000;

    /// A path of a megabyte a second and 100 ms, on which a queue holds what is in flight beyond 100 kB.
    struct Pipe {
        bbr: Bbr,
        window: Window,
        now: Instant,
        acked: u64,
        base: Duration,
        inflight: u64,
    }

    impl Pipe {
        fn new() -> Self {
            Self {
                bbr: Bbr::new(),
                window: Window::new(MSS, 10),
                now: Instant::from_secs(1),
                acked: 0,
                base: Duration::from_millis(100),
                inflight: 0,
            }
        }

        fn ack(&self, bytes: u32, inflight: u32, rtt: Duration, rate: u64) -> AckSample {
            AckSample {
                now: self.now,
                acked: bytes,
                inflight_before: inflight,
                inflight_after: inflight.saturating_sub(bytes),
                max_inflight: inflight,
                cwnd_limited: true,
                rtt: Some(rtt),
                srtt: rtt,
                min_rtt: rtt,
                acked_total: self.acked,
                sent_total: self.acked + u64::from(inflight),
                delivered_total: self.acked,
                rate: Some(Rate::from_bytes_per_sec(rate)),
                rate_app_limited: false,
                lost: 0,
            }
        }

        /// Ten milliseconds of a sender that keeps its pace and its window.
        fn tick(&mut self) {
            const TICK: Duration = Duration::from_millis(10);
            let pace = self.bbr.pacing_rate(self.window.cwnd(), self.base);
            let room = u64::from(self.window.cwnd()).saturating_sub(self.inflight);
            self.inflight += pace.bytes_in(TICK).min(room);
            let queue = self.inflight.saturating_sub(1_000 * self.base.as_millis());
            let rtt = self.base + Duration::from_micros(queue);
            let delivered = self.inflight * TICK.as_micros() / rtt.as_micros();
            let rate = (self.inflight * 1_000_000 / rtt.as_micros()).min(1_000_000);
            self.now += TICK;
            self.acked += delivered;
            let ack = self.ack(delivered as u32, self.inflight as u32, rtt, rate);
            self.inflight -= delivered;
            self.bbr.on_ack(&mut self.window, &ack);
        }

        fn run(&mut self, seconds: u64) {
            for _ in 0..seconds * 100 {
                self.tick();
            }
        }
    }

    #[test]
    fn the_constants_are_those_of_the_draft() {
        let Gain(num, den) = Gain::HIGH;
        // 2 / ln 2 = 2.88539.
        assert_eq!(num * 1_000 / den, 2_885);
        let sum: u64 = CYCLE.iter().map(|g| g.0 * 4 / g.1).sum();
        assert_eq!(sum, 8 * 4, "a cycle sends at the bandwidth on average");
        assert_eq!((BANDWIDTH_ROUNDS, LEAST_SEGMENTS), (10, 4));
    }

    #[test]
    fn startup_finds_the_bandwidth_and_drain_empties_the_queue() {
        let mut pipe = Pipe::new();
        let mut ticks = 0;
        while pipe.bbr.state == State::Startup {
            pipe.tick();
            ticks += 1;
            assert!(ticks < 300);
        }
        let found = pipe.bbr.bandwidth().as_bytes_per_sec();
        assert!((950_000..=1_000_000).contains(&found), "{found}");
        assert!(
            pipe.inflight > 150_000,
            "a queue was built: {}",
            pipe.inflight
        );
        while pipe.bbr.state == State::Drain {
            pipe.tick();
        }
        assert!(pipe.inflight <= 106_000, "and emptied: {}", pipe.inflight);
        pipe.run(1);
        assert!(matches!(pipe.bbr.state, State::ProbeBw { .. }));
        assert!(!pipe.window.in_slow_start());
        // Twice the product and three bursts of two segments.
        let cwnd = pipe.window.cwnd();
        assert!((195_000..=207_000).contains(&cwnd), "{cwnd}");
    }

    #[test]
    fn the_cycle_probes_and_drains_once_in_eight_phases() {
        let mut pipe = Pipe::new();
        pipe.run(3);
        let (mut seen, mut most, mut least) = ([0_u32; CYCLE.len()], 0, u64::MAX);
        for _ in 0..600 {
            if let State::ProbeBw { phase, .. } = pipe.bbr.state {
                seen[phase] += 1;
                (most, least) = (most.max(pipe.inflight), least.min(pipe.inflight));
            }
            pipe.tick();
        }
        assert!(seen.iter().all(|&ticks| ticks >= 30), "{seen:?}");
        assert!(most > 115_000 && most < 150_000, "{most}");
        assert!(least > 80_000, "{least}");
    }

    #[test]
    fn a_round_trip_that_is_ten_seconds_old_is_measured_again() {
        let mut pipe = Pipe::new();
        pipe.run(3);
        // The route becomes longer: nothing as short comes again.
        pipe.base = Duration::from_millis(150);
        let (mut probing, mut smallest) = (0_u32, u32::MAX);
        for _ in 0..2_500 {
            pipe.tick();
            if let State::ProbeRtt { .. } = pipe.bbr.state {
                probing += 1;
                smallest = smallest.min(pipe.window.cwnd());
            }
        }
        // Two or three times the draining of the flight, 200 ms and a round trip: a small part of the time.
        assert!((20..250).contains(&probing), "{probing}");
        assert_eq!(smallest, 4 * MSS);
        let known = pipe.bbr.round_trip.expect("measured");
        let longer = Duration::from_millis(150)..Duration::from_millis(170);
        assert!(longer.contains(&known), "{known}");
        assert!(pipe.window.cwnd() > 250_000, "{}", pipe.window.cwnd());
    }

    #[test]
    fn the_bandwidth_is_forgotten_after_ten_rounds() {
        let mut pipe = Pipe::new();
        pipe.acked = 1;
        let fast = pipe.ack(1, 10_000, pipe.base, 900_000);
        pipe.bbr.on_ack(&mut pipe.window, &fast);
        for round in 1..=10 {
            assert_eq!(pipe.bbr.bandwidth().as_bytes_per_sec(), 900_000, "{round}");
            pipe.acked += 20_000;
            let slow = pipe.ack(1, 10_000, pipe.base, 100_000);
            pipe.bbr.on_ack(&mut pipe.window, &slow);
        }
        assert_eq!(pipe.bbr.bandwidth().as_bytes_per_sec(), 100_000);
    }

    #[test]
    fn what_the_application_held_down_does_not_lower_the_estimate() {
        let mut pipe = Pipe::new();
        let limited = AckSample {
            rate_app_limited: true,
            ..pipe.ack(1_000, 10_000, pipe.base, 50_000)
        };
        pipe.bbr.on_ack(&mut pipe.window, &limited);
        assert_eq!(
            pipe.bbr.bandwidth().as_bytes_per_sec(),
            50_000,
            "it is the first"
        );
        let measured = pipe.ack(1_000, 10_000, pipe.base, 80_000);
        pipe.bbr.on_ack(&mut pipe.window, &measured);
        pipe.bbr.on_ack(&mut pipe.window, &limited);
        assert_eq!(pipe.bbr.bandwidth().as_bytes_per_sec(), 80_000);
        assert!(!pipe.bbr.filled);
    }

    #[test]
    fn rounds_that_measure_nothing_forget_nothing() {
        let mut pipe = Pipe::new();
        pipe.acked = 1;
        let fast = pipe.ack(1, 10_000, pipe.base, 900_000);
        pipe.bbr.on_ack(&mut pipe.window, &fast);
        for round in 1..=30 {
            pipe.acked += 20_000;
            let mut limited = pipe.ack(1, 10_000, pipe.base, 100_000);
            limited.rate_app_limited = true;
            if round % 2 == 0 {
                limited.rate = None;
            }
            pipe.bbr.on_ack(&mut pipe.window, &limited);
            assert_eq!(pipe.bbr.bandwidth().as_bytes_per_sec(), 900_000, "{round}");
        }
        // What is measured next replaces what is as old as that.
        pipe.acked += 20_000;
        let slow = pipe.ack(1, 10_000, pipe.base, 100_000);
        pipe.bbr.on_ack(&mut pipe.window, &slow);
        assert_eq!(pipe.bbr.bandwidth().as_bytes_per_sec(), 100_000);
    }
}
