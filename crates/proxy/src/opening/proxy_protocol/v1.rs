//! Version 1: a line of text.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{Header, Malformed, Parsed};

/// Every line begins so.
pub(super) const BEGINNING: &[u8] = b"PROXY ";

/// The longest line, its end included.
const MOST: usize = 107;

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed, Malformed> {
    let Some(end) = bytes.iter().take(MOST).position(|&b| b == b'\n') else {
        return match bytes.len() < MOST {
            true => Ok(Parsed::Short),
            false => Err(Malformed),
        };
    };
    let line = bytes[..end].strip_suffix(b"\r").ok_or(Malformed)?;
    let line = std::str::from_utf8(line).map_err(|_| Malformed)?;
    let mut words = line.split(' ').skip(1);
    let v4 = match words.next() {
        Some("TCP4") => true,
        Some("TCP6") => false,
        Some("UNKNOWN") => return Ok(Parsed::Whole(end + 1, None)),
        _ => return Err(Malformed),
    };
    let mut ip = || -> Option<IpAddr> {
        let word = words.next()?;
        match v4 {
            true => word.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
            false => word.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        }
    };
    let (source, destination) = (ip().ok_or(Malformed)?, ip().ok_or(Malformed)?);
    let mut port = || words.next().and_then(port);
    let (from, to) = (port().ok_or(Malformed)?, port().ok_or(Malformed)?);
    if words.next().is_some() {
        return Err(Malformed);
    }
    let header = Header {
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
    };
    Ok(Parsed::Whole(end + 1, Some(header)))
}

/// A decimal number without zeros in front.
fn port(word: &str) -> Option<u16> {
    let plain = word.bytes().all(|b| b.is_ascii_digit()) && (word == "0" || !word.starts_with('0'));
    word.parse().ok().filter(|_| plain)
}

pub(super) fn emit(header: Option<Header>) -> Vec<u8> {
    let Some(Header {
        source,
        destination,
    }) = header
    else {
        return b"PROXY UNKNOWN\r\n".to_vec();
    };
    let family = if source.is_ipv4() { "TCP4" } else { "TCP6" };
    format!(
        "PROXY {family} {} {} {} {}\r\n",
        source.ip(),
        destination.ip(),
        source.port(),
        destination.port()
    )
    .into_bytes()
}
