//! Targets of `https`: whom the proxy believes, and what its client is told otherwise.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use manypath_proxy::serve::{Failure, OpeningKind};
use manypath_proxy::target::tls::{Roots, Trust};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Origin, Proxy, in_time, ok, read_head, status};

/// What a server has seen of its clients' handshakes: names, and protocols that were agreed on.
type Seen = Arc<Mutex<Vec<(Option<String>, Option<Vec<u8>>)>>>;

/// A server with a certificate for some names, which answers each request with `/`, its path.
struct Secure {
    origin: Origin,
    seen: Seen,
    pem: String,
}

impl Secure {
    /// `cut`: it ends each connection behind a part of an answer, without saying that this is the end.
    async fn start(names: &[&str], protocol: &[u8], cut: bool) -> Self {
        let names: Vec<String> = names.iter().map(|&name| name.into()).collect();
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(names).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(signing_key.serialize_der().into());
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions of ring")
            .with_no_client_auth();
        let config = config.with_single_cert(vec![cert.der().clone()], key);
        let mut config = config.expect("they belong together");
        config.alpn_protocols = vec![protocol.to_vec()];
        let (acceptor, seen) = (TlsAcceptor::from(Arc::new(config)), Seen::default());
        let noted = Arc::clone(&seen);
        let origin = Origin::start(move |stream| {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&noted));
            async move {
                let _ = serve(acceptor, stream, &seen, cut).await;
            }
        })
        .await;
        Self {
            origin,
            seen,
            pem: cert.pem(),
        }
    }

    fn at(&self) -> SocketAddr {
        self.origin.at
    }
}

async fn serve(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    seen: &Seen,
    cut: bool,
) -> std::io::Result<()> {
    let mut stream = acceptor.accept(stream).await?;
    {
        let (_, tls) = stream.get_ref();
        let name = tls.server_name().map(str::to_owned);
        let protocol = tls.alpn_protocol().map(<[u8]>::to_vec);
        seen.lock().expect("whole").push((name, protocol));
    }
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await?);
        }
        if cut {
            let part = b"HTTP/1.1 200 OK\r\n\r\nsome of it";
            stream.write_all(part).await?;
            stream.flush().await?;
            return stream.get_mut().0.shutdown().await;
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default();
        stream.write_all(&ok(&body_of(path))).await?;
        stream.flush().await?;
    }
}

/// The path itself, or very much of it.
fn body_of(path: &str) -> String {
    match path.starts_with("/many/") {
        true => path.repeat(300_000 / path.len()),
        false => path.to_owned(),
    }
}

/// A proxy that believes some certificates.
async fn proxy_that_believes(pems: &[&str]) -> Proxy {
    let proxy = Proxy::start(OpeningKind::Http).await;
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), pems.concat()).expect("written");
    let roots = Roots {
        system: false,
        files: vec![file.path().to_owned()],
    };
    proxy.believe(Trust::load(&roots).expect("certificates"));
    proxy
}

fn get(url: &str, more: &str) -> Vec<u8> {
    format!("GET {url} HTTP/1.1\r\n{more}\r\n").into_bytes()
}

#[tokio::test]
async fn an_https_target_is_reached_by_tls_and_asked_again_on_the_same_connection() {
    let server = Secure::start(&["localhost", "127.0.0.1"], b"http/1.1", false).await;
    let proxy = proxy_that_believes(&[&server.pem]).await;
    let port = server.at().port();
    let one = format!("https://localhost:{port}/one");
    let two = format!("wss://localhost:{port}/two");
    let last = format!("https://127.0.0.1:{port}/last");
    let words = [
        get(&one, ""),
        get(&two, ""),
        get(&last, "Connection: close\r\n"),
    ]
    .concat();
    let (answer, end) = proxy.talk(&words).await;
    end.expect("an end in order");
    let text = String::from_utf8_lossy(&answer);
    let bodies = ["/one", "/two", "/last"].map(|path| text.find(path));
    assert!(
        bodies.iter().all(Option::is_some) && bodies.is_sorted(),
        "{text}"
    );
    assert_eq!(server.origin.connections(), 2);
    let protocol = Some(b"http/1.1".to_vec());
    let wanted = [
        (Some("localhost".to_owned()), protocol.clone()),
        (None, protocol),
    ];
    assert_eq!(*server.seen.lock().expect("whole"), wanted);
}

