//! SOCKS5.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use manypath_proxy::serve::{Failure, How, OpeningKind, Policy, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::support::{Origin, Proxy, in_time, nobody};

fn to_addr(command: u8, addr: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![5, command, 0];
    match addr {
        SocketAddr::V4(v4) => {
            bytes.push(1);
            bytes.extend(v4.ip().octets());
        }
        SocketAddr::V6(v6) => {
            bytes.push(4);
            bytes.extend(v6.ip().octets());
        }
    }
    bytes.extend(addr.port().to_be_bytes());
    bytes
}

fn to_name(name: &[u8], port: u16) -> Vec<u8> {
    let mut bytes = vec![5, 1, 0, 3, u8::try_from(name.len()).expect("short")];
    bytes.extend(name);
    bytes.extend(port.to_be_bytes());
    bytes
}

/// The reply code, and the address that it tells.
async fn ask(client: &mut TcpStream, request: &[u8]) -> (u8, Option<SocketAddr>) {
    client
        .write_all(&[&[5, 1, 0][..], request].concat())
        .await
        .expect("open");
    let mut method = [0; 2];
    in_time(client.read_exact(&mut method))
        .await
        .expect("a method");
    assert_eq!(method, [5, 0]);
    let mut reply = [0; 4];
    in_time(client.read_exact(&mut reply))
        .await
        .expect("a reply");
    assert_eq!((reply[0], reply[2]), (5, 0));
    let addr = match reply[3] {
        1 => {
            let mut rest = [0; 6];
            client.read_exact(&mut rest).await.expect("an address");
            let [a, b, c, d, high, low] = rest;
            Some(SocketAddr::from((
                [a, b, c, d],
                u16::from_be_bytes([high, low]),
            )))
        }
        _ => {
            client.read_exact(&mut [0; 18]).await.expect("an address");
            None
        }
    };
    (reply[1], addr)
}

