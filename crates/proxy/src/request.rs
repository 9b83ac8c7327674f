//! What a client asks a listener for: where to go, on whose behalf, and in which way.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The longest host name (RFC 1035 section 2.3.4, without the final dot).
pub const HOST_MAX: usize = 253;

/// Where a client wants to go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// An address.
    Address(SocketAddr),
    /// A host name, in lower case and without a final dot, that is no address literal.
    Name {
        /// The name.
        host: Arc<str>,
        /// The port.
        port: u16,
    },
}

/// Why a text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadTarget {
    /// The host is empty, too long, or has a character that host names do not have.
    Host,
    /// The port is missing, zero, or above 65535.
    Port,
    /// An IPv6 address without brackets or with only one, or brackets around something else.
    Brackets,
}

impl fmt::Display for BadTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "the host is no name and no address",
            Self::Port => "the port is missing or not from 1 to 65535",
            Self::Brackets => "an IPv6 address is written [ADDRESS]:PORT",
        })
    }
}

impl std::error::Error for BadTarget {}

impl Target {
    /// A target from a host as protocols carry it: a name (a final dot is dropped) or an address literal, IPv6 with or
    /// without brackets. Literals become addresses, so that nobody asks a name server for them.
    ///
    /// # Errors
    /// [`BadTarget::Host`], [`BadTarget::Port`] for port 0.
    pub fn from_host(host: &str, port: u16) -> Result<Self, BadTarget> {
        if port == 0 {
            return Err(BadTarget::Port);
        }
        let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
        if let Some(bare) = bare {
            let addr: Ipv6Addr = bare.parse().map_err(|_| BadTarget::Host)?;
            return Ok(Self::Address((addr, port).into()));
        }
        let host = host.strip_suffix('.').unwrap_or(host);
        if let Ok(addr) = host.parse::<IpAddr>() {
            return Ok(Self::Address((addr, port).into()));
        }
        if host.len() > HOST_MAX || !host.split('.').all(is_label) || is_numeric(host) {
            return Err(BadTarget::Host);
        }
        let host = host.to_ascii_lowercase().into();
        Ok(Self::Name { host, port })
    }

    /// A target from `HOST:PORT` (RFC 3986 section 3.2.2: IPv6 in brackets). Without a port, `default_port` where there is one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_authority(text: &str, default_port: Option<u16>) -> Result<Self, BadTarget> {
        let (host, port) = if text.starts_with('[') {
            let end = text.find(']').ok_or(BadTarget::Brackets)?;
            let (host, rest) = text.split_at(end + 1);
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(BadTarget::Brackets),
            }
        } else {
            match text.rsplit_once(':') {
                Some((host, _)) if host.contains(':') => return Err(BadTarget::Brackets),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let port = match port.filter(|port| !port.is_empty()) {
            // `parse` would take a plus sign.
            Some(port) if !port.bytes().all(|b| b.is_ascii_digit()) => return Err(BadTarget::Port),
            Some(port) => port.parse().map_err(|_| BadTarget::Port)?,
            None => default_port.ok_or(BadTarget::Port)?,
        };
        Self::from_host(host, port)
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Address(addr) => addr.port(),
            Self::Name { port, .. } => *port,
        }
    }
}

/// A label as it is met in practice: letters, digits, hyphens, underscores (RFC 1123 section 2.1; underscores are common).
fn is_label(label: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    (1..=63).contains(&label.len()) && label.bytes().all(fits)
}

/// Whether the last label is a number: resolvers take such a host for an IPv4 address in a historic notation (`127.1`,
/// `0x7f.1`, `2130706433`), past any rule for addresses, and no top-level domain looks like that.
fn is_numeric(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or(host);
    let hex = last.strip_prefix("0x").or(last.strip_prefix("0X"));
    match hex {
        Some(hex) => hex.bytes().all(|b| b.is_ascii_hexdigit()),
        None => last.bytes().all(|b| b.is_ascii_digit()),
    }
}

