//! One Multipath TCP connection (RFC 8684): the only mediator between its subflows, its queues and its path manager.
//!
//! Owns what belongs to the connection as a whole. Each packet goes down once and its outcome comes up once. Subflows do not call each
//! other.
//!
//! What one part does alone is a method of that part. A pass over several parts is a view that borrows just these, in a file of its own,
//! and is made by one method of [`Conn`]: [`Flight`] (a subflow that ends leaves its data to the others), `Offers` (what may be sent),
//! `Incoming` (payload), `Descent` (fallback), `Ending`, `Uplinks`, `Commands`. The other methods of [`Conn`] let parts and views meet.

mod close;
mod commands;
mod data_timeout;
mod descent;
mod dss;
mod events;
mod failover;
mod fallback;
mod handshake;
mod incoming;
mod info;
mod level;
mod life;
mod limits;
mod paths;
mod pipeline;
mod pull;
pub(crate) mod readable;
mod recv;
mod send;
mod subflow;
#[cfg(test)]
mod tests;
mod timers;
mod types;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use manypath_tcp::machine::{IcmpOutcome, Machine};
use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ip::icmp;

use crate::api::{
    CloseCause, ConnOptions, EventKind, FallbackCause, LARGEST_BUFFER, Mode, Role, StackError,
    SubflowEnd,
};
use crate::crypto::keys::KeyMaterial;
use crate::ids::{ConnId, SubflowId};
use crate::pm;

use dss::Numbers;
use events::Events;
use fallback::Fallback;
pub(crate) use handshake::FastOpenOutcome;
pub(crate) use handshake::mp_capable::{Third, capable_of, third_of, usable};
pub(crate) use handshake::mp_join::join_of;
use handshake::{Handshake, Keys};
use level::Level;
use life::Life;
use limits::Limits;
use paths::{Announcements, PathController, Paths};
pub(crate) use pipeline::packet::HOP_LIMIT;
pub(crate) use pull::source::Progress;
use recv::queue::ReceiveQueue;
use send::data_rto::DataTimer;
use send::flight::Flight;
use send::queue::{FinState, SendQueue};
pub(crate) use subflow::Endpoint;
use subflow::Subflow;
pub(crate) use subflow::admission::JoinVerdict;
pub(crate) use subflow::handshake::HandshakeState;
use subflow::table::Subflows;
pub(crate) use types::Cx;

/// How long idle queues keep their memory.
const IDLE: Duration = Duration::from_secs(1);

/// Initial parameters of a connection.
pub(crate) struct ConnParams {
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
    pub(crate) opts: ConnOptions,
    pub(crate) handshake: Handshake,
    numbers: Numbers,
    send: SendQueue,
    data_timer: DataTimer,
    pub(crate) recv: ReceiveQueue,
    pub(crate) subflows: Subflows,
    pub(crate) paths: Paths,
    events: Events,
    level: Level,
    fallback: Fallback,
    pub(crate) life: Life,
    pub(crate) limits: Limits,
    /// The scheduler's state and its view of the paths.
    pub(crate) schedule: pull::path_view::Schedule,
}

