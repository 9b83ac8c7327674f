//! Kernel settings below `/proc/sys/net`, set with the old value remembered.

use crate::interface::Interface;
use crate::journal::{Journal, Undo};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::str::FromStr;

const RESERVED: &str = "net/ipv4/ip_local_reserved_ports";

/// How often an interface may get another name while a setting of it is looked for.
const RENAMES: usize = 5;

/// A kernel setting.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Setting {
    /// Of the whole network namespace: the path below `/proc/sys`.
    Host(String),
    /// Of an interface, whatever its name is.
    Interface {
        /// Whose.
        of: Interface,
        /// `ipv4` or `ipv6`.
        family: String,
        /// Its name among those of the interface.
        name: String,
    },
}

impl Setting {
    /// A setting of the whole network namespace, by its path below `/proc/sys`.
    pub(crate) fn host(key: &str) -> Self {
        Setting::Host(key.to_owned())
    }

    /// A setting of an interface: `net/FAMILY/conf/INTERFACE/NAME`.
    pub(crate) fn of(interface: &Interface, family: &str, name: &str) -> Self {
        Setting::Interface {
            of: interface.clone(),
            family: family.to_owned(),
            name: name.to_owned(),
        }
    }

    /// Its path below `/proc/sys` now; `None` if its interface is gone.
    fn key(&self) -> io::Result<Option<String>> {
        match self {
            Setting::Host(key) => Ok(Some(key.clone())),
            // Interface names may hold dots, which are no separators in paths.
            Setting::Interface { of, family, name } => Ok(of
                .name_now()?
                .map(|now| format!("net/{family}/conf/{now}/{name}"))),
        }
    }

    /// Whether its interface is gone, and it with that.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.key(), Ok(None))
    }

    /// Uses its open file. The interface may be renamed at any moment, and another one may have the old name then; so the name is
    /// looked up again when the file is open, and an open file of an earlier name takes and tells nothing (`ENOENT`).
    fn with<T>(
        &self,
        how: &OpenOptions,
        act: impl Fn(&mut File) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..RENAMES {
            let Some(key) = self.key()? else { break };
            let opened = how.open(format!("/proc/sys/{key}"));
            let done = opened.and_then(|mut file| match self.key()? {
                Some(now) if now == key => act(&mut file),
                _ => Err(io::ErrorKind::NotFound.into()),
            });
            match done {
                Err(e) if e.kind() == io::ErrorKind::NotFound => last = e,
                other => return other,
            }
        }
        Err(last)
    }

    /// What it is.
    ///
    /// # Errors
    /// `NotFound` if there is no such setting, or its interface is gone.
    pub(crate) fn read(&self) -> io::Result<String> {
        self.with(OpenOptions::new().read(true), |file| {
            // In one piece: of a list of ports the kernel has nothing more to say to a second read. Such a list may have 190,000 bytes;
            // where not all fits, it is read anew.
            let mut bytes = vec![0; 4096];
            loop {
                let len = file.read_at(&mut bytes, 0)?;
                if len < bytes.len() {
                    let text = str::from_utf8(&bytes[..len]);
                    return Ok(text.map_err(io::Error::other)?.trim().to_owned());
                }
                bytes.resize(2 * bytes.len(), 0);
            }
        })
    }

    fn write(&self, value: &str) -> io::Result<()> {
        let text = format!("{value}\n");
        let written = self.with(OpenOptions::new().write(true), |file| {
            file.write_all(text.as_bytes())
        });
        written.map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("the kernel setting {} cannot be changed: {e}", self.path()),
            )
        })
    }

    /// Its path below `/proc/sys`, for people.
    pub(crate) fn path(&self) -> String {
        let known = |of: &Interface| of.name_now().ok().flatten();
        match self {
            Setting::Host(key) => key.clone(),
            Setting::Interface { of, family, name } => {
                let now = known(of).unwrap_or_else(|| of.name().to_owned());
                format!("net/{family}/conf/{now}/{name}")
            }
        }
    }

    /// Whether an entry of another process is about this one.
    fn is_of(&self, undo: &Undo) -> bool {
        matches!(undo, Undo::Sysctl { setting, .. } if self.is_same(setting))
    }

    /// Whether both are one file now, whatever names the interface had. Earlier versions wrote down the interface's name.
    pub(crate) fn is_same(&self, other: &Setting) -> bool {
        fn name(setting: &Setting) -> &str {
            match setting {
                Setting::Host(key) => key.rsplit('/').next().unwrap_or_default(),
                Setting::Interface { name, .. } => name,
            }
        }
        // Only where they can be the same the kernel is asked.
        self == other
            || (name(self) == name(other)
                && matches!((self.key(), other.key()), (Ok(Some(one)), Ok(Some(two))) if one == two))
    }
}

