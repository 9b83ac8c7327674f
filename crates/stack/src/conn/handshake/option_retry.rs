//! Handshakes where middleboxes drop packets because of our options (RFC 8684 sections 3.1 and 3.9.3).
//!
//! Owns the decision to resend something without them, while the peer has not yet proved that it receives us. Each time the version with
//! options goes first and has a chance to be answered, so that a packet lost by chance costs no Multipath TCP. Must never touch a
//! connection on which options were seen to pass.

use manypath_tcp::time::Duration;
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;

use crate::api::Role;
use crate::conn::handshake::Handshake;
use crate::conn::handshake::mp_capable::{capable_of, usable};
use crate::conn::level::Level;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Time that the repeated version with options has to be answered. A SYN with the offer goes at each time-out, a SYN without so long after
/// each but the first: at 0, 1, 3, 7 s and 1.3, 3.3, 7.3 s, so the pauses double among those with the offer and among those without
/// (RFC 6298 section 5.5), and in all there are fewer than two for each of the [`syn_retries`] time-outs. Where a path loses one packet of
/// twenty each way, two offers are lost by chance in one of a hundred handshakes, which are TCP then. // rfc8684:C32
///
/// [`syn_retries`]: manypath_tcp::machine::Timeouts::syn_retries
const PATIENCE: Duration = Duration::from_millis(300);

impl Subflows {
    /// The RTO expired: the offer is repeated by itself. // rfc8684:C32,H5
    pub(crate) fn on_handshake_timeout(&mut self, i: SubflowIdx, cx: &Cx<'_>) {
        let sf = &mut self[i];
        if sf.handshake.state == HandshakeState::CapableSyn {
            (sf.handshake.plain, sf.handshake.option_retry_at) = (false, Some(cx.now + PATIENCE));
        }
    }
}

impl Handshake {
    /// A segment of a handshake came again: our answer to it was lost, or dropped for its options.
    pub(crate) fn on_handshake_repeated(
        &mut self,
        subflows: &mut Subflows,
        level: Level,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &Cx<'_>,
    ) {
        let (syn, ack) = (seg.header.flags.syn(), seg.header.flags.ack());
        let told_nothing = self.has_not_answered_initiator(subflows, level);
        let sf = &mut subflows[i];
        match &mut sf.handshake.state {
            // A SYN without a usable option is answered without; the third packet shows what was understood. // rfc8684:H5
            HandshakeState::CapableSynAck if syn && !ack => {
                sf.handshake.plain = capable_of(seg).is_none_or(|capable| usable(capable).is_err());
            }
            HandshakeState::CapableAck if syn && ack => {
                sf.handshake
                    .option_retry_at
                    .get_or_insert(cx.now + PATIENCE);
            }
            // Our third ACK was lost, and is sent again now.
            HandshakeState::JoinAck { sent_at, .. } if syn && ack => *sent_at = None,
            // Before it receives anything of ours, a higher SEQ shows data that we lack.
            _ if !syn && told_nothing && seg.payload.is_empty() => {
                sf.unmapped.behind |= seg.header.seq.after(sf.tcp.rcv_nxt());
            }
            _ => {}
        }
    }

    /// We are the responder and have sent no DSS on the only subflow, nor did any data come.
    pub(crate) fn has_not_answered_initiator(&self, subflows: &Subflows, level: Level) -> bool {
        let nothing_came = |sf: &Subflow| sf.tcp.rcv_nxt_ssn() == Ssn::new(1);
        self.role == Role::Responder
            && level.is_multipath()
            && !self.dss_sent
            && subflows.len() == 1
            && subflows.iter().all(nothing_came)
    }

    /// The initiator has sent its keys and nothing else for a while. Whether it is idle or its data is dropped on the way shows in its
    /// sequence number, which a probe with an old sequence number makes it send.
    pub(crate) fn probe_initiator(&mut self, subflows: &mut Subflows, level: Level, cx: &Cx<'_>) {
        if self.has_not_answered_initiator(subflows, level) {
            let sf = &mut subflows[SubflowIdx::FIRST];
            sf.tcp.probe_liveness(cx.now);
            sf.handshake.option_retry_at = Some(cx.now + sf.tcp.rto() + PATIENCE);
        }
    }

    /// The repetition with options was not answered either.
    pub(crate) fn option_retry_due(&self, subflows: &mut Subflows, level: Level, cx: &Cx<'_>) {
        let told_nothing = self.has_not_answered_initiator(subflows, level);
        for sf in subflows {
            if sf.handshake.option_retry_at.is_none_or(|at| at > cx.now) {
                continue;
            }
            sf.handshake.option_retry_at = None;
            match sf.handshake.state {
                HandshakeState::CapableSyn => {
                    sf.handshake.plain = true;
                    sf.tcp.repeat_syn();
                }
                HandshakeState::CapableAck => {
                    sf.handshake.plain = true;
                    sf.tcp.force_ack();
                }
                HandshakeState::CapableKeys | HandshakeState::Done
                    if told_nothing && sf.unmapped.behind =>
                {
                    // Its data was resent meanwhile, and did not arrive either. An answer without options makes a peer that waits for the
                    // first one fall back. // rfc8684:B1,H5
                    sf.handshake.plain = true;
                    sf.tcp.force_ack();
                }
                _ => {}
            }
        }
    }
}
