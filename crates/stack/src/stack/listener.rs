//! Ports on which connections are accepted.

use alloc::collections::VecDeque;

use crate::api::ListenOptions;
use crate::ids::ConnId;

pub(super) struct Listener {
    pub(super) opts: ListenOptions,
    /// Connections in their handshake.
    half_open: usize,
    /// Established and not accepted.
    queue: VecDeque<ConnId>,
}

impl Listener {
    pub(super) fn new(opts: ListenOptions) -> Self {
        Self {
            opts,
            half_open: 0,
            queue: VecDeque::new(),
        }
    }

    /// There is room for one more handshake.
    pub(super) fn has_room(&self) -> bool {
        self.half_open + self.queue.len() < self.opts.backlog.max(1)
    }

    pub(super) fn opened(&mut self) {
        self.half_open += 1;
    }

    pub(super) fn established(&mut self, id: ConnId) {
        self.half_open = self.half_open.saturating_sub(1);
        self.queue.push_back(id);
    }

    /// A connection ended before it was accepted.
    pub(super) fn lost(&mut self, id: ConnId) {
        let before = self.queue.len();
        self.queue.retain(|queued| *queued != id);
        if self.queue.len() == before {
            self.half_open = self.half_open.saturating_sub(1);
        }
    }

    pub(super) fn accept(&mut self) -> Option<ConnId> {
        self.queue.pop_front()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.queue.iter().copied()
    }
}
