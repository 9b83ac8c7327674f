//! The Connect TLV (RFC 8803 section 6.2.5): where to, and which TCP options the SYN to the server is to have.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::BadMessage;

/// Bytes of the address.
const ADDR_LEN: usize = 16;

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect<'a> {
    /// The server's port.
    pub port: u16,
    /// The server's address; an IPv4 address as `::ffff:a.b.c.d`.
    pub addr: Ipv6Addr,
    /// Options that the converter is to use towards the server; none in the base form.
    pub options: ConnectOptions<'a>,
}

impl<'a> Connect<'a> {
    /// A Connect without options.
    #[must_use]
    pub const fn to(remote: SocketAddr) -> Self {
        let addr = match remote.ip() {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        Self {
            port: remote.port(),
            addr,
            options: ConnectOptions::NONE,
        }
    }

    /// The server.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V6(self.addr).to_canonical(), self.port)
    }

    pub(super) fn parse(port: u16, rest: &'a [u8]) -> Result<Self, BadMessage> {
        let too_short = BadMessage::TlvTooShort(super::Type::Connect as u8);
        let (addr, options) = rest.split_first_chunk::<ADDR_LEN>().ok_or(too_short)?;
        Ok(Self {
            port,
            addr: Ipv6Addr::from(*addr),
            options: ConnectOptions::parse(options).ok_or(BadMessage::SynOption)?,
        })
    }
}

/// The options of an extended Connect: `kind u8 | length u8 | value`, kind and length included in the length. A kind of zero ends
/// them: what follows is padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions<'a> {
    bytes: &'a [u8],
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynOption<'a> {
    /// The option's kind, from IANA's list of TCP options.
    pub kind: u8,
    /// Its value, empty where a client only names the option.
    pub value: &'a [u8],
}

impl<'a> ConnectOptions<'a> {
    /// The base form of Connect.
    pub const NONE: Self = Self { bytes: &[] };

    /// Options from their bytes, padded or not; `None` where one has a length below two or reaches past the end.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut rest = bytes;
        while let Some((_, tail)) = next(rest)? {
            rest = tail;
        }
        Some(Self { bytes })
    }

    /// Whether this is the base form: no options, nor room for any.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Every option, in its order.
    pub fn iter(&self) -> impl Iterator<Item = SynOption<'a>> + use<'a> {
        let mut rest = self.bytes;
        core::iter::from_fn(move || {
            let (option, tail) = next(rest)??;
            rest = tail;
            Some(option)
        })
    }

    pub(super) const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The first option and what is behind it; `Some(None)` where there are no more, `None` for a bad one.
#[expect(clippy::option_option, reason = "the end is no mistake")]
fn next(bytes: &[u8]) -> Option<Option<(SynOption<'_>, &[u8])>> {
    let kind = match bytes {
        [] | [0, ..] => return Some(None),
        [kind, ..] => *kind,
    };
    let length = usize::from(*bytes.get(1)?);
    let value = bytes.get(2..length)?;
    Some(Some((SynOption { kind, value }, &bytes[length..])))
}
