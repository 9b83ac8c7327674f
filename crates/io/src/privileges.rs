//! Giving up what a running stack does not need.

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
