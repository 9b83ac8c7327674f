//! How connections are opened, accepted, and behave.

use crate::{Congestion, Converter, PathManager, Scheduler};
use manypath_stack::{ConnOptions, Mode};
use manypath_tcp::machine::Keepalive;
use std::net::IpAddr;
use std::time::Duration;

/// How long [`Host::connect`](crate::Host::connect) takes at most, where no other time is asked for: names, all addresses and all
/// paths together.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Connections of a listener that may be in their handshake or wait to be accepted, where no other number is asked for.
const BACKLOG: usize = 4096;

/// Probes every eighth of the silence that is allowed, nine times, as Linux does for two hours.
pub(crate) fn keepalive(idle: Duration) -> Keepalive {
    let interval = (idle / 8).clamp(Duration::from_secs(1), Duration::from_secs(75));
    Keepalive {
        idle: idle.into(),
        interval: interval.into(),
        ..Keepalive::default()
    }
}

pub(crate) fn buffer(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The setters that both kinds of options have, on their field `conn`.
macro_rules! connection_setters {
    () => {
        /// Offers and takes Multipath TCP (the default), or stays with plain TCP.
        #[must_use]
        pub fn multipath(mut self, on: bool) -> Self {
            self.conn.mode = if on { Mode::Multipath } else { Mode::PlainTcp };
            self
        }

        /// Which subflow carries the next data that this end sends. By default [`Scheduler::Guarded`]. What the peer sends, as in a
        /// download, goes where the peer's scheduler puts it; backups and paths that are closed are told to it.
        #[must_use]
        pub fn scheduler(mut self, scheduler: Scheduler) -> Self {
            self.conn.scheduler = scheduler;
            self
        }

        /// Congestion control of every subflow. By default [`Congestion::Cubic`].
        #[must_use]
        pub fn congestion(mut self, congestion: Congestion) -> Self {
            self.conn.congestion = congestion;
            self
        }

        /// Which subflows exist. By default the side that connects makes a [full mesh](PathManager::FULL_MESH), and the side that
        /// accepts announces its addresses ([`PathManager::PASSIVE`]).
        #[must_use]
        pub fn path_manager(mut self, manager: PathManager) -> Self {
            self.conn.path_manager = manager.0;
            self
        }

        /// Asks for the checksum of RFC 8684 section 3.3.1, which finds middleboxes that rewrite payload (the default). It costs
        /// processor time, and is used in any case where the peer asks for it.
        #[must_use]
        pub fn checksum(mut self, on: bool) -> Self {
            self.conn.checksum = on;
            self
        }

        /// Bytes that may wait for their acknowledgement, at most 1 GiB; 8 MiB by default. A write waits while they are that many.
        #[must_use]
        pub fn send_buffer(mut self, bytes: usize) -> Self {
            self.conn.send_buffer = super::options::buffer(bytes);
            self
        }

        /// Bytes that may wait to be read, at most 1 GiB; 8 MiB by default. Memory is taken as it is needed.
        #[must_use]
        pub fn recv_buffer(mut self, bytes: usize) -> Self {
            self.conn.recv_buffer = super::options::buffer(bytes);
            self
        }

        /// Sends small writes at once (true), or gathers them while something is unacknowledged (false, the default: Nagle's
        /// algorithm).
        #[must_use]
        pub fn nodelay(mut self, on: bool) -> Self {
            self.conn.nodelay = on;
            self
        }

        /// Asks a peer that was silent for so long whether it is there; the connection ends if nine probes get no answer. Never, by
        /// default.
        #[must_use]
        pub fn keepalive(mut self, idle: Duration) -> Self {
            self.conn.keepalive = Some(super::options::keepalive(idle));
            self
        }

        /// Gives the connection up when data stays unacknowledged for so long, on whichever paths it was sent (RFC 5482). A single path
        /// that is silent for so long is given up as well, while others carry on. By default TCP's retransmissions decide, for
        /// about 15 minutes, and [`without_paths_for`](Self::without_paths_for) after them.
        #[must_use]
        pub fn user_timeout(mut self, limit: Duration) -> Self {
            self.conn.user_timeout = Some(limit.into());
            self
        }

        /// How long a connection lives without any path, until one comes back; 60 s by default.
        #[must_use]
        pub fn without_paths_for(mut self, limit: Duration) -> Self {
            self.conn.break_before_make = limit.into();
            self
        }

        /// The most subflows at one time; 64 by default.
        #[must_use]
        pub fn max_subflows(mut self, count: u16) -> Self {
            self.conn.max_subflows = count;
            self
        }

        /// TCP Fast Open (RFC 7413): first bytes travel with the SYN. They may arrive twice if the network duplicates it, so it is for
        /// requests that may be repeated; off by default.
        #[must_use]
        pub fn fast_open(mut self, on: bool) -> Self {
            self.conn.fast_open = on;
            self
        }
    };
}

/// How to open a connection.
///
/// ```
/// use manypath::{ConnectOptions, Scheduler};
/// use std::time::Duration;
///
/// let options = ConnectOptions::new()
///     .timeout(Duration::from_secs(5))
///     .scheduler(Scheduler::Redundant)
///     .nodelay(true);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectOptions {
    pub(crate) conn: ConnOptions,
    pub(crate) local: Option<IpAddr>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) via: Option<Converter>,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        ConnectOptions {
            conn: ConnOptions {
                path_manager: manypath_stack::PathManager::FullMesh,
                ..ConnOptions::default()
            },
            local: None,
            timeout: Some(CONNECT_TIMEOUT),
            via: None,
        }
    }
}

impl ConnectOptions {
    /// The defaults: a subflow on every path, 30 s to connect.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The first subflow leaves from this address of ours, and no other is tried.
    #[must_use]
    pub fn local_address(mut self, addr: IpAddr) -> Self {
        self.local = Some(addr.to_canonical());
        self
    }

    /// Goes through a converter. Names are looked up here; [`local_address`](Self::local_address) is that of the connection to the converter.
    #[must_use]
    pub fn via(mut self, converter: Converter) -> Self {
        self.via = Some(converter);
        self
    }

    /// How long connecting may take, over names, addresses and paths: [`CONNECT_TIMEOUT`], 30 s, where nothing else is said.
    #[must_use]
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Waits as long as the SYNs are repeated: about two minutes.
    #[must_use]
    pub fn no_timeout(mut self) -> Self {
        self.timeout = None;
        self
    }

    connection_setters!();
}

/// How to listen, and how accepted connections behave.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenOptions {
    pub(crate) conn: ConnOptions,
    pub(crate) backlog: usize,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            conn: ConnOptions::default(),
            backlog: BACKLOG,
        }
    }
}

impl ListenOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Connections that may be in their handshake or wait to be accepted; 4096 by default. Beyond that, SYN cookies.
    #[must_use]
    pub fn backlog(mut self, connections: usize) -> Self {
        self.backlog = connections.max(1);
        self
    }

    connection_setters!();
}
