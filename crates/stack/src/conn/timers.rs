//! The timers of a connection, in one table: each has its deadline and its handler here, and the compiler knows if one lacks either.

use manypath_tcp::machine::{DeadCause, Machine};
use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::timer::Soonest;

use crate::api::{CloseCause, EventKind, SubflowEnd};
use crate::conn::Conn;
use crate::conn::data_timeout::data_rto;
use crate::conn::failover::stale::REPLACED_AFTER;
use crate::conn::handshake::mp_capable::Proof;
use crate::conn::send::flight::Flight;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::handshake::HandshakeState;
use crate::conn::types::{Cx, SubflowIdx};
use crate::pm;

// The timers of an enum in order, each written out. In a loop over a list of them the `match` is made anew for each, which together
// costs 3 % of what a segment costs in the simulator.
macro_rules! in_order {
    ($($timer:expr),* $(,)?) => {
        #[inline]
        fn for_each(mut see: impl FnMut(Self)) {
            $(see($timer);)*
        }
    };
}

/// A timer of the connection, or the earliest one of its kind of all subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Of(Kind),
    /// The peer's keys are here; more has to come.
    Proof,
    Admission,
    FastClose,
    /// MP_FAIL is repeated.
    ChecksumFailure,
    /// Data-level retransmission.
    Data,
    /// Idle queues give back memory.
    Memory,
    /// No subflow is left.
    NoSubflow,
    /// Data has had no Data ACK for as long as the user allows.
    UserTimeout,
    /// The application closed, and nothing advances.
    Orphan,
    /// ADD_ADDR and REMOVE_ADDR are repeated.
    Announcement,
    PathManager,
    Controller,
}

/// A timer that each subflow has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Tcp,
    Signals,
    FinWaits,
    OptionRetry,
    PlainProbe,
    JoinAck,
    /// A keepalive on a subflow whose address the peer withdrew.
    AddressProbe,
    ReceiverProbe,
    /// Payload waits for a mapping.
    Held,
    /// Who acknowledges data on the subflow.
    AckedBy,
}

impl Kind {
    in_order!(
        Self::Tcp,
        Self::Signals,
        Self::FinWaits,
        Self::OptionRetry,
        Self::PlainProbe,
        Self::JoinAck,
        Self::AddressProbe,
        Self::ReceiverProbe,
        Self::Held,
        Self::AckedBy,
    );

    #[inline(always)] // With the timer known the `match` is gone.
    fn deadline(self, sf: &Subflow) -> Option<Instant> {
        match self {
            Self::Tcp => sf.tcp.deadline(),
            Self::Signals => sf.signals.deadline(),
            Self::FinWaits => sf.closing.fin_waits,
            Self::OptionRetry => sf.handshake.option_retry_at,
            Self::PlainProbe => sf.handshake.plain_probe.deadline(),
            Self::JoinAck => match sf.handshake.state {
                HandshakeState::JoinAck { repeat_at, .. } => Some(repeat_at),
                _ => None,
            },
            Self::AddressProbe => sf.liveness.probe_until,
            Self::ReceiverProbe => sf.liveness.receiver_probe.deadline(),
            Self::Held => sf.unmapped.held.as_ref().map(|held| held.deadline()),
            Self::AckedBy => sf.evidence.acked_by.deadline(),
        }
    }
}

impl Timer {
    // In the order in which those that expire together are handled.
    in_order!(
        Self::Of(Kind::Tcp),
        Self::Of(Kind::Signals),
        Self::Of(Kind::FinWaits),
        Self::Proof,
        Self::Of(Kind::OptionRetry),
        Self::Of(Kind::PlainProbe),
        Self::Of(Kind::JoinAck),
        Self::Of(Kind::AddressProbe),
        Self::Admission,
        Self::Of(Kind::ReceiverProbe),
        Self::FastClose,
        Self::ChecksumFailure,
        Self::Of(Kind::Held),
        Self::Of(Kind::AckedBy),
        Self::Data,
        Self::Memory,
        Self::NoSubflow,
        Self::UserTimeout,
        Self::Orphan,
        Self::Announcement,
        Self::PathManager,
        Self::Controller,
    );
}

impl Conn {
    #[inline(always)] // With the timer known the `match` is gone.
    fn deadline_of(&self, timer: Timer) -> Option<Instant> {
        match timer {
            Timer::Of(kind) => self
                .subflows
                .iter()
                .filter_map(|sf| kind.deadline(sf))
                .min(),
            Timer::Proof => self.handshake.proof_until,
            Timer::Admission => self.subflows.admission.deadline(),
            Timer::FastClose => self.life.fast_close.map(|wait| wait.deadline()),
            Timer::ChecksumFailure => self.fallback.checksum_failure.map(|f| f.deadline()),
            Timer::Data => self.data_timer.deadline(),
            Timer::Memory => self.limits.memory_check,
            Timer::NoSubflow => self.life.close_timeout,
            Timer::UserTimeout => {
                let awaits = |_: &Duration| self.life.awaits_data_acks(&self.handshake, self.level);
                let limit = self.opts.user_timeout.filter(awaits);
                limit.and_then(|limit| self.send.user_deadline(&self.data_timer, limit))
            }
            Timer::Orphan => self.life.orphan_until,
            Timer::Announcement => {
                let at = self.paths.announcements.deadline();
                at.filter(|_| self.joins().may_join() && self.subflows.best_subflow().is_some())
            }
            Timer::PathManager => self.paths.manager.as_ref().and_then(pm::Manager::deadline),
            Timer::Controller => self.paths.controller.deadline(),
        }
    }

