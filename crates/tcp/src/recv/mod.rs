//! The receiving half of a subflow: what the peer has sent, what may come, and what has to be acknowledged.

mod ack;
mod assembler;
mod reassembly;
mod stamps;
mod stream;
mod window;
mod withheld;

use alloc::boxed::Box;
use core::num::NonZeroU32;
use core::ops::Range;

use manypath_wire::seq::{SeqNum, Ssn};
use manypath_wire::window::WindowScale;

pub(crate) use ack::{AckPolicy, Urgency};
pub(crate) use stamps::{EchoRtt, Recent};
pub(crate) use window::RecvWindow;

use crate::time::{Duration, Instant};
use assembler::grant;
use reassembly::Reassembly;
use stream::{AfterFin, Stream};
use withheld::Acked;

/// Payload that had arrived out of order and is now next in the stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Subflow sequence number of the first byte, relative to the peer's ISN.
    pub ssn: Ssn,
    /// The bytes.
    pub bytes: Box<[u8]>,
}

/// Payload that is next in the stream, as a part of the segment's payload. The caller copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InOrder {
    /// Subflow sequence number (relative to the peer's ISN) of the first byte.
    pub ssn: Ssn,
    /// The bytes, as a range of the segment's payload.
    pub range: Range<usize>,
    /// Payload that waited for this one is ready: call [`Machine::take_ready`](crate::machine::Machine::take_ready).
    pub more_ready: bool,
}

/// Where new payload of a segment went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Placed {
    /// There was none, or no room for it.
    #[default]
    Nowhere,
    /// It is next in the stream.
    InOrder(InOrder),
    /// It left a hole before it and was kept.
    OutOfOrder,
}

/// What became of a segment's payload and FIN.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// The payload that had not arrived before.
    pub placed: Placed,
    /// Some of it had.
    pub duplicate: bool,
    /// The peer's FIN is now in order: no payload follows.
    pub fin: bool,
    /// Payload bytes dropped because out-of-order payload takes all the memory that it may.
    pub refused: u32,
}

impl Arrival {
    /// The payload that is next in the stream.
    pub fn in_order(&self) -> Option<&InOrder> {
        match &self.placed {
            Placed::InOrder(part) => Some(part),
            Placed::Nowhere | Placed::OutOfOrder => None,
        }
    }

    /// Payload that waited for this one is ready.
    pub fn more_ready(&self) -> bool {
        self.in_order().is_some_and(|part| part.more_ready)
    }

    /// A segment that repeats what had arrived before.
    pub(crate) fn repeated(duplicate: bool) -> Arrival {
        Arrival {
            duplicate,
            ..Arrival::default()
        }
    }
}

/// Bytes of memory that out-of-order payload may take where the receive window is `window` bytes: as much again for what
/// small pieces cost, and a little so that a few always fit.
pub const fn reassembly_grant(window: u32) -> usize {
    grant(window)
}

