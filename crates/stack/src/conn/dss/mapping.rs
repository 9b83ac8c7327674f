//! Data sequence mappings onto the sequence numbers of a subflow (RFC 8684 section 3.3.1).
//!
//! Owns the mappings of both directions; never a payload byte. A mapping never changes once made, except that its DATA_FIN may be removed.

use alloc::collections::VecDeque;
use core::ops::Range;

use manypath_wire::checksum::Sum;
use manypath_wire::seq::Ssn;

use crate::conn::dss::offset::Offset;

/// A mapping that we sent and that is not wholly acknowledged at subflow level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxMapping {
    pub(crate) ssn: Ssn,
    pub(crate) at: Offset,
    pub(crate) len: u16,
    /// As sent: a retransmitted part repeats the whole mapping and its checksum.
    pub(crate) checksum: Option<u16>,
    /// The DATA_FIN is at its end and counted in the data-level length. // rfc8684:F1
    pub(crate) fin: bool,
}

impl TxMapping {
    /// The data-level length.
    pub(crate) fn wire_len(&self) -> u16 {
        self.len + u16::from(self.fin)
    }

    /// Subflow sequence number after its last byte.
    pub(crate) fn end(&self) -> Ssn {
        self.ssn + u32::from(self.len)
    }

    /// This stream position is in it.
    pub(crate) fn covers(&self, at: Offset) -> bool {
        self.at <= at && at < self.at + u64::from(self.len)
    }

    /// The same without the DATA_FIN. The checksum covers the data-level length (RFC 8684 section 3.3.1): the sum decreases by one, so its
    /// complement increases by one (RFC 1624).
    pub(crate) fn without_fin(self) -> Self {
        let shorter = |checksum: u16| {
            let (sum, carry) = checksum.overflowing_add(u16::from(self.fin));
            match sum + u16::from(carry) {
                // What is summed is not all zeros, so its sum is not 0 but 0xffff.
                u16::MAX if self.fin => 0,
                sum => sum,
            }
        };
        Self {
            checksum: self.checksum.map(shorter),
            fin: false,
            ..self
        }
    }
}

/// A subflow's mappings in flight, in subflow order.
#[derive(Debug, Default)]
pub(crate) struct TxMaps {
    queue: VecDeque<TxMapping>,
    /// The lowest stream position in flight, kept as a monotone queue so that reading it is free.
    minima: VecDeque<Offset>,
    /// Where the last run of mappings in stream order began, and what follows it.
    contiguous: Option<Contiguous>,
}

/// A run of mappings in which each continues the one before, on the subflow and in the stream.
#[derive(Clone, Copy, Debug)]
struct Contiguous {
    ssn: Ssn,
    at: Offset,
    next: (Ssn, Offset),
}

impl TxMaps {
    pub(crate) fn push(&mut self, mapping: TxMapping) {
        let begin = match self.contiguous {
            Some(run) if run.next == (mapping.ssn, mapping.at) => (run.ssn, run.at),
            _ => (mapping.ssn, mapping.at),
        };
        self.contiguous = Some(Contiguous {
            ssn: begin.0,
            at: begin.1,
            next: (mapping.end(), mapping.at + u64::from(mapping.len)),
        });
        while self.minima.back().is_some_and(|&last| last > mapping.at) {
            self.minima.pop_back();
        }
        self.minima.push_back(mapping.at);
        self.queue.push_back(mapping);
    }

    /// Drops what is wholly acknowledged at subflow level, and passes its stream ranges to `each`.
    pub(crate) fn acked(&mut self, una: Ssn, mut each: impl FnMut(Range<Offset>)) {
        while let Some(front) = self.queue.front().copied() {
            if !front.end().before_eq(una) {
                break;
            }
            self.queue.pop_front();
            if self.minima.front() == Some(&front.at) {
                self.minima.pop_front();
            }
            each(front.at..front.at + u64::from(front.len));
        }
    }

    /// The mapping of a sent byte.
    pub(crate) fn find(&self, ssn: Ssn) -> Option<&TxMapping> {
        let after = self.queue.partition_point(|m| m.ssn.before_eq(ssn));
        let found = self.queue.get(after.checked_sub(1)?)?;
        ssn.within(found.ssn, u32::from(found.len)).then_some(found)
    }

    /// The stream position of the first byte not acknowledged at subflow level.
    pub(crate) fn first_unacked(&self, una: Ssn) -> Option<Offset> {
        self.queue.front().map(|m| {
            if m.ssn.before(una) {
                m.at + u64::from(una.since(m.ssn))
            } else {
                m.at
            }
        })
    }

