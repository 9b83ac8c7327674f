//! What an application does with sockets, between two hosts in this process.

use manypath::plug::{Choice, CustomScheduler, Need, PathView, Schedule, usable};
use manypath::{ConnectOptions, Host, Limit, MpStream, PathEvent, PathManager, Scheduler, testing};
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// The two ends of a connection over two cables, and the hosts.
async fn connected() -> (MpStream, MpStream, testing::Pair) {
    let net = testing::pair(2).expect("two hosts");
    let listener = net.server.listen("0.0.0.0:80").expect("a free port");
    let (near, far) = tokio::join!(net.client.connect("10.0.1.2:80"), listener.accept());
    (near.expect("connected"), far.expect("accepted").0, net)
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(30);
    tokio::time::timeout(limit, what).await.expect("in time")
}

fn kind<T>(result: io::Result<T>) -> Option<ErrorKind> {
    result.err().map(|error| error.kind())
}

#[tokio::test]
async fn peeked_bytes_are_read_again() {
    let (mut near, mut far, _net) = connected().await;
    far.write_all(b"hello").await.expect("room");
    let mut place = [0; 3];
    assert_eq!(within(near.peek(&mut place)).await.expect("bytes"), 3);
    assert_eq!(&place, b"hel");
    let mut all = [0; 5];
    within(near.read_exact(&mut all)).await.expect("bytes");
    assert_eq!(&all, b"hello");
    far.shutdown().await.expect("open");
    assert_eq!(within(near.peek(&mut place)).await.expect("the end"), 0);
}

#[tokio::test]
async fn calls_that_do_not_wait_say_so_and_readiness_says_when_they_need_not() {
    let (near, mut far, _net) = connected().await;
    let mut place = [0; 8];
    assert_eq!(kind(near.try_read(&mut place)), Some(ErrorKind::WouldBlock));
    let (ready, written) =
        within(async { tokio::join!(near.readable(), far.write(b"hello")) }).await;
    ready.expect("open");
    written.expect("room");
    assert_eq!(near.try_read(&mut place).expect("bytes"), 5);
    assert_eq!(kind(near.try_read(&mut place)), Some(ErrorKind::WouldBlock));

    let block = vec![0; 1 << 20];
    let mut sent = 0;
    while let Ok(count) = near.try_write(&block) {
        sent += count;
        tokio::task::yield_now().await;
    }
    assert_eq!(kind(near.try_write(&block)), Some(ErrorKind::WouldBlock));
    let reader = async {
        let mut place = vec![0; 1 << 20];
        let mut got = 0;
        while got < sent {
            got += far.read(&mut place).await.expect("bytes");
        }
    };
    let ((), ready) = within(async { tokio::join!(reader, near.writable()) }).await;
    ready.expect("open");
    assert!(near.try_write(&block).expect("room") > 0);
}

#[tokio::test]
async fn any_number_of_tasks_may_wait_for_readiness() {
    let (near, mut far, _net) = connected().await;
    let near = std::sync::Arc::new(near);
    let waiting: Vec<_> = (0..5)
        .map(|_| {
            let near = near.clone();
            tokio::spawn(async move { near.readable().await })
        })
        .collect();
    tokio::task::yield_now().await;
    far.write_all(b"x").await.expect("room");
    for task in waiting {
        within(task).await.expect("no panic").expect("readable");
    }
}

#[tokio::test]
async fn a_vectored_write_keeps_the_order() {
    let (mut near, mut far, _net) = connected().await;
    let parts = ["one ", "", "two ", "three"].map(|text| IoSlice::new(text.as_bytes()));
    let count = near.write_vectored(&parts).await.expect("room");
    assert_eq!(count, 13);
    let more = near.try_write_vectored(&[IoSlice::new(b"!"), IoSlice::new(b"?")]);
    assert_eq!(more.expect("room"), 2);
    let mut all = [0; 15];
    within(far.read_exact(&mut all)).await.expect("bytes");
    assert_eq!(&all, b"one two three!?");
}

