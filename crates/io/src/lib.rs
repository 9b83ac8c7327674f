//! Devices, netlink, the event loop and the async sockets: the stack on a real network.

pub mod device;
mod filter;
pub mod neigh;
pub mod netlink;
pub mod path;
pub mod setup;
pub mod sys;
pub mod vnet;
