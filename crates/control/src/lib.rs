//! How one process sees and steers the connections of another: plain data, a Unix socket per process, and a client that
//! collects over all of them.
//!
//! The crate owns the words of that protocol ([`wire`], [`report`]) and where the sockets lie ([`place`]). It never
//! touches a connection itself: a [`server::Backend`] hands it what there is to show, and carries out commands. Controllers
//! are written against an [`engine::Engine`], which is such a process or the Linux kernel ([`kernel`]).
#![forbid(unsafe_code)]

pub mod blocking;
pub mod bridge;
pub mod client;
pub mod convert;
mod dialogue;
pub mod engine;
mod hub;
pub mod kernel;
pub mod news;
mod outbox;
pub mod place;
mod purse;
pub mod remote;
pub mod report;
#[cfg(test)]
mod schema;
pub mod server;
pub mod steering;
pub mod view;
pub mod wire;
