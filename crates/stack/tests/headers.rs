//! SYNs behind IP headers of every kind: in pieces, with IPv6 extension headers, with headers that nobody knows.

use std::net::{IpAddr, SocketAddr};

use manypath_stack::{
    ConnOptions, IfaceId, ListenOptions, Path, PathEvent, RxMeta, Stack, StackConfig,
};
use manypath_tcp::time::Instant;
use manypath_testkit::{Wire, header, packet, path};
use manypath_wire::checksum::Sum;
use manypath_wire::emit;
use manypath_wire::ids::{FourTuple, Mss};
use manypath_wire::ip::{self, icmp};
use manypath_wire::segment::{Segment, Verify};
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::{Wanted, fit};
use manypath_wire::tcp::options::Options;

const IFACE: IfaceId = IfaceId(1);
const NOW: Instant = Instant::from_secs(1);

struct Host {
    stack: Stack,
    wire: Wire,
}

impl Host {
    /// A server, of which the port alone is its own if it shares the address.
    fn new(v6: bool, shared: bool) -> Self {
        let mut stack = Stack::new(StackConfig::default(), [1; 32], NOW);
        let local = tuple(v6).remote;
        stack.handle_path_event(
            NOW,
            PathEvent::Up(Path {
                addr: local.ip(),
                ports: shared.then_some(50_000..=50_100),
                ..path(1, IFACE.0 as u8)
            }),
        );
        let listened = stack.listen(ListenOptions {
            addr: local,
            backlog: 10,
            conn: ConnOptions::default(),
        });
        listened.expect("the port is free");
        Self {
            stack,
            wire: Wire::default(),
        }
    }

    /// What it answers to a packet.
    fn take(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
        let meta = RxMeta::default();
        self.stack.handle_packet(NOW, IFACE, packet, meta);
        self.answer()
    }

    fn answer(&mut self) -> Option<Vec<u8>> {
        assert!(self.wire.flush(&mut self.stack, NOW, 10));
        self.wire.take()
    }

    fn count(&self, name: &str) -> u64 {
        self.stack.counters().get(name).expect("a counter's name")
    }
}

/// The client's view.
fn tuple(v6: bool) -> FourTuple {
    let end = |host: u16, port| {
        let addr = match v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, host]),
            false => IpAddr::from([10, 0, 0, host as u8]),
        };
        SocketAddr::new(addr, port)
    };
    FourTuple::new(end(2, 4000), end(1, 80))
}

/// A SYN with options: headers of IP, and the segment.
fn syn(v6: bool) -> (Vec<u8>, Vec<u8>) {
    let tuple = tuple(v6);
    let options = Options {
        sack_permitted: true,
        mss: Some(Mss(1400)),
        ..Options::EMPTY
    };
    let fitted = fit(
        &Wanted {
            options,
            ..Wanted::default()
        },
        40,
    );
    let header = header(Flags::SYN, SeqNum::new(7), SeqNum::new(0), 500);
    let mut bytes = packet(&tuple, header, &fitted, &[]);
    let segment = bytes.split_off(emit::ip_header_len(&tuple));
    (bytes, segment)
}

/// The packet with these IPv6 headers between the fixed one and the segment; the last names TCP by itself.
fn behind(first: u8, headers: &[u8], body: &[u8]) -> Vec<u8> {
    let (mut bytes, _) = syn(true);
    bytes[6] = first;
    bytes.extend_from_slice(headers);
    bytes.extend_from_slice(body);
    let len = (bytes.len() - 40) as u16;
    bytes[4..6].copy_from_slice(&len.to_be_bytes());
    bytes
}

/// Two pieces of a SYN, the first with TCP's fixed header and four bytes more.
fn pieces(v6: bool) -> [Vec<u8>; 2] {
    let (head, segment) = syn(v6);
    let (first, second) = segment.split_at(24);
    if v6 {
        return [
            behind(44, &[6, 0, 0, 1, 0, 0, 0, 9], first),
            behind(44, &[6, 0, 0, 24, 0, 0, 0, 9], second),
        ];
    }
    [(first, 0x2000_u16), (second, 3)].map(|(part, place)| {
        let mut bytes = head.clone();
        bytes[2..4].copy_from_slice(&(20 + part.len() as u16).to_be_bytes());
        bytes[6..8].copy_from_slice(&place.to_be_bytes());
        bytes[10..12].fill(0);
        let sum = Sum::of(&bytes).finish();
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend_from_slice(part);
        bytes
    })
}

