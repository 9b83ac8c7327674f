//! The handshake of one subflow: MP_CAPABLE, MP_JOIN or none (RFC 8684 sections 3.1 and 3.2).

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::Nonce;

use crate::conn::subflow::evidence::PlainProbe;

/// Progress of a subflow's MPTCP handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HandshakeState {
    /// First subflow, initiator: our SYN offers Multipath TCP.
    CapableSyn,
    /// First subflow, initiator: keys are exchanged, but the peer has not proved that it has ours. // rfc8684:C10
    CapableAck,
    /// First subflow, responder: our SYN/ACK has our key.
    CapableSynAck,
    /// First subflow, responder: keys are here, no DSS yet.
    CapableKeys,
    /// Additional subflow, initiator.
    JoinSyn { nonce: Nonce },
    /// Additional subflow, initiator: our HMAC is in flight, no answer yet. // rfc8684:J11
    JoinAck {
        proof: [u8; 20],
        /// When it was sent, if only once so far.
        sent_at: Option<Instant>,
        repeat_at: Instant,
        repeats: u8,
    },
    /// Additional subflow, responder: our SYN/ACK has our HMAC.
    JoinSynAck { local: Nonce, remote: Nonce },
    /// The handshake is complete.
    Done,
    /// No Multipath TCP on this subflow.
    Plain,
}

/// The state of a subflow's handshake.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) state: HandshakeState,
    /// Handshake packets are sent without MPTCP options: a middlebox may drop packets that have them.
    pub(crate) plain: bool,
    /// When that is tried, unless an answer arrives before.
    pub(crate) option_retry_at: Option<Instant>,
    /// Whether the path carries segments without options.
    pub(crate) plain_probe: PlainProbe,
    /// The next ACK carries MP_CAPABLE; it alternates with DATA_FIN.
    pub(crate) capable_next: bool,
    up_since: Option<Instant>,
    /// Round trip of the handshake, which a split-TCP proxy lets pass.
    pub(crate) rtt: Option<Duration>,
}

impl Handshake {
    pub(crate) fn new(state: HandshakeState) -> Self {
        Self {
            state,
            plain: false,
            option_retry_at: None,
            plain_probe: PlainProbe::None,
            capable_next: true,
            up_since: None,
            rtt: None,
        }
    }

    /// The subflow can carry data from now on.
    pub(crate) fn ends(&mut self, now: Instant, rtt: Option<Duration>) {
        (self.up_since, self.rtt) = (Some(now), rtt);
    }

    pub(crate) fn was_up(&self) -> bool {
        self.up_since.is_some()
    }

    /// ACKs may be sent only to carry options.
    pub(crate) fn passes_signals(&self) -> bool {
        matches!(
            self.state,
            HandshakeState::CapableKeys | HandshakeState::Done | HandshakeState::Plain
        )
    }
}
