//! The file of quotas while a process runs: what it has, whether this process may write it, and when it is written next.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::lock::{Lock, Taken};
use super::quota::Used;
use super::store::{self, Counts};
use crate::seldom::{Others, Seldom};

/// No more than this is lost when the process is killed.
const SAVE_EVERY: Duration = Duration::from_secs(1);

/// The file, and what is to be in it.
#[derive(Debug)]
pub(super) struct Keeping {
    file: Option<PathBuf>,
    /// This process alone writes the file.
    lock: Option<Lock>,
    /// What the file has, of quotas that no configuration has any more, too.
    counts: Counts,
    /// What it had when it was read last.
    read: Counts,
    /// What the file does not have yet.
    unsaved: bool,
    saved_at: Option<Instant>,
    /// The last time that it was written failed, or could not be tried.
    failing: bool,
    failed: Seldom,
}

impl Default for Keeping {
    fn default() -> Self {
        Self {
            file: None,
            lock: None,
            counts: Counts::new(),
            read: Counts::new(),
            unsaved: false,
            saved_at: None,
            failing: false,
            failed: Seldom::every(Duration::from_secs(60)),
        }
    }
}

/// What another process has counted in the file until it ended, and what of it was known before.
pub(super) struct Regained {
    read: Counts,
    found: Counts,
}

impl Regained {
    /// What was used of a quota in both processes together.
    pub(super) fn with(&self, key: &str, own: Used) -> Used {
        both(
            own,
            self.read.get(key).copied(),
            self.found.get(key).copied(),
        )
    }
}

/// What this process has counted, beginning with what it had `read`, and what was `found` when the other one had ended.
fn both(own: Used, read: Option<Used>, found: Option<Used>) -> Used {
    let Some(found) = found.filter(|found| found.began >= own.began) else {
        return own;
    };
    if found.began > own.began {
        return found;
    }
    let known = read.filter(|read| read.began == own.began);
    let since = own.bytes.saturating_sub(known.map_or(0, |read| read.bytes));
    Used {
        bytes: found.bytes.saturating_add(since),
        ..own
    }
}

impl Keeping {
    /// Keeps the counts in this file from now on, and takes those that it has: what was counted here meanwhile is newer.
    pub(super) fn open(&mut self, file: &Path) {
        if self.file.as_deref() == Some(file) {
            return;
        }
        self.file = Some(file.to_owned());
        self.take_lock();
        self.read = read(file);
        for (key, used) in &self.read {
            self.counts.entry(key.clone()).or_insert(*used);
        }
        self.unsaved = true;
    }

    fn take_lock(&mut self) {
        let Some(file) = &self.file else { return };
        match Lock::take(file) {
            Ok(lock) => self.lock = Some(lock),
            Err(taken) => {
                (self.lock, self.failing) = (None, true);
                if let Some(more) = self.failed.due(Instant::now()) {
                    warn!("{}{}", refusal(file, taken), Others(more));
                }
            }
        }
    }

    /// What a quota's count was when it was kept last.
    pub(super) fn kept(&self, key: &str) -> Option<Used> {
        self.counts.get(key).copied()
    }

    /// These counts are to be in the file.
    pub(super) fn note(&mut self, counts: impl Iterator<Item = (String, Used)>) {
        self.counts.extend(counts);
    }

    /// The file does not have what was counted since.
    pub(super) fn is_behind(&mut self) {
        self.unsaved = true;
    }

    /// Whether the file has what was counted, but for the last second.
    pub(super) fn is_kept(&self) -> bool {
        !self.failing
    }

    /// Why nothing can be ordered about counts here: another process keeps them.
    pub(super) fn elsewhere(&self) -> Option<String> {
        let file = self.file.as_ref().filter(|_| self.lock.is_none())?;
        let taken = Lock::take(file).err()?;
        Some(format!(
            "{} counts in {}: order it there",
            taken.who(),
            file.display()
        ))
    }

