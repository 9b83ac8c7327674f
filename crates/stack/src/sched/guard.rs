//! Data that would arrive too late, whatever the scheduler: a window that several paths share must not wait for one.
//!
//! A byte that leaves on a slow subflow holds the window's trailing edge until its acknowledgement is here. What the faster
//! subflows send meanwhile has to fit into the window; where it does not, they would stand still, and the connection would
//! be slower than without the slow subflow (NSDI 2012 section 4.2 repairs such stalls, this keeps out of them; the measure
//! is that of BLEST, Ferlin and others 2016, with the subflow's own delivery rate in place of an assumed one).

use manypath_tcp::time::Duration;

use super::PathView;

/// Round trips of slow start that are looked ahead at most: by then any window is full.
const MOST_ROUNDS: u64 = 32;

/// Bytes that `path` can send within `span` while the window lets at most `window` be under way. Pure.
fn sends_within(path: &PathView, span: Duration, window: u64) -> u64 {
    let Some(round_trip) = path.srtt.map(Duration::as_nanos).filter(|ns| *ns > 0) else {
        return 0;
    };
    let mut flight = u64::from(path.cwnd).min(window);
    let mut left = span.as_nanos();
    let mut sum = 0_u64;
    if path.slow_start {
        for _ in 0..MOST_ROUNDS {
            if left < round_trip || flight == window {
                break;
            }
            sum = sum.saturating_add(flight);
            flight = flight.saturating_mul(2).min(window);
            left -= round_trip;
        }
    }
    let rest = u128::from(flight) * u128::from(left) / u128::from(round_trip);
    sum.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX))
}

/// New data may go there like anywhere else.
fn in_play(path: &PathView) -> bool {
    path.established
        && !path.backup
        && !path.stale
        && (path.can_send > 0 || path.cwnd_room < path.cwnd)
}

/// Takes their room from those subflows on which new data would hold up the others, when `window` bytes may be without
/// Data ACK at one time. The subflow that delivers soonest always keeps its room. Pure.
pub(crate) fn hold_back(paths: &mut [PathView], window: u64) {
    let regular = |path: &PathView| in_play(path) && path.srtt.is_some();
    let Some(soonest) = (0..paths.len())
        .filter(|&n| regular(&paths[n]))
        .min_by_key(|&n| (paths[n].delivery, paths[n].subflow))
    else {
        return;
    };
    for n in 0..paths.len() {
        let path = paths[n];
        if n == soonest || path.can_send == 0 || !regular(&path) {
            continue;
        }
        let others = paths.iter().enumerate().filter(|(other, view)| {
            *other != n && in_play(view) && view.srtt.is_some_and(|srtt| srtt < path.delivery)
        });
        let meanwhile = others.fold(0_u64, |sum, (_, view)| {
            sum.saturating_add(sends_within(view, path.delivery, window))
        });
        if meanwhile > window {
            paths[n].can_send = 0;
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
            can_send: 1_400,
            ..fixtures::path(subflow, srtt_ms)
        }
    }

    #[test]
    fn what_a_path_sends_in_a_span() {
        let growing = PathView {
            slow_start: true,
            ..path(0, 10, 10_000)
        };
        for (view, ms, window, bytes) in [
            (path(0, 10, 10_000), 10, 1 << 20, 10_000),
            (path(0, 10, 10_000), 35, 1 << 20, 35_000),
            (path(0, 10, 10_000), 35, 5_000, 17_500),
            (growing, 10, 1 << 20, 10_000),
            (growing, 30, 1 << 20, 70_000),
            (growing, 35, 1 << 20, 110_000),
            (growing, 40, 20_000, 70_000),
            (path(0, 0, 10_000), 10, 1 << 20, 0),
        ] {
            let span = Duration::from_millis(ms);
            assert_eq!(sends_within(&view, span, window), bytes, "{ms} ms");
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
                "a queue before it",
                alloc::vec![wifi, late],
                299_999,
                alloc::vec![0],
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
