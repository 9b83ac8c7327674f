//! The bytes of SOCKS5: greeting, user and password, request, reply, and the header of datagrams (RFC 1928, RFC 1929). Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::request::{BadTarget, Target};

/// The version of RFC 1928.
pub const VERSION: u8 = 5;
/// No authentication.
pub const METHOD_NONE: u8 = 0;
/// User and password (RFC 1929).
pub const METHOD_PASSWORD: u8 = 2;
/// None of the client's methods.
pub const METHOD_REFUSED: u8 = 0xff;
/// The version of RFC 1929.
pub const PASSWORD_VERSION: u8 = 1;

const ATYP_V4: u8 = 1;
const ATYP_NAME: u8 = 3;
const ATYP_V6: u8 = 4;

/// The reply codes of RFC 1928 section 6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// It is done.
    Succeeded = 0,
    /// Something else.
    GeneralFailure = 1,
    /// The rules forbid it.
    NotAllowed = 2,
    /// No route leads there.
    NetworkUnreachable = 3,
    /// It is not there.
    HostUnreachable = 4,
    /// It refused.
    ConnectionRefused = 5,
    /// It did not answer.
    TtlExpired = 6,
    /// BIND, and what is no command.
    CommandNotSupported = 7,
    /// An address of another kind.
    AddressTypeNotSupported = 8,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A connection.
    Connect,
    /// Datagrams.
    UdpAssociate,
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What.
    pub command: Command,
    /// Where to; an association's may be `0.0.0.0:0`, which is no target.
    pub target: Result<Target, BadTarget>,
}

/// A message of so many bytes, or `Short`: more are needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<T> {
    /// More bytes are needed.
    Short,
    /// The message, and its length.
    Whole(usize, T),
}

/// Why bytes are no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadMessage {
    /// Another version.
    Version(u8),
    /// A reserved byte that is not 0, or a length of 0 where there must be something.
    Malformed,
    /// A command that we do not do.
    Command,
    /// A kind of address that there is not.
    AddressType,
}

/// The client's first message: its methods.
///
/// # Errors
/// Another version, or no method.
pub fn greeting(bytes: &[u8]) -> Result<Parsed<&[u8]>, BadMessage> {
    match bytes {
        [] => Ok(Parsed::Short),
        [version, ..] if *version != VERSION => Err(BadMessage::Version(*version)),
        [_] => Ok(Parsed::Short),
        [_, 0, ..] => Err(BadMessage::Malformed),
        [_, n, rest @ ..] => Ok(match rest.get(..usize::from(*n)) {
            Some(methods) => Parsed::Whole(2 + methods.len(), methods),
            None => Parsed::Short,
        }),
    }
}

/// What a client says of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Credentials<'a> {
    /// Its name, one byte at least.
    pub user: &'a [u8],
    /// Its password.
    pub password: &'a [u8],
}

impl std::fmt::Debug for Credentials<'_> {
    /// Without the password, wherever it is printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// User and password (RFC 1929 section 2).
///
/// # Errors
/// Another version, or an empty user.
pub fn password(bytes: &[u8]) -> Result<Parsed<Credentials<'_>>, BadMessage> {
    let (version, rest) = match bytes {
        [] => return Ok(Parsed::Short),
        [version, rest @ ..] => (*version, rest),
    };
    if version != PASSWORD_VERSION {
        return Err(BadMessage::Version(version));
    }
    let Some((user, rest)) = counted(rest) else {
        return Ok(Parsed::Short);
    };
    if user.is_empty() {
        return Err(BadMessage::Malformed);
    }
    let Some((password, _)) = counted(rest) else {
        return Ok(Parsed::Short);
    };
    let length = 3 + user.len() + password.len();
    Ok(Parsed::Whole(length, Credentials { user, password }))
}

/// Bytes behind their number.
fn counted(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (n, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*n))
}

