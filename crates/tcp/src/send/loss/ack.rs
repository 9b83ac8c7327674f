//! What an acknowledgement means.

use super::{AckEffect, AckIn, Blocks, LossRecovery, Phase};
use crate::cc::{AckSample, GroupView};
use crate::recovery::prr::Prr;
use crate::recovery::rto::INITIAL;
use crate::recovery::rtt::Rtt;
use crate::recovery::scoreboard::{AckInfo, AckReport};
use crate::recovery::spurious::{Frto, FrtoVerdict};
use crate::recovery::tlp::{self, Tlp};
use crate::time::{Duration, Instant};

/// Duplicate acknowledgements that mean a loss when the peer has no SACK (RFC 5681 section 3.2).
const DUP_THRESH: u32 = 3;

/// So many holes are repaired one in a round trip where the peer has no SACK.
const FEW_HOLES: u32 = 8;

/// Timeouts in a row after which a path was not congested, but out of order. The next acknowledgement finds it empty.
const OUTAGE: u8 = 3;

/// What the window's adaptation depends on.
struct News<'a> {
    ack: &'a AckIn<'a>,
    report: &'a AckReport,
    before: Before,
    delivered: u32,
    newly_lost: u32,
    /// The window was set because of this acknowledgement already.
    settled: bool,
}

/// The state before the acknowledgement was taken in.
#[derive(Clone, Copy)]
struct Before {
    inflight: u32,
    outstanding: u32,
    /// Outstanding and not known to have arrived.
    undelivered: u32,
    /// The head's last transmission.
    head_sent: Option<Instant>,
}

/// How long after what the echo tells of, the SYN that was acknowledged was sent again.
fn syn_sent_later(ack: &AckIn<'_>, report: &AckReport, before: &Before) -> Option<Duration> {
    let repeated = report.syn_acked && report.retransmitted_acked;
    let (sent, echo) = before.head_sent.zip(ack.ts).filter(|_| repeated)?;
    (echo <= sent).then(|| sent.since(echo))
}

/// The answer to a SYN that was sent again `later`. Whether it is late, or was repeated for the later one because the first
/// answer was lost, nobody can tell: the echo is the same. Where that makes less than an eighth, it does not matter.
fn may_be_repeated(ack: &AckIn<'_>, later: Duration) -> bool {
    ack.ts_rtt.is_none_or(|rtt| later.times(8) > rtt)
}

/// The answer to a SYN that nobody remembers may be none: where the first acknowledgement was lost, what comes next has the same
/// echo, however late it is. After so long a SYN that is remembered would have been sent again.
fn may_be_late(ack: &AckIn<'_>) -> bool {
    ack.ts_rtt.is_some_and(|rtt| rtt > INITIAL)
}

