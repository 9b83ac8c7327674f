//! The one system call that no crate we use covers. Nothing here decides anything.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// The number of the network namespace of a socket (`SO_NETNS_COOKIE`, Linux 5.14): no other one has it until the next boot.
///
/// # Errors
/// `ENOPROTOOPT` on older kernels.
pub(crate) fn namespace_cookie(socket: impl AsFd) -> io::Result<u64> {
    let mut cookie = 0u64;
    // A size of 8 bytes fits.
    let mut len = size_of::<u64>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `cookie`, which has as many, and any bytes are a number.
    let ret = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_NETNS_COOKIE,
            (&raw mut cookie).cast(),
            &raw mut len,
        )
    };
    if ret < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(cookie)
}
