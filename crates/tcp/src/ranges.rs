//! Sets of bytes as sorted, disjoint, half-open ranges of wrapping numbers.
//!
//! Shared by the assembler, the selective acknowledgements and the receive side of the connection. Ranges that touch are
//! one range. All numbers of one set must lie within half the number circle of each other; the windows of the
//! protocol see to that, and callers clip to their window before they insert.

use alloc::collections::VecDeque;
use core::fmt::Debug;

use manypath_wire::dsn::Dsn;
use manypath_wire::seq::{SeqNum, Ssn};

/// A number on a circle, as ranges need it.
pub trait Circular: Copy + Eq + Debug {
    /// Signed distance from `from` to `self`: negative when `self` lies before `from`.
    fn distance(self, from: Self) -> i64;

    /// The number `by` further on.
    #[must_use]
    fn advance(self, by: u64) -> Self;
}

impl Circular for SeqNum {
    fn distance(self, from: Self) -> i64 {
        i64::from(self.diff(from))
    }
    fn advance(self, by: u64) -> Self {
        self + by as u32
    }
}

impl Circular for Ssn {
    fn distance(self, from: Self) -> i64 {
        i64::from(self.diff(from))
    }
    fn advance(self, by: u64) -> Self {
        self + by as u32
    }
}

impl Circular for Dsn {
    fn distance(self, from: Self) -> i64 {
        self.diff(from)
    }
    fn advance(self, by: u64) -> Self {
        self + by
    }
}

/// One half-open range `start..end`, never empty inside a [`Ranges`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span<S> {
    /// First number inside.
    pub start: S,
    /// First number behind.
    pub end: S,
}

impl<S: Circular> Span<S> {
    /// The range from `start` to before `end`.
    pub fn new(start: S, end: S) -> Span<S> {
        Span { start, end }
    }

    /// How many numbers it holds; zero when `end` does not lie after `start`.
    pub fn len(&self) -> u64 {
        self.end.distance(self.start).max(0).unsigned_abs()
    }

    /// It holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// It holds `at`.
    pub fn contains(&self, at: S) -> bool {
        at.distance(self.start) >= 0 && at.distance(self.end) < 0
    }
}

/// A set of numbers as sorted disjoint ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<S> {
    spans: VecDeque<Span<S>>,
    bytes: u64,
}