/// One word, as in earlier versions, or seven for one of an interface.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Host(key) => f.write_str(key),
            Setting::Interface { of, family, name } => write!(f, "{of} {family} {name}"),
        }
    }
}

impl FromStr for Setting {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text.starts_with("net/") && !text.contains("..") && !text.contains(' ') {
            return Ok(Setting::host(text));
        }
        let mut words = text.rsplitn(3, ' ');
        let (Some(name), Some(family), Some(of)) = (words.next(), words.next(), words.next())
        else {
            return Err(());
        };
        let is_name = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if !matches!(family, "ipv4" | "ipv6") || name.is_empty() || !name.bytes().all(is_name) {
            return Err(());
        }
        Ok(Setting::of(&of.parse()?, family, name))
    }
}

/// Sets `setting` to `value` (one word). If another live process of ours has changed it already, its old value is inherited, so that
/// whoever ends last restores it.
pub(crate) fn set(journal: &mut Journal, setting: &Setting, value: &str) -> io::Result<()> {
    let now = setting.read()?;
    // Paths that come and go ask for it again.
    let noted = journal.entries().iter().any(|undo| setting.is_of(undo));
    if !noted {
        let others = journal.others()?.into_iter();
        let before = others.filter(|undo| setting.is_of(undo)).find_map(before);
        if now == value && before.is_none() {
            return Ok(());
        }
        journal.record(Undo::Sysctl {
            setting: setting.clone(),
            before: before.unwrap_or_else(|| now.clone()),
            ours: value.to_owned(),
        })?;
    }
    if now == value {
        Ok(())
    } else {
        setting.write(value)
    }
}

/// The old value of a setting that an entry is about.
fn before(undo: Undo) -> Option<String> {
    match undo {
        Undo::Sysctl { before, .. } => Some(before),
        _ => None,
    }
}

