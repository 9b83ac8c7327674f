//! Stale path handling by the sender: reinjection, probes, replacement (RFC 8684 sections 3.3.6 and 3.4).
//!
//! A subflow whose path is unresponsive becomes first potentially failed, then stale; at once where the host or ICMP says so. Its data is reinjected on other subflows,
//! the oldest first, and it gets no new data. It is probed until it answers, and the first answer restores it. Must never
//! declare a path dead: only the subflow's own time-outs or its replacement end it.

use manypath_tcp::time::{Duration, Instant};

use crate::api::SubflowEnd;
use crate::conn::dss::reset_reason::unacceptable_performance;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::probe::PathProbe;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::{SubflowId, SubflowSet};
use crate::pm;

/// A stale path is probed at least this often, while another one carries the data.
pub(crate) const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// How long the SYN of a join is repeated that often where no data waits to be sent.
const OFTEN: Duration = Duration::from_secs(60);
/// Then it is repeated after this fraction of the silence, at most: a path that recovers is found in a fraction of its outage.
const PART: u64 = 8;
const SELDOM: Duration = Duration::from_secs(60);

/// Consecutive time-outs after which a second subflow is opened beside the first: the old one has to retransmit what was in flight
/// when its path died before anything new, however useless, and a join may be quicker.
pub(crate) const REPLACED_AFTER: u8 = 2;

/// Round trips that a join takes before it carries data.
const JOIN_ROUND_TRIPS: u32 = 2;

/// The longest time between two probes of an unresponsive path. Back-off of retransmissions is capped only while another subflow
/// answers, so that a connection with a single path backs off as any TCP connection does (RFC 6298 section 5.5). A SYN is
/// small, and stands for the SYNs of new attempts, which could be as frequent. Where only the peer sends and nothing arrived for
/// `reads_since`, SYNs are spaced by the length of the silence. Pure.
pub(crate) fn probe_interval(
    path_probe: PathProbe,
    another_answers: bool,
    reads_since: Option<Duration>,
) -> Option<Duration> {
    match path_probe {
        PathProbe::None => None,
        PathProbe::Stale => another_answers.then_some(PROBE_INTERVAL),
        PathProbe::Rejoin => Some(match reads_since {
            Some(silence) if silence >= OFTEN => silence.over(PART).min(SELDOM),
            Some(_) | None => PROBE_INTERVAL,
        }),
    }
}

/// An unresponsive subflow answers while a join to replace it is under way. The subflow stays if the join would not send new data
/// sooner than it does after retransmitting `backlog` bytes, with a window that begins at `initial` bytes and doubles each
/// round trip. Pure.
pub(crate) fn is_quicker_than_join(backlog: u32, initial: u32) -> bool {
    backlog <= initial.saturating_mul((1 << JOIN_ROUND_TRIPS) - 1)
}

impl Subflows {
    /// Some subflow carries data and is responsive.
    pub(crate) fn has_responsive(&self) -> bool {
        self.iter().any(crate::conn::Subflow::is_active)
    }

    /// Another subflow than `avoid` can carry what that one has in flight: a responsive one, where there is one.
    pub(crate) fn can_reinject(&self, avoid: Option<SubflowId>) -> bool {
        let healthy = self.has_responsive();
        self.iter()
            .any(|sf| Some(sf.id()) != avoid && sf.carries_data() && (sf.is_active() || !healthy))
    }

    /// Subflows that must not carry a reinjection: the one that lost the data. And after a new subflow lost its data, every
    /// subflow without a Data ACK so far, as long as options are known to pass on another one.
    pub(in crate::conn) fn excluded_for(&self, lost_on: Option<SubflowId>) -> SubflowSet {
        let others = || self.iter().filter(|sf| Some(sf.id()) != lost_on);
        let proven =
            |sf: &Subflow| sf.evidence.data_was_acked && sf.carries_data() && sf.is_active();
        let mut not_on = lost_on.map_or(SubflowSet::EMPTY, SubflowSet::of);
        if self.new_one_lost && others().any(proven) {
            others()
                .filter(|sf| !proven(sf))
                .for_each(|sf| not_on.insert(sf.id()));
        }
        not_on
    }

