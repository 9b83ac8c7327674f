//! What we changed on the host, written down before it is changed, so that it can be undone even after a crash.
//!
//! Every process that changes the host keeps one journal, named by its network namespace, process id and start time, and holds a
//! lock on it as long as it lives: the kernel drops the lock when the process ends, however it ends. Whoever starts
//! next in the same namespace finds journals that nobody locks, undoes what they list, and deletes them.
//!
//! Journals are also how processes share what there is once: whoever takes ports or a network holds [`Journal::exclusive`],
//! reads what the others have ([`Journal::others`]) and writes down what it takes.
//!
//! A folder that is full or cannot be written is no reason not to start: there are several, and all of them are read.

use crate::origin::Origin;
use crate::service;
use crate::sysctl::Setting;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
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
    /// Delete a policy rule for a mark.
    MarkRule(crate::netlink::MarkRule),
    /// Empty a routing table.
    RouteTable(u32),
    /// Set a kernel setting back from `ours` to `before`, unless somebody else has changed it since.
    Sysctl {
        /// Which.
        setting: Setting,
        /// What it was.
        before: String,
        /// What we set.
        ours: String,
    },
    /// Take ports out of `net.ipv4.ip_local_reserved_ports`.
    ReservedPorts(u16, u16),
    /// Nothing: the TUN device's network of this number goes with the device. It is here for other processes to see.
    Network(u8),
}

impl fmt::Display for Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Undo::FirewallTable(name) => write!(f, "table {name}"),
            Undo::Rule(r) => write!(f, "rule {} {} {}", r.from, r.table, r.priority),
            Undo::MarkRule(r) => {
                let family = if r.ipv6 { 6 } else { 4 };
                write!(f, "fwmark {family} {} {} {}", r.mark, r.table, r.priority)
            }
            Undo::RouteTable(table) => write!(f, "routes {table}"),
            Undo::Sysctl {
                setting,
                before,
                ours,
            } => write!(f, "sysctl {setting} {before} {ours}"),
            Undo::ReservedPorts(low, high) => write!(f, "ports {low} {high}"),
            Undo::Network(number) => write!(f, "network {number}"),
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
            ["fwmark", family @ ("4" | "6"), mark, table, priority] => {
                Ok(Undo::MarkRule(crate::netlink::MarkRule {
                    ipv6: family == "6",
                    mark: number(mark)?,
                    table: number(table)?,
                    priority: number(priority)?,
                }))
            }
            ["routes", table] => Ok(Undo::RouteTable(number(table)?)),
            ["sysctl", ref setting @ .., before, ours] => Ok(Undo::Sysctl {
                setting: setting.join(" ").parse()?,
                before: before.to_owned(),
                ours: ours.to_owned(),
            }),
            ["ports", low, high] => Ok(Undo::ReservedPorts(number(low)?, number(high)?)),
            ["network", n] => Ok(Undo::Network(number(n)?)),
            _ => Err(()),
        }
    }
}

/// Directories for journals that are tried in the place for temporary files.
const DIRECTORIES: u32 = 16;

/// The start of a line that strikes an earlier one out: what it lists was undone.
const DONE: &str = "done ";

/// So many entries may be struck out before the file is written anew: paths that come and go must not fill the file system.
const MOST_STRUCK: usize = 256;

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
    Ok(service::is_private(
        &meta,
        rustix::process::geteuid().as_raw(),
    ))
}

/// Makes a directory for journals, if it is not there.
fn make(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)?;
    service::share_directory(path);
    if is_private(path)? {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it belongs to somebody else",
    ))
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
    let path = directory.join("lock");
    let made = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path);
    // In a file system that nobody can write any more, one that is there can still be locked.
    made.or_else(|e| File::open(&path).map_err(|_| e))
}

/// Keeps set-up and clean-up of different processes apart.
#[derive(Debug)]
pub(crate) struct Exclusive {
    _locks: Vec<File>,
}

