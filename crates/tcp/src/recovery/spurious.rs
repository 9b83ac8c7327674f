//! Was the loss none? F-RTO (RFC 5682), the Eifel detection by timestamps (RFC 3522) and duplicate reports (RFC 3708).

use manypath_wire::seq::SeqNum;

use super::scoreboard::AckReport;
use crate::time::Instant;

/// F-RTO with selective acknowledgements or without (RFC 5682 sections 2.1 and 3.1): after a timeout, the first
/// retransmission alone is sent, and the next acknowledgements tell whether the originals were only late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Frto {
    /// No timeout is being judged; recover as usual.
    #[default]
    Off,
    /// Step 2: the head was sent again and nothing else; waiting for the first acknowledgement.
    HeadSent {
        /// Everything sent before the timeout ends here.
        recover: SeqNum,
    },
    /// Step 3: that acknowledgement advanced; up to two new segments may leave, and the next one decides.
    NewSent {
        /// Everything sent before the timeout ends here.
        recover: SeqNum,
        /// Bytes of new data sent since.
        sent: u32,
    },
}

/// What F-RTO concludes from an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrtoVerdict {
    /// Nothing yet.
    Wait,
    /// Originals arrived: the timeout was spurious.
    Spurious,
    /// The loss is real, or cannot be told: go on as usual.
    Genuine,
}

impl Frto {
    /// Step 1: the timer fired. `recover` is the first number never sent; `fresh` says that no earlier timeout of the same
    /// data waits for its judgement, and that something besides the head is outstanding.
    pub fn on_timeout(recover: SeqNum, fresh: bool) -> Frto {
        if fresh {
            Frto::HeadSent { recover }
        } else {
            Frto::Off
        }
    }

    /// A judgement is pending: nothing but the head may be sent again.
    pub fn pending(&self) -> bool {
        *self != Frto::Off
    }

    /// Two new segments may leave, whatever the window says.
    pub fn wants_new_data(&self) -> bool {
        matches!(self, Frto::NewSent { .. })
    }

    /// `len` bytes of new data left.
    pub fn on_new_data(&mut self, len: u32) {
        if let Frto::NewSent { sent, .. } = self {
            *sent = sent.saturating_add(len);
        }
    }

    /// Bytes of new data that may leave while a judgement is pending, in segments of `mss` bytes; absent while none is.
    pub fn new_data(&self, mss: u32) -> Option<u32> {
        match self {
            Frto::Off => None,
            Frto::HeadSent { .. } => Some(0),
            Frto::NewSent { sent, .. } => Some(mss.saturating_mul(2).saturating_sub(*sent)),
        }
    }

    /// Nothing but the head may be sent again: the judgement waits for new data that has left, or for the head's answer. Where no
    /// new data could be sent, recovery goes on as usual.
    pub fn holds_retransmissions(&self) -> bool {
        match self {
            Frto::Off => false,
            Frto::HeadSent { .. } => true,
            Frto::NewSent { sent, .. } => *sent > 0,
        }
    }

    /// A segment with an acknowledgement arrived; `una` is the left edge after it, `duplicate` says that it is a duplicate ACK as RFC 5681
    /// section 2 defines it: the peer's data and window updates, which repeat the number too, tell nothing about a loss. `new_data` says
    /// that the caller has data never sent which the peer's window admits.
    pub fn on_ack(
        &mut self,
        report: &AckReport,
        una: SeqNum,
        duplicate: bool,
        new_data: bool,
    ) -> FrtoVerdict {
        let advanced = report.acked > 0;
        match *self {
            Frto::Off => FrtoVerdict::Wait,
            // Steps 2a and 3a: a duplicate means a loss, unless it answers a retransmission that was needless.
            Frto::HeadSent { .. } | Frto::NewSent { .. }
                if !advanced && report.newly_sacked == 0 =>
            {
                if report.dsack.is_some() || !duplicate {
                    return FrtoVerdict::Wait;
                }
                *self = Frto::Off;
                FrtoVerdict::Genuine
            }
            Frto::HeadSent { recover } => {
                if advanced && una.before(recover) && new_data {
                    *self = Frto::NewSent { recover, sent: 0 };
                    return FrtoVerdict::Wait;
                }
                *self = Frto::Off;
                FrtoVerdict::Genuine
            }
            Frto::NewSent { recover, .. } => {
                *self = Frto::Off;
                // Something sent once, before the timeout, arrived after it.
                match report.original_from {
                    Some(from) if from.before(recover) => FrtoVerdict::Spurious,
                    _ => FrtoVerdict::Genuine,
                }
            }
        }
    }
}

