//! The emulated paths against the host's kernel: no faster and no sooner than was asked for, and every packet is accounted
//! for, however busy the machine is. What it measured beyond that is printed: a machine that does much else is late.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use manypath_lab::emulator::{Buffer, Chance, LineConfig, Loss, Way};
use manypath_lab::netns::{Privilege, privilege};
use manypath_lab::testbed::{SERVER, TestPath, Testbed};
use manypath_tcp::units::Rate;

/// What takes longer than this will never come.
const STUCK: Duration = Duration::from_secs(20);

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

/// Sends so many bytes from the server over the path with this number; returns the bits of IP packets that the client read,
/// and how long that took.
fn tcp_download(bed: &Testbed, path: usize, len: u64) -> (f64, Duration) {
    let listener = bed
        .server
        .run(|| TcpListener::bind((SERVER, 0)))
        .expect("our address");
    let address = listener.local_addr().expect("bound");
    let sender = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the client comes");
        let chunk = vec![0x55; usize::try_from(len).expect("it fits in memory")];
        stream.write_all(&chunk).expect("the client reads");
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
    let mut chunk = vec![0; 65_536];
    let mut total = 0;
    loop {
        match stream.read(&mut chunk).expect("the sender goes on") {
            0 => break,
            n => total += n as u64,
        }
    }
    let took = begin.elapsed();
    assert_eq!(total, len);
    sender.join().expect("the sender ends with the connection");
    // 1448 payload bytes travel in 1500.
    (total as f64 * 8.0 * 1500.0 / 1448.0, took)
}

#[test]
fn tcp_gets_no_more_than_the_rate_of_the_path() {
    let wifi = line(8_000_000, 10, ms(80));
    let fast = line(100_000_000, 1, ms(20));
    let Some(bed) = bed(&[wifi, fast]) else {
        return;
    };
    for (path, rate, len) in [(0, 8e6, 3_000_000), (1, 1e8, 36_000_000)] {
        let (bits, took) = tcp_download(&bed, path, len);
        let counters = bed.emulator().counters()[path];
        let got = bits / took.as_secs_f64();
        eprintln!(
            "path {path}: {:.3} of {:.0} Mbit/s, {counters:?}",
            got / 1e6,
            rate / 1e6
        );
        assert!(got < rate * 1.01, "{got} bit/s");
        assert_eq!(counters.unfit, 0);
    }
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
    socket.set_read_timeout(Some(STUCK)).expect("valid");
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
fn no_round_trip_takes_less_than_twice_the_delay() {
    let near = line(100_000_000, 10, Buffer::Bytes(100_000));
    let far = line(2_000_000, 75, Buffer::Bytes(100_000));
    let Some(bed) = bed(&[near, far]) else { return };
    for (path, delay, rate, count) in [(0, 20.0, 1e8, 50), (1, 150.0, 2e6, 10)] {
        // The first one also waits for address resolution.
        round_trips(&bed, path, 1);
        // 32 bytes and the headers of UDP and IPv4, there and back.
        let wanted = delay / 1e3 + 2.0 * 60.0 * 8.0 / rate;
        let all = round_trips(&bed, path, count);
        eprintln!(
            "path {path}: {:.3} ms wanted, median {:?}, slowest {:?}",
            wanted * 1e3,
            all[all.len() / 2],
            all[all.len() - 1]
        );
        assert!(all[0].as_secs_f64() >= wanted, "{:?}", all[0]);
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
    sink.set_read_timeout(Some(Duration::from_millis(100)))
        .expect("valid");
    let source = bed
        .client
        .run(move || UdpSocket::bind((Testbed::client_address(0), 0)))
        .expect("ours");
    let counted = || *bed.emulator().counters()[0].line(Way::Out);
    let before = counted();
    let mut data = [0; 8];
    let mut arrived = 0;
    for n in 0..2_000_u32 {
        source.send_to(&n.to_be_bytes(), address).expect("routed");
        // Small groups, so that no socket buffer loses what the path did not.
        let end = Instant::now() + STUCK;
        while n % 50 == 49 && arrived + counted().lost - before.lost <= u64::from(n) {
            arrived += u64::from(sink.recv(&mut data).is_ok());
            assert!(Instant::now() < end, "{arrived} arrived, {:?}", counted());
        }
    }
    // The path also carries, and may lose, what the two kernels say to find their neighbours and routers.
    while sink.recv(&mut data).is_ok() {
        arrived += 1;
    }
    let after = counted();
    let (offered, lost) = (after.offered - before.offered, after.lost - before.lost);
    let others = offered - 2_000;
    assert!(
        (2_000..=2_000 + others).contains(&(arrived + lost)),
        "{arrived} arrived, {lost} lost of 2000 and {others} others"
    );
    assert!((60..=140).contains(&lost), "{lost} lost of 2000 at 5 %");

    bed.emulator().set_up(0, false);
    source
        .send_to(b"lost", address)
        .expect("the interface itself is up");
    assert!(sink.recv(&mut data).is_err(), "nothing passes a cut path");
    bed.emulator().set_up(0, true);
    let mut passed = false;
    for _ in 0..100 {
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
    for _ in 0..100 {
        source.send_to(b"?", address).expect("routed");
        if sink.recv(&mut [0; 8]).is_ok() {
            return;
        }
    }
    panic!("the server cannot be reached");
}
