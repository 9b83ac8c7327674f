//! What we changed on the host, written down before it is changed, so that it can be undone even after a crash.
//!
//! Every process that changes the host keeps one journal, named by its network namespace, process id and start time, and holds a
//! lock on it as long as it lives: the kernel drops the lock when the process ends, however it ends. Whoever starts
//! next in the same namespace finds journals that nobody locks, undoes what they list, and deletes them.

use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// One change, described by what undoes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Undo {
    /// Delete the nftables table `inet NAME`.
    FirewallTable(String),
    /// Delete a policy rule.
    Rule(crate::netlink::Rule),
    /// Empty a routing table.
    RouteTable(u32),
    /// Set a sysctl (a path below `/proc/sys`) back from `ours` to `before`, unless somebody else has changed it since.
    Sysctl {
        /// Path below `/proc/sys`.
        key: String,
        /// What it was.
        before: String,
        /// What we set.
        ours: String,
    },
    /// Take ports out of `net.ipv4.ip_local_reserved_ports`.
    ReservedPorts(u16, u16),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::FirewallTable(name) => write!(f, "table {name}"),
            Undo::Rule(r) => write!(f, "rule {} {} {}", r.from, r.table, r.priority),
            Undo::RouteTable(table) => write!(f, "routes {table}"),
            Undo::Sysctl { key, before, ours } => write!(f, "sysctl {key} {before} {ours}"),
            Undo::ReservedPorts(low, high) => write!(f, "ports {low} {high}"),
        }
    }
}

impl FromStr for Undo {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        fn number<T: FromStr>(s: &str) -> Result<T, ()> {
            s.parse().map_err(|_| ())
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["table", name] if is_ours(name) => Ok(Undo::FirewallTable(name.to_owned())),
            ["rule", from, table, priority] => Ok(Undo::Rule(crate::netlink::Rule {
                from: number::<IpAddr>(from)?,
                table: number(table)?,
                priority: number(priority)?,
            })),
            ["routes", table] => Ok(Undo::RouteTable(number(table)?)),
            ["sysctl", key, before, ours] if key.starts_with("net/") && !key.contains("..") => {
                Ok(Undo::Sysctl {
                    key: key.to_owned(),
                    before: before.to_owned(),
                    ours: ours.to_owned(),
                })
            }
            ["ports", low, high] => Ok(Undo::ReservedPorts(number(low)?, number(high)?)),
            _ => Err(()),
        }
    }
}

/// Directories for journals that are tried in the place for temporary files.
const DIRECTORIES: u32 = 16;

/// The start of the names of our nftables tables.
const TABLE_PREFIX: &str = "manypath_";

fn is_ours(name: &str) -> bool {
    name.starts_with(TABLE_PREFIX) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Where the directory of all journals may be, best first.
fn candidates() -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let mut candidates = vec![PathBuf::from("/run/manypath")];
    if let Some(runtime) = std::env::var_os("XDG_RUNTIME_DIR") {
        candidates.push(Path::new(&runtime).join("manypath"));
    }
    // In a user namespace everybody may be user 0, so the first name may be somebody else's.
    candidates.extend(
        (0..DIRECTORIES).map(|n| std::env::temp_dir().join(format!("manypath-{user}-{n}"))),
    );
    candidates
}

/// Whether only we can write there: whoever writes there decides what a later start undoes.
fn is_private(path: &Path) -> io::Result<bool> {
    let meta = fs::symlink_metadata(path)?;
    let user = rustix::process::geteuid().as_raw();
    Ok(meta.is_dir() && meta.uid() == user && meta.mode() & 0o022 == 0)
}

/// The directory of all journals.
fn directory() -> io::Result<PathBuf> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for path in candidates() {
        match fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
        {
            Ok(()) => {}
            Err(e) => {
                error = e;
                continue;
            }
        }
        if is_private(&path)? && lock_file(&path).is_ok() {
            return Ok(path);
        }
        error = io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} belongs to somebody else", path.display()),
        );
    }
    Err(error)
}

/// The network namespace of the calling thread, as a number.
fn namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/thread-self/ns/net")?.ino())
}

/// When this process started, in clock ticks since boot (field 22 of `/proc/self/stat`).
fn start_time() -> io::Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The second field, the program's name, may hold spaces and parentheses; the last parenthesis ends it.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace()
        .nth(19)
        .and_then(|s| s.parse().ok())
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn lock_file(directory: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(directory.join("lock"))
}

