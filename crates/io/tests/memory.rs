//! The whole driver over a cable in memory: no privileges, no kernel.

use manypath_io::{Connect, Host, MpListener, MpStream, PathEvents};
use manypath_stack::{ConnOptions, EventKind, Mode, PathManager, ProtocolLevel};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn addr(text: &str) -> SocketAddr {
    text.parse().expect("a literal address")
}

/// Bytes in which every position is recognisable.
fn pattern(len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3])
        .collect()
}

async fn echo(listener: MpListener) -> io::Result<()> {
    let (mut stream, _) = listener.accept().await?;
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await?;
    stream.write_all(&all).await?;
    stream.shutdown().await
}

async fn round_trip(server: &str, len: usize, mode: Mode) -> io::Result<ProtocolLevel> {
    let (client, far) = Host::memory_pair()?;
    let listener = MpListener::bind(&far, addr(server))?;
    let task = tokio::spawn(echo(listener));
    let stream = Connect::new(&client)
        .with(|o| o.mode = mode)
        .connect(addr(server))
        .await?;
    let level = stream.info()?.level;
    let sent = pattern(len);
    let (mut reading, mut writing) = stream.into_split();
    let copy = sent.clone();
    let writer = tokio::spawn(async move {
        writing.write_all(&copy).await?;
        writing.shutdown().await
    });
    let mut got = Vec::new();
    reading.read_to_end(&mut got).await?;
    writer.await.expect("the writer does not panic")?;
    task.await.expect("the echo does not panic")?;
    assert!(
        got == sent,
        "{} of {} bytes came back",
        got.len(),
        sent.len()
    );
    Ok(level)
}

async fn within<T>(limit: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(limit), what)
        .await
        .expect("it ends in time")
}

#[tokio::test]
async fn small_and_large_streams_come_back() {
    for len in [0, 1, 5, 1000, 100_000, 20_000_000] {
        let level = within(20, round_trip("10.0.0.2:80", len, Mode::Multipath))
            .await
            .expect("a round trip");
        assert_eq!(level, ProtocolLevel::Multipath);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_at_once() {
    let (client, far) = Host::memory_pair().expect("two stacks");
    let listener = MpListener::bind(&far, addr("10.0.0.2:80")).expect("a free port");
    let server = tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                continue;
            };
            tokio::spawn(async move {
                let mut all = Vec::new();
                stream.read_to_end(&mut all).await?;
                stream.write_all(&all).await?;
                stream.shutdown().await
            });
        }
    });
    let one = |number: usize| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut stream = Connect::new(&client).connect(addr("10.0.0.2:80")).await?;
            let sent = pattern(number * 7 % 5000);
            stream.write_all(&sent).await?;
            stream.shutdown().await?;
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await?;
            assert!(got == sent, "connection {number}");
            io::Result::Ok(())
        })
    };
    within(60, async {
        let all: Vec<_> = (0..1000).map(one).collect();
        for task in all {
            task.await.expect("no panic").expect("no connection fails");
        }
        for number in 0..500 {
            one(number)
                .await
                .expect("no panic")
                .expect("no connection fails");
        }
    })
    .await;
    server.abort();
}

#[tokio::test]
async fn errors_have_the_kinds_that_programs_look_for() {
    let (client, far) = Host::memory_pair().expect("two stacks");
    within(20, async {
        let refused = Connect::new(&client).connect(addr("10.0.0.2:9")).await;
        assert_eq!(
            refused.map(|_| ()).map_err(|e| e.kind()),
            Err(io::ErrorKind::ConnectionRefused)
        );
        let listener = MpListener::bind(&far, addr("10.0.0.2:80")).expect("a free port");
        let again = MpListener::bind(&far, addr("10.0.0.2:80"));
        assert_eq!(
            again.map(|_| ()).map_err(|e| e.kind()),
            Err(io::ErrorKind::AddrInUse)
        );
        let connect = tokio::spawn(Connect::new(&client).connect(addr("10.0.0.2:80")));
        let (theirs, _) = listener.accept().await.expect("a connection");
        let mut ours = connect.await.expect("no panic").expect("a connection");
        theirs.abort().expect("it lives");
        let mut byte = [0];
        let read = ours.read(&mut byte).await;
        assert_eq!(
            read.map_err(|e| e.kind()),
            Err(io::ErrorKind::ConnectionReset)
        );
        let write = ours.write(&byte).await;
        assert_eq!(
            write.map_err(|e| e.kind()),
            Err(io::ErrorKind::ConnectionReset)
        );
    })
    .await;
}

