//! The end that asks: runs a job over one or many connections.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use super::report::{Gathered, Outcome, Progress, Summary};
use super::stall::unless_stalled;
use super::transfer;
use super::wire::{Header, Kind, Trailer};
use crate::Error;
use crate::endpoint::Endpoint;
use crate::sockets::Sockets;
use crate::stream::Stream;

/// What each connection does.
#[derive(Clone, Copy, Debug)]
pub enum Plan {
    /// As the header says; for requests, so many rounds.
    Measure {
        /// What is sent first.
        header: Header,
        /// Rounds, for [`Kind::Requests`].
        rounds: u64,
    },
    /// No header: send so many bytes (and for so long) to a peer that discards them, or read until its end.
    Plain {
        /// Amounts; its kind decides the direction.
        header: Header,
    },
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Job {
    /// The peer.
    pub to: Endpoint,
    /// What each connection does.
    pub plan: Plan,
    /// Connections altogether.
    pub connections: u64,
    /// Connections at one time.
    pub parallel: usize,
}

/// Runs the job. `progress` moves meanwhile.
///
/// # Errors
/// The only connection failed. Of several, failures are counted in the summary.
pub async fn run(job: &Job, sockets: &Sockets, progress: &Arc<Progress>) -> Result<Summary, Error> {
    let started = Instant::now();
    let gathered = Arc::new(Gathered::default());
    if job.connections == 1 {
        let outcome = one(job, sockets, progress, &gathered).await;
        progress.count_connection(outcome.is_err());
        gathered.add(outcome?);
    } else {
        let left = Arc::new(AtomicU64::new(job.connections));
        let mut workers = JoinSet::new();
        for _ in 0..job.parallel.max(1) {
            let (job, sockets, left) = (job.clone(), sockets.clone(), Arc::clone(&left));
            let (progress, gathered) = (Arc::clone(progress), Arc::clone(&gathered));
            workers.spawn(async move {
                let take = |n: u64| n.checked_sub(1);
                while left
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                    .is_ok()
                {
                    let outcome = one(&job, &sockets, &progress, &gathered).await;
                    progress.count_connection(outcome.is_err());
                    match outcome {
                        Ok(outcome) => gathered.add(outcome),
                        Err(error) => gathered.fail(error.to_string()),
                    }
                }
            });
        }
        while workers.join_next().await.is_some() {}
    }
    let elapsed = started.elapsed();
    // All workers are gone, and with them their shares.
    let gathered = Arc::into_inner(gathered).unwrap_or_default();
    let mut summary = gathered.summary(elapsed);
    // Connections that were cut have no outcome, and have carried something all the same.
    summary.count(progress.bytes());
    Ok(summary)
}

/// What requests are made of.
const FILL: u8 = 0xa5;

async fn one(
    job: &Job,
    sockets: &Sockets,
    progress: &Progress,
    gathered: &Gathered,
) -> Result<Outcome, Error> {
    let began = Instant::now();
    let fast = sockets.opens_fast(job.to.proto);
    let opening = opening(&job.plan, fast);
    let mut stream = sockets.connect_with(&job.to, &opening).await?;
    let connect = began.elapsed();
    let outgoing = stream.outgoing();
    let moved = AtomicU64::new(0);
    let count = |n: u64| {
        progress.count_bytes(n);
        moved.fetch_add(n, Ordering::Relaxed);
    };
    let marks = || (moved.load(Ordering::Relaxed), outgoing.waiting());
    let millis = match job.plan {
        Plan::Measure { header, .. } | Plan::Plain { header } => u64::from(header.millis),
    };
    let time = (millis > 0).then(|| Duration::from_millis(millis));
    let work = async {
        match job.plan {
            Plan::Measure { header, rounds } => match header.kind {
                Kind::Send => send(&mut stream, &header, count).await,
                Kind::Receive => receive(&mut stream, &header, count).await,
                Kind::Requests => {
                    let asked = fast.then_some(began);
                    requests(&mut stream, &header, rounds, asked, progress, gathered).await
                }
            },
            Plan::Plain { header } => plain(&mut stream, &header, count).await,
        }
    };
    let result = unless_stalled(time, marks, work).await;
    if result.is_err() {
        // A peer that has not everything must not take it for the whole.
        stream.abort();
    }
    result
        .map(|outcome| Outcome { connect, ..outcome })
        .map_err(|source| Error::new(format!("exchange data with {}", job.to), source))
}

/// What a connection begins with. With Fast Open the first request goes along, or nothing would be gained.
fn opening(plan: &Plan, fast: bool) -> Vec<u8> {
    let Plan::Measure { header, rounds } = plan else {
        return Vec::new();
    };
    let mut bytes = header.to_bytes().to_vec();
    if fast && header.kind == Kind::Requests && *rounds > 0 {
        bytes.resize(bytes.len() + header.request as usize, FILL);
    }
    bytes
}

async fn send(stream: &mut Stream, header: &Header, count: impl Fn(u64)) -> io::Result<Outcome> {
    let started = Instant::now();
    let half = transfer::send(stream, header, count).await?;
    stream.shutdown().await?;
    let mut tail = [0; Trailer::LEN];
    stream.read_exact(&mut tail).await.map_err(no_answer)?;
    let theirs = Trailer::parse(&tail);
    expect_end(stream).await?;
    let same = theirs.bytes == half.bytes && half.sha256.is_none_or(|ours| ours == theirs.sha256);
    Ok(Outcome {
        bytes: theirs.bytes,
        connect: Duration::ZERO,
        elapsed: started.elapsed(),
        sha256: half.sha256,
        same: Some(same),
    })
}

async fn receive(stream: &mut Stream, header: &Header, count: impl Fn(u64)) -> io::Result<Outcome> {
    let started = Instant::now();
    // Our direction stays open until the end: a kernel that has seen our DATA_FIN takes no further subflows.
    let (half, trailer) = transfer::receive(stream, header.hash, true, count)
        .await
        .map_err(no_answer)?;
    stream.shutdown().await?;
    let same = trailer.map(|theirs| {
        theirs.bytes == half.bytes && half.sha256.is_none_or(|ours| ours == theirs.sha256)
    });
    Ok(Outcome {
        bytes: half.bytes,
        connect: Duration::ZERO,
        elapsed: started.elapsed(),
        sha256: half.sha256,
        same,
    })
}

/// Requests and responses. The first request went along with the opening if it was `asked` already.
async fn requests(
    stream: &mut Stream,
    header: &Header,
    rounds: u64,
    asked: Option<Instant>,
    progress: &Progress,
    gathered: &Gathered,
) -> io::Result<Outcome> {
    let started = Instant::now();
    stream.set_nodelay(true)?;
    // The sizes were checked against the server's limit when the command line was read, or the server refuses.
    let request = vec![FILL; header.request as usize];
    let mut response = vec![0; header.response as usize];
    let mut times = Vec::new();
    for round in 0..rounds {
        let sent = match asked.filter(|_| round == 0) {
            Some(asked) => asked,
            None => {
                let sent = Instant::now();
                stream.write_all(&request).await?;
                stream.flush().await?;
                sent
            }
        };
        stream.read_exact(&mut response).await.map_err(no_answer)?;
        times.push(sent.elapsed());
        progress.count_round();
        progress.count_bytes(u64::from(header.request) + u64::from(header.response));
    }
    stream.shutdown().await?;
    expect_end(stream).await?;
    gathered.add_rounds(times);
    Ok(Outcome {
        bytes: rounds * (u64::from(header.request) + u64::from(header.response)),
        connect: Duration::ZERO,
        elapsed: started.elapsed(),
        sha256: None,
        same: None,
    })
}

async fn plain(stream: &mut Stream, header: &Header, count: impl Fn(u64)) -> io::Result<Outcome> {
    let started = Instant::now();
    let half = match header.kind {
        Kind::Send => {
            let half = transfer::send(stream, header, count).await?;
            stream.shutdown().await?;
            // The peer closes when it has read everything; what it says meanwhile is of no interest.
            transfer::receive(stream, false, false, |_| {}).await?;
            half
        }
        Kind::Receive | Kind::Requests => {
            let (half, _) = transfer::receive(stream, header.hash, false, count).await?;
            stream.shutdown().await?;
            half
        }
    };
    Ok(Outcome {
        bytes: half.bytes,
        connect: Duration::ZERO,
        elapsed: started.elapsed(),
        sha256: half.sha256,
        same: None,
    })
}

/// The peer has nothing more to say.
async fn expect_end(stream: &mut Stream) -> io::Result<()> {
    match stream.read(&mut [0; 1]).await? {
        0 => Ok(()),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the peer sent more than the protocol has",
        )),
    }
}

