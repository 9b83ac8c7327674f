//! One measurement: an upload by one connection, or answers of nginx fetched by wrk.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::arm::{Answered, BULK, RELAY, WEB, missing, written};
use super::{Arm, Measured, Task};
use crate::bench::{CONGESTION, PATIENCE, bulk};
use crate::netns::Process;
use crate::relay::await_listener;
use crate::testbed::{Pair, SERVER};

/// Descriptors that are wanted for each of a relay, wrk and nginx.
const FILES: u64 = 50_000;
/// Descriptors that each needs besides those of connections.
const SPARE: u64 = 300;
/// Bytes of one call of the sender.
const CHUNK: usize = 256 * 1024;
/// Bytes of an answer.
const ANSWER: usize = 64 * 1024;
/// How long a relay has to end.
const GRACE: Duration = Duration::from_secs(3);

/// Raises what children inherit as far as it may be, and tells for how many connections that is enough: some relays have two
/// descriptors for each.
pub(super) fn raise_files() -> u32 {
    let set = |files: u64, maximum| {
        let current = Some(files);
        setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok()
    };
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(FILES);
    let files = match set(FILES, Some(FILES)) {
        true => FILES,
        false => {
            // More than is allowed is not to be had, and that much always.
            let _ = set(allowed, Some(allowed));
            allowed
        }
    };
    u32::try_from(files.saturating_sub(SPARE) / 2).unwrap_or(u32::MAX)
}

pub(super) fn measure(
    pair: &Pair,
    program: &Path,
    task: Task,
    arm: Arm,
    time: Duration,
) -> Result<Measured, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no folder for files: {error}"))?;
    let web = match task {
        Task::Answers { .. } => Some(nginx(pair, folder.path())?),
        Task::Bulk { .. } => None,
    };
    let mut relay = arm.start(pair, program, folder.path(), task)?;
    if let Some(relay) = &mut relay {
        await_listener(&pair.client, RELAY, relay, PATIENCE)?;
    }
    let result = match task {
        Task::Bulk { .. } => upload(pair, arm, relay.as_ref(), time),
        Task::Answers { connections } => {
            answers(pair, arm, relay.as_ref(), connections, time, folder.path())
        }
    };
    for process in [relay, web].into_iter().flatten() {
        let mut process = process;
        process.stop(GRACE);
    }
    result
}

fn used(relay: Option<&Process>) -> f64 {
    relay.and_then(Process::cpu_seconds).unwrap_or_default()
}

fn upload(
    pair: &Pair,
    arm: Arm,
    relay: Option<&Process>,
    time: Duration,
) -> Result<Measured, String> {
    let kind = match arm {
        Arm::Direct | Arm::Haproxy | Arm::Squid => bulk::Transport::Tcp,
        _ => bulk::Transport::Mptcp,
    };
    let told = |what: &'static str| move |error: io::Error| format!("cannot {what}: {error}");
    let listener = bulk::listen(&pair.server, kind, CONGESTION, BULK).map_err(told("listen"))?;
    let receiver = bulk::receive(&pair.server, listener, PATIENCE).map_err(|e| e.to_string())?;
    let to = match arm {
        Arm::Direct => SocketAddr::from((SERVER, BULK)),
        _ => SocketAddr::from((Ipv4Addr::LOCALHOST, RELAY)),
    };
    let before = used(relay);
    let sender = pair.client.thread("upload", move || send(to, arm, time));
    let sender = sender.map_err(|error| error.to_string())?;
    let sent = sender
        .join()
        .map_err(|_| "the sender panicked".to_owned())?;
    sent.map_err(told("send"))?;
    let received = receiver
        .join()
        .map_err(|_| "the receiver panicked".to_owned())?;
    let received = received.map_err(told("receive"))?;
    let (bytes, seconds) = (received.bytes as f64, received.time.as_secs_f64());
    if seconds <= 0.0 {
        return Err("nothing arrived".to_owned());
    }
    Ok(Measured {
        rate: bytes * 8.0 / seconds,
        p99: None,
        cost: relay.map(|_| (used(relay) - before) / (bytes / 1e9)),
        failures: 0,
    })
}

