//! TLS to targets of `https` (RFC 9110 section 4.2.2), by rustls: whom to trust, and the handshake.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore};

use crate::Error;
use crate::buffered::Buffered;
use crate::maybe_tls::MaybeTls;
use crate::request::Target;
use crate::serve::Failure;
use crate::stream::Stream;

/// Whose certificates are believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Those that the host trusts, as they were when the process began to use them.
    pub system: bool,
    /// PEM files of further ones.
    pub files: Vec<PathBuf>,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            system: true,
            files: Vec::new(),
        }
    }
}

/// Certificates that are believed, read and understood; by default none.
#[derive(Clone, Default)]
pub struct Trust(Option<Arc<ClientConfig>>);

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Trust").finish_non_exhaustive()
    }
}

impl Trust {
    /// Reads the certificates of authorities.
    ///
    /// # Errors
    /// A file cannot be read, or has no certificate that can be used.
    pub fn load(roots: &Roots) -> Result<Self, Error> {
        let mut store = match roots.system {
            true => of_system().clone(),
            false => RootCertStore::empty(),
        };
        for path in &roots.files {
            add(&mut store, path)?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::new("use TLS", io::Error::other(error)))?;
        let mut config = config.with_root_certificates(store).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Some(Arc::new(config))))
    }

    /// Whether both are of the same reading of a configuration.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Shakes hands with a target, whose certificate must be for its name, or for its address if that was asked for.
    ///
    /// # Errors
    /// Those of [`of_handshake`].
    pub(crate) async fn connect(&self, stream: Stream, to: &Target) -> io::Result<MaybeTls> {
        let name = match to {
            Target::Address(addr) => ServerName::IpAddress(addr.ip().to_canonical().into()),
            Target::Name { host, .. } => ServerName::try_from(host.to_string())
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?,
        };
        let missing = || io::Error::other("nobody's certificate is believed");
        let config = self.0.as_ref().ok_or_else(missing)?;
        let connector = TlsConnector::from(Arc::clone(config));
        let stream = connector.connect(name, Buffered::new(stream)).await?;
        Ok(MaybeTls::Tls(Box::new(stream.into())))
    }
}

/// Whether the host trusts any authority.
pub(crate) fn has_system_roots() -> bool {
    !of_system().is_empty()
}

/// What the host trusts. It is read once: a service that is confined later may not read it again.
fn of_system() -> &'static RootCertStore {
    static STORE: OnceLock<RootCertStore> = OnceLock::new();
    STORE.get_or_init(|| {
        let mut store = RootCertStore::empty();
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::debug!(%error, "a root certificate of the host cannot be read");
        }
        store.add_parsable_certificates(found.certs);
        store
    })
}

fn add(store: &mut RootCertStore, path: &Path) -> Result<(), Error> {
    let wrong = |error: &dyn std::fmt::Display| {
        let error = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
        Error::new(format!("use the authority {}", path.display()), error)
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
    let mut any = false;
    for cert in found {
        let cert = cert.map_err(|error| wrong(&error))?;
        store.add(cert).map_err(|error| wrong(&error))?;
        any = true;
    }
    match any {
        true => Ok(()),
        false => Err(wrong(&"it has no certificate")),
    }
}

/// Why a handshake failed. Pure.
pub(crate) fn of_handshake(error: &io::Error) -> Failure {
    use rustls::Error as Tls;
    if error.kind() == io::ErrorKind::TimedOut {
        return Failure::TimedOut;
    }
    let tls = error.get_ref().and_then(|error| error.downcast_ref());
    match tls {
        Some(Tls::InvalidCertificate(_) | Tls::NoCertificatesPresented) => Failure::Certificate,
        Some(Tls::AlertReceived(_)) => Failure::TlsAlert,
        // Also one that ends the connection in the middle: it does not speak TLS with us.
        _ => Failure::Tls,
    }
}
