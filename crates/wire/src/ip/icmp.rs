//! ICMP errors about our own TCP segments (RFC 792, RFC 1191, RFC 4443): which segment, and what became of it.
//!
//! Anybody can send these. The parser only says what the message claims; the subflow compares the quoted sequence
//! number with what it has in flight before it believes anything (RFC 5927).

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use super::{Ecn, IpError, IpMeta, Joined, Problem, v4, v6};
use crate::checksum::{Sum, pseudo_v6};
use crate::cursor::Reader;
use crate::ids::FourTuple;
use crate::seq::SeqNum;
use crate::tcp;

/// ICMP's protocol number under IPv4.
pub const PROTOCOL_V4: u8 = 1;
/// ICMP's protocol number under IPv6.
pub const PROTOCOL_V6: u8 = 58;

/// An error message about a TCP segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error {
    /// The subflow as we name it: the quoted segment's source is our end.
    pub tuple: FourTuple,
    /// The quoted segment's sequence number.
    pub seq: SeqNum,
    /// What is said to have happened.
    pub kind: Kind,
}

/// What happened to the quoted segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It could not be delivered; the code as the message has it (its meaning depends on the IP version).
    Unreachable {
        /// The ICMP code.
        code: u8,
    },
    /// It was larger than a link on the way takes.
    FragNeeded {
        /// The link's MTU in bytes; 0 when an old IPv4 router does not say (RFC 1191 section 3).
        mtu: u32,
    },
    /// It travelled too far.
    TtlExceeded,
}

impl Error {
    /// The host itself refuses this protocol or port, or policy does: trying again is useless before the connection
    /// exists. Everything else may pass (RFC 1122 section 4.2.3.9, RFC 5461).
    #[must_use]
    pub const fn is_hard(&self) -> bool {
        match self.kind {
            // IPv4: protocol 2 and port 3 unreachable, 9, 10 and 13 prohibited. IPv6: 1 prohibited, 4 port.
            Kind::Unreachable { code } if self.tuple.is_ipv6() => matches!(code, 1 | 4),
            Kind::Unreachable { code } => matches!(code, 2 | 3 | 9 | 10 | 13),
            Kind::FragNeeded { mtu: _ } | Kind::TtlExceeded => false,
        }
    }
}

/// Why a message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// Not ICMP of the packet's IP version.
    NotIcmp,
    /// Fewer bytes than needed.
    Truncated,
    /// The checksum does not match.
    Checksum,
    /// A message that is no error a subflow could act on.
    NotAnError,
    /// The quoted packet is not the beginning of a TCP segment.
    Quote,
}

/// Reads the ICMP message `body` behind the header `meta`.
pub fn parse(meta: &IpMeta, body: &[u8]) -> Result<Error, IcmpError> {
    let mut sum = match (meta.src, meta.dst, meta.protocol) {
        (IpAddr::V4(_), IpAddr::V4(_), PROTOCOL_V4) => Sum::ZERO,
        // The body is part of one IP packet, so its length fits.
        (IpAddr::V6(src), IpAddr::V6(dst), PROTOCOL_V6) => {
            pseudo_v6(src, dst, PROTOCOL_V6, body.len() as u32)
        }
        _ => return Err(IcmpError::NotIcmp),
    };
    sum.add_bytes(body);
    let mut reader = Reader::new(body);
    let head = Head::read(&mut reader).ok_or(IcmpError::Truncated)?;
    if !sum.is_valid() {
        return Err(IcmpError::Checksum);
    }
    let v6 = meta.protocol == PROTOCOL_V6;
    let kind = if v6 { head.kind_v6() } else { head.kind_v4() }.ok_or(IcmpError::NotAnError)?;
    let (tuple, seq) = quoted(reader.rest(), v6).ok_or(IcmpError::Quote)?;
    Ok(Error { tuple, seq, kind })
}

/// Bytes of an ICMPv6 error at most, its IP header included (RFC 4443 section 2.4 c).
const MAX_LEN_V6: usize = 1280;
/// Bytes of an ICMP error at most, its IP header included (RFC 1812 section 4.3.2.3).
const MAX_LEN_V4: usize = 576;
/// The hop limit of our errors.
const HOP_LIMIT: u8 = 64;

