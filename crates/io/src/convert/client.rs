//! A client of a converter (RFC 8803): connects to a server through it, with the first data in the SYN, and remembers what it can do.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use manypath_wire::convert::{
    Connect, ConnectOptions, ConvertError, Limits, LimitsBuffer, MAX_LEN, Parsed, Tlv, emit, read,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::cookie::{Key, NONCE_LEN};
use crate::socket::{self, MpStream};

/// How long a converter's token is shown. One that the converter knows no more brings another one, a round trip later.
const TOKEN_TIME: Duration = Duration::from_secs(3600);

/// How long it is remembered that a server speaks Multipath TCP itself, and what a converter does not do.
const MEMORY: Duration = Duration::from_secs(600);

/// A server that a converter does not reach, and says not for how long, is asked for again after that (RFC 8803 section 6.2.8).
const LONG_WAIT: Duration = Duration::from_secs(30);

/// Servers of which it is remembered what they speak.
const MOST_SERVERS: usize = 1024;

/// Addresses of a server that are tried.
const MOST_ADDRESSES: usize = 4;

/// MP_CAPABLE's kind, without a value: a client that names it asks the converter to use Multipath TCP towards the server, and to tell
/// what the server has answered.
const MULTIPATH: [u8; 2] = [30, 2];

/// The kind of Multipath TCP's options.
const KIND: u8 = 30;

/// A converter, and what is known of it. Copies know the same.
#[derive(Clone, Debug)]
pub struct Via {
    converter: SocketAddr,
    key: Option<Key>,
    direct: bool,
    /// Bits a second that it is to send us at most at each of our addresses.
    limits: Vec<(IpAddr, u64)>,
    known: Arc<Mutex<Known>>,
}

/// What a converter has shown.
#[derive(Debug, Default)]
struct Known {
    token: Option<(Vec<u8>, Instant)>,
    /// It takes no options in a Connect.
    base_until: Option<Instant>,
    /// It knows no limits of addresses.
    unlimited_until: Option<Instant>,
    /// Servers that it does not reach at present, and until when they are not asked for.
    waiting: HashMap<SocketAddr, Instant>,
    /// Servers that answered it with Multipath TCP, and until when that is believed.
    capable: HashMap<SocketAddr, Instant>,
}

/// Two clients of the same converter with the same key are equal, whatever they know.
impl PartialEq for Via {
    fn eq(&self, other: &Self) -> bool {
        let of = |via: &Self| (via.converter, via.direct);
        of(self) == of(other) && self.key == other.key
    }
}

impl Eq for Via {}

/// Whether an error is about one of a server's addresses, so that another one may be reached.
fn is_of_server(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}

/// What a converter's answer means.
enum Answer {
    Connected,
    /// With this token, try again.
    Token(Vec<u8>),
    /// Without options, try again.
    Base,
    /// Without limits, try again.
    Unlimited,
    Failed(io::Error),
}

impl Via {
    /// A converter at an address.
    #[must_use]
    pub fn new(converter: SocketAddr) -> Self {
        Self {
            converter,
            key: None,
            direct: false,
            limits: Vec::new(),
            known: Arc::default(),
        }
    }

    /// Shows the converter that it has this key.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Goes past the converter to servers that have answered it with Multipath TCP in the last ten minutes. What the converter would
    /// have limited is not limited then.
    #[must_use]
    pub fn direct(mut self, on: bool) -> Self {
        self.direct = on;
        self
    }

    /// Asks the converter to send no more bits a second than these to our addresses, all connections together. Converters of ours do so.
    #[must_use]
    pub fn limits(mut self, limits: Vec<(IpAddr, u64)>) -> Self {
        self.limits = limits;
        self
    }

    /// The converter's address.
    #[must_use]
    pub fn converter(&self) -> SocketAddr {
        self.converter
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // What is kept is only what was learnt; half of it is as good.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects to the first of a server's addresses that the converter reaches, in their order, and writes the first bytes of the stream along
    /// with the SYN as far as they fit. Says how many were written.
    ///
    /// # Errors
    /// Those of [`Connect::connect`](crate::Connect::connect) to the converter; `ConnectionRefused` where the server refused, `HostUnreachable`
    /// and `NetworkUnreachable` where it is not reached, `PermissionDenied` where the converter does not serve us, `ResourceBusy` where it is full,
    /// `NetworkDown` where the server does not answer or the converter's network does not work, `InvalidData` where it speaks something else.
    pub async fn connect(
        &self,
        opening: &socket::Connect,
        servers: &[SocketAddr],
        early: &[u8],
    ) -> io::Result<(MpStream, usize)> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no server to connect to");
        for server in servers.iter().take(MOST_ADDRESSES) {
            match self.connect_one(opening, *server, early).await {
                Err(error) if is_of_server(&error) => last = error,
                result => return result,
            }
        }
        Err(last)
    }

