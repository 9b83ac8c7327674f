//! How much of a host socket's data is still on its way. See tcp(7), `SIOCOUTQ`.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes that were written to a socket of the host's and that its peer has not acknowledged.
///
/// # Errors
/// What the kernel reports: this is no stream socket, or of a kind that does not tell.
pub fn unacknowledged(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: `SIOCOUTQ` (the same number as `TIOCOUTQ`) writes one int, to which the pointer leads.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}