    /// The subflow sequence number of a stream position, if everything from there up to `end`, where new data starts, was sent once and in
    /// stream order. // rfc8684:B9,B11
    pub(crate) fn contiguous(&self, at: Offset, end: Offset) -> Option<Ssn> {
        match self.contiguous {
            _ if at > end => None,
            None => Some(Ssn::new(1)).filter(|_| at == end),
            Some(run) if at == end => Some(run.next.0),
            Some(run) if run.at <= at && run.next.1 == end => Some(run.ssn + (at - run.at) as u32),
            Some(_) => None,
        }
    }

    /// The lowest position in flight: nothing from here on may be freed. // rfc8684:D21,R2
    pub(crate) fn lowest(&self) -> Option<Offset> {
        self.minima.front().copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &TxMapping> {
        self.queue.iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<TxMapping>()
            + self.minima.capacity() * size_of::<Offset>()
    }
}

/// A mapping that the peer sent and whose bytes have not all arrived in subflow order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RxMapping {
    pub(crate) ssn: Ssn,
    pub(crate) at: Offset,
    /// Payload bytes, without a DATA_FIN that the mapping's length counts.
    pub(crate) len: u16,
    /// The data-level length on the wire, for the checksum.
    pub(crate) wire_len: u16,
    pub(crate) checksum: Option<u16>,
    /// Payload taken so far, always a prefix, and its sum.
    pub(crate) taken: u16,
    pub(crate) sum: Sum,
    /// Some of its bytes could not be stored: beyond the window, or in conflict with other unverified bytes.
    pub(crate) lost: bool,
    /// Some of its bytes passed before it was known, so its checksum cannot be computed.
    pub(crate) incomplete: bool,
}

impl RxMapping {
    pub(crate) fn new(
        ssn: Ssn,
        at: Offset,
        len: u16,
        wire_len: u16,
        checksum: Option<u16>,
    ) -> Self {
        Self {
            ssn,
            at,
            len,
            wire_len,
            checksum,
            taken: 0,
            sum: Sum::ZERO,
            lost: false,
            incomplete: false,
        }
    }
}

/// Result of noting a received mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noted {
    /// New.
    New,
    /// Already known, or its data has long arrived: segmentation offload duplicates mappings.
    Known,
    /// Overlaps a known mapping and contradicts it; the first one stays. // rfc8684:D5
    Conflict,
    /// More mappings than data could need, or farther ahead than data may be; ignored.
    TooMany,
}

/// The mappings that wait for their bytes, in subflow order.
#[derive(Debug, Default)]
pub(crate) struct RxMaps {
    queue: VecDeque<RxMapping>,
}

