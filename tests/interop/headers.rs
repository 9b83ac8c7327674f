//! IP headers of every kind, which the host's kernel takes and the stack has to: fragments, IPv6 extension headers, and frames longer
//! than an IPv4 header can say. What the host itself receives beside the stack stays whole.

use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use manypath_lab::netns::NetNs;
use manypath_testkit::{header, packet};
use manypath_tests::net::{Family, Net, Own, shell};
use manypath_tests::pair::{Plan, Role, Route, Way};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::program::Program;
use manypath_tests::routed::Routed;
use manypath_tests::transfer::{finish, send};
use manypath_tests::until::wait_until;
use manypath_wire::ids::FourTuple;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::layout::Fitted;
use socket2::{Domain, Protocol, Socket, Type};

use Family::{V4, V6};

/// A router on the way cuts packets into pieces, as it may where the sender does not forbid it. Both the stack's downloads and the
/// host's own arrive, and nothing stays behind in the kernel's queue of fragments, which both have in common.
fn a_router_cuts(attach: &str, tracked: bool) {
    const LEN: u64 = 8 << 20;
    let Some(net) = Routed::new() else { return };
    if tracked {
        // The host follows connections: its kernel puts fragments together before anything else looks at them.
        shell(
            &net.ours,
            "nft 'add table inet t; add chain inet t i { type filter hook input priority 0; }; \
             add rule inet t i ct state established counter accept'",
        );
    }
    net.server
        .sysctl("net.ipv4.ip_no_pmtu_disc", "1")
        .expect("it is ours");
    net.router
        .ip(["link set d1 mtu 1400", "link set d2 mtu 1400"])
        .expect("they are there");
    let far = SocketAddr::from(([192, 0, 2, 1], 80));
    let listener = peer::listen(&net.server, far, Speaks::Mptcp);
    let near = SocketAddr::from(([127, 0, 0, 1], 7000));
    let more = ["--path", "u1", "--path", "u2", "--attach", attach];
    let (listen, to) = (format!("tcp:{near}"), format!("mptcp:{far}"));
    let mut program = Program::forward(&net.ours, &listen, &to, more);
    let pairs = [near, far].map(|to| {
        let near = peer::connect(&net.ours, to, Speaks::Tcp).expect("somebody listens");
        let far = peer::accept(&listener).expect("it is connected");
        (far, near)
    });
    std::thread::scope(|scope| {
        for (name, (far, near)) in ["the stack's", "the host's own"].iter().zip(&pairs) {
            scope.spawn(move || {
                let arrived = send(far, near, LEN, 5, |_| ());
                arrived
                    .unwrap_or_else(|e| panic!("{name}: {e}"))
                    .assert_same();
            });
        }
    });
    let joined = program.report().counters["fragments_joined"];
    assert!(joined > LEN / 2 / 1448, "{joined}");
    for (far, near) in &pairs {
        finish(far, near);
    }
    // A piece that the network has lost leaves others, but not many.
    let line = shell(&net.ours, "grep ^FRAG: /proc/net/sockstat");
    let waiting = line.split(' ').nth(2).and_then(|n| n.parse().ok());
    assert!(waiting.is_some_and(|n: u64| n < 50), "{line}");
    program.interrupt();
}

#[test]
fn a_router_cuts_packets() {
    a_router_cuts("packet", false);
}

#[test]
fn a_router_cuts_packets_and_the_host_tracks_connections() {
    a_router_cuts("packet", true);
}

#[test]
fn a_router_cuts_packets_behind_a_tun() {
    a_router_cuts("tun", false);
}

const PORT: u16 = 8080;
/// What is answered.
const SYN_ACK: u8 = 0x12;

fn kernel6() -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, 1, 0, 0, 0, 0, 0, 1)
}

/// Raw IPv6 in the kernel's namespace: what is sent, with all headers, and the segments and errors that come back.
struct Raw {
    out: Socket,
    segments: Socket,
    errors: Socket,
    to: Ipv6Addr,
    port: u16,
}

impl Raw {
    fn new(net: &Net, to: Ipv6Addr) -> Self {
        let [out, segments, errors] = [255, 6, 58].map(|protocol| {
            let socket = net.kernel.run(move || {
                let protocol = Some(Protocol::from(protocol));
                Socket::new(Domain::IPV6, Type::RAW, protocol)
            });
            let socket = socket.expect("it is ours");
            socket.set_nonblocking(true).expect("a socket");
            socket
        });
        Self {
            out,
            segments,
            errors,
            to,
            port: 20_000,
        }
    }

