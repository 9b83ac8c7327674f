//! What one peer, and all of them together, may cost: memory, connections for each address, and who has to go when a
//! limit is reached.
//!
//! Owns the sums. They are brought up to date when the stack is asked for its deadline, which is after each batch of
//! packets, and before a connection is let in.

use core::net::{IpAddr, Ipv6Addr};

use manypath_tcp::time::{Duration, Instant};

use super::Stack;
use super::pressure::{self, Holder, Load, PLAIN_WINDOW, Permits};
use crate::api::Memory;
use crate::conn::Conn;
use crate::crypto::rng::Rng;
use crate::table::Table;

/// Pause between two looks for connections that get nowhere: the look goes over all of them.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// The same where memory is used up.
const FREE_AGAIN: Duration = Duration::from_millis(10);
/// Connections that one look may end.
const MOST_SHED: usize = 256;

/// What a connection costs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes of memory held.
    held: usize,
    /// Bytes that its peer may send beyond these, as far as they count.
    promised: usize,
}

impl Cost {
    pub(super) fn of(conn: &Conn) -> Self {
        Self {
            held: conn.memory(),
            promised: conn
                .recv
                .promised(&conn.life, &conn.subflows)
                .saturating_sub(PLAIN_WINDOW as usize),
        }
    }
}

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
    /// What all connections cost, as it was last looked at.
    all: Cost,
    /// Established connections that peers opened, by address. Half-open ones do not count: their sources may be made up.
    sources: Table<Source, u32>,
    look_at: Instant,
    free_at: Instant,
}

impl Usage {
    pub(super) fn new(rng: &mut Rng) -> Self {
        Self {
            all: Cost::default(),
            sources: Table::new(rng),
            look_at: Instant::ZERO,
            free_at: Instant::ZERO,
        }
    }

    /// A connection cost `before` and costs `now`.
    pub(super) fn recharge(&mut self, before: Cost, now: Cost) {
        self.all.held = self.all.held - before.held + now.held;
        self.all.promised = self.all.promised - before.promised + now.promised;
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
            connections: self.usage.all.held,
            tables,
            time_wait: self.time_wait.memory(),
            queues: self.replies.memory()
                + self.fragments.memory()
                + self.events.capacity() * size_of::<crate::api::Event>()
                + (self.ready.capacity() + self.touched.capacity() + self.due.capacity())
                    * size_of::<u32>(),
        }
    }

    /// Bytes that connections may hold ([`StackConfig::max_memory`](crate::StackConfig::max_memory)).
    pub fn memory_limit(&self) -> usize {
        self.config.max_memory
    }

    /// Connections at this moment, whatever their state.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// What is permitted with the memory that is left.
    pub(super) fn permits(&self) -> Permits {
        let load = Load {
            held: self.usage.all.held,
            promised: self.usage.all.promised,
            connections: self.conns.len(),
        };
        pressure::permits(load, self.config.max_memory, self.config.patience)
    }

    /// Memory is tight, and this connection holds more than its share of it without moving on.
    pub(super) fn hogs(&self, slot: u32) -> bool {
        let permits = self.permits();
        let entry = self.conns.at(slot).filter(|_| !permits.roomy);
        entry.is_some_and(|entry| {
            entry.conn.recv.held_with(&entry.conn.subflows) > permits.share
                && !entry.conn.limits.keeps_rate(self.now)
        })
    }

    /// Tells a connection how far its receive window may grow, and gives the size that it has.
    pub(super) fn permit_window(&mut self, slot: u32) -> u32 {
        let permits = self.permits();
        let Some(entry) = self.conns.at_mut(slot) else {
            return 0;
        };
        let size = entry.conn.recv.recv_window_size();
        let growth = u32::try_from(permits.growth).unwrap_or(u32::MAX);
        let grown = size.saturating_add(growth);
        entry.conn.limits.permit_window(grown.max(permits.window));
        size
    }

    /// Charges a connection whose receive window had this size and has grown: others that want more meanwhile have to know.
    pub(super) fn charge_growth(&mut self, slot: u32, window: u32) {
        let entry = self.conns.at(slot);
        if entry.is_some_and(|entry| entry.conn.recv.recv_window_size() > window) {
            self.charge(slot);
        }
    }

    /// Brings the sums up to date with one connection.
    pub(super) fn charge(&mut self, slot: u32) {
        if let Some(entry) = self.conns.at_mut(slot) {
            let cost = Cost::of(&entry.conn);
            self.usage.recharge(entry.cost, cost);
            entry.cost = cost;
        }
    }

    /// Has connections end that memory is needed from, if it is.
    pub(super) fn relieve(&mut self) {
        let permits = self.permits();
        if let Some(patience) = permits.patience {
            self.shed(patience);
        }
        if permits.free > 0 && self.usage.free_at <= self.now {
            self.usage.free_at = self.now + FREE_AGAIN;
            self.free(permits);
        }
    }

    /// Ends those that hold most and move least.
    fn free(&mut self, permits: Permits) {
        let now = self.now;
        let holders = self.conns.iter().map(|(handle, entry)| Holder {
            slot: handle.index(),
            held: entry.cost.held,
            rate: entry.conn.limits.rate_of_advance(now),
            moves: entry.conn.limits.keeps_rate(now),
        });
        let victims = pressure::victims(holders.collect(), permits.share, permits.free);
        if victims.is_empty() {
            // All hold no more than their share: the look goes over all of them for nothing.
            self.usage.free_at = now + LOOK_AGAIN;
        }
        for victim in victims.into_iter().take(MOST_SHED) {
            self.counters.conn_evicted_memory += 1;
            self.with_conn(victim.slot, |conn, cx| conn.ending().shed(cx));
            self.charge(victim.slot);
        }
    }

    /// Whether a peer at that address may have one more connection. Counts the refusal.
    pub(super) fn may_enter(&mut self, remote: IpAddr) -> bool {
        if self.usage.of(Source::of(remote)) >= self.config.max_per_source {
            self.counters.syn_source_limit += 1;
            return false;
        }
        self.assess();
        if !self.permits().connections {
            self.counters.syn_memory += 1;
            return false;
        }
        if self.conns.len() >= self.config.max_connections {
            self.shed(self.config.patience);
            self.counters.syn_limit += 1;
            return false;
        }
        true
    }

    /// Ends connections that hold memory or a place and get nowhere, the longest first. RFC 9293 section 3.8.6.1 wants a
    /// connection with a closed window kept open; RFC 6429 section 3 lets a system that runs out of resources end it.
    fn shed(&mut self, patience: Duration) {
        let now = self.now;
        if self.usage.look_at > now {
            return;
        }
        self.usage.look_at = now + LOOK_AGAIN;
        let share = self.permits().share;
        let mut stuck: alloc::vec::Vec<(Instant, u32)> = self
            .conns
            .iter()
            .filter_map(|(handle, entry)| {
                let modest = entry.cost.held <= share;
                Some((entry.conn.stuck_since(modest, now)?, handle.index()))
            })
            .filter(|(since, _)| now.since(*since) >= patience)
            .collect();
        stuck.sort_unstable();
        for (_, slot) in stuck.into_iter().take(MOST_SHED) {
            self.counters.conn_shed += 1;
            self.with_conn(slot, |conn, cx| conn.ending().shed(cx));
            self.charge(slot);
        }
    }
}
