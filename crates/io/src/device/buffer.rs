//! The transmit buffer that the drivers share: packets lie densely one after the other in one slab, so that small ones stay
//! in the cache and a burst of 64 KB still fits.

use crate::sys::packet::BATCH_MAX;
use std::ops::Range;

/// Room for several bursts; small enough to stay in a core's second-level cache.
const SLAB: usize = 512 * 1024;
/// Every packet starts on a cache line.
const ALIGN: usize = 64;

#[derive(Debug)]
pub(super) struct TxSlab {
    bytes: Vec<u8>,
    used: usize,
    head: usize,
    queued: Vec<Range<usize>>,
    sent: usize,
}

impl TxSlab {
    /// `head` bytes are kept free before every packet for the headers of the device.
    pub(super) fn new(head: usize) -> Self {
        TxSlab {
            bytes: vec![0; SLAB],
            used: 0,
            head,
            queued: Vec::with_capacity(BATCH_MAX),
            sent: 0,
        }
    }

    /// Where the next packet of up to `room` bytes goes, or `None` when the slab must be flushed first.
    pub(super) fn slot(&mut self, room: usize) -> Option<&mut [u8]> {
        if self.queued.len() == BATCH_MAX {
            return None;
        }
        let start = self.used + self.head;
        self.bytes.get_mut(start..start + room)
    }

    /// The frame being written: its device headers and the first `len` bytes of the packet.
    pub(super) fn frame(&mut self, len: usize) -> &mut [u8] {
        let end = self.used + self.head + len;
        &mut self.bytes[self.used..end]
    }

    /// Queues the frame being written.
    pub(super) fn push(&mut self, len: usize) {
        let end = self.used + self.head + len;
        self.queued.push(self.used..end);
        self.used = end.next_multiple_of(ALIGN);
    }

    /// The slab, and which parts of it wait to be sent.
    pub(super) fn waiting(&self) -> (&[u8], &[Range<usize>]) {
        (&self.bytes, &self.queued[self.sent..])
    }

    /// The first `count` waiting frames are gone.
    pub(super) fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.queued.len() {
            self.queued.clear();
            self.sent = 0;
            self.used = 0;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_dense_and_come_out_in_order() {
        let mut slab = TxSlab::new(24);
        for i in 0..3u8 {
            slab.slot(1500).expect("an empty slab has room")[0] = i;
            slab.push(40);
        }
        let (bytes, parts) = slab.waiting();
        assert_eq!(parts.len(), 3);
        for (i, part) in parts.iter().enumerate() {
            assert_eq!(part.len(), 64);
            assert_eq!(usize::from(bytes[part.start + 24]), i);
        }
        slab.advance(2);
        assert_eq!(slab.waiting().1.len(), 1);
        slab.advance(1);
        assert!(slab.is_empty());
        assert_eq!(slab.slot(1).map(|s| s.len()), Some(1));
    }

    #[test]
    fn full_slab_gives_no_slot() {
        let mut slab = TxSlab::new(10);
        let mut bursts = 0;
        while slab.slot(65535).is_some() {
            slab.push(65535);
            bursts += 1;
        }
        assert!(bursts >= 4);
        slab.advance(bursts);
        assert!(slab.slot(65535).is_some());
        for _ in 0..BATCH_MAX {
            assert!(slab.slot(40).is_some());
            slab.push(40);
        }
        assert!(slab.slot(40).is_none());
    }
}
