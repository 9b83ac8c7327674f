//! Giving up privileges that were only needed for set-up. See capabilities(7).

use super::check;
use std::io;

const VERSION_3: u32 = 0x2008_0522;
const CAP_SETPCAP: u32 = 8;
const CAP_LAST: u32 = 40;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Keeps only the capabilities in `keep` (bit n = capability n) for the calling thread and what it starts; the others
/// are gone for good. `no_new_privs` is set, so set-uid programs cannot win them back.
///
/// # Errors
/// Whatever `capset` reports; nothing has been given up then.
pub(crate) fn limit(keep: u64) -> io::Result<()> {
    // SAFETY: `prctl` with these arguments takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: `capget` with version 3 writes two `Data` records, which `data` holds, and reads `header`.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } as i32)?;
    let has = |c: u32| data[(c / 32) as usize].permitted & (1 << (c % 32)) != 0;
    if has(CAP_SETPCAP) {
        for cap in (0..=CAP_LAST).filter(|c| keep & (1 << c) == 0) {
            // A kernel that does not know the capability answers EINVAL, which is as good as dropping it.
            // SAFETY: `prctl` with these arguments takes no pointers.
            let _ = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, cap, 0, 0, 0) };
        }
    }
    set(keep)
}

/// Makes the whole process an ordinary user with one supplementary group; of the privileges only those in `keep` stay, and only with
/// the calling thread. The signal that comes when the parent dies
/// stays as it was.
///
/// # Errors
/// What the first call that fails reports. The process must not go on as if it had worked.
pub(crate) fn become_user(uid: u32, gid: u32, group: u32, keep: u64) -> io::Result<()> {
    let mut death: libc::c_int = 0;
    // SAFETY: writes one int, to which the pointer leads.
    check(unsafe { libc::prctl(libc::PR_GET_PDEATHSIG, &raw mut death) })?;
    // SAFETY: `prctl` with these arguments takes no pointers. Permitted capabilities survive the change of the user.
    check(unsafe { libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0) })?;
    // SAFETY: reads one group, to which the pointer leads. The C library does it in all threads, as below.
    check(unsafe { libc::setgroups(1, &raw const group) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::setresgid(gid, gid, gid) })?;
    // SAFETY: no pointers.
    check(unsafe { libc::setresuid(uid, uid, uid) })?;
    set(keep)?;
    // The change of the user has cleared it.
    // SAFETY: `prctl` with these arguments takes no pointers.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, death) })?;
    Ok(())
}

/// Gives up all capabilities of the calling thread that are not in `keep`, and hands none on to programs.
fn set(keep: u64) -> io::Result<()> {
    let mut header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut data = [Data::default(); 2];
    // SAFETY: `capget` with version 3 writes two `Data` records, which `data` holds, and reads `header`.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) } as i32)?;
    for (n, half) in data.iter_mut().enumerate() {
        let word = |mask: u64| (mask >> (32 * n)) as u32;
        half.permitted &= word(keep);
        half.effective = half.permitted;
        half.inheritable = 0;
    }
    // SAFETY: `capset` with version 3 reads the header and two `Data` records.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) } as i32)?;
    Ok(())
}
