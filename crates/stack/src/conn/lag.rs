//! How much later than a subflow the connection at the other end acknowledges.
//!
//! As a rule both is said by one segment. Not so where a proxy acknowledges by itself: the round trips that the subflow shows are
//! the proxy's. The handshake, which a proxy lets pass, tells no more than how long small packets take: an answer of five segments
//! may need twenty times as long behind it (gauntlet 1144882: 6.7 s where TCP takes 1.1 s; 1.1 s). And not so where
//! segments are joined and a mapping gets lost by it: what it was for is repeated a time-out at data level later, and in
//! requests and answers that may be so each time (gauntlet 1144213: 13.8 s where TCP takes 2.9 s). To a scheduler that goes by
//! round trips such a path would stay the quickest. So from the subflow's acknowledgement until the Data ACK is how much longer
//! data takes on it, and that is smoothed as a round trip is.
//!
//! A Data ACK may also wait for what other subflows carry. It counts if what was missing was on this one. And it may be missing
//! because acknowledgements lose their options, which says nothing about the data.
//!
//! Owns that measurement. Must never know what follows from it.

use alloc::collections::VecDeque;

use manypath_tcp::time::{Duration, Instant};

use super::offset::Offset;
use super::{Conn, Cx};

/// Parts that are waited for at one time; of more, only these are measured.
const MOST: usize = 16;

/// This part of what is known is the last measurement (RFC 6298 section 2).
const SHARE: u64 = 8;

/// What is not measured again is worth half after this time: who seems late is used little, and could not show that it no
/// longer is.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// What is known of it on one subflow.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    /// Ends of parts that the subflow acknowledged, and when it did.
    awaited: VecDeque<(Offset, Instant)>,
    smoothed: Duration,
    /// When that was last measured, or halved.
    known: Instant,
}

impl Lag {
    /// The subflow acknowledged what ends here.
    pub(crate) fn acknowledged(&mut self, end: Offset, now: Instant) {
        if self.awaited.len() < MOST {
            self.awaited.push_back((end, now));
        }
    }

    /// There are Data ACKs up to `una`. `counts`: they waited for nothing but this subflow. What took longer than `most` waited for
    /// the reader, or was repeated. True if that told something new.
    fn answered(&mut self, una: Offset, counts: bool, most: Duration, now: Instant) -> bool {
        let before = self.smoothed;
        if !before.is_zero() && now.since(self.known) >= HALF_LIFE {
            self.smoothed = before.over(2);
            self.known = now;
        }
        while let Some(&(end, since)) = self.awaited.front() {
            if end > una {
                break;
            }
            self.awaited.pop_front();
            if counts {
                let old = self.smoothed.ratio(SHARE - 1, SHARE);
                self.smoothed = old + now.since(since).min(most).over(SHARE);
                self.known = now;
            }
        }
        self.smoothed != before
    }

    /// How much later, as far as is known.
    pub(crate) fn get(&self) -> Duration {
        self.smoothed
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.awaited.capacity() * size_of::<(Offset, Instant)>()
    }
}

impl Conn {
    /// The Data ACK went on from `before`.
    pub(super) fn peer_has_more(&mut self, before: Offset, cx: &Cx<'_>) {
        let una = self.send.una();
        let most = self.data_rto();
        for sf in &mut self.subflows {
            let counts = sf.has_swallowed(before);
            if sf.lag.answered(una, counts, most, cx.now) {
                self.schedule.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST_LAG: Duration = Duration::from_secs(1);

    const fn ms(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn the_peer_answers_so_much_later() {
        let mut lag = Lag::default();
        lag.acknowledged(Offset(1_400), ms(2));
        lag.acknowledged(Offset(2_800), ms(3));
        assert!(!lag.answered(Offset(1_399), true, MOST_LAG, ms(10)));
        assert_eq!(lag.get(), Duration::ZERO);
        assert!(lag.answered(Offset(1_400), true, MOST_LAG, ms(18)));
        assert_eq!(lag.get(), Duration::from_millis(2));
        assert!(lag.answered(Offset(9_000), true, MOST_LAG, ms(83)));
        assert_eq!(lag.get(), Duration::from_micros(11_750));
        assert!(!lag.answered(Offset(9_000), true, MOST_LAG, ms(90)));
        // The next ones come at once.
        lag.acknowledged(Offset(9_100), ms(90));
        assert!(lag.answered(Offset(9_100), true, MOST_LAG, ms(90)));
        assert!(lag.get() < Duration::from_millis(11));
    }

    #[test]
    fn what_waited_for_others_tells_nothing() {
        let mut lag = Lag::default();
        lag.acknowledged(Offset(1_400), ms(2));
        assert!(!lag.answered(Offset(1_400), false, MOST_LAG, ms(900)));
        lag.acknowledged(Offset(2_800), ms(902));
        assert!(lag.answered(Offset(2_800), true, MOST_LAG, ms(910)));
        assert_eq!(lag.get(), Duration::from_millis(1));
    }

    #[test]
    fn what_was_long_ago_fades() {
        let mut lag = Lag::default();
        lag.acknowledged(Offset(1_400), ms(0));
        assert!(lag.answered(Offset(1_400), true, MOST_LAG, ms(800)));
        assert!(!lag.answered(Offset(2_800), false, MOST_LAG, ms(10_799)));
        assert!(lag.answered(Offset(4_200), false, MOST_LAG, ms(10_800)));
        assert!(!lag.answered(Offset(5_600), false, MOST_LAG, ms(10_900)));
        assert_eq!(lag.get(), Duration::from_millis(50));
    }

    #[test]
    fn memory_is_bounded() {
        let mut lag = Lag::default();
        for i in 0..1_000 {
            lag.acknowledged(Offset(i), ms(i));
        }
        assert!(lag.memory() <= 2 * MOST * size_of::<(Offset, Instant)>());
    }
}
