//! A receiver's view of a path that falls silent.
//!
//! Who only receives has nothing in flight whose time-out would tell that a path is dead, and cannot make the sender try
//! again sooner than it wants to. But it can find out by asking, and have a new subflow made when the path answers.

use manypath_tcp::time::{Duration, Instant};

use crate::api::{EventKind, PathManager, SubflowEnd};
use crate::conn::subflow::Subflow;
use crate::conn::{Conn, Cx};

/// Questions in a row without an answer that make a path a silent one.
const UNANSWERED: u8 = 2;
/// Answered questions after the last payload: a sender that prefers other paths is not asked for ever.
const ANSWERED: u8 = 6;
/// The same where nobody delivers and the only reason to ask is that another address is free: what an idle connection costs after
/// each payload.
const ANSWERED_ALONE: u8 = 2;
/// The same on the only subflow: a NAT that forgot it leaves the peer no other way to its reader. At a timeout of 200 ms that is after
/// 0.4, 3.2, 26 and 205 s of silence.
const ANSWERED_LONE: u8 = 4;
/// Timeouts after a handshake until the peer is asked for the first Data ACK, where neither end has anything to say.
const UNSPOKEN: u64 = 2;
/// How many times longer than the last pause the next one is then: few questions are to cover the pauses of one who writes.
const LONGER: u8 = 3;
/// How long one that answers nothing is asked: as long as a sender repeats data.
pub(in crate::conn) const PATIENCE: Duration = Duration::from_secs(900);

/// What is known of a subflow on which payload used to arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReceiverProbe {
    /// When the peer was last heard on it.
    heard: Instant,
    /// Payload came on it.
    brought: bool,
    /// When it is looked at again; never, unless payload arrives.
    look_at: Option<Instant>,
    /// When it was last asked whether it works.
    asked_at: Instant,
    /// Questions since then without an answer.
    unanswered: u8,
    /// Questions answered since the last payload.
    answered: u8,
    /// The others count on it, so that it has to answer whatever they deliver.
    probe_wanted: bool,
    /// The peer answered a join that it does not know the connection, and was not heard here since.
    token_unknown: bool,
    /// It answered nothing, and another subflow is to take its place.
    pub(crate) unresponsive: bool,
}

/// Why a subflow is asked on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// Others delivered payload, at last then.
    Elsewhere(Instant),
    /// A path that is a last resort waits for this one to fail.
    LastResort,
    /// A pair of addresses is free, and nobody delivers.
    FreePair,
    /// It is the only one, and payload came on it.
    Lone,
}

