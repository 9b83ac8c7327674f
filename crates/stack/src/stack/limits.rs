//! What one peer, and all of them together, may cost: memory, connections for each address, and who has to go when a
//! limit is reached.
//!
//! Owns the sums. They are brought up to date when the stack is asked for its deadline, which is after each batch of
//! packets, and before a connection is let in.

use core::net::{IpAddr, Ipv6Addr};

use manypath_tcp::time::{Duration, Instant};

use super::Stack;
use crate::api::Memory;
use crate::conn::Conn;
use crate::crypto::rng::Rng;
use crate::table::Table;

/// What every connection may hold however tight memory is: enough for requests and short answers.
const MODEST: usize = 16 * 1024;
/// Who got somewhere so long ago is not holding memory for its own sake.
const MOVING: Duration = Duration::from_secs(1);
/// Pause between two looks for connections that get nowhere: the look goes over all of them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Connections that one look may end.
const MOST_SHED: usize = 256;

/// An address as limits see it: of IPv6, what one subscriber has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Source(IpAddr);

impl Source {
    pub(super) fn of(addr: IpAddr) -> Self {
        Self(match addr {
            IpAddr::V4(_) => addr,
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
            }
        })
    }
}

/// The sums of one stack.
pub(super) struct Usage {
    /// Memory of all connections, as it was last looked at.
    connections: usize,
    /// Established connections that peers opened, by address. Half-open ones do not count: their sources may be made up.
    sources: Table<Source, u32>,
    look_at: Instant,
}

impl Usage {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            connections: 0,
            sources: Table::new(rng),
            look_at: Instant::ZERO,
        }
    }

    /// A connection cost `before` and costs `now`.
    pub(super) fn recharge(&mut self, before: usize, now: usize) {
        self.connections = self.connections - before + now;
    }

    /// A peer proved its address.
    pub(super) fn arrived(&mut self, source: Source) {
        let count = self.sources.remove(&source).unwrap_or(0) + 1;
        let entered = self.sources.insert(source, count);
        debug_assert!(entered.is_ok(), "it was taken out just before");
    }

    /// One of its connections is gone.
    pub(super) fn left(&mut self, source: Source) {
        match self.sources.remove(&source) {
            None | Some(0 | 1) => {}
            Some(count) => {
                let entered = self.sources.insert(source, count - 1);
                debug_assert!(entered.is_ok(), "it was taken out just before");
            }
        }
    }

    fn of(&self, source: Source) -> usize {
        self.sources.get(&source).map_or(0, |count| *count as usize)
    }
}

impl Stack {
    /// Bytes of memory held now.
    pub fn memory(&mut self) -> Memory {
        self.assess();
        let tables = self.conns.memory()
            + self.listeners.memory()
            + self.demux.memory()
            + self.wheel.memory()
            + self.usage.sources.memory();
        Memory {
            connections: self.usage.connections,
            tables,
            time_wait: self.time_wait.memory(),
            queues: self.replies.memory()
                + self.events.capacity() * size_of::<crate::api::Event>()
                + (self.ready.capacity() + self.touched.capacity() + self.due.capacity())
                    * size_of::<u32>(),
        }
    }

    /// Connections at this moment, whatever their state.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Half of the memory that is allowed is held: the other half is for those who come now.
    pub(super) fn is_tight(&self) -> bool {
        self.usage.connections >= self.config.max_memory / 2
    }

    /// Memory is tight, and this connection holds more than its share of it without moving on.
    pub(super) fn hogs(&self, slot: u32) -> bool {
        if !self.is_tight() {
            return false;
        }
        let share = (self.config.max_memory / 4 / self.conns.len().max(1)).max(MODEST);
        self.conns.at(slot).is_some_and(|entry| {
            entry.conn.held() > share && !entry.conn.moved_since(self.now, MOVING)
        })
    }

    /// Whether a peer at that address may have one more connection. Counts the refusal.
    pub(super) fn may_enter(&mut self, remote: IpAddr) -> bool {
        if self.usage.of(Source::of(remote)) >= self.config.max_per_source {
            self.counters.syn_source_limit += 1;
            return false;
        }
        self.assess();
        if self.is_tight() {
            self.shed();
        }
        if self.usage.connections >= self.config.max_memory {
            self.counters.syn_memory += 1;
            return false;
        }
        if self.conns.len() >= self.config.max_connections {
            self.shed();
            self.counters.syn_limit += 1;
            return false;
        }
        true
    }

    /// Ends connections that hold memory or a place and get nowhere, the longest first. RFC 9293 section 3.8.6.1 wants a
    /// connection with a closed window kept open; RFC 6429 section 3 lets a system that runs out of resources end it.
    fn shed(&mut self) {
        let now = self.now;
        if self.usage.look_at > now {
            return;
        }
        self.usage.look_at = now + LOOK_AGAIN;
        // With three quarters in use there is no time left to lose.
        let scarce = self.usage.connections >= self.config.max_memory / 4 * 3;
        let patience = match scarce {
            true => self.config.patience.ratio(1, 4),
            false => self.config.patience,
        };
        let mut stuck: alloc::vec::Vec<(Instant, u32)> = self
            .conns
            .iter()
            .filter_map(|(handle, entry)| Some((entry.conn.stuck_since()?, handle.index())))
            .filter(|(since, _)| now.since(*since) >= patience)
            .collect();
        stuck.sort_unstable();
        for (_, slot) in stuck.into_iter().take(MOST_SHED) {
            self.counters.conn_shed += 1;
            self.with_conn(slot, Conn::shed);
        }
    }
}
