//! What was sent, what of it is lost, and when to send it again: retransmission by timer alone.

use manypath_wire::seq::SeqNum;

use crate::cc::{AckSample, Algorithm, Congestion, GroupView, Pacer};
use crate::time::{Duration, Instant};
use crate::timer::Timer;
use crate::units::Rate;

/// What a sender starts with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) mss: u32,
    pub(crate) sack: bool,
    pub(crate) algorithm: Algorithm,
    pub(crate) initial_window: u32,
    pub(crate) min_rto: Duration,
    pub(crate) max_rto: Duration,
    pub(crate) paced: bool,
}

/// Control bits that take sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Control {
    pub(crate) syn: bool,
    pub(crate) fin: bool,
}

/// How a segment relates to what was sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    New,
    Retransmit,
    Probe,
}

/// Something to send again; `len` is sequence space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Retransmit {
    pub(crate) seq: SeqNum,
    pub(crate) len: u32,
    pub(crate) syn: bool,
    pub(crate) fin: bool,
}

/// A tail loss probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    New,
    Again(Retransmit),
}

/// One acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckIn<'a> {
    pub(crate) ack: SeqNum,
    pub(crate) sack: &'a [(SeqNum, SeqNum)],
    pub(crate) ts: Option<Instant>,
    pub(crate) ts_rtt: Option<Duration>,
    pub(crate) duplicate: bool,
    pub(crate) ece: bool,
    pub(crate) window_moved: bool,
    pub(crate) app_limited: bool,
}

/// What it did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckEffect {
    pub(crate) newly_acked: u32,
    pub(crate) syn_acked: bool,
    pub(crate) fin_acked: bool,
    pub(crate) dsack: bool,
    pub(crate) recovered: bool,
    pub(crate) entered_recovery: bool,
    pub(crate) undone: bool,
    pub(crate) send_cwr: bool,
}

/// What a timer did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimerEffect {
    pub(crate) rto_fired: bool,
    pub(crate) backoffs: u8,
    pub(crate) probe: bool,
    pub(crate) lost: u32,
}

/// The sender's memory.
#[derive(Debug)]
pub(crate) struct LossRecovery {
    setup: Setup,
    isn: SeqNum,
    una: SeqNum,
    nxt: SeqNum,
    /// Everything between is to be sent again.
    lost_from: Option<SeqNum>,
    lost_until: SeqNum,
    timed: Option<(SeqNum, Instant)>,
    fin: Option<SeqNum>,
    mss: u32,
    cc: Congestion,
    pacer: Pacer,
    srtt: Option<Duration>,
    rttvar: Duration,
    min_rtt: Option<Duration>,
    backoffs: u8,
    timer: Timer,
}

impl LossRecovery {
    pub(crate) fn new(isn: SeqNum, setup: &Setup) -> Self {
        LossRecovery {
            setup: *setup,
            isn,
            una: isn,
            nxt: isn,
            lost_from: None,
            lost_until: isn,
            timed: None,
            fin: None,
            mss: setup.mss,
            cc: Congestion::new(setup.algorithm, setup.mss, setup.initial_window),
            pacer: Pacer::new(),
            srtt: None,
            rttvar: Duration::ZERO,
            min_rtt: None,
            backoffs: 0,
            timer: Timer::OFF,
        }
    }

    pub(crate) fn negotiated(&mut self, sack: bool, mss: u32) {
        self.setup.sack = sack;
        self.mss = mss;
        self.cc.set_mss(mss);
        self.cc.restart_initial(self.setup.initial_window);
    }

    pub(crate) fn sent(
        &mut self,
        now: Instant,
        seq: SeqNum,
        len: u32,
        control: Control,
        how: Sent,
    ) {
        let end = seq + len;
        if control.fin {
            self.fin = Some(end - 1);
        }
        match how {
            Sent::New => {
                self.nxt = end;
                self.timed.get_or_insert((end, now));
            }
            Sent::Retransmit | Sent::Probe => {
                self.nxt = self.nxt.max(end);
                self.timed = None;
            }
        }
        if self.lost_from == Some(seq) {
            self.lost_from = (end != self.lost_until).then_some(end);
        }
        self.timer.set_at_latest(now + self.rto());
        self.pacer.sent(now, len, self.rate(), self.mss);
    }

    fn rate(&self) -> Rate {
        if self.setup.paced {
            self.cc.pacing_rate(self.srtt.unwrap_or(Duration::ZERO))
        } else {
            Rate::MAX
        }
    }

    pub(crate) fn next_retransmit(&self, max_burst: u32) -> Option<Retransmit> {
        let from = self.lost_from?;
        if self.inflight() >= self.cc.cwnd() {
            return None;
        }
        let len = self.lost_until.since(from).min(max_burst.max(1));
        Some(self.part(from, len))
    }

    fn part(&self, seq: SeqNum, len: u32) -> Retransmit {
        let syn = seq == self.isn;
        let len = if syn { 1 } else { len };
        let fin = self.fin.is_some_and(|fin| fin.within(seq, len));
        Retransmit { seq, len, syn, fin }
    }

