//! Loss recovery: the sender's record of what it sent, and its judgement of what became of it.
//!
//! Brings the pieces of [`recovery`](crate::recovery) together with the congestion window: which phase the sender is in,
//! how much may leave, what leaves again, and when to probe. It knows neither the peer's window nor what data there is.
//!
//! | part | decides | by |
//! |---|---|---|
//! | [`Flight`] | what is in flight, acknowledged, marked lost | RFC 2018, RFC 6675 |
//! | [`Timing`] | round trip, retransmission timeout | RFC 6298, RFC 7323 |
//! | [`Detection`] | what is lost | RFC 8985 with SACK, RFC 6582 without |
//! | [`Tail`] | when to probe the tail | RFC 8985 section 7 |
//! | [`Undo`] | whether a loss was none | RFC 5682, RFC 3522, RFC 3708 |
//! | [`Pmtu`] | how large a segment may be | RFC 8899 |
//! | [`Congestion`], [`EcnEcho`], [`Pacer`] | how much may leave, and how fast | RFC 5681, RFC 3168, RFC 9406 |
//! | [`Round`] | what the last round trips carried | measured for the above, and for the scheduler |
//! | [`Capping`] | the window of a path with excessive queues | NSDI 2012 section 4.2, mechanism 4 |
//!
//! Each file beside this one is one part, or one event: [`ack`], [`timeout`], [`path`]. Multipath TCP alone needs [`capping`] and
//! [`multipath`].

mod ack;
mod capping;
mod detect;
mod multipath;
mod newreno;
mod path;
mod round;
mod sack;
mod tail;
#[cfg(test)]
mod tests;
mod timeout;
mod timing;
mod types;
mod undo;

use manypath_wire::seq::SeqNum;

use crate::cc::{Algorithm, Congestion, EcnEcho, Pacer};
use crate::recovery::pmtu::Pmtu;
use crate::recovery::rack;
use crate::recovery::scoreboard::{Entry, Flight};
use crate::time::{Duration, Instant};
use crate::timer::{Soonest, Timer};
use crate::units::Rate;
use capping::Capping;
use detect::Detection;
use newreno::NewReno;
use round::Round;
use tail::Tail;
use timing::Timing;
use types::Phase;
pub(crate) use types::{
    AckEffect, AckIn, Control, Reduction, Retransmit, Sent, Setup, TimerEffect,
};
use undo::Undo;

/// Largest burst when nothing paces: one segmentation-offload transmission (Linux's GSO_LEGACY_MAX_SIZE).
const UNPACED_BURST: u32 = 64 * 1024;

/// Transmissions of the head up to which each one in fast recovery restarts the retransmission timer. A trade: with fewer, a
/// retransmission that waits in a long queue ends in a timeout; with more, a head that never arrives puts the timeout off by a
/// round trip for each.
const RESTARTS_OF_THE_HEAD: u16 = 4;

/// Segments behind a probe for a larger size that must fit into the window: three duplicate acknowledgements tell its loss
/// (RFC 5681 section 3.2), and one segment may be lost beside it.
pub(crate) const BEHIND_MTU_PROBE: u32 = 4;

/// The parts of loss recovery, which this type lets meet.
#[derive(Debug)]
pub(crate) struct LossRecovery {
    flight: Flight,
    timing: Timing,
    detection: Detection,
    tail: Tail,
    undo: Undo,
    pmtu: Pmtu,
    phase: Phase,
    cc: Congestion,
    ecn: EcnEcho,
    /// Absent where transmissions are not paced.
    pacer: Option<Pacer>,
    capping: Capping,
    round: Round,
    rto_timer: Timer,
    /// The retransmission timer fired: the head leaves again whatever the window says.
    head_due: bool,
    last_sent: Option<Instant>,
}

impl LossRecovery {
    pub(crate) fn new(isn: SeqNum, setup: &Setup) -> Self {
        let mut cc = Congestion::new(setup.algorithm, setup.mss, setup.initial_window);
        cc.set_paced(setup.paced);
        LossRecovery {
            flight: Flight::new(isn, setup.mss),
            timing: Timing::new(setup.min_rto, setup.max_rto),
            detection: Detection::new(setup.sack, NewReno::new(isn)),
            tail: Tail::new(),
            undo: Undo::default(),
            pmtu: Pmtu::new(setup.mss),
            phase: Phase::Open,
            cc,
            ecn: EcnEcho::new(),
            pacer: setup.paced.then(Pacer::new),
            capping: Capping::default(),
            round: Round::default(),
            rto_timer: Timer::OFF,
            head_due: false,
            last_sent: None,
        }
    }

    /// The scoreboard.
    pub(crate) fn flight(&self) -> &Flight {
        &self.flight
    }

    /// Round trip and timeout.
    pub(crate) fn timing(&self) -> &Timing {
        &self.timing
    }

    /// The congestion controller.
    pub(crate) fn cc(&self) -> &Congestion {
        &self.cc
    }

    /// What the last round trips carried.
    pub(crate) fn round(&self) -> &Round {
        &self.round
    }

