//! TLS over Multipath TCP with tokio-rustls, both ends in one process, which need no privileges: over real paths only the two lines
//! that make the hosts differ.

use manypath::{Host, MpListener, testing};
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::rustls::pki_types::{PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What server and client need, for a certificate that is made now.
pub fn configs(name: &str) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a name");
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).expect("a certificate");
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .expect("a certificate and its key");
    let client = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (Arc::new(server), Arc::new(client))
}

/// Answers one client in capitals.
pub async fn shout(listener: MpListener, config: Arc<ServerConfig>) -> io::Result<()> {
    let (stream, _peer) = listener.accept().await?;
    let mut tls = TlsAcceptor::from(config).accept(stream).await?;
    let mut line = vec![0; 5];
    tls.read_exact(&mut line).await?;
    line.make_ascii_uppercase();
    tls.write_all(&line).await?;
    // TLS says that it ends, and hears the client's end: bytes that reach a closed stream are answered with a reset, as by TCP.
    tls.shutdown().await?;
    tls.read_to_end(&mut line).await?;
    let (stream, _session) = tls.into_inner();
    stream.close().await
}

/// Says something and returns the answer.
pub async fn ask(
    host: &Host,
    server: &str,
    name: &'static str,
    config: Arc<ClientConfig>,
) -> io::Result<String> {
    let stream = host.connect(server).await?;
    let name = ServerName::try_from(name).map_err(io::Error::other)?;
    let mut tls = TlsConnector::from(config).connect(name, stream).await?;
    tls.write_all(b"hello").await?;
    let mut answer = String::new();
    tls.read_to_string(&mut answer).await?;
    tls.shutdown().await?;
    let (stream, _session) = tls.into_inner();
    stream.close().await?;
    Ok(answer)
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let net = testing::pair(2)?;
    let (server, client) = configs("server.example");
    let listener = net.server.listen("0.0.0.0:443")?;
    let served = tokio::spawn(shout(listener, server));
    let answer = ask(&net.client, "10.0.1.2:443", "server.example", client).await?;
    println!("{answer}");
    served.await?
}
