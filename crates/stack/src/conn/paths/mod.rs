//! Addresses of both ends, and what controllers want done with them.

pub(in crate::conn) mod addresses;
pub(in crate::conn) mod controller;
pub(in crate::conn) mod uplink;