/// Keeps set-up and clean-up of different processes apart.
fn exclusive(directory: &Path) -> io::Result<File> {
    let lock = lock_file(directory)?;
    flock(&lock, FlockOperation::LockExclusive)?;
    Ok(lock)
}

/// This process's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    name: String,
    entries: Vec<Undo>,
}

impl Journal {
    /// Opens a journal for this process in its network namespace, and first undoes what dead processes left behind there.
    /// `apply` undoes one change.
    ///
    /// # Errors
    /// When no directory for journals can be made, or its owner is somebody else.
    pub(crate) fn open(apply: &mut dyn FnMut(&Undo, &[Undo])) -> io::Result<Self> {
        Journal::open_in(directory()?, apply)
    }

    fn open_in(directory: PathBuf, apply: &mut dyn FnMut(&Undo, &[Undo])) -> io::Result<Self> {
        let _guard = exclusive(&directory)?;
        let namespace = namespace()?;
        undo_stale(&directory, namespace, apply)?;
        forget_gone(&directory);
        // A process may hold several journals (several stacks, several namespaces): a number tells them apart.
        for number in 0u32.. {
            let owner = format!("{}_{}_{number}", std::process::id(), start_time()?);
            let path = directory.join(format!("{namespace}-{owner}.undo"));
            let made = OpenOptions::new()
                .create_new(true)
                .read(true)
                .append(true)
                .mode(0o600)
                .open(&path);
            match made {
                Ok(mut file) => {
                    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                    writeln!(file, "mark {}", mark(Path::new("/proc/thread-self"))?)?;
                    return Ok(Journal {
                        directory,
                        path,
                        file,
                        name: format!("{TABLE_PREFIX}{owner}"),
                        entries: Vec::new(),
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
        Err(io::Error::from(io::ErrorKind::AlreadyExists))
    }

    /// A name for things on the host that belong to this journal alone.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Writes down how to undo a change; call it before making the change.
    ///
    /// # Errors
    /// Those of the file; the change must then not be made.
    pub(crate) fn record(&mut self, undo: Undo) -> io::Result<()> {
        writeln!(self.file, "{undo}")?;
        self.entries.push(undo);
        Ok(())
    }

    /// What live journals of this namespace, without this one, list.
    pub(crate) fn others(&self) -> io::Result<Vec<Undo>> {
        let mut found = Vec::new();
        for path in journals(&self.directory, namespace()?)? {
            if path != self.path {
                if let Ok(text) = fs::read_to_string(&path) {
                    found.extend(parse(&text));
                }
            }
        }
        Ok(found)
    }

    /// Undoes everything, last change first, and deletes the journal.
    pub(crate) fn undo(&mut self, apply: &mut dyn FnMut(&Undo, &[Undo])) {
        let _guard = exclusive(&self.directory);
        let others = self.others().unwrap_or_default();
        while let Some(entry) = self.entries.pop() {
            apply(&entry, &others);
        }
        // If it stays, the next start finds nothing left to undo and deletes it.
        let _ = fs::remove_file(&self.path);
    }
}

fn parse(text: &str) -> Vec<Undo> {
    // A last line cut short by a crash describes a change that was not made yet.
    text.lines().filter_map(|l| l.parse().ok()).collect()
}

/// All journals, with their namespaces.
fn journals_of_all(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let namespace = name
            .strip_suffix(".undo")
            .and_then(|n| n.split_once('-'))
            .and_then(|(namespace, _)| namespace.parse().ok());
        found.extend(namespace.map(|n| (n, entry.path())));
    }
    found.sort();
    Ok(found)
}

/// The journals of one namespace.
fn journals(directory: &Path, namespace: u64) -> io::Result<Vec<PathBuf>> {
    let all = journals_of_all(directory)?.into_iter();
    Ok(all
        .filter(|(n, _)| *n == namespace)
        .map(|(_, path)| path)
        .collect())
}

/// Undoes the journals that nobody locks.
fn undo_stale(
    directory: &Path,
    namespace: u64,
    apply: &mut dyn FnMut(&Undo, &[Undo]),
) -> io::Result<()> {
    let mut live = Vec::new();
    let mut stale = Vec::new();
    for path in journals(directory, namespace)? {
        let Ok(mut file) = OpenOptions::new().read(true).write(true).open(&path) else {
            continue;
        };
        let dead = flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
        let mut text = String::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_string(&mut text)?;
        if dead {
            stale.push((path, file, parse(&text)));
        } else {
            live.extend(parse(&text));
        }
    }
    while let Some((path, _lock, mut entries)) = stale.pop() {
        // What the remaining dead ones list is still wanted by nobody, but each holds only a part of the truth about a value
        // they shared; the last one undone restores it.
        let mut others = live.clone();
        others.extend(stale.iter().flat_map(|(_, _, e)| e.iter().cloned()));
        while let Some(entry) = entries.pop() {
            apply(&entry, &others);
        }
        fs::remove_file(&path)?;
    }
    Ok(())
}

/// Deletes the journals of dead processes in network namespaces that are gone: everything they list went with the
/// namespace.
fn forget_gone(directory: &Path) {
    let Ok(all) = journals_of_all(directory) else {
        return;
    };
    let left: Vec<(u64, PathBuf, String)> = all
        .into_iter()
        .filter_map(|(namespace, path)| {
            let mut file = OpenOptions::new().read(true).write(true).open(&path).ok()?;
            flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
            let mut text = String::new();
            file.read_to_string(&mut text).ok()?;
            Some((namespace, path, text))
        })
        .collect();
    if left.is_empty() {
        return;
    }
    let (Some(inhabited), Some(mounted)) = (inhabited(), mounted()) else {
        return;
    };
    for (namespace, path, text) in left {
        let gone = match mark_in(&text) {
            Some(mark) => !inhabited.contains(&mark) && !mounted.contains(&namespace),
            // The mark comes first: the process ended before it changed anything.
            None => text.is_empty(),
        };
        if gone {
            // If it stays, the next start tries again.
            let _ = fs::remove_file(&path);
        }
    }
}

/// A number by which the network namespace of a process or thread is known from outside. Its number proper
/// (`ns/net`) shows only to those who may trace the process; that of a file which every network namespace has a copy of
/// does to everybody.
fn mark(task: &Path) -> io::Result<u64> {
    Ok(fs::metadata(task.join("net/dev"))?.ino())
}

/// The line of a journal that holds the mark of its namespace.
fn mark_in(text: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let number = line.strip_prefix("mark ")?;
        number.parse().ok()
    })
}

/// The marks of all network namespaces in which some thread is. `None` if not all can be seen.
fn inhabited() -> Option<BTreeSet<u64>> {
    let numbered = |folder: &Path| -> Option<Vec<PathBuf>> {
        let entries = fs::read_dir(folder).ok()?.flatten();
        let is_number = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
        Some(
            entries
                .filter(|e| is_number(&e.file_name()))
                .map(|e| e.path())
                .collect(),
        )
    };
    let processes = numbered(Path::new("/proc"))?;
    if !processes.iter().any(|path| path.ends_with("1")) {
        // Other users' processes are hidden from us.
        return None;
    }
    let mut marks = BTreeSet::new();
    for process in processes {
        // A process that has ended meanwhile has no threads.
        for thread in numbered(&process.join("task")).unwrap_or_default() {
            match mark(&thread) {
                Ok(mark) => {
                    marks.insert(mark);
                }
                // So has the thread.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::NotFound | io::ErrorKind::InvalidInput
                    ) => {}
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                Err(_) => return None,
            }
        }
    }
    Some(marks)
}

/// The network namespaces that are mounted somewhere, as those with a name are.
fn mounted() -> Option<BTreeSet<u64>> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut known: BTreeSet<u64> = mounts.lines().filter_map(mounted_namespace).collect();
    // Mounts of `ip netns` may be in a mount namespace that we are not in.
    if let Ok(named) = fs::read_dir("/run/netns") {
        let inodes = named.flatten().filter_map(|e| fs::metadata(e.path()).ok());
        known.extend(inodes.map(|m| m.ino()));
    }
    Some(known)
}

