//! A received packet as a borrowed view: every field checked and named, the payload still where it arrived.

use core::net::IpAddr;

use crate::checksum::{Sum, pseudo_v4, pseudo_v6};
use crate::ids::FourTuple;
use crate::ip::{self, IpError, IpMeta};
use crate::seq::SeqNum;
use crate::tcp;
use crate::tcp::header::{Header, HeaderError};
use crate::tcp::options::{Options, OptionsError};

/// Whether the TCP checksum is checked here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Sum every byte; a wrong checksum is an error, and the payload's sum is kept.
    Full,
    /// The device or a local sender already vouches for it.
    Trusted,
}

/// Why a packet is no TCP segment for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    /// The IP header.
    Ip(IpError),
    /// Another protocol; its number.
    NotTcp(u8),
    /// The TCP header.
    Header(HeaderError),
    /// The TCP checksum does not match.
    Checksum,
    /// The option list cannot be read.
    Options(OptionsError),
}

impl From<IpError> for ParseError {
    fn from(error: IpError) -> Self {
        Self::Ip(error)
    }
}

impl From<HeaderError> for ParseError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

impl From<OptionsError> for ParseError {
    fn from(error: OptionsError) -> Self {
        Self::Options(error)
    }
}

/// One TCP segment as it arrived.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The subflow at the receiver: `local` is the packet's destination, `remote` its source.
    pub tuple: FourTuple,
    /// What the IP header says.
    pub ip: IpMeta,
    /// The fixed TCP fields.
    pub header: Header,
    /// The TCP options.
    pub options: Options,
    /// The payload.
    pub payload: &'a [u8],
    /// The payload's sum from an even offset, if it was computed ([`Verify::Full`]): the DSS checksum needs no second
    /// pass over the bytes.
    pub payload_sum: Option<Sum>,
}

impl<'a> Segment<'a> {
    /// Nothing that was ever read.
    pub const EMPTY: Self = Self {
        tuple: FourTuple::UNSPECIFIED,
        ip: IpMeta::EMPTY,
        header: Header::EMPTY,
        options: Options::EMPTY,
        payload: &[],
        payload_sum: None,
    };

    /// Reads one IP packet (no link header) that holds a whole TCP segment.
    #[inline]
    pub fn parse(packet: &'a [u8], verify: Verify) -> Result<Self, ParseError> {
        let (meta, body) = ip::parse(packet)?;
        Self::from_ip(meta, body, verify)
    }

    /// Reads the TCP segment `body` behind an IP header that is already read.
    #[inline]
    pub fn from_ip(ip: IpMeta, body: &'a [u8], verify: Verify) -> Result<Self, ParseError> {
        let mut segment = Self::EMPTY;
        segment.payload = segment.read_head(ip, body, verify)?;
        Ok(segment)
    }

    /// Reads everything but the payload into `self`, whatever is there, and gives the payload: in place, because the value
    /// is large to move.
    #[inline]
    pub fn read_head<'b>(
        &mut self,
        ip: IpMeta,
        body: &'b [u8],
        verify: Verify,
    ) -> Result<&'b [u8], ParseError> {
        if ip.protocol != tcp::PROTOCOL {
            return Err(ParseError::NotTcp(ip.protocol));
        }
        let parts = Header::parse(body)?;
        let payload_sum = match verify {
            Verify::Full => Some(verified(&ip, body, parts.payload)?),
            Verify::Trusted => None,
        };
        let header = parts.header;
        self.options.clear();
        self.options.read(parts.options, header.flags)?;
        self.tuple = FourTuple::of(ip.dst, header.dst_port, ip.src, header.src_port);
        (self.ip, self.header, self.payload_sum) = (ip, header, payload_sum);
        Ok(parts.payload)
    }

    /// Sequence numbers the segment takes: payload, SYN and FIN.
    #[must_use]
    pub const fn len(&self) -> u32 {
        // A payload is part of one IP packet, below 2^17 bytes.
        self.payload.len() as u32 + self.header.flags.syn() as u32 + self.header.flags.fin() as u32
    }

    /// The segment takes no sequence number: nothing the peer would retransmit.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number behind the segment's last one.
    #[must_use]
    pub fn end(&self) -> SeqNum {
        self.header.seq + self.len()
    }

    /// The payload's sum: the one kept by [`Verify::Full`], or computed now.
    #[must_use]
    pub fn sum(&self) -> Sum {
        self.payload_sum.unwrap_or_else(|| Sum::of(self.payload))
    }
}

