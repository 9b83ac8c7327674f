//! One request and its answer, both directions at the same time: an answer may come before the request is whole, and interim
//! answers (`100 Continue`) while its body is waited for.

use std::future::pending;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::body::{AHEAD, BodyError, Meter, copy, send};
use super::fields::{Manner, response};
use super::framing::{Body, length, of_response};
use super::halves::{Halves, NoHead, read_head};
use super::head::{lists, parse_response};
use super::split::{ReadHalf, WriteHalf};
use crate::buffered::Buffered;
use crate::serve::{Bounds, Totals};
use crate::stream::Leg;

/// How often a client is looked at that is not read.
const LOOK_EACH: Duration = Duration::from_secs(1);

/// A small body goes along with its head.
const TOGETHER: usize = 16 * 1024;

/// A request as the server gets it, and what has to be known of the client.
pub(super) struct Outgoing<'a> {
    pub(super) method: &'a str,
    pub(super) head: Vec<u8>,
    pub(super) body: Body,
    /// The client asks for a change of protocol.
    pub(super) upgrade: bool,
    /// The client speaks HTTP/1.0.
    pub(super) old: bool,
    /// The client's connection ends with this exchange.
    pub(super) close: bool,
    pub(super) pseudonym: &'a str,
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The answer is with the client.
    Done {
        status: u16,
        /// The client's connection goes on.
        keep_client: bool,
        /// The server's connection goes on.
        keep_server: bool,
    },
    /// The protocol has changed: what follows is no HTTP.
    Switched,
    /// The server broke off, and the client has nothing of an answer. `silent`: the server said nothing at all.
    Unanswered { silent: bool },
    /// The server's answer is none, and the client has nothing of it.
    BadAnswer,
    /// The request's body is malformed, and the client has nothing of an answer.
    BadRequest,
    /// The answer broke off. `visible`: the client sees that by its framing.
    Cut { status: u16, visible: bool },
    /// The client broke off.
    ClientGone,
    /// Nothing has moved for too long. `answered`: the client has a part of the answer.
    Idle { answered: bool },
}

/// What one exchange has carried.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pub(super) forth: AtomicU64,
    pub(super) back: AtomicU64,
}

/// What the two directions tell each other.
#[derive(Default)]
struct Course {
    /// The request's body is with the server.
    uploaded: AtomicBool,
    uploaded_now: Notify,
    /// The client has something of the final answer.
    answered: AtomicBool,
    /// The client has ended its direction.
    half_closed: AtomicBool,
}

/// Why the direction from the client ended before its time.
enum UpBroken {
    Client,
    BadBody,
}

/// Carries out one exchange.
pub(super) async fn exchange<C, S>(
    client: &mut Halves<C>,
    server: &mut Halves<S>,
    request: &Outgoing<'_>,
    bounds: &Bounds,
    totals: &Totals,
    carried: &Carried,
) -> End
where
    C: Leg,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let forth = Meter {
        own: &carried.forth,
        sum: &totals.bytes_forth,
    };
    let back = Meter {
        own: &carried.back,
        sum: &totals.bytes_back,
    };
    let course = Course::default();
    let most = bounds.header_bytes;
    let up = up(
        &mut client.read,
        &mut server.write,
        request,
        most,
        forth,
        &course,
    );
    let down = down(
        &mut server.read,
        &mut client.write,
        request,
        most,
        back,
        &course,
    );
    let idle = idle(bounds, carried, &course);
    let (mut up, mut down, mut idle) = (pin!(up), pin!(down), pin!(idle));
    let answered = || course.answered.load(Ordering::Relaxed);
    let end = tokio::select! {
        biased;
        end = &mut down => end,
        () = &mut idle => return End::Idle { answered: answered() },
        broken = &mut up => return match broken {
            UpBroken::BadBody if !answered() => End::BadRequest,
            UpBroken::BadBody | UpBroken::Client => End::ClientGone,
        },
    };
    let End::Done {
        status,
        keep_client,
        keep_server,
    } = end
    else {
        return end;
    };
    if course.uploaded.load(Ordering::Relaxed) {
        return end;
    }
    let over = End::Done {
        status,
        keep_client: false,
        keep_server: false,
    };
    if !keep_server {
        return over;
    }
    // A server that goes on reading behind its answer gets the rest.
    tokio::select! {
        biased;
        () = course.uploaded_now.notified() => End::Done { status, keep_client, keep_server },
        _ = &mut up => over,
        () = &mut idle => over,
    }
}