    /// When [`on_timeout`](Self::on_timeout) has to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut soonest = Soonest::default();
        for sf in &self.subflows {
            Kind::for_each(|kind| soonest.consider(kind.deadline(sf)));
        }
        Timer::for_each(|timer| {
            if !matches!(timer, Timer::Of(_)) {
                soonest.consider(self.deadline_of(timer));
            }
        });
        soonest.get()
    }

    /// Handles expired timers.
    pub(crate) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        Timer::for_each(|timer| {
            if self.deadline_of(timer).is_some_and(|at| at <= cx.now) {
                self.expire(timer, cx);
            }
        });
    }

    fn expire(&mut self, timer: Timer, cx: &mut Cx<'_>) {
        match timer {
            Timer::Of(kind) => self.expire_on_subflows(kind, cx),
            Timer::Proof => {
                // The initiator has sent nothing but its keys for a while: it is idle, or its data is lost.
                self.handshake.proof_until = None;
                if !self.subflows.is_empty() {
                    self.on_proof(SubflowIdx::FIRST, Proof::Overdue, cx);
                    self.handshake
                        .probe_initiator(&mut self.subflows, self.level, cx);
                }
            }
            Timer::Admission => self.subflows.admission_due(cx),
            Timer::FastClose => self.ending().fast_close_due(cx),
            Timer::ChecksumFailure => self.mp_fail_due(cx),
            Timer::Data => {
                // Data may have been sent on a slower path since it was started. The RTOs are taken without back-off, which would
                // postpone it for as long as a path is unresponsive.
                let slowest = self.subflows.slowest_in_flight(Machine::base_rto);
                let rto = slowest.map_or(Duration::ZERO, |rto| data_rto(Some(rto)));
                if self.data_timer.fire(cx.now, rto) {
                    self.on_data_timeout(cx);
                }
            }
            Timer::Memory => {
                self.limits.memory_check = None;
                self.send.release_idle();
                self.recv.release_idle();
            }
            Timer::NoSubflow => {
                self.life.close_timeout = None;
                self.ending().finish(CloseCause::NoSubflow, cx);
                // Joins that are under way come too late.
                self.flight().close_all(cx);
            }
            Timer::UserTimeout => {
                self.ending().finish(CloseCause::TimedOut, cx);
                self.flight().close_all(cx);
            }
            Timer::Orphan => self.ending().linger_due(cx),
            // These follow whatever came, see `reconcile`.
            Timer::Announcement | Timer::PathManager | Timer::Controller => {}
        }
    }

    fn expire_on_subflows(&mut self, kind: Kind, cx: &mut Cx<'_>) {
        let now = cx.now;
        let due = |sf: &Subflow| kind.deadline(sf).is_some_and(|at| at <= now);
        match kind {
            Kind::Tcp => {
                for i in self.subflows.indices() {
                    if due(&self.subflows[i]) {
                        self.on_subflow_timeout(i, cx);
                    }
                }
            }
            Kind::Signals => {
                for sf in self.subflows.iter_mut().filter(|sf| due(sf)) {
                    sf.signals.on_pause();
                }
            }
            Kind::FinWaits => {
                for sf in self.subflows.iter_mut().filter(|sf| due(sf)) {
                    sf.closing.fin_waits = None;
                }
                self.subflows.dirty = true;
            }
            Kind::OptionRetry => {
                self.handshake
                    .option_retry_due(&mut self.subflows, self.level, cx);
            }
            Kind::PlainProbe => {
                for i in self.subflows.indices() {
                    let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                    if due(&flight.subflows[i])
                        && flight.plain_probe_due(&self.handshake, &self.numbers, i)
                    {
                        self.descent().fall_back_silently(i, cx);
                        self.subflows.retransmit_now(i, cx);
                    }
                }
            }
            Kind::JoinAck => self.flight().repeat_proofs(cx),
            Kind::AddressProbe => self.flight().probes_due(cx),
            Kind::ReceiverProbe => {
                let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
                flight.receiver_probes_due(&mut self.paths, &mut self.events, cx);
            }
            Kind::Held => {
                for i in self.subflows.indices() {
                    if self.subflows.held_due(&self.numbers, &self.recv, i, cx) {
                        self.settle_unmapped(i, cx);
                    }
                }
            }
            Kind::AckedBy => {
                for i in self.subflows.indices() {
                    if due(&self.subflows[i])
                        && self.subflows.acked_without_options(&self.send, i, cx)
                    {
                        self.on_data_never_acked(i, cx);
                    }
                }
            }
        }
    }

    fn on_subflow_timeout(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let outcome = self.subflows[i].tcp.on_timeout(cx.now);
        if outcome.late {
            let opportunistic = self.opts.mechanisms.opportunistic;
            self.flight().reinjects_late_tail(opportunistic, i, cx);
        }
        if outcome.silent {
            self.flight().becomes_potentially_failed(i, cx);
        }
        if outcome.rto_fired {
            cx.count.rto += 1;
            self.flight().becomes_stale(i, cx);
            self.on_proof(i, Proof::Overdue, cx);
            self.subflows.on_handshake_timeout(i, cx);
            // Where nothing was ever acknowledged, the path may drop data with options, which a join does not change.
            let worked = self.send.una() > self.numbers.tx_start;
            if worked && outcome.backoffs >= REPLACED_AFTER {
                self.subflows.wants_replacement(&mut self.paths, i, cx);
            }
            let flight = &mut Flight::new(&mut self.subflows, &mut self.send, self.level);
            flight.sends_plain_probe(&self.handshake, &self.numbers, i, cx);
            self.fallback
                .withheld_unanswered(&mut self.subflows, i, outcome.backoffs, cx);
            self.flight().nat_expired(i, cx);
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
}
