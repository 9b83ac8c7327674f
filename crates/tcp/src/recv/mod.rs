//! The receiving half of a subflow: what the peer has sent, what may come, and what has to be acknowledged.

mod ack;
mod assembler;
mod stamps;
mod window;

use alloc::boxed::Box;
use core::ops::Range;

use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::window::WindowScale;

pub(crate) use ack::{AckPolicy, Urgency};
pub(crate) use stamps::{EchoRtt, Recent};
pub(crate) use window::RecvWindow;

use crate::time::{Duration, Instant};
use assembler::{Assembler, grant};

/// Payload that had arrived out of order and is now next in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Subflow sequence number of the first byte, relative to the peer's ISN.
    pub ssn: Ssn,
    /// The bytes.
    pub bytes: Box<[u8]>,
}

/// Data that is as far ahead is noise: no window is as large (RFC 7323 section 2.3).
const FAR_BEYOND: u32 = 1 << 30;

/// What became of a segment's payload and FIN.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Received {
    pub(crate) in_order: Option<(Ssn, Range<usize>)>,
    pub(crate) more_ready: bool,
    pub(crate) out_of_order: bool,
    pub(crate) duplicate: bool,
    pub(crate) fin: bool,
    /// Bytes the stream grew by.
    pub(crate) advanced: u32,
    /// Bytes refused for lack of memory.
    pub(crate) refused: u32,
    /// Payload beyond the peer's own FIN, which no sane peer sends.
    pub(crate) after_fin: bool,
}