/// The request, to the server; then the client is watched, and does not end but by breaking off.
async fn up<C, S>(
    client: &mut Buffered<ReadHalf<C>>,
    server: &mut S,
    request: &Outgoing<'_>,
    most: usize,
    meter: Meter<'_>,
    course: &Course,
) -> UpBroken
where
    C: Leg,
    S: AsyncWrite + Unpin,
{
    let sent = match send(server, &request.head, meter).await {
        Ok(()) => copy(client, server, request.body, false, true, most, meter).await,
        Err(_) => Err(BodyError::To),
    };
    match sent {
        Ok(()) => {
            course.uploaded.store(true, Ordering::Relaxed);
            course.uploaded_now.notify_one();
        }
        // A server that takes no more may have answered.
        Err(BodyError::To) => {}
        Err(BodyError::From) => return UpBroken::Client,
        Err(BodyError::Bad) => return UpBroken::BadBody,
    }
    loop {
        while client.bytes().len() >= AHEAD {
            // No read tells now that the client has broken off.
            tokio::time::sleep(LOOK_EACH).await;
            if client.get_ref().is_broken() {
                return UpBroken::Client;
            }
        }
        match client.fill().await {
            Ok(0) => {
                course.half_closed.store(true, Ordering::Relaxed);
                pending::<()>().await;
            }
            Ok(_) => {}
            Err(_) => return UpBroken::Client,
        }
    }
}

/// The answer, to the client.
async fn down<C, S>(
    server: &mut Buffered<S>,
    client: &mut WriteHalf<C>,
    request: &Outgoing<'_>,
    most: usize,
    meter: Meter<'_>,
    course: &Course,
) -> End
where
    C: Leg,
    S: AsyncRead + Unpin,
{
    let mut silent = true;
    loop {
        let length = match read_head(server, most).await {
            Ok(length) => length,
            Err(NoHead::Ended) => return End::Unanswered { silent },
            Err(NoHead::Truncated) => return End::Unanswered { silent: false },
            Err(NoHead::TooLarge { .. }) => return End::BadAnswer,
        };
        silent = false;
        let mut out = Vec::new();
        let Ok(answer) = judge(&server.bytes()[..length], request, course, &mut out) else {
            return End::BadAnswer;
        };
        server.consume(length);
        if out.is_empty() {
            continue;
        }
        if !matches!(answer, Judged::Interim) {
            course.answered.store(true, Ordering::Relaxed);
        }
        let (body, keep_server, close, status) = match answer {
            Judged::Interim => match send(client, &out, meter).await {
                Ok(()) => continue,
                Err(_) => return End::ClientGone,
            },
            Judged::Switch => {
                return match send(client, &out, meter).await {
                    Ok(()) => End::Switched,
                    Err(_) => End::ClientGone,
                };
            }
            Judged::Final {
                body,
                keep_server,
                close,
                status,
            } => (body, keep_server, close, status),
        };
        let decode = request.old && body == Body::Chunked;
        let only_the_end_tells = decode || body == Body::UntilClose;
        if only_the_end_tells {
            // Also when we are stopped or killed, a part must not look whole.
            client.reset_on_close(true);
        }
        let (rest, ahead) = along(body, server.bytes());
        out.extend(&server.bytes()[..ahead]);
        server.consume(ahead);
        if send(client, &out, meter).await.is_err() {
            return End::ClientGone;
        }
        return match copy(server, client, rest, decode, false, most, meter).await {
            Ok(()) => {
                if only_the_end_tells {
                    client.reset_on_close(false);
                }
                End::Done {
                    status,
                    keep_client: !close,
                    keep_server: keep_server && server.bytes().is_empty(),
                }
            }
            Err(BodyError::To) => End::ClientGone,
            Err(BodyError::From | BodyError::Bad) => End::Cut {
                status,
                visible: !only_the_end_tells,
            },
        };
    }
}

/// What of a small body was read with its head, and what is left of it.
fn along(body: Body, bytes: &[u8]) -> (Body, usize) {
    match body {
        Body::Length(length) => {
            let most = usize::try_from(length).unwrap_or(usize::MAX);
            let n = bytes.len().min(most).min(TOGETHER);
            (Body::Length(length - n as u64), n)
        }
        other => (other, 0),
    }
}

