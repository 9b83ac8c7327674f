//! Who waits for what.

use manypath_stack::ids::{ConnId, ListenerId};
use manypath_stack::{CloseCause, Event, EventKind};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use tokio::sync::Notify;

/// What the driver remembers of a connection that the application holds.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) read: Option<Waker>,
    pub(crate) write: Option<Waker>,
    /// Any number of tasks that only want to know when a read or a write would do something; `None` until the first one asks.
    pub(crate) ready: Option<Arc<Notify>>,
    pub(crate) open: Option<Waker>,
    /// Waits for the peer to have everything.
    pub(crate) close: Option<Waker>,
    pub(crate) established: bool,
    /// The network has said that its peer cannot be reached.
    pub(crate) unreachable: bool,
    pub(crate) closed: Option<CloseCause>,
}

/// Those whom events concern, to be woken when the lock is free.
#[derive(Debug, Default)]
pub(crate) struct Woken {
    one: Vec<Waker>,
    all: Vec<Arc<Notify>>,
}

impl Woken {
    pub(crate) fn wake(self) {
        for waker in self.one {
            waker.wake();
        }
        for ready in self.all {
            ready.notify_waiters();
        }
    }
}

/// All who wait, by what they wait for.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    conns: HashMap<ConnId, Waiting>,
    listeners: HashMap<ListenerId, Vec<Waker>>,
}

impl Wakers {
    /// Starts to follow a connection. `established`: it came out of a listener.
    pub(crate) fn follow(&mut self, conn: ConnId, established: bool) {
        self.conns.insert(
            conn,
            Waiting {
                established,
                ..Waiting::default()
            },
        );
    }

    pub(crate) fn forget(&mut self, conn: ConnId) {
        self.conns.remove(&conn);
    }

    pub(crate) fn conn(&mut self, conn: ConnId) -> Option<&mut Waiting> {
        self.conns.get_mut(&conn)
    }

    /// The application holds the connection.
    pub(crate) fn follows(&self, conn: ConnId) -> bool {
        self.conns.contains_key(&conn)
    }

    pub(crate) fn wait_accept(&mut self, listener: ListenerId, waker: &Waker) {
        let list = self.listeners.entry(listener).or_default();
        if !list.iter().any(|w| w.will_wake(waker)) {
            list.push(waker.clone());
        }
    }

    pub(crate) fn forget_listener(&mut self, listener: ListenerId) -> Vec<Waker> {
        self.listeners.remove(&listener).unwrap_or_default()
    }

    /// Moves those whom the event concerns to `woken`.
    pub(crate) fn on_event(&mut self, event: &Event, woken: &mut Woken) {
        if let EventKind::Acceptable(listener) = event.kind {
            if let Some(list) = self.listeners.get_mut(&listener) {
                woken.one.append(list);
            }
            return;
        }
        let Some(conn) = event.conn.and_then(|id| self.conns.get_mut(&id)) else {
            return;
        };
        if let EventKind::Readable | EventKind::Writable | EventKind::Closed(_) = event.kind {
            woken.all.extend(conn.ready.clone());
        }
        let wake = &mut woken.one;
        match event.kind {
            EventKind::Readable => wake.extend(conn.read.take()),
            EventKind::Writable => wake.extend(conn.write.take()),
            EventKind::Delivered => wake.extend(conn.close.take()),
            EventKind::Established => {
                conn.established = true;
                wake.extend(conn.open.take());
            }
            EventKind::Unreachable => {
                conn.unreachable = true;
                wake.extend(conn.open.take());
            }
            EventKind::Closed(cause) => {
                conn.closed = Some(cause);
                wake.extend(conn.read.take());
                wake.extend(conn.write.take());
                wake.extend(conn.open.take());
                wake.extend(conn.close.take());
            }
            EventKind::Acceptable(_)
            | EventKind::FellBack(_)
            | EventKind::Opening { .. }
            | EventKind::Decided { .. }
            | EventKind::Created { .. }
            | EventKind::JoinsAllowed
            | EventKind::LocalUp { .. }
            | EventKind::LocalDown { .. }
            | EventKind::SubflowUp { .. }
            | EventKind::SubflowDown { .. }
            | EventKind::AddressAnnounced { .. }
            | EventKind::AddressWithdrawn { .. }
            | EventKind::PriorityChanged { .. }
            | EventKind::Timeout { .. } => {}
        }
    }
}
