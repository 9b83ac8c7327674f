//! What loss recovery is given, and what it answers.

use manypath_wire::seq::SeqNum;

use crate::cc::Algorithm;
use crate::recovery::rtt::Echo;
pub(crate) use crate::recovery::scoreboard::Control;
use crate::recovery::scoreboard::Retransmit as Range;
use crate::time::Duration;

/// What a sender starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    /// We offer selective acknowledgements.
    pub(crate) sack: bool,
    pub(crate) algorithm: Algorithm,
    /// In segments.
    pub(crate) initial_window: u32,
    pub(crate) min_rto: Duration,
    pub(crate) max_rto: Duration,
    pub(crate) paced: bool,
}

/// How a segment relates to what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// For the first time.
    New,
    /// Again, because it is marked lost.
    Retransmit,
    /// As a tail loss probe, first time or again.
    Probe,
    /// For the first time, as one segment larger than the path is known to carry.
    MtuProbe,
}

/// Something to send again; `len` is sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmit {
    pub(crate) seq: SeqNum,
    pub(crate) len: u32,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
}

impl From<Range> for Retransmit {
    fn from(range: Range) -> Self {
        let Range {
            seq,
            len,
            control: Control { syn, fin },
        } = range;
        Retransmit { seq, len, syn, fin }
    }
}

/// One acknowledgement. `ack` lies between SND.UNA and SND.NXT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckIn<'a> {
    pub(crate) ack: SeqNum,
    pub(crate) sack: &'a [(SeqNum, SeqNum)],
    /// With timestamps: when the segment left that provoked it.
    pub(crate) echo: Option<Echo>,
    /// It is a duplicate in the sense of RFC 5681 section 2, and may signal congestion.
    pub(crate) duplicate: bool,
    /// It echoes a congestion mark.
    pub(crate) ece: bool,
    /// The congestion window was not what limited the sender.
    pub(crate) app_limited: bool,
}

/// Why an acknowledgement reduced the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reduction {
    /// It showed losses, and fast recovery began.
    Loss,
    /// It echoed a congestion mark: the peer must be told by CWR.
    Ecn,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckEffect {
    /// Sequence space newly acknowledged.
    pub(crate) newly_acked: u32,
    /// Our SYN or FIN was among it.
    pub(crate) control: Control,
    /// It reports a duplicate arrival.
    pub(crate) dsack: bool,
    /// The last reduction of the window was undone.
    pub(crate) undone: bool,
    /// The window was reduced.
    pub(crate) reduced: Option<Reduction>,
}

/// What a timer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerEffect {
    pub(crate) rto_fired: bool,
    /// The acknowledgement of the only segment in flight takes longer than any did lately.
    pub(crate) late: bool,
    /// Nothing arrived for two round trips, the time after which a tail loss probe is due (RFC 8985 section 7.2).
    pub(crate) silent: bool,
    /// Retransmission timeouts since the peer last acknowledged something new.
    pub(crate) backoffs: u8,
}

/// What the sender does about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is marked lost, or what is lost says nothing about congestion.
    Open,
    /// Fast recovery until `until` is acknowledged.
    Recovery {
        until: SeqNum,
        prr: crate::recovery::prr::Prr,
    },
    /// Recovery after a timeout until `until` is acknowledged.
    Loss { until: SeqNum },
}
