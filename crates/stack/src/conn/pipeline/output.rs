//! Sends segments from the send queue (RFC 8684 section 3.3).
//!
//! A segment counts as sent only once it is in the device; `Machine::deadline` leaves out what `decide` would send now. The scheduler is queried when a
//! segment can leave, never earlier.

use manypath_tcp::machine::{Decision, Kind, Plan, State};
use manypath_wire::checksum::{self, Sum};
use manypath_wire::tcp::mptcp::MptcpOption;
use manypath_wire::tcp::options::MptcpOptions;

use crate::api::{Gather, Slots, SubflowEnd};
use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::dss::mapping::TxMapping;
use crate::conn::dss::offset::Offset;
use crate::conn::handshake::Handshake;
use crate::conn::level::Level;
use crate::conn::pipeline::packet;
use crate::conn::pull::path_view::Schedule;
use crate::conn::pull::reprobe::LOOK;
use crate::conn::pull::source::{Progress, Source};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::ids::SubflowId;
use crate::sched::{Choice, Purpose};

/// Payload bytes below which a copy costs less than another piece to gather.
const WORTH_LENDING: u32 = 8192;

/// A planned segment on its way into a device.
struct Parcel {
    /// Position of the subflow.
    i: SubflowIdx,
    plan: Plan,
    /// Where its payload starts.
    at: Offset,
    mapping: Option<TxMapping>,
    /// The mapping is new and needs its checksum.
    seals: bool,
}

impl Subflows {
    /// The payload of a segment: the smallest change of window worth advertising.
    pub(in crate::conn) fn window_step(&self) -> u32 {
        self.first().map_or(1, |sf| sf.tcp.mss())
    }

    fn fetch(&self, send: &SendQueue, i: SubflowIdx, at: Offset, out: &mut [u8], sum: bool) -> Sum {
        if out.is_empty() {
            return Sum::ZERO;
        }
        if send.holds(at) {
            return send.payload(at, out, sum);
        }
        if let ([only], Some(last)) = (&mut *out, send.last_byte(at)) {
            *only = last;
            return Sum::of(out);
        }
        let kept = self[i].maps.retained_payload(at, out);
        debug_assert!(
            kept.is_some(),
            "payload was freed while a subflow still carries it"
        );
        kept.unwrap_or(Sum::ZERO)
    }

    /// Lets the device gather large payload from the send queue itself, where it can.
    fn lend(
        &self,
        numbers: &Numbers,
        send: &SendQueue,
        parcel: &mut Parcel,
        draft: &mut packet::Draft,
        slots: &mut dyn Slots,
    ) -> Gather {
        let iface = self[parcel.i].endpoint.iface;
        let len = parcel.plan.len;
        if len < WORTH_LENDING
            || draft.needs_sum()
            || !send.holds(parcel.at)
            || !slots.gathers(iface)
        {
            return Gather::Declined;
        }
        let (payload, sum) = send.lent(parcel.at, len as usize, parcel.seals);
        numbers.seal(parcel, draft, sum);
        let mut buffer = [0; packet::MOST_HEADERS];
        let headers = &mut buffer[..draft.header_len()];
        let meta = draft.finish(headers, sum);
        slots.gather(iface, meta, headers, payload)
    }

    /// Lets every subflow advertise what the connection can take. // rfc8684:W2
    pub(crate) fn advertise_window(
        &mut self,
        handshake: &Handshake,
        recv: &ReceiveQueue,
        level: Level,
    ) {
        let step = self.window_step();
        let window = recv.window(step);
        if !level.is_multipath() {
            for sf in self.iter_mut() {
                sf.tcp.set_recv_window(recv.room());
            }
            return;
        }
        // An initiator has data to send, or wants none of ours yet. An option that arrives there before the ACK of its first data would
        // hide that the path removes options from data: Linux, for one, then goes on with mappings that we never see, and retransmits
        // within the stream what is never acknowledged.
        if self.awaits_first_data(handshake, level) {
            for sf in self.iter_mut() {
                sf.tcp.unnoticed().note_recv_window(window);
            }
            return;
        }
        for sf in self.iter_mut() {
            sf.tcp.unnoticed().share_recv_window(window);
        }
        if recv.update_due(step) && handshake.is_established() {
            if let Some(i) = self.best_subflow() {
                self[i].tcp.force_ack();
            }
        }
    }

