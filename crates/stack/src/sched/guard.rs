//! The guard: keeps new data off subflows on which it would arrive too late for a receive window that all subflows share.
//!
//! A byte that leaves on a slow subflow holds the trailing edge of the connection's window until its Data ACK is here. What all
//! subflows send meanwhile has to fit into the window; where it does not, they stand still, and the connection is slower than
//! TCP on the best path. NSDI 2012 section 4.2 repairs such stalls, this avoids them (BLEST, Ferlin and others 2016, has a measure
//! for two subflows). Decision 9 of `docs/decisions` has the measurements that are named here by network.
//!
//! # The inequality
//!
//! With a window of `W` bytes, and `C_q(t)` the bytes that subflow `q` is known to carry in a time `t`
//! ([`expected_bytes`]), new data may leave on subflow `p` if nothing stalls before it is delivered:
//!
//! ```text
//! admission     sum of C_q(b_p) over all q with b_q < b_p          <=  W        (head-of-line test)
//! worth         C_p(b)  >=  (2 * sum of C_q(b) - W) / 8                         (where W is scarce)
//! queue limit   2 * (sum of C_q(d_p) over the others + C_p(d_p))   <=  W
//! ```
//!
//! Here `b_p` is the delay of the empty path, `b` the longest one of those admitted, and `d_p` the expected delivery of a byte sent now,
//! queue included. Admission decides who takes part, the quickest first: [`admitted`]. The queue limit decides whether one that
//! takes part may have a queue just now: [`exceeds_queue_limit`]; it does not bind the one that delivers soonest, nor a path without
//! a queue. [`hold_back`] applies both.
//!
//! # Inputs
//!
//! | input | of | from |
//! |---|---|---|
//! | `W` | the connection | its send window: bytes that may be without Data ACK at one time |
//! | `b_p`: [`base_delay`](PathView::base_delay) | path | the smallest recent round trip, and the time of a segment |
//! | `d_p`: [`expected_delivery`](PathView::expected_delivery) | path | the last round trip, what is in flight, the highest rate |
//! | `C_p`: [`sustained`](super::RatesView::sustained) | path | what it carried for a second, not what it does at present: a path that stands still would stand still for good |
//! | `C_p`, at most: [`limit`](super::RatesView::limit) | path | what an operator lets it carry: the window of a path that is limited is never filled, and says nothing |
//! | `C_p` in slow start: [`cwnd`](PathView::cwnd) | path | the window, doubled each round trip |
//! | [`peer_window`](PathView::peer_window) | path | what a middlebox leaves of the window there |
//! | [`unproven`](super::CwndView::unproven) | path | nothing has shown yet that it carries no more |
//!
//! # Constants
//!
//! | constant | value | what it buys |
//! |---|---|---|
//! | [`QUEUE_SHARE`] of the window | 1/2 | the other half is for what the sums do not know: a loss, a delayed Data ACK. A share of 1 stalls at the first of them |
//! | [`FREE_QUEUE`] beyond the empty path | 1/8 | a path without any queue idles whenever its sender is late; more of it is window taken from the others |
//! | [`RISK`] share of the whole | 1/8 | a loss on any path holds up all: one that brings less than this where the window is scarce costs more than it brings. And a queue for which others wait that bring less than this is left alone (network 1882: 0.90 of TCP on the best path; 1.09) |
//! | [`FIRST_SEGMENTS`] of an unknown path | 2 | its rate is known after one round trip, at the price of one round trip of slow start; its whole first window takes seconds on some |
//! | [`FIRST_RATE`] of an unknown path | 2 kB/s | no price is paid where even such a path could not hold up the others (network 1280: 0.931; 0.963) |
//! | [`DOUBLINGS`] | 32 | bounds the work; any window is full by then |

use core::cell::OnceCell;

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;

use super::view::{HeldBack, PathView, Tier};
use crate::ids::{SubflowId, SubflowSet};

/// Round trips of slow start that are looked ahead at most: a window of one byte has become larger than any by then.
const DOUBLINGS: u64 = 32;

/// The subflows together may fill one part in so many of the window while a byte is in a queue; and there is room to spare in a window
/// of so many times what the empty paths need.
const QUEUE_SHARE: u64 = 2;

/// The expected delivery up to which a path counts as one without a queue, over that of the empty path.
const FREE_QUEUE: (u64, u64) = (9, 8);

