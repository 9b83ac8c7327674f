//! Everything that changes the machine for a stack, and its undoing: firewall tables, policy rules, routing tables, kernel
//! settings, port reservations.
//!
//! One promise: **the host is as it was, and never disturbed meanwhile.** Every change is written down before it is made
//! ([`Setup`]), so whoever ends, however it ends, leaves nothing behind that the next start does not take away; and what
//! programs of the host do, before or after ours starts, works as without ours.
//!
//! Owns the order "write down, change, undo". Knows nothing of TCP, devices or the event loop: callers say in plain values
//! (an interface's name, an address, a port) what they need.

mod firewall;
mod hold;
mod interface;
mod journal;
pub mod nat;
pub mod netlink;
mod news;
mod nft;
mod origin;
mod service;
mod setup;
mod sys;
mod sysctl;
mod take;

pub use firewall::{Firewall, Guard, NoFirewall, Share, forwarding_is_dropped};
pub use hold::hold_port;
pub use news::News;
pub use service::GROUP;
pub use setup::{Setup, clean_up};
pub use take::{Take, Turn};
