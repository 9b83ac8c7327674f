//! Fallback from Multipath TCP to TCP (RFC 8684 section 3.7): protocol levels that are only ever descended.
//!
//! Owns the level of a connection and the cause of its fallback. Must never go up. // rfc8684:B16

pub(in crate::conn) mod apply;
pub(in crate::conn) mod decide;
pub(in crate::conn) mod facts;
pub(in crate::conn) mod final_byte;
pub(in crate::conn) mod infinite;
pub(in crate::conn) mod option_loss;
pub(in crate::conn) mod resend;
pub(in crate::conn) mod unmapped;
pub(in crate::conn) mod withhold;

use manypath_wire::seq::Ssn;

use crate::conn::dss::offset::Offset;
use crate::conn::fallback::infinite::ChecksumFailure;
use crate::conn::fallback::unmapped::{RecentAcks, UnconfirmedFallback};
use crate::conn::fallback::withhold::Withheld;

/// What is under way towards a lower protocol level, or below Multipath TCP.
#[derive(Debug, Default)]
pub(crate) struct Fallback {
    /// A DSS checksum failed, and MP_FAIL is out.
    pub(in crate::conn) checksum_failure: Option<ChecksumFailure>,
    /// Mappings that were lost on the way while others passed.
    pub(in crate::conn) lost_mappings: u8,
    pub(in crate::conn) recent_acks: RecentAcks,
    /// We fell back, and the peer may not know.
    pub(in crate::conn) unconfirmed: Option<UnconfirmedFallback>,
    /// Received data whose acknowledgement is withheld.
    pub(in crate::conn) withheld: Option<Withheld>,
    pub(in crate::conn) resend: Resend,
    pub(in crate::conn) announce: Announce,
    /// The final byte was sent with an infinite mapping.
    pub(in crate::conn) final_byte_sent: bool,
    /// A peer unaware of our fallback sent a DATA_FIN.
    pub(in crate::conn) data_fin_after_fallback: bool,
}

/// Where the streams go on after a fallback. // rfc8684:B9
#[derive(Debug, Default)]
pub(crate) struct Resend {
    /// Where the infinite mapping that we have to send starts.
    pub(in crate::conn) infinite_from: Option<(Ssn, Offset)>,
    /// Data without Data ACK is resent from this SSN on.
    pub(in crate::conn) from: Option<Ssn>,
    /// The peer resends: what comes before the SSN is not the stream, and of the rest so many bytes are here.
    pub(in crate::conn) by_peer: Option<(Ssn, u64)>,
    /// We queried by MP_FAIL where bytes belong: that of the peer is the answer.
    pub(in crate::conn) query_sent: bool,
}

/// What the peer is still to be sent about our fallback.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Announce {
    /// An infinite mapping was sent, if only with retransmitted data.
    pub(in crate::conn) infinite_sent: bool,
    /// The infinite mapping is sent without data, too, until data has carried it.
    pub(in crate::conn) without_data: bool,
}
