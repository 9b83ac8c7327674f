//! The end that waits: answers what a client's header asks for.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tracing::warn;

use super::transfer::{self, Half};
use super::wire::{Header, Kind, NotAHeader};
use crate::seldom::Seldom;
use crate::stream::{Listener, Stream};

/// Longest request or response that a server agrees to, in bytes.
const MAX_MESSAGE: u32 = 64 << 20;

/// How a server treats its clients.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServeOptions {
    /// Send to every client at once and without a header: so many bytes (zero: until it goes away), for clients
    /// that speak plain TCP.
    pub source: Option<u64>,
    /// Stop after so many connections.
    pub stop_after: Option<u64>,
}

/// What was done for one client.
#[derive(Clone, Debug)]
pub struct Served {
    /// The client.
    pub peer: SocketAddr,
    /// What it asked for; `None`: it sent or was sent plain data.
    pub kind: Option<Kind>,
    /// Bytes of data, both ways together for requests.
    pub bytes: u64,
    /// From the accept to the end.
    pub elapsed: Duration,
    /// Why it ended early.
    pub error: Option<String>,
}

/// Serves until `stop` completes or enough clients came. `tell` hears of every client that is done.
pub async fn serve(
    mut listener: Listener,
    options: ServeOptions,
    tell: impl Fn(Served) + Send + Sync + 'static,
    stop: impl Future<Output = ()>,
) {
    let tell = Arc::new(tell);
    let mut tasks = JoinSet::new();
    let mut accepted = 0;
    let failures = Seldom::every(Duration::from_secs(1));
    tokio::pin!(stop);
    while options.stop_after.is_none_or(|limit| accepted < limit) {
        tokio::select! {
            () = &mut stop => {
                tasks.shutdown().await;
                return;
            }
            // A finished task has nothing to say, but it holds memory until it is taken out.
            Some(_) = tasks.join_next() => {}
            next = listener.accept() => match next {
                Ok((stream, peer)) => {
                    accepted += 1;
                    let tell = Arc::clone(&tell);
                    tasks.spawn(async move { tell(one(stream, peer, options).await) });
                }
                Err(error) => {
                    if failures.due(Instant::now()).is_some() {
                        warn!(%error, "cannot accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
        }
    }
    tokio::select! {
        () = &mut stop => tasks.shutdown().await,
        () = async { while tasks.join_next().await.is_some() {} } => {}
    }
}

async fn one(mut stream: Stream, peer: SocketAddr, options: ServeOptions) -> Served {
    let started = Instant::now();
    let mut kind = None;
    let mut bytes = 0;
    let result = match options.source {
        Some(limit) => source(&mut stream, limit, &mut bytes).await,
        None => answer(&mut stream, &mut kind, &mut bytes).await,
    };
    let error = result.err().map(|error| error.to_string());
    if error.is_some() {
        stream.abort();
    }
    Served {
        peer,
        kind,
        bytes,
        elapsed: started.elapsed(),
        error,
    }
}

async fn source(stream: &mut Stream, limit: u64, bytes: &mut u64) -> io::Result<()> {
    let header = Header {
        kind: Kind::Receive,
        hash: false,
        seed: 0,
        bytes: limit,
        millis: 0,
        request: 0,
        response: 0,
    };
    transfer::send(stream, &header, |n| *bytes += n).await?;
    stream.shutdown().await
}

async fn answer(stream: &mut Stream, kind: &mut Option<Kind>, bytes: &mut u64) -> io::Result<()> {
    let mut first = [0; Header::LEN];
    let mut filled = 0;
    while filled < first.len() {
        let n = stream.read(&mut first[filled..]).await?;
        if n == 0 {
            // Shorter than any header: plain data.
            *bytes += filled as u64;
            return stream.shutdown().await;
        }
        filled += n;
    }
    let header = match Header::parse(&first) {
        Ok(header) => header,
        Err(NotAHeader::Plain) => {
            *bytes += first.len() as u64;
            transfer::receive(stream, false, false, |n| *bytes += n).await?;
            return stream.shutdown().await;
        }
        Err(NotAHeader::Unknown) => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the client speaks a newer protocol",
            ));
        }
    };
    *kind = Some(header.kind);
    match header.kind {
        Kind::Send => {
            let (half, _) = transfer::receive(stream, header.hash, false, |n| *bytes += n).await?;
            finish(stream, &half).await
        }
        Kind::Receive => {
            let half = transfer::send(stream, &header, |n| *bytes += n).await?;
            finish(stream, &half).await
        }
        Kind::Requests => requests(stream, &header, bytes).await,
    }
}

async fn finish(stream: &mut Stream, half: &Half) -> io::Result<()> {
    stream.write_all(&half.trailer().to_bytes()).await?;
    stream.shutdown().await
}

async fn requests(stream: &mut Stream, header: &Header, bytes: &mut u64) -> io::Result<()> {
    if header.request == 0 || header.request > MAX_MESSAGE || header.response > MAX_MESSAGE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a size that this server does not serve",
        ));
    }
    stream.set_nodelay(true)?;
    // Both are at most MAX_MESSAGE, which fits everywhere.
    let mut request = vec![0; header.request as usize];
    let response = vec![0x5a; header.response as usize];
    loop {
        match stream.read_exact(&mut request[..1]).await {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return stream.shutdown().await;
            }
            Err(error) => return Err(error),
        }
        stream.read_exact(&mut request[1..]).await?;
        stream.write_all(&response).await?;
        stream.flush().await?;
        *bytes += u64::from(header.request) + u64::from(header.response);
    }
}
