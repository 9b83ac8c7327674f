//! A packet socket straight on an interface (`AF_PACKET`).
//!
//! Frames are received before the host's firewall sees them and are sent past its routing. Each carries a virtio header
//! both ways, so that coalesced bursts come in whole and the checksum's state is known even in plain mode; bursts go out
//! whole when offload is on. See [`crate::neigh`] for hardware addresses and [`manypath_host`] for what keeps the host's kernel
//! from answering in our place.

use super::buffer::TxSlab;
use super::{BURST_MAX, Device, DeviceCounters, DeviceInfo, Inbound, Receive, Transmit};
use crate::filter::Filter;
use crate::neigh::{
    ETHERNET_LEN, EtherType, Frame, Link, Lookup, Mac, Neighbours, Output, nd, write_ethernet,
};
use crate::sys::filter::{Insn, attach_filter};
use crate::sys::packet::{BATCH_MAX, PacketSocket};
use crate::vnet::{self, Report, Request};
use manypath_host::Firewall;
use manypath_stack::api::{IfaceId, Offload, TxMeta};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::io::{Interest, Ready};

/// The bytes before the IP packet in our buffers.
const HEAD: usize = vnet::LEN + ETHERNET_LEN;
/// Room for the largest coalesced packet whose length an IP header can say.
const RX_STRIDE: usize = (65_535 + HEAD).next_multiple_of(64);
/// Room for the largest that there can be (`GRO_MAX_SIZE`, BIG TCP).
const RX_WIDE_STRIDE: usize = (8 * 65_535 + HEAD).next_multiple_of(64);
/// Batches with that room for each packet since the last packet that needed it.
const RX_WIDE: u32 = 4096;
/// Packets taken at one time.
const RX_BATCH: usize = 32;
/// With bursts, fewer, so that a batch is about this long and stays in the cache until it is copied on.
const RX_BYTES: usize = 256 * 1024;
const RX_FEW: usize = 4;
const RX_SLAB: usize = if RX_FEW * RX_WIDE_STRIDE > RX_BATCH * RX_STRIDE {
    RX_FEW * RX_WIDE_STRIDE
} else {
    RX_BATCH * RX_STRIDE
};
/// Asked of the kernel for each socket: what arrives in ten milliseconds at 10 Gbit/s.
pub(super) const SOCKET_BUFFER: usize = 16 << 20;
pub(super) const ETH_P_ALL: u16 = 3;

/// How to open a packet device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketConfig {
    /// The interface's name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address.
    pub mac: Mac,
    /// Its MTU, bytes.
    pub mtu: u16,
    /// Use checksum and segmentation offload.
    pub offload: bool,
    /// Our addresses there.
    pub links: Vec<Link>,
    /// What it lets through.
    pub filter: Filter,
    /// Neighbours that the host's kernel knows already.
    pub known: Vec<(IpAddr, Mac)>,
}

/// Opens the device. Owned addresses are announced on the link at once.
///
/// # Errors
/// `PermissionDenied` without `CAP_NET_RAW`; those of bind (the interface is gone); those of the runtime's registration.
pub fn open(config: &PacketConfig) -> io::Result<Device> {
    let receiver = receiver(&config.filter.compile())?;
    join_groups(&receiver, config.index, &config.links)?;
    receiver.bind(config.index, ETH_P_ALL)?;
    let receiver = Arc::new(receiver);
    let sender = PacketSocket::new()?;
    sender.set_vnet_header(true)?;
    sender.set_buffers(SOCKET_BUFFER)?;
    if !config.offload {
        // Single packets as cheaply as possible: straight to the driver.
        sender.set_qdisc_bypass()?;
    }
    sender.bind(config.index, 0)?;
    let mut neighbours = Neighbours::new(config.mac);
    for link in &config.links {
        neighbours.set_link(*link);
    }
    for (addr, mac) in &config.known {
        neighbours.learn(Duration::ZERO, *addr, *mac);
    }
    neighbours.announce();
    let cut = Arc::new(AtomicU64::new(0));
    let mut transmit = PacketTransmit {
        socket: Arc::new(sender),
        receiver: Arc::clone(&receiver),
        cut: Arc::clone(&cut),
        index: config.index,
        writable: None,
        mac: config.mac,
        slab: TxSlab::new(HEAD),
        neighbours,
        firewall: None,
        now: Duration::ZERO,
        counters: DeviceCounters::default(),
    };
    transmit.send_outputs();
    Ok(Device {
        info: DeviceInfo {
            is_tun: false,
            name: config.name.clone(),
            iface: IfaceId(config.index),
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
        receive: Box::new(PacketReceive::new(receiver, Some(config.mac), cut)?),
        transmit: Box::new(transmit),
    })
}

/// A socket for what this filter lets through, not bound yet: what comes meanwhile would pass unfiltered.
pub(super) fn receiver(filter: &[Insn]) -> io::Result<PacketSocket> {
    let receiver = PacketSocket::new()?;
    receiver.set_vnet_header(true)?;
    receiver.set_ignore_outgoing()?;
    receiver.set_buffers(SOCKET_BUFFER)?;
    attach_filter(&receiver, filter)?;
    Ok(receiver)
}

/// Questions about our own IPv6 addresses arrive by multicast.
fn join_groups(receiver: &PacketSocket, index: u32, links: &[Link]) -> io::Result<()> {
    for link in links.iter().filter(|l| l.owned) {
        if let IpAddr::V6(addr) = link.addr {
            receiver.join_multicast(index, nd::multicast_mac(nd::solicited_node(addr)).0)?;
        }
    }
    Ok(())
}

pub(super) struct PacketReceive {
    socket: AsyncFd<Arc<PacketSocket>>,
    /// Our hardware address; `None` on links that have none, where packets begin with their IP header.
    mac: Option<Mac>,
    slab: Vec<u8>,
    lens: [u32; RX_BATCH],
    count: usize,
    room: Room,
    /// Packets that did not fit.
    cut: Arc<AtomicU64>,
}

/// How the buffer is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    /// Packets to ask for.
    ask: usize,
    /// Bytes for each.
    stride: usize,
    /// Batches for which it stays so wide.
    wide: u32,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            ask: RX_BATCH,
            stride: RX_STRIDE,
            wide: 0,
        }
    }
}

