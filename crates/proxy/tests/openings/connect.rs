//! HTTP CONNECT.

use std::time::{Duration, Instant};

use manypath_proxy::serve::{Failure, How, OpeningKind, Policy, Refusal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Origin, Proxy, in_time, nobody, read_head, status, until};

async fn tunnel(proxy: &Proxy, to: impl std::fmt::Display, ahead: &[u8]) -> TcpStream {
    let mut client = proxy.connect().await;
    let head = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n");
    client
        .write_all(&[head.as_bytes(), ahead].concat())
        .await
        .expect("open");
    let head = in_time(read_head(&mut client)).await.expect("an answer");
    assert_eq!(status(head.as_bytes()), 200, "{head}");
    client
}

/// Answers with all that it got, once it has the end.
async fn at_the_end() -> Origin {
    Origin::start(|mut stream| async move {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).await.is_ok() {
            let _ = stream.write_all(&all).await;
        }
    })
    .await
}

/// Two listeners' worth of places are not asked for: one listener, and the bound of all.
#[tokio::test]
async fn beyond_the_bound_of_all_listeners_clients_wait_until_one_ends() {
    let origin = Origin::start(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    proxy.carry_at_most(2);
    let words = format!("CONNECT {} HTTP/1.1\r\n\r\n", origin.at);
    // One place was reserved for whoever comes first before the bound was set.
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut client = proxy.connect().await;
        client.write_all(words.as_bytes()).await.expect("open");
        in_time(read_head(&mut client)).await.expect("carried");
        open.push(client);
    }
    let mut waits = proxy.connect().await;
    waits.write_all(words.as_bytes()).await.expect("queued");
    let early = tokio::time::timeout(std::time::Duration::from_millis(300), read_head(&mut waits));
    assert!(early.await.is_err(), "it has to wait");
    assert_eq!(origin.connections(), 2);
    drop(open.pop());
    in_time(read_head(&mut waits)).await.expect("carried now");
}

#[tokio::test]
async fn what_comes_along_with_connect_goes_first_and_ends_are_passed_on() {
    let origin = at_the_end().await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut client = tunnel(&proxy, origin.at, b"early ").await;
    client.write_all(b"late").await.expect("open");
    client.shutdown().await.expect("open");
    let mut all = Vec::new();
    in_time(client.read_to_end(&mut all))
        .await
        .expect("in order");
    assert_eq!(all, b"early late");
    proxy.reports.closed(1).await;
    let ended = proxy.reports.ended.lock().expect("no panic");
    assert_eq!(
        (ended[0].forth, ended[0].back, ended[0].how),
        (10, 10, How::Finished)
    );
    assert_eq!(ended[0].reached, Some(origin.at));
}

#[tokio::test]
async fn authorities_that_are_none_are_refused_at_once() {
    let proxy = Proxy::start(OpeningKind::Http).await;
    for authority in [
        "[1.2.3.4]:80",
        "[::1",
        "::1:80",
        "h:0",
        "h:65536",
        "h",
        "http://h/",
        "h:443/",
        ":443",
        "127.1:443",
    ] {
        let began = Instant::now();
        let (answer, _) = proxy
            .talk(format!("CONNECT {authority} HTTP/1.1\r\n\r\n").as_bytes())
            .await;
        assert_eq!(status(&answer), 400, "{authority}");
        assert!(began.elapsed() < Duration::from_secs(1), "{authority}");
        assert_eq!(proxy.reports.refusals().last(), Some(&Refusal::BadTarget));
    }
    let with_body = b"CONNECT h:443 HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
    assert_eq!(status(&proxy.talk(with_body).await.0), 400);
    let with_body = b"CONNECT h:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(status(&proxy.talk(with_body).await.0), 400);
}

#[tokio::test]
async fn an_ipv6_authority_is_an_address() {
    let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
        eprintln!("skipped: this host has no ::1");
        return;
    };
    let proxy = Proxy::start(OpeningKind::Http).await;
    let _client = tunnel(&proxy, listener.local_addr().expect("bound"), b"").await;
    in_time(listener.accept()).await.expect("it came");
}

#[tokio::test]
async fn connect_goes_to_port_443_unless_rules_say_otherwise() {
    let proxy = Proxy::with(OpeningKind::Http, Policy::default(), |_| {}).await;
    let (answer, _) = proxy
        .talk(b"CONNECT host.invalid:22 HTTP/1.0\r\n\r\n")
        .await;
    assert_eq!(status(&answer), 403);
    assert_eq!(proxy.reports.refusals(), [Refusal::Port]);
}

