//! The congestion window, its threshold and slow start: what all algorithms share.

use crate::time::Duration;

/// No window is ever larger (RFC 7323 section 2.3): with twice this, comparisons of sequence numbers would be wrong.
const LARGEST: u32 = 1 << 30;

/// Congestion window and slow-start threshold in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    initial: u32,
    slow_start_limit: Option<u32>,
    /// Sixteenths of 2^-16: parts of a byte that earlier acknowledgements earned.
    fraction: u64,
    /// 2^-16 bytes of the next segment that were earned, or given up.
    earned: i64,
}

impl Window {
    /// The window before anything is known: `initial` segments, no threshold.
    pub fn new(mss: u32, initial: u32) -> Window {
        let mss = mss.clamp(1, 1 << 16);
        let mut window = Window {
            cwnd: mss,
            ssthresh: u32::MAX,
            mss,
            initial: initial.max(1),
            slow_start_limit: Some(8),
            fraction: 0,
            earned: 0,
        };
        window.set_cwnd(mss.saturating_mul(window.initial));
        window
    }

    /// Congestion window in bytes.
    pub fn cwnd(&self) -> u32 {
        self.cwnd
    }

    /// Slow-start threshold in bytes.
    pub fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// Segment size in bytes.
    pub fn mss(&self) -> u32 {
        self.mss
    }

    /// The initial window in bytes.
    pub fn initial(&self) -> u32 {
        self.mss.saturating_mul(self.initial)
    }

    /// Slow start goes on while the window is below the threshold.
    pub fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Sets the window, within one segment and the largest sensible window.
    pub fn set_cwnd(&mut self, bytes: u32) {
        self.cwnd = bytes.clamp(self.mss, LARGEST);
    }

    /// Sets the threshold.
    pub fn set_ssthresh(&mut self, bytes: u32) {
        self.ssthresh = bytes;
        self.fraction = 0;
    }

    /// Slow start ends here, without a loss (RFC 9406 section 4.2).
    pub fn leave_slow_start(&mut self) {
        self.set_ssthresh(self.cwnd);
    }

