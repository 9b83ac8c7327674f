//! What a converter's clients meet on the way (RFC 8803): boxes that answer SYNs, SYNs that come again, servers that need no converter.

use std::io::{ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use manypath_io::Connect;
use manypath_io::convert::Via;
use manypath_io::sys::lab::{FRAME_HEADER, frame_socket};
use manypath_lab::netns::NetNs;
use manypath_proxy::endpoint::Proto;
use manypath_sim::view::{ACK, SYN, TcpView};
use manypath_tests::net::{Net, shell};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::routed::Routed;
use nix::net::if_::if_nametoindex;
use tokio::sync::watch;

use super::convert::{CONVERTER, Converter, SERVER, at, block_on, echo, echoes, stack, through};

#[test]
fn a_client_that_may_goes_straight_to_a_server_with_multipath_tcp() {
    let Some(net) = Net::bridged(1) else { return };
    let server = at("10.77.1.30:5000");
    // The third host is the switch itself.
    let middle = net.middle.as_ref().expect("switches");
    let address = "addr add 10.77.1.30/24 dev br1";
    middle.ip([address]).expect("an address");
    manypath_lab::kernel::prepare(middle, false).expect("Multipath TCP");
    echo(middle, server, Speaks::Mptcp);
    let kernel = Arc::new(net.kernel);
    let on = format!("mptcp:{CONVERTER}");
    let converter = Converter::start_towards(Proto::Mptcp, &kernel, &on, &["v1=10.77.1.20"]);
    net.ours.run(move || {
        block_on(async {
            let host = stack(&["v1=10.77.1.10"]);
            let opening = Connect::new(&host);
            for (direct, peers) in [
                // The first answer says what the server can do.
                (true, [at(CONVERTER), server, server]),
                (false, [at(CONVERTER); 3]),
            ] {
                let via = Via::new(at(CONVERTER)).direct(direct);
                for peer in peers {
                    let connect = through(&via, &opening, server, b"first");
                    let (mut stream, written) = connect.await.expect("a connection");
                    assert_eq!(stream.peer_addr().expect("connected"), peer);
                    echoes(&mut stream, &b"first"[..written], b" and more").await;
                }
            }
        });
    });
    converter.stop();
}

#[test]
fn a_box_that_answers_syns_itself_is_passed_behind_the_handshake() {
    let Some(net) = Routed::new() else { return };
    // It answers with cookies, without data and without Multipath TCP, and connects on when the client has shown itself.
    net.router
        .sysctl("net.netfilter.nf_conntrack_tcp_loose", "0")
        .expect("connection tracking");
    shell(
        &net.router,
        "nft 'add table ip s; \
         add chain ip s pre { type filter hook prerouting priority raw; }; \
         add rule ip s pre tcp dport 1234 tcp flags & (syn|ack) == syn notrack; \
         add chain ip s f { type filter hook forward priority 0; }; \
         add rule ip s f tcp dport 1234 ct state invalid,untracked counter synproxy mss 1400 wscale 7 timestamp sack-perm; \
         add rule ip s f ct state invalid drop'",
    );
    let target = at("192.0.2.9:5000");
    echo(&net.server, target, Speaks::Tcp);
    let server = Arc::new(net.server);
    let paths = &["e=192.0.2.20,gateway=192.0.2.254"];
    let converter = Converter::start(&server, "mptcp:192.0.2.20:1234", paths);
    net.ours.run(move || {
        block_on(async {
            let host = stack(&["u1=10.78.1.10,gateway=10.78.1.1"]);
            let (opening, via) = (Connect::new(&host), Via::new(at("192.0.2.20:1234")));
            for _ in 0..3 {
                let connect = through(&via, &opening, target, b"first");
                let (mut stream, written) = connect.await.expect("through the converter");
                echoes(&mut stream, &b"first"[..written], b" and more").await;
            }
            let refused = through(&via, &opening, at("192.0.2.9:81"), b"").await;
            let refused = refused.expect_err("nobody is there").kind();
            assert_eq!(refused, ErrorKind::ConnectionRefused, "not a hang");
            assert_eq!(host.counters().fast_open_taken, 0);
        });
    });
    assert_eq!(converter.stop().syn_held, 0, "the box keeps the data");
}

/// A server that counts who comes and who has gone.
fn visits(host: &NetNs) -> watch::Receiver<[usize; 2]> {
    let listener = peer::listen(host, at(SERVER), Speaks::Tcp);
    let (counts, visits) = watch::channel([0; 2]);
    let counts = Arc::new(counts);
    std::thread::spawn(move || {
        while let Ok(mut stream) = peer::accept(&listener) {
            counts.send_modify(|[came, _]| *came += 1);
            let counts = Arc::clone(&counts);
            std::thread::spawn(move || {
                // To the end, or to a reset.
                while let Ok(1..) = stream.read(&mut [0; 4096]) {}
                counts.send_modify(|[_, gone]| *gone += 1);
            });
        }
    });
    visits
}

/// Waits until so many have come and have gone.
async fn are(visits: &mut watch::Receiver<[usize; 2]>, count: usize) {
    let seen = visits.wait_for(|[_, gone]| *gone >= count).await;
    assert_eq!(*seen.expect("the server lives"), [count; 2]);
}

/// A port of the switch.
fn port(middle: &NetNs, name: &'static str) -> OwnedFd {
    middle
        .run(move || frame_socket(if_nametoindex(name)?))
        .expect("the right to see frames")
}

/// Ethernet's header, behind that of the socket.
const IP: usize = FRAME_HEADER + 14;

/// The last SYN with data that has come in by a port.
fn last_syn(port: &OwnedFd) -> Vec<u8> {
    let (mut found, mut frame) = (None, vec![0; 70_000]);
    while let Ok(length) = rustix::io::read(port, &mut frame[..]) {
        let view = TcpView::of(&frame[IP..length]);
        if view.is_some_and(|v| v.flags & (SYN | ACK) == SYN && v.payload_len() > 0) {
            found = Some(frame[..length].to_vec());
        }
    }
    found.expect("a SYN with data")
}

/// The same from another port, with the checksum that follows from that (RFC 1624), unless it is still to be made.
fn from_another_port(syn: &[u8]) -> Vec<u8> {
    let mut syn = syn.to_vec();
    let tcp = IP + TcpView::of(&syn[IP..]).expect("it was one").tcp;
    let half = |bytes: &[u8], at| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (port, sum) = (half(&syn, tcp), half(&syn, tcp + 16));
    let other = port ^ 0x5000;
    syn[tcp..tcp + 2].copy_from_slice(&other.to_be_bytes());
    if syn[0] == 0 {
        let total = [!sum, !port, other].map(u32::from).iter().sum::<u32>();
        let total = (total & 0xffff) + (total >> 16);
        let sum = !((total & 0xffff) + (total >> 16)) as u16;
        syn[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    }
    syn
}

#[test]
fn a_syn_that_comes_again_opens_nothing_and_a_copy_of_it_nothing_that_stays() {
    let Some(net) = Net::bridged(2) else { return };
    let mut visits = visits(&net.ours);
    let middle = net.middle.expect("switches");
    let (clients, converters) = (port(&middle, "o1"), port(&middle, "k1"));
    let kernel = Arc::new(net.kernel);
    let converter = Converter::start(&kernel, &format!("mptcp:{CONVERTER}"), &["v1=10.77.1.20"]);
    net.ours.run(move || {
        block_on(async {
            let (host, via) = (stack(&["v1=10.77.1.10"]), Via::new(at(CONVERTER)));
            let opening = Connect::new(&host);
            let connect = async || {
                let connect = through(&via, &opening, at(SERVER), b"first");
                connect.await.expect("through the converter").0
            };
            let send = |frame: &[u8]| {
                let sent = rustix::io::write(&converters, frame).expect("it goes out");
                assert_eq!(sent, frame.len());
            };
            // Those after the first have a token, and are acted upon by their SYNs alone.
            connect().await.close().await.expect("delivered");
            let stream = connect().await;
            let syn = last_syn(&clients);
            send(&syn);
            stream.close().await.expect("delivered");
            are(&mut visits, 2).await;
            send(&syn);
            // Behind which the next one comes.
            connect().await.close().await.expect("delivered");
            are(&mut visits, 3).await;
            // The server hears of a copy, whose client says that it knows nothing of it.
            send(&from_another_port(&syn));
            are(&mut visits, 4).await;
        });
    });
    converter.stop();
}