/// With rules that allow every address there still is no way through the proxy to itself.
#[tokio::test]
async fn the_proxy_is_no_target_of_its_own() {
    let proxy = Proxy::start(OpeningKind::Http).await;
    let port = proxy.at.port();
    for host in [
        "127.0.0.1",
        "127.0.0.2",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
        "[::]",
        "localhost",
    ] {
        for request in [
            format!("CONNECT {host}:{port} HTTP/1.0\r\n\r\n"),
            format!("GET http://{host}:{port}/ HTTP/1.0\r\n\r\n"),
        ] {
            let began = Instant::now();
            let (answer, _) = proxy.talk(request.as_bytes()).await;
            assert_eq!(status(&answer), 502, "{host}");
            assert!(began.elapsed() < Duration::from_secs(1), "{host}");
            assert_eq!(proxy.reports.refusals().last(), Some(&Refusal::Loop));
        }
    }
}

#[tokio::test]
async fn a_target_that_refuses_is_told_as_such() {
    let proxy = Proxy::start(OpeningKind::Http).await;
    let gone = nobody().await;
    let (answer, _) = proxy
        .talk(format!("CONNECT {gone} HTTP/1.0\r\n\r\n").as_bytes())
        .await;
    assert_eq!(status(&answer), 502);
    assert_eq!(proxy.reports.failures(), [Failure::Refused]);
}

/// What a server has sent before it resets arrives before the client sees the reset.
#[tokio::test]
async fn a_reset_behind_a_complete_answer_does_not_take_it_along() {
    let origin = Origin::start(|mut stream| async move {
        let _ = stream.write_all(&[7; 64_000]).await;
        let unacknowledged =
            || manypath_io::sys::queue::unacknowledged(std::os::fd::AsFd::as_fd(&stream));
        while unacknowledged().is_ok_and(|n| n > 0) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    for n in 1..=20 {
        let mut client = tunnel(&proxy, origin.at, b"").await;
        until("the server has reset", || proxy.reports.ends().len() >= n).await;
        let mut all = Vec::new();
        in_time(client.read_to_end(&mut all))
            .await
            .expect_err("a reset");
        assert_eq!(all, [7; 64_000]);
    }
}

/// One side has ended, the other is silent for ever: both sockets go, and a half that moves stays.
#[tokio::test]
async fn a_half_closed_tunnel_has_its_time() {
    let silent = Origin::start(|mut stream| async move {
        let mut byte = [0];
        let first = stream.read(&mut byte).await;
        if matches!(first, Ok(1)) && byte == *b"m" {
            // One that moves, slowly.
            for _ in 0..10 {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = stream.write_all(b"x").await;
            }
            return;
        }
        std::future::pending::<()>().await;
    })
    .await;
    let short = |spec: &mut manypath_proxy::serve::ListenerSpec| {
        spec.bounds.half_closed = Some(Duration::from_millis(600));
    };
    let proxy = Proxy::with(OpeningKind::Http, Policy::permissive(), short).await;
    let _open = tunnel(&proxy, silent.at, b"").await;
    let mut moving = tunnel(&proxy, silent.at, b"m").await;
    moving.shutdown().await.expect("open");
    let mut halves = Vec::new();
    for _ in 0..50 {
        let mut half = tunnel(&proxy, silent.at, b"").await;
        half.shutdown().await.expect("open");
        halves.push(half);
    }
    let mut got = Vec::new();
    in_time(moving.read_to_end(&mut got))
        .await
        .expect("in order");
    assert_eq!(got, b"xxxxxxxxxx");
    for mut half in halves {
        in_time(half.read(&mut [0]))
            .await
            .expect_err("a reset: it is not whole");
    }
    proxy.reports.closed(51).await;
    let ends = proxy.reports.ends();
    assert_eq!(ends.iter().filter(|how| **how == How::Idle).count(), 50);
    assert_eq!(ends.len(), 51, "the open one lives");
}

/// A client that does not read holds back its server, and nothing else.
#[tokio::test]
async fn slow_readers_hold_back_their_servers() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static WRITTEN: AtomicUsize = AtomicUsize::new(0);
    let origin = Origin::start(|mut stream| async move {
        while let Ok(n) = stream.write(&[7; 65_536]).await {
            WRITTEN.fetch_add(n, Ordering::Relaxed);
        }
    })
    .await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        clients.push(tunnel(&proxy, origin.at, b"").await);
    }
    // What has left the servers and not reached the clients is in the sockets, and in one buffer for each.
    let settled = async {
        let mut last = usize::MAX;
        while last != WRITTEN.load(Ordering::Relaxed) {
            last = WRITTEN.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        last
    };
    let written = in_time(settled).await;
    assert!(written < 400_000_000, "{written} bytes without a reader");
    drop(clients);
    proxy.reports.closed(10).await;
}
