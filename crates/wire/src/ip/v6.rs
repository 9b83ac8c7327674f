//! The IPv6 header and the extension headers a host may skip (RFC 8200).

use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};

use super::{Ecn, IpError, IpMeta, Joined, Problem, ProblemCode};
use crate::cursor::{NoRoom, Reader, Writer};

/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const NO_NEXT_HEADER: u8 = 59;
const DESTINATION_OPTIONS: u8 = 60;
/// Headers skipped at most: more than any honest packet has, few enough to bound the work.
const MAX_EXTENSIONS: usize = 8;
/// Offset of the fixed header's payload length, and of its next header.
const PAYLOAD_LEN_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
/// Bytes of a fragment header.
pub(super) const FRAGMENT_LEN: usize = 8;

const PAD1: u8 = 0;
const PADN: u8 = 1;
/// RFC 2675 section 2. No link here takes such packets; the kernel writes it where it has joined segments.
const JUMBO_PAYLOAD: u8 = 0xc2;

/// Reads and checks a header, extension headers included.
pub(super) fn parse(packet: &[u8], joined: Joined) -> Result<IpMeta, IpError> {
    let mut fixed = fixed(packet).ok_or(IpError::Truncated)?;
    if fixed.total_len == HEADER_LEN && joined == Joined::Yes {
        fixed.total_len = packet.len();
    }
    // Else a payload length of zero is a jumbogram or an empty packet; neither holds TCP we could use.
    let whole = packet.get(..fixed.total_len).ok_or(IpError::Truncated)?;
    let chain = walk(whole, fixed.protocol, joined)?;
    if chain.protocol == FRAGMENT {
        return Err(IpError::Fragment);
    }
    Ok(IpMeta {
        protocol: chain.protocol,
        header_len: chain.header_len,
        ..fixed
    })
}

/// Reads the header of a packet of which only the beginning is there.
pub(super) fn parse_quoted(packet: &[u8]) -> Result<IpMeta, IpError> {
    let fixed = fixed(packet).ok_or(IpError::Truncated)?;
    let chain = walk(packet, fixed.protocol, Joined::No)?;
    if chain.protocol == FRAGMENT {
        return Err(IpError::Fragment);
    }
    Ok(IpMeta {
        protocol: chain.protocol,
        header_len: chain.header_len,
        ..fixed
    })
}

/// What the source of a packet is to be told whose upper layer is none that the receiver knows (RFC 8200 section 4): which field
/// names it. `None` if there is nothing to tell: it says itself that nothing follows, or cannot be read.
#[must_use]
pub fn unknown_protocol(packet: &[u8]) -> Option<Problem> {
    let chain = walk(packet, fixed(packet)?.protocol, Joined::No).ok()?;
    let told = !matches!(chain.protocol, NO_NEXT_HEADER | FRAGMENT);
    told.then_some(Problem {
        code: ProblemCode::NextHeader,
        pointer: chain.named_at as u32,
    })
}

/// Whether a header of the packet names this protocol, so far as its chain can be followed with all options skipped.
pub(super) fn mentions(packet: &[u8], protocol: u8) -> bool {
    let Some(fixed) = fixed(packet) else {
        return false;
    };
    let mut reader = Reader::new(packet.get(HEADER_LEN..).unwrap_or_default());
    let mut next = fixed.protocol;
    for _ in 0..=MAX_EXTENSIONS {
        let after = match next {
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => sized(&mut reader).map(|(next, _)| next),
            FRAGMENT => fragment_fields(&mut reader).map(|fields| fields.next),
            _ => None,
        };
        match after {
            Some(after) => next = after,
            None => return next == protocol,
        }
    }
    false
}

/// A fragment header that is not of a whole packet, and where it is.
pub(super) struct Piece {
    pub(super) meta: IpMeta,
    /// What follows the fragment header in the whole packet.
    pub(super) protocol: u8,
    pub(super) offset: usize,
    pub(super) more: bool,
    pub(super) identification: u32,
    /// Bytes before the piece itself.
    pub(super) head: usize,
    /// Where the field is that names the fragment header.
    pub(super) named_at: usize,
}

/// Reads the headers of a fragment up to the piece itself, whether or not that is there.
pub(super) fn headers_of_piece(packet: &[u8]) -> Result<Piece, IpError> {
    let meta = fixed(packet).ok_or(IpError::Truncated)?;
    let chain = walk(packet, meta.protocol, Joined::No)?;
    if chain.protocol != FRAGMENT {
        return Err(IpError::Length);
    }
    let mut reader = Reader::new(packet.get(chain.header_len..).ok_or(IpError::Truncated)?);
    let fields = fragment_fields(&mut reader).ok_or(IpError::Truncated)?;
    Ok(Piece {
        meta,
        protocol: fields.next,
        offset: usize::from(fields.offset_and_more & !0b111),
        more: fields.offset_and_more & 1 != 0,
        identification: fields.identification,
        head: chain.header_len + FRAGMENT_LEN,
        named_at: chain.named_at,
    })
}