impl<S> Default for Ranges<S> {
    fn default() -> Self {
        Ranges {
            spans: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl<S: Circular> Ranges<S> {
    /// The empty set.
    pub fn new() -> Ranges<S> {
        Ranges::default()
    }

    /// Nothing is inside.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Bytes of memory held.
    pub fn memory(&self) -> usize {
        self.spans.capacity() * size_of::<Span<S>>()
    }

    /// How many separate ranges there are.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// How many numbers are inside.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The ranges in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Span<S>> + ExactSizeIterator + '_ {
        self.spans.iter().copied()
    }

    /// The first range.
    pub fn first(&self) -> Option<Span<S>> {
        self.spans.front().copied()
    }

    /// The last range.
    pub fn last(&self) -> Option<Span<S>> {
        self.spans.back().copied()
    }

    /// Index of the first range that ends after `at`.
    fn first_ending_after(&self, at: S) -> usize {
        self.spans
            .partition_point(|span| span.end.distance(at) <= 0)
    }

    /// The range that holds `at`.
    pub fn span_at(&self, at: S) -> Option<Span<S>> {
        self.spans
            .get(self.first_ending_after(at))
            .copied()
            .filter(|span| span.contains(at))
    }

    /// `at` is inside.
    pub fn contains(&self, at: S) -> bool {
        self.span_at(at).is_some()
    }

    /// All of `start..end` is inside. True for an empty range.
    pub fn covers(&self, start: S, end: S) -> bool {
        end.distance(start) <= 0
            || self
                .span_at(start)
                .is_some_and(|span| span.end.distance(end) >= 0)
    }

    /// Some of `start..end` is inside.
    pub fn overlaps(&self, start: S, end: S) -> bool {
        self.overlaps_at(self.place(start), start, end)
    }

    /// Index of the first range that ends at or after `at`: the place of what begins there. Ranges that touch are one, so one
    /// that ends exactly there is met.
    pub fn place(&self, at: S) -> usize {
        self.spans.partition_point(|span| span.end.distance(at) < 0)
    }

    /// What begins at `at` has its place at this index.
    fn is_place(&self, index: usize, at: S) -> bool {
        let behind = |span: &Span<S>| span.end.distance(at) < 0;
        let before = index.checked_sub(1).map(|before| self.spans.get(before));
        before.is_none_or(|before| before.is_some_and(behind))
            && self.spans.get(index).is_none_or(|here| !behind(here))
    }

    /// [`Ranges::place`] without a search, if it is this index or the next one: the range where something was added last, or
    /// behind it.
    pub fn place_near(&self, index: usize, at: S) -> Option<usize> {
        let next = index.checked_add(1)?;
        [index, next]
            .into_iter()
            .find(|&index| self.is_place(index, at))
    }

    /// [`Ranges::overlaps`], with the place of `start`.
    pub fn overlaps_at(&self, place: usize, start: S, end: S) -> bool {
        debug_assert!(self.is_place(place, start), "another place");
        let meets = |span: &Span<S>| span.end.distance(start) > 0;
        let here = self.spans.get(place);
        let first = match here {
            Some(span) if !meets(span) => self.spans.get(place + 1),
            here => here,
        };
        end.distance(start) > 0 && first.is_some_and(|span| span.start.distance(end) < 0)
    }

    /// Adds `start..end` and returns how many of its numbers are new. An empty or reversed range adds nothing.
    pub fn insert(&mut self, start: S, end: S) -> u64 {
        self.insert_at(self.place(start), start, end)
    }

    /// [`Ranges::insert`], with the place of `start`, where the range then is that holds it.
    pub fn insert_at(&mut self, place: usize, start: S, end: S) -> u64 {
        if end.distance(start) <= 0 {
            return 0;
        }
        debug_assert!(self.is_place(place, start), "another place");
        let mut merged = Span { start, end };
        let mut old = 0;
        let mut to = place;
        while let Some(span) = self
            .spans
            .get(to)
            .copied()
            .filter(|span| span.start.distance(end) <= 0)
        {
            if span.start.distance(merged.start) < 0 {
                merged.start = span.start;
            }
            if span.end.distance(merged.end) > 0 {
                merged.end = span.end;
            }
            old += span.len();
            to += 1;
        }
        self.replace(place, to, merged);
        let new = merged.len() - old;
        self.bytes += new;
        new
    }

    /// Puts one range in the place of the ranges `from..to`.
    fn replace(&mut self, from: usize, to: usize, with: Span<S>) {
        match to - from {
            0 => self.spans.insert(from, with),
            1 => self.spans[from] = with,
            _ => {
                self.spans[from] = with;
                self.spans.drain(from + 1..to);
            }
        }
    }

    /// Takes `start..end` out and returns how many numbers that removed.
    pub fn remove(&mut self, start: S, end: S) -> u64 {
        if end.distance(start) <= 0 {
            return 0;
        }
        let from = self.first_ending_after(start);
        let mut to = from;
        let (mut head, mut tail) = (None, None);
        let mut removed = 0;
        while let Some(span) = self
            .spans
            .get(to)
            .copied()
            .filter(|span| span.start.distance(end) < 0)
        {
            removed += span.len();
            if span.start.distance(start) < 0 {
                head = Some(Span {
                    start: span.start,
                    end: start,
                });
            }
            if span.end.distance(end) > 0 {
                tail = Some(Span {
                    start: end,
                    end: span.end,
                });
            }
            to += 1;
        }
        self.spans.drain(from..to);
        for kept in [tail, head].into_iter().flatten() {
            removed -= kept.len();
            self.spans.insert(from, kept);
        }
        self.bytes -= removed;
        removed
    }

    /// Takes everything before `at` out and returns how many numbers that removed.
    pub fn remove_before(&mut self, at: S) -> u64 {
        let whole = self.first_ending_after(at);
        let mut removed: u64 = self.spans.drain(..whole).map(|span| span.len()).sum();
        if let Some(span) = self
            .spans
            .front_mut()
            .filter(|span| span.start.distance(at) < 0)
        {
            removed += at.distance(span.start).unsigned_abs();
            span.start = at;
        }
        self.bytes -= removed;
        removed
    }

    /// Removes and returns the first range.
    pub fn pop_first(&mut self) -> Option<Span<S>> {
        let span = self.spans.pop_front()?;
        self.bytes -= span.len();
        Some(span)
    }

    /// Takes everything out.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.bytes = 0;
    }

    /// The first part of `start..end` that is not inside.
    pub fn first_gap(&self, start: S, end: S) -> Option<Span<S>> {
        self.gaps(start, end).next()
    }

    /// The parts of `start..end` that are not inside, in order.
    pub fn gaps(&self, start: S, end: S) -> Gaps<'_, S> {
        Gaps {
            ranges: self,
            next: self.first_ending_after(start),
            at: start,
            end,
        }
    }
}

/// The holes of a set within a range; see [`Ranges::gaps`].
#[derive(Clone, Debug)]
pub struct Gaps<'a, S> {
    ranges: &'a Ranges<S>,
    next: usize,
    at: S,
    end: S,
}

