//! A client's connection: one request after the other, each by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::answer::Answer;
use super::exchange::{Carried, End, Outgoing, exchange, linger};
use super::fields::{Absolute, Additions, absolute, is_loop, max_forwards, request, upgrades};
use super::framing::{BadFraming, Body, of_request};
use super::halves::{Halves, NoHead, read_head};
use super::head::{BadHead, RequestHead, empty_lines, is_hopeless, lists, parse_request};
use super::server::Server;
use crate::buffered::Buffered;
use crate::carried::{CarriedBy, PathAccount, since};
use crate::maybe_tls::MaybeTls;
use crate::opening::proxy_protocol;
use crate::request::{Client, Request, Target, Way};
use crate::serve::policy::Policy;
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::serve::{Ended, Failure, How, Refusal};
use crate::stream::Leg;
use crate::target::connect::Unreached;

/// Credentials that were right, and the policy that said so.
struct Known {
    credentials: Vec<u8>,
    user: Arc<str>,
    policy: Arc<Policy>,
}

/// A client's connection.
struct Conn<'a> {
    session: &'a Session,
    client: Halves<MaybeTls>,
    account: Option<PathAccount>,
    server: Option<Server>,
    known: Option<Known>,
    outcome: Outcome,
}

/// A head of that size is always taken; larger ones have a bound in all.
const SMALL_HEAD: usize = 16 * 1024;

/// A request's head, and the room that it takes.
struct TakenHead {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

/// What follows a request.
enum Next {
    /// The next one.
    Again,
    /// The connection ends in order, when the client has everything.
    Close,
    /// The client must see that something is missing, and gets what was written before.
    Abort,
    /// The client takes nothing.
    Reset,
    /// What follows is no HTTP.
    Tunnel(Box<Tunnel>),
}

struct Tunnel {
    request: Request,
    server: Buffered<MaybeTls>,
    reached: Option<SocketAddr>,
    started: Instant,
}

/// Serves a client until its connection is over.
pub(crate) async fn serve(session: &Session, stream: Buffered<MaybeTls>) -> Outcome {
    let mut conn = Conn {
        session,
        account: stream.get_ref().account(),
        client: Halves::new(stream),
        server: None,
        known: None,
        outcome: Outcome::Finished,
    };
    let mut first = true;
    loop {
        // What a request needs is there only while there is one.
        let next = match conn.wait(first).await {
            true => Box::pin(conn.next()).await,
            false => Next::Close,
        };
        first = false;
        match next {
            Next::Again => {}
            Next::Close => {
                linger(&mut conn.client).await;
                return conn.outcome;
            }
            Next::Abort => {
                // What was written before a reset has to arrive before it.
                let client = conn.client.join();
                delivered(&client).await;
                client.abort();
                return conn.outcome;
            }
            Next::Reset => {
                conn.client.join().abort();
                return conn.outcome;
            }
            Next::Tunnel(tunnel) => {
                let Tunnel {
                    request,
                    server,
                    reached,
                    started,
                } = *tunnel;
                let pair = (conn.client.join(), server);
                return Box::pin(session.tunnel(request, pair, reached, 0, started)).await;
            }
        }
    }
}

/// Writes an answer of the proxy itself. A client that takes none of it for so long is not waited for.
async fn said<W: AsyncWrite + Unpin>(
    to: &mut W,
    bytes: &[u8],
    limit: std::time::Duration,
) -> io::Result<()> {
    let whole = async {
        to.write_all(bytes).await?;
        to.flush().await
    };
    timeout(limit, whole).await?
}

/// Waits until the peer has acknowledged everything, or has taken nothing for too long.
async fn delivered(client: &Buffered<MaybeTls>) {
    const LONGEST: std::time::Duration = std::time::Duration::from_secs(30);
    let began = Instant::now();
    let mut pause = std::time::Duration::from_millis(2);
    while client.unacknowledged().unwrap_or(0) > 0 && began.elapsed() < LONGEST {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(std::time::Duration::from_millis(250));
    }
}

impl Conn<'_> {
    /// Waits for the first byte of a request; false if none comes.
    async fn wait(&mut self, first: bool) -> bool {
        if !self.client.read.bytes().is_empty() {
            return true;
        }
        let bounds = self.session.bounds();
        let limit = if first {
            bounds.header_time
        } else {
            bounds.keep_alive
        };
        match timeout(limit, self.client.read.fill()).await {
            Ok(Ok(n)) => n > 0,
            Ok(Err(_)) => false,
            Err(_) => {
                if first {
                    self.session.refused(None, Refusal::HeaderTimeout);
                    self.outcome = Outcome::Refused;
                }
                false
            }
        }
    }

