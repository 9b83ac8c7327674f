//! How connections open with the kernel at the other end: data in the SYN, and servers that do not remember SYNs.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use manypath_io::{Attach, Connect, Host, MpListener};
use manypath_lab::kernel::Counters;
use manypath_stack::{
    ConnInfo, ConnOptions, ProtocolLevel, StackConfig, SubflowPhase, SynCookiePolicy,
};
use manypath_tests::net::{Family, Net, Own};
use manypath_tests::peer::{self, Speaks};
use manypath_tests::until::{until, wait_for};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use Family::V4;

const PORT: u16 = 5000;
/// What the first connection says, which has to ask for a cookie, and what goes with the SYN of the second.
const EARLY: [&[u8]; 2] = [
    b"nothing is known of each other yet",
    b"this goes with the SYN",
];
/// What follows in the ordinary way.
static LATE: [u8; 20_000] = [b'.'; 20_000];
/// Client, server, and every listener without asking (Linux, `ip-sysctl`, `tcp_fastopen`).
const FAST_OPEN: &str = "1027";

fn kernel_at() -> SocketAddr {
    SocketAddr::new(Net::kernel_address(V4, 1), PORT)
}

fn ours_at() -> SocketAddr {
    SocketAddr::new(Net::our_address(V4, Own::Owned, 1), PORT)
}

/// Runs a future where our stack lives.
fn block_on<F, R>(net: &Net, what: impl FnOnce() -> F + Send + 'static) -> R
where
    F: Future<Output = io::Result<R>>,
    R: Send + 'static,
{
    let result = net.ours.run(|| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?
            .block_on(async { tokio::time::timeout(Duration::from_secs(60), what()).await })?
    });
    result.expect("it ends well and in time")
}

/// Our stack on the first cables, on addresses of its own.
fn host(cables: u8, config: StackConfig, conn: ConnOptions) -> io::Result<Host> {
    let paths = (1..=cables).map(|n| Net::path(V4, Own::Owned, n));
    Host::builder()
        .paths(paths.map(|path| path.parse().expect("a path")))
        .attach(Attach::Packet)
        .stack_config(config)
        .accept_options(conn.clone())
        .conn_options(ConnOptions {
            path_manager: manypath_stack::PathManager::FullMesh,
            ..conn
        })
        .build()
}

fn fast_open() -> ConnOptions {
    ConnOptions {
        fast_open: true,
        ..ConnOptions::default()
    }
}

fn cookies(syn_cookies: SynCookiePolicy) -> StackConfig {
    StackConfig {
        syn_cookies,
        ..StackConfig::default()
    }
}

/// The kernel sends back what it reads, on so many connections, and then says its end.
fn kernel_echo(net: &Net, connections: usize) -> std::thread::JoinHandle<io::Result<()>> {
    let any = SocketAddr::from(([0, 0, 0, 0], PORT));
    let listener = peer::listen(&net.kernel, any, Speaks::Mptcp);
    std::thread::spawn(move || {
        for _ in 0..connections {
            let mut stream = peer::accept(&listener)?;
            let mut all = Vec::new();
            stream.read_to_end(&mut all)?;
            stream.write_all(&all)?;
            stream.shutdown(Shutdown::Write)?;
        }
        Ok(())
    })
}

/// Our stack does so, and tells how it saw each connection when it had read everything.
async fn our_echo(listener: &MpListener, connections: usize) -> io::Result<Vec<ConnInfo>> {
    let mut infos = Vec::new();
    for _ in 0..connections {
        let (mut stream, _) = listener.accept().await?;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        infos.push(stream.info()?);
        stream.write_all(&all).await?;
        stream.shutdown().await?;
        // The stack ends with the test, so nothing may be left to send.
        until("everything to be acknowledged", || {
            stream.info().is_ok_and(|info| info.send_queue == 0)
        })
        .await;
    }
    Ok(infos)
}

fn established(info: &ConnInfo) -> usize {
    let up = |phase: SubflowPhase| phase == SubflowPhase::Established;
    info.subflows.iter().filter(|s| up(s.phase)).count()
}

/// Writes what comes after `early`, and checks that all of it comes back, and then the end.
fn ask_more(mut stream: TcpStream, early: &[u8]) -> io::Result<()> {
    stream.write_all(&LATE)?;
    stream.shutdown(Shutdown::Write)?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got)?;
    assert!(
        got == [early, &LATE].concat(),
        "{} bytes came back",
        got.len()
    );
    Ok(())
}

/// The kernel has found nothing to fall back for.
fn assert_no_fallback(net: &Net, before: &Counters) {
    let grown = net.counters().since(before);
    let wrong = |name: &&String| name.starts_with("MPTcpExt") && name.contains("Fallback");
    assert_eq!(grown.keys().find(wrong), None, "{grown:?}");
}

