//! Connections that send at once on real packets over parallel paths of which each flow takes the next one.

use std::io::{ErrorKind, Read};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::Run;
use super::ends::listen;
use super::real::{PATIENCE, failed, kept_up, write_to_the_end};
use super::routed::{Network, SERVER, Spread};
use crate::bench::accept;
use crate::kernel;
use crate::parallel::PathSpec;

/// How soon it is seen that the time is over.
const STEP: Duration = Duration::from_millis(50);

/// Connections to make.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowd<'a> {
    /// The parallel paths.
    pub(super) paths: &'a [PathSpec],
    /// How many.
    pub(super) connections: u64,
    /// Subflows of each; a client of ours is told by its policy.
    pub(super) subflows: u64,
    /// The path manager of our client.
    pub(super) policy: &'a str,
    /// How long they send.
    pub(super) time: Duration,
}

/// What became of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Found {
    /// Subflows of a connection at the end, on average.
    pub(super) subflows: f64,
    /// Mbit/s that the server read of all.
    pub(super) rate: f64,
}

/// Lets them send over a network of their own.
pub(super) fn send(run: &Run<'_>, crowd: Crowd<'_>) -> Result<Found, String> {
    let network = Network::new(crowd.paths, Spread::InTurn, crowd.subflows)?;
    let listener = listen(&network.server)?;
    let options = ["--path-manager", crowd.policy, "--congestion", "lia"];
    let client = network.client(run, crowd.subflows, &options)?;
    let begun = Instant::now();
    let mut readers = Vec::new();
    for _ in 0..crowd.connections {
        let stream = client.connect(SERVER)?;
        let accepted = accept(&listener, PATIENCE).map_err(failed("accept"))?;
        write_to_the_end(&network.client, stream)?;
        let end = begun + crowd.time;
        let reader = network
            .server
            .thread("figure-reader", move || read(accepted, end));
        readers.push(reader.map_err(failed("the reader"))?);
    }
    let mut bytes = 0;
    let mut streams = Vec::new();
    for reader in readers {
        let read = reader.join().map_err(|_| "the reader panicked")?;
        let (stream, read) = read.map_err(failed("read"))?;
        bytes += read;
        streams.push(stream);
    }
    let time = begun.elapsed();
    // They are looked at while the connections are still there.
    let subflows = kernel::subflows(&network.server).map_err(failed("ss"))?;
    let subflows = subflows.iter().filter(|subflow| subflow.established);
    kept_up(&network.routers)?;
    Ok(Found {
        subflows: subflows.count() as f64 / crowd.connections as f64,
        rate: bytes as f64 * 8.0 / 1e6 / time.as_secs_f64(),
    })
}

/// Reads until a moment, and counts.
fn read(mut stream: TcpStream, end: Instant) -> std::io::Result<(TcpStream, u64)> {
    stream.set_read_timeout(Some(STEP))?;
    let mut chunk = vec![0; 64 << 10];
    let mut read = 0;
    while Instant::now() < end {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len as u64,
            Err(error) => match error.kind() {
                ErrorKind::Interrupted | ErrorKind::WouldBlock | ErrorKind::TimedOut => {}
                _ => return Err(error),
            },
        }
    }
    Ok((stream, read))
}
