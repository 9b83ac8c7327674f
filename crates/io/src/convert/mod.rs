//! The 0-RTT TCP Convert Protocol (RFC 8803): what clients of a converter need.

mod client;
pub mod cookie;

pub use client::Via;
pub use cookie::Key;
