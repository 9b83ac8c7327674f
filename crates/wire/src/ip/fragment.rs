//! Pieces of IP packets (RFC 791 section 3.2, RFC 8200 section 4.5): reading one, and writing the packet that they make.
//!
//! Which pieces belong together and when all are there is not decided here.

use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Ecn, IpError, Joined, Problem, ProblemCode, v4, v6};
use crate::tcp;

/// What the pieces of one packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Who sent it.
    pub src: IpAddr,
    /// Whom it is for.
    pub dst: IpAddr,
    /// The upper layer's protocol number of IPv4; zero of IPv6, where it does not count.
    protocol: u8,
    identification: u32,
}

/// One piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The packet that it belongs to.
    pub key: Key,
    /// Where it begins in what is cut into pieces, bytes.
    pub offset: usize,
    /// Other pieces follow.
    pub more: bool,
    /// The congestion mark.
    pub ecn: Ecn,
    /// All headers before it, the fragment header of IPv6 included.
    pub head: &'a [u8],
    /// The piece itself.
    pub payload: &'a [u8],
}

/// Reads a packet that is one piece of a larger one: one for which [`super::parse`] says [`IpError::Fragment`]. The first piece
/// holds all headers, TCP's included (RFC 8200 section 4.5, RFC 3128).
pub fn read(packet: &[u8]) -> Result<Fragment<'_>, IpError> {
    let version = packet.first().ok_or(IpError::Truncated)? >> 4;
    let fragment = match version {
        4 => read_v4(packet)?,
        6 => read_v6(packet)?,
        other => return Err(IpError::Version(other)),
    };
    if fragment.payload.is_empty() {
        return Err(IpError::Length);
    }
    Ok(fragment)
}

fn read_v4(packet: &[u8]) -> Result<Fragment<'_>, IpError> {
    let fields = v4::checked(packet, Joined::No)?;
    let meta = fields.meta;
    let whole = packet.get(..meta.total_len).ok_or(IpError::Truncated)?;
    let (head, payload) = whole.split_at(meta.header_len);
    let fragment = Fragment {
        key: Key {
            src: meta.src,
            dst: meta.dst,
            protocol: meta.protocol,
            identification: u32::from(fields.identification),
        },
        offset: fields.offset(),
        more: fields.more(),
        ecn: meta.ecn,
        head,
        payload,
    };
    let too_short = fragment.offset == 0
        && meta.protocol == tcp::PROTOCOL
        && payload.len() < tcp::header::MIN_LEN;
    let end = fragment.offset + payload.len();
    let uneven = fragment.more && payload.len() % 8 != 0;
    if !fields.is_fragment() || too_short || uneven || end + head.len() > usize::from(u16::MAX) {
        return Err(IpError::Length);
    }
    Ok(fragment)
}

fn read_v6(packet: &[u8]) -> Result<Fragment<'_>, IpError> {
    let piece = v6::piece(packet)?;
    let whole = packet
        .get(..piece.meta.total_len)
        .ok_or(IpError::Truncated)?;
    let (head, payload) = whole.split_at(piece.head);
    if piece.offset == 0 && !v6::holds_all_headers(piece.protocol, payload) {
        return Err(IpError::ExtensionHeader(Some(Problem {
            code: ProblemCode::FirstFragment,
            pointer: 0,
        })));
    }
    Ok(Fragment {
        key: Key {
            src: piece.meta.src,
            dst: piece.meta.dst,
            protocol: 0,
            identification: piece.identification,
        },
        offset: piece.offset,
        more: piece.more,
        ecn: piece.meta.ecn,
        head,
        payload,
    })
}

impl Fragment<'_> {
    /// Whether its packet can be TCP, as far as a piece shows.
    #[must_use]
    pub const fn may_be_tcp(&self) -> bool {
        match self.key.src {
            IpAddr::V4(_) => self.key.protocol == tcp::PROTOCOL,
            IpAddr::V6(_) => true,
        }
    }
}

