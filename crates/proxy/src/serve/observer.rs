//! What serving reports: to logs, counters and whoever else wants to know.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::request::Request;
use crate::serve::policy::Denial;

/// Why a listener refused a client before anything was asked of a target. Each is one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It sent what is not the protocol: a binary request line, a wrong length, an unknown version.
    Malformed,
    /// Its HTTP message could be read in two ways (two lengths, a length and chunks), which is how requests are smuggled.
    Ambiguous,
    /// Its head is larger than allowed.
    HeaderTooLarge,
    /// It took too long for its request.
    HeaderTimeout,
    /// It left in the middle of its request.
    Truncated,
    /// The method, command or version is one that we do not do (BIND, HTTP/2, SOCKS4).
    Unsupported,
    /// The target is no target (`h:0`, `[::1`).
    BadTarget,
    /// It has to say who it is, and did not.
    UserMissing,
    /// User or password was wrong.
    UserWrong,
    /// Too many passwords of its were wrong lately, or too many wait to be looked at.
    UserBusy,
    /// The rules say no.
    Rule,
    /// CONNECT to a port that is not allowed.
    Port,
    /// The target is an address that clients may not choose, or all that its name has are.
    Address,
    /// The request has come back to us.
    Loop,
    /// The client has as many connections as one client may have.
    ClientFull,
    /// Its class has as many connections as it may have.
    ClassFull,
    /// As many connections of its class have begun as may in this time.
    ClassRate,
    /// The quota of its class is used up.
    ClassQuota,
    /// TLS did not come about.
    Tls,
    /// The PROXY protocol header is missing or wrong.
    ProxyHeader,
}

impl Refusal {
    /// Every reason.
    pub const ALL: [Self; 20] = [
        Self::Malformed,
        Self::Ambiguous,
        Self::HeaderTooLarge,
        Self::HeaderTimeout,
        Self::Truncated,
        Self::Unsupported,
        Self::BadTarget,
        Self::UserMissing,
        Self::UserWrong,
        Self::UserBusy,
        Self::Rule,
        Self::Port,
        Self::Address,
        Self::Loop,
        Self::ClientFull,
        Self::ClassFull,
        Self::ClassRate,
        Self::ClassQuota,
        Self::Tls,
        Self::ProxyHeader,
    ];

    /// A word for labels and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Ambiguous => "ambiguous",
            Self::HeaderTooLarge => "header_too_large",
            Self::HeaderTimeout => "header_timeout",
            Self::Truncated => "truncated",
            Self::Unsupported => "unsupported",
            Self::BadTarget => "bad_target",
            Self::UserMissing => "user_missing",
            Self::UserWrong => "user_wrong",
            Self::UserBusy => "user_busy",
            Self::Rule => "rule",
            Self::Port => "port",
            Self::Address => "address",
            Self::Loop => "loop",
            Self::ClientFull => "client_full",
            Self::ClassFull => "class_full",
            Self::ClassRate => "class_rate",
            Self::ClassQuota => "class_quota",
            Self::Tls => "tls",
            Self::ProxyHeader => "proxy_header",
        }
    }
}

impl From<Denial> for Refusal {
    fn from(denial: Denial) -> Self {
        match denial {
            Denial::Rule => Self::Rule,
            Denial::Port => Self::Port,
            Denial::Address(_) => Self::Address,
        }
    }
}

/// Why a target was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Failure {
    /// It refused the connection.
    Refused,
    /// No route leads to its network.
    NetworkUnreachable,
    /// A router, or its neighbour, says that it is not there.
    HostUnreachable,
    /// Nothing came back in time.
    TimedOut,
    /// No name server knows its name, or the name has no address.
    NameNotFound,
    /// No name server answered in time.
    NameTimedOut,
    /// We had no descriptor or memory left.
    NoResources,
    /// It spoke, but not the protocol, or left in the middle of an answer's head.
    BadAnswer,
    /// Its certificate is not for its name, is over, or comes from nobody whom we trust.
    Certificate,
    /// It does not speak TLS, or none that we do.
    Tls,
    /// It ended the TLS handshake with an alert.
    TlsAlert,
    /// Anything else.
    Other,
}

