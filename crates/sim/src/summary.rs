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
    /// Picks it out of a segment.
    #[must_use]
    #[inline]
    pub fn of(segment: &Segment<'_>) -> Self {
        let mut all = Self {
            tuple: segment.tuple,
            seq: segment.header.seq,
            ack: segment.header.ack,
            flags: segment.header.flags,
            window: segment.header.window,
            payload: segment.payload.len() as u32,
            scale: segment.options.window_scale,
            capable: None,
            join_token: None,
            joins: false,
            dss: None,
            fails: false,
            fast_closes: false,
        };
        // Of those that are there twice the first counts.
        for option in segment.options.mptcp.iter() {
            match option {
                MptcpOption::Capable(capable) => all.capable = all.capable.or(Some(*capable)),
                MptcpOption::Dss(dss) => all.dss = all.dss.or(Some(*dss)),
                MptcpOption::Join(join) if !all.joins => {
                    all.joins = true;
                    if let Join::Syn { token, .. } = join {
                        all.join_token = Some(*token);
                    }
                }
                MptcpOption::Fail(_) => all.fails = true,
                MptcpOption::FastClose(_) => all.fast_closes = true,
                _ => {}
            }
        }
        all
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