    /// Changes the segment size.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss.clamp(1, 1 << 16);
        self.set_cwnd(self.cwnd);
    }

    /// How many segments' worth of bytes one acknowledgement may count for in slow start: the L of RFC 3465.
    pub fn set_slow_start_limit(&mut self, segments: Option<u32>) {
        self.slow_start_limit = segments;
    }

    /// Sets the initial window anew.
    pub fn restart_initial(&mut self, segments: u32) {
        self.set_cwnd(self.mss.saturating_mul(segments.max(1)));
    }

    /// Grows by the acknowledged bytes, at most L segments of them, divided by `divisor` (RFC 3465 section 2.2, RFC 9406
    /// section 4.2). Stops at the threshold and returns the bytes that are left for congestion avoidance.
    pub fn slow_start(&mut self, acked: u32, divisor: u32) -> u32 {
        let counted = match self.slow_start_limit {
            Some(segments) => acked.min(self.mss.saturating_mul(segments)),
            None => acked,
        };
        let room = self.ssthresh.saturating_sub(self.cwnd);
        let growth = (counted / divisor.max(1)).min(room);
        self.set_cwnd(self.cwnd.saturating_add(growth));
        if self.in_slow_start() {
            0
        } else {
            counted.saturating_sub(growth.saturating_mul(divisor.max(1)))
        }
    }

    /// Grows by a number of 2^-16 bytes and keeps the parts of a byte for later.
    pub fn grow_by_fraction(&mut self, sixteenth_bits: u64) {
        let total = self.fraction.saturating_add(sixteenth_bits);
        self.fraction = total & 0xffff;
        let whole = u32::try_from(total >> 16).unwrap_or(u32::MAX);
        self.set_cwnd(self.cwnd.saturating_add(whole));
    }

    /// Earns, or with a negative number gives up, a number of 2^-16 bytes. The window moves by whole segments, as Reno's
    /// does: what cannot be sent must not count as rate. The rest is kept, through losses too.
    pub fn earn(&mut self, sixteenth_bits: i64) {
        let earned = self.earned.saturating_add(sixteenth_bits);
        let segment = i64::from(self.mss) << 16;
        let bytes = (earned / segment).saturating_mul(i64::from(self.mss));
        self.earned = earned % segment;
        let cwnd = i64::from(self.cwnd).saturating_add(bytes).max(0);
        self.set_cwnd(u32::try_from(cwnd).unwrap_or(u32::MAX));
    }

    /// No reduction goes below two segments (RFC 5681 equation 4).
    pub fn least_reduced(&self) -> u32 {
        self.mss.saturating_mul(2)
    }

    /// As many of `bytes` as are whole segments; the rest is earned. What would be cut off here, and again at the next loss,
    /// is much for windows of a few segments.
    pub fn in_segments(&mut self, bytes: u32) -> u32 {
        let rest = bytes % self.mss;
        self.earned = self.earned.saturating_add(i64::from(rest) << 16);
        bytes - rest
    }

    /// What a reduction made of `prior` is undone: window and threshold are at least what they were, and what the reduction
    /// cut off is not earned a second time.
    pub fn take_back(&mut self, prior: &Window) {
        self.set_cwnd(self.cwnd.max(prior.cwnd));
        self.ssthresh = self.ssthresh.max(prior.ssthresh);
        self.earned = prior.earned;
    }

    /// Halves the window once for every `rto` in `idle`, down to the restart window (RFC 5681 section 4.1); the threshold
    /// keeps three quarters of what the window was (RFC 7661 section 4.4.1).
    pub fn decay(&mut self, idle: Duration, rto: Duration) {
        let halvings = idle.as_nanos() / rto.as_nanos().max(1);
        if halvings == 0 {
            return;
        }
        let restart = self.cwnd.min(self.mss.saturating_mul(self.initial));
        // A threshold never set means that no loss was ever seen: slow start may go on from below.
        if self.ssthresh != u32::MAX {
            self.ssthresh = self.ssthresh.max(self.cwnd / 4 * 3);
        }
        let decayed = u32::try_from(halvings)
            .ok()
            .and_then(|n| self.cwnd.checked_shr(n))
            .unwrap_or(0);
        self.set_cwnd(decayed.max(restart));
        self.fraction = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_counts_at_most_l_segments_an_acknowledgement() {
        // RFC 3465 section 2.3 with L = 2, then RFC 9406 section 4.3 without pacing (8) and with (no limit).
        for (limit, acked, grown) in [
            (Some(2), 1_000, 1_000),
            (Some(2), 5_000, 2_000),
            (Some(8), 50_000, 8_000),
            (None, 50_000, 50_000),
        ] {
            let mut window = Window::new(1_000, 10);
            window.set_slow_start_limit(limit);
            assert_eq!(window.slow_start(acked, 1), 0);
            assert_eq!(window.cwnd(), 10_000 + grown, "L = {limit:?}");
        }
    }

    #[test]
    fn slow_start_stops_at_the_threshold_and_hands_on_the_rest() {
        let mut window = Window::new(1_000, 10);
        window.set_ssthresh(11_000);
        window.set_slow_start_limit(None);
        assert_eq!(window.slow_start(4_000, 1), 3_000);
        assert_eq!(window.cwnd(), 11_000);
        assert!(!window.in_slow_start());
    }

    #[test]
    fn an_idle_window_halves_every_timeout_down_to_the_restart_window() {
        let rto = Duration::from_millis(200);
        for (idle_ms, cwnd) in [
            (199, 80_000),
            (200, 40_000),
            (400, 20_000),
            (600, 10_000),
            (100_000_000, 10_000),
        ] {
            let mut window = Window::new(1_000, 10);
            window.set_ssthresh(30_000);
            window.set_cwnd(80_000);
            window.decay(Duration::from_millis(idle_ms), rto);
            assert_eq!(window.cwnd(), cwnd, "after {idle_ms} ms");
            assert_eq!(
                window.ssthresh(),
                if idle_ms < 200 { 30_000 } else { 60_000 }
            );
        }
        let mut small = Window::new(1_000, 10);
        small.set_cwnd(4_000);
        small.decay(Duration::from_secs(9), rto);
        assert_eq!(
            small.cwnd(),
            4_000,
            "the restart window is never larger than the window was"
        );
    }

    #[test]
    fn the_window_stays_between_one_segment_and_half_the_sequence_space() {
        let mut window = Window::new(1_000, 10);
        window.set_cwnd(0);
        assert_eq!(window.cwnd(), 1_000);
        window.set_cwnd(u32::MAX);
        assert_eq!(window.cwnd(), 1 << 30);
        window.slow_start(u32::MAX, 1);
        assert_eq!(window.cwnd(), 1 << 30);
    }

    #[test]
    fn parts_of_a_byte_add_up() {
        let mut window = Window::new(1_000, 10);
        for _ in 0..4 {
            window.grow_by_fraction(0x4000);
        }
        assert_eq!(window.cwnd(), 10_001);
    }

    #[test]
    fn whole_segments_are_earned_and_given_up() {
        const SEGMENT: i64 = 1_000 << 16;
        let mut window = Window::new(1_000, 10);
        let mut after = |parts: i64| {
            window.earn(parts);
            window.cwnd()
        };
        assert_eq!(after(SEGMENT - 1), 10_000);
        assert_eq!(after(1), 11_000);
        // A rest is kept, of either sign.
        assert_eq!(after(SEGMENT / 2), 11_000);
        assert_eq!(after(-SEGMENT), 11_000);
        assert_eq!(after(-SEGMENT / 2), 10_000);
        assert_eq!(after(5 * SEGMENT / 2), 12_000);
        assert_eq!(after(SEGMENT / 2), 13_000);
        assert_eq!(after(i64::MIN), 1_000, "one segment stays");
        assert_eq!(after(i64::MAX), 1 << 30);
    }

    #[test]
    fn what_was_earned_outlives_a_loss() {
        let mut window = Window::new(1_000, 10);
        window.earn(900 << 16);
        window.set_ssthresh(5_000);
        window.set_cwnd(5_000);
        window.earn(100 << 16);
        assert_eq!(window.cwnd(), 6_000);
    }
}