    async fn connect_one(
        &self,
        opening: &socket::Connect,
        server: SocketAddr,
        early: &[u8],
    ) -> io::Result<(MpStream, usize)> {
        let now = Instant::now();
        let (waits, capable) = {
            let known = self.known();
            let is = |until: &Instant| now < *until;
            (
                known.waiting.get(&server).is_some_and(is),
                known.capable.get(&server).is_some_and(is),
            )
        };
        if self.direct && capable {
            return opening.clone().connect_any(&[server], early).await;
        }
        if waits {
            return Err(io::Error::new(
                io::ErrorKind::NetworkDown,
                format!(
                    "the converter {} did not reach {server} a moment ago",
                    self.converter
                ),
            ));
        }
        // With a token, without options, without limits: each is learnt once.
        for _ in 0..4 {
            let (stream, written, answer) = self.attempt(opening, server, early).await?;
            match answer {
                Answer::Connected => return Ok((stream, written)),
                Answer::Token(token) => self.known().token = Some((token, now)),
                Answer::Base => self.known().base_until = Some(now + MEMORY),
                Answer::Unlimited => self.known().unlimited_until = Some(now + MEMORY),
                Answer::Failed(error) => {
                    // The client ends the connection on an error (RFC 8803 section 6.2.8).
                    let _ = stream.abort();
                    return Err(error);
                }
            }
            let _ = stream.abort();
        }
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the converter {} refuses the cookies that it gives: is the key right?",
                self.converter
            ),
        ))
    }

    async fn attempt(
        &self,
        opening: &socket::Connect,
        server: SocketAddr,
        early: &[u8],
    ) -> io::Result<(MpStream, usize, Answer)> {
        let (question, limited) = self.question(server)?;
        let bytes = [&question, early].concat();
        let opening = opening.clone().with(|options| options.data_in_syn = true);
        let (mut stream, written) = opening.connect_any(&[self.converter], &bytes).await?;
        // At least the question goes; what is left of the data is the caller's to write.
        if written < question.len() {
            stream.write_all(&question[written..]).await?;
        }
        let written = written.saturating_sub(question.len());
        let message = answer_of(&mut stream).await?;
        let answer = match limited && is_unsupported(&message) {
            true => Answer::Unlimited,
            false => self.judge(server, &message),
        };
        Ok((stream, written, answer))
    }

    /// The message that asks for a server, and whether it tells our limits.
    fn question(&self, server: SocketAddr) -> io::Result<(Vec<u8>, bool)> {
        let now = Instant::now();
        let (token, base, unlimited) = {
            let known = self.known();
            let young = known
                .token
                .as_ref()
                .filter(|(_, since)| now < *since + TOKEN_TIME);
            let is = |until: Option<Instant>| until.is_some_and(|until| now < until);
            let token = young.map(|(token, _)| token.clone());
            (token, is(known.base_until), is(known.unlimited_until))
        };
        let mut connect = Connect::to(server);
        if !base {
            connect.options = ConnectOptions::parse(&MULTIPATH).unwrap_or(ConnectOptions::NONE);
        }
        let mut room = [0; size_of::<LimitsBuffer>()];
        let limits = self.limits.iter().copied().filter(|_| !unlimited);
        let limits = Limits::write(limits, &mut room).map(Tlv::Limits);
        let others: Vec<Tlv<'_>> = limits.into_iter().chain([Tlv::Connect(connect)]).collect();
        let cookie = match (&self.key, token) {
            (Some(key), Some(token)) => {
                let mut nonce = [0; NONCE_LEN];
                rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
                // The code is over what is on the wire.
                let mut wire = [0; MAX_LEN];
                key.cookie(&token, nonce, &padded(&others, &mut wire))
            }
            (None, Some(token)) => token,
            // An empty one asks for a token.
            (_, None) => Vec::new(),
        };
        let mut message = [0; MAX_LEN];
        let tlvs: Vec<Tlv<'_>> = [Tlv::Cookie(&cookie)].into_iter().chain(others).collect();
        let written = emit(&tlvs, &mut message);
        let length = written.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok((message[..length].to_vec(), limits.is_some()))
    }

    /// Learns from an answer, and says what it means.
    fn judge(&self, server: SocketAddr, message: &[u8]) -> Answer {
        let Ok(Parsed::Whole(message)) = read(message) else {
            return Answer::Failed(io::ErrorKind::InvalidData.into());
        };
        let now = Instant::now();
        for tlv in message.tlvs() {
            match tlv {
                Tlv::Error(ConvertError::MissingCookie(token)) => {
                    return Answer::Token(token.to_vec());
                }
                Tlv::Error(ConvertError::UnsupportedTcpOption(_)) => return Answer::Base,
                Tlv::Error(error) => {
                    if let ConvertError::NetworkFailure { wait } = error {
                        let wait = match wait {
                            0 => LONG_WAIT,
                            seconds => Duration::from_secs(seconds.into()),
                        };
                        remember(&mut self.known().waiting, now, server, now + wait);
                    }
                    return Answer::Failed(told(self.converter, error));
                }
                Tlv::Cookie(token) => self.known().token = Some((token.to_vec(), now)),
                Tlv::ExtendedTcpHeader(options) => self.learn(now, server, has_multipath(options)),
                // What a client does not know means nothing to it.
                Tlv::Info
                | Tlv::Connect(_)
                | Tlv::SupportedTcpExtensions(_)
                | Tlv::Limits(_)
                | Tlv::Unknown { .. } => {}
            }
        }
        Answer::Connected
    }

    fn learn(&self, now: Instant, server: SocketAddr, capable: bool) {
        let mut known = self.known();
        if !capable {
            known.capable.remove(&server);
            return;
        }
        remember(&mut known.capable, now, server, now + MEMORY);
    }
}

