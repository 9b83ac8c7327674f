//! Close of a connection and of its subflows (RFC 8684 sections 3.3.3, 3.5 and 3.6, appendix D). Owns DATA_FIN, MP_FASTCLOSE and
//! orphans. Must never let the peer's reader take an abort for the end of the stream.

use manypath_tcp::machine::State;
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::Key;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::mptcp::{MptcpOption, Reset, ResetReason};

use crate::api::{CloseCause, ConnState, EventKind, StackError, SubflowEnd, SubflowPhase};
use crate::conn::Conn;
use crate::conn::dss::reset_reason::lack_of_resources;
use crate::conn::events::Events;
use crate::conn::handshake::Handshake;
use crate::conn::handshake::mp_capable::Proof;
use crate::conn::level::Level;
use crate::conn::life::{FastCloseWait, Life};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::send::data_rto::{DataTimer, Outstanding};
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};
use crate::crypto::mac;
use crate::ids::SubflowId;
use crate::pm;

/// How often an unanswered MP_FASTCLOSE is repeated. // rfc8684:Z5
const FAST_CLOSE_REPEATS: u8 = 3;
/// Bytes after which a subflow counts as useful: what the first windows hold.
const USEFUL: u64 = 32 * 1024;
/// How long a connection released by the application may go without progress before it is aborted: as long as Linux keeps an orphan in
/// FIN-WAIT-2 (`tcp_fin_timeout`).
const ORPHAN: Duration = Duration::from_secs(60);

/// How much was delivered on a subflow, either way. Pure.
fn carried(sf: &Subflow) -> pm::Carried {
    if sf.stats.bytes_sent.max(sf.stats.bytes_received) >= USEFUL {
        pm::Carried::Much
    } else if sf.evidence.data_was_acked || sf.evidence.data_came_mapped {
        pm::Carried::Something
    } else {
        pm::Carried::Nothing
    }
}

impl SendQueue {
    fn watch_orphan(&mut self, life: &mut Life, now: Instant) {
        life.orphan_until = Some(now + ORPHAN);
        life.acked_at_release = self.una();
    }

    /// Everything has its Data ACK, our DATA_FIN included if there is one. Where the peer's stream has
    /// ended and ours has not, more may be written: a peer that fell back waits for it on its only subflow.
    fn owes_nothing(&self, recv: &ReceiveQueue) -> bool {
        match self.fin.state {
            FinState::Acked => true,
            FinState::Open => self.queued() == 0 && !recv.finished(),
            FinState::Queued | FinState::Sent => false,
        }
    }

    /// What is outstanding at data level.
    pub(in crate::conn) fn outstanding(&self) -> Outstanding {
        let fin = match self.fin.state {
            FinState::Sent => true,
            FinState::Queued => self.all_sent(),
            FinState::Open | FinState::Acked => false,
        };
        if self.una() < self.next() || fin {
            Outstanding::Data
        } else if self.blocked_by_window() {
            Outstanding::Window
        } else {
            Outstanding::Nothing
        }
    }
}

impl Life {
    /// Data ACKs are exchanged: at this level, and until it is closed.
    pub(in crate::conn) fn awaits_data_acks(&self, handshake: &Handshake, level: Level) -> bool {
        level.is_multipath() && self.closed.is_none() && handshake.is_established()
    }
}

impl Subflows {
    /// From here on every acknowledgement carries the option until the peer answers with a RST.
    fn send_fast_close(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        cx.count.fastclose_sent += 1;
        let sf = &mut self[i];
        sf.signals.queue.clear();
        sf.tcp.force_ack();
    }

    /// TIME-WAIT is kept by the stack, once the last acknowledgement is sent and the peer has answered where the last held data
    /// belongs.
    fn is_closed(&self, i: SubflowIdx, now: Instant) -> bool {
        let sf = &self[i];
        match sf.tcp.state() {
            State::Closed => true,
            State::TimeWait => !sf.tcp.needs_send(now) && !sf.awaits_its_place(),
            _ => false,
        }
    }

