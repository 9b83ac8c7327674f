//! The emulated paths against the host's kernel: rate, delay and loss must be what was asked for.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use manypath_lab::emulator::{Buffer, Chance, LineConfig, Loss, Way};
use manypath_lab::netns::{Privilege, privilege};
use manypath_lab::testbed::{SERVER, TestPath, Testbed};
use manypath_tcp::units::Rate;

fn line(rate: u64, delay_ms: u64, buffer: Buffer) -> LineConfig {
    LineConfig {
        rate: Rate::from_bits_per_sec(rate),
        delay: manypath_tcp::time::Duration::from_millis(delay_ms),
        buffer,
        ..LineConfig::default()
    }
}

fn ms(millis: u64) -> Buffer {
    Buffer::Time(manypath_tcp::time::Duration::from_millis(millis))
}

fn bed(links: &[LineConfig]) -> Option<Testbed> {
    if let Privilege::Forbidden(why) = privilege() {
        eprintln!("skipped: {why}");
        return None;
    }
    let paths: Vec<TestPath> = links
        .iter()
        .zip(0..)
        .map(|(l, n)| TestPath {
            name: format!("path{n}"),
            up: l.clone(),
            down: l.clone(),
            boxes: None,
            far_boxes: None,
        })
        .collect();
    Some(Testbed::new("emu", &paths, "cubic", 1).expect("namespaces are permitted"))
}

/// Sends from the server for `time` over the path with this number; returns bits per second of IP packets measured
/// at the client over the second half, when the rate is steady.
fn tcp_rate(bed: &Testbed, path: usize, time: Duration) -> f64 {
    let listener = bed
        .server
        .run(|| TcpListener::bind((SERVER, 0)))
        .expect("our address");
    let address = listener.local_addr().expect("bound");
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let chunk = [0x55; 16_384];
        while stream.write_all(&chunk).is_ok() {}
    });
    let local = Testbed::client_address(path);
    let mut stream = bed
        .client
        .run(move || {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
            socket.bind(&std::net::SocketAddr::new(local, 0).into())?;
            socket.connect(&address.into())?;
            Ok::<TcpStream, std::io::Error>(socket.into())
        })
        .expect("reachable");
    let begin = Instant::now();
    let mut half = None;
    let mut total = 0_u64;
    let mut chunk = [0; 65_536];
    while begin.elapsed() < time {
        total += stream.read(&mut chunk).expect("the sender goes on") as u64;
        if half.is_none() && begin.elapsed() > time / 2 {
            half = Some((Instant::now(), total));
        }
    }
    let (since, before) = half.expect("half the time has passed");
    let rate = (total - before) as f64 * 8.0 / since.elapsed().as_secs_f64();
    drop(stream);
    sender.join().expect("the sender ends with the connection");
    // 1448 payload bytes travel in 1500.
    rate * 1500.0 / 1448.0
}

#[test]
fn tcp_gets_the_rate_of_the_path() {
    let wifi = line(8_000_000, 10, ms(80));
    let fast = line(100_000_000, 1, ms(20));
    let Some(bed) = bed(&[wifi, fast]) else {
        return;
    };
    for (path, wanted) in [(0, 8e6), (1, 1e8)] {
        at_last(|| {
            let got = tcp_rate(&bed, path, Duration::from_secs(3));
            let counters = bed.emulator().counters()[path];
            eprintln!(
                "path {path}: {:.3} of {:.0} Mbit/s, {counters:?}",
                got / 1e6,
                wanted / 1e6
            );
            (got / wanted - 1.0).abs() < 0.02 && (counters.unfit, counters.missed) == (0, 0)
        });
    }
}

/// A machine that does much else at the moment is late with everything; it gets three chances.
fn at_last(mut measure: impl FnMut() -> bool) {
    assert!((0..3).any(|_| measure()), "not once in three measurements");
}