/// Checks the TCP checksum and answers the payload's own sum.
fn verified(ip: &IpMeta, body: &[u8], payload: &[u8]) -> Result<Sum, ParseError> {
    // A body is part of one IP packet, below 2^17 bytes.
    let len = body.len() as u32;
    let mut sum = match (ip.src, ip.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => pseudo_v4(src, dst, tcp::PROTOCOL, len),
        (IpAddr::V6(src), IpAddr::V6(dst)) => pseudo_v6(src, dst, tcp::PROTOCOL, len),
        // One header has addresses of one version; whoever mixed them has no right checksum.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => {
            return Err(ParseError::Checksum);
        }
    };
    let payload_sum = Sum::of(payload);
    sum.add_bytes(&body[..body.len() - payload.len()]);
    // TCP headers are whole words, so the payload begins at an even offset.
    sum.append(payload_sum);
    if sum.is_valid() {
        Ok(payload_sum)
    } else {
        Err(ParseError::Checksum)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::emit::{self, Checksum, Outgoing};
    use crate::ip::Ecn;
    use crate::tcp::header::Flags;
    use crate::tcp::layout::{Fitted, Wanted, fit};
    use crate::tcp::options::tests::any_options;
    use alloc::vec;
    use alloc::vec::Vec;
    use core::net::SocketAddr;
    use proptest::prelude::*;

    pub(crate) fn tuple(v6: bool) -> FourTuple {
        let (local, remote) = if v6 {
            (
                IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]),
                IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 2]),
            )
        } else {
            (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]))
        };
        FourTuple::new(SocketAddr::new(local, 1000), SocketAddr::new(remote, 80))
    }

    pub(crate) fn header(flags: Flags) -> Header {
        Header {
            src_port: 1000,
            dst_port: 80,
            seq: SeqNum::new(100),
            ack: SeqNum::new(200),
            flags,
            window: 500,
            urgent: 0,
        }
    }

    /// A whole packet.
    pub(crate) fn packet(v6: bool, header: Header, options: &Fitted, payload: &[u8]) -> Vec<u8> {
        let tuple = tuple(v6);
        let out = Outgoing {
            tuple,
            ecn: Ecn::Ect0,
            hop_limit: 64,
            header,
            options,
        };
        let mut bytes = vec![0; emit::header_len(&tuple, options)];
        let len = emit::headers(&mut bytes, &out, payload.len()).unwrap();
        assert_eq!(len, bytes.len());
        bytes.extend(payload);
        emit::finish(&mut bytes, Sum::of(payload), Checksum::Full).unwrap();
        bytes
    }

    #[test]
    fn syn_and_fin_take_a_number_each() {
        for (flags, payload, len) in [
            (Flags::ACK, &b""[..], 0),
            (Flags::SYN, b"", 1),
            (Flags::SYN | Flags::ACK, b"abc", 4),
            (Flags::FIN | Flags::ACK, b"abc", 4),
            (Flags::FIN | Flags::SYN, b"", 2),
            (Flags::ACK, b"abc", 3),
        ] {
            let bytes = packet(false, header(flags), &Fitted::EMPTY, payload);
            let segment = Segment::parse(&bytes, Verify::Full).unwrap();
            assert_eq!((segment.len(), segment.is_empty()), (len, len == 0));
            assert_eq!(segment.end(), SeqNum::new(100 + len));
        }
    }

    #[test]
    fn every_damaged_bit_of_the_segment_is_seen() {
        for v6 in [false, true] {
            let bytes = packet(v6, header(Flags::ACK), &Fitted::EMPTY, b"abc");
            let ip_len = if v6 { 40 } else { 20 };
            for bit in ip_len * 8..bytes.len() * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Segment::parse(&damaged, Verify::Full).is_err(), "bit {bit}");
            }
            let mut damaged = bytes.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(
                Segment::parse(&damaged, Verify::Full).unwrap_err(),
                ParseError::Checksum
            );
            let trusted = Segment::parse(&damaged, Verify::Trusted).unwrap();
            assert!(trusted.payload_sum.is_none());
            assert_eq!(trusted.sum().fold(), Sum::of(b"abb").fold());
        }
    }

    #[test]
    fn padding_of_the_link_is_not_summed() {
        let mut bytes = packet(false, header(Flags::ACK), &Fitted::EMPTY, b"abc");
        bytes.extend([0xee; 3]);
        assert_eq!(
            Segment::parse(&bytes, Verify::Full).unwrap().payload,
            b"abc"
        );
    }

    #[test]
    fn errors_say_which_layer() {
        let good = packet(false, header(Flags::ACK), &Fitted::EMPTY, b"");
        let (meta, body) = ip::parse(&good).unwrap();
        let udp = IpMeta {
            protocol: 17,
            ..meta
        };
        assert_eq!(
            Segment::from_ip(udp, body, Verify::Full).unwrap_err(),
            ParseError::NotTcp(17)
        );
        assert_eq!(
            Segment::from_ip(meta, &body[..19], Verify::Full).unwrap_err(),
            ParseError::Header(HeaderError::Truncated)
        );
        assert_eq!(
            Segment::parse(&good[..10], Verify::Full).unwrap_err(),
            ParseError::Ip(IpError::Truncated)
        );
        let mixed = IpMeta {
            dst: IpAddr::from([1u16; 8]),
            ..meta
        };
        assert_eq!(
            Segment::from_ip(mixed, body, Verify::Full).unwrap_err(),
            ParseError::Checksum
        );
    }

    #[test]
    fn a_broken_option_list_is_an_error() {
        let fitted = fit(
            &Wanted {
                options: Options {
                    sack_permitted: true,
                    ..Options::EMPTY
                },
                ..Wanted::default()
            },
            40,
        );
        let mut bytes = packet(false, header(Flags::SYN), &fitted, b"");
        bytes[43] = 200;
        assert_eq!(
            Segment::parse(&bytes, Verify::Trusted).unwrap_err(),
            ParseError::Options(OptionsError::Overrun)
        );
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            v6: bool, (options, flags) in any_options(), numbers: (u32, u32), window: u16,
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let fitted = fit(&Wanted { options, ..Wanted::default() }, 40);
            let header = Header {
                seq: SeqNum::new(numbers.0), ack: SeqNum::new(numbers.1), window, ..header(flags)
            };
            let bytes = packet(v6, header, &fitted, &payload);
            let segment = Segment::parse(&bytes, Verify::Full).unwrap();
            prop_assert_eq!(segment.tuple, tuple(v6).reversed());
            prop_assert_eq!(segment.header, header);
            prop_assert_eq!(&segment.options, fitted.options());
            prop_assert_eq!(segment.payload, &payload[..]);
            prop_assert_eq!(segment.ip.total_len, bytes.len());
            prop_assert_eq!((segment.ip.ecn, segment.ip.ttl), (Ecn::Ect0, 64));
            prop_assert_eq!(segment.payload_sum.map(Sum::fold), Some(Sum::of(&payload).fold()));
            let trusted = Segment::parse(&bytes, Verify::Trusted).unwrap();
            prop_assert_eq!(trusted.payload_sum.is_none(), true);
            prop_assert_eq!(&trusted.options, fitted.options());
        }

        #[test]
        fn no_damage_panics(
            v6: bool, (options, flags) in any_options(), cut in 0usize..120,
            damage in proptest::collection::vec((0usize..120, any::<u8>()), 0..6),
        ) {
            let fitted = fit(&Wanted { options, ..Wanted::default() }, 40);
            let mut bytes = packet(v6, header(flags), &fitted, b"payload");
            for (at, value) in damage {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = value;
                }
            }
            bytes.truncate(cut);
            let _ = Segment::parse(&bytes, Verify::Full);
            let _ = Segment::parse(&bytes, Verify::Trusted);
            let _ = crate::describe::packet(&bytes);
        }
    }
}