    /// Takes a request's head from the connection; its first byte is there.
    async fn head(&mut self) -> Result<TakenHead, (Refusal, Option<u16>)> {
        let bounds = self.session.bounds();
        let shared = &self.session.row.shared;
        let read = &mut self.client.read;
        let whole = async {
            let lines = empty_lines(read.bytes());
            read.consume(lines);
            if read.bytes().is_empty() && !matches!(read.fill().await, Ok(1..)) {
                return Err((Refusal::Truncated, None));
            }
            if is_hopeless(read.bytes()) {
                return Err((Refusal::Malformed, None));
            }
            let small = bounds.header_bytes.min(SMALL_HEAD);
            let (mut found, mut room) = (read_head(read, small).await, None);
            if matches!(found, Err(NoHead::TooLarge { .. })) && small < bounds.header_bytes {
                room = shared.takes_head(bounds.header_bytes);
                if room.is_none() {
                    return Err((Refusal::HeaderTooLarge, Some(503)));
                }
                found = read_head(read, bounds.header_bytes).await;
            }
            match found {
                Ok(length) => Ok((length, room)),
                Err(NoHead::Ended | NoHead::Truncated) => Err((Refusal::Truncated, None)),
                Err(NoHead::TooLarge { line_over }) => {
                    let status = (!line_over).then_some(414);
                    Err((Refusal::HeaderTooLarge, status))
                }
            }
        };
        let (length, room) = match timeout(bounds.header_time, whole).await {
            Ok(found) => found?,
            Err(_) => return Err((Refusal::HeaderTimeout, None)),
        };
        let bytes = read.bytes()[..length].to_vec();
        read.consume(length);
        Ok(TakenHead { bytes, _room: room })
    }

    /// Serves one request.
    async fn next(&mut self) -> Next {
        let taken = match self.head().await {
            Ok(taken) => taken,
            Err((why, status)) => return self.refuse(None, "", why, status, true).await,
        };
        let head = match parse_request(&taken.bytes) {
            Ok(head) => head,
            Err(bad) => {
                let (why, status) = match bad {
                    BadHead::Malformed => (Refusal::Malformed, None),
                    BadHead::TooManyFields => (Refusal::HeaderTooLarge, None),
                    BadHead::Version => (Refusal::Unsupported, Some(505)),
                };
                return self.refuse(None, "", why, status, true).await;
            }
        };
        let body = match of_request(&head) {
            Ok(body) => body,
            Err(BadFraming::Ambiguous) => {
                let why = Refusal::Ambiguous;
                return self.refuse(None, head.method, why, None, true).await;
            }
            Err(BadFraming::Coding) => {
                let why = Refusal::Ambiguous;
                return self.refuse(None, head.method, why, Some(501), true).await;
            }
        };
        if head.fields.iter().filter(|field| field.is("host")).count() > 1 {
            let why = Refusal::Ambiguous;
            return self.refuse(None, head.method, why, None, true).await;
        }
        match head.method {
            "CONNECT" => self.connect(&head, body).await,
            _ => self.pass(&head, body).await,
        }
    }

    /// Answers with a refusal. Where `close` is false the connection goes on.
    async fn refuse(
        &mut self,
        request: Option<&Request>,
        method: &str,
        why: Refusal,
        status: Option<u16>,
        close: bool,
    ) -> Next {
        self.session.refused(request, why);
        self.outcome = Outcome::Refused;
        let Some(answer) = Answer::to_refused(why) else {
            return Next::Close;
        };
        let answer = status.map_or(answer, |status| answer.with_status(status));
        self.answer(answer, method, close).await
    }

