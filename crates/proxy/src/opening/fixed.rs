//! Every connection goes to one place, which the operator has chosen.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use tracing::{info, warn};

use crate::Error;
use crate::buffered::Buffered;
use crate::endpoint::Endpoint;
use crate::opening::proxy_protocol;
use crate::request::{Request, Target, Way};
use crate::seldom::Others;
use crate::serve::Refusal;
use crate::serve::row::PAUSE;
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::stream::{Leg, Stream};
use crate::target::connect::leads_to_us;
use crate::target::failure::{is_out_of_files, of_connecting, of_resolving};

/// How long a connection is waited with for the first bytes that could go along with its SYN: whoever speaks first has
/// them ready.
const EARLY_WAIT: Duration = Duration::from_millis(10);

/// At most so many of them: more than a SYN carries is no gain.
const EARLY_MOST: usize = 1500;

/// Carries a connection to `to`.
pub(crate) async fn serve(
    session: &Session,
    mut stream: Buffered<Stream>,
    to: &Endpoint,
) -> Outcome {
    let started = Instant::now();
    let mut early = match session.spec().proxy_out {
        Some(version) => proxy_protocol::header(version, session.client, session.local),
        None => Vec::new(),
    };
    let header = early.len();
    if session.row.shared.sockets.opens_fast(to.proto) {
        match first_bytes(&mut stream).await {
            Ok(bytes) => early.extend(bytes),
            Err(error) => {
                info!(peer = %session.client, %error, "broken");
                stream.abort();
                return Outcome::Broken;
            }
        }
    }
    let request = Request {
        target: target(to),
        client: session.nobody(),
        way: Way::Fixed,
    };
    if leads_to_us(&session.row.shared, to).await {
        session.refused(Some(&request), Refusal::Loop);
        if let Some(more) = session.row.not_reached.due(Instant::now()) {
            warn!(
                "{to} is one of our own listeners: name the server behind it{}",
                Others(more)
            );
        }
        stream.abort();
        return Outcome::Refused;
    }
    if let Err(why) = session.admit(&request) {
        session.refused(Some(&request), why);
        stream.abort();
        return Outcome::Refused;
    }
    let far = match reach(session, to, &early).await {
        Ok(far) => far,
        Err(Error { what, source }) => {
            let failure = match what.starts_with("find") {
                true => of_resolving(&source),
                false => of_connecting(&source),
            };
            session.failed(&request, failure, &what, &source);
            stream.abort();
            return Outcome::Unreachable;
        }
    };
    session.connected(&request, &far, started.elapsed());
    let reached = far.peer_addr().ok();
    let early = (early.len() - header) as u64;
    let pair = (stream, far);
    session.tunnel(request, pair, reached, early, started).await
}

/// The endpoint as a target. What is no name of the usual form, a link-local address with its zone for example, is told as it is.
fn target(to: &Endpoint) -> Target {
    let (host, port) = (to.at.host(), to.at.port());
    Target::from_host(host, port).unwrap_or_else(|_| Target::Name {
        host: host.into(),
        port,
    })
}

/// Connects to the other side. Without a descriptor it waits for one, as long as it would for an answer.
async fn reach(session: &Session, to: &Endpoint, early: &[u8]) -> Result<Stream, Error> {
    let started = Instant::now();
    let row = &session.row;
    let sockets = &row.shared.sockets;
    loop {
        match sockets.connect_with(to, early).await {
            Err(error)
                if is_out_of_files(&error.source)
                    && started.elapsed() < sockets.connect_timeout =>
            {
                if let Some(more) = row.not_reached.due(Instant::now()) {
                    warn!(error = %error.source, "cannot {} yet{}", error.what, Others(more));
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(stream) => {
                // A stream that is broken already says so at the first read.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => return Err(error),
        }
    }
}

/// What a client says before it hears anything, if it says it at once. An end shows again when the relay reads; an error of the
/// host's socket would not, and the next read would take it for an end.
async fn first_bytes(stream: &mut Buffered<Stream>) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; EARLY_MOST];
    let read = tokio::time::timeout(EARLY_WAIT, stream.read(&mut bytes)).await;
    bytes.truncate(read.unwrap_or(Ok(0))?);
    Ok(bytes)
}
