//! Ends of streams through a forwarder, on the host's own sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use manypath_proxy::forward::{self, Forward, Totals};
use manypath_proxy::sockets::Sockets;

/// A forwarder of the host's TCP, in a thread that ends with the test.
fn forwarder(to: SocketAddr) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async move {
            let sockets = Sockets::default();
            let at = "tcp:127.0.0.1:0".parse().expect("an endpoint");
            let listener = sockets.listen(&at, None).await.expect("loopback");
            tell.send(listener.local_addr().expect("bound"))
                .expect("awaited");
            let forward = Forward {
                to: format!("tcp:{to}").parse().expect("an endpoint"),
                max_connections: 10,
                max_per_client: 10,
                idle_timeout: None,
                half_closed_timeout: None,
            };
            let totals = Arc::new(Totals::default());
            forward::run(forward, listener, sockets, totals, std::future::pending()).await;
        });
    });
    told.recv().expect("it listens")
}

fn through() -> (TcpStream, TcpStream) {
    let target = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let entry = forwarder(target.local_addr().expect("bound"));
    let client = TcpStream::connect(entry).expect("connected");
    let (server, _) = target.accept().expect("carried to us");
    for stream in [&client, &server] {
        let limit = Some(Duration::from_secs(60));
        stream.set_read_timeout(limit).expect("open");
        stream.set_write_timeout(limit).expect("open");
    }
    (client, server)
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream)
        .set_linger(Some(Duration::ZERO))
        .expect("open");
}

/// Reads to the end, or to the error.
fn rest(stream: &mut TcpStream) -> (Vec<u8>, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let error = stream.read_to_end(&mut bytes).err();
    (bytes, error.map(|error| error.kind()))
}

/// Writes until somebody objects.
fn upload(stream: &mut TcpStream) {
    let block = [7; 16384];
    for _ in 0..4000 {
        if stream.write_all(&block).is_err() {
            return;
        }
    }
}

#[test]
fn the_answer_of_a_server_that_takes_no_more_arrives() {
    for half_close in [false, true] {
        let (mut client, mut server) = through();
        client.write_all(b"POST").expect("written");
        server.read_exact(&mut [0; 4]).expect("carried");
        // The client goes on, so the server closes with unread bytes: by a RST, after a FIN or without one.
        client.write_all(&[7; 300_000]).expect("written");
        server.write_all(b"413").expect("written");
        if half_close {
            server.shutdown(Shutdown::Write).expect("open");
            server.read_exact(&mut [0; 1000]).expect("carried");
        }
        drop(server);
        upload(&mut client);
        let (answer, error) = rest(&mut client);
        assert_eq!(answer, b"413", "{error:?}");
    }
}

#[test]
fn what_was_sent_before_a_reset_arrives_and_then_the_reset() {
    let (mut client, mut server) = through();
    client.write_all(b"?").expect("written");
    server.read_exact(&mut [0]).expect("carried");
    // More than the sockets hold, to a client that does not read yet.
    server
        .set_write_timeout(Some(Duration::from_secs(1)))
        .expect("open");
    let mut sent = 0;
    while let Ok(n) = server.write(&[7; 65536]) {
        sent += n;
        if sent > 64_000_000 {
            break;
        }
    }
    reset(server);
    let (bytes, error) = rest(&mut client);
    // What the server's own socket still held goes with its reset; what the relay's had does not.
    assert!(
        bytes.len() > 300_000 && bytes.len() <= sent,
        "{}",
        bytes.len()
    );
    assert_eq!(error, Some(ErrorKind::ConnectionReset));
}

#[test]
fn a_reset_under_an_upload_is_no_end() {
    for _ in 0..20 {
        let (mut client, server) = through();
        client.set_nonblocking(true).expect("open");
        while client.write(&[7; 65536]).is_ok_and(|n| n > 0) {}
        client.set_nonblocking(false).expect("open");
        reset(server);
        let (bytes, error) = rest(&mut client);
        assert_eq!((bytes.len(), error), (0, Some(ErrorKind::ConnectionReset)));
    }
}

#[test]
fn an_urgent_byte_is_a_byte_of_the_stream() {
    let (mut client, mut server) = through();
    client.write_all(b"ab").expect("written");
    server.read_exact(&mut [0; 2]).expect("carried");
    socket2::SockRef::from(&client)
        .send_out_of_band(b"!")
        .expect("written");
    client.write_all(b"cd").expect("written");
    client.shutdown(Shutdown::Write).expect("open");
    assert_eq!(rest(&mut server), (b"!cd".to_vec(), None));
}
