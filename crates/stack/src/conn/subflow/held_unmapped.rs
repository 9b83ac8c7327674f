//! Payload without a mapping that a subflow holds until a mapping or the answer to an MP_FAIL places it (RFC 8684 section 3.7).

use alloc::vec::Vec;
use core::ops::Range;

use manypath_tcp::time::Instant;
use manypath_wire::seq::Ssn;

/// Starts of held segments remembered.
pub(in crate::conn) const STARTS: usize = 256;

/// Payload of a subflow that came without a mapping.
#[derive(Debug, Default)]
pub(crate) struct Unmapped {
    /// Payload that waits for its mapping. // rfc8684:D11
    pub(crate) held: Option<HeldUnmapped>,
    /// Bytes without mapping since the last mapped byte, and since when.
    pub(crate) bytes: u64,
    pub(crate) since: Option<Instant>,
    /// The last mapping was discarded, though the subflow acknowledged it.
    pub(crate) discarded_mapping: bool,
    /// The peer's sequence number shows data that did not arrive.
    pub(crate) behind: bool,
    /// SSNs on which a peer unaware of our fallback retransmits what came before. // rfc8684:R3
    pub(in crate::conn) retransmitted_after_fallback: Option<Range<Ssn>>,
}

impl Unmapped {
    /// A mapping came, or none is expected any more.
    pub(in crate::conn) fn on_mapping(&mut self) {
        (self.bytes, self.since, self.discarded_mapping) = (0, None, false);
    }

    /// What was held turned out not to be the next part of the stream: as if it had been discarded, until a mapping comes.
    pub(in crate::conn) fn note_out_of_order(&mut self) {
        self.bytes = 1;
    }

    /// Some of what arrived last was acknowledged and discarded: the subflow's order is not the stream's.
    pub(crate) fn discards(&self) -> bool {
        self.bytes > 0 || self.discarded_mapping
    }
}

/// Bytes that wait for a mapping.
#[derive(Debug)]
pub(crate) struct HeldUnmapped {
    pub(in crate::conn) ssn: Ssn,
    pub(in crate::conn) bytes: Vec<u8>,
    /// Where segments begin in them.
    pub(in crate::conn) starts: Vec<u64>,
    /// Mappings received before: they are no evidence that options still pass.
    pub(in crate::conn) mappings: u64,
    /// When to send MP_FAIL because no mapping came.
    pub(in crate::conn) fail_at: Option<Instant>,
    pub(in crate::conn) until: Instant,
    pub(in crate::conn) since: Instant,
    /// The peer was queried by MP_FAIL.
    pub(in crate::conn) queried: bool,
    /// More came than can be held.
    pub(in crate::conn) is_full: bool,
}

impl HeldUnmapped {
    /// Empty so far, but bytes from this SSN on are queried.
    pub(in crate::conn) fn queried_about(ssn: Ssn, now: Instant, until: Instant) -> Self {
        Self {
            ssn,
            bytes: Vec::new(),
            starts: Vec::new(),
            mappings: 0,
            fail_at: Some(now),
            until,
            since: now,
            queried: true,
            is_full: false,
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.fail_at.map_or(self.until, |at| at.min(self.until))
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.starts.capacity() * size_of::<u64>()
    }

    /// SSN of the first of them.
    pub(crate) fn ssn(&self) -> Ssn {
        self.ssn
    }

    /// The peer was queried by MP_FAIL.
    pub(crate) fn was_queried(&self) -> bool {
        self.queried
    }

    /// As `queried_about`, without a deadline: nothing more may come.
    pub(in crate::conn) fn queried_if_needed(ssn: Ssn, now: Instant) -> Self {
        let fail_at = None;
        let all = Self::queried_about(ssn, now, Instant::MAX);
        Self { fail_at, ..all }
    }

    /// No byte came that was to be queried.
    pub(in crate::conn) fn is_needless(&self) -> bool {
        self.until == Instant::MAX
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}
