//! The configuration of `manypath proxy`: a TOML file, read as a whole and checked as a whole.
//!
//! [`read_text`] reads the text, [`check`] asks what only the host can say (files that are named) and whether the whole is safe, and
//! [`shown`] tells what is in force. Everything wrong is told at once, with line, column, and the nearest known key.

pub mod check;
pub mod fault;
mod file;
mod limited;
mod outward;
pub mod reload;
pub mod save;
pub mod shown;
mod table;
mod taken;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::Serialize;

pub use fault::{Fault, Faults};
pub use file::{Draft, read_on, read_text};

use crate::converter::ConverterSpec;
use crate::limits::{ClassSpec, PathLimit, RouteLimit};
use crate::serve::{Bounds, ListenerSpec};
use crate::target::rules::Rule;
use crate::target::tls::Roots;

/// All that a file says, defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The listeners, in the order of the file.
    pub listeners: Vec<Listen>,
    /// The rules, in the order of the file.
    pub rules: Vec<Rule>,
    /// Limits of every listener, and of the process.
    pub limits: Limits,
    /// Whose certificates of `https` targets are believed.
    pub roots: Roots,
    /// Name servers that are asked in place of those of the host, if any.
    pub name_servers: Vec<SocketAddr>,
    /// The converter that connections of our stack go through, if any.
    pub via: Option<ConverterSpec>,
    /// Paths and their limits, in the order of their names.
    pub paths: Vec<PathLimit>,
    /// Beside them, every interface with a default route is a path.
    pub routed: bool,
    /// The file in which quotas are counted.
    pub quota_file: PathBuf,
    /// Classes of connections, in the order of the file.
    pub classes: Vec<ClassSpec>,
    /// Paths that are known by addresses.
    pub routes: Vec<RouteLimit>,
    /// Where metrics are served, if anywhere.
    pub metrics: Option<MetricsAt>,
    /// The access log.
    pub log: Log,
}

/// Where quotas are counted unless the file says otherwise.
fn default_quota_file() -> PathBuf {
    PathBuf::from("/var/lib/manypath/quotas.json")
}

impl Config {
    /// Whether anything has a quota.
    #[must_use]
    pub fn has_quotas(&self) -> bool {
        let mut paths = self.paths.iter();
        let mut classes = self.classes.iter();
        paths.any(|path| !path.quota.is_empty()) || classes.any(|class| !class.quota.is_empty())
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            rules: Vec::new(),
            limits: Limits::default(),
            roots: Roots::default(),
            name_servers: Vec::new(),
            via: None,
            paths: Vec::new(),
            routed: true,
            quota_file: default_quota_file(),
            classes: Vec::new(),
            routes: Vec::new(),
            metrics: None,
            log: Log::default(),
        }
    }
}

/// A listener, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listen {
    /// What is served there.
    pub spec: ListenerSpec,
    /// The file of users; without one nobody is asked who it is.
    pub users: Option<PathBuf>,
}

/// Limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of each listener.
    pub bounds: Bounds,
    /// Connections of all listeners together.
    pub total: usize,
    /// How long to wait for a target, over all of its addresses.
    pub connect_time: Duration,
    /// Asks peers that have been silent for so long whether they are there.
    pub keepalive: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        let bounds = Bounds::default();
        Self {
            bounds: Bounds {
                // A quarter of all, so that three other clients find places beside one.
                max_per_client: bounds.max_connections.div_ceil(4),
                ..bounds
            },
            total: 20_000,
            connect_time: Duration::from_secs(30),
            // As `forward` has it, and as RFC 9293 section 3.8.4 demands at least.
            keepalive: Some(Duration::from_secs(2 * 3600)),
        }
    }
}

/// Where metrics are served: never beyond this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MetricsAt {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket, which whoever may write to it may read.
    Unix(PathBuf),
}

impl FromStr for MetricsAt {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Unix(path)),
                false => Err(format!("'{text}' wants a whole path: unix:/run/...")),
            };
        }
        let addr: SocketAddr = text
            .parse()
            .map_err(|_| format!("'{text}' is neither ADDRESS:PORT nor unix:/PATH"))?;
        match addr.ip().to_canonical().is_loopback() {
            true => Ok(Self::Tcp(addr)),
            false => Err(format!(
                "'{text}' is no loopback address: metrics are served to this host alone, without a password; use 127.0.0.1 or [::1], and a proxy with a password in front of it"
            )),
        }
    }
}

impl fmt::Display for MetricsAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The access log: a line for everything that was carried or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// Where lines go.
    pub access: LogTo,
    /// What they look like.
    pub format: LogFormat,
}

/// Where the access log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogTo {
    /// Nowhere.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file, which is opened anew at a reload, so that others may move it away.
    File(PathBuf),
}

impl FromStr for LogTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "stdout" => Ok(Self::Stdout),
            path if path.starts_with('/') => Ok(Self::File(path.into())),
            _ => Err(format!(
                "'{text}' is none of off, stdout and a whole path, which begins with a /"
            )),
        }
    }
}

impl fmt::Display for LogTo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What a line of the access log looks like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// One JSON object.
    #[default]
    Json,
    /// `key=value` pairs.
    Text,
}

impl FromStr for LogFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "json" => Ok(Self::Json),
            "text" => Ok(Self::Text),
            _ => Err(format!("'{text}' is neither json nor text")),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "json",
            Self::Text => "text",
        })
    }
}
