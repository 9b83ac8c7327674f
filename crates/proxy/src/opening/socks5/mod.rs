//! SOCKS5 (RFC 1928) with user and password (RFC 1929): CONNECT and UDP ASSOCIATE. BIND is refused.

mod udp;
pub mod wire;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use crate::buffered::Buffered;
use crate::opening::proxy_protocol;
use crate::request::{Client, Request, Target, Way};
use crate::serve::session::Session;
use crate::serve::totals::Outcome;
use crate::serve::{Failure, Refusal};
use crate::stream::{Leg, Stream};
use crate::target::connect::Unreached;
use wire::{Asked, BadMessage, Command, Parsed, Reply};

/// The refusal of SOCKS4, in its own form: a client of that version then says what it was.
const SOCKS4_REFUSED: [u8; 8] = [0, 91, 0, 0, 0, 0, 0, 0];

/// What a client is told, and why.
struct Refused {
    why: Refusal,
    last_words: Vec<u8>,
}

impl Refused {
    fn silently(why: Refusal) -> Self {
        Self {
            why,
            last_words: Vec::new(),
        }
    }

    fn with(why: Refusal, reply: Reply) -> Self {
        Self {
            why,
            last_words: wire::reply(reply, None),
        }
    }
}

impl From<BadMessage> for Refused {
    fn from(bad: BadMessage) -> Self {
        match bad {
            BadMessage::Version(4) => Self {
                why: Refusal::Unsupported,
                last_words: SOCKS4_REFUSED.to_vec(),
            },
            BadMessage::Version(_) => Self::silently(Refusal::Malformed),
            BadMessage::Malformed => Self::with(Refusal::Malformed, Reply::GeneralFailure),
            BadMessage::Command => Self::with(Refusal::Unsupported, Reply::CommandNotSupported),
            BadMessage::AddressType => {
                Self::with(Refusal::Unsupported, Reply::AddressTypeNotSupported)
            }
        }
    }
}

/// Serves one client.
pub(crate) async fn serve(session: &Session, mut stream: Buffered<Stream>) -> Outcome {
    let started = Instant::now();
    let asked = timeout(session.bounds().header_time, ask(session, &mut stream)).await;
    let (client, Asked { command, target }) = match asked {
        Ok(Ok(asked)) => asked,
        Ok(Err(Refused { why, last_words })) => {
            return refuse(session, stream, None, why, &last_words).await;
        }
        Err(_) => return refuse(session, stream, None, Refusal::HeaderTimeout, &[]).await,
    };
    match (command, target) {
        (Command::UdpAssociate, target) => {
            let declared = match target {
                Ok(Target::Address(addr)) => Some(addr),
                _ => None,
            };
            udp::associate(session, stream, client, declared).await
        }
        (Command::Connect, Ok(target)) => {
            let request = Request {
                target,
                client,
                way: Way::Socks,
            };
            connect(session, stream, request, started).await
        }
        (Command::Connect, Err(_)) => {
            let last_words = wire::reply(Reply::HostUnreachable, None);
            refuse(session, stream, None, Refusal::BadTarget, &last_words).await
        }
    }
}

/// Says why it is over, and waits for a moment that the client has it.
async fn refuse(
    session: &Session,
    stream: Buffered<Stream>,
    request: Option<&Request>,
    why: Refusal,
    last_words: &[u8],
) -> Outcome {
    session.refused(request, why);
    stream.say_goodbye(last_words).await;
    Outcome::Refused
}

/// Takes a whole message from the stream.
async fn take<T>(
    stream: &mut Buffered<Stream>,
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, BadMessage>,
) -> Result<T, Refused> {
    loop {
        if let Parsed::Whole(n, message) = parse(stream.bytes())? {
            stream.consume(n);
            return Ok(message);
        }
        if !matches!(stream.fill().await, Ok(1..)) {
            return Err(Refused::silently(Refusal::Truncated));
        }
    }
}

async fn say(stream: &mut Buffered<Stream>, bytes: &[u8]) -> Result<(), Refused> {
    let written = stream.write_all(bytes).await;
    written.map_err(|_| Refused::silently(Refusal::Truncated))
}