/// One part in so many of the whole is worth the risk of a loss, and is worth waiting for.
const RISK: u64 = 8;

/// Segments that a path of unknown rate may have in flight.
const FIRST_SEGMENTS: u32 = 2;

/// What a path of unknown rate carries at least, as far as the others are concerned.
const FIRST_RATE: Rate = Rate::from_bytes_per_sec(2_000);

/// Its queue is longer than a path needs to be used to the full.
fn is_queued(path: &PathView) -> bool {
    let (num, den) = FREE_QUEUE;
    path.expected_delivery > path.base_delay.ratio(num, den)
}

/// Its window doubles each round trip, and no queue shows that this is all it carries: how much that is is not known yet.
pub(super) fn grows(path: &PathView) -> bool {
    path.cwnd.slow_start && !is_queued(path)
}

/// Bytes that `path` is expected to carry within `span` while the window lets at most `window` be in flight. Pure.
#[inline]
pub(super) fn expected_bytes(path: &PathView, span: Duration, window: u64) -> u64 {
    let srtt = path.rtt.srtt.map(Duration::as_nanos);
    let Some(round_trip) = srtt.filter(|ns| *ns > 0) else {
        return 0;
    };
    // The usual case: several times for each segment.
    let bytes = match path.rates.sustained {
        Some(rate) if !grows(path) => rate.bytes_in(span),
        _ => bytes_by_window(path, span, window, round_trip),
    };
    match path.rates.limit {
        Some(limit) => bytes.min(limit.bytes_in(span)),
        None => bytes,
    }
}

/// The same, where the congestion window is all that is known of it, or may double.
fn bytes_by_window(path: &PathView, span: Duration, window: u64, round_trip: u64) -> u64 {
    // A middlebox may leave less of the window on one path than on the others.
    let window = window.min(u64::from(path.peer_window));
    let mut flight = u64::from(path.cwnd.bytes).min(window);
    if !grows(path) {
        return Rate::per(flight, Duration::from_nanos(round_trip)).bytes_in(span);
    }
    let mut left = span.as_nanos();
    let mut sum = 0_u64;
    for _ in 0..DOUBLINGS {
        if left < round_trip || flight == window {
            break;
        }
        sum = sum.saturating_add(flight);
        flight = flight.saturating_mul(2).min(window);
        left -= round_trip;
    }
    let rest = u128::from(flight) * u128::from(left) / u128::from(round_trip);
    sum.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
}

/// New data may go there like anywhere else, now or when its window has room.
pub(super) fn is_active(path: &PathView) -> bool {
    path.tier == Some(Tier::Regular)
        && path.rtt.srtt.is_some()
        && (path.room.is_open() || path.cwnd.room < path.cwnd.bytes)
}

/// What those of `paths` that `counts` chooses are expected to carry within `span`.
fn expected_sum(
    paths: &[PathView],
    span: Duration,
    window: u64,
    counts: impl Fn(&PathView) -> bool,
) -> u64 {
    let chosen = paths.iter().filter(|path| counts(path));
    chosen.fold(0_u64, |sum, path| {
        sum.saturating_add(expected_bytes(path, span, window))
    })
}

/// The head-of-line test: the quicker subflows do not fill the window before data on `path` is delivered.
fn passes_head_of_line_test(path: &PathView, paths: &[PathView], window: u64) -> bool {
    let quicker = |other: &PathView| is_active(other) && other.base_delay < path.base_delay;
    expected_sum(paths, path.base_delay, window, quicker) <= window
}

/// The subflows that take part: those that pass the head-of-line test, without those that bring less than a narrow window risks
/// for them. A loss on any of them holds up all. With twice the window that their empty paths need there is room for that;
/// where there is less, each must carry its part, up to an eighth with none to spare. What a path brings that still grows, or
/// that only a penalty keeps from growing, says nothing about that: held back, it would never show it. `all_pass`: the test need
/// not be made. Pure.
fn admitted(paths: &[PathView], window: u64, all_pass: bool) -> SubflowSet {
    let (mut passing, mut longest) = (SubflowSet::EMPTY, Duration::ZERO);
    for path in paths.iter().filter(|path| is_active(path)) {
        if all_pass || passes_head_of_line_test(path, paths, window) {
            passing.insert(path.subflow);
            longest = longest.max(path.base_delay);
        }
    }
    let brings = |path: &PathView| expected_bytes(path, longest, window);
    let (mut needed, mut most) = (0_u64, 0);
    for path in paths.iter().filter(|path| passing.contains(path.subflow)) {
        let bytes = brings(path);
        needed = needed.saturating_add(bytes);
        most = most.max(bytes);
    }
    let scarce = needed.saturating_mul(QUEUE_SHARE).saturating_sub(window);
    let least = (scarce / RISK).min(most);
    if least == 0 {
        return passing;
    }
    let all = paths.iter().filter(|path| passing.contains(path.subflow));
    let enough = all.filter(|path| path.cwnd.unproven || grows(path) || brings(path) >= least);
    enough.map(|path| path.subflow).collect()
}

