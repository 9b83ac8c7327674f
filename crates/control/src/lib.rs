//! How one process sees the connections of another: plain data, a Unix socket per process, and a client that
//! collects over all of them.
//!
//! The crate owns the words of that protocol ([`wire`], [`report`]) and where the sockets lie ([`place`]). It never
//! touches a connection itself: a [`server::Reporter`] hands it what there is to show.
#![forbid(unsafe_code)]

pub mod client;
pub mod convert;
pub mod place;
pub mod report;
pub mod server;
pub mod wire;
