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
    /// Its own limit or one of its classes has refused it in this turn: no other path gets what waits either, so that the one that was chosen gets it
    /// when there are tokens, however long its burst.
    held: bool,
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
            held: false,
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
        if self.held {
            return false;
        }
        let mut gates = self.gates.into_iter().flatten();
        self.held = !gates.all(|gate| self.shaper.permits(gate, slot, bytes, called, now));
        !self.held && path.is_none_or(|gate| self.shaper.permits(gate, slot, bytes, called, now))
    }

    fn charge(&mut self, iface: IfaceId, bytes: u64) {
        let path = self.shaper.of_path(iface);
        for gate in self.gates.into_iter().chain([path]).flatten() {
            self.shaper.charge(gate, self.slot, bytes, self.now);
        }
        if bytes > ALWAYS as u64 {
            self.shaper.note_elsewhere(self.slot, iface, bytes);
        }
        // One packet goes before those who wait elsewhere, not the whole turn.
        self.called &= bytes <= ALWAYS as u64;
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
        self.charge(iface, meta.wire_bytes());
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
        let bytes = meta.wire_bytes();
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
