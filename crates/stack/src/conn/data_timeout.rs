//! What follows from the data-level retransmission timer (RFC 8684 section 3.3.6): when it is started, and what is done when it expires.

use manypath_tcp::machine::{Machine, State};
use manypath_tcp::time::{Duration, Instant};

use crate::api::{ConnOptions, FallbackCause, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::data_rto::{DataTimer, Outstanding};
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::send::retransmit::REPEATED_AT_ONCE;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::probe::PATIENCE;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// How much longer than a time-out a peer with this stack may hold unmapped data.
const HELD_BY_PEER: Duration = Duration::from_millis(250);

/// How long a Data ACK may take where the subflow's time-out is `rto`. Pure.
pub(in crate::conn) fn data_rto(rto: Option<Duration>) -> Duration {
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
        data_rto(self.slowest_in_flight(Machine::rto).or_else(fastest))
    }

    /// How long they may take where the subflows have acknowledged everything. Slow paths do not count: nothing is in flight that
    /// the Data ACK could wait for. And beside another subflow a peer does not wait for a mapping for so long, nor does it delay the
    /// Data ACK of a DATA_FIN; TCP would retransmit a FIN as soon. (Where acknowledgements came without options, the longer time
    /// applies.)
    fn subflow_acked_data_rto(&self, send: &SendQueue) -> Duration {
        let rto = self.fastest_rto();
        let carrying = || self.iter().filter(|sf| sf.carries_data());
        let at_once = carrying().nth(1).is_some() || send.lacks_data_fin_only();
        let sure = at_once && !carrying().any(|sf| sf.evidence.option_loss.is_ongoing());
        rto.filter(|_| sure).unwrap_or(data_rto(rto))
    }

    fn fastest_rto(&self) -> Option<Duration> {
        self.paths_for_data().map(|sf| sf.tcp.rto()).min()
    }

    /// The longest time-out, by `rto`, of those subflows that wait for an acknowledgement.
    pub(in crate::conn) fn slowest_in_flight(
        &self,
        rto: impl Fn(&Machine) -> Duration,
    ) -> Option<Duration> {
        let on_the_way = self.paths_for_data().filter(|sf| sf.tcp.awaits_ack());
        on_the_way.map(|sf| rto(&sf.tcp)).max()
    }

    fn paths_for_data(&self) -> impl Iterator<Item = &Subflow> {
        let usable = |sf: &&Subflow| sf.carries_data() && !sf.is_stale();
        self.iter().filter(usable)
    }

    /// A segment arrived on a subflow that carries data since the data-level timer was started.
    fn was_received_meanwhile(&self, data_timer: &DataTimer, i: SubflowIdx) -> bool {
        let sf = &self[i];
        let since = sf.liveness.receiver_probe.last_received();
        sf.carries_data() && data_timer.began().is_some_and(|began| since > began)
    }

    /// All subflows advertise one window (RFC 8684 section 3.3.1). But the update that opened it may have been lost with its path, and
    /// a path with nothing outstanding may have died unnoticed: all are probed, for as long as it takes, and one that did not
    /// answer the last probe has to answer the next ones, or is replaced. One probe each: what was probed since the timer was started has
    /// had its own (RFC 9293 section 3.8.6.1).
    fn probe_all(&mut self, data_timer: &DataTimer, now: Instant) {
        let silent_too = !self.has_responsive();
        let again = data_timer.repeats();
        let began = data_timer.began().unwrap_or(now);
        let asked = |sf: &&mut Subflow| sf.carries_data() && (sf.is_active() || silent_too);
        for sf in self.iter_mut().filter(asked) {
            let receiver_probe = &mut sf.liveness.receiver_probe;
            if receiver_probe.was_sent_since(began) {
                continue;
            }
            match again && receiver_probe.last_received() < began {
                true => receiver_probe.probe_now(now),
                false => sf.tcp.probe_liveness(now),
            }
        }
    }

    /// Payload arrived on some subflow since the data-level timer was started.
    fn received_meanwhile(&self, data_timer: &DataTimer) -> bool {
        let began = data_timer.began();
        began.is_some_and(|began| self.watch.last_payload > began)
    }
}