/// The network namespace that a line of mountinfo shows, by proc_pid_mountinfo(5): its fourth field is `net:[NUMBER]`.
fn mounted_namespace(line: &str) -> Option<u64> {
    let root = line.split_whitespace().nth(3)?;
    root.strip_prefix("net:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Rule;

    fn scratch(name: &str) -> PathBuf {
        let path =
            std::env::temp_dir().join(format!("manypath-test-{}-{name}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .recursive(true)
            .create(&path)
            .expect("a writable temporary directory");
        path
    }

    fn examples() -> Vec<Undo> {
        vec![
            Undo::FirewallTable("manypath_1_2_0".into()),
            Undo::Rule(Rule {
                from: "10.0.0.1".parse().expect("a literal"),
                table: 7,
                priority: 100,
            }),
            Undo::RouteTable(7),
            Undo::Sysctl {
                key: "net/ipv4/ip_forward".into(),
                before: "0".into(),
                ours: "1".into(),
            },
            Undo::ReservedPorts(40000, 49999),
        ]
    }

    #[test]
    fn entries_round_trip_and_nonsense_is_refused() {
        for undo in examples() {
            assert_eq!(undo.to_string().parse(), Ok(undo));
        }
        for bad in [
            "table filter",
            "table manypath_;x",
            "sysctl kernel/x 0 1",
            "sysctl net/../x 0 1",
            "rule x",
            "",
        ] {
            assert_eq!(bad.parse::<Undo>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn journals_of_namespaces_that_are_gone_are_forgotten() {
        let directory = scratch("gone");
        let here = mark(Path::new("/proc/thread-self")).expect("/proc");
        assert_eq!(mark(Path::new("/proc/self")).expect("/proc"), here);
        let cases = [
            ("1-99_1_0.undo", "mark 1\nroutes 5\n".to_owned(), false),
            ("1-99_1_1.undo", String::new(), false),
            ("1-99_1_2.undo", "routes 5\n".to_owned(), true),
            ("1-99_1_3.undo", format!("mark {here}\nroutes 5\n"), true),
        ];
        for (name, text, _) in &cases {
            fs::write(directory.join(name), text).expect("our own directory");
        }
        forget_gone(&directory);
        // Where processes are hidden nobody can know.
        let all_seen = inhabited().is_some();
        for (name, _, stays) in cases {
            assert_eq!(directory.join(name).exists(), stays || !all_seen, "{name}");
        }
        fs::remove_dir_all(directory).expect("our own directory");
    }

    #[test]
    fn namespaces_with_a_name_are_found_among_the_mounts() {
        let named = "541 29 0:4 net:[4026532316] /run/netns/a rw shared:1 - nsfs nsfs rw";
        assert_eq!(mounted_namespace(named), Some(4_026_532_316));
        let other = "29 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw";
        assert_eq!(mounted_namespace(other), None);
    }

    #[test]
    fn undone_in_reverse_and_deleted() {
        let directory = scratch("reverse");
        let mut journal =
            Journal::open_in(directory.clone(), &mut |_, _| {}).expect("a new journal");
        for undo in examples() {
            journal.record(undo).expect("a writable journal");
        }
        let path = journal.path.clone();
        assert!(path.exists());
        let mut seen = Vec::new();
        journal.undo(&mut |u, _| seen.push(u.clone()));
        seen.reverse();
        assert_eq!(seen, examples());
        assert!(!path.exists());
        fs::remove_dir_all(directory).expect("our own directory");
    }

    #[test]
    fn only_dead_journals_are_undone_by_the_next_start() {
        let directory = scratch("stale");
        let mut live = Journal::open_in(directory.clone(), &mut |_, _| {}).expect("a new journal");
        live.record(Undo::RouteTable(1))
            .expect("a writable journal");
        let mut dead =
            Journal::open_in(directory.clone(), &mut |_, _| {}).expect("a second journal");
        dead.record(Undo::RouteTable(2))
            .expect("a writable journal");
        let path = dead.path.clone();
        // What a crash leaves: the file, but no lock.
        drop(dead);
        let mut seen = Vec::new();
        let next = Journal::open_in(directory.clone(), &mut |u, others| {
            seen.push((u.clone(), others.to_vec()));
        })
        .expect("a third journal");
        assert_eq!(seen, [(Undo::RouteTable(2), vec![Undo::RouteTable(1)])]);
        // The number is free again, so the new journal has the dead one's name.
        assert_eq!(next.path, path);
        assert!(live.path.exists());
        assert_eq!(next.others().expect("readable"), [Undo::RouteTable(1)]);
        fs::remove_dir_all(directory).expect("our own directory");
    }
}
