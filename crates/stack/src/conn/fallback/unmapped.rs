//! Bytes of a subflow that no mapping covers (RFC 8684 sections 3.3.1 and 3.7). On the only subflow they are the stream in the end; beside
//! others they are discarded, the peer is queried, or the subflow is reset.
//!
//! The subflow acknowledged them, so TCP will not retransmit them, and they must not count at data level. They are held for a while, in
//! subflow order: a mapping may follow that covers them, where a middlebox split a segment and left the option on its last piece. If none
//! does, options do not pass any more, and subflow order is stream order: the connection falls back, and the held bytes are part of the
//! stream.
//!
//! Handles middleboxes that strip, split, coalesce and drop. // rfc8684:M2
//!
//! A peer that does not notice the fallback and misses Data ACKs would send old bytes again as new ones. So Data ACKs continue after such a
//! fallback, MP_FAIL reports it, and bytes that repeat held ones are detected.

use alloc::vec::Vec;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::segment::Segment;
use manypath_wire::seq::Ssn;
use manypath_wire::tcp::mptcp::{Dss, MptcpOption};

use crate::conn::Conn;
use crate::conn::dss::Numbers;
use crate::conn::fallback::Fallback;
use crate::conn::fallback::decide::{Content, Event, First, Others, Time};
use crate::conn::recv::queue::ReceiveQueue;
use crate::conn::subflow::Subflow;
use crate::conn::subflow::held_unmapped::{HeldUnmapped, STARTS};
use crate::conn::subflow::table::Subflows;
use crate::conn::types::{Cx, SubflowIdx};

/// Minimum time that the peer's answer to an MP_FAIL may take.
const LEAST_TO_ARRIVE: Duration = Duration::from_secs(2);

/// A late mapping comes on the next piece of the same segment; a round trip is ample, within these bounds. Before the first mapping, a
/// sender without mappings most probably uses plain TCP.
pub(in crate::conn) const SHORT_WAIT: (Duration, Duration) =
    (Duration::from_millis(10), Duration::from_millis(200));
/// Beyond our RTO and a round trip: longer than a peer without Data ACKs needs to resend what it misses.
const MARGIN: Duration = Duration::from_millis(100);
/// Most bytes held on the only subflow: half a second at a good rate.
const MOST_HELD: usize = 512 * 1024;
/// Most bytes held on a subflow beside others: pieces of a few segments.
const MOST_BESIDE_OTHERS: usize = 32 * 1024;
/// Unmapped bytes on one subflow after which its options count as lost. // rfc8684:D12,B5
pub(in crate::conn) const MOST_UNMAPPED: u64 = 64 * 1024;
/// Bytes held, with options proven on no other subflow, before the peer is queried.
const MUCH: usize = 64 * 1024;
/// Losses of single mappings that are repaired before the connection gives up on them.
const GAPS: u8 = 3;
/// Mappings received for each lost one, where losses are repaired. Each loss costs a data-level time-out.
const MAPPINGS_A_GAP: u64 = 8;

/// The fewest equal bytes that count as a repetition.
const FEWEST: usize = 16;
/// So many equal bytes are no coincidence; comparing more would let a peer make us work.
const ENOUGH: usize = 4096;

/// Whether a segment among held bytes begins a repetition of them: at a start from which a peer resends from one of the Data ACKs, `back`
/// bytes before the first held byte, each byte that is there twice being equal. Pure.
fn are_repeated(held: &[u8], starts: &[u64], back: impl Iterator<Item = u64> + Clone) -> bool {
    let mut begun = starts.iter().copied().filter(|start| *start > 0);
    begun.any(|start| {
        back.clone().any(|back| {
            let at = usize::try_from(start + back).unwrap_or(usize::MAX);
            held.get(at..).is_some_and(|again| {
                let len = again.len().min(start as usize).min(ENOUGH);
                len >= FEWEST && again[..len] == held[..len]
            })
        })
    })
}

/// Too many single mappings were lost, of those that came, for chance. What is dropped to be repaired is missing for good if the peer falls
/// back meanwhile, because its subflow has delivered it. Pure.
fn are_too_many(lost_mappings: u8, came: u64) -> bool {
    lost_mappings >= GAPS || came < u64::from(lost_mappings) * MAPPINGS_A_GAP
}

impl Subflows {
    /// The subflow is the only one and continues the stream.
    pub(in crate::conn) fn is_whole_stream(&self, recv: &ReceiveQueue, i: SubflowIdx) -> bool {
        self.is_certainly_alone(i) && self[i].is_first() && !recv.has_holes()
    }