#[tokio::test]
async fn halves_do_what_the_whole_can() {
    let (mut near, mut far, _net) = connected().await;
    far.write_all(b"hello").await.expect("room");
    {
        let (mut read, mut write) = near.split();
        write.write_all(b"there").await.expect("room");
        write.set_nodelay(true).expect("open");
        assert_eq!(within(read.peek(&mut [0; 9])).await.expect("bytes"), 5);
        within(read.read_exact(&mut [0; 5])).await.expect("bytes");
        assert_eq!(
            read.peer_addr().expect("open"),
            write.peer_addr().expect("open")
        );
    }
    let (read, write) = near.into_split();
    assert!(read.nodelay().expect("open"));
    assert_eq!(write.info().expect("open").bytes_written, 5);
    read.set_max_subflows(7).expect("open");
    write.writable().await.expect("open");
    let (other, _far, _other_net) = connected().await;
    let (other_read, other_write) = other.into_split();
    let apart = read.reunite(other_write).expect_err("of two streams");
    let (read, other_write) = (apart.0, apart.1);
    other_read.reunite(other_write).expect("of one stream");
    let mut near = read.reunite(write).expect("of one stream");
    within(far.read_exact(&mut [0; 5])).await.expect("bytes");
    near.write_all(b"still open").await.expect("room");
    within(far.read_exact(&mut [0; 10])).await.expect("bytes");
}

#[tokio::test]
async fn an_owned_writing_half_closes_its_direction_when_it_is_dropped() {
    let (near, mut far, _net) = connected().await;
    let (mut read, mut write) = near.into_split();
    write.write_all(b"bye").await.expect("room");
    drop(write);
    let mut all = Vec::new();
    within(far.read_to_end(&mut all)).await.expect("an end");
    assert_eq!(all, b"bye");
    far.write_all(b"ok").await.expect("room");
    within(read.read_exact(&mut [0; 2])).await.expect("bytes");
}

#[tokio::test]
async fn a_drop_delivers_unless_it_is_told_to_reset() {
    let (mut near, mut far, net) = connected().await;
    near.write_all(b"bye").await.expect("room");
    drop(near);
    let mut all = Vec::new();
    within(far.read_to_end(&mut all)).await.expect("an end");
    assert_eq!(all, b"bye");
    drop(far);
    within(net.client.wait_idle()).await;

    let (near, mut far, _net) = connected().await;
    near.set_linger(Some(Duration::ZERO)).expect("open");
    assert_eq!(near.linger().expect("open"), Some(Duration::ZERO));
    drop(near);
    let read = within(far.read(&mut [0; 1])).await;
    assert_eq!(kind(read), Some(ErrorKind::ConnectionReset));
    let taken = far.take_error().expect("tokio's shape");
    assert_eq!(taken.map(|e| e.kind()), Some(ErrorKind::ConnectionReset));
    assert!(far.take_error().expect("tokio's shape").is_none(), "once");
}

#[tokio::test]
async fn what_is_not_acknowledged_within_the_linger_time_is_given_up() {
    let (mut near, _far, net) = connected().await;
    net.cut(1);
    net.cut(2);
    near.write_all(b"nobody hears this").await.expect("room");
    near.set_linger(Some(Duration::from_millis(100)))
        .expect("open");
    drop(near);
    // Without a limit it would be repeated for a quarter of an hour.
    within(net.client.wait_idle()).await;
}

#[tokio::test]
async fn idle_is_when_every_stream_has_ended_at_both_ends() {
    let (mut near, mut far, net) = connected().await;
    let idle = tokio::spawn({
        let host = net.client.clone();
        async move { host.wait_idle().await }
    });
    near.write_all(&vec![7; 3_000_000]).await.expect("room");
    tokio::task::yield_now().await;
    assert!(!idle.is_finished(), "a stream is held");
    drop(near);
    let mut all = Vec::new();
    within(far.read_to_end(&mut all)).await.expect("an end");
    assert_eq!(all.len(), 3_000_000);
    drop(far);
    within(idle).await.expect("no panic");
}