impl<S: Circular> Iterator for Gaps<'_, S> {
    type Item = Span<S>;

    fn next(&mut self) -> Option<Span<S>> {
        while self.at.distance(self.end) < 0 {
            let start = self.at;
            let Some(span) = self.ranges.spans.get(self.next) else {
                self.at = self.end;
                return Some(Span {
                    start,
                    end: self.end,
                });
            };
            self.next += 1;
            self.at = span.end;
            let end = if span.start.distance(self.end) < 0 {
                span.start
            } else {
                self.end
            };
            if end.distance(start) > 0 {
                return Some(Span { start, end });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn seq(n: u32) -> SeqNum {
        SeqNum::new(n)
    }

    #[test]
    fn touching_ranges_become_one_across_the_wrap() {
        let mut set = Ranges::new();
        assert_eq!(set.insert(seq(u32::MAX - 4), seq(u32::MAX)), 4);
        assert_eq!(set.insert(seq(2), seq(5)), 3);
        assert_eq!(set.count(), 2);
        assert_eq!(set.insert(seq(u32::MAX), seq(2)), 3);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Span::new(seq(u32::MAX - 4), seq(5))]
        );
        assert_eq!(set.bytes(), 10);
    }

    #[test]
    fn empty_and_reversed_ranges_change_nothing() {
        let mut set = Ranges::new();
        assert_eq!(set.insert(seq(5), seq(5)), 0);
        assert_eq!(set.insert(seq(5), seq(3)), 0);
        assert_eq!(set.remove(seq(5), seq(3)), 0);
        assert!(set.is_empty());
        assert_eq!(set.gaps(seq(5), seq(3)).count(), 0);
    }

    #[test]
    fn removal_cuts_a_range_in_two() {
        let mut set = Ranges::new();
        set.insert(seq(10), seq(20));
        assert_eq!(set.remove(seq(13), seq(15)), 2);
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Span::new(seq(10), seq(13)), Span::new(seq(15), seq(20))]
        );
        assert_eq!(set.pop_first(), Some(Span::new(seq(10), seq(13))));
        assert_eq!(set.bytes(), 5);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert(u8, u8),
        Remove(u8, u8),
        RemoveBefore(u8),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (any::<u8>(), 0u8..40).prop_map(|(at, len)| Op::Insert(at, len)),
            2 => (any::<u8>(), 0u8..40).prop_map(|(at, len)| Op::Remove(at, len)),
            1 => any::<u8>().prop_map(Op::RemoveBefore),
        ]
    }

    proptest! {
        /// Every operation agrees with a set of single numbers kept in an array, wherever the circle starts.
        #[test]
        fn a_set_of_ranges_is_a_set(origin: u32, ops in prop::collection::vec(op(), 1..60)) {
            let at = |n: usize| seq(origin.wrapping_add(n as u32));
            let mut model = [false; 300];
            let mut set = Ranges::new();
            for op in ops {
                let (changed, expected) = match op {
                    Op::Insert(start, len) => {
                        let part = start as usize..start as usize + len as usize;
                        let new = model[part.clone()].iter().filter(|inside| !**inside).count();
                        model[part.clone()].fill(true);
                        (set.insert(at(part.start), at(part.end)), new)
                    }
                    Op::Remove(start, len) => {
                        let part = start as usize..start as usize + len as usize;
                        let gone = model[part.clone()].iter().filter(|inside| **inside).count();
                        model[part.clone()].fill(false);
                        (set.remove(at(part.start), at(part.end)), gone)
                    }
                    Op::RemoveBefore(end) => {
                        let gone = model[..end as usize].iter().filter(|inside| **inside).count();
                        model[..end as usize].fill(false);
                        (set.remove_before(at(end as usize)), gone)
                    }
                };
                prop_assert_eq!(changed, expected as u64);
                prop_assert_eq!(set.bytes(), model.iter().filter(|inside| **inside).count() as u64);
                for (n, inside) in model.iter().enumerate() {
                    prop_assert_eq!(set.contains(at(n)), *inside);
                }
                let gaps: u64 = set.gaps(at(0), at(300)).map(|gap| gap.len()).sum();
                prop_assert_eq!(gaps, model.iter().filter(|inside| !**inside).count() as u64);
                for n in 0..300 {
                    let place = set.place(at(n));
                    for index in 0..set.count() + 2 {
                        let near = place == index || place == index + 1;
                        prop_assert_eq!(set.place_near(index, at(n)), near.then_some(place));
                    }
                    let some = model[n..].iter().take(7).any(|inside| *inside);
                    prop_assert_eq!(set.overlaps(at(n), at(n + 7)), some);
                }
                for gap in set.gaps(at(0), at(300)) {
                    prop_assert!(!gap.is_empty() && !set.overlaps(gap.start, gap.end));
                }
                for pair in set.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[1].start.distance(pair[0].end) > 0, "ranges neither touch nor overlap");
                }
            }
        }
    }
}
