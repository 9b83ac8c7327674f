//! TLS on listeners (RFC 8446), by rustls.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

use crate::Error;
use crate::buffered::Buffered;
use crate::carried::{CarriedBy, PathAccount};
use crate::serve::TlsFiles;
use crate::stream::{Leg, Stream};

/// A certificate and its key, read and understood.
#[derive(Clone)]
pub(crate) struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// One of them cannot be read, has nothing of its kind, or the two do not belong together.
    pub(crate) fn load(files: &TlsFiles) -> Result<Self, Error> {
        let wrong = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
            let error = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            Error::new(format!("use the {what} {}", path.display()), error)
        };
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(&files.cert).and_then(Iterator::collect);
        let chain = chain.map_err(|error| wrong("certificate", &files.cert, &error))?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|error| wrong("private key", &files.key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong("certificate", &files.cert, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, key);
        let mut config = config.map_err(|error| wrong("certificate", &files.cert, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Waits for the client's handshake.
    pub(crate) async fn accept(&self, stream: Buffered<Stream>) -> io::Result<Inside> {
        let stream = self.0.accept(stream).await?;
        Ok(Inside::Tls(Box::new(stream)))
    }
}

/// A client's stream.
#[derive(Debug)]
pub(crate) enum Inside {
    Plain(Stream),
    Tls(Box<TlsStream<Buffered<Stream>>>),
}

impl Inside {
    /// See [`Stream::account`].
    pub(crate) fn account(&self) -> Option<PathAccount> {
        self.stream().account()
    }

    fn stream(&self) -> &Stream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }
}

impl Leg for Inside {
    fn unacknowledged(&self) -> Option<u64> {
        self.stream().unacknowledged()
    }

    fn is_broken(&self) -> bool {
        self.stream().is_broken()
    }

    fn end_is_certain_after(&self, error: &io::Error) -> bool {
        match self {
            Self::Plain(stream) => stream.end_is_certain_after(error),
            // An end is one only with the peer's close_notify (RFC 8446 section 6.1).
            Self::Tls(_) => true,
        }
    }

    fn reset_on_close(&self, on: bool) {
        self.stream().reset_on_close(on);
    }

    fn abort(self) {
        match self {
            Self::Plain(stream) => stream.abort(),
            Self::Tls(stream) => stream.into_inner().0.abort(),
        }
    }

    fn paths(&self) -> Vec<CarriedBy> {
        self.stream().paths()
    }
}

impl AsyncRead for Inside {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Inside {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
