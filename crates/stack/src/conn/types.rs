//! What all parts of a connection share: the context of a call, names of subflows, sizes of stores.

use manypath_tcp::time::Instant;
use manypath_wire::seq::Ssn;

use crate::crypto::rng::Rng;
use crate::stats::Counters;

/// Above this an empty store gives its memory back.
pub(in crate::conn) const KEEP: usize = 64 * 1024;

/// The unit in which memory is taken from an operating system, where large allocations begin as nothing but addresses.
pub(in crate::conn) const PAGE: usize = 4096;

/// Names a subflow of a connection until the next one is removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SubflowIdx(pub(in crate::conn) usize);

impl SubflowIdx {
    /// The oldest subflow.
    pub(in crate::conn) const FIRST: Self = Self(0);
}

/// What holds for the segment that is being processed, and for nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentCx {
    /// SSN of its payload, if it has some.
    pub(in crate::conn) ssn: Option<Ssn>,
    /// SSN of its in-order payload, while that is processed.
    pub(in crate::conn) delivered: Option<Ssn>,
}

/// Context of every call into a connection.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) count: &'a mut Counters,
    pub(crate) rng: &'a mut Rng,
    /// The segment that is being processed.
    pub(crate) segment: SegmentCx,
}

impl<'a> Cx<'a> {
    pub(crate) fn new(now: Instant, count: &'a mut Counters, rng: &'a mut Rng) -> Self {
        Self {
            now,
            count,
            rng,
            segment: SegmentCx::default(),
        }
    }
}
