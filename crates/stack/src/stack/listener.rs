//! Ports on which connections are accepted.

use alloc::collections::VecDeque;

use manypath_tcp::time::{Duration, Instant};

use crate::api::ListenOptions;
use crate::ids::ConnId;

/// A peer that is there has answered our SYN by then: it is when we say it again (RFC 6298, section 2).
const PATIENCE: Duration = Duration::from_secs(1);

/// The most handshakes of a listener that have places, however long its backlog is. Each costs some 7 KB, so more of them would
/// give a flood of SYNs tens of megabytes; and more are not needed, as cookies answer what finds no place.
const MOST_HALF_OPEN: usize = 1024;

/// How often a SYN/ACK is repeated that nobody answers: as often as Linux does while there is room, and less often the more of the
/// `most` places for handshakes are taken, since most of them go to who never asked then. Pure.
fn syn_ack_retries(half_open: usize, most: usize) -> u8 {
    if half_open < most / 2 {
        5
    } else if half_open < most / 4 * 3 {
        2
    } else {
        1
    }
}

pub(super) struct Listener {
    pub(super) opts: ListenOptions,
    /// SYNs with payload wait for the application's answer.
    pub(super) holds_syns: bool,
    /// Connections in their handshake and when their SYN came last, oldest first.
    half_open: VecDeque<(ConnId, Instant)>,
    /// Established and not accepted.
    queue: VecDeque<ConnId>,
}

impl Listener {
    pub(super) fn new(opts: ListenOptions) -> Self {
        Self {
            opts,
            holds_syns: false,
            half_open: VecDeque::new(),
            queue: VecDeque::new(),
        }
    }

    /// There is room for one more handshake.
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.half_open.len() + self.queue.len();
        waiting < self.backlog() && self.half_open.len() < MOST_HALF_OPEN
    }

    fn backlog(&self) -> usize {
        self.opts.backlog.max(1)
    }

    /// How often the answer to a SYN that comes now is repeated.
    pub(super) fn syn_ack_retries(&self) -> u8 {
        syn_ack_retries(self.half_open.len(), self.backlog().min(MOST_HALF_OPEN))
    }

    /// As many wait to be accepted as may: the application is what is slow.
    pub(super) fn is_congested(&self) -> bool {
        self.queue.len() >= self.backlog()
    }

    /// Gives up the place of the oldest handshake, if its peer should have answered by now: what a flood of SYNs with
    /// made-up sources leaves.
    pub(super) fn evict(&mut self, now: Instant) -> Option<ConnId> {
        let (id, since) = *self.half_open.front()?;
        if now.since(since) < PATIENCE {
            return None;
        }
        self.half_open.pop_front();
        Some(id)
    }

    pub(super) fn opened(&mut self, id: ConnId, now: Instant) {
        self.half_open.push_back((id, now));
    }

    /// The SYN of a handshake came again: it is as young as if it had come for the first time.
    pub(super) fn asked_again(&mut self, id: ConnId, now: Instant) {
        let waiting = self.half_open.len();
        self.left_handshake(id);
        if self.half_open.len() < waiting {
            self.opened(id, now);
        }
    }

    fn left_handshake(&mut self, id: ConnId) {
        if let Some(at) = self.half_open.iter().position(|(other, _)| *other == id) {
            self.half_open.remove(at);
        }
    }

    pub(super) fn established(&mut self, id: ConnId) {
        self.left_handshake(id);
        self.queue.push_back(id);
    }

    /// A connection ended before it was accepted.
    pub(super) fn lost(&mut self, id: ConnId) {
        self.queue.retain(|queued| *queued != id);
        self.left_handshake(id);
    }

    pub(super) fn accept(&mut self) -> Option<ConnId> {
        self.queue.pop_front()
    }

    pub(super) fn waiting(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.queue.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syn_acks_are_repeated_less_often_as_the_backlog_fills() {
        for (half_open, most, expected) in [
            (0, 4096, 5),
            (2047, 4096, 5),
            (2048, 4096, 2),
            (3071, 4096, 2),
            (3072, 4096, 1),
            (0, 1, 1),
            (1, 2, 1),
        ] {
            let is = syn_ack_retries(half_open, most);
            assert_eq!(is, expected, "{half_open} of {most}");
        }
    }
}
