//! A cap on the window of a path with excessive buffers (NSDI 2012 section 4.2, mechanism 4).
//!
//! A queue that is as long as the path itself keeps the path busy through any reduction; what waits beyond that only makes
//! the round trip longer, and with it the memory that a Multipath TCP connection needs.

use crate::time::Duration;

/// Segments below which no window is capped: the first may be lost and three duplicate acknowledgements still come (RFC 5681
/// section 3.2).
const LEAST_SEGMENTS: u32 = 4;

/// The window, in bytes, that a path may keep whose smoothed round trip is `srtt` and whose round trip without queues is
/// `base`; nothing while `srtt` is below twice the base, where no cap holds. What is in the network shrinks to twice the
/// path's bandwidth-delay product. Pure.
pub fn cap(cwnd: u32, mss: u32, srtt: Duration, base: Duration) -> Option<u32> {
    let (now, most) = (srtt.as_nanos(), base.as_nanos().saturating_mul(2));
    if base.is_zero() || now < most {
        return None;
    }
    let scaled = u128::from(cwnd) * u128::from(most) / u128::from(now.max(1));
    let scaled = u32::try_from(scaled).unwrap_or(u32::MAX);
    Some(scaled.max(mss.saturating_mul(LEAST_SEGMENTS)).min(cwnd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_may_be_as_long_as_the_path() {
        // NSDI 2012 section 4.2: capped when the smoothed round trip is double the base.
        for (cwnd, srtt, base, expected) in [
            (100_000, 150, 150, None),
            (100_000, 299, 150, None),
            (100_000, 300, 150, Some(100_000)),
            (100_000, 600, 150, Some(50_000)),
            (600_000, 2_150, 150, Some(83_720)),
            (10_000, 60_000, 150, Some(4_000)),
            (3_000, 60_000, 150, Some(3_000)),
            (100_000, 10, 0, None),
        ] {
            let got = cap(
                cwnd,
                1_000,
                Duration::from_millis(srtt),
                Duration::from_millis(base),
            );
            assert_eq!(got, expected, "{cwnd} bytes, {srtt} ms over {base} ms");
        }
    }
}
