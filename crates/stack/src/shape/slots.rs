//! The device as a connection sees it where limits are set: a path without tokens has no room, like one whose device is full.

use manypath_tcp::time::Instant;

use super::{Gates, Shaper, Shares};
use crate::api::{Gather, IfaceId, Slots, TxMeta};

/// Packets up to this length leave without tokens, and are charged: acknowledgements, probes and resets. 40 bytes of an IPv6 header, 60 of TCP with all
/// its options, and 20 to spare.
pub(super) const ALWAYS: usize = 120;

/// What belongs to no connection: it is small and waits in no line.
const NOBODY: u32 = u32::MAX;

/// Slots of the driver behind the limits that hold for one connection.
pub(crate) struct ShapedSlots<'a> {
    inner: &'a mut dyn Slots,
    shaper: &'a mut Shaper,
    gates: Gates,
    /// The connection's place in the stack's table.
    slot: u32,
    /// It waited, and now there are tokens.
    called: bool,
    now: Instant,
}

impl<'a> ShapedSlots<'a> {
    /// For the turn of a connection.
    pub(crate) fn of(
        slot: u32,
        shares: &Shares,
        inner: &'a mut dyn Slots,
        shaper: &'a mut Shaper,
        now: Instant,
    ) -> Self {
        shaper.begin_turn();
        Self {
            gates: shaper.gates_of(shares),
            called: shaper.is_called(slot),
            inner,
            shaper,
            slot,
            now,
        }
    }

    /// For what belongs to no connection.
    pub(crate) fn of_nobody(
        inner: &'a mut dyn Slots,
        shaper: &'a mut Shaper,
        now: Instant,
    ) -> Self {
        Self::of(NOBODY, &Shares::default(), inner, shaper, now)
    }

    fn permits(&mut self, iface: IfaceId, bytes: u64) -> bool {
        let path = self.shaper.of_path(iface);
        let (slot, called, now) = (self.slot, self.called, self.now);
        let mut gates = self.gates.into_iter().chain([path]).flatten();
        gates.all(|gate| self.shaper.permits(gate, slot, bytes, called, now))
    }

    fn charge(&mut self, iface: IfaceId, bytes: u64) {
        let path = self.shaper.of_path(iface);
        for gate in self.gates.into_iter().chain([path]).flatten() {
            self.shaper.charge(gate, self.slot, bytes, self.now);
        }
        // One packet goes before those who wait elsewhere, not the whole turn.
        self.called &= bytes <= ALWAYS as u64;
    }
}

/// Bytes of IP packets that the network carries once the device has divided a burst (every segment repeats the headers).
fn wire_bytes(meta: &TxMeta) -> u64 {
    let (len, head) = (meta.len as u64, u64::from(meta.header_len));
    match u64::from(meta.gso_size) {
        0 => len,
        each => {
            let segments = len.saturating_sub(head).div_ceil(each).max(1);
            len + (segments - 1) * head
        }
    }
}

impl Slots for ShapedSlots<'_> {
    fn slot(&mut self, iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        if room > ALWAYS && !self.permits(iface, room as u64) {
            return None;
        }
        let slot = self.inner.slot(iface, room);
        if slot.is_none() {
            self.shaper.note_device_full(iface);
        }
        slot
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        self.charge(iface, wire_bytes(&meta));
        self.inner.commit(iface, meta);
    }

    fn gathers(&self, iface: IfaceId) -> bool {
        self.inner.gathers(iface)
    }

    fn gather(
        &mut self,
        iface: IfaceId,
        meta: TxMeta,
        headers: &[u8],
        payload: [&[u8]; 2],
    ) -> Gather {
        let bytes = wire_bytes(&meta);
        if meta.len > ALWAYS && !self.permits(iface, bytes) {
            return Gather::Full;
        }
        let done = self.inner.gather(iface, meta, headers, payload);
        match done {
            Gather::Taken => self.charge(iface, bytes),
            Gather::Full => self.shaper.note_device_full(iface),
            Gather::Declined => {}
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_segment_of_a_burst_repeats_the_headers() {
        let meta = |len, gso_size| TxMeta {
            len,
            gso_size,
            header_len: 52,
            l4_offset: 20,
            ipv6: false,
            partial_checksum: false,
        };
        assert_eq!(wire_bytes(&meta(1500, 0)), 1500);
        assert_eq!(wire_bytes(&meta(52 + 3000, 1000)), 3000 + 3 * 52);
        assert_eq!(wire_bytes(&meta(52 + 3001, 1000)), 3001 + 4 * 52);
        assert_eq!(wire_bytes(&meta(52, 1000)), 52);
    }
}