/// Remembers something of a server for a time, if there is room.
fn remember(
    known: &mut HashMap<SocketAddr, Instant>,
    now: Instant,
    server: SocketAddr,
    until: Instant,
) {
    if known.len() >= MOST_SERVERS {
        known.retain(|_, until| now < *until);
    }
    if known.len() < MOST_SERVERS {
        known.insert(server, until);
    }
}

/// TLVs as they are read from the wire, padding included.
fn padded<'a>(tlvs: &[Tlv<'_>], out: &'a mut [u8; MAX_LEN]) -> Vec<Tlv<'a>> {
    let length = emit(tlvs, out).unwrap_or(0);
    match read(&out[..length]) {
        Ok(Parsed::Whole(message)) => message.tlvs().collect(),
        _ => Vec::new(),
    }
}

/// Whether an answer says that the converter does not know what it was told.
fn is_unsupported(message: &[u8]) -> bool {
    let Ok(Parsed::Whole(message)) = read(message) else {
        return false;
    };
    let mut tlvs = message.tlvs();
    tlvs.any(|tlv| matches!(tlv, Tlv::Error(ConvertError::UnsupportedMessage(_))))
}

/// Takes the converter's message from the stream; the server's data behind it stays.
async fn answer_of(stream: &mut MpStream) -> io::Result<Vec<u8>> {
    let spoke = |text: &str| io::Error::new(io::ErrorKind::InvalidData, text.to_owned());
    let mut message = vec![0; 4];
    let ended = |e: io::Error| match e.kind() {
        io::ErrorKind::UnexpectedEof => spoke("the converter ended the connection without a word"),
        _ => e,
    };
    stream.read_exact(&mut message).await.map_err(ended)?;
    read(&message).map_err(|_| spoke("what answers there is no converter"))?;
    message.resize(usize::from(message[1]) * 4, 0);
    stream.read_exact(&mut message[4..]).await.map_err(ended)?;
    match read(&message) {
        Ok(Parsed::Whole(_)) => Ok(message),
        _ => Err(spoke("the converter's message cannot be read")),
    }
}

/// Whether the options of a SYN/ACK have MP_CAPABLE.
fn has_multipath(mut options: &[u8]) -> bool {
    loop {
        match options {
            [] | [0, ..] => return false,
            [1, rest @ ..] => options = rest,
            [KIND, _, subtype, ..] if subtype >> 4 == 0 => return true,
            [_, length, ..] if *length >= 2 => {
                options = options.get(usize::from(*length)..).unwrap_or(&[]);
            }
            [_, ..] => return false,
        }
    }
}