#[test]
fn our_syn_takes_data_along_to_the_kernel() {
    // rfc8684:O2,O3
    let Some(net) = Net::new(1) else { return };
    net.kernel
        .sysctl("net.ipv4.tcp_fastopen", FAST_OPEN)
        .expect("it is ours");
    let before = net.counters();
    let server = kernel_echo(&net, EARLY.len());
    let (levels, count) = block_on(&net, || async {
        let host = host(1, StackConfig::default(), fast_open())?;
        let mut levels = Vec::new();
        for early in EARLY {
            let connect = Connect::new(&host);
            let (mut stream, taken) = connect.connect_with(kernel_at(), early).await?;
            assert_eq!(taken, early.len());
            stream.write_all(&LATE).await?;
            stream.shutdown().await?;
            let mut got = Vec::new();
            stream.read_to_end(&mut got).await?;
            assert!(
                got == [early, &LATE].concat(),
                "{} bytes came back",
                got.len()
            );
            levels.push(stream.info()?.level);
        }
        Ok((levels, host.counters()))
    });
    server.join().expect("no panic").expect("the kernel served");
    assert_eq!(levels, [ProtocolLevel::Multipath; 2]);
    assert_eq!((count.fast_open_cookie, count.fast_open_sent), (1, 1));
    assert_eq!(count.fast_open_taken, 1);
    let grown = net.counters().since(&before);
    assert_eq!(grown.get("TcpExtTCPFastOpenPassive"), Some(&1), "{grown:?}");
    assert_no_fallback(&net, &before);
}

#[test]
fn the_kernels_syn_brings_data_along() {
    // rfc8684:O2,O3,O5
    let Some(net) = Net::new(1) else { return };
    net.kernel
        .sysctl("net.ipv4.tcp_fastopen", FAST_OPEN)
        .expect("it is ours");
    let before = net.counters();
    let (tell, told) = std::sync::mpsc::channel();
    let (infos, count) = std::thread::scope(|scope| {
        let net = &net;
        let server = scope.spawn(move || {
            block_on(net, move || async move {
                let host = host(1, StackConfig::default(), fast_open())?;
                let listener = MpListener::bind(&host, ours_at())?;
                tell.send(()).expect("somebody waits for it");
                let infos = our_echo(&listener, EARLY.len()).await?;
                Ok((infos, host.counters()))
            })
        });
        told.recv().expect("the server starts");
        for early in EARLY {
            let stream = peer::connect_early(&net.kernel, ours_at(), early).expect("it connects");
            ask_more(stream, early).expect("an echo");
        }
        server.join().expect("no panic")
    });
    assert!(
        infos
            .iter()
            .all(|info| info.level == ProtocolLevel::Multipath),
        "{infos:?}"
    );
    assert_eq!((count.fast_open_granted, count.fast_open_accepted), (1, 1));
    let grown = net.counters().since(&before);
    assert_eq!(grown.get("TcpExtTCPFastOpenActive"), Some(&1), "{grown:?}");
    assert_no_fallback(&net, &before);
}

#[test]
fn a_server_that_forgot_its_cookies_does_not_keep_the_kernel_waiting() {
    // rfc8684:C31,O4: Linux repeats what was refused without keys and mapping.
    let Some(net) = Net::new(1) else { return };
    net.kernel
        .sysctl("net.ipv4.tcp_fastopen", FAST_OPEN)
        .expect("it is ours");
    let (tell, told) = std::sync::mpsc::channel();
    let count = std::thread::scope(|scope| {
        let net = &net;
        let server = scope.spawn(move || {
            block_on(net, move || async move {
                let mut counts = Vec::new();
                for _ in EARLY {
                    let host = host(1, StackConfig::default(), fast_open())?;
                    let listener = MpListener::bind(&host, ours_at())?;
                    tell.send(()).expect("somebody waits for it");
                    our_echo(&listener, 1).await?;
                    counts.push(host.counters());
                }
                Ok(counts)
            })
        });
        for early in EARLY {
            told.recv().expect("the server starts");
            let stream = peer::connect_early(&net.kernel, ours_at(), early).expect("it connects");
            ask_more(stream, early).expect("an echo");
        }
        server.join().expect("no panic")
    });
    let granted = count.iter().map(|count| count.fast_open_granted);
    assert_eq!(granted.collect::<Vec<_>>(), [1, 1]);
    assert_eq!(count[1].fast_open_refused, 1);
}