/// Reads the headers of a fragment that is there.
pub(super) fn piece(packet: &[u8]) -> Result<Piece, IpError> {
    let total_len = fixed(packet).ok_or(IpError::Truncated)?.total_len;
    let whole = packet.get(..total_len).ok_or(IpError::Truncated)?;
    let piece = headers_of_piece(whole)?;
    let len = whole.len() - piece.head;
    let before = piece.head - HEADER_LEN - FRAGMENT_LEN;
    let wrong = if piece.more && len % 8 != 0 {
        Some(PAYLOAD_LEN_AT)
    } else if before + piece.offset + len > usize::from(u16::MAX) {
        Some(piece.head - FRAGMENT_LEN + 2)
    } else {
        None
    };
    // RFC 8200 section 4.5.
    match wrong {
        Some(at) => Err(refused(ProblemCode::Field, at)),
        None => Ok(piece),
    }
}

/// Makes the headers of a fragment, `head`, those of the whole packet with `payload_len` bytes behind the fixed header: without
/// the fragment header at its end.
pub(super) fn make_whole(
    head: &mut Vec<u8>,
    named_at: usize,
    protocol: u8,
    ecn: Ecn,
    payload_len: u16,
) -> Result<(), NoRoom> {
    head.truncate(head.len() - FRAGMENT_LEN);
    *head.get_mut(named_at).ok_or(NoRoom)? = protocol;
    // The traffic class lies across the first two bytes.
    let class = head.get_mut(1).ok_or(NoRoom)?;
    *class = *class & !0x30 | ecn.bits() << 4;
    let field = head.get_mut(PAYLOAD_LEN_AT..).ok_or(NoRoom)?;
    Writer::new(field).u16(payload_len)
}

/// Whether the beginning of a packet's fragmentable part holds all headers, and the first bytes of TCP's if it is TCP.
pub(super) fn holds_all_headers(first: u8, part: &[u8]) -> bool {
    let chain = walk_from(part, 0, first, usize::MAX, Joined::No);
    match chain {
        Ok(chain) if chain.protocol == crate::tcp::PROTOCOL => {
            part.len() >= chain.header_len + crate::tcp::header::MIN_LEN
        }
        // What is wrong with it is seen when it is whole.
        Ok(_) | Err(IpError::ExtensionHeader(_)) => true,
        Err(_) => false,
    }
}

/// The 40 fixed bytes; `protocol` is the first next-header value.
pub(super) fn fixed(packet: &[u8]) -> Option<IpMeta> {
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

/// Where the chain of extension headers ends: at the upper layer, or at the header of a fragment.
struct Chain {
    protocol: u8,
    header_len: usize,
    /// Where the field is that says which protocol.
    named_at: usize,
}

fn refused(code: ProblemCode, at: usize) -> IpError {
    // Within a packet, below 2^20 bytes.
    let pointer = at as u32;
    IpError::ExtensionHeader(Some(Problem { code, pointer }))
}

fn walk(packet: &[u8], first: u8, joined: Joined) -> Result<Chain, IpError> {
    walk_from(packet, HEADER_LEN, first, NEXT_HEADER_AT, joined)
}

/// Walks the headers that begin `at`, the first of which is `first` as the field `named_at` says.
fn walk_from(
    packet: &[u8],
    at: usize,
    first: u8,
    named_at: usize,
    joined: Joined,
) -> Result<Chain, IpError> {
    let mut chain = Chain {
        protocol: first,
        header_len: at,
        named_at,
    };
    for _ in 0..=MAX_EXTENSIONS {
        let at = chain.header_len;
        let mut reader = Reader::new(packet.get(at..).ok_or(IpError::Truncated)?);
        let next = match chain.protocol {
            // Nowhere but directly behind the fixed header (section 4.1).
            HOP_BY_HOP if chain.named_at != NEXT_HEADER_AT => {
                return Err(refused(ProblemCode::NextHeader, chain.named_at));
            }
            HOP_BY_HOP | DESTINATION_OPTIONS => {
                let (next, list) = sized(&mut reader).ok_or(IpError::Truncated)?;
                check_options(list, at + 2, joined)?;
                next
            }
            ROUTING => match sized(&mut reader).ok_or(IpError::Truncated)? {
                // Routing type, segments left: no type that is left is known here (section 4.4).
                (next, [_, 0, ..]) => next,
                _ => return Err(refused(ProblemCode::Field, at + 2)),
            },
            FRAGMENT => {
                let fields = fragment_fields(&mut reader).ok_or(IpError::Truncated)?;
                // A whole packet may have the header, too (RFC 6946).
                if fields.offset_and_more != 0 {
                    return Ok(chain);
                }
                fields.next
            }
            // Whatever is no extension header we know is the upper layer, or nothing we speak.
            _ => return Ok(chain),
        };
        chain = Chain {
            protocol: next,
            header_len: packet.len() - reader.remaining(),
            named_at: at,
        };
    }
    Err(IpError::ExtensionHeader(None))
}

/// Takes a header that begins with next header and length in units of 8 bytes beyond the first.
fn sized<'a>(reader: &mut Reader<'a>) -> Option<(u8, &'a [u8])> {
    let (next, units) = (reader.u8()?, reader.u8()?);
    let body = reader.take(6 + 8 * usize::from(units))?;
    Some((next, body))
}

