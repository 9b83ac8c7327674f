//! Everything sent and not yet cumulatively acknowledged (RFC 2018, RFC 6675 section 3, RFC 2883).
//!
//! One [`Entry`] stands for one transmission of up to a burst, and is cut only where an acknowledgement, a selective
//! acknowledgement or a retransmission cuts it. Neighbours that the peer holds selectively are merged, so that a
//! selective acknowledgement repeated by every segment costs a search and not a walk, whatever the peer reports. The byte
//! counts are kept as entries change and never recomputed.

use alloc::collections::VecDeque;

use manypath_wire::seq::SeqNum;

use super::rate::{RateSample, Sampler, Snapshot};
use crate::time::{Duration, Instant};

mod ack;
mod mark;
#[cfg(test)]
mod tests;

/// New data sent at one instant joins one entry up to this size: a segmentation-offload transmission.
const LARGEST_ENTRY: u32 = 64 * 1024;
/// Selective acknowledgements may cut the flight into this many entries, and one for every half segment more. A trade: more
/// entries record an odd peer's blocks exactly, and cost memory and search for a hostile one.
const FREE_CUTS: usize = 64;

/// What is known of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// In the network, as far as is known.
    InFlight,
    /// Marked lost and not yet sent again.
    Lost,
    /// The peer holds it, but may still drop it (RFC 2018 section 8).
    Sacked,
}

/// Sequence numbers that are not payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Control {
    /// The first number is a SYN.
    pub syn: bool,
    /// The last number is a FIN.
    pub fin: bool,
}

/// One transmission, or what is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First sequence number.
    pub seq: SeqNum,
    /// Sequence numbers, SYN and FIN included.
    pub len: u32,
    /// What is known of it.
    pub state: State,
    /// When it was last sent.
    pub sent_at: Instant,
    /// How often it was sent.
    pub transmissions: u16,
    /// SYN and FIN.
    pub control: Control,
    /// It is one segment of a size of its own, to which nothing is joined.
    pub alone: bool,
    /// State of the delivery-rate sampler when it was last sent.
    snapshot: Snapshot,
}

impl Entry {
    /// First number behind the entry.
    pub fn end(&self) -> SeqNum {
        self.seq + self.len
    }

    /// It was sent more than once.
    pub fn retransmitted(&self) -> bool {
        self.transmissions > 1
    }
}

/// What the scoreboard needs of an acknowledgement. `ack` lies within what was sent.
#[derive(Clone, Copy, Debug)]
pub struct AckInfo<'a> {
    /// When it arrived.
    pub now: Instant,
    /// Cumulative acknowledgement.
    pub ack: SeqNum,
    /// Blocks of the SACK option as they came; anything is tolerated.
    pub sack: &'a [(SeqNum, SeqNum)],
    /// With timestamps: the segment that provoked this acknowledgement was sent before this instant.
    pub echo_before: Option<Instant>,
    /// Smallest recent round-trip time; zero while unknown.
    pub min_rtt: Duration,
}

/// The most recently sent among the segments that an acknowledgement newly reports (RFC 8985 section 6.2 step 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newest {
    /// When it was last sent.
    pub sent_at: Instant,
    /// First number behind it.
    pub end: SeqNum,
    /// Time since it was sent.
    pub rtt: Duration,
}

/// A retransmission that may have arrived or not: its acknowledgement may be its original's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repetition {
    sent_at: Instant,
    start: SeqNum,
    end: SeqNum,
}

