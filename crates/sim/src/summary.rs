//! What a TCP packet says, read once when it enters the wire and kept beside its bytes as long as nobody changes them.

use manypath_wire::ids::{FourTuple, Token};
use manypath_wire::segment::{ParseError, Segment, Verify};
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{Capable, Dss, Join};

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
    /// Reads a TCP packet. `Verify::Full` also checks its checksums.
    #[inline]
    pub fn read(packet: &[u8], verify: Verify) -> Result<Self, ParseError> {
        let segment = Segment::parse(packet, verify)?;
        let mptcp = &segment.options.mptcp;
        let join = mptcp.join();
        Ok(Self {
            tuple: segment.tuple,
            seq: segment.header.seq,
            ack: segment.header.ack,
            flags: segment.header.flags,
            window: segment.header.window,
            payload: segment.payload.len() as u32,
            scale: segment.options.window_scale,
            capable: mptcp.capable().copied(),
            join_token: join.and_then(|join| match join {
                Join::Syn { token, .. } => Some(*token),
                Join::SynAck { .. } | Join::Ack { .. } => None,
            }),
            joins: join.is_some(),
            dss: mptcp.dss().copied(),
            fails: mptcp.fail().is_some(),
            fast_closes: mptcp.fastclose().is_some(),
        })
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