    /// A SYN from a port that nobody had before.
    fn syn(&mut self) -> (u16, Vec<u8>) {
        self.port += 1;
        let local = SocketAddr::new(kernel6().into(), self.port);
        let tuple = FourTuple::new(local, SocketAddr::new(self.to.into(), PORT));
        let header = header(Flags::SYN, SeqNum::new(7), SeqNum::new(0), 500);
        // Data, so that it can be cut; a SYN may have some.
        let packet = packet(&tuple, header, &Fitted::EMPTY, &[0; 24]);
        (self.port, packet)
    }

    fn send(&self, packet: &[u8]) {
        let to = SocketAddr::new(self.to.into(), 0);
        let sent = self.out.send_to(packet, &to.into()).expect("it is sent");
        assert_eq!(sent, packet.len());
    }

    /// What comes back for packets from this port: flags of segments, and type, code and pointer of ICMP errors. All of it: what
    /// is asked last has been answered.
    fn answers(&mut self, port: u16) -> (Vec<u8>, Vec<(u8, u8, u8)>) {
        let (marker, plain) = self.syn();
        self.send(&plain);
        let mut flags = Vec::new();
        wait_until("the answer to a plain SYN", || {
            while let Some(segment) = receive(&self.segments) {
                let to = u16::from_be_bytes([segment[2], segment[3]]);
                if to == marker {
                    return Ok(());
                }
                if to == port {
                    flags.push(segment[13]);
                }
            }
            Err(flags.clone())
        });
        let errors = std::iter::from_fn(|| receive(&self.errors)).filter(|e| e[0] < 128);
        let errors = errors.map(|e| (e[0], e[1], e[7])).collect();
        (flags, errors)
    }
}

