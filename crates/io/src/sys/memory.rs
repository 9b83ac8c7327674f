//! Giving free memory back to the system. See malloc_trim(3).

/// Gives the pages of the heap that nothing lives in back to the system. Where they lie does not matter; allocating there
/// again costs page faults. Milliseconds for tens of megabytes, during which other threads cannot allocate.
///
/// Does something with glibc's allocator only: the allocators of other C libraries give back what they can by themselves.
pub fn release_free() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointers, may be called by any thread at any time, and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