    /// The peer initiated, and only its keys have arrived.
    fn awaits_first_data(&self, handshake: &Handshake, level: Level) -> bool {
        let first = self.first();
        first.is_some_and(|sf| match sf.handshake.state {
            HandshakeState::CapableKeys => true,
            HandshakeState::Done => handshake.has_not_answered_initiator(self, level),
            _ => false,
        })
    }

    /// The application closed and these bytes are the last ones: the DATA_FIN is in their mapping, which gets it through where options pass
    /// only with data. But not where they may arrive twice: Linux (6.18) notes a DATA_FIN on data that it has already, does not act on it,
    /// and ignores each later one. // rfc8684:F1
    fn mapping_takes_data_fin(
        &self,
        numbers: &Numbers,
        send: &SendQueue,
        level: Level,
        i: SubflowIdx,
        at: Offset,
        len: u32,
    ) -> bool {
        let others = self.indices().filter(|j| *j != i);
        let mut others = others.map(|j| &self[j]);
        level.is_multipath()
            && send.fin.state == FinState::Queued
            && at + u64::from(len) == send.end()
            && at > numbers.tx_start
            && !others.any(|other| other.carries_data() && other.is_active())
    }

    /// Writes headers and payload into a slot of the device. False: no slot.
    #[inline]
    fn put(
        &self,
        numbers: &Numbers,
        send: &SendQueue,
        parcel: &mut Parcel,
        draft: &mut packet::Draft,
        slots: &mut dyn Slots,
    ) -> bool {
        let iface = self[parcel.i].endpoint.iface;
        let Some(buffer) = slots.slot(iface, draft.room()) else {
            return false;
        };
        let want_sum = draft.needs_sum() || parcel.seals;
        let payload = draft.payload(buffer);
        let sum = self.fetch(send, parcel.i, parcel.at, payload, want_sum);
        numbers.seal(parcel, draft, sum);
        let meta = draft.finish(buffer, sum);
        slots.commit(iface, meta);
        true
    }

    /// The subflow that has to send a window probe: its window has been closed for long, and the update that opens it may have been lost
    /// (RFC 9293 section 3.8.6.1).
    pub(in crate::conn) fn window_probe_due(&self) -> Option<SubflowId> {
        let due = |sf: &&Subflow| sf.carries_data() && sf.tcp.window_probe_due();
        self.iter().find(due).map(Subflow::id)
    }
}

impl SendQueue {
    /// A mapping as retransmitted. Where its data may be old to the peer's connection, the DATA_FIN is sent separately: see `mapping_takes_data_fin`.
    fn as_repeated(&self, m: TxMapping) -> TxMapping {
        let old = m.fin && self.may_be_old(m.at + u64::from(m.len));
        match old {
            true => m.without_fin(),
            false => m,
        }
    }

    fn data_fin_sent(&mut self, cx: &mut Cx<'_>) {
        self.note_fin_sent(cx.now);
        cx.count.data_fin_sent += 1;
    }
}

impl Numbers {
    /// Fills in the checksum of a new mapping. One pass over the bytes serves both checksums. // rfc8684:D9
    fn seal(&self, parcel: &mut Parcel, draft: &mut packet::Draft, sum: Sum) {
        let (true, Some(m), Some(numbers)) = (parcel.seals, &mut parcel.mapping, self.tx) else {
            return;
        };
        let checksum = checksum::dss(numbers.dsn(m.at), m.ssn, m.wire_len(), sum);
        m.checksum = Some(checksum);
        draft.set_checksum(checksum);
    }
}

impl Schedule {
    /// What was sent in this poll may allow more to be sent.
    pub(crate) fn moved_in_turn(&self) -> bool {
        self.moved()
    }
}

impl Conn {
    /// Starts a poll: some packets may be written now.
    pub(crate) fn begin_poll(&mut self) {
        self.schedule.begin_poll();
        self.subflows
            .advertise_window(&self.handshake, &self.recv, self.level);
    }

    /// Writes at most one packet. [`begin_poll`](Self::begin_poll) was called since anything arrived or was read.
    pub(crate) fn transmit(&mut self, slots: &mut dyn Slots, cx: &mut Cx<'_>) -> Progress {
        let mut outcome = match self.transmit_data_somewhere(slots, cx) {
            Progress::Sent => return Progress::Sent,
            other => other,
        };
        // Those before have nothing to send, or have sent it.
        for i in self.subflows.indices_from(self.schedule.said()) {
            if !self.subflows[i].tcp.needs_send(cx.now)
                && !self.subflows[i].signal_ready()
                && !self.offers().fin_ready(i)
            {
                continue;
            }
            match self.transmit_control(i, slots, cx) {
                Progress::Sent => {
                    self.schedule.note_control_sent(i);
                    return Progress::Sent;
                }
                Progress::Nothing => {}
                blocked @ Progress::Blocked(_) => outcome = blocked,
            }
        }
        outcome
    }

