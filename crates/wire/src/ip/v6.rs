//! The IPv6 header and the extension headers a host may skip (RFC 8200).

use core::net::{IpAddr, Ipv6Addr};

use super::{Ecn, IpError, IpMeta};
use crate::cursor::{NoRoom, Reader, Writer};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Headers skipped at most: more than any honest packet has, few enough to bound the work.
const MAX_EXTENSIONS: usize = 8;

/// Reads and checks a header, extension headers included.
pub(super) fn parse(packet: &[u8]) -> Result<IpMeta, IpError> {
    let fixed = fixed(packet).ok_or(IpError::Truncated)?;
    // A payload length of zero would mean a jumbogram or an empty packet; neither holds TCP we could use.
    let whole = packet.get(..fixed.total_len).ok_or(IpError::Truncated)?;
    let chain = walk(whole, fixed.protocol)?;
    Ok(IpMeta {
        protocol: chain.protocol,
        header_len: chain.header_len,
        ..fixed
    })
}

/// Reads the header of a packet of which only the beginning is there.
pub(super) fn parse_quoted(packet: &[u8]) -> Result<IpMeta, IpError> {
    let fixed = fixed(packet).ok_or(IpError::Truncated)?;
    let chain = walk(packet, fixed.protocol)?;
    Ok(IpMeta {
        protocol: chain.protocol,
        header_len: chain.header_len,
        ..fixed
    })
}

/// The 40 fixed bytes; `protocol` is the first next-header value.
fn fixed(packet: &[u8]) -> Option<IpMeta> {
    // A slice of known length lets the compiler drop every further check.
    let mut reader = Reader::new(packet.first_chunk::<HEADER_LEN>()?);
    let first = reader.u32()?;
    if first >> 28 != 6 {
        return None;
    }
    let payload_len = usize::from(reader.u16()?);
    let (protocol, ttl) = (reader.u8()?, reader.u8()?);
    let src = IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?));
    let dst = IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?));
    // The traffic class lies across the first two bytes; its low two bits are bits 20 and 21 of the word.
    let ecn = Ecn::from_bits((first >> 20) as u8);
    Some(IpMeta {
        src,
        dst,
        protocol,
        ttl,
        ecn,
        total_len: HEADER_LEN + payload_len,
        header_len: HEADER_LEN,
    })
}

/// Where the chain of extension headers ends.
struct Chain {
    protocol: u8,
    header_len: usize,
}

fn walk(packet: &[u8], first: u8) -> Result<Chain, IpError> {
    let mut next = first;
    let mut reader = Reader::new(packet);
    reader.take(HEADER_LEN).ok_or(IpError::Truncated)?;
    for _ in 0..=MAX_EXTENSIONS {
        let here = next;
        next = match here {
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                skip_sized(&mut reader).ok_or(IpError::Truncated)?.0
            }
            ROUTING => {
                let (after, body) = skip_sized(&mut reader).ok_or(IpError::Truncated)?;
                // Body: routing type, segments left. With segments left we are not the destination (section 4.4).
                match body {
                    [_, 0, ..] => after,
                    _ => return Err(IpError::ExtensionHeader(ROUTING)),
                }
            }
            FRAGMENT => skip_fragment(&mut reader)?,
            // Whatever is no extension header we know is the upper layer, or nothing we speak.
            protocol => {
                return Ok(Chain {
                    protocol,
                    header_len: packet.len() - reader.remaining(),
                });
            }
        };
    }
    Err(IpError::ExtensionHeader(next))
}

/// Skips a header that begins with next header and length in units of 8 bytes beyond the first.
fn skip_sized<'a>(reader: &mut Reader<'a>) -> Option<(u8, &'a [u8])> {
    let (next, units) = (reader.u8()?, reader.u8()?);
    let body = reader.take(6 + 8 * usize::from(units))?;
    Some((next, body))
}

/// A fragment header is only taken when it says "the whole packet" (RFC 6946).
fn skip_fragment(reader: &mut Reader<'_>) -> Result<u8, IpError> {
    let [next, _reserved, offset_high, offset_low, _, _, _, _] =
        reader.array().ok_or(IpError::Truncated)?;
    let offset_and_more = u16::from_be_bytes([offset_high, offset_low]) & 0xfff9;
    if offset_and_more == 0 {
        Ok(next)
    } else {
        Err(IpError::Fragment)
    }
}

