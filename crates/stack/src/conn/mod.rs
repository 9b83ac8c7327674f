//! One Multipath TCP connection (RFC 8684): the only mediator between its subflows, its queues and its path manager.
//!
//! Owns what belongs to the connection as a whole. Each packet goes down once and its outcome comes up once;
//! siblings must never call each other.

mod close;
mod dss;
mod failover;
mod fallback;
mod handshake;
mod info;
mod limits;
mod paths;
mod pipeline;
mod pull;
mod recv;
mod send;
mod subflow;
mod timers;
mod types;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::IpAddr;

use manypath_tcp::cc::PathSample;
use manypath_tcp::machine::{IcmpOutcome, Machine};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::FourTuple;
use manypath_wire::ip::icmp;
use manypath_wire::seq::Ssn;

use crate::api::{
    CloseCause, ConnOptions, EndedSubflow, EventKind, FallbackCause, LARGEST_BUFFER, Mode, Role,
    StackError, SubflowEnd,
};
use crate::crypto::keys::KeyMaterial;
use crate::crypto::rng::Rng;
use crate::ids::{ConnId, SubflowId};
use crate::pm;
use crate::stats::Counters;

use close::FastCloseWait;
pub(crate) use close::RemovedSubflow;
use dss::offset::{Numbering, Offset};
use fallback::Fallback;
use fallback::infinite::ChecksumFailure;
use fallback::unmapped::{RecentAcks, UnconfirmedFallback};
use fallback::withhold::Withheld;
pub(crate) use handshake::fast_open::Learnt;
pub(crate) use handshake::mp_capable::{Third, Unusable, capable_of, third_of, usable};
pub(crate) use handshake::mp_join::join_of;
use limits::Advance;
use paths::addresses::Announcements;
use paths::controller::PathController;
pub(crate) use pipeline::packet::HOP_LIMIT;
pub(crate) use pull::source::Progress;
use recv::autotune::Arrivals;
use recv::queue::ReceiveQueue;
use send::data_rto::DataTimer;
use send::queue::{FinState, SendQueue};
use subflow::Subflow;
pub(crate) use subflow::admission::JoinVerdict;
pub(crate) use subflow::{Endpoint, HandshakeState};

/// How long idle queues keep their memory.
const IDLE: Duration = Duration::from_secs(1);

/// Context of every call into a connection.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) count: &'a mut Counters,
    pub(crate) rng: &'a mut Rng,
}