impl Failure {
    /// Every reason.
    pub const ALL: [Self; 12] = [
        Self::Refused,
        Self::NetworkUnreachable,
        Self::HostUnreachable,
        Self::TimedOut,
        Self::NameNotFound,
        Self::NameTimedOut,
        Self::NoResources,
        Self::BadAnswer,
        Self::Certificate,
        Self::Tls,
        Self::TlsAlert,
        Self::Other,
    ];

    /// A word for labels and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NetworkUnreachable => "network_unreachable",
            Self::HostUnreachable => "host_unreachable",
            Self::TimedOut => "timed_out",
            Self::NameNotFound => "name_not_found",
            Self::NameTimedOut => "name_timed_out",
            Self::NoResources => "no_resources",
            Self::BadAnswer => "bad_answer",
            Self::Certificate => "certificate",
            Self::Tls => "tls",
            Self::TlsAlert => "tls_alert",
            Self::Other => "other",
        }
    }
}

/// How something that was carried ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum How {
    /// In order, in both directions.
    Finished,
    /// One side broke it off.
    Broken,
    /// Nothing moved for as long as that may last.
    Idle,
    /// We were stopped.
    Stopped,
}

impl How {
    /// Every end.
    pub const ALL: [Self; 4] = [Self::Finished, Self::Broken, Self::Idle, Self::Stopped];

    /// A word for labels and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Broken => "broken",
            Self::Idle => "idle",
            Self::Stopped => "stopped",
        }
    }
}

/// What one path of our stack carried of a connection, subflows that are gone included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathBytes {
    /// The interface.
    pub path: Arc<str>,
    /// Whether the connection is the client's or the one to the target.
    pub inside: bool,
    /// Stream bytes sent by it, reinjected ones included.
    pub sent: u64,
    /// Stream bytes received by it.
    pub received: u64,
}

/// What was carried for a request: a tunnel, an association, or one HTTP exchange.
#[derive(Clone, Debug)]
pub struct Ended {
    /// The request.
    pub request: Request,
    /// The address that was connected to.
    pub reached: Option<SocketAddr>,
    /// Method and status of an HTTP exchange in absolute form.
    pub http: Option<(Arc<str>, u16)>,
    /// Bytes from the client to the target.
    pub forth: u64,
    /// Bytes from the target to the client.
    pub back: u64,
    /// The same by the paths of our stack; empty where the host carried both sides.
    pub paths: Vec<PathBytes>,
    /// From the request to the end.
    pub lasted: Duration,
    /// How it ended.
    pub how: How,
}

/// Gets told what happens. Calls come from the serving tasks: they must not block and be short. `listener` is a
/// [`ListenerSpec`](super::ListenerSpec)'s name.
pub trait Observer: Send + Sync + 'static {
    /// A connection was accepted.
    fn accepted(&self, _listener: &Arc<str>, _peer: SocketAddr) {}
    /// It is over, whatever came of it.
    fn closed(&self, _listener: &Arc<str>) {}
    /// A client was refused. `request` is there where it got so far.
    fn refused(
        &self,
        _listener: &Arc<str>,
        _client: SocketAddr,
        _request: Option<&Request>,
        _why: Refusal,
    ) {
    }
    /// A target was not reached.
    fn failed(&self, _listener: &Arc<str>, _request: &Request, _why: Failure) {}
    /// A target was reached, so long after the request.
    fn connected(&self, _listener: &Arc<str>, _request: &Request, _after: Duration) {}
    /// What was carried is over.
    fn ended(&self, _listener: &Arc<str>, _ended: &Ended) {}
}

/// Tells nobody.
impl Observer for () {}
