//! Devices: where IP packets come from and go to.
//!
//! A device has two halves. The receive half waits and makes its system calls without anybody's lock; the transmit half lives
//! under the same lock as the stack and is filled by it directly. Both work on buffers made at the start: no
//! packet allocates.

pub mod bare;
mod buffer;
pub mod memory;
pub mod packet;
pub(crate) mod probe;
pub mod tun;

use crate::filter::Filter;
use crate::neigh::Link;
use crate::sys::watch::Stable;
use manypath_host::Firewall;
use manypath_stack::api::{Gather, IfaceId, Offload, RxMeta, TxMeta};
use rustix::io::Errno;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// TCP payload bytes that fit one burst: an IP packet of 65,535 bytes less the largest IP and TCP headers (60 each).
pub const BURST_MAX: u32 = 65_535 - 120;

/// What a device is and can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The interface's name, for people.
    pub name: String,
    /// The number by which stack and driver call it.
    pub iface: IfaceId,
    /// Largest IP packet on the wire, bytes.
    pub mtu: u16,
    /// What it takes off the stack's hands.
    pub offload: Offload,
    /// A TUN device: its packets go through the host's routing and firewall.
    pub is_tun: bool,
}

/// What happened in a device, by cause. Counts only rise.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets (bursts count once) handed to the kernel.
    pub sent: u64,
    /// Bytes of IP packets handed to the kernel.
    pub sent_bytes: u64,
    /// The interface's queue dropped the packet.
    pub drop_queue: u64,
    /// The kernel refused the packet for another reason (interface down, too large).
    pub drop_refused: u64,
    /// No route: the source is not ours on the interface.
    pub drop_no_route: u64,
    /// The next hop does not answer.
    pub drop_unreachable: u64,
    /// Arrived while the receive queue was full.
    pub missed: u64,
    /// Packets that wait or waited for the next hop's hardware address.
    pub parked: u64,
}

/// One received frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound<'a> {
    /// An IP packet for the stack.
    Packet {
        /// From its IP header on.
        packet: &'a [u8],
        /// What the device knows about it.
        meta: RxMeta,
    },
    /// A frame for the transmit half: ARP or neighbour discovery.
    Neighbour(&'a [u8]),
    /// Nothing for us.
    Ignored,
}

/// The receive half.
pub trait Receive: Send {
    /// Waits until frames are there and takes a batch of them. The previous batch is gone.
    ///
    /// # Errors
    /// When the device is gone for good; a temporary trouble is not an error.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>>;

    /// Takes a batch of what is there, without a runtime and without waiting. The previous batch is gone.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there, else those of [`Receive::poll_fill`].
    fn fill(&mut self) -> io::Result<usize>;

    /// What becomes readable when frames are there. A device without has a peer that needs the runtime, too, so nobody
    /// waits for it without one ([`Builder::linger`](crate::Builder::linger)).
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// The `index`-th frame of the batch.
    fn frame(&self, index: usize) -> Inbound<'_>;
}

/// The transmit half. All calls happen under the driver's lock and must not block.
pub trait Transmit: Send {
    /// The time of the calls that follow, since the driver's start.
    fn set_now(&mut self, now: Duration);

    /// A buffer of `room` bytes for an IP packet, or `None` when the device has no room now.
    fn slot(&mut self, room: usize) -> Option<&mut [u8]>;

    /// Queues what was written into the last slot.
    fn commit(&mut self, meta: TxMeta);

    /// Whether [`Transmit::gather`] spares a copy of large payload.
    fn gathers(&self) -> bool {
        false
    }

    /// Hands one packet to the kernel, behind everything queued; its payload is fetched from where it lies. `meta.len`
    /// counts headers and payload.
    fn gather(&mut self, meta: TxMeta, headers: &[u8], payload: [&[u8]; 2]) -> Gather {
        let _ = (meta, headers, payload);
        Gather::Declined
    }

    /// Hands everything queued to the kernel. Returns whether it is all gone; what is not stays queued.
    fn flush(&mut self) -> bool;

    /// Waits until a device that was full takes packets again.
    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()>;

    /// A frame that the receive half gave as [`Inbound::Neighbour`]. True if a neighbour can be reached by it that could not, so
    /// that what was lost is better sent again now.
    fn on_neighbour(&mut self, frame: &[u8]) -> bool;

