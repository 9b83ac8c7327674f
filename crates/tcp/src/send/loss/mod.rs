//! The sender's memory of what it sent, and its judgement of what became of it.
//!
//! Brings the pieces of [`recovery`](crate::recovery) together with the congestion window: which phase the sender is in,
//! how much may leave, what leaves again, and when to look without being asked. It neither knows the peer's window nor
//! what data there is.

mod ack;
mod capping;
mod foreign;
mod round;
#[cfg(test)]
mod tests;
mod timeout;

use manypath_wire::seq::SeqNum;

use crate::cc::{Algorithm, Congestion, EcnEcho, Pacer};
use crate::recovery::pmtu::{Pmtu, Report};
use crate::recovery::prr::Prr;
use crate::recovery::rack::{self, Rack};
use crate::recovery::rto::Rto;
use crate::recovery::rtt::Rtt;
pub(crate) use crate::recovery::scoreboard::Control;
use crate::recovery::scoreboard::{Entry, Flight, Retransmit as Again};
use crate::recovery::spurious::{Evidence, Frto};
use crate::recovery::tlp::Tlp;
use crate::time::{Duration, Instant};
use crate::timer::{Soonest, Timer};
use crate::units::Rate;
use capping::Capping;
use foreign::Blocks;
use round::Round;

/// Largest burst when nothing paces: one segmentation-offload transmission.
const UNPACED_BURST: u32 = 64 * 1024;

/// Transmissions of the head up to which each in fast recovery has a time-out of its own.
const MOST_PUT_OFF: u16 = 4;

/// The options of the caller take up to this much of a full segment's payload (RFC 9293 section 3.1).
const CALLERS_OPTIONS: u32 = 40;

/// What a sender starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// Payload bytes of a full segment.
    pub(crate) mss: u32,
    /// Selective acknowledgements are hoped for.
    pub(crate) sack: bool,
    pub(crate) algorithm: Algorithm,
    /// In segments.
    pub(crate) initial_window: u32,
    pub(crate) min_rto: Duration,
    pub(crate) max_rto: Duration,
    pub(crate) paced: bool,
}

/// How a segment relates to what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    /// For the first time.
    New,
    /// Again, because it is held to be lost.
    Retransmit,
    /// As a tail loss probe, first time or again.
    Probe,
    /// For the first time, as one segment larger than the path is known to carry.
    MtuProbe,
}

/// Something to send again; `len` is sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmit {
    pub(crate) seq: SeqNum,
    pub(crate) len: u32,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
}

impl From<Again> for Retransmit {
    fn from(again: Again) -> Self {
        let Again {
            seq,
            len,
            control: Control { syn, fin },
        } = again;
        Retransmit { seq, len, syn, fin }
    }
}

/// One acknowledgement. `ack` lies between what is unacknowledged and what was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckIn<'a> {
    pub(crate) ack: SeqNum,
    pub(crate) sack: &'a [(SeqNum, SeqNum)],
    /// With timestamps: the segment that provoked it was sent before this instant.
    pub(crate) ts: Option<Instant>,
    /// With timestamps: time since that segment was sent, within a tick.
    pub(crate) ts_rtt: Option<Duration>,
    /// It is a duplicate in the sense of RFC 5681 section 2, and may signal congestion.
    pub(crate) duplicate: bool,
    /// It echoes a congestion mark.
    pub(crate) ece: bool,
    /// The congestion window was not what held the sender back.
    pub(crate) app_limited: bool,
}

/// What it did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AckEffect {
    /// Sequence space newly acknowledged.
    pub(crate) newly_acked: u32,
    pub(crate) syn_acked: bool,
    pub(crate) fin_acked: bool,
    /// It reports a duplicate arrival.
    pub(crate) dsack: bool,
    pub(crate) entered_recovery: bool,
    /// The last reduction of the window was taken back.
    pub(crate) undone: bool,
    /// The window was reduced because of a congestion mark; the peer must be told.
    pub(crate) send_cwr: bool,
}

