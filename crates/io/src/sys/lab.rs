//! System calls that the experiments need: children that die with the thread which started them, sockets that see every
//! Ethernet frame of an interface together with what the kernel left undone in it, and questions about its sockets.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes the child receive `SIGKILL` when the *thread* that starts it ends, so that nothing survives even the sudden
/// death of this process. Start the child from a thread that lives as long as the child shall. `SIGINT` ends it even if this process
/// was started to ignore it, as shells do with what they start in the background.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    let parent = std::process::id();
    // SAFETY: the closure runs between fork and exec and calls only prctl, signal and getppid, which are async-signal-safe
    // and touch no memory of ours; it allocates nothing on the path that succeeds.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0
                || libc::signal(libc::SIGINT, libc::SIG_DFL) == libc::SIG_ERR
            {
                return Err(io::Error::last_os_error());
            }
            // The parent may have died before the call above: then no signal will ever come. A parent seen as 0 lives
            // outside our process namespace and cannot be compared.
            let now = libc::getppid();
            if now != 0 && now as u32 != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            Ok(())
        })
    }
}

/// Lets this thread run before every ordinary one whenever it has something to do, as wires and routers do not wait for the
/// programs of hosts. It must sleep when it has nothing to do.
///
/// # Errors
/// Without `CAP_SYS_NICE` it is `PermissionDenied`.
pub fn run_before_others() -> io::Result<()> {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: zero is the calling thread, and the kernel only reads the parameters, which outlive the call.
    let done = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const param) };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Size of the header that precedes every frame of a [`frame_socket`], in bytes (`struct virtio_net_hdr`).
pub const FRAME_HEADER: usize = 10;

/// A non-blocking `AF_PACKET` socket on the interface with this index. It receives every frame that arrives there, for
/// whomever it is meant, but not those that leave; each frame is preceded, both ways, by a [`FRAME_HEADER`] that says
/// which checksum and which segmentation the kernel left to the device.
///
/// # Errors
/// Those of the system calls: without `CAP_NET_RAW` in the network namespace it is `PermissionDenied`.
pub fn frame_socket(ifindex: u32) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain system call without pointers. Protocol 0 receives nothing until bind names the interface, so no
    // frame of another interface can slip in.
    let fd = unsafe { libc::socket(libc::AF_PACKET, kind, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fd was just returned by socket and belongs to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
    // As much room as we may have: the privileged form ignores the system's limit.
    let room = 8 << 20;
    if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, room).is_err() {
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, room)?;
    }
    if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room).is_err() {
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, room)?;
    }
    let index = i32::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: (libc::ETH_P_ALL as u16).to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    // SAFETY: address is a whole sockaddr_ll that outlives the call, and the length given is its own.
    let done = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(socket)
}

/// Frames that the kernel threw away since the last call because we did not read them in time.
///
/// # Errors
/// Those of `getsockopt`.
pub fn frames_missed(socket: &OwnedFd) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: stats and len are whole values that outlive the call, and len says how large stats is.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if done == 0 {
        Ok(stats.tp_drops)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// What the kernel tells of one of its Multipath TCP connections (`struct mptcp_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelMptcp {
    /// It has become plain TCP.
    pub fallback: bool,
}

/// Asks the kernel about a socket of its own. `None` for a socket that is no Multipath TCP, for example because the
/// peer knows only TCP and the connection was accepted as such.
///
/// # Errors
/// Those of `getsockopt`.
pub fn kernel_mptcp(socket: BorrowedFd<'_>) -> io::Result<Option<KernelMptcp>> {
    const SOL_MPTCP: i32 = 284;
    const MPTCP_INFO: i32 = 1;
    /// Its offset in the structure, which only ever grows (Linux, `include/uapi/linux/mptcp.h`).
    const FLAGS: usize = 8;
    const FALLBACK: u32 = 1;
    let mut info = [0_u8; 256];
    let mut len = info.len() as libc::socklen_t;
    // SAFETY: info and len are whole values that outlive the call, and len says how large info is.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_MPTCP,
            MPTCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        let error = io::Error::last_os_error();
        return match error.raw_os_error() {
            Some(libc::ENOPROTOOPT | libc::EOPNOTSUPP) => Ok(None),
            _ => Err(error),
        };
    }
    let flags = u32::from_ne_bytes([
        info[FLAGS],
        info[FLAGS + 1],
        info[FLAGS + 2],
        info[FLAGS + 3],
    ]);
    Ok(Some(KernelMptcp {
        fallback: flags & FALLBACK != 0,
    }))
}

/// A TUN device of its own for whoever plays the network: every read is one IP packet that the kernel sends, every write
/// one that it receives, whole and with checksums. It does not block. The device belongs to the network namespace of the
/// calling thread and goes with the file.
///
/// # Errors
/// `NotFound` without TUN support, `PermissionDenied` without `CAP_NET_ADMIN`, `ResourceBusy` if the name is in use.
pub fn tun_file(name: &str) -> io::Result<std::fs::File> {
    let file = super::tun::open()?;
    super::tun::make(&file, name, false)?;
    Ok(file)
}

fn set(socket: &OwnedFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: value is a whole int that outlives the call, and the length given is its own.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
