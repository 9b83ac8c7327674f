//! Where the sockets lie: one folder per user, which nobody else can write to or look into.
//!
//! Root reads folders that other users filled. So a folder is opened once, by a descriptor that no link leads to, checked, and
//! everything in it is reached through that descriptor: what was checked is what is connected to.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, Metadata};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};

/// Ending of the sockets' names; what stands before it is the process id.
const ENDING: &str = ".sock";

/// Names that are tried in `/tmp` when the first belongs to somebody else. They are random: nobody can take them all in advance.
const SPARE_NAMES: u32 = 8;

/// Folders of one user in `/tmp` that are looked into.
const MOST_FOLDERS: usize = 16;

/// Sockets of one folder that are looked at.
const MOST_SOCKETS: usize = 1024;

/// What a user namespace shows for users that it does not know.
const UNKNOWN_USER: u32 = 65534;

/// Makes or finds the folder for the sockets of this user: below `$XDG_RUNTIME_DIR` or `/run/user/UID`, for root in `/run`, or
/// else in `/tmp`, where a name that another user took is passed over.
///
/// # Errors
/// Those of [`prepare`] for the best of these places, when none will do.
pub fn folder() -> io::Result<PathBuf> {
    first_of(own_folders(), Path::new("/tmp"), user())
}

/// The first of these folders that can be had, or a new one in `tmp` under a name that nobody could foresee.
fn first_of(folders: Vec<PathBuf>, tmp: &Path, user: u32) -> io::Result<PathBuf> {
    let mut error = None;
    let spare = (0..SPARE_NAMES).map(|_| {
        let random = std::hash::RandomState::new().build_hasher().finish();
        tmp.join(format!("manypath-{user}-{random}"))
    });
    for folder in folders.into_iter().chain(spare) {
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
        Path::new("/run"),
        Path::new("/tmp"),
        user(),
    )
}

fn candidates(runtime: Option<PathBuf>, run: &Path, tmp: &Path, user: u32) -> Vec<PathBuf> {
    let own = rustix::process::getuid().as_raw();
    let usable = |folder: &PathBuf| {
        folder.is_absolute()
            && folder.is_dir()
            // Who may rename what lies in it decides what is found there: with `sudo -E` it is another user's.
            && std::fs::metadata(folder).is_ok_and(|meta| meta.uid() == own)
            && rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok()
    };
    let mut all: Vec<PathBuf> = runtime
        .into_iter()
        .chain([run.join("user").join(user.to_string())])
        .filter(usable)
        .map(|folder| folder.join("manypath"))
        .collect();
    // Only root can write there, so no other user can be in the way.
    if usable(&run.to_owned()) {
        all.push(run.join(format!("manypath-{user}")));
    }
    all.push(tmp.join(format!("manypath-{user}")));
    all.extend(in_tmp(tmp, &|owner, name| {
        let spare = name.strip_prefix(&user.to_string());
        owner == own && spare.is_some_and(|rest| rest.starts_with('-'))
    }));
    all
}

/// Folders `manypath-...` in `tmp` that are wanted, by their owner and what stands behind `manypath-`; not more than
/// [`MOST_FOLDERS`] of one owner, so that one user cannot keep a reader busy.
fn in_tmp(tmp: &Path, wanted: &dyn Fn(u32, &str) -> bool) -> Vec<PathBuf> {
    let mut counts = std::collections::BTreeMap::<u32, usize>::new();
    let mut found = Vec::new();
    for entry in std::fs::read_dir(tmp).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|n| n.strip_prefix("manypath-")) else {
            continue;
        };
        let of_a_user = |b: u8| b.is_ascii_digit() || b == b'-';
        // Of a link, its own owner.
        let Ok(meta) = entry.metadata() else { continue };
        if meta.is_dir() && rest.bytes().all(of_a_user) && wanted(meta.uid(), rest) {
            let count = counts.entry(meta.uid()).or_default();
            *count += 1;
            if *count <= MOST_FOLDERS {
                found.push(entry.path());
            }
        }
    }
    found
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
        let users = std::fs::read_dir("/run/user").into_iter().flatten();
        folders.extend(users.flatten().map(|entry| entry.path().join("manypath")));
        folders.extend(in_tmp(Path::new("/tmp"), &|_, _| true));
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

/// The socket of a process.
pub fn socket(folder: &Path, pid: u32) -> PathBuf {
    folder.join(format!("{pid}{ENDING}"))
}

/// A folder that its owner alone can write to, held open.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: OwnedFd,
    path: PathBuf,
    owner: u32,
}

impl Folder {
    /// Opens one for reading; its owner is us or, when we are root, anybody.
    ///
    /// # Errors
    /// It is a link, no folder, open to others, or somebody else's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        let dir = std::fs::File::from(dir);
        let meta = dir.metadata()?;
        let own = rustix::process::getuid().as_raw();
        let owner = if own == 0 { meta.uid() } else { own };
        if !is_private(&meta, owner) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} is open to others", path.display()),
            ));
        }
        Ok(Self {
            dir: dir.into(),
            path: path.to_owned(),
            owner,
        })
    }
}

/// The socket of a process as a folder lists it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The process's id, by the socket's name.
    pub pid: u32,
    folder: Arc<Folder>,
    name: OsString,
}

