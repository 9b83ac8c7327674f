//! Names of the ends of a relay: `tcp:127.0.0.1:80`, `mptcp:server.example:443`, `kernel-mptcp:[::1]:8080`.

use std::fmt;
use std::net::{Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Which implementation carries a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proto {
    /// The host's TCP.
    Tcp,
    /// Our stack, with Multipath TCP where the peer speaks it.
    Mptcp,
    /// The host kernel's Multipath TCP.
    KernelMptcp,
}

impl Proto {
    /// Every kind, in the order of their names in help texts.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Mptcp, Self::KernelMptcp];

    /// Whether each connection takes a descriptor of this process.
    pub fn takes_files(self) -> bool {
        match self {
            Self::Tcp | Self::KernelMptcp => true,
            Self::Mptcp => false,
        }
    }

    /// The name used on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Mptcp => "mptcp",
            Self::KernelMptcp => "kernel-mptcp",
        }
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Proto {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|proto| proto.name() == text)
            .ok_or_else(|| format!("'{text}' is none of tcp, mptcp, kernel-mptcp"))
    }
}

/// A host (name or address) and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    host: String,
    port: u16,
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(addr) = text.parse::<SocketAddr>() {
            return Ok(addr.into());
        }
        if let Some(zoned) = with_zone(text) {
            return Ok(zoned);
        }
        let hint = "write HOST:PORT, with an IPv6 address as [ADDRESS]:PORT";
        let (host, port) = text
            .rsplit_once(':')
            .ok_or(format!("'{text}' has no port; {hint}"))?;
        let port = port
            .parse()
            .map_err(|_| format!("'{port}' is no port (0 to 65535); {hint}"))?;
        if host.is_empty()
            || host.contains([':', '[', ']', '/'])
            || host.contains(char::is_whitespace)
        {
            return Err(format!("'{host}' is no host name or address; {hint}"));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

/// An IPv6 address whose zone is the name of an interface: `[fe80::1%eth0]:80` (RFC 4007 section 11).
fn with_zone(text: &str) -> Option<HostPort> {
    let (host, port) = text.strip_prefix('[')?.rsplit_once("]:")?;
    let (addr, zone) = host.split_once('%')?;
    let named = (1..=15).contains(&zone.len())
        && !zone.contains(|c: char| matches!(c, '/' | '%' | '[' | ']') || c.is_whitespace());
    let is_address = addr.parse::<Ipv6Addr>().is_ok();
    let port = port.parse().ok().filter(|_| named && is_address)?;
    let host = host.to_owned();
    Some(HostPort { host, port })
}

impl From<SocketAddr> for HostPort {
    fn from(addr: SocketAddr) -> Self {
        let zone = match addr {
            SocketAddr::V6(addr) if addr.scope_id() != 0 => format!("%{}", addr.scope_id()),
            SocketAddr::V6(_) | SocketAddr::V4(_) => String::new(),
        };
        Self {
            host: format!("{}{zone}", addr.ip()),
            port: addr.port(),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl HostPort {
    /// The name or address, an IPv6 address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address and its zone, where there is one: the name or number of an interface.
    pub(crate) fn zoned(&self) -> Option<(Ipv6Addr, &str)> {
        let (addr, zone) = self.host.split_once('%')?;
        Some((addr.parse().ok()?, zone))
    }
}

/// One end of a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Whose implementation.
    pub proto: Proto,
    /// Where.
    pub at: HostPort,
}

impl FromStr for Endpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (proto, at) = text.split_once(':').ok_or(format!(
            "'{text}' is not PROTO:HOST:PORT, for example mptcp:192.0.2.1:80"
        ))?;
        Ok(Self {
            proto: proto.parse()?,
            at: at.parse()?,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.proto, self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_read_back_as_written() {
        for text in [
            "tcp:127.0.0.1:80",
            "mptcp:server.example:443",
            "kernel-mptcp:[::1]:8080",
            "mptcp:[2001:db8::1]:1",
            "tcp:[fe80::1%2]:80",
            "mptcp:[fe80::1%eth0.5]:80",
        ] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), text);
        }
    }

    #[test]
    fn mistakes_are_explained() {
        for (text, part) in [
            ("127.0.0.1:80", "none of tcp"),
            ("tcp", "PROTO:HOST:PORT"),
            ("tcp:host", "no port"),
            ("tcp:host:70000", "no port (0 to 65535)"),
            ("tcp:::1:80", "[ADDRESS]:PORT"),
            ("tcp::80", "no host name"),
            ("tcp:[fe80::1%]:80", "no host name"),
            ("tcp:[fe80::1%a/b]:80", "no host name"),
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
