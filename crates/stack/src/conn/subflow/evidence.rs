//! What was observed on a subflow about options that do not pass (RFC 8684 section 3.7). The decisions are in `fallback`.

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::Ssn;

use crate::conn::dss::offset::Offset;
use crate::conn::subflow::acked_by::AckedBy;

/// Consecutive advancing acknowledgements without options that establish option loss.
const BARE: u8 = 3;

/// What a subflow showed about the options on its path.
#[derive(Debug, Default)]
pub(crate) struct Evidence {
    /// Payload arrived on it.
    pub(crate) payload_came: bool,
    /// Payload arrived on it with a mapping: options pass beside the peer's data. // rfc8684:B2
    pub(crate) data_came_mapped: bool,
    /// Data of ours was acknowledged on it beside an option: the peer saw our mappings. // rfc8684:B2
    pub(crate) data_was_acked: bool,
    /// Mappings received, and those received before the present segment.
    pub(crate) mappings: u64,
    pub(crate) mappings_before: u64,
    /// Which host acknowledges its data.
    pub(crate) acked_by: AckedBy,
    /// Where the first data that it carried ends in the stream.
    pub(crate) first_end: Option<Offset>,
    pub(crate) option_loss: OptionLoss,
    /// The peer's mapping edge, in the SSNs that its mappings name.
    pub(crate) mapping_edge: MappingEdge,
    /// When MP_FAIL was last sent to state that the order of this subflow is the stream's. The peer falls back when it receives it, even
    /// if a mapping has by then explained the data in question.
    pub(in crate::conn) mp_fail_sent_at: Option<Instant>,
}

/// Evidence of option loss on a subflow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OptionLoss {
    pub(in crate::conn) seen: LossSeen,
    /// Data without options answered our first data: if no other piece of its segment has one, none passes.
    pub(in crate::conn) awaits_option: bool,
    /// Data without Data ACK was reinjected elsewhere.
    pub(in crate::conn) others_tried: bool,
    pub(in crate::conn) acks: u8,
    pub(in crate::conn) since: Option<Instant>,
}

/// Whether the peer sent without options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LossSeen {
    #[default]
    Never,
    /// It once did, and has sent some since.
    Before,
    /// Since it last sent some.
    Now,
}

impl OptionLoss {
    pub(in crate::conn) fn is_ongoing(&self) -> bool {
        self.seen == LossSeen::Now
    }

    pub(in crate::conn) fn was_seen(&self) -> bool {
        self.seen != LossSeen::Never
    }

    /// The same after an option came: only that it was seen remains.
    pub(in crate::conn) fn ended(self) -> Self {
        Self {
            seen: match self.seen {
                LossSeen::Never => LossSeen::Never,
                LossSeen::Before | LossSeen::Now => LossSeen::Before,
            },
            ..Self::default()
        }
    }

    /// Records a segment without options, or one that shows no more.
    pub(in crate::conn) fn note(&mut self) {
        self.seen = LossSeen::Now;
    }

    /// Records that the peer once sent without options.
    pub(in crate::conn) fn note_before(&mut self) {
        if self.seen == LossSeen::Never {
            self.seen = LossSeen::Before;
        }
    }

    /// Acknowledgements have come without options for so long that none will carry some.
    pub(in crate::conn) fn is_rule(&self, now: Instant, rto: Duration) -> bool {
        self.acks >= BARE && self.since.is_some_and(|since| now.since(since) >= rto)
    }
}

/// How far the peer's mappings on a subflow reach, in its own SSNs, which no middlebox changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MappingEdge {
    ends: Option<(Ssn, Offset)>,
}

impl MappingEdge {
    /// Records a mapping.
    pub(crate) fn note(&mut self, ssn: Ssn, at: Offset, len: u16) {
        let (end, upto) = (ssn + u32::from(len), at + u64::from(len));
        let (last, most) = self.ends.unwrap_or((end, upto));
        let last = if end.after(last) { end } else { last };
        self.ends = Some((last, most.max(upto)));
    }

    /// A mapping maps data again, as new bytes of the subflow.
    pub(in crate::conn) fn repeats(&self, ssn: Ssn, at: Offset, len: u16) -> bool {
        let again = |(last, most)| !ssn.before(last) && at + u64::from(len) <= most;
        self.ends.is_some_and(again)
    }

    /// SSN and position behind the last byte mapped.
    pub(crate) fn end(&self) -> Option<(Ssn, Offset)> {
        self.ends
    }

    /// Bytes from this SSN on were never mapped.
    pub(crate) fn ends_before(&self, ssn: Ssn) -> bool {
        self.ends.is_some_and(|(last, _)| !ssn.before(last))
    }
}

/// Whether a path carries segments without options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlainProbe {
    /// No probe is pending.
    #[default]
    None,
    /// A probe was sent, with a retransmission of the data; the result is evaluated then.
    Asked(Instant),
    /// Something came since. The answer to the data may follow.
    Answered(Instant),
}

impl PlainProbe {
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Asked(until) | Self::Answered(until) => Some(until),
            Self::None => None,
        }
    }

    /// A probe sent now is this one, and must not have options.
    pub(crate) fn is_asked(self) -> bool {
        self != Self::None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_the_last_mapping_was_never_mapped() {
        let mut told = MappingEdge::default();
        assert!(!told.ends_before(Ssn::new(1)), "nothing was told");
        told.note(Ssn::new(1), Offset::ZERO, 724);
        // A peer that restarts has sent nothing but this so far.
        assert!(told.ends_before(Ssn::new(725)));
        assert!(!told.ends_before(Ssn::new(724)));
        // The same data as new bytes, and then the old mapping once more.
        told.note(Ssn::new(725), Offset::ZERO, 724);
        told.note(Ssn::new(1), Offset::ZERO, 724);
        assert!(!told.ends_before(Ssn::new(725)));
        assert!(told.ends_before(Ssn::new(1449)));
    }
}
