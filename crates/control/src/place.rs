//! Where the sockets lie: one folder per user, which nobody else can write to or look into.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Ending of the sockets' names; what stands before it is the process id.
const ENDING: &str = ".sock";

/// Names that are tried in `/tmp` when the first belongs to somebody else.
const SPARE_NAMES: u32 = 8;

/// What a user namespace shows for users that it does not know.
const UNKNOWN_USER: u32 = 65534;

/// Makes or finds the folder for the sockets of this user: below `$XDG_RUNTIME_DIR`, `/run/user/UID`, or else in `/tmp`.
///
/// # Errors
/// Those of [`prepare`] for the best of these places, when none will do.
pub fn folder() -> io::Result<PathBuf> {
    let mut error = None;
    for folder in own_folders() {
        match prepare(&folder) {
            Ok(()) => return Ok(folder),
            Err(e) => error = error.or(Some(e)),
        }
    }
    Err(error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

/// The places where sockets of this user may lie, best first.
fn own_folders() -> Vec<PathBuf> {
    candidates(
        std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from),
        Path::new("/run/user"),
        Path::new("/tmp"),
        user(),
    )
}

fn candidates(runtime: Option<PathBuf>, run_user: &Path, tmp: &Path, user: u32) -> Vec<PathBuf> {
    let usable = |folder: &PathBuf| {
        folder.is_absolute()
            && folder.is_dir()
            && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let mut all: Vec<PathBuf> = runtime
        .into_iter()
        .chain([run_user.join(user.to_string())])
        .filter(usable)
        .map(|folder| folder.join("manypath"))
        .collect();
    all.push(tmp.join(format!("manypath-{user}")));
    all.extend((1..=SPARE_NAMES).map(|n| tmp.join(format!("manypath-{user}-{n}"))));
    all
}

/// The user as the host counts, so that two that are root of their own user namespaces are not taken for one. In namespaces
/// within namespaces it is the number of the next one outside; [`folder`] finds another name if that is taken.
fn user() -> u32 {
    let uid = rustix::process::getuid().as_raw();
    // A kernel without user namespaces has no such file.
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    outside(&map, uid)
}

/// What a user is outside of its namespace, by user_namespaces(7): lines of "first inside, first outside, how many".
fn outside(map: &str, uid: u32) -> u32 {
    map.lines()
        .find_map(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            let (Some(Ok(inside)), Some(Ok(outside)), Some(Ok(count))) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return None;
            };
            let offset = uid.checked_sub(inside).filter(|n| *n < count)?;
            outside.checked_add(offset)
        })
        .unwrap_or(uid)
}

/// Whether that user, who has opened the socket of a process of ours, may see its connections: ourselves and root. In
/// a user namespace the host's root has no number; nobody else without one could come through a folder that is closed to
/// others.
pub(crate) fn may_ask(uid: u32) -> bool {
    let own = rustix::process::getuid().as_raw();
    uid == 0 || uid == own || (uid == UNKNOWN_USER && user() != own)
}

/// Folders that may hold sockets for us to read: our own, and for root everybody's.
pub fn folders_to_search() -> Vec<PathBuf> {
    // A process that was started without XDG_RUNTIME_DIR, for example by `sudo`, has put its socket in a later place.
    let mut folders = own_folders();
    if rustix::process::getuid().as_raw() == 0 {
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
            let of_a_user = |b: u8| b.is_ascii_digit() || b == b'-';
            name.bytes().all(of_a_user).then_some(path)
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
        let choose = |runtime| candidates(runtime, &run, &tmp, 5)[0].clone();
        assert_eq!(choose(Some(nowhere)), tmp.join("manypath-5"));
        std::fs::create_dir_all(run.join("5")).expect("folder");
        assert_eq!(choose(None), run.join("5/manypath"));
        assert_eq!(
            choose(Some(base.path().into())),
            base.path().join("manypath")
        );
        assert_eq!(choose(Some("relative".into())), run.join("5/manypath"));
        let all = candidates(None, &run, &tmp, 5);
        assert!(all.contains(&tmp.join("manypath-5-1")), "{all:?}");
    }

    #[test]
    fn root_of_a_user_namespace_is_somebody_else_outside() {
        let host = "         0          0 4294967295\n";
        assert_eq!((outside(host, 0), outside(host, 1000)), (0, 1000));
        let own = "         0       1000          1\n         1     100000      65536\n";
        assert_eq!(outside(own, 0), 1000);
        assert_eq!(outside(own, 1), 100_000);
        assert_eq!(outside(own, 65_536), 165_535);
        assert_eq!(outside(own, 65_537), 65_537, "not in the map");
        assert_eq!(outside("", 7), 7);
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
