//! A hash table that cannot be iterated, so that the order of a hash never shows in what a stack does.
//!
//! The hash is keyed with a secret of the stack: a peer cannot choose addresses and ports that collide.

use core::hash::{Hash, Hasher as _};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use siphasher::sip::SipHasher13;

use crate::crypto::rng::Rng;

/// Below this capacity a table does not shrink.
const SMALL: usize = 1024;

/// The key is in the table already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken;

/// Values found by key.
#[derive(Clone, Debug)]
pub(crate) struct Table<K, V> {
    entries: HashTable<(K, V)>,
    secret: (u64, u64),
}

impl<K: Hash + Eq, V> Table<K, V> {
    /// An empty table with a secret drawn from `rng`.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            entries: HashTable::new(),
            secret: (rng.next_u64(), rng.next_u64()),
        }
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// For how many keys there is memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.entries.capacity()
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.entries.allocation_size()
    }

    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        let found = self
            .entries
            .find(hash(self.secret, key), |entry| entry.0 == *key);
        found.map(|entry| &entry.1)
    }

    /// Whether a key is there.
    pub(crate) fn contains(&self, key: &K) -> bool {
        self.get(key).is_some()
    }

    /// Enters a key that is not there yet.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Result<(), Taken> {
        let secret = self.secret;
        let own = hash(secret, &key);
        match self
            .entries
            .entry(own, |entry| entry.0 == key, |entry| hash(secret, &entry.0))
        {
            Entry::Occupied(_) => Err(Taken),
            Entry::Vacant(vacant) => {
                vacant.insert((key, value));
                Ok(())
            }
        }
    }

    /// Takes a key out. A burst of keys does not leave its memory behind.
    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let secret = self.secret;
        let found = self
            .entries
            .find_entry(hash(secret, key), |entry| entry.0 == *key)
            .ok()?;
        let ((_, value), _) = found.remove();
        if self.entries.capacity() > SMALL && self.entries.len() < self.entries.capacity() / 8 {
            self.entries
                .shrink_to(self.entries.len() * 2, |entry| hash(secret, &entry.0));
        }
        Some(value)
    }

    /// Takes a key out if it has this value.
    pub(crate) fn remove_if(&mut self, key: &K, value: &V) -> bool
    where
        V: PartialEq,
    {
        self.get(key) == Some(value) && self.remove(key).is_some()
    }
}

fn hash<K: Hash>(secret: (u64, u64), key: &K) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(secret.0, secret.1);
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use super::*;

    #[test]
    fn agrees_with_a_sorted_map_over_random_operations() {
        let mut rng = Rng::new([4; 32]);
        let mut table = Table::new(&mut rng);
        let mut model = BTreeMap::new();
        for step in 0..20_000 {
            let key = rng.below(300);
            match rng.below(3) {
                0 => assert_eq!(table.remove(&key), model.remove(&key)),
                1 => {
                    let free = !model.contains_key(&key);
                    assert_eq!(table.insert(key, step).is_ok(), free);
                    if free {
                        model.insert(key, step);
                    }
                }
                _ => assert_eq!(table.get(&key), model.get(&key)),
            }
            assert_eq!(table.len(), model.len());
        }
    }

    #[test]
    fn only_the_owner_takes_a_key_out() {
        let mut table = Table::new(&mut Rng::new([4; 32]));
        table.insert("key", 1).expect("free");
        assert_eq!(table.insert("key", 2), Err(Taken));
        assert!(!table.remove_if(&"key", &2) && table.contains(&"key"));
        assert!(table.remove_if(&"key", &1) && !table.contains(&"key"));
    }
}