/// Locks the directories in their order, which is the same for all processes of a user. One that cannot be locked is none in
/// which anybody can start a journal.
fn exclusive(directories: &[PathBuf]) -> Exclusive {
    let lock = |directory: &PathBuf| {
        let private = is_private(directory).unwrap_or(false);
        let file = private.then(|| lock_file(directory).ok()).flatten()?;
        service::share_lock(&directory.join("lock"));
        flock(&file, FlockOperation::LockExclusive).ok()?;
        Some(file)
    };
    Exclusive {
        _locks: directories.iter().filter_map(lock).collect(),
    }
}

/// This process's journal.
#[derive(Debug)]
pub(crate) struct Journal {
    /// Where journals may be, best first.
    directories: Vec<PathBuf>,
    path: PathBuf,
    file: File,
    name: String,
    entries: Vec<Undo>,
    /// How many entries of the file are struck out.
    struck: usize,
    /// The last line was not written whole.
    torn: bool,
}

impl Journal {
    /// Opens a journal for this process in its network namespace, and first undoes what dead processes left behind there.
    /// `apply` undoes one change.
    ///
    /// # Errors
    /// When no directory can hold a journal; the text says why of each.
    pub(crate) fn open(apply: &mut dyn FnMut(&Undo, &[Undo])) -> io::Result<Self> {
        Journal::open_in(candidates(), apply)
    }

    fn open_in(
        directories: Vec<PathBuf>,
        apply: &mut dyn FnMut(&Undo, &[Undo]),
    ) -> io::Result<Self> {
        // The best place is made before it can be locked; what is wrong with it is said where no other serves.
        let _ = directories.first().map(|d| make(d));
        let _guard = exclusive(&directories);
        let namespace = namespace()?;
        undo_stale(&directories, namespace, apply);
        directories.iter().for_each(|d| forget_gone(d));
        let (path, file, name) = begin(&directories, namespace, &[])?;
        Ok(Journal {
            directories,
            path,
            file,
            name,
            entries: Vec::new(),
            struck: 0,
            torn: false,
        })
    }

    /// A name for things on the host that belong to this journal alone.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// What is to be undone, oldest first.
    pub(crate) fn entries(&self) -> &[Undo] {
        &self.entries
    }

    /// Writes down how to undo a change; call it before making the change.
    ///
    /// # Errors
    /// Those of the file; the change must then not be made.
    pub(crate) fn record(&mut self, undo: Undo) -> io::Result<()> {
        self.entries.push(undo);
        let written = self.entries.last().map(|undo| format!("{undo}\n"));
        let Err(error) = self.write(&written.unwrap_or_default()) else {
            return Ok(());
        };
        // The file system has become full, or read-only: another one gets the whole journal.
        let elsewhere: Vec<PathBuf> = self
            .directories
            .iter()
            .filter(|d| !self.path.starts_with(d))
            .cloned()
            .collect();
        match namespace().and_then(|n| begin(&elsewhere, n, &self.entries)) {
            Ok((path, file, _)) => {
                tracing::warn!(
                    "{} cannot be written ({error}); what is changed on this host is noted in {}",
                    self.path.display(),
                    path.display()
                );
                // If it stays, it lists what the new one lists, and undoing twice does no harm.
                let _ = fs::remove_file(&self.path);
                (self.path, self.file, self.torn) = (path, file, false);
                Ok(())
            }
            Err(_) => {
                self.entries.pop();
                Err(error)
            }
        }
    }

    /// Adds a line. One that the file system took a part of does not swallow the next one.
    fn write(&mut self, line: &str) -> io::Result<()> {
        let end = if self.torn { "\n" } else { "" };
        let written = self.file.write_all(format!("{end}{line}").as_bytes());
        self.torn = written.is_err();
        written
    }

