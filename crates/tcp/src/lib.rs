//! One TCP subflow as a pure state machine that does not know Multipath TCP exists.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cc;
pub mod machine;
pub mod ranges;
pub mod recovery;
mod recv;
mod send;
pub mod time;
pub mod timer;
pub mod units;