    /// Whether something is to be written; `at_once`: it is not waited for the next second.
    pub(super) fn is_due(&self, at_once: bool) -> bool {
        let is_due = |saved: Instant| saved.elapsed() >= SAVE_EVERY;
        self.file.is_some() && self.unsaved && (at_once || self.saved_at.is_none_or(is_due))
    }

    /// Takes the place of another process that has ended, and gives what it has counted.
    pub(super) fn regain(&mut self) -> Option<Regained> {
        if self.lock.is_some() {
            return None;
        }
        self.saved_at = Some(Instant::now());
        self.take_lock();
        let file = self.file.as_ref().filter(|_| self.lock.is_some())?;
        let found = read(file);
        let before = std::mem::replace(&mut self.read, found.clone());
        self.counts.extend(found.clone());
        Some(Regained {
            read: before,
            found,
        })
    }

    /// The file and what is to be in it; `None`: another process writes it.
    pub(super) fn take(&mut self) -> Option<(PathBuf, String)> {
        let file = self.file.as_ref().filter(|_| self.lock.is_some())?;
        self.unsaved = false;
        self.saved_at = Some(Instant::now());
        Some((file.clone(), store::text(&self.counts)))
    }

    /// What became of it. Where it failed, counting goes on in memory, and it is tried again.
    pub(super) fn saved(&mut self, result: io::Result<()>) {
        let was_failing = std::mem::replace(&mut self.failing, result.is_err());
        let Some(file) = &self.file else { return };
        let file = file.display();
        match result {
            Ok(()) if was_failing => info!("quotas are kept in {file} again"),
            Ok(()) => {}
            Err(error) => {
                self.unsaved = true;
                if let Some(more) = self.failed.due(Instant::now()) {
                    warn!(
                        "quotas cannot be kept in {file}: {error}; they are counted in memory and hold until the process ends. Make its folder writable for the user of the process, or name another file by [quotas]{}",
                        Others(more)
                    );
                }
            }
        }
    }
}

fn read(file: &Path) -> Counts {
    let (counts, told) = store::read(file);
    for line in told {
        warn!("{line}");
    }
    counts
}

fn refusal(file: &Path, taken: Taken) -> String {
    let (who, file) = (taken.who(), file.display());
    format!(
        "{who} keeps its quotas in {file}: two would write over each other's counts. Quotas are counted here in memory, from what the file had, until that process ends and this one takes its place. If both are to run, name a file of its own for one of them by [quotas]"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    #[test]
    fn what_two_have_counted_one_beside_the_other_is_added() {
        let used = |began, bytes| Used {
            began: Timestamp::from_second(began).expect("a time"),
            bytes,
        };
        for (own, read, found, both_together) in [
            // Nothing was there.
            (used(10, 5), None, None, used(10, 5)),
            (used(10, 5), None, Some(used(10, 7)), used(10, 12)),
            (
                used(10, 25),
                Some(used(10, 20)),
                Some(used(10, 30)),
                used(10, 35),
            ),
            // A new period has begun in both, in one, and in the other.
            (
                used(20, 3),
                Some(used(10, 90)),
                Some(used(20, 4)),
                used(20, 7),
            ),
            (
                used(20, 3),
                Some(used(10, 90)),
                Some(used(10, 95)),
                used(20, 3),
            ),
            (
                used(10, 3),
                Some(used(10, 1)),
                Some(used(20, 4)),
                used(20, 4),
            ),
            (
                used(10, u64::MAX),
                None,
                Some(used(10, 1)),
                used(10, u64::MAX),
            ),
        ] {
            assert_eq!(both(own, read, found), both_together, "{own:?} {found:?}");
        }
    }

    #[test]
    fn who_comes_second_is_told_what_to_do() {
        let told = refusal(Path::new("/var/q.json"), Taken(Some(7)));
        for part in [
            "process 7 keeps",
            "/var/q.json",
            "name a file of its own",
            "[quotas]",
        ] {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
}
