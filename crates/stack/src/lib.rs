//! The Multipath TCP connection, schedulers, path management and demultiplexing: the sans-IO Stack.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod api;
mod conn;
pub mod crypto;
pub mod ids;
pub mod pm;
pub mod sched;
mod shape;
pub mod slab;
mod stack;
pub mod stats;
mod table;
pub mod trace;

pub use api::*;
pub use shape::{CLASSES, Held, LimitState, Limited, MOST_ROUTES};
pub use stack::{RaceId, ReadOutcome, Stack, StackConfig, SynCookiePolicy};
