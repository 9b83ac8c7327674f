//! Timers of a connection: data-level retransmission (RFC 8684 section 3.3.6), and all other deadlines. Whatever is listed in
//! `deadline` must have its handler in `on_timeout`.

use crate::api::ConnOptions;
use crate::conn::level::Level;
use crate::conn::send::data_rto::DataTimer;
use crate::conn::send::queue::SendQueue;
use crate::conn::subflow::table::Subflows;
use manypath_tcp::machine::{DeadCause, Machine, State};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::timer::Soonest;

use crate::api::{CloseCause, EventKind, SubflowEnd};
use crate::conn::failover::stale::REPLACED_AFTER;
use crate::conn::send::data_rto::Outstanding;
use crate::conn::send::queue::FinState;
use crate::conn::send::retransmit::REPEATED_AT_ONCE;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::probe::PATIENCE;
use crate::conn::types::SubflowIdx;
use crate::conn::{Conn, Cx};
use crate::pm;

/// How much longer than a time-out a peer with this stack may hold unmapped data.
const HELD_BY_PEER: Duration = Duration::from_millis(250);

/// How long a Data ACK may take where the subflow's time-out is `rto`. Pure.
fn data_rto(rto: Option<Duration>) -> Duration {
    let rto = rto.unwrap_or(Duration::from_secs(1));
    // A peer may hold unmapped data for a time-out and wait for its mapping.
    rto.times(2).max(rto + HELD_BY_PEER)
}

impl Subflows {
    /// How long Data ACKs may take on any path: the slowest usable one decides.
    pub(crate) fn data_rto(&self) -> Duration {
        data_rto(self.paths_for_data().map(|sf| sf.tcp.rto()).max())
    }

    /// How long they may take for what is in flight.
    fn awaited_data_rto(&self) -> Duration {
        let fastest = || self.fastest_rto();
        data_rto(self.slowest_on_the_way(Machine::rto).or_else(fastest))
    }

    /// How long they may take where the subflows have acknowledged everything. Slow paths do not count: nothing is in flight that
    /// the Data ACK could wait for. And beside another subflow a peer does not wait for a mapping for so long, nor does it delay the
    /// Data ACK of a DATA_FIN; TCP would retransmit a FIN as soon. (Where acknowledgements came without options, the longer time
    /// applies.)
    fn subflow_acked_data_rto(&self, send: &SendQueue) -> Duration {
        let rto = self.fastest_rto();
        let carrying = || self.iter().filter(|sf| sf.carries_data());
        let at_once = carrying().nth(1).is_some() || send.lacks_fin_only();
        let sure = at_once && !carrying().any(|sf| sf.evidence.option_loss.is_ongoing());
        rto.filter(|_| sure).unwrap_or(data_rto(rto))
    }

    fn fastest_rto(&self) -> Option<Duration> {
        self.paths_for_data().map(|sf| sf.tcp.rto()).min()
    }

    /// The longest time-out, by `rto`, of those subflows that wait for an acknowledgement.
    fn slowest_on_the_way(&self, rto: impl Fn(&Machine) -> Duration) -> Option<Duration> {
        let on_the_way = self.paths_for_data().filter(|sf| sf.tcp.awaits_ack());
        on_the_way.map(|sf| rto(&sf.tcp)).max()
    }

    fn paths_for_data(&self) -> impl Iterator<Item = &Subflow> {
        let usable = |sf: &&Subflow| sf.carries_data() && !sf.is_stale();
        self.iter().filter(usable)
    }

    /// A segment arrived on a subflow that carries data since the data-level timer was started.
    fn was_heard_meanwhile(&self, data_timer: &DataTimer, i: SubflowIdx) -> bool {
        let sf = &self[i];
        let since = sf.liveness.receiver_probe.last_received();
        sf.carries_data() && data_timer.began().is_some_and(|began| since > began)
    }

    /// All subflows advertise one window (RFC 8684 section 3.3.1). But the update that opened it may have been lost with its path, and
    /// a path with nothing outstanding may have died unnoticed: all are probed, for as long as it takes, and one that did not
    /// answer the last probe has to answer the next ones, or is replaced.
    fn ask_all(&mut self, data_timer: &DataTimer, now: Instant) {
        let silent_too = !self.has_responsive();
        let again = data_timer.repeats();
        let began = data_timer.began().unwrap_or(now);
        let asked = |sf: &&mut Subflow| sf.carries_data() && (sf.answers() || silent_too);
        for sf in self.iter_mut().filter(asked) {
            sf.tcp.probe_liveness(now);
            if again && sf.liveness.receiver_probe.last_received() < began {
                sf.liveness.receiver_probe.probe_now(now);
            }
        }
    }
}

