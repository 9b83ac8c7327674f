//! A TUN device: IP packets to and from the host's own kernel, with the kernel's routing and NAT beyond it.
//!
//! With offload, every packet carries a virtio header: bursts of up to 64 KB go out with one header, and the kernel's own
//! bursts come in whole and without checksums. Writing one packet is one system call in either mode; measured, batching by other
//! means (`writev`, io_uring) gains nothing, since the kernel's cost per packet dominates.

use super::buffer::TxSlab;
use super::{BURST_MAX, Device, DeviceCounters, DeviceInfo, Inbound, Receive, Transmit};
use crate::vnet::{self, Report, Request};
use manypath_stack::api::{Gather, IfaceId, Offload, RxMeta, TxMeta};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// Receive buffer: some bursts, or some hundred plain packets.
const RX_SLAB: usize = 256 * 1024;
/// The largest thing one read returns.
const RX_ROOM: usize = 65_535 + vnet::LEN;
/// Packets taken at one time.
const RX_BATCH: usize = 64;

/// How to make a TUN device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunConfig {
    /// Name of the interface; with `%d` the kernel numbers it.
    pub name: String,
    /// MTU for the stack's packets, bytes. The caller sets the same on the interface.
    pub mtu: u16,
    /// Use checksum and segmentation offload.
    pub offload: bool,
}

/// Makes a TUN device. It exists as long as the returned device does; the interface is down and without addresses.
///
/// # Errors
/// `NotFound` without TUN support in the kernel, `PermissionDenied` without `CAP_NET_ADMIN`, `ResourceBusy` if the name is in use,
/// and whatever prevents its registration with the runtime (it must be called within one).
pub fn open(config: &TunConfig) -> io::Result<Device> {
    make(crate::sys::tun::open()?, config)
}

/// The same from a file that [`crate::sys::tun::open`] gave, or whose device is gone.
///
/// # Errors
/// Those of [`open`].
pub(crate) fn make(file: File, config: &TunConfig) -> io::Result<Device> {
    let name = crate::sys::tun::make(&file, &config.name, config.offload)?;
    crate::sys::tun::set_offload(&file, config.offload)?;
    let index = crate::netlink::index_of(&name)?;
    let head = if config.offload { vnet::LEN } else { 0 };
    let info = DeviceInfo {
        is_tun: true,
        name,
        iface: IfaceId(index),
        mtu: config.mtu,
        offload: if config.offload {
            Offload {
                checksum: true,
                max_burst: BURST_MAX,
            }
        } else {
            Offload::default()
        },
    };
    // The reader registers its own descriptor of the same file, for reading only: a writer that registered for writability
    // would be woken by every packet the kernel takes.
    let reading = file.try_clone()?;
    Ok(Device {
        info,
        receive: Box::new(TunReceive {
            file: crate::sys::watch::watch(reading, Interest::READABLE)?,
            head,
            slab: vec![0; RX_SLAB],
            frames: Vec::with_capacity(RX_BATCH),
        }),
        transmit: Box::new(TunTransmit {
            file: Arc::new(file),
            writable: None,
            head,
            slab: TxSlab::new(head),
            counters: DeviceCounters::default(),
        }),
    })
}

/// Makes a TUN device that leads straight to the host's kernel, without address translation: the host gets `host` there,
/// and every other address of the prefix is the stack's to use. What the host routes (or other networks route to
/// the host) reaches the stack; nothing else is changed. For containers, namespaces and tests.
///
/// # Errors
/// Those of [`open`], and those of setting the interface up.
pub fn open_direct(config: &TunConfig, host: IpAddr, prefix: u8) -> io::Result<Device> {
    let device = open(config)?;
    let index = device.info.iface.0;
    manypath_host::netlink::set_link(index, config.mtu)?;
    manypath_host::netlink::add_address(index, host, prefix)?;
    Ok(device)
}

struct TunReceive {
    file: AsyncFd<File>,
    head: usize,
    slab: Vec<u8>,
    frames: Vec<std::ops::Range<usize>>,
}

/// Reads packets until the batch is full (true) or none waits (false).
fn read_batch(
    file: &File,
    slab: &mut [u8],
    frames: &mut Vec<std::ops::Range<usize>>,
) -> io::Result<bool> {
    frames.clear();
    let mut at = 0;
    while frames.len() < RX_BATCH && slab.len() - at >= RX_ROOM {
        match rustix::io::read(file, &mut slab[at..at + RX_ROOM]) {
            Ok(len) => {
                frames.push(at..at + len);
                at = (at + len).next_multiple_of(64);
            }
            Err(Errno::AGAIN) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(true)
}

impl Receive for TunReceive {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.file.poll_read_ready(cx))?;
            if !read_batch(guard.get_inner(), &mut self.slab, &mut self.frames)? {
                guard.clear_ready_matching(Ready::READABLE);
            }
            if !self.frames.is_empty() {
                return Poll::Ready(Ok(self.frames.len()));
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        read_batch(self.file.get_ref(), &mut self.slab, &mut self.frames)?;
        match self.frames.len() {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.get_ref().as_fd())
    }

    fn frame(&self, index: usize) -> Inbound<'_> {
        let Some(range) = self.frames.get(index) else {
            return Inbound::Ignored;
        };
        let bytes = &self.slab[range.clone()];
        if self.head == 0 {
            return Inbound::Packet {
                packet: bytes,
                meta: RxMeta {
                    checksum_ok: false,
                    ..RxMeta::default()
                },
            };
        }
        match bytes.split_first_chunk() {
            Some((header, packet)) => Inbound::Packet {
                packet,
                meta: Report::parse(header).into(),
            },
            None => Inbound::Ignored,
        }
    }
}

struct TunTransmit {
    file: Arc<File>,
    writable: Option<AsyncFd<Arc<File>>>,
    head: usize,
    slab: TxSlab,
    counters: DeviceCounters,
}

impl Transmit for TunTransmit {
    fn set_now(&mut self, _now: Duration) {}

    fn slot(&mut self, room: usize) -> Option<&mut [u8]> {
        // One packet at a time: there is nothing to gain by queueing, and the slab's start stays in the cache.
        if !self.slab.is_empty() && !self.flush() {
            return None;
        }
        self.slab.slot(room)
    }

    fn commit(&mut self, meta: TxMeta) {
        if self.head != 0 {
            let frame = self.slab.frame(meta.len);
            if let Some((header, packet)) = frame.split_first_chunk_mut() {
                Request::from(&meta).write(header, packet, 0);
            }
        }
        self.slab.push(meta.len);
        self.flush();
    }

    fn gathers(&self) -> bool {
        self.head != 0
    }

    fn gather(&mut self, meta: TxMeta, headers: &[u8], payload: [&[u8]; 2]) -> Gather {
        if !self.flush() {
            return Gather::Full;
        }
        let mut head = [0; vnet::LEN];
        Request::from(&meta).write(&mut head, headers, 0);
        super::send_pieces(
            &*self.file,
            &mut self.counters,
            meta.len,
            [&head, headers, payload[0], payload[1]],
        )
    }

    fn flush(&mut self) -> bool {
        loop {
            let (bytes, parts) = self.slab.waiting();
            let Some(part) = parts.first() else {
                return true;
            };
            let len = part.len() - self.head;
            match rustix::io::write(&*self.file, &bytes[part.clone()]) {
                Ok(_) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += len as u64;
                }
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => continue,
                Err(Errno::NOBUFS) => self.counters.drop_queue += 1,
                Err(_) => self.counters.drop_refused += 1,
            }
            self.slab.advance(1);
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        super::poll_writable(&self.file, &mut self.writable, cx)
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