    /// Mappings that are lost one by one leave others. Where none came for an RTO, none will.
    pub(crate) fn mappings_stopped(&self, i: SubflowIdx, now: Instant) -> bool {
        let sf = &self[i];
        let long = |since: Instant| now >= since + sf.tcp.rto();
        sf.unmapped.since.is_some_and(long) && sf.maps.rx.next_start().is_none()
    }

    /// The SRTT, bounded by `SHORT_WAIT`.
    fn short_wait(&self, i: SubflowIdx) -> Duration {
        let srtt = self[i].tcp.srtt().unwrap_or(SHORT_WAIT.1);
        srtt.max(SHORT_WAIT.0).min(SHORT_WAIT.1)
    }

    /// The next mapping is known and shows that bytes held from `ssn` on are not the next part of the stream: they are old, or something
    /// between is missing.
    fn is_contradicted(&self, recv: &ReceiveQueue, i: SubflowIdx, ssn: Ssn) -> bool {
        let next = self[i].maps.rx.next_start();
        next.is_some_and(|next| next.after(ssn)) && !self.continues_behind(recv, i, ssn)
    }

    /// The next mapping continues the stream as if the bytes before it, from `ssn` on, were its next part.
    fn continues_behind(&self, recv: &ReceiveQueue, i: SubflowIdx, ssn: Ssn) -> bool {
        let next = self[i].maps.rx.first();
        next.is_some_and(|m| m.at == recv.next() + u64::from(m.ssn.since(ssn)))
    }

    /// MP_FAIL reported to the peer that the order of the only subflow is the stream's. On receipt it continues there as TCP and resets all
    /// others, by RSTs that may not get through there: with another one up, we could not know any more that nothing of the stream went that
    /// way. So none comes up. But a peer that has not fallen back so long after did not receive it.
    pub(crate) fn awaits_fallback_of_peer(&self, now: Instant) -> bool {
        let lately = |sf: &Subflow| {
            let heard_by = |told: Instant| told + sf.tcp.base_rto().times(4).max(LEAST_TO_ARRIVE);
            sf.evidence
                .mp_fail_sent_at
                .is_some_and(|told| now < heard_by(told))
        };
        self.iter().any(lately)
    }

    /// The time of held bytes, or that of MP_FAIL for them, may be over. True if no mapping came in time. // rfc8684:B5
    pub(crate) fn held_due(
        &mut self,
        numbers: &Numbers,
        recv: &ReceiveQueue,
        i: SubflowIdx,
        cx: &mut Cx<'_>,
    ) -> bool {
        let (rto, short) = (self[i].tcp.rto(), self.short_wait(i));
        let held_back = self[i].signals.is_held_back();
        let Some(held) = &mut self[i].unmapped.held else {
            return false;
        };
        let fail_due = held.fail_at.take_if(|at| *at <= cx.now).is_some();
        let (queried, over) = (held.queried, held.until <= cx.now);
        if fail_due {
            // The MP_FAIL may be lost, and the peer would resend everything as new bytes.
            let pause = if queried || held_back {
                rto
            } else {
                short.max(cx.now.since(held.since))
            };
            held.fail_at = Some(cx.now + pause);
        }
        if !over && fail_due && (queried || self.is_whole_stream(recv, i)) {
            // A peer that receives this falls back and resends nothing.
            self.send_mp_fail(numbers, i, recv.next(), cx);
            self[i].evidence.mp_fail_sent_at = Some(cx.now);
        }
        over
    }
}

impl Fallback {
    /// Whether the connection falls back is undecided.
    pub(crate) fn fallback_undecided(&self, subflows: &Subflows) -> bool {
        self.checksum_failure.is_some() || subflows.iter().any(|sf| sf.unmapped.held.is_some())
    }

    /// The peer has fallen back, too.
    pub(crate) fn fallback_confirmed(&mut self, subflows: &mut Subflows) {
        self.unconfirmed = None;
        self.withhold_no_more(subflows);
    }

    /// Unmapped payload may be held. After some was dropped it is no part of the stream, but where nothing else has come for long, it shows
    /// that no options pass. And where a complete mapping was discarded, the next one may come on the last piece of its segment like that
    /// one: without the pieces before it, it could not count either, nor any after it.
    pub(crate) fn holds_unmapped(
        &self,
        recv: &ReceiveQueue,
        subflows: &Subflows,
        i: SubflowIdx,
        now: Instant,
    ) -> bool {
        let (sf, only) = (&subflows[i], subflows.is_whole_stream(recv, i));
        let nothing_lost = sf.unmapped.bytes == 0 && !(sf.unmapped.discarded_mapping && only);
        let stopped = subflows.mappings_stopped(i, now) && !only;
        self.checksum_failure.is_none() && (nothing_lost || stopped)
    }

