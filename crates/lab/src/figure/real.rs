//! One transfer on real packets over emulated paths, with our stack at both ends or with the kernel's.
//!
//! The server sends and the client, who made the connection and its subflows, reads. Ours are `manypath perf` processes,
//! the kernel's are sockets of threads. What counts is what the reader read, from the end of the warm-up on.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use manypath_sim::loss::Loss;
use manypath_sim::rng::Chance;
use manypath_tcp::cc::Algorithm;
use manypath_tcp::units::Rate;
use serde::Deserialize;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Arm, Does, Run};
use crate::bench::accept;
use crate::emulator::{Buffer, LineConfig};
use crate::kernel;
use crate::netns::NetNs;
use crate::parallel::PathSpec;
use crate::relay::End;
use crate::spoken::Spoken;
use crate::testbed::{SERVER, TestPath, Testbed};

/// Where servers listen.
pub(super) const PORT: u16 = 5003;
/// How long an end waits for the other.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// How often our reader is asked what it has read.
const LOOK: Duration = Duration::from_millis(100);

/// A transfer to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transfer<'a> {
    pub(super) paths: &'a [PathSpec],
    /// Bytes of the send and the receive buffer.
    pub(super) buffer: u64,
    /// Congestion control, by our stack's name.
    pub(super) congestion: &'a str,
    /// Time that does not count.
    pub(super) warm_up: Duration,
    /// Time that counts.
    pub(super) time: Duration,
}

/// What came of it, in Mbit/s.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Carried {
    /// What the reader read.
    pub(super) goodput: f64,
    /// Stream bytes that came over each path, each once for its subflow; nothing is counted of the kernel's plain TCP.
    pub(super) paths: Vec<f64>,
}

/// Each network has a name of its own.
static NETWORKS: AtomicUsize = AtomicUsize::new(0);

/// Makes the transfer of a run on its arm.
pub(super) fn transfer(run: &Run<'_>, transfer: Transfer<'_>) -> Result<Carried, String> {
    let bed = bed(transfer.paths, transfer.congestion)?;
    let carried = match run.arm {
        Arm::Kernel => kernels(&bed, run, transfer)?,
        Arm::Real => ours(&bed, run, transfer)?,
        Arm::Sim | Arm::Process => return Err(format!("{} has no real packets", run.arm)),
    };
    kept_up(&bed)?;
    Ok(carried)
}

/// The network with these paths, p0 and so on.
pub(super) fn bed(paths: &[PathSpec], congestion: &str) -> Result<Testbed, String> {
    seeded_bed(paths, congestion, 1)
}

/// The same with losses of this seed.
pub(super) fn seeded_bed(
    paths: &[PathSpec],
    congestion: &str,
    seed: u64,
) -> Result<Testbed, String> {
    let paths: Vec<TestPath> = paths.iter().zip(0..).map(emulated).collect();
    let name = format!("fig{}", NETWORKS.fetch_add(1, Ordering::Relaxed));
    Testbed::new(&name, &paths, of_the_kernel(congestion), seed).map_err(|error| error.to_string())
}

/// The kernel's congestion control where ours is this one. It has none that is coupled; what those are on a path alone is Reno.
pub(super) fn of_the_kernel(congestion: &str) -> &str {
    match congestion.parse::<Algorithm>() {
        Ok(algorithm) if algorithm.is_coupled() => "reno",
        _ => congestion,
    }
}

/// An emulator that lost packets by its own fault was no network.
pub(super) fn kept_up(bed: &Testbed) -> Result<(), String> {
    let counters = bed.emulator().counters();
    match counters.iter().map(|path| path.missed).sum::<u64>() {
        0 => Ok(()),
        missed => Err(format!(
            "the emulator did not keep up: {missed} frames missed"
        )),
    }
}