#[tokio::test]
async fn subflows_that_finish_on_a_dead_path_keep_nobody_from_being_idle() {
    let (mut near, mut far, net) = connected().await;
    let mut events = near.path_events();
    far.write_all(b"welcome").await.expect("room");
    within(near.read_exact(&mut [0; 7])).await.expect("bytes");
    near.write_all(b"thanks").await.expect("room");
    within(far.read_exact(&mut [0; 6])).await.expect("bytes");
    let other = |event: &PathEvent| matches!(event, PathEvent::SubflowUp { local, .. } if local.ip().to_string() == "10.0.2.1");
    while !other(&within(events.next()).await.expect("it lives")) {}
    net.cut(1);
    let (near, far) = within(async { tokio::join!(near.close(), far.close()) }).await;
    near.expect("by the other path");
    far.expect("by the other path");
    within(net.client.wait_idle()).await;
}

#[tokio::test]
async fn connecting_has_a_limit() {
    let net = testing::pair(1).expect("two hosts");
    net.cut(1);
    let options = ConnectOptions::new().timeout(Duration::from_millis(200));
    let connect = net.client.connect_with("10.0.1.2:80", &options);
    assert_eq!(kind(within(connect).await), Some(ErrorKind::TimedOut));
    within(net.client.wait_idle()).await;
}

#[tokio::test]
async fn a_connection_goes_on_when_a_path_dies_and_tells_of_it() {
    let (mut near, mut far, net) = connected().await;
    let mut events = near.path_events();
    // The client joins when it has heard from the server.
    far.write_all(b"welcome").await.expect("room");
    within(near.read_exact(&mut [0; 7])).await.expect("bytes");
    near.write_all(b"thanks").await.expect("room");
    within(far.read_exact(&mut [0; 6])).await.expect("bytes");
    within(async {
        loop {
            match events.next().await.expect("it lives") {
                PathEvent::SubflowUp { local, .. } if local.ip().to_string() == "10.0.2.1" => break,
                _ => {}
            }
        }
    })
    .await;
    assert!(near.is_multipath().expect("open"));
    net.cut(1);
    let silent = async {
        loop {
            match events.next().await.expect("it lives") {
                PathEvent::Timeout { .. } | PathEvent::SubflowDown { .. } => break,
                _ => {}
            }
        }
    };
    let talk = async {
        for _ in 0..20 {
            near.write_all(&[1; 10_000]).await.expect("room");
            far.read_exact(&mut [0; 10_000]).await.expect("bytes");
        }
    };
    within(async { tokio::join!(silent, talk) }).await;
}

#[tokio::test]
async fn subflows_are_the_applications_where_it_wants_them_to_be() {
    let net = testing::pair(2).expect("two hosts");
    let listener = net.server.listen(("10.0.1.2", 0)).expect("a free port");
    let at = listener.local_addr().expect("tokio's shape");
    assert_ne!(at.port(), 0);
    let manual = ConnectOptions::new().path_manager(PathManager::MANUAL);
    let connect = net.client.connect_with(at, &manual);
    let (near, far) = tokio::join!(connect, listener.accept());
    let (mut near, mut far) = (near.expect("connected"), far.expect("accepted").0);
    far.write_all(b"welcome").await.expect("room");
    within(near.read_exact(&mut [0; 7])).await.expect("bytes");
    near.write_all(b"thanks").await.expect("room");
    within(far.read_exact(&mut [0; 6])).await.expect("bytes");
    let mut events = near.path_events();
    let local = "10.0.2.1".parse().expect("a literal");
    let added = near.add_subflow(local, at, true).expect("a subflow");
    loop {
        if let PathEvent::SubflowUp {
            subflow, backup, ..
        } = within(events.next()).await.expect("it lives")
        {
            assert_eq!((subflow, backup), (added, true));
            break;
        }
    }
    let info = near.info().expect("open");
    assert_eq!(info.subflows.len(), 2);
    assert!(info.subflows.iter().any(|sf| sf.id == added && sf.backup));
}