    /// Packets from our `src` to `dst` leave the link by the neighbour `hop`, as the host's routes have it. Devices without neighbours do
    /// not care.
    fn via(&mut self, src: IpAddr, dst: IpAddr, hop: IpAddr) {
        let _ = (src, dst, hop);
    }

    /// IP packets that were dropped since the last call because the next hop does not answer, for which the device was due
    /// ([`Transmit::deadline`]). Devices without neighbours have none.
    fn take_lost(&mut self) -> Vec<Vec<u8>> {
        Vec::new()
    }

    /// Routers that do not answer.
    fn silent_gateways(&self) -> Vec<IpAddr> {
        Vec::new()
    }

    /// What was sent from `src` to `dst` was not answered: the neighbour on the way may be gone, or have another hardware address
    /// (the negative advice of RFC 4861 section 7.3.3 and RFC 1122 section 3.3.1.4). Devices without neighbours do not care.
    fn doubt(&mut self, src: IpAddr, dst: IpAddr) {
        let _ = (src, dst);
    }

    /// The link is there again, perhaps with other neighbours.
    fn relinked(&mut self) {}

    /// Our addresses on the interface and what it lets through have changed. Devices without neighbours do not care.
    ///
    /// # Errors
    /// Those of the new filter.
    fn readdress(&mut self, links: &[Link], filter: &Filter) -> io::Result<()> {
        let _ = (links, filter);
        Ok(())
    }

    /// Connections from shared addresses are told here before their first segment leaves. Devices that the kernel answers for
    /// do not care.
    fn tell(&mut self, firewall: &Firewall) {
        let _ = firewall;
    }

    /// When [`Transmit::on_timeout`] has something to do.
    fn deadline(&self) -> Option<Duration>;

    /// Repeats questions to neighbours.
    fn on_timeout(&mut self);

    /// What happened so far.
    fn counters(&mut self) -> DeviceCounters;
}

/// A device, ready to be given to the driver.
pub struct Device {
    /// What it is.
    pub info: DeviceInfo,
    /// Its receive half.
    pub receive: Box<dyn Receive>,
    /// Its transmit half.
    pub transmit: Box<dyn Transmit>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Device").field(&self.info).finish()
    }
}

impl From<crate::vnet::Report> for RxMeta {
    fn from(report: crate::vnet::Report) -> Self {
        RxMeta {
            checksum_ok: report.checksum_ok,
            joined: report.gso_size != 0,
        }
    }
}

impl From<&TxMeta> for crate::vnet::Request {
    fn from(meta: &TxMeta) -> Self {
        crate::vnet::Request {
            gso_size: meta.gso_size,
            header_len: meta.header_len,
            l4_offset: meta.l4_offset,
            ipv6: meta.ipv6,
            partial_checksum: meta.partial_checksum,
        }
    }
}

/// Hands one packet of `len` bytes, which lies in pieces, to a non-blocking descriptor, and counts what became of it.
fn send_pieces<const N: usize>(
    file: impl AsFd,
    counters: &mut DeviceCounters,
    len: usize,
    pieces: [&[u8]; N],
) -> Gather {
    let pieces = pieces.map(io::IoSlice::new);
    loop {
        match rustix::io::writev(&file, &pieces) {
            Ok(_) => {
                counters.sent += 1;
                counters.sent_bytes += len as u64;
            }
            Err(Errno::AGAIN) => return Gather::Full,
            Err(Errno::INTR) => continue,
            // Like a full queue of a card: TCP recovers.
            Err(Errno::NOBUFS) => counters.drop_queue += 1,
            Err(_) => counters.drop_refused += 1,
        }
        return Gather::Taken;
    }
}

/// Waits for writability with a registration that exists only while somebody waits: a permanent one would wake the event
/// loop for every packet the kernel has finished with.
fn poll_writable<T: Stable>(
    file: &Arc<T>,
    registration: &mut Option<AsyncFd<Arc<T>>>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let fd = match registration {
        Some(fd) => fd,
        None => match crate::sys::watch::watch(Arc::clone(file), Interest::WRITABLE) {
            Ok(fd) => registration.insert(fd),
            // Without a registration the caller's next transmission simply tries again.
            Err(_) => return Poll::Ready(()),
        },
    };
    match fd.poll_write_ready(cx) {
        Poll::Pending => Poll::Pending,
        Poll::Ready(_) => {
            *registration = None;
            Poll::Ready(())
        }
    }
}
