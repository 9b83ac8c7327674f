//! What an acknowledgement means: each part takes it in, in the order of the RFCs.

use super::LossRecovery;
use super::path::may_exceed;
use super::timing::OUTAGE;
use super::types::{AckEffect, AckIn, Phase, Reduction};
use super::undo::Judgement;
use crate::cc::{AckSample, GroupView};
use crate::recovery::prr::Prr;
use crate::recovery::scoreboard::{AckInfo, AckReport};
use crate::recovery::tlp;
use crate::time::Instant;

/// What the window's adaptation depends on.
struct News<'a> {
    ack: &'a AckIn<'a>,
    report: &'a AckReport,
    before: Before,
    delivered: u32,
    newly_lost: u32,
    /// The window was set because of this acknowledgement already.
    settled: bool,
    /// It answers what was sent after a timeout.
    after_timeout: bool,
}

/// The state before an acknowledgement or a timer.
#[derive(Clone, Copy)]
pub(super) struct Before {
    inflight: u32,
    outstanding: u32,
    /// Outstanding and not known to have arrived.
    undelivered: u32,
    /// The head's last transmission.
    head_sent: Option<Instant>,
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
            // A pure receiver learns nothing from the acknowledgement of each segment.
            return AckEffect::default();
        }
        let before = self.before();
        let report = self.flight.on_ack(&AckInfo {
            now,
            ack: ack.ack,
            sack: ack.sack,
            echo_before: ack.echo.map(|echo| echo.before),
            min_rtt: self.timing.min_or_zero(),
        });
        self.detection.check_sack(&report);
        let delivered = self.delivered(ack, &report);
        self.round.on_ack(
            self.flight.acked_total(),
            self.flight.sent_total(),
            before.inflight,
        );
        self.take_time(now, ack, &report, &before);
        let silence = self.timing.backoffs();
        if report.acked > 0 {
            self.on_progress(&report, silence);
        }
        self.detection.on_ack(&report, &self.flight);
        let repaired = self.judge_probe(now, ack, &report, &before);
        let undone = self.judge_reduction(ack, &report);
        let after_timeout = matches!(self.phase, Phase::Loss { .. });
        let recovered = self.leave_recovery();
        let newly_lost = self.detect(now, ack, &report);
        let newly_lost = self.judge_mtu_probe(now, newly_lost);
        let reduced = self.reduce(now, ack, newly_lost, &before);
        let news = News {
            ack,
            report: &report,
            before,
            delivered,
            newly_lost,
            // Slow start goes on with the acknowledgement that ends the repair after a timeout (RFC 5681 section 3.1); fast recovery ends
            // with the window at the threshold.
            settled: repaired || recovered && !after_timeout || undone || reduced.is_some(),
            after_timeout,
        };
        self.adapt_window(now, &news, group);
        if self.cc.holds_rate_down() {
            self.flight.on_app_limited();
        }
        if report.acked > 0 && !report.control.syn && silence >= OUTAGE && !undone {
            self.cc.after_outage();
        }
        self.rearm(now, &report);
        AckEffect {
            newly_acked: report.acked,
            control: report.control,
            dsack: report.dsack.is_some(),
            undone,
            reduced,
        }
    }

    /// What is on its way now.
    pub(super) fn before(&self) -> Before {
        Before {
            inflight: self.inflight(),
            outstanding: self.flight.outstanding(),
            undelivered: self.flight.outstanding() - self.flight.sacked(),
            head_sent: self.head_sent_at(),
        }
    }

    /// Bytes that this acknowledgement says have arrived.
    fn delivered(&mut self, ack: &AckIn<'_>, report: &AckReport) -> u32 {
        if self.uses_sack() {
            return report.delivered;
        }
        let sizes = (self.flight.pipe(), self.mss());
        let newreno = &mut self.detection.newreno;
        newreno.on_ack(ack, report, &self.phase, sizes)
    }

    /// Takes in how long the answer took.
    fn take_time(&mut self, now: Instant, ack: &AckIn<'_>, report: &AckReport, before: &Before) {
        let all_acked = self.flight.is_empty();
        let congested = self.timing.on_ack(
            now,
            ack,
            report,
            before.head_sent,
            all_acked,
            &mut self.round,
        );
        if congested {
            self.cc.restart_initial(1);
        }
    }

    /// Something new is acknowledged, after `silence` timeouts in a row.
    fn on_progress(&mut self, report: &AckReport, silence: u8) {
        self.timing.on_progress();
        if silence > 0 {
            if self.pmtu.on_answer().is_some() {
                self.adopt_mss();
            }
        } else if may_exceed(report.acked, self.mss()) {
            // With the caller's options it may have been a full segment, and is mostly: one each acknowledgement proves its size as well.
            self.pmtu.on_delivered(self.mss());
        }
    }

    /// Takes an MTU probe's fate in, and returns how much of `newly_lost` says something about congestion.
    pub(super) fn judge_mtu_probe(&mut self, now: Instant, newly_lost: u32) -> u32 {
        if self.pmtu.on_ack(now, self.flight.una()).is_some() {
            self.adopt_mss();
        }
        let Some((start, end)) = self.pmtu.probe().filter(|_| newly_lost > 0) else {
            return newly_lost;
        };
        let lost = self.flight.lost_between(start, end);
        if lost > 0 && self.pmtu.on_probe_lost(now) {
            // A tail loss probe resent its last part, and repaired no other loss than this.
            self.tail.forget_probe();
        }
        // RFC 4821 section 7.5: a lost probe is no congestion signal.
        newly_lost.saturating_sub(lost)
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
        match self.tail.on_ack(ack.ack, report, bare) {
            tlp::Verdict::RepairedLoss if self.phase == Phase::Open => {
                self.cc.on_loss(now, self.window_in_use(before));
                self.cc.on_recovered();
                self.cc.forget_prior();
                self.ecn.on_other_reduction(self.flight.sent_total());
                true
            }
            tlp::Verdict::RepairedLoss | tlp::Verdict::Harmless | tlp::Verdict::Nothing => false,
        }
    }

    /// Undoes the last reduction if it answered no loss. True if so.
    fn judge_reduction(&mut self, ack: &AckIn<'_>, report: &AckReport) -> bool {
        match self.undo.on_ack(ack, report, self.flight.una()) {
            Judgement::Open => false,
            Judgement::Stands => {
                self.end_episode();
                false
            }
            Judgement::Spurious { after_recovery } => {
                self.flight.unmark_lost();
                self.head_due = false;
                let fast = after_recovery || matches!(self.phase, Phase::Recovery { .. });
                // Where fast retransmit was wrong the order changed, and what was sent before the retransmission may be as late.
                let proven = report.proven.filter(|_| !fast);
                self.detection.on_undo(fast, proven);
                self.cc.on_undo();
                self.end_episode();
                self.phase = Phase::Open;
                true
            }
        }
    }

    /// The last reduction stands, or is followed by another one.
    pub(super) fn end_episode(&mut self) {
        self.undo.end();
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
        self.detection.on_recovered();
        self.undo.on_recovered(self.flight.nxt());
        true
    }

    /// Marks what this acknowledgement shows to be lost. Returns how much.
    fn detect(&mut self, now: Instant, ack: &AckIn<'_>, report: &AckReport) -> u32 {
        if self.uses_sack() {
            // Where nothing arrived, nothing was overtaken; what only time decides is the timer's.
            return if report.delivered > 0 || report.proven.is_some() {
                self.detect_by_time(now)
            } else {
                0
            };
        }
        let mss = self.mss();
        let newreno = &mut self.detection.newreno;
        newreno.detect(ack, report, &self.phase, &mut self.flight, mss)
    }

    /// RACK: marks what is lost by now and sets the timer for what will be.
    pub(super) fn detect_by_time(&mut self, now: Instant) -> u32 {
        let view = self.rack_view(now);
        self.detection.by_time(&mut self.flight, &view)
    }

    /// Reduces the window for losses or a congestion mark, at most once.
    fn reduce(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        newly_lost: u32,
        before: &Before,
    ) -> Option<Reduction> {
        if self.phase != Phase::Open {
            return None;
        }
        if newly_lost > 0 {
            self.enter_recovery(now, before);
            return Some(Reduction::Loss);
        }
        let marked = ack.ece && self.on_congestion_echo(now, before);
        marked.then_some(Reduction::Ecn)
    }

    /// What a reduction goes by: the bytes outstanding (RFC 5681 equation 4: FlightSize). Where the application or the peer's window held
    /// the sender back since, that is less than was in flight when the path lost or marked something: what was in flight within the
    /// last round trips counts then (RFC 7661 section 4.4.1: the larger of pipeACK and FlightSize).
    fn window_in_use(&self, before: &Before) -> u32 {
        before.outstanding.max(self.round.max_inflight())
    }

    /// Losses were found: reduces the window and begins fast recovery. `before`: what was on its way before the acknowledgement or
    /// the timer that told.
    pub(super) fn enter_recovery(&mut self, now: Instant, before: &Before) {
        self.end_episode();
        self.cc.on_loss(now, self.window_in_use(before));
        self.undo.evidence.begin(self.flight.una());
        self.ecn.on_other_reduction(self.flight.sent_total());
        self.tail.on_recovery();
        let nxt = self.flight.nxt();
        self.detection.newreno.on_recovery(nxt);
        self.phase = Phase::Recovery {
            until: nxt,
            prr: Prr::begin(before.undelivered, self.cc.ssthresh()),
        };
        // The first retransmission leaves whatever the window says (RFC 6937 section 3).
        self.cc.set_cwnd(self.inflight().saturating_add(self.mss()));
    }

    /// RFC 3168 section 6.1.2: at most one reduction a window, and none beside that of a recovery.
    fn on_congestion_echo(&mut self, now: Instant, before: &Before) -> bool {
        let due = self
            .ecn
            .on_echo(self.flight.acked_total(), self.flight.sent_total());
        if due {
            self.cc.on_ecn(now, self.window_in_use(before));
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
            after_timeout: _,
        } = news;
        if ack.app_limited {
            self.flight.on_app_limited();
        }
        self.note_rate(now, report);
        let inflight = self.inflight();
        let recovering = matches!(self.phase, Phase::Recovery { .. });
        let sample = self.sample(now, news);
        if delivered > 0 && !report.control.syn {
            self.cc.observe(&sample, recovering);
        }
        let mss = self.mss();
        if let Phase::Recovery { prr, .. } = &mut self.phase {
            let safe = report.acked > 0 && newly_lost == 0;
            if let Some(cwnd) = prr.on_ack(delivered, inflight, safe, mss) {
                self.cc.set_cwnd(cwnd);
            }
            return;
        }
        // RFC 3168 section 6.1.2: an echoed mark is no occasion to grow. RFC 5681 section 3.2 step 1: neither is a duplicate.
        if settled || delivered == 0 || report.acked == 0 || report.control.syn || ack.ece {
            return;
        }
        if self.is_capped(now, sample.rtt.is_some()) {
            self.cc.on_capped(&sample, group);
            return;
        }
        self.cc.on_ack(&sample, group);
    }

    /// Takes in the delivery rate. A SYN is one number, and says nothing about bytes.
    fn note_rate(&mut self, now: Instant, report: &AckReport) {
        let Some(sample) = report.rate.filter(|_| !report.control.syn) else {
            return;
        };
        self.round.on_rate_sample(sample.rate());
        // What was sent twice and arrived once says nothing about how fast a path is.
        let again = report.retransmitted_acked || matches!(self.phase, Phase::Loss { .. });
        let min = self.timing.rtt().min();
        let whole = min.is_none_or(|min| sample.interval >= min);
        if whole && !again {
            let growing = self.cc.in_slow_start();
            self.round.on_certain_rate(now, &sample, growing);
        }
    }

    /// What congestion control has to know of an acknowledgement.
    fn sample(&self, now: Instant, news: &News<'_>) -> AckSample {
        let report = news.report;
        // After a timeout, a peer without SACK acknowledges in jumps what had arrived before (RFC 3465 section 2.3: L = 1).
        let jumps = !self.uses_sack() && news.after_timeout;
        AckSample {
            now,
            acked: if jumps {
                news.delivered.min(self.mss())
            } else {
                news.delivered
            },
            inflight_before: news.before.inflight,
            inflight_after: self.inflight(),
            max_inflight: self.round.max_inflight().max(news.before.inflight),
            cwnd_limited: self.round.cwnd_limited() || !news.ack.app_limited,
            rtt: report.latest_rtt,
            srtt: self.timing.srtt_or_zero(),
            min_rtt: self.timing.min_or_zero(),
            acked_total: self.flight.acked_total(),
            sent_total: self.flight.sent_total(),
            delivered_total: self.flight.delivered_total(),
            lost: news.newly_lost,
            rate: report.rate.map(|sample| sample.rate()),
            rate_app_limited: report.rate.is_some_and(|sample| sample.app_limited),
        }
    }

    /// Restarts the retransmission timer for an acknowledgement of something new (RFC 6298 section 5.3), unless RFC 6582 leaves it
    /// running.
    fn restart_timer(&mut self, now: Instant) {
        if let Phase::Recovery { until, .. } = self.phase {
            let (una, mss) = (self.flight.una(), self.mss());
            let newreno = &mut self.detection.newreno;
            if !self.detection.sack.is_on() && newreno.is_impatient(una, until, mss) {
                return;
            }
        }
        self.rto_timer.set(now + self.rto());
    }

    /// Sets the timers anew after an acknowledgement (RFC 6298 section 5, RFC 8985 section 7.2).
    fn rearm(&mut self, now: Instant, report: &AckReport) {
        if self.flight.is_empty() {
            self.rto_timer.stop();
            self.detection.stop();
            self.tail.stop();
            self.detection.newreno.forget_bytes();
            return;
        }
        if report.acked > 0 {
            self.restart_timer(now);
        }
        if report.delivered > 0 {
            self.tail.on_delivered();
        }
        self.head_due &= report.acked == 0;
        // RFC 8985 section 7.2: what acknowledges nothing does not put the probe off.
        if report.acked > 0 || report.delivered > 0 {
            self.tail.on_answer();
            self.schedule_probe(now);
        }
    }

    pub(super) fn schedule_probe(&mut self, now: Instant) {
        if self.tail.is_due() {
            return;
        }
        let syn = self.flight.head().is_some_and(|head| head.control.syn);
        let disorder =
            syn || self.in_recovery() || self.flight.sacked() > 0 || self.flight.lost() > 0;
        let view = tlp::View {
            now,
            srtt: self.timing.rtt().srtt(),
            outstanding: self.flight.outstanding(),
            mss: self.mss(),
            sack: self.uses_sack(),
            disorder,
            rto_at: self.rto_timer.deadline(),
        };
        // After a timeout nothing is suspected any more: it is known.
        let repairing = disorder && !syn && !matches!(self.phase, Phase::Loss { .. });
        let held_back = self.timing.rtt().held_back();
        self.tail.schedule(&view, held_back, repairing);
    }
}
