//! How data that arrives out of order is kept (NSDI 2012 section 4.3).

use core::fmt;
use core::str::FromStr;

/// How the place of a segment is found among those that arrived out of order.
///
/// A list is searched step by step, which a peer that leaves thousands of holes could make expensive: more than 4096 segments are stored as
/// the batches of [`AllShortcuts`](Self::AllShortcuts), until none waits any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReceiveAlgorithm {
    /// A list of segments, searched from its end.
    List,
    /// A balanced tree of segments.
    Tree,
    /// A list of segments, and for each subflow the place behind its last one; where that is wrong, a search.
    Shortcuts,
    /// The same, with segments that follow each other joined into batches, of which there are few.
    #[default]
    AllShortcuts,
}

impl ReceiveAlgorithm {
    /// Every algorithm, for lists in help texts.
    pub const ALL: &'static [Self] = &[Self::List, Self::Tree, Self::Shortcuts, Self::AllShortcuts];

    /// The name that users write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Tree => "tree",
            Self::Shortcuts => "shortcuts",
            Self::AllShortcuts => "all-shortcuts",
        }
    }
}

impl fmt::Display for ReceiveAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A receive algorithm of that name does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownReceiveAlgorithm;

impl fmt::Display for UnknownReceiveAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown receive algorithm; there are:")?;
        ReceiveAlgorithm::ALL
            .iter()
            .try_for_each(|known| write!(f, " {known}"))
    }
}

impl core::error::Error for UnknownReceiveAlgorithm {}

impl FromStr for ReceiveAlgorithm {
    type Err = UnknownReceiveAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .iter()
            .copied()
            .find(|known| known.name() == name)
            .ok_or(UnknownReceiveAlgorithm)
    }
}

/// What the searches of a connection cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveSearches {
    /// Segments whose place was looked for.
    pub searches: u64,
    /// Of these, segments whose subflow's shortcut was right.
    pub hits: u64,
    /// Queued segments or batches that were looked at in all.
    pub steps: u64,
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString as _;

    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for &algorithm in ReceiveAlgorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            let known = UnknownReceiveAlgorithm.to_string();
            assert!(known.contains(algorithm.name()));
        }
        assert!("heap".parse::<ReceiveAlgorithm>().is_err());
    }
}