impl Room {
    /// For the next batch, so that what comes is likely to stay in the cache: many small packets, few bursts. `lens` are those of
    /// the last one, zero for a packet that did not fit.
    fn after(self, lens: &[u32]) -> Self {
        let is_wide = |len: &u32| *len == 0 || *len as usize > RX_STRIDE;
        let wide = match lens.iter().any(is_wide) {
            true => RX_WIDE,
            false => self.wide.saturating_sub(1),
        };
        if wide > 0 {
            return Self {
                ask: RX_FEW,
                stride: RX_WIDE_STRIDE,
                wide,
            };
        }
        let bytes: usize = lens.iter().map(|len| *len as usize).sum();
        let usual = (bytes / lens.len().max(1)).max(1);
        Self {
            ask: (RX_BYTES / usual).clamp(RX_FEW, RX_BATCH),
            ..Self::default()
        }
    }
}

impl PacketReceive {
    /// Counts packets that did not fit in `cut`.
    pub(super) fn new(
        socket: Arc<PacketSocket>,
        mac: Option<Mac>,
        cut: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        Ok(PacketReceive {
            socket: crate::sys::watch::watch(socket, Interest::READABLE)?,
            mac,
            slab: vec![0; RX_SLAB],
            lens: [0; RX_BATCH],
            count: 0,
            room: Room::default(),
            cut,
        })
    }

    /// The room for the next batch; the one before has been looked at.
    fn make_room(&mut self) -> Room {
        if self.count > 0 {
            self.room = self.room.after(&self.lens[..self.count]);
            self.count = 0;
        }
        self.room
    }

    fn took(&mut self, count: usize) {
        self.count = count;
        let cut = self.lens[..count].iter().filter(|len| **len == 0).count();
        self.cut.fetch_add(cut as u64, Ordering::Relaxed);
    }
}

impl Receive for PacketReceive {
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let Room { ask, stride, .. } = self.make_room();
        loop {
            let mut guard = ready!(self.socket.poll_read_ready(cx))?;
            let socket = guard.get_inner();
            match socket.recv_batch(&mut self.slab, stride, &mut self.lens[..ask]) {
                Ok(count) => {
                    if count < ask {
                        // The queue is empty: wait for the next arrival without asking in vain.
                        guard.clear_ready_matching(Ready::READABLE);
                    }
                    self.took(count);
                    return Poll::Ready(Ok(count));
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    guard.clear_ready_matching(Ready::READABLE);
                }
                // An interface that goes down reports it once; it may come back, netlink will tell.
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::NetworkDown
                    ) => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let Room { ask, stride, .. } = self.make_room();
        let lens = &mut self.lens[..ask];
        let socket = self.socket.get_ref();
        let count = socket.recv_batch(&mut self.slab, stride, lens)?;
        self.took(count);
        Ok(count)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.get_ref().as_fd())
    }

    fn frame(&self, index: usize) -> Inbound<'_> {
        if index >= self.count {
            return Inbound::Ignored;
        }
        let start = index * self.room.stride;
        let bytes = &self.slab[start..start + self.lens[index] as usize];
        let Some((header, rest)) = bytes.split_first_chunk() else {
            return Inbound::Ignored;
        };
        let report = Report::parse(header);
        match self.mac {
            Some(mac) => classify(mac, report, rest),
            None => Inbound::Packet {
                packet: rest,
                meta: report.into(),
            },
        }
    }
}

