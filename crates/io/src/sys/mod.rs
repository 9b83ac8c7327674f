//! The only place of the workspace that holds `unsafe`: thin safe wrappers over system calls that no dependency
//! wraps. Nothing here knows the protocol, and nothing here decides anything.

pub mod lab;
