//! A token bucket in whole numbers: never more than `rate x t + burst`, and no token lost to rounding.

use manypath_tcp::time::{Duration, Instant};

use crate::api::RateLimit;

/// Credits of one bit: a nanosecond at one bit a second brings one credit.
const BIT: i128 = 1_000_000_000;

/// Tokens of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    limit: RateLimit,
    /// Credits that are there; below zero after packets that could not wait.
    level: i128,
    /// When `level` was right.
    at: Instant,
}

fn credits(bytes: u64) -> i128 {
    i128::from(bytes) * 8 * BIT
}

impl Bucket {
    /// A full bucket.
    pub(crate) fn new(limit: RateLimit, now: Instant) -> Self {
        Self {
            limit,
            level: credits(limit.burst),
            at: now,
        }
    }

    /// The limit in force.
    pub(crate) fn limit(&self) -> RateLimit {
        self.limit
    }

    /// Changes the limit. What was earned so far counts, as far as the new burst holds it.
    pub(crate) fn change(&mut self, limit: RateLimit, now: Instant) {
        self.refill(now);
        self.limit = limit;
        self.level = self.level.min(credits(limit.burst));
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = i128::from(now.since(self.at).as_nanos());
        // At most 2^64 nanoseconds at 2^64 bits a second, which 128 bits with a sign do not hold.
        let earned = elapsed.saturating_mul(i128::from(self.limit.bits_per_sec));
        let full = credits(self.limit.burst);
        self.level = self.level.saturating_add(earned).min(full);
        self.at = self.at.max(now);
    }

    /// When a packet of so many bytes may leave: not after `now` if at once, `None` if never. What is larger than the burst waits for a full
    /// bucket.
    pub(crate) fn ready_at(&mut self, bytes: u64, now: Instant) -> Option<Instant> {
        self.refill(now);
        let need = credits(bytes.min(self.limit.burst));
        let missing = need - self.level;
        if missing <= 0 {
            return Some(now);
        }
        let rate = i128::from(self.limit.bits_per_sec);
        let nanos = u64::try_from(missing.checked_div(rate)?).ok()?;
        Some(now + Duration::from_nanos(nanos.checked_add(1)?))
    }

    /// When it is full, if nobody takes anything.
    pub(crate) fn full_at(&mut self, now: Instant) -> Option<Instant> {
        self.ready_at(self.limit.burst, now)
    }

    /// Bytes that may leave now; below zero after packets that could not wait.
    pub(crate) fn tokens(&self, now: Instant) -> i64 {
        let mut then = *self;
        then.refill(now);
        i64::try_from(then.level.div_euclid(8 * BIT)).unwrap_or(i64::MAX)
    }

    /// Takes the tokens of a packet that leaves. Debts are bounded by a bucketful: acknowledgements leave without tokens.
    pub(crate) fn charge(&mut self, bytes: u64, now: Instant) {
        self.refill(now);
        let lowest = -credits(self.limit.burst);
        self.level = (self.level - credits(bytes)).max(lowest.min(self.level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn limit(bits_per_sec: u64, burst: u64) -> RateLimit {
        RateLimit {
            bits_per_sec,
            burst,
        }
    }

    const START: Instant = Instant::ZERO;

    proptest! {
        /// Sends as soon as allowed, at random lengths: never above rate x t + burst, and within a packet of it while data waits.
        #[test]
        fn what_leaves_is_rate_times_time_and_one_burst(
            bits in 1_u64..10_000_000_000,
            burst in 1500_u64..200_000,
            lens in prop::collection::vec(40_u64..1500, 1..200),
        ) {
            let mut bucket = Bucket::new(limit(bits, burst), START);
            let (mut now, mut sent) = (START, 0_u64);
            for len in lens {
                let at = bucket.ready_at(len, now).expect("the rate is not zero");
                now = now.max(at);
                prop_assert_eq!(bucket.ready_at(len, now), Some(now));
                bucket.charge(len, now);
                sent += len;
                let elapsed = i128::from(now.since(START).as_nanos());
                let allowed = credits(burst) + elapsed * i128::from(bits);
                prop_assert!(credits(sent) <= allowed);
                if elapsed > 0 {
                    prop_assert!(credits(sent) + credits(1500) + i128::from(bits) * 2 >= elapsed * i128::from(bits));
                }
            }
        }
    }

    #[test]
    fn one_bit_a_second_and_the_highest_rate_work() {
        let mut slow = Bucket::new(limit(1, 1), START);
        slow.charge(1, START);
        let at = slow.ready_at(1, START).expect("eight seconds later");
        assert_eq!(at, START + Duration::from_secs(8) + Duration::from_nanos(1));
        let mut fast = Bucket::new(limit(u64::MAX, u64::MAX), START);
        fast.charge(1 << 40, START);
        let later = START + Duration::from_secs(1 << 30);
        assert_eq!(fast.ready_at(1500, later), Some(later));
    }

    #[test]
    fn nothing_leaves_at_rate_zero_once_the_burst_is_used() {
        let mut bucket = Bucket::new(limit(0, 1500), START);
        assert_eq!(bucket.ready_at(1500, START), Some(START));
        bucket.charge(1500, START);
        assert_eq!(bucket.ready_at(1, START), None);
    }

    #[test]
    fn what_is_larger_than_the_burst_leaves_from_a_full_bucket_and_is_paid_later() {
        let mut bucket = Bucket::new(limit(8_000, 1000), START);
        assert_eq!(bucket.ready_at(1500, START), Some(START));
        bucket.charge(1500, START);
        let at = bucket.ready_at(1500, START).expect("some time");
        assert_eq!(
            at,
            START + Duration::from_millis(1500) + Duration::from_nanos(1)
        );
    }

    #[test]
    fn debts_end_at_a_bucketful() {
        let mut bucket = Bucket::new(limit(8_000, 1000), START);
        for _ in 0..100 {
            bucket.charge(60, START);
        }
        let at = bucket.ready_at(1000, START).expect("some time");
        assert_eq!(at, START + Duration::from_secs(2) + Duration::from_nanos(1));
    }

    #[test]
    fn a_lower_limit_holds_at_once() {
        let mut bucket = Bucket::new(limit(80_000_000, 100_000), START);
        bucket.change(limit(8_000, 1_500), START);
        assert_eq!(bucket.limit(), limit(8_000, 1_500));
        bucket.charge(1500, START);
        let at = bucket.ready_at(1000, START).expect("some time");
        assert_eq!(at, START + Duration::from_secs(1) + Duration::from_nanos(1));
    }
}
