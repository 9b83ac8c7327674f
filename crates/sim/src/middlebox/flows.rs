//! What a box remembers of each TCP connection that crosses it, with a bound: the one not seen for longest goes first.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::Way;
use crate::view::{ACK, SYN, TcpView, addresses};

/// Connections that a box remembers unless it says otherwise.
pub const USUAL_FLOWS: usize = 1024;

/// A TCP connection as a box sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// The end on the box's own side: the source of what goes [`Way::Out`].
    pub near: SocketAddr,
    /// The other one.
    pub far: SocketAddr,
}

impl FlowKey {
    /// The connection of a packet that goes `way`.
    #[must_use]
    pub fn of(packet: &[u8], view: &TcpView, way: Way) -> Option<Self> {
        let (source, destination) = addresses(packet)?;
        let (from, to) = view.ports(packet);
        let from = SocketAddr::new(source, from);
        let to = SocketAddr::new(destination, to);
        Some(match way {
            Way::Out => Self {
                near: from,
                far: to,
            },
            Way::In => Self {
                near: to,
                far: from,
            },
        })
    }
}

#[derive(Debug)]
struct Entry<T> {
    /// Its place in the order of use.
    used: u64,
    /// Sequence number of the SYN that began it.
    isn: Option<u32>,
    value: T,
}

/// A bounded table of connections.
#[derive(Debug)]
pub struct Flows<T> {
    limit: usize,
    clock: u64,
    entries: FxHashMap<FlowKey, Entry<T>>,
    order: BTreeMap<u64, FlowKey>,
}

impl<T> Flows<T> {
    /// Remembers at most `limit` connections, and at least one.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            clock: 0,
            entries: FxHashMap::default(),
            order: BTreeMap::new(),
        }
    }

    /// What is known of a connection, which counts as a use.
    pub fn get(&mut self, key: &FlowKey) -> Option<&mut T> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        self.order.remove(&entry.used);
        entry.used = self.clock;
        self.order.insert(self.clock, *key);
        Some(&mut entry.value)
    }

    /// What is known of the connection of a packet that goes `way`, made by `make` if there is nothing. A SYN with
    /// another sequence number begins a new connection between the same ends.
    pub fn of(
        &mut self,
        packet: &[u8],
        view: &TcpView,
        way: Way,
        make: impl FnOnce() -> T,
    ) -> Option<&mut T> {
        let key = FlowKey::of(packet, view, way)?;
        let first = view.flags & (SYN | ACK) == SYN;
        let isn = first.then(|| view.seq(packet));
        let again = |entry: &Entry<T>| isn.is_none() || entry.isn == isn;
        if !self.entries.get(&key).is_some_and(again) {
            self.insert(key, isn, make());
        }
        self.get(&key)
    }

    /// Remembers a connection; answers one that had to be forgotten for it.
    pub fn insert(&mut self, key: FlowKey, isn: Option<u32>, value: T) -> Option<(FlowKey, T)> {
        self.remove(&key);
        let mut forgotten = None;
        if self.entries.len() >= self.limit {
            if let Some((_, oldest)) = self.order.pop_first() {
                forgotten = self.entries.remove(&oldest).map(|e| (oldest, e.value));
            }
        }
        self.clock += 1;
        let used = self.clock;
        self.order.insert(used, key);
        self.entries.insert(key, Entry { used, isn, value });
        forgotten
    }

    /// Forgets a connection.
    pub fn remove(&mut self, key: &FlowKey) -> Option<T> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&entry.used);
        Some(entry.value)
    }

    /// All connections, the one used last at the end.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (FlowKey, &mut T)> {
        let mut all: Vec<_> = self.entries.iter_mut().collect();
        all.sort_unstable_by_key(|(_, entry)| entry.used);
        all.into_iter().map(|(key, entry)| (*key, &mut entry.value))
    }

    /// What is known of all connections, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values().map(|entry| &entry.value)
    }

    /// How many are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// None is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::put_u16;
    use crate::view::tests::packet;

    fn from_port(port: u16, flags: u8, seq: u32) -> Vec<u8> {
        let mut bytes = packet(false, flags, seq, &[], b"");
        put_u16(&mut bytes, 20, port);
        bytes
    }

    #[test]
    fn both_ways_are_one_connection_and_the_oldest_is_forgotten() {
        let mut flows = Flows::new(2);
        let mut count = |port, flags, seq| {
            let bytes = from_port(port, flags, seq);
            let view = TcpView::of(&bytes).unwrap();
            let seen = flows.of(&bytes, &view, Way::Out, || 0).unwrap();
            *seen += 1;
            (*seen, flows.len())
        };
        assert_eq!(count(1, ACK, 5), (1, 1));
        assert_eq!(count(2, ACK, 5), (1, 2));
        assert_eq!(count(1, ACK, 5), (2, 2));
        assert_eq!(count(3, ACK, 5), (1, 2));
        assert_eq!((count(1, ACK, 5), count(2, ACK, 5)), ((3, 2), (1, 2)));
        let there = from_port(1000, ACK, 5);
        let view = TcpView::of(&there).unwrap();
        let out = FlowKey::of(&there, &view, Way::Out).unwrap();
        let back = FlowKey::of(&there, &view, Way::In).unwrap();
        assert_eq!((out.near, out.far), (back.far, back.near));
    }

    #[test]
    fn another_syn_begins_another_connection() {
        let mut flows = Flows::new(9);
        let mut count = |flags, seq| {
            let bytes = from_port(1, flags, seq);
            let view = TcpView::of(&bytes).unwrap();
            let seen = flows.of(&bytes, &view, Way::Out, || 0).unwrap();
            *seen += 1;
            *seen
        };
        assert_eq!([count(SYN, 7), count(SYN, 7), count(ACK, 8)], [1, 2, 3]);
        assert_eq!([count(SYN, 9), count(SYN | ACK, 1)], [1, 2]);
    }
}