/// The receiving half.
#[derive(Debug)]
pub(crate) struct Receiver {
    stream: Stream,
    reassembly: Reassembly,
    acked: Acked,
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
            stream: Stream::new(),
            reassembly: Reassembly::new(largest_window),
            acked: Acked::new(),
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
        self.begin_behind(irs, 0, scale);
    }

    /// The peer's SYN carried `len` bytes of payload that the caller takes.
    pub(crate) fn payload_of_syn(&mut self, len: u32) {
        self.begin_behind(self.irs(), len, self.window.scale());
    }

    fn begin_behind(&mut self, irs: SeqNum, len: u32, scale: WindowScale) {
        self.stream.begin(irs, len);
        self.acked.begin(self.next());
        self.window.restart(self.next(), scale);
    }

    pub(crate) fn irs(&self) -> SeqNum {
        self.stream.irs()
    }

    /// What relative numbers of the peer's stream count from.
    pub(crate) fn base(&self) -> SeqNum {
        self.stream.base()
    }

    /// The next number expected.
    pub(crate) fn next(&self) -> SeqNum {
        self.stream.next()
    }

    /// What acknowledgements say.
    pub(crate) fn acknowledges(&self) -> SeqNum {
        self.acked.number(self.next(), self.held() > 0)
    }

    /// From now on the last `bytes` of what arrives stay unacknowledged; more than that is acknowledged at once.
    pub(crate) fn withhold(&mut self, bytes: Option<NonZeroU32>) {
        if self.acked.withhold(bytes) {
            self.ack.force();
        }
    }

    pub(crate) fn fin_done(&self) -> bool {
        self.stream.is_over()
    }

    pub(crate) fn held(&self) -> u32 {
        self.reassembly.store.bytes() as u32
    }

    /// Bytes of memory that out-of-order payload takes.
    pub(crate) fn memory(&self) -> usize {
        self.reassembly.store.cost()
    }

    /// Grants memory to out-of-order payload; what is held stays.
    pub(crate) fn grant(&mut self, bytes: usize) {
        self.reassembly.grant(bytes);
    }

    pub(crate) fn last_ack_sent(&self) -> SeqNum {
        self.acked.last_sent()
    }

    /// Takes payload (and FIN) that starts at `seq`, and returns by how many bytes the stream grew. The segment passed the
    /// acceptance test.
    fn payload(&mut self, seq: SeqNum, data: &[u8], fin: bool) -> Result<(Arrival, u32), AfterFin> {
        if self.fin_done() {
            return Ok((Arrival::repeated(true), 0));
        }
        let Some(end) = self.stream.position(seq + data.len() as u32) else {
            return Ok((Arrival::repeated(!data.is_empty()), 0));
        };
        let limit = self.stream.offset() + u64::from(self.window.open(self.next()));
        self.stream.check_end(end, fin)?;
        let stop = end.min(limit);
        if fin && stop == end && end >= self.stream.offset() {
            self.stream.note_fin(end);
        }
        let mut got = Arrival::default();
        let advanced = self.take(seq, data, end, stop, &mut got);
        got.fin = self.stream.take_fin();
        Ok((got, advanced))
    }

    /// Takes the payload up to position `stop`, of a segment that ends at `end`. Returns by how many bytes the stream grew.
    fn take(&mut self, seq: SeqNum, data: &[u8], end: u64, stop: u64, got: &mut Arrival) -> u32 {
        let len = data.len() as u64;
        if len == 0 {
            return 0;
        }
        let offset = self.stream.offset();
        let old = (offset + len).saturating_sub(end).min(len);
        if old > 0 {
            got.duplicate = true;
            self.reassembly.note_duplicate(seq, old as u32);
        }
        let start = end - (len - old);
        if start >= stop {
            return 0;
        }
        let skip = old as usize;
        let fresh = &data[skip..skip + (stop - start) as usize];
        if start > offset {
            got.placed = Placed::OutOfOrder;
            self.keep(start, fresh, got);
            return 0;
        }
        // Bytes that are held already stay as they are; only what comes before them is taken from the segment.
        let store = &mut self.reassembly.store;
        let direct_end = store.first().map_or(stop, |first| first.min(stop));
        let direct = (direct_end - start) as usize;
        if direct_end < stop {
            self.keep(direct_end, &fresh[direct..], got);
        }
        let reached = self.reassembly.store.advance(direct_end);
        if direct > 0 {
            got.placed = Placed::InOrder(InOrder {
                ssn: self.stream.ssn_at(start),
                range: skip..skip + direct,
                more_ready: reached > direct_end,
            });
        }
        let advanced = self.stream.advance(reached);
        self.reassembly.on_advance(self.stream.next());
        advanced
    }

    fn keep(&mut self, at: u64, data: &[u8], got: &mut Arrival) {
        let (refused, duplicate) = self.reassembly.keep(&self.stream, at, data);
        got.refused = refused;
        got.duplicate |= duplicate;
    }

    /// The next chunk that is in order.
    pub(crate) fn take_ready(&mut self) -> Option<Chunk> {
        let (at, bytes) = self.reassembly.pop(&self.stream)?;
        Some(Chunk {
            ssn: self.stream.ssn_at(at),
            bytes,
        })
    }

    /// Notes a wholly old segment, to be reported by DSACK.
    pub(crate) fn note_duplicate(&mut self, seq: SeqNum, len: u32) {
        self.reassembly.note_duplicate(seq, len);
    }

    /// SACK blocks for the next acknowledgement, at most `max`.
    pub(crate) fn sack_blocks(&self, max: usize) -> impl Iterator<Item = (SeqNum, SeqNum)> + '_ {
        self.reassembly
            .blocks(&self.stream, self.acknowledges(), max)
    }

    /// Data that ends at `end` came from beyond the window and is dropped.
    pub(crate) fn note_beyond(&mut self, end: SeqNum) {
        self.reassembly.note_beyond(end, self.next());
    }

    /// There is something to report by SACK.
    pub(crate) fn has_blocks(&self) -> bool {
        self.reassembly.has_blocks()
    }

    /// The window field of a segment that is not a SYN; `step` is the smallest gain worth telling. It counts from what the
    /// segment acknowledges.
    pub(crate) fn window_field(&self, step: u32) -> u16 {
        self.window.field(self.acknowledges(), self.next(), step)
    }

    /// An acknowledgement left, offering `window` bytes.
    pub(crate) fn acknowledged(&mut self, window: u32) {
        let said = self.acknowledges();
        self.acked.sent(self.next(), said);
        self.reassembly.on_acknowledged();
        self.window.offered(said, window);
        self.ack.sent();
    }

    /// Frees the out-of-order store.
    pub(crate) fn clear(&mut self) {
        self.reassembly.store.clear();
    }

    /// Takes payload (and FIN) that starts at `seq`, and applies the acknowledgement policy to it: `mss` and `delay` as in
    /// [`AckPolicy::arrived`]. Returns by how many bytes the stream grew.
    pub(crate) fn accept(
        &mut self,
        now: Instant,
        (seq, data, fin): (SeqNum, &[u8], bool),
        mss: u32,
        delay: Duration,
    ) -> Option<(Arrival, u32)> {
        let repairs = self.reassembly.is_repaired();
        let (got, advanced) = self.payload(seq, data, fin).ok()?;
        let plain = advanced > 0
            && !repairs
            && got.placed != Placed::OutOfOrder
            && !got.duplicate
            && !got.fin;
        let urgency = if plain && got.refused == 0 {
            Urgency::InOrder(advanced)
        } else {
            Urgency::Now
        };
        self.ack.arrived(now, urgency, mss, delay);
        Some((got, advanced))
    }
}
