//! Handling of unresponsive paths, as the sender sees them and as the receiver does.

pub(in crate::conn) mod nat_expired;
pub(in crate::conn) mod pep;
pub(in crate::conn) mod receiver_probe;
pub(in crate::conn) mod stale;
