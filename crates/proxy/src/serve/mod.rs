//! Many listeners in one process: each is a row of opening, inside socket kind and outside socket kind.

pub mod observer;
mod passwords;
pub mod policy;
pub(crate) mod row;
mod server;
pub(crate) mod session;
pub(crate) mod shared;
pub(crate) mod tls;
pub(crate) mod totals;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::endpoint::{Endpoint, Proto};
use crate::taking::Taken;
use crate::target::rules::Network;

pub use observer::{Ended, Failure, How, Observer, PathBytes, Refusal};
pub use policy::{Denial, Policy, Verdict};
pub use server::{Listening, Server};
pub use totals::Totals;

/// Who chooses the target of a listener's connections, and in which protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpeningKind {
    /// The client, by HTTP/1.1: absolute form and CONNECT.
    Http,
    /// The client, by SOCKS5 (RFC 1928, RFC 1929).
    Socks5,
    /// The client, by the Convert Protocol (RFC 8803).
    Convert,
    /// The client, by the destination of its packets: the firewall turns its connections to us.
    Transparent,
    /// The operator: every connection goes to one place.
    Fixed(Endpoint),
}

impl OpeningKind {
    /// A word for labels and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Socks5 => "socks5",
            Self::Convert => "convert",
            Self::Transparent => "transparent",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// The certificate and key of a listener, as PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the listener's own first.
    pub cert: PathBuf,
    /// The private key: PKCS #8, PKCS #1 or SEC 1.
    pub key: PathBuf,
}

/// A version of the PROXY protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// A line of text.
    V1,
    /// A binary header.
    V2,
}

/// What HTTP requests tell the server about the client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardedHeader {
    /// Nothing; what the client sends itself is passed on.
    #[default]
    Off,
    /// `Forwarded` (RFC 7239).
    Forwarded,
    /// `X-Forwarded-For`.
    XForwardedFor,
}

/// Limits of one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of an HTTP request's head, or of an answer's.
    pub header_bytes: usize,
    /// How long a client may take for its request: a TLS handshake, a PROXY header, an HTTP head or the SOCKS5 exchange.
    pub header_time: Duration,
    /// How long an HTTP connection may wait for its next request.
    pub keep_alive: Duration,
    /// Ends a connection when no byte has moved either way for so long; `None`: never.
    pub idle: Option<Duration>,
    /// The same once one side has ended its stream: a peer that has gone without a word is not waited for as long.
    pub half_closed: Option<Duration>,
    /// Connections carried at one time; further ones wait in the listener's queue.
    pub max_connections: usize,
    /// Connections carried for one client (an IPv4 address, a /64 of IPv6) at one time; further ones are reset.
    pub max_per_client: usize,
    /// How long a SOCKS5 association keeps a datagram target that is silent.
    pub udp_idle: Duration,
    /// Datagram targets of one SOCKS5 association.
    pub udp_targets: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            header_bytes: 64 * 1024,
            header_time: Duration::from_secs(10),
            keep_alive: Duration::from_secs(60),
            // RFC 5382 section 5, REQ-5: established connections are kept for 2 hours 4 minutes at least.
            idle: Some(Duration::from_secs(2 * 3600 + 4 * 60)),
            // The same for connections that are being closed: 4 minutes at least.
            half_closed: Some(Duration::from_secs(4 * 60)),
            max_connections: 10_000,
            max_per_client: 1_000,
            // RFC 4787 section 4.3, REQ-5: not less than two minutes.
            udp_idle: Duration::from_secs(120),
            udp_targets: 256,
        }
    }
}

/// One listener: a row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerSpec {
    /// Its name in logs and metrics.
    pub name: Arc<str>,
    /// Where it listens, and on whose TCP.
    pub on: Endpoint,
    /// Who chooses the target.
    pub opening: OpeningKind,
    /// Whose TCP carries the connections to targets that clients choose. A fixed target has its own.
    pub outside: Proto,
    /// Takes TLS from clients (HTTP only).
    pub tls: Option<TlsFiles>,
    /// A file with the key that clients have to show (the Convert Protocol only).
    pub key: Option<PathBuf>,
    /// Connections that the host's firewall is to turn to it (transparent only).
    pub take: Option<Taken>,
    /// Connections to targets come from the client's own address (transparent only, over the host's TCP).
    pub keep_client: bool,
    /// Every connection must begin with a PROXY protocol header, of either version.
    pub proxy_in: bool,
    /// Whose PROXY protocol headers are believed; others are refused. Without any, everybody's.
    pub proxy_from: Vec<Network>,
    /// Connections to targets begin with a PROXY protocol header. Not for HTTP in absolute form, where one connection
    /// may carry the requests of several clients.
    pub proxy_out: Option<ProxyVersion>,
    /// What HTTP requests in absolute form tell about the client.
    pub forwarded: ForwardedHeader,
    /// Its limits.
    pub bounds: Bounds,
}

impl ListenerSpec {
    /// What carries connections to targets.
    #[must_use]
    pub fn carries(&self) -> Proto {
        match &self.opening {
            OpeningKind::Fixed(to) => to.proto,
            OpeningKind::Http
            | OpeningKind::Socks5
            | OpeningKind::Convert
            | OpeningKind::Transparent => self.outside,
        }
    }

    /// A listener without options.
    #[must_use]
    pub fn new(
        name: impl Into<Arc<str>>,
        on: Endpoint,
        opening: OpeningKind,
        outside: Proto,
    ) -> Self {
        Self {
            name: name.into(),
            on,
            opening,
            outside,
            tls: None,
            key: None,
            take: None,
            keep_client: false,
            proxy_in: false,
            proxy_from: Vec::new(),
            proxy_out: None,
            forwarded: ForwardedHeader::default(),
            bounds: Bounds::default(),
        }
    }

    /// Whether a PROXY protocol header of this peer says who the client is.
    #[must_use]
    pub fn believes(&self, peer: IpAddr) -> bool {
        let mut from = self.proxy_from.iter();
        self.proxy_from.is_empty() || from.any(|network| network.contains(peer))
    }
}