async fn echo() -> Origin {
    Origin::start(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

#[tokio::test]
async fn literals_names_and_addresses_are_connected_to() {
    let origin = echo().await;
    let proxy = Proxy::start(OpeningKind::Socks5).await;
    let port = origin.at.port();
    for request in [
        to_addr(1, origin.at),
        to_name(b"127.0.0.1", port),
        to_name(b"localhost", port),
        to_name(b"localhost.", port),
        to_name(b"::ffff:127.0.0.1", port),
        to_name(b"[::ffff:127.0.0.1]", port),
    ] {
        let mut client = proxy.connect().await;
        let (code, bound) = ask(&mut client, &request).await;
        assert_eq!(code, 0, "{request:?}");
        assert!(bound.is_some_and(|addr| addr.port() != 0), "{bound:?}");
        client.write_all(b"hello").await.expect("open");
        let mut got = [0; 5];
        in_time(client.read_exact(&mut got)).await.expect("echoed");
        assert_eq!(&got, b"hello");
    }
    assert_eq!(origin.connections(), 6);
}

#[tokio::test]
async fn a_success_is_told_when_there_is_one() {
    let proxy = Proxy::start(OpeningKind::Socks5).await;
    let gone = nobody().await;
    let began = Instant::now();
    for (request, code, why) in [
        (to_addr(1, gone), 5, Failure::Refused),
        (
            to_name(b"no-such-name.invalid", 80),
            4,
            Failure::NameNotFound,
        ),
    ] {
        let mut client = proxy.connect().await;
        assert_eq!(ask(&mut client, &request).await.0, code);
        assert_eq!(in_time(client.read(&mut [0])).await.expect("in order"), 0);
        assert_eq!(proxy.reports.failures().last(), Some(&why));
    }
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn bad_input_gets_the_protocol_s_own_refusal() {
    let change = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.header_time = Duration::from_millis(300)
    };
    let proxy = Proxy::with(OpeningKind::Socks5, Policy::permissive(), change).await;
    let none: &[u8] = &[5, 1, 0];
    let after = |reply: u8| vec![5, 0, 5, reply, 0, 1, 0, 0, 0, 0, 0, 0];
    for (words, answer, why) in [
        // SOCKS4, HTTP, and no method at all.
        (
            b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00".to_vec(),
            vec![0, 91, 0, 0, 0, 0, 0, 0],
            Refusal::Unsupported,
        ),
        (
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![],
            Refusal::Malformed,
        ),
        (
            vec![5, 0],
            vec![5, 1, 0, 1, 0, 0, 0, 0, 0, 0],
            Refusal::Malformed,
        ),
        // Methods that we do not have.
        (vec![5, 1, 1], vec![5, 0xff], Refusal::Unsupported),
        // BIND, no command, no kind of address.
        (
            [none, &to_addr(2, proxy.at)].concat(),
            after(7),
            Refusal::Unsupported,
        ),
        (
            [none, &[5, 9, 0, 1]].concat(),
            after(7),
            Refusal::Unsupported,
        ),
        (
            [none, &[5, 1, 0, 2]].concat(),
            after(8),
            Refusal::Unsupported,
        ),
        // Lengths that are wrong, a NUL, a port that there is not.
        (
            [none, &to_name(b"", 80)].concat(),
            after(1),
            Refusal::Malformed,
        ),
        (
            [none, &to_name(b"a\0b", 80)].concat(),
            after(4),
            Refusal::BadTarget,
        ),
        (
            [none, &to_name(b"127.1", 80)].concat(),
            after(4),
            Refusal::BadTarget,
        ),
        (
            [none, &to_name(b"a", 0)].concat(),
            after(4),
            Refusal::BadTarget,
        ),
        (
            [none, &[4, 1, 0, 1]].concat(),
            [&[5, 0][..], &[0, 91, 0, 0, 0, 0, 0, 0]].concat(),
            Refusal::Unsupported,
        ),
        (
            [none, &[5, 1, 0, 3, 200, b'a']].concat(),
            vec![5, 0],
            Refusal::HeaderTimeout,
        ),
        (vec![], vec![], Refusal::HeaderTimeout),
    ] {
        let (got, end) = proxy.talk(&words).await;
        assert_eq!(got, answer, "{words:?}");
        assert!(end.is_ok(), "{words:?}: {end:?}");
        assert_eq!(proxy.reports.refusals().last(), Some(&why), "{words:?}");
    }
}

#[tokio::test]
async fn addresses_of_this_host_and_the_proxy_itself_are_not_allowed() {
    let origin = echo().await;
    let proxy = Proxy::with(OpeningKind::Socks5, Policy::default(), |_| {}).await;
    for (request, why) in [
        (to_addr(1, origin.at), Refusal::Address),
        (to_name(b"localhost", origin.at.port()), Refusal::Address),
        (to_addr(1, proxy.at), Refusal::Loop),
        (to_name(b"0.0.0.0", proxy.at.port()), Refusal::Loop),
    ] {
        let mut client = proxy.connect().await;
        assert_eq!(ask(&mut client, &request).await.0, 2);
        assert_eq!(proxy.reports.refusals().last(), Some(&why));
    }
    assert_eq!(origin.connections(), 0);
}

/// A datagram as SOCKS5 has it.
fn datagram(to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, 0][..], &to_addr(0, to)[3..], payload].concat()
}

async fn udp_echo() -> (SocketAddr, std::sync::Arc<UdpSocket>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    (socket.local_addr().expect("bound"), socket.into())
}