#[tokio::test]
async fn plain_tcp_when_asked_for() {
    let level = within(20, round_trip("10.0.0.2:80", 300_000, Mode::PlainTcp))
        .await
        .expect("a round trip");
    assert_eq!(level, ProtocolLevel::PlainTcp);
    let level = within(20, round_trip("[fd00::2]:80", 300_000, Mode::Multipath))
        .await
        .expect("a round trip over IPv6");
    assert_eq!(level, ProtocolLevel::Multipath);
}

#[tokio::test]
async fn the_second_call_has_its_first_bytes_in_the_syn() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let fast = ConnOptions {
        fast_open: true,
        ..ConnOptions::default()
    };
    let at = "10.0.0.2:80".parse().expect("an address");
    let listener = MpListener::bind_with(&server, at, 8, fast.clone()).expect("free");
    for round in 0..2u64 {
        let connect = Connect::new(&client).options(fast.clone());
        let (asked, served) =
            tokio::join!(connect.connect_with(at, b"question"), listener.accept());
        let (mut stream, written) = asked.expect("connected");
        let (mut served, _) = served.expect("accepted");
        assert_eq!(written, 8);
        let mut question = [0; 8];
        served.read_exact(&mut question).await.expect("read");
        assert_eq!(&question, b"question");
        served.write_all(b"answer").await.expect("written");
        served.shutdown().await.expect("closed");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("read");
        assert_eq!(answer, "answer");
        stream.shutdown().await.expect("closed");
        assert_eq!(stream.info().expect("open").level, ProtocolLevel::Multipath);
        let accepted = server.counters().fast_open_accepted;
        assert_eq!(accepted, round);
    }
}

/// The basic interface of RFC 6897: addresses are added and removed on both sides, and the stream says what that did.
#[tokio::test]
async fn an_application_adds_and_removes_addresses() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let nobody_decides = ConnOptions {
        path_manager: PathManager::Passive,
        ..ConnOptions::default()
    };
    let at = addr("10.0.0.2:80");
    let listener = MpListener::bind_with(&server, at, 8, nobody_decides.clone()).expect("free");
    let connect = Connect::new(&client).options(nobody_decides);
    let (near, far) = tokio::join!(connect.connect(at), listener.accept());
    let (mut near, mut far) = (near.expect("connected"), far.expect("accepted").0);
    let mut events = near.path_events();
    assert!(near.is_multipath().expect("open"));
    let ids = [&near, &far].map(|end| end.connection_id().expect("open"));
    assert!(ids[0].is_some() && ids[0] != ids[1], "{ids:?}");
    // The client sends only after its key has arrived, and joins only after that.
    far.write_all(b"welcome").await.expect("written");
    near.read_exact(&mut [0; 7]).await.expect("read");
    near.write_all(b"thanks").await.expect("written");
    far.read_exact(&mut [0; 6]).await.expect("read");

    far.add_addresses(&[addr("[fd00::2]:0").ip()])
        .expect("announced");
    until(&mut events, |kind| {
        matches!(kind, EventKind::AddressAnnounced { .. })
    })
    .await;
    let second = addr("[fd00::1]:0").ip();
    near.add_addresses(&[second, addr("10.0.0.1:0").ip()])
        .expect("joined");
    until(&mut events, |kind| {
        matches!(kind, EventKind::SubflowUp { .. })
    })
    .await;
    let ends = near.subflow_addresses().expect("open");
    assert_eq!(ends.len(), 2, "{ends:?}");
    assert_eq!((ends[1].0.ip(), ends[1].1), (second, addr("[fd00::2]:80")));

    let all = [second, addr("10.0.0.1:0").ip()];
    let refused = near.remove_addresses(&all).expect_err("none would be left");
    assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
    near.remove_addresses(&all[1..]).expect("the first goes");
    until(&mut events, |kind| {
        matches!(kind, EventKind::SubflowDown { .. })
    })
    .await;
    // RFC 6897 section 4.2: what the stream is called stays.
    assert_eq!(near.local_addr().expect("open").ip(), all[1]);
    near.shutdown().await.expect("closed");
    far.shutdown().await.expect("closed");
    until(&mut events, |kind| matches!(kind, EventKind::Closed(_))).await;
    assert!(events.next().await.is_none());
    assert_eq!(events.lost(), 0);
}