/// The evidence against a reduction of the window that could still be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Evidence {
    episode: Option<Episode>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Episode {
    /// Left edge when the episode began: what lies before it does not concern it.
    from: SeqNum,
    /// When the first retransmission left.
    first_retransmission: Option<Instant>,
    /// Bytes retransmitted and not yet reported as duplicates.
    unproven: u32,
    /// A retransmission was itself marked lost, so duplicate reports can no longer account for all.
    hopeless: bool,
    /// The recovery is over; the reduction may be undone until this is acknowledged.
    until: Option<SeqNum>,
}

impl Evidence {
    /// A reduction happened with the left edge at `una`.
    pub fn begin(&mut self, una: SeqNum) {
        self.episode = Some(Episode {
            from: una,
            first_retransmission: None,
            unproven: 0,
            hopeless: false,
            until: None,
        });
    }

    /// A timeout continues an episode, or begins one with the left edge at `una`.
    pub fn begin_or_continue(&mut self, una: SeqNum) {
        match &mut self.episode {
            Some(episode) => episode.until = None,
            None => self.begin(una),
        }
    }

    /// The recovery is over. Duplicate reports of its retransmissions may still be under way, until `nxt` is acknowledged.
    pub fn on_recovered(&mut self, nxt: SeqNum) {
        if let Some(episode) = &mut self.episode {
            episode.until = Some(nxt);
        }
    }

    /// The recovery is over, and its reduction may still be undone.
    pub fn is_after_recovery(&self) -> bool {
        self.until().is_some()
    }

    /// Everything up to `una` is acknowledged: true if the reduction of a recovery that is over stands from now on.
    pub fn is_settled(&self, una: SeqNum) -> bool {
        self.until().is_some_and(|until| una.after_eq(until))
    }

    fn until(&self) -> Option<SeqNum> {
        self.episode.as_ref()?.until
    }

    /// The reduction stands.
    pub fn end(&mut self) {
        self.episode = None;
    }

    /// `len` bytes were sent again at `now`; `again` says that it was not for the first time.
    pub fn retransmitted(&mut self, now: Instant, len: u32, again: bool) {
        if let Some(episode) = &mut self.episode {
            episode.first_retransmission.get_or_insert(now);
            episode.unproven = episode.unproven.saturating_add(len);
            episode.hopeless |= again;
        }
    }