    pub(in crate::conn) fn has_closed(&self, now: Instant) -> bool {
        self.indices().any(|i| self.is_closed(i, now))
    }

    /// The subflow on which a signal reaches the peer soonest.
    pub(crate) fn best_subflow(&self) -> Option<SubflowIdx> {
        let usable = |i: &SubflowIdx| self[*i].carries_data();
        self.indices()
            .filter(usable)
            .min_by_key(|&i| (!self[i].is_active(), self[i].tcp.srtt()))
    }

    /// Another subflow carries data.
    pub(in crate::conn) fn has_other(&self, i: SubflowIdx) -> bool {
        self.indices().any(|j| j != i && self[j].carries_data())
    }

    /// The peer has the end of our stream: it acknowledged the DATA_FIN or, where there is none, the FIN.
    pub(crate) fn end_is_acked(&self, send: &SendQueue, level: Level) -> bool {
        let fin_acked = |sf: &Subflow| matches!(sf.tcp.state(), State::FinWait2 | State::TimeWait);
        let plain = !level.is_multipath() && send.fin.state != FinState::Open;
        send.fin.state == FinState::Acked || plain && self.iter().any(fin_acked)
    }
}

/// What the end of a connection concerns: its streams, its subflows, and what is reported of it.
pub(crate) struct Ending<'a> {
    flight: Flight<'a>,
    recv: &'a mut ReceiveQueue,
    handshake: &'a Handshake,
    life: &'a mut Life,
    data_timer: &'a mut DataTimer,
    events: &'a mut Events,
}