    fn held_is_due(
        &self,
        subflows: &Subflows,
        recv: &ReceiveQueue,
        i: SubflowIdx,
        now: Instant,
    ) -> Option<Event> {
        let (sf, next) = (&subflows[i], recv.next());
        let held = sf.unmapped.held.as_ref()?;
        let mapped = sf.evidence.data_came_mapped;
        let others = subflows.others(i);
        let back = self.recent_acks.iter().map(|ack| next.since(ack));
        // Queried bytes are placed by the peer's answer alone.
        let only = !held.queried && subflows.is_whole_stream(recv, i);
        let content = if subflows.is_contradicted(recv, i, held.ssn) {
            Content::Contradicted
        } else if only && mapped && are_repeated(&held.bytes, &held.starts, back) {
            Content::Repeated
        } else {
            Content::Unknown
        };
        let time = if !held.is_full && subflows.proof_is_old(i, others, now) {
            Time::OldProof
        } else if now.since(held.since) >= subflows.patience(i) {
            Time::Enough
        } else {
            Time::Short
        };
        let first = match (mapped, sf.evidence.option_loss.awaits_option) {
            (true, _) => First::Mapped,
            (false, true) => First::UnmappedAnswer,
            (false, false) => First::Unmapped,
        };
        Some(Event::HeldDue {
            content,
            first,
            time,
        })
    }

    /// After fallback, the peer still sends Data ACKs: it does not know of it, or misses our Data ACKs. // rfc8684:B4
    pub(crate) fn on_options(
        &mut self,
        numbers: &Numbers,
        subflows: &mut Subflows,
        i: SubflowIdx,
        seg: &Segment<'_>,
        cx: &mut Cx<'_>,
    ) {
        let speaks = seg.options.mptcp.iter().any(|option| match option {
            MptcpOption::Dss(dss) => dss.mapping.is_none_or(|mapping| !mapping.is_infinite()),
            _ => false,
        });
        if !speaks {
            return;
        }
        match &mut self.unconfirmed {
            None => {
                self.announce.without_data = true;
                subflows[i].tcp.force_ack();
            }
            Some(unconfirmed) if unconfirmed.again_at <= cx.now => {
                unconfirmed.again_at = cx.now + subflows[i].tcp.rto();
                let at = unconfirmed.at;
                subflows.send_mp_fail(numbers, i, at, cx);
            }
            Some(_) => {}
        }
    }
}

impl Conn {
    /// Holds bytes that no mapping covers. // rfc8684:D11
    pub(crate) fn hold_unmapped(&mut self, i: SubflowIdx, ssn: Ssn, bytes: &[u8], cx: &mut Cx<'_>) {
        let only = self.subflows.is_whole_stream(&self.recv, i);
        let others = self.subflows.others(i);
        let most = match others == Others::Proven && !self.subflows.proof_is_old(i, others, cx.now)
        {
            true => MOST_BESIDE_OTHERS,
            false => MOST_HELD.min(self.recv.room() as usize),
        };
        if only {
            self.fallback
                .withhold(&mut self.subflows, i, bytes.len(), cx);
        }
        let (patience, short) = (self.subflows.patience(i), self.subflows.short_wait(i));
        let sf = &mut self.subflows[i];
        let srtt = sf.tcp.srtt();
        let (fail_at, wait) = if sf.evidence.data_came_mapped && only {
            let wait = sf.tcp.rto() + srtt.unwrap_or(Duration::ZERO) + MARGIN;
            (Some(cx.now + short), wait)
        } else if others != Others::None
            || !sf.evidence.data_came_mapped && (only || sf.evidence.option_loss.awaits_option)
        {
            (None, short)
        } else {
            // The peer may send it again, with a mapping.
            (None, (sf.tcp.rto() + MARGIN).times(2))
        };
        let held = sf.unmapped.held.get_or_insert_with(|| HeldUnmapped {
            ssn,
            bytes: Vec::new(),
            starts: Vec::new(),
            mappings: sf.evidence.mappings_before,
            fail_at,
            until: cx.now + wait,
            since: cx.now,
            queried: false,
            is_full: false,
        });
        cx.count.unmapped_bytes += bytes.len() as u64;
        if held.is_needless() {
            (held.until, held.fail_at) = (cx.now + patience.times(2), Some(cx.now + short));
        }
        // Once some did not fit, what follows has no place behind what is held.
        if !held.is_full && held.bytes.len() + bytes.len() <= most {
            if held.starts.len() < STARTS {
                held.starts.push(held.bytes.len() as u64);
            }
            held.bytes.extend_from_slice(bytes);
            // This is no piece of a segment, nor chance.
            if !only && !held.queried && held.bytes.len() > MUCH && others != Others::Proven {
                self.settle_unmapped(i, cx);
            }
            return;
        }
        // The limit is reached: what was held is settled, and this follows it.
        held.is_full = true;
        self.settle_unmapped(i, cx);
        if self.subflows[i].closing.reset_with.is_some() {
            // Held bytes are lost, and these have no place without them.
        } else if self.level.is_multipath() {
            self.discard_unmapped(i, bytes.len(), cx);
        } else {
            self.incoming().take_plain(i, ssn, bytes, cx);
        }
    }

