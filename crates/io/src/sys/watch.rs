//! Registering descriptors with the runtime's event queue.

use super::packet::PacketSocket;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Types whose descriptor is always the same and stays open as long as the value lives.
///
/// # Safety
/// Implementors promise just that.
pub(crate) unsafe trait Stable: AsRawFd {}
// SAFETY: owns its descriptor, which nothing closes before the drop.
unsafe impl Stable for OwnedFd {}
// SAFETY: as above.
unsafe impl Stable for File {}
// SAFETY: as above.
unsafe impl Stable for PacketSocket {}
// SAFETY: as above.
unsafe impl Stable for netlink_sys::Socket {}
// SAFETY: as above.
unsafe impl Stable for manypath_host::News {}
// SAFETY: an `Arc` keeps its content in place and alive.
unsafe impl<T: Stable> Stable for Arc<T> {}

/// Watches `inner` for `interest`. Must be called within a runtime.
///
/// # Errors
/// Those of the registration.
pub(crate) fn watch<T: Stable>(inner: T, interest: Interest) -> io::Result<AsyncFd<T>> {
    // SAFETY: `Stable` promises what the call demands: one descriptor, open until the value is dropped.
    unsafe { AsyncFd::register_with_interest(inner, interest) }.map_err(io::Error::from)
}