impl Conn {
    /// A connection whose first subflow is this one.
    pub(crate) fn new(birth: ConnParams, endpoint: Endpoint, tcp: Machine, now: Instant) -> Self {
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
            numbers: Numbers::new(
                birth.local.as_ref().map(|local| local.idsn),
                opts.checksum || birth.offered_checksum,
            ),
            handshake: Handshake::new(
                birth.role,
                endpoint.tuple,
                Keys {
                    local: birth.local,
                    remote: None,
                    no_joins_to_first: birth.no_joins_to_first,
                },
            ),
            send: SendQueue::new(birth.opts.send_buffer),
            data_timer: DataTimer::default(),
            recv: ReceiveQueue::new(0, crate::api::ReceiveAlgorithm::default()),
            subflows: Subflows::new(now),
            paths: Paths {
                controller,
                manager: birth.manager,
                announcements: Announcements::default(),
                outside: Vec::new(),
                wanted: VecDeque::new(),
            },
            events: Events::default(),
            level: Level::new(plain),
            fallback: Fallback::default(),
            life: Life::new(now),
            limits: Limits::new(now),
            schedule: pull::path_view::Schedule::default(),
            opts,
        };
        conn.events
            .set_controller(conn.paths.controller.is_present());
        conn.recv = ReceiveQueue::new(recv::autotune::first_window(&conn.opts), conn.opts.receive);
        conn.subflows
            .add(Subflow::new(endpoint, tcp, handshake, now));
        conn.subflows.next_id = endpoint.id.0.wrapping_add(1);
        if conn.handshake.role == Role::Initiator {
            conn.events.push(EventKind::Opening {
                tuple: conn.handshake.first,
                token: conn.handshake.keys.token(),
            });
        }
        conn
    }

    /// The subflows with what they have in flight.
    pub(crate) fn flight(&mut self) -> Flight<'_> {
        Flight::new(&mut self.subflows, &mut self.send, self.level)
    }

    /// The next event for the application.
    pub(crate) fn poll_event(&mut self) -> Option<EventKind> {
        self.events.outbox.pop_front().or_else(|| {
            let number = self.paths.manager.as_mut()?.poll_decision()?;
            Some(EventKind::Decided { number })
        })
    }

    /// The stack has nothing to take from it: no event, no subflow removed or wanted, nothing learnt.
    pub(crate) fn is_settled(&self) -> bool {
        self.events.outbox.is_empty()
            && self.subflows.removed.is_empty()
            && self.paths.wanted.is_empty()
            && self.handshake.fast_open_outcome.is_none()
            && !self.paths.controller.has_commands()
    }

    /// Something may be sent now that the last poll did not see.
    pub(crate) fn wants_poll(&self, now: Instant) -> bool {
        self.subflows.indices().any(|i| {
            self.subflows[i].tcp.needs_send(now)
                || self.subflows[i].signal_ready()
                || self.offers().fin_ready(i)
        })
    }

    /// An ICMP error reports on a segment of ours.
    pub(crate) fn on_icmp(&mut self, id: SubflowId, error: &icmp::Error, cx: &mut Cx<'_>) {
        let Some(i) = self.subflows.find(id) else {
            return;
        };
        match self.subflows[i].tcp.on_icmp(cx.now, error) {
            IcmpOutcome::Ignored => cx.count.icmp_ignored += 1,
            IcmpOutcome::MtuReduced => cx.count.icmp_accepted += 1,
            IcmpOutcome::Unreachable => {
                cx.count.icmp_accepted += 1;
                if self.handshake.role == Role::Initiator && !self.handshake.is_established() {
                    self.events.push(EventKind::Unreachable);
                }
                self.flight().on_unreachable(i, cx);
            }
            IcmpOutcome::Refused => {
                cx.count.icmp_accepted += 1;
                self.subflows[i]
                    .closing
                    .end
                    .get_or_insert(SubflowEnd::Unreachable);
            }
        }
    }

    /// Reconciles what an input, or what was sent, may have affected. New data ends no subflow and changes no path, so all subflows are
    /// checked only where [something else](Subflows::mark_dirty) may have come.
    pub(crate) fn reconcile(&mut self, cx: &mut Cx<'_>) {
        self.note_advance(cx.now);
        self.advance_end(cx);
        if core::mem::take(&mut self.subflows.dirty) {
            let failing = self.fallback.checksum_failure.is_some();
            self.ending().answer_fins(failing);
            self.remove_closed(cx);
            self.subflows
                .update_probe_intervals(&self.send, &mut self.paths, cx);
            self.subflows.undo_last_penalty();
        }
        debug_assert!(!self.subflows.has_closed(cx.now), "a subflow ended by data");
        self.send.free_acked(&mut self.subflows);
        self.follow_manager(cx);
        self.run_controller(cx);
        if self.events.write_blocked
            && (self.send.write_room_event_due() || self.send.is_short_of_data(&self.subflows))
        {
            self.events.write_blocked = false;
            self.events.push(EventKind::Writable);
        }
        if !self.events.delivered_reported && self.subflows.end_is_acked(&self.send, self.level) {
            self.events.delivered_reported = true;
            self.events.push(EventKind::Delivered);
        }
        self.arm_data_timer(cx.now);
        if self.limits.memory_check.is_none()
            && (self.send.idles_large() || self.recv.idles_large())
        {
            self.limits.memory_check = Some(cx.now + IDLE);
        }
    }

    /// Has the application write at most `most` bytes where they will lie; where memory is short, not many more than what is in
    /// flight.
    pub(crate) fn write_with(
        &mut self,
        most: usize,
        tight: bool,
        fill: impl FnMut(&mut [u8]),
    ) -> Result<usize, StackError> {
        self.send.set_frugal(tight);
        if let Some(cause) = self.life.closed {
            return Err(error_of(cause));
        }
        if self.send.fin.state != FinState::Open {
            return Err(StackError::InvalidState);
        }
        let n = self.send.write_with(most, fill);
        self.send.writer_has_more = n < most;
        self.events.write_blocked |= self.send.writer_has_more;
        Ok(n)
    }

    /// More of what the application writes would leave together with what it has written, see
    /// [`SendQueue::may_gather`].
    pub(crate) fn may_gather_writes(&self) -> bool {
        !self.opts.nodelay && self.send.may_gather()
    }

    /// Shows the application at most `most` bytes, in parts where they lie; `None` at the end of the stream.
    pub(crate) fn read_with(
        &mut self,
        most: usize,
        see: impl FnMut(&[u8]),
    ) -> Result<Option<usize>, StackError> {
        let n = self.recv.read_with(most, see);
        if n > 0 {
            if self.recv.readable() == 0 {
                self.events.readable_reported = false;
            }
            return Ok(Some(n));
        }
        self.events.readable_reported = false;
        readable::nothing(self)
    }

    /// The application has read. True if the stack has to poll: the window grew so much that it should be advertised, or memory is idle from
    /// now on.
    pub(crate) fn on_read(&mut self, now: Instant) -> bool {
        self.note_advance(now);
        self.subflows
            .advertise_window(&self.handshake, &self.recv, self.level);
        self.wants_poll(now) || (self.limits.memory_check.is_none() && self.recv.idles_large())
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