/// Bytes of memory that out-of-order payload may take where the receive window is `window` bytes: as much again for what
/// small pieces cost, and a little so that a few always fit.
pub const fn reassembly_grant(window: u32) -> usize {
    grant(window)
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiver {
    irs: SeqNum,
    /// What relative numbers of the peer's stream count from: its SYN, or the last byte that was taken with it.
    base: SeqNum,
    next: SeqNum,
    /// In-order payload bytes since the SYN.
    offset: u64,
    /// Where the peer's stream ends, once its FIN was seen.
    fin_at: Option<u64>,
    fin_done: bool,
    assembler: Assembler,
    /// The duplicate to report in the next acknowledgement (RFC 2883).
    dsack: Option<(SeqNum, SeqNum)>,
    last_ack_sent: SeqNum,
    /// What the newest acknowledgement said. It stays behind `last_ack_sent` while something is withheld.
    told: SeqNum,
    /// Of what arrived last, so many bytes are not acknowledged.
    withheld: u32,
    /// The end of data that came from beyond the window: the peer has it to send again.
    beyond: Option<SeqNum>,
    /// Memory granted for out-of-order payload.
    memory: usize,
    pub(crate) window: RecvWindow,
    pub(crate) ack: AckPolicy,
    /// Present once timestamps are agreed on.
    pub(crate) recent: Option<Recent>,
    /// Echo congestion until the peer says that it reduced (RFC 3168 section 6.1.3).
    pub(crate) ecn_echo: bool,
    /// Round trip as the receiver of data sees it.
    rtt: EchoRtt,
}

impl Receiver {
    pub(crate) fn new(largest_window: u32) -> Self {
        let zero = SeqNum::new(0);
        Receiver {
            irs: zero,
            base: zero,
            next: zero,
            offset: 0,
            fin_at: None,
            fin_done: false,
            assembler: Assembler::default(),
            dsack: None,
            last_ack_sent: zero,
            told: zero,
            withheld: 0,
            beyond: None,
            memory: grant(largest_window),
            window: RecvWindow::new(zero, largest_window, WindowScale::NONE),
            ack: AckPolicy::new(),
            recent: None,
            ecn_echo: false,
            rtt: EchoRtt::default(),
        }
    }

    /// A segment with payload echoes the timestamp `echo`, which left `ago`.
    pub(crate) fn note_echo(&mut self, echo: u32, ago: Duration) {
        self.rtt.note(echo, ago);
    }

    /// Round trip as measured by such echoes.
    pub(crate) fn rtt(&self) -> Option<Duration> {
        self.rtt.smoothed
    }

    /// The peer's SYN fixes where its stream begins.
    pub(crate) fn begin(&mut self, irs: SeqNum, scale: WindowScale) {
        self.irs = irs;
        self.base = irs;
        self.next = irs + 1;
        self.last_ack_sent = self.next;
        self.told = self.next;
        self.window.restart(self.next, scale);
    }

    pub(crate) fn irs(&self) -> SeqNum {
        self.irs
    }

    /// What relative numbers of the peer's stream count from.
    pub(crate) fn base(&self) -> SeqNum {
        self.base
    }

    /// The peer's SYN carried `len` bytes of payload that the caller takes.
    pub(crate) fn payload_of_syn(&mut self, len: u32) {
        self.base = self.irs + len;
        self.next = self.base + 1;
        self.last_ack_sent = self.next;
        self.told = self.next;
        self.window.restart(self.next, self.window.scale());
    }

    /// The next number expected.
    pub(crate) fn next(&self) -> SeqNum {
        self.next
    }

    /// What acknowledgements say: the next number expected, less what is withheld. It never goes back. In front of a hole nothing
    /// is: who waits for the acknowledgement of what comes before would not fill it.
    pub(crate) fn acknowledges(&self) -> SeqNum {
        let withheld = if self.held() == 0 { self.withheld } else { 0 };
        self.told.max(self.next - withheld)
    }

    pub(crate) fn withheld(&self) -> u32 {
        self.withheld
    }

    /// From now on the last `bytes` of what arrives stay unacknowledged.
    pub(crate) fn withhold(&mut self, bytes: u32) {
        self.withheld = bytes;
    }

    pub(crate) fn fin_done(&self) -> bool {
        self.fin_done
    }

    pub(crate) fn held(&self) -> u32 {
        self.assembler.bytes() as u32
    }

    /// Bytes of memory that out-of-order payload takes.
    pub(crate) fn memory(&self) -> usize {
        self.assembler.cost()
    }

    /// Grants memory to out-of-order payload; what is held stays.
    pub(crate) fn grant(&mut self, bytes: usize) {
        self.memory = bytes;
    }

    pub(crate) fn last_ack_sent(&self) -> SeqNum {
        self.last_ack_sent
    }

    /// Position of a number in the peer's stream; numbers before its first byte give `None`.
    fn position(&self, seq: SeqNum) -> Option<u64> {
        let at = self.offset as i64 + i64::from(seq.diff(self.next));
        u64::try_from(at).ok()
    }

    fn seq_at(&self, position: u64) -> SeqNum {
        // Truncation is the meaning: sequence numbers are the low 32 bits.
        self.base + 1 + (position as u32)
    }

    fn ssn_at(&self, position: u64) -> Ssn {
        Ssn::of(self.seq_at(position), self.base)
    }

    /// Takes payload (and FIN) that starts at `seq`. The segment passed the acceptance test.
    pub(crate) fn payload(&mut self, seq: SeqNum, data: &[u8], fin: bool) -> Received {
        let mut got = Received::default();
        if self.fin_done {
            got.duplicate = true;
            return got;
        }
        let Some(end) = self.position(seq + data.len() as u32) else {
            got.duplicate = !data.is_empty();
            return got;
        };
        let limit = self.offset + u64::from(self.window.open(self.next));
        let known_end = self.fin_at;
        if known_end.is_some_and(|last| end > last || (fin && end != last)) {
            got.after_fin = true;
            return got;
        }
        let stop = end.min(limit);
        if fin && stop == end && end >= self.offset {
            self.fin_at = Some(end);
        }
        self.take(seq, data, end, stop, &mut got);
        if self.fin_at == Some(self.offset) {
            self.fin_done = true;
            self.next += 1;
            got.fin = true;
        }
        got
    }

    fn take(&mut self, seq: SeqNum, data: &[u8], end: u64, stop: u64, got: &mut Received) {
        let len = data.len() as u64;
        if len == 0 {
            return;
        }
        let old = (self.offset + len).saturating_sub(end).min(len);
        if old > 0 {
            got.duplicate = true;
            self.dsack = Some((seq, seq + old as u32));
        }
        let start = end - (len - old);
        if start >= stop {
            return;
        }
        let skip = old as usize;
        let fresh = &data[skip..skip + (stop - start) as usize];
        if start > self.offset {
            got.out_of_order = true;
            self.keep(start, fresh, got);
            return;
        }
        // Bytes that are held already stay as they are; only what comes before them is taken from the segment.
        let direct_end = self.assembler.first().map_or(stop, |first| first.min(stop));
        let direct = (direct_end - start) as usize;
        if direct > 0 {
            got.in_order = Some((self.ssn_at(start), skip..skip + direct));
        }
        if direct_end < stop {
            self.keep(direct_end, &fresh[direct..], got);
        }
        let reached = self.assembler.advance(direct_end);
        got.more_ready = reached > direct_end;
        got.advanced = (reached - self.offset) as u32;
        self.next += got.advanced;
        self.offset = reached;
        self.beyond = self.beyond.filter(|beyond| beyond.after(self.next));
    }

    fn keep(&mut self, at: u64, data: &[u8], got: &mut Received) {
        let inserted = self.assembler.insert(at, data, self.memory);
        got.refused = inserted.refused;
        if let Some((from, to)) = inserted.duplicate {
            got.duplicate = true;
            if self.dsack.is_none() {
                self.dsack = Some((self.seq_at(from), self.seq_at(to)));
            }
        }
    }

    /// The next chunk that is in order.
    pub(crate) fn take_ready(&mut self) -> Option<Chunk> {
        let (at, bytes) = self.assembler.pop(self.offset)?;
        Some(Chunk {
            ssn: self.ssn_at(at),
            bytes,
        })
    }

    /// Notes a wholly old segment, to be reported by DSACK.
    pub(crate) fn note_duplicate(&mut self, seq: SeqNum, len: u32) {
        if len > 0 {
            self.dsack = Some((seq, seq + len));
        }
    }

    /// SACK blocks for the next acknowledgement, at most `max`: the duplicate first, then the most recent runs.
    pub(crate) fn sack_blocks(&self, max: usize) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        let max = max.min(4);
        // A block beyond the acknowledged number would not be read as a duplicate, but as an acknowledgement (RFC 2883
        // section 4).
        let said = self.acknowledges();
        self.dsack
            .filter(|(_, end)| end.before_eq(said))
            .into_iter()
            .chain(
                self.assembler
                    .recent(max)
                    .map(|(a, b)| (self.seq_at(a), self.seq_at(b))),
            )
            .take(max)
    }

    /// True when there is a hole in what arrived.
    pub(crate) fn has_hole(&self) -> bool {
        self.assembler.first().is_some()
    }

    /// Data that ends at `end` came from beyond the window and is dropped. What is very far ahead is no honest peer's.
    pub(crate) fn note_beyond(&mut self, end: SeqNum) {
        if end.after(self.next) && end.since(self.next) < FAR_BEYOND {
            self.beyond = Some(self.beyond.map_or(end, |beyond| beyond.max(end)));
        }
    }

    /// What comes next fills a hole, below what is kept or below what came too early to be kept: the peer waits for the answer
    /// to send the next piece.
    pub(crate) fn is_repaired(&self) -> bool {
        self.has_hole() || self.beyond.is_some()
    }

    /// There is something to report by SACK.
    pub(crate) fn has_blocks(&self) -> bool {
        self.dsack.is_some() || self.has_hole()
    }

    /// The window field of a segment that is not a SYN; `step` is the smallest gain worth telling. It counts from what the
    /// segment acknowledges.
    pub(crate) fn window_field(&self, step: u32) -> u16 {
        self.window.field(self.acknowledges(), self.next, step)
    }

    /// An acknowledgement left, offering `window` bytes.
    pub(crate) fn acknowledged(&mut self, window: u32) {
        self.last_ack_sent = self.next;
        self.told = self.acknowledges();
        self.dsack = None;
        self.window.offered(self.told, window);
        self.ack.sent();
    }

    /// Frees the out-of-order store.
    pub(crate) fn clear(&mut self) {
        self.assembler.clear();
    }

    /// Applies the acknowledgement policy to what arrived.
    pub(crate) fn owe(
        &mut self,
        now: Instant,
        got: &Received,
        had_hole: bool,
        mss: u32,
        delay: Duration,
    ) {
        let plain =
            got.advanced > 0 && !had_hole && !got.out_of_order && !got.duplicate && !got.fin;
        let urgency = if plain && got.refused == 0 {
            Urgency::InOrder(got.advanced)
        } else {
            Urgency::Now
        };
        self.ack.arrived(now, urgency, mss, delay);
    }
}
