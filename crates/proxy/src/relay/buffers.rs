//! The memory of bytes on their way. A direction holds a buffer only as long as there are bytes in it, so a thousand quiet
//! connections cost no more than one.
//!
//! Readers that are slow, or read nothing at all, hold theirs for long. Buffers are large while few are held, and small beyond
//! that: what is held is bounded by the large ones and a small one for each direction, and nobody has to wait for another's reader.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A large buffer, in bytes. At 8 Gbit/s that is a quarter of a millisecond.
pub const BUFFER: usize = 256 * 1024;

/// A small one: one TLS record.
const SMALL: usize = 16 * 1024;

/// Large buffers that are held at one time, 64 megabytes in all.
const LARGE_ONES: usize = 256;

/// Buffers that wait to be used again, four megabytes in all; what is beyond that goes back to the system.
const SHELF: usize = 16;

/// Where buffers come from.
#[derive(Debug)]
struct Pool {
    free: Mutex<Vec<Box<[u8]>>>,
    /// Large ones that are held.
    held: AtomicUsize,
}

static POOL: Pool = Pool::new();

impl Pool {
    const fn new() -> Self {
        Self {
            free: Mutex::new(Vec::new()),
            held: AtomicUsize::new(0),
        }
    }

    fn take(&'static self) -> Buffer {
        match self.held.load(Ordering::Relaxed) < LARGE_ONES {
            true => self.take_large(),
            false => Buffer {
                bytes: vec![0; SMALL].into(),
                pool: self,
            },
        }
    }

    fn take_large(&'static self) -> Buffer {
        self.held.fetch_add(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = free.pop();
        drop(free);
        Buffer {
            bytes: bytes.unwrap_or_else(|| vec![0; BUFFER].into()),
            pool: self,
        }
    }

    fn put(&self, bytes: Box<[u8]>) {
        if bytes.len() != BUFFER {
            return;
        }
        self.held.fetch_sub(1, Ordering::Relaxed);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < SHELF {
            free.push(bytes);
        }
    }
}

/// A buffer, [`BUFFER`] bytes long or shorter; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    pool: &'static Pool,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool.put(std::mem::take(&mut self.bytes));
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// A buffer for bytes that may have to wait for their reader.
pub(crate) fn take_buffer() -> Buffer {
    POOL.take()
}

/// A buffer of [`BUFFER`] bytes, for what is read and passed on at once.
pub(crate) fn take_large_buffer() -> Buffer {
    POOL.take_large()
}

/// Frees the buffers that wait to be used again.
pub fn release_buffers() {
    *POOL.free.lock().unwrap_or_else(PoisonError::into_inner) = Vec::new();
}

/// Buffers that wait to be used again.
#[cfg(test)]
pub(super) fn waiting() -> usize {
    let free = POOL.free.lock();
    free.unwrap_or_else(PoisonError::into_inner).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_that_are_held_have_a_bound_and_come_back() {
        let pool: &'static Pool = Box::leak(Box::new(Pool::new()));
        let held: Vec<Buffer> = (0..20_000).map(|_| pool.take()).collect();
        let bytes: usize = held.iter().map(|buffer| buffer.len()).sum();
        assert!(bytes <= LARGE_ONES * BUFFER + 20_000 * SMALL, "{bytes}");
        drop(held);
        assert_eq!(pool.take().len(), BUFFER);
        assert_eq!(pool.held.load(Ordering::Relaxed), 0);
        assert_eq!(pool.free.lock().map(|free| free.len()).ok(), Some(SHELF));
    }
}
