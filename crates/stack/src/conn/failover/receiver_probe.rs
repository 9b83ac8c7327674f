//! Detection of dead paths by a receiver, by keepalive probes (RFC 9293 section 3.8.4).
//!
//! A pure receiver has no retransmission timer to detect a dead path, and cannot make the sender retry sooner. So it probes, and asks
//! the path manager for a replacement. Owns a subflow's probe state. Must never probe an answering subflow without limit.

use manypath_tcp::time::{Duration, Instant};

use crate::api::{EventKind, PathManager, SubflowEnd};
use crate::conn::subflow::Subflow;
use crate::conn::{Conn, Cx};

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
/// Time-outs from a handshake to the probe for the first Data ACK, where neither end sends data.
const UNSPOKEN: u64 = 2;
/// Shift by which each pause exceeds the last one then (8 times): few probes are to cover the pauses of a slow writer.
const LONGER: u8 = 3;
/// How long an unresponsive subflow is probed: as long as a sender retransmits data.
pub(in crate::conn) const PATIENCE: Duration = Duration::from_secs(900);

/// Probe state of a subflow on which payload used to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverProbe {
    /// When a segment of the peer last arrived on it.
    heard: Instant,
    /// Payload arrived on it.
    brought: bool,
    /// When it is checked next; `None` until payload arrives.
    look_at: Option<Instant>,
    /// When it was last probed.
    asked_at: Instant,
    /// Probes since the last segment arrived.
    unanswered: u8,
    /// Answered probes since the last payload.
    answered: u8,
    /// Other subflows depend on the result, so it is probed whatever they deliver.
    probe_wanted: bool,
    /// The peer refused a join with an unknown token, and nothing arrived here since.
    token_unknown: bool,
    /// Its probes went unanswered, and another subflow is to replace it.
    pub(crate) unresponsive: bool,
}

