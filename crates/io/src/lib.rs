//! Devices, netlink, the event loop and the async sockets: the stack on a real network.

pub mod sys;
