//! Giving up the privileges that a running stack does not need, and taking what it may have of files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Bits of capabilities(7).
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;

const CAP_CHOWN: u64 = 1 << 0;
const CAP_SETGID: u64 = 1 << 6;
const CAP_SETUID: u64 = 1 << 7;
const NETWORKS: u64 = CAP_NET_BIND_SERVICE | CAP_NET_ADMIN | CAP_NET_RAW;

/// Gives up, for good, every privilege of the calling thread (and of threads and programs it starts from now on) except those for
/// networks: packet sockets and TUN devices, rules and routes, low ports. Call it first thing in `main`, before a
/// runtime starts its threads.
///
/// # Errors
/// Those of the system calls; nothing has been given up then.
pub fn limit_privileges() -> io::Result<()> {
    crate::sys::caps::limit(NETWORKS)
}

/// The same with what [`become_user`] needs later.
///
/// # Errors
/// As [`limit_privileges`].
pub fn limit_privileges_for_now() -> io::Result<()> {
    crate::sys::caps::limit(NETWORKS | CAP_CHOWN | CAP_SETGID | CAP_SETUID)
}

/// An ordinary user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct User {
    uid: u32,
    gid: u32,
}

impl User {
    /// The user of that name in `/etc/passwd`, or with that number there.
    ///
    /// # Errors
    /// `NotFound` when there is none, `InvalidInput` for root.
    pub fn find(name: &str) -> io::Result<Self> {
        let text = std::fs::read_to_string("/etc/passwd")?;
        let user = find_in(&text, name).ok_or_else(|| {
            let text = format!("there is no user '{name}' in /etc/passwd");
            io::Error::new(io::ErrorKind::NotFound, text)
        })?;
        match user.uid {
            0 => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{name}' is root"),
            )),
            _ => Ok(user),
        }
    }

    /// Whether its numbers exist in the user namespace of this process.
    #[must_use]
    pub fn is_mapped(self) -> bool {
        let map = |name| std::fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let groups = map("gid_map");
        maps(&map("uid_map"), self.uid)
            && maps(&groups, self.gid)
            && maps(&groups, manypath_host::GROUP)
    }
}

/// From lines of `name:password:uid:gid:...` (passwd(5)).
fn find_in(passwd: &str, wanted: &str) -> Option<User> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, _, uid, gid) = (
            fields.next()?,
            fields.next()?,
            fields.next()?,
            fields.next()?,
        );
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        (name == wanted || wanted.parse() == Ok(uid)).then_some(User { uid, gid })
    })
}

/// Whether a map of user_namespaces(7), lines of "first inside, first outside, how many", has a number inside. Without a map there are
/// no user namespaces.
fn maps(map: &str, number: u32) -> bool {
    map.is_empty()
        || map.lines().any(|line| {
            let mut numbers = line.split_whitespace().map(str::parse::<u32>);
            let (Some(Ok(inside)), _, Some(Ok(count))) =
                (numbers.next(), numbers.next(), numbers.next())
            else {
                return false;
            };
            number.checked_sub(inside).is_some_and(|n| n < count)
        })
}

/// Makes this process that user, for good, with the privileges for networks and the group that keeps the journal of what was changed on
/// the host. Call it after the set-up, while no other thread needs privileges.
///
/// # Errors
/// Those of the system calls. End the process then: it may be half of each.
pub fn become_user(user: User) -> io::Result<()> {
    crate::sys::caps::become_user(user.uid, user.gid, manypath_host::GROUP, NETWORKS)
}

/// Lets this process hold as many open files as the administrator allows (the hard limit): the usual limit of 1,024 is there for
/// programs that use select(2). Answers that number; `None` if there is no limit.
///
/// # Errors
/// Those of setrlimit(2); the limit is what it was then.
pub fn raise_file_limit() -> io::Result<Option<u64>> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised)?;
    Ok(limit.maximum)
}

/// What a process may have of open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Files {
    /// In all (the soft limit).
    pub most: u64,
    /// That it does not have yet.
    pub free: u64,
}

/// How many files this process may still open; `None` if there is no limit, or `/proc` is not there to count.
#[must_use]
pub fn free_files() -> Option<Files> {
    let most = getrlimit(Resource::Nofile).current?;
    // The folder itself is open while it is read.
    let open = std::fs::read_dir("/proc/self/fd").ok()?.count() as u64 - 1;
    let free = most.saturating_sub(open);
    Some(Files { most, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("/proc is mounted");
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("CapEff:"))
            .expect("every kernel tells");
        u64::from_str_radix(line.trim(), 16).expect("a hexadecimal number")
    }

    #[test]
    fn as_many_files_as_the_hard_limit_allows() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_file_limit().expect("always allowed"), hard);
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65533:nobody:/:/bin/false\nbroken\n";
        let nobody = User {
            uid: 65_534,
            gid: 65_533,
        };
        assert_eq!(find_in(passwd, "nobody"), Some(nobody));
        assert_eq!(find_in(passwd, "65534"), Some(nobody));
        assert_eq!(find_in(passwd, "broken"), None);
        assert_eq!(find_in(passwd, ""), None);
    }

    #[test]
    fn numbers_outside_of_the_map_do_not_exist() {
        assert!(maps("         0          0 4294967295\n", 65_534));
        assert!(!maps("         0       1000          1\n", 65_534));
        assert!(maps("0 1000 1\n1 100000 65536\n", 65_534));
        assert!(maps("", 5));
    }

    #[test]
    fn only_network_privileges_remain() {
        // Capabilities belong to threads: this one's are its own.
        std::thread::spawn(|| {
            let before = effective();
            limit_privileges().expect("giving up is always allowed");
            assert_eq!(effective(), before & NETWORKS);
        })
        .join()
        .expect("the thread does not panic");
    }
}