/// Initial parameters of a connection.
pub(crate) struct Birth {
    pub(crate) id: ConnId,
    pub(crate) role: Role,
    pub(crate) opts: ConnOptions,
    /// Present when Multipath TCP is to be used.
    pub(crate) local: Option<KeyMaterial>,
    /// The peer's offer, at the responder.
    pub(crate) offered_checksum: bool,
    pub(crate) no_joins_to_first: bool,
    pub(crate) manager: Option<pm::Manager>,
}

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    role: Role,
    pub(crate) opts: ConnOptions,
    opened: Instant,
    /// Addresses and ports of the first subflow, for ever. // rfc8684:S2
    first: FourTuple,
    fallback: Fallback,
    local: Option<KeyMaterial>,
    remote: Option<KeyMaterial>,
    tx_numbers: Option<Numbering>,
    rx_numbers: Option<Numbering>,
    /// Where the streams enter the data sequence space: behind what the SYNs carried. // rfc8684:O3
    tx_start: Offset,
    rx_start: Offset,
    /// What the handshake showed about Fast Open.
    learnt: Option<Learnt>,
    checksum: bool,
    /// The peer's last mapping had a 64-bit DSN. // rfc8684:D19
    peer_long: bool,
    send: SendQueue,
    recv: ReceiveQueue,
    subflows: Vec<Subflow>,
    /// Samples for coupled congestion control, in step with `subflows`.
    samples: Vec<PathSample>,
    next_subflow: u8,
    ended: VecDeque<EndedSubflow>,
    removed: Vec<RemovedSubflow>,
    pub(crate) manager: Option<pm::Manager>,
    /// The controller inside the connection, where the policy has one.
    controller: PathController,
    announcements: Announcements,
    /// Addresses behind a NAT: our own, and the one to advertise.
    outside: Vec<(IpAddr, IpAddr)>,
    wanted: VecDeque<pm::Create>,
    outbox: VecDeque<EventKind>,
    established: bool,
    /// Joins may be made. // rfc8684:C15
    fully_established: bool,
    /// How long an initiator that has sent its keys may take to send more before joins are allowed.
    proof_until: Option<Instant>,
    /// Subflows probed before one is evicted to admit a join.
    admission: subflow::admission::Admission,
    /// The initiator's first data came before its keys.
    keyless_data: bool,
    /// Our SYN/ACK was repeated once for its keys, beside timers.
    keys_asked: bool,
    /// The peer wants no joins to the address and port of its first subflow. // rfc8684:C19
    no_joins_to_first: bool,
    /// It was put into its listener's queue.
    offered: bool,
    closed: Option<CloseCause>,
    /// The peer's DATA_FIN was here when we closed.
    closed_second: bool,
    released: bool,
    bytes_at_release: Offset,
    orphan_until: Option<Instant>,
    /// The Data ACK when the application closed, or when that was last checked.
    acked_at_release: Offset,
    lonely_until: Option<Instant>,
    /// When the queues are checked for idle memory.
    memory_check: Option<Instant>,
    /// Progress and its rate.
    advance: Advance,
    /// Other subflows than that of the present segment may be affected.
    pub(crate) dirty: bool,
    /// A subflow ended without any Data ACK of its data.
    new_one_lost: bool,
    fast_close: Option<FastCloseWait>,
    checksum_failure: Option<ChecksumFailure>,
    /// Mappings that were lost on the way while others passed.
    lost_mappings: u8,
    recent_acks: RecentAcks,
    /// We fell back, and the peer may not know.
    unconfirmed_fallback: Option<UnconfirmedFallback>,
    /// Received data whose acknowledgement is withheld.
    withheld: Option<Withheld>,
    /// Another subflow came up once.
    joined: bool,
    /// A DSS was sent: the peer may have seen that options pass.
    dss_sent: bool,
    /// The final byte was sent with an infinite mapping.
    final_byte_sent: bool,
    /// A peer unaware of our fallback sent a DATA_FIN.
    data_fin_after_fallback: bool,
    /// Where the infinite mapping that we have to send starts. // rfc8684:B9
    infinite_from: Option<(Ssn, Offset)>,
    /// Data without Data ACK is resent from this SSN on. // rfc8684:B9
    resend_from: Option<Ssn>,
    /// The peer resends: what comes before the SSN is not the stream, and of the rest so many bytes are here.
    peer_resends: Option<(Ssn, u64)>,
    /// We queried by MP_FAIL where bytes belong: that of the peer is the answer.
    query_sent: bool,
    /// An infinite mapping was sent, if only with retransmitted data.
    infinite_mapping_sent: bool,
    /// The infinite mapping is sent without data, too, until data has carried it.
    infinite_on_bare: bool,
    data_timer: DataTimer,
    /// End of the last data-level retransmission, while the peer does not have it.
    repeated_to: Option<Offset>,
    readable_reported: bool,
    /// The application was informed that the peer has everything.
    delivered_reported: bool,
    write_blocked: bool,
    /// Its last write did not fit: it will write more as soon as it may.
    writer_has_more: bool,
    /// SSN of the in-order payload of the present segment, while that is processed.
    delivered_ssn: Option<Ssn>,
    /// The same, in order or not.
    segment_ssn: Option<Ssn>,
    /// When payload last arrived on any subflow.
    last_payload: Instant,
    /// Some subflow is not checked until payload arrives.
    probes_paused: bool,
    /// Payload that arrived lately, for the size of the receive window.
    arrivals: Arrivals,
    /// It does not wait to be accepted.
    accepted: bool,
    /// Limit of the receive window while others need memory, too.
    window_permitted: u32,
    /// The scheduler's state and its view of the paths.
    schedule: pull::path_view::Schedule,
}

