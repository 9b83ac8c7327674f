//! Data that is sooner at the other end if it waits for a quicker path, whatever the scheduler.
//!
//! Of a short answer the quick path often carries the first window and has no room for the rest, although it will have some
//! in a moment. A slow path with room would carry the rest, and the answer would be as slow as that path. So nothing is given
//! to a path before whose first byte arrives the quicker ones have delivered all that waits: the question that ECF asks
//! (Lim and others 2017, section 3), here of any number of paths. It concerns all of the stream that is known; while its
//! writer waits for room there is more than that.

use manypath_tcp::time::Duration;

use super::PathView;
use super::guard::{carries, in_play};

/// What a path is known to carry may be so many times what it does after a loss, or beside another sender.
const CAUTION: u64 = 4;

/// What speaks for a path: how soon its first byte may be there.
fn soonest(path: &PathView) -> Duration {
    path.srtt.unwrap_or(path.delivery).min(path.delivery)
}

/// What speaks against it: how long a round trip may take. Where little is sent, single measurements tell little, and neither
/// does the rate.
fn longest(path: &PathView) -> Duration {
    path.srtt.unwrap_or(path.least).max(path.least)
}

/// The quicker of `paths` deliver `queued` bytes, and what they have in flight, sooner than `path` its first. Pure.
fn come_sooner(path: &PathView, paths: &[PathView], queued: u64, window: u64) -> bool {
    let arrives = soonest(path);
    let quicker = |other: &&PathView| in_play(other) && longest(other) < arrives;
    let (mut delivered, mut waiting) = (0_u64, queued);
    for other in paths.iter().filter(quicker) {
        // What leaves within this time is there in time.
        let span = arrives.excess_over(longest(other));
        delivered = delivered.saturating_add(carries(other, span, window));
        waiting = waiting.saturating_add(u64::from(other.inflight));
    }
    delivered > 0 && delivered >= waiting.saturating_mul(CAUTION)
}

/// Takes their room from those subflows that would deliver later than the quicker ones do with all of the `queued` bytes.
/// Pure.
pub(crate) fn leave_to_quicker(paths: &mut [PathView], queued: u64, window: u64) {
    for i in 0..paths.len() {
        let path = paths[i];
        if path.can_send > 0 && in_play(&path) && come_sooner(&path, paths, queued, window) {
            paths[i].can_send = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures;
    use super::*;

    fn path(subflow: u8, delivery_ms: u64, kilobytes_per_second: u64) -> PathView {
        PathView {
            capacity: kilobytes_per_second * 1_000,
            least: Duration::from_millis(delivery_ms),
            delivery: Duration::from_millis(delivery_ms),
            can_send: 1_400,
            ..fixtures::path(subflow, delivery_ms)
        }
    }

    fn left(mut paths: [PathView; 2], queued: u64) -> [u32; 2] {
        leave_to_quicker(&mut paths, queued, u64::MAX);
        paths.map(|path| path.can_send)
    }

    #[test]
    fn what_the_quick_path_has_delivered_by_then_waits_for_it() {
        let full = |path: PathView| PathView {
            can_send: 0,
            cwnd_room: 0,
            ..path
        };
        // In the 80 ms by which the second is later, the first one carries 80 KB, or with bad luck a quarter.
        let (quick, slow) = (full(path(0, 20, 1_000)), path(1, 100, 100));
        assert_eq!(left([quick, slow], 20_000), [0, 0]);
        assert_eq!(left([quick, slow], 20_001), [0, 1_400]);
        // What it has in flight comes first.
        let loaded = PathView {
            inflight: 30_000,
            ..quick
        };
        assert_eq!(left([loaded, slow], 10_000), [0, 1_400]);
    }

    #[test]
    fn a_path_that_is_nearly_as_quick_is_used() {
        let (quick, other) = (path(0, 20, 1_000), path(1, 22, 1_000));
        assert_eq!(left([quick, other], 500), [1_400, 0]);
        assert_eq!(left([quick, other], 1_400), [1_400, 1_400]);
    }

    #[test]
    fn one_late_answer_does_not_make_a_path_slow() {
        // What was sent before a path was cut came back after 700 ms; its round trips are of 100.
        let once_late = PathView {
            srtt: Some(Duration::from_millis(100)),
            ..path(0, 700, 1)
        };
        assert_eq!(left([once_late, path(1, 200, 1_000)], 14), [1_400, 1_400]);
    }

    #[test]
    fn nothing_waits_for_a_path_that_is_silent_or_unknown() {
        let (quick, slow) = (path(0, 20, 1_000), path(1, 100, 100));
        let stale = PathView {
            stale: true,
            ..quick
        };
        assert_eq!(left([stale, slow], 1_400), [1_400, 1_400]);
        let unknown = PathView {
            srtt: None,
            ..quick
        };
        assert_eq!(left([unknown, slow], 1_400), [1_400, 1_400]);
    }
}