    /// Payload bytes of a full segment.
    pub(crate) fn mss(&self) -> u32 {
        self.pmtu.current()
    }

    /// The peer sends SACK, and its blocks are valid.
    pub(crate) fn uses_sack(&self) -> bool {
        self.detection.sack.is_on()
    }

    /// The SYN in flight left once, at a time that only the echo of its timestamp may tell.
    pub(crate) fn forget_when_syn_left(&mut self) {
        self.timing.forget_when_syn_left();
    }

    /// The handshake decided on selective acknowledgements and on the payload bytes of a full segment.
    pub(crate) fn negotiated(&mut self, sack: bool, mss: u32) {
        self.detection.sack = sack::Sack::new(sack);
        self.pmtu = Pmtu::new(mss);
        self.adopt_mss();
        self.cc.begin();
    }

    /// The size of a full segment changed.
    fn adopt_mss(&mut self) {
        let mss = self.mss();
        self.flight.set_mss(mss);
        self.cc.set_mss(mss);
    }

    /// The peer took `len` bytes along with our SYN, which is all that is in flight: they were sent with it.
    pub(crate) fn syn_took(&mut self, len: u32) {
        self.flight.extend_last(len);
    }

    /// `len` numbers from `seq` on have left.
    pub(crate) fn sent(
        &mut self,
        now: Instant,
        seq: SeqNum,
        len: u32,
        control: Control,
        how: Sent,
    ) {
        let new = seq == self.flight.nxt();
        if let Some(pacer) = self.pacer.as_mut().filter(|_| self.flight.is_empty()) {
            pacer.on_idle(self.cc.initial_window());
        }
        if new {
            self.flight.sent_new(now, len, control);
            if how == Sent::MtuProbe {
                self.pmtu.probe_sent(now, seq, self.flight.nxt());
                self.flight.set_last_alone();
            }
        } else {
            self.note_retransmission(now, seq, len, how);
            self.pmtu.on_repeated(seq, seq + len);
            self.flight.sent_again(now, seq, len);
        }
        match how {
            Sent::Retransmit if self.repairs_head(seq) => self.rto_timer.set(now + self.rto()),
            Sent::New | Sent::Retransmit | Sent::MtuProbe => {
                self.rto_timer.set_if_off(now + self.rto())
            }
            Sent::Probe => {
                self.tail.sent(self.flight.nxt(), !new);
                // RFC 8985 section 7.3: the retransmission timer starts over behind the probe.
                self.rto_timer.set(now + self.rto());
            }
        }
        self.head_due &= how != Sent::Retransmit;
        if let Phase::Recovery { prr, .. } = &mut self.phase {
            prr.sent(len);
        }
        if new {
            self.undo.on_new_data(len);
            if !control.syn {
                self.schedule_probe(now);
            }
        }
        self.last_sent = Some(now);
        let (rate, mss) = (self.pacing_rate(), self.mss());
        if let Some(pacer) = &mut self.pacer {
            pacer.sent(now, len, rate, mss);
        }
        self.round.on_sent(self.inflight(), self.cc.cwnd(), mss);
    }

    /// Fast recovery resends the segment that the retransmission timer waits for, perhaps not for the first time: it has a
    /// round trip from now on, whatever queue it passes. A segment that never arrives must not put the timer off for ever. (Without
    /// SACK each partial acknowledgement has one resent, and the timer bounds how long that goes on: RFC 6582 section 4.)
    fn repairs_head(&self, seq: SeqNum) -> bool {
        let seldom = |head: &Entry| head.transmissions <= RESTARTS_OF_THE_HEAD;
        self.uses_sack()
            && seq == self.flight.una()
            && matches!(self.phase, Phase::Recovery { .. })
            && self.flight.head().is_some_and(seldom)
    }

    fn note_retransmission(&mut self, now: Instant, seq: SeqNum, len: u32, how: Sent) {
        self.undo.on_retransmission(how == Sent::Retransmit);
        if self.phase != Phase::Open {
            let again = self.flight.was_retransmitted(seq);
            self.undo.evidence.retransmitted(now, len, again);
        }
    }

    /// The first part of the flight that is marked lost and that the congestion window lets go now: whole segments of
    /// `mss` payload bytes, at most `max_burst` bytes.
    pub(crate) fn next_retransmit(&self, mss: u32, max_burst: u32) -> Option<Retransmit> {
        let lost = self.flight.next_lost(max_burst.max(mss))?;
        if lost.control.syn {
            return Some(lost.into());
        }
        if self.head_due && lost.seq == self.flight.una() {
            // RFC 6298 section 5.4, and RFC 5682 section 2.1 step 1: the first segment alone.
            return Some(lost.limited(mss).into());
        }
        if self.undo.frto.holds_retransmissions() {
            return None;
        }
        let room = self.cwnd_room();
        if room >= lost.payload() || self.inflight() == 0 && mss >= lost.payload() {
            return Some(lost.into());
        }
        let whole = room / mss.max(1) * mss;
        if whole == 0 && self.inflight() > 0 {
            return None;
        }
        Some(lost.limited(whole.max(mss)).into())
    }