impl Ending<'_> {
    /// The application will write no more.
    pub(crate) fn shutdown_write(&mut self) {
        if self.flight.send.fin.state == FinState::Open {
            self.flight.send.fin.state = FinState::Queued;
            self.life.closed_second = self.recv.finished();
        }
    }

    /// The application closes: unread data is lost, written data is still delivered. An attempt to connect without an answer
    /// so far ends, whatever was written (RFC 9293 section 3.10.4, SYN-SENT).
    pub(crate) fn release(&mut self, cx: &mut Cx<'_>) {
        self.shutdown_write();
        self.skip_unread(cx.now);
        if self.is_connecting() {
            self.stop_connecting(cx);
        }
    }

    /// The application closes by an abort: its stream has no end that the peer could take for one.
    pub(crate) fn release_and_abort(&mut self, cx: &mut Cx<'_>) {
        self.skip_unread(cx.now);
        self.abort(cx);
    }

    pub(in crate::conn) fn skip_unread(&mut self, now: Instant) {
        self.life.released = true;
        self.flight.send.watch_orphan(self.life, now);
        self.life.bytes_at_release = self.recv.next();
        self.recv.skip();
    }

    /// Our SYN has not been answered.
    fn is_connecting(&self) -> bool {
        let unanswered = |sf: &Subflow| sf.tcp.state() == State::SynSent;
        self.life.closed.is_none()
            && !self.handshake.is_established()
            && self.flight.subflows.iter().all(unanswered)
    }

    /// Nothing is sent: the peer knows of no connection, and an answer that comes late gets a RST.
    fn stop_connecting(&mut self, cx: &mut Cx<'_>) {
        cx.count.conn_aborted += 1;
        for sf in self.flight.subflows.iter_mut() {
            sf.closing.end.get_or_insert(SubflowEnd::ConnectionClosed);
            sf.tcp.forget();
        }
        self.flight.send.clear();
        self.recv.clear();
        self.finish(CloseCause::Aborted, cx);
    }

    /// The application aborts. // rfc8684:Z1,Z2
    pub(crate) fn abort(&mut self, cx: &mut Cx<'_>) {
        if self.life.closed.is_some() {
            return;
        }
        cx.count.conn_aborted += 1;
        let option = self
            .handshake
            .keys
            .fast_close_option()
            .filter(|_| self.flight.level.is_multipath() && self.handshake.is_established());
        let handshake_is_complete = |i: &SubflowIdx| {
            matches!(
                self.flight.subflows[*i].handshake.state,
                HandshakeState::Done | HandshakeState::CapableKeys
            )
        };
        let chosen = option
            .and_then(|_| self.flight.subflows.best_subflow())
            .filter(handshake_is_complete);
        let unspecified = MptcpOption::Reset(Reset {
            transient: false,
            reason: ResetReason::Unspecified,
        });
        let why = option.or(Some(unspecified).filter(|_| self.flight.level.is_multipath()));
        for i in self.flight.subflows.indices() {
            if Some(i) != chosen {
                self.flight
                    .reset_subflow(i, SubflowEnd::ConnectionClosed, why, cx);
            }
        }
        if chosen.is_some() {
            self.flight.send.cut();
        } else {
            self.flight.send.clear();
        }
        self.flight.send.withdraw_fin();
        self.recv.clear();
        match (chosen, option) {
            (Some(i), Some(_)) => {
                let rto = self.flight.subflows[i].tcp.rto();
                self.life.fast_close = Some(FastCloseWait {
                    at: cx.now + rto,
                    repeats: 0,
                });
                self.flight.subflows.send_fast_close(i, cx);
                self.finish(CloseCause::Aborted, cx);
            }
            _ => self.finish(CloseCause::Aborted, cx),
        }
    }

    /// No RST came: repeats the option, and in the end sends a RST with it. // rfc8684:Z5,Z6
    pub(crate) fn fast_close_due(&mut self, cx: &mut Cx<'_>) {
        let Some(wait) = self.life.fast_close.filter(|wait| wait.at <= cx.now) else {
            return;
        };
        let Some(i) = self
            .flight
            .subflows
            .best_subflow()
            .filter(|_| self.handshake.keys.remote.is_some())
        else {
            self.life.fast_close = None;
            return;
        };
        if wait.repeats < FAST_CLOSE_REPEATS {
            let rto = self.flight.subflows[i].tcp.rto();
            let repeats = wait.repeats + 1;
            self.life.fast_close = Some(FastCloseWait {
                at: cx.now + rto.times(1 << repeats),
                repeats,
            });
            self.flight.subflows.send_fast_close(i, cx);
        } else {
            self.reset_for_fast_close(i, cx);
        }
    }

    /// The peer does not answer an MP_FASTCLOSE, or has fallen back, where a RST has the same meaning. // rfc8684:Z5,Z6
    pub(crate) fn reset_for_fast_close(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        self.life.fast_close = None;
        cx.count.fastclose_sent += 1;
        let option = self.handshake.keys.fast_close_option();
        self.flight
            .reset_subflow(i, SubflowEnd::ConnectionClosed, option, cx);
    }

    /// The peer aborts by MP_FASTCLOSE. // rfc8684:Z3,Z4
    pub(crate) fn on_fast_close(&mut self, key: Key, cx: &mut Cx<'_>) {
        let ours = self
            .handshake
            .keys
            .local
            .as_ref()
            .is_some_and(|local| mac::equal(&local.key().0, &key.0));
        if !ours {
            cx.count.fastclose_bad_key += 1;
            return;
        }
        cx.count.fastclose_received += 1;
        self.life.fast_close = None;
        self.flight.close_all(cx);
        self.finish(CloseCause::ResetByPeer, cx);
    }

    /// Without a subflow left that came up, a connection that is not closed waits for a new one, for as
    /// long as `stays` says if joins are possible. // rfc8684:D4,F10
    fn last_subflow_gone(&mut self, end: SubflowEnd, stays: Option<Duration>, cx: &mut Cx<'_>) {
        if self.life.closed.is_some() {
            return;
        }
        let both_done =
            self.recv.finished() && matches!(self.flight.send.fin.state, FinState::Acked);
        let plain_done = !self.flight.level.is_multipath()
            && end == SubflowEnd::Finished
            && self.recv.finished();
        if both_done || plain_done {
            self.finish(CloseCause::Finished, cx);
            return;
        }
        // A DATA_FIN without Data ACK may not have arrived, and the peer waits for a join. // rfc8684:F2
        let plain = !self.flight.level.is_multipath();
        let all_said = matches!(self.flight.send.fin.state, FinState::Acked)
            || plain && self.recv.finished() && self.flight.send.una() == self.flight.send.end();
        if let Some(stays) = stays.filter(|_| !(self.life.released && all_said)) {
            // Break before make: the connection outlives its subflows for a while. // rfc8684:F10
            self.life.close_timeout.get_or_insert(cx.now + stays);
            return;
        }
        if !self.flight.subflows.is_empty() {
            return;
        }
        let cause = match end {
            SubflowEnd::Refused => CloseCause::Refused,
            SubflowEnd::TimedOut => CloseCause::TimedOut,
            SubflowEnd::Unreachable => CloseCause::Unreachable,
            // No RST came: our address of the only path went before another path could be made.
            SubflowEnd::AddressGone => CloseCause::NoSubflow,
            SubflowEnd::ConnectionClosed => CloseCause::Aborted,
            // The end of a subflow is not that of the stream, which may lack something. // rfc8684:F10
            SubflowEnd::Finished if self.recv.finished() => CloseCause::Finished,
            _ => CloseCause::ResetByPeer,
        };
        self.finish(cause, cx);
    }

    /// The connection is over; reported once.
    pub(crate) fn finish(&mut self, cause: CloseCause, cx: &mut Cx<'_>) {
        if self.life.closed.is_some() {
            return;
        }
        self.life.closed = Some(cause);
        self.life.orphan_until = Some(cx.now + ORPHAN);
        self.data_timer.stop();
        match cause {
            CloseCause::Finished => cx.count.conn_finished += 1,
            CloseCause::ResetByPeer | CloseCause::Refused => cx.count.conn_reset += 1,
            CloseCause::TimedOut | CloseCause::NoSubflow | CloseCause::Unreachable => {
                cx.count.conn_timed_out += 1
            }
            CloseCause::Aborted => {}
        }
        self.events.push(EventKind::Closed(cause));
    }

    /// Ends an overdue connection: released by the application, or with subflows whose path is dead.
    pub(crate) fn linger_due(&mut self, cx: &mut Cx<'_>) {
        if self.life.orphan_until.is_none_or(|until| until > cx.now) {
            return;
        }
        if self.life.closed.is_none() {
            // While the peer acknowledges what was written, it may finish. After an abort this runs again.
            if self.flight.send.una() > self.life.acked_at_release {
                self.flight.send.watch_orphan(self.life, cx.now);
            } else {
                self.abort(cx);
            }
            return;
        }
        self.life.orphan_until = None;
        self.flight.close_all(cx);
    }

    /// Answers the peer's FIN on a subflow with ours, once it has nothing in flight; on the last one only
    /// when nothing has to be sent to the peer any more. // rfc8684:F4,F7
    pub(in crate::conn) fn answer_fins(&mut self, failing: bool) {
        // While an MP_FAIL is unanswered, the FIN may be that of a stream that continues as TCP. // rfc8684:B9
        if !self.flight.level.is_multipath() || failing || self.life.fast_close.is_some() {
            return;
        }
        for i in self.flight.subflows.indices() {
            let sf = &self.flight.subflows[i];
            if sf.was_queried() || sf.closing.fin_waits.is_some() {
                continue;
            }
            if sf.closing.peer_finished
                && sf.maps.tx.is_empty()
                && (self.flight.send.owes_nothing(self.recv) || self.flight.subflows.has_other(i))
            {
                self.flight.subflows[i].closing.finish = true;
            }
        }
    }

    /// The application removes a subflow; one that is not up yet is reset.
    pub(crate) fn remove_subflow(
        &mut self,
        id: SubflowId,
        end: SubflowEnd,
        cx: &mut Cx<'_>,
    ) -> Result<(), StackError> {
        let i = self
            .flight
            .subflows
            .find(id)
            .ok_or(StackError::NoSuchHandle)?;
        // The last one carries what is left. // rfc8684:F4
        let needed =
            !self.flight.subflows.has_other(i) && !self.flight.send.owes_nothing(self.recv);
        if needed || !self.flight.level.is_multipath() {
            return Err(StackError::InvalidState);
        }
        match self.flight.subflows[i].phase() {
            SubflowPhase::Handshake | SubflowPhase::PreEstablished => {
                self.flight.reset_subflow(i, end, None, cx);
            }
            SubflowPhase::Established | SubflowPhase::Closing => self.flight.finish_subflow(i, end),
        }
        Ok(())
    }

    /// Its peer does not finish the handshake, and others need the place. Nothing is sent: to a client whose SYN/ACK was
    /// lost a RST is a refusal, while it would repeat its SYN and be accepted (RFC 4987 section 3.4).
    pub(crate) fn give_up(&mut self, cx: &mut Cx<'_>) {
        self.skip_unread(cx.now);
        for sf in self.flight.subflows.iter_mut() {
            sf.closing.end.get_or_insert(SubflowEnd::TimedOut);
            sf.tcp.forget();
        }
        self.flight.send.clear();
        self.recv.clear();
        self.finish(CloseCause::TimedOut, cx);
    }

    /// Ends it for lack of resources, at once and without waiting for an answer. // rfc8684:T1
    pub(crate) fn shed(&mut self, cx: &mut Cx<'_>) {
        let why = lack_of_resources().filter(|_| self.flight.level.is_multipath());
        for i in self.flight.subflows.indices() {
            self.flight
                .reset_subflow(i, SubflowEnd::ConnectionClosed, why, cx);
        }
        self.flight.send.clear();
        self.recv.clear();
        self.finish(CloseCause::Aborted, cx);
    }

    /// A RST ends only this subflow, unless it has MP_FASTCLOSE. // rfc8684:S1
    pub(in crate::conn) fn on_reset(&mut self, i: SubflowIdx, seg: &Segment<'_>, cx: &mut Cx<'_>) {
        cx.count.subflow_reset_by_peer += 1;
        let handshake = !self.flight.subflows[i].was_up() && !self.handshake.is_established();
        let (mut fast_close, mut changed) = (None, false);
        let (mut reason, mut transient) = (None, false);
        for option in seg.options.mptcp.iter() {
            match option {
                MptcpOption::FastClose(close) => fast_close = Some(close.key),
                // Its data goes to the other subflows, or to the next one. // rfc8684:B6,B7
                MptcpOption::Fail(_) => {
                    cx.count.fail_received += 1;
                    changed = true;
                }
                MptcpOption::Reset(why) => {
                    // rfc8684:T1,T2,T3
                    cx.count.tcprst_received += 1;
                    reason = Some(why.reason);
                    transient = why.transient;
                }
                MptcpOption::Capable(_) | MptcpOption::Join(_) | MptcpOption::Dss(_) => {}
                MptcpOption::AddAddr(_) | MptcpOption::RemoveAddr(_) | MptcpOption::Prio(_) => {}
                MptcpOption::Private(_) => {}
            }
        }
        let end = if handshake {
            SubflowEnd::Refused
        } else if changed {
            SubflowEnd::Checksum
        } else {
            SubflowEnd::ResetByPeer { reason, transient }
        };
        self.flight.subflows[i].closing.end.get_or_insert(end);
        if let Some(key) = fast_close {
            self.on_fast_close(key, cx);
        } else if !self.flight.level.is_multipath() && self.life.closed.is_none() && !handshake {
            self.finish(CloseCause::ResetByPeer, cx);
        }
    }
}

