//! The driver against the real kernel, in namespaces that the tests make themselves. Skipped, with the reason, where
//! they are forbidden.

mod common;

use common::{Lab, addr, kernel_echo, kernel_mptcp_connect, kernel_mptcp_listener, pattern, run};
use manypath_io::device::tun::{self, TunConfig};
use manypath_io::{Attach, Builder, Connect, DeviceAddress, Host, MpListener};
use manypath_stack::{ConnInfo, ConnOptions, ProtocolLevel, SubflowInfo, SubflowPhase};
use std::io::{self, Read, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A stack in the calling thread's namespace with these paths.
fn stack(paths: &[&str]) -> Builder {
    Host::builder().paths(paths.iter().map(|p| p.parse().expect("a good path")))
}

/// Sends `len` bytes to an echo server, half of them before and half after `subflows` subflows are up (a peer takes no
/// joins once it has everything), checks what comes back, and tells how the connection was when everything was sent.
async fn through_echo(
    host: &Host,
    server: &str,
    len: usize,
    subflows: usize,
) -> io::Result<ConnInfo> {
    let mut stream = Connect::new(host).connect(addr(server)).await?;
    let sent = pattern(len);
    stream.write_all(&sent[..len / 2]).await?;
    let up = |info: &ConnInfo| {
        let established = |s: &&SubflowInfo| s.phase == SubflowPhase::Established;
        info.subflows.iter().filter(established).count() >= subflows
    };
    // Now, while it has subflows: the peer may have finished when the first byte is read.
    let mut info = None;
    until(|| {
        info = stream.info().ok().filter(up);
        info.is_some()
    })
    .await;
    let (mut reading, mut writing) = stream.into_split();
    let rest = sent[len / 2..].to_vec();
    let writer = tokio::spawn(async move {
        writing.write_all(&rest).await?;
        writing.shutdown().await
    });
    let mut got = Vec::with_capacity(len);
    reading.read_to_end(&mut got).await?;
    let level = reading.info()?.level;
    writer.await.expect("the writer does not panic")?;
    assert!(got == sent, "{} of {len} bytes came back", got.len());
    let info = info.expect("it was waited for");
    Ok(ConnInfo { level, ..info })
}

/// Waits until `what` holds; the caller's time limit ends it.
async fn until(mut what: impl FnMut() -> bool) {
    while !what() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn start_kernel_echo(
    lab: &Lab,
    at: &str,
    connections: usize,
) -> std::thread::JoinHandle<io::Result<()>> {
    let at = addr(at);
    let listener = lab
        .kernel
        .run(move || kernel_mptcp_listener(at))
        .expect("a listener of the kernel");
    lab.kernel.start(move || kernel_echo(listener, connections))
}

#[test]
fn owned_addresses_over_two_cables() {
    let Some(lab) = Lab::new(2) else { return };
    for offload in [true, false] {
        let server = start_kernel_echo(&lab, "0.0.0.0:5000", 1);
        let info = lab.ours.block_on(move || async move {
            let host = stack(&["v1=10.77.1.10", "v2=10.77.2.10"])
                .attach(Attach::Packet)
                .offload(offload)
                .build()
                .expect("a stack");
            through_echo(&host, "10.77.1.1:5000", 5_000_000, 2).await
        });
        let info = info.expect("an echo");
        assert_eq!(info.level, ProtocolLevel::Multipath);
        assert_eq!(info.subflows.len(), 2, "{:?}", info.subflows);
        server.join().expect("no panic").expect("the kernel served");
    }
}

#[test]
fn owned_addresses_over_ipv6() {
    let Some(lab) = Lab::new(1) else { return };
    let server = start_kernel_echo(&lab, "[::]:5000", 1);
    let info = lab.ours.block_on(|| async {
        let host = stack(&["v1=fd77:1::10/64"])
            .attach(Attach::Packet)
            .build()
            .expect("a stack");
        through_echo(&host, "[fd77:1::1]:5000", 1_000_000, 1).await
    });
    assert_eq!(info.expect("an echo").level, ProtocolLevel::Multipath);
    server.join().expect("no panic").expect("the kernel served");
}

#[test]
fn shared_addresses_leave_the_host_as_it_was() {
    let Some(lab) = Lab::new(2) else { return };
    lab.address_ours(2);
    let reserved = || run("sysctl -n net.ipv4.ip_local_reserved_ports");
    let before = lab.ours.run(reserved);
    let server = start_kernel_echo(&lab, "0.0.0.0:5000", 1);
    let (info, rules, during) = lab.ours.block_on(move || async move {
        let host = stack(&["v1", "v2"])
            .attach(Attach::Packet)
            .build()
            .expect("a stack");
        let info = through_echo(&host, "10.77.1.1:5000", 5_000_000, 2).await;
        (info, run("nft list ruleset"), reserved())
    });
    let info = info.expect("an echo");
    assert_eq!(info.level, ProtocolLevel::Multipath);
    assert!(info.subflows.len() >= 2, "{:?}", info.subflows);
    assert!(rules.contains("tcp dport"), "{rules}");
    assert_ne!(during, before);
    assert_eq!(lab.ours.run(|| run("nft list ruleset")), "");
    assert_eq!(lab.ours.run(reserved), before);
    server.join().expect("no panic").expect("the kernel served");
}

#[test]
fn tun_behind_the_kernels_translation() {
    if !common::tun_is_allowed() {
        return;
    }
    let Some(lab) = Lab::new(2) else { return };
    lab.address_ours(2);
    for offload in [true, false] {
        let server = start_kernel_echo(&lab, "0.0.0.0:5000", 1);
        let (info, devices) = lab.ours.block_on(move || async move {
            let host = stack(&["v1=10.77.1.2", "v2=10.77.2.2"])
                .attach(Attach::Tun)
                .offload(offload)
                .build()
                .expect("a stack");
            let info = through_echo(&host, "10.77.1.1:5000", 5_000_000, 2).await;
            (info, host.devices())
        });
        let info = info.expect("an echo");
        assert_eq!(info.level, ProtocolLevel::Multipath);
        assert_eq!(info.subflows.len(), 2, "{:?}", info.subflows);
        assert_eq!(devices.len(), 1);
        server.join().expect("no panic").expect("the kernel served");
        assert_eq!(lab.ours.run(|| run("nft list ruleset")), "");
        let rules = lab.ours.run(|| run("ip rule"));
        assert!(!rules.contains("198.18."), "{rules}");
        let forwarding = lab
            .ours
            .run(|| run("sysctl -n net.ipv4.conf.v1.forwarding"));
        assert_eq!(forwarding.trim(), "0");
    }
}

/// The kernel connects to us; we send back what it sends.
fn serve_kernel(lab: &Lab, paths: &'static [&'static str], attach: Attach, at: &'static str) {
    let (ready, when_ready) = std::sync::mpsc::channel();
    let client = lab.kernel.start(move || -> io::Result<Vec<u8>> {
        when_ready.recv().map_err(io::Error::other)?;
        let mut stream = kernel_mptcp_connect(addr(at))?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.write_all(&pattern(1_000_000))?;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        Ok(got)
    });
    let level = lab.ours.block_on(move || async move {
        let host = stack(paths).attach(attach).build().expect("a stack");
        let port = addr(at).port();
        let listener =
            MpListener::bind(&host, addr(&format!("0.0.0.0:{port}"))).expect("a free port");
        ready.send(()).expect("the client waits");
        let (mut stream, _) = listener.accept().await?;
        let level = stream.info()?.level;
        let mut all = Vec::new();
        stream.read_to_end(&mut all).await?;
        stream.write_all(&all).await?;
        stream.shutdown().await?;
        drop(stream);
        host.close(Duration::from_secs(5)).await;
        io::Result::Ok(level)
    });
    let got = client
        .join()
        .expect("no panic")
        .expect("the kernel's client");
    assert!(got == pattern(1_000_000), "{} bytes", got.len());
    assert_eq!(
        level.expect("a served connection"),
        ProtocolLevel::Multipath
    );
}

#[test]
fn kernel_connects_to_an_owned_address() {
    let Some(lab) = Lab::new(1) else { return };
    serve_kernel(&lab, &["v1=10.77.1.10"], Attach::Packet, "10.77.1.10:80");
}

#[test]
fn kernel_connects_to_a_shared_address() {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    serve_kernel(&lab, &["v1=10.77.1.2"], Attach::Packet, "10.77.1.2:80");
}

#[test]
fn kernel_connects_through_translation() {
    if !common::tun_is_allowed() {
        return;
    }
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    serve_kernel(&lab, &["v1=10.77.1.2"], Attach::Tun, "10.77.1.2:80");
}

#[test]
fn a_port_of_the_host_is_refused() {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    let kind = lab.ours.block_on(|| async {
        let _host = std::net::TcpListener::bind("10.77.1.2:80").expect("a free port");
        let host = stack(&["v1=10.77.1.2"])
            .attach(Attach::Packet)
            .build()
            .expect("a stack");
        MpListener::bind(&host, addr("0.0.0.0:80"))
            .map(|_| ())
            .map_err(|e| e.kind())
    });
    assert_eq!(kind, Err(io::ErrorKind::AddrInUse));
}

#[test]
fn an_address_of_another_host_is_refused() {
    let Some(lab) = Lab::new(1) else { return };
    for path in ["v1=10.77.1.1", "v1=fd77:1::1"] {
        let error = lab
            .ours
            .block_on(
                move || async move { stack(&[path]).attach(Attach::Packet).build().map(|_| ()) },
            )
            .expect_err("the kernel's host has it");
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "{error}");
    }
}

