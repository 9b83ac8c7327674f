//! Keeps payload that arrived before its turn (RFC 9293 section 3.10.7.4), bounded in bytes and in pieces.
//!
//! Positions are 64-bit offsets in the peer's stream, so nothing wraps. Bytes that are held are never replaced: when
//! segments overlap with different contents, the first ones win.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What one held piece costs beyond its bytes, so that one-byte segments cannot take many times the window in memory: an estimate of
/// the map entry, the allocation and its header. Too little hides memory, too much refuses small segments sooner.
const PIECE_COST: usize = 96;

/// Memory that is granted whatever the window is, so that a few small pieces always fit: ten full segments. It is what one idle
/// subflow may cost.
const FLOOR: usize = 16 * 1024;

/// Pieces that are held at most: a window of 8 MB in segments of 536 bytes needs 15,650. It bounds the work that one
/// more piece makes among its neighbours.
const MOST_PIECES: usize = 16 * 1024;

/// Arrivals that are remembered for the reports of most recent runs (RFC 2018 section 4): twice the four blocks of an option, since
/// some of them fall into one run.
const LATEST: usize = 8;

/// Memory for out-of-order payload that goes with a receive window: as much again for what small pieces cost.
pub(crate) const fn grant(window: u32) -> usize {
    (window as usize).saturating_mul(2).saturating_add(FLOOR)
}

/// A run of held bytes without a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Island {
    start: u64,
    end: u64,
}

/// What became of payload handed to [`Assembler::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Inserted {
    /// Bytes copied in.
    pub(crate) stored: u32,
    /// The first run of bytes that were held already (for DSACK).
    pub(crate) duplicate: Option<(u64, u64)>,
    /// Bytes refused for lack of memory.
    pub(crate) refused: u32,
}

/// The out-of-order store.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    pieces: BTreeMap<u64, Box<[u8]>>,
    islands: Vec<Island>,
    /// Where the last pieces arrived, most recent first (RFC 2018 section 4: report that run first).
    latest: [Option<u64>; LATEST],
    bytes: usize,
}

impl Assembler {
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of memory held.
    pub(crate) fn cost(&self) -> usize {
        self.bytes + self.pieces.len() * PIECE_COST
    }

    /// Start of the first held byte.
    pub(crate) fn first(&self) -> Option<u64> {
        self.islands.first().map(|i| i.start)
    }

    /// Copies the parts of `data` (which starts at `at`) that are not held yet. `limit` is the memory granted
    /// for all of it, in bytes.
    pub(crate) fn insert(&mut self, at: u64, data: &[u8], limit: usize) -> Inserted {
        let mut result = Inserted {
            stored: 0,
            duplicate: None,
            refused: 0,
        };
        let end = at + data.len() as u64;
        let mut pos = at;
        // Islands are disjoint and sorted, so one walk finds every hole that the data fills.
        let mut index = self.islands.partition_point(|i| i.end <= at);
        let mut gaps: Vec<(u64, u64)> = Vec::new();
        while pos < end {
            match self.islands.get(index) {
                Some(island) if island.start <= pos => {
                    let stop = island.end.min(end);
                    result.duplicate.get_or_insert((pos, stop));
                    pos = stop;
                    index += 1;
                }
                next => {
                    let stop = next.map_or(end, |i| i.start.min(end));
                    gaps.push((pos, stop));
                    pos = stop;
                }
            }
        }
        for (from, to) in gaps {
            let len = (to - from) as usize;
            if self.cost() + len + PIECE_COST > limit || self.pieces.len() >= MOST_PIECES {
                result.refused += len as u32;
                continue;
            }
            let offset = (from - at) as usize;
            self.pieces
                .insert(from, Box::from(&data[offset..offset + len]));
            self.bytes += len;
            result.stored += len as u32;
            self.join(from, to);
        }
        if let Some((from, _)) = result.duplicate {
            self.touch(from);
        }
        result
    }

    /// Remembers an arrival at `at` as the most recent one.
    fn touch(&mut self, at: u64) {
        self.latest.rotate_right(1);
        self.latest[0] = Some(at);
    }