/// What a frame is to us. Frames for other hosts arrive when somebody has made the interface promiscuous.
fn classify(mac: Mac, report: Report, ethernet: &[u8]) -> Inbound<'_> {
    let Some(frame) = Frame::parse(ethernet) else {
        return Inbound::Ignored;
    };
    if frame.dst.is_unicast() && frame.dst != mac {
        return Inbound::Ignored;
    }
    let meta = report.into();
    match frame.kind {
        EtherType::ARP => Inbound::Neighbour(ethernet),
        EtherType::IPV6 if nd::is_discovery(frame.payload) => Inbound::Neighbour(ethernet),
        EtherType::IPV4 | EtherType::IPV6 => Inbound::Packet {
            packet: frame.payload,
            meta,
        },
        _ => Inbound::Ignored,
    }
}

struct PacketTransmit {
    socket: Arc<PacketSocket>,
    /// The receive half's socket, whose filter follows our addresses.
    receiver: Arc<PacketSocket>,
    /// Packets that the receive half had too little room for.
    cut: Arc<AtomicU64>,
    index: u32,
    writable: Option<AsyncFd<Arc<PacketSocket>>>,
    mac: Mac,
    slab: TxSlab,
    neighbours: Neighbours,
    /// What keeps the kernel from answering for our connections.
    firewall: Option<Firewall>,
    now: Duration,
    counters: DeviceCounters,
}

/// The ends of the connection that a packet of ours opens: a SYN, or the answer to one.
fn opened(packet: &[u8], l4_offset: u16) -> Option<(SocketAddr, SocketAddr)> {
    const SYN: u8 = 2;
    let tcp = packet.get(usize::from(l4_offset)..)?;
    if tcp.get(13)? & SYN == 0 {
        return None;
    }
    let (local, remote) = addresses(packet)?;
    let port = |at: usize| Some(u16::from_be_bytes([*tcp.get(at)?, *tcp.get(at + 1)?]));
    Some((
        SocketAddr::new(local, port(0)?),
        SocketAddr::new(remote, port(2)?),
    ))
}

/// Tells the firewall of the connection that a packet opens. One that it does not take must not leave: the kernel would end the
/// connection by a reset when the answer comes.
pub(super) fn guarded(packet: &[u8], l4_offset: u16, firewall: Option<&Firewall>) -> bool {
    let (Some(ends), Some(firewall)) = (opened(packet, l4_offset), firewall) else {
        return true;
    };
    if !firewall.wants(ends.0) {
        return true;
    }
    let told = firewall.open(&[ends]);
    if let Err(e) = &told {
        tracing::warn!("{} cannot be opened to {}: {e}", ends.0, ends.1);
    }
    told.is_ok()
}

/// Source and destination of an IP packet that we wrote ourselves.
fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => {
            let src: [u8; 4] = packet.get(12..16)?.try_into().ok()?;
            let dst: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            Some((Ipv4Addr::from(src).into(), Ipv4Addr::from(dst).into()))
        }
        6 => {
            let src: [u8; 16] = packet.get(8..24)?.try_into().ok()?;
            let dst: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            Some((Ipv6Addr::from(src).into(), Ipv6Addr::from(dst).into()))
        }
        _ => None,
    }
}

impl PacketTransmit {
    /// Sends what the neighbour cache has to say: questions, answers, and packets that waited.
    fn send_outputs(&mut self) {
        while let Some(output) = self.neighbours.pop_output() {
            let (bytes, skip) = match &output {
                Output::Control(frame) => (frame.as_slice(), vnet::LEN),
                Output::Parked { bytes, .. } => (bytes.as_slice(), 0),
            };
            let len = (bytes.len() + skip).saturating_sub(HEAD);
            let fits = self.slab.slot(len).is_some()
                || (self.flush_queue() && self.slab.slot(len).is_some());
            if !fits {
                // Like a full queue of a card: TCP and the next question recover.
                self.counters.drop_queue += 1;
                continue;
            }
            let frame = self.slab.frame(len);
            frame[..skip].fill(0);
            frame[skip..].copy_from_slice(bytes);
            if let Output::Parked { mac, .. } = &output {
                frame[vnet::LEN..vnet::LEN + 6].copy_from_slice(&mac.0);
            }
            self.slab.push(len);
        }
        self.flush_queue();
    }

