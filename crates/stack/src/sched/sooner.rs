//! Data that is sooner at the other end if it waits for a quicker path: a part of the guard, which the scheduler `guarded` alone has.
//!
//! Of a short answer the quick path often carries the first window and has no room for the rest, although it will have some
//! in a moment. A slow path with room would carry the rest, and the answer would be as slow as that path. So nothing is given
//! to a path before whose first byte arrives the quicker ones have delivered all that waits: the question that ECF asks
//! (Lim and others 2017, section 3), here of any number of paths. It concerns all of the stream that is known; while its
//! writer waits for room there is more than that.

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use super::guard::{expected_bytes, grows, is_active};
use super::view::{HeldBack, PathView};

/// What `bytes` of the window of `path` carry within `span` from when they are free again.
fn again(path: &PathView, bytes: u32, span: Duration, window: u64) -> u64 {
    let cwnd = match grows(path) {
        true => bytes.saturating_mul(2),
        false => bytes,
    };
    let mut part = *path;
    part.rates.sustained = None;
    // The burst of a limit lets a short answer pass.
    part.rates.limit = None;
    part.cwnd.bytes = cwnd;
    expected_bytes(&part, span, window)
}

/// Bytes beside those in flight that `path` surely has delivered within `span`: what its window has room for now, and what the
/// window carries when a round trip has made room again, part of which has passed for what is in flight; but no more than the
/// queue that this makes lets through, and no less than it does steadily. What was measured over a second says less, for
/// much of the time there was nothing to send.
fn surely_delivers(path: &PathView, span: Duration, window: u64, now: Instant) -> u64 {
    let round = longest(path);
    // A round trip passes until there is room again, and one until what leaves then is acknowledged.
    let after = span.excess_over(round.times(2));
    let passed = path.oldest.map_or(Duration::ZERO, |sent| now.since(sent));
    let earlier = (span + passed.min(round)).excess_over(round.times(2));
    let repeats = |bytes, span| again(path, bytes, span, window);
    let open = u64::from(path.peer_window).min(window);
    let open = open.saturating_sub(u64::from(path.inflight));
    let room = path.cwnd.room.min(u32::try_from(open).unwrap_or(u32::MAX));
    let later = repeats(path.inflight, earlier).saturating_add(repeats(room, after));
    let sent = u64::from(room).saturating_add(later);
    let Some(drain) = path.rates.drain else {
        return sent;
    };
    let queue = u64::from(path.inflight);
    let drained = drain.bytes_in(span).saturating_sub(queue);
    // A queue is acknowledged without a pause, and what leaves for that has as long a way as what leaves now.
    let rate = drain.min(Rate::per(
        u64::from(path.cwnd.bytes),
        path.expected_delivery,
    ));
    let steady = rate.bytes_in(span.excess_over(path.expected_delivery));
    sent.min(drained).max(steady)
}

/// What speaks for a path: how soon its first byte may be there. Behind a whole segment it waits for that one.
fn soonest(path: &PathView) -> Duration {
    let behind = path.inflight >= path.mss;
    match path.rtt.srtt.filter(|_| !behind) {
        Some(srtt) => srtt.min(path.expected_delivery),
        None => path.expected_delivery,
    }
}

/// What speaks against it: how long a round trip may take. Where little is sent, single measurements tell little, and neither
/// does the rate.
fn longest(path: &PathView) -> Duration {
    path.rtt
        .srtt
        .unwrap_or(path.base_delay)
        .max(path.base_delay)
}

/// The quicker of `paths` deliver `queued` bytes, and what they have in flight, sooner than `path` its first. Pure.
fn come_sooner(
    path: &PathView,
    paths: &[PathView],
    queued: u64,
    window: u64,
    now: Instant,
) -> bool {
    let arrives = soonest(path);
    let others = paths.iter().filter(|other| other.subflow != path.subflow);
    let quicker =
        |other: &&PathView| is_active(other) && soonest(other).max(longest(other)) < arrives;
    let mut delivered = 0_u64;
    for other in others.filter(quicker) {
        delivered = delivered.saturating_add(surely_delivers(other, arrives, window, now));
    }
    delivered > 0 && delivered >= queued
}

