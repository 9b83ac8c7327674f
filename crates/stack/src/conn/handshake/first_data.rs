//! First data that is never acknowledged: dropped for its options, or the path is unresponsive (RFC 8684 sections 3.7 and 3.9.3).
//!
//! Some middleboxes drop data with options that they do not know, although the handshake passed. Then the connection falls back. But that
//! is for good, and a path that is unresponsive for some seconds right at the beginning drops everything: two ends that fall back
//! independently, with data in flight, cannot continue at all. So an end whose first data goes unacknowledged sends a probe without
//! options, and falls back when that is answered.
//!
//! Owns the probe and what follows from the answer. Must never probe where data was ever acknowledged.

use manypath_wire::segment::Segment;

use crate::conn::dss::Numbers;
use crate::conn::handshake::Handshake;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::evidence::PlainProbe;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// RTOs without any acknowledgement of first data, after which a probe without options is sent.
const SILENT_TIMEOUTS: u8 = 3;

impl Subflows {
    /// A segment came. Without payload, which comes unprompted, it answers the probe: the path works.
    pub(in crate::conn) fn on_plain_probe_answer(&mut self, i: SubflowIdx, seg: &Segment<'_>) {
        let probe = &mut self[i].handshake.plain_probe;
        if let (PlainProbe::Asked(until), true) = (*probe, seg.payload.is_empty()) {
            *probe = PlainProbe::Answered(until);
        }
    }
}

impl Flight<'_> {
    /// First data was retransmitted repeatedly and never acknowledged at all, although the handshake completed.
    fn is_unanswered(&self, handshake: &Handshake, numbers: &Numbers, i: SubflowIdx) -> bool {
        let sf = &self.subflows[i];
        let silent = sf.tcp.backoffs() >= SILENT_TIMEOUTS
            && !sf.evidence.data_was_acked
            && self.send.una() == numbers.tx_start
            && self.send.next() > numbers.tx_start;
        let known =
            handshake.keys.remote.is_some() && sf.is_first() && sf.tcp.state().is_synchronized();
        let only = self.subflows.is_certainly_alone(i) && self.level.is_multipath();
        silent && known && only && self.subflows.is_contiguous(self.send, i)
    }

    /// The RTO expired, and the data is retransmitted: the probe follows it. // rfc8684:B4,H5
    pub(in crate::conn) fn sends_plain_probe(
        &mut self,
        handshake: &Handshake,
        numbers: &Numbers,
        i: SubflowIdx,
        cx: &Cx<'_>,
    ) {
        if self.is_unanswered(handshake, numbers, i) {
            let sf = &mut self.subflows[i];
            sf.handshake.plain_probe = PlainProbe::Asked(cx.now + sf.tcp.base_rto());
            sf.tcp.probe(cx.now);
        }
    }

    /// The data and the probe have had an RTO. True if only the probe was answered: nothing with options gets through.
    // rfc8684:B4,H5
    pub(in crate::conn) fn plain_probe_due(
        &mut self,
        handshake: &Handshake,
        numbers: &Numbers,
        i: SubflowIdx,
    ) -> bool {
        let probe = core::mem::take(&mut self.subflows[i].handshake.plain_probe);
        let answered = matches!(probe, PlainProbe::Answered(_));
        answered && self.is_unanswered(handshake, numbers, i)
    }
}
