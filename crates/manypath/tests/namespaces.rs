//! The library on real packets: two hosts in network namespaces, joined by two cables, with the Linux kernel's Multipath TCP at the far end.

// The parts of other tests and examples that are not used here.
#![allow(dead_code, unreachable_pub)]

#[path = "../../io/tests/common/mod.rs"]
mod common;
#[path = "../examples/download.rs"]
mod download;
#[path = "../examples/hyper.rs"]
mod hyper_http;

use common::{Lab, addr, kernel_mptcp_listener, run};
use manypath::{Host, PathEvent};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn host() -> io::Result<Host> {
    let paths = ["v1=10.77.1.10", "v2=10.77.2.10"];
    Host::builder().paths(paths).build()
}

fn listener(lab: &Lab) -> TcpListener {
    let listener = lab
        .kernel
        .run(|| kernel_mptcp_listener(addr("0.0.0.0:5000")));
    listener.expect("a listener of the kernel")
}

/// Answers one request with a body of `bytes`.
fn serve_http(listener: TcpListener, bytes: usize) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {bytes}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(&vec![b'a'; bytes])
}

#[test]
fn hyper_asks_a_server_of_the_kernel() {
    let Some(lab) = Lab::new(2) else { return };
    let listener = listener(&lab);
    let server = lab.kernel.start(move || serve_http(listener, 2_000_000));
    let text = lab.ours.block_on(|| async {
        let host = host()?;
        let text = hyper_http::get(&host, "10.77.1.1:5000", "/document").await?;
        host.wait_idle().await;
        io::Result::Ok(text)
    });
    assert_eq!(text.expect("an answer").len(), 2_000_000);
    server.join().expect("no panic").expect("the kernel served");
}

#[test]
fn a_download_goes_on_when_a_cable_is_cut() {
    const BYTES: usize = 40_000_000;
    let Some(lab) = Lab::new(2) else { return };
    let listener = listener(&lab);
    let server = lab.kernel.start(move || {
        let (mut stream, _) = listener.accept()?;
        // What is heard from the client lets the kernel take joins (RFC 8684 section 3.1).
        stream.read_exact(&mut [0; 2])?;
        stream.write_all(b"go")?;
        stream.read_exact(&mut [0; 2])?;
        stream.write_all(&vec![b'a'; BYTES])
    });
    let (half, cut_now) = mpsc::channel::<()>();
    let cutter = lab.kernel.start(move || {
        if cut_now.recv().is_ok() {
            run("ip link set v1 down");
        }
    });
    let total = lab.ours.block_on(move || async move {
        let host = host()?;
        let mut stream = host.connect("10.77.1.1:5000").await?;
        let mut events = stream.path_events();
        stream.write_all(b"hi").await?;
        stream.read_exact(&mut [0; 2]).await?;
        while let Some(event) = events.next().await {
            if let PathEvent::SubflowUp { local, .. } = event
                && local.ip() == addr("10.77.2.10:0").ip()
            {
                break;
            }
        }
        stream.write_all(b"ok").await?;
        let mut half = Some(half);
        let total = download::download(&mut stream, &mut io::sink(), |total, _| {
            if total as usize > BYTES / 2
                && let Some(half) = half.take()
            {
                let _ = half.send(());
            }
        })
        .await?;
        stream.close().await?;
        io::Result::Ok(total)
    });
    assert_eq!(total.expect("all of it"), BYTES as u64);
    server.join().expect("no panic").expect("the kernel served");
    cutter.join().expect("the cable was cut");
}

/// What connecting to `to` from our own end of the cables says, how long that takes, and the host's troubles then.
fn refusal(lab: &Lab, to: &'static str) -> (io::Error, Duration, Vec<String>) {
    lab.ours.block_on(move || async move {
        let host = Host::builder().path("v1").build().expect("a host");
        let began = Instant::now();
        let refused = host.connect(to).await.expect_err("nobody is there");
        (refused, began.elapsed(), host.troubles())
    })
}

#[test]
fn without_a_route_the_network_is_unreachable_at_once() {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    let (error, took, troubles) = refusal(&lab, "192.0.2.1:80");
    assert_eq!(error.kind(), io::ErrorKind::NetworkUnreachable, "{error}");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    let told = |line: &&String| line.contains("v1 has no route to other networks");
    assert!(troubles.iter().any(|line| told(&line)), "{troubles:?}");
}

#[test]
fn a_neighbour_that_does_not_answer_makes_the_host_unreachable() {
    let Some(lab) = Lab::new(1) else { return };
    lab.address_ours(1);
    lab.ours.run(|| run("ip route add default via 10.77.1.77"));
    for to in ["10.77.1.99:80", "192.0.2.1:80"] {
        let (error, took, troubles) = refusal(&lab, to);
        assert_eq!(error.kind(), io::ErrorKind::HostUnreachable, "{to} {error}");
        assert!(took < Duration::from_secs(12), "{to} {took:?}");
        let told = troubles.iter().any(|line| line.contains("10.77.1.77"));
        assert_eq!(told, to.starts_with("192"), "{troubles:?}");
    }
}
