//! The event queue: what happens next in virtual time. Equal times keep the order in which they were scheduled, so a
//! run is a function of its seed alone.

use std::collections::BinaryHeap;

use manypath_tcp::time::Instant;

/// A priority queue of events by (time, order of scheduling).
///
/// It stays small: links keep their packets in their own first-in-first-out lines and have one entry here for the head
/// of each line, hosts have one for their next deadline. So a binary heap is cheaper than cleverer queues.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    order: u64,
}

#[derive(Debug)]
struct Entry<E> {
    /// The time above the order of scheduling: one number, so that one comparison decides.
    key: u128,
    event: E,
}

impl<E> Entry<E> {
    fn new(time: Instant, order: u64, event: E) -> Self {
        let key = u128::from(time.as_nanos()) << 64 | u128::from(order);
        Self { key, event }
    }

    fn time(&self) -> Instant {
        Instant::from_nanos((self.key >> 64) as u64)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    /// The heap hands out the greatest: what is due first.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.key.cmp(&self.key)
    }
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self {
            heap: BinaryHeap::with_capacity(256),
            order: 0,
        }
    }
}

impl<E> EventQueue<E> {
    /// Schedules `event` at `time`, after everything already scheduled for that time.
    pub fn push(&mut self, time: Instant, event: E) {
        self.heap.push(Entry::new(time, self.order, event));
        self.order += 1;
    }

    /// The time of the next event.
    #[must_use]
    pub fn next_time(&self) -> Option<Instant> {
        self.heap.peek().map(Entry::time)
    }

    /// Takes the next event.
    pub fn pop(&mut self) -> Option<(Instant, E)> {
        self.heap.pop().map(|entry| (entry.time(), entry.event))
    }

    /// Events waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Nothing will ever happen again.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_of_time_and_then_of_scheduling() {
        let mut queue = EventQueue::default();
        for (time, name) in [(5, 'c'), (3, 'a'), (5, 'd'), (3, 'b'), (9, 'e')] {
            queue.push(Instant::from_nanos(time), name);
        }
        assert_eq!(queue.len(), 5);
        assert_eq!(queue.next_time(), Some(Instant::from_nanos(3)));
        let order: String = std::iter::from_fn(|| queue.pop().map(|(_, name)| name)).collect();
        assert_eq!(order, "abcde");
        assert!(queue.is_empty() && queue.next_time().is_none());
    }
}
