//! What a receiver knows of a subflow without data in flight, and when it sends keepalive probes on it.
//!
//! Pure: the connection supplies the time, the reason and the RTO, and acts on the step that is returned.

use manypath_tcp::time::{Duration, Instant};

/// Consecutive unanswered probes that make a subflow unresponsive.
const UNANSWERED: u8 = 2;

/// Answered probes after the last payload: a sender that prefers other paths is not probed for ever.
const ANSWERED: u8 = 6;

/// The same where no subflow delivers and the only reason to probe is a free pair of addresses: the cost of an idle connection
/// after each payload.
const ANSWERED_ALONE: u8 = 2;

/// The same on the only subflow: if its NAT binding expires the peer cannot reach the reader otherwise. At a time-out of 200 ms that
/// is after 0.4, 3.2, 26 and 205 s without a segment.
const ANSWERED_LONE: u8 = 4;

/// Shift by which each pause exceeds the last one then (8 times): few probes are to cover the pauses of a slow writer.
const LONGER: u8 = 3;

/// How long an unresponsive subflow is probed: as long as a sender retransmits data (R2 of RFC 9293 section 3.8.3, at least 100 s; Linux
/// gives up after 924 s, `tcp_retries2`).
pub(in crate::conn) const PATIENCE: Duration = Duration::from_secs(900);

/// Probe state of a subflow on which payload used to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverProbe {
    /// When a segment of the peer last arrived on it.
    pub(in crate::conn) last_received: Instant,
    /// When it is checked next; `None` until payload arrives.
    pub(in crate::conn) look_at: Option<Instant>,
    /// When it was last probed.
    pub(in crate::conn) probed_at: Instant,
    /// Probes since the last segment arrived.
    pub(in crate::conn) unanswered: u8,
    /// Answered probes since the last payload.
    pub(in crate::conn) answered: u8,
    /// Other subflows depend on the result, so it is probed whatever they deliver.
    pub(in crate::conn) probe_wanted: bool,
    /// The peer refused a join with an unknown token, and nothing arrived here since.
    pub(in crate::conn) token_unknown: bool,
    /// Its probes went unanswered, and another subflow is to replace it.
    pub(crate) unresponsive: bool,
}

/// Why a subflow is probed on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Reason {
    /// Other subflows delivered payload, last at this time.
    Elsewhere(Instant),
    /// A last-resort path is used only when this one fails.
    LastResort,
    /// A pair of addresses is free, and no subflow delivers.
    FreePair,
    /// It is the only subflow, and payload arrived on it.
    Lone,
}

/// What to do about a subflow on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conn) enum Step {
    /// Check again at this time.
    Wait(Instant),
    /// Send a probe, and check again after a time-out.
    Ask,
    /// Mark it as unresponsive.
    GiveUp,
    /// It was unresponsive for so long that it ends.
    End,
    /// There is no reason to check again.
    Rest,
}