impl LossRecovery {
    /// Takes an acknowledgement in.
    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        group: &GroupView<'_>,
    ) -> AckEffect {
        if self.flight.is_empty() && ack.sack.is_empty() && !ack.ece {
            // Who only receives is told nothing by what comes along with each segment.
            return AckEffect::default();
        }
        let before = self.before();
        let report = self.flight.on_ack(&AckInfo {
            now,
            ack: ack.ack,
            sack: ack.sack,
            echo_before: ack.ts,
            min_rtt: self.rtt.min().unwrap_or(Duration::ZERO),
        });
        self.judge_blocks(&report);
        let delivered = self.delivered(ack, &report);
        self.round.on_ack(
            self.flight.acked_total(),
            self.flight.sent_total(),
            before.inflight,
        );
        self.take_time(now, ack, &report, &before);
        let silence = self.rto.backoffs();
        if report.acked > 0 {
            self.rto.on_progress();
            if silence > 0 {
                if let Some(larger) = self.pmtu.on_answer() {
                    self.set_mss(larger);
                }
            } else if report.acked >= self.mss {
                self.pmtu.on_delivered(self.mss);
            }
        }
        self.rack
            .on_ack(&report, self.flight.una(), self.flight.nxt());
        let repaired = self.judge_probe(now, ack, &report, &before);
        let undone = self.judge_reduction(ack, &report);
        let recovered = self.leave_recovery();
        let newly_lost = self.detect(now, ack, &report);
        let newly_lost = self.judge_mtu_probe(now, newly_lost);
        let entered_recovery = newly_lost > 0 && self.phase == Phase::Open;
        if entered_recovery {
            self.enter_recovery(now, before.outstanding, before.undelivered);
        }
        let send_cwr = ack.ece && self.on_congestion_echo(now, before.outstanding);
        let settled = repaired || send_cwr || recovered || undone || entered_recovery;
        let news = News {
            ack,
            report: &report,
            before,
            delivered,
            newly_lost,
            settled,
        };
        self.adapt_window(now, &news, group);
        if self.cc.holds_rate_down() {
            self.flight.on_app_limited();
        }
        if report.acked > 0 && !report.syn_acked && silence >= OUTAGE && !undone {
            self.cc.after_outage(self.setup.initial_window);
        }
        self.rearm(now, &report);
        AckEffect {
            newly_acked: report.acked,
            syn_acked: report.syn_acked,
            fin_acked: report.fin_acked,
            dsack: report.dsack.is_some(),
            entered_recovery,
            undone,
            send_cwr,
        }
    }

    /// Takes an MTU probe's fate in, and returns how much of `newly_lost` says something about congestion.
    pub(super) fn judge_mtu_probe(&mut self, now: Instant, newly_lost: u32) -> u32 {
        if let Some(larger) = self.pmtu.on_ack(now, self.flight.una()) {
            self.set_mss(larger);
        }
        let Some((start, end)) = self.pmtu.probe().filter(|_| newly_lost > 0) else {
            return newly_lost;
        };
        let lost = self.flight.lost_between(start, end);
        if lost > 0 && self.pmtu.on_probe_lost(now) {
            // A tail loss probe repeated its last part, and repaired no other loss than this.
            self.tlp.forget();
        }
        // RFC 4821 section 7.5: a lost probe is no congestion signal.
        newly_lost.saturating_sub(lost)
    }

    fn before(&self) -> Before {
        Before {
            inflight: self.inflight(),
            outstanding: self.flight.outstanding(),
            undelivered: self.flight.outstanding() - self.flight.sacked(),
            head_sent: self.flight.head().map(|head| head.sent_at),
        }
    }

    /// From the acknowledgement on that shows the peer's blocks to be worth nothing, it is a peer without SACK.
    fn judge_blocks(&mut self, report: &AckReport) {
        self.blocks = self.blocks.after(report.newly_sacked, report.foreign_sack);
        self.setup.sack &= self.blocks != Blocks::Foreign;
    }

    /// Bytes that this acknowledgement says have arrived. A peer without SACK says it by duplicates, each of which stands
    /// for one segment (RFC 5681 section 3.2).
    fn delivered(&mut self, ack: &AckIn<'_>, report: &AckReport) -> u32 {
        if self.setup.sack {
            return report.delivered;
        }
        if report.acked > 0 {
            // What fills the hole arrived now; the rest of the jump had been counted by duplicates.
            let counted = self
                .duplicate_bytes
                .min(report.acked.saturating_sub(self.mss));
            self.duplicate_bytes = if matches!(self.phase, Phase::Recovery { .. }) {
                self.duplicate_bytes - counted
            } else {
                0
            };
            self.duplicate_bytes = self.duplicate_bytes.min(self.flight.pipe());
            self.duplicates = 0;
            return report.acked - counted;
        }
        if !ack.duplicate || matches!(self.phase, Phase::Loss { .. }) {
            return 0;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        let arrived = self.mss.min(self.inflight());
        self.duplicate_bytes += arrived;
        arrived
    }

    /// Takes in how long the answer took, as far as that is clear.
    fn take_time(&mut self, now: Instant, ack: &AckIn<'_>, report: &AckReport, before: &Before) {
        let forgotten = report.syn_acked && self.syn_forgotten;
        let later = syn_sent_later(ack, report, before).filter(|_| !forgotten);
        let unclear = match forgotten {
            true => may_be_late(ack),
            false => later.is_some_and(|later| may_be_repeated(ack, later)),
        };
        self.measure(now, ack, report, unclear);
        if report.syn_acked && report.retransmitted_acked && (unclear || !forgotten) {
            self.on_repeated_syn_acked(later.is_some());
        }
    }

    /// `unclear`: what the echo tells of is not what was answered.
    fn measure(&mut self, now: Instant, ack: &AckIn<'_>, report: &AckReport, unclear: bool) {
        if report.acked > 0 {
            self.withheld = report.dsack.is_some();
            if self.withheld {
                // The peer had all of it before. It tells of the repetition that made it speak (RFC 2883), and its timestamp echo of the
                // data that came first: what lies between is our timer, no round trip. A timer that learned from itself would double
                // for ever.
                self.rto.on_sample();
                return;
            }
        }
        // Timestamps measure where Karn's rule forbids, but only an acknowledgement that advances (RFC 7323 section 4.1).
        let echoed = ack.ts_rtt.filter(|_| report.acked > 0 && !unclear);
        let of_data = echoed.is_some() && !report.syn_acked;
        if report.rtt.is_none() && of_data && !self.outage_seen {
            // The data arrived before an outage that swallowed its acknowledgement: that is no round trip. Only once: a
            // path may have become that slow.
            self.outage_seen = self.rto.backoffs() >= OUTAGE;
            if self.outage_seen {
                return;
            }
        }
        // Without SACK what arrived behind a hole is acknowledged with it, long after it came; the echo knows better. Where both
        // are of one segment, the echo is the longer one, by part of a tick.
        let both = report.rtt.zip(echoed).map(|(rtt, echoed)| rtt.min(echoed));
        if let Some(rtt) = both.or(report.rtt).or(echoed) {
            if self.syn_forgotten && !report.syn_acked {
                // What that echo told was no more than that the round trip is not longer.
                (self.rtt, self.syn_forgotten) = (Rtt::new(), false);
            }
            self.outage_seen = false;
            let samples = self
                .round
                .on_rtt_sample(report.latest_rtt.unwrap_or(rtt).min(rtt));
            self.rtt.sample(now, rtt, samples);
            // Had more arrived, the peer would have acknowledged at once (RFC 5681 section 4.2).
            self.rtt.note_latest(rtt, self.flight.is_empty());
            self.rto.on_sample();
        }
    }

    /// RFC 6298 section 5.7: a handshake that had to be repeated is followed by a patient timer, unless it was measured.
    /// RFC 5681 section 3.1 has it followed by one segment as well, which RFC 6928 section 2 recommends only after more than
    /// one repetition: one may be chance, or a box that does not like an option. Not if an earlier one was answered.
    fn on_repeated_syn_acked(&mut self, earlier: bool) {
        if self.rto.backoffs() > 1 && !earlier {
            self.cc.restart_initial(1);
        }
        if self.rtt.srtt().is_none() {
            self.rto.after_syn_timeout();
        }
    }

    /// Something else than an acknowledgement of ours measured a round trip. It counts if nothing else has.
    pub(crate) fn first_measured(&mut self, now: Instant, rtt: Duration) {
        if self.rtt.srtt().is_none() {
            self.rtt.sample(now, rtt, 1);
            self.rtt.note_latest(rtt, false);
            self.rto.on_sample();
        }
    }

    /// True if a tail loss probe turned out to have repaired a loss, and the window was reduced for it.
    fn judge_probe(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        report: &AckReport,
        before: &Before,
    ) -> bool {
        let bare = ack.duplicate && ack.sack.is_empty();
        match self.tlp.on_ack(ack.ack, report, bare) {
            tlp::Verdict::RepairedLoss if self.phase == Phase::Open => {
                self.cc.on_loss(now, before.outstanding);
                self.cc.on_recovered();
                self.cc.forget_prior();
                self.ecn.on_other_reduction(self.flight.sent_total());
                true
            }
            tlp::Verdict::RepairedLoss | tlp::Verdict::Harmless | tlp::Verdict::Nothing => false,
        }
    }

    /// Takes the last reduction back if it answered no loss. True if so.
    fn judge_reduction(&mut self, ack: &AckIn<'_>, report: &AckReport) -> bool {
        let una = self.flight.una();
        let before = self.frto;
        let late = match self.frto.on_ack(report, una, true) {
            FrtoVerdict::Spurious => true,
            FrtoVerdict::Wait | FrtoVerdict::Genuine => false,
        };
        if before != self.frto {
            self.frto_sent = 0;
        }
        if late || self.evidence.on_ack(report, ack.ts) {
            self.flight.unmark_lost();
            self.rack.forget_newest();
            self.rack_timer.stop();
            self.head_due = false;
            if matches!(self.phase, Phase::Recovery { .. }) || self.evidence_until.is_some() {
                self.rack.on_needless_retransmission();
            }
            self.cc.on_undo();
            self.end_episode();
            self.phase = Phase::Open;
            self.duplicate_bytes = 0;
            return true;
        }
        if self.evidence_until.is_some_and(|until| una.after_eq(until)) {
            self.end_episode();
        }
        false
    }

    pub(super) fn end_episode(&mut self) {
        self.frto = Frto::Off;
        self.evidence.end();
        self.evidence_until = None;
        self.cc.forget_prior();
    }

    /// Ends a recovery whose data is all acknowledged. True if so.
    fn leave_recovery(&mut self) -> bool {
        let until = match self.phase {
            Phase::Open => return false,
            Phase::Recovery { until, .. } | Phase::Loss { until } => until,
        };
        if self.flight.una().before(until) {
            return false;
        }
        if matches!(self.phase, Phase::Recovery { .. }) {
            self.cc.on_recovered();
        }
        self.phase = Phase::Open;
        self.frto = Frto::Off;
        self.duplicates = 0;
        self.duplicate_bytes = 0;
        self.rack.on_recovered();
        // Duplicate reports of this recovery's retransmissions may still be under way.
        self.evidence_until = Some(self.flight.nxt());
        true
    }

    /// Marks what this acknowledgement shows to be lost. Returns how much.
    fn detect(&mut self, now: Instant, ack: &AckIn<'_>, report: &AckReport) -> u32 {
        if self.setup.sack {
            // Where nothing arrived, nothing was overtaken; what only time decides is the timer's.
            return if report.delivered > 0 {
                self.detect_by_time(now)
            } else {
                0
            };
        }
        match self.phase {
            // RFC 6582 section 3.2 step 2: three duplicates, none of which an earlier recovery provoked.
            Phase::Open if ack.duplicate && self.duplicates == DUP_THRESH => {
                if self.flight.una().before(self.recover) {
                    0
                } else {
                    self.flight.mark_head(self.mss)
                }
            }
            // Step 3: a partial acknowledgement shows the next hole.
            Phase::Recovery { .. } if report.acked > 0 => {
                let lost = self.flight.mark_head(self.mss);
                self.duplicate_bytes = self.duplicate_bytes.min(self.flight.pipe());
                lost
            }
            Phase::Open | Phase::Recovery { .. } | Phase::Loss { .. } => 0,
        }
    }

    /// RACK: marks what is lost by now and sets the timer for what will be.
    pub(super) fn detect_by_time(&mut self, now: Instant) -> u32 {
        let view = self.rack_view(now);
        let found = self.rack.detect(&mut self.flight, &view);
        match found.look_again {
            Some(at) => self.rack_timer.set(at),
            None => self.rack_timer.stop(),
        }
        found.lost
    }

    /// Losses were found: reduces the window and begins fast recovery. `outstanding` and `undelivered` count what was on its
    /// way before the acknowledgement that told.
    pub(super) fn enter_recovery(&mut self, now: Instant, outstanding: u32, undelivered: u32) {
        self.end_episode();
        self.cc.on_loss(now, outstanding);
        self.evidence.begin(self.flight.una());
        self.ecn.on_other_reduction(self.flight.sent_total());
        self.tlp.forget();
        self.tlp_timer.stop();
        self.probe_due = false;
        self.recover = self.flight.nxt();
        self.many_holes = None;
        self.phase = Phase::Recovery {
            until: self.flight.nxt(),
            prr: Prr::begin(undelivered, self.cc.ssthresh()),
        };
        // The first retransmission leaves whatever the window says (RFC 6937 section 3).
        self.cc.set_cwnd(self.inflight().saturating_add(self.mss));
    }

    /// RFC 3168 section 6.1.2: at most one reduction a window, and none beside that of a recovery.
    fn on_congestion_echo(&mut self, now: Instant, outstanding: u32) -> bool {
        if self.phase != Phase::Open {
            return false;
        }
        let due = self
            .ecn
            .on_echo(self.flight.acked_total(), self.flight.sent_total());
        if due {
            self.cc.on_ecn(now, outstanding);
            self.end_episode();
        }
        due
    }

    /// The window's answer: proportional reduction in fast recovery, growth otherwise.
    fn adapt_window(&mut self, now: Instant, news: &News<'_>, group: &GroupView<'_>) {
        let &News {
            ack,
            report,
            before: _,
            delivered,
            newly_lost,
            settled,
        } = news;
        if ack.app_limited {
            self.flight.on_app_limited();
        }
        // A SYN is one number, and says nothing about bytes.
        if let Some(sample) = report.rate.filter(|_| !report.syn_acked) {
            self.round.on_rate_sample(sample.rate());
            // Nor does it say how fast a path is if what was sent twice arrived once.
            let again = report.retransmitted_acked || matches!(self.phase, Phase::Loss { .. });
            let whole = self.rtt.min().is_none_or(|min| sample.interval >= min);
            if whole && !again {
                let growing = self.cc.in_slow_start();
                self.round.on_certain_rate(now, &sample, growing);
            }
        }
        let inflight = self.inflight();
        let recovering = matches!(self.phase, Phase::Recovery { .. });
        let sample = self.sample(now, news);
        if delivered > 0 && !report.syn_acked {
            self.cc.observe(&sample, recovering);
        }
        if let Phase::Recovery { prr, .. } = &mut self.phase {
            let safe = report.acked > 0 && newly_lost == 0;
            if let Some(cwnd) = prr.on_ack(delivered, inflight, safe, self.mss) {
                self.cc.set_cwnd(cwnd);
            }
            return;
        }
        // RFC 3168 section 6.1.2: an echoed mark is no occasion to grow. RFC 5681 section 3.2 step 1: neither is a duplicate.
        if settled || delivered == 0 || report.acked == 0 || report.syn_acked || ack.ece {
            return;
        }
        if self.is_capped(now, sample.rtt.is_some()) {
            self.cc.on_capped(&sample, group);
            return;
        }
        self.cc.on_ack(&sample, group);
    }

    /// What congestion control has to know of an acknowledgement.
    fn sample(&self, now: Instant, news: &News<'_>) -> AckSample {
        let report = news.report;
        // After a timeout, a peer without SACK acknowledges in jumps what had arrived before (RFC 3465 section 2.3: L = 1).
        let jumps = !self.setup.sack && matches!(self.phase, Phase::Loss { .. });
        AckSample {
            now,
            acked: if jumps {
                news.delivered.min(self.mss)
            } else {
                news.delivered
            },
            inflight_before: news.before.inflight,
            inflight_after: self.inflight(),
            max_inflight: self.round.max_inflight().max(news.before.inflight),
            cwnd_limited: self.round.cwnd_limited() || !news.ack.app_limited,
            rtt: report.latest_rtt,
            srtt: self.srtt_or_zero(),
            min_rtt: self.rtt.min().unwrap_or(Duration::ZERO),
            acked_total: self.flight.acked_total(),
            sent_total: self.flight.sent_total(),
            delivered_total: self.flight.delivered_total(),
            lost: news.newly_lost,
            rate: report.rate.map(|sample| sample.rate()),
            rate_app_limited: report.rate.is_some_and(|sample| sample.app_limited),
        }
    }

    /// The timer is not set anew by this acknowledgement, although it shows something new.
    ///
    /// A peer without SACK shows one hole a round trip. RFC 6582 section 3.2 step 3 has the first partial acknowledgement of a
    /// recovery set the timer and no further one: who lost fifty segments begins again when it expires, and does not need fifty
    /// round trips for them (gauntlet 1012134). Not where few are missing, as far as duplicates tell: on a long path each is
    /// soon repaired, and to begin again costs the window.
    fn is_impatient(&mut self) -> bool {
        let Phase::Recovery { until, .. } = self.phase else {
            return false;
        };
        if self.setup.sack {
            return false;
        }
        let missing = until.since(self.flight.una());
        let missing = missing.saturating_sub(self.duplicate_bytes);
        let many = missing > self.mss.saturating_mul(FEW_HOLES);
        let first = self.many_holes.is_none();
        *self.many_holes.get_or_insert(many) && !first
    }

    /// Sets the timers anew after an acknowledgement (RFC 6298 section 5, RFC 8985 section 7.2).
    fn rearm(&mut self, now: Instant, report: &AckReport) {
        if self.flight.is_empty() {
            self.rto_timer.stop();
            self.rack_timer.stop();
            self.tlp_timer.stop();
            self.silence_timer.stop();
            self.late_timer.stop();
            self.probe_due = false;
            self.duplicate_bytes = 0;
            return;
        }
        if report.acked > 0 && !self.is_impatient() {
            self.rto_timer.set(now + self.rto());
        }
        if report.delivered > 0 {
            self.probe_due = false;
        }
        self.head_due &= report.acked == 0;
        // RFC 8985 section 7.2: what acknowledges nothing does not put the probe off.
        if report.acked > 0 || report.delivered > 0 {
            self.silence_timer.stop();
            self.schedule_probe(now);
        }
    }

    pub(super) fn schedule_probe(&mut self, now: Instant) {
        if self.probe_due {
            return;
        }
        let syn = self.flight.head().is_some_and(|head| head.control.syn);
        let disorder =
            syn || self.phase != Phase::Open || self.flight.sacked() > 0 || self.flight.lost() > 0;
        let view = tlp::View {
            now,
            srtt: self.rtt.srtt(),
            outstanding: self.flight.outstanding(),
            mss: self.mss,
            sack: self.setup.sack,
            disorder,
            rto_at: self.rto_timer.deadline(),
        };
        match self.tlp.deadline(&view) {
            Some(at) => {
                self.tlp_timer.set(at);
                self.silence_timer.stop();
                match Tlp::late(&view, self.rtt.held_back()) {
                    Some(at) => self.late_timer.set(at),
                    None => self.late_timer.stop(),
                }
            }
            None => {
                self.tlp_timer.stop();
                self.late_timer.stop();
                // After a timeout nothing is suspected any more: it is known.
                let repairing = disorder && !syn && !matches!(self.phase, Phase::Loss { .. });
                // While a probe is out the timer runs on.
                if repairing && !self.tlp.probing() {
                    self.silence_timer.set(Tlp::silence(&view));
                } else if !self.tlp.probing() {
                    self.silence_timer.stop();
                }
            }
        }
    }
}
