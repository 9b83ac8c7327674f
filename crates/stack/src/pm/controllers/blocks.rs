//! When the blocks of a stream begin. The application need not say so: it shows in how much it has written.

use manypath_tcp::time::{Duration, Instant};

use crate::api::Streaming;

/// Looks at the written bytes for each period.
const LOOKS: u64 = 50;

#[derive(Clone, Debug)]
pub(super) struct Blocks {
    /// Bytes of a block.
    bytes: u64,
    pause: Duration,
    next: Option<Instant>,
    /// Blocks that have begun so far.
    begun: u64,
}

impl Blocks {
    pub(super) fn new(own: &Streaming) -> Self {
        Self {
            bytes: own.block.max(1),
            pause: own.period.over(LOOKS),
            next: None,
            begun: 0,
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// It is not looked now: a little later, or when something happens.
    pub(super) fn put_off(&mut self, now: Instant, later: bool) {
        self.next = later.then(|| now + self.pause);
    }

    /// Looks, where a look is due. Whether a block has begun since the last one.
    pub(super) fn begins(&mut self, now: Instant, written: u64) -> bool {
        if self.next.is_some_and(|at| at > now) {
            return false;
        }
        self.next = Some(now + self.pause);
        let before = core::mem::replace(&mut self.begun, written.div_ceil(self.bytes));
        self.begun > before
    }

    /// Where in the stream the block begins that began last, and where it ends.
    pub(super) fn last(&self) -> (u64, u64) {
        let begin = self.begun.saturating_sub(1) * self.bytes;
        (begin, self.begun * self.bytes)
    }
}
