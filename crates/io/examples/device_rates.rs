//! How fast packets alone move through the devices, without any protocol: one sender and one receiver, each in a network
//! namespace of its own. Needs root (or `unshare -Urn`). Figures are wall-clock rates and CPU seconds per gigabyte of the
//! this process, both sides and the kernel on their behalf included.

use manypath_io::device::packet::PacketConfig;
use manypath_io::device::{BURST_MAX, Device, Inbound, packet, tun};
use manypath_io::filter::Filter;
use manypath_io::neigh::Link;
use manypath_io::netlink::{self, Snapshot};
use manypath_io::sys::namespace;
use manypath_stack::api::TxMeta;
use std::future::poll_fn;
use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const SECONDS: u64 = 2;

fn ip(arguments: &str) -> io::Result<()> {
    let status = Command::new("ip").args(arguments.split(' ')).status()?;
    if status.success() {
        Ok(())
    } else {
        Err(io::Error::other(format!("ip {arguments} failed")))
    }
}

/// CPU seconds of this process, both ends and the kernel on their behalf included. (Other work on the machine does not count.)
fn busy() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn fill(packet: &mut [u8], payload: usize) -> TxMeta {
    let len = 40 + payload;
    packet[..len].fill(0);
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[6] = 0x40;
    packet[8] = 64;
    packet[9] = 6;
    packet[12..16].copy_from_slice(&[10, 77, 0, 1]);
    packet[16..20].copy_from_slice(&[10, 77, 0, 2]);
    let sum: u32 = packet[..20]
        .chunks(2)
        .map(|c| u32::from(c[0]) << 8 | u32::from(c[1]))
        .sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet[20..22].copy_from_slice(&1000u16.to_be_bytes());
    packet[22..24].copy_from_slice(&2000u16.to_be_bytes());
    packet[32] = 0x50;
    packet[33] = 0x10;
    TxMeta {
        len,
        gso_size: 0,
        header_len: 40,
        l4_offset: 20,
        ipv6: false,
        partial_checksum: false,
    }
}

async fn send(mut device: Device, payload: usize, gso: u16, until: Instant) -> (u64, u64) {
    let mut template = vec![0; 65_536];
    let mut meta = fill(&mut template, payload);
    meta.gso_size = gso;
    meta.partial_checksum = gso != 0;
    let tx = &mut device.transmit;
    while Instant::now() < until {
        for _ in 0..64 {
            if let Some(slot) = tx.slot(meta.len) {
                slot[..meta.len].copy_from_slice(&template[..meta.len]);
                tx.commit(meta);
            }
        }
        if !tx.flush() {
            poll_fn(|cx| tx.poll_writable(cx)).await;
        }
    }
    let counters = tx.counters();
    (counters.sent, counters.sent_bytes)
}

async fn receive(mut device: Device, stop: &AtomicBool, bytes: &AtomicU64) -> io::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let fill = poll_fn(|cx| device.receive.poll_fill(cx));
        let Ok(count) = tokio::time::timeout(Duration::from_millis(100), fill).await else {
            continue;
        };
        let mut sum = 0;
        for i in 0..count? {
            match device.receive.frame(i) {
                Inbound::Packet { packet, .. } => sum += packet.len() as u64,
                Inbound::Neighbour(frame) => {
                    device.transmit.on_neighbour(frame);
                }
                Inbound::Ignored => {}
            }
        }
        bytes.fetch_add(sum, Ordering::Relaxed);
    }
    Ok(())
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

fn open(name: &str, addr: &str, offload: bool) -> io::Result<Device> {
    let host = Snapshot::take()?;
    let interface = host.interface(name).ok_or(io::ErrorKind::NotFound)?;
    let addr = addr.parse().map_err(io::Error::other)?;
    let config = PacketConfig {
        name: name.to_owned(),
        index: interface.index,
        mac: interface.mac.ok_or(io::ErrorKind::InvalidInput)?,
        mtu: 1500,
        offload,
        links: vec![Link {
            addr,
            prefix: 24,
            gateway: None,
            owned: true,
        }],
        filter: Filter {
            owned: vec![addr],
            ..Filter::default()
        },
        known: netlink::neighbours(interface.index)?,
    };
    packet::open(&config)
}

fn report(what: &str, bytes: u64, took: f64, cpu: f64) {
    let gigabytes = bytes as f64 / 1e9;
    println!(
        "{what:<44} {:7.1} Gbit/s  {:6.3} CPU s/GB",
        gigabytes * 8.0 / took,
        cpu / gigabytes
    );
}

