//! What lets a service go on keeping its journal after it has become an ordinary user.
//!
//! The directory of the journals belongs to root and to a group of a number that no account has ([`GROUP`]). A service that gives up
//! root's number keeps that group and no other, so it, and nobody else of its user, can still read the other journals and delete
//! its own.

use rustix::fs::{Gid, fchown};
use std::fs::{File, Metadata, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

/// The group of services of ours. systemd's list of numbers (60578 to 61183) has it as unused; below are users', above are
/// dynamic and mapped ones.
pub const GROUP: u32 = 61_000;

/// Opens root's directory to the group. Without the privilege for it, or where the number is not mapped, it stays root's alone.
pub(crate) fn share_directory(path: &Path) {
    share(path, 0o770);
}

/// The same for the lock in it, which all services of ours take.
pub(crate) fn share_lock(path: &Path) {
    share(path, 0o660);
}

/// Lets services of ours read a journal.
pub(crate) fn show(path: &Path) {
    share(path, 0o640);
}

fn share(path: &Path, mode: u32) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // By a descriptor that follows no link: owner and mode are those of what was looked at.
    let opened = rustix::fs::open(
        path,
        rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::CLOEXEC,
        rustix::fs::Mode::empty(),
    );
    let Ok(file) = opened.map(File::from) else {
        return;
    };
    let Ok(meta) = file.metadata() else { return };
    if meta.uid() != 0 || (meta.gid() == GROUP && meta.mode() & 0o7777 == mode) {
        return;
    }
    if fchown(&file, None, Some(Gid::from_raw(GROUP))).is_ok() {
        let _ = file.set_permissions(Permissions::from_mode(mode));
    }
}

/// Whether only that user, root and services of ours can write in a directory: whoever writes there decides what a later start
/// undoes.
pub(crate) fn is_private(meta: &Metadata, user: u32) -> bool {
    is_private_to(user, meta.is_dir(), meta.uid(), meta.gid(), meta.mode())
}

fn is_private_to(user: u32, is_dir: bool, owner: u32, group: u32, mode: u32) -> bool {
    let by_group = mode & 0o020 != 0;
    is_dir
        && (owner == user || (owner == 0 && group == GROUP))
        && mode & 0o002 == 0
        && (!by_group || (owner == 0 && group == GROUP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_directory_is_trusted() {
        let (root, nobody, other) = (0, 65_534, 1000);
        for (user, owner, group, mode, trusted) in [
            (root, root, 0, 0o700, true),
            (root, root, GROUP, 0o770, true),
            (nobody, root, GROUP, 0o770, true),
            (other, other, other, 0o700, true),
            (root, root, 0, 0o770, false),
            (root, root, GROUP, 0o777, false),
            (root, nobody, GROUP, 0o770, false),
            (other, root, 0, 0o700, false),
            (other, nobody, 0, 0o700, false),
        ] {
            let case = (user, owner, group, mode);
            assert_eq!(
                is_private_to(user, true, owner, group, mode),
                trusted,
                "{case:?}"
            );
        }
        assert!(!is_private_to(0, false, 0, 0, 0o600), "no directory");
    }
}
