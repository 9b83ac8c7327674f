//! Getting through where boxes drop packets because of our options.
//!
//! Owns the decision to say something once more without them, while the peer has not proved yet that it hears us. Each
//! time the version with options goes first and has a chance to be answered, so that a packet lost by chance costs no
//! Multipath TCP. Must never touch a connection on which options were seen to pass.

use manypath_tcp::time::Duration;
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;

use crate::api::Role;
use crate::conn::handshake::mp_capable::capable_of;
use crate::conn::subflow::{HandshakeState, Subflow};
use crate::conn::{Conn, Cx};

/// Time that the repeated version with options has to be answered. A SYN with the offer goes at each timeout, a SYN without so long after
/// each but the first: at 0, 1, 3, 7 s and 1.3, 3.3, 7.3 s, so the pauses double among those with the offer and among those without
/// (RFC 6298 section 5.5), and in all there are fewer than two for each of the [`syn_retries`] timeouts. Where a path loses one packet of
/// twenty each way, two offers are lost by chance in one of a hundred handshakes, which are TCP then. // rfc8684:C32
///
/// [`syn_retries`]: manypath_tcp::machine::Config::syn_retries
const PATIENCE: Duration = Duration::from_millis(300);

impl Conn {
    /// A segment of a handshake came again: our answer to it was lost, or dropped for its options.
    pub(crate) fn on_handshake_repeated(&mut self, i: usize, seg: &Segment<'_>, cx: &Cx<'_>) {
        let (syn, ack) = (seg.header.flags.syn(), seg.header.flags.ack());
        let told_nothing = self.sent_caller_nothing();
        let sf = &mut self.subflows[i];
        match &mut sf.handshake {
            // Who asks without gets an answer without; the third packet tells what it understood. // rfc8684:H5
            HandshakeState::CapableSynAck if syn && !ack => sf.plain = capable_of(seg).is_none(),
            HandshakeState::CapableAck if syn && ack => {
                sf.option_retry_at.get_or_insert(cx.now + PATIENCE);
            }
            // Our proof was lost, and is sent again now.
            HandshakeState::JoinAck { sent_at, .. } if syn && ack => *sent_at = None,
            // Before it has heard of us, the peer stands behind what it sent and we lack.
            _ if !syn && told_nothing && seg.payload.is_empty() => {
                sf.behind |= seg.header.seq.after(sf.tcp.rcv_nxt());
            }
            _ => {}
        }
    }

    /// The peer called, and nothing of ours was ever said to it on a segment without SYN, nor did any data come.
    pub(crate) fn sent_caller_nothing(&self) -> bool {
        let nothing_came = |sf: &Subflow| sf.tcp.rcv_nxt_ssn() == Ssn::new(1);
        self.role == Role::Responder
            && self.fallback.is_multipath()
            && !self.dss_sent
            && self.subflows.len() == 1
            && self.subflows.iter().all(nothing_came)
    }

    /// A caller has sent its keys and nothing else for a while. Whether it is idle or whether its data is dropped on the way
    /// is to be seen by the number at which it stands, which a segment from before our own makes it say.
    pub(crate) fn probe_caller(&mut self, cx: &Cx<'_>) {
        if self.sent_caller_nothing() {
            let sf = &mut self.subflows[0];
            sf.tcp.probe_liveness(cx.now);
            sf.option_retry_at = Some(cx.now + sf.tcp.rto() + PATIENCE);
        }
    }

    /// A retransmission timer fired: the offer goes once more by itself. // rfc8684:C32,H5
    pub(crate) fn on_handshake_timeout(&mut self, i: usize, cx: &Cx<'_>) {
        let sf = &mut self.subflows[i];
        if sf.handshake == HandshakeState::CapableSyn {
            (sf.plain, sf.option_retry_at) = (false, Some(cx.now + PATIENCE));
        }
    }

    /// What was said again with options was not answered either.
    pub(crate) fn option_retry_due(&mut self, cx: &Cx<'_>) {
        let told_nothing = self.sent_caller_nothing();
        for sf in &mut self.subflows {
            if sf.option_retry_at.is_none_or(|at| at > cx.now) {
                continue;
            }
            sf.option_retry_at = None;
            match sf.handshake {
                HandshakeState::CapableSyn => {
                    sf.plain = true;
                    sf.tcp.repeat_syn();
                }
                HandshakeState::CapableAck => {
                    sf.plain = true;
                    sf.tcp.force_ack();
                }
                HandshakeState::CapableKeys | HandshakeState::Done if told_nothing && sf.behind => {
                    // It has sent again meanwhile, and that did not get here either. An answer without options is what a peer
                    // that waits for the first one falls to TCP by. // rfc8684:B1,H5
                    sf.plain = true;
                    sf.tcp.force_ack();
                }
                _ => {}
            }
        }
    }
}