/// The packet whose first piece has the headers `head` and whose pieces are `pieces`, in order and without gaps. `None` if it is
/// longer than a packet may be.
#[must_use]
pub fn join<'a>(
    head: &[u8],
    ecn: Ecn,
    pieces: impl Iterator<Item = &'a [u8]> + Clone,
) -> Option<Vec<u8>> {
    let len: usize = pieces.clone().map(<[u8]>::len).sum();
    let mut packet = Vec::with_capacity(head.len() + len);
    packet.extend_from_slice(head);
    if head.first()? >> 4 == 4 {
        let total = u16::try_from(head.len() + len).ok()?;
        v4::make_whole(&mut packet, ecn, total).ok()?;
    } else {
        let piece = v6::headers_of_piece(head).ok()?;
        let behind = u16::try_from(head.len() - v6::HEADER_LEN - v6::FRAGMENT_LEN + len).ok()?;
        v6::make_whole(&mut packet, piece.named_at, piece.protocol, ecn, behind).ok()?;
    }
    pieces.for_each(|piece| packet.extend_from_slice(piece));
    Some(packet)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::segment::tests::{header, packet};
    use crate::tcp::header::Flags;
    use crate::tcp::layout::Fitted;
    use alloc::vec;

    /// A whole packet with 100 bytes of payload, and its pieces of `size` bytes, with these headers before the fragment header.
    fn pieces(v6: bool, more_headers: &[u8], size: usize) -> (Vec<u8>, Vec<Vec<u8>>) {
        let whole = packet(v6, header(Flags::ACK), &Fitted::EMPTY, &[7; 100]);
        let len = if v6 { 40 } else { 20 };
        let (head, body) = whole.split_at(len);
        let chunks: Vec<&[u8]> = body.chunks(size).collect();
        let cut = |(n, piece): (usize, &&[u8])| {
            let more = u16::from(n + 1 < chunks.len());
            let at = (n * size) as u16;
            if v6 {
                let mut out = head.to_vec();
                out[6] = if more_headers.is_empty() { 44 } else { 60 };
                out.extend(more_headers);
                let [high, low] = (at | more).to_be_bytes();
                out.extend([6, 0, high, low, 0, 0, 0, 9]);
                out.extend_from_slice(piece);
                let [high, low] = (out.len() as u16 - 40).to_be_bytes();
                (out[4], out[5]) = (high, low);
                out
            } else {
                let mut out = head.to_vec();
                let total = (20 + piece.len()) as u16;
                v4::make_whole(&mut out, Ecn::Ect0, total).unwrap();
                out[6..8].copy_from_slice(&((more << 13) | (at / 8)).to_be_bytes());
                v4::write_checksum(&mut out).unwrap();
                out.extend_from_slice(piece);
                out
            }
        };
        let all = chunks.iter().enumerate().map(cut).collect();
        (whole, all)
    }

    #[test]
    fn pieces_make_the_packet_that_was_cut() {
        let options = [44, 0, 1, 4, 0, 0, 0, 0];
        for (v6, more_headers) in [(false, &[][..]), (true, &[][..]), (true, &options[..])] {
            for size in [24, 56, 64, 112] {
                let (whole, cut) = pieces(v6, more_headers, size);
                let read: Vec<Fragment<'_>> = cut.iter().map(|p| read(p).unwrap()).collect();
                for (n, piece) in read.iter().enumerate() {
                    assert_eq!(ip::parse(&cut[n]), Err(IpError::Fragment));
                    assert_eq!((piece.key, piece.offset), (read[0].key, n * size));
                    assert_eq!(piece.more, n + 1 < read.len());
                    assert!(piece.may_be_tcp());
                }
                let joined = join(read[0].head, Ecn::Ce, read.iter().map(|p| p.payload));
                let joined = joined.expect("it is short");
                let (meta, body) = ip::parse(&joined).unwrap();
                let (was, body_was) = ip::parse(&whole).unwrap();
                assert_eq!((meta.src, meta.dst, meta.protocol), (was.src, was.dst, 6));
                assert_eq!((meta.ecn, body), (Ecn::Ce, body_was));
            }
        }
    }

    #[test]
    fn pieces_that_cannot_be() {
        let (_, cut) = pieces(false, &[], 24);
        let v4 = |at: usize, value: u16| {
            let mut piece = cut[0].clone();
            piece[at..at + 2].copy_from_slice(&value.to_be_bytes());
            v4::write_checksum(&mut piece[..20]).unwrap();
            read(&piece).map(|piece| piece.payload.len())
        };
        assert_eq!(v4(2, 44), Ok(24));
        assert_eq!(v4(2, 43), Err(IpError::Length), "no multiple of 8");
        assert_eq!(v4(2, 36), Err(IpError::Length), "not all of TCP's header");
        assert_eq!(v4(2, 20), Err(IpError::Length), "nothing");
        assert_eq!(v4(2, 45), Err(IpError::Truncated));
        assert_eq!(
            v4(6, 0x1fff),
            Err(IpError::Length),
            "beyond the longest packet"
        );
        assert_eq!(v4(6, 0), Err(IpError::Length), "a whole packet");
        let (_, cut) = pieces(true, &[], 24);
        let v6 = |payload_len: u8, offset: u16| {
            let mut piece = cut[0].clone();
            piece[5] = payload_len;
            piece[42..44].copy_from_slice(&offset.to_be_bytes());
            read(&piece).map(|piece| piece.payload.len())
        };
        let problem =
            |code, pointer| Err(IpError::ExtensionHeader(Some(Problem { code, pointer })));
        assert_eq!(v6(32, 1), Ok(24));
        assert_eq!(v6(31, 1), problem(ProblemCode::Field, 4));
        assert_eq!(v6(31, 64), Ok(23));
        assert_eq!(v6(24, 1), problem(ProblemCode::FirstFragment, 0));
        assert_eq!(v6(8, 65), Err(IpError::Length));
        assert_eq!(v6(32, 0xfff9), problem(ProblemCode::Field, 42));
        assert_eq!(v6(32, 0), Err(IpError::Length), "a whole packet");
    }

    #[test]
    fn a_packet_longer_than_packets_may_be() {
        let (_, cut) = pieces(false, &[], 24);
        let piece = read(&cut[0]).unwrap();
        let long = vec![0; 65_516];
        assert!(join(piece.head, Ecn::Ce, [&long[..65_515]].into_iter()).is_some());
        assert!(join(piece.head, Ecn::Ce, [&long[..]].into_iter()).is_none());
    }
}
