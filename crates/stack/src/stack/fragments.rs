//! Puts IP packets together that came in pieces (RFC 791 section 3.2, RFC 1122 section 3.3.2, RFC 8200 section 4.5).
//!
//! Bounded in memory, in pieces and in time. A packet whose pieces overlap is dropped (RFC 8200 section 4.5, RFC 5722): what it
//! means would depend on who puts it together. Where memory runs short the oldest packet goes, first of all those whose first
//! piece is not there: behind an address that we share with the host these are mostly the host's own, since what a packet is
//! for stands in its first piece alone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ip::Ecn;
use manypath_wire::ip::fragment::{self, Fragment, Key};

use crate::api::IfaceId;
use crate::stats::Counters;

/// Bytes that incomplete packets may hold.
const MOST_BYTES: usize = 4 << 20;
/// Pieces of one packet: the longest one in the pieces of an MTU of 576 bytes, the least that a host must take (RFC 791).
const MOST_PIECES: usize = 128;
/// How long pieces are waited for, from the one that came first (RFC 8200 section 4.5; RFC 1122 section 3.3.2: 60 to 120 s).
const PATIENCE: Duration = Duration::from_secs(60);
/// What a packet and a piece cost beside their bytes.
const PACKET_COST: usize = 320;
const PIECE_COST: usize = 64;

/// By which the packet that goes next is found: those without their first piece, and of these the one that began first.
type Age = (bool, u64);

/// Incomplete packets.
#[derive(Debug, Default)]
pub(super) struct Fragments {
    packets: BTreeMap<Key, Incomplete>,
    ages: BTreeMap<Age, Key>,
    held: usize,
    begun: u64,
}

#[derive(Debug)]
struct Incomplete {
    /// In order of their places, none of which overlap.
    pieces: Vec<Piece>,
    /// The headers of the first piece, once it is there.
    head: Option<Vec<u8>>,
    /// The length of what was cut, once the last piece is there.
    len: Option<usize>,
    marks: Marks,
    began: Instant,
    number: u64,
    came_by: IfaceId,
    held: usize,
}

#[derive(Debug)]
struct Piece {
    at: usize,
    bytes: Vec<u8>,
}

impl Piece {
    fn end(&self) -> usize {
        self.at + self.bytes.len()
    }
}

/// Congestion marks of the pieces.
#[derive(Debug, Clone, Copy, Default)]
struct Marks {
    first: Ecn,
    marked: bool,
    unable: bool,
}

impl Marks {
    fn add(&mut self, piece: &Fragment<'_>) {
        if piece.offset == 0 {
            self.first = piece.ecn;
        }
        self.marked |= piece.ecn == Ecn::Ce;
        self.unable |= piece.ecn == Ecn::NotEct;
    }

    /// The mark of the whole: a mark is not lost, and none is put where nobody understands it (RFC 3168 section 5.3). `None`:
    /// the packet must be dropped.
    fn whole(self) -> Option<Ecn> {
        match (self.marked, self.unable) {
            (true, true) => None,
            (true, false) => Some(Ecn::Ce),
            (false, _) => Some(self.first),
        }
    }
}

/// What a piece is to the packet that it belongs to.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    /// It goes before the piece of that index.
    Before(usize),
    /// It is there already.
    Again,
    /// It says something else than another piece, or where the end is.
    Contradicts,
}

/// A packet that was given up because its time was over.
#[derive(Debug)]
pub(super) struct Expired {
    pub(super) came_by: IfaceId,
    /// Its first piece with all headers, if that had come.
    pub(super) first: Option<Vec<u8>>,
}

impl Incomplete {
    fn new(now: Instant, number: u64, came_by: IfaceId) -> Self {
        Self {
            pieces: Vec::new(),
            head: None,
            len: None,
            marks: Marks::default(),
            began: now,
            number,
            came_by,
            held: PACKET_COST,
        }
    }

    fn age(&self) -> Age {
        (self.head.is_some(), self.number)
    }

    fn fit(&self, piece: &Fragment<'_>) -> Fit {
        let (at, end) = (piece.offset, piece.offset + piece.payload.len());
        let index = self.pieces.partition_point(|p| p.at < at);
        let is_last = self.len == Some(end);
        if let Some(there) = self.pieces.get(index).filter(|p| p.at == at) {
            // The network may double a piece (RFC 8200 section 4.5).
            return match there.bytes == piece.payload && is_last != piece.more {
                true => Fit::Again,
                false => Fit::Contradicts,
            };
        }
        let before = index.checked_sub(1).and_then(|i| self.pieces.get(i));
        let overlaps = before.is_some_and(|p| p.end() > at)
            || self.pieces.get(index).is_some_and(|p| p.at < end);
        let beyond = self.len.is_some_and(|len| end > len || !piece.more);
        let early = !piece.more && self.pieces.last().is_some_and(|p| p.end() > end);
        match overlaps || beyond || early {
            true => Fit::Contradicts,
            false => Fit::Before(index),
        }
    }

