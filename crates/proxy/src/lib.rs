//! Byte streams from one kind of TCP to another, and the measurement of such streams.
//!
//! Three kinds of sockets stand behind one [`stream::Stream`]: the host's TCP, the host's Multipath TCP, and ours.
//! [`relay`] joins two of them, [`forward`] does so for every connection of a listener, [`perf`] measures one. [`live`] lets
//! other processes see and steer the connections of ours.
#![forbid(unsafe_code)]

mod buffered;
pub mod carried;
pub mod config;
pub mod converter;
pub mod endpoint;
mod error;
pub mod forward;
mod host;
mod later;
pub mod limits;
pub mod live;
mod maybe_tls;
pub mod observe;
pub mod opening;
pub mod perf;
mod places;
pub mod reach;
pub mod relay;
pub mod request;
mod seldom;
pub mod serve;
pub mod sockets;
pub mod stream;
pub mod taking;
pub mod target;
pub mod units;
pub mod users;

pub use error::Error;
pub use host::congestion_controls_without;
