//! The connection's send queue: the application's bytes until both levels acknowledged them (RFC 8684 section 3.3.5).
//!
//! Owns the bytes, what was sent of them, the Data ACK, the peer's window, the DATA_FIN, and what has to be reinjected. Must never know
//! which subflow carries what.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::ops::Range;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::checksum::Sum;

use crate::conn::dss::offset::Offset;
use crate::conn::send::ring::ByteRing;
use crate::ids::SubflowId;

/// A part of the stream that is to be sent again on another subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reinjection {
    pub(crate) from: Offset,
    pub(crate) to: Offset,
    /// The subflow that has it in flight already, if still alive.
    pub(crate) avoid: Option<SubflowId>,
}

/// Bytes that may always be queued, within the buffer's size, whatever is in flight.
const SHORT_QUEUE: u64 = 256 * 1024;
/// The same while memory is short.
const FRUGAL_QUEUE: u64 = 16 * 1024;

/// Unsent bytes that are worth sending at once, whatever the application does next: eight bursts. The receiver wakes once for the train,
/// and not once for each burst.
const TRAIN: u64 = 512 * 1024;

/// Maximum queued reinjections; the rest is left to the subflow's own retransmission, or to the data-level timer.
const MOST_REINJECTIONS: usize = 4096;

/// Reinjections searched for the next one.
const MOST_LOOKED_AT: usize = 16;

/// The right edge where only the subflow obeys the peer's window.
const OPEN: Offset = Offset(u64::MAX);

/// State of the close of our direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FinState {
    /// The application may still write.
    Open,
    /// Closed by the application; the DATA_FIN follows the last byte.
    Queued,
    /// On the wire at least once.
    Sent,
    /// The peer acknowledged it.
    Acked,
}

/// Our DATA_FIN (RFC 8684 section 3.3.3).
#[derive(Clone, Copy, Debug)]
pub(crate) struct DataFin {
    pub(crate) state: FinState,
    /// It was sent, and may have been lost.
    pub(crate) lost: bool,
    /// When it was last sent.
    sent_at: Option<Instant>,
    /// Data-level time-outs that passed since it was first sent.
    unanswered: u8,
}

/// Effect of a Data ACK.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DataAcked {
    /// Bytes newly acknowledged.
    pub(crate) bytes: u64,
    /// It acknowledged our DATA_FIN.
    pub(crate) fin: bool,
    /// The window's right edge moved.
    pub(crate) window_grew: bool,
    /// It acknowledged what was never sent and was ignored.
    pub(crate) impossible: bool,
}

#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: ByteRing,
    /// First byte that the ring still holds.
    base: Offset,
    /// First byte without a Data ACK.
    una: Offset,
    /// First byte never sent.
    next: Offset,
    /// After the last byte written.
    end: Offset,
    /// Right edge of the peer's window. // rfc8684:W1,W2
    edge: Offset,
    capacity: u32,
    /// The buffer that the paths need, with auto-tuning.
    tuned: Option<u64>,
    pub(crate) fin: DataFin,
    /// The end of what was sent more than once at data level.
    resent_to: Offset,
    /// The final byte, if the ring no longer holds it: a fallback may need it.
    last: Option<u8>,
    /// Memory is short.
    frugal: bool,
    /// The application's last write did not fit: it will write more as soon as it may.
    pub(crate) writer_has_more: bool,
    reinjections: VecDeque<Reinjection>,
    pub(crate) bytes_reinjected: u64,
}

