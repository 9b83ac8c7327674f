//! Which subflows a connection has.

use crate::plug::CustomController;
use manypath_stack as stack;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// The policy by which a connection has its subflows.
///
/// It is also read from text, as the command line writes it: `"fullmesh".parse()`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PathManager(pub(crate) stack::PathManager);

impl PathManager {
    /// Creates no subflow, announces our addresses, and accepts what the peer opens.
    pub const PASSIVE: Self = Self(stack::PathManager::Passive);
    /// One subflow for each pair of an address of ours and one of the peer, made again when it is lost.
    pub const FULL_MESH: Self = Self(stack::PathManager::FullMesh);
    /// Nothing by itself: the application makes subflows ([`MpStream::add_subflow`](crate::MpStream::add_subflow)). As text
    /// it is `userspace`.
    pub const MANUAL: Self = Self(stack::PathManager::Userspace);

    /// This many subflows between the first pair of addresses, from different ports: for networks that spread flows over parallel
    /// paths.
    #[must_use]
    pub const fn ndiffports(subflows: u8) -> Self {
        Self(stack::PathManager::Ndiffports(subflows))
    }

    /// A second path only while the first one leaves data unacknowledged for longer than `threshold`.
    #[must_use]
    pub fn smart_backup(threshold: Duration) -> Self {
        Self(stack::PathManager::SmartBackup(stack::SmartBackup {
            threshold: threshold.into(),
            ..stack::SmartBackup::default()
        }))
    }

    /// As many subflows as raise the throughput, `most` at most (PathFinder).
    #[must_use]
    pub fn path_finder(most: u8) -> Self {
        Self(stack::PathManager::PathFinder(stack::PathFinder {
            most,
            ..stack::PathFinder::default()
        }))
    }

    /// What a controller of the application decides.
    #[must_use]
    pub const fn custom(controller: &'static CustomController) -> Self {
        Self(stack::PathManager::Custom(controller))
    }
}

impl fmt::Display for PathManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PathManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The text names no policy; the message lists them all.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnknownPathManager(stack::UnknownPolicy);

impl fmt::Display for UnknownPathManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for UnknownPathManager {}

impl FromStr for PathManager {
    type Err = UnknownPathManager;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(UnknownPathManager)
    }
}
