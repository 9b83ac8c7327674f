//! A file on real packets over parallel paths of which a router chooses by a hash of addresses and ports: how long it takes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::super::Run;
use super::super::ends::listen;
use super::super::real::{PATIENCE, failed, kept_up};
use super::super::routed::{Network, SERVER, Spread};
use crate::bench::accept;
use crate::parallel::PathSpec;

/// A file to send.
#[derive(Debug, Clone, Copy)]
pub(super) struct File<'a> {
    /// The parallel paths.
    pub(super) paths: &'a [PathSpec],
    /// Its bytes.
    pub(super) size: u64,
    /// How many subflows the connection is to have.
    pub(super) subflows: u64,
    /// The path manager of our client.
    pub(super) policy: &'a str,
    /// It may not take longer.
    pub(super) most: Duration,
}

/// Sends the file over a network of its own and gives the seconds from the connection to its last byte.
pub(super) fn seconds(run: &Run<'_>, file: File<'_>) -> Result<f64, String> {
    let network = Network::new(file.paths, Spread::Hash, file.subflows)?;
    let listener = listen(&network.server)?;
    // The relay lives as long as the transfer.
    let options = ["--path-manager", file.policy];
    let client = network.client(run, file.subflows, &options)?;
    let stream = client.connect(SERVER)?;
    let accepted = accept(&listener, PATIENCE).map_err(failed("accept"))?;
    let begun = Instant::now();
    let size = file.size;
    let writer = network
        .client
        .thread("figure-writer", move || write(stream, size))
        .map_err(failed("the writer"))?;
    read(accepted, size, begun + file.most).map_err(failed("read"))?;
    let time = begun.elapsed();
    let written = writer.join().map_err(|_| "the writer panicked")?;
    written.map_err(failed("write"))?;
    kept_up(&network.routers)?;
    Ok(time.as_secs_f64())
}

/// Writes so much and waits until the other end closes.
fn write(mut stream: TcpStream, mut size: u64) -> std::io::Result<()> {
    let chunk = vec![0x5a; 64 << 10];
    // A peer that stops reading without closing must not hold up the thread for ever.
    stream.set_write_timeout(Some(PATIENCE))?;
    while size > 0 {
        let part = chunk.len().min(usize::try_from(size).unwrap_or(usize::MAX));
        stream.write_all(&chunk[..part])?;
        size -= part as u64;
    }
    // Its end is the peer's, which needs no word of ours.
    let _ = stream.read(&mut [0]);
    Ok(())
}

/// Reads so much, until a moment at most.
fn read(mut stream: TcpStream, size: u64, end: Instant) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut chunk = vec![0; 64 << 10];
    let mut read = 0;
    while read < size {
        if Instant::now() > end {
            return Err(ErrorKind::TimedOut.into());
        }
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => read += len as u64,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
