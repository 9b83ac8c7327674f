//! The connection's receive queue: one buffer and one window for all subflows (RFC 8684 section 3.3.4).
//!
//! Owns what arrived at data level, in and out of order, and the window advertised for it. Bytes are copied once, to their final place;
//! with checksums they never count before their mapping is verified.

use alloc::vec::Vec;
use core::ops::Range;

use manypath_wire::checksum::Sum;

use crate::api::ReceiveAlgorithm;
use crate::conn::dss::offset::Offset;
use crate::conn::recv::pages::PageStore;
use crate::conn::recv::reorder::Order;
use crate::ids::SubflowId;
use crate::stats::Counters;

/// The unit of the largest window scale (RFC 7323 section 2.3).
const LARGEST_UNIT: u64 = 1 << 14;

/// What happened to bytes that were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placed {
    /// Stored, or already there.
    Stored,
    /// Unverified bytes of another subflow are there and differ; these were left out.
    Contested,
    /// Beyond the window: dropped. // rfc8684:D25
    BeyondWindow,
    /// Separate from all that is here, in more pieces than data needs: dropped.
    NotContiguous,
}

impl Placed {
    /// Counts bytes that were not stored.
    pub(crate) fn count(self, bytes: usize, count: &mut Counters) {
        match self {
            Self::Stored => {}
            Self::Contested => count.duplicate_bytes += bytes as u64,
            Self::NotContiguous => count.scattered_bytes += bytes as u64,
            Self::BeyondWindow => count.beyond_window_bytes += bytes as u64,
        }
    }
}

/// Stored bytes whose mapping is not verified yet: the beginning of one mapping of a subflow, which delivers in order. Claims of different
/// subflows may overlap where their bytes are equal: data sent twice.
#[derive(Clone, Copy, Debug)]
struct Claim {
    owner: SubflowId,
    start: Offset,
    end: Offset,
}

impl Claim {
    /// The overlap with a range; perhaps empty.
    fn common(&self, range: &Range<Offset>) -> Range<Offset> {
        self.start.max(range.start)..self.end.min(range.end)
    }
}

#[derive(Debug)]
pub(crate) struct ReceiveQueue {
    store: PageStore,
    /// Next byte for the application.
    read: Offset,
    /// Next byte expected: the Data ACK.
    next: Offset,
    /// Right edge that was advertised. // rfc8684:W1
    edge: Offset,
    /// The largest window ever advertised.
    widest: u64,
    capacity: u32,
    /// Verified bytes beyond `next`.
    pub(crate) arrived: Order,
    /// One for each subflow in the middle of a mapping with a checksum.
    claims: Vec<Claim>,
    /// Where the peer's stream ends, by its DATA_FIN.
    end: Option<Offset>,
}

impl ReceiveQueue {
    pub(crate) fn new(capacity: u32, algorithm: ReceiveAlgorithm) -> Self {
        Self {
            store: PageStore::new(),
            read: Offset::ZERO,
            next: Offset::ZERO,
            edge: Offset(u64::from(capacity)),
            widest: u64::from(capacity),
            capacity,
            arrived: Order::new(algorithm),
            claims: Vec::new(),
            end: None,
        }
    }

    /// Next byte expected, the DATA_FIN not counted.
    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    pub(crate) fn bytes_read(&self) -> u64 {
        self.read.0
    }

    /// The Data ACK: one more than the last byte once the DATA_FIN was reached. // rfc8684:F1,F3
    pub(crate) fn data_ack(&self) -> Offset {
        self.next + u64::from(self.finished())
    }

    /// The peer's DATA_FIN is known.
    pub(crate) fn knows_end(&self) -> bool {
        self.end.is_some()
    }

    /// The peer closed and everything before has arrived.
    pub(crate) fn finished(&self) -> bool {
        self.end == Some(self.next)
    }

    /// Bytes that the application can read.
    pub(crate) fn readable(&self) -> u64 {
        self.next - self.read
    }

    /// Bytes wait behind a hole.
    pub(crate) fn has_holes(&self) -> bool {
        !self.arrived.is_empty()
    }

