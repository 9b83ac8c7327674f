//! The attacks on real packets: `manypath forward` in a namespace, a stock kernel's clients beside the attacker, and what
//! the process has needed of memory and processor time.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use manypath_sim::attack::Attack;
use manypath_sim::attack::ambush::Ambush;
use manypath_sim::attack::cases::{self, Case, KEPT};
use manypath_sim::middlebox::Middlebox;
use manypath_stack::StackConfig;
use manypath_tcp::time::Duration as Span;
use serde::Serialize;
use socket2::{Domain, Protocol, Socket, Type};

use crate::handover::arm::Failure;
use crate::handover::relay;
use crate::kernel;
use crate::netns::{NetNs, NetNsError};
use crate::testbed::{TestPath, Testbed};

/// Where our stack listens.
const PORT: u16 = 5003;
/// How long each attack is watched, after the clients have got going: as long as in the simulator.
const WATCH: Duration = Duration::from_secs(10);
const WARM_UP: Duration = Duration::from_secs(1);
/// Bytes of a short connection.
const SHORT: u64 = 20_000;
/// How long a client waits for anything.
const PATIENCE: Duration = Duration::from_secs(5);
/// What `forward` holds of a connection besides its stack: a buffer of 256 KiB each way.
const RELAYED: u64 = 512 << 10;
/// The client's second address: it joins from there.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 3);

/// What was measured.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Measured {
    /// Bytes of the long transfer.
    pub bulk: u64,
    /// Short connections that were completed.
    pub short: u64,
    /// Those that failed.
    pub failures: u64,
    /// Connections that reached the server's application, the attacker's included.
    pub served: u64,
    /// Packets that the attacker sent a second.
    pub rate: f64,
    /// The largest resident memory of the process, in bytes.
    pub memory: u64,
    /// Processor seconds of the process.
    pub cpu: f64,
}

/// One attack.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub attack: &'static str,
    /// What was measured.
    pub measured: Option<Measured>,
    /// The part of the long transfer's goodput that was left, at most 1.
    pub bulk_kept: f64,
    /// The part of the short connections' number.
    pub short_kept: f64,
    /// Bytes of memory that the process may need: what it needs without an attack, what the stack may, and the relays' buffers.
    pub memory_bound: u64,
    /// Why there is no result.
    pub failure: Option<String>,
}

#[derive(Default)]
struct Tally {
    bulk: AtomicU64,
    short: AtomicU64,
    failures: AtomicU64,
    served: AtomicU64,
    stop: AtomicBool,
}

impl Tally {
    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

fn arm(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Arm(format!("{what}: {error}"))
}

/// The attacks that can be run so.
pub(super) fn cases() -> Vec<Case> {
    cases::all().into_iter().filter(|case| case.real).collect()
}

/// Runs one attack, or none, in a network of its own.
pub(super) fn run(case: Option<&Case>, program: &Path) -> Result<Measured, Failure> {
    let attack = case.map(|case| (case.make)());
    let made = Arc::new(Mutex::new(attack));
    let mut path = TestPath::symmetric(
        "attacked",
        100_000_000,
        Span::from_millis(10),
        Span::from_millis(15),
    );
    path.far_boxes = Some(Arc::new(move || ambush(&made)));
    let bed = Testbed::new("attack", &[path], "cubic", 1)?;
    kernel::prepare(&bed.client, true)?;
    bed.client.ip([
        format!("addr add {SECOND}/24 dev attacked"),
        format!("mptcp endpoint add {SECOND} dev attacked subflow"),
    ])?;
    let listener = bed
        .server
        .run(|| TcpListener::bind(relay::local()))
        .map_err(arm("listen"))?;
    let tally = Arc::new(Tally::default());
    serve(&bed.server, listener, &tally)?;
    let limits = case.map(|case| limits(&(case.config)()));
    let limits: Vec<&str> = limits.iter().flatten().map(String::as_str).collect();
    let mut process = relay::for_server(&bed, program, PORT, &limits)?;
    call(&bed.client, &tally)?;
    std::thread::sleep(WARM_UP);
    let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
    let start = (
        read(&tally.bulk),
        read(&tally.short),
        process.cpu_seconds().unwrap_or(0.0),
        touched(&bed),
    );
    std::thread::sleep(WATCH);
    let measured = Measured {
        bulk: read(&tally.bulk) - start.0,
        short: read(&tally.short) - start.1,
        failures: read(&tally.failures),
        served: read(&tally.served),
        rate: (touched(&bed) - start.3) as f64 / WATCH.as_secs_f64(),
        memory: high_water(process.child().id()).unwrap_or(0),
        cpu: process.cpu_seconds().unwrap_or(0.0) - start.2,
    };
    tally.stop.store(true, Ordering::Relaxed);
    if measured.bulk == 0 && case.is_none() {
        return Err(Failure::Arm("nothing was transferred".to_owned()));
    }
    Ok(measured)
}

/// The limits of an attack, for the command line.
fn limits(config: &StackConfig) -> Vec<String> {
    vec![
        format!("--memory={}", config.max_memory),
        format!("--patience={}ms", config.patience.as_millis()),
    ]
}

fn ambush(attack: &Mutex<Option<Box<dyn Attack + Send>>>) -> Vec<Box<dyn Middlebox>> {
    let attack = attack.lock().ok().and_then(|mut attack| attack.take());
    let ambush =
        |attack| -> Box<dyn Middlebox> { Box::new(Ambush::new(attack, relay::served_at(PORT))) };
    attack.map(ambush).into_iter().collect()
}

fn touched(bed: &Testbed) -> u64 {
    bed.emulator()
        .counters()
        .iter()
        .map(|path| path.touched)
        .sum()
}

/// The most memory that a process ever had resident, in bytes.
fn high_water(pid: u32) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// The server's application: sends as many bytes as the first eight of a connection ask for, and reads on when that is done;
/// of one that asks for nothing it reads no more.
fn serve(ns: &NetNs, listener: TcpListener, tally: &Arc<Tally>) -> Result<(), NetNsError> {
    let tally = Arc::clone(tally);
    ns.thread("attack-serve", move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if tally.stopped() {
                return;
            }
            tally.served.fetch_add(1, Ordering::Relaxed);
            let builder = std::thread::Builder::new().stack_size(128 << 10);
            // A machine without threads left serves nobody; the clients will say so.
            let tally = Arc::clone(&tally);
            let _ = builder.spawn(move || answer(stream, &tally));
        }
    })?;
    Ok(())
}