impl Conn {
    /// A connection whose first subflow is this one.
    pub(crate) fn new(birth: Birth, endpoint: Endpoint, tcp: Machine, now: Instant) -> Self {
        let multipath = birth.local.is_some();
        let handshake = match (multipath, birth.role) {
            (false, _) => HandshakeState::Plain,
            (true, Role::Initiator) => HandshakeState::CapableSyn,
            (true, Role::Responder) => HandshakeState::CapableSynAck,
        };
        // An offer that we would have accepted did not come, or did not come with its keys.
        let plain = match (multipath, birth.role) {
            (true, _) => None,
            (false, Role::Responder) if birth.opts.mode == Mode::Multipath => {
                Some(FallbackCause::PeerWithout)
            }
            (false, _) => Some(FallbackCause::NotWanted),
        };
        let controller = match birth.manager {
            Some(_) => PathController::new(birth.opts.path_manager),
            None => PathController::default(),
        };
        let opts = ConnOptions {
            recv_buffer: birth.opts.recv_buffer.min(LARGEST_BUFFER),
            ..birth.opts
        };
        let mut conn = Self {
            id: birth.id,
            role: birth.role,
            opened: now,
            first: endpoint.tuple,
            fallback: Fallback::new(plain),
            tx_numbers: birth.local.as_ref().map(|local| Numbering::new(local.idsn)),
            local: birth.local,
            remote: None,
            rx_numbers: None,
            tx_start: Offset::ZERO,
            rx_start: Offset::ZERO,
            learnt: None,
            checksum: birth.opts.checksum || birth.offered_checksum,
            peer_long: true,
            send: SendQueue::new(birth.opts.send_buffer),
            recv: ReceiveQueue::new(0, crate::api::ReceiveAlgorithm::default()),
            opts,
            subflows: Vec::new(),
            samples: Vec::new(),
            next_subflow: 0,
            ended: VecDeque::new(),
            removed: Vec::new(),
            controller,
            manager: birth.manager,
            announcements: Announcements::default(),
            outside: Vec::new(),
            wanted: VecDeque::new(),
            outbox: VecDeque::new(),
            established: false,
            fully_established: false,
            proof_until: None,
            admission: subflow::admission::Admission::default(),
            keyless_data: false,
            keys_asked: false,
            no_joins_to_first: birth.no_joins_to_first,
            offered: false,
            closed: None,
            closed_second: false,
            released: false,
            bytes_at_release: Offset::ZERO,
            orphan_until: None,
            acked_at_release: Offset::ZERO,
            lonely_until: None,
            memory_check: None,
            advance: Advance::new(now),
            dirty: true,
            new_one_lost: false,
            fast_close: None,
            checksum_failure: None,
            withheld: None,
            joined: false,
            dss_sent: false,
            final_byte_sent: false,
            data_fin_after_fallback: false,
            lost_mappings: 0,
            recent_acks: RecentAcks::default(),
            unconfirmed_fallback: None,
            infinite_from: None,
            resend_from: None,
            peer_resends: None,
            query_sent: false,
            infinite_mapping_sent: false,
            infinite_on_bare: false,
            data_timer: DataTimer::default(),
            repeated_to: None,
            readable_reported: false,
            delivered_reported: false,
            write_blocked: false,
            writer_has_more: false,
            delivered_ssn: None,
            segment_ssn: None,
            last_payload: now,
            probes_paused: false,
            arrivals: Arrivals::new(now),
            accepted: true,
            window_permitted: u32::MAX,
            schedule: pull::path_view::Schedule::default(),
        };
        conn.recv = ReceiveQueue::new(conn.first_recv_window(), conn.opts.receive);
        let first = Subflow::new(endpoint, tcp, handshake, now);
        conn.samples.push(first.sample());
        conn.subflows.push(first);
        conn.next_subflow = endpoint.id.0.wrapping_add(1);
        if conn.role == Role::Initiator {
            conn.push_event(EventKind::Opening {
                tuple: conn.first,
                token: conn.token(),
            });
        }
        conn
    }

    fn position(&self, id: SubflowId) -> Option<usize> {
        self.subflows.iter().position(|sf| sf.id() == id)
    }

    fn push_event(&mut self, kind: EventKind) {
        self.controller.on_event(&kind);
        self.outbox.push_back(kind);
    }

