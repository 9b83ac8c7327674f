//! What each path of our stack has carried of a connection.

use std::fmt;
use std::sync::Arc;

use manypath_io::{Host, MpStream};
use manypath_stack::ids::ConnId;

use crate::serve::PathBytes;

/// Stream bytes that one path of our stack carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CarriedBy {
    /// The interface, or the local address where it is not known any more.
    pub path: Arc<str>,
    /// Bytes sent, reinjected ones included.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

impl CarriedBy {
    /// The same, of the client's connection or of the one to the target.
    pub(crate) fn of(self, inside: bool) -> PathBytes {
        PathBytes {
            path: self.path,
            inside,
            sent: self.sent,
            received: self.received,
        }
    }
}

/// What has been added since `before`.
pub(crate) fn since(before: &[CarriedBy], now: Vec<CarriedBy>) -> Vec<CarriedBy> {
    let mut all = now;
    for known in before {
        if let Some(path) = all.iter_mut().find(|path| path.path == known.path) {
            path.sent = path.sent.saturating_sub(known.sent);
            path.received = path.received.saturating_sub(known.received);
        }
    }
    all.retain(|path| path.sent > 0 || path.received > 0);
    all
}

/// A look at what the paths of one connection carry.
#[derive(Clone)]
pub struct PathAccount {
    host: Host,
    id: ConnId,
}

impl fmt::Debug for PathAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PathAccount").field(&self.id).finish()
    }
}

impl PathAccount {
    pub(crate) fn of(stream: &MpStream) -> Self {
        Self {
            host: stream.host().clone(),
            id: stream.id(),
        }
    }

    /// What each path has carried so far, subflows that have ended included; empty when the connection is forgotten.
    #[must_use]
    pub fn paths(&self) -> Vec<CarriedBy> {
        let Self { host, id } = self;
        let Some(info) = host.conn_info(*id) else {
            return Vec::new();
        };
        let mut all: Vec<CarriedBy> = Vec::new();
        let mut add = |path: String, sent: u64, received: u64| match all
            .iter_mut()
            .find(|known| *known.path == *path)
        {
            Some(known) => {
                known.sent += sent;
                known.received += received;
            }
            None => all.push(CarriedBy {
                path: path.into(),
                sent,
                received,
            }),
        };
        for flow in &info.subflows {
            let name = host.iface_name(flow.iface);
            let name = name.unwrap_or_else(|| flow.tuple.local.ip().to_string());
            let sent = flow.bytes_sent + flow.bytes_reinjected;
            add(name, sent, flow.bytes_received);
        }
        let paths = host.paths();
        for flow in &info.ended {
            let local = flow.tuple.local.ip();
            let path = paths.iter().find(|path| path.addr == local);
            let name = path.and_then(|path| host.iface_name(path.iface));
            let name = name.unwrap_or_else(|| local.to_string());
            add(name, flow.bytes_sent, flow.bytes_received);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_added_is_told_and_idle_paths_are_not() {
        let path = |path: &str, sent, received| CarriedBy {
            path: path.into(),
            sent,
            received,
        };
        let before = [path("a", 5, 6), path("b", 7, 8)];
        let now = vec![path("a", 6, 8), path("b", 7, 8), path("c", 1, 0)];
        assert_eq!(since(&before, now), [path("a", 1, 2), path("c", 1, 0)]);
    }
}