/// What we say about packets of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// A header of an IPv6 packet cannot be taken (RFC 4443 section 3.4).
    Problem(Problem),
    /// Pieces of the packet whose first one is quoted did not come in time (RFC 1122 section 3.3.2, RFC 8200 section 4.5).
    Incomplete,
    /// The next hop does not answer (RFC 1122 section 2.3.2.2, RFC 4443 section 3.1): said to our own stack.
    NoNeighbour,
}

/// The error about `packet` that goes back to its source. `None` where none may be sent: about what is no TCP and could be an error
/// itself (RFC 4443 section 2.4 e), and what IPv4 has no message for. The caller has looked at the addresses.
#[must_use]
pub fn complain(packet: &[u8], complaint: Complaint) -> Option<Vec<u8>> {
    let (message, code, word) = match (packet.first()? >> 4, complaint) {
        (4, Complaint::Incomplete) => (11, 1, 0),
        (6, Complaint::Incomplete) => (3, 1, 0),
        (4, Complaint::NoNeighbour) => (3, 1, 0),
        (6, Complaint::NoNeighbour) => (1, 3, 0),
        (6, Complaint::Problem(problem)) => (4, problem.code.number(), problem.pointer),
        _ => return None,
    };
    let mut body = vec![message, code, 0, 0];
    body.extend(u32::to_be_bytes(word));
    match packet.first()? >> 4 {
        4 => {
            let meta = v4::fields(packet, Joined::No).ok()?.meta;
            let quote = packet.len().min(MAX_LEN_V4 - v4::HEADER_LEN - body.len());
            body.extend_from_slice(&packet[..quote]);
            let sum = Sum::of(&body);
            let (IpAddr::V4(from), IpAddr::V4(to)) = (meta.dst, meta.src) else {
                return None;
            };
            let mut header = [0; v4::HEADER_LEN];
            let len = (header.len() + body.len()) as u16;
            v4::emit(
                &mut header,
                from,
                to,
                PROTOCOL_V4,
                HOP_LIMIT,
                Ecn::NotEct,
                len,
            );
            Some(message_of(&header, body, sum))
        }
        _ => {
            let meta = v6::fixed(packet)?;
            if v6::mentions(packet, PROTOCOL_V6) {
                return None;
            }
            let quote = packet.len().min(MAX_LEN_V6 - v6::HEADER_LEN - body.len());
            body.extend_from_slice(&packet[..quote]);
            let (IpAddr::V6(from), IpAddr::V6(to)) = (meta.dst, meta.src) else {
                return None;
            };
            let mut sum = pseudo_v6(from, to, PROTOCOL_V6, body.len() as u32);
            sum.add_bytes(&body);
            let mut header = [0; v6::HEADER_LEN];
            let len = body.len() as u16;
            v6::emit(
                &mut header,
                from,
                to,
                PROTOCOL_V6,
                HOP_LIMIT,
                Ecn::NotEct,
                len,
            );
            Some(message_of(&header, body, sum))
        }
    }
}

/// The packet with its checksum.
fn message_of(header: &[u8], mut body: Vec<u8>, sum: Sum) -> Vec<u8> {
    body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
    let mut packet = header.to_vec();
    packet.append(&mut body);
    packet
}

/// The eight bytes before the quoted packet.
struct Head {
    message: u8,
    code: u8,
    word: u32,
}

impl Head {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (message, code, _checksum) = (reader.u8()?, reader.u8()?, reader.u16()?);
        Some(Self {
            message,
            code,
            word: reader.u32()?,
        })
    }

    fn kind_v4(&self) -> Option<Kind> {
        match (self.message, self.code) {
            // The next hop's MTU is in the lower half of the otherwise unused word.
            (3, 4) => Some(Kind::FragNeeded {
                mtu: self.word & 0xffff,
            }),
            (3, code) => Some(Kind::Unreachable { code }),
            (11, 0) => Some(Kind::TtlExceeded),
            _ => None,
        }
    }

    fn kind_v6(&self) -> Option<Kind> {
        match (self.message, self.code) {
            (1, code) => Some(Kind::Unreachable { code }),
            (2, _) => Some(Kind::FragNeeded { mtu: self.word }),
            (3, 0) => Some(Kind::TtlExceeded),
            _ => None,
        }
    }
}