/// Sets `setting` again if it is another than `value` now; the answer is whether it was. What somebody has made of it meanwhile is noted, if
/// nothing was before. A setting that is gone, with its interface, is none.
pub(crate) fn put_back(journal: &mut Journal, setting: &Setting, value: &str) -> io::Result<bool> {
    match setting.read() {
        Ok(now) if now != value => set(journal, setting, value).map(|()| true),
        Ok(_) => Ok(false),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Notes those switches that are on, where setting another one to 1 and later to 0 will switch them off, or of which another process has
/// noted that. To be called before that other one is noted, for what is noted last is undone first. `untouched`: that other one is
/// off yet.
pub(crate) fn note_overwritten(
    journal: &mut Journal,
    settings: &[Setting],
    untouched: bool,
) -> io::Result<()> {
    let others = journal.others()?;
    for setting in settings {
        let is_in = |entries: &[Undo]| entries.iter().any(|undo| setting.is_of(undo));
        if is_in(journal.entries()) || !(is_in(&others) || untouched && setting.read()? == "1") {
            continue;
        }
        journal.record(Undo::Sysctl {
            setting: setting.clone(),
            before: "1".to_owned(),
            ours: "0".to_owned(),
        })?;
    }
    Ok(())
}

/// Undoes [`set`], unless somebody else has set another value since or another process still needs ours.
pub(crate) fn restore(
    setting: &Setting,
    before: &str,
    ours: &str,
    others: &[Undo],
) -> io::Result<()> {
    let needed = others.iter().any(|undo| setting.is_of(undo));
    if needed || setting.read()? != ours {
        return Ok(());
    }
    setting.write(before)
}

type Ranges = Vec<RangeInclusive<u16>>;

fn parse_ranges(text: &str) -> Ranges {
    text.split(',')
        .filter_map(|part| {
            let (low, high) = part
                .trim()
                .split_once('-')
                .unwrap_or((part.trim(), part.trim()));
            Some(low.parse().ok()?..=high.parse().ok()?)
        })
        .collect()
}

fn format_ranges(ranges: &[RangeInclusive<u16>]) -> String {
    let texts: Vec<String> = ranges
        .iter()
        .map(|r| format!("{}-{}", r.start(), r.end()))
        .collect();
    texts.join(",")
}

fn without(ranges: &[RangeInclusive<u16>], low: u16, high: u16) -> Ranges {
    let mut left = Vec::new();
    for r in ranges {
        if *r.start() < low {
            left.push(*r.start()..=(*r.end()).min(low - 1));
        }
        if *r.end() > high {
            left.push((*r.start()).max(high + 1)..=*r.end());
        }
    }
    left
}

/// Local ports outside what the host hands out by itself, what is reserved already, what a program of the host has (listening or
/// not) or a translated connection uses: `count` of them in a row, as high as possible.
///
/// # Errors
/// `AddrInUse` when there is no such row.
pub(crate) fn choose_ports(
    count: u16,
    taken: &[RangeInclusive<u16>],
) -> io::Result<RangeInclusive<u16>> {
    let text = Setting::host("net/ipv4/ip_local_port_range").read()?;
    let mut numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
    let ephemeral = numbers.next().unwrap_or(32768)..=numbers.next().unwrap_or(60999);
    let mut reserved = parse_ranges(&Setting::host(RESERVED).read().unwrap_or_default());
    reserved.extend_from_slice(taken);
    reserved.extend(in_use().into_iter().map(|port| port..=port));
    pick_ports(count, &ephemeral, &reserved).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::AddrInUse,
            "no row of local ports is free for connections of our own",
        )
    })
}

/// Prefers ports that the host would never use for connections of its own; reserving makes the others safe too.
fn pick_ports(
    count: u16,
    ephemeral: &RangeInclusive<u16>,
    reserved: &[RangeInclusive<u16>],
) -> Option<RangeInclusive<u16>> {
    let mut strict = reserved.to_vec();
    strict.push(ephemeral.clone());
    for taken in [&strict[..], reserved] {
        let mut high = u16::MAX;
        while high > 1024 + count {
            let low = high - (count - 1);
            let in_the_way = taken
                .iter()
                .filter(|r| *r.end() >= low && *r.start() <= high);
            match in_the_way.map(|r| *r.start()).min() {
                None => return Some(low..=high),
                // Below it is the next chance.
                Some(start) => high = start.saturating_sub(1),
            }
        }
    }
    None
}

/// Local ports of the host's TCP sockets, whatever their state, and ports of connections that the host translates, where it
/// lets us see them.
fn in_use() -> BTreeSet<u16> {
    let mut found = BTreeSet::new();
    let tables = [
        ("tcp", socket_port as fn(&str) -> Vec<u16>),
        ("tcp6", socket_port),
        ("nf_conntrack", translated_ports),
    ];
    for (name, ports) in tables {
        // Line by line: on a busy host the whole is some megabytes.
        let Ok(file) = fs::File::open(format!("/proc/thread-self/net/{name}")) else {
            continue;
        };
        for line in BufReader::new(file).lines().map_while(Result::ok) {
            found.extend(ports(&line));
        }
    }
    found
}