fn answer(mut stream: TcpStream, tally: &Tally) {
    let mut request = [0; 8];
    if stream.read_exact(&mut request).is_err() {
        return;
    }
    let chunk = vec![0x5a; 32 << 10];
    let mut left = u64::from_be_bytes(request);
    while left == 0 && !tally.stopped() {
        std::thread::sleep(WARM_UP);
    }
    while left > 0 {
        let count = left.min(chunk.len() as u64);
        if stream.write_all(&chunk[..count as usize]).is_err() {
            return;
        }
        left -= count;
    }
    // The other end may be gone already.
    let _ = stream.shutdown(Shutdown::Write);
    let _ = io::copy(&mut stream, &mut io::sink());
}

fn connect() -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::MPTCP))?;
    socket.connect_timeout(&relay::served_at(PORT).into(), PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    Ok(socket.into())
}

/// The clients: a long transfer, and short connections one after the other.
fn call(ns: &NetNs, tally: &Arc<Tally>) -> Result<(), NetNsError> {
    let (bulk, short) = (Arc::clone(tally), Arc::clone(tally));
    ns.thread("attack-bulk", move || {
        while !bulk.stopped() {
            if transfer(1 << 50, &bulk, Some(&bulk.bulk)).is_err() && !bulk.stopped() {
                bulk.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    })?;
    ns.thread("attack-short", move || {
        while !short.stopped() {
            match transfer(SHORT, &short, None) {
                Ok(()) => short.short.fetch_add(1, Ordering::Relaxed),
                Err(_) => short.failures.fetch_add(1, Ordering::Relaxed),
            };
        }
    })?;
    Ok(())
}

fn transfer(bytes: u64, tally: &Tally, count: Option<&AtomicU64>) -> io::Result<()> {
    let mut stream = connect()?;
    stream.write_all(&bytes.to_be_bytes())?;
    let mut chunk = vec![0; 64 << 10];
    let mut left = bytes;
    while left > 0 && !tally.stopped() {
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            len => {
                left = left.saturating_sub(len as u64);
                if let Some(count) = count {
                    count.fetch_add(len as u64, Ordering::Relaxed);
                }
            }
        }
    }
    Ok(())
}

/// One row beside what was without an attack.
pub(super) fn row(case: &Case, result: Result<Measured, String>, without: &Measured) -> Row {
    let part = |with: u64, without: u64| (with as f64 / without.max(1) as f64).min(1.0);
    let (measured, failure) = match result {
        Ok(measured) => (Some(measured), None),
        Err(why) => (None, Some(why)),
    };
    let with = measured.unwrap_or_default();
    Row {
        attack: case.name,
        measured,
        bulk_kept: part(with.bulk, without.bulk),
        short_kept: part(with.short, without.short),
        // Of the short connections one is open at a time.
        memory_bound: without.memory
            + case.memory as u64
            + with.served.saturating_sub(with.short) * RELAYED,
        failure,
    }
}

impl Row {
    /// Honest clients kept what they should, and memory its bound.
    #[must_use]
    pub fn is_good(&self) -> bool {
        let bounded = self
            .measured
            .is_some_and(|with| with.memory <= self.memory_bound);
        bounded && self.bulk_kept.min(self.short_kept) >= KEPT
    }

    /// It as a line of the table.
    #[must_use]
    pub fn line(&self) -> String {
        let Some(with) = &self.measured else {
            let why = self.failure.as_deref().unwrap_or("not measured");
            return format!("{:<16} {why}", self.attack);
        };
        format!(
            "{:<16} {:>8.0} {:>9.1} /{:>4.0} {:>7.2} {:>8.1} % {:>6.1} %",
            self.attack,
            with.rate,
            with.memory as f64 / 1e6,
            self.memory_bound as f64 / 1e6,
            with.cpu / WATCH.as_secs_f64(),
            self.bulk_kept * 100.0,
            self.short_kept * 100.0
        )
    }
}
