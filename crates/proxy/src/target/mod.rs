//! From a request to a stream to its target: rules, names, addresses, connecting.

pub(crate) mod connect;
pub(crate) mod failure;
pub mod guard;
pub mod rules;
pub mod tls;
