//! Auto-tuning of the send and receive buffers (NSDI 2012 section 4.2, mechanism 3): it aims at `2 * sum(rate) * longest RTT` at both ends,
//! between a small initial size and the configured one, and allows twice that, since rates double within a round trip of slow start.
//!
//! The receiver measures how fast payload arrives on all subflows together, whether or not the application can read it yet (dynamic
//! right-sizing counts what is read, which is bursty with several subflows), and takes RTTs from the echoes of its timestamps. The sender
//! knows the windows of its subflows. The right edge of the receive window must never move left.

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::api::ConnOptions;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::table::Subflows;

/// Initial window and buffer: room for the first round trips of several subflows, and enough for the rate to double for some rounds before
/// anything is measured.
pub(crate) const FIRST: u32 = 256 * 1024;

/// The shortest interval over which arrivals are counted: timestamps tick in milliseconds, and bursts are no rate.
pub(in crate::conn) const SHORTEST: Duration = Duration::from_millis(2);

/// The buffer that keeps all paths busy while one of them recovers a loss. Pure.
pub(crate) fn needed(rate: Rate, longest: Duration) -> u64 {
    rate.bytes_in(longest).saturating_mul(2)
}

/// The receive window after `arrived` bytes came in `interval`, where it was `now` and may be `most`. Slow start doubles the rate within a
/// round trip, so twice what is needed is allowed. It never shrinks. Pure.
pub(crate) fn grown(
    now: u32,
    arrived: u64,
    interval: Duration,
    longest: Duration,
    most: u32,
) -> u32 {
    let wanted = needed(Rate::per(arrived, interval), longest).saturating_mul(2);
    u32::try_from(wanted).unwrap_or(u32::MAX).min(most).max(now)
}

/// The receiver's arrival count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrivals {
    pub(in crate::conn) since: Instant,
    pub(in crate::conn) bytes: u64,
}

impl Arrivals {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            bytes: 0,
        }
    }
}

impl Subflows {
    /// RTTs of the subflows that carry data, as far as known.
    pub(in crate::conn) fn round_trips(&self) -> impl Iterator<Item = Duration> + '_ {
        let carrying = self.iter().filter(|sf| sf.carries_data());
        carrying.filter_map(|sf| sf.tcp.recv_rtt().max(sf.tcp.srtt()))
    }

    /// The send buffer that their windows need.
    pub(in crate::conn) fn send_buffer_needed(&self) -> u64 {
        let carrying = || self.iter().filter(|sf| sf.carries_data());
        let rate: u64 = carrying().map(Subflow::rate).sum();
        let longest = carrying().filter_map(|sf| sf.tcp.srtt()).max();
        let longest = longest.unwrap_or(Duration::ZERO);
        needed(Rate::from_bytes_per_sec(rate), longest)
    }
}

/// The initial receive window, which stays without auto-tuning.
pub(in crate::conn) fn first_window(opts: &ConnOptions) -> u32 {
    match opts.mechanisms.autotune {
        true => opts.recv_buffer.min(FIRST),
        false => opts.recv_buffer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_buffer_is_twice_what_all_paths_carry_in_the_longest_round_trip() {
        // NSDI 2012 section 4.2: WiFi of 8 Mbit/s and 3G of 2 Mbit/s with 150 ms need 375 kB.
        let rate = Rate::from_bits_per_sec(10_000_000);
        for (ms, bytes) in [(0, 0), (20, 50_000), (150, 375_000), (2_150, 5_375_000)] {
            assert_eq!(needed(rate, MS(ms)), bytes, "{ms} ms");
        }
    }

    #[test]
    fn the_window_grows_ahead_of_slow_start_and_never_shrinks() {
        for (now, arrived, interval, longest, most, expected) in [
            // 14 kB in a round trip of 20 ms: 28 kB are needed, 56 kB allowed.
            (10_000, 14_000, 20, 20, 1 << 20, 56_000),
            // The same with another path of 200 ms.
            (10_000, 14_000, 20, 200, 1 << 20, 560_000),
            (10_000, 14_000, 20, 200, 100_000, 100_000),
            (90_000, 14_000, 20, 20, 1 << 20, 90_000),
            (90_000, 0, 20, 20, 1 << 20, 90_000),
        ] {
            let size = grown(now, arrived, MS(interval), MS(longest), most);
            assert_eq!(size, expected, "{arrived} bytes in {interval} ms");
        }
    }
}