/// Round trips of small datagrams, sorted.
fn round_trips(bed: &Testbed, path: usize, count: usize) -> Vec<Duration> {
    let echo = bed
        .server
        .run(|| UdpSocket::bind((SERVER, 0)))
        .expect("our address");
    let address = echo.local_addr().expect("bound");
    let answering = std::thread::spawn(move || {
        let mut data = [0; 64];
        while let Ok((len, from)) = echo.recv_from(&mut data) {
            if len == 0 || echo.send_to(&data[..len], from).is_err() {
                return;
            }
        }
    });
    let local = Testbed::client_address(path);
    let socket = bed
        .client
        .run(move || UdpSocket::bind((local, 0)))
        .expect("our address");
    socket
        .set_read_timeout(Some(Duration::from_secs(2)))
        .expect("valid");
    socket.connect(address).expect("routed");
    let mut all: Vec<Duration> = (0..count)
        .map(|_| {
            let begin = Instant::now();
            socket.send(&[1; 32]).expect("routed");
            socket.recv(&mut [0; 64]).expect("answered");
            begin.elapsed()
        })
        .collect();
    socket.send(&[]).expect("routed");
    answering.join().expect("told to end");
    all.sort();
    all
}

#[test]
fn a_round_trip_takes_twice_the_delay() {
    let near = line(100_000_000, 10, Buffer::Bytes(100_000));
    let far = line(2_000_000, 75, Buffer::Bytes(100_000));
    let Some(bed) = bed(&[near, far]) else { return };
    for (path, wanted, count) in [(0, 20.0, 50), (1, 150.0, 10)] {
        // The first one also waits for address resolution.
        round_trips(&bed, path, 1);
        let sending = 2.0 * 60.0 * 8.0 / if path == 0 { 1e5 } else { 2e3 };
        at_last(|| {
            let all = round_trips(&bed, path, count);
            let median = all[all.len() / 2].as_secs_f64() * 1e3;
            eprintln!(
                "path {path}: median {median:.3} ms, slowest {:?}",
                all[all.len() - 1]
            );
            (median / (wanted + sending) - 1.0).abs() < 0.02
        });
    }
}

#[test]
fn loss_and_cuts_are_as_ordered() {
    let lossy = LineConfig {
        loss: vec![Loss::Bernoulli(Chance::new(0.05))],
        ..LineConfig::default()
    };
    let Some(bed) = bed(&[lossy]) else { return };
    round_trip_until_answered(&bed);
    let sink = bed
        .server
        .run(|| UdpSocket::bind((SERVER, 0)))
        .expect("our address");
    let address = sink.local_addr().expect("bound");
    sink.set_read_timeout(Some(Duration::from_secs(1)))
        .expect("valid");
    let source = bed
        .client
        .run(move || UdpSocket::bind((Testbed::client_address(0), 0)))
        .expect("ours");
    let before = *bed.emulator().counters()[0].line(Way::Out);
    let counting = std::thread::spawn(move || {
        let mut data = [0; 8];
        let mut arrived = 0_u64;
        while sink.recv(&mut data).is_ok() {
            arrived += 1;
        }
        (sink, arrived)
    });
    for n in 0..2_000_u32 {
        source.send_to(&n.to_be_bytes(), address).expect("routed");
        // Small groups, so that no socket buffer loses what the path did not.
        if n % 50 == 49 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    let (sink, arrived) = counting.join().expect("ends when nothing more comes");
    let mut data = [0; 8];
    let counters = bed.emulator().counters()[0];
    let lost = counters.line(Way::Out).lost - before.lost;
    assert_eq!(arrived + lost, 2_000, "{counters:?}");
    assert!((60..=140).contains(&lost), "{lost} lost of 2000 at 5 %");

    bed.emulator().set_up(0, false);
    source
        .send_to(b"lost", address)
        .expect("the interface itself is up");
    assert!(sink.recv(&mut data).is_err(), "nothing passes a cut path");
    bed.emulator().set_up(0, true);
    let mut passed = false;
    for _ in 0..20 {
        source.send_to(b"back", address).expect("routed");
        passed |= sink.recv(&mut data).is_ok();
        if passed {
            break;
        }
    }
    assert!(passed, "a joined path carries again");
}

/// Address resolution crosses the path before anything else can.
fn round_trip_until_answered(bed: &Testbed) {
    let sink = bed
        .server
        .run(|| UdpSocket::bind((SERVER, 0)))
        .expect("our address");
    sink.set_read_timeout(Some(Duration::from_millis(200)))
        .expect("valid");
    let address = sink.local_addr().expect("bound");
    let source = bed
        .client
        .run(move || UdpSocket::bind((Testbed::client_address(0), 0)))
        .expect("ours");
    for _ in 0..20 {
        source.send_to(b"?", address).expect("routed");
        if sink.recv(&mut [0; 8]).is_ok() {
            return;
        }
    }
    panic!("the server cannot be reached");
}
