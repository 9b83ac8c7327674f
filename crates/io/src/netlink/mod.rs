//! The host's links, addresses, routes and neighbours: asked for and followed (rtnetlink(7)). What changes them is in
//! `manypath_host`.
//!
//! Requests are synchronous: they are few, happen at set-up and after changes, and take microseconds. Following is asynchronous.

mod follow;
mod query;
mod route;

pub use follow::Follower;
pub use query::{Address, DefaultRoute, Interface, NetworkRoute, Snapshot, index_of, neighbours};
pub use route::{Way, is_of_host, way_to};