/// What a program looks for in errors, on the loopback with tokio and over our paths.
#[tokio::test]
async fn errors_have_the_kinds_that_tokio_has() {
    let ours = async {
        let net = testing::pair(1).expect("two hosts");
        let listener = net.server.listen("10.0.1.2:80").expect("a free port");
        let (near, far) = tokio::join!(net.client.connect("10.0.1.2:80"), listener.accept());
        let (mut near, far) = (near.expect("connected"), far.expect("accepted").0);
        near.shutdown().await.expect("open");
        let after_shutdown = near.write(b"x").await;
        far.abort().expect("open");
        let after_reset = near.read(&mut [0; 1]).await;
        [
            kind(net.client.connect("10.0.1.2:9").await),
            kind(net.client.connect("no port").await),
            kind(net.server.listen("10.0.1.2:80")),
            kind(net.server.listen("192.0.2.1:80")),
            kind(after_shutdown),
            kind(after_reset),
        ]
    };
    let theirs = async {
        use tokio::net::{TcpListener, TcpStream};
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let at = listener.local_addr().expect("bound");
        let (near, far) = tokio::join!(TcpStream::connect(at), listener.accept());
        let (mut near, far) = (near.expect("connected"), far.expect("accepted").0);
        near.shutdown().await.expect("open");
        let after_shutdown = near.write(b"x").await;
        far.set_zero_linger().expect("open");
        drop(far);
        let after_reset = near.read(&mut [0; 1]).await;
        let free = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let nobody = free.local_addr().expect("bound");
        drop(free);
        [
            kind(TcpStream::connect(nobody).await),
            kind(TcpStream::connect("no port").await),
            kind(TcpListener::bind(at).await),
            kind(TcpListener::bind("192.0.2.1:80").await),
            kind(after_shutdown),
            kind(after_reset),
        ]
    };
    let (ours, theirs) = within(async { tokio::join!(ours, theirs) }).await;
    assert_eq!(ours, theirs);
    assert!(ours.iter().all(Option::is_some), "{ours:?}");
}

#[tokio::test]
async fn names_are_looked_up_and_paths_lead_away_from_this_host() {
    let net = testing::pair(1).expect("two hosts");
    let here = within(net.client.connect("localhost:80")).await;
    assert_eq!(kind(here), Some(ErrorKind::HostUnreachable));
    let found = within(net.client.lookup("10.0.1.2")).await.expect("itself");
    assert_eq!(found.len(), 1);
    let bad = Host::builder().path("no interface").build();
    assert_eq!(kind(bad), Some(ErrorKind::InvalidInput));
}

/// Sends by whichever subflow has room, and panics after some segments.
#[derive(Debug, Default)]
struct Fragile(u32);

impl Schedule for Fragile {
    fn pick(&mut self, paths: &[PathView], need: &Need) -> Choice {
        self.0 += 1;
        assert!(
            self.0 < 20,
            "a scheduler that panics, as this test wants it"
        );
        let open = usable(paths, need).find(|path| path.room.is_open());
        open.map_or(Choice::Wait, |path| Choice::Send(path.subflow))
    }
}

