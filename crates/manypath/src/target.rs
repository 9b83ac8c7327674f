//! Whom to connect to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// A peer: an address, or a name that is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Where it is.
    At(SocketAddr),
    /// What it is called, and its port.
    Named(String, u16),
}

/// What names a peer: a [`SocketAddr`], `"192.0.2.1:443"`, `"[2001:db8::1]:443"`, `"example.net:443"`, or a host with its port
/// beside it, `("example.net", 443)`. A name stands for all of its addresses, of both families.
pub trait IntoTarget: sealed::Sealed {}

pub(crate) mod sealed {
    use super::Target;
    use std::io;

    /// Reads it.
    pub trait Sealed {
        /// The peer, or `InvalidInput`.
        #[doc(hidden)]
        #[allow(private_interfaces)]
        fn target(self) -> io::Result<Target>;
    }
}

fn bad(text: &str) -> io::Error {
    let what = format!("{text:?} is not HOST:PORT, such as example.net:443 or [2001:db8::1]:443");
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

fn named(host: &str, port: u16) -> Target {
    let bare = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    match bare.unwrap_or(host).parse::<IpAddr>() {
        Ok(addr) => Target::At(SocketAddr::new(addr, port)),
        Err(_) => Target::Named(host.to_owned(), port),
    }
}

macro_rules! target {
    ($type:ty, $this:ident => $target:expr) => {
        impl IntoTarget for $type {}

        impl sealed::Sealed for $type {
            #[allow(private_interfaces)]
            fn target(self) -> io::Result<Target> {
                let $this = self;
                $target
            }
        }
    };
}

target!(&str, text => {
    if let Ok(addr) = text.parse() {
        return Ok(Target::At(addr));
    }
    match text.rsplit_once(':') {
        // A second colon is an IPv6 address without brackets, of which nobody knows where the port begins.
        Some((host, port)) if !host.is_empty() && (!host.contains(':') || host.starts_with('[')) => {
            let port = port.parse().map_err(|_| bad(text))?;
            Ok(named(host, port))
        }
        _ => Err(bad(text)),
    }
});
target!(&String, text => sealed::Sealed::target(text.as_str()));
target!(String, text => sealed::Sealed::target(text.as_str()));
target!(SocketAddr, addr => Ok(Target::At(addr)));
target!(SocketAddrV4, addr => Ok(Target::At(addr.into())));
target!(SocketAddrV6, addr => Ok(Target::At(addr.into())));
target!((IpAddr, u16), pair => Ok(Target::At(pair.into())));
target!((Ipv4Addr, u16), pair => Ok(Target::At(pair.into())));
target!((Ipv6Addr, u16), pair => Ok(Target::At(pair.into())));
target!((&str, u16), pair => Ok(named(pair.0, pair.1)));
target!((String, u16), pair => Ok(named(&pair.0, pair.1)));

#[cfg(test)]
mod tests {
    use super::sealed::Sealed as _;
    use super::*;

    #[test]
    fn addresses_are_no_names_and_names_need_a_port() {
        let at = |text: &str| Target::At(text.parse().expect("a literal"));
        let name = |host: &str| Target::Named(host.to_owned(), 443);
        assert_eq!(
            "192.0.2.1:443".target().expect("an address"),
            at("192.0.2.1:443")
        );
        assert_eq!(
            "[fd00::1]:443".target().expect("an address"),
            at("[fd00::1]:443")
        );
        assert_eq!(
            ("fd00::1", 443).target().expect("an address"),
            at("[fd00::1]:443")
        );
        assert_eq!(
            ("[fd00::1]", 443).target().expect("an address"),
            at("[fd00::1]:443")
        );
        assert_eq!(
            "example.net:443".target().expect("a name"),
            name("example.net")
        );
        assert_eq!(
            ("example.net", 443).target().expect("a name"),
            name("example.net")
        );
        for nonsense in [
            "",
            "example.net",
            ":443",
            "example.net:",
            "example.net:x",
            "fd00::1:443",
        ] {
            let error = nonsense.target().expect_err(nonsense);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{nonsense}");
        }
    }
}
