//! What an acknowledgement does to the scoreboard.

use manypath_wire::seq::SeqNum;

use super::{AckInfo, AckReport, Control, Entry, FREE_CUTS, Flight, Newest, Repetition, State};
use crate::recovery::rate::Snapshot;
use crate::time::Instant;

/// The most blocks that fit an option (RFC 2018 section 3).
const MOST_BLOCKS: usize = 4;
/// A duplicate report may lie this far behind the left edge: no window is larger (RFC 7323 section 2.3).
const LARGEST_WINDOW: u32 = 1 << 30;

/// Collects over the entries that one acknowledgement delivers.
struct Tally<'a> {
    info: &'a AckInfo<'a>,
    report: AckReport,
    /// Oldest and newest transmission among segments sent once, of those acknowledged and of those sacked.
    acked_once: Option<(Instant, Instant)>,
    sacked_once: Option<(Instant, Instant)>,
    /// The youngest sampler state.
    sample: Option<(Snapshot, Instant)>,
    /// As in [`Flight`].
    unproven: Option<Repetition>,
}

impl Tally<'_> {
    /// `entry` is newly known to have arrived; `fack` is the highest end known to have arrived before it.
    fn deliver(&mut self, entry: &Entry, cumulative: bool, fack: SeqNum) {
        let report = &mut self.report;
        report.delivered += entry.len;
        if !cumulative {
            report.newly_sacked += entry.len;
        }
        let once = if cumulative {
            &mut self.acked_once
        } else {
            &mut self.sacked_once
        };
        if !entry.retransmitted() {
            let (oldest, newest) = once.unwrap_or((entry.sent_at, entry.sent_at));
            *once = Some((oldest.min(entry.sent_at), newest.max(entry.sent_at)));
            report.original_from = Some(
                report
                    .original_from
                    .map_or(entry.seq, |old| old.min(entry.seq)),
            );
            report.reordered |= entry.end().before(fack);
        } else if cumulative {
            report.retransmitted_acked = true;
        }
        if self
            .sample
            .is_none_or(|(old, _)| entry.snapshot.delivered() >= old.delivered())
        {
            self.sample = Some((entry.snapshot, entry.sent_at));
        }
        self.consider_newest(entry, cumulative);
    }

    /// RFC 8985 section 6.2 step 2: a retransmission whose acknowledgement may be its original's does not count. The echoed
    /// timestamp tells which of them arrived only where the acknowledgement advances: above a hole it is that of the last segment
    /// in order (RFC 7323 section 4.3), older than any.
    fn consider_newest(&mut self, entry: &Entry, cumulative: bool) {
        let rtt = self.info.now.since(entry.sent_at);
        if entry.retransmitted() {
            let echoed = self.info.echo_before.filter(|_| cumulative);
            let of_the_original = echoed.is_some_and(|before| before <= entry.sent_at);
            if of_the_original || rtt < self.info.min_rtt {
                self.consider_unproven(entry);
                return;
            }
        }
        let newest = Newest {
            sent_at: entry.sent_at,
            end: entry.end(),
            rtt,
        };
        if self.report.newest.is_none_or(|old| newest.is_after(&old)) {
            self.report.newest = Some(newest);
        }
    }

    /// Remembers the latest retransmission that does not count as delivered.
    fn consider_unproven(&mut self, entry: &Entry) {
        let later = |old: Repetition| entry.sent_at >= old.sent_at;
        if self.unproven.is_none_or(later) {
            self.unproven = Some(Repetition {
                sent_at: entry.sent_at,
                start: entry.seq,
                end: entry.end(),
            });
        }
    }

    /// A duplicate report (RFC 2883) of a retransmission whose acknowledgement was taken for its original's: both arrived, so the
    /// retransmission counts for step 2 after all. A report sooner than any round trip is of an original that the network doubled.
    fn prove_repetition(&mut self) {
        let Some((repetition, block)) = self.unproven.zip(self.report.dsack) else {
            return;
        };
        let rtt = self.info.now.since(repetition.sent_at);
        if repetition.overlaps(block) && rtt >= self.info.min_rtt {
            self.unproven = None;
            self.report.proven = Some(Newest {
                sent_at: repetition.sent_at,
                end: repetition.end,
                rtt,
            });
        }
    }

    fn finish(mut self) -> (AckReport, Option<(Snapshot, Instant)>) {
        // Karn's rule: with a retransmission among what was acknowledged, nothing acknowledged with it tells a time.
        let acked = self.acked_once.filter(|_| !self.report.retransmitted_acked);
        let now = self.info.now;
        let pick = acked.or(self.sacked_once);
        self.report.rtt = pick.map(|(oldest, _)| now.since(oldest));
        let newest = [acked, self.sacked_once]
            .into_iter()
            .flatten()
            .map(|(_, newest)| newest)
            .max();
        self.report.latest_rtt = newest.map(|sent_at| now.since(sent_at));
        (self.report, self.sample)
    }
}

