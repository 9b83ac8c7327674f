//! A byte store addressed by stream offset: the memory behind the send queue, where all bytes leave in the order in which they came and lie
//! contiguously for a device that gathers them itself.
//!
//! Owns growing and shrinking. Must never know what the bytes mean or which of them are valid: its user keeps the bounds and passes the
//! live range when it has to grow.

use alloc::vec::Vec;
use core::ops::Range;

use manypath_wire::checksum::{Sum, copy_and_sum};

use crate::conn::types::{KEEP, PAGE};

/// The first allocation: an idle connection owns nothing, a short one little.
const FIRST: usize = 4 * 1024;

/// Bytes at absolute stream offsets, kept in a power-of-two buffer.
#[derive(Debug, Default)]
pub(crate) struct ByteRing {
    buf: Vec<u8>,
    /// At most this much of it was ever written, in whole pages: what it takes from an operating system.
    touched: usize,
    /// `reserve` was called since the last call of `release_idle`.
    used: bool,
}

impl ByteRing {
    pub(crate) const fn new() -> Self {
        Self {
            buf: Vec::new(),
            touched: 0,
            used: false,
        }
    }

    /// Bytes of memory held. A large buffer that is written in few places takes no more than those.
    pub(crate) fn memory(&self) -> usize {
        if self.is_large() {
            self.touched.min(self.buf.len())
        } else {
            self.buf.len()
        }
    }

    /// Makes room so that every offset of `live` and up to `until` can be stored; keeps the bytes of `live`.
    pub(crate) fn reserve(&mut self, live: Range<u64>, until: u64) {
        let needed = usize::try_from(until.saturating_sub(live.start)).unwrap_or(usize::MAX);
        self.used = true;
        if needed <= self.buf.len() {
            return;
        }
        let size = needed.next_power_of_two().max(FIRST);
        let mut fresh = Self {
            buf: alloc::vec![0; size],
            touched: 0,
            used: true,
        };
        let len = (live.end - live.start) as usize;
        if len > 0 {
            let (a, b) = self.slices(live.start, len);
            fresh.write(live.start, a);
            fresh.write(live.start + a.len() as u64, b);
        }
        *self = fresh;
    }

    /// It holds so much memory that an idle connection should not keep it.
    pub(crate) fn is_large(&self) -> bool {
        self.buf.len() > KEEP
    }

    /// Releases the memory if no room was reserved since the last call; called periodically while nothing in it is live. A busy stream is
    /// empty many times a second, and fresh memory costs more than the copy into it.
    pub(crate) fn release_idle(&mut self) {
        if !core::mem::take(&mut self.used) {
            self.clear();
        }
    }

    /// Releases all memory.
    pub(crate) fn clear(&mut self) {
        self.buf = Vec::new();
        self.touched = 0;
    }

    fn index(&self, at: u64) -> usize {
        (at & (self.buf.len() as u64).wrapping_sub(1)) as usize
    }

    /// Where the bytes `at..at+len` lie: two pieces, the second usually empty.
    ///
    /// The caller has reserved that range; `len` never exceeds the capacity.
    pub(crate) fn slices(&self, at: u64, len: usize) -> (&[u8], &[u8]) {
        if len == 0 {
            return (&[], &[]);
        }
        let start = self.index(at);
        let first = len.min(self.buf.len() - start);
        (&self.buf[start..start + first], &self.buf[..len - first])
    }

    fn slices_mut(&mut self, at: u64, len: usize) -> (&mut [u8], &mut [u8]) {
        if len == 0 {
            return (&mut [], &mut []);
        }
        if self.touched < self.buf.len() {
            self.touched += (len + PAGE - 1).next_multiple_of(PAGE);
        }
        let start = self.index(at);
        let first = len.min(self.buf.len() - start);
        let (head, tail) = self.buf.split_at_mut(start);
        (&mut tail[..first], &mut head[..len - first])
    }

    /// Has bytes written at an offset, in parts where they lie.
    pub(crate) fn write_with(&mut self, at: u64, len: usize, mut fill: impl FnMut(&mut [u8])) {
        let (a, b) = self.slices_mut(at, len);
        fill(a);
        if !b.is_empty() {
            fill(b);
        }
    }

    /// Stores bytes at an offset.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        let (a, b) = self.slices_mut(at, bytes.len());
        let split = a.len();
        a.copy_from_slice(&bytes[..split]);
        b.copy_from_slice(&bytes[split..]);
    }

    /// Copies bytes out.
    pub(crate) fn read(&self, at: u64, out: &mut [u8]) {
        let (a, b) = self.slices(at, out.len());
        out[..a.len()].copy_from_slice(a);
        out[a.len()..].copy_from_slice(b);
    }

    /// Sums bytes where they lie.
    pub(crate) fn sum(&self, at: u64, len: usize) -> Sum {
        let (a, b) = self.slices(at, len);
        let mut sum = Sum::of(a);
        sum.append(Sum::of(b));
        sum
    }

    /// Copies bytes out and sums them in the same pass.
    pub(crate) fn read_and_sum(&self, at: u64, out: &mut [u8]) -> Sum {
        let (a, b) = self.slices(at, out.len());
        let (head, tail) = out.split_at_mut(a.len());
        let mut sum = copy_and_sum(head, a);
        sum.append(copy_and_sum(tail, b));
        sum
    }
}

#[cfg(test)]
pub(in crate::conn) mod tests {
    use super::*;
    use alloc::vec::Vec;

    pub(in crate::conn) fn pattern(from: u64, len: usize) -> Vec<u8> {
        (0..len as u64).map(|i| ((from + i) % 251) as u8).collect()
    }

    #[test]
    fn bytes_survive_growth_and_wrapping() {
        let mut ring = ByteRing::new();
        let base = u64::MAX / 3;
        ring.reserve(base..base, base + 10_000);
        ring.write(base + 5_000, &pattern(base + 5_000, 5_000));
        // The live part wraps inside the first allocation and must survive the move to a larger one.
        ring.reserve(base + 5_000..base + 10_000, base + 21_000);
        ring.write(base + 10_000, &pattern(base + 10_000, 11_000));
        ring.reserve(base + 5_000..base + 21_000, base + 300_000);
        let mut out = alloc::vec![0; 16_000];
        ring.read(base + 5_000, &mut out);
        assert_eq!(out, pattern(base + 5_000, 16_000));
    }

    #[test]
    fn sums_do_not_depend_on_where_the_ring_wraps() {
        let mut ring = ByteRing::new();
        ring.reserve(0..0, FIRST as u64);
        for start in [FIRST as u64 - 7, FIRST as u64 - 8, 3 * FIRST as u64 - 1] {
            let bytes = pattern(start, 999);
            let mut straight = Sum::ZERO;
            straight.add_bytes(&bytes);
            ring.write(start, &bytes);
            assert_eq!(ring.sum(start, 999).fold(), straight.fold());
            let mut out = alloc::vec![0; 999];
            assert_eq!(ring.read_and_sum(start, &mut out).fold(), straight.fold());
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn an_idle_ring_returns_large_memory() {
        let mut ring = ByteRing::new();
        assert_eq!(ring.memory(), 0);
        ring.reserve(0..0, 1 << 20);
        assert!(ring.is_large());
        assert_eq!(ring.memory(), 0, "nothing of it was touched");
        ring.write(500_000, b"x");
        assert_eq!(ring.memory(), PAGE);
        ring.release_idle();
        assert_eq!(ring.memory(), PAGE, "it was used since");
        ring.release_idle();
        assert_eq!(ring.memory(), 0);
    }
}
