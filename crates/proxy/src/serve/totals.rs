//! What a listener did so far.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a listener did so far.
#[derive(Debug, Default)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: AtomicU64,
    /// Of these, carried to a regular end in both directions.
    pub finished: AtomicU64,
    /// Of these, refused because the other side could not be reached.
    pub unreachable: AtomicU64,
    /// Of these, broken on the way, or ended because nothing moved.
    pub broken: AtomicU64,
    /// Of these, refused: their client had as many as one client may have, or what it asked for was not granted.
    pub refused: AtomicU64,
    /// Bytes from those who connected to us, however their connections ended, as far as they were passed on.
    pub bytes_forth: AtomicU64,
    /// Bytes to those who connected to us, in the same way.
    pub bytes_back: AtomicU64,
}

impl Totals {
    /// Connections that are carried now.
    pub fn open(&self) -> u64 {
        let over = [
            &self.finished,
            &self.unreachable,
            &self.broken,
            &self.refused,
        ];
        let over = over.map(|count| count.load(Ordering::Relaxed));
        let accepted = self.accepted.load(Ordering::Relaxed);
        accepted.saturating_sub(over.into_iter().sum())
    }

    /// Counts a connection that is over. One that we ended because we stop was open at the end, and stays so in the count.
    pub(crate) fn over(&self, outcome: Outcome) {
        let count = match outcome {
            Outcome::Finished => &self.finished,
            Outcome::Unreachable => &self.unreachable,
            Outcome::Broken => &self.broken,
            Outcome::Refused => &self.refused,
            Outcome::Stopped => return,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What became of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Finished,
    Unreachable,
    Broken,
    Refused,
    /// It was open when the listener was stopped.
    Stopped,
}
