//! What was written to a Unix socket and not read yet. See ioctl_list(2), SIOCOUTQ.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Bytes of the kernel's memory that hold what was written to this Unix socket and its reader has not taken; zero when it has
/// taken everything. What the kernel needs to keep them counts, so it is more than was written, and it shrinks as the reader reads.
///
/// # Errors
/// It is no socket.
pub fn unread(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as it is borrowed, and SIOCOUTQ (TIOCOUTQ) writes one `int`, which `bytes` is.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    #[cfg_attr(
        miri,
        ignore = "asks the kernel, by an ioctl that Miri does not emulate"
    )]
    fn what_is_read_is_not_counted_any_more() {
        let (mut near, mut far) = UnixStream::pair().expect("descriptors are free");
        assert_eq!(unread(near.as_fd()).expect("a socket"), 0);
        near.write_all(b"first").expect("room");
        let one = unread(near.as_fd()).expect("a socket");
        near.write_all(b"second").expect("room");
        let two = unread(near.as_fd()).expect("a socket");
        assert!(one >= 5 && two >= one + 6, "{one}, {two}");
        let mut text = [0; 11];
        far.read_exact(&mut text).expect("written");
        assert_eq!(unread(near.as_fd()).expect("a socket"), 0);
    }
}
