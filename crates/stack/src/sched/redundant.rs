//! Copies of what is in flight, so that the first of several paths decides when it arrives.
//!
//! New data always goes first, by the lowest round trip. A copy leaves only while nothing new can be sent, on a path
//! with room in its congestion window, once, and while duplicates make up less than half of that window: whoever has much to
//! send is not slowed down, and paths that share a link do not fill it with duplicates.

use super::{Choice, Need, PathView, candidates, lowest_rtt};

/// Chooses the fastest of the subflows that have something to copy and room for it.
pub(super) fn pick_copy(paths: &[PathView], need: Need) -> Choice {
    let may = |path: &&PathView| may_duplicate(path.duplicates, path.cwnd.bytes);
    lowest_rtt::least(candidates(paths, &need).filter(may), |_, srtt| srtt)
}

/// So many bytes of duplicates in flight leave room for one more: less than half of the window. A trade: more duplicates save more
/// late segments, and leave less of the window for new data when it comes. Pure.
pub(crate) fn may_duplicate(duplicates: u32, cwnd: u32) -> bool {
    duplicates < cwnd / 2
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{backup, full, path, stale, with};
    use super::super::{Purpose, Scheduler};
    use super::*;
    use crate::ids::{SubflowId, SubflowSet};

    #[test]
    fn a_copy_needs_room_and_its_share() {
        let with_duplicates = |duplicates| with(path(1, 50), |view| view.duplicates = duplicates);
        let send = Choice::Send(SubflowId(1));
        let carrier = path(0, 10);
        for (name, paths, expected) in [
            (
                "not where it is",
                [carrier, full(path(1, 50))],
                Choice::Wait,
            ),
            ("room", [carrier, path(1, 50)], send),
            ("less than half", [carrier, with_duplicates(6_999)], send),
            ("half", [carrier, with_duplicates(7_000)], Choice::Wait),
            ("a silent path", [carrier, stale(path(1, 50))], Choice::Wait),
            ("a backup", [carrier, backup(path(1, 50))], Choice::Wait),
        ] {
            let need = Need {
                purpose: Purpose::Duplicate(SubflowSet::of(SubflowId(0))),
                ..Need::fresh(1_000)
            };
            assert_eq!(Scheduler::Redundant.pick(&paths, need), expected, "{name}");
        }
    }

    #[test]
    fn the_fastest_path_duplicates_first() {
        let need = Need {
            purpose: Purpose::Duplicate(SubflowSet::of(SubflowId(0))),
            ..Need::fresh(1_000)
        };
        let paths = [path(0, 10), path(1, 90), path(2, 50)];
        assert_eq!(pick_copy(&paths, need), Choice::Send(SubflowId(2)));
    }
}
