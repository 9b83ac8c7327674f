//! What acknowledgements measure: the round trip and the retransmission timeout (RFC 6298), and which of them measure nothing
//! (Karn's rule; RFC 7323 section 4.1).

use super::round::Round;
use super::types::AckIn;
use crate::recovery::rto::{INITIAL, Rto};
use crate::recovery::rtt::Rtt;
use crate::recovery::scoreboard::AckReport;
use crate::time::{Duration, Instant};

/// Timeouts in a row after which a path counts as out of order and not as congested: the next acknowledgement finds it empty. By
/// then at least seven initial timeouts have passed (1 + 2 + 4), longer than what was sent before stays in any queue.
pub(super) const OUTAGE: u8 = 3;

/// Share of the round trip below which it does not matter which of two SYNs was answered: RTTVAR of a first measurement is half of it
/// (RFC 6298 section 2.2), four times what is disregarded here.
const SYN_DOUBT: u64 = 8;

/// Round trip and timeout of one subflow.
#[derive(Debug)]
pub(crate) struct Timing {
    rtt: Rtt,
    rto: Rto,
    /// The last measurement was left out because an outage was part of it.
    outage_seen: bool,
    /// The peer acknowledged new data only by its answer to a retransmission: its acknowledgements before were lost or never sent.
    acks_missing: bool,
    /// Our SYN was sent once, when is not known, and only its echo was measured since.
    syn_forgotten: bool,
    /// How long the path carried nothing before what is in flight, while that has not been measured.
    rested: Duration,
}

/// What is left of a round trip after the path carried nothing for so long: after the last answer the queue that was measured becomes shorter
/// as time passes, down to the smallest recent round trip. Pure.
pub(super) fn faded(srtt: Duration, shortest: Duration, rested: Duration) -> Duration {
    let unanswered = rested.excess_over(srtt);
    srtt.excess_over(unanswered).max(shortest.min(srtt))
}

/// How long after the transmission that the echo tells of, the SYN that was acknowledged was sent again.
fn syn_sent_later(
    ack: &AckIn<'_>,
    report: &AckReport,
    head_sent: Option<Instant>,
) -> Option<Duration> {
    let repeated = report.control.syn && report.retransmitted_acked;
    let (sent, echo) = head_sent.zip(ack.echo).filter(|_| repeated)?;
    (echo.before <= sent).then(|| sent.since(echo.before))
}

/// The answer to a SYN that was sent again `later`. Whether it is late, or was sent again for the later SYN because the first
/// answer was lost, cannot be told: the echo is the same. Where that makes less than an eighth, it does not matter.
fn may_answer_either(ack: &AckIn<'_>, later: Duration) -> bool {
    ack.echo
        .is_none_or(|echo| later.times(SYN_DOUBT) > echo.rtt)
}

/// What acknowledges a forgotten SYN may not be the answer to it: where the first acknowledgement was lost, the next one has the same
/// echo, however late it is. After the initial timeout a SYN that is not forgotten would have been sent again.
fn may_be_late(ack: &AckIn<'_>) -> bool {
    ack.echo.is_some_and(|echo| echo.rtt > INITIAL)
}

impl Timing {
    pub(super) fn new(min_rto: Duration, max_rto: Duration) -> Timing {
        Timing {
            rtt: Rtt::new(),
            rto: Rto::new(min_rto, max_rto),
            outage_seen: false,
            acks_missing: false,
            syn_forgotten: false,
            rested: Duration::ZERO,
        }
    }

    pub(crate) fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Something is sent after the path has carried nothing for so long.
    pub(super) fn restarts(&mut self, rested: Duration) {
        self.rested = rested;
    }

    /// The smoothed round trip of a path that carries nothing since `rests`, if it does: what it would be measured as now. The queue
    /// that was in it may have been our own slow start's; it becomes shorter as time passes after the last answer.
    pub(super) fn aged(&self, rests: Option<Duration>) -> Option<Duration> {
        let (srtt, shortest) = (self.rtt.srtt()?, self.rtt.min()?);
        Some(faded(srtt, shortest, rests.unwrap_or(self.rested)))
    }