/// One direction of a path.
pub(super) fn line(path: &PathSpec) -> LineConfig {
    LineConfig {
        rate: Rate::from_bits_per_sec(path.rate),
        delay: manypath_tcp::time::Duration::from_micros(path.rtt_us / 2),
        buffer: Buffer::Bytes(path.buffer),
        loss: match path.loss_ppm {
            0 => Vec::new(),
            ppm => vec![Loss::Bernoulli(Chance::ppm(ppm))],
        },
        ..LineConfig::default()
    }
}

fn emulated((path, number): (&PathSpec, usize)) -> TestPath {
    let line = line(path);
    TestPath {
        name: format!("p{number}"),
        up: line.clone(),
        down: line,
        boxes: None,
        far_boxes: None,
    }
}

pub(super) fn failed<E: std::fmt::Display>(what: &'static str) -> impl Fn(E) -> String {
    move |error| format!("{what}: {error}")
}

/// Stream bytes that the subflows of the kernel's client have received over each path: what `perf` tells of ours. What the
/// emulator delivers is more, by headers and by what is sent again.
fn received(bed: &Testbed) -> Result<Vec<u64>, String> {
    let subflows = kernel::subflows(&bed.client).map_err(failed("ss"))?;
    let addresses: Vec<IpAddr> = (0..bed.paths().len())
        .map(Testbed::client_address)
        .collect();
    Ok(by_path(&subflows, &addresses))
}

/// The same by the client's address on each path.
fn by_path(subflows: &[kernel::Subflow], addresses: &[IpAddr]) -> Vec<u64> {
    let over = |address: &IpAddr| {
        let its = subflows
            .iter()
            .filter(|subflow| subflow.local_ip() == Some(*address));
        its.map(|subflow| subflow.received).sum()
    };
    addresses.iter().map(over).collect()
}

fn megabits(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e6 / time.as_secs_f64().max(1e-9)
}

/// Makes the kernels at both ends speak Multipath TCP over every path.
pub(super) fn prepare_kernels(bed: &Testbed) -> Result<(), String> {
    let network = |error: crate::netns::NetNsError| error.to_string();
    for ns in [&bed.client, &bed.server] {
        kernel::prepare(ns, false).map_err(network)?;
    }
    for (index, path) in bed.paths().iter().enumerate().skip(1) {
        let address = Testbed::client_address(index);
        let line = format!("mptcp endpoint add {address} dev {} subflow", path.name);
        bed.client.ip([line]).map_err(network)?;
    }
    Ok(())
}