    /// A subflow answers: others on the same interface probably work as well.
    pub(crate) fn retransmit_siblings_now(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let iface = self[i].endpoint.iface;
        for j in self.indices() {
            if j != i && self[j].endpoint.iface == iface {
                self.retransmit_now(j, cx);
            }
        }
    }

    /// A segment of the peer arrived on a subflow: if that is stale, it retransmits at once. But a path may work in the
    /// other direction alone, so this happens at most once per time-out.
    pub(crate) fn on_peer_alive(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &self[i];
        let lately = sf
            .liveness
            .retried_at
            .is_some_and(|at| cx.now < at + sf.tcp.rto());
        if sf.is_stale() && !lately {
            self.retransmit_now(i, cx);
        }
    }

    /// The path of a subflow may work again: what timed out is retransmitted now, not when the timer expires.
    pub(crate) fn retransmit_now(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &mut self[i];
        if sf.tcp.on_path_hint(cx.now) {
            sf.liveness.retried_at = Some(cx.now);
            cx.count.subflow_hinted += 1;
        }
    }

    /// How long nothing arrived between the addresses of a subflow; `None` while written data lacks its Data ACK.
    fn reads_since(&self, send: &SendQueue, i: SubflowIdx, cx: &Cx<'_>) -> Option<Duration> {
        let heard = |j: SubflowIdx| self[j].liveness.receiver_probe.last_received();
        let up = self.same_addresses(i).filter(|j| self[*j].was_up());
        let last = up.map(heard).max().unwrap_or_else(|| heard(i));
        let waits = send.una() < send.end();
        (!waits).then(|| cx.now.since(last))
    }

    /// The other subflows between the same addresses.
    fn same_addresses(&self, i: SubflowIdx) -> impl Iterator<Item = SubflowIdx> + use<'_> {
        self.indices()
            .filter(move |&j| j != i && self[i].has_same_addresses(&self[j]))
    }

    /// Updates the probe intervals of unresponsive paths.
    pub(crate) fn update_probe_intervals(
        &mut self,
        send: &SendQueue,
        paths: &mut Paths,
        cx: &mut Cx<'_>,
    ) {
        for i in self.indices() {
            let path_probe = self[i].path_probe();
            if path_probe != PathProbe::None {
                let reads_since = self.reads_since(send, i, cx);
                let interval = probe_interval(path_probe, self.has_responsive(), reads_since);
                self[i].tcp.set_probe_interval(cx.now, interval);
            }
            if self[i].liveness.reported_unresponsive {
                self.watch_replacement(paths, i, cx);
            }
        }
    }

    /// A subflow that is responsive again needs no replacement, unless one is being made already.
    fn watch_replacement(&mut self, paths: &mut Paths, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &self[i];
        let joining = |j: SubflowIdx| self[j].path_probe() == PathProbe::Rejoin;
        if !sf.is_stale()
            && !sf.liveness.receiver_probe.unresponsive
            && !self.same_addresses(i).any(joining)
        {
            self[i].liveness.reported_unresponsive = false;
            let (subflow, silent) = (self[i].id(), false);
            paths.notify_manager(pm::Event::Silence { subflow, silent }, cx);
        }
    }

    /// A path has been unresponsive for long: the path manager may create a replacement there, whose SYN probes the
    /// path, and which carries new data as soon as it works.
    pub(crate) fn wants_replacement(&mut self, paths: &mut Paths, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &mut self[i];
        if sf.carries_data() && !sf.liveness.reported_unresponsive {
            sf.liveness.reported_unresponsive = true;
            let (subflow, silent) = (sf.id(), true);
            paths.notify_manager(pm::Event::Silence { subflow, silent }, cx);
        }
    }
}

