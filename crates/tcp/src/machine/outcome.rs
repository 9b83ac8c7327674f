//! What one input did to the machine, as a plain value for the caller.

use core::ops::Range;

use manypath_wire::seq::Ssn;

use crate::cc::GroupView;

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

/// Payload that is next in the stream, as a part of the segment's payload. The caller copies it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InOrder {
    /// Subflow sequence number (relative to the peer's ISN) of the first byte.
    pub ssn: Ssn,
    /// The bytes, as a range of the segment's payload.
    pub range: Range<usize>,
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
    /// In-order payload of this segment.
    pub in_order: Option<InOrder>,
    /// Payload that waited for this one is ready: call [`Machine::take_ready`](super::Machine::take_ready).
    pub more_ready: bool,
    /// The segment's payload left a hole before it and was kept.
    pub out_of_order: bool,
    /// Payload bytes dropped because out-of-order payload takes all the memory that it may.
    pub refused: u32,
    /// The peer's FIN is now in order: no payload follows.
    pub fin: bool,
    /// The peer reset the connection; the state is closed.
    pub reset: bool,
    /// The peer's window grew.
    pub window_grew: bool,
    /// The segment repeated payload that had arrived before.
    pub duplicate_data: bool,
    /// Our FIN is acknowledged.
    pub fin_acked: bool,
    /// The TIME-WAIT connection may be replaced by the new one that this SYN asks for (RFC 6191): the caller drops this
    /// machine and treats the segment as one for a listener.
    pub reopen: bool,
}

impl Outcome {
    pub(crate) fn new(verdict: Verdict) -> Outcome {
        Outcome {
            verdict,
            acked: 0,
            established: false,
            in_order: None,
            more_ready: false,
            out_of_order: false,
            refused: 0,
            fin: false,
            reset: false,
            window_grew: false,
            duplicate_data: false,
            fin_acked: false,
            reopen: false,
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
    /// The retransmission timer fired: everything in flight is held to be lost.
    pub rto_fired: bool,
    /// The only segment in flight is not acknowledged, for two round trips and the longest time that the peer held an
    /// acknowledgement back lately. It may still do so: nothing is suspected yet.
    pub late: bool,
    /// Nothing was heard for two round trips although something is in flight: the time after which a tail loss probe is
    /// due (RFC 8985 section 7.2). The path is suspect.
    pub silent: bool,
    /// Consecutive timeouts, this one included.
    pub backoffs: u8,
    /// The machine gave up; it is closed.
    pub dead: Option<DeadCause>,
}
