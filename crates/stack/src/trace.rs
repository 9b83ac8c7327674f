//! Bounded logs: a ring that keeps the newest entries, and the optional trace of a stack made from it.

use alloc::collections::VecDeque;

use manypath_tcp::time::Instant;

use crate::ids::{ConnId, SubflowId};

/// The newest entries of a log, up to a fixed number.
#[derive(Clone, Debug)]
pub struct Ring<T> {
    entries: VecDeque<T>,
    capacity: usize,
    dropped: u64,
}

impl<T> Ring<T> {
    /// Keeps the newest `capacity` entries; memory is taken as entries come.
    pub const fn new(capacity: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            capacity,
            dropped: 0,
        }
    }

    /// Adds an entry and forgets the oldest one if there are too many.
    pub fn push(&mut self, entry: T) {
        if self.capacity == 0 {
            self.dropped += 1;
            return;
        }
        if self.entries.len() == self.capacity {
            self.entries.pop_front();
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Takes out the oldest entry.
    pub fn pop(&mut self) -> Option<T> {
        self.entries.pop_front()
    }

    /// How many entries are kept.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many entries were forgotten because there were too many.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }
}

/// One thing that happened inside a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceEntry {
    /// When.
    pub at: Instant,
    /// To which connection; `None` for what concerns no connection (yet).
    pub conn: Option<ConnId>,
    /// On which subflow.
    pub subflow: Option<SubflowId>,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A decision that has a counter of this name was taken.
    Counted(&'static str),
    /// A state changed.
    State {
        /// The one before.
        from: &'static str,
        /// The one now.
        to: &'static str,
    },
    /// A number worth seeing, with its name.
    Value(&'static str, u64),
}

/// A trace that costs one test of a flag while it is off.
#[derive(Debug, Default)]
pub struct Trace {
    ring: Option<Ring<TraceEntry>>,
}

impl Trace {
    /// Off.
    pub const OFF: Self = Self { ring: None };

    /// Keeps the newest `capacity` entries.
    pub const fn keep(capacity: usize) -> Self {
        Self {
            ring: Some(Ring::new(capacity)),
        }
    }

    /// Whether anything is recorded.
    pub const fn is_on(&self) -> bool {
        self.ring.is_some()
    }

    /// Records an entry that is only made if the trace is on.
    pub fn record(&mut self, entry: impl FnOnce() -> TraceEntry) {
        if let Some(ring) = &mut self.ring {
            ring.push(entry());
        }
    }

    /// The entries, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &TraceEntry> {
        self.ring.iter().flat_map(Ring::iter)
    }

    /// Takes out the oldest entry.
    pub fn pop(&mut self) -> Option<TraceEntry> {
        self.ring.as_mut()?.pop()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_ring_keeps_the_newest() {
        let mut ring = Ring::new(3);
        (0..5).for_each(|n| ring.push(n));
        assert_eq!(ring.iter().copied().collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(ring.dropped(), 2);
        assert_eq!(ring.pop(), Some(2));
        assert_eq!(ring.len(), 2);
        let mut none = Ring::new(0);
        none.push(1);
        assert!(none.is_empty());
    }

    #[test]
    fn a_trace_that_is_off_never_makes_an_entry() {
        let mut off = Trace::OFF;
        off.record(|| unreachable!("the trace is off"));
        assert!(!off.is_on() && off.iter().next().is_none());
        let mut on = Trace::keep(8);
        let entry = TraceEntry {
            at: Instant::from_nanos(1),
            conn: None,
            subflow: Some(SubflowId(2)),
            what: What::Counted("rto"),
        };
        on.record(|| entry);
        assert_eq!(on.iter().copied().collect::<Vec<_>>(), [entry]);
        assert_eq!(on.pop(), Some(entry));
        assert_eq!(on.pop(), None);
    }
}