    /// A full device blocks only its own paths: what it does not take, the scheduler may give to another one.
    fn transmit_data_somewhere(&mut self, slots: &mut dyn Slots, cx: &mut Cx<'_>) -> Progress {
        loop {
            match self.transmit_data(slots, cx) {
                Progress::Sent => return Progress::Sent,
                // A device found full in this poll is not tried again, and still blocks something.
                Progress::Nothing => {
                    let full = self.schedule.no_room.device();
                    return full.map_or(Progress::Nothing, Progress::Blocked);
                }
                Progress::Blocked(device) => {
                    let is_news = match slots.holds_one() {
                        true => self.schedule.no_room.note_held(device),
                        false => self.schedule.no_room.note_full(device),
                    };
                    if !is_news {
                        return Progress::Blocked(device);
                    }
                }
            }
        }
    }

    fn transmit_data(&mut self, slots: &mut dyn Slots, cx: &mut Cx<'_>) -> Progress {
        if self
            .fallback
            .checksum_failure
            .is_some_and(|checksum_failure| checksum_failure.is_answered())
        {
            return Progress::Nothing;
        }
        self.send.note_schedule(&mut self.schedule);
        if self.schedule.reprobe_search_due(cx.now, LOOK) {
            let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
            if let Some(copy) = self.schedule.next_reprobe(flight, &self.opts, cx) {
                let source = Source::Duplicated(copy.at);
                if self.send_on(copy.on, copy.bytes, source, slots, cx) == Progress::Sent {
                    return Progress::Sent;
                }
            }
        }
        let reinjection = self
            .send
            .reinjection(|avoid| self.subflows.can_reinject(avoid));
        let (bytes, purpose, source) = match reinjection {
            Some(r) => {
                let purpose = Purpose::Reinjection(self.subflows.excluded_for(r.avoid));
                (r.to - r.from, purpose, Source::Reinjected(r.from))
            }
            None => {
                let source = Source::New(self.send.next());
                (
                    self.subflows.sendable(&self.opts, &self.send),
                    Purpose::Fresh,
                    source,
                )
            }
        };
        if bytes == 0 {
            return match self.opportunistic_retransmission(slots, cx) {
                Progress::Nothing => match self.next_duplicate(cx) {
                    Some(copy) => {
                        let source = Source::Duplicated(copy.at);
                        self.send_on(copy.on, copy.bytes, source, slots, cx)
                    }
                    None => Progress::Nothing,
                },
                sent @ (Progress::Sent | Progress::Blocked(_)) => sent,
            };
        }
        self.look(bytes, reinjection.as_ref(), cx);
        let sent = match self
            .schedule
            .choose(&self.send, &self.opts, bytes, purpose, cx)
        {
            Choice::Send(id) => self.send_on(id, bytes, source, slots, cx),
            // A reinjection that no subflow can take must not hold back new data.
            Choice::Wait
                if reinjection.is_some() && self.subflows.sendable(&self.opts, &self.send) > 0 =>
            {
                let (at, bytes) = (
                    self.send.next(),
                    self.subflows.sendable(&self.opts, &self.send),
                );
                match self
                    .schedule
                    .choose(&self.send, &self.opts, bytes, Purpose::Fresh, cx)
                {
                    Choice::Send(id) => self.send_on(id, bytes, Source::New(at), slots, cx),
                    Choice::Wait => Progress::Nothing,
                }
            }
            Choice::Wait => Progress::Nothing,
        };
        match sent {
            Progress::Nothing => match self.opportunistic_retransmission(slots, cx) {
                // Nothing was sent: no room, or held back by the scheduler.
                Progress::Nothing => match self.offers().probe_due() {
                    Some(id) => self.send_on(id, bytes, source, slots, cx),
                    None => Progress::Nothing,
                },
                sent @ (Progress::Sent | Progress::Blocked(_)) => sent,
            },
            sent @ (Progress::Sent | Progress::Blocked(_)) => sent,
        }
    }

