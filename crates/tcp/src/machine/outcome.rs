//! What one input did to the machine, as a plain value for the caller.

use crate::cc::GroupView;
use crate::recv::Arrival;

/// What the caller knows about a segment that the subflow does not.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The paths of the connection, for coupled congestion control.
    pub group: GroupView<'a>,
    /// False when a duplicate acknowledgement was sent for its options' sake and says nothing about loss
    /// (rfc8684:G1).
    pub congestion_signal_ok: bool,
}

/// Why a segment was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Outside the receive window (RFC 9293 section 3.10.7.4).
    Sequence,
    /// Timestamp older than the newest one seen (RFC 7323 section 5).
    Paws,
    /// Acknowledges what was never sent, or what is too old (RFC 5961 section 5).
    Ack,
    /// No ACK flag in a state that demands one.
    NoAck,
    /// A SYN on a synchronized connection (RFC 5961 section 4).
    Syn,
    /// RST at a number that is not exactly the next one (RFC 5961 section 3).
    Reset,
    /// Acknowledges what the handshake never sent: the caller answers with a reset at that number (RFC 9293 sections
    /// 3.10.7.3 and 3.10.7.4), which also clears a forgotten connection of the same addresses and ports at the peer.
    Handshake,
    /// Neither SYN nor RST where the handshake waits for one.
    NoSyn,
    /// Payload beyond the peer's own FIN.
    AfterFin,
    /// Payload that no memory was granted for.
    Memory,
    /// The machine is closed.
    Closed,
}

/// The verdict on a segment as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the window, with a valid acknowledgement: its options may be acted upon (rfc8684:G3).
    Acceptable,
    /// Carries nothing new: a retransmission of delivered data. Only an acknowledgement of it is owed.
    OldDuplicate,
    /// Had no effect but perhaps a challenge ACK.
    Rejected(Reject),
}

/// How a segment ended the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer reset it; the state is closed.
    Reset,
    /// The TIME-WAIT connection may be replaced by the new one that this SYN asks for (RFC 6191): the caller drops this
    /// machine and treats the segment as one for a listener.
    Reopen,
}

/// What a segment did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the segment counts.
    pub verdict: Verdict,
    /// Payload bytes newly cumulatively acknowledged.
    pub acked: u32,
    /// This segment completed the handshake.
    pub established: bool,
    /// Our FIN is acknowledged.
    pub fin_acked: bool,
    /// The peer's window grew.
    pub window_grew: bool,
    /// What became of its payload and FIN.
    pub arrival: Arrival,
    /// It ended the connection.
    pub ended: Option<Ended>,
}

impl Outcome {
    pub(crate) fn new(verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            acked: 0,
            established: false,
            fin_acked: false,
            window_grew: false,
            arrival: Arrival::default(),
            ended: None,
        }
    }

    pub(crate) fn ended(how: Ended) -> Outcome {
        Outcome {
            ended: Some(how),
            ..Outcome::new(Verdict::Acceptable)
        }
    }

    pub(crate) fn rejected(why: Reject) -> Outcome {
        Outcome::new(Verdict::Rejected(why))
    }

    /// True when options of upper layers may be acted upon.
    pub fn acceptable(&self) -> bool {
        self.verdict == Verdict::Acceptable
    }
}

/// Why the machine gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadCause {
    /// Nothing was acknowledged for as long as the configuration allows.
    Timeout,
    /// Keepalive probes stayed unanswered.
    KeepAlive,
    /// Data stayed unacknowledged longer than the user allows.
    UserTimeout,
    /// The handshake was never answered.
    SynTimeout,
}

/// What a timer did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TimeoutOutcome {
    /// The retransmission timer fired: everything in flight is marked lost.
    pub rto_fired: bool,
    /// The only segment in flight is not acknowledged, for two round trips and the longest time that the peer held an
    /// acknowledgement back lately. It may still do so: nothing is suspected yet.
    pub late: bool,
    /// Nothing arrived for two round trips although something is in flight, the time after which a tail loss probe is due (RFC 8985 section
    /// 7.2), on short paths for 20 ms more. The path has potentially failed.
    pub silent: bool,
    /// Consecutive timeouts, this one included.
    pub backoffs: u8,
    /// The machine gave up; it is closed.
    pub dead: Option<DeadCause>,
}
