//! Many short connections, one after the other and at one time: none fails, and the memory that they took comes back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use manypath_tests::net::{Family, Net, Own};
use manypath_tests::pair::{Plan, Role, Route};
use manypath_tests::{amount, peer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use Family::V4;

const REQUEST: [u8; 64] = [b'?'; 64];
const RESPONSE: usize = 5000;
/// The first part of it.
const HEAD: usize = 100;

/// What the memory of the forwarder may have grown by when everything is over, beside the notes about closed
/// connections (TIME-WAIT) that it keeps for a while: pages that are not empty, since something small in them stays. They are more where
/// others compete for the processors, and no more after four bursts than after one.
const SLACK: u64 = 6 << 20;
/// Memory of such a note, and of what the tables for them need.
const NOTE: u64 = 300;

/// What the guard of the host's own addresses keeps of a subflow beside it: its four-tuple, until those that ended are looked
/// through, which is when there are twice as many as live.
const GUARDED: u64 = 200;

/// Memory of the notes about so many closed connections, each of two subflows.
fn notes(own: Own, connections: u64) -> u64 {
    let each = match own {
        Own::Shared | Own::Named => NOTE + GUARDED,
        Own::Owned => NOTE,
    };
    2 * each * connections
}

fn response(number: u64) -> Vec<u8> {
    let mut bytes = vec![b'.'; RESPONSE];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn request(number: u64) -> [u8; 64] {
    let mut bytes = REQUEST;
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// Asks and checks the answer, whose second part is asked for when the first one is there: the last data is not the first, and
/// leaves when there are two subflows.
fn ask(mut stream: TcpStream, number: u64) -> std::io::Result<()> {
    stream.write_all(&request(number))?;
    let mut got = vec![0; RESPONSE];
    stream.read_exact(&mut got[..HEAD])?;
    stream.write_all(b"+")?;
    stream.read_exact(&mut got[HEAD..])?;
    assert!(got == response(number), "another connection's answer");
    if number % 2 == 0 {
        // The server closes first.
        assert_eq!(stream.read(&mut got)?, 0);
    }
    Ok(())
}

fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    let mut got = [0; 64];
    stream.read_exact(&mut got)?;
    let number = u64::from_le_bytes(got[..8].try_into().expect("eight bytes"));
    let answer = response(number);
    stream.write_all(&answer[..HEAD])?;
    stream.read_exact(&mut got[..1])?;
    stream.write_all(&answer[HEAD..])?;
    if number % 2 == 1 {
        assert_eq!(stream.read(&mut got)?, 0);
    }
    Ok(())
}

fn consecutive(role: Role, own: Own) {
    let count = amount("MANYPATH_CONSECUTIVE", 10_000, 10_000);
    let Some(net) = Net::new(2) else { return };
    let plan = Plan {
        own,
        ..Plan::new(&[V4, V4])
    };
    let mut route = Route::open(&net, role, plan);
    let listener = route.listener().try_clone().expect("a descriptor is free");
    let server = std::thread::spawn(move || -> Result<(), String> {
        for n in 0..count {
            peer::accept(&listener)
                .and_then(answer)
                .map_err(|error| format!("answer {n}: {error}"))?;
        }
        Ok(())
    });
    let warm = count / 2;
    let mut memory_before = 0;
    let mut slowest = (0, Duration::ZERO);
    let started = Instant::now();
    for n in 0..count {
        if n == warm {
            route.program.wait_until_idle();
            memory_before = route.program.memory();
        }
        let begun = Instant::now();
        let result = route.connect().and_then(|stream| ask(stream, n));
        if begun.elapsed() > slowest.1 {
            slowest = (n, begun.elapsed());
        }
        if let Err(error) = result {
            panic!("connection {n}: {error}; {}", route.program.said());
        }
    }
    let took = started.elapsed();
    server.join().expect("no panic").expect("all were answered");
    route.program.wait_until_idle();
    let allowed = memory_before + SLACK + notes(own, count - warm);
    let memory_after = route.program.wait_until_small(allowed);
    println!(
        "{role:?} {own:?}: {count} connections in {took:?}, slowest {slowest:?}, memory {} KB after {warm}, {} KB at the end",
        memory_before >> 10,
        memory_after >> 10
    );
    let said = route.program.interrupt();
    let all = format!("{count} connections ({count} to the end, 0 broken, 0 could not");
    assert!(said.contains(&all), "{said}");
}

/// How often.
const BURSTS: usize = 4;

/// As many connections as wanted, of which none is answered before all of them have asked.
fn at_once(role: Role, own: Own) {
    let count = usize::try_from(amount("MANYPATH_AT_ONCE", 1000, 1000)).expect("a small number");
    let Some(net) = Net::new(2) else { return };
    let plan = Plan {
        own,
        ..Plan::new(&[V4, V4])
    };
    let mut route = Route::open(&net, role, plan);
    let before = route.program.memory();
    let mut kilobytes = vec![before >> 10];
    for n in 1..=BURSTS {
        let peak = burst(&mut route, count);
        route.program.wait_until_idle();
        let allowed = before + SLACK + notes(own, (n * count) as u64);
        assert!(peak > allowed, "{peak} bytes, so that nothing is tested");
        let after = route.program.wait_until_small(allowed);
        kilobytes.extend([peak >> 10, after >> 10]);
    }
    println!(
        "{role:?} {own:?}: {BURSTS} times {count}: memory before, at each peak and after it: {kilobytes:?} KB"
    );
    let said = route.program.interrupt();
    let all = format!(
        "{0} connections ({0} to the end, 0 broken, 0 could not",
        BURSTS * count
    );
    assert!(said.contains(&all), "{said}");
}

fn burst(route: &mut Route<'_>, count: usize) -> u64 {
    let listener = route.listener().try_clone().expect("a descriptor is free");
    let target = route.target();
    let sockets = route.sockets(count);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let asked = Arc::new(tokio::sync::Barrier::new(count + 1));
    let measured = Arc::new(tokio::sync::Barrier::new(count + 1));
    let (a, m) = (Arc::clone(&asked), Arc::clone(&measured));
    let everything = async move {
        listener.set_nonblocking(true).expect("it is a socket");
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is a listener");
        let mut tasks = tokio::task::JoinSet::new();
        for (number, socket) in (0..).zip(sockets) {
            tasks.spawn(async move {
                let socket = tokio::net::TcpSocket::from_std_stream(socket);
                let mut stream = socket.connect(target).await?;
                stream.write_all(&request(number)).await?;
                let mut got = Vec::new();
                stream.read_to_end(&mut got).await?;
                assert!(got == response(number), "{} bytes", got.len());
                std::io::Result::Ok(())
            });
        }
        for _ in 0..count {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let (asked, measured) = (Arc::clone(&a), Arc::clone(&m));
            tasks.spawn(async move {
                let mut got = [0; 64];
                stream.read_exact(&mut got).await?;
                asked.wait().await;
                measured.wait().await;
                let number = u64::from_le_bytes(got[..8].try_into().expect("eight bytes"));
                stream.write_all(&response(number)).await?;
                std::io::Result::Ok(())
            });
        }
        tasks
    };
    runtime.block_on(async {
        let patience = Duration::from_secs(60);
        let work = async {
            let mut tasks = everything.await;
            asked.wait().await;
            let peak = route.program.memory();
            measured.wait().await;
            while let Some(done) = tasks.join_next().await {
                done.expect("no panic").expect("none fails");
            }
            peak
        };
        match tokio::time::timeout(patience, work).await {
            Ok(peak) => peak,
            Err(_) => panic!("not all came through; {}", route.program.said()),
        }
    })
}

#[test]
fn consecutive_connections_to_the_kernel() {
    consecutive(Role::Client, Own::Owned);
}

#[test]
fn consecutive_connections_to_the_kernel_from_the_hosts_own_addresses() {
    consecutive(Role::Client, Own::Shared);
}

#[test]
fn consecutive_connections_from_the_kernel() {
    consecutive(Role::Server, Own::Owned);
}

#[test]
fn connections_at_once_to_the_kernel() {
    at_once(Role::Client, Own::Shared);
}

#[test]
fn connections_at_once_from_the_kernel() {
    at_once(Role::Server, Own::Owned);
}
