//! One transfer with real packets.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use socket2::{Domain, Protocol, Socket, Type};

use super::{
    CONGESTION, Cast, End, FAILING, LEAST_WATCH, Measured, OUTAGE, Stack, WARM_UP, WATCH, enough,
    relay,
};
use crate::bench::accept;
use crate::emulator::Way;
use crate::kernel;
use crate::netns::{NetNs, NetNsError};
use crate::testbed::{SERVER, TestPath, Testbed};

/// Where servers listen.
const PORT: u16 = 5002;
/// How long one end waits for the other before the transfer counts as failed.
const PATIENCE: Duration = Duration::from_secs(10);
/// How exactly arrivals are noted, and how often counters are looked at.
const TICK: Duration = Duration::from_millis(1);

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failure {
    /// This transfer did not work; others may.
    Arm(String),
    /// There is no network.
    Network(NetNsError),
}

impl From<NetNsError> for Failure {
    fn from(error: NetNsError) -> Self {
        Self::Network(error)
    }
}

fn arm(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Arm(format!("{what}: {error}"))
}

/// What the reader saw.
#[derive(Default)]
struct Log {
    /// Arrivals at least a tick apart.
    arrivals: Mutex<Vec<Instant>>,
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl Log {
    fn note(&self, now: Instant, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let mut arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        match arrivals.last() {
            Some(last) if now < *last + TICK => {}
            _ => arrivals.push(now),
        }
    }

    fn read(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Longest time without an arrival between two moments.
    fn stall(&self, from: Instant, to: Instant) -> Duration {
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        longest_gap(&arrivals, from, to)
    }
}

/// Longest time between two arrivals that falls between two moments, at least in part. What was waited for already when
/// the first moment came counts from the last arrival before.
fn longest_gap(arrivals: &[Instant], from: Instant, to: Instant) -> Duration {
    let before = arrivals.iter().rev().find(|at| **at <= from);
    let mut last = *before.unwrap_or(&from);
    let mut longest = Duration::ZERO;
    for at in arrivals.iter().filter(|at| **at > from && **at <= to) {
        longest = longest.max(*at - last);
        last = *at;
    }
    longest.max(to.saturating_duration_since(last))
}

/// Runs one transfer in a network of its own.
pub(super) fn run(paths: &[TestPath], cast: Cast, program: &Path) -> Result<Measured, Failure> {
    let bed = Testbed::new("handover", paths, CONGESTION, 1)?;
    for ns in [&bed.client, &bed.server] {
        // Repeating data with checksums, a kernel may divide by zero and lock the socket for ever (Linux 6.18, `tcp_tso_segs`
        // below `mptcp_worker`).
        kernel::prepare(ns, false)?;
    }
    for (index, path) in paths.iter().enumerate().skip(1) {
        let address = Testbed::client_address(index);
        bed.client.ip([format!(
            "mptcp endpoint add {address} dev {} subflow",
            path.name
        )])?;
    }
    // The listener first, then what stands in front of it, then the client.
    let (protocol, listen_at, serves_at) = match cast.server {
        Stack::Kernel => {
            let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
            (Protocol::MPTCP, any, SocketAddr::from((SERVER, PORT)))
        }
        Stack::Manypath => (Protocol::TCP, relay::local(), relay::served_at(PORT)),
    };
    let listener = bed
        .server
        .run(move || listen(protocol, listen_at))
        .map_err(arm("listen"))?;
    let _server = match cast.server {
        Stack::Kernel => None,
        Stack::Manypath => Some(relay::for_server(&bed, program, PORT, &[])?),
    };
    let (_client, protocol, to) = match cast.client {
        Stack::Kernel => (None, Protocol::MPTCP, serves_at),
        Stack::Manypath => {
            let relay = relay::for_client(&bed, program, serves_at)?;
            (Some(relay), Protocol::TCP, relay::local())
        }
    };
    let client = bed
        .client
        .run(move || connect(protocol, to))
        .map_err(arm("connect"))?;
    let server = accept(&listener, PATIENCE).map_err(arm("accept"))?;
    let log = Arc::new(Log::default());
    let (sender, sender_ns, receiver, receiver_ns) = match cast.sender {
        End::Client => (&client, &bed.client, &server, &bed.server),
        End::Server => (&server, &bed.server, &client, &bed.client),
    };
    start(sender, sender_ns, receiver, receiver_ns, &log)?;
    let way = match cast.sender {
        End::Client => Way::Out,
        End::Server => Way::In,
    };
    let measured = watch(&bed, way, enough(&paths[FAILING]), &log);
    log.stop.store(true, Ordering::Relaxed);
    for stream in [&client, &server] {
        // Both threads wake up and end; an end that is closed already is as good.
        let _ = stream.shutdown(Shutdown::Both);
    }
    measured
}

fn socket(protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(protocol))?;
    socket.set_tcp_congestion(CONGESTION.as_bytes())?;
    Ok(socket)
}

fn listen(protocol: Protocol, at: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket(protocol)?;
    socket.set_reuse_address(true)?;
    socket.bind(&at.into())?;
    socket.listen(1)?;
    Ok(socket.into())
}

fn connect(protocol: Protocol, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(protocol)?;
    socket.connect_timeout(&to.into(), PATIENCE)?;
    Ok(socket.into())
}

/// Starts to write at one end and to read at the other, until told to stop.
fn start(
    sender: &TcpStream,
    sender_ns: &NetNs,
    receiver: &TcpStream,
    receiver_ns: &NetNs,
    log: &Arc<Log>,
) -> Result<(), Failure> {
    let mut writer = sender.try_clone().map_err(arm("the sender's socket"))?;
    let mut reader = receiver.try_clone().map_err(arm("the receiver's socket"))?;
    let (sending, receiving) = (Arc::clone(log), Arc::clone(log));
    sender_ns.thread("handover-sender", move || {
        let chunk = vec![0x5a; 64 << 10];
        while !sending.stop.load(Ordering::Relaxed) {
            // The end of the transfer, or of the connection.
            if writer.write_all(&chunk).is_err() {
                return;
            }
        }
    })?;
    receiver_ns.thread("handover-receiver", move || {
        let mut chunk = vec![0; 64 << 10];
        while !receiving.stop.load(Ordering::Relaxed) {
            match reader.read(&mut chunk) {
                Ok(0) => return,
                Ok(len) => receiving.note(Instant::now(), len),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    Ok(())
}

fn bits_per_second(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / time.as_secs_f64().max(1e-9)
}

/// Lets the path fail and return, and watches.
fn watch(bed: &Testbed, way: Way, enough: u64, log: &Log) -> Result<Measured, Failure> {
    let carried = || bed.emulator().counters()[FAILING].line(way).delivered_bytes;
    std::thread::sleep(WARM_UP / 2);
    let half = log.read();
    std::thread::sleep(WARM_UP / 2);
    let before = bits_per_second(log.read() - half, WARM_UP / 2);
    if log.read() == half || carried() == 0 {
        return Err(Failure::Arm("nothing was transferred".to_owned()));
    }
    let cut = Instant::now();
    bed.emulator().set_up(FAILING, false);
    std::thread::sleep(OUTAGE);
    let base = carried();
    bed.emulator().set_up(FAILING, true);
    let back = Instant::now();
    let (mut failback, mut one, mut three) = (None, None, None);
    loop {
        let since = back.elapsed();
        if failback.is_none() && carried() >= base + enough {
            failback = Some(since.as_secs_f64());
        }
        for (mark, at) in [(&mut one, 1), (&mut three, 3)] {
            if mark.is_none() && since >= Duration::from_secs(at) {
                *mark = Some((log.read(), since));
            }
        }
        if since >= WATCH || since >= LEAST_WATCH && failback.is_some() {
            break;
        }
        std::thread::sleep(TICK);
    }
    let after = match (one, three) {
        (Some((from, start)), Some((to, end))) => bits_per_second(to - from, end - start),
        _ => 0.0,
    };
    Ok(Measured {
        before,
        stall: log.stall(cut, back + Duration::from_secs(2)).as_secs_f64(),
        failback,
        after,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_wait_is_found_at_the_edges_too() {
        let zero = Instant::now();
        let at = |ms| zero + Duration::from_millis(ms);
        let arrivals = [at(0), at(90), at(300), at(310)];
        let gap = |from, to| longest_gap(&arrivals, at(from), at(to)).as_millis();
        assert_eq!(gap(100, 400), 210, "it began before the first moment");
        assert_eq!(gap(100, 900), 590, "it had not ended at the last");
        assert_eq!(gap(305, 310), 10);
    }
}
