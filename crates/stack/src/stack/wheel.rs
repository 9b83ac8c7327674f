//! Deadlines of the connections of one stack: exact, one for each slot.
//!
//! An indexed heap with four children a node: changing a deadline (which nearly every packet does) moves one entry and
//! allocates nothing. Exact, because the contract of the stack is that nothing changes before the deadline it named.

use alloc::vec::Vec;

use manypath_tcp::time::Instant;

const ARITY: usize = 4;
const ABSENT: u32 = u32::MAX;

/// A queue of at most one deadline for each slot, earliest first; equal times are served by rising slot.
#[derive(Debug, Default)]
pub(crate) struct Wheel {
    heap: Vec<(Instant, u32)>,
    /// For each slot its place in the heap, or `ABSENT`.
    place: Vec<u32>,
}

impl Wheel {
    /// No deadlines.
    pub(crate) const fn new() -> Self {
        Self {
            heap: Vec::new(),
            place: Vec::new(),
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<(Instant, u32)>()
            + self.place.capacity() * size_of::<u32>()
    }

    /// How many slots have a deadline.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether no slot has a deadline.
    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// Sets, moves or (with `None`) removes the deadline of a slot.
    pub(crate) fn update(&mut self, slot: u32, deadline: Option<Instant>) {
        let at = self.place.get(slot as usize).copied().unwrap_or(ABSENT);
        match (at, deadline) {
            (ABSENT, None) => {}
            (ABSENT, Some(deadline)) => self.add(slot, deadline),
            (at, None) => self.take(at as usize),
            (at, Some(deadline)) => {
                let at = at as usize;
                if self.heap[at].0 != deadline {
                    self.heap[at].0 = deadline;
                    self.restore(at);
                }
            }
        }
    }

    /// The deadline of one slot.
    #[cfg(test)]
    pub(crate) fn deadline(&self, slot: u32) -> Option<Instant> {
        match self.place.get(slot as usize) {
            Some(&at) if at != ABSENT => Some(self.heap[at as usize].0),
            _ => None,
        }
    }

    /// The earliest deadline of all.
    pub(crate) fn earliest(&self) -> Option<Instant> {
        self.heap.first().map(|entry| entry.0)
    }

    /// Takes out the slot with the earliest deadline if that is not after `now`.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<u32> {
        let &(deadline, slot) = self.heap.first()?;
        if deadline > now {
            return None;
        }
        self.take(0);
        Some(slot)
    }

    /// Takes out the slot with the earliest deadline, due or not.
    pub(crate) fn pop_earliest(&mut self) -> Option<u32> {
        let slot = self.heap.first()?.1;
        self.take(0);
        Some(slot)
    }

    fn add(&mut self, slot: u32, deadline: Instant) {
        if self.place.len() <= slot as usize {
            self.place.resize(slot as usize + 1, ABSENT);
        }
        self.place[slot as usize] = self.heap.len() as u32;
        self.heap.push((deadline, slot));
        self.rise(self.heap.len() - 1);
    }

    fn take(&mut self, at: usize) {
        let (_, slot) = self.heap.swap_remove(at);
        self.place[slot as usize] = ABSENT;
        if at < self.heap.len() {
            self.place[self.heap[at].1 as usize] = at as u32;
            self.restore(at);
        }
        if self.heap.is_empty() && self.place.len() > 64 {
            // Nobody has a deadline: the table of a past burst can go.
            self.place = Vec::new();
        }
    }

    /// Puts the entry at `at` where it belongs after its deadline changed in either direction.
    fn restore(&mut self, at: usize) {
        if self.rise(at) == at {
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.heap[parent] <= self.heap[at] {
                break;
            }
            self.swap(parent, at);
            at = parent;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let first = at * ARITY + 1;
            let last = (first + ARITY).min(self.heap.len());
            let Some(least) = (first..last).min_by_key(|&child| self.heap[child]) else {
                break;
            };
            if self.heap[at] <= self.heap[least] {
                break;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use super::*;
    use crate::crypto::rng::Rng;

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    #[test]
    fn agrees_with_a_sorted_set_over_random_updates() {
        for seed in 0..20 {
            let mut rng = Rng::new([seed; 32]);
            let mut wheel = Wheel::new();
            let mut model: BTreeSet<(Instant, u32)> = BTreeSet::new();
            for _ in 0..3000 {
                let slot = rng.below(50);
                match rng.below(10) {
                    0 => {
                        let now = at(rng.below(1000).into());
                        let due = model.first().filter(|entry| entry.0 <= now).copied();
                        assert_eq!(wheel.pop_due(now), due.map(|entry| entry.1));
                        if let Some(entry) = due {
                            model.remove(&entry);
                        }
                    }
                    choice => {
                        let deadline = (choice > 2).then(|| at(rng.below(1000).into()));
                        model.retain(|entry| entry.1 != slot);
                        model.extend(deadline.map(|deadline| (deadline, slot)));
                        wheel.update(slot, deadline);
                        assert_eq!(wheel.deadline(slot), deadline);
                    }
                }
                assert_eq!(wheel.earliest(), model.first().map(|entry| entry.0));
                assert_eq!(wheel.len(), model.len());
            }
            while let Some(slot) = wheel.pop_earliest() {
                assert_eq!(model.pop_first().map(|entry| entry.1), Some(slot));
            }
            assert!(model.is_empty() && wheel.is_empty());
        }
    }

    #[test]
    fn nothing_is_due_before_its_time() {
        let mut wheel = Wheel::new();
        wheel.update(7, Some(at(100)));
        assert_eq!(wheel.pop_due(at(99)), None);
        assert_eq!(wheel.pop_due(at(100)), Some(7));
        assert_eq!(wheel.pop_due(at(100)), None);
        assert_eq!(wheel.earliest(), None);
    }

    #[test]
    fn equal_times_are_served_by_rising_slot() {
        let mut wheel = Wheel::new();
        for slot in [5, 1, 9, 3] {
            wheel.update(slot, Some(at(10)));
        }
        let served: Vec<_> = core::iter::from_fn(|| wheel.pop_due(at(10))).collect();
        assert_eq!(served, [1, 3, 5, 9]);
    }
}
