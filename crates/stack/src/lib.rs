//! The Multipath TCP connection, schedulers, path management and demultiplexing: the sans-IO Stack.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod ids;
pub mod slab;
pub mod stats;
