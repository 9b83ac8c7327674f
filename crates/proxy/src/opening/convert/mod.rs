//! The 0-RTT TCP Convert Protocol (RFC 8803), as a Transport Converter: the client's first bytes are a Connect, in its SYN or
//! behind the handshake, and its data follows at once.
//!
//! Our stack keeps a SYN that brings a message until the server has answered, and answers it then. What comes in a SYN may be sent by
//! somebody else than it says, so it is acted upon only with a good Cookie, and once; anything else waits for the handshake.

mod reply;
mod token;

use std::time::Instant;

use manypath_wire::convert::{Connect, ConvertError, Kinds, Limits, Message, Parsed, Tlv, read};
use tokio::io::AsyncWriteExt;
use tokio::time::{timeout, timeout_at};

use crate::buffered::Buffered;
use crate::endpoint::Proto;
use crate::limits::{Bridle, TellingClients};
use crate::opening::proxy_protocol;
use crate::request::{Request, Target, Way};
use crate::serve::Refusal;
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::stream::{Leg, Stream};
use token::{Shown, Tokens};

/// What the converters of a process keep. Their tokens are good as long as it lives.
#[derive(Debug, Default)]
pub(crate) struct Converter {
    tokens: Tokens,
    /// What clients have told of their addresses.
    telling: TellingClients,
}

/// What ends a client before anything is relayed.
struct Refused {
    why: Refusal,
    /// What it is told; `None`: it is reset.
    last_words: Option<Vec<u8>>,
}

impl Refused {
    fn with(why: Refusal, last_words: Vec<u8>) -> Self {
        Self {
            why,
            last_words: Some(last_words),
        }
    }

    fn silently(why: Refusal) -> Self {
        Self {
            why,
            last_words: None,
        }
    }
}

/// What a client asks for.
enum Asked<'a> {
    Info,
    Connect(Connect<'a>),
}

/// A message as it concerns a converter.
struct Question<'a> {
    asked: Asked<'a>,
    cookie: Option<&'a [u8]>,
    limits: Option<Limits<'a>>,
    /// All TLVs but the cookie.
    others: Vec<Tlv<'a>>,
}

/// Sorts the TLVs of a message.
fn question<'a>(message: Message<'a>, bytes: &[u8]) -> Result<Question<'a>, Refused> {
    let malformed = || {
        let echo = ConvertError::MalformedMessage(reply::echo(bytes));
        Refused::with(Refusal::Malformed, reply::error(echo))
    };
    let (mut asked, mut cookie, mut limits, mut others) = (None, None, None, Vec::new());
    for tlv in message.tlvs() {
        let new = match tlv {
            Tlv::Cookie(bytes) => {
                cookie = Some(bytes);
                continue;
            }
            Tlv::Limits(told) => {
                limits = Some(told);
                others.push(tlv);
                continue;
            }
            Tlv::Info => Asked::Info,
            Tlv::Connect(connect) if connect.port == 0 || reply::is_for_many(connect.remote()) => {
                return Err(malformed());
            }
            Tlv::Connect(connect) => Asked::Connect(connect),
            // Types that a converter sends, and those of others.
            Tlv::ExtendedTcpHeader(_)
            | Tlv::SupportedTcpExtensions(_)
            | Tlv::Error(_)
            | Tlv::Unknown { .. } => {
                let echo = ConvertError::UnsupportedMessage(reply::echo(bytes));
                return Err(Refused::with(Refusal::Unsupported, reply::error(echo)));
            }
        };
        others.push(tlv);
        if asked.replace(new).is_some() {
            return Err(malformed());
        }
    }
    let asked = asked.ok_or_else(malformed)?;
    Ok(Question {
        asked,
        cookie,
        limits,
        others,
    })
}

