//! A generational slab: values by small index, with handles that go stale when their value is removed.
//!
//! Owns the numbering of connections and listeners. It must never hand out a handle that an earlier, removed value
//! had, and it gives memory back: the lowest free index is used first and a vacant tail is dropped, so a burst of
//! thousands of connections leaves nothing behind.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Names one value of a [`Slab`], and nothing any more once that value is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Handle {
    index: u32,
    generation: u32,
}

impl Handle {
    /// The index of the value: dense, and used again after the value is removed.
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Tells apart the values that had this index one after another.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// The handle as one number, for logs and for foreign interfaces.
    pub const fn to_bits(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// The inverse of [`Handle::to_bits`]. A number that was never handed out gives a handle that finds nothing.
    pub const fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Values of one kind, each found by index or by generational [`Handle`].
#[derive(Debug)]
pub struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: BTreeSet<u32>,
    /// One count for the whole slab: an entry that was dropped from the tail and made again still gets a new number.
    next_generation: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slab<T> {
    /// An empty slab; allocates nothing.
    pub const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: BTreeSet::new(),
            next_generation: 1,
        }
    }

    /// How many values are present.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether no value is present.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory held, what the values own not included.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<T>>() + self.free.len() * size_of::<u32>()
    }

    /// Stores a value under the lowest free index.
    pub fn insert(&mut self, value: T) -> Handle {
        self.insert_with(|_| value)
    }

    /// Stores a value that wants to know its own handle.
    pub fn insert_with(&mut self, make: impl FnOnce(Handle) -> T) -> Handle {
        let generation = self.next_generation;
        self.next_generation = self.next_generation.wrapping_add(1);
        match self.free.pop_first() {
            Some(index) => {
                let handle = Handle { index, generation };
                self.entries[index as usize] = Entry {
                    generation,
                    value: Some(make(handle)),
                };
                handle
            }
            None => {
                let handle = Handle {
                    index: self.entries.len() as u32,
                    generation,
                };
                self.entries.push(Entry {
                    generation,
                    value: Some(make(handle)),
                });
                handle
            }
        }
    }

    /// The value of a handle, unless it was removed.
    pub fn get(&self, handle: Handle) -> Option<&T> {
        let entry = self.entries.get(handle.index as usize)?;
        if entry.generation == handle.generation {
            entry.value.as_ref()
        } else {
            None
        }
    }

    /// The value of a handle, to change it.
    pub fn get_mut(&mut self, handle: Handle) -> Option<&mut T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.generation == handle.generation {
            entry.value.as_mut()
        } else {
            None
        }
    }

    /// The value that has this index now.
    pub fn at(&self, index: u32) -> Option<&T> {
        self.entries.get(index as usize)?.value.as_ref()
    }

    /// The value that has this index now, to change it.
    pub fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.entries.get_mut(index as usize)?.value.as_mut()
    }

    /// The handle of the value that has this index now.
    pub fn handle_at(&self, index: u32) -> Option<Handle> {
        let entry = self.entries.get(index as usize)?;
        entry.value.as_ref()?;
        Some(Handle {
            index,
            generation: entry.generation,
        })
    }

    /// Takes a value out; its handle is stale from now on.
    pub fn remove(&mut self, handle: Handle) -> Option<T> {
        let entry = self.entries.get_mut(handle.index as usize)?;
        if entry.generation != handle.generation {
            return None;
        }
        let value = entry.value.take()?;
        self.free.insert(handle.index);
        self.drop_vacant_tail();
        Some(value)
    }

    /// All values, by rising index.
    pub fn iter(&self) -> impl Iterator<Item = (Handle, &T)> {
        self.entries
            .iter()
            .enumerate()
            .filter_map(|(index, entry)| {
                let handle = Handle {
                    index: index as u32,
                    generation: entry.generation,
                };
                entry.value.as_ref().map(|value| (handle, value))
            })
    }

    /// All values to change, by rising index.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Handle, &mut T)> {
        self.entries
            .iter_mut()
            .enumerate()
            .filter_map(|(index, entry)| {
                let handle = Handle {
                    index: index as u32,
                    generation: entry.generation,
                };
                entry.value.as_mut().map(|value| (handle, value))
            })
    }

    fn drop_vacant_tail(&mut self) {
        while self
            .entries
            .last()
            .is_some_and(|entry| entry.value.is_none())
        {
            self.entries.pop();
            self.free.remove(&(self.entries.len() as u32));
        }
        // Shrinking only to a quarter keeps the cost of a removal constant on average.
        if self.entries.capacity() > 64 && self.entries.len() < self.entries.capacity() / 4 {
            self.entries.shrink_to(self.entries.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_handle_finds_nothing_even_when_its_index_is_used_again() {
        let mut slab = Slab::new();
        let a = slab.insert("a");
        let b = slab.insert("b");
        assert_eq!(slab.remove(a), Some("a"));
        let c = slab.insert("c");
        assert_eq!(c.index(), a.index());
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(c), Some(&"c"));
        assert_eq!(slab.get(b), Some(&"b"));
        assert_eq!(slab.handle_at(b.index()), Some(b));
        assert_eq!(Handle::from_bits(c.to_bits()), c);
    }

    #[test]
    fn a_tail_that_was_dropped_still_makes_old_handles_stale() {
        let mut slab = Slab::new();
        let a = slab.insert(1);
        slab.remove(a);
        let b = slab.insert(2);
        assert_eq!(a.index(), b.index());
        assert_ne!(a, b);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.at(b.index()), Some(&2));
    }

    #[test]
    fn memory_is_given_back_after_a_burst() {
        let mut slab = Slab::new();
        let keep = slab.insert(0);
        let burst: Vec<_> = (1..5000).map(|n| slab.insert(n)).collect();
        assert_eq!(slab.len(), 5000);
        for handle in burst {
            assert!(slab.remove(handle).is_some());
        }
        assert_eq!(slab.len(), 1);
        assert!(slab.entries.capacity() <= 64, "{}", slab.entries.capacity());
        assert!(slab.free.is_empty());
        assert_eq!(
            slab.iter().map(|(h, v)| (h, *v)).collect::<Vec<_>>(),
            [(keep, 0)]
        );
    }

    #[test]
    fn insert_with_knows_the_handle_it_gets() {
        let mut slab = Slab::new();
        let handle = slab.insert_with(|own| own);
        assert_eq!(slab.get(handle), Some(&handle));
    }
}