/// The local port in a line of `/proc/net/tcp`: its second word is `ADDRESS:PORT` in hexadecimal.
fn socket_port(line: &str) -> Vec<u16> {
    let local = line.split_ascii_whitespace().nth(1);
    let port = local.and_then(|l| u16::from_str_radix(l.rsplit_once(':')?.1, 16).ok());
    port.into_iter().collect()
}

/// Where answers go, in a line of `/proc/net/nf_conntrack`: `tcp`, and a second `dport=`.
fn translated_ports(line: &str) -> Vec<u16> {
    let mut words = line.split_ascii_whitespace();
    if !words.any(|word| word == "tcp") {
        return Vec::new();
    }
    words
        .filter_map(|word| word.strip_prefix("dport=")?.parse().ok())
        .skip(1)
        .collect()
}

/// Keeps the host from handing out `range` to connections of its own.
pub(crate) fn reserve_ports(journal: &mut Journal, range: &RangeInclusive<u16>) -> io::Result<()> {
    let mut ranges = parse_ranges(&Setting::host(RESERVED).read()?);
    journal.record(Undo::ReservedPorts(*range.start(), *range.end()))?;
    ranges.push(range.clone());
    Setting::host(RESERVED).write(&format_ranges(&ranges))
}

/// Undoes [`reserve_ports`].
pub(crate) fn release_ports(low: u16, high: u16) -> io::Result<()> {
    let ranges = parse_ranges(&Setting::host(RESERVED).read()?);
    Setting::host(RESERVED).write(&format_ranges(&without(&ranges, low, high)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_out() {
        let ranges = parse_ranges("80,1000-2000,40000-50000");
        assert_eq!(ranges, [80..=80, 1000..=2000, 40000..=50000]);
        assert_eq!(
            without(&ranges, 1500, 45000),
            [80..=80, 1000..=1499, 45001..=50000]
        );
        assert_eq!(without(&ranges, 80, 80), [1000..=2000, 40000..=50000]);
        assert!(parse_ranges("").is_empty());
        assert_eq!(format_ranges(&[1..=2, 3..=3]), "1-2,3-3");
    }

    #[test]
    fn ports_avoid_what_the_host_uses() {
        let ephemeral = 32768..=60999;
        assert_eq!(pick_ports(4096, &ephemeral, &[]), Some(61440..=65535));
        let next = pick_ports(4096, &ephemeral, &[61440..=65535]).expect("room below");
        assert!(*next.end() < 32768);
        // Where everything belongs to the host's own range, a reserved part of it serves.
        assert_eq!(pick_ports(4096, &(1024..=65535), &[]), Some(61440..=65535));
        assert_eq!(pick_ports(60000, &ephemeral, &[20000..=40000]), None);
        // A port that somebody has is passed by.
        assert_eq!(
            pick_ports(256, &ephemeral, &[65500..=65500]),
            Some(65244..=65499)
        );
        let ten: Vec<_> = (0..10).fold(Vec::new(), |mut taken, _| {
            taken.push(pick_ports(256, &ephemeral, &taken).expect("ten processes start"));
            taken
        });
        assert!(ten.iter().all(|r| *r.start() > 60999));
    }

    #[test]
    fn ports_of_sockets_and_of_translated_connections_are_seen() {
        let line =
            "   0: 0100007F:6989 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 1";
        assert_eq!(socket_port(line), [27017]);
        assert_eq!(socket_port("  sl  local_address rem_address"), []);
        let line = "ipv4 2 tcp 6 431999 ESTABLISHED src=10.7.0.2 dst=10.9.0.1 sport=25000 dport=81 src=10.9.0.1 dst=10.1.0.2 \
            sport=81 dport=25001 [ASSURED] mark=0 use=1";
        assert_eq!(translated_ports(line), [25001]);
        assert_eq!(translated_ports("ipv4 2 udp 17 dport=1 dport=2"), []);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        assert!(in_use().contains(&port));
    }
}
