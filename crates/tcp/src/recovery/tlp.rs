//! Tail loss probes (RFC 8985 section 7): a lost tail draws an acknowledgement before the retransmission timer fires.

use manypath_wire::seq::SeqNum;

use super::scoreboard::AckReport;
use crate::time::{Duration, Instant};

/// Longest time a peer is expected to hold back the acknowledgement of a single segment (section 7.2: TLP.max_ack_delay).
pub const MAX_ACK_DELAY: Duration = Duration::from_millis(200);
/// Before the first round-trip sample (section 7.2).
const INITIAL: Duration = Duration::from_secs(1);
/// Below this, timers of hosts are coarser than the answer (Linux's `TCP_TIMEOUT_MIN` is two ticks).
const SMALLEST: Duration = Duration::from_millis(2);
/// So long a host with busy processors may pause (some slices of its scheduler): a shorter silence says nothing about a path. Measured: with three busy loops beside it on two processors, a path of 0.1 ms that was given up after 2 ms had its backup
/// carry 15 to 33 kB of 30 MB in four runs of ten.
pub const PAUSE: Duration = Duration::from_millis(20);

/// A probe under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    end: SeqNum,
    retransmission: bool,
}

/// What the scheduling of a probe depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The present time.
    pub now: Instant,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Outstanding bytes; probing needs some.
    pub outstanding: u32,
    /// Payload bytes of a full segment.
    pub mss: u32,
    /// Selective acknowledgements were agreed upon.
    pub sack: bool,
    /// Something is selectively acknowledged or marked lost, or recovery is under way.
    pub disorder: bool,
    /// When the retransmission timer fires.
    pub rto_at: Option<Instant>,
}

/// What an acknowledgement says about the probe (section 7.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing to conclude.
    Nothing,
    /// The probe is accounted for, and nothing was lost.
    Harmless,
    /// The probe repaired a loss: congestion control must react although nothing else will be retransmitted.
    RepairedLoss,
}

/// The state of tail loss probing on one subflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tlp {
    probe: Option<Probe>,
}

impl Tlp {
    /// No probe yet.
    pub fn new() -> Tlp {
        Tlp::default()
    }

    /// A probe is out and not accounted for.
    pub fn probing(&self) -> bool {
        self.probe.is_some()
    }

    /// When to probe, counted from `view.now`, at which something was sent or acknowledged (section 7.2); absent when a probe
    /// is not to be scheduled.
    pub fn deadline(&self, view: &View) -> Option<Instant> {
        if self.probe.is_some() || !view.sack || view.disorder || view.outstanding == 0 {
            return None;
        }
        Some(Tlp::silence(view))
    }

    /// When an answer should have arrived, probe or not, or when the retransmission
    /// timer fires.
    pub fn silence(view: &View) -> Instant {
        let timeout = match view.srtt {
            None => INITIAL,
            Some(srtt) if view.outstanding <= view.mss => srtt.times(2) + MAX_ACK_DELAY,
            Some(srtt) => srtt.times(2),
        };
        let at = view.now + timeout.max(SMALLEST);
        view.rto_at.map_or(at, |rto_at| at.min(rto_at))
    }

    /// When the acknowledgement of a single segment is late by what the peer has held one back before, where that is sooner than
    /// any probe. Too uncertain for anything that would cost the path something, but another path may repeat the segment.
    pub fn late(view: &View, held_back: Option<Duration>) -> Option<Instant> {
        let (srtt, held_back) = view.srtt.zip(held_back)?;
        let single = view.outstanding > 0 && view.outstanding <= view.mss && !view.disorder;
        let at = view.now + (srtt.times(2) + held_back).max(SMALLEST);
        (single && at < Tlp::silence(view)).then_some(at)
    }

    /// A probe left; `nxt` is the first number never sent after it (section 7.3).
    pub fn sent(&mut self, nxt: SeqNum, retransmission: bool) {
        self.probe = Some(Probe {
            end: nxt,
            retransmission,
        });
    }

    /// An acknowledgement up to `ack` arrived; `bare_duplicate` says that it moved nothing and carried no SACK block.
    pub fn on_ack(&mut self, ack: SeqNum, report: &AckReport, bare_duplicate: bool) -> Verdict {
        let Some(probe) = self.probe.filter(|probe| ack.after_eq(probe.end)) else {
            return Verdict::Nothing;
        };
        let duplicated = report.dsack.is_some_and(|(_, end)| end == probe.end);
        let verdict = if !probe.retransmission || duplicated || ack == probe.end && bare_duplicate {
            Verdict::Harmless
        } else if ack.after(probe.end) {
            Verdict::RepairedLoss
        } else {
            return Verdict::Nothing;
        };
        self.probe = None;
        verdict
    }

