//! Sizes that the stores of both queues share.

/// Above this an empty store gives its memory back.
pub(in crate::conn) const KEEP: usize = 64 * 1024;

/// The unit in which memory is taken from an operating system, where large allocations begin as nothing but addresses.
pub(in crate::conn) const PAGE: usize = 4096;