    /// Strikes out a change that was undone. Where that cannot be written the entry stays, and undoing twice does no harm.
    pub(crate) fn forget(&mut self, undone: &Undo) {
        let Some(at) = self.entries.iter().rposition(|entry| entry == undone) else {
            return;
        };
        if self.write(&format!("{DONE}{undone}\n")).is_err() {
            return;
        }
        self.entries.remove(at);
        self.struck += 1;
        if self.struck >= MOST_STRUCK && self.rewrite().is_ok() {
            self.struck = 0;
        }
    }

    /// Puts a file with what is still to be undone in the place of one that has become long.
    fn rewrite(&mut self) -> io::Result<()> {
        // Nobody may take the old file for that of a dead process between the change of names and that of locks.
        let _others_wait = self.exclusive();
        let new = self.path.with_extension("new");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&new)?;
        let text = text(&self.entries)?;
        let written = flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&new, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        } else {
            (self.file, self.torn) = (file, false);
        }
        written
    }

    /// Keeps other processes from taking what there is once, until it is dropped.
    pub(crate) fn exclusive(&self) -> Exclusive {
        exclusive(&self.directories)
    }

    /// What live journals of this namespace, without this one, list.
    pub(crate) fn others(&self) -> io::Result<Vec<Undo>> {
        let namespace = namespace()?;
        let mut found = Vec::new();
        for path in journals(&self.directories, namespace) {
            if path != self.path {
                if let Ok(text) = fs::read(&path) {
                    found.extend(parse(&text).entries);
                }
            }
        }
        Ok(found)
    }

    /// Undoes everything, last change first, and deletes the journal.
    pub(crate) fn undo(&mut self, apply: &mut dyn FnMut(&Undo, &[Undo])) {
        let _guard = self.exclusive();
        let others = self.others().unwrap_or_default();
        while let Some(entry) = self.entries.pop() {
            apply(&entry, &others);
        }
        // If it stays, the next start finds nothing left to undo and deletes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// What a journal with these entries says.
fn text(entries: &[Undo]) -> io::Result<String> {
    let mark = mark(Path::new("/proc/thread-self"))?;
    // Earlier versions read the first line, and pass over the second.
    let first = format!("mark {mark}\n{}\n", Origin::here());
    Ok(entries
        .iter()
        .fold(first, |text, entry| text + &format!("{entry}\n")))
}

/// Starts a journal in the first directory that can hold it: the path, the file and the name.
fn begin(
    directories: &[PathBuf],
    namespace: u64,
    entries: &[Undo],
) -> io::Result<(PathBuf, File, String)> {
    let text = text(entries)?;
    let mut reasons = Vec::new();
    let mut kind = io::ErrorKind::NotFound;
    for directory in directories {
        match make(directory).and_then(|()| begin_in(directory, namespace, &text)) {
            Ok(begun) => return Ok(begun),
            Err(e) => {
                kind = e.kind();
                reasons.push(format!("{}: {e}", directory.display()));
            }
        }
    }
    Err(io::Error::new(
        kind,
        format!(
            "no folder can hold the note of what is changed on this host ({})",
            reasons.join("; ")
        ),
    ))
}

fn begin_in(directory: &Path, namespace: u64, text: &str) -> io::Result<(PathBuf, File, String)> {
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
        let mut file = match made {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
            other => other?,
        };
        service::show(&path);
        let begun = flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(text.as_bytes()));
        if let Err(e) = begun {
            let _ = fs::remove_file(&path);
            return Err(e);
        }
        return Ok((path, file, format!("{TABLE_PREFIX}{owner}")));
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists))
}

/// What a journal says.
#[derive(Debug, PartialEq, Eq)]
struct Content {
    entries: Vec<Undo>,
    /// It holds what no process of ours writes.
    torn: bool,
}

