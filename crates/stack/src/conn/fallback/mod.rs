//! Fallback from Multipath TCP to TCP (RFC 8684 section 3.7). `decide` has the rule, `facts` what it needs to know, `apply` the effects. What
//! happens is noticed in `pipeline/{input,ingest}`, `timers` and `data_timeout`, judged in the other files here, and brought to `decide`.
//!
//! Owns what is under way between two protocol levels: a failed checksum, a query, acknowledgements that are withheld. The level itself is in
//! `level`. // rfc8684:B16

pub(in crate::conn) mod apply;
pub(in crate::conn) mod decide;
pub(in crate::conn) mod facts;
pub(in crate::conn) mod final_byte;
pub(in crate::conn) mod infinite;
pub(in crate::conn) mod option_loss;
pub(in crate::conn) mod resend;
pub(in crate::conn) mod unmapped;
pub(in crate::conn) mod withhold;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::Ssn;

use crate::conn::dss::offset::Offset;
use crate::conn::fallback::decide::{Failed, MOST_FAILS, UNANSWERED_FAILS};
use crate::ids::SubflowId;

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

impl Fallback {
    /// The peer answered our MP_FAIL: it has fallen back, and we have not yet.
    pub(in crate::conn) fn mp_fail_is_answered(&self) -> bool {
        self.checksum_failure
            .is_some_and(|failure| failure.is_answered())
    }
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
    /// SSN of the mapping whose segment carried the infinite mapping: retransmitted it carries it again, until acknowledged.
    pub(in crate::conn) carried_by: Option<Ssn>,
    /// An infinite mapping was sent, if only with retransmitted data.
    pub(in crate::conn) infinite_sent: bool,
    /// The infinite mapping is sent without data, too, until data has carried it.
    pub(in crate::conn) without_data: bool,
}

/// We fell back, and the peer may not know: it gets Data ACKs for what arrived, and MP_FAIL where mappings stopped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnconfirmedFallback {
    pub(in crate::conn) at: Offset,
    pub(in crate::conn) again_at: Instant,
}

/// Bytes withheld, and how often the peer retransmitted them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Withheld {
    subflow: SubflowId,
    bytes: u32,
    repeats: u8,
    /// How often some was acknowledged after such retransmissions.
    given: usize,
    /// Our first SSN after fallback, acknowledged only by a peer that fell back.
    fell: Option<Ssn>,
}

/// A DSS checksum failure on the only subflow, unanswered by the peer. // rfc8684:B9
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChecksumFailure {
    subflow: SubflowId,
    /// Where the failed mapping starts: no byte from here on has a Data ACK.
    at: Offset,
    /// The SSN at which that mapping began, as the peer counts.
    ssn: Ssn,
    /// Subflow bytes from there on, stored and not counted yet.
    held: u64,
    /// The last of them came in order, on a segment without a mapping.
    bare: bool,
    /// SSN of the last segment with a mapping.
    mapped_at: Option<Ssn>,
    /// What mappings say that came since about what is held.
    order: HeldOrder,
    pub(in crate::conn) since: Instant,
    again_at: Instant,
    sent: u8,
    /// The peer has since sent something that was not in flight then and does not suggest that our segments are lost.
    peer_alive: bool,
    /// The peer, which once had other subflows, sent MP_FAIL. Its infinite mapping decides whether it continues or restarts.
    answered: bool,
}

impl ChecksumFailure {
    /// MP_FAIL is to be sent at once.
    pub(in crate::conn) fn new(subflow: SubflowId, failed: Failed, now: Instant) -> Self {
        Self {
            subflow,
            at: failed.at,
            ssn: failed.ssn,
            held: u64::from(failed.len),
            bare: false,
            mapped_at: None,
            order: HeldOrder::Unknown,
            since: now,
            again_at: now,
            sent: 0,
            peer_alive: false,
            answered: false,
        }
    }

    pub(in crate::conn) fn at(&self) -> Offset {
        self.at
    }

    /// Where the failed mapping begins, as the peer counts.
    pub(in crate::conn) fn begin(&self) -> (Ssn, Offset) {
        (self.ssn, self.at)
    }