#[test]
fn a_tun_device_without_translation() {
    if !common::tun_is_allowed() {
        return;
    }
    let Some(lab) = Lab::new(1) else { return };
    // Both ends are in one namespace: the kernel's side of the device is the peer.
    lab.ours.run(|| run("ip addr add 10.99.0.1/32 dev lo"));
    // The second round has a port of its own: the first one's connection may still be in TIME-WAIT.
    for (offload, target) in [(true, "10.99.0.1:5000"), (false, "10.99.0.1:5001")] {
        let level = lab.ours.block_on(move || async move {
            let peer = addr(target);
            let listener = common::kernel_mptcp_listener(peer)?;
            let server = std::thread::spawn(move || kernel_echo(listener, 1));
            let device = tun::open_direct(
                &TunConfig {
                    name: "direct%d".into(),
                    mtu: 1400,
                    offload,
                },
                peer.ip(),
                24,
            )?;
            let host = Host::builder()
                .device(
                    device,
                    vec![DeviceAddress::new("10.99.0.2".parse().expect("a literal"))],
                )
                .build()?;
            let info = through_echo(&host, target, 3_000_000, 1).await?;
            server.join().expect("no panic")?;
            io::Result::Ok(info.level)
        });
        assert_eq!(level.expect("an echo"), ProtocolLevel::Multipath);
    }
}

