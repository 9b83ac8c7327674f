//! Requests to rtnetlink(7), and the changes that a TUN device needs.
//!
//! Requests are synchronous: they are few, happen at set-up and after changes, and take microseconds.

mod change;
mod socket;

pub use change::{
    Route, Rule, add_address, add_missing_route, add_route, add_rule, delete_route, delete_rule,
    flush_table, set_link,
};
pub use socket::{ask, dump};
