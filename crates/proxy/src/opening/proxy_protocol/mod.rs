//! The PROXY protocol, versions 1 and 2: who the client of a connection was, told in front of its bytes.
//!
//! Both forms have an end that is known before it is read, so what stands behind a header is left alone.

mod v1;
mod v2;

use std::io;
use std::net::SocketAddr;

use crate::buffered::Buffered;
use crate::serve::ProxyVersion;
use crate::stream::Leg;

/// Who connected, and to what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The client.
    pub source: SocketAddr,
    /// Where it connected to.
    pub destination: SocketAddr,
}

/// What some first bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed {
    /// More are needed.
    Short,
    /// A header of so many bytes. Without addresses (`UNKNOWN`, `LOCAL`) those of the connection count.
    Whole(usize, Option<Header>),
}

/// They are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no PROXY protocol header")
    }
}

impl std::error::Error for Malformed {}

/// Reads a header of either version from the first bytes of a connection.
///
/// # Errors
/// They are no header.
pub fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let begins = |whole: &[u8]| bytes.iter().zip(whole).all(|(a, b)| a == b);
    if begins(v2::SIGNATURE) {
        v2::parse(bytes)
    } else if begins(v1::BEGINNING) {
        v1::parse(bytes)
    } else {
        Err(Malformed)
    }
}

/// The header that tells of a client. Without a destination it says that addresses are not known.
#[must_use]
pub fn header(
    version: ProxyVersion,
    source: SocketAddr,
    destination: Option<SocketAddr>,
) -> Vec<u8> {
    let header = destination.and_then(|destination| of_one_family(source, destination));
    match version {
        ProxyVersion::V1 => v1::emit(header),
        ProxyVersion::V2 => v2::emit(header),
    }
}

/// Both addresses in one family: IPv4 within IPv6 counts as what it is, and beside an IPv6 address IPv4 is mapped.
fn of_one_family(source: SocketAddr, destination: SocketAddr) -> Option<Header> {
    let plain = |addr: SocketAddr| SocketAddr::new(addr.ip().to_canonical(), addr.port());
    let (source, destination) = (plain(source), plain(destination));
    if source.is_ipv4() == destination.is_ipv4() {
        return Some(Header {
            source,
            destination,
        });
    }
    let mapped = |addr: SocketAddr| match addr {
        SocketAddr::V4(v4) => SocketAddr::new(v4.ip().to_ipv6_mapped().into(), v4.port()),
        SocketAddr::V6(_) => addr,
    };
    Some(Header {
        source: mapped(source),
        destination: mapped(destination),
    })
}

/// Takes the header from the beginning of a stream; `None` where it has no addresses.
pub(crate) async fn accept<S: Leg>(stream: &mut Buffered<S>) -> io::Result<Option<Header>> {
    loop {
        if !stream.bytes().is_empty() {
            let parsed = parse(stream.bytes());
            match parsed.map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))? {
                Parsed::Short => {}
                Parsed::Whole(n, header) => {
                    stream.consume(n);
                    return Ok(header);
                }
            }
        }
        if stream.fill().await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("literal")
    }

    fn both(source: &str, destination: &str) -> Option<Header> {
        Some(Header {
            source: addr(source),
            destination: addr(destination),
        })
    }

    #[test]
    fn headers_as_the_specification_has_them() {
        let line = b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\nGET";
        let wanted = both("192.0.2.1:56324", "198.51.100.2:443");
        assert_eq!(parse(line), Ok(Parsed::Whole(line.len() - 3, wanted)));
        let line = b"PROXY TCP6 2001:db8::1 2001:db8::2 1 65535\r\n";
        let wanted = both("[2001:db8::1]:1", "[2001:db8::2]:65535");
        assert_eq!(parse(line), Ok(Parsed::Whole(line.len(), wanted)));
        let line = b"PROXY UNKNOWN whatever it is\r\n";
        assert_eq!(parse(line), Ok(Parsed::Whole(line.len(), None)));
        let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
        binary.extend([192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 4, 1, 0xbb]);
        let wanted = both("192.0.2.1:56324", "198.51.100.2:443");
        assert_eq!(parse(&binary), Ok(Parsed::Whole(28, wanted)));
        let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\x02xx";
        assert_eq!(parse(local), Ok(Parsed::Whole(18, None)));
    }

    #[test]
    fn what_is_no_header_is_refused_at_the_first_byte_that_shows_it() {
        for bytes in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"PROXY TCP4 192.0.2.1 198.51.100.2 56324\r\n",
            b"PROXY TCP4 192.0.2.1 ::1 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 65536\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 01 2\r\n",
            b"PROXY TCP4 192.0.2.1  192.0.2.2 1 2\r\n",
            b"PROXY TCP4 192.0.2.1 192.0.2.2 1 2\n",
            b"PROXY UDP4 192.0.2.1 192.0.2.2 1 2\r\n",
            b"PROXY\r\n",
            // Version 3, and a command that there is not.
            b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
            b"\r\n\r\n\0\r\nQUIT\n\x22\x11\0\x0c",
            // Addresses of IPv4 in too few bytes, and more than anybody sends.
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0b",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff",
        ] {
            assert_eq!(parse(bytes), Err(Malformed), "{bytes:?}");
        }
        assert_eq!(
            parse(&[b"PROXY UNKNOWN ".to_vec(), vec![b'x'; 107]].concat()),
            Err(Malformed)
        );
    }

    #[test]
    fn both_addresses_get_one_family() {
        let text = header(
            ProxyVersion::V1,
            addr("[::ffff:192.0.2.1]:5"),
            Some(addr("192.0.2.2:80")),
        );
        assert_eq!(text, b"PROXY TCP4 192.0.2.1 192.0.2.2 5 80\r\n");
        let text = header(
            ProxyVersion::V1,
            addr("[2001:db8::1]:5"),
            Some(addr("192.0.2.2:80")),
        );
        assert_eq!(text, b"PROXY TCP6 2001:db8::1 ::ffff:192.0.2.2 5 80\r\n");
        assert_eq!(
            header(ProxyVersion::V1, addr("192.0.2.1:1"), None),
            b"PROXY UNKNOWN\r\n"
        );
    }

    proptest! {
        #[test]
        fn headers_read_back_and_their_beginnings_are_short(
            source: SocketAddr, destination: SocketAddr, binary: bool, behind: Vec<u8>,
        ) {
            let version = if binary { ProxyVersion::V2 } else { ProxyVersion::V1 };
            let bytes = header(version, source, Some(destination));
            for n in 0..bytes.len() {
                prop_assert_eq!(parse(&bytes[..n]), Ok(Parsed::Short));
            }
            let whole = [&bytes[..], &behind].concat();
            let wanted = of_one_family(source, destination);
            // Neither version has flow labels and scopes.
            let bare = |a: SocketAddr| SocketAddr::new(a.ip(), a.port());
            let wanted = wanted.map(|h| Header { source: bare(h.source), destination: bare(h.destination) });
            prop_assert_eq!(parse(&whole), Ok(Parsed::Whole(bytes.len(), wanted)));
        }
    }
}