#[test]
fn missing_paths_are_clear_errors() {
    let Some(lab) = Lab::new(1) else { return };
    for (path, kind, text) in [
        ("nosuch0", io::ErrorKind::NotFound, "no interface nosuch0"),
        ("v1", io::ErrorKind::AddrNotAvailable, "no usable address"),
    ] {
        let error = lab
            .ours
            .block_on(move || async move { stack(&[path]).build().map(|_| ()) })
            .expect_err("no such path");
        assert_eq!(error.kind(), kind);
        assert!(error.to_string().contains(text), "{error}");
    }
    lab.ours.run(|| run("ip link set v1 down"));
    let error = lab
        .ours
        .block_on(|| async { stack(&["v1=10.77.1.10"]).build().map(|_| ()) })
        .expect_err("the link is down");
    assert_eq!(error.kind(), io::ErrorKind::NetworkDown);
}

#[test]
fn nobody_listens_or_answers() {
    let Some(lab) = Lab::new(1) else { return };
    let kinds = lab.ours.block_on(|| async {
        let host = stack(&["v1=10.77.1.10"])
            .attach(Attach::Packet)
            .build()
            .expect("a stack");
        let refused = Connect::new(&host).connect(addr("10.77.1.1:9")).await;
        let no_family = Connect::new(&host).connect(addr("[fd77:1::1]:9")).await;
        (
            refused.map(|_| ()).map_err(|e| e.kind()),
            no_family.map(|_| ()).map_err(|e| e.kind()),
        )
    });
    assert_eq!(kinds.0, Err(io::ErrorKind::ConnectionRefused));
    assert_eq!(kinds.1, Err(io::ErrorKind::NetworkUnreachable));
}

#[test]
fn a_cable_that_comes_later_carries_a_subflow() {
    let Some(lab) = Lab::new(2) else { return };
    lab.address_ours(2);
    lab.ours.run(|| {
        run("ip route add default via 10.77.1.1 dev v1");
        run("ip link set v2 down")
    });
    let server = start_kernel_echo(&lab, "0.0.0.0:5000", 1);
    let result = lab.ours.block_on(|| async {
        let host = Host::builder()
            .attach(Attach::Packet)
            .conn_options(ConnOptions {
                path_manager: manypath_stack::PathManager::FullMesh,
                ..ConnOptions::default()
            })
            .build()
            .expect("a stack");
        assert_eq!(host.paths().len(), 1);
        let mut stream = Connect::new(&host).connect(addr("10.77.1.1:5000")).await?;
        stream.write_all(b"first").await?;
        until(|| stream.info().is_ok_and(|i| i.bytes_acked == 5)).await;
        run("ip link set v2 up");
        run("ip route add default via 10.77.2.1 dev v2 metric 7");
        until(|| host.paths().len() == 2).await;
        until(|| stream.info().is_ok_and(|i| i.subflows.len() == 2)).await;
        run("ip link set v1 down");
        until(|| host.paths().len() == 1).await;
        stream.write_all(b" second").await?;
        stream.shutdown().await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        io::Result::Ok(text)
    });
    assert_eq!(
        result.expect("it survives the change of cables"),
        "first second"
    );
    server.join().expect("no panic").expect("the kernel served");
}

