//! An ordered list of spans in one block of memory that can be entered in the middle.

use alloc::vec::Vec;

use super::Span;
use crate::conn::dss::offset::Offset;

/// No span.
const NONE: u32 = u32::MAX;

/// A position in the list, valid while its span lives; a position whose span was removed is recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    index: u32,
    /// The span's generation.
    age: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    span: Span,
    before: u32,
    after: u32,
    age: u32,
    used: bool,
}

/// The spans, by ascending start, disjoint.
#[derive(Debug)]
pub(super) struct Links {
    nodes: Vec<Node>,
    free: Vec<u32>,
    head: u32,
    tail: u32,
    count: usize,
}

impl Links {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            free: Vec::new(),
            head: NONE,
            tail: NONE,
            count: 0,
        }
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn memory(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>() + self.free.capacity() * size_of::<u32>()
    }

    fn place(&self, index: u32) -> Option<Place> {
        let age = self.nodes.get(index as usize)?.age;
        Some(Place { index, age })
    }

    /// The span at a position, if it still lives.
    pub(super) fn get(&self, place: Place) -> Option<Span> {
        let node = self.nodes.get(place.index as usize)?;
        (node.used && node.age == place.age).then_some(node.span)
    }

    pub(super) fn first(&self) -> Option<Place> {
        self.place(self.head)
    }

    pub(super) fn last(&self) -> Option<Place> {
        self.place(self.tail)
    }

    pub(super) fn after(&self, place: Place) -> Option<Place> {
        self.place(self.nodes.get(place.index as usize)?.after)
    }

    pub(super) fn before(&self, place: Place) -> Option<Place> {
        self.place(self.nodes.get(place.index as usize)?.before)
    }

    /// Inserts a span after another one, or at the front.
    pub(super) fn insert_after(&mut self, before: Option<Place>, span: Span) -> Place {
        let (before, after) = match before {
            Some(place) => (place.index, self.nodes[place.index as usize].after),
            None => (NONE, self.head),
        };
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.nodes.push(Node {
                    span,
                    before: NONE,
                    after: NONE,
                    age: 0,
                    used: false,
                });
                (self.nodes.len() - 1) as u32
            }
        };
        let node = &mut self.nodes[index as usize];
        *node = Node {
            span,
            before,
            after,
            age: node.age.wrapping_add(1),
            used: true,
        };
        let age = node.age;
        match before {
            NONE => self.head = index,
            _ => self.nodes[before as usize].after = index,
        }
        match after {
            NONE => self.tail = index,
            _ => self.nodes[after as usize].before = index,
        }
        self.count += 1;
        Place { index, age }
    }

    /// Removes a living span.
    pub(super) fn remove(&mut self, place: Place) {
        let Node { before, after, .. } = self.nodes[place.index as usize];
        match before {
            NONE => self.head = after,
            _ => self.nodes[before as usize].after = after,
        }
        match after {
            NONE => self.tail = before,
            _ => self.nodes[after as usize].before = before,
        }
        self.nodes[place.index as usize].used = false;
        self.free.push(place.index);
        self.count -= 1;
    }

    /// The spans in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Span> + '_ {
        let mut at = self.first();
        core::iter::from_fn(move || {
            let place = at?;
            at = self.after(place);
            self.get(place)
        })
    }

    /// The last span that starts at or before `at`, searched from `from` on, or from the end of the list backwards. Adds the spans looked
    /// at to `steps`.
    pub(super) fn seek(&self, from: Option<Place>, at: Offset, steps: &mut u64) -> Option<Place> {
        let mut found = match from {
            Some(place) => Some(place),
            None => self.last(),
        };
        // Backwards until it does not start after `at`.
        while let Some(place) = found {
            *steps += 1;
            if self.get(place).is_some_and(|span| span.start <= at) {
                break;
            }
            found = self.before(place);
        }
        // From a position in the middle, forwards as well.
        if from.is_some() {
            while let Some(next) = found.map_or_else(|| self.first(), |place| self.after(place)) {
                if self.get(next).is_none_or(|span| span.start > at) {
                    break;
                }
                *steps += 1;
                found = Some(next);
            }
        }
        found
    }
}