    fn flush_queue(&mut self) -> bool {
        loop {
            let (bytes, parts) = self.slab.waiting();
            if parts.is_empty() {
                return true;
            }
            let parts = &parts[..parts.len().min(BATCH_MAX)];
            match self.socket.send_batch(bytes, parts) {
                Ok(count) => {
                    self.counters.sent += count as u64;
                    self.counters.sent_bytes += parts[..count]
                        .iter()
                        .map(|p| (p.len() - HEAD) as u64)
                        .sum::<u64>();
                    self.slab.advance(count);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => {
                    if e.raw_os_error() == Some(libc::ENOBUFS) {
                        self.counters.drop_queue += 1;
                    } else {
                        self.counters.drop_refused += 1;
                    }
                    self.slab.advance(1);
                }
            }
        }
    }
}

impl Transmit for PacketTransmit {
    fn set_now(&mut self, now: Duration) {
        self.now = now;
    }

    fn slot(&mut self, room: usize) -> Option<&mut [u8]> {
        // Asked twice, because a borrow returned from one branch would last for both.
        if self.slab.slot(room).is_none() && !self.flush_queue() {
            return None;
        }
        self.slab.slot(room)
    }

    fn commit(&mut self, meta: TxMeta) {
        let mac = self.mac;
        let frame = self.slab.frame(meta.len);
        let Some((header, rest)) = frame.split_first_chunk_mut() else {
            return;
        };
        let Some((ethernet, packet)) = rest.split_first_chunk_mut() else {
            return;
        };
        Request::from(&meta).write(header, packet, ETHERNET_LEN as u16);
        let Some((src, dst)) = addresses(packet) else {
            self.counters.drop_no_route += 1;
            return;
        };
        if !guarded(packet, meta.l4_offset, self.firewall.as_ref()) {
            self.counters.drop_refused += 1;
            return;
        }
        let kind = if meta.ipv6 {
            EtherType::IPV6
        } else {
            EtherType::IPV4
        };
        let Some(hop) = self.neighbours.next_hop(src, dst) else {
            self.counters.drop_no_route += 1;
            return;
        };
        match self.neighbours.resolve(self.now, src, hop) {
            Lookup::Known(neighbour) => {
                write_ethernet(ethernet, neighbour, mac, kind);
                self.slab.push(meta.len);
            }
            Lookup::Wait => {
                write_ethernet(ethernet, Mac::BROADCAST, mac, kind);
                self.counters.parked += 1;
                let copy = frame.to_vec();
                self.neighbours.park(hop, copy);
            }
            Lookup::Unreachable => {
                self.counters.drop_unreachable += 1;
                self.neighbours.lose(frame);
            }
        }
    }

    fn flush(&mut self) -> bool {
        self.send_outputs();
        self.slab.is_empty()
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        super::poll_writable(&self.socket, &mut self.writable, cx)
    }

    fn on_neighbour(&mut self, frame: &[u8]) -> bool {
        let back = self.neighbours.on_frame(self.now, frame);
        self.send_outputs();
        back
    }

    fn take_lost(&mut self) -> Vec<Vec<u8>> {
        let mut lost = self.neighbours.take_lost();
        lost.iter_mut().for_each(|frame| {
            frame.drain(..HEAD.min(frame.len()));
        });
        lost
    }

    fn silent_gateways(&self) -> Vec<IpAddr> {
        self.neighbours.silent_gateways()
    }

    fn doubt(&mut self, src: IpAddr, dst: IpAddr) {
        self.neighbours.doubt(self.now, src, dst);
        self.send_outputs();
    }

    fn via(&mut self, src: IpAddr, dst: IpAddr, hop: IpAddr) {
        self.neighbours.set_via(src, dst, hop);
    }

    fn relinked(&mut self) {
        self.neighbours.doubt_all(self.now);
        self.neighbours.announce();
        self.send_outputs();
    }

    fn readdress(&mut self, links: &[Link], filter: &Filter) -> io::Result<()> {
        self.neighbours.forget_vias();
        attach_filter(&*self.receiver, &filter.compile())?;
        let new: Vec<Link> = links
            .iter()
            .filter(|l| !self.neighbours.links().contains(l))
            .copied()
            .collect();
        join_groups(&self.receiver, self.index, &new)?;
        let gone: Vec<IpAddr> = self
            .neighbours
            .links()
            .iter()
            .map(|l| l.addr)
            .filter(|a| !links.iter().any(|l| l.addr == *a))
            .collect();
        for addr in gone {
            self.neighbours.remove_link(addr);
        }
        for link in &new {
            self.neighbours.set_link(*link);
        }
        if !new.is_empty() {
            self.neighbours.announce();
        }
        self.send_outputs();
        Ok(())
    }