impl Newest {
    /// Sent later, or at the same time and behind (RFC 8985 section 6.2: RACK_sent_after).
    pub fn is_after(&self, other: &Newest) -> bool {
        self.sent_at > other.sent_at || self.sent_at == other.sent_at && self.end.after(other.end)
    }
}

impl Repetition {
    fn overlaps(&self, (start, end): (SeqNum, SeqNum)) -> bool {
        start.before(self.end) && end.after(self.start)
    }
}

impl Flight {
    /// Takes an acknowledgement in. The work is bounded by what it newly reports, whatever its blocks say.
    pub fn on_ack(&mut self, info: &AckInfo<'_>) -> AckReport {
        let mut tally = Tally {
            info,
            report: AckReport::default(),
            acked_once: None,
            sacked_once: None,
            sample: None,
            unproven: self.unproven,
        };
        let ack = if info.ack.since(self.una) <= self.outstanding() {
            info.ack
        } else {
            self.una
        };
        tally.report.dsack = self.duplicate_report(ack, info.sack);
        tally.report.invalid_sack =
            !info.sack.is_empty() && !info.sack.iter().any(|&block| self.was_sent(block));
        self.advance(ack, &mut tally);
        let (blocks, count) = self.valid_blocks(info.sack);
        for &(start, end) in &blocks[..count] {
            self.hold(start, end, &mut tally);
        }
        tally.prove_repetition();
        self.unproven = tally.unproven;
        let (mut report, sample) = tally.finish();
        report.rate = self
            .sampler
            .on_delivered(info.now, report.delivered, sample);
        self.debug_check();
        report
    }

    /// RFC 2883 section 4: the first block repeats what lies below the acknowledgement, or within the second block.
    fn duplicate_report(&self, ack: SeqNum, sack: &[(SeqNum, SeqNum)]) -> Option<(SeqNum, SeqNum)> {
        let &(start, end) = sack.first()?;
        if !self.was_sent((start, end)) {
            return None;
        }
        let below = end.before_eq(ack);
        let inside = sack
            .get(1)
            .is_some_and(|second| start.after_eq(second.0) && end.before_eq(second.1));
        (below || inside).then_some((start, end))
    }

    /// All of the block was sent, and not so long ago that the number has another meaning by now.
    fn was_sent(&self, (start, end): (SeqNum, SeqNum)) -> bool {
        let behind = self.acked_total.min(u64::from(LARGEST_WINDOW));
        let known = start.after_eq(self.una) || u64::from(self.una.since(start)) <= behind;
        known && start.before(end) && end.before_eq(self.nxt)
    }

    /// The blocks that lie within the flight, clipped to it, in order of their starts: reports of several blocks must not
    /// look like reordering.
    fn valid_blocks(&self, sack: &[(SeqNum, SeqNum)]) -> ([(SeqNum, SeqNum); MOST_BLOCKS], usize) {
        let mut blocks = [(self.una, self.una); MOST_BLOCKS];
        let mut count = 0;
        for &(start, end) in sack.iter().take(MOST_BLOCKS) {
            let start = start.max(self.una);
            if start.before(end) && end.before_eq(self.nxt) && start.before(self.nxt) {
                blocks[count] = (start, end);
                count += 1;
            }
        }
        let una = self.una;
        blocks[..count].sort_unstable_by_key(|block| block.0.since(una));
        (blocks, count)
    }