impl From<SocketAddr> for Target {
    fn from(addr: SocketAddr) -> Self {
        Self::Address(addr)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(addr) => addr.fmt(f),
            Self::Name { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// The listener that it came to, by its name: it says whose passwords are asked for.
    pub listener: Arc<str>,
    /// The client's own address: of the connection, or what a PROXY protocol header says.
    pub address: SocketAddr,
    /// The user whose password was right.
    pub user: Option<Arc<str>>,
}

/// In which way a client asks, which decides who chose the target and what may be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// An HTTP request in absolute form.
    Http,
    /// HTTP CONNECT.
    Connect,
    /// SOCKS5 CONNECT.
    Socks,
    /// A datagram by SOCKS5 UDP ASSOCIATE.
    SocksUdp,
    /// A Connect of the Convert Protocol (RFC 8803).
    Convert,
    /// The destination of a connection that the firewall has turned to us.
    Transparent,
    /// A fixed target: chosen by the operator and not by the client.
    Fixed,
}

impl Way {
    /// Every way.
    pub const ALL: [Self; 7] = [
        Self::Http,
        Self::Connect,
        Self::Socks,
        Self::SocksUdp,
        Self::Convert,
        Self::Transparent,
        Self::Fixed,
    ];

    /// A word for labels and logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Connect => "connect",
            Self::Socks => "socks",
            Self::SocksUdp => "socks-udp",
            Self::Convert => "convert",
            Self::Transparent => "transparent",
            Self::Fixed => "fixed",
        }
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where to.
    pub target: Target,
    /// Who.
    pub client: Client,
    /// How.
    pub way: Way,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, port: Option<u16>) -> Result<String, BadTarget> {
        Target::from_authority(text, port).map(|target| target.to_string())
    }

    #[test]
    fn names_and_addresses_of_both_families() {
        for (text, wanted) in [
            ("Example.NET:443", "example.net:443"),
            ("s.test.:80", "s.test:80"),
            ("a_b-c.test:1", "a_b-c.test:1"),
            ("192.0.2.1:65535", "192.0.2.1:65535"),
            ("[fd00::2]:443", "[fd00::2]:443"),
            ("[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.1]:80"),
        ] {
            assert_eq!(shown(text, None).as_deref(), Ok(wanted), "{text}");
        }
        assert_eq!(shown("h", Some(80)).as_deref(), Ok("h:80"));
        assert_eq!(shown("h:", Some(80)).as_deref(), Ok("h:80"));
        assert_eq!(shown("[::1]", Some(80)).as_deref(), Ok("[::1]:80"));
        let literal = Target::from_host("fd00::2", 80);
        assert_eq!(literal, Target::from_host("[fd00::2]", 80));
    }

    #[test]
    fn what_is_no_target_is_told() {
        use BadTarget::{Brackets, Host, Port};
        for (text, wanted) in [
            ("[1.2.3.4]:80", Host),
            ("[::1", Brackets),
            ("[::1]x:80", Brackets),
            ("::1:80", Brackets),
            ("h:0", Port),
            ("h:65536", Port),
            ("h:+80", Port),
            ("h", Port),
            ("h:", Port),
            (":80", Host),
            ("a..b:80", Host),
            ("a b:80", Host),
            ("a\0b:80", Host),
            ("user@h:80", Host),
            ("[fe80::1%eth0]:80", Host),
        ] {
            assert_eq!(shown(text, None), Err(wanted), "{text}");
        }
        let long = ["a"; 128].join(".");
        assert_eq!(Target::from_host(&long, 1), Err(Host));
    }

    #[test]
    fn historic_notations_of_addresses_are_no_names() {
        for host in [
            "127.1",
            "2130706433",
            "0x7f000001",
            "0x7f.1",
            "1.2.3.04",
            "1.2.3.4.5",
        ] {
            assert_eq!(Target::from_host(host, 80), Err(BadTarget::Host), "{host}");
        }
        assert!(Target::from_host("1password.com", 80).is_ok());
        assert!(Target::from_host("a.0xyz", 80).is_ok());
    }
}