impl Conn {
    /// Advances the close after anything that may have affected it.
    pub(crate) fn advance_end(&mut self, cx: &mut Cx<'_>) {
        if self.life.fast_close.is_some() {
            // Neither FIN nor DATA_FIN: the peer's reader must not take what came before for the whole (RFC 8684 section 3.5).
            return;
        }
        if self.level.is_multipath() {
            // FINs are sent when nothing is outstanding on any subflow; a DATA_FIN never waits for one. // rfc8684:F5,F6,F9
            let done = self.recv.finished() && self.send.fin.state == FinState::Acked;
            if done {
                self.ending().finish(CloseCause::Finished, cx);
                self.flight().finish_subflows(cx);
            } else if self.handshake.is_established()
                && self.send.owes_fin()
                && !self.fallback.mp_fail_is_answered()
            {
                // Before the keys are here it cannot be sent, nor to a peer that has fallen back.
                let i = self.subflows.best_subflow();
                if let Some(i) = i.filter(|i| !self.subflows[*i].tcp.is_early()) {
                    self.subflows[i].tcp.force_ack();
                }
            }
        } else if self.send.fin.state == FinState::Queued && self.send.all_sent() {
            // Where the final byte has to signal the fallback, the FIN waits for it.
            let owed = self.offers().owes_final_byte();
            for sf in &mut self.subflows {
                match owed {
                    true => sf.tcp.probe_liveness(cx.now),
                    false => sf.closing.finish = true,
                }
            }
        }
        // The peer still sends to an application that is gone: abort.
        if self.life.released
            && self.life.closed.is_none()
            && self.recv.next() > self.life.bytes_at_release
        {
            self.ending().abort(cx);
        }
    }

