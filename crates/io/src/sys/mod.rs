//! The only module of the crate with `unsafe` code: thin, safe wrappers over the system calls that no crate we use
//! covers (TUN and packet-socket set-up, batched packet calls, namespaces, capabilities, the heap).
//!
//! Nothing here decides anything; policy lives in the callers.

pub(crate) mod caps;
pub(crate) mod filter;
pub mod lab;
pub mod memory;
pub mod namespace;
pub(crate) mod packet;
pub mod queue;
pub(crate) mod tun;
pub mod unread;
pub(crate) mod watch;

use std::io;

/// Turns a C return value into a result: negative means `errno` says why.
fn check(ret: libc::c_int) -> io::Result<libc::c_int> {
    if ret < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(ret)
    }
}
