//! CUBIC (RFC 9438) in integers: windows in bytes, times in microseconds.

use super::Window;
use crate::time::{Duration, Instant};

/// C = 0.4 segments per cubed second (RFC 9438 section 5.1), as the fraction 2/5.
const C: (u128, u128) = (2, 5);
const MICROS_CUBED: u128 = 1_000_000_000_000_000_000;

/// The state of one CUBIC controller.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Cubic {
    /// Window just before the last reduction, or lower after fast convergence; zero before the first.
    w_max: u32,
    /// Window before the last reduction without fast convergence: the `cwnd_prior` of section 4.3.
    prior: u32,
    /// The present congestion avoidance stage, once it has begun.
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Epoch {
    /// When the stage began; moves on while the application is the limit (section 4.2).
    start: Instant,
    /// Time of the last acknowledgement.
    last: Instant,
    /// Slow start has governed since then.
    interrupted: bool,
    /// Time until the curve reaches `origin`, in microseconds.
    k: u64,
    /// Plateau of the curve in bytes.
    origin: u32,
    /// Estimate of what Reno would have reached, in 2^-16 bytes.
    w_est: u64,
}

impl Cubic {
    /// No loss seen yet.
    pub fn new() -> Cubic {
        Cubic::default()
    }

    /// A congestion event with window `cwnd` and `flight` bytes outstanding (not more than `cwnd`): returns the new
    /// threshold, seven tenths of what was in flight (sections 4.6 and 4.7).
    pub fn reduce(&mut self, cwnd: u32, flight: u32) -> u32 {
        self.epoch = None;
        self.prior = cwnd;
        // Section 4.7: a window that fell again before it reached its last plateau releases bandwidth to newcomers.
        self.w_max = if cwnd < self.w_max {
            scale(cwnd, 17, 20)
        } else {
            cwnd
        };
        scale(flight, 7, 10)
    }

    /// The next stage begins on the plateau of its curve, at `cwnd`, and what was reached before is forgotten: the Reno estimate
    /// grows as Reno does at once (section 4.3).
    pub fn start_flat(&mut self, cwnd: u32) {
        self.epoch = None;
        self.w_max = cwnd;
        self.prior = cwnd;
    }

    /// Slow start governs at `now`: time stands still until it ends. The stage then goes on, unless slow start has passed it
    /// ([`avoid`](Self::avoid)).
    pub fn on_slow_start(&mut self, now: Instant) {
        self.on_idle_until(now);
        if let Some(epoch) = &mut self.epoch {
            epoch.interrupted = true;
        }
    }

    /// A retransmission timeout: the next stage starts a new curve from where it begins (section 4.8).
    pub fn on_timeout(&mut self) {
        self.epoch = None;
        self.w_max = 0;
    }

    /// The sender was not limited by the window until `now`: that time does not count (section 5.8).
    pub fn on_idle_until(&mut self, now: Instant) {
        if let Some(epoch) = &mut self.epoch {
            epoch.start += now.since(epoch.last);
            epoch.last = now;
        }
    }

    /// `acked` bytes were acknowledged in congestion avoidance.
    pub fn avoid(&mut self, window: &mut Window, acked: u32, now: Instant, srtt: Duration) {
        let (cwnd, mss) = (window.cwnd(), window.mss());
        self.epoch
            .take_if(|epoch| core::mem::take(&mut epoch.interrupted) && epoch.is_passed(cwnd, mss));
        let epoch = self
            .epoch
            .get_or_insert_with(|| Epoch::begin(now, cwnd, mss, self.w_max));
        epoch.last = now;
        let elapsed = now.since(epoch.start).as_micros();
        epoch.w_est = epoch.w_est.saturating_add(reno_growth(
            acked,
            mss,
            cwnd,
            (epoch.w_est >> 16) >= u64::from(self.prior),
        ));
        let w_est = u32::try_from(epoch.w_est >> 16).unwrap_or(u32::MAX);
        if curve(elapsed, epoch.k, epoch.origin, mss) < w_est {
            // Section 4.3, the Reno-friendly region. What slow start left below the estimate comes no quicker than on the curve.
            window.set_cwnd(w_est.clamp(cwnd, cwnd.saturating_add(acked / 2)));
            return;
        }
        // Sections 4.4 and 4.5: on the way to where the curve will be one round trip from now.
        let target = curve(
            elapsed.saturating_add(srtt.as_micros()),
            epoch.k,
            epoch.origin,
            mss,
        );
        let target = target.clamp(cwnd, cwnd.saturating_add(cwnd / 2));
        let growth =
            (u128::from(target - cwnd) << 16) * u128::from(acked.min(cwnd)) / u128::from(cwnd);
        window.grow_by_fraction(u64::try_from(growth).unwrap_or(u64::MAX));
    }
}

impl Epoch {
    fn begin(now: Instant, cwnd: u32, mss: u32, w_max: u32) -> Epoch {
        // Section 4.2: K = cbrt((W_max - cwnd_epoch) / C), in segments and seconds.
        let below = u128::from(w_max.saturating_sub(cwnd));
        let k = cube_root(below * MICROS_CUBED * C.1 / (C.0 * u128::from(mss)));
        Epoch {
            start: now,
            last: now,
            interrupted: false,
            k,
            origin: w_max.max(cwnd),
            w_est: u64::from(cwnd) << 16,
        }
    }