/// Asks the relay for the server, then sends as much as it can.
fn send(to: SocketAddr, arm: Arm, time: Duration) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(time + PATIENCE))?;
    let (words, answered) = arm.words();
    stream.write_all(&words)?;
    let mut answer = Vec::new();
    let is_whole = |answer: &[u8]| match answered {
        Answered::Head => answer.ends_with(b"\r\n\r\n"),
        Answered::Bytes(n) => answer.len() >= n,
    };
    while !is_whole(&answer) {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    if matches!(answered, Answered::Head) && !answer.starts_with(b"HTTP/1.1 200") {
        let text = String::from_utf8_lossy(&answer).into_owned();
        return Err(io::Error::other(text));
    }
    let chunk = vec![0x5a; CHUNK];
    let end = Instant::now() + time;
    while Instant::now() < end {
        stream.write_all(&chunk)?;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    // The other end has read everything when it closes.
    let mut rest = [0; 64];
    while matches!(stream.read(&mut rest), Ok(1..)) {}
    Ok(())
}

/// nginx on the kernel's Multipath TCP, with one file.
fn nginx(pair: &Pair, folder: &Path) -> Result<Process, String> {
    let told = |error: io::Error| format!("cannot write the file: {error}");
    std::fs::write(folder.join("file"), vec![b'x'; ANSWER]).map_err(told)?;
    let here = folder.display();
    let config = format!(
        "daemon off; master_process off; pid {here}/nginx.pid; error_log /dev/null; worker_rlimit_nofile {FILES};\n\
         events {{ worker_connections 24000; }}\n\
         http {{ access_log off; keepalive_requests 10000000; keepalive_timeout 300s; sendfile on; tcp_nopush on;\n\
         client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c; uwsgi_temp_path {here}/d;\n\
         scgi_temp_path {here}/e; server {{ listen 0.0.0.0:{WEB} backlog=16384; root {here}; }} }}\n"
    );
    let file = folder.join("nginx.conf");
    written(&file, &config)?;
    let mut command = Command::new("mptcpize");
    command
        .args(["run", "nginx", "-e", "/dev/null", "-c"])
        .arg(file);
    command.stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = pair.server.spawn(command).map_err(|e| missing(&e))?;
    await_listener(&pair.server, WEB, &mut process, PATIENCE)
        .map_err(|why| format!("nginx: {why}"))?;
    Ok(process)
}

fn answers(
    pair: &Pair,
    arm: Arm,
    relay: Option<&Process>,
    connections: u32,
    time: Duration,
    folder: &Path,
) -> Result<Measured, String> {
    let target = match arm.is_asked() {
        true => format!("http://{SERVER}/file"),
        false => "/file".to_owned(),
    };
    let script = format!(
        "request = function() return wrk.format('GET', '{target}', {{Host='{SERVER}'}}) end\n\
         done = function(s, latency) local e = s.errors\n\
         print('told', s.requests, s.duration, latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout) end\n"
    );
    let file = folder.join("wrk.lua");
    written(&file, &script)?;
    let at = match arm {
        Arm::Direct => format!("http://{SERVER}:{WEB}/"),
        _ => format!("http://127.0.0.1:{RELAY}/"),
    };
    // Ten thousand connections take a while before each has had an answer.
    let seconds = time.as_secs().max(1) + u64::from(connections / 2000);
    let mut command = Command::new("wrk");
    command
        .args([
            "-t",
            "1",
            "-c",
            &connections.to_string(),
            "-d",
            &format!("{seconds}s"),
        ])
        .args(["--timeout", "30s", "-s"])
        .arg(&file)
        .arg(at);
    let before = used(relay);
    let output = pair.client.output(command).map_err(|e| missing(&e))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("told"));
    let numbers = line.map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()));
    let numbers: Vec<f64> = numbers.map(Iterator::collect).unwrap_or_default();
    let [requests, micros, p99, failures] = numbers[..] else {
        return Err(format!("wrk told nothing: {text:.200}"));
    };
    if requests < 1.0 {
        return Err("no answer came".to_owned());
    }
    Ok(Measured {
        rate: requests / (micros / 1e6),
        p99: Some(p99 / 1e3),
        cost: relay.map(|_| (used(relay) - before) * 1e3 / requests),
        failures: failures as u64,
    })
}
