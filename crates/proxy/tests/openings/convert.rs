//! The Convert Protocol on the host's TCP: messages behind the handshake, their traps, and each error (RFC 8803).

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

use manypath_io::convert::cookie::{Key, TOKEN_LEN};
use manypath_proxy::serve::{Failure, OpeningKind, Policy, Refusal};
use manypath_wire::convert::{
    Connect, ConnectOptions, ConvertError, MAX_LEN, Parsed, Tlv, emit, read,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::{Origin, Proxy, in_time, nobody, until};

fn message(tlvs: &[Tlv<'_>]) -> Vec<u8> {
    let mut out = [0; MAX_LEN];
    let n = emit(tlvs, &mut out).expect("it fits");
    out[..n].to_vec()
}

fn connect(to: SocketAddr) -> Vec<u8> {
    message(&[Tlv::Connect(Connect::to(to))])
}

fn extended(to: SocketAddr, options: &[u8]) -> Vec<u8> {
    let options = ConnectOptions::parse(options).expect("well-formed");
    message(&[Tlv::Connect(Connect {
        options,
        ..Connect::to(to)
    })])
}

async fn echo() -> Origin {
    Origin::start(|mut stream| async move {
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await
}

/// Reads the converter's message, and no further.
async fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    in_time(stream.read_exact(&mut bytes))
        .await
        .expect("a message");
    bytes.resize(usize::from(bytes[1]) * 4, 0);
    in_time(stream.read_exact(&mut bytes[4..]))
        .await
        .expect("all of it");
    bytes
}

/// The code of the only error, and what is behind it.
fn error(bytes: &[u8]) -> (u8, Vec<u8>) {
    let Ok(Parsed::Whole(message)) = read(bytes) else {
        panic!("no message: {bytes:?}");
    };
    let tlvs: Vec<Tlv<'_>> = message.tlvs().collect();
    match tlvs[..] {
        [Tlv::Error(ConvertError::MissingCookie(token))] => (3, token.to_vec()),
        [Tlv::Error(error)] => (error.code(), Vec::new()),
        _ => panic!("no error: {tlvs:?}"),
    }
}

/// Sends bytes and gives the code of the error that they have.
async fn refused(proxy: &Proxy, words: &[u8]) -> u8 {
    let mut client = proxy.connect().await;
    client.write_all(words).await.expect("it reads");
    let (code, _) = error(&answer(&mut client).await);
    // The converter waits for the client to end.
    client.shutdown().await.expect("open");
    assert_eq!(in_time(client.read(&mut [0])).await.ok(), Some(0));
    code
}

async fn carries(client: &mut TcpStream) {
    client.write_all(b" and more").await.expect("open");
    let mut back = [0; 14];
    in_time(client.read_exact(&mut back))
        .await
        .expect("the echo");
    assert_eq!(&back, b"first and more");
}

#[tokio::test]
async fn data_behind_a_connect_reaches_the_server_wherever_the_message_is_cut() {
    let (origin, proxy) = (echo().await, Proxy::start(OpeningKind::Convert).await);
    let words = [connect(origin.at), b"first".to_vec()].concat();
    for cut in 1..words.len() {
        let mut client = proxy.connect().await;
        client.set_nodelay(true).expect("open");
        client.write_all(&words[..cut]).await.expect("open");
        tokio::task::yield_now().await;
        client.write_all(&words[cut..]).await.expect("open");
        assert_eq!(answer(&mut client).await, [1, 1, 0x22, 0x63], "{cut}");
        carries(&mut client).await;
    }
    proxy.stop().await;
}

#[tokio::test]
async fn an_extended_connect_has_the_options_of_the_server_and_a_base_one_has_not() {
    let (origin, proxy) = (echo().await, Proxy::start(OpeningKind::Convert).await);
    // What every SYN has is ignored.
    let options = [4, 2, 2, 4, 5, 0xb4, 0, 0];
    let words = [extended(origin.at, &options), b"first".to_vec()].concat();
    let mut client = proxy.connect().await;
    client.write_all(&words).await.expect("open");
    let told = answer(&mut client).await;
    assert_eq!(told, [1, 2, 0x22, 0x63, 20, 1, 0, 0]);
    carries(&mut client).await;
    proxy.stop().await;
}

#[tokio::test]
async fn info_is_answered_with_what_is_supported() {
    let proxy = Proxy::start(OpeningKind::Convert).await;
    let mut client = proxy.connect().await;
    let words = message(&[Tlv::Cookie(&[]), Tlv::Info]);
    client.write_all(&words).await.expect("open");
    let told = answer(&mut client).await;
    assert_eq!(told[4..12], [21, 2, 0, 0, 4, 8, 0, 0]);
    assert_eq!(told[12..14], [22, 6], "a token, which was asked for");
    proxy.stop().await;
}

#[tokio::test]
async fn traps_have_their_error_and_nobody_waits() {
    let proxy = Proxy::start(OpeningKind::Convert).await;
    let server = "192.0.2.1:80".parse().expect("a literal");
    let whole = connect(server);
    let with = |at: usize, byte: u8| {
        let mut bytes = whole.clone();
        bytes[at] = byte;
        bytes
    };
    let twice = [&[1, 11, 0x22, 0x63], &whole[4..], &whole[4..]].concat();
    let cases: [(Vec<u8>, u8); 14] = [
        (with(0, 2), 0),
        (with(2, 0x23), 1),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 1),
        (with(5, 0), 1),
        (with(5, 4), 1),
        (with(5, 6), 1),
        (with(5, 0x7f), 1),
        (with(5, 0x80), 1),
        (with(5, 0xff), 1),
        (twice, 1),
        (vec![1, 1, 0x22, 0x63], 1),
        (connect("192.0.2.1:0".parse().expect("a literal")), 1),
        (message(&[Tlv::Info, Tlv::Connect(Connect::to(server))]), 1),
        (vec![1, 2, 0x22, 0x63, 99, 1, 0, 0], 2),
    ];
    for (words, wanted) in &cases {
        assert_eq!(refused(&proxy, words).await, *wanted, "{words:?}");
    }
    let (told, ended) = proxy.talk(&[1, 0, 0x22, 0x63]).await;
    let reset = ended.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset);
    assert!(told.is_empty() && reset, "no length: a reset");
    assert!(proxy.reports.refusals().contains(&Refusal::Malformed));
    proxy.stop().await;
}

#[tokio::test]
async fn options_that_no_server_gets_are_named() {
    let proxy = Proxy::start(OpeningKind::Convert).await;
    let server = "192.0.2.1:80".parse().expect("a literal");
    let mut client = proxy.connect().await;
    let words = extended(server, &[29, 4, 0, 0, 4, 2, 30, 2]);
    client.write_all(&words).await.expect("open");
    let told = answer(&mut client).await;
    assert_eq!(told, [1, 3, 0x22, 0x63, 30, 2, 33, 29, 30, 0, 0, 0]);
    proxy.stop().await;
}

#[tokio::test]
async fn targets_of_this_host_and_ourselves_are_refused() {
    let proxy = Proxy::with(OpeningKind::Convert, Policy::default(), |_| {}).await;
    let origin = echo().await;
    assert_eq!(refused(&proxy, &connect(origin.at)).await, 1, "loopback");
    let mapped = SocketAddr::new(
        "::ffff:127.0.0.1".parse().expect("a literal"),
        origin.at.port(),
    );
    assert_eq!(refused(&proxy, &connect(mapped)).await, 1);
    let multicast = "224.0.0.1:80".parse().expect("a literal");
    assert_eq!(refused(&proxy, &connect(multicast)).await, 1);
    let metadata = "169.254.169.254:80".parse().expect("a literal");
    assert_eq!(refused(&proxy, &connect(metadata)).await, 32);
    proxy.stop().await;
    let proxy = Proxy::start(OpeningKind::Convert).await;
    assert_eq!(refused(&proxy, &connect(proxy.at)).await, 32, "a loop");
    assert_eq!(proxy.reports.refusals(), [Refusal::Loop]);
    assert_eq!(origin.connections(), 0);
    proxy.stop().await;
}

#[tokio::test]
async fn a_server_that_refuses_is_an_error_in_the_stream() {
    let proxy = Proxy::start(OpeningKind::Convert).await;
    let words = [connect(nobody().await), b"data".to_vec()].concat();
    assert_eq!(refused(&proxy, &words).await, 96);
    assert_eq!(proxy.reports.failures(), [Failure::Refused]);
    proxy.stop().await;
}

/// A file with a key, and the key.
fn key_file(bytes: &[u8]) -> (tempfile::NamedTempFile, PathBuf, Key) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), bytes).expect("writable");
    let path = file.path().to_owned();
    (file, path, Key::new(bytes).expect("long enough"))
}