    async fn answer(&mut self, answer: Answer, method: &str, close: bool) -> Next {
        let pseudonym = &self.session.row.shared.pseudonym;
        let bytes = answer.bytes(pseudonym, method, close);
        let back = &self.session.row.totals.bytes_back;
        back.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let write = &mut self.client.write;
        match (
            said(write, &bytes, self.session.bounds().header_time).await,
            close,
        ) {
            (Ok(()), false) => Next::Again,
            (Ok(()), true) => Next::Close,
            (Err(error), _) if error.kind() == io::ErrorKind::TimedOut => {
                self.outcome = Outcome::Broken;
                Next::Reset
            }
            (Err(_), _) => Next::Abort,
        }
    }

    /// Who the client is, as far as it says so and policy wants to know.
    async fn client(&mut self, head: &RequestHead<'_>) -> Result<Client, Refusal> {
        let (session, mut client) = (self.session, self.session.nobody());
        let policy = session.row.shared.policy();
        let given = head.fields.iter().find(|f| f.is("proxy-authorization"));
        let required = session.requires_user(&policy, &client);
        let Some(given) = given.filter(|_| required) else {
            return match required {
                true => Err(Refusal::UserMissing),
                false => Ok(client),
            };
        };
        if let Some(known) = self
            .known
            .as_ref()
            .filter(|known| known.credentials == given.value && Arc::ptr_eq(&known.policy, &policy))
        {
            client.user = Some(Arc::clone(&known.user));
            return Ok(client);
        }
        let (user, password) = basic(given.value).ok_or(Refusal::UserWrong)?;
        let shared = &session.row.shared;
        let checked = shared.authenticate(&policy, &client, &user, &password);
        checked.await?;
        let user: Arc<str> = user.into();
        client.user = Some(Arc::clone(&user));
        self.known = Some(Known {
            credentials: given.value.to_vec(),
            user,
            policy,
        });
        Ok(client)
    }

    /// Opens a tunnel (RFC 9110 section 9.3.6).
    async fn connect(&mut self, head: &RequestHead<'_>, body: Body) -> Next {
        let started = Instant::now();
        let method = head.method;
        if !matches!(body, Body::None | Body::Length(0)) {
            return self
                .refuse(None, method, Refusal::Malformed, None, true)
                .await;
        }
        let Ok(target) = Target::from_authority(head.target, None) else {
            return self
                .refuse(None, method, Refusal::BadTarget, None, true)
                .await;
        };
        let keep = keeps(head);
        let client = match self.client(head).await {
            Ok(client) => client,
            Err(why) => return self.refuse(None, method, why, None, !keep).await,
        };
        let request = Request {
            target,
            client,
            way: Way::Connect,
        };
        let (session, pseudonym) = (self.session, &self.session.row.shared.pseudonym);
        if is_loop(&head.fields, pseudonym) {
            return self
                .refuse(Some(&request), method, Refusal::Loop, None, !keep)
                .await;
        }
        let first = match session.spec().proxy_out {
            Some(version) => proxy_protocol::header(version, session.client, session.local),
            None => Vec::new(),
        };
        let server = match session.reach(&request, &first).await {
            Ok(server) => server,
            Err(why) => {
                let answer = self.unreached(&request, &why);
                return self.answer(answer, method, !keep).await;
            }
        };
        // A stream that is broken already says so at the first read.
        let _ = server.set_nodelay(true);
        session.connected(&request, &server, started.elapsed());
        let write = &mut self.client.write;
        const GRANTED: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";
        if said(write, GRANTED, session.bounds().header_time)
            .await
            .is_err()
        {
            server.abort();
            self.outcome = Outcome::Broken;
            return Next::Reset;
        }
        let reached = server.peer_addr().ok();
        Next::Tunnel(Box::new(Tunnel {
            request,
            server: Buffered::new(MaybeTls::Plain(server)),
            reached,
            started,
        }))
    }

    /// Notes that a target was not reached, and gives the answer.
    fn unreached(&mut self, request: &Request, why: &Unreached) -> Answer {
        self.outcome = self.session.unreached(request, why);
        match why {
            Unreached::Failed(failure, _) => Answer::to_failed(*failure),
            Unreached::NeedsUser => answer_to(Refusal::UserMissing),
            Unreached::Refused(why) => answer_to(*why),
        }
    }