#[tokio::test]
async fn datagrams_of_the_client_alone_are_relayed() {
    let (target, server) = udp_echo().await;
    let proxy = Proxy::start(OpeningKind::Socks5).await;
    let mut client = proxy.connect().await;
    let (code, relay) = ask(
        &mut client,
        &to_addr(3, "0.0.0.0:0".parse().expect("literal")),
    )
    .await;
    assert_eq!(code, 0);
    let relay = relay.expect("an address");
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    socket
        .send_to(&datagram(target, b"ping"), relay)
        .await
        .expect("sent");
    let mut buffer = [0; 100];
    let (n, from) = in_time(server.recv_from(&mut buffer))
        .await
        .expect("relayed");
    assert_eq!(&buffer[..n], b"ping");
    server.send_to(b"pong", from).await.expect("sent");
    let (n, _) = in_time(socket.recv_from(&mut buffer))
        .await
        .expect("relayed");
    assert_eq!(buffer[..n], datagram(target, b"pong"));

    // Somebody else at the relay's port, another address of this host, and a fragment: nothing of it passes.
    let other_port = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    let other_host = UdpSocket::bind("127.0.0.2:0").await.expect("loopback");
    for stranger in [&other_port, &other_host] {
        stranger
            .send_to(&datagram(target, b"stranger"), relay)
            .await
            .expect("sent");
    }
    let mut fragment = datagram(target, b"fragment");
    fragment[2] = 1;
    socket.send_to(&fragment, relay).await.expect("sent");
    // A server that was not asked cannot answer either.
    other_port.send_to(b"unasked", from).await.expect("sent");
    socket
        .send_to(&datagram(target, b"last"), relay)
        .await
        .expect("sent");
    let (n, _) = in_time(server.recv_from(&mut buffer))
        .await
        .expect("relayed");
    assert_eq!(&buffer[..n], b"last");
    server.send_to(b"answer", from).await.expect("sent");
    let (n, _) = in_time(socket.recv_from(&mut buffer))
        .await
        .expect("relayed");
    assert_eq!(buffer[..n], datagram(target, b"answer"));

    // It lives as long as its connection.
    drop(client);
    proxy.reports.closed(1).await;
    let ended = proxy.reports.ended.lock().expect("no panic");
    assert_eq!(
        (ended[0].forth, ended[0].back, ended[0].how),
        (8, 10, How::Finished)
    );
}

/// Two thousand targets take no more sockets than one.
#[tokio::test]
async fn many_targets_take_no_more_descriptors() {
    let (target, server) = udp_echo().await;
    let proxy = Proxy::start(OpeningKind::Socks5).await;
    let mut client = proxy.connect().await;
    let relay = ask(
        &mut client,
        &to_addr(3, "0.0.0.0:0".parse().expect("literal")),
    )
    .await
    .1;
    let relay = relay.expect("an address");
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("procfs").count();
    let before = descriptors();
    let mut buffer = [0; 100];
    for n in 0..2000_u32 {
        // 127.0.1.1 and so on: nobody is there. Each 20th is the server, so that no queue overflows.
        let [_, _, high, low] = n.to_be_bytes();
        let nowhere = SocketAddr::from(([127, 1, high, low], 9));
        socket
            .send_to(&datagram(nowhere, b"x"), relay)
            .await
            .expect("sent");
        if n % 20 == 0 {
            socket
                .send_to(&datagram(target, b"y"), relay)
                .await
                .expect("sent");
            in_time(server.recv_from(&mut buffer))
                .await
                .expect("relayed");
        }
    }
    assert!(descriptors() <= before + 3, "{before} before");
}

#[tokio::test]
async fn datagrams_to_this_host_are_dropped_by_default() {
    let (target, server) = udp_echo().await;
    let proxy = Proxy::with(OpeningKind::Socks5, Policy::default(), |_| {}).await;
    let mut client = proxy.connect().await;
    let relay = ask(
        &mut client,
        &to_addr(3, "0.0.0.0:0".parse().expect("literal")),
    )
    .await
    .1;
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("loopback");
    let relay = relay.expect("an address");
    socket
        .send_to(&datagram(target, b"ping"), relay)
        .await
        .expect("sent");
    crate::support::until("it is refused", || {
        proxy.reports.refusals() == [Refusal::Address]
    })
    .await;
    assert!(server.try_recv_from(&mut [0; 10]).is_err());
}