    fn tell(&mut self, firewall: &Firewall) {
        self.firewall = Some(firewall.clone());
    }

    fn deadline(&self) -> Option<Duration> {
        self.neighbours.deadline()
    }

    fn on_timeout(&mut self) {
        self.neighbours.on_timeout(self.now);
        self.send_outputs();
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters.missed += u64::from(self.receiver.take_drops().unwrap_or(0));
        self.counters.missed += self.cut.swap(0, Ordering::Relaxed);
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_stack::api::RxMeta;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);

    #[test]
    fn frames_for_others_are_ignored() {
        let report = Report {
            checksum_ok: true,
            gso_size: 0,
        };
        let mut frame = vec![0u8; 60];
        frame[..6].copy_from_slice(&OURS.0);
        frame[12..14].copy_from_slice(&[8, 0]);
        assert!(matches!(
            classify(OURS, report, &frame),
            Inbound::Packet {
                meta: RxMeta {
                    checksum_ok: true,
                    joined: false,
                },
                ..
            }
        ));
        frame[5] = 9;
        assert_eq!(classify(OURS, report, &frame), Inbound::Ignored);
        frame[..6].copy_from_slice(&Mac::BROADCAST.0);
        frame[12..14].copy_from_slice(&[8, 6]);
        assert!(matches!(
            classify(OURS, report, &frame),
            Inbound::Neighbour(_)
        ));
        frame[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(classify(OURS, report, &frame), Inbound::Ignored);
        assert_eq!(classify(OURS, report, &frame[..10]), Inbound::Ignored);
    }

    #[test]
    fn batches_are_as_long_as_the_cache_likes() {
        let asked = |lens: &[u32]| Room::default().after(lens).ask;
        assert_eq!(asked(&[1500; 32]), RX_BATCH);
        assert_eq!(asked(&[65_000; 4]), RX_FEW);
        assert_eq!(asked(&[20_000]), 13);
        assert_eq!(asked(&[]), RX_BATCH);
    }

    #[test]
    fn room_for_bursts_longer_than_an_ip_header_can_say() {
        let fits = |room: Room| room.ask * room.stride <= RX_SLAB;
        assert!(fits(Room::default()));
        for lens in [[0, 60], [60, 190_000]] {
            let mut room = Room::default().after(&lens);
            assert!(fits(room));
            // Small packets between them do not count.
            for _ in 0..RX_WIDE {
                assert!(room.stride > 8 * 65_535);
                room = room.after(&[60, 1500]);
            }
            assert_eq!(room, Room::default());
        }
    }

    #[test]
    fn connections_are_opened_by_syn_segments_alone() {
        let mut packet = [0u8; 40];
        packet[0] = 0x45;
        packet[12..16].copy_from_slice(&[10, 0, 0, 1]);
        packet[16..20].copy_from_slice(&[10, 0, 0, 2]);
        packet[20..24].copy_from_slice(&[0x10, 0, 0, 80]);
        packet[33] = 0x10;
        assert_eq!(opened(&packet, 20), None);
        for flags in [0x02, 0x12] {
            packet[33] = flags;
            let ends = opened(&packet, 20).map(|(l, r)| (l.to_string(), r.to_string()));
            assert_eq!(ends, Some(("10.0.0.1:4096".into(), "10.0.0.2:80".into())));
        }
        assert_eq!(opened(&packet[..30], 20), None);
    }

    #[test]
    fn addresses_of_both_families() {
        let mut v4 = [0u8; 20];
        v4[0] = 0x45;
        v4[12..16].copy_from_slice(&[10, 0, 0, 1]);
        v4[16..20].copy_from_slice(&[10, 0, 0, 2]);
        assert_eq!(
            addresses(&v4),
            Some((
                Ipv4Addr::new(10, 0, 0, 1).into(),
                Ipv4Addr::new(10, 0, 0, 2).into()
            ))
        );
        let mut v6 = [0u8; 40];
        v6[0] = 0x60;
        v6[23] = 1;
        v6[39] = 2;
        assert_eq!(
            addresses(&v6),
            Some((Ipv6Addr::from(1u128).into(), Ipv6Addr::from(2u128).into()))
        );
        assert_eq!(addresses(&[0x45; 10]), None);
        assert_eq!(addresses(&[]), None);
    }
}
