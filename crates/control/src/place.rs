//! Where the sockets lie: one folder per user, which nobody else can write to or look into.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Ending of the sockets' names; what stands before it is the process id.
const ENDING: &str = ".sock";

/// The folder for the sockets of this user: below `$XDG_RUNTIME_DIR`, `/run/user/UID`, or else in `/tmp`.
pub fn folder() -> PathBuf {
    let uid = rustix::process::getuid().as_raw();
    choose(
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Path::new("/run/user"),
        Path::new("/tmp"),
        uid,
    )
}

fn choose(runtime: Option<PathBuf>, run_user: &Path, tmp: &Path, uid: u32) -> PathBuf {
    let of_user = run_user.join(uid.to_string());
    let usable = |folder: &Path| {
        rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok() && folder.is_dir()
    };
    match runtime {
        Some(folder) if folder.is_absolute() && usable(&folder) => folder.join("manypath"),
        _ if usable(&of_user) => of_user.join("manypath"),
        _ => tmp.join(format!("manypath-{uid}")),
    }
}

/// Folders that may hold sockets for us to read: our own, and for root everybody's.
pub fn folders_to_search() -> Vec<PathBuf> {
    let mut folders = vec![folder()];
    let uid = rustix::process::getuid().as_raw();
    // A process that was started without XDG_RUNTIME_DIR, for example by `sudo`, has put its socket elsewhere.
    folders.push(PathBuf::from(format!("/run/user/{uid}/manypath")));
    folders.push(PathBuf::from(format!("/tmp/manypath-{uid}")));
    if uid == 0 {
        let below = |parent: &str, pick: &dyn Fn(PathBuf) -> Option<PathBuf>| -> Vec<PathBuf> {
            let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
            entries.filter_map(|entry| pick(entry.path())).collect()
        };
        folders.extend(below("/run/user", &|path| Some(path.join("manypath"))));
        folders.extend(below("/tmp", &|path| {
            let name = path
                .file_name()?
                .to_str()?
                .strip_prefix("manypath-")?
                .to_owned();
            name.bytes().all(|b| b.is_ascii_digit()).then_some(path)
        }));
    }
    folders.sort();
    folders.dedup();
    folders
}

/// Makes the folder, or checks that the one there is a folder of this user that is closed to others.
///
/// # Errors
/// The folder cannot be made, or somebody else could have put something into it.
pub fn prepare(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    if is_private(
        &std::fs::symlink_metadata(folder)?,
        rustix::process::getuid().as_raw(),
    ) {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} is not a folder of this user alone (mode 0700); remove it",
                folder.display()
            ),
        ))
    }
}

/// Whether it is a real folder (no link) of that user, closed to everybody else.
fn is_private(folder: &Metadata, uid: u32) -> bool {
    folder.is_dir() && folder.uid() == uid && folder.mode() & 0o077 == 0
}

/// Whether a reader may trust the sockets in it: a folder that its owner alone can write to, the owner being
/// us or, when we are root, anybody.
pub(crate) fn is_trusted(folder: &Path) -> bool {
    let uid = rustix::process::getuid().as_raw();
    std::fs::symlink_metadata(folder)
        .is_ok_and(|meta| is_private(&meta, if uid == 0 { meta.uid() } else { uid }))
}

/// The socket of a process.
pub fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}{ENDING}"))
}

/// All sockets in a folder with the ids of their processes, by rising id.
pub(crate) fn sockets(folder: &Path) -> Vec<(u32, PathBuf)> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let pid = path
                .file_name()?
                .to_str()?
                .strip_suffix(ENDING)?
                .parse()
                .ok()?;
            Some((pid, path))
        })
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_usable_place_is_taken() {
        let base = tempfile::tempdir().expect("folder");
        let (run, tmp) = (base.path().join("run"), base.path().join("tmp"));
        let nowhere = base.path().join("nowhere");
        assert_eq!(choose(Some(nowhere), &run, &tmp, 5), tmp.join("manypath-5"));
        std::fs::create_dir_all(run.join("5")).expect("folder");
        assert_eq!(choose(None, &run, &tmp, 5), run.join("5/manypath"));
        assert_eq!(
            choose(Some(base.path().into()), &run, &tmp, 5),
            base.path().join("manypath")
        );
        assert_eq!(
            choose(Some("relative".into()), &run, &tmp, 5),
            run.join("5/manypath")
        );
    }

    #[test]
    fn a_folder_open_to_others_is_refused() {
        let base = tempfile::tempdir().expect("folder");
        let folder = base.path().join("m");
        prepare(&folder).expect("made");
        prepare(&folder).expect("found again");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).expect("chmod");
        assert_eq!(
            prepare(&folder).map_err(|e| e.kind()),
            Err(io::ErrorKind::PermissionDenied)
        );
        assert!(!is_trusted(&folder));
        let link = base.path().join("link");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::symlink(&folder, &link).expect("link");
        assert!(prepare(&link).is_err());
    }

    #[test]
    fn only_sockets_of_processes_are_listed() {
        let base = tempfile::tempdir().expect("folder");
        for name in ["20.sock", "3.sock", "x.sock", "4.txt"] {
            std::fs::write(base.path().join(name), "").expect("file");
        }
        let pids: Vec<u32> = sockets(base.path())
            .into_iter()
            .map(|(pid, _)| pid)
            .collect();
        assert_eq!(pids, [3, 20]);
    }
}
