//! Every way out: FIN, RST, TIME-WAIT (RFC 9293 sections 3.6, 3.10.4, 3.10.5).

use manypath_wire::segment::Segment;

use super::Machine;
use super::outcome::{Ended, Outcome};
use super::state::{Change, State};
use crate::time::Instant;

impl Machine {
    /// Applies a change of state, and what every entry into a state means.
    pub(super) fn change(&mut self, change: Change) {
        self.state = self.state.after(change);
        match self.state {
            State::Closed => {
                self.prober.stop();
                self.time_wait.stop();
                self.recv.clear();
            }
            State::TimeWait => self.prober.stop(),
            State::SynSent
            | State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => {}
        }
    }

    /// Ends the connection at once: the next [`decide`](Self::decide) yields a reset, and nothing else is sent or
    /// taken. Where the peer knows nothing of the connection, or everything is over, it is closed without a word
    /// (RFC 9293 section 3.10.5).
    pub fn abort(&mut self) {
        match self.state {
            State::SynSent | State::TimeWait | State::Closed => self.change(Change::Abort),
            State::SynReceived
            | State::Established
            | State::FinWait1
            | State::FinWait2
            | State::CloseWait
            | State::Closing
            | State::LastAck => self.reset_due = true,
        }
    }

    /// Closes without telling the peer, as when the path is gone.
    pub fn forget(&mut self) {
        self.reset_due = false;
        self.change(Change::Abort);
    }

    pub(super) fn reset_by_peer(&mut self) -> Outcome {
        self.change(Change::Abort);
        Outcome::ended(Ended::Reset)
    }

    /// RFC 9293 3.10.7.4: every FIN that arrives again starts the time anew.
    pub(super) fn restart_time_wait(&mut self, now: Instant) {
        self.time_wait.set(now + self.cfg.timeouts.time_wait);
    }

    /// A SYN in TIME-WAIT that can only be a new connection may replace this one: its sequence number, or its timestamp,
    /// is beyond everything the old one used (RFC 6191 section 2, RFC 9293 section 3.10.7.4).
    pub(super) fn on_syn_in_time_wait(&mut self, seg: &Segment<'_>) -> Option<Outcome> {
        let flags = seg.header.flags;
        if !flags.syn() || flags.ack() || flags.rst() {
            return None;
        }
        let beyond = seg.header.seq.after(self.recv.next());
        let newer = match (&self.recv.recent, seg.options.timestamps) {
            (Some(recent), Some(t)) => match t.val.wrapping_sub(recent.value()) as i32 {
                0 => beyond,
                later => later > 0,
            },
            _ => beyond,
        };
        if !newer {
            return None;
        }
        self.change(Change::Abort);
        Some(Outcome::ended(Ended::Reopen))
    }

    /// Asks for a challenge acknowledgement, if the limit allows one (RFC 5961 section 7).
    pub(super) fn challenge(&mut self, now: Instant) -> bool {
        let allowed = self.recv.ack.challenge(now);
        if allowed {
            self.counters.rejected.challenge_acks += 1;
        } else {
            self.counters.rejected.challenge_acks_limited += 1;
        }
        allowed
    }
}
