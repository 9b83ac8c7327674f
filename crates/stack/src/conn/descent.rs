//! The descent to a lower protocol level (RFC 8684 section 3.7): nowhere else a connection falls back. (Plain TCP follows by itself once the
//! infinite mapping was sent, see `level`.)

use manypath_wire::seq::Ssn;

use crate::api::{ConnOptions, EventKind, FallbackCause, ProtocolLevel};
use crate::conn::Conn;
use crate::conn::dss::offset::Offset;
use crate::conn::events::Events;
use crate::conn::fallback::UnconfirmedFallback;
use crate::conn::fallback::decide::Report;
use crate::conn::incoming::Incoming;
use crate::conn::level::Level;
use crate::conn::paths::Paths;
use crate::conn::send::flight::Flight;
use crate::conn::send::queue::{FinState, SendQueue};
use crate::conn::subflow::acked_by::AckedBy;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::types::{Cx, SubflowIdx};
use crate::pm;

/// What a fallback concerns: both streams, their level, and the paths, on which no join follows.
pub(crate) struct Descent<'a> {
    incoming: Incoming<'a>,
    send: &'a mut SendQueue,
    level: &'a mut Level,
    paths: &'a mut Paths,
    opts: &'a ConnOptions,
}

impl Paths {
    /// Counts a fallback, and lets the path manager and the application know.
    fn count_fallback(&mut self, events: &mut Events, cause: FallbackCause, cx: &mut Cx<'_>) {
        match cause {
            FallbackCause::NotWanted => {}
            FallbackCause::PeerWithout => cx.count.fallback_handshake += 1,
            FallbackCause::ThirdAckWithout => cx.count.fallback_third_ack += 1,
            FallbackCause::FirstDataWithout => cx.count.fallback_first_data += 1,
            FallbackCause::OptionsLost => cx.count.fallback_options_lost += 1,
            FallbackCause::Checksum => cx.count.fallback_checksum += 1,
            FallbackCause::PeerFailed => cx.count.fallback_peer_fail += 1,
            FallbackCause::PeerInfinite => cx.count.fallback_peer_infinite += 1,
        }
        self.notify_manager(pm::Event::Stop, cx);
        events.push(EventKind::FellBack(cause));
    }
}