/// What an answer's head means.
enum Judged {
    Interim,
    Switch,
    Final {
        body: Body,
        keep_server: bool,
        close: bool,
        status: u16,
    },
}

/// Reads an answer's head and writes into `out` what the client gets of it: nothing, for an interim one and HTTP/1.0.
fn judge(
    bytes: &[u8],
    request: &Outgoing<'_>,
    course: &Course,
    out: &mut Vec<u8>,
) -> Result<Judged, ()> {
    let head = parse_response(bytes).map_err(|_| ())?;
    let body = of_response(request.method, &head).map_err(|_| ())?;
    let mut how = Manner {
        pseudonym: request.pseudonym,
        body,
        close: false,
        old: request.old,
    };
    match head.status {
        // What is left of a body would be taken for the new protocol.
        101 if request.upgrade && course.uploaded.load(Ordering::Relaxed) => {
            *out = response(&head, how);
            return Ok(Judged::Switch);
        }
        101 => return Err(()),
        100..=199 => {
            if !request.old {
                *out = response(&head, how);
            }
            return Ok(Judged::Interim);
        }
        _ => {}
    }
    let has = |name, option| lists(&head.fields, name, option);
    let doubtful = head.fields.iter().any(|field| field.is("content-length"));
    // A server that announces a body where none may be may send one, and it would be read as the next answer.
    let coded = head
        .fields
        .iter()
        .any(|field| field.is("transfer-encoding"));
    let stray = match head.status {
        _ if request.method == "HEAD" => false,
        204 => coded || !matches!(length(&head.fields), Ok(None | Some(0))),
        304 => coded,
        _ => false,
    };
    let keep_server = !stray
        && body != Body::UntilClose
        && !has("connection", "close")
        && (head.minor > 0 || has("connection", "keep-alive"))
        && !(body == Body::Chunked && doubtful);
    let uploaded = course.uploaded.load(Ordering::Relaxed);
    let decode = request.old && body == Body::Chunked;
    // A request that is refused before it is whole is not waited for (RFC 9110 section 10.1.1).
    let cut_short = !uploaded && (!keep_server || head.status >= 400);
    how.close = request.close || body == Body::UntilClose || decode || cut_short;
    if decode {
        how.body = Body::UntilClose;
    }
    *out = response(&head, how);
    Ok(Judged::Final {
        body,
        keep_server: keep_server && !cut_short,
        close: how.close,
        status: head.status,
    })
}

/// Ends when nothing has moved for as long as that may last, give or take an eighth.
async fn idle(bounds: &Bounds, carried: &Carried, course: &Course) {
    let shorter = [bounds.idle, bounds.half_closed]
        .into_iter()
        .flatten()
        .min();
    let moved = || {
        let [forth, back] = [&carried.forth, &carried.back].map(|n| n.load(Ordering::Relaxed));
        forth + back
    };
    let (mut seen, mut quiet) = (moved(), Duration::ZERO);
    loop {
        let limit = match course.half_closed.load(Ordering::Relaxed) {
            true => shorter,
            false => bounds.idle,
        };
        // The bound may become shorter on the way.
        let tick = shorter.unwrap_or(Duration::from_secs(3600)) / 8;
        tokio::time::sleep(tick).await;
        quiet = if moved() == seen {
            quiet + tick
        } else {
            Duration::ZERO
        };
        seen = moved();
        if limit.is_some_and(|limit| quiet >= limit) {
            return;
        }
    }
}

/// Ends the direction to a client, and reads what it still says for a while: closing a socket with unread bytes makes the host
/// send a RST, which may take the answer from its reader (RFC 9112 section 9.6).
pub(super) async fn linger<C: AsyncRead + AsyncWrite + Unpin>(client: &mut Halves<C>) {
    const QUIET: Duration = Duration::from_secs(5);
    const LONGEST: Duration = Duration::from_secs(30);
    use tokio::io::AsyncWriteExt;
    let drain = async {
        if client.write.shutdown().await.is_err() {
            return;
        }
        loop {
            let n = client.read.bytes().len();
            client.read.consume(n);
            let read: Result<io::Result<usize>, _> =
                tokio::time::timeout(QUIET, client.read.fill()).await;
            if !matches!(read, Ok(Ok(1..))) {
                return;
            }
        }
    };
    let _ = tokio::time::timeout(LONGEST, drain).await;
}
