//! What a service may still do once it is set up: a list of system calls (seccomp) and of places in the file system (Landlock).
//!
//! A call that is not in [`CALLS`] fails with `EPERM` instead of killing the process: a list like this one is never complete for all C
//! libraries and kernels, the failed call is reported like any other error (in the log, or where it was made), and for an attacker
//! it is as useless. **Whoever adds a call to the program adds it here**; `strace -f -Z manypath forward ...` shows calls that
//! fail, and the test `crates/io/tests/confined.rs` is the place to show that they work.

use std::io;
use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
    path_beneath_rules,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

/// The calls of every architecture.
const CALLS: &[libc::c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    // Threads, and the end.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_get_robust_list,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_membarrier,
    libc::SYS_prctl,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_tgkill,
    // Signals.
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    // Time and chance.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_getrandom,
    libc::SYS_gettimeofday,
    libc::SYS_nanosleep,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    // Waiting.
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Sockets: connections of the host, packet sockets of paths that come, netlink, the control socket, the resolver.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socket,
    libc::SYS_socketpair,
    // Files: the journal, kernel settings, what the resolver reads. Which ones, Landlock and the user say.
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fchmod,
    libc::SYS_fchmodat,
    libc::SYS_fchown,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Who and what we are.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_getuid,
    libc::SYS_prlimit64,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// Older forms that only this architecture has; some C libraries use them.
#[cfg(target_arch = "x86_64")]
const OLDER: &[libc::c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_chmod,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[libc::c_long] = &[];

/// Read below: the resolver's configuration and libraries, the tables of the kernel.
const READ: &[&str] = &[
    "/etc", "/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix", "/proc", "/sys", "/dev", "/run",
    "/var/run",
];

/// Written below: kernel settings of networks, and journals.
const WRITE: &[&str] = &["/proc/sys/net", "/run/manypath", "/dev/net", "/dev/null"];

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Whether the kernel keeps the process from the rest of the file system (Landlock, Linux 5.13 and newer).
    pub files: bool,
}

/// Confines this process for good; it may still read below `readable` and write below `writable`, as far as its user may. Landlock holds for the calling thread and those that it starts from now on, seccomp for
/// all: call it before there are others.
///
/// # Errors
/// `Unsupported` when there is no seccomp for this architecture or in this kernel.
pub fn confine(readable: &[PathBuf], writable: &[PathBuf]) -> io::Result<Confined> {
    let files = confine_files(readable, writable).map_err(io::Error::other)?;
    let architecture = std::env::consts::ARCH
        .try_into()
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    let allowed = CALLS.iter().chain(OLDER);
    let filter = SeccompFilter::new(
        allowed.map(|call| (*call, Vec::new())).collect(),
        SeccompAction::Errno(libc::EPERM as u32),
        SeccompAction::Allow,
        architecture,
    );
    let program: BpfProgram = filter
        .and_then(TryInto::try_into)
        .map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&program)
        .map_err(|error| io::Error::new(io::ErrorKind::Unsupported, error))?;
    Ok(Confined { files })
}

/// Whether the kernel does it.
fn confine_files(
    readable: &[PathBuf],
    writable: &[PathBuf],
) -> Result<bool, landlock::RulesetError> {
    // Where the kernel knows fewer of these rights, the others are enforced.
    let handled = AccessFs::from_all(ABI::V3);
    let all = handled & !AccessFs::Execute;
    // Libraries are mapped, which is no execution to Landlock; nothing is started.
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let status = Ruleset::default()
        .handle_access(handled)?
        .create()?
        .add_rules(path_beneath_rules(READ, read))?
        .add_rules(path_beneath_rules(readable, read))?
        .add_rules(path_beneath_rules(WRITE, all))?
        .add_rules(path_beneath_rules(writable, all))?
        .restrict_self()?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