/// A request (RFC 1928 section 4).
///
/// # Errors
/// What is wrong, as early as it shows.
pub fn request(bytes: &[u8]) -> Result<Parsed<Asked>, BadMessage> {
    let command = match bytes {
        [] => return Ok(Parsed::Short),
        [version, ..] if *version != VERSION => return Err(BadMessage::Version(*version)),
        [_] => return Ok(Parsed::Short),
        [_, 1, ..] => Command::Connect,
        [_, 3, ..] => Command::UdpAssociate,
        _ => return Err(BadMessage::Command),
    };
    match bytes.get(2) {
        None => return Ok(Parsed::Short),
        Some(0) => {}
        Some(_) => return Err(BadMessage::Malformed),
    }
    Ok(match address(&bytes[3..])? {
        Parsed::Short => Parsed::Short,
        Parsed::Whole(n, target) => Parsed::Whole(3 + n, Asked { command, target }),
    })
}

/// `kind u8 | address | port u16`. A name that is an address literal is that address.
fn address(bytes: &[u8]) -> Result<Parsed<Result<Target, BadTarget>>, BadMessage> {
    let Some((kind, rest)) = bytes.split_first() else {
        return Ok(Parsed::Short);
    };
    let (skip, length) = match *kind {
        ATYP_V4 => (0, 4),
        ATYP_V6 => (0, 16),
        ATYP_NAME => match rest.first() {
            None => return Ok(Parsed::Short),
            Some(0) => return Err(BadMessage::Malformed),
            Some(n) => (1, usize::from(*n)),
        },
        _ => return Err(BadMessage::AddressType),
    };
    let (host, port) = (rest.get(skip..skip + length), rest.get(skip + length..));
    let (Some(host), Some(&[high, low])) = (host, port.and_then(|port| port.first_chunk())) else {
        return Ok(Parsed::Short);
    };
    let port = u16::from_be_bytes([high, low]);
    let of_ip = |ip: IpAddr| match port {
        0 => Err(BadTarget::Port),
        _ => Ok(Target::Address(SocketAddr::new(ip, port))),
    };
    let v4 = |b: &[u8]| <[u8; 4]>::try_from(b).map(Ipv4Addr::from);
    let v6 = |b: &[u8]| <[u8; 16]>::try_from(b).map(Ipv6Addr::from);
    let target = match *kind {
        ATYP_V4 => v4(host)
            .map_err(|_| BadTarget::Host)
            .and_then(|ip| of_ip(ip.into())),
        ATYP_V6 => v6(host)
            .map_err(|_| BadTarget::Host)
            .and_then(|ip| of_ip(ip.into())),
        _ => std::str::from_utf8(host)
            .map_err(|_| BadTarget::Host)
            .and_then(|host| Target::from_host(host, port)),
    };
    Ok(Parsed::Whole(1 + skip + length + 2, target))
}

/// A reply (RFC 1928 section 6).
#[must_use]
pub fn reply(reply: Reply, bound: Option<SocketAddr>) -> Vec<u8> {
    let mut bytes = vec![VERSION, reply as u8, 0];
    push_address(
        &mut bytes,
        bound.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()),
    );
    bytes
}

fn push_address(bytes: &mut Vec<u8>, addr: SocketAddr) {
    match addr.ip().to_canonical() {
        IpAddr::V4(v4) => {
            bytes.push(ATYP_V4);
            bytes.extend(v4.octets());
        }
        IpAddr::V6(v6) => {
            bytes.push(ATYP_V6);
            bytes.extend(v6.octets());
        }
    }
    bytes.extend(addr.port().to_be_bytes());
}

/// The header of a datagram (RFC 1928 section 7): where it goes, and the header's length. `None` for what is no datagram, has no
/// target, or is a fragment, which are dropped.
#[must_use]
pub fn datagram(bytes: &[u8]) -> Option<(Target, usize)> {
    let [0, 0, 0, rest @ ..] = bytes else {
        return None;
    };
    match address(rest) {
        Ok(Parsed::Whole(n, Ok(target))) => Some((target, 3 + n)),
        _ => None,
    }
}