async fn from(addr: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    let addr = format!("{addr}:0").parse().expect("a literal");
    socket.bind(addr).expect("loopback");
    socket.connect(to).await.expect("it listens")
}

/// Says a Connect with a cookie; gives what is answered.
async fn with_cookie(mut client: TcpStream, to: SocketAddr, cookie: Option<&[u8]>) -> Vec<u8> {
    let cookie = cookie.map(Tlv::Cookie);
    let connect = Tlv::Connect(Connect::to(to));
    let tlvs: Vec<Tlv<'_>> = cookie.into_iter().chain([connect]).collect();
    client.write_all(&message(&tlvs)).await.expect("open");
    answer(&mut client).await
}

#[tokio::test]
async fn with_a_key_each_client_needs_a_cookie_of_its_own() {
    let origin = echo().await;
    let (_file, path, key) = key_file(b"a key that clients share\n");
    let (_, _, other) = key_file(b"a key of somebody else..\n");
    let change = |spec: &mut manypath_proxy::serve::ListenerSpec| spec.key = Some(path);
    let proxy = Proxy::with(OpeningKind::Convert, Policy::permissive(), change).await;
    let asked = with_cookie(proxy.connect().await, origin.at, None).await;
    let (code, token) = error(&asked);
    assert_eq!((code, token.len()), (3, TOKEN_LEN));
    let tlvs = [Tlv::Connect(Connect::to(origin.at))];
    let good = key.cookie(&token, [1; 8], &tlvs);
    let success = [1, 1, 0x22, 0x63];
    let told = with_cookie(proxy.connect().await, origin.at, Some(&good)).await;
    assert_eq!(told, success);
    // Without the key, with another one, for another server, and of another client.
    let elsewhere = nobody().await;
    let wrong = other.cookie(&token, [1; 8], &tlvs);
    for (cookie, to) in [(&token, origin.at), (&wrong, origin.at), (&good, elsewhere)] {
        let told = with_cookie(proxy.connect().await, to, Some(cookie)).await;
        assert_eq!(error(&told).0, 3);
    }
    let client = from("127.0.0.2", proxy.at).await;
    let (code, another) = error(&with_cookie(client, origin.at, Some(&good)).await);
    assert_eq!(code, 3);
    assert_ne!(another[4..], token[4..], "its own token");
    let client = from("127.0.0.2", proxy.at).await;
    let cookie = key.cookie(&another, [1; 8], &tlvs);
    assert_eq!(with_cookie(client, origin.at, Some(&cookie)).await, success);
    until("two connections", || origin.connections() == 2).await;
    let refusals = proxy.reports.refusals();
    assert_eq!(refusals[0], Refusal::UserMissing);
    assert!(refusals[1..].iter().all(|why| *why == Refusal::UserWrong));
    proxy.stop().await;
}
