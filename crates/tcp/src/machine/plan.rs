//! The questions the caller asks about sending, and the answers.

use manypath_wire::seq::{SeqNum, Ssn};

/// What the caller would like to send at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Unsent stream bytes the caller would hand over now.
    pub available: u32,
    /// The stream ends after those bytes: send FIN.
    pub fin: bool,
    /// Bytes of TCP options, a multiple of four, that the caller adds to every data segment.
    pub option_space: u8,
    /// Payload bytes that one transmission may carry (the device's segmentation); smaller than one segment counts as
    /// one segment.
    pub max_burst: u32,
    /// Nothing follows for now: mark the end with PSH and do not wait for a full segment beyond what Nagle demands.
    pub push: bool,
    /// Nagle's rule does not apply: nothing of the caller's stream waits for an acknowledgement, whatever this machine knows, or
    /// no later bytes will join these in a segment.
    pub no_nagle: bool,
    /// A tail loss probe may carry these bytes, congestion window or not (RFC 8985 section 7.3). Else it is the last segment again.
    pub probe_new: bool,
}

/// Why a segment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SYN of an active open, first time or again.
    Syn,
    /// SYN+ACK of a passive or simultaneous open, first time or again.
    SynAck,
    /// New payload bytes, perhaps with FIN behind them.
    Data,
    /// The first FIN, without payload.
    Fin,
    /// Payload (or FIN) that was sent before and is marked lost.
    Retransmit,
    /// Tail loss probe (RFC 8985 section 7): new payload if the offer allows that, else the last segment again.
    TailProbe,
    /// An empty segment one byte before the first unacknowledged one, which makes a peer with a closed window tell its
    /// window (RFC 9293 section 3.8.6.1). It takes no sequence number, so nothing has to be mapped, and a peer that
    /// opens its window finds no lone byte in the stream.
    WindowProbe,
    /// An empty segment one byte before the next number (RFC 9293 section 3.8.4).
    KeepAlive,
    /// A bare acknowledgement.
    Ack,
    /// RST; the subflow is closed once it is sent.
    Reset,
}

/// One transmission: one segment, or a burst of equal segments for a device that splits them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Why.
    pub kind: Kind,
    /// Sequence number of the first byte (or of the SYN).
    pub seq: SeqNum,
    /// The same number relative to our initial sequence number.
    pub ssn: Ssn,
    /// Payload bytes. The caller may lower it (to a mapping's end) before it commits; then `fin` must be cleared too.
    pub len: u32,
    /// FIN follows the payload.
    pub fin: bool,
    /// SYN precedes the payload.
    pub syn: bool,
    /// PSH is set.
    pub push: bool,
    /// Payload bytes per wire segment when `len` exceeds it; every segment but the last has exactly this many.
    pub mss: u32,
}

impl Plan {
    /// Sequence space that the plan takes.
    pub fn seq_len(&self) -> u32 {
        self.len + u32::from(self.fin) + u32::from(self.syn)
    }

    /// True when the payload starts at bytes that were never sent before, so that the caller has to map them.
    pub fn carries_new(&self, snd_nxt: SeqNum) -> bool {
        self.len > 0 && self.seq == snd_nxt
    }

    /// The plan with at most `len` payload bytes; a FIN behind the bytes left out is dropped with them.
    #[must_use]
    pub fn shortened(mut self, len: u32) -> Plan {
        if len < self.len {
            self.len = len;
            self.fin = false;
        }
        self
    }
}

/// What [`Machine::decide`](super::Machine::decide) answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Send this, then call [`Machine::sent`](super::Machine::sent).
    Send(Plan),
    /// Nothing may or must be sent at this moment.
    Idle,
}