    /// The next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<EventKind> {
        self.outbox.pop_front().or_else(|| {
            let number = self.manager.as_mut()?.poll_decision()?;
            Some(EventKind::Decided { number })
        })
    }

    /// A subflow that the path manager wants opened.
    pub(crate) fn poll_wanted(&mut self) -> Option<pm::Create> {
        self.wanted.pop_front()
    }

    /// Subflows removed since the last call.
    pub(crate) fn take_removed(&mut self) -> Vec<RemovedSubflow> {
        core::mem::take(&mut self.removed)
    }

    pub(crate) fn was_removed(&self) -> bool {
        !self.removed.is_empty()
    }

    /// The stack has nothing to take from it: no event, no subflow removed or wanted, nothing learnt.
    pub(crate) fn is_settled(&self) -> bool {
        self.outbox.is_empty()
            && self.removed.is_empty()
            && self.wanted.is_empty()
            && self.learnt.is_none()
            && !self.controller.has_orders()
    }

    /// It is closed, by whatever cause.
    pub(crate) fn has_ended(&self) -> bool {
        self.closed.is_some()
    }

    /// Our token, while Multipath TCP is possible.
    pub(crate) fn token(&self) -> Option<manypath_wire::ids::Token> {
        self.local.as_ref().map(|local| local.token)
    }

    pub(crate) fn is_established(&self) -> bool {
        self.established
    }

    pub(crate) fn first_tuple(&self) -> FourTuple {
        self.first
    }

    pub(crate) fn offered(&self) -> bool {
        self.offered
    }

    pub(crate) fn set_offered(&mut self) {
        self.offered = true;
    }

    /// The application closed it.
    pub(crate) fn is_released(&self) -> bool {
        self.released
    }

    /// It ended and has no subflow any more.
    pub(crate) fn is_dead(&self) -> bool {
        self.closed.is_some() && self.subflows.is_empty()
    }

    /// Something may be sent now that the last poll did not see.
    pub(crate) fn wants_poll(&self, now: Instant) -> bool {
        (0..self.subflows.len()).any(|i| {
            self.subflows[i].tcp.needs_send(now)
                || self.subflows[i].signal_ready()
                || self.fin_ready(i)
        })
    }

    /// An ICMP error reports on a segment of ours.
    pub(crate) fn on_icmp(&mut self, id: SubflowId, error: &icmp::Error, cx: &mut Cx<'_>) {
        let Some(i) = self.position(id) else { return };
        match self.subflows[i].tcp.on_icmp(cx.now, error) {
            IcmpOutcome::Ignored => cx.count.icmp_ignored += 1,
            IcmpOutcome::MtuReduced => cx.count.icmp_accepted += 1,
            IcmpOutcome::Unreachable => {
                cx.count.icmp_accepted += 1;
                if self.role == Role::Initiator && !self.established {
                    self.push_event(EventKind::Unreachable);
                }
                self.on_unreachable(i, cx);
            }
            IcmpOutcome::Refused => {
                cx.count.icmp_accepted += 1;
                self.subflows[i].end.get_or_insert(SubflowEnd::Unreachable);
            }
        }
    }

    /// Neither the application nor the network needs it any more.
    pub(crate) fn is_over(&self) -> bool {
        self.released && self.closed.is_some() && self.subflows.is_empty()
    }

    fn refresh_sample(&mut self, i: usize) {
        self.samples[i] = self.subflows[i].sample();
    }

    fn count_fallback(&mut self, cause: FallbackCause, cx: &mut Cx<'_>) {
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
        self.tell_manager(pm::Event::Stop, cx);
        self.push_event(EventKind::FellBack(cause));
    }

    /// Reconciles everything that an input may have affected.
    pub(crate) fn after_input(&mut self, cx: &mut Cx<'_>) {
        self.dirty = true;
        self.after_data(cx);
    }

    /// As `after_input`, where nothing but data may have come: it ends no subflow and changes no path, so that only
    /// its own subflow has to be checked.
    pub(crate) fn after_data(&mut self, cx: &mut Cx<'_>) {
        self.note_advance(cx.now);
        self.advance_end(cx);
        if core::mem::take(&mut self.dirty) {
            self.answer_fins();
            self.remove_closed(cx);
            self.update_probe_intervals(cx);
            self.undo_last_penalty();
        }
        debug_assert!(!self.has_closed(cx.now), "a subflow ended by data");
        self.free_sent(cx);
        self.follow_manager(cx);
        self.steer(cx);
        if self.write_blocked && (self.send.room_is_worth_telling() || self.is_short_of_data()) {
            self.write_blocked = false;
            self.push_event(EventKind::Writable);
        }
        if !self.delivered_reported && self.end_is_acked() {
            self.delivered_reported = true;
            self.push_event(EventKind::Delivered);
        }
        self.arm_data_timer(cx.now);
        if self.memory_check.is_none() && (self.send.idles_large() || self.recv.idles_large()) {
            self.memory_check = Some(cx.now + IDLE);
        }
    }

    /// A loss is being repaired, which delays the Data ACK and with it room in the buffer, and less than a segment of the
    /// written data is unsent: the room that is left must do until then.
    fn is_short_of_data(&self) -> bool {
        let unsent = self.send.end().since(self.send.next());
        let room = self.send.room() as u64;
        self.subflows.iter().any(|sf| {
            let segment = u64::from(sf.tcp.mss());
            // What a stale one carries was reinjected.
            let repairs = sf.tcp.in_recovery() && !sf.is_stale();
            repairs && unsent < segment && unsent + room >= segment
        })
    }

    /// Frees what both levels acknowledged; a subflow that is behind keeps its own copy of what the others do not need.
    // rfc8684:D21,R2
    fn free_sent(&mut self, _cx: &mut Cx<'_>) {
        if self.send.pinned() == 0 && self.send.queued() == 0 {
            return;
        }
        let una = self.send.una();
        let held = self.subflows.iter().filter_map(|sf| sf.tx.lowest()).min();
        self.send.free(held);
        if self.send.pinned() <= u64::from(self.send.capacity()) {
            return;
        }
        for sf in &mut self.subflows {
            let parts: Vec<_> = sf
                .tx
                .iter()
                .filter(|m| m.at < una && self.send.holds(m.at))
                .map(|m| (m.at, self.send.copy_out(m.at..m.at + u64::from(m.len))))
                .collect();
            for (at, bytes) in parts {
                sf.retain(at, bytes);
            }
        }
        self.send.free(None);
    }

    /// Takes bytes of the application; where memory is short, not many more than what is in flight.
    pub(crate) fn write(&mut self, bytes: &[u8], tight: bool) -> Result<usize, StackError> {
        self.send.set_frugal(tight);
        if let Some(cause) = self.closed {
            return Err(error_of(cause));
        }
        if self.send.fin != FinState::Open {
            return Err(StackError::InvalidState);
        }
        let n = self.send.write(bytes);
        self.writer_has_more = n < bytes.len();
        self.write_blocked |= self.writer_has_more;
        Ok(n)
    }

    /// More of what the application writes would leave together with what it has written, see
    /// [`SendQueue::may_gather`].
    pub(crate) fn may_gather_writes(&self) -> bool {
        !self.opts.nodelay && self.send.may_gather()
    }

    /// Gives bytes to the application; `None` at the end of the stream.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>, StackError> {
        let n = self.recv.read(out);
        if n > 0 {
            if self.recv.readable() == 0 {
                self.readable_reported = false;
            }
            return Ok(Some(n));
        }
        self.readable_reported = false;
        if self.recv.finished() {
            return Ok(None);
        }
        match self.closed {
            None => Ok(Some(0)),
            Some(CloseCause::Finished) => Ok(None),
            Some(cause) => Err(error_of(cause)),
        }
    }

    /// The application has read. True if something follows from it: a window so much larger that it should be
    /// advertised, or memory that is idle from now on.
    pub(crate) fn reading_marks_dirty(&mut self, now: Instant) -> bool {
        self.note_advance(now);
        self.advertise_window();
        self.wants_poll(now) || (self.memory_check.is_none() && self.recv.idles_large())
    }
}

/// The error that calls return after the connection ended.
fn error_of(cause: CloseCause) -> StackError {
    match cause {
        CloseCause::Finished => StackError::InvalidState,
        CloseCause::Refused => StackError::Refused,
        CloseCause::ResetByPeer | CloseCause::Aborted => StackError::Reset,
        CloseCause::TimedOut | CloseCause::NoSubflow => StackError::TimedOut,
        CloseCause::Unreachable => StackError::Unreachable,
    }
}
