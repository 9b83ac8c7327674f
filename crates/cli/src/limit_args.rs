//! Limits of our stack on the command line; `docs/limits.md` says what happens at each.

use std::time::Duration;

use clap::Args;

use crate::units::{parse_bytes, parse_duration};

#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub(crate) struct LimitArgs {
    /// Memory for all connections. When it is used up, new ones are refused; from half of it on, peers that made a
    /// connection hold more than its share are not listened to, and connections that get nowhere are ended
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "1Gi")]
    pub(crate) memory: u64,

    /// Connections in all, those in their handshake included
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) most_connections: u32,

    /// Connections that may be open from one address (of IPv6: from one /64)
    #[arg(long, value_name = "N", default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) most_per_address: u32,

    /// Connections of a listener that may be in their handshake (at most 1,024 of them; cookies answer the others) or wait to
    /// be accepted
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) backlog: u32,

    /// How long a connection may get nowhere before it makes room for others when a limit is reached: a handshake that is
    /// not finished, a window that stays closed, a hole that is not filled
    #[arg(long, value_name = "TIME", value_parser = parse_duration, default_value = "20s")]
    pub(crate) patience: Duration,
}
