//! Classes on streams of the host: what is sent waits for its time, each way, and changes hold on what is open.

use std::time::{Duration, Instant};

use manypath_proxy::limits::{Admission, ClassSpec, Limiter};
use manypath_proxy::serve::{OpeningKind, Policy};
use manypath_proxy::target::rules::{Rule, Then};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Origin, Proxy, in_time, read_head};

const BYTES: usize = 250_000;

/// A class of all clients of this host.
fn class(up: Option<u64>, down: Option<u64>) -> ClassSpec {
    ClassSpec {
        name: "all".into(),
        matches: Rule {
            client: vec!["127.0.0.0/8".parse().expect("a network")],
            user: Vec::new(),
            to: Vec::new(),
            port: Vec::new(),
            then: Then::Allow,
        },
        up,
        down,
        weight: None,
        admission: Admission::default(),
        schedule: Vec::new(),
        quota: Vec::new(),
    }
}

/// A server that sends so many bytes for each one that it reads.
async fn generous() -> Origin {
    Origin::start(|mut stream| async move {
        let body = vec![7; BYTES];
        while stream.read_u8().await.is_ok() {
            if stream.write_all(&body).await.is_err() {
                return;
            }
        }
    })
    .await
}

async fn tunnel(proxy: &Proxy, origin: &Origin) -> TcpStream {
    let mut client = proxy.connect().await;
    let head = format!("CONNECT {} HTTP/1.1\r\n\r\n", origin.at);
    client.write_all(head.as_bytes()).await.expect("open");
    in_time(read_head(&mut client)).await.expect("an answer");
    client
}

async fn fetch(client: &mut TcpStream) -> Duration {
    let (begin, mut body) = (Instant::now(), vec![0; BYTES]);
    client.write_all(b"x").await.expect("open");
    in_time(client.read_exact(&mut body)).await.expect("whole");
    begin.elapsed()
}

#[tokio::test]
async fn a_class_holds_its_rate_and_a_change_holds_on_what_is_open() {
    let (limiter, origin) = (Limiter::default(), generous().await);
    // A quarter of a megabyte at 2 Mbit/s.
    let classes = limiter.apply(None, &[class(None, Some(2_000_000))]);
    let policy = Policy::permissive().with_classes(classes);
    let proxy = Proxy::with(OpeningKind::Http, policy, |_| {}).await;
    let mut client = tunnel(&proxy, &origin).await;
    let took = fetch(&mut client).await;
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert!(took <= Duration::from_millis(2500), "{took:?}");
    let told = limiter.reports(None);
    assert_eq!((told.len(), told[0].name.as_str()), (1, "all/down"));
    assert!(told[0].held_us > 500_000 && told[0].waits > 0, "{told:?}");
    // As a reload does.
    let _ = limiter.apply(None, &[]);
    assert!(limiter.reports(None).is_empty());
    let took = fetch(&mut client).await;
    assert!(took <= Duration::from_millis(500), "{took:?}");
    proxy.stop().await;
}

#[tokio::test]
async fn who_matches_no_class_is_not_held_back() {
    let origin = generous().await;
    let other = ClassSpec {
        matches: Rule {
            client: vec!["192.0.2.0/24".parse().expect("a network")],
            ..class(None, None).matches
        },
        ..class(Some(1), Some(1))
    };
    let classes = Limiter::default().apply(None, &[other]);
    let policy = Policy::permissive().with_classes(classes);
    let proxy = Proxy::with(OpeningKind::Http, policy, |_| {}).await;
    let took = fetch(&mut tunnel(&proxy, &origin).await).await;
    assert!(took <= Duration::from_millis(500), "{took:?}");
    proxy.stop().await;
}

/// Asks for a tunnel and gives the status of the answer.
async fn asks(proxy: &Proxy, origin: &Origin) -> (TcpStream, String) {
    let mut client = proxy.connect().await;
    let head = format!("CONNECT {} HTTP/1.1\r\n\r\n", origin.at);
    client.write_all(head.as_bytes()).await.expect("open");
    let answer = in_time(read_head(&mut client)).await.expect("an answer");
    let status = answer.split(' ').nth(1).unwrap_or_default().to_owned();
    (client, status)
}

#[tokio::test]
async fn a_class_has_as_many_connections_as_it_may_have_and_one_that_ends_makes_room() {
    let (limiter, origin) = (Limiter::default(), generous().await);
    let admission = Admission {
        connections: Some(2),
        connection_rate: None,
    };
    let spec = ClassSpec {
        admission,
        ..class(None, None)
    };
    let classes = limiter.apply(None, &[spec]);
    let policy = Policy::permissive().with_classes(classes);
    let proxy = Proxy::with(OpeningKind::Http, policy, |_| {}).await;
    let (first, status) = asks(&proxy, &origin).await;
    assert_eq!(status, "200");
    let (_second, status) = asks(&proxy, &origin).await;
    assert_eq!(status, "200");
    let (_third, status) = asks(&proxy, &origin).await;
    assert_eq!(status, "429");
    let told = limiter.classes();
    assert_eq!((told[0].connections, told[0].refused), (2, 1), "{told:?}");
    drop(first);
    in_time(async {
        while limiter.classes()[0].connections > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (_fourth, status) = asks(&proxy, &origin).await;
    assert_eq!(status, "200");
    proxy.stop().await;
}

#[tokio::test]
async fn no_more_connections_of_a_class_begin_than_its_rate_has() {
    let (limiter, origin) = (Limiter::default(), generous().await);
    let admission = Admission {
        connections: None,
        connection_rate: Some("3/h".parse().expect("a rate")),
    };
    let spec = ClassSpec {
        admission,
        ..class(None, None)
    };
    let classes = limiter.apply(None, &[spec]);
    let policy = Policy::permissive().with_classes(classes);
    let proxy = Proxy::with(OpeningKind::Http, policy, |_| {}).await;
    let mut begun = 0;
    for _ in 0..5 {
        begun += usize::from(asks(&proxy, &origin).await.1 == "200");
    }
    assert_eq!(begun, 3);
    assert_eq!(limiter.classes()[0].refused, 2);
    proxy.stop().await;
}