/// What a timer did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TimerEffect {
    pub(crate) rto_fired: bool,
    /// The only segment in flight is not acknowledged although that has never taken so long lately.
    pub(crate) late: bool,
    /// Nothing was heard for two round trips, the time after which a tail loss probe is due (RFC 8985 section 7.2).
    pub(crate) silent: bool,
    /// The peer acknowledges repetitions only, and a timer waits in vain for more.
    pub(crate) withheld: bool,
    /// Retransmission timeouts since the peer last acknowledged something new.
    pub(crate) backoffs: u8,
}

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known to be lost, or what is lost says nothing about congestion.
    Open,
    /// Fast recovery until `until` is acknowledged.
    Recovery { until: SeqNum, prr: Prr },
    /// Recovery after a timeout until `until` is acknowledged.
    Loss { until: SeqNum },
}

/// `len` numbers may have been sent in segments with more than `size` bytes of payload and options of the caller, which nobody
/// noted. Too much costs one needless repetition, too little a time-out and the window.
fn may_exceed(len: u32, size: u32) -> bool {
    len.saturating_add(CALLERS_OPTIONS) > size
}

/// The sender's memory and judgement.
#[derive(Debug)]
pub(crate) struct LossRecovery {
    setup: Setup,
    mss: u32,
    flight: Flight,
    rtt: Rtt,
    rto: Rto,
    rack: Rack,
    tlp: Tlp,
    frto: Frto,
    /// New data sent while F-RTO waits for its verdict.
    frto_sent: u32,
    /// The last measurement was left out because an outage was part of it.
    outage_seen: bool,
    /// The peer acknowledged new data by what answers a repetition of it: its acknowledgements before were lost or never sent.
    withheld: bool,
    /// Our SYN was sent once, nobody remembers when, and nothing was measured since but by its echo.
    syn_forgotten: bool,
    evidence: Evidence,
    /// After a recovery, its reduction may be taken back until this is acknowledged.
    evidence_until: Option<SeqNum>,
    pmtu: Pmtu,
    phase: Phase,
    cc: Congestion,
    ecn: EcnEcho,
    pacer: Pacer,
    round: Round,
    blocks: Blocks,
    /// Duplicate acknowledgements in a row of a peer without SACK.
    duplicates: u32,
    /// The first partial acknowledgement of this recovery, from a peer without SACK, tells of many holes.
    many_holes: Option<bool>,
    /// Bytes that those duplicates say have arrived.
    duplicate_bytes: u32,
    /// No second fast retransmit before this is acknowledged (RFC 6582 section 3.2).
    recover: SeqNum,
    last_sent: Option<Instant>,
    /// The window is capped where queues are as long as the path.
    capping: Capping,
    probe_due: bool,
    /// The timer fired: the head leaves again whatever the window says.
    head_due: bool,
    rto_timer: Timer,
    rack_timer: Timer,
    tlp_timer: Timer,
    /// Stands in for the probe's timer where no probe is sent because losses are being repaired.
    silence_timer: Timer,
    /// The acknowledgement of a single segment is late.
    late_timer: Timer,
}

impl LossRecovery {
    pub(crate) fn new(isn: SeqNum, setup: &Setup) -> Self {
        let mut cc = Congestion::new(setup.algorithm, setup.mss, setup.initial_window);
        cc.set_paced(setup.paced);
        LossRecovery {
            setup: *setup,
            mss: setup.mss,
            flight: Flight::new(isn, setup.mss),
            rtt: Rtt::new(),
            rto: Rto::new(setup.min_rto, setup.max_rto),
            rack: Rack::new(),
            tlp: Tlp::new(),
            frto: Frto::Off,
            frto_sent: 0,
            outage_seen: false,
            withheld: false,
            syn_forgotten: false,
            evidence: Evidence::default(),
            evidence_until: None,
            pmtu: Pmtu::new(setup.mss),
            phase: Phase::Open,
            cc,
            ecn: EcnEcho::new(),
            pacer: Pacer::new(),
            round: Round::default(),
            blocks: Blocks::Unproven(0),
            duplicates: 0,
            many_holes: None,
            duplicate_bytes: 0,
            recover: isn,
            last_sent: None,
            capping: Capping::default(),
            probe_due: false,
            head_due: false,
            rto_timer: Timer::OFF,
            rack_timer: Timer::OFF,
            tlp_timer: Timer::OFF,
            silence_timer: Timer::OFF,
            late_timer: Timer::OFF,
        }
    }

    /// The SYN in flight left once, at a time that only the echo of its timestamp may tell.
    pub(crate) fn forget_when_syn_left(&mut self) {
        self.syn_forgotten = true;
    }