/// The kernel's sockets.
fn kernels(bed: &Testbed, run: &Run<'_>, transfer: Transfer<'_>) -> Result<Carried, String> {
    let network = |error: crate::netns::NetNsError| error.to_string();
    prepare_kernels(bed)?;
    for ns in [&bed.client, &bed.server] {
        // The kernel counts its own overhead into a buffer, and takes half of it for that until it knows better: twice
        // the bytes, as it does by itself with the socket options.
        let bytes = transfer.buffer * 2;
        for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let value = format!("4096 {bytes} {bytes}");
            ns.sysctl(key, &value).map_err(network)?;
        }
    }
    let (protocol, from) = match run.line.does {
        Does::Tcp(path) => (Protocol::TCP, path),
        Does::Multipath(_) | Does::Own(_) => (Protocol::MPTCP, 0),
    };
    let congestion = transfer.congestion.to_owned();
    let listener: TcpListener = bed
        .server
        .run(move || {
            let socket = socket(protocol, &congestion)?;
            socket.set_reuse_address(true)?;
            socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT)).into())?;
            socket.listen(1)?;
            Ok(socket.into())
        })
        .map_err(failed::<std::io::Error>("listen"))?;
    let congestion = transfer.congestion.to_owned();
    let mut client: TcpStream = bed
        .client
        .run(move || {
            let socket = socket(protocol, &congestion)?;
            socket.bind(&SocketAddr::new(Testbed::client_address(from), 0).into())?;
            socket.connect_timeout(&SocketAddr::from((SERVER, PORT)).into(), PATIENCE)?;
            Ok(socket.into())
        })
        .map_err(failed::<std::io::Error>("connect"))?;
    let server = accept(&listener, PATIENCE).map_err(failed("accept"))?;
    write_to_the_end(&bed.server, server)?;
    let read = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let end = begun + transfer.warm_up + transfer.time;
    client
        .set_read_timeout(Some(PATIENCE))
        .map_err(failed("the client's socket"))?;
    let counted = Arc::clone(&read);
    let reader = bed
        .client
        .thread("figure-reader", move || -> std::io::Result<TcpStream> {
            let mut chunk = vec![0; 64 << 10];
            while Instant::now() < end {
                match client.read(&mut chunk) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(len) => counted.fetch_add(len as u64, Ordering::Relaxed),
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) => return Err(error),
                };
            }
            // It is looked at once more before it is closed.
            Ok(client)
        })
        .map_err(network)?;
    let look = || Ok::<_, String>((read.load(Ordering::Relaxed), Instant::now(), received(bed)?));
    std::thread::sleep(transfer.warm_up);
    let before = look()?;
    std::thread::sleep(end.saturating_duration_since(Instant::now()));
    let after = look()?;
    let result = reader
        .join()
        .map_err(|_| "the reader panicked".to_owned())?;
    result.map_err(failed("read"))?;
    let time = after.1 - before.1;
    // `ss` takes its time, as much at both looks. A subflow that ended between them has taken its count along.
    let paths = before.2.iter().zip(&after.2);
    let grown = |(from, to): (&u64, &u64)| megabits(to.saturating_sub(*from), time);
    Ok(Carried {
        goodput: megabits(after.0 - before.0, time),
        paths: paths.map(grown).collect(),
    })
}

/// Writes into a connection until the other end is gone.
pub(super) fn write_to_the_end(ns: &NetNs, mut stream: TcpStream) -> Result<(), String> {
    let written = ns.thread("figure-writer", move || {
        let chunk = vec![0x5a; 64 << 10];
        // A peer that stops reading without closing must not hold up the thread for ever.
        let _ = stream.set_write_timeout(Some(PATIENCE));
        while stream.write_all(&chunk).is_ok() {}
    });
    written.map(drop).map_err(|error| error.to_string())
}

pub(super) fn socket(protocol: Protocol, congestion: &str) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
    socket.set_tcp_congestion(of_the_kernel(congestion).as_bytes())?;
    Ok(socket)
}

