//! Giving up the privileges that a running stack does not need, and taking what it may have of files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Bits of capabilities(7).
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_NET_RAW: u64 = 1 << 13;

/// Gives up, for good, every privilege of the calling thread (and of threads and programs it starts from now on) except those for
/// networks: packet sockets and TUN devices, rules and routes, low ports. Call it first thing in `main`, before a
/// runtime starts its threads.
///
/// # Errors
/// Those of the system calls; nothing has been given up then.
pub fn limit_privileges() -> io::Result<()> {
    crate::sys::caps::limit(CAP_NET_BIND_SERVICE | CAP_NET_ADMIN | CAP_NET_RAW)
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
    fn only_network_privileges_remain() {
        // Capabilities belong to threads: this one's are its own.
        std::thread::spawn(|| {
            let before = effective();
            limit_privileges().expect("giving up is always allowed");
            let allowed = CAP_NET_BIND_SERVICE | CAP_NET_ADMIN | CAP_NET_RAW;
            assert_eq!(effective(), before & allowed);
        })
        .join()
        .expect("the thread does not panic");
    }
}
