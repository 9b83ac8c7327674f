//! A cable in memory: two devices joined back to back, for tests, examples and in-process pairs of stacks.
//!
//! Nothing is lost, unless the cable is cut, and nothing is reordered; it holds a bounded number of packets and then blocks its sender.

use super::{BURST_MAX, Device, DeviceCounters, DeviceInfo, Inbound, Receive, Transmit};
use manypath_stack::api::{IfaceId, Offload, RxMeta, TxMeta};
use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Packets one direction of the cable holds.
const DEPTH: usize = 256;
const ROOM: usize = 65_536;

/// How to make a cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// MTU of both ends, bytes.
    pub mtu: u16,
    /// Bursts and unfinished checksums may travel, as between two containers of one host.
    pub offload: bool,
    /// The interface numbers of the two ends.
    pub ifaces: (IfaceId, IfaceId),
}

impl Default for MemoryConfig {
    fn default() -> Self {
        MemoryConfig {
            mtu: 1500,
            offload: true,
            ifaces: (IfaceId(1), IfaceId(1)),
        }
    }
}

#[derive(Debug, Default)]
struct Direction {
    queue: VecDeque<(Vec<u8>, RxMeta)>,
    spare: Vec<Vec<u8>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

type Shared = Arc<Mutex<Direction>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Direction> {
    // A panic while a packet moved leaves the queue whole: it only holds finished packets.
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A cable between two devices, which can be cut.
#[derive(Debug, Clone, Default)]
pub struct Cable(Arc<AtomicBool>);

impl Cable {
    /// Has everything lost that is sent from now on, without either end being told.
    pub fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets packets pass again.
    pub fn mend(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn is_cut(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes a cable and returns its two ends.
#[must_use]
pub fn pair(config: MemoryConfig) -> (Device, Device) {
    let (a, b, _) = cable(config);
    (a, b)
}

/// Makes a cable that can be cut, and returns its two ends as well.
#[must_use]
pub fn cable(config: MemoryConfig) -> (Device, Device, Cable) {
    let cable = Cable::default();
    let (there, back) = (Shared::default(), Shared::default());
    let end = |iface: IfaceId, out: &Shared, inward: &Shared| Device {
        info: DeviceInfo {
            is_tun: false,
            name: format!("memory{}", iface.0),
            iface,
            mtu: config.mtu,
            offload: if config.offload {
                Offload {
                    checksum: true,
                    max_burst: BURST_MAX,
                }
            } else {
                Offload::default()
            },
        },
        receive: Box::new(MemoryReceive {
            from: Arc::clone(inward),
            batch: Vec::with_capacity(DEPTH),
        }),
        transmit: Box::new(MemoryTransmit {
            to: Arc::clone(out),
            cable: cable.clone(),
            slot: vec![0; ROOM],
            counters: DeviceCounters::default(),
        }),
    };
    let a = end(config.ifaces.0, &there, &back);
    let b = end(config.ifaces.1, &back, &there);
    (a, b, cable)
}

struct MemoryReceive {
    from: Shared,
    batch: Vec<(Vec<u8>, RxMeta)>,
}

/// Swaps the batch for everything that waits.
fn take(direction: &mut Direction, batch: &mut Vec<(Vec<u8>, RxMeta)>) -> usize {
    let read = batch.drain(..).map(|(bytes, _)| bytes);
    direction.spare.extend(read);
    direction.spare.truncate(DEPTH);
    batch.extend(direction.queue.drain(..));
    if !batch.is_empty()
        && let Some(writer) = direction.writer.take()
    {
        writer.wake();
    }
    batch.len()
}

impl Receive for MemoryReceive {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Under one lock: a packet that comes between looking and waiting would wake nobody.
        let mut direction = lock(&self.from);
        match take(&mut direction, &mut self.batch) {
            0 => {
                direction.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            count => Poll::Ready(Ok(count)),
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        match take(&mut lock(&self.from), &mut self.batch) {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn frame(&self, index: usize) -> Inbound<'_> {
        match self.batch.get(index) {
            Some((packet, meta)) => Inbound::Packet {
                packet,
                meta: *meta,
            },
            None => Inbound::Ignored,
        }
    }
}

struct MemoryTransmit {
    to: Shared,
    cable: Cable,
    slot: Vec<u8>,
    counters: DeviceCounters,
}

impl Transmit for MemoryTransmit {
    fn set_now(&mut self, _now: Duration) {}

    fn slot(&mut self, room: usize) -> Option<&mut [u8]> {
        if lock(&self.to).queue.len() >= DEPTH {
            return None;
        }
        self.slot.get_mut(..room)
    }

    fn commit(&mut self, meta: TxMeta) {
        self.counters.sent += 1;
        self.counters.sent_bytes += meta.len as u64;
        if self.cable.is_cut() {
            return;
        }
        let mut direction = lock(&self.to);
        let mut bytes = direction.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(&self.slot[..meta.len]);
        let checksum_ok = meta.partial_checksum;
        let joined = meta.gso_size != 0;
        let meta_in = RxMeta {
            checksum_ok,
            joined,
        };
        direction.queue.push_back((bytes, meta_in));
    }

    fn flush(&mut self) -> bool {
        let mut direction = lock(&self.to);
        if !direction.queue.is_empty() {
            if let Some(reader) = direction.reader.take() {
                reader.wake();
            }
        }
        true
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut direction = lock(&self.to);
        if direction.queue.len() < DEPTH {
            return Poll::Ready(());
        }
        direction.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn on_neighbour(&mut self, _frame: &[u8]) -> bool {
        false
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn on_timeout(&mut self) {}

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(len: usize) -> TxMeta {
        TxMeta {
            len,
            gso_size: 0,
            header_len: 40,
            l4_offset: 20,
            ipv6: false,
            partial_checksum: true,
        }
    }

    #[test]
    fn packets_arrive_in_order_and_the_cable_is_bounded() {
        let (mut a, mut b) = pair(MemoryConfig::default());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(b.receive.poll_fill(&mut cx).is_pending());
        for i in 0..DEPTH {
            a.transmit.slot(100).expect("not full yet")[0] = i as u8;
            a.transmit.commit(meta(100));
        }
        assert!(a.transmit.slot(100).is_none());
        assert!(a.transmit.poll_writable(&mut cx).is_pending());
        assert!(matches!(
            b.receive.poll_fill(&mut cx),
            Poll::Ready(Ok(DEPTH))
        ));
        for i in 0..DEPTH {
            match b.receive.frame(i) {
                Inbound::Packet { packet, meta } => {
                    assert_eq!((packet.len(), packet[0]), (100, i as u8));
                    assert!(meta.checksum_ok);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
        assert_eq!(b.receive.frame(DEPTH), Inbound::Ignored);
        assert!(a.transmit.poll_writable(&mut cx).is_ready());
        assert!(a.transmit.slot(100).is_some());
    }
}