/// What an acknowledgement changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct AckReport {
    /// Numbers newly acknowledged cumulatively.
    pub acked: u32,
    /// Numbers newly known to have arrived, cumulatively or selectively.
    pub delivered: u32,
    /// Numbers newly known to have arrived by SACK blocks alone.
    pub newly_sacked: u32,
    /// Our SYN or FIN was among them.
    pub control: Control,
    /// The newest delivery, for RACK.
    pub newest: Option<Newest>,
    /// A retransmission acknowledged before, of which a duplicate report now says that it arrived (RFC 2883), for RACK.
    pub proven: Option<Newest>,
    /// Round-trip time of the oldest segment newly delivered, if none of those acknowledged was sent twice (Karn's rule): for
    /// the retransmission timeout.
    pub rtt: Option<Duration>,
    /// Round-trip time of the newest segment newly delivered and sent once: for congestion control.
    pub latest_rtt: Option<Duration>,
    /// Some of what was newly acknowledged cumulatively had been sent more than once.
    pub retransmitted_acked: bool,
    /// Lowest start of what was newly delivered and had been sent only once.
    pub original_from: Option<SeqNum>,
    /// A segment sent once arrived after one that lies behind it (RFC 8985 section 6.2 step 3).
    pub reordered: bool,
    /// The first block reports a duplicate arrival (RFC 2883 section 4).
    pub dsack: Option<(SeqNum, SeqNum)>,
    /// It has blocks, and each of them names numbers that were never sent.
    pub invalid_sack: bool,
    /// Delivery rate.
    pub rate: Option<RateSample>,
}

/// A part of the flight to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retransmit {
    /// First sequence number.
    pub seq: SeqNum,
    /// Sequence numbers, SYN and FIN included.
    pub len: u32,
    /// SYN and FIN.
    pub control: Control,
}

/// The scoreboard of one subflow.
#[derive(Clone, Debug)]
pub struct Flight {
    entries: VecDeque<Entry>,
    una: SeqNum,
    nxt: SeqNum,
    mss: u32,
    pipe: u32,
    sacked: u32,
    lost: u32,
    sacked_runs: u32,
    /// Highest end ever delivered: the forward acknowledgement of RFC 8985.
    fack: SeqNum,
    /// From this number on nothing was ever lost, sacked or sent again.
    touched: SeqNum,
    /// Before this number nothing is lost.
    lost_from: SeqNum,
    /// The last retransmission that was acknowledged without having counted as delivered itself.
    unproven: Option<Repetition>,
    sampler: Sampler,
    acked_total: u64,
    sent_total: u64,
}

impl Flight {
    /// An empty flight whose first number will be `isn`.
    pub fn new(isn: SeqNum, mss: u32) -> Flight {
        Flight {
            entries: VecDeque::new(),
            una: isn,
            nxt: isn,
            mss: mss.max(1),
            pipe: 0,
            sacked: 0,
            lost: 0,
            sacked_runs: 0,
            fack: isn,
            touched: isn,
            lost_from: isn,
            unproven: None,
            sampler: Sampler::default(),
            acked_total: 0,
            sent_total: 0,
        }
    }

    /// Oldest unacknowledged number.
    pub fn una(&self) -> SeqNum {
        self.una
    }

    /// First number never sent.
    pub fn nxt(&self) -> SeqNum {
        self.nxt
    }

    /// Numbers sent and not cumulatively acknowledged: the FlightSize of RFC 5681.
    pub fn outstanding(&self) -> u32 {
        self.nxt.since(self.una)
    }

    /// Everything is acknowledged.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Numbers estimated to be in the network (RFC 6675 section 4), retransmissions counted once.
    pub fn pipe(&self) -> u32 {
        self.pipe
    }

    /// Numbers that the peer holds selectively.
    pub fn sacked(&self) -> u32 {
        self.sacked
    }

    /// Separate ranges that the peer holds selectively.
    pub fn sacked_runs(&self) -> u32 {
        self.sacked_runs
    }

    /// Numbers marked lost and not yet sent again.
    pub fn lost(&self) -> u32 {
        self.lost
    }

    /// Highest end ever delivered (RACK.fack).
    pub fn fack(&self) -> SeqNum {
        self.fack
    }

    /// Numbers cumulatively acknowledged since the start.
    pub fn acked_total(&self) -> u64 {
        self.acked_total
    }

    /// Numbers sent for the first time since the start.
    pub fn sent_total(&self) -> u64 {
        self.sent_total
    }