    /// Moves the left edge to `ack`.
    fn advance(&mut self, ack: SeqNum, tally: &mut Tally<'_>) {
        while self.una.before(ack) {
            let Some(head) = self.entries.front_mut() else {
                break;
            };
            let mut gone = *head;
            let whole = head.end().before_eq(ack);
            if whole {
                self.entries.pop_front();
            } else {
                gone.len = ack.since(head.seq);
                gone.control.fin = false;
                head.seq = ack;
                head.len -= gone.len;
                head.control.syn = false;
            }
            self.una = gone.end();
            self.acked_total += u64::from(gone.len);
            tally.report.acked += gone.len;
            tally.report.control.syn |= gone.control.syn;
            tally.report.control.fin |= gone.control.fin;
            match gone.state {
                State::InFlight => self.pipe -= gone.len,
                State::Lost => self.lost -= gone.len,
                State::Sacked => {
                    self.sacked -= gone.len;
                    self.sacked_runs -= u32::from(whole);
                    continue;
                }
            }
            tally.deliver(&gone, true, self.fack);
            self.fack = self.fack.max(gone.end());
        }
        self.fack = self.fack.max(self.una);
        self.touched = self.touched.max(self.una);
        self.lost_from = self.lost_from.max(self.una);
    }

    /// The peer holds `start..end`, which lies within the flight.
    fn hold(&mut self, start: SeqNum, end: SeqNum, tally: &mut Tally<'_>) {
        let first = self.locate(start);
        let mut at = first;
        let mut changed = false;
        while let Some(entry) = self
            .entries
            .get(at)
            .copied()
            .filter(|entry| entry.seq.before(end))
        {
            if entry.state == State::Sacked {
                at += 1;
                continue;
            }
            let cuts = usize::from(entry.seq.before(start)) + usize::from(entry.end().after(end));
            if cuts > 0 && !self.may_cut() {
                at += 1;
                continue;
            }
            if entry.seq.before(start) {
                self.split(at, start);
                at += 1;
            }
            if self.entries[at].end().after(end) {
                self.split(at, end);
            }
            self.hold_entry(at, tally);
            changed = true;
            at += 1;
        }
        if changed {
            self.join_held(first.saturating_sub(1), at + 1);
        }
    }

    /// A peer that reports single bytes must not cut the flight to dust.
    fn may_cut(&self) -> bool {
        self.entries.len() < FREE_CUTS + (self.outstanding() / self.mss) as usize * 2
    }

    fn hold_entry(&mut self, index: usize, tally: &mut Tally<'_>) {
        let entry = &mut self.entries[index];
        tally.deliver(entry, false, self.fack);
        match entry.state {
            State::InFlight => self.pipe -= entry.len,
            State::Lost => self.lost -= entry.len,
            State::Sacked => return,
        }
        entry.state = State::Sacked;
        self.sacked += entry.len;
        self.sacked_runs += 1;
        self.fack = self.fack.max(entry.end());
        self.touched = self.touched.max(entry.end());
    }

    /// Merges neighbouring held entries between the indices `from` and `to`.
    fn join_held(&mut self, from: usize, to: usize) {
        let mut at = from;
        let mut to = to.min(self.entries.len());
        while at < to {
            let run = self
                .entries
                .range(at..to)
                .take_while(|entry| entry.state == State::Sacked)
                .count();
            if run > 1 {
                let tail: u32 = self
                    .entries
                    .range(at + 1..at + run)
                    .map(|entry| entry.len)
                    .sum();
                let last = self.entries[at + run - 1];
                let sent = self
                    .entries
                    .range(at..at + run)
                    .map(|entry| (entry.transmissions, entry.sent_at));
                let (transmissions, sent_at) =
                    sent.fold((1, Instant::ZERO), |a, b| (a.0.max(b.0), a.1.max(b.1)));
                let head = &mut self.entries[at];
                head.len += tail;
                head.control = Control {
                    syn: head.control.syn,
                    fin: last.control.fin,
                };
                head.transmissions = transmissions;
                head.sent_at = sent_at;
                self.entries.drain(at + 1..at + run);
                self.sacked_runs -= (run - 1) as u32;
                to -= run - 1;
            }
            at += run.max(1);
        }
    }
}
