//! Bytes addressed by stream offset, in pages that are reused, the last one freed first: the memory behind the receive window.
//!
//! Subflows of different delay make data wait for what comes before it. In one long buffer every byte would go to where the reader was a
//! whole buffer ago, which is in no cache any more; here it goes to where the reader has just been.
//!
//! Owns allocation, and knows from which offset on bytes may come. Must never know what they mean or which of them are valid.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;

use manypath_wire::checksum::{Sum, copy_and_sum};

use crate::conn::types::{KEEP, PAGE};

/// Bytes at absolute stream offsets.
#[derive(Debug)]
pub(crate) struct PageStore {
    /// Pages from the number `first` on; those never written are missing.
    pages: VecDeque<Option<Box<[u8]>>>,
    first: u64,
    /// Free pages, the last one freed at the end.
    spare: Vec<Box<[u8]>>,
    /// Pages that were allocated: those in `pages` and the spare ones.
    held: usize,
    /// Something was written since the last call of `release_idle`.
    used: bool,
}

/// A part of a range that lies in one page.
struct Piece {
    page: u64,
    /// In the page.
    here: Range<usize>,
    /// In the range.
    there: Range<usize>,
}

/// The parts of `at..at + len`, in order.
fn pieces(at: u64, len: usize) -> impl Iterator<Item = Piece> {
    let mut done = 0;
    core::iter::from_fn(move || {
        let from = at + done as u64;
        let start = (from % PAGE as u64) as usize;
        let count = (len - done).min(PAGE - start);
        let piece = Piece {
            page: from / PAGE as u64,
            here: start..start + count,
            there: done..done + count,
        };
        done += count;
        (count > 0).then_some(piece)
    })
}