    /// Numbers delivered since the start, cumulatively or selectively.
    pub fn delivered_total(&self) -> u64 {
        self.sampler.delivered()
    }

    /// Bytes of memory that the entries take.
    pub fn memory(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// The oldest entry.
    pub fn head(&self) -> Option<&Entry> {
        self.entries.front()
    }

    /// All entries in order of sequence.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The size of a full segment changed.
    pub fn set_mss(&mut self, mss: u32) {
        self.mss = mss.max(1);
    }

    /// The application has nothing to send although the network would take more: the rates sampled meanwhile say nothing
    /// about the network.
    pub fn on_app_limited(&mut self) {
        self.sampler.on_app_limited(self.pipe);
    }

    /// `len` new numbers left at `now`; they begin at [`nxt`](Self::nxt).
    pub fn sent_new(&mut self, now: Instant, len: u32, control: Control) {
        if len == 0 {
            return;
        }
        let snapshot = self.sampler.on_sent(now, self.pipe == 0);
        let seq = self.nxt;
        self.nxt += len;
        self.pipe += len;
        self.sent_total += u64::from(len);
        if let Some(last) = self.entries.back_mut() {
            let plain = last.control == Control::default() && !control.syn && !last.alone;
            let alike =
                last.state == State::InFlight && !last.retransmitted() && last.snapshot == snapshot;
            if plain
                && alike
                && last.sent_at == now
                && last.len.saturating_add(len) <= LARGEST_ENTRY
            {
                last.len += len;
                last.control.fin = control.fin;
                return;
            }
        }
        let state = State::InFlight;
        self.entries.push_back(Entry {
            seq,
            len,
            state,
            sent_at: now,
            transmissions: 1,
            control,
            alone: false,
            snapshot,
        });
    }

    /// The last transmission turns out to have carried `len` numbers more.
    pub fn extend_last(&mut self, len: u32) {
        let Some(last) = self.entries.back_mut() else {
            return;
        };
        last.len += len;
        match last.state {
            State::InFlight => self.pipe += len,
            State::Lost => self.lost += len,
            State::Sacked => self.sacked += len,
        }
        self.nxt += len;
        self.sent_total += u64::from(len);
        self.debug_check();
    }

    /// `len` numbers from `seq` on left again at `now`. Parts that are no longer outstanding, or that the peer holds, are
    /// left as they are.
    pub fn sent_again(&mut self, now: Instant, seq: SeqNum, len: u32) {
        let end = seq + len;
        let mut at = self.locate(seq);
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
            if entry.seq.before(seq) {
                self.split(at, seq);
                at += 1;
            }
            if self.entries[at].end().after(end) {
                self.split(at, end);
            }
            let snapshot = self.sampler.on_sent(now, self.pipe == 0);
            let entry = &mut self.entries[at];
            if entry.state == State::Lost {
                entry.state = State::InFlight;
                self.lost -= entry.len;
                self.pipe += entry.len;
            }
            entry.sent_at = now;
            entry.transmissions = entry.transmissions.saturating_add(1);
            entry.snapshot = snapshot;
            self.touched = self.touched.max(entry.end());
            if entry.seq.before_eq(self.lost_from) && entry.end().after(self.lost_from) {
                self.lost_from = entry.end();
            }
            at += 1;
        }
        self.debug_check();
    }

    /// The first part of the flight that is marked lost, at most `max` payload bytes of it. Neighbouring losses are
    /// joined; a SYN goes alone.
    pub fn next_lost(&self, max: u32) -> Option<Retransmit> {
        if self.lost == 0 {
            return None;
        }
        let mut rest = self
            .entries
            .range(self.locate(self.lost_from)..)
            .skip_while(|entry| entry.state != State::Lost);
        let first = rest.next()?;
        let mut found = Retransmit {
            seq: first.seq,
            len: first.len,
            control: first.control,
        };
        if !first.control.syn {
            for entry in rest.take_while(|entry| entry.state == State::Lost) {
                if found.len >= max {
                    break;
                }
                found.len += entry.len;
                found.control.fin = entry.control.fin;
            }
        }
        Some(found.limited(max))
    }