    /// The window that a slow start has left is above both of what this stage knows: a new one begins with it. Pure.
    fn is_passed(&self, cwnd: u32, mss: u32) -> bool {
        let elapsed = self.last.since(self.start).as_micros();
        let reached = u64::from(curve(elapsed, self.k, self.origin, mss)).max(self.w_est >> 16);
        u64::from(cwnd) > reached
    }
}

/// W_cubic(t) of section 4.2 in bytes: `C * (t - K)^3 + W_max`, with times in microseconds.
fn curve(t: u64, k: u64, w_max: u32, mss: u32) -> u32 {
    // 2^36 us (19 hours) keep the product within 128 bits; the window's own bounds are reached long before.
    let distance = u128::from(t.abs_diff(k).min(1 << 36));
    let offset = distance.pow(3) * u128::from(mss) * C.0 / (C.1 * MICROS_CUBED);
    let offset = u32::try_from(offset).unwrap_or(u32::MAX);
    if t < k {
        w_max.saturating_sub(offset)
    } else {
        w_max.saturating_add(offset)
    }
}

/// Growth of the Reno estimate in 2^-16 bytes for `acked` bytes: alpha = 3(1 - 0.7)/(1 + 0.7) = 9/17 of Reno's, and Reno's
/// own once the estimate has reached the window before the reduction (section 4.3).
fn reno_growth(acked: u32, mss: u32, cwnd: u32, caught_up: bool) -> u64 {
    let (num, den) = if caught_up { (1, 1) } else { (9, 17) };
    let growth = ((u128::from(acked.min(cwnd)) * u128::from(mss)) << 16) * num
        / (den * u128::from(cwnd.max(1)));
    u64::try_from(growth).unwrap_or(u64::MAX)
}

fn scale(value: u32, num: u64, den: u64) -> u32 {
    u32::try_from(u64::from(value) * num / den).unwrap_or(u32::MAX)
}