/// Writes a header without extensions for `payload_len` bytes behind it. The flow label is zero.
pub fn emit(
    header: &mut [u8; HEADER_LEN],
    src: Ipv6Addr,
    dst: Ipv6Addr,
    protocol: u8,
    hop_limit: u8,
    ecn: Ecn,
    payload_len: u16,
) {
    let written = write(
        &mut Writer::new(header),
        src,
        dst,
        protocol,
        hop_limit,
        ecn,
        payload_len,
    );
    debug_assert!(written.is_ok(), "the fields are exactly 40 bytes");
}

fn write(
    w: &mut Writer<'_>,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    protocol: u8,
    hop_limit: u8,
    ecn: Ecn,
    payload_len: u16,
) -> Result<(), NoRoom> {
    w.u32(6 << 28 | u32::from(ecn.bits()) << 20)?;
    w.u16(payload_len)?;
    w.u8(protocol)?;
    w.u8(hop_limit)?;
    w.put(&src.octets())?;
    w.put(&dst.octets())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use alloc::vec;
    use alloc::vec::Vec;

    fn packet(first: u8, behind: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER_LEN];
        let (src, dst) = (
            Ipv6Addr::LOCALHOST,
            Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1),
        );
        emit(
            bytes.first_chunk_mut().unwrap(),
            src,
            dst,
            first,
            63,
            Ecn::Ce,
            behind.len() as u16,
        );
        bytes.extend(behind);
        bytes
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = packet(6, &[1, 2, 3]);
        let (meta, body) = ip::parse(&bytes).unwrap();
        assert_eq!(body, [1, 2, 3]);
        assert_eq!((meta.protocol, meta.ttl, meta.ecn), (6, 63, Ecn::Ce));
        assert_eq!((meta.header_len, meta.total_len), (40, 43));
        assert_eq!(meta.src, IpAddr::V6(Ipv6Addr::LOCALHOST));
    }

    #[test]
    fn padding_of_the_link_is_not_payload() {
        let mut bytes = packet(6, &[1, 2, 3]);
        bytes.extend([0; 9]);
        assert_eq!(ip::parse(&bytes).unwrap().1, [1, 2, 3]);
        assert_eq!(ip::parse(&bytes[..42]), Err(IpError::Truncated));
        assert_eq!(ip::parse(&bytes[..39]), Err(IpError::Truncated));
    }

    #[test]
    fn extension_headers_are_skipped() {
        // Hop-by-hop (8 bytes), destination options (16 bytes), routing with no segments left, TCP.
        let mut behind = vec![DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0];
        behind.extend([ROUTING, 1]);
        behind.extend([0; 14]);
        behind.extend([6, 0, 2, 0, 0, 0, 0, 0]);
        behind.extend([7, 7]);
        let bytes = packet(HOP_BY_HOP, &behind);
        let (meta, body) = ip::parse(&bytes).unwrap();
        assert_eq!(
            (meta.protocol, meta.header_len, body),
            (6, 72, &[7u8, 7][..])
        );
    }

    #[test]
    fn a_header_longer_than_the_packet_is_refused() {
        assert_eq!(
            ip::parse(&packet(HOP_BY_HOP, &[6, 1, 0, 0, 0, 0, 0, 0])),
            Err(IpError::Truncated)
        );
        assert_eq!(
            ip::parse(&packet(HOP_BY_HOP, &[6])),
            Err(IpError::Truncated)
        );
    }

    #[test]
    fn a_route_not_finished_is_not_for_us() {
        let routed = packet(ROUTING, &[6, 0, 2, 1, 0, 0, 0, 0]);
        assert_eq!(ip::parse(&routed), Err(IpError::ExtensionHeader(ROUTING)));
    }

    #[test]
    fn only_whole_packets_pass_the_fragment_header() {
        let with = |offset: u16| {
            let [high, low] = offset.to_be_bytes();
            packet(FRAGMENT, &[6, 0, high, low, 1, 2, 3, 4, 9])
        };
        assert_eq!(ip::parse(&with(0)).unwrap().1, [9]);
        assert_eq!(ip::parse(&with(1)), Err(IpError::Fragment));
        assert_eq!(ip::parse(&with(8)), Err(IpError::Fragment));
    }

    #[test]
    fn endless_chains_end() {
        let behind: Vec<u8> = [DESTINATION_OPTIONS, 0, 0, 0, 0, 0, 0, 0].repeat(20);
        assert_eq!(
            ip::parse(&packet(DESTINATION_OPTIONS, &behind)),
            Err(IpError::ExtensionHeader(DESTINATION_OPTIONS))
        );
    }
}