#[tokio::test]
async fn a_certificate_for_another_name_or_of_an_unknown_authority_is_a_502_that_says_so() {
    let other = Secure::start(&["other.test"], b"http/1.1", false).await;
    let unknown = Secure::start(&["localhost"], b"http/1.1", false).await;
    let proxy = proxy_that_believes(&[&other.pem]).await;
    for port in [other.at().port(), unknown.at().port()] {
        let words = get(
            &format!("https://localhost:{port}/"),
            "Connection: close\r\n",
        );
        let (answer, _) = proxy.talk(&words).await;
        assert_eq!(status(&answer), 502);
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("error=tls_certificate_error"), "{text}");
    }
    let failures = [Failure::Certificate, Failure::Certificate];
    assert_eq!(proxy.reports.failures(), failures);
}

#[tokio::test]
async fn a_server_that_speaks_no_tls_or_refuses_it_is_a_502_that_says_so() {
    let plain = Origin::start(|mut stream| async move {
        // It is gone when it does not like it.
        let _ = stream.write_all(b"220 mail.test ESMTP\r\n").await;
        let _ = stream.read(&mut [0; 2048]).await;
    })
    .await;
    let silent = Origin::start(|stream| async { drop(stream) }).await;
    let other = Secure::start(&["localhost"], b"h2", false).await;
    let proxy = proxy_that_believes(&[&other.pem]).await;
    for (at, error) in [
        (plain.at, "tls_protocol_error"),
        (silent.at, "tls_protocol_error"),
        (other.at(), "tls_alert_received"),
    ] {
        let url = format!("https://localhost:{}/", at.port());
        let (answer, _) = proxy.talk(&get(&url, "Connection: close\r\n")).await;
        assert_eq!(status(&answer), 502, "{error}");
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains(&format!("error={error}")), "{text}");
    }
    let failures = [Failure::Tls, Failure::Tls, Failure::TlsAlert];
    assert_eq!(proxy.reports.failures(), failures);
}

#[tokio::test]
async fn an_answer_that_ends_without_close_notify_does_not_look_whole() {
    let server = Secure::start(&["localhost"], b"http/1.1", true).await;
    let proxy = proxy_that_believes(&[&server.pem]).await;
    let url = format!("https://localhost:{}/", server.at().port());
    let mut client = proxy.connect().await;
    client.write_all(&get(&url, "")).await.expect("it reads");
    let mut answer = Vec::new();
    let end = in_time(client.read_to_end(&mut answer)).await;
    assert!(answer.ends_with(b"some of it"));
    end.expect_err("RFC 9112 section 9.8: it is incomplete");
}

#[tokio::test]
async fn certificates_that_are_believed_no_more_are_not_believed_on_a_connection_that_waits() {
    let server = Secure::start(&["localhost"], b"http/1.1", false).await;
    let proxy = proxy_that_believes(&[&server.pem]).await;
    let words = get(&format!("https://localhost:{}/", server.at().port()), "");
    let mut client = proxy.connect().await;
    for wanted in ["HTTP/1.1 200 OK", "HTTP/1.1 502 Bad Gateway"] {
        client.write_all(&words).await.expect("it reads");
        let mut answer = vec![0; 4096];
        let n = in_time(client.read(&mut answer)).await.expect("an answer");
        let text = String::from_utf8_lossy(&answer[..n]).into_owned();
        assert!(text.starts_with(wanted), "{text}");
        proxy.believe(Trust::default());
    }
}

/// The client's own TLS with a server, through CONNECT.
#[tokio::test]
async fn fifty_downloads_in_a_row_through_connect_are_whole() {
    let server = Secure::start(&["localhost"], b"http/1.1", false).await;
    let proxy = Proxy::start(OpeningKind::Http).await;
    let mut roots = RootCertStore::empty();
    let cert = CertificateDer::from_pem_slice(server.pem.as_bytes()).expect("a certificate");
    roots.add(cert).expect("a certificate");
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions of ring")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    let name = ServerName::try_from("localhost").expect("a name");
    for n in 0..50 {
        let mut client = proxy.connect().await;
        let words = format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", server.at().port());
        client.write_all(words.as_bytes()).await.expect("open");
        let head = in_time(read_head(&mut client)).await.expect("an answer");
        assert_eq!(status(head.as_bytes()), 200, "{head}");
        let secure = connector.connect(name.clone(), client);
        let mut secure = in_time(secure).await.expect("a handshake");
        let path = format!("/many/{n}");
        let words = format!("GET {path} HTTP/1.1\r\n\r\n");
        secure.write_all(words.as_bytes()).await.expect("open");
        secure.flush().await.expect("open");
        let wanted = ok(&body_of(&path));
        let mut got = vec![0; wanted.len()];
        in_time(secure.read_exact(&mut got)).await.expect("whole");
        assert!(got == wanted, "download {n} is another");
    }
}