    /// Smoothed round trip; zero before the first sample.
    pub(super) fn srtt_or_zero(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::ZERO)
    }

    /// Smallest recent round trip; zero before the first sample.
    pub(super) fn min_or_zero(&self) -> Duration {
        self.rtt.min().unwrap_or(Duration::ZERO)
    }

    /// The last round trip that was measured, without what the peer may have delayed.
    pub(crate) fn latest_rtt(&self) -> Option<Duration> {
        self.rtt.srtt().map(|_| self.rtt.latest())
    }

    /// The retransmission timeout as it stands, back-off included.
    pub(crate) fn rto(&self) -> Duration {
        self.rto.current(&self.rtt)
    }

    /// The retransmission timeout without back-off.
    pub(crate) fn base_rto(&self) -> Duration {
        self.rto.base(&self.rtt)
    }

    /// Retransmission timeouts since the peer last acknowledged something new.
    pub(crate) fn backoffs(&self) -> u8 {
        self.rto.backoffs()
    }

    /// The peer acknowledged new data only by its answer to a retransmission.
    pub(super) fn acks_missing(&self) -> bool {
        self.acks_missing
    }

    /// The SYN in flight left once, at a time that only the echo of its timestamp may tell.
    pub(super) fn forget_when_syn_left(&mut self) {
        self.syn_forgotten = true;
    }

    /// The retransmission timer fired.
    pub(super) fn back_off(&mut self) {
        self.rto.back_off(&self.rtt);
    }

    /// The peer acknowledged something new.
    pub(super) fn on_progress(&mut self) {
        self.rto.on_progress();
    }

    /// Lifts the bound of the back-off while the retransmission timer runs.
    pub(super) fn lift_ceiling(&mut self) {
        self.rto.lift_ceiling(&self.rtt);
    }

    /// Bounds the back-off. True if that changed.
    pub(super) fn set_ceiling(&mut self, ceiling: Option<Duration>) -> bool {
        self.rto.set_ceiling(ceiling)
    }

    /// Takes in how long the answer took, as far as that is clear. `head_sent`: when the head of the flight had last been sent;
    /// `all_acked`: nothing is left in flight. True if the SYN took more than one retransmission, and none but the last was
    /// answered: the path may be congested.
    ///
    /// RFC 6298 section 5.7: a handshake whose SYN was sent again is followed by a longer timeout, unless it was measured. RFC 5681
    /// section 3.1 has it followed by a window of one segment as well, which RFC 6928 section 2 recommends only after more than one
    /// retransmission: one may be chance, or a middlebox that drops an option.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        report: &AckReport,
        head_sent: Option<Instant>,
        all_acked: bool,
        round: &mut Round,
    ) -> bool {
        let forgotten = report.control.syn && self.syn_forgotten;
        let later = syn_sent_later(ack, report, head_sent).filter(|_| !forgotten);
        let unclear = match forgotten {
            true => may_be_late(ack),
            false => later.is_some_and(|later| may_answer_either(ack, later)),
        };
        self.measure(now, ack, report, unclear, all_acked, round);
        if !(report.control.syn && report.retransmitted_acked && (unclear || !forgotten)) {
            return false;
        }
        let congested = self.rto.backoffs() > 1 && later.is_none();
        if self.rtt.srtt().is_none() {
            self.rto.after_syn_timeout();
        }
        congested
    }

    /// `unclear`: the echo may be of another transmission than the one that was answered.
    fn measure(
        &mut self,
        now: Instant,
        ack: &AckIn<'_>,
        report: &AckReport,
        unclear: bool,
        all_acked: bool,
        round: &mut Round,
    ) {
        if report.acked > 0 {
            self.acks_missing = report.dsack.is_some();
            if self.acks_missing {
                // The peer had all of it before. It reports the retransmission that made it answer (RFC 2883), and echoes the timestamp of
                // the data that came first: what lies between is our timer, no round trip. A timer that learned from itself would
                // double for ever.
                self.rto.on_sample();
                return;
            }
        }
        // Timestamps measure where Karn's rule forbids, but only an acknowledgement that advances (RFC 7323 section 4.1).
        let echoed = ack.echo.filter(|_| report.acked > 0 && !unclear);
        let echoed = echoed.map(|echo| echo.rtt);
        let of_data = echoed.is_some() && !report.control.syn;
        if report.rtt.is_none() && of_data && !self.outage_seen {
            // The data arrived before an outage in which its acknowledgement was lost: that is no round trip. Only once: a
            // path may have become that slow.
            self.outage_seen = self.rto.backoffs() >= OUTAGE;
            if self.outage_seen {
                return;
            }
        }
        // Without SACK what arrived behind a hole is acknowledged with it, long after it came; the echo knows better. Where both
        // are of one segment, the echo is the longer one, by part of a tick.
        let both = report.rtt.zip(echoed).map(|(rtt, echoed)| rtt.min(echoed));
        let Some(rtt) = both.or(report.rtt).or(echoed) else {
            return;
        };
        if self.syn_forgotten && !report.control.syn {
            // That echo told only that the round trip is not longer.
            (self.rtt, self.syn_forgotten) = (Rtt::new(), false);
        }
        self.outage_seen = false;
        self.rested = Duration::ZERO;
        let samples = round.on_rtt_sample(report.latest_rtt.unwrap_or(rtt).min(rtt));
        self.rtt.sample(now, rtt, samples);
        // Had more arrived, the peer would have acknowledged at once (RFC 5681 section 4.2).
        self.rtt.note_latest(rtt, all_acked);
        self.rto.on_sample();
    }

    /// Something else than an acknowledgement measured a round trip. It counts if nothing else has.
    pub(super) fn first_measured(&mut self, now: Instant, rtt: Duration) {
        if self.rtt.srtt().is_none() {
            self.rtt.sample(now, rtt, 1);
            self.rtt.note_latest(rtt, false);
            self.rto.on_sample();
        }
    }

    /// For tests that need a path of a given length.
    #[cfg(test)]
    pub(super) fn rtt_mut(&mut self) -> &mut Rtt {
        &mut self.rtt
    }
}
