//! From a request to a stream to its target: rules, names, addresses, connecting.

pub mod guard;
pub mod rules;