/// An error of a converter as one of a socket.
fn told(converter: SocketAddr, error: ConvertError<'_>) -> io::Error {
    use io::ErrorKind as Kind;
    let (kind, text) = match error {
        ConvertError::ConnectionReset => (
            Kind::ConnectionRefused,
            "the server has refused or reset the connection".to_owned(),
        ),
        ConvertError::DestinationUnreachable { icmp: 0 } => (
            Kind::NetworkUnreachable,
            "it has no way to the server's network".to_owned(),
        ),
        ConvertError::DestinationUnreachable { icmp } => (
            Kind::HostUnreachable,
            format!("it does not reach the server (ICMP code {icmp})"),
        ),
        ConvertError::NotAuthorized => (
            Kind::PermissionDenied,
            "it may not be used for that".to_owned(),
        ),
        ConvertError::ResourceExceeded => (
            Kind::ResourceBusy,
            "it has as many connections as it may".to_owned(),
        ),
        ConvertError::NetworkFailure { .. } => (
            Kind::NetworkDown,
            "the server did not answer it in time, or its network does not work".to_owned(),
        ),
        error => (
            Kind::InvalidData,
            format!("it does not understand us (error {})", error.code()),
        ),
    };
    io::Error::new(kind, format!("the converter {converter} says: {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn via() -> Via {
        Via::new("192.0.2.1:1234".parse().expect("a literal"))
    }

    fn answer(via: &Via, tlvs: &[Tlv<'_>]) -> Answer {
        let mut out = [0; MAX_LEN];
        let n = emit(tlvs, &mut out).expect("it fits");
        via.judge("203.0.113.1:80".parse().expect("a literal"), &out[..n])
    }

    #[test]
    fn each_error_of_a_converter_is_one_of_a_socket() {
        use io::ErrorKind as Kind;
        for (error, wanted) in [
            (ConvertError::ConnectionReset, Kind::ConnectionRefused),
            (
                ConvertError::DestinationUnreachable { icmp: 0 },
                Kind::NetworkUnreachable,
            ),
            (
                ConvertError::DestinationUnreachable { icmp: 1 },
                Kind::HostUnreachable,
            ),
            (ConvertError::NotAuthorized, Kind::PermissionDenied),
            (ConvertError::ResourceExceeded, Kind::ResourceBusy),
            (ConvertError::NetworkFailure { wait: 1 }, Kind::NetworkDown),
            (ConvertError::UnsupportedVersion(&[2]), Kind::InvalidData),
            (ConvertError::MalformedMessage(&[]), Kind::InvalidData),
        ] {
            let Answer::Failed(told) = answer(&via(), &[Tlv::Error(error)]) else {
                panic!("{error:?} is no failure");
            };
            assert_eq!(told.kind(), wanted, "{error:?}");
        }
    }

    #[test]
    fn a_token_is_shown_with_the_next_question_and_an_empty_cookie_asks_for_one() {
        let via = via();
        let server = "203.0.113.1:80".parse().expect("a literal");
        let (first, _) = via.question(server).expect("a message");
        assert_eq!(first[4..8], [22, 1, 0, 0]);
        assert!(matches!(
            answer(&via, &[Tlv::Cookie(&[7; 20])]),
            Answer::Connected
        ));
        let (next, _) = via.question(server).expect("a message");
        assert_eq!((next[5], &next[8..28]), (6, &[7; 20][..]));
        let told = ConvertError::MissingCookie(&[8; 20]);
        assert!(
            matches!(answer(&via, &[Tlv::Error(told)]), Answer::Token(token) if token == [8; 20])
        );
    }

    #[test]
    fn the_proof_of_a_question_is_over_what_is_on_the_wire() {
        let key = Key::new(b"a key that clients share").expect("long enough");
        let via = via().key(key.clone());
        via.known().token = Some((vec![7; 20], Instant::now()));
        let server = "203.0.113.1:80".parse().expect("a literal");
        let (question, _) = via.question(server).expect("a message");
        let Ok(Parsed::Whole(message)) = read(&question) else {
            panic!("no message");
        };
        let tlvs: Vec<Tlv<'_>> = message.tlvs().collect();
        let [Tlv::Cookie(cookie), connect] = tlvs[..] else {
            panic!("{tlvs:?}");
        };
        assert!(key.proves(&cookie[..20], &cookie[20..], &[connect]));
    }

    #[test]
    fn a_server_with_multipath_tcp_is_known_by_its_options() {
        let via = via();
        let server = "203.0.113.1:80".parse().expect("a literal");
        answer(
            &via,
            &[Tlv::ExtendedTcpHeader(&[
                1, 1, 2, 4, 5, 0xb4, 30, 4, 1, 1, 0, 0,
            ])],
        );
        assert!(via.known().capable.contains_key(&server));
        answer(&via, &[Tlv::ExtendedTcpHeader(&[2, 4, 5, 0xb4])]);
        assert!(!via.known().capable.contains_key(&server));
        for odd in [&[30][..], &[5, 0, 30, 4], &[30, 4, 0x10, 1], &[8, 200, 1]] {
            assert!(!has_multipath(odd), "{odd:?}");
        }
    }

    #[test]
    fn a_server_that_a_converter_does_not_reach_is_not_asked_for_for_a_time() {
        let via = via();
        answer(
            &via,
            &[Tlv::Error(ConvertError::NetworkFailure { wait: 0 })],
        );
        let server = "203.0.113.1:80".parse().expect("a literal");
        let until = *via.known().waiting.get(&server).expect("a time");
        let left = until.saturating_duration_since(Instant::now());
        assert!(left > LONG_WAIT - Duration::from_secs(5) && left <= LONG_WAIT);
    }
}