fn receive(mut socket: &Socket) -> Option<Vec<u8>> {
    let mut buffer = [0; 2048];
    match socket.read(&mut buffer) {
        Ok(len) => Some(buffer[..len].to_vec()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// A packet with these headers between IPv6's own and the segment.
fn behind(plain: &[u8], first: u8, headers: &[u8], segment: &[u8]) -> Vec<u8> {
    let mut packet = plain[..40].to_vec();
    packet[6] = first;
    packet.extend_from_slice(headers);
    packet.extend_from_slice(segment);
    let len = (packet.len() - 40) as u16;
    packet[4..6].copy_from_slice(&len.to_be_bytes());
    packet
}

/// Each SYN, whatever stands before it, is answered once and by one of the two: by the stack what is for its port, and by nobody else
/// what is not TCP. `own` says whose address it is.
fn extension_headers(attach: &str, own: Own) {
    const OPTIONS: [u8; 6] = [1, 4, 0, 0, 0, 0];
    let Some(net) = Net::new(1) else { return };
    let backend = peer::listen(
        &net.ours,
        SocketAddr::from(([127, 0, 0, 1], 0)),
        Speaks::Tcp,
    );
    let backend = backend.local_addr().expect("it is bound");
    let listen = match attach {
        "tun" => format!("mptcp:[::]:{PORT}"),
        _ => format!("mptcp:[{}]:{PORT}", Net::our_address(V6, own, 1)),
    };
    let path = Net::path(V6, own, 1);
    let more = ["--path", &path, "--attach", attach];
    let mut program = Program::forward(&net.ours, &listen, &format!("tcp:{backend}"), more);
    let IpAddr::V6(to) = Net::our_address(V6, own, 1) else {
        unreachable!("of that family")
    };
    let mut raw = Raw::new(&net, to);
    // An error for each packet.
    let unlimited = net.ours.sysctl("net.ipv6.icmp.ratelimit", "0");
    unlimited.expect("it is ours");
    let named = |next: u8| [&[next, 0], &OPTIONS[..]].concat();
    let cut = |at: u16, more: u16| {
        let [high, low] = (at | more).to_be_bytes();
        vec![6, 0, high, low, 0, 0, 0, 9]
    };
    type Pieces = Vec<(u8, Vec<u8>, std::ops::Range<usize>)>;
    let answered = (vec![SYN_ACK], vec![]);
    let told = |code, pointer| (vec![], vec![(4, code, pointer)]);
    let all: Vec<(&str, Pieces, _)> = vec![
        ("nothing", vec![(6, vec![], 0..44)], answered.clone()),
        ("hop by hop", vec![(0, named(6), 0..44)], answered.clone()),
        ("destination", vec![(60, named(6), 0..44)], answered.clone()),
        (
            "atomic fragment",
            vec![(44, cut(0, 0), 0..44)],
            answered.clone(),
        ),
        (
            "fragments",
            vec![(44, cut(0, 1), 0..24), (44, cut(24, 0), 24..44)],
            answered.clone(),
        ),
        (
            "fragments turned",
            vec![(44, cut(24, 0), 24..44), (44, cut(0, 1), 0..24)],
            answered,
        ),
        ("unknown header", vec![(253, named(6), 0..44)], told(1, 6)),
        (
            "unknown option",
            vec![(60, vec![6, 0, 0x9e, 4, 0, 0, 0, 0], 0..44)],
            told(2, 42),
        ),
    ];
    for (name, pieces, expected) in all {
        let (port, plain) = raw.syn();
        for (first, headers, range) in pieces {
            raw.send(&behind(&plain, first, &headers, &plain[40..][range]));
        }
        assert_eq!(raw.answers(port), expected, "{name}");
    }
    // Each in turn, as far as the stack has it.
    let counters = program.report().counters;
    let whole = attach == "packet";
    assert!(!whole || counters["fragments_joined"] == 2, "{counters:?}");
    program.interrupt();
}

#[test]
fn extension_headers_before_tcp() {
    extension_headers("packet", Own::Shared);
}

#[test]
fn extension_headers_before_tcp_to_an_address_of_our_own() {
    extension_headers("packet", Own::Owned);
}

#[test]
fn extension_headers_before_tcp_behind_a_tun() {
    extension_headers("tun", Own::Named);
}

/// Has the kernel hand frames of up to 190,000 bytes to the device (`IFLA_GSO_MAX_SIZE` and its kin, which are newer than many an
/// `ip`). False where it is too old.
fn let_frames_be_long(host: &NetNs, device: &str) -> bool {
    const LIMIT: u32 = 190_000;
    let line = shell(host, &format!("ip -o link show {device}"));
    let (index, _) = line.split_once(':').expect("a number and a colon");
    let index: i32 = index.parse().expect("a number");
    let mut body = vec![0; 16];
    body[4..8].copy_from_slice(&index.to_ne_bytes());
    // IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE, IFLA_GRO_IPV4_MAX_SIZE.
    for attribute in [41u16, 58, 63, 64] {
        body.extend(8u16.to_ne_bytes());
        body.extend(attribute.to_ne_bytes());
        body.extend(LIMIT.to_ne_bytes());
    }
    // RTM_NEWLINK, NLM_F_REQUEST and NLM_F_ACK.
    let mut message = (16 + body.len() as u32).to_ne_bytes().to_vec();
    message.extend(16u16.to_ne_bytes());
    message.extend(5u16.to_ne_bytes());
    message.extend([1, 0, 0, 0, 0, 0, 0, 0]);
    message.extend(body);
    host.run(move || {
        let family = rustix::net::AddressFamily::NETLINK;
        let socket = rustix::net::socket(family, rustix::net::SocketType::RAW, None);
        let socket = socket.expect("the kernel has netlink");
        rustix::io::write(&socket, &message).expect("it takes the request");
        let mut answer = [0; 1024];
        let len = rustix::io::read(&socket, &mut answer).expect("it answers");
        // The error's number stands behind the header.
        len >= 20 && answer[16..20] == [0; 4]
    })
}

/// Frames of several segments that are longer than the length field of an IP header can say (BIG TCP).
fn long_frames(attach: &str) {
    const LEN: u64 = 40 << 20;
    let families = [V4, V6];
    for (family, speaks) in families
        .into_iter()
        .flat_map(|f| [(f, Speaks::Tcp), (f, Speaks::Mptcp)])
    {
        let Some(net) = Net::new(1) else { return };
        for host in [&net.kernel, &net.ours] {
            if !let_frames_be_long(host, "v1") {
                eprintln!("skipped: this kernel has no BIG TCP");
                return;
            }
        }
        net.kernel
            .sysctl("net.ipv4.tcp_wmem", "4096 4000000 16000000")
            .expect("it is ours");
        let plan = Plan {
            own: Own::Named,
            kernel: speaks,
            more: ["--attach", attach].map(str::to_owned).into(),
            ..Plan::new(&[family])
        };
        let mut route = Route::open(&net, Role::Client, plan);
        let ends = route.join();
        let before = net.counters();
        let (from, to) = ends.along(Way::FromKernel);
        let arrived = send(from, to, LEN, 5, |_| ()).expect("it arrives");
        arrived.assert_same();
        let grown = net.counters().since(&before);
        let count = |name: &str| grown.get(name).copied().unwrap_or(0);
        let again = count("TcpExtTCPFastRetrans");
        let packets = route.program.report().counters["packets_in"];
        println!("{family:?} {speaks:?} {attach}: {packets} frames, {again} repeated");
        // The first ones find too little room, and a queue may overflow.
        assert!(again < LEN / 1448 / 5, "{grown:?}");
        assert!(count("TcpExtTCPTimeouts") < 5, "{grown:?}");
        finish(&ends.ours, &ends.kernel);
    }
}

#[test]
fn frames_longer_than_a_header_can_say() {
    long_frames("packet");
}

#[test]
fn frames_longer_than_a_header_can_say_behind_a_tun() {
    long_frames("tun");
}