impl ReceiverProbe {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            last_received: now,
            look_at: None,
            probed_at: now,
            unanswered: 0,
            answered: 0,
            probe_wanted: false,
            token_unknown: false,
            unresponsive: false,
        }
    }

    /// Marks it as unresponsive: its probes back off from now on.
    pub(in crate::conn) fn becomes_unresponsive(&mut self, now: Instant) {
        (self.unresponsive, self.probe_wanted, self.look_at) = (true, false, Some(now));
    }

    /// Requests a probe at once, unless one was requested already.
    pub(in crate::conn) fn probe_now(&mut self, now: Instant) {
        if !self.probe_wanted {
            (self.probe_wanted, self.look_at) = (true, Some(now));
        }
    }

    /// A probe was sent at this time or later.
    pub(in crate::conn) fn was_sent_since(&self, began: Instant) -> bool {
        self.unanswered > 0 && self.probed_at >= began
    }

    /// When a segment of the peer last arrived on the subflow.
    pub(crate) fn last_received(&self) -> Instant {
        self.last_received
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// A segment arrived. True if the subflow was unresponsive.
    pub(in crate::conn) fn on_received(&mut self, now: Instant) -> bool {
        self.last_received = now;
        self.answered = self.answered.saturating_add(u8::from(self.unanswered > 0));
        (self.unanswered, self.probe_wanted, self.token_unknown) = (0, false, false);
        core::mem::take(&mut self.unresponsive)
    }

    /// What to do at `now`. `rto` is the subflow's time-out. Pure.
    ///
    /// A probe is sent after two time-outs without a segment while others deliver, at growing intervals while it is answered, or at
    /// once when one is requested; the subflow is given up one time-out after the last unanswered probe.
    pub(in crate::conn) fn step(&self, now: Instant, why: Reason, rto: Duration) -> Step {
        if self.unresponsive {
            return self.step_unresponsive(now, rto);
        }
        let some_time = match why {
            Reason::Elsewhere(at) => at > self.last_received && self.answered < ANSWERED,
            Reason::LastResort => self.answered < ANSWERED,
            Reason::FreePair => self.answered < ANSWERED_ALONE,
            Reason::Lone => self.answered < ANSWERED_LONE,
        };
        if !(self.probe_wanted || some_time) {
            return Step::Rest;
        }
        let longer = match why {
            Reason::FreePair | Reason::Lone => LONGER,
            Reason::Elsewhere(_) | Reason::LastResort => 1,
        };
        let due = if self.unanswered > 0 {
            self.probed_at + rto
        } else if self.probe_wanted {
            now
        } else {
            self.last_received + rto.times(2 << (self.answered.min(ANSWERED) * longer))
        };
        if now < due {
            Step::Wait(due)
        } else if self.unanswered < UNANSWERED {
            Step::Ask
        } else {
            Step::GiveUp
        }
    }

    /// What to do about an unresponsive subflow: its path may be dead for a while only, and a join need not take the same path.
    /// The time since the last segment doubles from probe to probe. Pure.
    pub(in crate::conn) fn step_unresponsive(&self, now: Instant, rto: Duration) -> Step {
        let asked_after = self.probed_at.since(self.last_received);
        let (due, then) = if asked_after >= PATIENCE {
            (self.probed_at + rto, Step::End)
        } else {
            let next = asked_after.max(rto).times(2).min(PATIENCE);
            (self.last_received + next, Step::Ask)
        };
        if self.probe_wanted {
            Step::Ask
        } else if now < due {
            Step::Wait(due)
        } else {
            then
        }
    }
}

