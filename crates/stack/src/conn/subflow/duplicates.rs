//! Which bytes of other subflows a subflow duplicates, for the redundant scheduler and for reprobes.

use alloc::collections::VecDeque;
use core::ops::Range;

use manypath_wire::seq::Ssn;

use crate::conn::dss::mapping::TxMaps;
use crate::conn::dss::offset::Offset;

/// One subflow's duplicates.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// Everything before was duplicated, or needs no duplicate.
    pub(in crate::conn) upto: Offset,
    /// End and length of each duplicate in flight.
    pub(in crate::conn) in_flight: VecDeque<(Ssn, u32)>,
    pub(in crate::conn) bytes: u32,
}

impl Duplicates {
    /// Bytes of duplicates in flight.
    pub(crate) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.in_flight.capacity() * size_of::<(Ssn, u32)>()
    }

    /// A duplicate of `range` was sent, up to subflow sequence number `end`.
    pub(crate) fn sent(&mut self, range: &Range<Offset>, end: Ssn) {
        let len = range.end.since(range.start) as u32;
        self.upto = range.end;
        self.in_flight.push_back((end, len));
        self.bytes += len;
    }

    /// The subflow acknowledged what is before `una`.
    pub(crate) fn acked(&mut self, una: Ssn) {
        while let Some(&(end, len)) = self.in_flight.front() {
            if !end.before_eq(una) {
                break;
            }
            self.in_flight.pop_front();
            self.bytes -= len;
        }
    }

    /// The first part from `una` on, in flight on `others`, that a subflow with the mappings `own` should duplicate.
    pub(in crate::conn) fn next<'a>(
        &mut self,
        una: Offset,
        own: &TxMaps,
        others: impl Iterator<Item = &'a TxMaps> + Clone,
    ) -> Option<Range<Offset>> {
        self.upto = self.upto.max(una);
        loop {
            let from = self.upto;
            let mapped = others.clone().flat_map(TxMaps::iter);
            let ahead = mapped.map(|m| m.at.max(from)..m.at + u64::from(m.len));
            let part = ahead
                .filter(|r| r.start < r.end)
                .min_by_key(|r| (r.start, r.end))?;
            let carried = own
                .iter()
                .map(|m| m.at..m.at + u64::from(m.len))
                .filter(|m| m.start < part.end && part.start < m.end)
                .min_by_key(|m| m.start);
            match carried {
                None => return Some(part),
                Some(own) if own.start > part.start => return Some(part.start..own.start),
                Some(own) => self.upto = own.end,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::dss::mapping::TxMapping;

    fn maps(parts: &[(u64, u16)]) -> TxMaps {
        let mut maps = TxMaps::default();
        let mut ssn = Ssn::new(1);
        for &(at, len) in parts {
            let mapping = TxMapping {
                ssn,
                at: Offset(at),
                len,
                checksum: None,
                fin: false,
            };
            ssn = mapping.end();
            maps.push(mapping);
        }
        maps
    }

    /// Everything that is duplicated when nothing is acknowledged, as starts and ends.
    fn all(own: &[(u64, u16)], others: &[&[(u64, u16)]], una: u64) -> alloc::vec::Vec<(u64, u64)> {
        let mut duplicates = Duplicates::default();
        let own = maps(own);
        let others: alloc::vec::Vec<_> = others.iter().map(|parts| maps(parts)).collect();
        let mut found = alloc::vec::Vec::new();
        let mut ssn = Ssn::new(1);
        while let Some(part) = duplicates.next(Offset(una), &own, others.iter()) {
            found.push((part.start.0, part.end.0));
            ssn += 1;
            duplicates.sent(&part, ssn);
        }
        found
    }

    #[test]
    fn each_byte_in_flight_elsewhere_is_duplicated_once_in_stream_order() {
        let one = [(0, 100), (100, 100), (400, 100)];
        assert_eq!(all(&[], &[&one], 0), [(0, 100), (100, 200), (400, 500)]);
        assert_eq!(all(&[], &[&one], 150), [(150, 200), (400, 500)]);
        let two = [(200, 100), (50, 100)];
        assert_eq!(
            all(&[], &[&one, &two], 0),
            [(0, 100), (100, 150), (150, 200), (200, 300), (400, 500)]
        );
        assert_eq!(all(&[], &[], 0), []);
    }

    #[test]
    fn data_in_flight_on_the_subflow_itself_is_not_duplicated() {
        let one = [(0, 100), (100, 100), (400, 100)];
        assert_eq!(all(&one, &[&one], 0), []);
        let own = [(150, 50), (50, 25), (420, 10)];
        let expected = [(0, 50), (75, 100), (100, 150), (400, 420), (430, 500)];
        assert_eq!(all(&own, &[&one], 0), expected);
    }

    #[test]
    fn duplicates_in_flight_are_counted_until_acknowledged() {
        let mut duplicates = Duplicates::default();
        duplicates.sent(&(Offset(0)..Offset(100)), Ssn::new(101));
        duplicates.sent(&(Offset(100)..Offset(300)), Ssn::new(401));
        assert_eq!(duplicates.bytes(), 300);
        duplicates.acked(Ssn::new(101));
        assert_eq!(duplicates.bytes(), 200);
        duplicates.acked(Ssn::new(400));
        assert_eq!(duplicates.bytes(), 200);
        duplicates.acked(Ssn::new(401));
        assert_eq!(duplicates.bytes(), 0);
    }
}
