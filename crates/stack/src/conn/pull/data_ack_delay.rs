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
//! A Data ACK may also wait for what other subflows carry. So only of the part that was missing it is known that it waited for
//! nothing else. And it may be missing because acknowledgements lose their options, which says nothing about the data.
//!
//! Owns that measurement. Must never know what follows from it.

use alloc::collections::VecDeque;
use core::ops::Range;

use manypath_tcp::time::{Duration, Instant};

use crate::conn::dss::offset::Offset;
use crate::conn::{Conn, Cx};

/// Parts that are waited for at one time; of more, only these are measured.
const MOST: usize = 16;

/// This part of what is known is the last measurement (RFC 6298 section 2).
const SHARE: u64 = 8;

/// What is not measured again is worth half after this time: who seems late is used little, and could not show that it no
/// longer is.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// What is known of it on one subflow.
#[derive(Debug, Default)]
pub(crate) struct DataAckDelay {
    /// Parts that the subflow acknowledged, and when it did.
    awaited: VecDeque<(Range<Offset>, Instant)>,
    smoothed: Duration,
    /// When that was last measured, or halved.
    known: Instant,
}

impl DataAckDelay {
    /// The subflow acknowledged this part.
    pub(crate) fn acknowledged(&mut self, part: Range<Offset>, now: Instant) {
        if self.awaited.len() < MOST {
            self.awaited.push_back((part, now));
        }
    }

    /// There are Data ACKs up to `una`, and were up to `before`. What was missing then is what they waited for; what lies behind
    /// that waited for it. What took longer than `most` waited for the reader, or was repeated. True if that told something new.
    fn answered(&mut self, before: Offset, una: Offset, most: Duration, now: Instant) -> bool {
        let known = self.smoothed;
        if !known.is_zero() && now.since(self.known) >= HALF_LIFE {
            self.smoothed = known.over(2);
            self.known = now;
        }
        while let Some((part, since)) = self.awaited.front() {
            if part.end > una {
                break;
            }
            if part.contains(&before) {
                let old = self.smoothed.ratio(SHARE - 1, SHARE);
                self.smoothed = old + now.since(*since).min(most).over(SHARE);
                self.known = now;
            }
            self.awaited.pop_front();
        }
        self.smoothed != known
    }

    /// How much later, as far as is known.
    pub(crate) fn get(&self) -> Duration {
        self.smoothed
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.awaited.capacity() * size_of::<(Range<Offset>, Instant)>()
    }
}

impl Conn {
    /// The Data ACK went on from `before`.
    pub(in crate::conn) fn peer_has_more(&mut self, before: Offset, cx: &Cx<'_>) {
        let una = self.send.una();
        let most = self.data_rto();
        for sf in &mut self.subflows {
            if sf.data_ack_delay.answered(before, una, most, cx.now) {
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

    const fn part(from: u64, to: u64) -> Range<Offset> {
        Offset(from)..Offset(to)
    }

    #[test]
    fn the_peer_answers_so_much_later() {
        let mut data_ack_delay = DataAckDelay::default();
        data_ack_delay.acknowledged(part(0, 1_400), ms(2));
        data_ack_delay.acknowledged(part(1_400, 2_800), ms(3));
        assert!(!data_ack_delay.answered(Offset(0), Offset(1_399), MOST_LAG, ms(10)));
        assert_eq!(data_ack_delay.get(), Duration::ZERO);
        assert!(data_ack_delay.answered(Offset(1_399), Offset(1_400), MOST_LAG, ms(18)));
        assert_eq!(data_ack_delay.get(), Duration::from_millis(2));
        assert!(data_ack_delay.answered(Offset(1_400), Offset(9_000), MOST_LAG, ms(83)));
        assert_eq!(data_ack_delay.get(), Duration::from_micros(11_750));
        assert!(!data_ack_delay.answered(Offset(2_800), Offset(9_000), MOST_LAG, ms(90)));
        // The next ones come at once.
        data_ack_delay.acknowledged(part(9_000, 9_100), ms(90));
        assert!(data_ack_delay.answered(Offset(9_000), Offset(9_100), MOST_LAG, ms(90)));
        assert!(data_ack_delay.get() < Duration::from_millis(11));
        // One that takes for ever counts as so much.
        data_ack_delay.acknowledged(part(9_100, 9_200), ms(100));
        assert!(data_ack_delay.answered(Offset(9_100), Offset(9_200), Duration::ZERO, ms(90_000)));
        assert!(data_ack_delay.get() < Duration::from_millis(11));
    }

    #[test]
    fn what_waited_for_others_tells_nothing() {
        let mut data_ack_delay = DataAckDelay::default();
        data_ack_delay.acknowledged(part(1_400, 2_800), ms(2));
        assert!(!data_ack_delay.answered(Offset(0), Offset(2_800), MOST_LAG, ms(900)));
        // What was missing came here, at last, as well: only of that it is known how long it took.
        data_ack_delay.acknowledged(part(4_200, 5_600), ms(900));
        data_ack_delay.acknowledged(part(2_800, 4_200), ms(1_900));
        assert!(data_ack_delay.answered(Offset(2_800), Offset(5_600), MOST_LAG, ms(1_908)));
        assert_eq!(data_ack_delay.get(), Duration::from_millis(1));
    }

    #[test]
    fn what_was_long_ago_fades() {
        let mut data_ack_delay = DataAckDelay::default();
        data_ack_delay.acknowledged(part(0, 1_400), ms(0));
        assert!(data_ack_delay.answered(Offset(0), Offset(1_400), MOST_LAG, ms(800)));
        assert!(!data_ack_delay.answered(Offset(1_400), Offset(2_800), MOST_LAG, ms(10_799)));
        assert!(data_ack_delay.answered(Offset(2_800), Offset(4_200), MOST_LAG, ms(10_800)));
        assert!(!data_ack_delay.answered(Offset(4_200), Offset(5_600), MOST_LAG, ms(10_900)));
        assert_eq!(data_ack_delay.get(), Duration::from_millis(50));
    }

    #[test]
    fn memory_is_bounded() {
        let mut data_ack_delay = DataAckDelay::default();
        for i in 0..1_000 {
            data_ack_delay.acknowledged(part(i, i + 1), ms(i));
        }
        assert!(data_ack_delay.memory() <= 2 * MOST * size_of::<(Range<Offset>, Instant)>());
    }
}
