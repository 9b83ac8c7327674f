//! The host's links, addresses, routes and neighbours: asked for, changed, and followed (rtnetlink(7)).
//!
//! Requests are synchronous: they are few, happen at set-up and after changes, and take microseconds. Following is asynchronous.

mod change;
mod follow;
mod query;
mod socket;

pub use change::{
    Route, Rule, add_address, add_route, add_rule, delete_rule, flush_table, set_link,
};
pub use follow::Follower;
pub use query::{Address, DefaultRoute, Interface, Snapshot, index_of, neighbours};