/// `manypath perf` at both ends.
fn ours(bed: &Testbed, run: &Run<'_>, transfer: Transfer<'_>) -> Result<Carried, String> {
    let options: &[(&str, &str)] = match run.line.does {
        Does::Multipath(options) => options,
        Does::Tcp(_) | Does::Own(_) => &[],
    };
    let command = |words: &[&str]| {
        let mut command = Command::new(run.program);
        command.arg("perf").args(words);
        command.args(["--checksum", "off", "--congestion", transfer.congestion]);
        command.args(["--buffer", &transfer.buffer.to_string()]);
        for (name, value) in options {
            command.args([&format!("--{name}"), *value]);
        }
        command
    };
    let server_at = SocketAddr::new(Testbed::own_server_address(0), PORT).to_string();
    let mut serve = command(&["serve", "--listen", &server_at, "--connections", "1"]);
    serve.args(End::Server.paths(bed));
    serve.stdout(Stdio::null());
    let mut server = Spoken::start(&bed.server, serve).map_err(failed("perf serve"))?;
    server
        .says("serving at", PATIENCE)
        .map_err(failed("perf serve did not start"))?;
    let length = format!("{}ms", (transfer.warm_up + transfer.time).as_millis());
    let look = format!("{}ms", LOOK.as_millis());
    let mut receive = command(&["receive", &server_at, "--time", &length]);
    receive.args(["--json", "--interval", &look]);
    receive.args(End::Client.paths(bed));
    let output = bed.client.output(receive).map_err(failed("perf receive"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let mut lines = said.trim().lines();
        let last = lines.rfind(|line| !line.trim_start().starts_with("hint:"));
        return Err(format!("perf receive: {}", last.unwrap_or_default()));
    }
    let names: Vec<&str> = bed.paths().iter().map(|path| path.name.as_str()).collect();
    let text = String::from_utf8_lossy(&output.stdout);
    carried(&text, &names, transfer.warm_up, transfer.time)
}

/// What `perf receive --json` prints, as far as it counts here.
#[derive(Debug, Deserialize)]
struct Told {
    intervals: Vec<Interval>,
}

#[derive(Debug, Deserialize)]
struct Interval {
    at: f64,
    bits_per_second: f64,
    subflows: Vec<Subflow>,
}

#[derive(Debug, Deserialize)]
struct Subflow {
    iface: String,
    received: f64,
}

/// The means over the intervals that end after the warm-up and within the time that counts.
fn carried(
    text: &str,
    paths: &[&str],
    warm_up: Duration,
    time: Duration,
) -> Result<Carried, String> {
    let told: Told = serde_json::from_str(text.trim())
        .map_err(|error| format!("perf receive printed no result: {error}"))?;
    let (from, to) = (warm_up.as_secs_f64(), (warm_up + time).as_secs_f64());
    let mut before = 0.0;
    let (mut seconds, mut bits, mut over) = (0.0, 0.0, vec![0.0; paths.len()]);
    for interval in &told.intervals {
        let length = interval.at - before;
        before = interval.at;
        if interval.at <= from || interval.at > to + LOOK.as_secs_f64() {
            continue;
        }
        seconds += length;
        bits += interval.bits_per_second * length;
        for subflow in &interval.subflows {
            if let Some(place) = paths.iter().position(|name| *name == subflow.iface) {
                over[place] += subflow.received * length;
            }
        }
    }
    if seconds <= 0.0 {
        return Err("perf receive ended before the measurement".to_owned());
    }
    Ok(Carried {
        goodput: bits / seconds / 1e6,
        paths: over.iter().map(|bits| bits / seconds / 1e6).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_read_after_the_warm_up_counts() {
        let interval = |at: f64, rate: f64| {
            format!(
                "{{\"at\":{at},\"bits_per_second\":{rate},\"subflows\":[{{\"iface\":\"p1\",\"received\":{rate}}}]}}"
            )
        };
        let text = format!(
            "{{\"peer\":\"x\",\"intervals\":[{},{},{},{}]}}",
            interval(1.0, 9e9),
            interval(2.0, 4e6),
            interval(4.0, 1e6),
            interval(9.0, 9e9)
        );
        let second = Duration::from_secs(1);
        let told = carried(&text, &["p0", "p1"], second, 3 * second).expect("it is the shape");
        assert_eq!(told.goodput, 2.0);
        assert_eq!(told.paths, [0.0, 2.0]);
        assert!(carried(&text, &[], 20 * second, second).is_err());
        assert!(carried("{}", &[], second, second).is_err());
    }

    #[test]
    fn the_kernels_subflows_are_counted_by_the_clients_address() {
        let subflow = |local: &str, received| kernel::Subflow {
            local: local.to_owned(),
            remote: "10.77.1.2:5003".to_owned(),
            established: true,
            acked: 0,
            received,
        };
        let all = [
            subflow("10.77.1.1:40000", 7),
            subflow("10.77.2.1%p1:40001", 4),
            subflow("10.77.2.1%p1:40002", 1),
            subflow("10.77.9.1:40003", 100),
        ];
        let addresses = [0, 1, 2].map(Testbed::client_address);
        assert_eq!(by_path(&all, &addresses), [7, 5, 0]);
    }
}
