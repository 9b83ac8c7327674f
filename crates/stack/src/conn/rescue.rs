//! What a silent path means for the others, and what its answer means for it.
//!
//! A subflow whose path falls silent becomes first suspect, then stale. What it carried travels on other subflows from
//! then on, the oldest first, and nothing new is given to it. It is asked again and again whether it works; the first
//! answer makes it a subflow like any other.

use manypath_tcp::time::Duration;

use super::{Conn, Cx};
use crate::ids::SubflowId;

/// A silent path is asked at least this often whether it works, while another one carries the data.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// The longest time between two questions to a path that is silent: bounded only while nobody waits for its answer, so
/// that a connection with a single path backs off as any TCP connection does (RFC 6298 section 5.5). Pure.
pub(crate) fn probe_interval(stale: bool, another_answers: bool) -> Option<Duration> {
    (stale && another_answers).then_some(PROBE_INTERVAL)
}

impl Conn {
    /// Some subflow carries data and answers.
    pub(crate) fn has_healthy(&self) -> bool {
        self.subflows.iter().any(super::Subflow::answers)
    }

    /// Another subflow than `avoid` can carry what that one has in flight: one that answers, where there is one.
    pub(crate) fn can_rescue(&self, avoid: Option<SubflowId>) -> bool {
        let healthy = self.has_healthy();
        self.subflows
            .iter()
            .any(|sf| Some(sf.id()) != avoid && sf.carries_data() && (sf.answers() || !healthy))
    }

    /// Nothing was heard for two round trips. That is too little to call the path dead, but the reader will soon wait for
    /// what is under way there. Another path begins to carry it; what it has not come to when the answer arrives after
    /// all stays where it is. // rfc8684:R4
    pub(crate) fn becomes_suspect(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        if !sf.carries_data() || sf.stale || sf.suspect {
            return;
        }
        sf.suspect = true;
        cx.count.subflow_suspect += 1;
        self.refresh_sample(i);
        if self.has_healthy() {
            self.reinject_all(i);
        }
    }

    /// A time-out is enough to send elsewhere what it carried, and nothing new on it. // rfc8684:R4
    pub(crate) fn becomes_stale(&mut self, i: usize, cx: &mut Cx<'_>) {
        if !self.subflows[i].carries_data() || self.subflows[i].stale {
            return;
        }
        self.subflows[i].stale = true;
        cx.count.subflow_stale += 1;
        self.refresh_sample(i);
        if self.has_healthy() {
            self.reinject_all(i);
        }
    }

    /// A router says that the peer cannot be reached by this path. Anybody who sees or guesses a sequence number can say
    /// so, and routes flap, hence the subflow lives on; but nobody waits for it. // rfc8684:R4
    pub(crate) fn on_unreachable(&mut self, i: usize, cx: &mut Cx<'_>) {
        let another = (0..self.subflows.len()).any(|j| j != i && self.subflows[j].answers());
        if another {
            self.becomes_stale(i, cx);
        }
    }

    /// What was sent on a silent path is acknowledged: it is a path like any other again.
    pub(crate) fn answers_again(&mut self, i: usize, cx: &mut Cx<'_>) {
        let healthy = self.has_healthy();
        let sf = &mut self.subflows[i];
        let was_stale = sf.stale;
        (sf.stale, sf.suspect, sf.rescued) = (false, false, None);
        sf.tcp.set_probe_interval(cx.now, None);
        let (id, only_late) = (sf.id(), !sf.tcp.in_recovery());
        cx.count.subflow_recovered += u64::from(was_stale);
        self.refresh_sample(i);
        if only_late {
            self.send.forget_reinjections_from(id);
        }
        if was_stale {
            if !healthy {
                self.rescue_from_stale(i);
            }
            // Who shares its interface probably works as well.
            let iface = self.subflows[i].seat.iface;
            for j in 0..self.subflows.len() {
                if j != i && self.subflows[j].seat.iface == iface {
                    self.try_at_once(j, cx);
                }
            }
        }
    }

    /// The peer was heard on a subflow: if that is silent in our direction, it is tried at once, but no more often than
    /// its timer would without back-off.
    pub(crate) fn on_sign_of_life(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &self.subflows[i];
        let pause = sf.tcp.srtt().unwrap_or(PROBE_INTERVAL).times(2);
        let lately = sf.hinted.is_some_and(|at| cx.now < at + pause);
        if sf.stale && !lately {
            self.try_at_once(i, cx);
        }
    }

    /// The path of a subflow may work again: if it was silent, it is asked now and not when its timer expires.
    pub(crate) fn try_at_once(&mut self, i: usize, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        if sf.tcp.on_path_hint(cx.now) {
            sf.hinted = Some(cx.now);
            cx.count.subflow_hinted += 1;
        }
    }

    /// Keeps the questions to silent paths as frequent as they should be.
    pub(crate) fn watch_silence(&mut self, cx: &mut Cx<'_>) {
        for i in 0..self.subflows.len() {
            if self.subflows[i].stale {
                let interval = probe_interval(true, self.has_healthy());
                self.subflows[i].tcp.set_probe_interval(cx.now, interval);
            }
        }
    }

    /// Everything that a subflow has in flight, and that was not put up before, shall also travel elsewhere.
    // rfc8684:R1
    pub(crate) fn reinject_all(&mut self, i: usize) {
        if !self.lattice.speaks_multipath() {
            return;
        }
        let (una, sf) = (self.send.una(), &mut self.subflows[i]);
        let from = sf.rescued.replace(sf.tcp.snd_nxt_ssn());
        let avoid = Some(sf.id());
        let put_up = |m: &super::mapping::TxMapping| from.is_some_and(|from| m.ssn.before(from));
        for m in sf.tx.iter().filter(|m| !put_up(m)) {
            let end = m.at + u64::from(m.len);
            if end > una {
                self.send.reinject(m.at..end, avoid);
            }
        }
    }

    /// What waits on paths that went silent can travel here.
    pub(crate) fn rescue_from_stale(&mut self, i: usize) {
        for j in 0..self.subflows.len() {
            if self.subflows[j].stale && j != i {
                self.reinject_all(j);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_silent_path_beside_a_working_one_is_asked_often() {
        for (stale, another, expected) in [
            (false, false, None),
            (false, true, None),
            (true, false, None),
            (true, true, Some(PROBE_INTERVAL)),
        ] {
            assert_eq!(
                probe_interval(stale, another),
                expected,
                "{stale} {another}"
            );
        }
    }
}