/// The quoted packet's subflow and sequence number. Its checksums are not looked at: routers change and cut it.
fn quoted(packet: &[u8], v6: bool) -> Option<(FourTuple, SeqNum)> {
    let meta = if v6 {
        v6::parse_quoted(packet).ok()?
    } else {
        let fields: Result<v4::Fields, IpError> = v4::fields(packet, Joined::No);
        fields
            .ok()
            .filter(|fields| !fields.is_later_fragment())?
            .meta
    };
    if meta.protocol != tcp::PROTOCOL {
        return None;
    }
    let mut reader = Reader::new(packet.get(meta.header_len..)?);
    let (src_port, dst_port, seq) = (reader.u16()?, reader.u16()?, reader.u32()?);
    Some((
        FourTuple::of(meta.src, src_port, meta.dst, dst_port),
        SeqNum::new(seq),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::{self, ProblemCode};
    use core::net::{Ipv4Addr, Ipv6Addr};

    const US: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const PEER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
    const US6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    const PEER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    /// Ports 1000 and 80, sequence number 7: the eight bytes every router quotes.
    const TCP: [u8; 8] = [0x03, 0xe8, 0, 80, 0, 0, 0, 7];

    fn quote_v4() -> Vec<u8> {
        let mut quote = vec![0; 20];
        v4::emit(
            quote.first_chunk_mut().unwrap(),
            US,
            PEER,
            6,
            1,
            Ecn::NotEct,
            1500,
        );
        quote.extend(TCP);
        quote
    }

    fn message_v4(message: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
        let mut body = vec![message, code, 0, 0];
        body.extend(word.to_be_bytes());
        body.extend(quote);
        let checksum = Sum::of(&body).finish();
        body[2..4].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = vec![0; 20];
        let len = (20 + body.len()) as u16;
        let router = Ipv4Addr::new(10, 5, 0, 1);
        v4::emit(
            packet.first_chunk_mut().unwrap(),
            router,
            US,
            PROTOCOL_V4,
            60,
            Ecn::NotEct,
            len,
        );
        packet.extend(body);
        packet
    }

    fn message_v6(message: u8, code: u8, word: u32, quote: &[u8]) -> Vec<u8> {
        let mut body = vec![message, code, 0, 0];
        body.extend(word.to_be_bytes());
        body.extend(quote);
        let mut sum = pseudo_v6(PEER6, US6, PROTOCOL_V6, body.len() as u32);
        sum.add_bytes(&body);
        body[2..4].copy_from_slice(&sum.finish().to_be_bytes());
        let mut packet = vec![0; 40];
        let len = body.len() as u16;
        v6::emit(
            packet.first_chunk_mut().unwrap(),
            PEER6,
            US6,
            PROTOCOL_V6,
            60,
            Ecn::NotEct,
            len,
        );
        packet.extend(body);
        packet
    }

    fn quote_v6() -> Vec<u8> {
        let mut quote = vec![0; 40];
        v6::emit(
            quote.first_chunk_mut().unwrap(),
            US6,
            PEER6,
            6,
            1,
            Ecn::NotEct,
            1400,
        );
        quote.extend(TCP);
        quote
    }

    fn read(packet: &[u8]) -> Result<Error, IcmpError> {
        let (meta, body) = ip::parse(packet).unwrap();
        parse(&meta, body)
    }

    #[test]
    fn the_tuple_is_ours() {
        let error = read(&message_v4(3, 4, 1400, &quote_v4())).unwrap();
        assert_eq!(
            error.tuple,
            FourTuple::of(IpAddr::V4(US), 1000, IpAddr::V4(PEER), 80)
        );
        assert_eq!(error.seq, SeqNum::new(7));
        assert_eq!(error.kind, Kind::FragNeeded { mtu: 1400 });
        assert!(!error.is_hard());
    }

    #[test]
    fn every_kind_of_version_4() {
        let kind = |message, code, word| {
            read(&message_v4(message, code, word, &quote_v4())).map(|e| e.kind)
        };
        assert_eq!(kind(3, 1, 0), Ok(Kind::Unreachable { code: 1 }));
        assert_eq!(kind(3, 4, 0xabcd_0000), Ok(Kind::FragNeeded { mtu: 0 }));
        assert_eq!(kind(11, 0, 0), Ok(Kind::TtlExceeded));
        assert_eq!(kind(11, 1, 0), Err(IcmpError::NotAnError));
        assert_eq!(kind(8, 0, 0), Err(IcmpError::NotAnError));
        assert!(read(&message_v4(3, 3, 0, &quote_v4())).unwrap().is_hard());
        assert!(!read(&message_v4(3, 1, 0, &quote_v4())).unwrap().is_hard());
    }

    #[test]
    fn every_kind_of_version_6() {
        let kind = |message, code, word| {
            read(&message_v6(message, code, word, &quote_v6())).map(|e| e.kind)
        };
        assert_eq!(kind(1, 0, 0), Ok(Kind::Unreachable { code: 0 }));
        assert_eq!(kind(2, 0, 1280), Ok(Kind::FragNeeded { mtu: 1280 }));
        assert_eq!(kind(3, 0, 0), Ok(Kind::TtlExceeded));
        assert_eq!(kind(129, 0, 0), Err(IcmpError::NotAnError));
        let error = read(&message_v6(1, 4, 0, &quote_v6())).unwrap();
        assert_eq!(
            error.tuple,
            FourTuple::of(IpAddr::V6(US6), 1000, IpAddr::V6(PEER6), 80)
        );
        assert!(error.is_hard());
    }

    #[test]
    fn damage_and_short_quotes_are_refused() {
        let mut damaged = message_v4(3, 1, 0, &quote_v4());
        damaged[50] ^= 1;
        assert_eq!(read(&damaged), Err(IcmpError::Checksum));
        assert_eq!(
            read(&message_v4(3, 1, 0, &quote_v4()[..27])),
            Err(IcmpError::Quote)
        );
        assert_eq!(read(&message_v4(3, 1, 0, &[])), Err(IcmpError::Quote));
        let mut udp = quote_v4();
        udp[9] = 17;
        assert_eq!(read(&message_v4(3, 1, 0, &udp)), Err(IcmpError::Quote));
        let mut later = quote_v4();
        later[7] = 1;
        assert_eq!(read(&message_v4(3, 1, 0, &later)), Err(IcmpError::Quote));
        assert_eq!(
            read(&message_v4(3, 1, 0, &quote_v6())),
            Err(IcmpError::Quote)
        );
    }

    #[test]
    fn tcp_is_not_icmp() {
        let packet = message_v4(3, 1, 0, &quote_v4());
        let (meta, body) = ip::parse(&packet).unwrap();
        let tcp = IpMeta {
            protocol: 6,
            ..meta
        };
        assert_eq!(parse(&tcp, body), Err(IcmpError::NotIcmp));
        assert_eq!(parse(&meta, &body[..7]), Err(IcmpError::Truncated));
    }

    #[test]
    fn complaints_quote_the_packet_and_go_back() {
        let problem = Complaint::Problem(Problem {
            code: ProblemCode::Option,
            pointer: 42,
        });
        let mut v6 = quote_v6();
        v6.resize(3000, 9);
        let packet = complain(&v6, problem).unwrap();
        let (meta, body) = ip::parse(&packet).unwrap();
        assert_eq!(packet.len(), 1280);
        assert_eq!((meta.src, meta.dst), (IpAddr::V6(PEER6), IpAddr::V6(US6)));
        assert_eq!(body[..2], [4, 2]);
        assert_eq!(body[4..8], [0, 0, 0, 42]);
        assert_eq!(body[8..], v6[..1232]);
        // As its receiver reads it: nothing that a subflow acts on, with a right checksum.
        assert_eq!(parse(&meta, body), Err(IcmpError::NotAnError));
        assert_eq!(complain(&quote_v4(), problem), None);
        assert_eq!(complain(&message_v6(1, 0, 0, &quote_v6()), problem), None);
        for (quote, kind) in [(quote_v4(), [11, 1]), (quote_v6(), [3, 1])] {
            let packet = complain(&quote, Complaint::Incomplete).unwrap();
            let (meta, body) = ip::parse(&packet).unwrap();
            assert_eq!(body[..2], kind);
            assert_eq!(parse(&meta, body), Err(IcmpError::NotAnError));
        }
    }
}