    /// Passes a request on.
    async fn pass(&mut self, head: &RequestHead<'_>, body: Body) -> Next {
        let method = head.method;
        let close = body != Body::None || !keeps(head);
        if max_forwards(head) == Some(0) {
            // We would be its last recipient, and do not do either method.
            let why = Refusal::Unsupported;
            return self.refuse(None, method, why, None, close).await;
        }
        let to = match absolute(method, head.target) {
            Ok(to) => to,
            Err(Some(_)) => {
                return self
                    .refuse(None, method, Refusal::BadTarget, None, true)
                    .await;
            }
            Err(None) => {
                let scheme = head.target.contains("://");
                let why = if scheme {
                    Refusal::Unsupported
                } else {
                    Refusal::BadTarget
                };
                return self.refuse(None, method, why, None, close).await;
            }
        };
        let client = match self.client(head).await {
            Ok(client) => client,
            Err(why) => return self.refuse(None, method, why, None, close).await,
        };
        let request = Request {
            target: to.target.clone(),
            client,
            way: Way::Http,
        };
        if is_loop(&head.fields, &self.session.row.shared.pseudonym) {
            return self
                .refuse(Some(&request), method, Refusal::Loop, None, close)
                .await;
        }
        self.exchange(head, &to, body, request).await
    }

    async fn exchange(
        &mut self,
        head: &RequestHead<'_>,
        to: &Absolute,
        body: Body,
        asked: Request,
    ) -> Next {
        let session = self.session;
        let (started, shared) = (Instant::now(), &session.row.shared);
        let add = Additions {
            pseudonym: &shared.pseudonym,
            forwarded: session.spec().forwarded,
            client: session.client.ip(),
            tls: session.spec().tls.is_some(),
        };
        let outgoing = Outgoing {
            method: head.method,
            head: request(head, to, body, add),
            body,
            upgrade: !upgrades(&head.fields).is_empty(),
            old: head.minor == 0,
            close: !keeps(head),
            pseudonym: &shared.pseudonym,
        };
        loop {
            let tls = to.tls.then(|| shared.trust());
            let known = self.server.take();
            let known = known.and_then(|mut server| {
                let serves = server.serves(shared, &asked, tls.as_ref());
                serves.then_some(server)
            });
            let (mut server, reused) = match known {
                Some(server) => (server, true),
                None => match session.reach_by(&asked, tls.as_ref()).await {
                    Ok(stream) => {
                        session.connected(&asked, stream.stream(), started.elapsed());
                        (Server::new(&asked, tls, stream), false)
                    }
                    Err(why) => {
                        let answer = self.unreached(&asked, &why);
                        let close = body != Body::None || outgoing.close;
                        return self.answer(answer, head.method, close).await;
                    }
                },
            };
            let before = [paths(&self.account), paths(&server.account)];
            let carried = Carried::default();
            let (bounds, totals) = (session.bounds(), &*session.row.totals);
            let (client, halves) = (&mut self.client, &mut server.halves);
            let end = exchange(client, halves, &outgoing, bounds, totals, &carried).await;
            // A server may end a connection that waits at any time (RFC 9112 section 9.3.1).
            if reused && end == (End::Unanswered { silent: true }) && may_repeat(head, body) {
                continue;
            }
            let [inside, outside] = before;
            let inside = since(&inside, paths(&self.account)).into_iter();
            let outside = since(&outside, paths(&server.account)).into_iter();
            let inside = inside.map(|path| path.of(true));
            let ended = Ended {
                request: asked,
                reached: server.reached,
                http: None,
                forth: carried.forth.load(Ordering::Relaxed),
                back: carried.back.load(Ordering::Relaxed),
                paths: inside.chain(outside.map(|path| path.of(false))).collect(),
                lasted: started.elapsed(),
                how: How::Broken,
            };
            return self.conclude(end, head, ended, server, started).await;
        }
    }

