//! How clients ask: each opening turns the first bytes of a connection into requests, and answers in its own protocol.
//!
//! Openings do not know each other; what is behind them is the same for all.

pub(crate) mod convert;
pub(crate) mod fixed;
pub mod http;
pub mod proxy_protocol;
pub mod socks5;
pub(crate) mod transparent;
