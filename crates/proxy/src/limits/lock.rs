//! One process at a time keeps counts in a file of quotas: who does holds a lock beside it, which the kernel frees however that process ends.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::store::beside;

/// The lock of a file, held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _held: Option<File>,
}

/// Another process holds it: its number, where it could be found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken(pub(super) Option<u32>);

impl Taken {
    /// Who that is.
    pub(super) fn who(self) -> String {
        match self.0 {
            Some(pid) => format!("process {pid}"),
            None => "another process".to_owned(),
        }
    }
}

impl Lock {
    /// Takes the lock of a file of quotas. Where no lock can be had at all (no folder, a file system without them) nobody else has one either, and
    /// writing tells what is wrong.
    pub(super) fn take(file: &Path) -> Result<Self, Taken> {
        let Ok(mut held) = open(&beside(file, ".lock")) else {
            return Ok(Self { _held: None });
        };
        match flock(&held, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => Err(Taken(holder(&mut held))),
            Err(_) => Ok(Self { _held: None }),
            Ok(()) => {
                // For whoever finds it taken.
                let _ = held
                    .set_len(0)
                    .and_then(|()| write!(held, "{}", std::process::id()));
                Ok(Self { _held: Some(held) })
            }
        }
    }
}

/// Who made it may have been another user: it can be locked without being written.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => File::open(path),
        other => other,
    }
}

/// A number that no process has is of one that could not write its own.
fn holder(held: &mut File) -> Option<u32> {
    let mut text = String::new();
    held.take(16).read_to_string(&mut text).ok()?;
    let pid: u32 = text.trim().parse().ok()?;
    Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_at_a_time_and_the_others_are_told_who() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("quotas.json");
        let first = Lock::take(&file).expect("nobody has it");
        let second = Lock::take(&file).err();
        assert_eq!(second, Some(Taken(Some(std::process::id()))));
        let other = folder.path().join("others.json");
        assert!(Lock::take(&other).is_ok(), "each file has its own");
        drop(first);
        assert!(Lock::take(&file).is_ok(), "it is free again");
    }

    #[test]
    fn a_number_that_no_process_has_is_not_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("quotas.json");
        let _first = Lock::take(&file).expect("nobody has it");
        for text in ["", "0", "4194305", "-1", "text", "99999999999999999999"] {
            std::fs::write(beside(&file, ".lock"), text).expect("written");
            assert_eq!(Lock::take(&file).err(), Some(Taken(None)), "{text}");
        }
    }

    #[test]
    fn where_there_can_be_no_lock_writing_tells_why() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Lock::take(&folder.path().join("no/quotas.json")).is_ok());
    }
}
