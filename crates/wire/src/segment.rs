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
    /// Reads one IP packet (no link header) that holds a whole TCP segment.
    pub fn parse(packet: &'a [u8], verify: Verify) -> Result<Self, ParseError> {
        let (meta, body) = ip::parse(packet)?;
        Self::from_ip(meta, body, verify)
    }

    /// Reads the TCP segment `body` behind an IP header that is already read.
    pub fn from_ip(ip: IpMeta, body: &'a [u8], verify: Verify) -> Result<Self, ParseError> {
        if ip.protocol != tcp::PROTOCOL {
            return Err(ParseError::NotTcp(ip.protocol));
        }
        let parts = Header::parse(body)?;
        let payload_sum = match verify {
            Verify::Full => Some(verified(&ip, body, parts.payload)?),
            Verify::Trusted => None,
        };
        let header = parts.header;
        Ok(Self {
            tuple: FourTuple::of(ip.dst, header.dst_port, ip.src, header.src_port),
            ip,
            header,
            options: Options::parse(parts.options, header.flags)?,
            payload: parts.payload,
            payload_sum,
        })
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
