//! Out-of-order queue of the connection: which bytes beyond the next expected one have arrived (NSDI 2012 section 4.3).
//!
//! With several subflows nearly all data arrives out of order at connection level, while each subflow delivers runs of consecutive data.
//! Four algorithms find a segment's place behind one interface, with the same results at different cost. The bytes themselves lie in the
//! page store at their offset, so what is ordered here is which of them count.
//!
//! The batches of `AllShortcuts` lie in one block, where a wrong shortcut costs a binary search and not a walk: a peer that leaves
//! thousands of holes must never make every segment expensive. For the same reason a list that grows too long is stored as batches
//! until it is empty.

mod links;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use links::{Links, Place};
use manypath_tcp::ranges::Ranges;

use crate::api::{ReceiveAlgorithm, ReceiveSearches};
use crate::conn::dss::offset::Offset;
use crate::ids::SubflowId;

/// A half-open range of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Offset,
    pub(crate) end: Offset,
}

/// Segments that a list holds: a search without a shortcut, or with a wrong one, visits each of them. More are stored as batches until
/// nothing waits any more. A window of 5.9 MB in segments of 1460 bytes fits.
const LONGEST_LIST: usize = 4 * 1024;
/// Segments that may wait in a tree.
const MOST_SEGMENTS: usize = 64 * 1024;
/// Batches that may wait. A window of 8 MB, every second segment of 536 bytes lost, has 7,825 of them. It bounds the cost of inserting one
/// among its neighbours.
const MOST_BATCHES: usize = 8 * 1024;

/// The spans, as one of the algorithms stores them. A list that became longer than [`LONGEST_LIST`] is stored as batches.
#[derive(Debug)]
enum Store {
    List(Links),
    Tree(BTreeMap<u64, u64>),
    Batches(Ranges<Offset>),
}

/// Where a subflow's next segment belongs.
#[derive(Clone, Copy, Debug, Default)]
enum Shortcut {
    #[default]
    None,
    Place(Place),
    Batch(usize),
}

impl Shortcut {
    fn place(self) -> Option<Place> {
        match self {
            Self::Place(place) => Some(place),
            Self::None | Self::Batch(_) => None,
        }
    }

    fn batch(self) -> Option<usize> {
        match self {
            Self::Batch(index) => Some(index),
            Self::None | Self::Place(_) => None,
        }
    }
}

/// The out-of-order queue.
#[derive(Debug)]
pub(crate) struct Order {
    algorithm: ReceiveAlgorithm,
    store: Store,
    bytes: u64,
    /// By subflow.
    shortcuts: Vec<Shortcut>,
    /// The last search and its result: a segment is looked up more than once.
    found: Option<(Offset, Shortcut)>,
    searches: ReceiveSearches,
}

impl Order {
    pub(crate) fn new(algorithm: ReceiveAlgorithm) -> Self {
        Self {
            algorithm,
            store: Self::store(algorithm),
            bytes: 0,
            shortcuts: Vec::new(),
            found: None,
            searches: ReceiveSearches::default(),
        }
    }

    fn store(algorithm: ReceiveAlgorithm) -> Store {
        match algorithm {
            ReceiveAlgorithm::List | ReceiveAlgorithm::Shortcuts => Store::List(Links::new()),
            ReceiveAlgorithm::Tree => Store::Tree(BTreeMap::new()),
            ReceiveAlgorithm::AllShortcuts => Store::Batches(Ranges::new()),
        }
    }

    pub(crate) fn algorithm(&self) -> ReceiveAlgorithm {
        self.algorithm
    }

    pub(crate) fn searches(&self) -> ReceiveSearches {
        self.searches
    }

    /// Switches to another algorithm; what has arrived stays.
    pub(crate) fn set_algorithm(&mut self, algorithm: ReceiveAlgorithm) {
        if algorithm == self.algorithm {
            return;
        }
        let (spans, searches) = (self.spans(), self.searches);
        self.algorithm = algorithm;
        self.clear();
        for span in spans {
            self.insert(None, span.start..span.end);
        }
        self.searches = searches;
    }