impl Subflows {
    /// A bare DATA_FIN is no subflow data, whose time-outs would end the subflow. A subflow on which nothing arrived for as long as
    /// data is retransmitted ends, as one with a TCP FIN does: its NAT binding may have expired for good. From half that time
    /// on it is probed, which a peer answers that the DATA_FIN's option does not reach.
    // rfc8684:F2; RFC 9293 section 3.8.3; RFC 5482
    fn give_up_unanswered_fin(
        &mut self,
        opts: &ConnOptions,
        send: &mut SendQueue,
        data_timer: &DataTimer,
        level: Level,
        cx: &mut Cx<'_>,
    ) {
        let Some(since) = data_timer.unanswered_since() else {
            return;
        };
        let patience = opts.user_timeout.unwrap_or(PATIENCE);
        for i in self.indices() {
            let sf = &mut self[i];
            let silent = cx
                .now
                .since(since.max(sf.liveness.receiver_probe.last_received()));
            if !(sf.carries_data() && send.lacks_fin_only()) {
                continue;
            }
            if silent >= patience {
                cx.count.subflow_timed_out += 1;
                self.reset_subflow(send, level, i, SubflowEnd::TimedOut, None, cx);
            } else if silent >= patience.over(2) {
                sf.tcp.probe_liveness(cx.now);
            }
        }
    }
}

impl Conn {
    /// Runs the data-level timer exactly while something is outstanding.
    pub(crate) fn arm_data_timer(&mut self, now: Instant) {
        let outstanding = self.data_outstanding();
        let idle = || !self.subflows.paths_for_data().any(|sf| sf.tcp.awaits_ack());
        let subflow_acked_only = outstanding == Outstanding::Data && idle();
        if self.data_timer.follow(outstanding) {
            let rto = match subflow_acked_only {
                true => self.subflows.subflow_acked_data_rto(&self.send),
                false => self.subflows.awaited_data_rto(),
            };
            self.data_timer.start(now, rto);
        } else if subflow_acked_only {
            self.data_timer
                .start_at_latest(now, self.subflows.subflow_acked_data_rto(&self.send));
        }
    }