impl PageStore {
    pub(crate) const fn new() -> Self {
        Self {
            pages: VecDeque::new(),
            first: 0,
            spare: Vec::new(),
            held: 0,
            used: false,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.held * PAGE
            + self.pages.capacity() * size_of::<Option<Box<[u8]>>>()
            + self.spare.capacity() * size_of::<Box<[u8]>>()
    }

    /// It holds so much memory that an idle connection should not keep it.
    pub(crate) fn is_large(&self) -> bool {
        self.held * PAGE > KEEP
    }

    /// Releases the memory if nothing was written since the last call; called periodically while nothing in it is needed. A busy stream is
    /// empty many times a second, and fresh memory costs more than the copy into it.
    pub(crate) fn release_idle(&mut self, wanted: u64) {
        if !core::mem::take(&mut self.used) {
            self.clear(wanted);
        }
    }

    /// Releases all memory; bytes come from `wanted` on.
    pub(crate) fn clear(&mut self, wanted: u64) {
        *self = Self {
            first: wanted / PAGE as u64,
            ..Self::new()
        };
    }

    /// Frees everything before `wanted`, for good.
    pub(crate) fn free_before(&mut self, wanted: u64) {
        let wanted = wanted / PAGE as u64;
        while self.first < wanted {
            let Some(page) = self.pages.pop_front() else {
                self.first = wanted;
                return;
            };
            self.first += 1;
            self.spare.extend(page);
        }
    }

    /// A page to write to, never one before those that were freed.
    fn page(&mut self, number: u64) -> &mut [u8] {
        debug_assert!(number >= self.first, "what was freed does not come back");
        let index = (number - self.first) as usize;
        if index >= self.pages.len() {
            self.pages.resize_with(index + 1, || None);
        }
        self.used = true;
        let (spare, held) = (&mut self.spare, &mut self.held);
        self.pages[index].get_or_insert_with(|| {
            spare.pop().unwrap_or_else(|| {
                *held += 1;
                alloc::vec![0; PAGE].into_boxed_slice()
            })
        })
    }

    /// Stores bytes at an offset.
    pub(crate) fn write(&mut self, at: u64, bytes: &[u8]) {
        for Piece { page, here, there } in pieces(at, bytes.len()) {
            self.page(page)[here].copy_from_slice(&bytes[there]);
        }
    }

    /// Stores bytes and sums them in the same pass.
    pub(crate) fn write_and_sum(&mut self, at: u64, bytes: &[u8]) -> Sum {
        let mut sum = Sum::ZERO;
        for Piece { page, here, there } in pieces(at, bytes.len()) {
            sum.append(copy_and_sum(&mut self.page(page)[here], &bytes[there]));
        }
        sum
    }

    /// A page that was written; zeros stand for one that was not.
    fn written(&self, number: u64) -> &[u8] {
        static NOTHING: [u8; PAGE] = [0; PAGE];
        let index = number.checked_sub(self.first);
        let page = index.and_then(|index| self.pages.get(index as usize));
        page.and_then(Option::as_deref).unwrap_or(&NOTHING)
    }

    /// Shows bytes where they lie, in order, in as many parts as there are pages.
    pub(crate) fn show(&self, at: u64, len: usize, mut see: impl FnMut(&[u8])) {
        for Piece { page, here, .. } in pieces(at, len) {
            see(&self.written(page)[here]);
        }
    }

    /// Whether these bytes are stored at an offset.
    pub(crate) fn has(&self, at: u64, bytes: &[u8]) -> bool {
        pieces(at, bytes.len())
            .all(|Piece { page, here, there }| bytes[there] == self.written(page)[here])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::send::ring::tests::pattern;

    impl PageStore {
        fn read(&self, at: u64, out: &mut [u8]) {
            let mut rest = out;
            self.show(at, rest.len(), |part| {
                let (place, behind) = core::mem::take(&mut rest).split_at_mut(part.len());
                place.copy_from_slice(part);
                rest = behind;
            });
        }
    }

    #[test]
    fn stored_bytes_are_read_back_at_their_offset() {
        let mut store = PageStore::new();
        let base = 3 * PAGE as u64 + 17;
        store.clear(base);
        // The later part first, as from a faster subflow.
        let (early, late) = (pattern(base, 9_000), pattern(base + 9_000, 30_000));
        store.write(base + 9_000, &late);
        let mut straight = Sum::ZERO;
        straight.add_bytes(&early);
        assert_eq!(store.write_and_sum(base, &early).fold(), straight.fold());
        let mut out = alloc::vec![0; 39_000];
        store.read(base, &mut out);
        assert_eq!(out, pattern(base, 39_000));
        assert!(store.has(base + 8_990, &out[8_990..20_000]));
        out[15_000] ^= 1;
        assert!(!store.has(base + 8_990, &out[8_990..20_000]));
        store.free_before(base + 9_000);
        store.read(base + 9_000, &mut out[..30_000]);
        assert_eq!(out[..30_000], late);
    }

    #[test]
    fn the_page_freed_last_is_reused_first() {
        let mut store = PageStore::new();
        let page = alloc::vec![7; PAGE];
        let at = |n: u64| n * PAGE as u64;
        let place = |store: &PageStore, n: u64| store.written(n).as_ptr();
        for n in 0..3 {
            store.write(at(n), &page);
        }
        let (held, second) = (store.memory(), place(&store, 1));
        store.free_before(at(2));
        for n in 3..5 {
            store.write(at(n), &page);
        }
        assert_eq!(place(&store, 3), second);
        assert_eq!(store.pages.iter().flatten().count(), 3);
        assert!(store.memory() <= held + 256, "no page was allocated");
    }

    #[test]
    fn scattered_bytes_take_no_more_than_their_pages() {
        let mut store = PageStore::new();
        assert_eq!(store.memory(), 0);
        store.write(500_000, b"x");
        assert!(!store.is_large() && store.memory() < 2 * PAGE);
        for n in 0..40 {
            store.write(n * 100_000, b"x");
        }
        assert!(store.is_large() && store.memory() < 42 * PAGE + 16 * 2048);
        store.release_idle(4_000_001);
        assert!(store.is_large(), "it was used since");
        store.release_idle(4_000_001);
        assert_eq!(store.memory(), 0);
        store.write(4_000_001, b"y");
        assert!(store.has(4_000_001, b"y"));
    }
}
