//! Classic BPF programs that choose what a socket receives. See socket(7), `SO_ATTACH_FILTER`.

use super::check;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// One instruction of a classic BPF program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Insn {
    pub(crate) code: u16,
    pub(crate) jt: u8,
    pub(crate) jf: u8,
    pub(crate) k: u32,
}

/// Makes a program the filter of a socket, in place of the one that it had.
///
/// # Errors
/// `InvalidInput` for a program that the kernel does not take.
pub(crate) fn attach_filter(socket: impl AsFd, program: &[Insn]) -> io::Result<()> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|i| libc::sock_filter {
            code: i.code,
            jt: i.jt,
            jf: i.jf,
            k: i.k,
        })
        .collect();
    let len = u16::try_from(instructions.len())
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "filter program too long"))?;
    let program = libc::sock_fprog {
        len,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: pointer and length describe `program`, which points into `instructions`; both outlive the call, and the kernel
    // copies the instructions.
    check(unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })?;
    Ok(())
}