    /// The state of appendix D. // rfc8684:F11
    pub(crate) fn state(&self) -> ConnState {
        if self.life.fast_close.is_some() {
            return ConnState::FastCloseWait;
        }
        if let Some(cause) = self.life.closed {
            let finishing = cause == CloseCause::Finished && !self.subflows.is_empty();
            return if finishing {
                ConnState::TimeWait
            } else {
                ConnState::Closed
            };
        }
        if !self.handshake.is_established() {
            return ConnState::Opening;
        }
        let finished = self.recv.finished();
        match self.send.fin.state {
            FinState::Open if finished => ConnState::CloseWait,
            FinState::Open => ConnState::Established,
            _ if self.subflows.end_is_acked(&self.send, self.level) && finished => {
                ConnState::TimeWait
            }
            _ if self.subflows.end_is_acked(&self.send, self.level) => ConnState::FinWait2,
            _ if finished && self.life.closed_second => ConnState::LastAck,
            _ if finished => ConnState::Closing,
            _ => ConnState::FinWait1,
        }
    }

    /// Its streams and subflows, to end them.
    pub(crate) fn ending(&mut self) -> Ending<'_> {
        Ending {
            flight: Flight::new(&mut self.subflows, &mut self.send, self.level),
            recv: &mut self.recv,
            handshake: &self.handshake,
            life: &mut self.life,
            data_timer: &mut self.data_timer,
            events: &mut self.events,
        }
    }

    /// Removes closed subflows. The end of one may end others, which stand before it.
    pub(in crate::conn) fn remove_closed(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let closed = |subflows: &Subflows| {
            let mut all = subflows.indices();
            all.find(|i| subflows.is_closed(*i, now))
        };
        while let Some(i) = closed(&self.subflows) {
            let end = self.subflows[i].closing.end.unwrap_or(SubflowEnd::Finished);
            let by_the_path = matches!(
                end,
                SubflowEnd::AddressGone | SubflowEnd::ResetByPeer { reason: None, .. }
            );
            if by_the_path && self.subflows[i].handshake.state == HandshakeState::Done {
                // The peer has our keys, and no data will prove it here any more: joins are allowed. // rfc8684:C13,F10
                self.on_proof(i, Proof::Overdue, cx);
            }
            let sf = self.flight().remove(i, end, cx);
            self.handshake.early_unanswered(&sf, end);
            let failing = self.fallback.checksum_failure;
            if failing.is_some_and(|failure| failure.subflow() == sf.id()) {
                self.fallback.checksum_failure = None;
            }
            self.recv.discard(sf.id());
            self.events.push(EventKind::SubflowDown {
                subflow: sf.id(),
                tuple: sf.endpoint.tuple,
                end,
            });
            let ended = pm::Event::Ended {
                subflow: sf.id(),
                end,
                carried: carried(&sf),
            };
            self.paths.notify_manager(ended, cx);
            if !self.subflows.iter().any(Subflow::was_up) {
                let may_join = self.joins().may_join();
                let stays = may_join.then_some(self.opts.break_before_make);
                self.ending().last_subflow_gone(end, stays, cx);
            }
        }
    }
}

#[cfg(test)]
mod tests;