    /// Takes a piece in, and answers what that cost.
    fn put(&mut self, index: usize, piece: &Fragment<'_>) -> usize {
        let mut cost = PIECE_COST + piece.payload.len();
        let bytes = piece.payload.to_vec();
        self.pieces.insert(
            index,
            Piece {
                at: piece.offset,
                bytes,
            },
        );
        self.marks.add(piece);
        if piece.offset == 0 {
            cost += piece.head.len();
            self.head = Some(piece.head.to_vec());
        }
        if !piece.more {
            self.len = Some(piece.offset + piece.payload.len());
        }
        self.held += cost;
        cost
    }

    /// Nothing is missing: the pieces do not overlap, so their lengths say it.
    fn is_complete(&self) -> bool {
        let there = self.pieces.iter().map(|p| p.bytes.len()).sum();
        self.head.is_some() && self.len == Some(there)
    }

    /// Its first piece with all headers.
    fn first(&self) -> Option<Vec<u8>> {
        let (head, piece) = (self.head.as_ref()?, self.pieces.first()?);
        Some([head.as_slice(), &piece.bytes].concat())
    }

    fn join(&self) -> Option<Vec<u8>> {
        let pieces = self.pieces.iter().map(|p| p.bytes.as_slice());
        fragment::join(self.head.as_ref()?, self.marks.whole()?, pieces)
    }
}