/// What a subflow carries that answers again while another one is about to replace it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recovered {
    /// Nothing that is not carried elsewhere.
    No,
    /// Data of ours that was sent after its path had failed, and nowhere else.
    Sends,
    /// Stream bytes of the peer that no other subflow has brought.
    Receives,
}

/// `answers`: it is responsive again; `only_here`: it has data in flight that was not reinjected; `delivers`: within its last RTO it
/// brought bytes that the reader lacked. What was reinjected is on its way elsewhere and no reason to keep it. Pure.
fn recovered(answers: bool, only_here: bool, delivers: bool) -> Recovered {
    match (answers, only_here, delivers) {
        (true, true, _) => Recovered::Sends,
        (true, false, true) => Recovered::Receives,
        _ => Recovered::No,
    }
}

impl Subflow {
    fn recovered(&self, now: Instant) -> Recovered {
        let (una, nxt) = (self.tcp.snd_una_ssn(), self.tcp.snd_nxt_ssn());
        let reinjected = self.reinjection.reinjected_below;
        let only_here = una != nxt && reinjected.is_none_or(|below| below.before(nxt));
        let delivered = self.liveness.delivered_at;
        let delivers = delivered.is_some_and(|at| now < at + self.tcp.rto());
        recovered(self.is_active(), only_here, delivers)
    }
}