    /// MP_FAIL is sent now. Those that test whether the peer responds are one RTO apart: an unresponsive one keeps a reader waiting.
    pub(in crate::conn) fn sent_again(self, now: Instant, rto: Duration) -> Self {
        let pause = rto.times(1 << self.sent.saturating_sub(UNANSWERED_FAILS - 1));
        Self {
            again_at: now + pause,
            sent: (self.sent + 1).min(MOST_FAILS),
            ..self
        }
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.again_at
    }

    pub(crate) fn subflow(&self) -> SubflowId {
        self.subflow
    }

    /// The peer fell back; its next data shows where its stream continues. It takes what we send without mappings.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered
    }

    pub(in crate::conn) fn end(&self) -> Offset {
        self.at + self.held
    }

    pub(in crate::conn) fn held_order(&self) -> HeldOrder {
        self.order
    }

    /// Notes where the peer's infinite mapping begins.
    pub(in crate::conn) fn note_infinite(&mut self, ssn: Ssn, at: Offset) {
        self.note_mapping(ssn, at);
        if self.order == HeldOrder::Unknown {
            self.order = HeldOrder::Stream;
        }
    }

    /// Notes that the peer maps this SSN to this position. Both numbers are its own, which no middlebox shifts.
    pub(in crate::conn) fn note_mapping(&mut self, ssn: Ssn, at: Offset) {
        let follows = || self.at + u64::from(ssn.since(self.ssn)) == at;
        if !ssn.before(self.ssn) && !follows() {
            self.order = HeldOrder::Other;
        }
    }

    /// Adds held bytes, which began at SSN `began` if they came in order.
    pub(in crate::conn) fn with(self, bytes: u64, began: Option<Ssn>) -> Self {
        let bare = began.is_some_and(|_| began != self.mapped_at);
        Self {
            held: self.held + bytes,
            bare,
            ..self
        }
    }

    /// Whether an infinite mapping with SSN `said` on a segment with SSN `here` begins with that segment. Not known where the pieces
    /// before it came without a mapping and may belong to it. Pure.
    pub(in crate::conn) fn begins_here(&self, said: Ssn, here: Ssn) -> bool {
        !self.bare || said == here
    }

    /// More came. If the peer has answered, its infinite mapping may take until then.
    pub(in crate::conn) fn awaits_more(self, until: Instant) -> Self {
        match self.answered {
            true => Self {
                again_at: until,
                ..self
            },
            false => self,
        }
    }
}

/// Whether what is held of a subflow since a checksum failed is the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum HeldOrder {
    Unknown,
    /// An infinite mapping came without data, and continues the failed mapping.
    Stream,
    /// A mapping came that does not continue the failed one: the peer sent other data here as well.
    Other,
}

/// Data ACKs remembered.
const RECENT: usize = 16;

/// The latest Data ACKs: a peer that misses some restarts at one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecentAcks {
    ring: [Offset; RECENT],
    next: usize,
}

impl Default for RecentAcks {
    fn default() -> Self {
        Self {
            ring: [Offset::ZERO; RECENT],
            next: 0,
        }
    }
}

impl RecentAcks {
    pub(crate) fn note(&mut self, at: Offset) {
        let last = self.ring[(self.next + RECENT - 1) % RECENT];
        if last != at {
            self.ring[self.next] = at;
            self.next = (self.next + 1) % RECENT;
        }
    }

    /// It was the last one.
    pub(crate) fn is_last(&self, at: Offset) -> bool {
        self.ring[(self.next + RECENT - 1) % RECENT] == at
    }

    pub(in crate::conn) fn iter(&self) -> impl Iterator<Item = Offset> + Clone + '_ {
        self.ring.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_acks_forget_the_oldest() {
        let mut acks = RecentAcks::default();
        for n in 0..100 {
            acks.note(Offset(n));
            acks.note(Offset(n));
        }
        assert_eq!(acks.iter().map(|at| at.0).min(), Some(84));
    }
}
