//! A deterministic network simulator around the very stack that runs on the wire.
//!
//! A [`scenario::Scenario`] (a TOML file, or values made by a program) describes hosts, links, middleboxes,
//! applications and what happens to them. A [`Simulation`] runs it in virtual time with the stack's own code, holds
//! every packet against the oracles, and ends in a [`Report`] with a hash: the same seed gives the same hash.
//!
//! ```
//! use manypath_sim::{RunOptions, Simulation, scenario::Scenario};
//!
//! let scenario = Scenario::parse(r#"
//!     title = "one link"
//!     [[host]]
//!     name = "client"
//!     interface = [{ name = "eth0", addresses = ["10.0.0.1"] }]
//!     [[host]]
//!     name = "server"
//!     interface = [{ name = "eth0", addresses = ["10.0.0.2"] }]
//!     [[link]]
//!     name = "wire"
//!     ends = ["client.eth0", "server.eth0"]
//!     rate = "10Mbit/s"
//!     delay = "5ms"
//!     buffer = "100ms"
//!     [[app]]
//!     name = "download"
//!     client = "client"
//!     server = "server"
//!     download = "100KB"
//! "#)?;
//! let report = Simulation::new(scenario, RunOptions::default())?.finish();
//! assert!(report.is_good(), "{report}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod attack;
mod build;
mod card;
mod coalesce;
pub mod endpoint;
pub mod fabric;
pub mod gauntlet;
pub mod habit;
pub mod host;
pub mod icmp;
mod judge;
pub mod line;
pub mod loss;
pub mod middlebox;
pub mod networks;
pub mod offload;
pub mod oracle;
pub mod packet;
pub mod pattern;
pub mod queue;
pub mod random;
pub mod reading;
pub mod record;
pub mod report;
pub mod rng;
pub mod routes;
pub mod scenario;
mod simulation;
pub mod summary;
pub mod view;

pub use gauntlet::replay;
pub use report::Report;
pub use simulation::{RunOptions, Simulation};