/// What `path` carries is not known, and it has enough in flight to measure it. To wait for that costs it a round trip of slow
/// start, which is little where the others carry more meanwhile than its first window is; and it saves nothing where they do not
/// fill half of the window while that first window is on its way, however slow the path is. Pure.
fn awaits_first_rate(path: &PathView, paths: &[PathView], window: u64) -> bool {
    let known = |other: &PathView| is_active(other) && other.rates.sustained.is_some();
    let first = u64::from(path.cwnd.bytes);
    let first_window = || first_window_time(first);
    path.rates.sustained.is_none()
        && path.inflight >= path.mss.saturating_mul(FIRST_SEGMENTS)
        && expected_sum(paths, path.base_delay, window, known) >= first
        && expected_sum(paths, first_window(), window, known) > window / QUEUE_SHARE
}

/// How long a first window of `bytes` takes on the slowest path.
fn first_window_time(bytes: u64) -> Duration {
    let rate = FIRST_RATE.as_bytes_per_sec();
    Duration::from_micros(bytes.saturating_mul(1_000_000) / rate)
}

/// What all paths are known to carry until the slowest one delivers fits into half of the window, so that none is held back: the
/// usual case, asked for each segment, and answered in one pass and one division. Pure.
fn is_ample(paths: &[PathView], window: u64) -> bool {
    let (mut slowest, mut rates) = (Duration::ZERO, 0_u64);
    for path in paths.iter().filter(|path| is_active(path)) {
        let Some(rate) = path.rates.sustained.filter(|_| !grows(path)) else {
            return false;
        };
        slowest = slowest.max(path.expected_delivery).max(path.base_delay);
        rates = rates.saturating_add(rate.as_bytes_per_sec());
    }
    Rate::from_bytes_per_sec(rates).bytes_in(slowest) <= window / QUEUE_SHARE
}

/// New data would wait in the queue of `path` while the others fill the window: all of them carry more than half of it meanwhile.
/// Where the others together carry less than an eighth of what it does, that costs little, and a queue kept short costs more: the
/// window of that path cannot grow, and after a loss there is less of it than TCP would have. But no path carries more than a
/// window meanwhile: one that has become slow is known by what it carried before, and the longer a byte needs there now, the more
/// the others could have sent. Pure.
fn exceeds_queue_limit(
    path: &PathView,
    paths: &[PathView],
    window: u64,
    takes_part: impl Fn(&PathView) -> bool,
) -> bool {
    let other = |other: &PathView| takes_part(other) && other.subflow != path.subflow;
    let others = expected_sum(paths, path.expected_delivery, window, other);
    let own = expected_bytes(path, path.expected_delivery, window).min(window);
    others.saturating_add(own).saturating_mul(QUEUE_SHARE) > window
        && others.saturating_mul(RISK) >= own
}