    /// Checks whether a mapping covers the held bytes, or shows that options pass and theirs was lost. True if nothing is held any more.
    pub(crate) fn match_unmapped(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) -> bool {
        let sf = &mut self.subflows[i];
        let Some(held) = &sf.unmapped.held else {
            return true;
        };
        let ssn = held.ssn;
        let passed_since = sf.evidence.mappings > held.mappings;
        let (told, queried) = (sf.evidence.mp_fail_sent_at.is_some(), held.queried);
        let covered = sf.maps.rx.current(ssn).is_some();
        // While something before the next mapping is missing, it may carry the mapping of held bytes.
        let end = ssn + u32::try_from(held.bytes.len()).unwrap_or(u32::MAX);
        let reached = |next: Ssn| !next.after(end);
        let skipped = passed_since && sf.maps.rx.next_start().is_some_and(reached);
        if !(covered || skipped) {
            return false;
        }
        if !covered
            && self.subflows.is_whole_stream(&self.recv, i)
            && self.subflows.continues_behind(&self.recv, i, ssn)
        {
            if !self.numbers.checksum {
                let held = self.subflows[i].unmapped.held.take();
                self.fallback.withhold_no_more(&mut self.subflows);
                let bytes = held.map(HeldUnmapped::into_bytes).unwrap_or_default();
                let (_, advanced) = self.recv.accept(None, self.recv.next(), &bytes);
                if advanced > 0 {
                    self.events.report_readable(self.handshake.is_established());
                }
                return true;
            }
            if queried {
                // The answer is on its way, and places it.
                return false;
            }
            self.fallback.lost_mappings = self.fallback.lost_mappings.saturating_add(1);
            let first = self.recv.next() == self.numbers.rx_start;
            if first
                || told
                || are_too_many(
                    self.fallback.lost_mappings,
                    self.subflows[i].evidence.mappings,
                )
            {
                // The peer already falls back, or no data was verified before, or mappings are lost one by one, and each would cost a
                // time-out.
                self.settle_unmapped(i, cx);
                return true;
            }
        }
        if !covered {
            // Mappings come, but not for this: at data level it is missing, and will be resent.
            self.subflows[i].unmapped.note_out_of_order();
        }
        self.take_held(i, cx);
        self.subflows[i].unmapped.held.is_none()
    }

    /// Passes the held bytes to the mappings known by now.
    pub(in crate::conn) fn take_held(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        if let Some(held) = self.subflows[i].unmapped.held.take() {
            self.fallback.withhold_no_more(&mut self.subflows);
            let (ssn, was_full) = (held.ssn, held.is_full);
            self.take_payload(i, ssn, &held.into_bytes(), None, cx);
            // Of what is held again the end is the same, and what followed was discarded.
            if let Some(held) = &mut self.subflows[i].unmapped.held {
                held.is_full |= was_full;
            }
        }
    }

    /// In-order subflow bytes that no mapping covers: acknowledged at subflow level, never at data level. // rfc8684:D11
    pub(in crate::conn) fn discard_unmapped(
        &mut self,
        i: SubflowIdx,
        bytes: usize,
        cx: &mut Cx<'_>,
    ) {
        cx.count.unmapped_bytes += bytes as u64;
        let unmapped = &mut self.subflows[i].unmapped;
        unmapped.bytes += bytes as u64;
        unmapped.since.get_or_insert(cx.now);
        let many = unmapped.bytes >= MOST_UNMAPPED;
        let stopped = self.subflows.mappings_stopped(i, cx.now);
        if many || stopped {
            self.fall_back(i, Event::Discarded { many, stopped }, cx);
        }
    }