    /// Recovery by other means began: the probe no longer matters (section 7.4.1).
    pub fn forget(&mut self) {
        self.probe = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn view() -> View {
        View {
            now: at(1_000),
            srtt: Some(Duration::from_millis(30)),
            outstanding: 10_000,
            mss: 1_000,
            sack: true,
            disorder: false,
            rto_at: Some(at(1_230)),
        }
    }

    #[test]
    fn the_probe_timeout_follows_section_7_2() {
        let tlp = Tlp::new();
        for (view, expected) in [
            (view(), Some(1_060)),
            // One segment: the peer may hold the acknowledgement back; but never later than the retransmission timer.
            (
                View {
                    outstanding: 1_000,
                    ..view()
                },
                Some(1_230),
            ),
            (
                View {
                    outstanding: 1_000,
                    rto_at: Some(at(2_000)),
                    ..view()
                },
                Some(1_260),
            ),
            (
                View {
                    srtt: None,
                    rto_at: None,
                    ..view()
                },
                Some(2_000),
            ),
            (
                View {
                    sack: false,
                    ..view()
                },
                None,
            ),
            (
                View {
                    disorder: true,
                    ..view()
                },
                None,
            ),
            (
                View {
                    outstanding: 0,
                    ..view()
                },
                None,
            ),
            (
                View {
                    srtt: Some(Duration::from_micros(50)),
                    ..view()
                },
                Some(1_002),
            ),
        ] {
            assert_eq!(tlp.deadline(&view), expected.map(at), "{view:?}");
        }
    }

    #[test]
    fn one_probe_at_a_time() {
        let mut tlp = Tlp::new();
        tlp.sent(SeqNum::new(5_000), true);
        assert_eq!(tlp.deadline(&view()), None);
        tlp.forget();
        assert!(tlp.deadline(&view()).is_some());
    }

    #[test]
    fn a_single_segment_is_late_by_what_the_peer_held_back_before() {
        let single = View {
            outstanding: 1_000,
            ..view()
        };
        let ms = |ms| Some(Duration::from_millis(ms));
        for (name, view, held_back, expected) in [
            ("nothing is known", single, None, None),
            ("it held nothing back", single, ms(0), Some(1_060)),
            ("a little", single, ms(40), Some(1_100)),
            ("as long as any peer may", single, ms(200), None),
            (
                "two segments",
                View {
                    outstanding: 2_000,
                    ..single
                },
                ms(0),
                None,
            ),
            (
                "nothing",
                View {
                    outstanding: 0,
                    ..single
                },
                ms(0),
                None,
            ),
            (
                "losses",
                View {
                    disorder: true,
                    ..single
                },
                ms(0),
                None,
            ),
            (
                "no round trip",
                View {
                    srtt: None,
                    ..single
                },
                ms(0),
                None,
            ),
        ] {
            assert_eq!(Tlp::late(&view, held_back), expected.map(at), "{name}");
        }
    }

    #[test]
    fn the_probe_is_judged_by_section_7_4_2() {
        let end = SeqNum::new(5_000);
        let dsack = AckReport {
            dsack: Some((end - 1_000, end)),
            ..AckReport::default()
        };
        let other = AckReport {
            dsack: Some((end - 3_000, end - 2_000)),
            ..AckReport::default()
        };
        let plain = AckReport::default();
        for (retransmission, ack, report, bare, verdict, open) in [
            (true, end - 1, &plain, false, Verdict::Nothing, true),
            (false, end, &plain, false, Verdict::Harmless, false),
            (true, end, &dsack, false, Verdict::Harmless, false),
            (true, end, &plain, false, Verdict::Nothing, true),
            (true, end, &plain, true, Verdict::Harmless, false),
            (true, end + 1, &plain, false, Verdict::RepairedLoss, false),
            (true, end + 1, &other, false, Verdict::RepairedLoss, false),
        ] {
            let mut tlp = Tlp::new();
            tlp.sent(end, retransmission);
            assert_eq!(tlp.on_ack(ack, report, bare), verdict);
            assert_eq!(tlp.probing(), open);
        }
    }
}