/// Those of `paths` with room that have enough in flight for what fits into the window. One without room has none to lose, and most
/// have none: what follows is asked for each segment. Pure.
fn held_back(paths: &[PathView], window: u64) -> SubflowSet {
    let mut late = SubflowSet::EMPTY;
    if is_ample(paths, window) {
        return late;
    }
    let active = || paths.iter().filter(|path| is_active(path));
    let asked = || active().filter(|path| path.room.is_open());
    for path in asked().filter(|path| awaits_first_rate(path, paths, window)) {
        late.insert(path.subflow);
    }
    let slowest = active()
        .map(|path| path.expected_delivery.max(path.base_delay))
        .max();
    let slowest = slowest.unwrap_or(Duration::ZERO);
    let all = expected_sum(paths, slowest, window, is_active);
    if all.saturating_mul(QUEUE_SHARE) <= window {
        return late;
    }
    // What all carry until the slowest delivers is no less than what the quicker ones carry until any of them does.
    let admitted = admitted(paths, window, all <= window);
    let takes_part = |path: &PathView| admitted.contains(path.subflow);
    // What takes no whole segment at a time has its acknowledgements delayed.
    let soonest = OnceCell::new();
    let is_soonest = |path: &PathView| {
        let soonest = soonest.get_or_init(|| {
            let whole = active().filter(|path| takes_part(path) && path.peer_window >= path.mss);
            let soonest = whole.min_by_key(|path| (path.expected_delivery, path.subflow));
            soonest.map(|path| path.subflow)
        });
        *soonest == Some(path.subflow)
    };
    for path in asked() {
        let may_wait = || is_queued(path) && !is_soonest(path);
        if !takes_part(path) || may_wait() && exceeds_queue_limit(path, paths, window, takes_part) {
            late.insert(path.subflow);
        }
    }
    late
}

/// Holds back those subflows on which new data would hold up the others, when `window` bytes may be without Data ACK at one time.
/// Of those that take part, the one that delivers soonest keeps its room, unless its first rate is awaited. Pure.
pub(crate) fn hold_back(paths: &mut [PathView], window: u64) {
    let late = held_back(paths, window);
    for path in paths.iter_mut().filter(|path| late.contains(path.subflow)) {
        path.room.hold_back(HeldBack::Window);
    }
}

