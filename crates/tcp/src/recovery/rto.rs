//! The retransmission timeout (RFC 6298 sections 2, 4 and 5).

use super::rtt::Rtt;
use crate::time::Duration;

/// Before the first measurement (section 2.1).
pub const INITIAL: Duration = Duration::from_secs(1);
/// For the data after a handshake whose timer expired, while there is no measurement (section 5.7).
pub const AFTER_SYN_TIMEOUT: Duration = Duration::from_secs(3);

/// Length of the retransmission timeout, with its back-off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rto {
    min: Duration,
    max: Duration,
    initial: Duration,
    /// Doublings that hold until the next unambiguous measurement (Karn's rule, section 5.5 and 5.7).
    shift: u8,
    /// Timeouts since the peer last acknowledged something new.
    in_a_row: u8,
    /// The back-off goes no further than this while another path carries the data.
    ceiling: Option<Duration>,
    /// The running timer was set by a ceiling that has been lifted since.
    hastened: bool,
}

impl Rto {
    /// A timeout that adds at least `min` to the round-trip time and never exceeds `max`.
    ///
    /// RFC 6298 section 2.4 wants one second at least; the usual 200 ms are added to the round-trip time instead of
    /// bounding the sum, so that a receiver's delayed acknowledgement does not fire the timer on a long path.
    pub fn new(min: Duration, max: Duration) -> Rto {
        let max = max.max(Duration::from_millis(1));
        Rto {
            min: min.min(max),
            max,
            initial: INITIAL.min(max),
            shift: 0,
            in_a_row: 0,
            ceiling: None,
            hastened: false,
        }
    }

    /// Bounds the back-off from above, or no longer. True if that changed.
    ///
    /// RFC 6298 section 2.5 lets no bound be smaller than a minute, because what backs off is the load on a path that
    /// may be congested. With a bound here the timer carries no load: what was lost travels on another path, and each
    /// timeout sends the one segment that asks whether this one works again.
    pub fn set_ceiling(&mut self, ceiling: Option<Duration>) -> bool {
        let changed = self.ceiling != ceiling;
        self.ceiling = ceiling;
        changed
    }

    /// Lifts the bound while the timer runs. If that was sooner due by it, its expiry doubles nothing: it came out of turn.
    pub fn lift_ceiling(&mut self, rtt: &Rtt) {
        let bounded = self.current(rtt);
        self.hastened |= self.set_ceiling(None) && bounded < self.current(rtt);
    }

    /// The timeout without back-off.
    pub fn base(&self, rtt: &Rtt) -> Duration {
        match rtt.srtt() {
            None => self.initial,
            Some(srtt) => (srtt + rtt.rttvar().times(4).max(self.min)).min(self.max),
        }
    }

    /// The timeout as it stands.
    pub fn current(&self, rtt: &Rtt) -> Duration {
        let base = self.base(rtt);
        let backed_off = base.times(1 << self.shift.min(32)).min(self.max);
        match self.ceiling {
            None => backed_off,
            Some(ceiling) => backed_off.min(ceiling.max(base)),
        }
    }

    /// The timer expired: the next timeout is twice as long (section 5.5), as far as the ceiling lets it. Beyond that
    /// nothing is doubled, so that the end of the ceiling does not reveal a timeout of minutes.
    pub fn back_off(&mut self, rtt: &Rtt) {
        let hastened = core::mem::take(&mut self.hastened);
        let bounded = |ceiling| self.current(rtt) >= ceiling;
        if !hastened && !self.ceiling.is_some_and(bounded) {
            self.shift = self.shift.saturating_add(1).min(32);
        }
        self.in_a_row = self.in_a_row.saturating_add(1);
    }

    /// The peer acknowledged something new.
    pub fn on_progress(&mut self) {
        (self.in_a_row, self.hastened) = (0, false);
    }

    /// A measurement that cannot be of a retransmission's original: the back-off ends.
    pub fn on_sample(&mut self) {
        self.shift = 0;
    }

    /// The handshake's timer expired and data begins without a measurement (section 5.7).
    pub fn after_syn_timeout(&mut self) {
        self.shift = 0;
        self.initial = AFTER_SYN_TIMEOUT.min(self.max);
    }

