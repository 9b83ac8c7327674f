//! One subflow at a time: the others are kept warm and carry nothing until it is silent or gone.
//!
//! A subflow from the address where the connection began comes before all others, so that the data returns there when a
//! new subflow replaces the first one after an outage.
//!
//! Flag B of MP_JOIN asks the peer for the same; this policy needs no word from the peer and orders any number of
//! subflows by age.

use super::{Choice, Need, PathView, candidates};

/// Chooses the oldest subflow of the best class, those from the first address before others, if it has room. `paths` are in
/// the order in which they were made.
pub(super) fn pick(paths: &[PathView], need: Need) -> Choice {
    candidates(paths, &need)
        .min_by_key(|path| !path.home)
        .filter(|path| path.room.is_open())
        .map_or(Choice::Wait, |path| Choice::Send(path.subflow))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{backup, closing, full, path, stale, with};
    use super::*;
    use crate::ids::SubflowId;

    fn home(view: PathView) -> PathView {
        with(view, |view| view.home = true)
    }

    #[test]
    fn the_oldest_that_works_carries_everything() {
        let send = |id| Choice::Send(SubflowId(id));
        for (name, paths, expected) in [
            ("the oldest", [path(0, 500), path(1, 10)], send(0)),
            (
                "although it is full",
                [full(path(0, 500)), path(1, 10)],
                Choice::Wait,
            ),
            ("it is silent", [stale(path(0, 500)), path(1, 10)], send(1)),
            ("it is gone", [closing(path(0, 500)), path(1, 10)], send(1)),
            (
                "it is a backup",
                [backup(path(0, 500)), path(1, 10)],
                send(1),
            ),
            (
                "from the first address",
                [path(0, 500), home(path(1, 10))],
                send(1),
            ),
            (
                "which is silent",
                [path(0, 500), home(stale(path(1, 10)))],
                send(0),
            ),
            (
                "both are silent",
                [stale(path(0, 500)), stale(path(1, 10))],
                send(0),
            ),
        ] {
            assert_eq!(pick(&paths, Need::fresh(1_000)), expected, "{name}");
        }
    }
}
