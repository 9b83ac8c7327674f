//! What a changed configuration does to listeners and to what they carry.

use std::sync::Arc;
use std::time::Duration;

use manypath_proxy::endpoint::Proto;
use manypath_proxy::serve::{ListenerSpec, OpeningKind, Policy, Server, TlsFiles};
use manypath_proxy::sockets::Sockets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Origin, in_time, read_head, status};

fn spec(name: &str, on: impl std::fmt::Display, opening: OpeningKind) -> ListenerSpec {
    let on = format!("tcp:{on}").parse().expect("an endpoint");
    ListenerSpec::new(name, on, opening, Proto::Tcp)
}

async fn echo() -> Origin {
    Origin::start(|mut stream| async move {
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await
}

async fn says(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).await.expect("open");
    let mut got = vec![0; words.len()];
    in_time(stream.read_exact(&mut got)).await.expect("echoed");
    assert_eq!(got, words);
}

async fn tunnel(at: std::net::SocketAddr, origin: &Origin) -> TcpStream {
    let mut client = TcpStream::connect(at).await.expect("it listens");
    let head = format!("CONNECT {} HTTP/1.1\r\n\r\n", origin.at);
    client.write_all(head.as_bytes()).await.expect("open");
    let head = in_time(read_head(&mut client)).await.expect("an answer");
    assert_eq!(status(head.as_bytes()), 200);
    client
}

#[tokio::test]
async fn connections_outlive_every_change_and_new_ones_obey_it() {
    let origin = echo().await;
    let open = || Arc::new(Policy::permissive());
    let mut server = Server::new(Sockets::default(), Arc::new(()), open());
    let first = spec("first", "127.0.0.1:0", OpeningKind::Http);
    server
        .apply(vec![first.clone()], open())
        .await
        .expect("loopback");
    let at = server.listeners()[0].address;
    let mut carried = tunnel(at, &origin).await;

    // Another policy and other settings: the same listener goes on, and refuses now what it has granted before.
    let mut changed = first.clone();
    changed.bounds.header_time = Duration::from_secs(1);
    let second = spec("second", "127.0.0.1:0", OpeningKind::Socks5);
    server
        .apply(vec![second.clone(), changed.clone()], Arc::default())
        .await
        .expect("loopback");
    let listeners = server.listeners();
    assert_eq!(listeners.len(), 2);
    assert!(
        listeners
            .iter()
            .any(|one| one.address == at && *one.name == *"first")
    );
    says(&mut carried, b"still here").await;
    let mut client = TcpStream::connect(at).await.expect("it listens");
    let words = format!("CONNECT {} HTTP/1.1\r\n\r\n", origin.at);
    client.write_all(words.as_bytes()).await.expect("open");
    let head = in_time(read_head(&mut client)).await.expect("an answer");
    assert_eq!(status(head.as_bytes()), 403);

    // What cannot be had changes nothing at all.
    let mut broken = changed.clone();
    broken.name = "broken".into();
    broken.tls = Some(TlsFiles {
        cert: "/nonexistent/cert.pem".into(),
        key: "/nonexistent/key.pem".into(),
    });
    let error = server
        .apply(vec![broken], open())
        .await
        .expect_err("no such file");
    assert!(
        error.to_string().contains("/nonexistent/cert.pem"),
        "{error}"
    );
    let taken = spec("taken", origin.at, OpeningKind::Http);
    server
        .apply(vec![taken], open())
        .await
        .expect_err("it is in use");
    assert_eq!(server.listeners().len(), 2);

    // A listener that is taken out takes nobody any more, and what it carries goes on.
    server
        .apply(vec![second], open())
        .await
        .expect("nothing is new");
    crate::support::until("it has closed", || {
        std::net::TcpStream::connect(at).is_err()
    })
    .await;
    says(&mut carried, b"and still").await;
    server.stop().await;
    in_time(carried.read(&mut [0]))
        .await
        .expect_err("a reset: it was not whole");
}
