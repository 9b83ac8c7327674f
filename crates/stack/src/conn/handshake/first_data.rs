//! First data that nothing answers: it is dropped for its options, or the path is silent.
//!
//! There are middleboxes that drop data with options that they do not know, although the handshake passed. Then it goes on as TCP.
//! But that is for good, and a path that is silent for some seconds right at the beginning drops everything: two ends that fall
//! each by itself, with data under way, cannot go on at all (gauntlet 1454964). So who has sent its data in vain asks without
//! options, and falls when that is answered.
//!
//! Owns the question and what follows from the answer. Must never ask where data was ever acknowledged.

use manypath_tcp::time::Instant;
use manypath_wire::segment::Segment;

use crate::conn::{Conn, Cx};

/// Time-outs without any acknowledgement of first data, after which it is asked without options.
const SILENT_TIMEOUTS: u8 = 3;

/// Whether a path carries what has no options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PlainProbe {
    /// Nobody wants to know.
    #[default]
    None,
    /// It was asked, together with the data once more; what that leads to is seen then.
    Asked(Instant),
    /// Something came since. The answer to the data may be right behind.
    Answered(Instant),
}

impl PlainProbe {
    pub(crate) fn deadline(self) -> Option<Instant> {
        match self {
            Self::Asked(until) | Self::Answered(until) => Some(until),
            Self::None => None,
        }
    }

    /// A probe now is that question, and must not have options.
    pub(crate) fn is_asked(self) -> bool {
        self != Self::None
    }
}

impl Conn {
    /// First data was sent again and again and nothing of it was ever acknowledged, although the handshake went well.
    fn is_unanswered(&self, i: usize) -> bool {
        let sf = &self.subflows[i];
        let silent = sf.tcp.backoffs() >= SILENT_TIMEOUTS
            && !sf.data_was_acked
            && self.send.una() == self.tx_start
            && self.send.next() > self.tx_start;
        let known = self.remote.is_some() && sf.is_first() && sf.tcp.state().is_synchronized();
        let only = self.is_certainly_alone(i) && self.fallback.is_multipath();
        silent && known && only && self.is_straight(i)
    }

    /// A retransmission timer fired, and the data goes again: behind it goes the question. // rfc8684:B4,H5
    pub(in crate::conn) fn sends_plain_probe(&mut self, i: usize, cx: &Cx<'_>) {
        if self.is_unanswered(i) {
            let sf = &mut self.subflows[i];
            sf.plain_probe = PlainProbe::Asked(cx.now + sf.tcp.base_rto());
            sf.tcp.probe(cx.now);
        }
    }

    /// Something came on a subflow. Without payload, which comes by itself, it is the answer: the path works.
    pub(in crate::conn) fn on_plain_probe_answer(&mut self, i: usize, seg: &Segment<'_>) {
        let question = &mut self.subflows[i].plain_probe;
        if let (PlainProbe::Asked(until), true) = (*question, seg.payload.is_empty()) {
            *question = PlainProbe::Answered(until);
        }
    }

    /// The data and the question have had a time-out. If only that was answered, nothing with options gets through.
    // rfc8684:B4,H5
    pub(in crate::conn) fn plain_probes_due(&mut self, cx: &mut Cx<'_>) {
        for i in 0..self.subflows.len() {
            let question = self.subflows[i].plain_probe;
            if question.deadline().is_none_or(|until| until > cx.now) {
                continue;
            }
            self.subflows[i].plain_probe = PlainProbe::None;
            let answered = matches!(question, PlainProbe::Answered(_));
            if answered && self.is_unanswered(i) {
                self.fall_back_silently(i, cx);
                self.retransmit_now(i, cx);
            }
        }
    }
}