/// Learns who the client is and what it wants.
async fn ask(session: &Session, stream: &mut Buffered<Stream>) -> Result<(Client, Asked), Refused> {
    let mut client = session.nobody();
    let shared = &session.row.shared;
    let policy = shared.policy();
    let greeting = |bytes: &[u8]| {
        let parsed = wire::greeting(bytes)?;
        Ok(match parsed {
            Parsed::Short => Parsed::Short,
            Parsed::Whole(n, methods) => {
                let has = |method| methods.contains(&method);
                Parsed::Whole(n, (has(wire::METHOD_NONE), has(wire::METHOD_PASSWORD)))
            }
        })
    };
    let (none, password) = take(stream, greeting).await?;
    let required = session.requires_user(&policy, &client);
    if password && (required || !none) {
        say(stream, &[wire::VERSION, wire::METHOD_PASSWORD]).await?;
        let owned = |bytes: &[u8]| {
            Ok(match wire::password(bytes)? {
                Parsed::Short => Parsed::Short,
                Parsed::Whole(n, said) => {
                    Parsed::Whole(n, (said.user.to_vec(), said.password.to_vec()))
                }
            })
        };
        let (user, password) = take(stream, owned).await?;
        let user = String::from_utf8(user).unwrap_or_default();
        // Where nobody has a password, who must say one is anybody.
        let anybody = !required;
        if !anybody {
            let checked = shared.authenticate(&policy, &client, &user, &password);
            checked.await.map_err(|why| Refused {
                why,
                last_words: vec![wire::PASSWORD_VERSION, 1],
            })?;
        }
        say(stream, &[wire::PASSWORD_VERSION, 0]).await?;
        client.user = Some(Arc::from(user)).filter(|_| !anybody);
    } else if none && !required {
        say(stream, &[wire::VERSION, wire::METHOD_NONE]).await?;
    } else {
        let why = match required {
            true => Refusal::UserMissing,
            false => Refusal::Unsupported,
        };
        return Err(Refused {
            why,
            last_words: vec![wire::VERSION, wire::METHOD_REFUSED],
        });
    }
    Ok((client, take(stream, wire::request).await?))
}

/// What a client is told of a target that was not reached.
fn reply_to(target: &Target, why: &Unreached) -> Reply {
    match why {
        Unreached::Refused(Refusal::ClassFull | Refusal::ClassRate | Refusal::ClassQuota) => {
            Reply::GeneralFailure
        }
        Unreached::NeedsUser | Unreached::Refused(_) => Reply::NotAllowed,
        Unreached::Failed(failure, _) => match failure {
            Failure::Refused => Reply::ConnectionRefused,
            // A name is in no network: none of its addresses has a way, for example as all are of another family than ours.
            Failure::NetworkUnreachable if matches!(target, Target::Address(_)) => {
                Reply::NetworkUnreachable
            }
            Failure::NetworkUnreachable | Failure::HostUnreachable | Failure::NameNotFound => {
                Reply::HostUnreachable
            }
            Failure::TimedOut | Failure::NameTimedOut => Reply::TtlExpired,
            Failure::NoResources
            | Failure::BadAnswer
            | Failure::Certificate
            | Failure::Tls
            | Failure::TlsAlert
            | Failure::Other => Reply::GeneralFailure,
        },
    }
}

async fn connect(
    session: &Session,
    mut stream: Buffered<Stream>,
    request: Request,
    started: Instant,
) -> Outcome {
    let first = match session.spec().proxy_out {
        Some(version) => proxy_protocol::header(version, session.client, session.local),
        None => Vec::new(),
    };
    let server = match session.reach(&request, &first).await {
        Ok(server) => server,
        Err(why) => {
            let outcome = session.unreached(&request, &why);
            let last_words = wire::reply(reply_to(&request.target, &why), None);
            stream.say_goodbye(&last_words).await;
            return outcome;
        }
    };
    // A stream that is broken already says so at the first read.
    let _ = server.set_nodelay(true);
    session.connected(&request, &server, started.elapsed());
    let bound: Option<SocketAddr> = server.local_addr().ok();
    let reply = wire::reply(Reply::Succeeded, bound);
    if stream.write_all(&reply).await.is_err() {
        server.abort();
        stream.abort();
        return Outcome::Broken;
    }
    let reached = server.peer_addr().ok();
    let pair = (stream, server);
    session.tunnel(request, pair, reached, 0, started).await
}