    /// The earliest deadline of any timer.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut soonest = Soonest::default();
        soonest.consider(self.data_timer.deadline());
        let announcing = self.paths.announcements.deadline();
        soonest.consider(announcing.filter(|_| self.may_announce()));
        soonest.consider(self.paths.manager.as_ref().and_then(pm::Manager::deadline));
        soonest.consider(self.paths.controller.deadline());
        soonest.consider(self.life.orphan_until);
        soonest.consider(self.life.lonely_until);
        soonest.consider(self.limits.memory_check);
        soonest.consider(self.handshake.proof_until);
        soonest.consider(self.subflows.admission.deadline());
        soonest.consider(self.life.fast_close.map(|wait| wait.deadline()));
        soonest.consider(
            self.fallback
                .checksum_failure
                .map(|checksum_failure| checksum_failure.deadline()),
        );
        for sf in &self.subflows {
            soonest.consider(sf.unmapped.held.as_ref().map(|held| held.deadline()));
            soonest.consider(sf.tcp.deadline());
            soonest.consider(sf.liveness.probe_until);
            soonest.consider(sf.handshake.option_retry_at);
            soonest.consider(sf.handshake.plain_probe.deadline());
            soonest.consider(sf.closing.fin_waits);
            soonest.consider(sf.evidence.acked_by.deadline());
            soonest.consider(sf.liveness.receiver_probe.deadline());
            soonest.consider(sf.signals.deadline());
            if let HandshakeState::JoinAck { repeat_at, .. } = sf.handshake.state {
                soonest.consider(Some(repeat_at));
            }
        }
        soonest.get()
    }

    /// Handles expired timers.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        for i in self.subflows.indices() {
            if self.subflows[i]
                .tcp
                .deadline()
                .is_some_and(|at| at <= cx.now)
            {
                self.on_subflow_timeout(i, cx);
            }
        }
        for sf in &mut self.subflows.list {
            if sf.signals.deadline().is_some_and(|at| at <= cx.now) {
                sf.signals.on_advance();
            }
            self.subflows.dirty |= sf.closing.fin_waits.take_if(|at| *at <= cx.now).is_some();
        }
        self.proof_due(cx);
        self.handshake
            .option_retry_due(&mut self.subflows, self.level, cx);
        self.plain_probes_due(cx);
        self.subflows.repeat_proofs(&mut self.send, self.level, cx);
        self.subflows.probes_due(&mut self.send, self.level, cx);
        self.subflows.admission_due(cx);
        self.receiver_probes_due(cx);
        self.fast_close_due(cx);
        self.mp_fail_due(cx);
        self.unmapped_due(cx);
        self.pep_due(cx);
        if self.data_timer.is_due(cx.now) {
            // Data may have been sent on a slower path since it was started. The RTOs are taken without back-off, which would
            // postpone it for as long as a path is unresponsive.
            let slowest = self.subflows.slowest_on_the_way(Machine::base_rto);
            let rto = slowest.map_or(Duration::ZERO, |rto| data_rto(Some(rto)));
            if self.data_timer.fire(cx.now, rto) {
                self.on_data_timeout(cx);
            }
        }
        if self.limits.memory_check.is_some_and(|at| at <= cx.now) {
            self.limits.memory_check = None;
            self.send.release_idle();
            self.recv.release_idle();
        }
        if self.life.lonely_until.is_some_and(|until| until <= cx.now) {
            self.life.lonely_until = None;
            self.finish(CloseCause::NoSubflow, cx);
            // Joins that are under way come too late.
            for i in self.subflows.indices() {
                self.subflows.reset_subflow(
                    &mut self.send,
                    self.level,
                    i,
                    SubflowEnd::ConnectionClosed,
                    None,
                    cx,
                );
            }
        }
        self.linger_due(cx);
    }

    fn on_subflow_timeout(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let outcome = self.subflows[i].tcp.on_timeout(cx.now);
        if outcome.late {
            self.subflows
                .reinjects_last_segment(&self.opts, &mut self.send, self.level, i, cx);
        }
        if outcome.silent {
            self.subflows
                .becomes_potentially_failed(&mut self.send, self.level, i, cx);
        }
        if outcome.rto_fired {
            cx.count.rto += 1;
            self.subflows
                .becomes_stale(&mut self.send, self.level, i, cx);
            self.proof_overdue(i, cx);
            self.subflows.on_handshake_timeout(i, cx);
            // Where nothing was ever acknowledged, the path may drop data with options, which a join does not change.
            let worked = self.send.una() > self.numbers.tx_start;
            if worked && outcome.backoffs >= REPLACED_AFTER {
                self.wants_replacement(i, cx);
            }
            self.sends_plain_probe(i, cx);
            self.fallback
                .withheld_unanswered(&mut self.subflows, i, outcome.backoffs, cx);
            self.subflows.nat_expired(&mut self.send, self.level, i, cx);
            let sf = &self.subflows[i];
            let (subflow, tuple, rto) = (sf.id(), sf.endpoint.tuple, sf.tcp.rto());
            self.events.push(EventKind::Timeout {
                subflow,
                tuple,
                rto,
                backoffs: outcome.backoffs,
            });
        }
        if let Some(cause) = outcome.dead {
            cx.count.subflow_timed_out += 1;
            let end = match cause {
                DeadCause::Timeout
                | DeadCause::KeepAlive
                | DeadCause::UserTimeout
                | DeadCause::SynTimeout => SubflowEnd::TimedOut,
            };
            self.subflows[i].closing.end.get_or_insert(end);
        }
        self.subflows.refresh_sample(i);
    }

    /// Only the DATA_FIN is not acknowledged, which no data carries: where options do not pass without data, the FIN of the
    /// last subflow serves for it. Nothing would be sent after it. // rfc8684:F4,B13
    pub(in crate::conn) fn finish_with_data_fin(&mut self) {
        let all_there = self.send.una() == self.send.next() && !self.recv.has_holes();
        let alone = self.subflows.indices().find(|i| self.subflows.is_alone(*i));
        let last = alone.filter(|i| all_there && self.subflows[*i].carries_data());
        // While the peer's data arrives, the Data ACK may be queued behind it, and the peer would continue without this subflow
        // as soon as it has another.
        let last_payload = self
            .data_timer
            .began()
            .is_some_and(|began| self.subflows.watch.last_payload > began);
        let last = last.filter(|_| self.recv.finished() || !last_payload);
        // Where there were others, or may be for the peer by our MP_JOIN, it cannot take the FIN for the end of the stream. Nothing
        // could follow it: neither data, nor our answer if the peer falls back.
        let sent = self.send.end() > self.numbers.tx_start;
        let others = self.subflows.joined || self.subflows.is_proving();
        let last = last.filter(|_| !(others && sent) || self.data_timer.repeats_in_vain());
        // A peer that may lack our keys would take it for the end of a TCP connection.
        let known = |i: &SubflowIdx| {
            self.subflows[*i].evidence.data_was_acked || self.subflows[*i].evidence.data_came_mapped
        };
        if let Some(i) = last
            .filter(known)
            .filter(|_| self.fallback.checksum_failure.is_none())
        {
            self.subflows[i].closing.finish = true;
        }
    }

    /// The peer responds and lacks only the DATA_FIN, which was sent for two time-outs. Each subflow on which it responds ends
    /// by a FIN, which makes a peer act on a DATA_FIN that it recorded and did not act on, as Linux (6.18) may. The DATA_FIN is
    /// repeated by itself as well. // rfc8684:F2,F4
    fn finish_for_unanswered_fin(&mut self) {
        let last_payload = || {
            self.data_timer
                .began()
                .is_some_and(|at| self.subflows.watch.last_payload > at)
        };
        let due = self.send.lacks_fin_only() && self.send.fin_is_unanswered();
        let settled = self.fallback.checksum_failure.is_none()
            && !self.fallback.fallback_undecided(&self.subflows)
            && !self.subflows.is_proving();
        // The other direction continues while the peer's data arrives.
        let receiving = !self.recv.finished() && last_payload();
        if !due || !settled || receiving {
            return;
        }
        for i in self.subflows.indices() {
            // A peer that may lack our keys would take it for the end of a TCP connection.
            let known = self.subflows[i].evidence.data_was_acked
                || self.subflows[i].evidence.data_came_mapped;
            self.subflows[i].closing.finish |= (known || self.subflows.joined)
                && self.subflows.was_heard_meanwhile(&self.data_timer, i);
        }
    }

    /// A DATA_FIN sent by itself has no Data ACK: where there were other subflows, each is probed, so that the next time-out
    /// shows on which ones the peer responds. // rfc8684:F2
    fn probe_where_fin_is_unanswered(&mut self, now: Instant) {
        let others = self.subflows.joined && !self.fallback.fallback_undecided(&self.subflows);
        if others && self.send.end() > self.numbers.tx_start && self.send.lacks_fin_only() {
            self.subflows.ask_all(&self.data_timer, now);
        }
    }

    /// No Data ACK advanced for a data-level time-out. // rfc8684:R3
    fn on_data_timeout(&mut self, cx: &mut Cx<'_>) {
        cx.count.conn_rto += 1;
        self.send.note_fin_unanswered();
        if self.fall_back_without_data_acks(cx) {
            return;
        }
        // Where a middlebox joins segments and loses mappings, a single one gets through.
        let most = match self.data_timer.repeats() {
            true => u64::from(self.subflows.window_step() / 2),
            false => REPEATED_AT_ONCE,
        };
        self.send
            .repeat_missing(&mut self.data_timer, &self.subflows, most);
        if matches!(self.send.fin.state, FinState::Queued | FinState::Sent) && self.send.all_sent()
        {
            // A bare DATA_FIN is no subflow data, so a subflow cannot detect that its path is dead: it is sent on all.
            // rfc8684:F2
            let half_closed = |sf: &Subflow| {
                let sent = matches!(sf.tcp.state(), State::FinWait1 | State::FinWait2);
                sent && sf.closing.reset_with.is_none()
            };
            let told = |sf: &&mut Subflow| sf.carries_data() || half_closed(sf);
            for sf in self.subflows.iter_mut().filter(told) {
                sf.tcp.force_ack();
            }
            self.probe_where_fin_is_unanswered(cx.now);
            self.subflows.give_up_unanswered_fin(
                &self.opts,
                &mut self.send,
                &self.data_timer,
                self.level,
                cx,
            );
            self.finish_for_unanswered_fin();
            self.finish_with_data_fin();
        } else if self.data_outstanding() == Outstanding::Window {
            self.subflows.ask_all(&self.data_timer, cx.now);
        }
    }
}