/// Serves one client.
pub(crate) async fn serve(session: &Session, mut stream: Buffered<Stream>) -> Outcome {
    let started = Instant::now();
    let until = tokio::time::Instant::now() + session.bounds().header_time;
    let length = match timeout_at(until, whole(&mut stream)).await {
        Ok(Ok(length)) => length,
        Ok(Err(refused)) => return refuse(session, stream, None, refused).await,
        Err(_) => {
            let refused = Refused::silently(Refusal::HeaderTimeout);
            return refuse(session, stream, None, refused).await;
        }
    };
    let message = stream.bytes()[..length].to_vec();
    stream.consume(length);
    let Ok(Parsed::Whole(read)) = read(&message) else {
        // It was whole a moment ago.
        return Outcome::Broken;
    };
    let question = match question(read, &message) {
        Ok(question) => question,
        Err(refused) => return refuse(session, stream, None, refused).await,
    };
    let proven = match admitted(session, &stream, &question, &message).await {
        Ok(proven) => proven,
        Err(refused) => return refuse(session, stream, None, refused).await,
    };
    // A client asks for a token by an empty cookie.
    let client = session.socket.0.ip();
    let asks = question.cookie.is_some_and(|cookie| cookie.is_empty());
    let token = asks.then(|| session.row.shared.converter.tokens.issue(started, client));
    let token = token.as_ref().map(|token| Tlv::Cookie(token));
    match question.asked {
        Asked::Info => inform(session, stream, token).await,
        Asked::Connect(connect) => {
            // Where the client is a connection of the host's TCP it has one address, and no path to choose.
            let _told = match (question.limits, stream.get_ref().bridle()) {
                (Some(limits), Bridle::Ours(host, id)) => {
                    let telling = &session.row.shared.converter.telling;
                    Some(telling.hold(&host, id, client, limits.entries()))
                }
                _ => None,
            };
            let connecting = Connecting {
                connect,
                message: &message,
                proven,
                token,
                started,
            };
            connecting.run(session, stream).await
        }
    }
}

/// Waits for a whole message, and says how long it is. A SYN that has only a part of it is answered: the rest comes behind the handshake.
async fn whole(stream: &mut Buffered<Stream>) -> Result<usize, Refused> {
    loop {
        match read(stream.bytes()) {
            Ok(Parsed::Whole(message)) => return Ok(message.as_bytes().len()),
            Ok(Parsed::Short) => {}
            Err(bad) => {
                let last_words = reply::to_bad(bad, stream.bytes());
                let why = Refusal::Malformed;
                return Err(Refused { why, last_words });
            }
        }
        if !stream.bytes().is_empty() {
            stream.get_ref().answer_syn(false);
        }
        if !matches!(stream.fill().await, Ok(1..)) {
            return Err(Refused::silently(Refusal::Truncated));
        }
    }
}

/// Whether a client may be served, and whether its message may be acted upon before it has acknowledged our SYN: true where it has shown by
/// its cookie that it has its address.
async fn admitted(
    session: &Session,
    stream: &Buffered<Stream>,
    question: &Question<'_>,
    message: &[u8],
) -> Result<bool, Refused> {
    let (client, key) = (session.socket.0, session.key());
    let tokens = &session.row.shared.converter.tokens;
    let now = Instant::now();
    let others = &question.others;
    let shown = tokens.judge(now, client.ip(), question.cookie, key, others);
    let missing = || {
        let token = tokens.issue(now, client.ip());
        let words = reply::error(ConvertError::MissingCookie(&token));
        let why = match shown {
            Shown::Nothing => Refusal::UserMissing,
            Shown::Good | Shown::Bad => Refusal::UserWrong,
        };
        Refused::with(why, words)
    };
    let is_held = stream.get_ref().is_held();
    let good = shown == Shown::Good;
    if good && is_held && tokens.is_first(client, message, key.is_some()) {
        return Ok(true);
    }
    if is_held {
        stream.get_ref().answer_syn(false);
        let proven = timeout(session.bounds().header_time, stream.get_ref().proven());
        if !matches!(proven.await, Ok(Ok(()))) {
            return Err(Refused::silently(Refusal::Truncated));
        }
    }
    // A cookie of another client is one whose token is refused: the error brings the right one.
    match shown == Shown::Bad || key.is_some() && !good {
        true => Err(missing()),
        false => Ok(true),
    }
}