/// Reads line by line, so that one that makes no sense keeps no other from being undone.
fn parse(text: &[u8]) -> Content {
    let mut lines: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    // A last line cut short by a crash describes a change that was not made yet.
    lines.pop();
    let mut content = Content {
        entries: Vec::new(),
        torn: text.iter().any(|b| !matches!(b, b'\n' | b' '..=b'~')),
    };
    for line in lines {
        let line = std::str::from_utf8(line).unwrap_or_default();
        if let Some(Ok(undone)) = line.strip_prefix(DONE).map(str::parse::<Undo>) {
            let at = content.entries.iter().rposition(|entry| *entry == undone);
            at.map(|at| content.entries.remove(at));
            continue;
        }
        match line.parse() {
            Ok(undo) => content.entries.push(undo),
            Err(()) => content.torn |= !line.starts_with("mark "),
        }
    }
    content
}

/// All journals, with their namespaces.
fn journals_of_all(directory: &Path) -> Vec<(u64, PathBuf)> {
    let mut found = Vec::new();
    // Whoever writes in a directory decides what is undone.
    if !is_private(directory).unwrap_or(false) {
        return found;
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let namespace = name
            .strip_suffix(".undo")
            .and_then(|n| n.split_once('-'))
            .and_then(|(namespace, _)| namespace.parse().ok());
        found.extend(namespace.map(|n| (n, entry.path())));
    }
    found.sort();
    found
}

/// The journals of one namespace.
fn journals(directories: &[PathBuf], namespace: u64) -> Vec<PathBuf> {
    let all = directories.iter().flat_map(|d| journals_of_all(d));
    all.filter(|(n, _)| *n == namespace)
        .map(|(_, path)| path)
        .collect()
}