impl Fragments {
    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.held
    }

    /// Takes a piece, and answers the packet if nothing of it is missing now.
    pub(super) fn take(
        &mut self,
        now: Instant,
        came_by: IfaceId,
        piece: &Fragment<'_>,
        count: &mut Counters,
    ) -> Option<Vec<u8>> {
        let packet = match self.packets.get_mut(&piece.key) {
            Some(packet) => packet,
            None => self.begin(now, came_by, piece.key),
        };
        let index = match packet.fit(piece) {
            Fit::Before(index) => index,
            Fit::Again => return None,
            Fit::Contradicts => {
                count.fragment_overlap += 1;
                self.forget(&piece.key);
                return None;
            }
        };
        if packet.pieces.len() >= MOST_PIECES {
            count.fragment_evicted += 1;
            self.forget(&piece.key);
            return None;
        }
        let age = packet.age();
        let cost = packet.put(index, piece);
        let now_age = packet.age();
        let whole = packet.is_complete().then(|| packet.join());
        self.held += cost;
        if now_age != age {
            self.ages.remove(&age);
            self.ages.insert(now_age, piece.key);
        }
        if let Some(whole) = whole {
            match whole {
                Some(_) => count.fragments_joined += 1,
                // Longer than a packet may be, or with marks that exclude each other.
                None => count.drop_ip_fragment += 1,
            }
            self.forget(&piece.key);
            return whole;
        }
        self.make_room(count);
        None
    }

    fn begin(&mut self, now: Instant, came_by: IfaceId, key: Key) -> &mut Incomplete {
        let packet = Incomplete::new(now, self.begun, came_by);
        self.begun += 1;
        self.held += packet.held;
        self.ages.insert(packet.age(), key);
        self.packets.entry(key).or_insert(packet)
    }

    fn forget(&mut self, key: &Key) -> Option<Incomplete> {
        let packet = self.packets.remove(key)?;
        self.ages.remove(&packet.age());
        self.held -= packet.held;
        Some(packet)
    }

    fn make_room(&mut self, count: &mut Counters) {
        while self.held > MOST_BYTES
            && let Some((_, key)) = self.ages.first_key_value()
        {
            let key = *key;
            count.fragment_evicted += 1;
            self.forget(&key);
        }
    }

    /// The packet that began first.
    fn oldest(&self) -> Option<(&Key, Instant)> {
        let with_first = self.ages.range((true, 0)..).next();
        let all = self.ages.first_key_value().into_iter().chain(with_first);
        all.filter_map(|(_, key)| Some((key, self.packets.get(key)?.began)))
            .min_by_key(|(_, began)| *began)
    }

    /// When [`pop_expired`](Self::pop_expired) has something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        // Asked for after each batch of packets, of which few are fragments.
        if self.packets.is_empty() {
            return None;
        }
        self.oldest().map(|(_, began)| began + PATIENCE)
    }

    /// The next packet whose time is over; it is given up.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Expired> {
        let (key, _) = self
            .oldest()
            .filter(|(_, began)| *began + PATIENCE <= now)?;
        let key = *key;
        let packet = self.forget(&key)?;
        Some(Expired {
            came_by: packet.came_by,
            first: packet.first(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use core::net::Ipv4Addr;
    use manypath_wire::checksum::Sum;
    use manypath_wire::ip::{self, v4};
    use proptest::prelude::*;

    const IFACE: IfaceId = IfaceId(1);

    /// The piece `at..at + payload.len()` of the packet that has this identification.
    fn piece(identification: u16, at: usize, payload: &[u8], more: bool, ecn: Ecn) -> Vec<u8> {
        let mut bytes = vec![0; v4::HEADER_LEN];
        let header = bytes.first_chunk_mut().expect("as long as a header");
        let len = (v4::HEADER_LEN + payload.len()) as u16;
        let (src, dst) = (Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 1));
        v4::emit(header, src, dst, 6, 64, ecn, len);
        header[4..6].copy_from_slice(&identification.to_be_bytes());
        let place = (u16::from(more) << 13) | (at / 8) as u16;
        header[6..8].copy_from_slice(&place.to_be_bytes());
        header[10..12].fill(0);
        let sum = Sum::of(header).finish();
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend_from_slice(payload);
        bytes
    }

    /// What was cut, and its pieces at these places.
    fn cut(identification: u16, body: &[u8], places: &[usize]) -> Vec<Vec<u8>> {
        let mut ends: Vec<usize> = places.iter().map(|at| at * 8).collect();
        ends.retain(|at| (24..body.len()).contains(at));
        ends.extend([0, body.len()]);
        ends.sort_unstable();
        ends.dedup();
        let cut = |pair: &[usize]| match pair {
            &[at, end] => {
                let more = end < body.len();
                piece(identification, at, &body[at..end], more, Ecn::NotEct)
            }
            _ => unreachable!("windows of two"),
        };
        ends.windows(2).map(cut).collect()
    }

    #[derive(Default)]
    struct Bench {
        fragments: Fragments,
        count: Counters,
    }

    impl Bench {
        fn take(&mut self, now: Instant, bytes: &[u8]) -> Option<Vec<u8>> {
            let piece = fragment::read(bytes).expect("a piece");
            let whole = self.fragments.take(now, IFACE, &piece, &mut self.count)?;
            let (_, body) = ip::parse(&whole).expect("a whole packet");
            Some(body.to_vec())
        }

        /// The sums are those of what is there.
        fn check(&self) {
            let fragments = &self.fragments;
            let held: usize = fragments.packets.values().map(|p| p.held).sum();
            assert_eq!(fragments.held, held);
            assert!(held <= MOST_BYTES, "{held}");
            assert_eq!(fragments.ages.len(), fragments.packets.len());
            for (age, key) in &fragments.ages {
                assert_eq!(fragments.packets[key].age(), *age);
            }
        }
    }

    fn body(len: usize) -> Vec<u8> {
        (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
    }

    #[test]
    fn a_piece_that_comes_twice_changes_nothing() {
        let body = body(100);
        let cut = cut(1, &body, &[5, 9]);
        let mut bench = Bench::default();
        for index in [2, 2, 0, 0, 2] {
            assert_eq!(bench.take(Instant::ZERO, &cut[index]), None);
        }
        assert_eq!(bench.take(Instant::ZERO, &cut[1]), Some(body));
        assert_eq!(bench.count.fragments_joined, 1);
        assert_eq!(bench.fragments.held, 0);
    }

    #[test]
    fn pieces_that_contradict_each_other_end_the_packet() {
        let good = piece(1, 40, &[1; 24], true, Ecn::NotEct);
        let last = piece(1, 80, &[1; 9], false, Ecn::NotEct);
        for (name, first, second) in [
            (
                "begins within",
                &good,
                piece(1, 48, &[1; 24], true, Ecn::NotEct),
            ),
            (
                "ends within",
                &good,
                piece(1, 32, &[1; 16], true, Ecn::NotEct),
            ),
            ("contains", &good, piece(1, 32, &[1; 48], true, Ecn::NotEct)),
            ("is within", &good, piece(1, 48, &[1; 8], true, Ecn::NotEct)),
            (
                "is longer",
                &good,
                piece(1, 40, &[1; 32], true, Ecn::NotEct),
            ),
            (
                "is different",
                &good,
                piece(1, 40, &[2; 24], true, Ecn::NotEct),
            ),
            (
                "is the last now",
                &good,
                piece(1, 40, &[1; 24], false, Ecn::NotEct),
            ),
            (
                "ends before it",
                &good,
                piece(1, 8, &[1; 24], false, Ecn::NotEct),
            ),
            (
                "is behind the end",
                &last,
                piece(1, 96, &[1; 8], true, Ecn::NotEct),
            ),
            (
                "has another end",
                &last,
                piece(1, 96, &[1; 8], false, Ecn::NotEct),
            ),
        ] {
            let mut bench = Bench::default();
            assert_eq!(bench.take(Instant::ZERO, first), None);
            assert_eq!(bench.take(Instant::ZERO, &second), None);
            assert_eq!(bench.count.fragment_overlap, 1, "{name}");
            assert_eq!(bench.fragments.held, 0, "{name}");
        }
    }

    #[test]
    fn congestion_marks_are_not_lost() {
        use Ecn::{Ce, Ect0, NotEct};
        for (marks, whole) in [
            ([Ect0, Ect0], Some(Ect0)),
            ([Ect0, Ce], Some(Ce)),
            ([Ce, Ect0], Some(Ce)),
            ([NotEct, NotEct], Some(NotEct)),
            ([NotEct, Ce], None),
        ] {
            let mut fragments = Fragments::default();
            let mut count = Counters::default();
            let mut last = None;
            for (n, mark) in marks.into_iter().enumerate() {
                let bytes = piece(1, n * 24, &[0; 24], n == 0, mark);
                let read = fragment::read(&bytes).expect("a piece");
                last = fragments.take(Instant::ZERO, IFACE, &read, &mut count);
            }
            let mark = last.map(|whole| ip::parse(&whole).expect("a packet").0.ecn);
            assert_eq!(mark, whole, "{marks:?}");
        }
    }

    #[test]
    fn packets_are_given_up_when_their_time_is_over() {
        let mut bench = Bench::default();
        let at = Instant::from_secs;
        bench.take(at(10), &piece(1, 40, &[1; 24], true, Ecn::NotEct));
        bench.take(at(20), &piece(2, 0, &[2; 24], true, Ecn::NotEct));
        bench.take(at(69), &piece(1, 64, &[1; 24], true, Ecn::NotEct));
        assert_eq!(bench.fragments.deadline(), Some(at(70)));
        assert!(bench.fragments.pop_expired(at(69)).is_none());
        let first = bench.fragments.pop_expired(at(70)).expect("it is time");
        assert_eq!(first.first, None);
        assert_eq!(bench.fragments.deadline(), Some(at(80)));
        let second = bench.fragments.pop_expired(at(80)).expect("it is time");
        assert_eq!(second.first.map(|first| first.len()), Some(44));
        assert_eq!(
            (bench.fragments.deadline(), bench.fragments.held),
            (None, 0)
        );
    }

    #[test]
    fn memory_is_bounded_and_what_has_no_beginning_goes_first() {
        let mut bench = Bench::default();
        bench.take(Instant::ZERO, &piece(0, 0, &[0; 1400], true, Ecn::NotEct));
        for n in 1..10_000 {
            bench.take(
                Instant::ZERO,
                &piece(n, 1400, &[0; 1400], true, Ecn::NotEct),
            );
        }
        bench.check();
        assert!(bench.count.fragment_evicted > 7000);
        let last = piece(0, 1400, &[0; 10], false, Ecn::NotEct);
        assert!(bench.take(Instant::ZERO, &last).is_some());
        for n in 1..1000 {
            bench.take(
                Instant::ZERO,
                &piece(9, n * 8, &[0; 24][..8], true, Ecn::NotEct),
            );
            bench.check();
        }
    }

    proptest! {
        #[test]
        fn any_order_gives_the_packet_once(
            len in 48usize..3000, places in proptest::collection::vec(0usize..380, 0..40),
            order in proptest::collection::vec(any::<proptest::sample::Index>(), 0..80),
        ) {
            let body = body(len);
            let cut = cut(1, &body, &places);
            prop_assume!(cut.len() > 1);
            let mut bench = Bench::default();
            let mut there = vec![false; cut.len()];
            for index in order {
                let index = index.index(cut.len());
                there[index] = true;
                let whole = bench.take(Instant::ZERO, &cut[index]);
                bench.check();
                prop_assert_eq!(whole.is_some(), there.iter().all(|t| *t));
                if let Some(whole) = whole {
                    prop_assert_eq!(&whole, &body);
                    there.fill(false);
                }
            }
            prop_assert_eq!(bench.count.fragment_overlap, 0);
        }

        #[test]
        fn whatever_comes_the_sums_are_right(
            steps in proptest::collection::vec((0u16..3, 0usize..24, 3usize..8, any::<bool>()), 0..200),
        ) {
            let mut bench = Bench::default();
            for (packet, at, len, more) in steps {
                let body = vec![at as u8; len * 8];
                let bytes = piece(packet, at * 8, &body, more || at == 0, Ecn::NotEct);
                if let Some(whole) = bench.take(Instant::ZERO, &bytes) {
                    // Each byte is from a piece that began at or before it.
                    prop_assert!(whole.iter().enumerate().all(|(n, at)| usize::from(*at) * 8 <= n));
                }
                bench.check();
            }
        }
    }
}