struct FragmentFields {
    next: u8,
    /// The offset in bytes, and in the last bit whether more follows.
    offset_and_more: u16,
    identification: u32,
}

fn fragment_fields(reader: &mut Reader<'_>) -> Option<FragmentFields> {
    let (next, _reserved) = (reader.u8()?, reader.u8()?);
    Some(FragmentFields {
        next,
        offset_and_more: reader.u16()? & 0xfff9,
        identification: reader.u32()?,
    })
}

/// Skips options that may be skipped, as the upper two bits of their types say (section 4.2). The list begins `at`.
fn check_options(list: &[u8], at: usize, joined: Joined) -> Result<(), IpError> {
    let mut reader = Reader::new(list);
    while let Some(kind) = reader.u8() {
        if kind == PAD1 {
            continue;
        }
        let here = at + list.len() - reader.remaining() - 1;
        let body = reader.u8().and_then(|len| reader.take(usize::from(len)));
        let known = kind == PADN || kind == JUMBO_PAYLOAD && joined == Joined::Yes;
        match (body, kind >> 6) {
            (Some(_), 0b00) => {}
            (Some(_), _) if known => {}
            // To be dropped without a word, or longer than the header.
            (Some(_), 0b01) | (None, _) => return Err(IpError::ExtensionHeader(None)),
            // Said for multicast alike, or not; no address of ours is one.
            (Some(_), _) => return Err(refused(ProblemCode::Option, here)),
        }
    }
    Ok(())
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
        assert_eq!(ip::parse(&routed), problem(ProblemCode::Field, 42));
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
            Err(IpError::ExtensionHeader(None))
        );
    }

    fn problem<T>(code: ProblemCode, pointer: u32) -> Result<T, IpError> {
        Err(IpError::ExtensionHeader(Some(Problem { code, pointer })))
    }

    #[test]
    fn options_say_themselves_whether_they_may_be_skipped() {
        let with = |kind: u8| {
            let list = [
                6, 1, PAD1, PADN, 1, 0, kind, 2, 9, 9, PAD1, PAD1, PADN, 1, 0, PAD1,
            ];
            packet(DESTINATION_OPTIONS, &[&list[..], &[7, 7]].concat())
        };
        assert_eq!(ip::parse(&with(0x1e)).unwrap().1, [7, 7]);
        assert_eq!(ip::parse(&with(0x5e)), Err(IpError::ExtensionHeader(None)));
        for kind in [0x9e, 0xde, JUMBO_PAYLOAD] {
            assert_eq!(ip::parse(&with(kind)), problem(ProblemCode::Option, 46));
        }
        let mut long = with(0x1e);
        long[47] = 200;
        assert_eq!(ip::parse(&long), Err(IpError::ExtensionHeader(None)));
    }

    #[test]
    fn hop_by_hop_options_come_first() {
        let behind = [
            HOP_BY_HOP, 0, PADN, 4, 0, 0, 0, 0, 6, 0, PADN, 4, 0, 0, 0, 0,
        ];
        for first in [HOP_BY_HOP, DESTINATION_OPTIONS] {
            let bytes = packet(first, &behind);
            assert_eq!(ip::parse(&bytes), problem(ProblemCode::NextHeader, 40));
        }
    }

    #[test]
    fn the_field_that_names_an_unknown_protocol() {
        let behind = [17, 0, PADN, 4, 0, 0, 0, 0, 1, 2];
        let at = |first, behind: &[u8]| unknown_protocol(&packet(first, behind)).map(|p| p.pointer);
        assert_eq!(at(17, &[1, 2]), Some(6));
        assert_eq!(at(HOP_BY_HOP, &behind), Some(40));
        assert_eq!(at(NO_NEXT_HEADER, &[]), None);
        assert_eq!(at(HOP_BY_HOP, &[17]), None);
    }
}
