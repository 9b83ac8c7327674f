//! What the oracles want to know of a TCP segment.

use manypath_wire::ids::{FourTuple, Token};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{Capable, Dss, Join, MptcpOption};

/// The parts of a segment that the oracles look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The subflow as the receiver names it.
    pub tuple: FourTuple,
    /// Sequence number.
    pub seq: SeqNum,
    /// Acknowledgement number.
    pub ack: SeqNum,
    /// Flags.
    pub flags: Flags,
    /// The window field as it stands in the header.
    pub window: u16,
    /// Payload bytes.
    pub payload: u32,
    /// Window scale option.
    pub scale: Option<u8>,
    /// MP_CAPABLE.
    pub capable: Option<Capable>,
    /// The token of an MP_JOIN SYN.
    pub join_token: Option<Token>,
    /// Any form of MP_JOIN.
    pub joins: bool,
    /// DSS.
    pub dss: Option<Dss>,
    /// MP_FAIL.
    pub fails: bool,
    /// MP_FASTCLOSE.
    pub fast_closes: bool,
}

impl Summary {
    /// Of no segment.
    pub const EMPTY: Self = Self {
        tuple: FourTuple::UNSPECIFIED,
        seq: SeqNum::new(0),
        ack: SeqNum::new(0),
        flags: Flags::NONE,
        window: 0,
        payload: 0,
        scale: None,
        capable: None,
        join_token: None,
        joins: false,
        dss: None,
        fails: false,
        fast_closes: false,
    };

    /// Picks it out of a segment.
    #[must_use]
    pub fn of(segment: &Segment<'_>) -> Self {
        let mut all = Self::EMPTY;
        all.read(segment, segment.payload.len());
        all
    }

    /// Picks it out of a segment whose payload of so many bytes is somewhere else.
    #[inline]
    pub(crate) fn read(&mut self, segment: &Segment<'_>, payload: usize) {
        self.tuple = segment.tuple;
        self.seq = segment.header.seq;
        self.ack = segment.header.ack;
        self.flags = segment.header.flags;
        self.window = segment.header.window;
        self.payload = payload as u32;
        self.scale = segment.options.window_scale;
        (self.capable, self.dss, self.join_token) = (None, None, None);
        self.joins = false;
        (self.fails, self.fast_closes) = (false, false);
        // Of those that are there twice the first counts.
        for option in segment.options.mptcp.iter() {
            match option {
                MptcpOption::Capable(capable) if self.capable.is_none() => {
                    self.capable = Some(*capable);
                }
                MptcpOption::Dss(dss) if self.dss.is_none() => self.dss = Some(*dss),
                MptcpOption::Join(join) if !self.joins => {
                    self.joins = true;
                    if let Join::Syn { token, .. } = join {
                        self.join_token = Some(*token);
                    }
                }
                MptcpOption::Fail(_) => self.fails = true,
                MptcpOption::FastClose(_) => self.fast_closes = true,
                _ => {}
            }
        }
    }

    /// Sequence number after the segment: payload, SYN and FIN count.
    #[must_use]
    pub fn end(&self) -> SeqNum {
        self.payload_end() + u32::from(self.flags.syn()) + u32::from(self.flags.fin())
    }

    /// Sequence number of the first payload byte.
    #[must_use]
    pub fn payload_start(&self) -> SeqNum {
        self.seq + u32::from(self.flags.syn())
    }

    /// Sequence number after the payload.
    #[must_use]
    pub fn payload_end(&self) -> SeqNum {
        self.seq + self.payload
    }
}
