//! Where the peer's stream begins, how far it has come, and where it ends.

use manypath_wire::seq::{SeqNum, Ssn};

/// The peer's FIN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fin {
    /// Not seen.
    Open,
    /// Seen: the stream ends at this position.
    At(u64),
    /// In order: nothing follows.
    Taken,
}

/// Numbers of the peer's stream. A position counts payload bytes since the SYN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    irs: SeqNum,
    /// What relative numbers count from: the peer's SYN, or the last byte that was taken with it.
    base: SeqNum,
    next: SeqNum,
    /// Position of `next`.
    offset: u64,
    fin: Fin,
}

/// Payload beyond the peer's own FIN, which no sane peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AfterFin;

impl Stream {
    /// Before the peer's SYN.
    pub(super) fn new() -> Stream {
        let zero = SeqNum::new(0);
        Stream {
            irs: zero,
            base: zero,
            next: zero,
            offset: 0,
            fin: Fin::Open,
        }
    }

    /// The peer's SYN fixes where its stream begins; `len` bytes were taken with it.
    pub(super) fn begin(&mut self, irs: SeqNum, len: u32) {
        self.irs = irs;
        self.base = irs + len;
        self.next = self.base + 1;
    }

    pub(super) fn irs(&self) -> SeqNum {
        self.irs
    }

    /// What relative numbers count from.
    pub(super) fn base(&self) -> SeqNum {
        self.base
    }

    /// The next number expected.
    pub(super) fn next(&self) -> SeqNum {
        self.next
    }

    /// In-order payload bytes since the SYN.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    /// The FIN is in order.
    pub(super) fn is_over(&self) -> bool {
        self.fin == Fin::Taken
    }

    /// Position of a number; numbers before the first byte give `None`.
    pub(super) fn position(&self, seq: SeqNum) -> Option<u64> {
        let at = self.offset as i64 + i64::from(seq.diff(self.next));
        u64::try_from(at).ok()
    }

    pub(super) fn seq_at(&self, position: u64) -> SeqNum {
        // Truncation is the meaning: sequence numbers are the low 32 bits.
        self.base + 1 + (position as u32)
    }

    pub(super) fn ssn_at(&self, position: u64) -> Ssn {
        Ssn::of(self.seq_at(position), self.base)
    }

    /// Checks payload up to position `end`, with FIN behind it or not, against the end that is known.
    pub(super) fn check_end(&self, end: u64, fin: bool) -> Result<(), AfterFin> {
        match self.fin {
            Fin::At(last) if end > last || (fin && end != last) => Err(AfterFin),
            Fin::Open | Fin::At(_) | Fin::Taken => Ok(()),
        }
    }

    /// The FIN stands at position `end`.
    pub(super) fn note_fin(&mut self, end: u64) {
        self.fin = Fin::At(end);
    }

    /// Payload up to position `reached` is in order. Returns by how much that is more.
    pub(super) fn advance(&mut self, reached: u64) -> u32 {
        let bytes = (reached - self.offset) as u32;
        self.next += bytes;
        self.offset = reached;
        bytes
    }

    /// True if the FIN is in order from now on.
    pub(super) fn take_fin(&mut self) -> bool {
        let due = self.fin == Fin::At(self.offset);
        if due {
            self.fin = Fin::Taken;
            self.next += 1;
        }
        due
    }
}