/// What a crash leaves behind, made by the test below in a process of its own.
#[test]
#[ignore = "started by a_crash_leaves_nothing_for_long"]
fn crash_victim() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let _packet = stack(&["v1=10.77.1.2"])
            .attach(Attach::Packet)
            .build()
            .expect("a stack");
        let _tun = stack(&["v1=10.77.1.2"])
            .attach(Attach::Tun)
            .build()
            .expect("a stack");
        std::process::abort();
    });
}

#[test]
fn a_crash_leaves_nothing_for_long() {
    if !common::tun_is_allowed() {
        return;
    }
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    lab.ours.run(|| {
        let state = || {
            (
                run("nft list ruleset"),
                run("ip rule"),
                run("sysctl -n net.ipv4.ip_local_reserved_ports"),
                run("sysctl -n net.ipv4.conf.v1.forwarding"),
            )
        };
        let before = state();
        let status = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args(["--ignored", "--exact", "crash_victim"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .expect("it runs");
        assert!(!status.success());
        let after = state();
        assert!(
            after.1.contains("198.18."),
            "the victim changed something: {}",
            after.1
        );
        manypath_host::clean_up().expect("a place for journals");
        assert_eq!(state(), before);
    });
}

/// A program that writes and ends, as one may with the kernel's sockets. Its runtime has one thread, which is busy dropping.
fn write_and_end(attach: Attach, paths: &'static [&'static str]) {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    let (ready, when_ready) = std::sync::mpsc::channel();
    let reader = lab.kernel.start(move || -> io::Result<Vec<u8>> {
        let listener = kernel_mptcp_listener(addr("0.0.0.0:5000"))?;
        ready.send(()).map_err(io::Error::other)?;
        let (mut stream, _) = listener.accept()?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let mut got = Vec::new();
        stream.read_to_end(&mut got)?;
        Ok(got)
    });
    when_ready.recv().expect("it listens");
    lab.ours.block_on(move || async move {
        let host = stack(paths).attach(attach).build().expect("a stack");
        let mut stream = Connect::new(&host)
            .connect(addr("10.77.1.1:5000"))
            .await
            .expect("connected");
        stream.write_all(&pattern(4_000_000)).await.expect("room");
    });
    let got = reader.join().expect("no panic").expect("an end in order");
    assert!(got == pattern(4_000_000), "{} bytes", got.len());
}

#[test]
fn a_program_that_writes_and_ends_loses_nothing() {
    write_and_end(Attach::Packet, &["v1"]);
    if common::tun_is_allowed() {
        write_and_end(Attach::Tun, &["v1"]);
    }
}

/// What others do to the firewall is undone at once where the kernel lets them do it (before Linux 5.12).
#[test]
fn rules_that_somebody_flushes_are_put_back() {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    lab.ours.block_on(|| async {
        let build = stack(&["v1"]).attach(Attach::Packet).exposed_tables(true);
        let host = build.build().expect("a stack");
        let _listener = MpListener::bind(&host, addr("0.0.0.0:80")).expect("a free port");
        let ruleset = || run("nft list ruleset");
        let before = ruleset();
        let name = before
            .lines()
            .find_map(|l| l.strip_prefix("table inet ")?.strip_suffix(" {"))
            .expect("it is in force");
        let deeds = [
            "nft flush ruleset".to_owned(),
            format!("nft delete table inet {name}"),
            format!("nft flush chain inet {name} guard0"),
        ];
        let mut times = Vec::new();
        for (n, deed) in (1..).zip(deeds.iter().cycle().take(9)) {
            // On a thread of its own: the driver has this one.
            let (deed, before) = (deed.clone(), before.clone());
            let away = tokio::task::spawn_blocking(move || {
                run(&deed);
                let begin = std::time::Instant::now();
                while ruleset() != before {
                    assert!(begin.elapsed() < Duration::from_secs(20), "{deed}");
                }
                begin.elapsed()
            });
            times.push(away.await.expect("it comes back"));
            assert_eq!(host.repairs(), n);
        }
        times.sort();
        println!("rules were back after {times:?}");
        // A look takes some milliseconds itself, and other tests run beside this one.
        let median = times[times.len() / 2];
        assert!(median < Duration::from_millis(100), "{times:?}");
    });
}
