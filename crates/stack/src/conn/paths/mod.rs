//! Path management: addresses of both ends, and commands of controllers for them.

pub(in crate::conn) mod addresses;
pub(in crate::conn) mod controller;
pub(in crate::conn) mod uplink;