/// What to do about a subflow on which nothing arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Look again then.
    Wait(Instant),
    /// Ask whether it works, and look again after a time-out.
    Ask,
    /// It does not work.
    GiveUp,
    /// It did not work for so long that it is over.
    End,
    /// Nothing speaks for looking again.
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

    /// It is held to be deaf, and asked later and later from now on.
    fn becomes_unresponsive(&mut self, now: Instant) {
        (self.unresponsive, self.probe_wanted, self.look_at) = (true, false, Some(now));
    }

    /// It is to be asked at once, unless it is being asked.
    pub(in crate::conn) fn probe_now(&mut self, now: Instant) {
        if !self.probe_wanted {
            (self.probe_wanted, self.look_at) = (true, Some(now));
        }
    }

    /// When the peer was last heard on the subflow.
    pub(crate) fn last_received(&self) -> Instant {
        self.heard
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.look_at
    }

    /// The peer was heard. True if it was held to be deaf.
    fn heard(&mut self, now: Instant) -> bool {
        self.heard = now;
        self.answered = self.answered.saturating_add(u8::from(self.unanswered > 0));
        (self.unanswered, self.probe_wanted, self.token_unknown) = (0, false, false);
        core::mem::take(&mut self.unresponsive)
    }

    /// What to do at `now`. `rto` is the subflow's time-out. Pure.
    ///
    /// It is asked when it was silent for two time-outs while others delivered, later and later while it answers, or at once when
    /// it is doubted; and given up one time-out after the last unanswered question.
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

    /// What to do about one that is deaf: its path may be dead for a while only, and that of a join is not always the same. With each
    /// question the silence doubles. Pure.
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
    /// A replacement could be made for a path that is silent.
    fn may_replace(&self) -> bool {
        self.opts.path_manager != PathManager::Passive && self.may_join()
    }

    /// The peer was heard on a subflow, perhaps with payload.
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

    /// Subflows on which payload may come are looked at later. It is a lazy clock: what is heard meanwhile
    /// moves the moment when it is looked at, not the clock.
    fn begin_to_watch(&mut self, now: Instant) {
        self.probes_paused = false;
        for sf in self.subflows.iter_mut().filter(|sf| sf.carries_data()) {
            let look_at = now + sf.tcp.rto().times(2);
            sf.receiver_probe.look_at.get_or_insert(look_at);
        }
    }

    /// We opened the connection, and its handshake is done. Joins wait for the peer's first Data ACK (RFC 8684 section 3.1), and where
    /// neither end has anything to say nothing would bring it: the only subflow would be lost with its NAT's binding. A probe does. //
    /// rfc8684:C10
    pub(crate) fn ask_for_first_ack(&mut self, i: usize, cx: &Cx<'_>) {
        if self.opts.path_manager != PathManager::Passive {
            let sf = &mut self.subflows[i];
            let at = cx.now + sf.tcp.rto().times(UNSPOKEN);
            (sf.receiver_probe.probe_wanted, sf.receiver_probe.look_at) = (true, Some(at));
        }
    }

    /// Joins are allowed from now on. Payload that came before told nobody to look.
    pub(crate) fn watch_what_came_before(&mut self, now: Instant) {
        let came = self.subflows.iter().any(|sf| sf.receiver_probe.brought);
        if came && self.may_replace() {
            self.begin_to_watch(now);
        }
    }

    /// The others shall do without this subflow: they are asked whether they work. Where nothing is in flight, one may have died
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

    /// A reset arrived that may be anybody's (RFC 5961 section 3.2). If it was the peer's last word before its address went, nobody
    /// answers the challenge, and who only reads would wait for ever: the subflow is asked whether it works.
    pub(crate) fn probe_after_reset(&mut self, i: usize, now: Instant) {
        if self.subflows[i].carries_data() && self.may_replace() {
            self.subflows[i].receiver_probe.probe_now(now);
        }
    }

    /// A join whose SYN left at `since` was refused for good: the peer may not know the connection any more. Subflows on which it
    /// was not heard since then are probed, those held to be deaf at once, for the answer to the probe would be a reset. Where the
    /// refusal said that the token is unknown (`disowned`), the last of them does not stay for ever either if none answers.
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

    /// The peer was heard on the subflow within a time-out before `since`, or after.
    pub(crate) fn received_lately(&self, j: usize, since: Instant) -> bool {
        let sf = &self.subflows[j];
        sf.receiver_probe.heard + sf.tcp.rto() >= since
    }

    /// Why the subflow would be asked. Where another path waits for this one to fail, it is asked although nobody delivers.
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

    /// Nothing else answers but between the same addresses, and there it was heard last: one question says what many would.
    fn speaks_for_the_path(&self, i: usize) -> bool {
        let heard = |j: usize| self.subflows[j].receiver_probe.heard;
        let mut others =
            (0..self.subflows.len()).filter(|j| *j != i && self.subflows[*j].answers());
        let is_behind = |j: usize| (heard(j), i) < (heard(i), j);
        self.subflows[i].answers() && others.all(|j| self.have_same_addresses(i, j) && is_behind(j))
    }

    /// Controllers judge by time-outs, and who only reads has none. The others between the same addresses are asked at once.
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

    /// Looks at subflows whose time has come.
    pub(crate) fn receiver_probes_due(&mut self, cx: &mut Cx<'_>) {
        for i in 0..self.subflows.len() {
            let sf = &mut self.subflows[i];
            if sf.receiver_probe.look_at.is_none_or(|at| at > cx.now) {
                continue;
            }
            sf.receiver_probe.look_at = None;
            // What is in flight finds out by itself whether the path works.
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
                // The last one stays: an idle TCP connection outlives an outage of any length, too. Not where the peer said that it
                // knows the connection no more.
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
    fn a_subflow_is_asked_after_two_time_outs_and_given_up_after_two_questions() {
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
    fn one_that_is_deaf_is_asked_later_and_later_and_ends_after_a_quarter_of_an_hour() {
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
        // A join was refused: it is asked at once, and then when its time comes.
        (receiver_probe.asked_at, receiver_probe.look_at) = (at(4_800), Some(at(9_600)));
        receiver_probe.probe_now(at(5_000));
        assert_eq!(receiver_probe.deadline(), Some(at(5_000)));
        assert_eq!(receiver_probe.step(at(5_000), Reason::Lone, RTO), Step::Ask);
    }

    #[test]
    fn one_that_is_doubted_is_asked_at_once_although_nobody_delivers() {
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
    fn one_that_answers_is_asked_later_and_later_and_then_no_more() {
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
