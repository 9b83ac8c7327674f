//! A packet socket on a link without hardware addresses: PPP, WireGuard and other tunnels, modems that carry IP alone.
//!
//! As [`super::packet`], but what comes begins with its IP header, and what leaves needs no neighbour. Packets are sent singly and with
//! their checksums: the kernel takes a virtio header only before a link header, whose length differs among these links.

use super::buffer::TxSlab;
use super::packet::{PacketReceive, SOCKET_BUFFER, guarded};
use super::{Device, DeviceCounters, DeviceInfo, Transmit};
use crate::filter::Filter;
use crate::neigh::{EtherType, Link};
use crate::sys::filter::attach_filter;
use crate::sys::packet::PacketSocket;
use manypath_host::Firewall;
use manypath_stack::api::{IfaceId, Offload, TxMeta};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How to open such a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareConfig {
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MTU, bytes.
    pub mtu: u16,
    /// What it lets through.
    pub filter: Filter,
}

/// Opens the device.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_RAW`; those of bind (the interface is gone); those of the runtime's registration.
pub fn open(config: &BareConfig) -> io::Result<Device> {
    let receiver = super::packet::receiver(&config.filter.compile_bare())?;
    receiver.bind(config.index, super::packet::ETH_P_ALL)?;
    let receiver = Arc::new(receiver);
    let sender = PacketSocket::without_link_headers()?;
    sender.set_buffers(SOCKET_BUFFER)?;
    sender.bind(config.index, 0)?;
    let cut = Arc::new(AtomicU64::new(0));
    Ok(Device {
        info: DeviceInfo {
            is_tun: false,
            name: config.name.clone(),
            iface: IfaceId(config.index),
            mtu: config.mtu,
            offload: Offload::default(),
        },
        receive: Box::new(PacketReceive::new(
            Arc::clone(&receiver),
            None,
            Arc::clone(&cut),
        )?),
        transmit: Box::new(BareTransmit {
            socket: Arc::new(sender),
            receiver,
            cut,
            index: config.index,
            writable: None,
            slab: TxSlab::new(0),
            firewall: None,
            counters: DeviceCounters::default(),
        }),
    })
}

struct BareTransmit {
    socket: Arc<PacketSocket>,
    /// The receive half's socket, whose filter follows our addresses.
    receiver: Arc<PacketSocket>,
    /// Packets that the receive half had too little room for.
    cut: Arc<AtomicU64>,
    index: u32,
    writable: Option<AsyncFd<Arc<PacketSocket>>>,
    slab: TxSlab,
    /// What keeps the kernel from answering for our connections.
    firewall: Option<Firewall>,
    counters: DeviceCounters,
}

impl Transmit for BareTransmit {
    fn set_now(&mut self, _now: Duration) {}

    fn slot(&mut self, room: usize) -> Option<&mut [u8]> {
        // Asked twice, because a borrow returned from one branch would last for both.
        if self.slab.slot(room).is_none() && !self.flush() {
            return None;
        }
        self.slab.slot(room)
    }

    fn commit(&mut self, meta: TxMeta) {
        let packet = self.slab.frame(meta.len);
        if guarded(packet, meta.l4_offset, self.firewall.as_ref()) {
            self.slab.push(meta.len);
        } else {
            self.counters.drop_refused += 1;
        }
    }

    fn flush(&mut self) -> bool {
        loop {
            let (bytes, parts) = self.slab.waiting();
            let Some(part) = parts.first() else {
                return true;
            };
            let packet = &bytes[part.clone()];
            let kind = match packet.first().map(|first| first >> 4) {
                Some(6) => EtherType::IPV6,
                _ => EtherType::IPV4,
            };
            match self.socket.send_by(self.index, kind.0, packet) {
                Ok(()) => {
                    self.counters.sent += 1;
                    self.counters.sent_bytes += packet.len() as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => self.counters.drop_queue += 1,
                Err(_) => self.counters.drop_refused += 1,
            }
            self.slab.advance(1);
        }
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        super::poll_writable(&self.socket, &mut self.writable, cx)
    }

    fn on_neighbour(&mut self, _frame: &[u8]) -> bool {
        false
    }

    fn readdress(&mut self, _links: &[Link], filter: &Filter) -> io::Result<()> {
        attach_filter(&*self.receiver, &filter.compile_bare())
    }

    fn tell(&mut self, firewall: &Firewall) {
        self.firewall = Some(firewall.clone());
    }

    fn deadline(&self) -> Option<Duration> {
        None
    }

    fn on_timeout(&mut self) {}

    fn counters(&mut self) -> DeviceCounters {
        self.counters.missed += u64::from(self.receiver.take_drops().unwrap_or(0));
        self.counters.missed += self.cut.swap(0, Ordering::Relaxed);
        self.counters
    }
}