/// Holds back those subflows that have a queue and need longer with it than the timeout of `stale`: what that one carried is not
/// recovered by waiting there. Pure.
pub(crate) fn shun_queues(paths: &mut [PathView], stale: SubflowId) {
    let timeout = paths.iter().find(|path| path.subflow == stale);
    let Some(timeout) = timeout.map(|path| path.rtt.rto) else {
        return;
    };
    let (num, den) = FREE_QUEUE;
    for path in paths {
        let acceptable = path.base_delay.ratio(num, den).max(timeout);
        if path.expected_delivery > acceptable {
            path.room.hold_back(HeldBack::Queue);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::Room;
    use super::super::fixtures::{self, backup, rate, stale, unmeasured, with};
    use super::*;

    fn path(subflow: u8, srtt_ms: u64, cwnd: u32) -> PathView {
        with(fixtures::path(subflow, srtt_ms), |view| {
            view.cwnd.bytes = cwnd;
            view.cwnd.room = cwnd / 2;
            view.inflight = cwnd / 2;
            view.room = Room::of(1_400);
        })
    }

    #[test]
    fn what_a_path_carries_in_a_span() {
        let growing = with(path(0, 10, 10_000), |view| view.cwnd.slow_start = true);
        // Two segments are all that something on the way lets it have under way.
        let less = |path| with(path, |view| view.peer_window = 3_000);
        let shrunk = less(growing);
        // At present it sends half of what it is known to carry.
        let known = with(path(0, 10, 10_000), |view| {
            view.rates.sustained = rate(2_000_000)
        });
        let limited = with(growing, |view| view.rates.limit = rate(500_000));
        for (view, ms, window, bytes) in [
            (limited, 30, 1 << 20, 15_000),
            (path(0, 10, 10_000), 10, 1 << 20, 10_000),
            (path(0, 10, 10_000), 35, 1 << 20, 35_000),
            (known, 35, 1 << 20, 70_000),
            (growing, 10, 1 << 20, 10_000),
            (growing, 30, 1 << 20, 70_000),
            (growing, 35, 1 << 20, 110_000),
            (growing, 40, 20_000, 70_000),
            (shrunk, 35, 1 << 20, 10_500),
            (less(path(0, 10, 10_000)), 35, 1 << 20, 10_500),
            (path(0, 0, 10_000), 10, 1 << 20, 0),
        ] {
            let span = Duration::from_millis(ms);
            assert_eq!(expected_bytes(&view, span, window), bytes, "{ms} ms");
        }
    }

    #[test]
    fn an_ample_window_is_recognised_at_once() {
        let known = |subflow, ms, capacity| {
            with(path(subflow, ms, 10_000), |view| {
                view.rates.sustained = rate(capacity)
            })
        };
        let growing = with(known(1, 10, 1_000_000), |view| view.cwnd.slow_start = true);
        let resting = backup(known(1, 90, 9_000_000));
        let quick = known(0, 10, 1_000_000);
        for (paths, window, ample) in [
            // 50 kB in 40 ms.
            ([quick, known(1, 40, 250_000)], 100_000, true),
            ([quick, known(1, 40, 250_000)], 99_999, false),
            ([quick, known(1, 40, 0)], 1 << 30, false),
            ([quick, growing], 1 << 30, false),
            ([quick, resting], 20_000, true),
        ] {
            assert_eq!(is_ample(&paths, window), ample, "{window}");
            assert!(!ample || held_back(&paths, window).is_empty());
        }
    }

    #[test]
    fn a_path_is_held_back_where_the_others_would_stand_still() {
        // WiFi of 8 Mbit/s and 20 ms sends 20 kB in a round trip, so 150 kB in one of a 3G path of 150 ms.
        let wifi = path(0, 20, 20_000);
        let slow = path(1, 150, 40_000);
        let late = with(slow, |view| {
            view.expected_delivery = Duration::from_millis(300)
        });
        let stale = stale(wifi);
        let idle = with(wifi, |view| {
            view.room = Room::of(0);
            view.cwnd.room = 20_000;
        });
        let unmeasured = unmeasured(slow);
        // 160 kbit/s.
        let tiny = with(path(1, 30, 3_000), |view| {
            view.rates.sustained = rate(20_000)
        });
        let unproven = with(tiny, |view| view.cwnd.unproven = true);
        let most = with(path(1, 115, 600_000), |view| {
            view.rates.sustained = rate(5_000_000);
            view.expected_delivery = Duration::from_millis(200);
        });
        let faded = with(most, |view| view.expected_delivery = Duration::from_secs(2));
        let beside = |capacity| {
            with(path(0, 8, 20_000), |view| {
                view.rates.sustained = rate(capacity)
            })
        };
        let second = |capacity| with(beside(capacity), |view| view.subflow = SubflowId(2));
        for (name, paths, window, kept) in [
            ("alone", alloc::vec![slow], 10_000, alloc::vec![1]),
            (
                "a window for all",
                alloc::vec![wifi, slow],
                150_000,
                alloc::vec![0, 1],
            ),
            (
                "too small a window",
                alloc::vec![wifi, slow],
                149_999,
                alloc::vec![0],
            ),
            (
                "half of the window for the queue",
                alloc::vec![wifi, late],
                760_000,
                alloc::vec![0, 1],
            ),
            (
                "too small a window for it",
                alloc::vec![wifi, late],
                759_000,
                alloc::vec![0],
            ),
            // Something leaves it less than a segment of the window.
            (
                "no whole segment fits where it is sooner",
                alloc::vec![with(wifi, |view| view.peer_window = 1_000), late],
                10_000,
                alloc::vec![0, 1],
            ),
            // In 200 ms it carries 1 MB; an eighth of that is 125,000.
            (
                "a queue for which little waits",
                alloc::vec![beside(624_000), most],
                1_400_000,
                alloc::vec![0, 1],
            ),
            (
                "one for which others wait",
                alloc::vec![beside(625_000), most],
                1_400_000,
                alloc::vec![0],
            ),
            (
                "two that carry as much together",
                alloc::vec![beside(313_000), most, second(313_000)],
                1_400_000,
                alloc::vec![0, 2],
            ),
            // It is known for 10 MB in two seconds, and could have no more than the window under way.
            (
                "a path that became slow",
                alloc::vec![beside(100_000), faded],
                1_400_000,
                alloc::vec![0],
            ),
            // Both carry 30,600 bytes in 30 ms, of which 600 are the tiny one's.
            (
                "too little for the risk",
                alloc::vec![wifi, tiny],
                56_300,
                alloc::vec![0],
            ),
            (
                "nobody knows whether it is all it can",
                alloc::vec![wifi, unproven],
                56_300,
                alloc::vec![0, 1],
            ),
            (
                "a window that makes up for it",
                alloc::vec![wifi, tiny],
                56_400,
                alloc::vec![0, 1],
            ),
            (
                "the faster one is stale",
                alloc::vec![stale, slow],
                10_000,
                alloc::vec![0, 1],
            ),
            (
                "the faster one cannot send",
                alloc::vec![idle, slow],
                10_000,
                alloc::vec![1],
            ),
            (
                "the faster one rests",
                alloc::vec![backup(wifi), slow],
                10_000,
                alloc::vec![0, 1],
            ),
            (
                "not measured yet",
                alloc::vec![wifi, unmeasured],
                10_000,
                alloc::vec![0, 1],
            ),
            (
                "equals",
                alloc::vec![path(0, 20, 90_000), path(1, 20, 90_000)],
                50_000,
                alloc::vec![0, 1],
            ),
        ] {
            let mut views = paths.clone();
            hold_back(&mut views, window);
            let left: Vec<u8> = views
                .iter()
                .filter(|view| view.room.is_open())
                .map(|view| view.subflow.0)
                .collect();
            assert_eq!(left, kept, "{name}");
        }
    }

    #[test]
    fn a_path_that_still_grows_is_not_held_back_for_a_small_window() {
        // 100 Mbit/s carry 1.25 MB in 100 ms, so 2 MB are less than twice what both need: each has to carry its part.
        let near = with(path(0, 1, 600_000), |view| {
            view.rates.sustained = rate(12_500_000)
        });
        let first_window = with(path(1, 100, 14_000), |view| view.inflight = 1_400);
        let growing = with(first_window, |view| view.cwnd.slow_start = true);
        let queued = with(growing, |view| {
            view.expected_delivery = Duration::from_millis(120)
        });
        let grown = with(first_window, |view| view.rates.sustained = rate(12_500_000));
        for (name, far, window, kept) in [
            ("grown", grown, 2_000_000, true),
            ("growing", growing, 2_000_000, true),
            ("grows no more", first_window, 2_000_000, false),
            ("has a queue", queued, 2_000_000, false),
            ("too far away", growing, 1_240_000, false),
        ] {
            let mut views = [near, far];
            hold_back(&mut views, window);
            assert_eq!(views[1].room.is_open(), kept, "{name}");
        }
    }

    #[test]
    fn an_unknown_path_is_tried_with_two_segments() {
        let known = with(path(0, 20, 20_000), |view| {
            view.rates.sustained = rate(1_000_000)
        });
        let unknown = |inflight| with(path(1, 14, 14_000), |view| view.inflight = inflight);
        let slow = with(known, |view| view.rates.sustained = rate(900_000));
        // Carrying 900,000 it brings less than the first window while that is tried. And at the least rate a first window of 14,000
        // takes seven seconds.
        for (known, inflight, window, kept) in [
            (known, 1_400, 100_000, true),
            (known, 2_800, 100_000, false),
            (slow, 2_800, 100_000, true),
            (known, 2_800, 13_999_000, false),
            (known, 2_800, 14_000_000, true),
        ] {
            let mut views = [known, unknown(inflight)];
            hold_back(&mut views, window);
            assert_eq!(views[1].room.is_open(), kept, "{inflight} {window}");
            assert!(views[0].room.is_open());
        }
        let mut alone = [unknown(9_000)];
        hold_back(&mut alone, 100_000);
        assert!(alone[0].room.is_open());
    }

    #[test]
    fn nothing_is_resent_into_a_long_queue() {
        let silent = with(stale(path(0, 20, 20_000)), |view| {
            view.rtt.rto = Duration::from_millis(500)
        });
        for (least, delivery, kept) in [
            (100, 112, true),
            (100, 500, true),
            (100, 501, false),
            (900, 1_012, true),
            (900, 1_013, false),
        ] {
            let other = with(path(1, 100, 20_000), |view| {
                view.base_delay = Duration::from_millis(least);
                view.expected_delivery = Duration::from_millis(delivery);
            });
            let mut views = [silent, other];
            shun_queues(&mut views, SubflowId(0));
            assert_eq!(views[1].room.is_open(), kept, "{least} {delivery}");
        }
    }

    #[test]
    fn one_path_keeps_its_room() {
        let crowd: Vec<PathView> = (0..8)
            .map(|n| {
                with(path(n, 10 + 30 * u64::from(n), 1 << 20), |view| {
                    view.cwnd.slow_start = n % 2 == 0;
                    view.expected_delivery = Duration::from_millis(40 * u64::from(n) + 20);
                })
            })
            .collect();
        for window in [0, 1_000, 100_000, 10_000_000] {
            let mut views = crowd.clone();
            hold_back(&mut views, window);
            assert!(views.iter().any(|view| view.room.is_open()), "{window}");
        }
    }
}