/// Why a subflow is probed on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
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
enum Step {
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
            heard: now,
            brought: false,
            look_at: None,
            asked_at: now,
            unanswered: 0,
            answered: 0,
            probe_wanted: false,
            token_unknown: false,
            unresponsive: false,
        }
    }

    /// Marks it as unresponsive: its probes back off from now on.
    fn becomes_unresponsive(&mut self, now: Instant) {
        (self.unresponsive, self.probe_wanted, self.look_at) = (true, false, Some(now));
    }

    /// Requests a probe at once, unless one was requested already.
    pub(in crate::conn) fn probe_now(&mut self, now: Instant) {
        if !self.probe_wanted {
            (self.probe_wanted, self.look_at) = (true, Some(now));
        }
    }

    /// When a segment of the peer last arrived on the subflow.
    pub(crate) fn last_received(&self) -> Instant {
        self.heard
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// A segment arrived. True if the subflow was unresponsive.
    fn heard(&mut self, now: Instant) -> bool {
        self.heard = now;
        self.answered = self.answered.saturating_add(u8::from(self.unanswered > 0));
        (self.unanswered, self.probe_wanted, self.token_unknown) = (0, false, false);
        core::mem::take(&mut self.unresponsive)
    }

    /// What to do at `now`. `rto` is the subflow's time-out. Pure.
    ///
    /// A probe is sent after two time-outs without a segment while others deliver, at growing intervals while it is answered, or at
    /// once when one is requested; the subflow is given up one time-out after the last unanswered probe.
    fn step(&self, now: Instant, why: Reason, rto: Duration) -> Step {
        if self.unresponsive {
            return self.step_unresponsive(now, rto);
        }
        let some_time = match why {
            Reason::Elsewhere(at) => at > self.heard && self.answered < ANSWERED,
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
            self.asked_at + rto
        } else if self.probe_wanted {
            now
        } else {
            self.heard + rto.times(2 << (self.answered.min(ANSWERED) * longer))
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
    fn step_unresponsive(&self, now: Instant, rto: Duration) -> Step {
        let asked_after = self.asked_at.since(self.heard);
        let (due, then) = if asked_after >= PATIENCE {
            (self.asked_at + rto, Step::End)
        } else {
            let next = asked_after.max(rto).times(2).min(PATIENCE);
            (self.heard + next, Step::Ask)
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

impl Conn {
    /// A replacement for an unresponsive subflow could be created.
    fn may_replace(&self) -> bool {
        self.opts.path_manager != PathManager::Passive && self.may_join()
    }

    /// A segment of the peer arrived on a subflow, perhaps with payload.
    pub(crate) fn on_received(&mut self, i: usize, payload: bool, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        let revived = sf.receiver_probe.heard(cx.now);
        if revived {
            sf.potentially_failed = false;
            self.dirty = true;
            self.refresh_sample(i);
            self.retransmit_siblings_now(i, cx);
        }
        if !payload {
            return;
        }
        self.last_payload = cx.now;
        let receiver_probe = &mut self.subflows[i].receiver_probe;
        (receiver_probe.answered, receiver_probe.brought) = (0, true);
        let due = receiver_probe.look_at.is_none() || self.probes_paused;
        if due && self.may_replace() {
            self.begin_to_watch(cx.now);
        }
    }

    /// Arms the check of subflows on which payload may arrive. The timer is lazy: what arrives meanwhile
    /// moves the moment of the next probe, not the timer.
    fn begin_to_watch(&mut self, now: Instant) {
        self.probes_paused = false;
        for sf in self.subflows.iter_mut().filter(|sf| sf.carries_data()) {
            let look_at = now + sf.tcp.rto().times(2);
            sf.receiver_probe.look_at.get_or_insert(look_at);
        }
    }

    /// The initiator's handshake is done. Joins wait for the peer's first Data ACK (RFC 8684 section 3.1), which nothing would
    /// elicit while both ends are idle: the only subflow would be lost with its NAT binding. A probe elicits it. //
    /// rfc8684:C10
    pub(crate) fn ask_for_first_ack(&mut self, i: usize, cx: &Cx<'_>) {
        if self.opts.path_manager != PathManager::Passive {
            let sf = &mut self.subflows[i];
            let at = cx.now + sf.tcp.rto().times(UNSPOKEN);
            (sf.receiver_probe.probe_wanted, sf.receiver_probe.look_at) = (true, Some(at));
        }
    }

    /// Joins are allowed from now on. Payload that arrived before did not arm the checks.
    pub(crate) fn watch_what_came_before(&mut self, now: Instant) {
        let came = self.subflows.iter().any(|sf| sf.receiver_probe.brought);
        if came && self.may_replace() {
            self.begin_to_watch(now);
        }
    }

    /// The other subflows have to do without this one: they are probed. With nothing in flight, one may have died
    /// unnoticed.
    pub(crate) fn probe_others(&mut self, i: usize, cx: &mut Cx<'_>) {
        self.probe_where(cx.now, |_, j| j != i);
    }

    fn probe_where(&mut self, now: Instant, concerned: impl Fn(&Self, usize) -> bool) {
        for j in 0..self.subflows.len() {
            if self.subflows[j].answers() && concerned(self, j) {
                self.subflows[j].receiver_probe.probe_now(now);
            }
        }
    }

    /// A RST arrived that may be forged (RFC 5961 section 3.2). If the peer sent it just before its address went, the challenge ACK
    /// is not answered, and a pure receiver would wait for ever: the subflow is probed.
    pub(crate) fn probe_after_reset(&mut self, i: usize, now: Instant) {
        if self.subflows[i].carries_data() && self.may_replace() {
            self.subflows[i].receiver_probe.probe_now(now);
        }
    }

    /// A join whose SYN left at `since` was refused for good: the peer may have closed the connection. Subflows on which nothing
    /// arrived since then are probed, and unresponsive ones at once, for the answer to the probe would be a RST. If the
    /// reason was an unknown token (`token_unknown`), even the last subflow ends if none answers.
    pub(crate) fn probe_after_refusal(
        &mut self,
        since: Instant,
        token_unknown: bool,
        now: Instant,
    ) {
        for sf in &mut self.subflows {
            let unheard = sf.receiver_probe.heard < since && sf.answers();
            if unheard || sf.receiver_probe.unresponsive {
                sf.receiver_probe.token_unknown |= token_unknown;
                sf.receiver_probe.probe_now(now);
            }
        }
    }

    fn another_was_up(&self, i: usize) -> bool {
        let others = self.subflows.iter().enumerate().filter(|(j, _)| *j != i);
        others.map(|(_, sf)| sf).any(Subflow::was_up)
    }

    /// A segment arrived on the subflow within a time-out before `since`, or after.
    pub(crate) fn received_lately(&self, j: usize, since: Instant) -> bool {
        let sf = &self.subflows[j];
        sf.receiver_probe.heard + sf.tcp.rto() >= since
    }

    /// The reason for a probe. Where a last-resort path depends on this one, it is probed although no subflow delivers.
    fn reason_to_ask(&self, i: usize, now: Instant) -> Reason {
        let nobody_delivers = self.last_payload <= self.subflows[i].receiver_probe.heard;
        match self.manager.as_ref().map(|manager| manager.ledger()) {
            Some(ledger) if ledger.has_last_resort() => Reason::LastResort,
            Some(ledger)
                if nobody_delivers && self.speaks_for_the_path(i) && ledger.has_free_pair(now) =>
            {
                Reason::FreePair
            }
            Some(_) if self.subflows.len() == 1 && self.subflows[i].receiver_probe.brought => {
                Reason::Lone
            }
            _ => Reason::Elsewhere(self.last_payload),
        }
    }

    /// All other responsive subflows have the same addresses, and this one received last: its probe serves for all of them.
    fn speaks_for_the_path(&self, i: usize) -> bool {
        let heard = |j: usize| self.subflows[j].receiver_probe.heard;
        let mut others =
            (0..self.subflows.len()).filter(|j| *j != i && self.subflows[*j].answers());
        let is_behind = |j: usize| (heard(j), i) < (heard(i), j);
        self.subflows[i].answers() && others.all(|j| self.have_same_addresses(i, j) && is_behind(j))
    }

    /// Controllers act on time-outs, which a pure receiver has not. The others between the same addresses are probed at once.
    fn reports_unresponsive(&mut self, i: usize, cx: &mut Cx<'_>) {
        self.probe_where(cx.now, |conn, j| j != i && conn.have_same_addresses(i, j));
        let sf = &self.subflows[i];
        self.push_event(EventKind::Timeout {
            subflow: sf.id(),
            tuple: sf.endpoint.tuple,
            rto: sf.tcp.rto(),
            backoffs: 0,
        });
    }

    /// Checks the subflows that are due.
    pub(crate) fn receiver_probes_due(&mut self, cx: &mut Cx<'_>) {
        for i in 0..self.subflows.len() {
            let sf = &mut self.subflows[i];
            if sf.receiver_probe.look_at.is_none_or(|at| at > cx.now) {
                continue;
            }
            sf.receiver_probe.look_at = None;
            // Data in flight shows by itself whether the path works.
            if sf.is_stale() || !sf.carries_data() || sf.tcp.has_outstanding() {
                self.probes_paused = true;
                continue;
            }
            let rto = sf.tcp.rto();
            let why = self.reason_to_ask(i, cx.now);
            let sf = &mut self.subflows[i];
            match sf.receiver_probe.step(cx.now, why, rto) {
                Step::Wait(until) => sf.receiver_probe.look_at = Some(until),
                Step::Ask => {
                    sf.receiver_probe.unanswered = sf.receiver_probe.unanswered.saturating_add(1);
                    sf.receiver_probe.asked_at = cx.now;
                    sf.receiver_probe.probe_wanted &= !sf.receiver_probe.unresponsive;
                    sf.receiver_probe.look_at = Some(cx.now + rto);
                    sf.tcp.probe_liveness(cx.now);
                    cx.count.subflow_asked += 1;
                }
                Step::GiveUp => {
                    sf.receiver_probe.becomes_unresponsive(cx.now);
                    sf.potentially_failed = true;
                    cx.count.subflow_deaf += 1;
                    self.refresh_sample(i);
                    self.wants_replacement(i, cx);
                    self.reports_unresponsive(i, cx);
                }
                // The last one stays: an idle TCP connection survives an outage of any length, too. Not if the peer reported
                // an unknown token.
                Step::End
                    if self.fallback.is_multipath()
                        && (self.subflows[i].receiver_probe.token_unknown
                            || self.another_was_up(i)) =>
                {
                    cx.count.subflow_timed_out += 1;
                    self.reset_subflow(i, SubflowEnd::TimedOut, None, cx);
                }
                Step::Rest | Step::End => self.probes_paused = true,
            }
        }
    }
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
        (receiver_probe.unanswered, receiver_probe.asked_at) = (1, at(1_400));
        assert_eq!(
            receiver_probe.step(at(1_599), elsewhere, RTO),
            Step::Wait(at(1_600))
        );
        assert_eq!(receiver_probe.step(at(1_600), elsewhere, RTO), Step::Ask);
        (receiver_probe.unanswered, receiver_probe.asked_at) = (2, at(1_600));
        assert_eq!(receiver_probe.step(at(1_800), elsewhere, RTO), Step::GiveUp);
        receiver_probe.becomes_unresponsive(at(1_800));
        assert!(receiver_probe.heard(at(3_000)) && !receiver_probe.heard(at(3_001)));
    }

    #[test]
    fn an_unresponsive_subflow_is_probed_with_backoff_and_ends_after_900_s() {
        let mut receiver_probe = ReceiverProbe::new(at(0));
        (receiver_probe.unanswered, receiver_probe.asked_at) = (2, at(600));
        receiver_probe.becomes_unresponsive(at(800));
        let (mut now, mut asked) = (at(800), alloc::vec::Vec::new());
        loop {
            match receiver_probe.step(now, Reason::Lone, RTO) {
                Step::Wait(until) => now = until,
                Step::Ask => {
                    asked.push(now.since(at(0)).as_millis() / 100);
                    receiver_probe.asked_at = now;
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
        (receiver_probe.asked_at, receiver_probe.look_at) = (at(4_800), Some(at(9_600)));
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
            receiver_probe.asked_at,
            receiver_probe.look_at,
        ) = (1, at(1_100), Some(at(1_300)));
        receiver_probe.probe_now(at(1_200));
        assert_eq!(
            receiver_probe.deadline(),
            Some(at(1_300)),
            "it is being asked"
        );
        assert_eq!(receiver_probe.step(at(1_300), elsewhere, RTO), Step::Ask);
        assert!(!receiver_probe.heard(at(1_350)));
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
                        (receiver_probe.unanswered, receiver_probe.asked_at) = (1, now);
                        assert!(!receiver_probe.heard(now));
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
