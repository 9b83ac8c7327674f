//! Options that wait for an ACK without data: ADD_ADDR, REMOVE_ADDR, MP_PRIO, MP_FAIL (RFC 8684 section 3.4).

use alloc::collections::VecDeque;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::tcp::mptcp::MptcpOption;

/// ACKs that may be sent in a row only to carry options. // rfc8684:G2
const SIGNALS_IN_A_ROW: u8 = 2;

/// The queue of a subflow's options.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pub(crate) queue: VecDeque<MptcpOption>,
    /// ACKs without data sent in a row to carry options. // rfc8684:G2
    in_a_row: u8,
    /// When that count is reset although the peer did not advance.
    again_at: Option<Instant>,
}

impl Signals {
    /// An ACK was sent only to carry an option. // rfc8684:G2
    pub(crate) fn sent_alone(&mut self, now: Instant, rto: Duration) {
        self.in_a_row = self.in_a_row.saturating_add(1);
        if self.in_a_row >= SIGNALS_IN_A_ROW {
            self.again_at = Some(now + rto);
        }
    }

    /// The peer advanced: options may have ACKs of their own again.
    pub(crate) fn on_advance(&mut self) {
        self.in_a_row = 0;
        self.again_at = None;
    }

    /// Enough time passed since the last option, and the peer did not advance: one may have an ACK of its own again. // rfc8684:G2
    pub(crate) fn on_pause(&mut self) {
        self.in_a_row = self.in_a_row.min(SIGNALS_IN_A_ROW - 1);
        self.again_at = None;
    }

    /// An option waits that may have an ACK of its own. // rfc8684:G2
    pub(crate) fn is_due(&self) -> bool {
        !self.queue.is_empty() && !self.is_held_back()
    }

    /// The next option has to wait for the peer to advance, or for a time-out. // rfc8684:G2
    pub(crate) fn is_held_back(&self) -> bool {
        self.in_a_row >= SIGNALS_IN_A_ROW
    }

    /// When the next waiting option may be sent by itself.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.again_at.filter(|_| !self.queue.is_empty())
    }

    /// Bytes of memory held beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<MptcpOption>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_wire::dsn::Dsn;
    use manypath_wire::tcp::mptcp::Fail;

    #[test]
    fn two_options_go_in_a_row_and_then_one_in_a_time_out() {
        // rfc8684:G2
        let option = MptcpOption::Fail(Fail { dsn: Dsn::new(1) });
        let (rto, mut signals) = (Duration::from_millis(200), Signals::default());
        let mut sent = alloc::vec::Vec::new();
        for ms in 0..1000 {
            let now = Instant::from_millis(ms);
            if signals.queue.is_empty() {
                signals.queue.push_back(option);
            }
            if signals.deadline().is_some_and(|at| at <= now) {
                signals.on_pause();
            }
            if signals.is_due() {
                signals.queue.pop_front();
                signals.sent_alone(now, rto);
                sent.push(ms);
            }
        }
        assert_eq!(sent, [0, 1, 201, 401, 601, 801]);
        // The peer advanced.
        signals.on_advance();
        signals.queue.push_back(option);
        assert!(signals.is_due() && !signals.is_held_back());
    }
}
