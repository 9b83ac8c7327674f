//! Subflows whose path is unresponsive, seen by the sender and by the receiver.

pub(in crate::conn) mod nat_expired;
pub(in crate::conn) mod pep;
pub(in crate::conn) mod receiver_probe;
pub(in crate::conn) mod stale;