    /// Starts with a smaller window, before any was advertised.
    pub(crate) fn restrict(&mut self, bytes: u32) {
        self.capacity = self.capacity.min(bytes);
        self.edge = Offset(u64::from(self.capacity));
        self.widest = u64::from(self.capacity);
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    pub(crate) fn set_capacity(&mut self, bytes: u32) {
        self.capacity = bytes;
    }

    /// Bytes that can be accepted now from the next expected one, for a subflow that keeps its own right edge.
    pub(crate) fn room(&self) -> u32 {
        u32::try_from((self.read + u64::from(self.capacity)).since(self.next)).unwrap_or(u32::MAX)
    }

    /// Bytes beyond what has arrived, in order or not, for which room was advertised or will be with the next segment.
    pub(crate) fn open(&self) -> u64 {
        let waiting = self.held() as u64 - self.readable();
        self.possible().saturating_sub(waiting)
    }

    /// The window from the Data ACK on if all room is told; never behind the edge that was advertised.
    fn possible(&self) -> u64 {
        (self.read + u64::from(self.capacity))
            .max(self.edge)
            .since(self.data_ack())
    }

    /// The window to advertise, relative to the Data ACK. `step` is the smallest gain worth it: one segment.
    // rfc8684:W1,W2 and RFC 9293 section 3.8.6.2.2
    pub(crate) fn window(&self, step: u32) -> u32 {
        let told = self.edge.since(self.data_ack());
        let worth = u64::from(step.min(self.capacity / 2).max(1));
        let window = match self.possible() >= told + worth {
            true => self.possible(),
            false => told,
        };
        u32::try_from(window).unwrap_or(u32::MAX)
    }

    /// A segment advertised this window. A zero window promises nothing: the Data ACK may be beyond the edge already.
    pub(crate) fn advertised(&mut self, window: u32) {
        if window > 0 {
            self.edge = self.edge.max(self.data_ack() + u64::from(window));
        }
        self.widest = self.widest.max(u64::from(window));
    }

    /// The window has grown so much that a window update is due.
    pub(crate) fn update_due(&self, step: u32) -> bool {
        let (told, offer) = (
            self.edge.since(self.data_ack()),
            u64::from(self.window(step)),
        );
        offer >= told * 2 && offer - told >= u64::from((step * 2).min(self.capacity / 2).max(1))
    }

    /// Notes where the peer's stream ends; the first DATA_FIN inside the window counts. False if it contradicts what is known, or lies
    /// beyond what is accepted: data from there would be dropped, and with the end noted so would the right DATA_FIN. At the edge of a
    /// full window it counts, as a peer that used up the window still closes.
    // RFC 8684 section 3.8 (DSN out of window), rfc8684:F3,D25
    pub(crate) fn note_end(&mut self, end: Offset) -> bool {
        match self.end {
            Some(known) => known == end,
            None if end < self.next || self.arrived.end().is_some_and(|last| last > end) => false,
            None if end > self.limit() => false,
            None => {
                self.end = Some(end);
                true
            }
        }
    }

    /// A middlebox rewrites the stream: the DATA_FIN's position in the peer's numbers is not the end here.
    pub(crate) fn forget_end(&mut self) -> Option<Offset> {
        self.end.take()
    }

    /// Right limit of what is accepted. Windows are advertised in units of their scale, rounded up. And a peer may exceed the edge in good
    /// faith: a subflow whose own numbers did not move keeps its old window (RFC 9293 section 3.10.7.4), and Linux adds that to the newest
    /// Data ACK, which other subflows have moved. Dropped data, once acknowledged by the subflow, would be resent very slowly; accepting it
    /// costs as much memory again as the widest window at most. That counts from what the application has read: with each idle subflow that
    /// the peer turns to, the Data ACK advances by one more old window.
    fn limit(&self) -> Offset {
        let in_good_faith = self.data_ack() + self.widest;
        let most = self.read + u64::from(self.capacity) + self.widest;
        self.edge.max(in_good_faith.min(most)) + LARGEST_UNIT
    }

    /// Bytes that can still be accepted, from the next expected one on.
    pub(crate) fn allowance(&self) -> u32 {
        u32::try_from(self.limit().since(self.next)).unwrap_or(u32::MAX)
    }

    /// Bytes that may still be accepted beyond what is held, wherever in the window they lie.
    pub(crate) fn spare(&self) -> u32 {
        let held = self.held() as u64;
        u32::try_from(self.limit().since(self.read).saturating_sub(held)).unwrap_or(u32::MAX)
    }

    fn clip(&self, at: Offset, len: usize) -> Range<Offset> {
        let limit = self.end.map_or(self.limit(), |end| end.min(self.limit()));
        let to = (at + len as u64).min(limit);
        at.max(self.next).min(to)..to
    }

    /// Accepts bytes that need no further check. The first copy of a byte stays. Returns the new in-order bytes.
    // rfc8684:D6,D25
    pub(crate) fn accept(
        &mut self,
        by: Option<SubflowId>,
        at: Offset,
        bytes: &[u8],
    ) -> (Placed, u64) {
        let range = self.clip(at, bytes.len());
        let beyond = at + bytes.len() as u64 > self.limit();
        if range.is_empty() {
            return (
                if beyond {
                    Placed::BeyondWindow
                } else {
                    Placed::Stored
                },
                0,
            );
        }
        if self.scatters(by, &range) {
            return (Placed::NotContiguous, 0);
        }
        self.write_new(by, at, bytes, range.clone());
        let advanced = self.mark(by, range);
        (
            if beyond {
                Placed::BeyondWindow
            } else {
                Placed::Stored
            },
            advanced,
        )
    }

    /// Stores the next bytes of a subflow's mapping whose checksum is still to be verified, and sums all of them. A mapping of which not
    /// everything was [`Placed::Stored`] must not be [`ReceiveQueue::verified`].
    pub(crate) fn place(
        &mut self,
        owner: SubflowId,
        at: Offset,
        bytes: &[u8],
        known: Option<Sum>,
    ) -> (Placed, Sum) {
        let by = Some(owner);
        let range = self.clip(at, bytes.len());
        if self.scatters(by, &range) {
            return (
                Placed::NotContiguous,
                known.unwrap_or_else(|| Sum::of(bytes)),
            );
        }
        if range.start == at && range.end == at + bytes.len() as u64 && self.is_free(by, &range) {
            let sum = match known {
                Some(sum) => {
                    self.store.write(at.0, bytes);
                    sum
                }
                None => self.store.write_and_sum(at.0, bytes),
            };
            self.claim(owner, &range);
            return (Placed::Stored, sum);
        }
        let sum = known.unwrap_or_else(|| Sum::of(bytes));
        if at + bytes.len() as u64 > self.limit() {
            return (Placed::BeyondWindow, sum);
        }
        if range.is_empty() {
            return (Placed::Stored, sum);
        }
        if !self.agrees(by, at, bytes, &range) {
            return (Placed::Contested, sum);
        }
        self.write_new(by, at, bytes, range.clone());
        self.claim(owner, &range);
        (Placed::Stored, sum)
    }

    /// The checksum of a subflow's mapping was correct: its bytes count from now on. Returns the new in-order bytes.
    pub(crate) fn verified(&mut self, owner: SubflowId, range: Range<Offset>) -> u64 {
        self.discard(owner);
        let clipped = self.clip(range.start, (range.end - range.start) as usize);
        if clipped.is_empty() {
            0
        } else {
            self.mark(Some(owner), clipped)
        }
    }

    /// The checksum of a subflow's mapping was wrong, or the subflow died: drops its unverified bytes. // rfc8684:B8
    pub(crate) fn discard(&mut self, owner: SubflowId) {
        self.claims.retain(|claim| claim.owner != owner);
    }

    /// Unverified bytes of this subflow are in some part of this range.
    pub(crate) fn claims_any(&self, owner: SubflowId, range: Range<Offset>) -> bool {
        let mut claims = self.claims.iter().filter(|claim| claim.owner == owner);
        claims.any(|claim| !claim.common(&range).is_empty())
    }

    fn claim(&mut self, owner: SubflowId, range: &Range<Offset>) {
        match self.claims.iter_mut().find(|claim| claim.owner == owner) {
            Some(claim) => {
                claim.start = claim.start.min(range.start);
                claim.end = claim.end.max(range.end);
            }
            None => self.claims.push(Claim {
                owner,
                start: range.start,
                end: range.end,
            }),
        }
    }

    /// It would be one piece more than allowed.
    fn scatters(&mut self, by: Option<SubflowId>, range: &Range<Offset>) -> bool {
        self.arrived.is_crowded() && range.start > self.next && {
            // Adjacent pieces merge.
            let before = Offset(range.start.0 - 1);
            !self.arrived.overlaps(by, &(before..range.end + 1))
        }
    }

    fn is_free(&mut self, by: Option<SubflowId>, range: &Range<Offset>) -> bool {
        !self.arrived.overlaps(by, range) && self.claims.iter().all(|c| c.common(range).is_empty())
    }

    /// Whether the part `range` of `bytes` (which start at `at`) equals what is claimed and does not count yet.
    fn agrees(
        &mut self,
        by: Option<SubflowId>,
        at: Offset,
        bytes: &[u8],
        range: &Range<Offset>,
    ) -> bool {
        self.claims.iter().all(|claim| {
            let common = claim.common(range);
            self.arrived.gaps(by, &common).into_iter().all(|gap| {
                let part = &bytes[(gap.start - at) as usize..(gap.end - at) as usize];
                self.store.has(gap.start.0, part)
            })
        })
    }

    /// End of the last byte stored.
    fn top(&self) -> Offset {
        let arrived = self.arrived.end().unwrap_or(self.next);
        let claimed = self.claims.iter().map(|claim| claim.end);
        claimed.fold(arrived.max(self.next), Offset::max)
    }

    /// Writes the part `range` of `bytes` (which start at `at`), except what arrived before.
    fn write_new(&mut self, by: Option<SubflowId>, at: Offset, bytes: &[u8], range: Range<Offset>) {
        let part = |r: &Range<Offset>| &bytes[(r.start - at) as usize..(r.end - at) as usize];
        if !self.arrived.overlaps(by, &range) {
            self.store.write(range.start.0, part(&range));
            return;
        }
        for gap in self.arrived.gaps(by, &range) {
            self.store.write(gap.start.0, part(&gap));
        }
    }

    fn mark(&mut self, by: Option<SubflowId>, range: Range<Offset>) -> u64 {
        let before = self.next;
        if range.start > self.next {
            self.arrived.insert(by, range);
        } else {
            self.next = self.arrived.take_ready(by, range.end);
        }
        self.next - before
    }

    /// Shows the application at most `most` bytes, in parts where they lie, and frees them.
    pub(crate) fn read_with(&mut self, most: usize, see: impl FnMut(&[u8])) -> usize {
        let n = (most as u64).min(self.readable()) as usize;
        if n > 0 {
            self.store.show(self.read.0, n, see);
            self.read += n as u64;
            self.store.free_before(self.read.0);
        }
        n
    }

    /// Shows the application at most `most` bytes, in parts where they lie, and keeps them.
    pub(crate) fn peek_with(&self, most: usize, see: impl FnMut(&[u8])) -> usize {
        let n = (most as u64).min(self.readable()) as usize;
        if n > 0 {
            self.store.show(self.read.0, n, see);
        }
        n
    }

    /// The queue is empty and holds much memory.
    pub(crate) fn idles_large(&self) -> bool {
        self.top() == self.read && self.store.is_large()
    }

    /// Releases memory that was idle since the last call.
    pub(crate) fn release_idle(&mut self) {
        if self.top() == self.read {
            self.store.release_idle(self.read.0);
        }
    }

    /// The application reads no more: drops everything that has arrived in order.
    pub(crate) fn skip(&mut self) {
        self.read = self.next;
        self.store.free_before(self.read.0);
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self) {
        self.read = self.next;
        self.store.clear(self.read.0);
        self.arrived.clear();
        self.claims = Vec::new();
    }

    /// Bytes that wait: for the application, behind a hole, or for their mapping's checksum.
    pub(crate) fn held(&self) -> usize {
        let claimed: u64 = self.claims.iter().map(|c| c.end - c.start).sum();
        (self.readable() + self.arrived.bytes() + claimed) as usize
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.store.memory() + self.arrived.memory() + self.claims.capacity() * size_of::<Claim>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    fn drain(q: &mut ReceiveQueue) -> Vec<u8> {
        let mut out = vec![0; q.readable() as usize];
        let n = q.read(&mut out);
        out.truncate(n);
        out
    }

    impl ReceiveQueue {
        fn read(&mut self, out: &mut [u8]) -> usize {
            let (most, mut rest) = (out.len(), out);
            self.read_with(most, |part| {
                let (place, behind) = core::mem::take(&mut rest).split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            })
        }
    }

    #[test]
    fn holes_fill_and_the_first_copy_wins() {
        // rfc8684:D6
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        assert_eq!(q.accept(None, Offset(3), b"def"), (Placed::Stored, 0));
        assert!(q.has_holes());
        assert_eq!(q.accept(None, Offset(2), b"CDEFG"), (Placed::Stored, 0));
        assert_eq!(q.accept(None, Offset(0), b"ab"), (Placed::Stored, 7));
        assert_eq!(drain(&mut q), b"abCdefG");
    }

    #[test]
    fn nothing_beyond_the_window_is_kept_or_acknowledged() {
        // rfc8684:D25,W2
        let mut q = ReceiveQueue::new(10, ReceiveAlgorithm::default());
        let far = Offset(10 + LARGEST_UNIT);
        assert_eq!(q.accept(None, far, b"abcd"), (Placed::BeyondWindow, 0));
        assert_eq!(
            q.accept(None, Offset(far.0 - 2), b"abcd"),
            (Placed::BeyondWindow, 0)
        );
        assert_eq!(q.data_ack(), Offset(0));
        q.accept(None, Offset(0), &alloc::vec![1; far.0 as usize - 2]);
        assert_eq!(
            q.data_ack(),
            far,
            "what was within the window is kept, the rest is not"
        );
    }

    #[test]
    fn a_peer_that_adds_an_old_window_to_a_new_data_ack_loses_nothing() {
        // rfc8684:W2,D25
        let mut q = ReceiveQueue::new(100_000, ReceiveAlgorithm::default());
        q.advertised(100_000);
        q.accept(None, Offset(0), &vec![1; 60_000]);
        q.advertised(q.window(1));
        // Nothing was read, so 40,000 are left; an idle subflow of the peer still assumes 100,000.
        assert_eq!(q.window(1), 40_000);
        let at = Offset(60_000);
        assert_eq!(
            q.accept(None, at, &vec![2; 100_000]),
            (Placed::Stored, 100_000)
        );
        assert_eq!(q.window(1), 0, "that does not make the window larger");
        assert_eq!(
            q.accept(None, Offset(260_000 + LARGEST_UNIT), b"x"),
            (Placed::BeyondWindow, 0)
        );
        assert_eq!(drain(&mut q).len(), 160_000);
        assert_eq!(q.window(1), 100_000);
    }

    #[test]
    fn what_is_kept_counts_from_what_was_read_however_many_old_windows_are_added() {
        // rfc8684:W2,D25
        let mut q = ReceiveQueue::new(100_000, ReceiveAlgorithm::default());
        q.advertised(100_000);
        let mut read = 0;
        for round in 0..6 {
            // Idle subflows, each with the window advertised at the beginning.
            for _ in 0..64 {
                q.accept(None, q.next(), &vec![1; 100_000]);
                q.advertised(q.window(1));
            }
            assert_eq!(q.held() as u64, 200_000 + LARGEST_UNIT, "round {round}");
            assert_eq!((q.allowance(), q.spare()), (0, 0));
            let mut out = vec![0; 10_000 + round];
            read += q.read(&mut out);
            assert_eq!(q.spare() as usize, 10_000 + round);
        }
        assert_eq!(q.bytes_read(), read as u64);
    }

    #[test]
    fn the_advertised_edge_stays_when_the_buffer_shrinks() {
        // rfc8684:W1
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        assert_eq!(q.window(1), 1000);
        q.advertised(1000);
        q.set_capacity(10);
        assert_eq!(q.window(1), 1000);
        q.accept(None, Offset(0), &[1; 600]);
        assert_eq!(q.window(1), 400);
    }

    #[test]
    fn small_window_gains_are_not_advertised() {
        let mut q = ReceiveQueue::new(10_000, ReceiveAlgorithm::default());
        q.advertised(10_000);
        q.accept(None, Offset(0), &[1; 10_000]);
        assert_eq!(q.window(1460), 0);
        q.read(&mut [0; 1000]);
        assert_eq!(q.window(1460), 0);
        q.read(&mut [0; 1000]);
        assert_eq!(q.window(1460), 2000);
        assert!(!q.update_due(1460));
        q.read(&mut [0; 920]);
        assert!(q.update_due(1460));
        q.advertised(2920);
        assert!(!q.update_due(1460));
    }

    #[test]
    fn a_data_fin_counts_only_when_everything_before_it_has_arrived() {
        // rfc8684:F1,F3
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        q.accept(None, Offset(0), b"ab");
        assert!(q.note_end(Offset(5)));
        assert_eq!(q.data_ack(), Offset(2));
        q.accept(None, Offset(2), b"cdefgh");
        assert_eq!(q.data_ack(), Offset(6));
        assert!(q.finished());
        assert!(!q.note_end(Offset(9)), "the end does not move");
        assert_eq!(drain(&mut q), b"abcde");
    }

    #[test]
    fn a_data_fin_beyond_the_window_is_ignored_and_one_at_its_edge_counts() {
        // rfc8684:F3,D25
        for (end, counts) in [
            (0, true),
            (1000, true),
            // As for data of a peer that adds an old window to a new Data ACK.
            (1000 + LARGEST_UNIT, true),
            (1001 + LARGEST_UNIT, false),
            (1 << 30, false),
            (1 << 40, false),
            (u64::MAX >> 1, false),
        ] {
            let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
            assert_eq!(q.note_end(Offset(end)), counts, "{end}");
            assert_eq!(q.note_end(Offset(2)), !counts, "{end}, then the right one");
        }
        // The window is full: the edge is the Data ACK itself.
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        q.advertised(1000);
        q.accept(None, Offset(0), &[1; 1000]);
        assert_eq!(q.window(1), 0);
        assert!(q.note_end(Offset(1000)) && q.finished());
        assert_eq!(q.data_ack(), Offset(1001));
    }

    const A: SubflowId = SubflowId(0);
    const B: SubflowId = SubflowId(1);

    #[test]
    fn unverified_bytes_count_after_their_checksum_and_never_before() {
        // rfc8684:B8
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        q.place(A, Offset(0), b"abc", None);
        assert_eq!(q.data_ack(), Offset(0));
        assert_eq!(q.place(B, Offset(1), b"XYZ", None).0, Placed::Contested);
        assert_eq!(q.verified(A, Offset(0)..Offset(3)), 3);
        q.place(A, Offset(3), b"bad", None);
        q.discard(A);
        assert_eq!(q.place(A, Offset(3), b"def", None).0, Placed::Stored);
        assert_eq!(q.verified(A, Offset(3)..Offset(6)), 3);
        assert_eq!(drain(&mut q), b"abcdef");
    }

    #[test]
    fn data_sent_twice_counts_as_soon_as_one_copy_is_complete() {
        let mut q = ReceiveQueue::new(1000, ReceiveAlgorithm::default());
        q.place(A, Offset(0), b"abc", None);
        // The rest of that mapping is delayed; the same data arrives on another subflow, in other pieces.
        assert_eq!(q.place(B, Offset(0), b"ab", None).0, Placed::Stored);
        assert_eq!(q.place(B, Offset(2), b"cdef", None).0, Placed::Stored);
        assert_eq!(q.verified(B, Offset(0)..Offset(6)), 6);
        assert_eq!(q.place(A, Offset(3), b"defg", None).0, Placed::Stored);
        assert_eq!(q.verified(A, Offset(0)..Offset(7)), 1);
        assert_eq!(drain(&mut q), b"abcdefg");
    }

    #[test]
    fn bytes_of_a_mapping_stay_while_others_fail_and_the_buffer_grows() {
        // rfc8684:B8
        let mut q = ReceiveQueue::new(1 << 20, ReceiveAlgorithm::default());
        let bytes = vec![7; 60_000];
        q.place(A, Offset(100_000), &bytes[..40_000], None);
        q.place(B, Offset(100_000), &bytes[..10_000], None);
        q.discard(B);
        assert_eq!(q.accept(None, Offset(500_000), b"far"), (Placed::Stored, 0));
        q.place(A, Offset(140_000), &bytes[40_000..], None);
        assert_eq!(q.verified(A, Offset(100_000)..Offset(160_000)), 0);
        q.accept(None, Offset(0), &vec![7; 100_000]);
        assert_eq!(drain(&mut q), vec![7; 160_000]);
    }
}
