//! Payload that arrived out of order, and what acknowledgements have to report of it (RFC 2018, RFC 2883).

use alloc::boxed::Box;

use manypath_wire::seq::SeqNum;

use super::assembler::{Assembler, grant};
use super::stream::Stream;

/// Data that is as far ahead is noise: no window is as large (RFC 7323 section 2.3).
const FAR_BEYOND: u32 = 1 << 30;

/// The most blocks that fit an option (RFC 2018 section 3).
const MOST_BLOCKS: usize = 4;

/// The block lies in the run.
fn contains(run: (SeqNum, SeqNum), block: (SeqNum, SeqNum)) -> bool {
    block.0.after_eq(run.0) && block.1.before_eq(run.1)
}

/// The out-of-order store, its memory and its reports.
#[derive(Debug)]
pub(super) struct Reassembly {
    pub(super) store: Assembler,
    /// Memory granted to it.
    memory: usize,
    /// The duplicate to report in the next acknowledgement (RFC 2883).
    dsack: Option<(SeqNum, SeqNum)>,
    /// The end of data that came from beyond the window: the peer has to send it again.
    beyond: Option<SeqNum>,
}

impl Reassembly {
    pub(super) fn new(largest_window: u32) -> Reassembly {
        Reassembly {
            store: Assembler::default(),
            memory: grant(largest_window),
            dsack: None,
            beyond: None,
        }
    }

    /// Grants memory; what is held stays.
    pub(super) fn grant(&mut self, bytes: usize) {
        self.memory = bytes;
    }

    /// Keeps payload at position `at`. Returns the bytes refused for lack of memory, and whether some of it was held already.
    pub(super) fn keep(&mut self, stream: &Stream, at: u64, data: &[u8]) -> (u32, bool) {
        let inserted = self.store.insert(at, data, self.memory);
        if let Some((from, to)) = inserted.duplicate {
            let block = (stream.seq_at(from), stream.seq_at(to));
            self.dsack.get_or_insert(block);
        }
        (inserted.refused, inserted.duplicate.is_some())
    }

    /// The next piece that is in order.
    pub(super) fn pop(&mut self, stream: &Stream) -> Option<(u64, Box<[u8]>)> {
        self.store.pop(stream.offset())
    }

    /// `len` bytes from `seq` on had arrived before.
    pub(super) fn note_duplicate(&mut self, seq: SeqNum, len: u32) {
        if len > 0 {
            self.dsack = Some((seq, seq + len));
        }
    }

    /// Data that ends at `end` came from beyond the window and is dropped; `next` is expected. What is very far ahead is no honest
    /// peer's.
    pub(super) fn note_beyond(&mut self, end: SeqNum, next: SeqNum) {
        if end.after(next) && end.since(next) < FAR_BEYOND {
            self.beyond = Some(self.beyond.map_or(end, |beyond| beyond.max(end)));
        }
    }

    /// The stream has reached `next`.
    pub(super) fn on_advance(&mut self, next: SeqNum) {
        self.beyond = self.beyond.filter(|beyond| beyond.after(next));
    }

    /// An acknowledgement reported the duplicate.
    pub(super) fn on_acknowledged(&mut self) {
        self.dsack = None;
    }

    /// There is a hole in what arrived.
    pub(super) fn has_hole(&self) -> bool {
        self.store.first().is_some()
    }

    /// What comes next fills a hole, below what is kept or below what came too early to be kept: the peer waits for the answer
    /// to send the next piece.
    pub(super) fn is_repaired(&self) -> bool {
        self.has_hole() || self.beyond.is_some()
    }

    /// There is something to report by SACK.
    pub(super) fn has_blocks(&self) -> bool {
        self.dsack.is_some() || self.has_hole()
    }

    /// SACK blocks for an acknowledgement of `said`, at most `max`: the duplicate first, then the most recent runs.
    pub(super) fn blocks<'a>(
        &'a self,
        stream: &'a Stream,
        said: SeqNum,
        max: usize,
    ) -> impl Iterator<Item = (SeqNum, SeqNum)> + 'a {
        let max = max.min(MOST_BLOCKS);
        let runs = || {
            let runs = self.store.recent(MOST_BLOCKS);
            runs.map(|(a, b)| (stream.seq_at(a), stream.seq_at(b)))
        };
        let (below, above) = match self.dsack {
            Some(dsack) if dsack.1.before_eq(said) => (Some(dsack), None),
            // Beyond the acknowledged number a block alone is read as an acknowledgement; right before the run that contains it, as a
            // duplicate (RFC 2883 section 4.2).
            Some(dsack) if max >= 2 => {
                let around = runs().find(|run| contains(*run, dsack));
                (None, around.map(|run| [dsack, run]))
            }
            Some(_) | None => (None, None),
        };
        let around = above.map(|[_, run]| run);
        below
            .into_iter()
            .chain(above.into_iter().flatten())
            .chain(runs().filter(move |run| Some(*run) != around))
            .take(max)
    }
}
