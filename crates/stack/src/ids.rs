//! The names that the stack gives to its own things. Protocol numbers live in the wire crate.

use core::fmt;

use crate::slab::Handle;

/// A connection of a stack. Stale once the connection is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub Handle);

/// A listener of a stack. Stale once the listener is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId(pub Handle);

/// A subflow within its connection: a dense index that is used again some time after the subflow ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubflowId(pub u8);

impl SubflowId {
    /// How many subflows of one connection can have a name at one time.
    pub const LIMIT: usize = 256;

    /// The index, for tables.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index(), self.0.generation())
    }
}

/// The text names no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoConnId;

impl core::str::FromStr for ConnId {
    type Err = NoConnId;

    /// What [`fmt::Display`] writes.
    fn from_str(text: &str) -> Result<Self, NoConnId> {
        let (index, generation) = text.split_once('.').ok_or(NoConnId)?;
        let (index, generation): (u32, u32) = match (index.parse(), generation.parse()) {
            (Ok(index), Ok(generation)) => (index, generation),
            _ => return Err(NoConnId),
        };
        let bits = u64::from(generation) << 32 | u64::from(index);
        Ok(Self(Handle::from_bits(bits)))
    }
}

impl fmt::Display for ListenerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index(), self.0.generation())
    }
}

impl fmt::Display for SubflowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A set of subflows of one connection. Small and `Copy`: it travels inside scheduling questions.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct SubflowSet {
    bits: [u64; SubflowId::LIMIT / 64],
}

impl SubflowSet {
    /// No subflow.
    pub const EMPTY: Self = Self {
        bits: [0; SubflowId::LIMIT / 64],
    };

    /// The set with this one member.
    pub fn of(subflow: SubflowId) -> Self {
        let mut set = Self::EMPTY;
        set.insert(subflow);
        set
    }

    /// Adds a member.
    pub fn insert(&mut self, subflow: SubflowId) {
        self.bits[subflow.index() / 64] |= 1 << (subflow.index() % 64);
    }

    /// Takes a member out.
    pub fn remove(&mut self, subflow: SubflowId) {
        self.bits[subflow.index() / 64] &= !(1 << (subflow.index() % 64));
    }

    /// Whether it is a member.
    pub fn contains(&self, subflow: SubflowId) -> bool {
        self.bits[subflow.index() / 64] >> (subflow.index() % 64) & 1 == 1
    }

    /// Whether it has no member.
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }

    /// How many members it has.
    pub fn len(&self) -> usize {
        self.bits
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum()
    }

    /// The members, by rising number.
    pub fn iter(&self) -> impl Iterator<Item = SubflowId> {
        let bits = self.bits;
        (0..=u8::MAX)
            .map(SubflowId)
            .filter(move |id| bits[id.index() / 64] >> (id.index() % 64) & 1 == 1)
    }

    /// The lowest number that is not a member, or `None` when all 256 are.
    pub fn first_free(&self) -> Option<SubflowId> {
        let (word, bits) = self
            .bits
            .iter()
            .enumerate()
            .find(|(_, bits)| **bits != u64::MAX)?;
        Some(SubflowId((word as u32 * 64 + bits.trailing_ones()) as u8))
    }
}

impl FromIterator<SubflowId> for SubflowSet {
    fn from_iter<I: IntoIterator<Item = SubflowId>>(members: I) -> Self {
        let mut set = Self::EMPTY;
        for member in members {
            set.insert(member);
        }
        set
    }
}

impl fmt::Debug for SubflowSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn a_set_holds_every_number() {
        let mut set = SubflowSet::EMPTY;
        for n in [0, 1, 63, 64, 127, 200, 255] {
            assert!(!set.contains(SubflowId(n)));
            set.insert(SubflowId(n));
            assert!(set.contains(SubflowId(n)));
        }
        assert_eq!(set.len(), 7);
        set.remove(SubflowId(64));
        assert_eq!(
            set.iter().map(|id| id.0).collect::<Vec<_>>(),
            [0, 1, 63, 127, 200, 255]
        );
    }

    #[test]
    fn a_connection_is_found_by_its_name() {
        let id = ConnId(Handle::from_bits(7 << 32 | 3));
        assert_eq!(alloc::format!("{id}").parse(), Ok(id));
        for nonsense in ["", "3", "3.", "3.7.1", "-1.2"] {
            assert_eq!(nonsense.parse::<ConnId>(), Err(NoConnId));
        }
    }

    #[test]
    fn the_first_free_number_skips_members() {
        assert_eq!(SubflowSet::EMPTY.first_free(), Some(SubflowId(0)));
        let low: SubflowSet = (0..70).map(SubflowId).collect();
        assert_eq!(low.first_free(), Some(SubflowId(70)));
        let all: SubflowSet = (0..=255).map(SubflowId).collect();
        assert_eq!(all.first_free(), None);
    }
}