impl Flight<'_> {
    /// A bare DATA_FIN is no subflow data, whose time-outs would end the subflow. A subflow on which nothing arrived for as long as
    /// data is retransmitted ends, as one with a TCP FIN does: its NAT binding may have expired for good. From half that time
    /// on it is probed, which a peer answers that the DATA_FIN's option does not reach.
    // rfc8684:F2; RFC 9293 section 3.8.3; RFC 5482
    fn give_up_unanswered_fin(
        &mut self,
        opts: &ConnOptions,
        data_timer: &DataTimer,
        cx: &mut Cx<'_>,
    ) {
        let Some(since) = data_timer.unanswered_since() else {
            return;
        };
        let patience = opts.user_timeout.unwrap_or(PATIENCE);
        for i in self.subflows.indices() {
            let sf = &mut self.subflows[i];
            let silent = cx
                .now
                .since(since.max(sf.liveness.receiver_probe.last_received()));
            if !(sf.carries_data() && self.send.lacks_data_fin_only()) {
                continue;
            }
            if silent >= patience {
                cx.count.subflow_timed_out += 1;
                self.reset_subflow(i, SubflowEnd::TimedOut, None, cx);
            } else if silent >= patience.over(2) {
                sf.tcp.probe_liveness(cx.now);
            }
        }
    }

    /// Only the DATA_FIN is not acknowledged, which no data carries: where options do not pass without data, the FIN of the
    /// last subflow serves for it. Nothing would be sent after it. // rfc8684:F4,B13
    pub(in crate::conn) fn finish_with_data_fin(
        &mut self,
        recv: &ReceiveQueue,
        numbers: &Numbers,
        data_timer: &DataTimer,
    ) {
        let subflows = &*self.subflows;
        let all_there = self.send.una() == self.send.next() && !recv.has_holes();
        let alone = subflows.indices().find(|i| subflows.is_alone(*i));
        let last = alone.filter(|i| all_there && subflows[*i].carries_data());
        // While the peer's data arrives, the Data ACK may be queued behind it, and the peer would continue without this subflow
        // as soon as it has another.
        let last = last.filter(|_| recv.finished() || !subflows.received_meanwhile(data_timer));
        // Where there were others, or may be for the peer by our MP_JOIN, it cannot take the FIN for the end of the stream. Nothing
        // could follow it: neither data, nor our answer if the peer falls back.
        let sent = self.send.end() > numbers.tx_start;
        let others = subflows.joined || subflows.has_pre_established();
        let last = last.filter(|_| !(others && sent) || data_timer.repeats_in_vain());
        // A peer that may lack our keys would take it for the end of a TCP connection.
        if let Some(i) = last.filter(|i| subflows[*i].peer_has_keys()) {
            self.subflows[i].closing.finish = true;
        }
    }

    /// The peer responds and lacks only the DATA_FIN, which was sent for two time-outs. Each subflow on which it responds ends
    /// by a FIN, which makes a peer act on a DATA_FIN that it recorded and did not act on, as Linux (6.18) may. The DATA_FIN is
    /// repeated by itself as well. // rfc8684:F2,F4
    fn finish_for_unanswered_fin(&mut self, recv: &ReceiveQueue, data_timer: &DataTimer) {
        let due = self.send.lacks_data_fin_only() && self.send.fin_is_unanswered();
        // The other direction continues while the peer's data arrives.
        let receiving = !recv.finished() && self.subflows.received_meanwhile(data_timer);
        if !due || receiving || self.subflows.has_pre_established() {
            return;
        }
        for i in self.subflows.indices() {
            // A peer that may lack our keys would take it for the end of a TCP connection.
            let known = self.subflows[i].peer_has_keys() || self.subflows.joined;
            self.subflows[i].closing.finish |=
                known && self.subflows.was_received_meanwhile(data_timer, i);
        }
    }

    /// A DATA_FIN sent by itself has no Data ACK: where there were other subflows, each is probed, so that the next time-out
    /// shows on which ones the peer responds. // rfc8684:F2
    fn probe_where_fin_is_unanswered(
        &mut self,
        numbers: &Numbers,
        data_timer: &DataTimer,
        now: Instant,
    ) {
        let sent = self.send.end() > numbers.tx_start;
        if self.subflows.joined && sent && self.send.lacks_data_fin_only() {
            self.subflows.probe_all(data_timer, now);
        }
    }
}

impl SendQueue {
    /// Until when what is outstanding may lack a Data ACK, on whichever subflows it was sent (RFC 5482). A peer that keeps its window
    /// closed answers, and the FIN of plain TCP is the subflow's.
    pub(in crate::conn) fn user_deadline(
        &self,
        data_timer: &DataTimer,
        limit: Duration,
    ) -> Option<Instant> {
        let since = data_timer.unanswered_since()?;
        (self.outstanding() == Outstanding::Data).then_some(since + limit)
    }
}

impl Conn {
    /// Runs the data-level timer exactly while something is outstanding.
    pub(crate) fn arm_data_timer(&mut self, now: Instant) {
        let outstanding = match self.life.awaits_data_acks(&self.handshake, self.level) {
            true => self.send.outstanding(),
            false => Outstanding::Nothing,
        };
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

    /// No Data ACK advanced for a data-level time-out. // rfc8684:R3
    pub(in crate::conn) fn on_data_timeout(&mut self, cx: &mut Cx<'_>) {
        cx.count.conn_rto += 1;
        self.send.note_fin_unanswered();
        let bare = self.subflows.lacks_data_acks(&self.send, cx.now);
        if let Some(i) = bare.filter(|_| self.level.is_multipath()) {
            self.options_stopped(i, FallbackCause::OptionsLost, cx);
            if !self.level.is_multipath() {
                return;
            }
        }
        // Where a middlebox joins segments and loses mappings, a single one gets through.
        let most = match self.data_timer.repeats() {
            true => u64::from(self.subflows.window_step() / 2),
            false => REPEATED_AT_ONCE,
        };
        self.send
            .retransmit_missing(&mut self.data_timer, &self.subflows, most);
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
            let failing = self.fallback.checksum_failure.is_some();
            let undecided = self.fallback.fallback_undecided(&self.subflows);
            let (recv, numbers, data_timer) = (&self.recv, &self.numbers, &self.data_timer);
            let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
            if !undecided {
                flight.probe_where_fin_is_unanswered(numbers, data_timer, cx.now);
            }
            flight.give_up_unanswered_fin(&self.opts, data_timer, cx);
            if !undecided {
                flight.finish_for_unanswered_fin(recv, data_timer);
            }
            if !failing {
                flight.finish_with_data_fin(recv, numbers, data_timer);
            }
        } else if self.life.awaits_data_acks(&self.handshake, self.level)
            && self.send.outstanding() == Outstanding::Window
        {
            self.subflows.probe_all(&self.data_timer, cx.now);
        }
    }
}
