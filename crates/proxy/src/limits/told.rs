//! Limits that clients of a converter tell of their own addresses: what is sent to one of them by all connections of that client together.
//!
//! A client is known by the address that it has shown by its handshake. What it says holds for its own connections alone, so that nobody slows what
//! others are sent.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use manypath_io::Host;
use manypath_stack::ids::ConnId;
use manypath_stack::{ClassId, Limited, Prefix, Route};

use super::order::{MTU, limit};

/// Numbers of classes from here on are for what clients tell.
const FIRST: u32 = 1 << 31;

/// A client, and an address of its own.
type Key = (IpAddr, IpAddr);

#[derive(Debug, Default)]
struct Known {
    limits: BTreeMap<Key, (ClassId, usize)>,
    next: u32,
}

impl Known {
    /// The class of an address, for one more connection.
    fn enter(&mut self, key: Key) -> ClassId {
        let next = &mut self.next;
        let (class, connections) = self.limits.entry(key).or_insert_with(|| {
            *next = next.wrapping_add(1) % FIRST;
            (ClassId(FIRST + *next), 0)
        });
        *connections += 1;
        *class
    }

    /// A connection is over. Gives the class that has none any more.
    fn leave(&mut self, key: Key) -> Option<ClassId> {
        let (class, connections) = self.limits.get_mut(&key)?;
        *connections -= 1;
        let (class, is_last) = (*class, *connections == 0);
        if is_last {
            self.limits.remove(&key);
        }
        is_last.then_some(class)
    }
}

/// What all clients have told.
#[derive(Clone, Debug, Default)]
pub(crate) struct TellingClients(Arc<Mutex<Known>>);

impl TellingClients {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds a connection to what its client has told, until the answer is dropped.
    pub(crate) fn hold(
        &self,
        host: &Host,
        id: ConnId,
        client: IpAddr,
        limits: impl Iterator<Item = (IpAddr, u64)>,
    ) -> Told {
        let mut told = Told {
            all: self.clone(),
            host: host.clone(),
            keys: Vec::new(),
        };
        let (mut routes, mut last) = (Vec::new(), None);
        for (addr, bits) in limits {
            let key = (client, addr.to_canonical());
            let class = match (bits, last) {
                (0, None) => continue,
                // An address of the same path.
                (0, Some(class)) => class,
                (bits, _) => {
                    let class = self.known().enter(key);
                    told.keys.push(key);
                    // The last that a client has said holds, on its connections that run, too.
                    let _ = host.limit(Limited::Class(class), Some(limit(bits, None, MTU)));
                    class
                }
            };
            last = Some(class);
            routes.push(Route {
                local: None,
                remote: Some(Prefix::host(key.1)),
                class,
            });
        }
        // A connection that is over needs none.
        let _ = host.route_connection(id, routes);
        told
    }
}

/// What holds as long as a connection is there.
#[derive(Debug)]
pub(crate) struct Told {
    all: TellingClients,
    host: Host,
    keys: Vec<Key>,
}

impl Drop for Told {
    fn drop(&mut self) {
        for key in &self.keys {
            let unused = self.all.known().leave(*key);
            if let Some(class) = unused {
                let _ = self.host.limit(Limited::Class(class), None);
            }
        }
    }
}

/// Whether a class is what a client has told.
pub(super) fn is_told(class: ClassId) -> bool {
    class.0 >= FIRST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_one_client_share_what_it_has_told_of_an_address() {
        let addr = |text: &str| text.parse::<IpAddr>().expect("an address");
        let (client, other) = (addr("192.0.2.1"), addr("192.0.2.2"));
        let (wlan, wwan) = (addr("10.0.0.1"), addr("10.0.0.2"));
        let mut known = Known::default();
        let first = known.enter((client, wlan));
        assert!(is_told(first));
        assert_eq!(known.enter((client, wlan)), first);
        let elsewhere = known.enter((client, wwan));
        let of_other = known.enter((other, wlan));
        assert!(first != elsewhere && first != of_other && elsewhere != of_other);
        assert_eq!(known.leave((client, wlan)), None);
        assert_eq!(known.leave((client, wlan)), Some(first));
        assert_eq!(known.leave((client, wlan)), None);
        assert_ne!(known.enter((client, wlan)), first);
    }
}