/// An end of file in the wrong place means that the peer is no measuring server.
fn no_answer(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the peer ended the connection without a result; if it is no `manypath perf serve`, use --plain",
        )
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::server::{ServeOptions, serve};
    use std::sync::Mutex;

    const HEADER: Header = Header {
        kind: Kind::Send,
        hash: true,
        seed: 5,
        bytes: 3_000_001,
        millis: 0,
        request: 100,
        response: 3000,
    };

    /// Runs a plan against a server of ours and gives its summary and what the server saw.
    async fn against(
        options: ServeOptions,
        plan: Plan,
        connections: u64,
    ) -> (Result<Summary, Error>, Vec<crate::perf::Served>) {
        let sockets = Sockets::default();
        let listener = sockets
            .listen(&"tcp:127.0.0.1:0".parse().expect("endpoint"), None)
            .await
            .expect("loopback");
        let addr = listener.local_addr().expect("bound");
        let options = ServeOptions {
            stop_after: Some(connections),
            ..options
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let tell = {
            let seen = Arc::clone(&seen);
            move |served| seen.lock().expect("no panic before").push(served)
        };
        let server = tokio::spawn(serve(listener, options, tell, std::future::pending()));
        let job = Job {
            to: format!("tcp:{addr}").parse().expect("endpoint"),
            plan,
            connections,
            parallel: 4,
        };
        let summary = run(&job, &sockets, &Arc::new(Progress::default())).await;
        server.await.expect("no panic");
        let seen = seen.lock().expect("no panic before").clone();
        (summary, seen)
    }

    #[tokio::test]
    async fn both_ends_agree_on_what_was_sent_and_received() {
        for kind in [Kind::Send, Kind::Receive] {
            let plan = Plan::Measure {
                header: Header { kind, ..HEADER },
                rounds: 0,
            };
            let (summary, seen) = against(ServeOptions::default(), plan, 1).await;
            let summary = summary.expect("measured");
            assert_eq!((summary.bytes, summary.same), (HEADER.bytes, Some(true)));
            assert!(summary.sha256.is_some());
            assert_eq!(
                (seen[0].bytes, seen[0].kind, seen[0].error.clone()),
                (HEADER.bytes, Some(kind), None)
            );
        }
    }

    #[tokio::test]
    async fn many_connections_of_requests() {
        let plan = Plan::Measure {
            header: Header {
                kind: Kind::Requests,
                ..HEADER
            },
            rounds: 3,
        };
        let (summary, seen) = against(ServeOptions::default(), plan, 20).await;
        let summary = summary.expect("measured");
        assert_eq!(
            (summary.connections, summary.requests, summary.bytes),
            (20, 60, 60 * 3100)
        );
        assert!(summary.failures.is_empty());
        assert!(
            seen.iter()
                .all(|s| s.error.is_none() && s.bytes == 3 * 3100)
        );
    }

    #[tokio::test]
    async fn plain_peers() {
        let send = Plan::Plain {
            header: Header {
                hash: false,
                ..HEADER
            },
        };
        let (summary, seen) = against(ServeOptions::default(), send, 1).await;
        assert_eq!(summary.expect("sent").bytes, HEADER.bytes);
        assert_eq!((seen[0].kind, seen[0].bytes), (None, HEADER.bytes));
        let receive = Plan::Plain {
            header: Header {
                kind: Kind::Receive,
                ..HEADER
            },
        };
        let source = ServeOptions {
            source: Some(1_000_000),
            ..ServeOptions::default()
        };
        let (summary, _) = against(source, receive, 1).await;
        assert_eq!(summary.expect("received").bytes, 1_000_000);
    }

    #[tokio::test]
    async fn a_peer_without_the_protocol_is_named_as_such() {
        let source = ServeOptions {
            source: Some(10),
            ..ServeOptions::default()
        };
        let plan = Plan::Measure {
            header: Header {
                kind: Kind::Receive,
                ..HEADER
            },
            rounds: 0,
        };
        let (summary, _) = against(source, plan, 1).await;
        let error = summary.expect_err("no trailer").to_string();
        assert!(error.contains("--plain"), "{error}");
    }
}
