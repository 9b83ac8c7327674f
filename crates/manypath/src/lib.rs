//! Multipath TCP (RFC 8684) in user space: sockets in the shape of tokio's that use every path of the host.
#![forbid(unsafe_code)]

pub use manypath_io::{Host, MpListener, MpStream};