    pub(crate) fn tail_probe(&self, _now: Instant) -> Option<Probe> {
        None
    }

    pub(crate) fn allowance(&self) -> u32 {
        self.cc.cwnd().saturating_sub(self.inflight())
    }

    pub(crate) fn pacing_ready(&self, now: Instant) -> Instant {
        if self.setup.paced {
            self.pacer.ready_at(now)
        } else {
            now
        }
    }

    pub(crate) fn burst(&self) -> u32 {
        if self.setup.paced {
            Pacer::quantum(self.rate(), self.mss)
        } else {
            65536
        }
    }

    pub(crate) fn on_ack(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        group: &GroupView<'_>,
    ) -> AckEffect {
        let before = self.inflight();
        let mut effect = AckEffect::default();
        if ack.ack == self.una {
            return effect;
        }
        effect.newly_acked = ack.ack.since(self.una);
        effect.syn_acked = self.una == self.isn;
        effect.fin_acked = self.fin.is_some_and(|fin| fin.before(ack.ack));
        if effect.fin_acked {
            self.fin = None;
        }
        self.una = ack.ack;
        if self.lost_from.is_some_and(|from| from.before(ack.ack)) {
            self.lost_from = ack.ack.before(self.lost_until).then_some(ack.ack);
        }
        let rtt = self
            .timed
            .filter(|(end, _)| end.before_eq(ack.ack))
            .map(|(_, at)| now.since(at));
        if let Some(rtt) = rtt {
            self.timed = None;
            let srtt = self.srtt.unwrap_or(rtt);
            self.rttvar = self.rttvar.ratio(3, 4) + srtt.abs_diff(rtt).over(4);
            self.srtt = Some(srtt.ratio(7, 8) + rtt.over(8));
            self.min_rtt = Some(self.min_rtt.map_or(rtt, |m| m.min(rtt)));
        }
        self.backoffs = 0;
        self.timer.stop();
        if self.outstanding() {
            self.timer.set(now + self.rto());
        }
        self.cc.on_ack(
            &AckSample {
                now,
                acked: effect.newly_acked,
                inflight_before: before,
                inflight_after: self.inflight(),
                max_inflight: before,
                cwnd_limited: !ack.app_limited,
                rtt,
                srtt: self.srtt.unwrap_or(Duration::ZERO),
                min_rtt: self.min_rtt.unwrap_or(Duration::ZERO),
                acked_total: u64::from(self.una.since(self.isn)),
                sent_total: u64::from(self.nxt.since(self.isn)),
                rate: None,
                rate_app_limited: ack.app_limited,
            },
            group,
        );
        effect
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.timer.deadline()
    }

    pub(crate) fn on_timeout(&mut self, now: Instant, _more: bool) -> TimerEffect {
        let fired = self.timer.take_due(now);
        if fired {
            self.cc.on_rto(now, self.inflight(), self.backoffs > 0);
            self.backoffs = self.backoffs.saturating_add(1);
            self.lost_from = Some(self.una);
            self.lost_until = self.nxt;
            self.pacer.reset();
            self.timed = None;
            self.timer.set(now + self.rto());
        }
        TimerEffect {
            rto_fired: fired,
            backoffs: self.backoffs,
            probe: false,
            lost: 0,
        }
    }

    pub(crate) fn on_icmp_too_big(&mut self, _now: Instant, _seq: SeqNum, payload: u32) -> bool {
        let smaller = payload < self.mss && payload >= 500;
        if smaller {
            self.mss = payload;
            self.lost_from = Some(self.una);
            self.lost_until = self.nxt;
        }
        smaller
    }

    pub(crate) fn on_idle_restart(&mut self, _now: Instant) {}

    pub(crate) fn snd_una(&self) -> SeqNum {
        self.una
    }

    pub(crate) fn snd_nxt(&self) -> SeqNum {
        self.nxt
    }

    pub(crate) fn cwnd(&self) -> u32 {
        self.cc.cwnd()
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.cc.ssthresh()
    }

    pub(crate) fn inflight(&self) -> u32 {
        let lost = self.lost_from.map_or(0, |from| self.lost_until.since(from));
        self.nxt.since(self.una) - lost
    }

    pub(crate) fn outstanding(&self) -> bool {
        self.una != self.nxt
    }

    pub(crate) fn srtt(&self) -> Option<Duration> {
        self.srtt
    }

    pub(crate) fn rttvar(&self) -> Duration {
        self.rttvar
    }

    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        self.min_rtt
    }

    pub(crate) fn rto(&self) -> Duration {
        let base = match self.srtt {
            Some(srtt) => (srtt + self.rttvar.times(4)).max(self.setup.min_rto),
            None => Duration::from_secs(1),
        };
        base.times(1 << self.backoffs.min(16))
            .min(self.setup.max_rto)
    }

    pub(crate) fn backoffs(&self) -> u8 {
        self.backoffs
    }

    pub(crate) fn in_recovery(&self) -> bool {
        self.lost_from.is_some()
    }

    pub(crate) fn mss(&self) -> u32 {
        self.mss
    }
}