/// The lock on a file that nobody else locks, and what is in the file. `None` as well when it cannot be read.
fn take_dead(path: &Path) -> Option<(File, Vec<u8>)> {
    // Locking needs no right to write.
    let mut file = File::open(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    Some((file, text))
}

/// Undoes the journals that nobody locks.
fn undo_stale(directories: &[PathBuf], namespace: u64, apply: &mut dyn FnMut(&Undo, &[Undo])) {
    let here = Origin::here();
    let mut live = Vec::new();
    let mut stale = Vec::new();
    for path in journals(directories, namespace) {
        if let Some((lock, text)) = take_dead(&path) {
            if Origin::of(&text).is_some_and(|then| then.is_gone(&here)) {
                // What it lists went with its namespace, whose number this one has.
                put_away(&path, false);
                continue;
            }
            stale.push((path, lock, parse(&text)));
        } else if let Ok(text) = fs::read(&path) {
            live.extend(parse(&text).entries);
        }
    }
    while let Some((path, _lock, mut content)) = stale.pop() {
        // What the remaining dead ones list is still wanted by nobody, but each holds only a part of the truth about a value
        // they shared; the last one undone restores it.
        let mut others = live.clone();
        others.extend(stale.iter().flat_map(|(_, _, c)| c.entries.iter().cloned()));
        while let Some(entry) = content.entries.pop() {
            apply(&entry, &others);
        }
        put_away(&path, content.torn);
    }
}

/// Deletes a journal that has been undone, or sets it aside where it holds more than could be read.
fn put_away(path: &Path, torn: bool) {
    let aside = path.with_extension("torn");
    let done = match torn {
        true => fs::rename(path, &aside),
        false => fs::remove_file(path),
    };
    match done {
        Ok(()) if torn => tracing::warn!(
            "{}, the note of a process that has ended, is damaged; what could be read of it has been undone, and the file is \
             kept as {}",
            path.display(),
            aside.display()
        ),
        Ok(()) => {}
        // It will be undone again, which does no harm.
        Err(e) => tracing::warn!(
            "{} has been undone and cannot be removed: {e}",
            path.display()
        ),
    }
}

/// Deletes the journals of dead processes in network namespaces that are gone: everything they list went with the
/// namespace.
fn forget_gone(directory: &Path) {
    let left: Vec<(u64, PathBuf, Vec<u8>)> = journals_of_all(directory)
        .into_iter()
        .filter_map(|(namespace, path)| {
            let (_lock, text) = take_dead(&path)?;
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
fn mark_in(text: &[u8]) -> Option<u64> {
    text.split(|b| *b == b'\n').find_map(|line| {
        let number = std::str::from_utf8(line).ok()?.strip_prefix("mark ")?;
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
    use crate::interface::tests::interface;
    use crate::netlink::{MarkRule, Rule};

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
            Undo::MarkRule(MarkRule {
                ipv6: true,
                mark: 0x6d70_7900,
                table: 6_900_000,
                priority: 6900,
            }),
            Undo::RouteTable(7),
            Undo::Sysctl {
                setting: Setting::host("net/ipv4/ip_forward"),
                before: "0".into(),
                ours: "1".into(),
            },
            Undo::Sysctl {
                setting: Setting::of(
                    &interface(5, "v1.7", &[2, 0, 0, 0, 0, 1], &[]),
                    "ipv6",
                    "accept_ra",
                ),
                before: "1".into(),
                ours: "2".into(),
            },
            Undo::ReservedPorts(40000, 49999),
            Undo::Network(3),
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
            "sysctl net/x 0",
            "sysctl 5 7631 1 - - ipv4 ../x 0 1",
            "sysctl 5 7631 1 - - core somaxconn 0 1",
            "sysctl 5 7631 1 - ipv4 forwarding 0 1",
            "rule x",
            "fwmark 5 1 1 1",
            "",
        ] {
            assert_eq!(bad.parse::<Undo>(), Err(()), "{bad}");
        }
    }

    /// Notes of versions that knew interfaces by their names alone.
    #[test]
    fn earlier_versions_are_understood() {
        let line = "sysctl net/ipv4/conf/eth0.7/forwarding 0 1";
        let undo: Undo = line.parse().expect("it was written");
        assert_eq!(undo.to_string(), line);
        let setting = Setting::host("net/ipv4/conf/eth0.7/forwarding");
        assert!(matches!(undo, Undo::Sysctl { setting: s, .. } if s == setting));
        let content = parse(format!("mark 1\n{line}\ndone {line}\n").as_bytes());
        assert_eq!((content.entries.len(), content.torn), (0, false));
    }

    #[test]
    fn what_is_noted_of_another_boot_or_namespace_of_that_number_is_not_undone() {
        let directory = scratch("origin");
        let namespace = namespace().expect("/proc");
        let here = Origin::here().to_string();
        let (boot, cookie) = here.rsplit_once(' ').expect("two words");
        let cases = [
            ("here", here.clone(), true),
            ("before", "mark 1".to_owned(), true),
            ("boot", "mark boot 1234-5678 1".to_owned(), false),
            ("namespace", format!("{boot} 1"), cookie == "-"),
            ("unknown", format!("{boot} -"), true),
        ];
        for (name, origin, undone) in cases {
            let path = directory.join(format!("{namespace}-1_1_{name}.undo"));
            fs::write(&path, format!("mark 1\n{origin}\nroutes 5\n")).expect("our directory");
            let mut seen = 0;
            Journal::open_in(vec![directory.clone()], &mut |_, _| seen += 1).expect("a journal");
            assert_eq!(seen == 1, undone, "{name}");
            assert!(!path.exists(), "{name}");
        }
        fs::remove_dir_all(directory).expect("our own directory");
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
            Journal::open_in(vec![directory.clone()], &mut |_, _| {}).expect("a new journal");
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
    fn what_was_undone_is_struck_out_and_never_fills_the_file() {
        let directory = scratch("struck");
        let mut journal =
            Journal::open_in(vec![directory.clone()], &mut |_, _| {}).expect("a new journal");
        journal
            .record(Undo::Network(3))
            .expect("a writable journal");
        let mut longest = 0;
        for n in 0..1000 {
            let undo = Undo::RouteTable(n % 2);
            journal.record(undo.clone()).expect("a writable journal");
            journal.forget(&undo);
            let text = fs::read(&journal.path).expect("it is there");
            assert_eq!(parse(&text).entries, [Undo::Network(3)], "{n}");
            assert!(!parse(&text).torn);
            longest = longest.max(text.len());
        }
        assert!(longest < 16 << 10, "{longest} bytes");
        // A file that was written anew is locked as the first was.
        assert!(take_dead(&journal.path).is_none());
        journal
            .record(Undo::RouteTable(7))
            .expect("a writable journal");
        drop(journal);
        let mut seen = Vec::new();
        Journal::open_in(vec![directory.clone()], &mut |u, _| seen.push(u.clone()))
            .expect("the next journal");
        assert_eq!(seen, [Undo::RouteTable(7), Undo::Network(3)]);
        fs::remove_dir_all(directory).expect("our own directory");
    }

    #[test]
    fn only_dead_journals_are_undone_by_the_next_start() {
        let directory = scratch("stale");
        let mut live =
            Journal::open_in(vec![directory.clone()], &mut |_, _| {}).expect("a new journal");
        live.record(Undo::RouteTable(1))
            .expect("a writable journal");
        let mut dead =
            Journal::open_in(vec![directory.clone()], &mut |_, _| {}).expect("a second journal");
        dead.record(Undo::RouteTable(2))
            .expect("a writable journal");
        let path = dead.path.clone();
        // What a crash leaves: the file, but no lock.
        drop(dead);
        let mut seen = Vec::new();
        let next = Journal::open_in(vec![directory.clone()], &mut |u, others| {
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

    #[test]
    fn what_can_be_read_of_a_damaged_journal_is_undone_and_the_file_set_aside() {
        let directory = scratch("torn");
        let namespace = namespace().expect("/proc");
        let cases: [(&str, &[u8], usize, bool); 6] = [
            ("1_1_0", b"mark 1\nroutes 5\n\xff\nroutes 6\n", 2, true),
            ("1_1_1", b"\xff", 0, true),
            ("1_1_2", &[0; 5000], 0, true),
            ("1_1_3", b"mark 1\nroutes 5\nsense none\n", 1, true),
            ("1_1_4", b"mark 1\nroutes 5\nroutes 6", 1, false),
            ("1_1_5", b"", 0, false),
        ];
        for (name, text, undone, torn) in cases {
            let path = directory.join(format!("{namespace}-{name}.undo"));
            fs::write(&path, text).expect("our own directory");
            let mut seen = 0;
            Journal::open_in(vec![directory.clone()], &mut |_, _| seen += 1)
                .expect("a journal all the same");
            assert_eq!(seen, undone, "{name}");
            assert!(!path.exists(), "{name}");
            assert_eq!(path.with_extension("torn").exists(), torn, "{name}");
        }
        fs::remove_dir_all(directory).expect("our own directory");
    }

    #[test]
    fn another_directory_serves_where_one_cannot_be_written() {
        let good = scratch("second");
        // Nobody can make a directory below a file.
        let file = good.join("file");
        fs::write(&file, "").expect("our own directory");
        let mut journal = Journal::open_in(vec![file.join("x"), good.clone()], &mut |_, _| {})
            .expect("the second one serves");
        assert!(journal.path.starts_with(&good));
        // The first's file takes nothing any more.
        journal.record(Undo::RouteTable(1)).expect("writable");
        let old = journal.path.clone();
        let third = scratch("third");
        journal.directories.push(third.clone());
        journal.file = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("every Linux has it");
        journal.record(Undo::RouteTable(2)).expect("another serves");
        assert!(journal.path.starts_with(&third) && !old.exists());
        let text = fs::read(&journal.path).expect("readable");
        assert_eq!(
            parse(&text).entries,
            [Undo::RouteTable(1), Undo::RouteTable(2)]
        );
        let error = Journal::open_in(vec![file.join("x")], &mut |_, _| {}).expect_err("nowhere");
        assert!(error.to_string().contains("file/x"), "{error}");
        for directory in [good, third] {
            fs::remove_dir_all(directory).expect("our own directory");
        }
    }
}