    pub(in crate::conn) fn send_on(
        &mut self,
        id: SubflowId,
        bytes: u64,
        source: Source,
        slots: &mut dyn Slots,
        cx: &mut Cx<'_>,
    ) -> Progress {
        let Some(i) = self.subflows.find(id) else {
            return Progress::Nothing;
        };
        let reinjected = matches!(source, Source::Reinjected(_) | Source::Duplicated(_));
        let offer = self.offers().offer(i, bytes, reinjected);
        match self.subflows[i].tcp.decide(cx.now, &offer) {
            Decision::Send(plan) => self.emit(i, plan, source, slots, cx),
            Decision::Idle => Progress::Nothing,
        }
    }

    fn transmit_control(
        &mut self,
        i: SubflowIdx,
        slots: &mut dyn Slots,
        cx: &mut Cx<'_>,
    ) -> Progress {
        if self.subflows[i].signal_ready() {
            self.subflows[i].tcp.force_ack();
        }
        let offer = self
            .offers()
            .offer(i, self.subflows.early_bytes(&self.send, i), true);
        match self.subflows[i].tcp.decide(cx.now, &offer) {
            Decision::Send(plan) => self.emit(i, plan, Source::Early, slots, cx),
            Decision::Idle => Progress::Nothing,
        }
    }

    fn emit(
        &mut self,
        i: SubflowIdx,
        plan: Plan,
        offered: Source,
        slots: &mut dyn Slots,
        cx: &mut Cx<'_>,
    ) -> Progress {
        let Some((mut plan, source)) = self.offers().settle(i, plan, offered) else {
            // The flight and the mappings disagree: an internal error, and this subflow cannot be repaired.
            debug_assert!(false, "payload in flight without a mapping");
            self.flight().reset_subflow(
                i,
                SubflowEnd::ProtocolError,
                crate::conn::dss::reset_reason::mptcp_specific(),
                cx,
            );
            return Progress::Nothing;
        };
        let sums = self.numbers.checksum && self.level.is_multipath();
        let (mapping, at) = match source {
            Source::New(at) | Source::Reinjected(at) | Source::Duplicated(at) => {
                let new = matches!(source, Source::New(_));
                let fin = new
                    && self.subflows.mapping_takes_data_fin(
                        &self.numbers,
                        &self.send,
                        self.level,
                        i,
                        at,
                        plan.len,
                    );
                let checksum = sums.then_some(0);
                (
                    Some(TxMapping {
                        ssn: plan.ssn,
                        at,
                        len: plan.len as u16,
                        checksum,
                        fin,
                    }),
                    at,
                )
            }
            Source::Mapped(m) => {
                let at = m.at + u64::from(plan.ssn.since(m.ssn));
                (Some(self.send.as_repeated(m)), at)
            }
            Source::FinalByte(at) => (None, at),
            Source::Early | Source::Empty => (None, Offset::ZERO),
        };
        // PSH keeps what follows from being merged with the end of a mapping: of two mappings only one would be left, and Linux takes all
        // of such a segment for data of that one. Linux pushes the end of each burst as well.
        let ends = |m: &TxMapping| plan.ssn + plan.len == m.end();
        plan.push |= self.level.is_multipath() && mapping.as_ref().is_some_and(ends);
        let sf = &self.subflows[i];
        let mut draft = packet::Draft::new(sf, &plan);
        draft.compose(sf, &plan, cx.now, |list| {
            self.options_for(i, &plan, mapping.as_ref(), list);
        });
        let fresh = matches!(
            source,
            Source::New(_) | Source::Reinjected(_) | Source::Duplicated(_)
        );
        let tuple = sf.endpoint.tuple;
        slots.lead(tuple.local.ip(), tuple.remote.ip());
        let mut parcel = Parcel {
            i,
            plan,
            at,
            mapping,
            seals: fresh && sums,
        };
        let subflows = &self.subflows;
        let taken = match subflows.lend(&self.numbers, &self.send, &mut parcel, &mut draft, slots) {
            Gather::Taken => true,
            Gather::Full => false,
            Gather::Declined => {
                subflows.put(&self.numbers, &self.send, &mut parcel, &mut draft, slots)
            }
        };
        if !taken {
            self.schedule.no_room.note_refused(sf.id());
            return Progress::Blocked(sf.endpoint.iface);
        }
        self.record(i, &plan, source, parcel.mapping, draft.options(), cx);
        Progress::Sent
    }