/// Holds back those subflows that would deliver later than the quicker ones do with all of the `queued` bytes.
/// Pure.
pub(crate) fn leave_to_quicker(paths: &mut [PathView], queued: u64, window: u64, now: Instant) {
    for i in 0..paths.len() {
        let path = paths[i];
        if path.room.is_open() && is_active(&path) && come_sooner(&path, paths, queued, window, now)
        {
            paths[i].room.hold_back(HeldBack::Quicker);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{full, path, rate, stale, unmeasured, with};
    use super::*;
    use crate::ids::SubflowId;

    const NOW: Instant = Instant::from_secs(1);

    fn left(mut paths: [PathView; 2], queued: u64) -> [u32; 2] {
        leave_to_quicker(&mut paths, queued, u64::MAX, NOW);
        paths.map(|path| path.room.bytes().min(1_400))
    }

    #[test]
    fn what_the_quick_path_has_delivered_by_then_waits_for_it() {
        // Its window of 14,000 bytes is in flight; when it is back, there are 60 ms in which what leaves is in time.
        let (quick, slow) = (full(path(0, 20)), path(1, 100));
        // With room it need not wait.
        let half = with(quick, |view| {
            view.cwnd.room = 7_000;
            view.inflight = 7_000;
        });
        // Its window doubles.
        let growing = with(quick, |view| view.cwnd.slow_start = true);
        // What its window lets go stands in a queue, of which 30,000 bytes go in 100 ms.
        let queued = with(quick, |view| {
            view.rates.drain = rate(300_000);
            view.expected_delivery = Duration::from_millis(47);
        });
        // Half of the round trip has passed for it.
        let half_back = with(quick, |view| view.oldest = Some(Instant::from_millis(990)));
        // It stands in a queue that is acknowledged without a pause. By round trips alone nothing more would be there in 100 ms.
        let steady = with(queued, |view| {
            view.rtt.srtt = Some(Duration::from_millis(60))
        });
        for (quick, most) in [
            (quick, 42_000),
            (half, 49_000),
            (growing, 196_000),
            (queued, 16_000),
            (half_back, 49_000),
            (steady, 15_787),
        ] {
            assert_eq!(left([quick, slow], most), [0, 0]);
            assert_eq!(left([quick, slow], most + 1), [0, 1_400]);
        }
    }

    #[test]
    fn a_path_that_is_nearly_as_quick_is_used() {
        let (quick, other) = (path(0, 20), path(1, 22));
        assert_eq!(left([quick, other], 14_001), [1_400, 1_400]);
        assert_eq!(left([full(quick), other], 1_400), [0, 1_400]);
    }

    #[test]
    fn behind_others_a_segment_is_as_late_as_the_queue() {
        let (quick, loaded) = (full(path(0, 20)), |inflight| {
            with(path(1, 30), |view| {
                view.inflight = inflight;
                view.expected_delivery = Duration::from_millis(100);
            })
        });
        assert_eq!(left([quick, loaded(1_399)], 14_000), [0, 1_400]);
        assert_eq!(left([quick, loaded(1_400)], 14_000), [0, 0]);
        // Two do not wait for each other, and nobody for itself.
        let queued = |inflight, delivery| {
            with(loaded(inflight), |view| {
                view.expected_delivery = Duration::from_millis(delivery)
            })
        };
        let other = with(queued(9_800, 99), |view| view.subflow = SubflowId(2));
        assert_eq!(left([queued(9_800, 100), other], 200), [0, 1_400]);
        let mut alone = [loaded(5_600)];
        leave_to_quicker(&mut alone, 1_400, u64::MAX, NOW);
        assert_eq!(alone, [loaded(5_600)]);
    }

    #[test]
    fn one_late_answer_does_not_make_a_path_slow() {
        // What was sent before a path was cut came back after 700 ms; its round trips are of 100.
        let once_late = with(path(0, 700), |view| {
            view.rtt.srtt = Some(Duration::from_millis(100))
        });
        assert_eq!(left([once_late, path(1, 200)], 14), [1_400, 1_400]);
    }

    #[test]
    fn nothing_waits_for_a_path_that_is_unresponsive_or_unknown() {
        let (quick, slow) = (path(0, 20), path(1, 100));
        assert_eq!(left([quick, slow], 1_400), [1_400, 0]);
        assert_eq!(left([stale(quick), slow], 1_400), [1_400, 1_400]);
        assert_eq!(left([unmeasured(quick), slow], 1_400), [1_400, 1_400]);
    }
}
