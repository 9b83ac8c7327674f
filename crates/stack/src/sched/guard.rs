//! Data that would arrive too late, whatever the scheduler: a window that several paths share must not wait for one.
//!
//! A byte that leaves on a slow subflow holds the window's trailing edge until its acknowledgement is here. What all subflows
//! send meanwhile has to fit into the window; where it does not, they stand still, and the connection would be slower than
//! without the slow subflow (NSDI 2012 section 4.2 repairs such stalls, this keeps out of them; BLEST, Ferlin and others
//! 2016, has a measure for two subflows).
//!
//! So with a window `W`, and subflows that are known to carry `x`, no byte may need longer than `W / sum(x)`. Two questions
//! follow. Which subflows take part: from the quickest one on, each whose empty path is short enough that those before it do
//! not fill the window meanwhile. And how long a queue may be on each of them: as long as all of them together do not fill half
//! of it while a byte needs its way through; an eighth of the path's length is always allowed, and any queue on a path beside
//! which the others together carry less than an eighth. What counts is what the subflows are known to carry, not what they do
//! at present, which is little if they stand still.

use manypath_tcp::time::Duration;
use manypath_tcp::units::Rate;

use super::PathView;
use crate::ids::{SubflowId, SubflowSet};

/// Round trips of slow start that are looked ahead at most: by then any window is full.
const MOST_ROUNDS: u64 = 32;

/// A path may always have a queue of an eighth of its length, or it would not be used to the full.
const LEAST_QUEUE: (u64, u64) = (9, 8);

/// Without room to spare in the window, a path takes part from this fraction of the whole on; and others that together carry less
/// than this fraction of what a path does are no reason to keep its queue short.
const RISK: u64 = 8;

/// Segments that a path may have in flight of which nothing is known. Its first window is ten, which take seconds on some.
const TRIAL: u32 = 2;

/// Bytes a second that what nothing is known of is held to carry at least.
const LEAST_RATE: u64 = 2_000;

/// There is a longer queue on it than it needs.
fn is_queued(path: &PathView) -> bool {
    let (num, den) = LEAST_QUEUE;
    path.delivery > path.least.ratio(num, den)
}

/// Its window doubles each round trip, and no queue says that it has all it can carry: how much that is nobody knows yet.
pub(super) fn grows(path: &PathView) -> bool {
    path.slow_start && !is_queued(path)
}

/// Bytes that `path` can carry within `span` while the window lets at most `window` be under way. Pure.
#[inline]
pub(super) fn carries(path: &PathView, span: Duration, window: u64) -> u64 {
    let Some(round_trip) = path.srtt.map(Duration::as_nanos).filter(|ns| *ns > 0) else {
        return 0;
    };
    // The usual case: several times for each segment.
    if path.capacity > 0 && !grows(path) {
        return Rate::from_bytes_per_sec(path.capacity).bytes_in(span);
    }
    carries_by_window(path, span, window, round_trip)
}

