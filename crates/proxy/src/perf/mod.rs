//! Measures streams: bulk data either way, requests and responses, many connections.

mod client;
mod pattern;
mod report;
mod server;
mod stall;
mod transfer;
mod wire;

pub use client::{Job, Plan, run};
pub use report::{Outcome, Progress, Summary};
pub use server::{ServeOptions, Served, serve};
pub use wire::{Header, Kind, MAGIC, NotAHeader, Trailer};
