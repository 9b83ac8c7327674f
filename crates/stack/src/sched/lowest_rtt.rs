//! The policy of Linux: of the subflows with room, the one with the lowest smoothed round trip.

use manypath_tcp::time::Duration;

use super::{Choice, Need, PathView, candidates};

/// Chooses the subflow with room and the lowest round trip; an unmeasured one comes last, ties go to the one with more
/// room, then to the older.
pub(super) fn pick(paths: &[PathView], need: Need) -> Choice {
    least(candidates(paths, &need), |_, srtt| srtt)
}

/// Chooses the subflow with room that delivers first: as [`pick`], and behind the queue that is there, which round trips have not
/// seen yet.
pub(super) fn pick_soonest(paths: &[PathView], need: Need) -> Choice {
    least(candidates(paths, &need), |path, srtt| {
        srtt.max(path.expected_delivery)
    })
}

/// Of those with room the one with the least `time`, which is told of a path and its round trip.
pub(super) fn least<'a>(
    paths: impl Iterator<Item = &'a PathView>,
    time: impl Fn(&PathView, Duration) -> Duration,
) -> Choice {
    paths
        .filter(|path| path.room.is_open())
        .min_by_key(|path| {
            let time = path.rtt.srtt.map_or(Duration::MAX, |srtt| time(path, srtt));
            (time, core::cmp::Reverse(path.room.bytes()), path.subflow)
        })
        .map_or(Choice::Wait, |path| Choice::Send(path.subflow))
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::super::Room;
    use super::super::fixtures::{backup, closing, full, path, stale, unmeasured, with};
    use super::*;
    use crate::ids::{SubflowId, SubflowSet};

    const WAIT: Option<u8> = None;

    fn check(cases: Vec<(&str, Vec<PathView>, Option<u8>)>, need: Need) {
        for (name, paths, expected) in cases {
            let expected = expected.map_or(Choice::Wait, |id| Choice::Send(SubflowId(id)));
            assert_eq!(pick(&paths, need), expected, "{name}");
            let reversed: Vec<_> = paths.iter().rev().copied().collect();
            assert_eq!(
                pick(&reversed, need),
                expected,
                "{name}, the other way round"
            );
        }
    }

    #[test]
    fn new_data() {
        // rfc8684:P1 rfc8684:J6
        check(
            vec![
                ("no path", vec![], WAIT),
                (
                    "the lower round trip",
                    vec![path(0, 20), path(1, 150)],
                    Some(0),
                ),
                (
                    "the lower one is full",
                    vec![full(path(0, 20)), path(1, 150)],
                    Some(1),
                ),
                (
                    "all full",
                    vec![full(path(0, 20)), full(path(1, 150))],
                    WAIT,
                ),
                (
                    "not established",
                    vec![closing(path(0, 20)), path(1, 150)],
                    Some(1),
                ),
                (
                    "unmeasured comes last",
                    vec![unmeasured(path(0, 0)), path(1, 900)],
                    Some(1),
                ),
                (
                    "unmeasured is better than none",
                    vec![unmeasured(path(0, 0))],
                    Some(0),
                ),
                (
                    "a tie goes to the lower number",
                    vec![path(3, 20), path(2, 20)],
                    Some(2),
                ),
                (
                    "a fast backup rests",
                    vec![backup(path(0, 1)), path(1, 500)],
                    Some(1),
                ),
                (
                    "a backup rests while the other is full",
                    vec![backup(path(0, 1)), full(path(1, 500))],
                    WAIT,
                ),
                (
                    "only backups",
                    vec![backup(path(0, 9)), backup(path(1, 5))],
                    Some(1),
                ),
                (
                    "a backup stands in for a closing path",
                    vec![backup(path(0, 9)), closing(path(1, 5))],
                    Some(0),
                ),
                (
                    "a stale path rests",
                    vec![stale(path(0, 1)), path(1, 500)],
                    Some(1),
                ),
                (
                    "a stale path rests while the other is full",
                    vec![stale(path(0, 1)), full(path(1, 500))],
                    WAIT,
                ),
                (
                    "a backup stands in for a stale path",
                    vec![stale(path(0, 1)), backup(path(1, 500))],
                    Some(1),
                ),
                (
                    "everything is stale",
                    vec![stale(path(0, 9)), stale(path(1, 5))],
                    Some(1),
                ),
                (
                    "stale regular before stale backup",
                    vec![stale(path(0, 9)), stale(backup(path(1, 5)))],
                    Some(0),
                ),
            ],
            Need::fresh(1000),
        );
    }

    #[test]
    fn a_tie_goes_to_more_room() {
        let little = with(path(0, 20), |view| view.room = Room::of(1_400));
        assert_eq!(
            pick(&[little, path(1, 20)], Need::fresh(1)),
            Choice::Send(SubflowId(1))
        );
    }

    #[test]
    fn data_that_was_sent_before() {
        // rfc8684:P1
        check(
            vec![
                ("not where it was", vec![path(0, 20), path(1, 150)], Some(1)),
                ("nowhere else to go", vec![path(0, 20)], WAIT),
                (
                    "a working path keeps its data from the backup",
                    vec![path(0, 20), backup(path(1, 5))],
                    WAIT,
                ),
                (
                    "the backup takes what a stale path holds",
                    vec![stale(path(0, 20)), backup(path(1, 5))],
                    Some(1),
                ),
                (
                    "the other stale path may try",
                    vec![stale(path(0, 20)), stale(path(1, 5))],
                    Some(1),
                ),
            ],
            Need::again(1000, SubflowSet::of(SubflowId(0))),
        );
    }
}
