//! The relay and the measurements over our own stack: two stacks in one process, joined by a cable in memory.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use manypath_io::Host;
use manypath_proxy::endpoint::Endpoint;
use manypath_proxy::forward::{self, Forward, Totals};
use manypath_proxy::perf::{self, Header, Job, Kind, Plan, Progress, ServeOptions};
use manypath_proxy::sockets::Sockets;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

fn sockets(host: Host) -> Sockets {
    Sockets {
        stack: Some(host),
        connect_timeout: Duration::from_secs(10),
        ..Sockets::default()
    }
}

fn endpoint(text: &str) -> Endpoint {
    text.parse().expect("an endpoint")
}

#[tokio::test]
async fn both_ends_of_a_measurement_see_the_same_bytes() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let (client, server) = (sockets(client), sockets(server));
    for to in ["mptcp:10.0.0.2:5201", "mptcp:[fd00::2]:5201"] {
        let to = endpoint(to);
        let listener = server.listen(&to, None).await.expect("listening");
        let options = ServeOptions {
            stop_after: Some(3),
            ..ServeOptions::default()
        };
        let serving = tokio::spawn(perf::serve(
            listener,
            options,
            |_| {},
            std::future::pending(),
        ));
        for (kind, rounds) in [(Kind::Send, 0), (Kind::Receive, 0), (Kind::Requests, 50)] {
            let header = Header {
                kind,
                hash: true,
                seed: 3,
                bytes: 20_000_003,
                millis: 0,
                request: 100,
                response: 5000,
            };
            let plan = Plan::Measure { header, rounds };
            let job = Job {
                to: to.clone(),
                plan,
                connections: 1,
                parallel: 1,
            };
            let summary = perf::run(&job, &client, &Arc::new(Progress::default()))
                .await
                .expect("measured");
            match kind {
                Kind::Send | Kind::Receive => {
                    assert_eq!((summary.bytes, summary.same), (20_000_003, Some(true)));
                }
                Kind::Requests => assert_eq!(summary.requests, 50),
            }
        }
        serving.await.expect("no panic");
    }
}

/// An echo server behind one forwarder, reached through another: TCP, our stack, TCP.
async fn chain() -> (TcpListener, TcpStream) {
    let (near, far) = Host::memory_pair().expect("two stacks");
    let target = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
    let to = endpoint(&format!("tcp:{}", target.local_addr().expect("bound")));
    let middle = endpoint("mptcp:10.0.0.2:80");
    let far = sockets(far);
    let listener = far.listen(&middle, None).await.expect("listening");
    let totals = Arc::new(Totals::default());
    let forward = Forward {
        to,
        max_connections: 10,
        max_per_client: 10,
        idle_timeout: None,
        half_closed_timeout: None,
    };
    tokio::spawn(forward::run(
        forward,
        listener,
        far,
        totals.clone(),
        std::future::pending(),
    ));
    let near = sockets(near);
    let listener = near
        .listen(&endpoint("tcp:127.0.0.1:0"), None)
        .await
        .expect("listening");
    let entry = listener.local_addr().expect("bound");
    let forward = Forward {
        to: middle,
        max_connections: 10,
        max_per_client: 10,
        idle_timeout: None,
        half_closed_timeout: None,
    };
    tokio::spawn(forward::run(
        forward,
        listener,
        near,
        totals,
        std::future::pending(),
    ));
    (target, TcpStream::connect(entry).await.expect("connected"))
}

#[tokio::test]
async fn half_close_passes_through_two_forwarders() {
    let (target, mut client) = chain().await;
    let question = vec![b'q'; 300_000];
    let (mut read, mut write) = client.split();
    let asking = async {
        write.write_all(&question).await.expect("written");
        write.shutdown().await.expect("half-closed");
        let mut answer = Vec::new();
        read.read_to_end(&mut answer).await.expect("answered");
        answer
    };
    let answering = async {
        let (mut stream, _) = target.accept().await.expect("carried to us");
        let mut text = Vec::new();
        stream
            .read_to_end(&mut text)
            .await
            .expect("the end of the question");
        assert_eq!(text.len(), 300_000);
        stream
            .write_all(b"an answer after the end of the question")
            .await
            .expect("written");
    };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer, b"an answer after the end of the question");
}

#[tokio::test]
async fn a_reset_passes_through_two_forwarders() {
    let (target, mut client) = chain().await;
    client.write_all(b"x").await.expect("written");
    let (stream, _) = target.accept().await.expect("carried to us");
    manypath_proxy::stream::Stream::from(stream).abort();
    let error = client
        .read_to_end(&mut Vec::new())
        .await
        .expect_err("no regular end");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn an_early_answer_passes_through_two_forwarders() {
    for _ in 0..5 {
        let (target, mut client) = chain().await;
        client.write_all(&[7; 300_000]).await.expect("written");
        let (mut server, _) = target.accept().await.expect("carried to us");
        server.read_exact(&mut [0; 1000]).await.expect("carried");
        server.write_all(b"413").await.expect("written");
        // With unread bytes, so the host resets it.
        drop(server);
        while client.write_all(&[7; 16384]).await.is_ok() {}
        let mut answer = Vec::new();
        let error = client.read_to_end(&mut answer).await.err();
        assert_eq!(answer, b"413", "{error:?}");
    }
}
