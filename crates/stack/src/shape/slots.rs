//! The device as a connection sees it where limits are set: a path without tokens has no room, like one whose device is full.

use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::time::Instant;

use super::{Asker, CLASSES, Gates, RouteGates, Shaper, Shares};
use crate::api::{Gather, IfaceId, Route, Slots, TxMeta};

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
    routes: &'a [Route],
    /// Those of the addresses of the next packet.
    between: RouteGates,
    /// The last packet found no tokens there.
    holds_one: bool,
    asker: Asker,
    /// Its own limit or one of its classes has refused it in this turn: no other path gets what waits either, so that the one that was chosen gets it
    /// when there are tokens, however long its burst.
    held: bool,
    now: Instant,
}

impl<'a> ShapedSlots<'a> {
    /// For the turn of a connection.
    pub(crate) fn of(
        slot: u32,
        shares: &'a Shares,
        inner: &'a mut dyn Slots,
        shaper: &'a mut Shaper,
        now: Instant,
    ) -> Self {
        shaper.begin_turn();
        Self {
            gates: shaper.gates_of(shares),
            routes: &shares.routes,
            between: RouteGates::default(),
            holds_one: false,
            asker: Asker {
                slot,
                called: shaper.is_called(slot),
                share: shaper.share(&shares.classes),
            },
            inner,
            shaper,
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
        const NONE: &Shares = &Shares {
            own: None,
            classes: [None; CLASSES],
            routes: Vec::new(),
        };
        Self::of(NOBODY, NONE, inner, shaper, now)
    }

    fn permits(&mut self, iface: IfaceId, bytes: u64) -> bool {
        let path = self.shaper.of_path(iface);
        let (asker, now) = (self.asker, self.now);
        if self.held {
            return false;
        }
        let mut gates = self.gates.into_iter().flatten();
        self.held = !gates.all(|gate| self.shaper.permits(gate, &asker, bytes, now));
        self.holds_one = false;
        if self.held || path.is_some_and(|gate| !self.shaper.permits(gate, &asker, bytes, now)) {
            return false;
        }
        let mut between = self.between.into_iter().flatten();
        self.holds_one = !between.all(|gate| self.shaper.permits(gate, &asker, bytes, now));
        !self.holds_one
    }

    fn charge(&mut self, iface: IfaceId, bytes: u64) {
        let [own, all] = self.between;
        let by = [self.shaper.of_path(iface), own, all];
        for gate in self.gates.into_iter().chain(by).flatten() {
            self.shaper.charge(gate, self.asker.slot, bytes, self.now);
        }
        if bytes > ALWAYS as u64 {
            self.shaper
                .note_elsewhere(self.asker.slot, self.routes, &by, bytes);
        }
        // One packet goes before those who wait elsewhere, not the whole turn.
        self.asker.called &= bytes <= ALWAYS as u64;
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

    fn lead(&mut self, local: IpAddr, remote: IpAddr) {
        self.holds_one = false;
        self.between = self.shaper.gates_between(self.routes, local, remote);
    }

    fn holds_one(&self) -> bool {
        self.holds_one
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
