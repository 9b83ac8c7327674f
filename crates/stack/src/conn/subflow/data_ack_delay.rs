//! Measures how much later than the subflow-level ACK the Data ACK for the same data arrives (RFC 8684 section 3.3.2).
//!
//! Normally one segment carries both. Behind a split-TCP proxy it does not: the subflow's round trips are those to the proxy. The
//! handshake, which a proxy forwards, only shows how long small packets take: a response of five segments may need twenty times as long
//! behind it (measured: 6.7 s where TCP takes 1.1 s; 1.1 s with this delay). Nor where segments are coalesced and a mapping is lost: its
//! data is resent one data-level time-out later, with requests and responses possibly each time (measured: 13.8 s where TCP takes 2.9 s).
//! To a scheduler that uses the RTT such a path would stay the fastest. So the time from the subflow's acknowledgement to the Data ACK is
//! measured and smoothed like an RTT.
//!
//! A Data ACK may also wait for data on other subflows, so only the part that was missing is known to have waited for nothing else. And it
//! may be missing because ACKs lose their options, which is no evidence about the data.
//!
//! Owns that measurement. Must never know what follows from it.

use alloc::collections::VecDeque;
use core::ops::Range;

use manypath_tcp::time::{Duration, Instant};

use crate::conn::dss::offset::Offset;

/// Parts awaiting a Data ACK at a time; of more, only these are measured.
const MOST: usize = 16;

/// Weight of the last measurement: one part in this many (RFC 6298 section 2).
const SHARE: u64 = 8;

/// Without a new measurement the delay halves after this time: a subflow that seems late is used little, and could not show that it no
/// longer is.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Data ACK delay of one subflow.
#[derive(Debug, Default)]
pub(crate) struct DataAckDelay {
    /// Parts acknowledged at subflow level, and when.
    awaited: VecDeque<(Range<Offset>, Instant)>,
    smoothed: Duration,
    /// When `smoothed` was last measured, or halved.
    known: Instant,
}

impl DataAckDelay {
    /// This part was acknowledged at subflow level.
    pub(crate) fn acknowledged(&mut self, part: Range<Offset>, now: Instant) {
        if self.awaited.len() < MOST {
            self.awaited.push_back((part, now));
        }
    }

    /// The Data ACK advanced from `before` to `una`. The part that contains `before` is what it waited for; later parts waited for that
    /// one. What took longer than `most` waited for the reader, or was resent. True if the delay changed.
    pub(in crate::conn) fn answered(
        &mut self,
        before: Offset,
        una: Offset,
        most: Duration,
        now: Instant,
    ) -> bool {
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

    /// The smoothed delay, as far as is known.
    pub(crate) fn get(&self) -> Duration {
        self.smoothed
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.awaited.capacity() * size_of::<(Range<Offset>, Instant)>()
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
    fn the_delay_from_subflow_ack_to_data_ack_is_smoothed() {
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
        // The next Data ACKs come at once.
        data_ack_delay.acknowledged(part(9_000, 9_100), ms(90));
        assert!(data_ack_delay.answered(Offset(9_000), Offset(9_100), MOST_LAG, ms(90)));
        assert!(data_ack_delay.get() < Duration::from_millis(11));
        // A delay beyond `most` counts as `most`.
        data_ack_delay.acknowledged(part(9_100, 9_200), ms(100));
        assert!(data_ack_delay.answered(Offset(9_100), Offset(9_200), Duration::ZERO, ms(90_000)));
        assert!(data_ack_delay.get() < Duration::from_millis(11));
    }

    #[test]
    fn a_part_that_waited_for_other_subflows_is_not_measured() {
        let mut data_ack_delay = DataAckDelay::default();
        data_ack_delay.acknowledged(part(1_400, 2_800), ms(2));
        assert!(!data_ack_delay.answered(Offset(0), Offset(2_800), MOST_LAG, ms(900)));
        // The missing part arrived here, at last, as well: only its delay is known.
        data_ack_delay.acknowledged(part(4_200, 5_600), ms(900));
        data_ack_delay.acknowledged(part(2_800, 4_200), ms(1_900));
        assert!(data_ack_delay.answered(Offset(2_800), Offset(5_600), MOST_LAG, ms(1_908)));
        assert_eq!(data_ack_delay.get(), Duration::from_millis(1));
    }

    #[test]
    fn an_old_measurement_decays() {
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