fn is_syn_ack(packet: &[u8]) -> bool {
    let segment = Segment::parse(packet, Verify::Full).expect("a segment");
    segment.header.flags.syn() && segment.header.flags.ack()
}

/// Type, code and pointer of an ICMP error.
fn complaint(packet: &[u8]) -> (u8, u8, u8) {
    let (meta, body) = ip::parse(packet).expect("a packet");
    assert!([icmp::PROTOCOL_V4, icmp::PROTOCOL_V6].contains(&meta.protocol));
    (body[0], body[1], body[7])
}

#[test]
fn a_fragmented_syn_is_answered_in_any_order() {
    for v6 in [false, true] {
        for shared in [false, true] {
            for turned in [false, true] {
                let mut host = Host::new(v6, shared);
                let mut pieces = pieces(v6);
                if turned {
                    pieces.reverse();
                }
                assert_eq!(host.take(&pieces[0]), None);
                let answer = host.take(&pieces[1]).expect("an answer");
                assert!(is_syn_ack(&answer));
                assert_eq!(host.count("fragments_joined"), 1);
            }
        }
    }
}

#[test]
fn an_incomplete_packet_times_out() {
    for v6 in [false, true] {
        for shared in [false, true] {
            let mut host = Host::new(v6, shared);
            assert_eq!(host.take(&pieces(v6)[0]), None);
            let at = host.stack.poll_deadline().expect("its time ends");
            assert_eq!(at, Instant::from_secs(61));
            host.stack.handle_timeout(at);
            assert_eq!(host.stack.poll_deadline(), None);
            assert_eq!(host.count("fragment_timeout"), 1);
            // Of an address that it has, the host's kernel says it.
            let told = host.answer().map(|packet| complaint(&packet));
            let expected = if v6 { (3, 1, 0) } else { (11, 1, 0) };
            assert_eq!(told, (!shared).then_some(expected));
        }
    }
}

#[test]
fn extension_headers_are_walked() {
    let (_, segment) = syn(true);
    let padding = [1, 4, 0, 0, 0, 0];
    let named = |next: u8| [&[next, 0], &padding[..]].concat();
    for (name, first, headers) in [
        ("none", 6, vec![]),
        ("hop by hop", 0, named(6)),
        ("destination options", 60, named(6)),
        ("both", 0, [named(60), named(6)].concat()),
        ("a route at its end", 43, vec![6, 0, 3, 0, 0, 0, 0, 0]),
        ("an atomic fragment", 44, vec![6, 0, 0, 0, 0, 0, 0, 7]),
    ] {
        for shared in [false, true] {
            let answer = Host::new(true, shared).take(&behind(first, &headers, &segment));
            assert!(answer.is_some_and(|answer| is_syn_ack(&answer)), "{name}");
        }
    }
}

#[test]
fn unknown_headers_are_answered_by_icmp_parameter_problem() {
    let (_, segment) = syn(true);
    for (name, first, headers, told) in [
        ("a protocol", 17, vec![], Some((4, 1, 6))),
        (
            "authentication",
            51,
            vec![6, 4, 0, 0, 0, 0, 0, 0],
            Some((4, 1, 6)),
        ),
        (
            "an option",
            60,
            vec![6, 0, 0x80, 4, 0, 0, 0, 0],
            Some((4, 2, 42)),
        ),
        ("to be dropped", 60, vec![6, 0, 0x40, 4, 0, 0, 0, 0], None),
        (
            "a route",
            43,
            vec![6, 0, 3, 1, 0, 0, 0, 0],
            Some((4, 0, 42)),
        ),
        ("nothing behind", 59, vec![], None),
    ] {
        for shared in [false, true] {
            let mut host = Host::new(true, shared);
            let answer = host.take(&behind(first, &headers, &segment));
            let expected = told.filter(|_| !shared);
            assert_eq!(answer.map(|packet| complaint(&packet)), expected, "{name}");
            assert_eq!(host.count("icmp_sent"), u64::from(expected.is_some()));
        }
    }
}

#[test]
fn icmp_errors_are_rate_limited() {
    let mut host = Host::new(true, false);
    let unknown = behind(17, &[], &[0; 8]);
    let answers = (0..5000).filter(|_| host.take(&unknown).is_some()).count();
    assert_eq!(answers, 1000);
    assert_eq!(host.count("reply_limited"), 4000);
}
