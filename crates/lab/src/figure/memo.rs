//! Runs that several points of figures show: made once by a process, whoever asks first.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// What runs gave, by all that tells one from another.
pub(super) struct Memo<T>(Mutex<BTreeMap<String, Arc<OnceLock<T>>>>);

impl<T: Clone> Memo<T> {
    /// Nothing yet.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// What the run gave; it is made now if it was not before. Who asks meanwhile waits.
    pub(super) fn get(&self, run: String, make: impl FnOnce() -> T) -> T {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let cell = Arc::clone(all.entry(run).or_default());
        drop(all);
        cell.get_or_init(make).clone()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_run_is_made_once() {
        let (memo, made) = (Memo::new(), Cell::new(0));
        let make = |run: &str| {
            memo.get(run.to_owned(), || {
                made.set(made.get() + 1);
                made.get()
            })
        };
        assert_eq!(["a", "b", "a"].map(make), [1, 2, 1]);
    }
}