/// How a subflow probes its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathProbe {
    /// It does not.
    None,
    /// By retransmissions of what was lost.
    Stale,
    /// By the SYN of a join that replaces an earlier subflow.
    Rejoin,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    const RTO: Duration = Duration::from_millis(200);

    #[test]
    fn probes_start_after_two_time_outs_and_two_unanswered_ones_make_a_subflow_unresponsive() {
        let mut receiver_probe = ReceiverProbe::new(at(1_000));
        let elsewhere = Reason::Elsewhere(at(9_000));
        assert_eq!(
            receiver_probe.step(at(1_300), Reason::Elsewhere(at(900)), RTO),
            Step::Rest,
            "nobody delivers"
        );
        assert_eq!(
            receiver_probe.step(at(1_300), elsewhere, RTO),
            Step::Wait(at(1_400))
        );
        assert_eq!(receiver_probe.step(at(1_400), elsewhere, RTO), Step::Ask);
        (receiver_probe.unanswered, receiver_probe.probed_at) = (1, at(1_400));
        assert_eq!(
            receiver_probe.step(at(1_599), elsewhere, RTO),
            Step::Wait(at(1_600))
        );
        assert_eq!(receiver_probe.step(at(1_600), elsewhere, RTO), Step::Ask);
        (receiver_probe.unanswered, receiver_probe.probed_at) = (2, at(1_600));
        assert_eq!(receiver_probe.step(at(1_800), elsewhere, RTO), Step::GiveUp);
        receiver_probe.becomes_unresponsive(at(1_800));
        assert!(receiver_probe.on_received(at(3_000)) && !receiver_probe.on_received(at(3_001)));
    }

    #[test]
    fn an_unresponsive_subflow_is_probed_with_backoff_and_ends_after_900_s() {
        let mut receiver_probe = ReceiverProbe::new(at(0));
        (receiver_probe.unanswered, receiver_probe.probed_at) = (2, at(600));
        receiver_probe.becomes_unresponsive(at(800));
        let (mut now, mut asked) = (at(800), alloc::vec::Vec::new());
        loop {
            match receiver_probe.step(now, Reason::Lone, RTO) {
                Step::Wait(until) => now = until,
                Step::Ask => {
                    asked.push(now.since(at(0)).as_millis() / 100);
                    receiver_probe.probed_at = now;
                }
                Step::End => break,
                step => panic!("{step:?}"),
            }
        }
        assert_eq!(
            asked,
            [12, 24, 48, 96, 192, 384, 768, 1_536, 3_072, 6_144, 9_000]
        );
        assert_eq!(now, at(900_200));
        // A join was refused: it is probed at once, and then when its time comes.
        (receiver_probe.probed_at, receiver_probe.look_at) = (at(4_800), Some(at(9_600)));
        receiver_probe.probe_now(at(5_000));
        assert_eq!(receiver_probe.deadline(), Some(at(5_000)));
        assert_eq!(receiver_probe.step(at(5_000), Reason::Lone, RTO), Step::Ask);
    }

    #[test]
    fn a_requested_probe_is_sent_at_once_although_no_subflow_delivers() {
        let (mut receiver_probe, elsewhere) =
            (ReceiverProbe::new(at(1_000)), Reason::Elsewhere(at(900)));
        receiver_probe.answered = ANSWERED;
        receiver_probe.probe_now(at(1_100));
        assert_eq!(receiver_probe.deadline(), Some(at(1_100)));
        assert_eq!(receiver_probe.step(at(1_100), elsewhere, RTO), Step::Ask);
        (
            receiver_probe.unanswered,
            receiver_probe.probed_at,
            receiver_probe.look_at,
        ) = (1, at(1_100), Some(at(1_300)));
        receiver_probe.probe_now(at(1_200));
        assert_eq!(
            receiver_probe.deadline(),
            Some(at(1_300)),
            "it is being asked"
        );
        assert_eq!(receiver_probe.step(at(1_300), elsewhere, RTO), Step::Ask);
        assert!(!receiver_probe.on_received(at(1_350)));
        assert_eq!(receiver_probe.step(at(1_500), elsewhere, RTO), Step::Rest);
    }

    #[test]
    fn an_answering_subflow_is_probed_with_backoff_a_limited_number_of_times() {
        let pauses_for = |why| {
            let mut receiver_probe = ReceiverProbe::new(at(0));
            let (mut now, mut pauses) = (at(0), alloc::vec::Vec::new());
            loop {
                match receiver_probe.step(now, why, RTO) {
                    Step::Wait(until) => {
                        pauses.push(until.since(now).as_millis());
                        now = until;
                    }
                    Step::Ask => {
                        (receiver_probe.unanswered, receiver_probe.probed_at) = (1, now);
                        assert!(!receiver_probe.on_received(now));
                    }
                    Step::Rest => return pauses,
                    Step::GiveUp | Step::End => panic!("it answered"),
                }
            }
        };
        let elsewhere = Reason::Elsewhere(at(1_000_000));
        let often = [400, 800, 1_600, 3_200, 6_400, 12_800];
        assert_eq!(pauses_for(elsewhere), often);
        assert_eq!(pauses_for(Reason::LastResort), often);
        assert_eq!(pauses_for(Reason::FreePair), [400, 3_200]);
        assert_eq!(pauses_for(Reason::Lone), [400, 3_200, 25_600, 204_800]);
    }
}
