//! The demo's folder for temporary files, which goes with the demo; when that was killed, with the next one.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};

/// How the folders' names begin.
const PREFIX: &str = "manypath-demo-";

/// In each of them, a file that its demo holds locked; the kernel drops the lock however the demo ends.
const LOCK: &str = "lock";

/// A folder without that file is given so long to get it.
const BIRTH: Duration = Duration::from_secs(60);

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    folder: tempfile::TempDir,
    _lock: Flock<File>,
}

impl Folder {
    /// Makes one, after removing those of demos that were killed.
    pub(super) fn new(parent: &Path) -> io::Result<Self> {
        remove_abandoned(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // It gets its name when it is locked, so that nobody finds it free.
        let unlocked = folder.path().join("lock.new");
        let lock = Flock::lock(File::create(&unlocked)?, FlockArg::LockExclusiveNonblock)
            .map_err(|(_, errno)| io::Error::from(errno))?;
        fs::rename(&unlocked, folder.path().join(LOCK))?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders of ours whose demo is gone. What cannot be removed stays for the next time.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(PREFIX)
            && is_abandoned(&entry.path()).unwrap_or(false)
        {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    // Not what a link points to, and nothing that somebody else has put there.
    let meta = fs::symlink_metadata(folder)?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
        return Ok(false);
    }
    match File::open(folder.join(LOCK)) {
        Ok(lock) => Ok(Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A clock that was set back makes it look young: then it stays.
            Ok(meta.modified()?.elapsed().is_ok_and(|age| age > BIRTH))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_demos_that_were_killed_go_with_the_next_one() {
        let parent = tempfile::tempdir().expect("a folder");
        let running = Folder::new(parent.path()).expect("made");
        // What a killed one leaves: a lock that nobody holds.
        let killed = parent.path().join("manypath-demo-killed");
        fs::create_dir(&killed).expect("made");
        fs::write(killed.join(LOCK), "").expect("written");
        // One that is being made right now, and something else.
        let young = parent.path().join("manypath-demo-young");
        let other = parent.path().join("somebody-elses");
        for path in [&young, &other] {
            fs::create_dir(path).expect("made");
        }
        let next = Folder::new(parent.path()).expect("made");
        assert!(!killed.exists());
        for path in [running.path(), next.path(), &young, &other] {
            assert!(path.exists(), "{}", path.display());
        }
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
    }
}