/// Says why it is over, and waits for a moment that the client has it.
async fn refuse(
    session: &Session,
    stream: Buffered<Stream>,
    request: Option<&Request>,
    refused: Refused,
) -> Outcome {
    session.refused(request, refused.why);
    match refused.last_words {
        Some(words) => farewell(stream, &words, false).await,
        None => stream.abort(),
    }
    Outcome::Refused
}

/// The last that a client is told (RFC 8803 section 6.2.8: errors travel in the stream, and the client ends it).
async fn farewell(stream: Buffered<Stream>, words: &[u8], proven: bool) {
    stream.get_ref().answer_syn(proven);
    stream.say_goodbye(words).await;
}

/// Tells what this converter can do.
async fn inform(session: &Session, stream: Buffered<Stream>, token: Option<Tlv<'_>>) -> Outcome {
    let kinds = supported(session);
    let kinds = Tlv::SupportedTcpExtensions(Kinds(&kinds));
    let tlvs: Vec<Tlv<'_>> = std::iter::once(kinds).chain(token).collect();
    farewell(stream, &reply::message(&tlvs), true).await;
    Outcome::Finished
}

fn supported(session: &Session) -> Vec<u8> {
    let outside = session.spec().outside;
    let sockets = &session.row.shared.sockets;
    reply::supported(outside != Proto::Tcp, sockets.opens_fast(outside))
}

/// A connection to a server that a client has asked for.
struct Connecting<'a> {
    connect: Connect<'a>,
    message: &'a [u8],
    proven: bool,
    token: Option<Tlv<'a>>,
    started: Instant,
}

impl Connecting<'_> {
    async fn run(self, session: &Session, mut stream: Buffered<Stream>) -> Outcome {
        let target = self.connect.remote();
        let request = Request {
            target: Target::Address(target),
            client: session.nobody(),
            way: Way::Convert,
        };
        if let Some(words) = self.unsupported(session) {
            let refused = Refused::with(Refusal::Unsupported, words);
            return refuse(session, stream, Some(&request), refused).await;
        }
        let mut first = match session.spec().proxy_out {
            Some(version) => proxy_protocol::header(version, session.client, session.local),
            None => Vec::new(),
        };
        // What came with the message goes along with the SYN where that is possible.
        let outside = session.spec().outside;
        let ahead = match session.row.shared.sockets.opens_fast(outside) {
            true => stream.bytes().len(),
            false => 0,
        };
        first.extend_from_slice(&stream.bytes()[..ahead]);
        let server = match session.reach(&request, &first).await {
            Ok(server) => server,
            Err(why) => {
                let outcome = session.unreached(&request, &why);
                let words = reply::to_unreached(&why, target, self.message);
                farewell(stream, &words, self.proven).await;
                return outcome;
            }
        };
        stream.consume(ahead);
        // A stream that is broken already says so at the first read.
        let _ = server.set_nodelay(true);
        session.connected(&request, &server, self.started.elapsed());
        let answer = self.success(&server);
        if stream.write_all(&answer).await.is_err() {
            server.abort();
            stream.abort();
            return Outcome::Broken;
        }
        stream.get_ref().answer_syn(self.proven);
        let reached = server.peer_addr().ok();
        let pair = (stream, server);
        let early = ahead as u64;
        session
            .tunnel(request, pair, reached, early, self.started)
            .await
    }

    /// The error for options that connections to servers do not have.
    fn unsupported(&self, session: &Session) -> Option<Vec<u8>> {
        let known = supported(session);
        let kinds = self.connect.options.iter().map(|option| option.kind);
        let unknown: Vec<u8> = kinds
            .filter(|kind| !reply::is_ignored(*kind) && !known.contains(kind))
            .collect();
        (!unknown.is_empty()).then(|| reply::error(ConvertError::UnsupportedTcpOption(&unknown)))
    }

    /// What stands in front of the server's data: its options where the client asked for some, and a token where it asked for one.
    fn success(&self, server: &Stream) -> Vec<u8> {
        let options = reply::server_options(server.is_multipath());
        let extended = !self.connect.options.is_empty();
        let header = extended.then_some(Tlv::ExtendedTcpHeader(options));
        let tlvs: Vec<Tlv<'_>> = header.into_iter().chain(self.token).collect();
        reply::message(&tlvs)
    }
}
