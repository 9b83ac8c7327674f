//! Detection of dead paths by a receiver, by keepalive probes (RFC 9293 section 3.8.4).
//!
//! A pure receiver has no retransmission timer to detect a dead path, and cannot make the sender retry sooner. So it probes, and asks
//! the path manager for a replacement. Owns a subflow's probe state. Must never probe an answering subflow without limit.

use manypath_tcp::time::Instant;

use crate::api::{ConnOptions, EventKind, PathManager, SubflowEnd};
use crate::conn::events::Events;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::probe::{Reason, Step};
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Time-outs from a handshake to the probe for the first Data ACK, where neither end sends data.
const UNSPOKEN: u64 = 2;

impl Subflows {
    /// Arms the check of subflows on which payload may arrive. The timer is lazy: what arrives meanwhile
    /// moves the moment of the next probe, not the timer.
    pub(crate) fn arm_receiver_probe(&mut self, now: Instant) {
        self.watch.paused = false;
        for sf in self.iter_mut().filter(|sf| sf.carries_data()) {
            let look_at = now + sf.tcp.rto().times(2);
            sf.liveness.receiver_probe.look_at.get_or_insert(look_at);
        }
    }

    /// The initiator's handshake is done. Joins wait for the peer's first Data ACK (RFC 8684 section 3.1), which nothing would
    /// elicit while both ends are idle: the only subflow would be lost with its NAT binding. A probe elicits it. //
    /// rfc8684:C10
    pub(crate) fn probe_for_first_ack(&mut self, opts: &ConnOptions, i: SubflowIdx, cx: &Cx<'_>) {
        if opts.path_manager != PathManager::Passive {
            let sf = &mut self[i];
            let at = cx.now + sf.tcp.rto().times(UNSPOKEN);
            (
                sf.liveness.receiver_probe.probe_wanted,
                sf.liveness.receiver_probe.look_at,
            ) = (true, Some(at));
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
        for sf in self.iter_mut() {
            let silent = sf.liveness.receiver_probe.last_received < since && sf.is_active();
            if silent || sf.liveness.receiver_probe.unresponsive {
                sf.liveness.receiver_probe.token_unknown |= token_unknown;
                sf.liveness.receiver_probe.probe_now(now);
            }
        }
    }

    fn another_was_up(&self, i: SubflowIdx) -> bool {
        let others = self.each().filter(|(j, _)| *j != i);
        others.map(|(_, sf)| sf).any(Subflow::was_up)
    }

    /// A segment arrived on the subflow within a time-out before `since`, or after.
    pub(crate) fn received_lately(&self, j: SubflowIdx, since: Instant) -> bool {
        let sf = &self[j];
        sf.liveness.receiver_probe.last_received + sf.tcp.rto() >= since
    }

    /// All other responsive subflows have the same addresses, and this one received last: its probe serves for all of them.
    fn speaks_for_the_path(&self, i: SubflowIdx) -> bool {
        let heard = |j: SubflowIdx| self[j].liveness.receiver_probe.last_received;
        let mut others = self.indices().filter(|j| *j != i && self[*j].is_active());
        let is_behind = |j: SubflowIdx| (heard(j), i) < (heard(i), j);
        self[i].is_active() && others.all(|j| self[i].has_same_addresses(&self[j]) && is_behind(j))
    }

    /// The other subflows have to do without this one: they are probed. With nothing in flight, one may have died
    /// unnoticed.
    pub(crate) fn probe_others(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.probe_siblings(i, cx.now, |_, _| true);
    }

    /// Probes the other subflows of which this is true.
    fn probe_siblings(
        &mut self,
        i: SubflowIdx,
        now: Instant,
        concerned: impl Fn(&Subflow, &Subflow) -> bool,
    ) {
        for j in self.indices() {
            let other = &self[j];
            if j != i && other.is_active() && concerned(&self[i], other) {
                self[j].liveness.receiver_probe.probe_now(now);
            }
        }
    }

    /// Controllers act on time-outs, which a pure receiver has not. The others between the same addresses are probed at once.
    fn reports_unresponsive(&mut self, events: &mut Events, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.probe_siblings(i, cx.now, Subflow::has_same_addresses);
        let sf = &self[i];
        events.push(EventKind::Timeout {
            subflow: sf.id(),
            tuple: sf.endpoint.tuple,
            rto: sf.tcp.rto(),
            backoffs: 0,
        });
    }

    /// A segment of the peer arrived on a subflow, perhaps with payload. True: subflows are to be [watched](Self::arm_receiver_probe) from now
    /// on, where one could be replaced.
    pub(crate) fn on_received(&mut self, i: SubflowIdx, payload: bool, cx: &mut Cx<'_>) -> bool {
        let sf = &mut self[i];
        let revived = sf.liveness.receiver_probe.on_received(cx.now);
        if revived {
            sf.liveness.potentially_failed = false;
            self.dirty = true;
            self.refresh_sample(i);
            self.retransmit_siblings_now(i, cx);
        }
        if !payload {
            return false;
        }
        self.watch.last_payload = cx.now;
        let sf = &mut self[i];
        sf.evidence.payload_came = true;
        let receiver_probe = &mut sf.liveness.receiver_probe;
        receiver_probe.answered = 0;
        receiver_probe.look_at.is_none() || self.watch.paused
    }

    /// Payload arrived on some subflow.
    pub(crate) fn payload_came(&self) -> bool {
        self.iter().any(|sf| sf.evidence.payload_came)
    }

    /// The reason for a probe. Where a last-resort path depends on this one, it is probed although no subflow delivers.
    fn probe_reason(&self, paths: &Paths, i: SubflowIdx, now: Instant) -> Reason {
        let nobody_delivers =
            self.watch.last_payload <= self[i].liveness.receiver_probe.last_received;
        match paths.manager.as_ref().map(|manager| manager.ledger()) {
            Some(ledger) if ledger.has_last_resort() => Reason::LastResort,
            Some(ledger)
                if nobody_delivers && self.speaks_for_the_path(i) && ledger.has_free_pair(now) =>
            {
                Reason::FreePair
            }
            Some(_) if self.len() == 1 && self[i].evidence.payload_came => Reason::Lone,
            _ => Reason::Elsewhere(self.watch.last_payload),
        }
    }
}

impl Flight<'_> {
    /// Checks the subflows that are due.
    pub(crate) fn receiver_probes_due(
        &mut self,
        paths: &mut Paths,
        events: &mut Events,
        cx: &mut Cx<'_>,
    ) {
        for i in self.subflows.indices() {
            let sf = &mut self.subflows[i];
            if sf
                .liveness
                .receiver_probe
                .look_at
                .is_none_or(|at| at > cx.now)
            {
                continue;
            }
            sf.liveness.receiver_probe.look_at = None;
            // Data in flight shows by itself whether the path works.
            if sf.is_stale() || !sf.carries_data() || sf.tcp.awaits_ack() {
                self.subflows.watch.paused = true;
                continue;
            }
            let rto = sf.tcp.rto();
            let why = self.subflows.probe_reason(paths, i, cx.now);
            let sf = &mut self.subflows[i];
            match sf.liveness.receiver_probe.step(cx.now, why, rto) {
                Step::Wait(until) => sf.liveness.receiver_probe.look_at = Some(until),
                Step::Ask => {
                    sf.liveness.receiver_probe.unanswered =
                        sf.liveness.receiver_probe.unanswered.saturating_add(1);
                    sf.liveness.receiver_probe.probed_at = cx.now;
                    sf.liveness.receiver_probe.probe_wanted &=
                        !sf.liveness.receiver_probe.unresponsive;
                    sf.liveness.receiver_probe.look_at = Some(cx.now + rto);
                    sf.tcp.probe_liveness(cx.now);
                    cx.count.subflow_probed += 1;
                }
                Step::GiveUp => {
                    sf.liveness.receiver_probe.becomes_unresponsive(cx.now);
                    sf.liveness.potentially_failed = true;
                    cx.count.subflow_unresponsive += 1;
                    self.subflows.refresh_sample(i);
                    self.subflows.wants_replacement(paths, i, cx);
                    self.subflows.reports_unresponsive(events, i, cx);
                }
                // The last one stays: an idle TCP connection survives an outage of any length, too. Not if the peer reported
                // an unknown token.
                Step::End
                    if self.level.is_multipath()
                        && (self.subflows[i].liveness.receiver_probe.token_unknown
                            || self.subflows.another_was_up(i)) =>
                {
                    cx.count.subflow_timed_out += 1;
                    self.reset_subflow(i, SubflowEnd::TimedOut, None, cx);
                }
                Step::Rest | Step::End => self.subflows.watch.paused = true,
            }
        }
    }
}