    /// Adds a run that no island covers, joining its neighbours.
    fn join(&mut self, start: u64, end: u64) {
        self.touch(start);
        let mut new = Island { start, end };
        let first = self.islands.partition_point(|i| i.end < start);
        let mut last = first;
        while let Some(island) = self.islands.get(last)
            && island.start <= end
        {
            new.start = new.start.min(island.start);
            new.end = new.end.max(island.end);
            last += 1;
        }
        self.islands.splice(first..last, [new]);
    }

    /// End of the run that starts at or before `next`, that is, where the stream stands once `next` is reached.
    /// The run leaves the islands: it is in order now.
    pub(crate) fn advance(&mut self, next: u64) -> u64 {
        let mut reached = next;
        let mut gone = 0;
        for island in &self.islands {
            if island.start > reached {
                break;
            }
            reached = reached.max(island.end);
            gone += 1;
        }
        self.islands.drain(..gone);
        reached
    }

    /// The next piece that is in order, given that the stream has reached `next`.
    pub(crate) fn pop(&mut self, next: u64) -> Option<(u64, Box<[u8]>)> {
        let entry = self.pieces.first_entry().filter(|e| *e.key() < next)?;
        let (at, bytes) = entry.remove_entry();
        self.bytes -= bytes.len();
        Some((at, bytes))
    }

    /// Held runs, most recent first.
    pub(crate) fn recent(&self, max: usize) -> impl Iterator<Item = (u64, u64)> + use<> {
        let mut chosen: [Option<Island>; 4] = [None; 4];
        let mut count = 0;
        // Nothing is held most of the time, whatever was.
        let latest = self.latest.into_iter().filter(|_| !self.islands.is_empty());
        for at in latest.flatten() {
            let index = self.islands.partition_point(|i| i.end <= at);
            let island = self.islands.get(index).filter(|i| i.start <= at).copied();
            if count < max.min(chosen.len()) && island.is_some() && !chosen.contains(&island) {
                chosen[count] = island;
                count += 1;
            }
        }
        chosen.into_iter().flatten().map(|i| (i.start, i.end))
    }

    /// Runs held.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        self.islands.iter().map(|i| (i.start, i.end)).collect()
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Assembler::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: usize = 1 << 20;

    #[test]
    fn overlapping_pieces_keep_the_first_bytes() {
        let mut a = Assembler::default();
        assert_eq!(a.insert(10, b"AAAA", ROOM).stored, 4);
        let second = a.insert(8, b"bbbbbbbbbb", ROOM);
        assert_eq!(second.stored, 6);
        assert_eq!(second.duplicate, Some((10, 14)));
        assert_eq!(a.runs(), [(8, 18)]);
        assert_eq!(a.advance(8), 18);
        let mut out = Vec::new();
        while let Some((_, bytes)) = a.pop(18) {
            out.extend_from_slice(&bytes);
        }
        assert_eq!(out, b"bbAAAAbbbb");
        assert!(a.is_empty());
        assert_eq!(a.bytes(), 0);
    }

    #[test]
    fn the_most_recent_run_is_reported_first() {
        let mut a = Assembler::default();
        for at in [100, 300, 200, 500, 400] {
            a.insert(at, &[0; 10], ROOM);
        }
        let got: Vec<_> = a.recent(3).collect();
        assert_eq!(got, [(400, 410), (500, 510), (200, 210)]);
        // Joining two runs makes the joined one the most recent.
        a.insert(110, &[0; 90], ROOM);
        assert_eq!(a.recent(4).next(), Some((100, 210)));
        // A duplicate inside a run makes that run the most recent as well.
        a.insert(302, &[0; 2], ROOM);
        assert_eq!(a.recent(4).next(), Some((300, 310)));
    }

    #[test]
    fn tiny_pieces_cannot_take_more_than_their_share() {
        let mut a = Assembler::default();
        let mut refused = 0;
        for i in 0..10_000u64 {
            refused += a.insert(1 + 2 * i, &[7], grant(4096)).refused;
        }
        assert!(refused > 9_000);
        assert!(a.cost() <= grant(4096));
    }

    #[test]
    fn the_number_of_pieces_is_bounded_whatever_the_window() {
        let mut a = Assembler::default();
        let stored: u32 = (0..20_000u64)
            .map(|i| a.insert(1 + 2 * i, &[7], usize::MAX).stored)
            .sum();
        assert_eq!(stored as usize, MOST_PIECES);
        assert_eq!(a.recent(4).count(), 4);
    }
}