    /// The probe that is due: the end of what was sent. New data makes as good a probe.
    pub(crate) fn tail_probe(&self, mss: u32) -> Option<Retransmit> {
        if !self.tail.is_due() {
            return None;
        }
        self.flight.tail(mss).map(Retransmit::from)
    }

    /// Payload bytes of the next segment of new data, if the path is to be probed with one larger than it is known to carry
    /// (RFC 8899): only where nothing is lost, and in a window that holds the segments behind it that would tell its loss. The
    /// window may be overdrawn by this one segment, since a busy sender never leaves the room for it.
    pub(crate) fn mtu_probe(&self, now: Instant) -> Option<u32> {
        let quiet = self.phase == Phase::Open && self.flight.lost() == 0 && self.uses_sack();
        let size = self.pmtu.probe_size(now).filter(|_| quiet)?;
        let behind = self.mss().saturating_mul(BEHIND_MTU_PROBE);
        let fits = self.cwnd_room() >= self.mss() && self.cc.cwnd() >= size.saturating_add(behind);
        fits.then_some(size)
    }

    /// New data is to be sent before anything is sent again: F-RTO judges by it.
    pub(crate) fn prefers_new(&self) -> bool {
        self.undo.frto.wants_new_data()
    }

    fn cwnd_room(&self) -> u32 {
        self.cc.cwnd().saturating_sub(self.inflight())
    }

    /// Bytes of new data that congestion control and loss recovery permit now. Limited transmit (RFC 3042) is included:
    /// what duplicates report as arrived no longer counts as in flight.
    pub(crate) fn allowance(&self) -> u32 {
        match self.undo.frto.new_data(self.mss()) {
            None => self.cwnd_room(),
            Some(bytes) => bytes,
        }
    }

    /// When pacing lets the next burst go; not after `now` if it may go at once.
    pub(crate) fn pacing_ready(&self, now: Instant) -> Instant {
        self.pacer.as_ref().map_or(now, |pacer| pacer.ready_at(now))
    }

    /// Largest burst that is sensible now.
    pub(crate) fn burst(&self) -> u32 {
        match self.pacer {
            Some(_) => Pacer::quantum(self.pacing_rate(), self.mss()),
            None => UNPACED_BURST,
        }
    }

    /// The rate that pacing keeps; without pacing, no limit.
    pub(crate) fn pacing_rate(&self) -> Rate {
        if self.pacer.is_none() {
            return Rate::MAX;
        }
        let rtt = self.round.min_rtt().or(self.timing.rtt().srtt());
        self.cc.pacing_rate(rtt.unwrap_or(Duration::ZERO))
    }

    /// Sending is about to start again with nothing outstanding.
    pub(crate) fn on_idle_restart(&mut self, now: Instant) {
        if let Some(since) = self.last_sent.filter(|_| self.flight.is_empty()) {
            self.cc.on_idle(now, since, self.timing.base_rto());
            self.timing.restarts(now.since(since));
        }
    }

    /// Smoothed round trip, of which what was measured before a rest ages until something is measured after it.
    pub(crate) fn aged_srtt(&self, now: Instant) -> Option<Duration> {
        self.timing.aged(self.rests(now))
    }

    /// How long nothing was sent. Absent while something is in flight.
    pub(crate) fn rests(&self, now: Instant) -> Option<Duration> {
        let since = self.last_sent.filter(|_| self.flight.is_empty())?;
        Some(now.since(since))
    }

    /// When to call [`on_timeout`](Self::on_timeout) if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut soonest = Soonest::default();
        soonest.consider_timer(&self.rto_timer);
        soonest.consider_timer(self.detection.timer());
        self.tail.consider(&mut soonest);
        soonest.get()
    }

    /// Something was lost, or a probe is due: what [`next_retransmit`](Self::next_retransmit) and
    /// [`tail_probe`](Self::tail_probe) need to answer anything.
    pub(crate) fn has_repairs(&self) -> bool {
        self.flight.lost() > 0 || self.tail.is_due()
    }

    fn rack_view(&self, now: Instant) -> rack::View {
        rack::View {
            now,
            min_rtt: self.timing.min_or_zero(),
            srtt: self.timing.srtt_or_zero(),
            in_recovery: self.in_recovery(),
            mss: self.mss(),
        }
    }

    /// Changes the algorithm of congestion avoidance and keeps the window.
    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.cc.set_algorithm(algorithm);
    }

    /// When the oldest segment in flight was last sent.
    pub(crate) fn head_sent_at(&self) -> Option<Instant> {
        self.flight.head().map(|head| head.sent_at)
    }

    /// Bytes estimated to be in the network.
    pub(crate) fn inflight(&self) -> u32 {
        let arrived = self.detection.newreno.arrived();
        self.flight.pipe().saturating_sub(arrived)
    }

    /// Something is unacknowledged.
    pub(crate) fn outstanding(&self) -> bool {
        !self.flight.is_empty()
    }

    /// The retransmission timeout as it stands, back-off included.
    pub(crate) fn rto(&self) -> Duration {
        self.timing.rto()
    }

    pub(crate) fn in_recovery(&self) -> bool {
        self.phase != Phase::Open
    }
}
