//! What a connection costs in memory, what of it the peer decides, and whether it still gets anywhere.
//!
//! Owns the bounds that hold for the connection as a whole: out-of-order payload and mappings are granted to all
//! subflows together, so that a peer gains nothing by opening more of them.

use manypath_tcp::machine::reassembly_grant;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

use super::mapping::RxMaps;
use super::offset::Offset;
use super::subflow::Subflow;
use super::{Conn, Cx};
use crate::api::{CloseCause, SubflowEnd};
use crate::ids::SubflowId;

/// How far a connection had come when it was last looked at, and when that was: what the application has read, and what
/// the peer has acknowledged. What merely arrived does not count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Advance {
    read: u64,
    acked: Offset,
    at: Instant,
}

impl Advance {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            read: 0,
            acked: Offset::ZERO,
            at: now,
        }
    }
}

impl Conn {
    /// Bytes of memory in all. Untouched parts of large buffers, which cost an operating system nothing, do not count.
    pub(crate) fn memory(&self) -> usize {
        let subflows: usize = self.subflows.iter().map(Subflow::memory).sum();
        size_of::<Self>()
            + self.send.memory()
            + self.recv.memory()
            + self.subflows.capacity() * size_of::<Subflow>()
            + subflows
            + self.ended.capacity() * size_of::<crate::api::EndedSubflow>()
    }

    /// Bytes that a peer makes us hold: out of order on its subflows and above them, or not read by the application.
    pub(crate) fn held(&self) -> usize {
        self.recv.held() + self.reassembly()
    }

    fn reassembly(&self) -> usize {
        let each = self.subflows.iter().map(|sf| sf.tcp.reassembly_memory());
        each.sum()
    }

    /// Gives a subflow what is left of the memory for out-of-order payload, which all of them share.
    pub(crate) fn share_reassembly(&mut self, i: usize) {
        let own = self.subflows[i].tcp.reassembly_memory();
        let others = self.reassembly() - own;
        let grant = reassembly_grant(self.opts.recv_buffer).saturating_sub(others);
        self.subflows[i].tcp.grant_reassembly(grant);
    }

    /// Mappings that wait for their bytes on a subflow may be this many more. What is each one's equal part is nobody else's.
    pub(crate) fn mapping_room(&self, i: usize) -> usize {
        let part = (RxMaps::MOST / SubflowId::LIMIT).saturating_sub(self.subflows[i].rx.len());
        if part > 0 {
            return part;
        }
        let waiting: usize = self.subflows.iter().map(|sf| sf.rx.len()).sum();
        RxMaps::MOST.saturating_sub(waiting)
    }

    /// Notes whether anything moved since the last look.
    pub(crate) fn note_advance(&mut self, at: Instant) {
        let (read, acked) = (self.recv.bytes_read(), self.send.una());
        if (read, acked) != (self.advance.read, self.advance.acked) {
            self.advance = Advance { read, acked, at };
        }
    }

    /// The application read something, or the peer acknowledged something, so recently.
    pub(crate) fn moved_since(&self, now: Instant, ago: Duration) -> bool {
        let ever = self.advance.read > 0 || self.advance.acked > Offset::ZERO;
        ever && now.since(self.advance.at) < ago
    }

    /// Since when it has been holding memory or a place in a queue without getting anywhere: the peer does not finish its
    /// handshake, does not take what was written (its window is closed, or it is silent) or leaves a hole open, or the
    /// application does not read. Nothing for a connection that is idle.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        let waits = !self.established
            || self.send.queued() > 0
            || self.held() > 0
            || self.subflows.is_empty();
        waits.then_some(self.advance.at)
    }

    /// Nobody has accepted it: until then it is told a small window.
    pub(crate) fn restrict_window(&mut self, bytes: u32) {
        self.accepted = false;
        self.recv.restrict(bytes);
    }

    /// Somebody has accepted it.
    pub(crate) fn lift_restriction(&mut self) {
        self.accepted = true;
        self.recv.set_capacity(self.first_recv_window());
    }

    /// The SYN is the one that opened it, and its handshake goes on.
    pub(crate) fn was_opened_by(&self, seg: &Segment<'_>) -> bool {
        let first = self.subflows.first().filter(|_| !self.established);
        first.is_some_and(|sf| sf.tcp.irs() == seg.header.seq)
    }

    /// Its peer does not finish the handshake, and others need the place. Not a word is said of it: to a client whose SYN/ACK was
    /// lost a reset is a refusal, while it would say its SYN again and be let in (RFC 4987 section 3.4).
    pub(crate) fn give_up(&mut self, cx: &mut Cx<'_>) {
        self.release(cx.now);
        for sf in &mut self.subflows {
            sf.end.get_or_insert(SubflowEnd::TimedOut);
            sf.tcp.forget();
        }
        self.send.clear();
        self.recv.clear();
        self.finish(CloseCause::TimedOut, cx);
    }

    /// Ends it for want of resources, at once and without waiting for an answer. // rfc8684:T1
    pub(crate) fn shed(&mut self, cx: &mut Cx<'_>) {
        let why = MptcpOption::Reset(Reset {
            transient: true,
            reason: ResetReason::LackOfResources,
        });
        let why = match self.lattice.speaks_multipath() {
            true => Some(why),
            false => self.farewell_of_restart(),
        };
        for i in 0..self.subflows.len() {
            self.reset_subflow(i, SubflowEnd::ConnectionClosed, why, cx);
        }
        self.send.clear();
        self.recv.clear();
        self.finish(CloseCause::Aborted, cx);
    }
}
