//! One subflow after the other: for tests, and for paths that are alike and should wear alike.

use core::cmp::Reverse;

use super::{Choice, Need, PathView, candidates};

/// Chooses the next subflow with room after the one that took the last data, by number, and round again.
pub(super) fn pick(paths: &[PathView], need: Need) -> Choice {
    candidates(paths, &need)
        .filter(|path| path.room.is_open())
        .min_by_key(|path| {
            let after = need.history.last.is_none_or(|last| path.subflow > last);
            (Reverse(after), path.subflow)
        })
        .map_or(Choice::Wait, |path| Choice::Send(path.subflow))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{full, path};
    use super::super::{History, Scheduler};
    use super::*;
    use crate::ids::SubflowId;

    fn after(last: Option<u8>) -> Need {
        Need {
            history: History {
                last: last.map(SubflowId),
                ..History::default()
            },
            ..Need::fresh(1_000)
        }
    }

    #[test]
    fn the_next_number_with_room_is_next() {
        let all = [path(0, 10), path(1, 500), path(4, 20)];
        let one_full = [path(0, 10), full(path(1, 500)), path(4, 20)];
        let none = [full(path(0, 10)), full(path(1, 500)), full(path(4, 20))];
        let send = |id| Choice::Send(SubflowId(id));
        for (name, paths, last, expected) in [
            ("the first", all, None, send(0)),
            ("the second", all, Some(0), send(1)),
            ("the third", all, Some(1), send(4)),
            ("round", all, Some(4), send(0)),
            ("whose last is gone", all, Some(2), send(4)),
            ("past a full one", one_full, Some(0), send(4)),
            ("full", none, Some(0), Choice::Wait),
        ] {
            assert_eq!(pick(&paths, after(last)), expected, "{name}");
        }
    }

    #[test]
    fn each_gets_its_turn() {
        let paths = [path(0, 10), path(1, 500), path(2, 20)];
        let (mut need, mut turns) = (after(None), [0; 3]);
        for _ in 0..300 {
            let choice = Scheduler::RoundRobin.pick(&paths, need);
            let Choice::Send(id) = choice else {
                panic!("all have room");
            };
            need.history.last = Some(id);
            turns[id.index()] += 1;
        }
        assert_eq!(turns, [100; 3]);
    }
}
