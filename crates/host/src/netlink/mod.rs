//! Requests to rtnetlink(7), and the changes that a TUN device and a transparent listener need.
//!
//! Requests are synchronous: they are few, happen at set-up and after changes, and take microseconds.

mod change;
mod socket;

pub use change::{
    MarkRule, Route, Rule, add_address, add_local_route, add_mark_rule, add_missing_route,
    add_route, add_rule, delete_mark_rule, delete_route, delete_rule, flush_table, set_link,
};
pub use socket::{ask, dump};