impl Descent<'_> {
    /// Falls back to an infinite mapping, and lets the peer know.
    pub(in crate::conn) fn fall_back_from(
        &mut self,
        i: SubflowIdx,
        cause: FallbackCause,
        start: Option<(Ssn, Offset)>,
        report: Report,
        cx: &mut Cx<'_>,
    ) {
        let at = self.incoming.recv.next();
        if report == Report::Unconfirmed {
            self.incoming
                .fallback
                .stop_withholding(self.incoming.subflows, i);
        }
        if self.descend(i, ProtocolLevel::InfiniteMapping, cause, start, cx)
            && self.incoming.subflows.joined
        {
            // An unaware peer resends, as new bytes of this subflow, what others delivered, or continues with what it takes for the next
            // part.
            self.incoming.subflows.query_if_needed(i, cx);
        }
        match report {
            Report::None => {}
            Report::Unconfirmed => {
                let again_at = cx.now + self.incoming.subflows[i].tcp.rto();
                self.incoming.fallback.unconfirmed = Some(UnconfirmedFallback { at, again_at });
                self.incoming
                    .subflows
                    .send_mp_fail(self.incoming.numbers, i, at, cx);
            }
            Report::Answer => {
                self.incoming
                    .subflows
                    .send_mp_fail(self.incoming.numbers, i, at, cx); // rfc8684:B10
                if self.incoming.subflows.joined {
                    self.send_infinite_mapping(i);
                    self.incoming.subflows.query_if_needed(i, cx);
                }
            }
        }
    }

    /// The peer fell back: an infinite mapping of our own is due if it needs one.
    pub(in crate::conn) fn descend_with_peer(
        &mut self,
        i: SubflowIdx,
        cause: FallbackCause,
        cx: &mut Cx<'_>,
    ) -> bool {
        let level = self.incoming.subflows.level_of_answer(self.send);
        let start = self.incoming.subflows.contiguous(self.send, i);
        self.descend(i, level, cause, start, cx)
    }

    /// MP_FAIL from a peer that was queried about its bytes: the answer, or its own query. Either way it takes what we send without
    /// mappings from now on, and has to learn where that begins. Its infinite mapping will show where its own stream continues, and until
    /// then its bytes are held. No further MP_FAIL answers it, or the exchange would never end.
    // rfc8684:B10
    pub(in crate::conn) fn answer_query(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let level = ProtocolLevel::InfiniteMapping;
        let start = self.incoming.subflows.contiguous(self.send, i);
        self.descend(i, level, FallbackCause::PeerFailed, start, cx);
        self.incoming.fallback.resend.query_sent = true;
        self.send_infinite_mapping(i);
    }

    fn send_infinite_mapping(&mut self, i: SubflowIdx) {
        self.incoming.fallback.send_infinite_mapping(
            self.opts,
            self.incoming.numbers,
            self.send,
            self.incoming.subflows,
            i,
        );
    }

    /// Descends, if the connection is not there or lower already. From `start` on what is in flight continues the stream; without it, what
    /// is in flight is void, and everything without Data ACK is resent. // rfc8684:B4,B9
    fn descend(
        &mut self,
        i: SubflowIdx,
        level: ProtocolLevel,
        cause: FallbackCause,
        start: Option<(Ssn, Offset)>,
        cx: &mut Cx<'_>,
    ) -> bool {
        if !self.level.descend(level, cause) {
            return false;
        }
        match start {
            Some(_) => self.incoming.fallback.resend.infinite_from = start,
            None => {
                self.incoming
                    .fallback
                    .rewinds_to_data_ack(self.send, self.incoming.subflows, i)
            }
        }
        self.paths.count_fallback(self.incoming.events, cause, cx);
        self.become_plain(i, cx);
        true
    }

    /// Falls back without sending an option: no option would arrive.
    pub(in crate::conn) fn fall_back_silently(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if self
            .level
            .descend(ProtocolLevel::PlainTcp, FallbackCause::OptionsLost)
        {
            self.paths
                .count_fallback(self.incoming.events, FallbackCause::OptionsLost, cx);
            self.become_plain(i, cx);
        }
    }

    /// Falls back during the handshake.
    pub(in crate::conn) fn go_plain(
        &mut self,
        i: SubflowIdx,
        cause: FallbackCause,
        cx: &mut Cx<'_>,
    ) {
        self.incoming.subflows[i].handshake.state = HandshakeState::Plain;
        if self.level.descend(ProtocolLevel::PlainTcp, cause) {
            self.paths.count_fallback(self.incoming.events, cause, cx);
        }
        self.send.open_window();
    }

    /// Switches the only subflow to raw bytes in both directions, and gives up joins under way.
    fn become_plain(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        Flight::new(self.incoming.subflows, self.send, *self.level).leave_others(i, cx);
        let end = self.incoming.recv.forget_end();
        self.incoming.count_waiting(i);
        // A rewritten stream ends elsewhere than the peer's DATA_FIN marks, and its FIN shows where. // rfc8684:B13
        if let Some(end) = end.filter(|end| *end == self.incoming.recv.next()) {
            self.incoming.recv.note_end(end);
        }
        self.incoming
            .fallback
            .withholds_until_answered(self.incoming.subflows, i);
        let sf = &mut self.incoming.subflows[i];
        sf.handshake.state = HandshakeState::Plain;
        sf.evidence.acked_by = AckedBy::Peer;
        sf.maps.rx.clear();
        sf.signals.queue.clear();
        let peer_finished = sf.closing.peer_finished;
        // From here on only the subflow's own right edge limits the peer, and its bytes are stored or lost.
        sf.tcp.confine_recv_window(self.incoming.recv.allowance());
        self.send.open_window();
        self.send.forget_all_reinjections();
        // No acknowledgement but the subflow's exists any more. // rfc8684:B13
        if self.incoming.fallback.resend.from.is_none() {
            let upto = self.incoming.subflows[i].maps.tx.lowest();
            self.send
                .subflow_acked(upto.unwrap_or_else(|| self.send.next()));
        }
        // From here on a FIN of the subflow ends the stream: a DATA_FIN that was sent already is repeated as one, and a FIN received before
        // fallback counts now.
        if matches!(self.send.fin.state, FinState::Sent | FinState::Acked) {
            self.send.fin.state = FinState::Queued;
        }
        if peer_finished {
            self.incoming.ends_with_subflow(i);
        }
    }

    /// After fallback: a peer that repeats MP_FAIL has not received our answer. // rfc8684:B10
    pub(in crate::conn) fn on_mp_fail_repeated(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        cx.count.fail_received += 1;
        let peer_failed = self.level.cause() == Some(FallbackCause::PeerFailed);
        let answers = peer_failed
            && !self.incoming.subflows.joined
            && !self.incoming.fallback.resend.query_sent;
        if answers {
            let at = self.incoming.recv.next();
            self.incoming
                .subflows
                .send_mp_fail(self.incoming.numbers, i, at, cx);
        }
        // Nor where this subflow continues, for which that ACK has no room. A peer that had begun a join needs this, too, and data in
        // flight may lose it.
        if self.incoming.subflows.joined || answers && self.incoming.subflows[i].tcp.awaits_ack() {
            self.send_infinite_mapping(i);
        }
        self.incoming
            .fallback
            .fallback_confirmed(self.incoming.subflows);
    }
}

impl Conn {
    /// Its level and streams, to fall back.
    pub(in crate::conn) fn descent(&mut self) -> Descent<'_> {
        Descent {
            incoming: Incoming {
                subflows: &mut self.subflows,
                recv: &mut self.recv,
                fallback: &mut self.fallback,
                numbers: &self.numbers,
                events: &mut self.events,
                established: self.handshake.is_established(),
            },
            send: &mut self.send,
            level: &mut self.level,
            paths: &mut self.paths,
            opts: &self.opts,
        }
    }
}