fn packet_rates(offload: bool) -> io::Result<()> {
    let (tid_out, tid_in) = mpsc::channel();
    let (go_out, go_in) = mpsc::channel::<()>();
    let stop = Arc::new(AtomicBool::new(false));
    let got = Arc::new(AtomicU64::new(0));
    let receiver = {
        let (stop, got) = (Arc::clone(&stop), Arc::clone(&got));
        std::thread::spawn(move || -> io::Result<()> {
            namespace::unshare_network()?;
            let _ = tid_out.send(rustix::thread::gettid().as_raw_nonzero());
            let _ = go_in.recv();
            ip("link set r0 up")?;
            let runtime = runtime()?;
            runtime.block_on(async {
                let device = open("r0", "10.77.0.2", offload)?;
                receive(device, &stop, &got).await
            })
        })
    };
    let tid = tid_in.recv().map_err(io::Error::other)?;
    let sender = std::thread::spawn(move || -> io::Result<(f64, f64, u64)> {
        namespace::unshare_network()?;
        ip(&format!("link add s0 type veth peer name r0 netns {tid}"))?;
        let _ = go_out.send(());
        ip("link set s0 up")?;
        std::thread::sleep(Duration::from_millis(500));
        let runtime = runtime()?;
        runtime.block_on(async {
            let mut device = open("s0", "10.77.0.1", offload)?;
            // Resolve the neighbour before the clock runs.
            let mut first = vec![0; 100];
            let meta = fill(&mut first, 10);
            device.transmit.slot(100).ok_or(io::ErrorKind::WouldBlock)?[..50]
                .copy_from_slice(&first[..50]);
            device.transmit.commit(meta);
            device.transmit.flush();
            for _ in 0..2 {
                let count = poll_fn(|cx| device.receive.poll_fill(cx));
                let Ok(count) = tokio::time::timeout(Duration::from_millis(300), count).await
                else {
                    break;
                };
                for i in 0..count? {
                    if let Inbound::Neighbour(frame) = device.receive.frame(i) {
                        device.transmit.on_neighbour(frame);
                    }
                }
            }
            let (start, before) = (Instant::now(), busy());
            let (payload, gso) = if offload {
                (BURST_MAX as usize, 1448)
            } else {
                (1460, 0)
            };
            let until = start + Duration::from_secs(SECONDS);
            let (_, bytes) = send(device, payload, gso, until).await;
            Ok((start.elapsed().as_secs_f64(), busy() - before, bytes))
        })
    });
    let (took, cpu, sent) = sender.join().map_err(|_| io::ErrorKind::Other)??;
    stop.store(true, Ordering::Relaxed);
    receiver.join().map_err(|_| io::ErrorKind::Other)??;
    let kind = if offload {
        "64 KB bursts"
    } else {
        "1500-byte packets"
    };
    report(&format!("packet socket sends {kind}"), sent, took, cpu);
    report(
        &format!("packet socket receives {kind} (same run)"),
        got.load(Ordering::Relaxed),
        took,
        cpu,
    );
    Ok(())
}

fn tun_rates(offload: bool) -> io::Result<()> {
    let worker = std::thread::spawn(move || -> io::Result<()> {
        namespace::unshare_network()?;
        let runtime = runtime()?;
        runtime.block_on(async {
            let device = tun::open(&tun::TunConfig {
                name: "t0".to_owned(),
                mtu: 1500,
                offload,
            })?;
            ip("link set t0 up")?;
            ip("addr add 10.77.0.2/24 dev t0")?;
            // Written packets end in the kernel's raw table, so only the device's own cost is seen.
            let status = Command::new("nft")
                .arg("add table ip x; add chain ip x p { type filter hook prerouting priority -400; }; add rule ip x p drop")
                .status()?;
            if !status.success() {
                return Err(io::Error::other("nft failed"));
            }
            let (start, before) = (Instant::now(), busy());
            let (payload, gso) = if offload { (BURST_MAX as usize, 1448) } else { (1460, 0) };
            let until = start + Duration::from_secs(SECONDS);
            let (_, bytes) = send(device, payload, gso, until).await;
            let kind = if offload { "64 KB bursts" } else { "1500-byte packets" };
            report(&format!("TUN writes {kind}"), bytes, start.elapsed().as_secs_f64(), busy() - before);
            Ok(())
        })
    });
    worker.join().map_err(|_| io::ErrorKind::Other)?
}

fn main() -> io::Result<()> {
    for offload in [true, false] {
        tun_rates(offload)?;
        packet_rates(offload)?;
    }
    Ok(())
}