    /// Timeouts in a row.
    pub fn backoffs(&self) -> u8 {
        self.in_a_row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Instant;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn one_second_before_the_first_sample_then_doubling_to_the_maximum() {
        let mut rto = Rto::new(ms(200), Duration::from_secs(60));
        let rtt = Rtt::new();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(rto.current(&rtt), Duration::from_secs(seconds));
            rto.back_off(&rtt);
        }
        assert_eq!(rto.backoffs(), 8);
        for _ in 0..300 {
            rto.back_off(&rtt);
        }
        assert_eq!(
            (rto.backoffs(), rto.current(&rtt)),
            (255, Duration::from_secs(60))
        );
        rto.after_syn_timeout();
        assert_eq!(rto.current(&rtt), Duration::from_secs(3));
    }

    #[test]
    fn the_timeout_is_the_round_trip_and_four_variations_or_the_floor() {
        let rto = Rto::new(ms(200), Duration::from_secs(60));
        let mut rtt = Rtt::new();
        rtt.sample(Instant::ZERO, ms(100), 1);
        assert_eq!(rto.base(&rtt), ms(300), "100 + 4 * 50");
        for _ in 0..100 {
            rtt.sample(Instant::ZERO, ms(100), 1);
        }
        assert_eq!(
            rto.base(&rtt).as_millis(),
            300,
            "a steady path keeps the floor above its round trip"
        );
        rtt.sample(Instant::ZERO, ms(900), 1);
        assert!(rto.base(&rtt) > ms(900));
    }

    #[test]
    fn karn_keeps_the_back_off_until_a_clean_sample() {
        let mut rto = Rto::new(ms(200), Duration::from_secs(60));
        let mut rtt = Rtt::new();
        rtt.sample(Instant::ZERO, ms(100), 1);
        rto.back_off(&rtt);
        rto.back_off(&rtt);
        rto.on_progress();
        assert_eq!((rto.backoffs(), rto.current(&rtt)), (0, ms(1_200)));
        rto.on_sample();
        assert_eq!(rto.current(&rtt), ms(300));
    }

    #[test]
    fn a_ceiling_bounds_the_back_off_but_never_the_timeout_itself() {
        let mut rtt = Rtt::new();
        rtt.sample(Instant::ZERO, ms(100), 1);
        let mut rto = Rto::new(ms(200), Duration::from_secs(60));
        assert!(rto.set_ceiling(Some(ms(1_000))));
        assert!(!rto.set_ceiling(Some(ms(1_000))));
        let mut waits = alloc::vec::Vec::new();
        for _ in 0..20 {
            waits.push(rto.current(&rtt).as_millis());
            rto.back_off(&rtt);
        }
        assert_eq!(waits[..4], [300, 600, 1_000, 1_000]);
        assert_eq!((waits[19], rto.backoffs()), (1_000, 20));
        rto.set_ceiling(None);
        assert_eq!(
            rto.current(&rtt),
            ms(1_200),
            "alone again, it goes on from where the ceiling held it"
        );
        // A path with a long round trip is given its time.
        let mut slow = Rtt::new();
        slow.sample(Instant::ZERO, ms(2_000), 1);
        rto.on_sample();
        rto.set_ceiling(Some(ms(1_000)));
        assert_eq!(rto.current(&slow), rto.base(&slow));
        rto.back_off(&slow);
        assert_eq!(rto.current(&slow), rto.base(&slow));
    }

    #[test]
    fn what_expires_out_of_turn_by_a_ceiling_that_was_lifted_doubles_nothing() {
        let mut rtt = Rtt::new();
        rtt.sample(Instant::ZERO, ms(100), 1);
        let mut rto = Rto::new(ms(200), Duration::from_secs(60));
        for _ in 0..3 {
            rto.back_off(&rtt);
        }
        assert_eq!(rto.current(&rtt), ms(2_400));
        rto.set_ceiling(Some(ms(1_000)));
        rto.lift_ceiling(&rtt);
        rto.back_off(&rtt);
        assert_eq!((rto.backoffs(), rto.current(&rtt)), (4, ms(2_400)));
        rto.back_off(&rtt);
        assert_eq!(rto.current(&rtt), ms(4_800), "as ever from then on");
        // Where the ceiling did not bind, nothing came out of turn.
        rto.on_sample();
        rto.set_ceiling(Some(ms(1_000)));
        rto.lift_ceiling(&rtt);
        rto.back_off(&rtt);
        assert_eq!(rto.current(&rtt), ms(600));
    }
}
