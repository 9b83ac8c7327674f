//! Version 2: `signature 12 | version and command u8 | family u8 | length u16 | addresses | more`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Header, Malformed, Parsed};

/// Every header begins so.
pub(super) const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

/// The fixed part.
const FIXED: usize = 16;

/// What may follow it: addresses and extensions (a certificate's names are among the longest).
const MOST: usize = 4096;

const LOCAL: u8 = 0x20;
const PROXY: u8 = 0x21;
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    match bytes.get(12) {
        None => return Ok(Parsed::Short),
        Some(&(LOCAL | PROXY)) => {}
        Some(_) => return Err(Malformed),
    }
    let Some(&[command, family, high, low]) = bytes.get(12..).and_then(|b| b.first_chunk()) else {
        return Ok(Parsed::Short);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    let least = match (command, family) {
        (PROXY, TCP4) => 12,
        (PROXY, TCP6) => 36,
        _ => 0,
    };
    if !(least..=MOST).contains(&length) {
        return Err(Malformed);
    }
    let Some(rest) = bytes.get(FIXED..FIXED + length) else {
        return Ok(Parsed::Short);
    };
    // Unix sockets and datagrams have no addresses for us.
    let header = match least {
        12 => addresses::<4>(rest),
        36 => addresses::<16>(rest),
        _ => None,
    };
    Ok(Parsed::Whole(FIXED + length, header))
}

/// Two addresses of `N` bytes, then two ports.
fn addresses<const N: usize>(bytes: &[u8]) -> Option<Header> {
    let ip = |at: usize| -> Option<IpAddr> {
        let bytes = bytes.get(at..at + N)?;
        let v4 = || <[u8; 4]>::try_from(bytes).ok().map(Ipv4Addr::from);
        let v6 = || <[u8; 16]>::try_from(bytes).ok().map(Ipv6Addr::from);
        v4().map(IpAddr::V4).or_else(|| v6().map(IpAddr::V6))
    };
    let port = |at: usize| -> Option<u16> {
        let bytes = bytes.get(at..at + 2)?;
        Some(u16::from_be_bytes([bytes[0], bytes[1]]))
    };
    Some(Header {
        source: SocketAddr::new(ip(0)?, port(2 * N)?),
        destination: SocketAddr::new(ip(N)?, port(2 * N + 2)?),
    })
}

pub(super) fn emit(header: Option<Header>) -> Vec<u8> {
    let mut bytes = SIGNATURE.to_vec();
    let Some(Header {
        source,
        destination,
    }) = header
    else {
        bytes.extend([LOCAL, 0, 0, 0]);
        return bytes;
    };
    let (family, length) = if source.is_ipv4() {
        (TCP4, 12)
    } else {
        (TCP6, 36)
    };
    bytes.extend([PROXY, family, 0, length]);
    for addr in [source, destination] {
        match addr.ip() {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(destination.port().to_be_bytes());
    bytes
}
