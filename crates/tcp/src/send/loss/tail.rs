//! The timers that a sender sets while it waits for an acknowledgement: the probe timeout of RFC 8985 section 7.2, and the two that
//! tell the connection above that a path is slow to answer.

use crate::recovery::scoreboard::AckReport;
use crate::recovery::tlp::{PAUSE, Tlp, Verdict, View};
use crate::time::{Duration, Instant};
use crate::timer::{Soonest, Timer};
use manypath_wire::seq::SeqNum;

/// The probe timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pto {
    Off,
    At(Instant),
    /// It fired: the probe leaves as soon as the caller has room for it.
    Due,
}

/// Tail loss probing, and the timers beside it.
#[derive(Debug)]
pub(super) struct Tail {
    tlp: Tlp,
    pto: Pto,
    /// Stands in for the probe timeout where no probe is sent because losses are being repaired.
    silence: Timer,
    /// When the acknowledgement of a single segment is late.
    late: Timer,
}

/// What the timers tell of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) late: bool,
    pub(super) silent: bool,
    /// A probe is due since now.
    pub(super) probe: bool,
}

impl Tail {
    pub(super) fn new() -> Tail {
        Tail {
            tlp: Tlp::new(),
            pto: Pto::Off,
            silence: Timer::OFF,
            late: Timer::OFF,
        }
    }

    /// A probe is to be sent.
    pub(super) fn is_due(&self) -> bool {
        self.pto == Pto::Due
    }

    /// Adds the deadlines of this part.
    pub(super) fn consider(&self, soonest: &mut Soonest) {
        if let Pto::At(at) = self.pto {
            soonest.consider(Some(at));
        }
        soonest.consider_timer(&self.silence);
        soonest.consider_timer(&self.late);
    }

    /// Time passed.
    pub(super) fn on_timeout(&mut self, now: Instant, srtt: Option<Duration>) -> Fired {
        let mut fired = Fired {
            late: self.late.take_due(now),
            silent: self.silence.take_due(now),
            probe: matches!(self.pto, Pto::At(at) if at <= now),
        };
        if fired.probe {
            self.pto = Pto::Due;
            // A probe costs a segment; to move traffic to another path may cost money.
            match srtt.is_none_or(|srtt| srtt.times(2) >= PAUSE) {
                true => fired.silent = true,
                false => self.silence.set(now + PAUSE),
            }
        }
        fired
    }

    /// The probe left, and `nxt` is the first number never sent after it.
    pub(super) fn sent(&mut self, nxt: SeqNum, retransmission: bool) {
        self.pto = Pto::Off;
        self.tlp.sent(nxt, retransmission);
    }

    /// What an acknowledgement says about the probe (RFC 8985 section 7.4.2).
    pub(super) fn on_ack(&mut self, ack: SeqNum, report: &AckReport, bare: bool) -> Verdict {
        self.tlp.on_ack(ack, report, bare)
    }

    /// Another repair than the probe accounts for what it tells (RFC 8985 section 7.4.1).
    pub(super) fn forget_probe(&mut self) {
        self.tlp.forget();
    }

    /// Something new arrived at the peer: no probe is due for it.
    pub(super) fn on_delivered(&mut self) {
        if self.is_due() {
            self.pto = Pto::Off;
        }
    }

    /// Something was acknowledged: the path answers.
    pub(super) fn on_answer(&mut self) {
        self.silence.stop();
    }

    /// Fast recovery begins: no probe is needed.
    pub(super) fn on_recovery(&mut self) {
        self.tlp.forget();
        self.pto = Pto::Off;
    }

    /// The retransmission timer fired.
    pub(super) fn on_rto(&mut self) {
        self.tlp.forget();
        self.stop();
    }

    /// Nothing is in flight.
    pub(super) fn stop(&mut self) {
        self.pto = Pto::Off;
        self.silence.stop();
        self.late.stop();
    }

    /// Sets the timers after something was sent or acknowledged. `held_back`: how long the peer has delayed acknowledgements;
    /// `repairing`: fast recovery resends what is lost.
    pub(super) fn schedule(&mut self, view: &View, held_back: Option<Duration>, repairing: bool) {
        match self.tlp.deadline(view) {
            Some(at) => {
                self.pto = Pto::At(at);
                self.silence.stop();
                match Tlp::late(view, held_back) {
                    Some(at) => self.late.set(at),
                    None => self.late.stop(),
                }
            }
            None => {
                self.pto = Pto::Off;
                self.late.stop();
                // While a probe is out the timer runs on.
                if self.tlp.probing() {
                    return;
                }
                if repairing {
                    self.silence.set(Tlp::silence(view));
                } else {
                    self.silence.stop();
                }
            }
        }
    }
}
