//! Creating a TUN device and asking it for offloads (Linux `drivers/net/tun.c` interface).

use super::check;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

const DEVICE: &str = "/dev/net/tun";

/// Longest interface name, without the terminating zero byte.
const NAME_MAX: usize = libc::IFNAMSIZ - 1;

// From linux/if_tun.h; `libc` does not carry these for every target.
const TUNSETIFF: libc::Ioctl = 0x4004_54ca;
const TUNSETOFFLOAD: libc::Ioctl = 0x4004_54d0;
const IFF_TUN: libc::c_short = 0x0001;
const IFF_NO_PI: libc::c_short = 0x1000;
const IFF_VNET_HDR: libc::c_short = 0x4000;
const TUN_F_CSUM: libc::c_ulong = 0x01;
const TUN_F_TSO4: libc::c_ulong = 0x02;
const TUN_F_TSO6: libc::c_ulong = 0x04;
const TUN_F_TSO_ECN: libc::c_ulong = 0x08;

/// A file that is no device yet, non-blocking.
///
/// # Errors
/// `NotFound` without TUN support, `PermissionDenied` where its owner does not allow it.
pub(crate) fn open() -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(DEVICE)
        .map_err(|e| io::Error::new(e.kind(), format!("{DEVICE} cannot be opened: {e}")))
}

/// Makes (or attaches to) the device `name`, which `file` is from then on; an empty name or one with `%d` lets the kernel choose.
/// Answers its final name. A file whose device was deleted can become another one.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_ADMIN`, `ResourceBusy` if the name is in use, `AlreadyExists` while the file is a device.
pub(crate) fn make(file: &File, name: &str, vnet_header: bool) -> io::Result<String> {
    if name.len() > NAME_MAX || name.contains('\0') {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "interface names have at most 15 bytes",
        ));
    }
    // SAFETY: `ifreq` is plain old data for which all-zero bytes are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    let mut flags = IFF_TUN | IFF_NO_PI;
    if vnet_header {
        flags |= IFF_VNET_HDR;
    }
    request.ifr_ifru.ifru_flags = flags;
    // SAFETY: the descriptor is open and TUNSETIFF reads and writes exactly one `ifreq`, which lives across the call.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETIFF, &raw mut request) })?;
    let name = request
        .ifr_name
        .iter()
        .take_while(|c| **c != 0)
        .map(|c| char::from(*c as u8));
    Ok(name.collect())
}

/// Tells the kernel which packets we take without finished checksums and unsegmented (TCP over IPv4 and IPv6).
///
/// # Errors
/// `InvalidInput` from kernels without these offloads.
pub(crate) fn set_offload(file: &File, on: bool) -> io::Result<()> {
    let wanted = if on {
        TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN
    } else {
        0
    };
    // SAFETY: TUNSETOFFLOAD takes its argument by value and touches no memory of ours.
    check(unsafe { libc::ioctl(file.as_raw_fd(), TUNSETOFFLOAD, wanted) })?;
    Ok(())
}
