//! Spreads transmissions over the round trip.
//!
//! A virtual schedule says when everything sent so far would have left at the pacing rate. Sending may run ahead of that
//! schedule by half a quantum or a millisecond, so that a burst that the device splits is not chopped, and fall behind
//! it by another millisecond: timers of hosts are that coarse, and what a late one keeps back would be lost. More time
//! than that is not saved up; but a sender that starts with nothing in flight may send an initial window at once (RFC 6928), so that
//! a short answer after a pause is not spread over a round trip.

use crate::time::{Duration, Instant};
use crate::units::Rate;

/// Largest burst worth building: one segmentation-offload transmission (Linux's `GSO_LEGACY_MAX_SIZE`).
const LARGEST_QUANTUM: u64 = 64 * 1024;
/// Timers of hosts may be so late. A trade: more lets bursts be longer than they need, less leaves a path unused while a timer is
/// late.
const LATENESS: Duration = Duration::from_millis(1);
/// A burst lasts this long at the pacing rate, as in Linux (`tcp_tso_autosize`: about a millisecond).
const QUANTUM_TIME: Duration = Duration::from_millis(1);

/// The release times of one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pacer {
    /// When the bytes sent so far are through at the pacing rate.
    through: Instant,
    /// How far ahead of the schedule the sender may be.
    ahead: Duration,
    /// Bytes that may leave without being scheduled.
    free: u32,
}

impl Pacer {
    /// Nothing sent yet: everything may go.
    pub const fn new() -> Pacer {
        Pacer {
            through: Instant::ZERO,
            ahead: Duration::ZERO,
            free: 0,
        }
    }

    /// When the next transmission may leave: `now` or later.
    pub fn ready_at(&self, now: Instant) -> Instant {
        if self.free > 0 {
            now
        } else {
            now.max(self.through - self.ahead)
        }
    }

    /// Nothing is in flight: the next `bytes` may leave at once.
    pub fn on_idle(&mut self, bytes: u32) {
        self.free = bytes;
    }

    /// `bytes` left at `now`, while the pacing rate is `rate` and a segment has `mss` bytes.
    pub fn sent(&mut self, now: Instant, bytes: u32, rate: Rate, mss: u32) {
        let free = bytes.min(self.free);
        self.free -= free;
        self.through = self.through.max(now - LATENESS) + rate.time_for(u64::from(bytes - free));
        self.ahead = rate
            .time_for(u64::from(Self::quantum(rate, mss)) / 2)
            .max(LATENESS);
    }

    /// The largest burst that is sensible at `rate`: what one millisecond carries, at least two segments, at most 64 KB.
    pub fn quantum(rate: Rate, mss: u32) -> u32 {
        let bytes = rate.bytes_in(QUANTUM_TIME).clamp(
            u64::from(mss.max(1)) * 2,
            LARGEST_QUANTUM.max(u64::from(mss) * 2),
        );
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    /// Forgets the schedule, as after a timeout: what was scheduled counts as lost.
    pub fn reset(&mut self) {
        *self = Pacer::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MSS: u32 = 1_448;

    #[test]
    fn the_quantum_is_a_millisecond_within_its_bounds() {
        for (bits, quantum) in [
            (1_000_000, 2 * MSS),
            (10_000_000, 2 * MSS),
            (100_000_000, 12_500),
            (400_000_000, 50_000),
            (10_000_000_000, 65_536),
        ] {
            assert_eq!(
                Pacer::quantum(Rate::from_bits_per_sec(bits), MSS),
                quantum,
                "at {bits} bit/s"
            );
        }
        assert_eq!(
            Pacer::quantum(Rate::MAX, 40_000),
            80_000,
            "two segments even where segments are huge"
        );
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut pacer = Pacer::new();
        let now = Instant::from_secs(5);
        for _ in 0..100 {
            pacer.sent(now, 65_536, Rate::MAX, MSS);
            assert_eq!(pacer.ready_at(now), now);
        }
    }

    #[test]
    fn a_start_from_nothing_in_flight_is_not_spread() {
        let rate = Rate::from_bytes_per_sec(1_000_000);
        let now = Instant::from_secs(1);
        let mut pacer = Pacer::new();
        pacer.on_idle(10_000);
        pacer.sent(now, 9_999, rate, 1_000);
        assert_eq!(pacer.ready_at(now), now);
        // One byte is free, the others take their ten milliseconds less the two of late timers.
        pacer.sent(now, 10_001, rate, 1_000);
        assert_eq!(pacer.ready_at(now), Instant::from_millis(1_008));
    }

    #[test]
    fn a_millisecond_of_unused_time_is_saved_up_and_no_more() {
        let rate = Rate::from_bytes_per_sec(1_000_000);
        let mut pacer = Pacer::new();
        pacer.sent(Instant::from_secs(1), 10_000, rate, 1_000);
        // Ten milliseconds of bytes, begun one behind and ready one ahead (half the quantum of two segments).
        assert_eq!(
            pacer.ready_at(Instant::from_secs(1)),
            Instant::from_millis(1_008)
        );
        pacer.sent(Instant::from_secs(9), 10_000, rate, 1_000);
        assert_eq!(
            pacer.ready_at(Instant::from_secs(9)),
            Instant::from_millis(9_008)
        );
    }

    proptest! {
        /// Whoever sends a quantum whenever the pacer is ready keeps the rate, and is ahead of it by two quanta and the
        /// tolerance at most, even if every timer is a millisecond late.
        #[test]
        fn the_rate_is_kept(bits in 1_000_000u64..50_000_000_000, rounds in 10u64..200, late in 0u64..1_000_000) {
            let rate = Rate::from_bits_per_sec(bits);
            let quantum = Pacer::quantum(rate, MSS);
            let mut pacer = Pacer::new();
            let start = Instant::from_secs(1);
            let mut now = start;
            for _ in 0..rounds {
                let ready = pacer.ready_at(now);
                now = if ready > now { ready + Duration::from_nanos(late) } else { now };
                pacer.sent(now, quantum, rate, MSS);
            }
            let due = rate.time_for(u64::from(quantum) * rounds);
            let took = now.since(start);
            let slack = rate.time_for(u64::from(quantum) * 2) + LATENESS.times(2) + Duration::from_nanos(rounds);
            prop_assert!(took <= due + LATENESS && due <= took + slack, "took {took} of {due}");
        }
    }
}
