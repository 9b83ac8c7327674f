//! TLS on listeners (RFC 8446), by rustls.

use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::Error;
use crate::buffered::Buffered;
use crate::maybe_tls::MaybeTls;
use crate::serve::TlsFiles;
use crate::stream::Stream;

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
    pub(crate) async fn accept(&self, stream: Buffered<Stream>) -> io::Result<MaybeTls> {
        let stream = self.0.accept(stream).await?;
        Ok(MaybeTls::Tls(Box::new(stream.into())))
    }
}
