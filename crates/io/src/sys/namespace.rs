//! Network namespaces of single threads.
//!
//! On Linux a namespace belongs to a thread, not to a process: a thread that enters one opens its sockets and devices there,
//! while its siblings stay where they were. Tests and the lab use this to build small networks in one process.

use super::check;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Moves the calling thread into a new, empty network namespace.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN` in the current user namespace.
pub fn unshare_network() -> io::Result<()> {
    // SAFETY: `unshare` takes no pointers; a network namespace shares no memory-safety-relevant state.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })?;
    Ok(())
}

/// Moves the whole (single-threaded) process into a new user namespace in which it is root, and a new network
/// namespace. Must be called before any thread is started.
///
/// # Errors
/// `InvalidInput` when the process already has threads, `PermissionDenied` where user namespaces are forbidden.
pub fn unshare_user_and_network() -> io::Result<()> {
    let uid = rustix::process::getuid().as_raw();
    let gid = rustix::process::getgid().as_raw();
    // SAFETY: as above; the kernel refuses the call in a process with threads.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })?;
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// The calling thread's network namespace, as a handle that keeps it alive.
///
/// # Errors
/// When `/proc` is not mounted.
pub fn current() -> io::Result<File> {
    File::open("/proc/thread-self/ns/net")
}

/// Moves the calling thread into the network namespace `namespace` refers to.
///
/// # Errors
/// `PermissionDenied` without `CAP_SYS_ADMIN` there and here.
pub fn enter(namespace: impl AsFd) -> io::Result<()> {
    // SAFETY: `setns` takes a descriptor we borrow for the call, and no pointers.
    check(unsafe { libc::setns(namespace.as_fd().as_raw_fd(), libc::CLONE_NEWNET) })?;
    Ok(())
}
