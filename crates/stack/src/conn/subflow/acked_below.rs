//! Ranges of the stream acknowledged at subflow level without a Data ACK (RFC 8684 section 3.3.6).
//!
//! Most wait in the peer's reordering queue for data of other subflows. But where options stop passing, or a middlebox changes
//! payload, the peer has discarded them, and only the connection can send them again. Owns these ranges; must never grow without bound.

use alloc::collections::VecDeque;
use core::ops::Range;

use crate::conn::dss::offset::Offset;

/// Ranges that are kept; the data-level timer covers any more.
const MOST: usize = 64;

/// Ranges that one subflow acknowledged without a Data ACK, oldest first.
#[derive(Debug, Default)]
pub(crate) struct SubflowAckedOnly(VecDeque<Range<Offset>>);

impl SubflowAckedOnly {
    /// The subflow acknowledged this range, and there is no Data ACK beyond `una`.
    pub(crate) fn note(&mut self, part: Range<Offset>, una: Offset) {
        if part.end <= una {
            return;
        }
        let room = self.0.len() < MOST;
        match self.0.back_mut() {
            Some(last) if last.end == part.start => last.end = part.end,
            _ if room => self.0.push_back(part),
            _ => {}
        }
    }

    /// Drops ranges with a Data ACK. (One behind a later range stays until that is acknowledged: it is never looked up.)
    pub(crate) fn acked(&mut self, una: Offset) {
        while self.0.front().is_some_and(|part| part.end <= una) {
            self.0.pop_front();
        }
    }

    /// This byte is in one of the ranges.
    pub(crate) fn contains(&self, at: Offset) -> bool {
        self.0.iter().any(|part| part.contains(&at))
    }

    /// The first of the ranges that ends behind `from`.
    pub(in crate::conn) fn first_behind(&self, from: Offset) -> Option<&Range<Offset>> {
        self.0
            .iter()
            .filter(|part| part.end > from)
            .min_by_key(|part| part.start)
    }

    /// Takes all ranges out.
    pub(crate) fn take(&mut self) -> VecDeque<Range<Offset>> {
        core::mem::take(&mut self.0)
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.0.capacity() * size_of::<Range<Offset>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(from: u64, to: u64) -> Range<Offset> {
        Offset(from)..Offset(to)
    }

    #[test]
    fn adjacent_ranges_are_merged() {
        let mut all = SubflowAckedOnly::default();
        all.note(part(10, 20), Offset(0));
        all.note(part(20, 30), Offset(0));
        all.note(part(50, 60), Offset(0));
        all.note(part(30, 40), Offset(0));
        assert_eq!(all.take(), [part(10, 30), part(50, 60), part(30, 40)]);
        assert!(all.take().is_empty());
    }

    #[test]
    fn a_data_ack_removes_ranges() {
        let mut all = SubflowAckedOnly::default();
        all.note(part(0, 10), Offset(10));
        assert!(!all.contains(Offset(5)), "acknowledged before");
        all.note(part(20, 30), Offset(10));
        all.note(part(50, 60), Offset(10));
        assert!(all.contains(Offset(20)) && all.contains(Offset(59)));
        all.acked(Offset(30));
        assert!(!all.contains(Offset(29)) && all.contains(Offset(50)));
        all.acked(Offset(60));
        assert!(all.take().is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let mut all = SubflowAckedOnly::default();
        for i in 0..10_000 {
            all.note(part(10 * i + 1, 10 * i + 5), Offset(0));
        }
        assert!(all.memory() <= 2 * MOST * size_of::<Range<Offset>>());
        assert!(all.contains(Offset(1)), "the oldest are kept");
    }
}