/// The same, where the congestion window is all that is known of it, or may double.
fn carries_by_window(path: &PathView, span: Duration, window: u64, round_trip: u64) -> u64 {
    // A box may leave less of the window on one path than on the others.
    let window = window.min(u64::from(path.window));
    let mut flight = u64::from(path.cwnd).min(window);
    if !grows(path) {
        return Rate::per(flight, Duration::from_nanos(round_trip)).bytes_in(span);
    }
    let mut left = span.as_nanos();
    let mut sum = 0_u64;
    for _ in 0..MOST_ROUNDS {
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

/// New data may go there like anywhere else.
pub(super) fn in_play(path: &PathView) -> bool {
    path.established
        && !path.backup
        && !path.stale
        && path.srtt.is_some()
        && (path.can_send > 0 || path.cwnd_room < path.cwnd)
}

/// What those of `paths` that `counts` chooses carry within `span`.
fn together(
    paths: &[PathView],
    span: Duration,
    window: u64,
    counts: impl Fn(&PathView) -> bool,
) -> u64 {
    let chosen = paths.iter().filter(|path| counts(path));
    chosen.fold(0_u64, |sum, path| {
        sum.saturating_add(carries(path, span, window))
    })
}

/// `path` does not hold the quicker ones up: they do not fill the window before its data is there.
fn fits(path: &PathView, paths: &[PathView], window: u64) -> bool {
    let quicker = |other: &PathView| in_play(other) && other.least < path.least;
    together(paths, path.least, window, quicker) <= window
}

/// The subflows that take part: those that fit, without those that bring less than a narrow window risks for them. A loss on
/// any of them holds up all. With twice the window that their empty paths need there is room for that; where there is less,
/// each must carry its part, up to an eighth with none to spare. What a path brings that still grows, or that only a penalty
/// keeps from growing, says nothing about that: held back, it would never show it. `all_fit` says that they do. Pure.
fn members(paths: &[PathView], window: u64, all_fit: bool) -> SubflowSet {
    let (mut fitting, mut longest) = (SubflowSet::EMPTY, Duration::ZERO);
    for path in paths.iter().filter(|path| in_play(path)) {
        if all_fit || fits(path, paths, window) {
            fitting.insert(path.subflow);
            longest = longest.max(path.least);
        }
    }
    let brings = |path: &PathView| carries(path, longest, window);
    let (mut needed, mut most) = (0_u64, 0);
    for path in paths.iter().filter(|path| fitting.contains(path.subflow)) {
        let bytes = brings(path);
        needed = needed.saturating_add(bytes);
        most = most.max(bytes);
    }
    let least = (needed.saturating_mul(2).saturating_sub(window) / RISK).min(most);
    if least == 0 {
        return fitting;
    }
    let all = paths.iter().filter(|path| fitting.contains(path.subflow));
    let enough = all.filter(|path| path.unproven || grows(path) || brings(path) >= least);
    enough.map(|path| path.subflow).collect()
}

/// Nobody knows what `path` carries, and it has enough in flight to tell. To wait for that costs it a round trip of slow start,
/// which is little where the others carry more meanwhile than its first window is; and it saves nothing where they do not fill
/// half of the window while that first window is on its way, however slow the path is. Pure.
fn is_on_trial(path: &PathView, paths: &[PathView], window: u64) -> bool {
    let known = |other: &PathView| in_play(other) && other.capacity > 0;
    let first = u64::from(path.cwnd);
    let on_its_way = || Duration::from_micros(first.saturating_mul(1_000_000) / LEAST_RATE);
    path.capacity == 0
        && path.inflight >= path.mss.saturating_mul(TRIAL)
        && together(paths, path.least, window, known) >= first
        && together(paths, on_its_way(), window, known) > window / 2
}

/// What all paths are known to carry until the slowest one delivers fits into half of the window, so that none is held back: the
/// usual case, asked for each segment, and told in one pass and one division. Pure.
fn is_ample(paths: &[PathView], window: u64) -> bool {
    let (mut slowest, mut rates) = (Duration::ZERO, 0_u64);
    for path in paths.iter().filter(|path| in_play(path)) {
        if path.capacity == 0 || grows(path) {
            return false;
        }
        slowest = slowest.max(path.delivery).max(path.least);
        rates = rates.saturating_add(path.capacity);
    }
    Rate::from_bytes_per_sec(rates).bytes_in(slowest) <= window / 2
}

/// New data waits in the queue of `path` while the others fill the window: all of them carry more than half of it meanwhile. Where
/// the others together carry less than an eighth of what it does, that costs little, and a queue kept short costs more: the window
/// of that path cannot grow, and after a loss there is less of it than TCP would have. But no path carries more than a window
/// meanwhile: one that has become slow is known by what it carried before, and the longer a byte needs there now, the more
/// the others could have sent. Pure.
fn holds_up(
    path: &PathView,
    paths: &[PathView],
    window: u64,
    takes_part: impl Fn(&PathView) -> bool,
) -> bool {
    let other = |other: &PathView| takes_part(other) && other.subflow != path.subflow;
    let others = together(paths, path.delivery, window, other);
    let own = carries(path, path.delivery, window).min(window);
    others.saturating_add(own).saturating_mul(2) > window && others.saturating_mul(RISK) >= own
}

/// Those of `paths` with room that have enough in flight for what fits into the window. One without room has none to lose, and most
/// have none: what follows is asked for each segment. Pure.
fn held_back(paths: &[PathView], window: u64) -> SubflowSet {
    let mut late = SubflowSet::EMPTY;
    if is_ample(paths, window) {
        return late;
    }
    let in_play = || paths.iter().filter(|path| in_play(path));
    let asked = || in_play().filter(|path| path.can_send > 0);
    for path in asked().filter(|path| is_on_trial(path, paths, window)) {
        late.insert(path.subflow);
    }
    let slowest = in_play().map(|path| path.delivery.max(path.least)).max();
    let slowest = slowest.unwrap_or(Duration::ZERO);
    let all = together(paths, slowest, window, self::in_play);
    if all.saturating_mul(2) <= window {
        return late;
    }
    // What they carry until the slowest delivers is no less than what the quicker ones carry until any of them does.
    let members = members(paths, window, all <= window);
    let takes_part = |path: &PathView| members.contains(path.subflow);
    // What takes no whole segment at a time has its acknowledgements late.
    let soonest = || {
        let whole = in_play().filter(|path| takes_part(path) && path.window >= path.mss);
        let soonest = whole.min_by_key(|path| (path.delivery, path.subflow));
        soonest.map(|path| path.subflow)
    };
    for path in asked() {
        let may_wait = || is_queued(path) && Some(path.subflow) != soonest();
        if !takes_part(path) || may_wait() && holds_up(path, paths, window, takes_part) {
            late.insert(path.subflow);
        }
    }
    late
}

/// Takes their room from those subflows on which new data would hold up the others, when `window` bytes may be without
/// Data ACK at one time. Of those that take part, the one that delivers soonest keeps its room, unless it is being tried; who
/// is tried will answer. Pure.
pub(crate) fn hold_back(paths: &mut [PathView], window: u64) {
    let late = held_back(paths, window);
    for path in paths.iter_mut().filter(|path| late.contains(path.subflow)) {
        path.can_send = 0;
    }
}

/// Takes their room from those subflows that have a queue and need longer with it than the time-out of `silent`: what that one
/// carried is not rescued by waiting there. Pure.
pub(crate) fn shun_queues(paths: &mut [PathView], silent: SubflowId) {
    let timeout = paths.iter().find(|path| path.subflow == silent);
    let Some(timeout) = timeout.map(|path| path.rto) else {
        return;
    };
    let (num, den) = LEAST_QUEUE;
    for path in paths {
        if path.delivery > path.least.ratio(num, den).max(timeout) {
            path.can_send = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::super::fixtures;
    use super::*;

    fn path(subflow: u8, srtt_ms: u64, cwnd: u32) -> PathView {
        PathView {
            cwnd,
            cwnd_room: cwnd / 2,
            inflight: cwnd / 2,
            can_send: 1_400,
            ..fixtures::path(subflow, srtt_ms)
        }
    }

    #[test]
    fn what_a_path_carries_in_a_span() {
        let growing = PathView {
            slow_start: true,
            ..path(0, 10, 10_000)
        };
        // Two segments are all that something on the way lets it have under way.
        let less = |path| PathView {
            window: 3_000,
            ..path
        };
        let shrunk = less(growing);
        // At present it sends half of what it is known to carry.
        let known = PathView {
            capacity: 2_000_000,
            ..path(0, 10, 10_000)
        };
        for (view, ms, window, bytes) in [
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
            assert_eq!(carries(&view, span, window), bytes, "{ms} ms");
        }
    }

    #[test]
    fn an_ample_window_is_recognised_at_once() {
        let known = |subflow, ms, capacity| PathView {
            capacity,
            ..path(subflow, ms, 10_000)
        };
        let growing = PathView {
            slow_start: true,
            ..known(1, 10, 1_000_000)
        };
        let resting = PathView {
            backup: true,
            ..known(1, 90, 9_000_000)
        };
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
        let backup = |view| PathView {
            backup: true,
            ..view
        };
        let slow = path(1, 150, 40_000);
        let late = PathView {
            delivery: Duration::from_millis(300),
            ..slow
        };
        let stale = PathView {
            stale: true,
            ..wifi
        };
        let idle = PathView {
            can_send: 0,
            cwnd_room: 20_000,
            ..wifi
        };
        let unmeasured = PathView { srtt: None, ..slow };
        // 160 kbit/s.
        let tiny = PathView {
            capacity: 20_000,
            ..path(1, 30, 3_000)
        };
        let unproven = PathView {
            unproven: true,
            ..tiny
        };
        let most = PathView {
            capacity: 5_000_000,
            delivery: Duration::from_millis(200),
            ..path(1, 115, 600_000)
        };
        let faded = PathView {
            delivery: Duration::from_secs(2),
            ..most
        };
        let beside = |capacity| PathView {
            capacity,
            ..path(0, 8, 20_000)
        };
        let second = |capacity| PathView {
            subflow: SubflowId(2),
            ..beside(capacity)
        };
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
                alloc::vec![
                    PathView {
                        window: 1_000,
                        ..wifi
                    },
                    late
                ],
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
                .filter(|view| view.can_send > 0)
                .map(|view| view.subflow.0)
                .collect();
            assert_eq!(left, kept, "{name}");
        }
    }

    #[test]
    fn a_path_that_still_grows_is_not_held_back_for_a_small_window() {
        // 100 Mbit/s carry 1.25 MB in 100 ms, so 2 MB are less than twice what both need: each has to carry its part.
        let near = PathView {
            capacity: 12_500_000,
            ..path(0, 1, 600_000)
        };
        let first_window = PathView {
            inflight: 1_400,
            ..path(1, 100, 14_000)
        };
        let growing = PathView {
            slow_start: true,
            ..first_window
        };
        let queued = PathView {
            delivery: Duration::from_millis(120),
            ..growing
        };
        let grown = PathView {
            capacity: 12_500_000,
            ..first_window
        };
        for (name, far, window, kept) in [
            ("grown", grown, 2_000_000, true),
            ("growing", growing, 2_000_000, true),
            ("grows no more", first_window, 2_000_000, false),
            ("has a queue", queued, 2_000_000, false),
            ("too far away", growing, 1_240_000, false),
        ] {
            let mut views = [near, far];
            hold_back(&mut views, window);
            assert_eq!(views[1].can_send > 0, kept, "{name}");
        }
    }

    #[test]
    fn an_unknown_path_is_tried_with_two_segments() {
        let known = PathView {
            capacity: 1_000_000,
            ..path(0, 20, 20_000)
        };
        let unknown = |inflight| PathView {
            inflight,
            ..path(1, 14, 14_000)
        };
        let slow = PathView {
            capacity: 900_000,
            ..known
        };
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
            assert_eq!(views[1].can_send > 0, kept, "{inflight} {window}");
            assert!(views[0].can_send > 0);
        }
        let mut alone = [unknown(9_000)];
        hold_back(&mut alone, 100_000);
        assert!(alone[0].can_send > 0);
    }

    #[test]
    fn nothing_is_rescued_into_a_queue() {
        let silent = PathView {
            rto: Duration::from_millis(500),
            stale: true,
            ..path(0, 20, 20_000)
        };
        for (least, delivery, kept) in [
            (100, 112, true),
            (100, 500, true),
            (100, 501, false),
            (900, 1_012, true),
            (900, 1_013, false),
        ] {
            let other = PathView {
                least: Duration::from_millis(least),
                delivery: Duration::from_millis(delivery),
                ..path(1, 100, 20_000)
            };
            let mut views = [silent, other];
            shun_queues(&mut views, SubflowId(0));
            assert_eq!(views[1].can_send > 0, kept, "{least} {delivery}");
        }
    }

    #[test]
    fn somebody_may_always_send() {
        let crowd: Vec<PathView> = (0..8)
            .map(|n| PathView {
                slow_start: n % 2 == 0,
                delivery: Duration::from_millis(40 * u64::from(n) + 20),
                ..path(n, 10 + 30 * u64::from(n), 1 << 20)
            })
            .collect();
        for window in [0, 1_000, 100_000, 10_000_000] {
            let mut views = crowd.clone();
            hold_back(&mut views, window);
            assert!(views.iter().any(|view| view.can_send > 0), "{window}");
        }
    }
}