/// The largest integer whose cube is not above `value`.
pub fn cube_root(value: u128) -> u64 {
    let mut root = 0u128;
    // The root of a 128-bit number has at most 43 bits; they are found from the highest down.
    for bit in (0..43).rev() {
        let candidate = root | 1 << bit;
        let fits = candidate
            .checked_mul(candidate)
            .and_then(|square| square.checked_mul(candidate));
        if fits.is_some_and(|cube| cube <= value) {
            root = candidate;
        }
    }
    // 43 bits always fit.
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_000;

    fn avoiding(cwnd: u32) -> Window {
        let mut window = Window::new(MSS, 10);
        window.set_cwnd(cwnd);
        window.leave_slow_start();
        window
    }

    /// Just after the reduction of a window of a megabyte.
    fn reduced() -> (Cubic, Window) {
        let mut cubic = Cubic::new();
        let ssthresh = cubic.reduce(1_000_000, 1_000_000);
        (cubic, avoiding(ssthresh))
    }

    #[test]
    fn the_curve_has_the_values_of_the_formula() {
        // W_max = 100 segments, reduced to 70: K = cbrt(30 / 0.4) = 4.2172 s.
        let k = cube_root(30_000 * MICROS_CUBED * 5 / (2 * 1_000));
        assert_eq!(k, 4_217_163);
        for (seconds, segments_x1000) in [
            (0, 70_000),
            (2, 95_639),
            (4, 99_995),
            (6, 102_266),
            (8, 121_652),
        ] {
            let at = curve(seconds * 1_000_000, k, 100_000, MSS);
            assert!(at.abs_diff(segments_x1000) <= 2, "W({seconds}) = {at}");
        }
    }

    #[test]
    fn reductions_take_three_tenths_and_converge_fast() {
        let mut cubic = Cubic::new();
        assert_eq!(cubic.reduce(100_000, 100_000), 70_000);
        assert_eq!(cubic.w_max, 100_000);
        assert_eq!(cubic.reduce(80_000, 80_000), 56_000);
        assert_eq!(
            cubic.w_max, 68_000,
            "section 4.7: below the last plateau, (1 + 0.7) / 2 of the window"
        );
        assert_eq!(
            cubic.reduce(90_000, 40_000),
            28_000,
            "the flight counts, not the window"
        );
        assert_eq!(cubic.w_max, 90_000);
    }

    /// One window of acknowledgements a round trip, for `seconds`.
    fn run(cubic: &mut Cubic, window: &mut Window, rtt_ms: u64, seconds: u64) {
        let srtt = Duration::from_millis(rtt_ms);
        let mut now = Instant::from_secs(1);
        let end = now + Duration::from_secs(seconds);
        while now < end {
            let in_flight = window.cwnd();
            let acks = in_flight / (2 * MSS);
            for _ in 0..acks {
                cubic.avoid(window, 2 * MSS, now, srtt);
                now += Duration::from_nanos(srtt.as_nanos() / u64::from(acks));
            }
        }
    }

    #[test]
    fn growth_follows_the_curve_at_long_round_trips() {
        let (mut cubic, mut window) = reduced();
        // K = cbrt(300 / 0.4) = 9.086 s; five seconds later W = 1,000 + 0.4 * 4.914^3 = 1,047 segments.
        run(&mut cubic, &mut window, 100, 14);
        let segments = window.cwnd() / MSS;
        assert!((1_030..1_075).contains(&segments), "{segments} segments");
    }

    #[test]
    fn growth_follows_reno_at_short_round_trips() {
        let mut cubic = Cubic::new();
        let ssthresh = cubic.reduce(20_000, 20_000);
        let mut window = avoiding(ssthresh);
        // At 10 ms Reno gains alpha = 9/17 segments a round trip until the old window (11 rounds), then one:
        // 14 + 6 + (100 - 12) = about 100 segments after 1 s, where the curve alone would be at 20.
        run(&mut cubic, &mut window, 10, 1);
        let segments = window.cwnd() / MSS;
        assert!((95..108).contains(&segments), "{segments} segments");
    }

    #[test]
    fn after_a_timeout_the_curve_starts_where_avoidance_starts() {
        let mut cubic = Cubic::new();
        cubic.reduce(100_000, 100_000);
        cubic.on_timeout();
        let mut window = avoiding(70_000);
        cubic.avoid(
            &mut window,
            MSS,
            Instant::from_secs(1),
            Duration::from_millis(100),
        );
        let epoch = cubic.epoch.as_ref().unwrap();
        assert_eq!((epoch.k, epoch.origin), (0, 70_000));
    }

    #[test]
    fn time_without_demand_does_not_count() {
        let rtt = Duration::from_millis(100);
        let (mut cubic, mut window) = reduced();
        cubic.avoid(&mut window, MSS, Instant::from_secs(1), rtt);
        cubic.on_idle_until(Instant::from_secs(60));
        let before = window.cwnd();
        cubic.avoid(&mut window, 10 * MSS, Instant::from_secs(60), rtt);
        assert!(
            window.cwnd() - before < MSS,
            "an idle minute must not become growth"
        );
    }

    #[test]
    fn slow_start_stops_the_clock_of_the_curve() {
        let rtt = Duration::from_millis(100);
        let (mut cubic, mut window) = reduced();
        run(&mut cubic, &mut window, 100, 2);
        let (reached, age) = (window.cwnd(), Duration::from_secs(2));
        for second in 3..=40 {
            cubic.on_slow_start(Instant::from_secs(second));
        }
        let mut window = avoiding(700_000);
        cubic.avoid(&mut window, MSS, Instant::from_secs(40), rtt);
        let epoch = cubic.epoch.as_ref().unwrap();
        assert!(Instant::from_secs(40).since(epoch.start) <= age + rtt);
        // Back to where it was, and not further: half as much again would be 1,050,000.
        for round in 0..80 {
            let now = Instant::from_secs(40) + Duration::from_millis(round);
            cubic.avoid(&mut window, 70 * MSS, now, rtt);
        }
        let cwnd = window.cwnd();
        assert!(
            (reached..reached + reached / 20).contains(&cwnd),
            "{cwnd} of {reached}"
        );
    }

    #[test]
    fn a_slow_start_that_passes_the_curve_begins_another() {
        let (mut cubic, mut window) = reduced();
        run(&mut cubic, &mut window, 100, 2);
        cubic.on_slow_start(Instant::from_secs(40));
        let mut window = avoiding(1_200_000);
        cubic.avoid(
            &mut window,
            MSS,
            Instant::from_secs(40),
            Duration::from_millis(100),
        );
        let epoch = cubic.epoch.as_ref().unwrap();
        assert_eq!(
            (epoch.start, epoch.origin),
            (Instant::from_secs(40), 1_200_000)
        );
    }

    proptest! {
        #[test]
        fn the_cube_root_is_exact(value: u128) {
            let root = u128::from(cube_root(value));
            prop_assert!(root.pow(3) <= value);
            prop_assert!((root + 1).checked_pow(3).is_none_or(|cube| cube > value));
        }

        #[test]
        fn no_input_overflows_or_shrinks_the_window(
            mss in 1u32..65_536, cwnd: u32, w_max: u32, acked: u32, at in 0u64..u64::MAX / 2, later: u64, rtt: u64,
        ) {
            let mut window = Window::new(mss, 10);
            window.set_cwnd(cwnd);
            window.leave_slow_start();
            let mut cubic = Cubic { w_max, prior: w_max, epoch: None };
            cubic.avoid(&mut window, acked, Instant::from_nanos(at), Duration::from_nanos(rtt));
            let before = window.cwnd();
            let later = Instant::from_nanos(at.saturating_add(later));
            cubic.avoid(&mut window, acked, later, Duration::from_nanos(rtt));
            prop_assert!(window.cwnd() >= before);
            prop_assert!(cubic.reduce(window.cwnd(), window.cwnd()) <= window.cwnd());
        }
    }
}