    /// Tells what has become of an exchange, and answers where nothing else has.
    async fn conclude(
        &mut self,
        end: End,
        head: &RequestHead<'_>,
        mut ended: Ended,
        server: Server,
        started: Instant,
    ) -> Next {
        let session = self.session;
        if end == End::Switched {
            return Next::Tunnel(Box::new(Tunnel {
                request: ended.request,
                server: server.halves.join(),
                reached: server.reached,
                started,
            }));
        }
        let (how, status) = match end {
            End::Done { status, .. } => (How::Finished, Some(status)),
            End::Cut { status, .. } => (How::Broken, Some(status)),
            End::Idle { .. } => (How::Idle, None),
            _ => (How::Broken, None),
        };
        ended.how = how;
        ended.http = status.map(|status| (head.method.into(), status));
        session.ended(&ended);
        let asked = ended.request;
        if how != How::Finished {
            self.outcome = Outcome::Broken;
        }
        let failed = |why: Failure, text: &str| {
            let error = io::Error::new(io::ErrorKind::InvalidData, text);
            session.failed(
                &asked,
                why,
                &format!("get an answer from {}", asked.target),
                &error,
            );
            Answer::to_failed(why)
        };
        match end {
            End::Done {
                keep_client,
                keep_server,
                ..
            } => {
                if keep_server {
                    self.server = Some(server);
                }
                return if keep_client {
                    Next::Again
                } else {
                    Next::Close
                };
            }
            End::Unanswered { .. } | End::BadAnswer => {
                let text = match end {
                    End::BadAnswer => "it is no HTTP/1.1",
                    _ => "the server closed before it",
                };
                let answer = failed(Failure::BadAnswer, text);
                server.halves.join().abort();
                return self.answer(answer, head.method, true).await;
            }
            End::Idle { answered: false } => {
                let answer = failed(Failure::TimedOut, "none came in time");
                server.halves.join().abort();
                return self.answer(answer, head.method, true).await;
            }
            End::BadRequest => {
                server.halves.join().abort();
                let why = Refusal::Malformed;
                return self
                    .refuse(Some(&asked), head.method, why, None, true)
                    .await;
            }
            End::Cut { visible: true, .. } => {
                server.halves.join().abort();
                return Next::Close;
            }
            End::Switched
            | End::Cut { visible: false, .. }
            | End::ClientGone
            | End::Idle { answered: true } => {}
        }
        server.halves.join().abort();
        Next::Abort
    }
}

/// The answer to a refusal of a request; those that have none do not come from requests.
fn answer_to(why: Refusal) -> Answer {
    let other = || Answer::to_failed(Failure::Other);
    Answer::to_refused(why).unwrap_or_else(other)
}

fn paths(account: &Option<PathAccount>) -> Vec<CarriedBy> {
    let account = account.as_ref();
    account.map_or(Vec::new(), PathAccount::paths)
}

/// Whether the client's connection goes on behind a request (RFC 9112 section 9.3).
fn keeps(head: &RequestHead<'_>) -> bool {
    let has = |option| lists(&head.fields, "connection", option);
    !has("close") && (head.minor > 0 || has("keep-alive"))
}

/// Whether a request may be sent a second time without being asked for (RFC 9110 section 9.2.2).
fn may_repeat(head: &RequestHead<'_>, body: Body) -> bool {
    let idempotent = ["GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE"];
    body == Body::None && idempotent.contains(&head.method)
}

/// User and password of `Basic` credentials (RFC 7617).
fn basic(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, token) = value.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let pair = BASE64_STANDARD.decode(super::head::trim(token)).ok()?;
    let colon = pair.iter().position(|&b| b == b':')?;
    let user = String::from_utf8(pair[..colon].to_vec()).ok()?;
    Some((user, pair[colon + 1..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_a_name_and_what_is_behind_the_first_colon() {
        let read = |text: &str| basic(text.as_bytes());
        let wanted = Some(("Aladdin".to_owned(), b"open:sesame".to_vec()));
        assert_eq!(read("basic QWxhZGRpbjpvcGVuOnNlc2FtZQ=="), wanted);
        for text in [
            "",
            "Basic",
            "Basic QQ==",
            "Bearer QWxhZGRpbjpv",
            "Basic ====",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