impl RxMaps {
    /// Maximum waiting mappings, all subflows together. A window of 8 MB in segments of 536 bytes needs 15,650.
    pub(crate) const MOST: usize = 16 * 1024;

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<RxMapping>()
    }

    /// Notes a mapping; `next` is the next subflow byte expected, `reach` how far after that it may begin, and `room` how many more
    /// mappings may wait.
    pub(crate) fn note(&mut self, mapping: RxMapping, next: Ssn, reach: u32, room: usize) -> Noted {
        let end = mapping.ssn + u32::from(mapping.len);
        if end.before_eq(next) {
            return Noted::Known;
        }
        if mapping.ssn.after(next + reach) {
            return Noted::TooMany;
        }
        let at = self.queue.partition_point(|m| m.ssn.before(mapping.ssn));
        if let Some(same) = self.queue.get(at) {
            if same.ssn == mapping.ssn {
                let equal = same.at == mapping.at
                    && same.len == mapping.len
                    && same.checksum == mapping.checksum;
                return if equal { Noted::Known } else { Noted::Conflict };
            }
            if same.ssn.before(end) {
                return Noted::Conflict;
            }
        }
        if let Some(previous) = at.checked_sub(1).and_then(|i| self.queue.get(i)) {
            if mapping.ssn.before(previous.ssn + u32::from(previous.len)) {
                return Noted::Conflict;
            }
        }
        if room == 0 {
            return Noted::TooMany;
        }
        self.queue.insert(at, mapping);
        Noted::New
    }

    /// The mapping of the next byte in subflow order, if it is known; older ones are dropped.
    pub(crate) fn current(&mut self, ssn: Ssn) -> Option<&mut RxMapping> {
        while let Some(front) = self.queue.front() {
            if ssn.before(front.ssn + u32::from(front.len)) {
                break;
            }
            self.queue.pop_front();
        }
        self.queue.front_mut().filter(|m| m.ssn.before_eq(ssn))
    }

    /// The next known mapping.
    pub(crate) fn first(&self) -> Option<&RxMapping> {
        self.queue.front()
    }

    /// Where the next known mapping starts: the bytes before it are unmapped.
    pub(crate) fn next_start(&self) -> Option<Ssn> {
        self.queue.front().map(|m| m.ssn)
    }

    /// The mapping of which some bytes are stored and none counts yet.
    pub(crate) fn partial(&self) -> Option<&RxMapping> {
        self.queue.front().filter(|m| m.taken > 0)
    }

    /// As `partial`.
    pub(crate) fn partial_mut(&mut self) -> Option<&mut RxMapping> {
        self.queue.front_mut().filter(|m| m.taken > 0)
    }

    pub(crate) fn pop(&mut self) {
        self.queue.pop_front();
    }

    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests {
    use manypath_wire::checksum;
    use manypath_wire::dsn::Dsn;

    use super::*;

    const REACH: u32 = 1 << 20;
    const ROOM: usize = 100;

    fn tx(ssn: u32, at: u64, len: u16) -> TxMapping {
        TxMapping {
            ssn: Ssn::new(ssn),
            at: Offset(at),
            len,
            checksum: None,
            fin: false,
        }
    }

    fn rx(ssn: u32, at: u64, len: u16) -> RxMapping {
        RxMapping::new(Ssn::new(ssn), Offset(at), len, len, None)
    }

    #[test]
    fn the_lowest_position_in_flight_is_known_whatever_the_order() {
        // rfc8684:D21,R2
        let mut maps = TxMaps::default();
        for m in [
            tx(1, 100, 10),
            tx(11, 200, 10),
            tx(21, 50, 10),
            tx(31, 300, 10),
        ] {
            maps.push(m);
        }
        assert_eq!(maps.lowest(), Some(Offset(50)));
        maps.acked(Ssn::new(25), |_| ());
        assert_eq!(
            maps.lowest(),
            Some(Offset(50)),
            "a partly acknowledged mapping stays"
        );
        maps.acked(Ssn::new(31), |_| ());
        assert_eq!(maps.lowest(), Some(Offset(300)));
        maps.acked(Ssn::new(41), |_| ());
        assert!(maps.is_empty() && maps.lowest().is_none());
    }

    #[test]
    fn a_run_in_stream_order_ends_where_something_is_resent() {
        // rfc8684:B9,B11
        let ssn = |n| Some(Ssn::new(n));
        let mut maps = TxMaps::default();
        assert_eq!(maps.contiguous(Offset(7), Offset(7)), ssn(1));
        assert_eq!(maps.contiguous(Offset(0), Offset(7)), None);
        maps.push(tx(1, 100, 10));
        maps.push(tx(11, 110, 10));
        assert_eq!(maps.contiguous(Offset(105), Offset(120)), ssn(6));
        assert_eq!(maps.contiguous(Offset(90), Offset(120)), None);
        assert_eq!(maps.contiguous(Offset(105), Offset(130)), None);
        maps.push(tx(21, 105, 5));
        assert_eq!(maps.contiguous(Offset(105), Offset(120)), None);
        assert_eq!(maps.contiguous(Offset(120), Offset(120)), ssn(26));
        maps.acked(Ssn::new(26), |_| ());
        maps.push(tx(26, 120, 5));
        assert_eq!(maps.contiguous(Offset(122), Offset(125)), ssn(28));
    }

    #[test]
    fn a_sent_byte_finds_its_mapping_across_the_wrap() {
        let mut maps = TxMaps::default();
        maps.push(tx(u32::MAX - 5, 0, 10));
        maps.push(tx(4, 10, 10));
        assert_eq!(maps.find(Ssn::new(3)).map(|m| m.at), Some(Offset(0)));
        assert_eq!(maps.find(Ssn::new(4)).map(|m| m.at), Some(Offset(10)));
        assert_eq!(maps.find(Ssn::new(14)), None);
        assert_eq!(maps.find(Ssn::new(u32::MAX - 6)), None);
    }

    #[test]
    fn a_mapping_without_its_data_fin_has_the_checksum_of_the_shorter_one() {
        // rfc8684:D9,F1
        for (len, payload) in [(0, 0), (1, 0), (1, 7), (1460, 0x5a5a), (65_534, u16::MAX)] {
            for low in 0..=u16::MAX {
                let dsn = Dsn::new(u64::from(low));
                let sum = Sum::of(&payload.to_be_bytes());
                let of = |wire_len| Some(checksum::dss(dsn, Ssn::new(9), wire_len, sum));
                let with = TxMapping {
                    checksum: of(len + 1),
                    fin: true,
                    ..tx(9, 0, len)
                };
                assert_eq!(with.wire_len(), len + 1);
                let without = TxMapping {
                    checksum: of(len),
                    ..tx(9, 0, len)
                };
                assert_eq!(with.without_fin(), without, "{len} {payload} {low}");
                assert_eq!(without.without_fin(), without);
            }
        }
    }

    #[test]
    fn the_first_unacknowledged_byte_may_lie_in_the_middle_of_a_mapping() {
        let mut maps = TxMaps::default();
        assert_eq!(maps.first_unacked(Ssn::new(1)), None);
        maps.push(tx(1, 100, 10));
        maps.push(tx(11, 50, 10));
        for (una, at, dropped) in [(1, 100, 0), (5, 104, 0), (11, 50, 1), (12, 51, 0)] {
            let mut count = 0;
            maps.acked(Ssn::new(una), |_| count += 1);
            assert_eq!(maps.first_unacked(Ssn::new(una)), Some(Offset(at)), "{una}");
            assert_eq!(count, dropped, "{una}");
        }
    }

    #[test]
    fn mappings_of_bytes_that_passed_are_dropped() {
        // Payload reached so far; where the mapping of the next byte begins, and the next known one.
        for (ssn, current, first) in [
            (1, Some(1), Some(1)),
            (10, Some(1), Some(1)),
            (11, None, Some(21)),
            (21, Some(21), Some(21)),
            (31, None, None),
        ] {
            let mut maps = RxMaps::default();
            for mapping in [rx(1, 0, 10), rx(21, 20, 10)] {
                maps.note(mapping, Ssn::new(1), REACH, ROOM);
            }
            let found = maps.current(Ssn::new(ssn)).map(|m| m.ssn);
            assert_eq!(found, current.map(Ssn::new), "{ssn}");
            assert_eq!(maps.next_start(), first.map(Ssn::new), "{ssn}");
        }
    }

    #[test]
    fn the_first_mapping_of_a_byte_stays() {
        // rfc8684:D5
        let mut maps = RxMaps::default();
        let next = Ssn::new(1);
        assert_eq!(maps.note(rx(101, 100, 50), next, REACH, ROOM), Noted::New);
        assert_eq!(maps.note(rx(101, 100, 50), next, REACH, ROOM), Noted::Known);
        assert_eq!(
            maps.note(rx(101, 900, 50), next, REACH, ROOM),
            Noted::Conflict
        );
        assert_eq!(
            maps.note(rx(90, 100, 12), next, REACH, ROOM),
            Noted::Conflict
        );
        assert_eq!(
            maps.note(rx(150, 100, 12), next, REACH, ROOM),
            Noted::Conflict
        );
        assert_eq!(maps.note(rx(151, 150, 12), next, REACH, ROOM), Noted::New);
        assert_eq!(maps.note(rx(1, 0, 100), next, REACH, ROOM), Noted::New);
        assert_eq!(maps.current(Ssn::new(1)).map(|m| m.at), Some(Offset(0)));
        assert_eq!(maps.current(Ssn::new(120)).map(|m| m.at), Some(Offset(100)));
        assert_eq!(
            maps.note(rx(1, 0, 100), Ssn::new(101), REACH, ROOM),
            Noted::Known
        );
    }

    #[test]
    fn bytes_without_a_mapping_have_none() {
        // rfc8684:D11
        let mut maps = RxMaps::default();
        maps.note(rx(11, 0, 10), Ssn::new(1), REACH, ROOM);
        assert!(maps.current(Ssn::new(1)).is_none());
        assert_eq!(maps.next_start(), Some(Ssn::new(11)));
    }

    #[test]
    fn mappings_are_bounded_in_number_and_reach() {
        let mut maps = RxMaps::default();
        let next = Ssn::new(1);
        assert_eq!(maps.note(rx(101, 0, 10), next, 100, 0), Noted::TooMany);
        assert_eq!(maps.note(rx(102, 0, 10), next, 100, 9), Noted::TooMany);
        assert_eq!(maps.note(rx(101, 0, 10), next, 100, 9), Noted::New);
        assert_eq!(maps.note(rx(101, 0, 10), next, 100, 0), Noted::Known);
        assert_eq!((maps.len(), maps.memory() > 0), (1, true));
    }
}