    /// An acknowledgement arrived. True if it proves that every retransmission of the episode was needless:
    ///
    /// - it advanced the left edge and echoes a segment sent before the first retransmission (RFC 3522 section 3.2: Eifel;
    ///   `echo_before` as in [`AckInfo`](super::scoreboard::AckInfo)), or
    /// - duplicate reports have accounted for every byte sent again (RFC 3708 section 3).
    pub fn on_ack(&mut self, report: &AckReport, echo_before: Option<Instant>) -> bool {
        let Some(episode) = &mut self.episode else {
            return false;
        };
        let Some(first) = episode.first_retransmission else {
            return false;
        };
        if report.acked > 0 && echo_before.is_some_and(|before| before <= first) {
            return true;
        }
        if let Some((start, end)) = report.dsack {
            if start.after_eq(episode.from) && episode.unproven > 0 {
                episode.unproven = episode.unproven.saturating_sub(end.since(start));
                return episode.unproven == 0 && !episode.hopeless;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(n: u32) -> SeqNum {
        SeqNum::new(n)
    }

    fn advanced(from: u32) -> AckReport {
        AckReport {
            acked: 1_000,
            delivered: 1_000,
            original_from: Some(seq(from)),
            ..AckReport::default()
        }
    }

    fn sacked(from: u32) -> AckReport {
        AckReport {
            newly_sacked: 1_000,
            delivered: 1_000,
            original_from: Some(seq(from)),
            ..AckReport::default()
        }
    }

    #[test]
    fn two_advancing_acknowledgements_prove_a_spurious_timeout() {
        let mut frto = Frto::on_timeout(seq(10_000), true);
        assert_eq!(
            frto.on_ack(
                &AckReport {
                    acked: 1_000,
                    ..AckReport::default()
                },
                seq(1_000),
                false,
                true
            ),
            FrtoVerdict::Wait
        );
        assert!(frto.wants_new_data());
        assert_eq!(
            frto.on_ack(&advanced(1_000), seq(2_000), false, true),
            FrtoVerdict::Spurious
        );
        assert!(!frto.pending());
    }

    #[test]
    fn every_other_sequence_is_a_genuine_loss() {
        let first = AckReport {
            acked: 1_000,
            ..AckReport::default()
        };
        // Step 2a: a duplicate, or a report of data behind the head, comes first.
        for report in [AckReport::default(), sacked(3_000)] {
            let mut frto = Frto::on_timeout(seq(10_000), true);
            assert_eq!(
                frto.on_ack(&report, seq(0), true, true),
                FrtoVerdict::Genuine
            );
        }
        // Step 2b: everything is acknowledged at once, or nothing new could be sent.
        for (una, new_data) in [(10_000, true), (1_000, false)] {
            let mut frto = Frto::on_timeout(seq(10_000), true);
            assert_eq!(
                frto.on_ack(&first, seq(una), false, new_data),
                FrtoVerdict::Genuine
            );
            assert!(!frto.pending());
        }
        // Step 3a: a duplicate, or only the new segments arrive.
        for report in [AckReport::default(), sacked(10_000)] {
            let mut frto = Frto::on_timeout(seq(10_000), true);
            frto.on_ack(&first, seq(1_000), false, true);
            assert_eq!(
                frto.on_ack(&report, seq(1_000), true, true),
                FrtoVerdict::Genuine
            );
        }
        assert!(!Frto::on_timeout(seq(10_000), false).pending());
    }

    #[test]
    fn data_of_the_peer_and_its_window_updates_decide_nothing() {
        // RFC 5682 section 2.1 speaks of duplicate ACKs, which RFC 5681 section 2 defines.
        let other = AckReport::default();
        let mut frto = Frto::on_timeout(seq(10_000), true);
        assert_eq!(frto.on_ack(&other, seq(0), false, true), FrtoVerdict::Wait);
        assert_eq!(
            frto.on_ack(&advanced(0), seq(1_000), false, true),
            FrtoVerdict::Wait
        );
        assert_eq!(
            frto.on_ack(&other, seq(1_000), false, true),
            FrtoVerdict::Wait
        );
        assert_eq!(
            frto.on_ack(&advanced(1_000), seq(2_000), false, true),
            FrtoVerdict::Spurious
        );
    }

    #[test]
    fn an_echo_from_before_the_retransmission_takes_the_reduction_back() {
        let at = Instant::from_millis;
        for (echo, acked, undone) in [(100, 1_000, true), (101, 1_000, false), (100, 0, false)] {
            let mut evidence = Evidence::default();
            evidence.begin(seq(0));
            evidence.retransmitted(at(100), 1_000, false);
            evidence.retransmitted(at(105), 1_000, false);
            let report = AckReport {
                acked,
                ..AckReport::default()
            };
            assert_eq!(evidence.on_ack(&report, Some(at(echo))), undone);
        }
    }

    #[test]
    fn duplicates_take_it_back_when_they_account_for_everything() {
        let duplicate = |from: u32| AckReport {
            dsack: Some((seq(from), seq(from + 1_000))),
            ..AckReport::default()
        };
        let mut evidence = Evidence::default();
        assert!(
            !evidence.on_ack(&duplicate(0), None),
            "nothing to take back"
        );
        evidence.begin(seq(5_000));
        evidence.retransmitted(Instant::ZERO, 1_000, false);
        evidence.retransmitted(Instant::ZERO, 1_000, false);
        assert!(
            !evidence.on_ack(&duplicate(4_000), None),
            "older than the episode"
        );
        assert!(!evidence.on_ack(&duplicate(5_000), None));
        assert!(evidence.on_ack(&duplicate(6_000), None));
        evidence.begin(seq(5_000));
        evidence.retransmitted(Instant::ZERO, 1_000, true);
        assert!(
            !evidence.on_ack(&duplicate(5_000), None),
            "a retransmission was lost, so one loss at least was real"
        );
        evidence.end();
        evidence.retransmitted(Instant::ZERO, 1_000, false);
        assert!(!evidence.on_ack(&duplicate(5_000), None), "it is over");
    }
}
