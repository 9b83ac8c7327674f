//! What was replaced in one direction of a stream, and what that does to sequence numbers.

use std::collections::VecDeque;

use manypath_wire::seq::SeqNum;

/// Replacements that are remembered, more than one packet can hold; what lies before the first one is lost to the box.
const MOST: usize = 66_000;

/// A replacement: `len` bytes at `at` became as many as the replacement has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Edit {
    at: SeqNum,
    len: u32,
    new_len: u32,
    /// What all earlier replacements add to a sequence number.
    shift: u32,
}

impl Edit {
    fn end(&self) -> SeqNum {
        self.at + self.len
    }

    fn new_at(&self) -> SeqNum {
        self.at + self.shift
    }

    fn new_end(&self) -> SeqNum {
        self.new_at() + self.new_len
    }

    /// The shift of what follows.
    fn shift_after(&self) -> u32 {
        self.shift.wrapping_add(self.new_len).wrapping_sub(self.len)
    }
}

/// The replacements in one direction, in order, and how far the stream has been read.
#[derive(Debug, Default)]
pub(super) struct Edits {
    edits: VecDeque<Edit>,
    /// The number after the last byte that was read, as its sender counts.
    read: Option<SeqNum>,
    /// What replacements that are no longer remembered add.
    forgotten: u32,
    /// Numbers before this one can no longer be translated.
    horizon: Option<SeqNum>,
}

impl Edits {
    /// The number after the last byte that was read; `first`, if none was.
    pub(super) fn read_to(&mut self, first: SeqNum) -> SeqNum {
        *self.read.get_or_insert(first)
    }

    /// Everything before `to` has been read.
    pub(super) fn advance(&mut self, to: SeqNum) {
        self.read = Some(self.read.map_or(to, |read| read.max(to)));
    }

    /// `seq` is too old to be translated.
    pub(super) fn has_forgotten(&self, seq: SeqNum) -> bool {
        self.horizon.is_some_and(|horizon| seq.before(horizon))
    }

    /// Notes that `len` bytes at `at`, which is not before any earlier replacement's end, became `new_len` ones.
    pub(super) fn replace(&mut self, at: SeqNum, len: u32, new_len: u32) {
        if self.edits.len() >= MOST {
            if let Some(oldest) = self.edits.pop_front() {
                self.forgotten = oldest.shift_after();
                self.horizon = Some(oldest.end());
            }
        }
        let shift = self.edits.back().map_or(self.forgotten, Edit::shift_after);
        self.edits.push_back(Edit {
            at,
            len,
            new_len,
            shift,
        });
    }

    /// The replacements that overlap the range, as (start, end) in the sender's numbers.
    pub(super) fn within(
        &self,
        from: SeqNum,
        to: SeqNum,
    ) -> impl Iterator<Item = (SeqNum, SeqNum)> {
        let first = self
            .edits
            .partition_point(|edit| edit.end().before_eq(from));
        let overlapping = self.edits.iter().skip(first);
        overlapping
            .take_while(move |edit| edit.at.before(to))
            .map(|edit| (edit.at, edit.end()))
    }

    /// A sequence number of the sender as the receiver counts; within a replacement, the replacement's beginning.
    pub(super) fn forth(&self, seq: SeqNum) -> SeqNum {
        let after = self.edits.partition_point(|edit| edit.at.before(seq));
        match after.checked_sub(1).and_then(|at| self.edits.get(at)) {
            Some(edit) if seq.before(edit.end()) => edit.new_at(),
            Some(edit) => seq + edit.shift_after(),
            None => seq + self.forgotten,
        }
    }

    /// A number of the receiver as the sender counts. Within a replacement: its beginning, or, `up`, its end.
    pub(super) fn back(&self, number: SeqNum, up: bool) -> SeqNum {
        let after = self
            .edits
            .partition_point(|edit| edit.new_end().before_eq(number));
        let before = after.checked_sub(1).and_then(|at| self.edits.get(at));
        let shift = before.map_or(self.forgotten, Edit::shift_after);
        match self.edits.get(after) {
            Some(edit) if number.after(edit.new_at()) && up => edit.end(),
            Some(edit) if number.after(edit.new_at()) => edit.at,
            _ => number - shift,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: fn(u32) -> SeqNum = SeqNum::new;

    #[test]
    fn numbers_go_forth_and_back() {
        // "ab" at 10 becomes five bytes, one byte at 20 vanishes.
        let mut edits = Edits::default();
        edits.replace(N(10), 2, 5);
        edits.replace(N(20), 1, 0);
        for (seq, new) in [(0, 0), (10, 10), (12, 15), (20, 23), (21, 23), (30, 32)] {
            assert_eq!(edits.forth(N(seq)), N(new), "{seq}");
        }
        assert_eq!(edits.forth(N(11)), N(10));
        for (new, seq) in [(0, 0), (10, 10), (15, 12), (22, 19), (23, 21), (32, 30)] {
            assert_eq!(edits.back(N(new), false), N(seq), "{new}");
            assert_eq!(edits.back(N(new), true), N(seq), "{new}");
        }
        assert_eq!(
            (edits.back(N(12), false), edits.back(N(12), true)),
            (N(10), N(12))
        );
        let found: Vec<_> = edits.within(N(11), N(20)).collect();
        assert_eq!(found, [(N(10), N(12))]);
        assert_eq!(edits.within(N(12), N(20)).count(), 0);
        assert_eq!(edits.within(N(0), N(99)).count(), 2);
    }

    #[test]
    fn it_works_across_the_end_of_the_numbers() {
        let mut edits = Edits::default();
        edits.replace(N(u32::MAX), 3, 1);
        assert_eq!(edits.forth(N(u32::MAX)), N(u32::MAX));
        assert_eq!(edits.forth(N(5)), N(3));
        assert_eq!(edits.back(N(3), false), N(5));
        assert_eq!(edits.back(N(u32::MAX - 5), false), N(u32::MAX - 5));
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_known() {
        let mut edits = Edits::default();
        let count = MOST as u32 + 10;
        for index in 0..count {
            edits.replace(N(index * 10), 1, 2);
        }
        assert_eq!(edits.edits.len(), MOST);
        assert!(edits.has_forgotten(N(90)) && !edits.has_forgotten(N(91)));
        assert_eq!(edits.forth(N(count * 10)), N(count * 11));
        assert_eq!(edits.back(N(count * 11), false), N(count * 10));
        assert_eq!(edits.forth(N(91)), N(101));
    }
}