/// The header of a datagram from an address.
#[must_use]
pub fn datagram_header(from: SocketAddr) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0];
    push_address(&mut bytes, from);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str, port: u16) -> Vec<u8> {
        let mut bytes = vec![5, 1, 0, 3, text.len() as u8];
        bytes.extend(text.as_bytes());
        bytes.extend(port.to_be_bytes());
        bytes
    }

    fn target(bytes: &[u8]) -> Result<String, BadTarget> {
        match request(bytes).expect("a request") {
            Parsed::Whole(n, asked) if n == bytes.len() => asked.target.map(|t| t.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn requests_for_names_and_addresses() {
        assert_eq!(
            target(&[5, 1, 0, 1, 192, 0, 2, 1, 0, 80]).as_deref(),
            Ok("192.0.2.1:80")
        );
        let v6 = [&[5, 1, 0, 4][..], &Ipv6Addr::LOCALHOST.octets(), &[1, 187]].concat();
        assert_eq!(target(&v6).as_deref(), Ok("[::1]:443"));
        for (host, wanted) in [
            ("S.test", "s.test:80"),
            ("s.test.", "s.test:80"),
            ("10.0.0.2", "10.0.0.2:80"),
            ("fd00::2", "[fd00::2]:80"),
            ("[fd00::2]", "[fd00::2]:80"),
        ] {
            assert_eq!(target(&name(host, 80)).as_deref(), Ok(wanted));
        }
        assert_eq!(target(&name("a\0b", 80)), Err(BadTarget::Host));
        assert_eq!(target(&name("a", 0)), Err(BadTarget::Port));
        assert_eq!(
            target(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]),
            Err(BadTarget::Port)
        );
    }

    #[test]
    fn every_beginning_of_a_message_is_short_and_mistakes_show_early() {
        for whole in [name("s.test", 80), vec![5, 3, 0, 1, 0, 0, 0, 0, 0, 9]] {
            for n in 0..whole.len() {
                assert_eq!(request(&whole[..n]), Ok(Parsed::Short));
            }
        }
        use BadMessage::{AddressType, Command, Malformed, Version};
        assert_eq!(request(&[4, 1]), Err(Version(4)));
        assert_eq!(request(&[5, 2]), Err(Command));
        assert_eq!(request(&[5, 1, 1]), Err(Malformed));
        assert_eq!(request(&[5, 1, 0, 2]), Err(AddressType));
        assert_eq!(request(&[5, 1, 0, 3, 0]), Err(Malformed));
        assert_eq!(greeting(b"G"), Err(Version(b'G')));
        assert_eq!(greeting(&[5, 0]), Err(Malformed));
        assert_eq!(greeting(&[5, 2, 0]), Ok(Parsed::Short));
        assert_eq!(
            greeting(&[5, 2, 0, 2, 9]),
            Ok(Parsed::Whole(4, &[0, 2][..]))
        );
        assert_eq!(password(&[5]), Err(Version(5)));
        assert_eq!(password(&[1, 0]), Err(Malformed));
        assert_eq!(password(&[1, 1, b'u', 2, b'p']), Ok(Parsed::Short));
        let whole = [1, 1, b'u', 2, b'p', b'q', 9];
        let wanted = Credentials {
            user: b"u",
            password: b"pq",
        };
        assert_eq!(password(&whole), Ok(Parsed::Whole(6, wanted)));
        assert!(
            !format!("{wanted:?}").contains("112, 113"),
            "no password in a log"
        );
    }

    #[test]
    fn datagrams_and_replies() {
        let bytes = [0, 0, 0, 1, 192, 0, 2, 1, 0, 53, b'x'];
        let from = "192.0.2.1:53".parse().expect("literal");
        assert_eq!(datagram(&bytes), Some((Target::Address(from), 10)));
        assert_eq!(datagram_header(from), bytes[..10]);
        let fragment = [0, 0, 1, 1, 192, 0, 2, 1, 0, 53];
        assert_eq!(datagram(&fragment), None);
        assert_eq!(datagram(&bytes[..9]), None);
        assert_eq!(
            reply(Reply::ConnectionRefused, None),
            [5, 5, 0, 1, 0, 0, 0, 0, 0, 0]
        );
        let mapped = "[::ffff:192.0.2.1]:80".parse().expect("literal");
        assert_eq!(
            reply(Reply::Succeeded, Some(mapped)),
            [5, 0, 0, 1, 192, 0, 2, 1, 0, 80]
        );
    }
}