/// Waits for an event of a kind.
async fn until(events: &mut PathEvents, wanted: impl Fn(&EventKind) -> bool) {
    let waiting = async {
        while let Some(event) = events.next().await {
            if wanted(&event.kind) {
                return;
            }
        }
        panic!("the connection is over");
    };
    within(20, waiting).await;
}

#[tokio::test]
async fn an_application_may_stay_with_tcp() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let at = addr("10.0.0.2:80");
    let listener = MpListener::bind(&server, at).expect("free");
    let connect = Connect::new(&client).multipath(false);
    let (near, _far) = tokio::join!(connect.connect(at), listener.accept());
    let near = near.expect("connected");
    assert!(!near.is_multipath().expect("open"));
    assert_eq!(near.connection_id().expect("open"), None);
    assert_eq!(near.subflow_addresses().expect("open").len(), 1);
}

/// The two ends of a connection between the stacks, and what has to live as long.
async fn connected() -> (MpStream, MpStream, MpListener) {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let listener = MpListener::bind(&server, addr("10.0.0.2:80")).expect("a free port");
    let connect = MpStream::connect(&client, addr("10.0.0.2:80"));
    let (asked, served) = tokio::join!(connect, listener.accept());
    let (serving, _) = served.expect("accepted");
    (asked.expect("connected"), serving, listener)
}

/// The call that an application makes at its end. The peer says a lot itself before it reads, and nobody reads that.
#[tokio::test]
async fn close_returns_when_the_peer_has_everything() {
    let (mut asking, serving, _listener) = connected().await;
    let (sent, said) = (pattern(1_000_000), pattern(20_000_000));
    let writer = async {
        asking.write_all(&sent).await?;
        asking.close().await
    };
    // More than fits is never read, and what it writes after the end is answered by a reset, as with TCP.
    let (mut reading, mut writing) = serving.into_split();
    let talk = tokio::spawn(async move { writing.write_all(&said).await });
    let reader = async {
        let mut got = Vec::new();
        reading.read_to_end(&mut got).await?;
        io::Result::Ok(got)
    };
    let (closed, got) = within(30, async { tokio::join!(writer, reader) }).await;
    closed.expect("the peer read it all");
    assert!(got.expect("an end in order") == sent);
    let _ = talk.await;
}

#[tokio::test]
async fn close_says_that_the_peer_did_not_get_everything() {
    let (mut asking, serving, _listener) = connected().await;
    asking.write_all(&pattern(100_000)).await.expect("room");
    let closing = tokio::spawn(asking.close());
    serving.abort().expect("open");
    let error = within(30, closing)
        .await
        .expect("no panic")
        .expect_err("lost");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn port_zero_is_any_free_port() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let bind = || MpListener::bind(&server, addr("10.0.0.2:0")).expect("a free port");
    let (one, two) = (bind(), bind());
    let (one_at, two_at) = (one.local_addr().unwrap(), two.local_addr().unwrap());
    assert!(one_at.port() != 0 && two_at.port() != 0 && one_at != two_at);
    let (asked, served) = tokio::join!(MpStream::connect(&client, two_at), two.accept());
    assert_eq!(asked.expect("connected").peer_addr().unwrap(), two_at);
    served.expect("accepted");
}

#[tokio::test]
async fn an_ipv4_address_within_ipv6_is_the_ipv4_address() {
    let (client, server) = Host::memory_pair().expect("two stacks");
    let at = addr("10.0.0.2:80");
    let listener = MpListener::bind(&server, at).expect("a free port");
    let connect = MpStream::connect(&client, addr("[::ffff:10.0.0.2]:80"));
    let (asked, served) = within(30, async { tokio::join!(connect, listener.accept()) }).await;
    assert_eq!(asked.expect("connected").peer_addr().expect("open"), at);
    served.expect("accepted");
}
