//! The connection states of RFC 9293 section 3.3.2, and every change between them. No other file assigns a state.

/// Connection state. LISTEN is the caller's: a machine exists from the first SYN on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Active open: SYN sent or about to be.
    SynSent,
    /// SYN received and SYN+ACK sent or about to be.
    SynReceived,
    /// Both directions open.
    Established,
    /// We closed first; our FIN is not acknowledged.
    FinWait1,
    /// We closed first; our FIN is acknowledged.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we did; our FIN is not acknowledged.
    LastAck,
    /// Both closed; waiting for late segments to die.
    TimeWait,
    /// Nothing left.
    Closed,
}

/// What changes a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A SYN without acknowledgement of ours arrived in SYN-SENT (simultaneous open).
    SynCrossed,
    /// Our SYN is acknowledged and the peer's known.
    Open,
    /// Our FIN left.
    FinSent,
    /// Our FIN is acknowledged.
    FinAcked,
    /// The peer's FIN is in order.
    FinReceived,
    /// TIME-WAIT is over.
    Expired,
    /// RST in either direction, or given up.
    Abort,
}

impl State {
    /// The state after `change`; a change that means nothing in a state leaves it.
    pub(crate) fn after(self, change: Change) -> State {
        use Change as C;
        use State as S;
        match (self, change) {
            (_, C::Abort) => S::Closed,
            (S::SynSent, C::SynCrossed) => S::SynReceived,
            (S::SynSent | S::SynReceived, C::Open) => S::Established,
            // RFC 9293 3.10.4: CLOSE in SYN-RECEIVED may send the FIN as from ESTABLISHED.
            (S::SynReceived | S::Established, C::FinSent) => S::FinWait1,
            (S::CloseWait, C::FinSent) => S::LastAck,
            (S::FinWait1, C::FinAcked) => S::FinWait2,
            (S::Closing, C::FinAcked) => S::TimeWait,
            (S::LastAck, C::FinAcked) => S::Closed,
            (S::SynReceived | S::Established, C::FinReceived) => S::CloseWait,
            (S::FinWait1, C::FinReceived) => S::Closing,
            (S::FinWait2, C::FinReceived) => S::TimeWait,
            (S::TimeWait, C::Expired) => S::Closed,
            (state, _) => state,
        }
    }

    /// Both SYNs are exchanged and acknowledged as far as we know.
    pub fn is_synchronized(self) -> bool {
        match self {
            State::SynSent | State::SynReceived | State::Closed => false,
            State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck
            | State::TimeWait => true,
        }
    }

    /// New payload may be sent.
    pub fn may_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// Payload of the peer may still arrive.
    pub fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }
}
