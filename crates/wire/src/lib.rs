//! Bytes to values and back: IP, TCP, every Multipath TCP option, checksums.
//!
//! This crate owns the shape of what is on the wire and nothing else: it keeps no state and knows no time. Every
//! parser takes bytes that anybody on the network may have written, so none of them panics, allocates without bound
//! or trusts a length before it was checked. Raw integers stay in here; everything that leaves has its own type.
//!
//! A received packet becomes a [`segment::Segment`], a borrowed view; an outgoing one is written by [`emit`] in front
//! of payload that the caller already placed, so payload bytes are touched once.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod checksum;
pub mod convert;
pub mod cursor;
pub mod describe;
pub mod dsn;
pub mod emit;
pub mod ids;
pub mod ip;
pub mod segment;
pub mod seq;
pub mod tcp;
pub mod window;
