//! Where the payload of a segment comes from, and what became of the segment.

use crate::api::IfaceId;
use crate::conn::dss::mapping::TxMapping;
use crate::conn::dss::offset::Offset;

/// Result of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A packet was written.
    Sent,
    /// A packet is due but the device has no room.
    Blocked(IfaceId),
    /// Nothing is due.
    Nothing,
}

/// Where the payload of a plan comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Source {
    /// New data, from this position.
    New(Offset),
    /// Reinjected: sent on another subflow before.
    Reinjected(Offset),
    /// In flight on another subflow, and duplicated here.
    Duplicated(Offset),
    /// Retransmitted: mapped on this subflow before.
    Mapped(TxMapping),
    /// The first bytes of the stream, on our SYN: none of them counts before the answer. // rfc8684:O4
    Early,
    /// The final byte, under its own number, at this position: see `final_byte`.
    FinalByte(Offset),
    /// No payload.
    Empty,
}
