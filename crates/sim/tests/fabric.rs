//! The network between hosts, without any stack: packets made by hand go where they should.

use core::net::{IpAddr, Ipv4Addr};

use manypath_sim::fabric::{Fabric, LinkId, NodeId, Port, Side};
use manypath_sim::line::LineConfig;
use manypath_sim::middlebox::{Desk, Middlebox, Way};
use manypath_sim::packet::Packet;
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

/// A TCP packet between two IPv4 addresses, as much of one as routers look at.
fn packet(from: [u8; 4], to: [u8; 4], source_port: u16, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
    bytes[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    bytes.extend(from);
    bytes.extend(to);
    bytes.extend(source_port.to_be_bytes());
    bytes.resize(len, 0);
    bytes[32] = 0x50;
    bytes
}

fn send(fabric: &mut Fabric, port: Port, bytes: &[u8]) {
    let packet = fabric.pool().copy_of(bytes);
    fabric.send(Instant::ZERO, port, packet);
}

/// Runs until nothing happens any more; answers (time in microseconds, link, length) of every delivery.
fn run(fabric: &mut Fabric) -> Vec<(u64, u32, usize)> {
    let mut deliveries = Vec::new();
    while let Some((now, _)) = fabric.step() {
        for delivery in std::mem::take(fabric.inbox()) {
            deliveries.push((now.as_micros(), delivery.port.link.0, delivery.packet.len()));
            fabric.pool().give(delivery.packet);
        }
    }
    deliveries
}

const A: [u8; 4] = [10, 0, 0, 1];
const B: [u8; 4] = [10, 0, 0, 2];

/// host A - router - (several links) - router - host B; the answer has the ends of the hosts' links.
fn diamond(between: &[LineConfig]) -> (Fabric, Port, Port) {
    let mut fabric = Fabric::new(1);
    let hosts: [NodeId; 2] = ["a", "b"].map(|name| fabric.add_host(name));
    let routers: [NodeId; 2] = ["r", "s"].map(|name| fabric.add_router(name, true));
    let plain = || [LineConfig::default(), LineConfig::default()];
    let first = fabric.add_link("first", [hosts[0], routers[0]], plain());
    for config in between {
        fabric.add_link("between", routers, [config.clone(), config.clone()]);
    }
    let last = fabric.add_link("last", [routers[1], hosts[1]], plain());
    let port = |link: LinkId, side| Port { link, side };
    let (a, b) = (port(first, Side::A), port(last, Side::B));
    fabric.add_address(IpAddr::V4(Ipv4Addr::from(A)), a);
    fabric.add_address(IpAddr::V4(Ipv4Addr::from(B)), b);
    (fabric, a, b)
}

fn slow(mtu: u16) -> LineConfig {
    LineConfig {
        rate: Rate::from_bytes_per_sec(1_000_000),
        delay: Duration::from_micros(500),
        mtu,
        ..LineConfig::default()
    }
}

#[test]
fn a_packet_takes_its_time_there_and_back() {
    let (mut fabric, a, b) = diamond(&[slow(1500)]);
    send(&mut fabric, a, &packet(A, B, 7, 1000));
    assert_eq!(run(&mut fabric), [(1500, b.link.0, 1000)]);
    send(&mut fabric, b, &packet(B, A, 7, 100));
    assert_eq!(run(&mut fabric).len(), 1);
    assert_eq!(fabric.pool().in_use(), 0);
}

#[test]
fn flows_spread_over_equal_paths_and_each_keeps_its_own() {
    let (mut fabric, a, _) = diamond(&[slow(1500), slow(1500), slow(1500), slow(1500)]);
    for port in 0..64 {
        for _ in 0..3 {
            send(&mut fabric, a, &packet(A, B, port, 100));
        }
    }
    assert_eq!(run(&mut fabric).len(), 192);
    let used: Vec<u64> = fabric
        .link_counters()
        .filter(|(name, _)| *name == "between")
        .map(|(_, [out, _])| out.offered)
        .collect();
    assert!(
        used.iter().all(|count| *count >= 15 && count % 3 == 0),
        "{used:?}"
    );
}

#[test]
fn a_router_says_what_it_cannot_forward() {
    let (mut fabric, a, _) = diamond(&[slow(600)]);
    send(&mut fabric, a, &packet(A, B, 7, 1000));
    send(&mut fabric, a, &packet(A, [10, 9, 9, 9], 7, 100));
    let deliveries = run(&mut fabric);
    // Both complaints came back to A: one with as much of the packet as an ICMP message quotes, one with all of it.
    assert_eq!(deliveries.len(), 2, "{deliveries:?}");
    assert!(deliveries.iter().all(|(_, link, _)| *link == a.link.0));
    let drops = fabric.drops();
    assert_eq!(drops, [("no route", 1), ("too big for the next link", 1)]);
}

/// Appends its mark to every packet.
struct Mark(u8);

impl Middlebox for Mark {
    fn name(&self) -> &'static str {
        "mark"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        packet.bytes_mut().push(self.0);
        match self.0 {
            b'x' => desk.drop(packet, "x"),
            _ => desk.forward(way, packet),
        }
    }

    fn touched(&self) -> u64 {
        0
    }
}

#[test]
fn boxes_are_crossed_in_the_order_of_the_way() {
    let (mut fabric, a, b) = diamond(&[slow(1500)]);
    for mark in [b'1', b'2'] {
        fabric.add_box(a, Box::new(Mark(mark)));
    }
    let mut crossed = |from: Port, bytes: &[u8]| {
        send(&mut fabric, from, bytes);
        let mut marks = Vec::new();
        while fabric.step().is_some() {
            for delivery in std::mem::take(fabric.inbox()) {
                marks = delivery.packet.bytes()[bytes.len()..].to_vec();
            }
        }
        marks
    };
    assert_eq!(crossed(a, &packet(A, B, 7, 100)), b"12");
    assert_eq!(crossed(b, &packet(B, A, 7, 100)), b"21");
    fabric.add_box(b, Box::new(Mark(b'x')));
    send(&mut fabric, a, &packet(A, B, 7, 100));
    assert_eq!(run(&mut fabric), []);
    assert_eq!(fabric.drops(), [("x", 1)]);
}