    /// The last `max` payload bytes of the flight, for a tail loss probe (RFC 8985 section 7.3).
    pub fn tail(&self, max: u32) -> Option<Retransmit> {
        let last = self.entries.back()?;
        let extra = u32::from(last.control.fin);
        let len = last.len.min(max.saturating_add(extra));
        let control = Control {
            syn: last.control.syn && len == last.len,
            fin: last.control.fin,
        };
        Some(Retransmit {
            seq: last.end() - len,
            len,
            control,
        })
    }

    /// The peer acknowledged less than a range that it had reported as held: it has dropped it.
    pub fn reneged(&self) -> bool {
        self.head().is_some_and(|head| head.state == State::Sacked)
    }

    /// What was sent last is one segment of a size of its own; nothing is joined to it.
    pub fn set_last_alone(&mut self) {
        if let Some(last) = self.entries.back_mut() {
            last.alone = true;
        }
    }

    /// How many of the numbers from `start` to before `end` are marked lost.
    pub fn lost_between(&self, start: SeqNum, end: SeqNum) -> u32 {
        self.entries
            .range(self.locate(start)..)
            .take_while(|entry| entry.seq.before(end))
            .filter(|entry| entry.state == State::Lost)
            .map(|entry| entry.end().min(end).since(entry.seq.max(start)))
            .sum()
    }

    /// What was sent at `seq` was sent more than once.
    pub fn was_retransmitted(&self, seq: SeqNum) -> bool {
        self.entries
            .get(self.locate(seq))
            .is_some_and(Entry::retransmitted)
    }

    /// Index of the entry that holds `at`, or of the first behind it.
    fn locate(&self, at: SeqNum) -> usize {
        self.entries
            .partition_point(|entry| entry.end().before_eq(at))
    }

    /// Cuts entry `index` at `at`, which lies inside it.
    fn split(&mut self, index: usize, at: SeqNum) {
        let entry = &mut self.entries[index];
        let mut tail = *entry;
        tail.len = entry.end().since(at);
        tail.seq = at;
        tail.control.syn = false;
        entry.len = at.since(entry.seq);
        entry.control.fin = false;
        self.entries.insert(index + 1, tail);
    }

    /// The kept counts agree with the entries. Looked at only while that is cheap.
    fn debug_check(&self) {
        debug_assert!(
            self.entries.len() > 64 || self.counts_agree(),
            "counts differ from entries: {self:?}"
        );
    }

    fn counts_agree(&self) -> bool {
        let sum = |state| {
            self.entries
                .iter()
                .filter(|entry| entry.state == state)
                .map(|entry| entry.len)
                .sum::<u32>()
        };
        let runs = self
            .entries
            .iter()
            .filter(|entry| entry.state == State::Sacked)
            .count();
        let mut next = self.una;
        let adjacent = self.entries.iter().all(|entry| {
            let fits = entry.seq == next && entry.len > 0;
            next = entry.end();
            fits
        });
        let first_lost = self.entries.iter().find(|entry| entry.state == State::Lost);
        adjacent
            && next == self.nxt
            && self.pipe == sum(State::InFlight)
            && self.sacked == sum(State::Sacked)
            && self.lost == sum(State::Lost)
            && self.sacked_runs as usize == runs
            && first_lost.is_none_or(|entry| entry.end().after(self.lost_from))
    }
}

impl Retransmit {
    /// Payload bytes.
    pub fn payload(&self) -> u32 {
        self.len - u32::from(self.control.syn) - u32::from(self.control.fin)
    }

    /// At most `max` payload bytes from the start; a FIN behind what is cut off goes with it.
    #[must_use]
    pub fn limited(mut self, max: u32) -> Retransmit {
        if self.payload() > max {
            self.len = max + u32::from(self.control.syn);
            self.control.fin = false;
        }
        self
    }
}