    /// Counts the packet as sent, now that it is in the device, and not before.
    fn record(
        &mut self,
        i: SubflowIdx,
        plan: &Plan,
        source: Source,
        mapping: Option<TxMapping>,
        gone: &MptcpOptions,
        cx: &mut Cx<'_>,
    ) {
        let window = self.recv.window(self.subflows.window_step());
        self.recv.advertised(window);
        let sf = &mut self.subflows[i];
        sf.tcp.sent(cx.now, plan);
        cx.count.packets_out += 1;
        cx.count.bytes_out += u64::from(plan.len);
        match source {
            Source::New(_) => {
                sf.stats.bytes_sent += u64::from(plan.len);
                self.schedule.sent_on(sf.id());
                self.send.sent(plan.len);
            }
            Source::Reinjected(from) => {
                sf.stats.bytes_reinjected += u64::from(plan.len);
                cx.count.reinjected_bytes += u64::from(plan.len);
                self.send.reinjected(from, plan.len);
            }
            Source::Duplicated(from) => {
                cx.count.copied_bytes += u64::from(plan.len);
                let range = from..from + u64::from(plan.len);
                self.send.note_repeated(range.end);
                sf.maps.duplicates.sent(&range, plan.ssn + plan.len);
            }
            Source::Mapped(m) => {
                cx.count.retransmitted += 1;
                let end = m.at + u64::from((plan.ssn + plan.len).since(m.ssn));
                self.send.note_retransmitted(end, cx.now, sf.round_trip());
            }
            Source::Early => cx.count.fast_open_sent += 1,
            Source::FinalByte(_) => {
                cx.count.retransmitted += 1;
                // The FIN waited for the final byte.
                (self.fallback.final_byte_sent, sf.closing.finish) = (true, true);
            }
            Source::Empty => {}
        }
        if let (Source::New(_) | Source::Reinjected(_) | Source::Duplicated(_), Some(m)) =
            (source, mapping)
        {
            sf.maps.tx.push(m);
            sf.evidence.first_end.get_or_insert(m.at + u64::from(m.len));
            if self.level.infinite_due() {
                self.level.infinite_sent();
                self.fallback.announce.carried_by = Some(m.ssn);
                self.fallback.announce.without_data = false;
            }
        }
        match plan.kind {
            Kind::TailProbe => {
                cx.count.tail_probe += 1;
                self.subflows[i].signals.on_advance();
            }
            Kind::Ack => {
                self.subflows.signals_sent(i, gone, cx);
                if self.life.fast_close.is_some() {
                    // Nothing else is sent on a connection that is over: a pending signal would have it sent for ever.
                    self.subflows[i].signals.queue.clear();
                }
                self.subflows[i].handshake.capable_next ^= true;
                self.subflows[i].handshake.plain = false;
            }
            // A segment that takes numbers is no duplicate ACK, and ends a row of them. // rfc8684:G2
            _ if plan.len > 0 || plan.fin => self.subflows[i].signals.on_advance(),
            _ => {}
        }
        let acknowledges = |option: &MptcpOption| match option {
            MptcpOption::Dss(dss) => dss.mapping.is_none(),
            _ => false,
        };
        // The last ACK of a subflow is its end.
        let is_open = self.subflows[i].tcp.state() == State::Established;
        if plan.kind != Kind::Ack || !is_open || !gone.iter().all(acknowledges) {
            let new_data = matches!(source, Source::New(_)) && !plan.fin && is_open;
            let ends = gone.dss().is_some_and(|dss| dss.data_fin);
            self.schedule.note_moved(!new_data || ends);
        }
        self.handshake.dss_sent |= gone.dss().is_some();
        if gone.dss().is_some_and(|dss| dss.data_ack.is_some()) {
            self.fallback.recent_acks.note(self.recv.data_ack());
        }
        let mapping = gone.dss().and_then(|dss| dss.mapping);
        self.fallback.announce.infinite_sent |=
            mapping.is_some_and(|mapping| mapping.is_infinite());
        // After fallback only the FIN counts.
        let data_fin = gone.dss().is_some_and(|dss| dss.data_fin);
        if data_fin && self.level.is_multipath() {
            self.send.data_fin_sent(cx);
        }
        self.subflows.refresh_sample_if_coupled(&self.opts, i);
    }
}

#[cfg(test)]
mod tests;
