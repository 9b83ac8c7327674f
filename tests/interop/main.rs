//! Real packets between the Linux kernel's Multipath TCP and ours, in network namespaces that the tests make themselves.
//! Where namespaces or the kernel's Multipath TCP are not to be had, the tests say why they are skipped.

mod bad_input;
mod boxes;
mod c_library;
mod control;
mod control_kernel;
mod control_shell;
mod convert;
mod convert_wire;
mod crowd;
mod cuts;
mod demo;
mod early;
mod endings;
mod handover;
mod headers;
mod host;
mod leftovers;
mod limits;
mod many;
mod names;
mod opening;
mod paths;
mod peers;
mod proxy;
mod proxy_streams;
mod quotas;
mod racing;
mod service;
mod signals;
mod taking;
mod transfers;
mod transparent;
mod uplinks;
mod via;
mod wire;