    /// The handshake decided on selective acknowledgements and on the payload bytes of a full segment.
    pub(crate) fn negotiated(&mut self, sack: bool, mss: u32) {
        self.setup.sack = sack;
        self.pmtu = Pmtu::new(mss);
        self.set_mss(mss);
        self.cc.restart_initial(self.setup.initial_window);
    }

    /// Selective acknowledgements were agreed on, and the peer's blocks are worth something.
    pub(crate) fn believes_sack(&self) -> bool {
        self.setup.sack
    }

    fn set_mss(&mut self, mss: u32) {
        self.mss = mss;
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
        if self.flight.is_empty() {
            self.pacer
                .on_idle(self.mss.saturating_mul(self.setup.initial_window));
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
                self.probe_due = false;
                self.tlp.sent(self.flight.nxt(), !new);
                self.tlp_timer.stop();
                // RFC 8985 section 7.3: the retransmission timer starts over behind the probe.
                self.rto_timer.set(now + self.rto());
            }
        }
        self.head_due &= how != Sent::Retransmit;
        if let Phase::Recovery { prr, .. } = &mut self.phase {
            prr.sent(len);
        }
        if new && self.frto.wants_new_data() {
            self.frto_sent = self.frto_sent.saturating_add(len);
        }
        if new && !control.syn {
            self.schedule_probe(now);
        }
        self.last_sent = Some(now);
        self.pacer.sent(now, len, self.pacing_rate(), self.mss);
        self.round
            .on_sent(self.inflight(), self.cc.cwnd(), self.mss);
    }

    /// Fast recovery repeats the segment that the retransmission timer waits for, perhaps not for the first time: it has a
    /// round trip from now on, whatever queue it passes. What never arrives must not put the timer off again and again. (Without
    /// SACK each partial acknowledgement has one repeated, and the timer bounds how long that goes on: RFC 6582 section 4.)
    fn repairs_head(&self, seq: SeqNum) -> bool {
        let seldom = |head: &Entry| head.transmissions <= MOST_PUT_OFF;
        self.setup.sack
            && seq == self.flight.una()
            && matches!(self.phase, Phase::Recovery { .. })
            && self.flight.head().is_some_and(seldom)
    }

    fn note_retransmission(&mut self, now: Instant, seq: SeqNum, len: u32, how: Sent) {
        if self.frto.wants_new_data() && how == Sent::Retransmit {
            // Nothing new could be sent, so F-RTO cannot tell (RFC 5682 section 2.1 step 2).
            self.frto = Frto::Off;
        }
        if self.phase != Phase::Open {
            self.evidence
                .retransmitted(now, len, self.flight.was_retransmitted(seq));
        }
    }

    /// The first part of the flight that is held to be lost and that the congestion window lets go now: whole segments of
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
        match self.frto {
            Frto::Off => {}
            Frto::HeadSent { .. } => return None,
            Frto::NewSent { .. } if self.frto_sent > 0 => return None,
            Frto::NewSent { .. } => {}
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
        if !self.probe_due {
            return None;
        }
        self.flight.tail(mss).map(Retransmit::from)
    }

    /// Payload bytes of the next segment of new data, if the path is to be tried with one larger than it is known to carry
    /// (RFC 8899): only while all is well, and in a window that holds the segments behind it that would tell its loss. The
    /// window may be overdrawn by this one segment, since a busy sender never leaves the room for it.
    pub(crate) fn mtu_probe(&self, now: Instant) -> Option<u32> {
        let quiet = self.phase == Phase::Open && self.flight.lost() == 0 && self.setup.sack;
        let size = self.pmtu.probe_size(now).filter(|_| quiet)?;
        let fits = self.cwnd_room() >= self.mss
            && self.cwnd() >= size.saturating_add(self.mss.saturating_mul(4));
        fits.then_some(size)
    }

    /// New data is to be sent before anything is sent again: F-RTO judges by it.
    pub(crate) fn prefers_new(&self) -> bool {
        self.frto.wants_new_data()
    }

    fn cwnd_room(&self) -> u32 {
        self.cc.cwnd().saturating_sub(self.inflight())
    }

    /// Bytes of new data that congestion control and loss recovery permit now. Limited transmit (RFC 3042) is included:
    /// what duplicates report as arrived no longer counts as in flight.
    pub(crate) fn allowance(&self) -> u32 {
        match self.frto {
            Frto::Off => self.cwnd_room(),
            Frto::HeadSent { .. } => 0,
            Frto::NewSent { .. } => self.mss.saturating_mul(2).saturating_sub(self.frto_sent),
        }
    }

    /// When pacing lets the next burst go; not after `now` if it may go at once.
    pub(crate) fn pacing_ready(&self, now: Instant) -> Instant {
        if self.setup.paced {
            self.pacer.ready_at(now)
        } else {
            now
        }
    }

    /// Largest burst that is sensible now.
    pub(crate) fn burst(&self) -> u32 {
        if self.setup.paced {
            Pacer::quantum(self.pacing_rate(), self.mss)
        } else {
            UNPACED_BURST
        }
    }

    /// The rate that pacing keeps; without pacing, no limit.
    pub(crate) fn pacing_rate(&self) -> Rate {
        if self.setup.paced {
            let rtt = self.round.min_rtt().or(self.rtt.srtt());
            self.cc.pacing_rate(rtt.unwrap_or(Duration::ZERO))
        } else {
            Rate::MAX
        }
    }

    /// Sending is about to start again with nothing outstanding.
    pub(crate) fn on_idle_restart(&mut self, now: Instant) {
        if let Some(since) = self.last_sent.filter(|_| self.flight.is_empty()) {
            self.cc.on_idle(now, since, self.rto.base(&self.rtt));
        }
    }

    /// How long nothing was sent. Absent while something is in flight.
    pub(crate) fn rests(&self, now: Instant) -> Option<Duration> {
        let since = self.last_sent.filter(|_| self.flight.is_empty())?;
        Some(now.since(since))
    }

    /// What was seen of the path counts no more, but its round trip.
    pub(crate) fn forget_path(&mut self) {
        self.round.forget_rates();
        self.end_episode();
        self.cc.forget_path(self.setup.initial_window);
    }

    /// A router says what its link carries; the number `seq` that it quotes is outstanding. True if segments are smaller from
    /// now on; what was too large is then held to be lost, which says nothing about congestion (RFC 8201 section 5.4).
    pub(crate) fn on_icmp_too_big(&mut self, now: Instant, seq: SeqNum, report: Report) -> bool {
        let outstanding = seq.within(self.flight.una(), self.flight.outstanding());
        if !outstanding {
            return false;
        }
        let Some(size) = self.pmtu.on_icmp(now, report, self.base_rto()) else {
            return false;
        };
        self.shrink_to(now, size);
        true
    }

    /// The interface and the peer let segments have `size` bytes of payload and options of the caller from now on. True if that
    /// makes them smaller; as above, it is no congestion.
    pub(crate) fn set_ceiling(&mut self, now: Instant, size: u32) -> bool {
        let smaller = self.pmtu.set_ceiling(size);
        if let Some(size) = smaller {
            self.shrink_to(now, size);
        }
        smaller.is_some()
    }

    /// Segments have at most `size` bytes from now on. What was sent larger leaves again at once, and has a round trip from now
    /// on.
    fn shrink_to(&mut self, now: Instant, size: u32) {
        self.set_mss(size);
        self.flight.mark_any(|entry| may_exceed(entry.len, size));
        if self.rto_timer.is_set() {
            self.rto_timer.set(now + self.rto());
        }
    }

    /// Bounds the back-off of the retransmission timer while another path carries the data, or no longer.
    pub(crate) fn set_rto_ceiling(&mut self, now: Instant, ceiling: Option<Duration>) {
        let runs = self.rto_timer.is_set();
        if runs && ceiling.is_none() {
            self.rto.lift_ceiling(&self.rtt);
        } else if self.rto.set_ceiling(ceiling) && runs {
            self.rto_timer.set_at_latest(now + self.rto());
        }
    }

    /// When to call [`on_timeout`](Self::on_timeout) if nothing else happens.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let mut soonest = Soonest::default();
        soonest.consider_timer(&self.rto_timer);
        soonest.consider_timer(&self.rack_timer);
        soonest.consider_timer(&self.tlp_timer);
        soonest.consider_timer(&self.silence_timer);
        soonest.consider_timer(&self.late_timer);
        soonest.get()
    }

    /// Something was lost, or a probe is due: what [`next_retransmit`](Self::next_retransmit) and
    /// [`tail_probe`](Self::tail_probe) need to answer anything.
    pub(crate) fn has_repairs(&self) -> bool {
        self.flight.lost() > 0 || self.probe_due
    }

    fn rack_view(&self, now: Instant) -> rack::View {
        rack::View {
            now,
            min_rtt: self.rtt.min().unwrap_or(Duration::ZERO),
            srtt: self.srtt_or_zero(),
            in_recovery: self.phase != Phase::Open,
            mss: self.mss,
        }
    }

    fn srtt_or_zero(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::ZERO)
    }

    /// First unacknowledged number.
    pub(crate) fn snd_una(&self) -> SeqNum {
        self.flight.una()
    }

    /// First number never sent.
    pub(crate) fn snd_nxt(&self) -> SeqNum {
        self.flight.nxt()
    }

    /// Bytes between losses, as coupled congestion control of other paths wants to know them.
    pub(crate) fn interloss(&self) -> u64 {
        self.cc.interloss()
    }

    pub(crate) fn set_algorithm(&mut self, algorithm: Algorithm) {
        self.cc.set_algorithm(algorithm);
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.cc.cwnd()
    }

    /// The window as a rate for others: during fast recovery, what it will be after it.
    pub(crate) fn lasting_cwnd(&self) -> u32 {
        match self.phase {
            Phase::Recovery { .. } => self.cc.ssthresh(),
            _ => self.cc.cwnd(),
        }
    }

    /// Caps the window where queues are excessive, or no longer (NSDI 2012 section 4.2, mechanism 4).
    pub(crate) fn set_capping(&mut self, on: bool) {
        if let Some(bytes) = self.capping.set(on, self.cc.cwnd()) {
            self.cc.return_to(bytes);
        }
    }

    /// Halves window and threshold because this path holds up others. A recovery under way has done as much.
    pub(crate) fn penalise(&mut self) -> bool {
        let open = self.phase == Phase::Open;
        if open {
            self.end_episode();
            self.cc.penalise();
        }
        open
    }

    /// A penalty holds that nothing has taken back.
    pub(crate) fn is_penalised(&self) -> bool {
        self.cc.is_penalised()
    }

    /// Takes penalties back.
    pub(crate) fn pardon(&mut self) {
        self.cc.pardon();
    }

    /// The highest delivery rate of the last two round trips.
    pub(crate) fn delivery_rate(&self) -> Option<Rate> {
        self.round.rate()
    }

    /// The highest delivery rate of the last seconds.
    pub(crate) fn peak_rate(&self) -> Option<Rate> {
        self.round.peak()
    }

    /// The highest rate of the last seconds that lasted for one.
    pub(crate) fn sustained_rate(&self) -> Option<Rate> {
        self.round.sustained()
    }

    /// Most bytes in the network during this round trip and the last.
    pub(crate) fn max_inflight(&self) -> u32 {
        self.round.max_inflight()
    }

    /// The last round trip that was measured, without what the peer may have waited.
    pub(crate) fn latest_rtt(&self) -> Option<Duration> {
        self.rtt.srtt().map(|_| self.rtt.latest())
    }

    /// When the oldest segment in flight was last sent.
    pub(crate) fn head_sent_at(&self) -> Option<Instant> {
        self.flight.head().map(|head| head.sent_at)
    }

    pub(crate) fn in_slow_start(&self) -> bool {
        self.cc.in_slow_start()
    }

    /// Only a penalty has ended slow start, or nothing.
    pub(crate) fn is_unproven(&self) -> bool {
        self.cc.is_unproven()
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.cc.ssthresh()
    }

    /// Bytes held to be in the network.
    pub(crate) fn inflight(&self) -> u32 {
        self.flight.pipe().saturating_sub(self.duplicate_bytes)
    }

    /// Bytes of memory held beyond itself.
    pub(crate) fn memory(&self) -> usize {
        self.flight.memory()
    }

    /// Something is unacknowledged.
    pub(crate) fn outstanding(&self) -> bool {
        !self.flight.is_empty()
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.rtt.srtt()
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.rtt.rttvar()
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.rtt.min()
    }

    /// The retransmission timeout as it stands, back-off included.
    pub(crate) fn rto(&self) -> Duration {
        self.rto.current(&self.rtt)
    }

    /// The retransmission timeout without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        self.rto.base(&self.rtt)
    }

    pub(crate) fn backoffs(&self) -> u8 {
        self.rto.backoffs()
    }

    pub(crate) fn in_recovery(&self) -> bool {
        self.phase != Phase::Open
    }

    /// Payload bytes of a full segment.
    pub(crate) fn mss(&self) -> u32 {
        self.mss
    }
}
