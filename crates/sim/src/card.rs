//! A host's network cards as its stack sees them: transmit slots, limited queues, segmentation.

use manypath_stack::api::{IfaceId, Slots, TxMeta};
use manypath_tcp::time::Instant;

use crate::fabric::Fabric;
use crate::host::Interface;
use crate::offload::{self, Job};
use crate::packet::Packet;

/// Buffers that every outgoing packet of a host passes.
#[derive(Debug, Default)]
pub(crate) struct Desk {
    /// Where a burst is written that a card splits.
    burst: Vec<u8>,
    /// Where a single packet is written: the very packet that travels then.
    single: Option<Box<Packet>>,
    /// The last slot was in `single`.
    in_single: bool,
    /// Wire packets with the interface that they leave by.
    outbox: Vec<(usize, Box<Packet>)>,
}

impl Desk {
    /// The wire packets of the last call of the stack.
    pub(crate) fn sent(&mut self) -> std::vec::Drain<'_, (usize, Box<Packet>)> {
        self.outbox.drain(..)
    }
}

/// The cards during one call of the stack.
pub(crate) struct Cards<'a> {
    now: Instant,
    fabric: &'a mut Fabric,
    interfaces: &'a [Interface],
    desk: &'a mut Desk,
}

impl<'a> Cards<'a> {
    pub(crate) fn new(
        now: Instant,
        fabric: &'a mut Fabric,
        interfaces: &'a [Interface],
        desk: &'a mut Desk,
    ) -> Self {
        Self {
            now,
            fabric,
            interfaces,
            desk,
        }
    }

    /// The queue of an interface is as full as its card lets it be.
    fn is_full(&mut self, index: usize, interface: &Interface) -> bool {
        let Some(limit) = interface.device_queue else {
            return false;
        };
        let own = self.desk.outbox.iter().filter(|(other, _)| *other == index);
        let waiting: u64 = own.map(|(_, packet)| packet.len() as u64).sum();
        waiting + self.fabric.backlog(self.now, interface.port) >= limit
    }
}

impl Slots for Cards<'_> {
    fn slot(&mut self, iface: IfaceId, room: usize) -> Option<&mut [u8]> {
        let index = iface.0 as usize;
        let interface = self.interfaces.get(index)?;
        if self.is_full(index, interface) {
            return None;
        }
        let desk = &mut *self.desk;
        desk.in_single = room <= usize::from(interface.mtu);
        let bytes = if desk.in_single {
            let pool = self.fabric.pool();
            desk.single
                .get_or_insert_with(|| pool.take_used())
                .bytes_mut()
        } else {
            &mut desk.burst
        };
        if bytes.len() < room {
            bytes.resize(room, 0);
        }
        Some(bytes)
    }

    fn commit(&mut self, iface: IfaceId, meta: TxMeta) {
        let job = Job {
            gso_size: meta.gso_size,
            header_len: meta.header_len,
            l4_offset: meta.l4_offset,
            ipv6: meta.ipv6,
            partial_checksum: meta.partial_checksum,
        };
        let index = iface.0 as usize;
        let desk = &mut *self.desk;
        let single = desk.single.take_if(|_| desk.in_single);
        if let Some(mut packet) = single {
            packet.bytes_mut().truncate(meta.len);
            if job.splits(meta.len) {
                // It fits into one packet here, but not on its path.
                let outbox = &mut desk.outbox;
                offload::split(packet.bytes_mut(), &job, self.fabric.pool(), |packet| {
                    outbox.push((index, packet));
                });
                self.fabric.pool().give(packet);
                return;
            }
            offload::complete(packet.bytes_mut(), &job);
            desk.outbox.push((index, packet));
            return;
        }
        let bytes = &desk.burst[..meta.len];
        let outbox = &mut desk.outbox;
        if job.splits(bytes.len()) {
            offload::split(bytes, &job, self.fabric.pool(), |packet| {
                outbox.push((index, packet));
            });
        } else {
            let mut packet = self.fabric.pool().copy_of(bytes);
            offload::complete(packet.bytes_mut(), &job);
            outbox.push((index, packet));
        }
    }
}