impl SendQueue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            ring: ByteRing::new(),
            base: Offset::ZERO,
            una: Offset::ZERO,
            next: Offset::ZERO,
            end: Offset::ZERO,
            edge: Offset::ZERO,
            capacity,
            tuned: None,
            fin: DataFin {
                state: FinState::Open,
                lost: false,
                sent_at: None,
                unanswered: 0,
            },
            resent_to: Offset::ZERO,
            last: None,
            frugal: false,
            writer_has_more: false,
            reinjections: VecDeque::new(),
            bytes_reinjected: 0,
        }
    }

    pub(crate) fn una(&self) -> Offset {
        self.una
    }

    pub(crate) fn next(&self) -> Offset {
        self.next
    }

    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    /// Right edge of the peer's window; none where only the subflow has one.
    pub(crate) fn edge(&self) -> Option<Offset> {
        Some(self.edge).filter(|edge| *edge < OPEN)
    }

    /// Stops auto-tuning.
    pub(crate) fn untune(&mut self) {
        self.tuned = None;
    }

    /// Sets the buffer that the paths need.
    pub(crate) fn tune(&mut self, bytes: u64) {
        self.tuned = Some(bytes);
    }

    pub(crate) fn set_capacity(&mut self, bytes: u32) {
        self.capacity = bytes;
    }

    /// Bytes that the application may write now.
    pub(crate) fn room(&self) -> usize {
        self.limit().saturating_sub(self.end - self.una) as usize
    }

    /// Bytes that may be queued now: three times what is in flight, so that the window can double and there is always something to send,
    /// but no more. A short queue stays in the cache, and what the application writes leaves soon.
    fn limit(&self) -> u64 {
        let in_flight = self.next - self.una;
        // Twice what was measured, for the same reason.
        let tuned = self.tuned.map_or(u64::MAX, |bytes| bytes.saturating_mul(2));
        (in_flight * 3)
            .min(tuned)
            .max(if self.frugal {
                FRUGAL_QUEUE
            } else {
                SHORT_QUEUE
            })
            .min(u64::from(self.capacity))
    }

    /// Half of what may be queued is: the application has much to send. A writer woken for a quarter of the room fills it at once.
    pub(crate) fn is_busy(&self) -> bool {
        let most = self.limit().min(self.window());
        (self.end - self.una) * 2 > most
    }

    /// Memory is short, or no longer.
    pub(crate) fn set_frugal(&mut self, frugal: bool) {
        self.frugal = frugal;
    }

    /// Wakes a writer that found no room for a quarter of the buffer, not for every acknowledgement.
    pub(crate) fn write_room_event_due(&self) -> bool {
        self.room() as u64 >= (self.limit() / 4).max(1)
    }

    /// Written and not acknowledged.
    pub(crate) fn queued(&self) -> u64 {
        self.end - self.una
    }

    /// Has the application write as many of `most` bytes as fit, in parts where they lie, and returns how many.
    pub(crate) fn write_with(&mut self, most: usize, fill: impl FnMut(&mut [u8])) -> usize {
        let n = most.min(self.room());
        if n > 0 {
            self.ring
                .reserve(self.base.0..self.end.0, self.end.0 + n as u64);
            self.ring.write_with(self.end.0, n, fill);
            self.end += n as u64;
        }
        n
    }

    /// What was written can wait for the next write: an acknowledgement will come that sends it at the latest, there is room to write, and
    /// the train is not full.
    pub(crate) fn may_gather(&self) -> bool {
        let unsent = self.end - self.next;
        self.fin.state == FinState::Open
            && self.next > self.una
            && unsent < TRAIN
            && self.room() > 0
    }

    /// Everything was sent once.
    pub(crate) fn all_sent(&self) -> bool {
        self.next == self.end
    }

    /// More is queued than this many new bytes.
    pub(crate) fn waits_behind(&self, bytes: u64) -> bool {
        self.end.since(self.next) > bytes
    }

    /// The stream ends after this many new bytes.
    pub(crate) fn ends_behind(&self, bytes: u64) -> bool {
        self.fin.state != FinState::Open && self.next + bytes == self.end
    }

    /// The DATA_FIN is due, after all data. // rfc8684:F1
    pub(crate) fn owes_fin(&self) -> bool {
        let again =
            self.fin.lost && self.fin.state == FinState::Sent && self.reinjections.is_empty();
        self.all_sent() && (self.fin.state == FinState::Queued || again)
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.ring.memory()
    }

    /// Bytes that may be without Data ACK at one time: the peer's window or our buffer.
    pub(crate) fn window(&self) -> u64 {
        self.edge.since(self.una).min(u64::from(self.capacity))
    }

    /// New bytes that the peer's window allows.
    pub(crate) fn sendable(&self) -> u64 {
        self.end.min(self.edge).since(self.next)
    }

    /// New bytes wait and the peer's window allows none of them.
    pub(crate) fn blocked_by_window(&self) -> bool {
        self.end > self.next && self.edge <= self.next
    }

    /// Marks new bytes as sent.
    pub(crate) fn sent(&mut self, bytes: u32) {
        self.next += u64::from(bytes);
        debug_assert!(self.next <= self.end, "sent more than was written");
    }

    /// Takes a Data ACK and its window, whose right edge never moves left.
    // rfc8684:D20,D24,W1,W5,W6
    pub(crate) fn data_ack(&mut self, ack: Offset, window: u64) -> DataAcked {
        let fin = u64::from(matches!(self.fin.state, FinState::Sent | FinState::Acked));
        if ack > self.next + fin {
            return DataAcked {
                impossible: true,
                ..DataAcked::default()
            };
        }
        let mut done = DataAcked::default();
        if self.fin.state == FinState::Sent && ack > self.end {
            self.fin.state = FinState::Acked;
            done.fin = true;
            self.reinjections.clear();
        }
        let bytes_ack = ack.min(self.end);
        done.bytes = bytes_ack.since(self.una);
        self.una = self.una.max(bytes_ack);
        let edge = ack + window;
        if edge > self.edge {
            self.edge = edge;
            done.window_grew = true;
        }
        if done.bytes > 0 {
            self.forget_reinjections();
        }
        done
    }

    /// After fallback the subflow's acknowledgement is the only one. // rfc8684:B13
    pub(crate) fn subflow_acked(&mut self, upto: Offset) -> u64 {
        let upto = upto.min(self.next);
        let bytes = upto.since(self.una);
        self.una = self.una.max(upto);
        bytes
    }

    /// Resends what has no Data ACK as new data.
    pub(crate) fn rewind(&mut self) {
        self.next = self.una;
    }

    /// After fallback only the subflow obeys the window.
    pub(crate) fn open_window(&mut self) {
        self.edge = OPEN;
    }

    /// Frees the bytes before `held`, the lowest position that a subflow may still retransmit.
    // rfc8684:D21,R2
    pub(crate) fn free(&mut self, held: Option<Offset>) {
        let upto = held.map_or(self.una, |h| h.min(self.una));
        if upto == self.end && upto > self.base {
            let mut last = [0];
            self.ring.read(self.end.0 - 1, &mut last);
            self.last = Some(last[0]);
        }
        self.base = self.base.max(upto);
    }

    /// Everything except the DATA_FIN has its Data ACK.
    pub(crate) fn lacks_data_fin_only(&self) -> bool {
        let said = matches!(self.fin.state, FinState::Queued | FinState::Sent);
        said && self.all_sent() && self.una == self.end
    }

    /// The DATA_FIN was sent.
    pub(crate) fn note_fin_sent(&mut self, now: Instant) {
        if self.fin.state == FinState::Queued {
            self.fin.state = FinState::Sent;
        }
        self.fin.lost = false;
        self.fin.sent_at = Some(now);
    }

    /// A data-level time-out passed, and the DATA_FIN, if it was sent, has no Data ACK.
    pub(crate) fn note_fin_unanswered(&mut self) {
        self.fin.unanswered = self
            .fin
            .unanswered
            .saturating_add(u8::from(self.fin.state == FinState::Sent));
    }

    /// The DATA_FIN was sent alone more than once, without Data ACK for as many data-level time-outs. // rfc8684:F2
    pub(crate) fn fin_is_unanswered(&self) -> bool {
        self.fin.state == FinState::Sent && self.fin.unanswered > 1
    }

    /// All data has its Data ACK, which would cover a DATA_FIN that was sent so long ago: it is lost. // rfc8684:F2
    pub(crate) fn detect_lost_data_fin(&mut self, now: Instant, round_trip: Duration) {
        self.fin.lost |= self.lacks_data_fin_only() && self.fin_is_overdue(now, round_trip);
    }

    /// The DATA_FIN was sent longer than a round trip ago, and has no Data ACK.
    fn fin_is_overdue(&self, now: Instant, round_trip: Duration) -> bool {
        let sent = self.fin.sent_at;
        let sent = sent.filter(|_| self.fin.state == FinState::Sent);
        sent.is_some_and(|sent| sent + round_trip < now)
    }

    /// Bytes up to `end` were retransmitted on their subflow. Where they are the last ones, the DATA_FIN that was sent behind them by
    /// itself is lost as they are: TCP's FIN comes again with its last segment. // rfc8684:F2
    pub(crate) fn note_retransmitted(&mut self, end: Offset, now: Instant, round_trip: Duration) {
        self.fin.lost |= end == self.end && self.fin_is_overdue(now, round_trip);
    }

    /// The final byte can be resent.
    pub(crate) fn knows_last_byte(&self) -> bool {
        self.end > self.base || self.last.is_some()
    }

    /// The byte at this position, if it is the final one and no longer in the ring.
    pub(crate) fn last_byte(&self, at: Offset) -> Option<u8> {
        self.last.filter(|_| at + 1 == self.end)
    }

    /// The queue is empty and holds much memory.
    pub(crate) fn idles_large(&self) -> bool {
        self.base == self.end && self.ring.is_large()
    }

    /// Releases memory that was idle since the last call.
    pub(crate) fn release_idle(&mut self) {
        if self.base == self.end {
            self.ring.release_idle();
        }
    }

    /// Acknowledged bytes kept only because a subflow still carries them.
    pub(crate) fn pinned(&self) -> u64 {
        self.una - self.base
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Copies acknowledged bytes, still held, for a subflow that keeps them itself from now on.
    pub(crate) fn copy_out(&self, range: Range<Offset>) -> Box<[u8]> {
        let mut bytes = alloc::vec![0; (range.end - range.start) as usize].into_boxed_slice();
        self.ring.read(range.start.0, &mut bytes);
        bytes
    }

    /// The ring still holds this position.
    pub(crate) fn holds(&self, at: Offset) -> bool {
        at >= self.base
    }

    /// Copies payload into a packet; with its sum if `sum`.
    pub(crate) fn payload(&self, at: Offset, out: &mut [u8], sum: bool) -> Sum {
        if sum {
            return self.ring.read_and_sum(at.0, out);
        }
        self.ring.read(at.0, out);
        Sum::ZERO
    }

    /// Payload in place, for a device that gathers it itself; with its sum if `sum`.
    pub(crate) fn lent(&self, at: Offset, len: usize, sum: bool) -> ([&[u8]; 2], Sum) {
        let (a, b) = self.ring.slices(at.0, len);
        let sum = if sum {
            self.ring.sum(at.0, len)
        } else {
            Sum::ZERO
        };
        ([a, b], sum)
    }

    /// Queues a part for reinjection on another subflow than `avoid`.
    pub(crate) fn reinject(&mut self, range: Range<Offset>, avoid: Option<SubflowId>) {
        let from = range.start.max(self.una);
        if from >= range.end {
            return;
        }
        // The oldest first: the reader waits for it.
        let at = self.reinjections.partition_point(|r| r.from <= from);
        // Mappings come in order, so consecutive ones become one entry.
        let mut before = self.reinjections.range_mut(..at).rev().take(MOST_LOOKED_AT);
        if let Some(part) = before.find(|r| r.avoid == avoid && r.to >= from) {
            part.to = part.to.max(range.end);
        } else if self.reinjections.len() < MOST_REINJECTIONS {
            let part = Reinjection {
                from,
                to: range.end,
                avoid,
            };
            self.reinjections.insert(at, part);
        }
    }

    /// The next reinjection: the oldest part for which another subflow can be found than the one to be avoided.
    pub(crate) fn reinjection(
        &self,
        possible: impl Fn(Option<SubflowId>) -> bool,
    ) -> Option<Reinjection> {
        if self.reinjections.is_empty() {
            return None;
        }
        let looked_at = self.reinjections.iter().take(MOST_LOOKED_AT);
        looked_at.copied().find(|r| possible(r.avoid))
    }

    /// The first bytes of a reinjection from here on were sent.
    pub(crate) fn reinjected(&mut self, from: Offset, bytes: u32) {
        self.note_repeated(from + u64::from(bytes));
        self.bytes_reinjected += u64::from(bytes);
        let known = self.reinjections.iter().take(MOST_LOOKED_AT);
        if let Some(at) = known.clone().position(|r| r.from == from) {
            let part = &mut self.reinjections[at];
            part.from += u64::from(bytes);
            let from = part.from;
            if from >= part.to {
                self.reinjections.remove(at);
                return;
            }
            // They stay in order.
            let ahead = self.reinjections.range(at + 1..);
            let ahead = ahead.take_while(|r| r.from < from).count();
            for i in at..at + ahead {
                self.reinjections.swap(i, i + 1);
            }
        }
    }

    /// Bytes before this were sent twice, on another subflow or under other SSNs.
    pub(crate) fn note_repeated(&mut self, to: Offset) {
        self.resent_to = self.resent_to.max(to);
    }

    /// Data that ends here may be all old to the peer: it was acknowledged, or sent another way as well.
    pub(crate) fn may_be_old(&self, to: Offset) -> bool {
        to <= self.una || to <= self.resent_to
    }

    /// Drops reinjections for a subflow that seemed unresponsive: it was only late.
    pub(crate) fn forget_reinjections_from(&mut self, late: SubflowId) {
        self.reinjections.retain(|r| r.avoid != Some(late));
    }

    /// A subflow is gone: no reinjection has to avoid it any more.
    pub(crate) fn unavoid(&mut self, gone: SubflowId) {
        for r in &mut self.reinjections {
            if r.avoid == Some(gone) {
                r.avoid = None;
            }
        }
    }

    /// Drops all reinjections: data-level retransmission ends.
    pub(crate) fn forget_all_reinjections(&mut self) {
        self.reinjections.clear();
    }

    fn forget_reinjections(&mut self) {
        let una = self.una;
        let behind = self.reinjections.partition_point(|r| r.from < una);
        let mut left = 0;
        for _ in 0..behind {
            let Some(part) = self.reinjections.pop_front() else {
                break;
            };
            if part.to > una {
                self.reinjections
                    .push_back(Reinjection { from: una, ..part });
                left += 1;
            }
        }
        self.reinjections.rotate_right(left);
    }

    /// Drops unsent data. What is in flight stays, because its subflow may have to retransmit it before it ends.
    pub(crate) fn cut(&mut self) {
        if self.next < self.end {
            // What was sent is not the whole stream, which therefore has no end.
            self.fin.state = FinState::Open;
        }
        self.end = self.next;
        self.reinjections.clear();
    }

    /// The stream has no end: a DATA_FIN that was never sent is not sent any more.
    pub(crate) fn withdraw_fin(&mut self) {
        if self.fin.state == FinState::Queued {
            self.fin.state = FinState::Open;
        }
    }

    /// Frees all memory at the end of the connection.
    pub(crate) fn clear(&mut self) {
        self.ring.clear();
        self.base = self.end;
        self.una = self.end;
        self.next = self.end;
        self.last = None;
        self.reinjections.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(bytes: usize) -> SendQueue {
        let mut q = SendQueue::new(1000);
        q.data_ack(Offset::ZERO, 10_000);
        assert_eq!(q.write(&alloc::vec![7; bytes]), bytes.min(1000));
        q
    }

    impl SendQueue {
        fn write(&mut self, bytes: &[u8]) -> usize {
            let mut rest = bytes;
            self.write_with(bytes.len(), |place| {
                let (part, behind) = rest.split_at(place.len());
                place.copy_from_slice(part);
                rest = behind;
            })
        }
    }

    #[test]
    fn bytes_are_freed_only_when_both_levels_acknowledged_them() {
        // rfc8684:D21,R2,D24
        let mut q = filled(600);
        q.sent(600);
        assert_eq!(q.room(), 400);
        assert_eq!(q.data_ack(Offset(300), 10_000).bytes, 300);
        q.free(Some(Offset(100)));
        assert_eq!(q.pinned(), 200);
        assert!(q.holds(Offset(100)) && !q.holds(Offset(99)));
        assert_eq!(
            q.room(),
            700,
            "what the peer has does not count against the application"
        );
        q.free(None);
        assert_eq!(q.pinned(), 0);
    }

    #[test]
    fn a_data_fin_that_all_data_was_acknowledged_without_is_lost() {
        // rfc8684:F2
        let at = Instant::from_millis;
        let round_trip = Duration::from_millis(30);
        let mut q = filled(600);
        q.fin.state = FinState::Queued;
        q.sent(600);
        q.note_fin_sent(at(100));
        q.data_ack(Offset(300), 10_000);
        q.detect_lost_data_fin(at(500), round_trip);
        assert!(!q.fin.lost, "data is missing as well");
        q.data_ack(Offset(600), 10_000);
        q.detect_lost_data_fin(at(120), round_trip);
        assert!(!q.fin.lost, "its answer is on its way");
        q.detect_lost_data_fin(at(131), round_trip);
        assert!(q.fin.lost && q.owes_fin());
        q.note_fin_sent(at(131));
        assert!(!q.fin.lost);
    }

    #[test]
    fn a_data_fin_is_lost_with_the_last_bytes_that_it_followed() {
        // rfc8684:F2
        let at = Instant::from_millis;
        let round_trip = Duration::from_millis(30);
        let mut q = filled(600);
        q.note_retransmitted(Offset(600), at(500), round_trip);
        assert!(!q.fin.lost, "there is none");
        q.fin.state = FinState::Queued;
        q.sent(600);
        q.note_fin_sent(at(100));
        q.note_retransmitted(Offset(300), at(500), round_trip);
        assert!(!q.fin.lost, "other bytes");
        q.note_retransmitted(Offset(600), at(130), round_trip);
        assert!(!q.fin.lost, "its answer may be on its way");
        q.note_retransmitted(Offset(600), at(131), round_trip);
        assert!(q.fin.lost && q.owes_fin());
    }

    #[test]
    fn a_data_fin_has_failed_after_two_time_outs_whatever_data_is_acknowledged_between() {
        // rfc8684:F2
        let mut q = filled(600);
        q.fin.state = FinState::Queued;
        q.sent(600);
        q.note_fin_unanswered();
        q.note_fin_sent(Instant::from_millis(100));
        q.note_fin_unanswered();
        assert!(!q.fin_is_unanswered(), "once before it was said");
        q.data_ack(Offset(600), 10_000);
        q.note_fin_unanswered();
        assert!(q.fin_is_unanswered());
        q.data_ack(Offset(601), 10_000);
        assert!(!q.fin_is_unanswered());
    }

    #[test]
    fn writes_are_gathered_only_while_acknowledgements_are_on_their_way() {
        let mut q = SendQueue::new(4 << 20);
        q.data_ack(Offset::ZERO, 4 << 20);
        let write = |q: &mut SendQueue, bytes: usize| {
            assert_eq!(q.write(&alloc::vec![7; bytes]), bytes);
        };
        write(&mut q, 1000);
        assert!(!q.may_gather(), "nothing would ever send it");
        q.sent(1000);
        write(&mut q, 1000);
        assert!(q.may_gather());
        write(&mut q, SHORT_QUEUE as usize - 2000);
        q.sent(SHORT_QUEUE as u32 - 1000);
        write(&mut q, TRAIN as usize - 1);
        assert!(q.may_gather());
        write(&mut q, 1);
        assert!(!q.may_gather(), "a full train");
        q.sent(TRAIN as u32);
        write(&mut q, 1000);
        q.fin.state = FinState::Queued;
        assert!(!q.may_gather(), "nothing follows");
        q.fin.state = FinState::Open;
        q.data_ack(q.next(), 4 << 20);
        assert!(!q.may_gather(), "everything is acknowledged");
    }

    #[test]
    fn the_right_edge_never_moves_left() {
        // rfc8684:W1,W5,W6
        let mut q = filled(1000);
        q.sent(100);
        assert!(!q.data_ack(Offset(50), 100).window_grew);
        assert_eq!(q.edge(), Some(Offset(10_000)));
        assert!(q.data_ack(Offset(60), 20_000).window_grew);
        assert_eq!(q.edge(), Some(Offset(20_060)));
    }

    #[test]
    fn an_acknowledgement_of_unsent_data_is_refused() {
        let mut q = filled(100);
        q.sent(50);
        assert!(q.data_ack(Offset(51), 1 << 30).impossible);
        assert_eq!((q.una(), q.edge()), (Offset::ZERO, Some(Offset(10_000))));
    }

    #[test]
    fn the_end_of_the_stream_is_known_once_the_writer_closed() {
        let mut q = filled(30);
        assert!(!q.ends_behind(30), "more may be written");
        q.fin.state = FinState::Queued;
        assert!(q.ends_behind(30) && !q.ends_behind(20));
        q.sent(20);
        assert!(q.ends_behind(10));
    }

    #[test]
    fn a_data_fin_takes_one_sequence_number_and_is_acknowledged_by_it() {
        // rfc8684:F1,F3
        let mut q = filled(10);
        q.sent(10);
        assert!(q.data_ack(Offset(11), 0).impossible, "not sent yet");
        q.fin.state = FinState::Sent;
        let done = q.data_ack(Offset(11), 0);
        assert!(done.fin && done.bytes == 10 && q.queued() == 0);
        assert_eq!(q.fin.state, FinState::Acked);
    }

    #[test]
    fn reinjections_merge_shrink_and_go_away() {
        let mut q = filled(1000);
        q.sent(1000);
        let bad = Some(SubflowId(1));
        q.reinject(Offset(100)..Offset(200), bad);
        q.reinject(Offset(200)..Offset(300), bad);
        q.reinject(Offset(150)..Offset(250), bad);
        assert_eq!(
            q.reinjection(|_| true),
            Some(Reinjection {
                from: Offset(100),
                to: Offset(300),
                avoid: bad
            })
        );
        q.reinjected(Offset(100), 50);
        q.data_ack(Offset(180), 10_000);
        assert_eq!(q.reinjection(|_| true).map(|r| r.from), Some(Offset(180)));
        q.unavoid(SubflowId(1));
        assert_eq!(q.reinjection(|_| true).and_then(|r| r.avoid), None);
        q.data_ack(Offset(300), 10_000);
        assert_eq!(q.reinjection(|_| true), None);
        assert_eq!(q.bytes_reinjected, 50);
    }

    #[test]
    fn reinjections_that_meet_stay_in_order() {
        let mut q = filled(1000);
        q.sent(1000);
        let (one, two) = (Some(SubflowId(1)), Some(SubflowId(2)));
        q.reinject(Offset(100)..Offset(300), one);
        q.reinject(Offset(200)..Offset(400), two);
        q.reinject(Offset(250)..Offset(500), one);
        q.reinject(Offset(600)..Offset(700), two);
        q.reinjected(Offset(100), 150);
        let first = |q: &SendQueue| q.reinjection(|_| true).map(|r| (r.from, r.to, r.avoid));
        assert_eq!(first(&q), Some((Offset(200), Offset(400), two)));
        // Both start before the Data ACK, and both continue from it.
        q.data_ack(Offset(300), 10_000);
        assert_eq!(first(&q), Some((Offset(300), Offset(400), two)));
        q.reinjected(Offset(300), 100);
        assert_eq!(first(&q), Some((Offset(300), Offset(500), one)));
        q.data_ack(Offset(650), 10_000);
        assert_eq!(first(&q), Some((Offset(650), Offset(700), two)));
        q.data_ack(Offset(700), 10_000);
        assert_eq!(first(&q), None);
    }

    #[test]
    fn the_oldest_reinjection_goes_first_and_one_without_a_subflow_blocks_no_other() {
        let mut q = filled(1000);
        q.sent(1000);
        let (one, two) = (Some(SubflowId(1)), Some(SubflowId(2)));
        q.reinject(Offset(500)..Offset(600), one);
        q.reinject(Offset(100)..Offset(200), two);
        q.reinject(Offset(300)..Offset(400), one);
        let first = |q: &SendQueue, not| q.reinjection(|avoid| avoid != not).map(|r| r.from);
        assert_eq!(first(&q, None), Some(Offset(100)));
        assert_eq!(first(&q, two), Some(Offset(300)));
        q.reinjected(Offset(300), 40);
        assert_eq!(first(&q, two), Some(Offset(340)));
        q.reinjected(Offset(340), 60);
        assert_eq!(first(&q, two), Some(Offset(500)));
        q.forget_reinjections_from(SubflowId(1));
        assert_eq!(first(&q, two), None);
        assert_eq!(first(&q, None), Some(Offset(100)));
    }
}