#[tokio::test]
async fn a_scheduler_that_panics_ends_neither_its_connection_nor_the_host() {
    static FRAGILE: CustomScheduler =
        CustomScheduler::new("fragile", || Box::new(Fragile::default()));
    let net = testing::pair(2).expect("two hosts");
    let listener = net.server.listen("0.0.0.0:80").expect("a free port");
    let options = ConnectOptions::new().scheduler(Scheduler::Custom(&FRAGILE));
    let connect = net.client.connect_with("10.0.1.2:80", &options);
    let (near, far) = tokio::join!(connect, listener.accept());
    let (mut near, mut far) = (near.expect("connected"), far.expect("accepted").0);
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    // The panic comes in the task that writes, or in the stack's.
    let writing = {
        let sent = sent.clone();
        tokio::spawn(async move {
            let begun = near.write_all(&sent).await;
            (near, begun)
        })
    };
    let mut read = Vec::new();
    let reading = async {
        let mut place = vec![0; 1 << 16];
        while read.len() < sent.len() {
            match far.read(&mut place).await.expect("open") {
                0 => break,
                count => read.extend_from_slice(&place[..count]),
            }
        }
    };
    if tokio::time::timeout(Duration::from_secs(20), reading)
        .await
        .is_err()
    {
        assert!(writing.is_finished(), "the writer waits for ever");
    }
    // What the writer's panic cut short was never written; what was written has arrived.
    assert!(sent.starts_with(&read), "other bytes than were sent");
    match within(writing).await {
        Ok((_near, written)) => {
            written.expect("all written");
            assert_eq!(read.len(), sent.len());
        }
        Err(error) => assert!(error.is_panic()),
    }
    // The host goes on.
    let (again, _) =
        within(async { tokio::join!(net.client.connect("10.0.1.2:80"), listener.accept()) }).await;
    again.expect("another connection");
}

/// Sends so many bytes, and tells how long the peer had to wait for them.
async fn carry(near: &mut MpStream, far: &mut MpStream, bytes: usize) -> Duration {
    let (begun, block, mut place) = (Instant::now(), vec![7; bytes], vec![0; bytes]);
    let both = async { tokio::join!(near.write_all(&block), far.read_exact(&mut place)) };
    let (written, read) = within(both).await;
    written.expect("open");
    read.expect("whole");
    begun.elapsed()
}

#[tokio::test]
async fn a_connection_keeps_its_limit_over_all_paths_until_that_is_lifted() {
    const BYTES: usize = 500_000;
    let (mut near, mut far, _net) = connected().await;
    assert_eq!(near.limit(), None);
    let limit = Limit::bits_per_second(8_000_000);
    near.set_limit(Some(limit)).expect("open");
    // Half a second of it, less the burst of 20 ms.
    let took = carry(&mut near, &mut far, BYTES).await;
    assert!(took >= Duration::from_millis(475), "{took:?}");
    let told = near.limit().expect("it is set");
    assert_eq!(told.limit, limit);
    assert!(told.sent >= BYTES as u64, "{told:?}");
    assert!(told.held > Duration::from_millis(100), "{told:?}");
    near.set_limit(None).expect("open");
    assert_eq!(near.limit(), None);
    let took = carry(&mut near, &mut far, BYTES).await;
    assert!(took < Duration::from_millis(400), "{took:?}");
}

#[tokio::test]
async fn a_path_without_tokens_leaves_data_to_the_others() {
    let (mut near, mut far, net) = connected().await;
    let paths = net.client.paths();
    let (first, second) = (&paths[0].interface, &paths[2].interface);
    assert_ne!(first, second);
    assert_eq!(
        kind(net.client.limit_path("wwan7", None)),
        Some(ErrorKind::NotFound)
    );
    // One bit a second: of each burst three packets, and no more.
    for slow in [first, second] {
        let limit = Limit::bits_per_second(1).burst(4500);
        net.client.limit_path(slow, Some(limit)).expect("a path");
        within(async {
            while near.info().expect("open").subflows.len() < 2 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        carry(&mut near, &mut far, 500_000).await;
        let told = net.client.path_limit(slow).expect("a path").expect("set");
        assert!(told.sent < 200_000, "{told:?}");
        net.client.limit_path(slow, None).expect("a path");
    }
}