impl Entry {
    /// Where it lies.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder.path.join(&self.name)
    }

    /// The user whose folder it lies in.
    #[must_use]
    pub fn owner(&self) -> u32 {
        self.folder.owner
    }

    /// Whether its folder is another user's.
    pub(crate) fn is_foreign(&self) -> bool {
        self.folder.owner != rustix::process::getuid().as_raw()
    }

    /// Holds the socket itself, by a descriptor that is only a name. [`Pinned::path`] leads to what was checked here, whatever its
    /// user puts in its place meanwhile.
    ///
    /// # Errors
    /// It is gone, a link, no socket, or not the socket of the folder's owner: root would speak with whatever a user points it at.
    pub(crate) fn pin(&self) -> io::Result<Pinned> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.folder.dir, &self.name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let refuse = |what: &str| {
            let what = format!("{} is {what}: not asked", self.path().display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket if stat.st_uid == self.folder.owner => Ok(Pinned(fd)),
            FileType::Socket => refuse("a socket of another user than its folder"),
            FileType::Symlink => refuse("a symbolic link"),
            _ => refuse("no socket"),
        }
    }

    /// Removes one that nobody listens at.
    pub(crate) fn remove(&self) {
        // Who cannot remove it finds it again.
        let _ = rustix::fs::unlinkat(&self.folder.dir, &self.name, AtFlags::empty());
    }
}

/// A socket that was looked at, held.
#[derive(Debug)]
pub(crate) struct Pinned(OwnedFd);

impl Pinned {
    /// The name by which it can be connected to.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.0.as_raw_fd()))
    }
}

/// All sockets in a folder, by rising process ids, but not more than [`MOST_SOCKETS`].
pub(crate) fn entries(folder: &Path) -> Vec<Entry> {
    let Ok(folder) = Folder::open(folder).map(Arc::new) else {
        return Vec::new();
    };
    let Ok(dir) = Dir::read_from(&folder.dir) else {
        return Vec::new();
    };
    let listed = dir.flatten().filter_map(|entry| {
        let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
        let pid = name.to_str()?.strip_suffix(ENDING)?.parse().ok()?;
        Some((pid, name))
    });
    let mut found: Vec<Entry> = listed
        .take(MOST_SOCKETS)
        .map(|(pid, name)| Entry {
            pid,
            folder: Arc::clone(&folder),
            name,
        })
        .collect();
    found.sort_by(|a, b| (a.pid, &a.name).cmp(&(b.pid, &b.name)));
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
        std::fs::create_dir_all(&run).expect("folder");
        assert_eq!(choose(None), run.join("manypath-5"), "only root has that");
        std::fs::create_dir_all(run.join("user/5")).expect("folder");
        assert_eq!(choose(None), run.join("user/5/manypath"));
        assert_eq!(
            choose(Some(base.path().into())),
            base.path().join("manypath")
        );
        let relative = choose(Some("relative".into()));
        assert_eq!(relative, run.join("user/5/manypath"));
    }

    /// Whoever is in the way of names in a folder that everybody can write to is passed over.
    #[test]
    fn a_folder_is_found_however_many_names_are_taken() {
        let base = tempfile::tempdir().expect("folder");
        let nowhere = base.path().join("nowhere");
        let of = |user| candidates(None, &nowhere, base.path(), user);
        for name in ["7", "7-1", "7-2", "7-8", "70-3", "x-7-1"] {
            let taken = base.path().join(format!("manypath-{name}"));
            std::fs::create_dir(&taken).expect("folder");
            std::fs::set_permissions(&taken, PermissionsExt::from_mode(0o777)).expect("chmod");
        }
        let made = first_of(of(7), base.path(), 7).expect("a name that is not taken");
        assert!(Folder::open(&made).is_ok());
        // And it is found again by who looks for it.
        assert!(of(7).contains(&made), "{:?}", of(7));
        assert_eq!(first_of(of(7), base.path(), 7).expect("again"), made);
        assert!(!of(70).contains(&made));
    }

    #[test]
    fn what_is_no_socket_of_the_folders_owner_is_not_held() {
        let base = tempfile::tempdir().expect("folder");
        let (folder, other) = (base.path().join("m"), base.path().join("other"));
        prepare(&folder).expect("made");
        let _other = std::os::unix::net::UnixListener::bind(&other).expect("socket");
        std::os::unix::fs::symlink(&other, folder.join("1.sock")).expect("link");
        std::fs::write(folder.join("2.sock"), "").expect("file");
        let _own = std::os::unix::net::UnixListener::bind(folder.join("3.sock")).expect("socket");
        let all = entries(&folder);
        let told = |n: usize| all[n].pin().map(|_| ()).expect_err("refused").to_string();
        assert!(told(0).contains("a symbolic link"), "{}", told(0));
        assert!(told(1).contains("no socket"), "{}", told(1));
        let held = all[2].pin().expect("a socket");
        // What is put in its place meanwhile is not reached.
        std::fs::rename(folder.join("3.sock"), folder.join("4.sock")).expect("renamed");
        std::os::unix::fs::symlink("/nowhere", folder.join("3.sock")).expect("link");
        assert!(std::os::unix::net::UnixStream::connect(held.path()).is_ok());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(&folder, &link).expect("link");
        assert!(entries(&link).is_empty(), "the folder itself is a link");
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
        assert!(Folder::open(&folder).is_err());
        let link = base.path().join("link");
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o700)).expect("chmod");
        std::os::unix::fs::symlink(&folder, &link).expect("link");
        assert!(prepare(&link).is_err());
    }

    #[test]
    fn only_sockets_of_processes_are_listed() {
        let base = tempfile::tempdir().expect("folder");
        let folder = base.path().join("m");
        prepare(&folder).expect("made");
        for name in ["20.sock", "3.sock", "x.sock", "4.txt"] {
            std::fs::write(folder.join(name), "").expect("file");
        }
        let pids: Vec<u32> = entries(&folder).iter().map(|entry| entry.pid).collect();
        assert_eq!(pids, [3, 20]);
    }
}