impl Flight<'_> {
    /// Nothing was acknowledged for two round trips, on short paths 20 ms after the probe was due (`send/loss/tail` of the TCP crate says how
    /// long). That is too little to call the path dead, but data in flight there will soon
    /// block the reader. Other paths begin to carry it; reinjections not sent when the acknowledgement arrives after
    /// all are cancelled. // rfc8684:R4
    pub(crate) fn becomes_potentially_failed(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &mut self.subflows[i];
        if !sf.carries_data() || sf.is_stale() || sf.liveness.potentially_failed {
            return;
        }
        sf.liveness.potentially_failed = true;
        cx.count.subflow_potentially_failed += 1;
        self.reinject_if_another_responds(i);
    }

    /// The acknowledgement of the only segment in flight is later than any lately, but within the peer's delayed-ACK limit.
    /// Another path carries the segment, too, and no other: readers wait for the end of a write.
    pub(crate) fn reinjects_late_tail(
        &mut self,
        opportunistic: bool,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) {
        let sf = &self.subflows[i];
        let suited = opportunistic && sf.carries_data();
        let another =
            |sf: &Subflow| sf.id() != self.subflows[i].id() && sf.is_active() && !sf.is_backup();
        if suited && self.subflows.iter().any(another) {
            cx.count.subflow_late += 1;
            self.reinject_all(i);
        }
    }

    /// Others carry what a subflow that may have failed has in flight, if one is responsive.
    fn reinject_if_another_responds(&mut self, i: SubflowIdx) {
        self.subflows.refresh_sample(i);
        if self.subflows.has_responsive() {
            self.reinject_all(i);
        }
    }

    /// After a time-out, ICMP unreachable or the loss of the uplink, reinjects on others what the subflow carried, and sends nothing new on it. // rfc8684:R4
    pub(crate) fn becomes_stale(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if !self.subflows[i].carries_data() || self.subflows[i].is_stale() {
            return;
        }
        let sf = &mut self.subflows[i];
        sf.liveness.stale_since = Some(cx.now);
        cx.count.subflow_stale += 1;
        self.reinject_if_another_responds(i);
    }

    /// ICMP reports that the peer is unreachable by this path. On-path and off-path attackers can forge that, and routes flap, so
    /// the subflow stays open; but it becomes stale if another one answers. // rfc8684:R4
    pub(crate) fn on_unreachable(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let another = self
            .subflows
            .indices()
            .any(|j| j != i && self.subflows[j].is_active());
        if another {
            self.becomes_stale(i, cx);
        }
    }

    /// An unresponsive subflow answers: a join begun to replace it is reset, unless that is the quicker one.
    fn keeps_subflow_or_join(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let tcp = &self.subflows[i].tcp;
        let backlog = tcp.snd_nxt_ssn().since(tcp.snd_una_ssn());
        let stays = is_quicker_than_join(backlog, tcp.cwnd());
        let joining = |&j: &SubflowIdx| self.subflows[j].path_probe() == PathProbe::Rejoin;
        let rival = self.subflows.same_addresses(i).find(joining);
        match rival {
            Some(j) if stays => self.reset_subflow(j, SubflowEnd::Replaced, None, cx),
            Some(_) => self.subflows[i].liveness.contested = true,
            None => {}
        }
    }

    /// A subflow came up beside an unresponsive one, or one that still retransmits: that one ends as soon as options are
    /// seen to pass on the new one. If it has recovered meanwhile, the new one is not needed. // rfc8684:R5
    pub(crate) fn replaces(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let silent = |&j: &SubflowIdx| {
            let old = &self.subflows[j];
            old.carries_data() && (old.liveness.reported_unresponsive || old.liveness.contested)
        };
        let Some(j) = self.subflows.same_addresses(i).find(silent) else {
            return;
        };
        let old = &mut self.subflows[j];
        // A receiver cannot see how much the sender has to retransmit on the old one.
        let sender = core::mem::take(&mut old.liveness.contested);
        if sender && !old.liveness.reported_unresponsive && !old.tcp.in_recovery() {
            self.finish_subflow(i, SubflowEnd::Replaced);
            return;
        }
        let replaced = old.id();
        self.subflows[i].liveness.replaces = Some(replaced);
        self.takes_over(i, cx);
    }

    /// Ends the subflow that this one replaces, once this one is known to be of use. A subflow that has recovered meanwhile and has
    /// stream bytes on the way is not reset: behind a deep queue they would be sent again, and the reader would wait for that queue
    /// a second time. Where the bytes are ours the replacement finishes; a receiver leaves that to its peer and waits.
    pub(crate) fn takes_over(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let sf = &self.subflows[i];
        let of_use = sf.evidence.data_was_acked || sf.evidence.data_came_mapped;
        let Some(old) = sf.liveness.replaces.filter(|_| of_use && sf.carries_data()) else {
            return;
        };
        let found = self.subflows.find(old);
        let verdict = found.map_or(Recovered::No, |j| self.subflows[j].recovered(cx.now));
        if verdict == Recovered::Receives {
            return;
        }
        self.subflows[i].liveness.replaces = None;
        let Some(j) = found else { return };
        if verdict == Recovered::Sends {
            self.finish_subflow(i, SubflowEnd::Replaced);
            return;
        }
        let why = unacceptable_performance();
        cx.count.subflow_replaced += 1;
        self.reset_subflow(j, SubflowEnd::Replaced, why, cx);
    }

    /// Reinjects everything that a subflow has in flight and that was not reinjected before.
    // rfc8684:R1
    pub(crate) fn reinject_all(&mut self, i: SubflowIdx) {
        if !self.level.is_multipath() {
            return;
        }
        let (una, sf) = (self.send.una(), &mut self.subflows[i]);
        let from = sf
            .reinjection
            .reinjected_below
            .replace(sf.tcp.snd_nxt_ssn());
        let avoid = Some(sf.id());
        let already_reinjected =
            |m: &crate::conn::dss::mapping::TxMapping| from.is_some_and(|from| m.ssn.before(from));
        for m in sf.maps.tx.iter().filter(|m| !already_reinjected(m)) {
            let end = m.at + u64::from(m.len);
            if end > una {
                self.send.reinject(m.at..end, avoid);
            }
        }
        // The DATA_FIN may have been lost with it. // rfc8684:F1
        self.send.fin.lost |= self.send.fin.state == FinState::Sent;
    }

    /// Options do not pass on a subflow: data acked at subflow level only did not reach the connection. // rfc8684:M2
    pub(crate) fn reinject_subflow_acked(&mut self, i: SubflowIdx) {
        if !self.level.is_multipath() {
            return;
        }
        let avoid = Some(self.subflows[i].id());
        for part in self.subflows[i].reinjection.subflow_acked_only.take() {
            self.send.reinject(part, avoid);
        }
    }

    /// Queues what stale subflows other than this one have in flight, for whichever can carry it.
    pub(crate) fn reinject_from_stale(&mut self, i: SubflowIdx) {
        for j in self.subflows.indices() {
            if self.subflows[j].is_stale() && j != i {
                self.reinject_all(j);
            }
        }
    }

    /// Data sent on a stale path is acknowledged: the subflow is restored.
    pub(crate) fn recovers(&mut self, paths: &mut Paths, i: SubflowIdx, cx: &mut Cx<'_>) {
        let healthy = self.subflows.has_responsive();
        let sf = &mut self.subflows[i];
        let was_stale = sf.is_stale();
        (
            sf.liveness.stale_since,
            sf.liveness.potentially_failed,
            sf.reinjection.reinjected_below,
        ) = (None, false, None);
        sf.tcp.set_probe_interval(cx.now, None);
        let told = core::mem::take(&mut sf.liveness.reported_unresponsive);
        let only_late = !sf.tcp.in_recovery();
        let subflow = sf.id();
        cx.count.subflow_recovered += u64::from(was_stale);
        self.subflows.refresh_sample(i);
        if only_late {
            self.send.forget_reinjections_from(subflow);
        }
        if told {
            let silent = false;
            paths.notify_manager(pm::Event::Silence { subflow, silent }, cx);
            self.keeps_subflow_or_join(i, cx);
        }
        if was_stale {
            if !healthy {
                self.reinject_from_stale(i);
            }
            self.subflows.retransmit_siblings_now(i, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_path_has_a_probe_interval_only_beside_a_responsive_one() {
        let often = Some(PROBE_INTERVAL);
        for (path_probe, another, expected) in [
            (PathProbe::None, false, None),
            (PathProbe::None, true, None),
            (PathProbe::Stale, false, None),
            (PathProbe::Stale, true, often),
            (PathProbe::Rejoin, false, often),
            (PathProbe::Rejoin, true, often),
        ] {
            let interval = probe_interval(path_probe, another, None);
            assert_eq!(interval, expected, "{path_probe:?} {another}");
        }
    }

    #[test]
    fn a_subflow_that_recovered_with_data_of_its_own_is_not_reset_by_its_replacement() {
        for (answers, only_here, delivers, expected) in [
            (true, true, false, Recovered::Sends),
            (true, true, true, Recovered::Sends),
            (true, false, true, Recovered::Receives),
            (true, false, false, Recovered::No),
            (false, true, true, Recovered::No),
        ] {
            let found = recovered(answers, only_here, delivers);
            assert_eq!(found, expected, "{answers} {only_here} {delivers}");
        }
    }

    #[test]
    fn a_pure_receiver_probes_a_dead_path_less_and_less_often() {
        for (silence, expected) in [
            (0, 1_000),
            (59, 1_000),
            (60, 7_500),
            (240, 30_000),
            (900, 60_000),
        ] {
            let reads_since = Some(Duration::from_secs(silence));
            let interval = probe_interval(PathProbe::Rejoin, false, reads_since);
            assert_eq!(interval, Some(Duration::from_millis(expected)), "{silence}");
        }
    }

    #[test]
    fn a_backlog_sent_within_two_round_trips_makes_a_join_unnecessary() {
        for (backlog, initial, stays) in [
            (0, 14_000, true),
            (42_000, 14_000, true),
            (42_001, 14_000, false),
            (u32::MAX, u32::MAX, true),
        ] {
            assert_eq!(is_quicker_than_join(backlog, initial), stays, "{backlog}");
        }
    }
}