    /// Decides about held bytes: they are the stream, or the subflow goes on without them, or it is reset.
    // rfc8684:B4,B5,D12
    pub(crate) fn settle_unmapped(&mut self, i: SubflowIdx, cx: &mut Cx<'_>) {
        let (subflows, recv) = (&self.subflows, &self.recv);
        if let Some(event) = self.fallback.held_is_due(subflows, recv, i, cx.now) {
            self.fall_back(i, event, cx);
        }
    }

    /// DSS of a peer that did not notice our fallback: its DATA_FIN, repeated mappings and infinite mapping count.
    pub(crate) fn on_dss_after_fallback(&mut self, i: SubflowIdx, dss: &Dss, cx: &mut Cx<'_>) {
        let (Some(numbers), Some(mapping)) = (self.numbers.rx, dss.mapping) else {
            return;
        };
        if mapping.is_infinite() {
            self.fallback.fallback_confirmed(&mut self.subflows); // rfc8684:B14
            let resend = self.fallback.resend_of_peer(
                &self.numbers,
                &self.recv,
                &self.subflows,
                i,
                &mapping,
                cx.segment,
            );
            let again = resend.is_some();
            // Before a resend began, positions and SSNs are those of the peer.
            let skips = !again
                && self.fallback.resend.by_peer.is_none()
                && self.fallback.skips_something(
                    &self.numbers,
                    &self.recv,
                    &self.subflows,
                    i,
                    &mapping,
                    cx.segment,
                );
            if again {
                self.fallback.resend.by_peer = resend;
            }
            if skips {
                let next = self.recv.next();
                self.fall_back(i, Event::Skips { next }, cx);
            } else if self.subflows[i].was_queried() {
                self.incoming().place_held(i, cx);
                if self.subflows[i].closing.peer_finished {
                    self.incoming().ends_with_subflow(i);
                }
            }
            return;
        }
        let (ssn, len) = (mapping.ssn, mapping.len - u16::from(dss.data_fin));
        let at = numbers.place(mapping.dsn, self.recv.next());
        if let Some(at) = at.filter(|_| len > 0) {
            // A mapping of what has not arrived is none of these, even where later data was mapped before on this subflow.
            let arrived = at + u64::from(len) <= self.recv.next();
            if arrived && self.subflows[i].evidence.mapping_edge.repeats(ssn, at, len) {
                self.subflows
                    .note_retransmitted(i, ssn..ssn + u32::from(len));
            }
            // A mapping behind a hole does not describe the data that fills it.
            if cx.segment.delivered.is_some() {
                self.subflows[i].evidence.mapping_edge.note(ssn, at, len);
            }
        }
        if !(dss.data_fin && self.fallback.unconfirmed.is_some()) {
            return;
        }
        let last = mapping.dsn.expand(numbers.dsn(self.recv.next())) + u64::from(mapping.len - 1);
        if numbers.offset(last, self.recv.next()) == Some(self.recv.next()) {
            self.fallback.data_fin_after_fallback = true;
            self.recv.note_end(self.recv.next());
            self.events.report_readable(self.handshake.is_established());
            self.subflows[i].tcp.force_ack();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_bytes_are_detected_from_any_recent_data_ack() {
        let stream: Vec<u8> = (0..2000u32)
            .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        // Held from 500 on; then the peer restarts at 480, which it takes for the last Data ACK.
        let mut held = stream[500..1000].to_vec();
        held.extend_from_slice(&stream[480..900]);
        let starts = [0, 300, 500];
        let are = |held: &[u8], starts: &[u64], back: &[u64]| {
            are_repeated(held, starts, back.iter().copied())
        };
        assert!(are(&held, &starts, &[0, 20, 100]));
        assert!(!are(&held, &starts, &[0, 100]));
        assert!(!are(&held[..500], &starts[..2], &[0, 20]));
        assert!(!are(b"short", &[0, 2], &[0]));
        // One byte that differs, however late.
        held[850] ^= 1;
        assert!(!are(&held, &starts, &[0, 20, 100]));
    }

    #[test]
    fn rare_mapping_losses_are_repaired() {
        for (lost_mappings, came, expected) in [
            (1, 2, true),
            (1, 7, true),
            (1, 8, false),
            (2, 15, true),
            (2, 16, false),
            (3, 1_000_000, true),
        ] {
            assert_eq!(
                are_too_many(lost_mappings, came),
                expected,
                "{lost_mappings} of {came}"
            );
        }
    }
}
