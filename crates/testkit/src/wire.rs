//! The device of a stack that is driven by hand.

use std::collections::VecDeque;

use manypath_stack::{Gather, IfaceId, Slots, Stack, Transmit, TxMeta};
use manypath_tcp::time::Instant;

/// A device that has always room and keeps what it is given.
#[derive(Debug, Default)]
pub struct Wire {
    slot: Vec<u8>,
    /// Packets that nobody has taken, oldest first, with the interfaces they left by.
    pub queue: VecDeque<(IfaceId, Vec<u8>)>,
    /// The device fetches payload itself; now and then it is full, or wants a copy after all.
    pub gathers: bool,
    /// How often it was offered payload to fetch.
    pub gathered: usize,
}

impl Wire {
    /// Lets the stack send everything that it wants to send now, or `most` packets: false if it had not ended by then.
    pub fn flush(&mut self, stack: &mut Stack, now: Instant, most: usize) -> bool {
        (0..most).any(|_| match stack.poll_transmit(now, self) {
            Transmit::Sent(_) => false,
            Transmit::Blocked(_) | Transmit::Nothing => true,
        })
    }

    /// The oldest packet that nobody has taken.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        self.queue.pop_front().map(|(_, packet)| packet)
    }
}

impl Slots for Wire {
    fn slot(&mut self, _iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        self.slot.resize(room, 0);
        Some(&mut self.slot)
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        self.queue
            .push_back((iface, self.slot[..meta.len].to_vec()));
    }

    fn gathers(&self, _iface: IfaceId) -> bool {
        self.gathers
    }

    fn gather(
        &mut self,
        iface: IfaceId,
        meta: TxMeta,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> Gather {
        self.gathered += 1;
        // A device may be full or want a copy at any time, and is asked again.
        match self.gathered % 4 {
            0 => return Gather::Declined,
            1 => return Gather::Full,
            _ => {}
        }
        let packet = [headers, payload[0], payload[1]].concat();
        assert_eq!(packet.len(), meta.len);
        self.queue.push_back((iface, packet));
        Gather::Taken
    }
}