    /// All spans in order. Adjacent ones may be separate.
    fn spans(&self) -> Vec<Span> {
        match &self.store {
            Store::List(links) => links.iter().collect(),
            Store::Tree(tree) => tree.iter().map(|(&s, &e)| span(s, e)).collect(),
            Store::Batches(batches) => batches.iter().map(|s| span(s.start.0, s.end.0)).collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    fn count(&self) -> usize {
        match &self.store {
            Store::List(links) => links.count(),
            Store::Tree(tree) => tree.len(),
            Store::Batches(batches) => batches.count(),
        }
    }

    /// The limit of pieces is reached.
    pub(crate) fn is_crowded(&self) -> bool {
        let most = match &self.store {
            Store::List(_) | Store::Tree(_) => MOST_SEGMENTS,
            Store::Batches(_) => MOST_BATCHES,
        };
        self.count() >= most
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory held. A tree's nodes are counted as two of their entries.
    pub(crate) fn memory(&self) -> usize {
        let store = match &self.store {
            Store::List(links) => links.memory(),
            Store::Tree(tree) => tree.len() * 2 * size_of::<(u64, u64)>(),
            Store::Batches(batches) => batches.memory(),
        };
        store + self.shortcuts.capacity() * size_of::<Shortcut>()
    }

    /// End of the last byte that has arrived.
    pub(crate) fn end(&self) -> Option<Offset> {
        match &self.store {
            Store::List(links) => links.last().and_then(|at| links.get(at)).map(|s| s.end),
            Store::Tree(tree) => tree.last_key_value().map(|(_, &end)| Offset(end)),
            Store::Batches(batches) => batches.last().map(|last| last.end),
        }
    }

    fn shortcut(&self, by: Option<SubflowId>) -> Shortcut {
        let known = by.and_then(|by| self.shortcuts.get(by.index()));
        known.copied().unwrap_or_default()
    }

    fn note_shortcut(&mut self, by: Option<SubflowId>, shortcut: Shortcut) {
        let wanted = match self.algorithm {
            ReceiveAlgorithm::List | ReceiveAlgorithm::Tree => false,
            ReceiveAlgorithm::Shortcuts | ReceiveAlgorithm::AllShortcuts => true,
        };
        let (true, Some(by)) = (wanted, by) else {
            return;
        };
        if self.shortcuts.len() <= by.index() {
            self.shortcuts.resize(by.index() + 1, Shortcut::None);
        }
        self.shortcuts[by.index()] = shortcut;
    }

    /// Where in the list a subflow's segment belongs: after the span returned.
    fn locate(&mut self, by: Option<SubflowId>, at: Offset) -> Option<Place> {
        let shortcut = self.shortcut(by);
        let Store::List(links) = &self.store else {
            return None;
        };
        if let Some((_, place)) = self.found.filter(|(known, _)| *known == at) {
            return place.place();
        }
        self.searches.searches += 1;
        let right = |place: &Place| {
            let starts = links.get(*place).is_some_and(|span| span.start <= at);
            let next = links.after(*place).and_then(|next| links.get(next));
            starts && next.is_none_or(|next| next.start > at)
        };
        let place = match shortcut.place().filter(right) {
            Some(place) => {
                self.searches.hits += 1;
                self.searches.steps += 1;
                Some(place)
            }
            None => links.seek(None, at, &mut self.searches.steps),
        };
        self.found = Some((at, place.map_or(Shortcut::None, Shortcut::Place)));
        place
    }

    /// Where among the batches a subflow's segment belongs: in the one at that index, or before it.
    fn locate_batch(&mut self, by: Option<SubflowId>, at: Offset) -> usize {
        let last = self.shortcut(by).batch();
        let Store::Batches(batches) = &self.store else {
            return 0;
        };
        let found = self.found.filter(|(known, _)| *known == at);
        if let Some(index) = found.and_then(|(_, place)| place.batch()) {
            return index;
        }
        self.searches.searches += 1;
        self.searches.steps += 1;
        let index = match last.and_then(|last| batches.place_near(last, at)) {
            Some(index) => {
                self.searches.hits += 1;
                index
            }
            None => {
                self.searches.steps += u64::from(batches.count().checked_ilog2().unwrap_or(0));
                batches.place(at)
            }
        };
        self.found = Some((at, Shortcut::Batch(index)));
        index
    }

    /// Calls `visit` with the spans from the last one that starts at or before `range` to the last one that starts in it.
    fn near(&mut self, by: Option<SubflowId>, range: &Range<Offset>, visit: &mut dyn FnMut(Span)) {
        let place = self.locate(by, range.start);
        match &self.store {
            Store::List(links) => {
                let mut at = place.or_else(|| links.first());
                while let Some(span) = at.and_then(|at| links.get(at)) {
                    if span.start >= range.end {
                        break;
                    }
                    visit(span);
                    at = at.and_then(|at| links.after(at));
                }
            }
            Store::Tree(tree) => {
                let before = tree.range(..=range.start.0).next_back();
                let inside = tree.range(range.start.0 + 1..range.end.0.max(range.start.0 + 1));
                before
                    .into_iter()
                    .chain(inside)
                    .for_each(|(&s, &e)| visit(span(s, e)));
            }
            Store::Batches(batches) => {
                let touching = batches.gaps(range.start, range.end);
                // What lies between the gaps.
                let mut from = range.start;
                for gap in touching {
                    if from < gap.start {
                        visit(span(from.0, gap.start.0));
                    }
                    from = gap.end;
                }
                if from < range.end {
                    visit(span(from.0, range.end.0));
                }
            }
        }
    }

    /// Part of a subflow's segment has arrived.
    pub(crate) fn overlaps(&mut self, by: Option<SubflowId>, range: &Range<Offset>) -> bool {
        if range.start >= range.end || self.is_empty() {
            return false;
        }
        let place = self.locate_batch(by, range.start);
        if let Store::Batches(batches) = &self.store {
            return batches.overlaps_at(place, range.start, range.end);
        }
        let mut any = false;
        self.near(by, range, &mut |span| any |= span.end > range.start);
        any
    }

    /// The parts of a subflow's segment that have not arrived, in order.
    pub(crate) fn gaps(
        &mut self,
        by: Option<SubflowId>,
        range: &Range<Offset>,
    ) -> Vec<Range<Offset>> {
        let (mut gaps, mut from) = (Vec::new(), range.start);
        if range.start >= range.end {
            return gaps;
        }
        self.near(by, range, &mut |span| {
            let until = span.start.min(range.end);
            if from < until {
                gaps.push(from..until);
            }
            from = from.max(span.end);
        });
        if from < range.end {
            gaps.push(from..range.end);
        }
        gaps
    }

    /// Adds a subflow's segment. What has arrived of it before stays as it is.
    pub(crate) fn insert(&mut self, by: Option<SubflowId>, range: Range<Offset>) {
        if range.start >= range.end {
            return;
        }
        let place = self.locate_batch(by, range.start);
        if let Store::Batches(batches) = &mut self.store {
            self.bytes += batches.insert_at(place, range.start, range.end);
            self.found = None;
            self.note_shortcut(by, Shortcut::Batch(place));
            return;
        }
        if let Store::Tree(tree) = &self.store {
            self.searches.searches += 1;
            self.searches.steps += u64::from(tree.len().checked_ilog2().unwrap_or(0)) + 1;
        }
        let mut last = self.locate(by, range.start);
        for gap in self.gaps(by, &range) {
            self.bytes += gap.end - gap.start;
            let new = span(gap.start.0, gap.end.0);
            match &mut self.store {
                Store::Tree(tree) => {
                    tree.insert(gap.start.0, gap.end.0);
                }
                Store::List(links) => {
                    // After all spans that start before it. The position found is known to be one of them.
                    let mut steps = 0;
                    let behind =
                        last.and_then(|place| links.seek(Some(place), gap.start, &mut steps));
                    self.searches.steps += steps.saturating_sub(1);
                    last = Some(links.insert_after(behind, new));
                }
                Store::Batches(_) => {}
            }
        }
        self.found = None;
        self.note_shortcut(by, last.map_or(Shortcut::None, Shortcut::Place));
        self.bound_list();
    }

    /// Stores a list that became too long as batches.
    fn bound_list(&mut self) {
        let Store::List(links) = &self.store else {
            return;
        };
        if links.count() <= LONGEST_LIST {
            return;
        }
        let mut batches = Ranges::new();
        for span in links.iter() {
            batches.insert(span.start, span.end);
        }
        self.store = Store::Batches(batches);
        self.shortcuts.clear();
    }

    /// Nothing waits any more: what was too long for a list may be one again.
    fn restore_list(&mut self) {
        let batches = matches!(self.store, Store::Batches(_));
        if batches && self.algorithm != ReceiveAlgorithm::AllShortcuts {
            self.store = Self::store(self.algorithm);
            self.shortcuts.clear();
        }
    }

    /// A subflow's segment ends at `next`, and nothing before that is missing any more: removes everything that continues the stream there,
    /// and returns where it then ends.
    pub(crate) fn take_ready(&mut self, by: Option<SubflowId>, next: Offset) -> Offset {
        if self.is_empty() {
            return next;
        }
        let mut upto = next;
        while let Some(first) = self.first().filter(|first| first.start <= upto) {
            upto = upto.max(first.end);
            self.bytes -= first.end - first.start;
            match &mut self.store {
                Store::List(links) => {
                    if let Some(place) = links.first() {
                        links.remove(place);
                    }
                }
                Store::Tree(tree) => {
                    tree.pop_first();
                }
                Store::Batches(batches) => {
                    batches.pop_first();
                    self.forget_first_batch();
                }
            }
            self.found = None;
        }
        if let Store::Batches(_) = self.store {
            self.note_shortcut(by, Shortcut::Batch(0));
        }
        if self.is_empty() {
            self.restore_list();
        }
        upto
    }

    fn first(&self) -> Option<Span> {
        match &self.store {
            Store::List(links) => links.first().and_then(|at| links.get(at)),
            Store::Tree(tree) => tree.first_key_value().map(|(&s, &e)| span(s, e)),
            Store::Batches(batches) => batches.first().map(|s| span(s.start.0, s.end.0)),
        }
    }

    /// The first batch was removed.
    fn forget_first_batch(&mut self) {
        for shortcut in &mut self.shortcuts {
            if let Shortcut::Batch(index) = shortcut {
                *index = index.wrapping_sub(1);
            }
        }
    }

    /// Drops everything that waits and releases the memory.
    pub(crate) fn clear(&mut self) {
        self.store = Self::store(self.algorithm);
        self.shortcuts = Vec::new();
        self.found = None;
        self.bytes = 0;
    }
}

fn span(start: u64, end: u64) -> Span {
    Span {
        start: Offset(start),
        end: Offset(end),
    }
}

#[cfg(test)]
mod tests;