#[test]
fn cookies_of_ours_keep_the_kernels_multipath_and_its_joins() {
    // rfc8684:C7
    let Some(net) = Net::new(2) else { return };
    net.add_endpoint(Net::kernel_address(V4, 2), 2, "subflow");
    let before = net.counters();
    let (tell, told) = std::sync::mpsc::channel();
    let (infos, count) = std::thread::scope(|scope| {
        let net = &net;
        let server = scope.spawn(move || {
            block_on(net, move || async move {
                let host = host(2, cookies(SynCookiePolicy::Always), ConnOptions::default())?;
                let listener = MpListener::bind(&host, ours_at())?;
                tell.send(()).expect("somebody waits for it");
                let infos = our_echo(&listener, 1).await?;
                Ok((infos, host.counters()))
            })
        });
        told.recv().expect("the server starts");
        let mut stream = peer::connect(&net.kernel, ours_at(), Speaks::Mptcp).expect("it connects");
        stream.write_all(EARLY[0]).expect("it is open");
        wait_for("the kernel's second subflow", || {
            (net.counters().since(&before).get("MPTcpExtMPJoinSynAckRx") == Some(&1)).then_some(())
        });
        ask_more(stream, EARLY[0]).expect("an echo");
        server.join().expect("no panic")
    });
    assert_eq!(infos[0].level, ProtocolLevel::Multipath);
    assert_eq!(established(&infos[0]), 2, "{:?}", infos[0].subflows);
    assert_eq!((count.syn_cookie_sent, count.syn_cookie_accepted), (1, 1));
    assert_no_fallback(&net, &before);
}

#[test]
fn more_kernels_than_the_backlog_holds_are_served_by_cookies() {
    // rfc8684:C7,C31
    const CLIENTS: usize = 64;
    const BACKLOG: usize = 16;
    let Some(net) = Net::new(1) else { return };
    let streams = peer::sockets(&net.kernel, ours_at(), Speaks::Mptcp, CLIENTS);
    let (infos, count) = block_on(&net, move || async move {
        let config = cookies(SynCookiePolicy::WhenFull);
        let host = host(1, config, ConnOptions::default())?;
        let options = ConnOptions::default();
        let listener = MpListener::bind_with(&host, ours_at(), BACKLOG, options)?;
        // Our stack runs on this thread, so it sees none of the SYNs before all of them are there.
        for stream in &streams {
            let called = socket2::SockRef::from(stream).connect(&ours_at().into());
            let error = called.expect_err("it does not wait").raw_os_error();
            assert_eq!(error, Some(nix::libc::EINPROGRESS));
        }
        let clients: Vec<_> = streams.into_iter().map(ask_in_time).collect();
        let infos = our_echo(&listener, CLIENTS).await?;
        for client in clients {
            client.join().expect("no panic")?;
        }
        Ok((infos, host.counters()))
    });
    // Those whose keys were dropped while the backlog was full go on as TCP, the others keep Multipath TCP.
    let is_multipath = |info: &&ConnInfo| info.level == ProtocolLevel::Multipath;
    let kept = infos.iter().filter(is_multipath).count();
    println!("{kept} of {CLIENTS} kept Multipath TCP");
    assert!(kept >= BACKLOG);
    assert!(
        count.syn_cookie_sent >= (CLIENTS - BACKLOG) as u64,
        "{count:?}"
    );
    assert_eq!(
        count.syn_accepted + count.syn_cookie_accepted,
        CLIENTS as u64
    );
}

/// [`ask_more`] on a thread of its own, as soon as the connection is there.
fn ask_in_time(stream: TcpStream) -> std::thread::JoinHandle<io::Result<()>> {
    std::thread::spawn(move || {
        stream.set_nonblocking(false)?;
        wait_for("the connection", || stream.peer_addr().ok());
        ask_more(stream, b"")
    })
}

#[test]
fn cookies_of_the_kernel_keep_our_multipath_and_our_joins() {
    // rfc8684:C9,C10
    let Some(net) = Net::new(2) else { return };
    net.kernel
        .sysctl("net.ipv4.tcp_syncookies", "2")
        .expect("it is ours");
    let before = net.counters();
    let server = kernel_echo(&net, 1);
    let info = block_on(&net, || async {
        let host = host(2, StackConfig::default(), ConnOptions::default())?;
        let mut stream = Connect::new(&host).connect(kernel_at()).await?;
        stream.write_all(EARLY[0]).await?;
        until("two subflows", || {
            stream.info().is_ok_and(|info| established(&info) == 2)
        })
        .await;
        stream.write_all(&LATE).await?;
        stream.shutdown().await?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got).await?;
        assert!(
            got == [EARLY[0], &LATE].concat(),
            "{} bytes came back",
            got.len()
        );
        stream.info()
    });
    server.join().expect("no panic").expect("the kernel served");
    assert_eq!(info.level, ProtocolLevel::Multipath);
    let grown = net.counters().since(&before);
    assert!(
        grown.get("TcpExtSyncookiesRecv").is_some_and(|n| *n >= 1),
        "{grown:?}"
    );
    assert_no_fallback(&net, &before);
}
