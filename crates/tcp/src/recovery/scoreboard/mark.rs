//! Changes of judgement: what is lost, what was not, what the peer may have dropped again.

use super::{Entry, Flight, State};
use crate::time::Instant;

impl Flight {
    /// Marks as lost what `judge` condemns, among the entries in flight that were sent no later than `newest`. Returns how
    /// many numbers that were. Data sent once is in order of time, so the walk ends where that order begins and passes
    /// `newest`.
    pub fn mark_overtaken(&mut self, newest: Instant, judge: impl FnMut(&Entry) -> bool) -> u32 {
        let until = self.touched.max(self.fack);
        self.mark_while(
            |entry| entry.seq.before(until) || entry.sent_at <= newest,
            judge,
        )
    }

    /// Marks as lost what `judge` condemns among all entries in flight. Returns how many numbers that were.
    pub fn mark_any(&mut self, judge: impl FnMut(&Entry) -> bool) -> u32 {
        self.mark_while(|_| true, judge)
    }

    fn mark_while(
        &mut self,
        walk: impl Fn(&Entry) -> bool,
        mut judge: impl FnMut(&Entry) -> bool,
    ) -> u32 {
        let before = self.lost;
        for entry in self.entries.iter_mut().take_while(|entry| walk(entry)) {
            if entry.state != State::InFlight || !judge(entry) {
                continue;
            }
            entry.state = State::Lost;
            if self.lost == 0 || entry.seq.before(self.lost_from) {
                self.lost_from = entry.seq;
            }
            self.pipe -= entry.len;
            self.lost += entry.len;
            self.touched = self.touched.max(entry.end());
        }
        self.debug_check();
        self.lost - before
    }

    /// Marks the first segment, `max` numbers at most, as lost if it is in flight: what a peer without SACK leaves to infer
    /// (RFC 6582 section 3.2). Returns how many numbers that were.
    pub fn mark_head(&mut self, max: u32) -> u32 {
        match self.entries.front() {
            Some(head) if head.state == State::InFlight => {
                if head.len > max {
                    self.split(0, self.una + max);
                }
                let una = self.una;
                self.mark_while(|entry| entry.seq == una, |_| true)
            }
            _ => 0,
        }
    }

    /// What was marked lost was not: it is in flight again (RFC 4015).
    pub fn unmark_lost(&mut self) {
        for entry in &mut self.entries {
            if entry.state == State::Lost {
                entry.state = State::InFlight;
                self.pipe += entry.len;
                self.lost -= entry.len;
            }
        }
        self.debug_check();
    }

    /// The peer may have dropped what it had reported (RFC 2018 section 8): nothing counts as held any more.
    pub fn forget_sacks(&mut self) {
        for entry in &mut self.entries {
            if entry.state == State::Sacked {
                entry.state = State::InFlight;
                self.pipe += entry.len;
                self.sacked -= entry.len;
            }
        }
        self.sacked_runs = 0;
        self.debug_check();
    }
}
