//! The TCP header, its options, the Multipath TCP options among them, and how they share the option space.

pub mod header;
pub mod layout;
pub mod mptcp;
pub mod options;

/// TCP's protocol number in the IP header.
pub const PROTOCOL: u8 = 6;
