//! TIME-WAIT without a connection: what is left of a subflow once both FINs are acknowledged (RFC 9293 section 3.6.1).
//!
//! A record is some hundred bytes where a connection is many thousands, so that a busy server keeps its memory for
//! live connections. Owns the records and when they end. Must never answer a reset (RFC 1337).

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::{Flags, Header};
use manypath_wire::tcp::options::Timestamps;

use super::demux::TupleKey;
use super::wheel::Wheel;
use crate::api::IfaceId;
use crate::crypto::rng::Rng;
use crate::slab::Slab;
use crate::table::Table;

/// Between two answers to anything but a FIN, so that two ends cannot keep each other talking (RFC 5961 section 7).
const ANSWER_PAUSE: Duration = Duration::from_millis(500);

/// The acknowledgement that a record repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Where it goes; seen from our side.
    pub(crate) tuple: FourTuple,
    /// Where it leaves.
    pub(crate) iface: IfaceId,
    /// The TCP header; its sequence number is our next one, its acknowledgement the one behind the peer's FIN.
    pub(crate) header: Header,
    /// The timestamps, where the subflow used them.
    pub(crate) timestamps: Option<Timestamps>,
}

/// What an arriving segment says, as far as TIME-WAIT cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) flags: Flags,
    pub(crate) seq: SeqNum,
    /// Sequence numbers that it takes.
    pub(crate) len: u32,
    pub(crate) tsval: Option<u32>,
}

impl Arrival {
    /// Boils a segment down.
    pub(crate) fn of(segment: &Segment<'_>) -> Self {
        Self {
            flags: segment.header.flags,
            seq: segment.header.seq,
            len: segment.len(),
            tsval: segment.options.timestamps.map(|stamps| stamps.val),
        }
    }
}

/// What to do with a segment for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing.
    Ignore,
    /// Send the acknowledgement once more.
    Ack(Reply),
    /// The SYN may open a new connection, which must then be told by [`TimeWait::reopened`]: until it is let in, the record
    /// answers for the old one. The new initial sequence number must be beyond this one.
    Reopen {
        /// The next sequence number that the old subflow would have used.
        beyond: SeqNum,
    },
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// As it was when the record was made; the timestamp is advanced for each answer.
    reply: Reply,
    entered: Instant,
    /// How long the record stays after it was made or a FIN came again.
    stay: Duration,
    answered: Option<Instant>,
}

/// What a segment does to a record, decided without touching it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Ignore,
    /// Answer if the last answer is not too recent.
    Answer,
    /// Answer in any case and stay as long again: the peer lacks our last acknowledgement.
    AnswerAndStay,
    Reopen,
}

/// The records of one stack.
pub(crate) struct TimeWait {
    records: Slab<Record>,
    by_tuple: Table<TupleKey, u32>,
    expiry: Wheel,
    limit: usize,
    evicted: u64,
}

impl TimeWait {
    /// Keeps at most `limit` records; a new one beyond them makes the one that would end first end now.
    pub(crate) fn new(limit: usize, rng: &mut Rng) -> Self {
        Self {
            records: Slab::new(),
            by_tuple: Table::new(rng),
            expiry: Wheel::new(),
            limit,
            evicted: 0,
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.records.memory() + self.by_tuple.memory() + self.expiry.memory()
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether a four-tuple, seen from our side, is in TIME-WAIT; such a port should not be used towards that peer.
    pub(crate) fn contains(&self, tuple: &FourTuple) -> bool {
        self.by_tuple.contains(&TupleKey::of(tuple))
    }

    /// How many records ended early for want of room, ever.
    pub(crate) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Takes over a subflow that sent `reply` as its last acknowledgement at `now`. Replaces a record of the same
    /// four-tuple.
    pub(crate) fn insert(&mut self, now: Instant, reply: Reply, stay: Duration) {
        if self.limit == 0 {
            self.evicted += 1;
            return;
        }
        let key = TupleKey::of(&reply.tuple);
        if let Some(&old) = self.by_tuple.get(&key) {
            self.remove(old);
        }
        while self.records.len() >= self.limit {
            let Some(earliest) = self.expiry.pop_earliest() else {
                break;
            };
            self.remove(earliest);
            self.evicted += 1;
        }
        let record = Record {
            reply,
            entered: now,
            stay,
            answered: None,
        };
        let slot = self.records.insert(record).index();
        // The record that had this key was removed above.
        let entered = self.by_tuple.insert(key, slot);
        debug_assert_eq!(entered, Ok(()));
        self.expiry.update(slot, Some(now + stay));
    }

    /// A segment arrived; `None` if its four-tuple has no record.
    pub(crate) fn on_segment(
        &mut self,
        now: Instant,
        tuple: &FourTuple,
        arrival: &Arrival,
    ) -> Option<Answer> {
        let slot = *self.by_tuple.get(&TupleKey::of(tuple))?;
        let record = self.records.at_mut(slot)?;
        let effect = record.effect(arrival);
        let answer = match effect {
            Effect::Ignore => Answer::Ignore,
            Effect::Answer if record.answered.is_some_and(|at| at + ANSWER_PAUSE > now) => {
                Answer::Ignore
            }
            Effect::Answer => Answer::Ack(record.answer(now, arrival)),
            Effect::AnswerAndStay => {
                let until = now + record.stay;
                let reply = record.answer(now, arrival);
                self.expiry.update(slot, Some(until));
                Answer::Ack(reply)
            }
            Effect::Reopen => Answer::Reopen {
                beyond: record.reply.header.seq,
            },
        };
        Some(answer)
    }

    /// The four-tuple has a new owner. True: there was a record of it.
    pub(crate) fn reopened(&mut self, tuple: &FourTuple) -> bool {
        let Some(&slot) = self.by_tuple.get(&TupleKey::of(tuple)) else {
            return false;
        };
        self.remove(slot);
        true
    }

    /// When the next record ends.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.expiry.earliest()
    }

    /// Ends the records whose time is over, at most `most` of them; how many.
    pub(crate) fn expire(&mut self, now: Instant, most: usize) -> usize {
        let mut ended = 0;
        while ended < most {
            let Some(slot) = self.expiry.pop_due(now) else {
                break;
            };
            self.remove(slot);
            ended += 1;
        }
        ended
    }

    fn remove(&mut self, slot: u32) {
        self.expiry.update(slot, None);
        if let Some(record) = self
            .records
            .handle_at(slot)
            .and_then(|h| self.records.remove(h))
        {
            self.by_tuple.remove(&TupleKey::of(&record.reply.tuple));
        }
    }
}

impl Record {
    fn effect(&self, arrival: &Arrival) -> Effect {
        let flags = arrival.flags;
        if flags.rst() {
            return Effect::Ignore; // RFC 1337 section 3, F1
        }
        if flags.syn() {
            return if !flags.ack() && self.reopened_by(arrival) {
                Effect::Reopen
            } else {
                Effect::Answer // RFC 5961 section 4: a challenge
            };
        }
        if !flags.ack() {
            return Effect::Ignore; // RFC 9293 section 3.10.7.4, fifth step
        }
        let expected = self.reply.header.ack;
        if flags.fin() && arrival.seq + arrival.len == expected {
            return Effect::AnswerAndStay; // RFC 9293 section 3.10.7.4, eighth step
        }
        if arrival.len == 0 && arrival.seq == expected {
            return Effect::Ignore;
        }
        Effect::Answer // RFC 9293 section 3.10.7.4, first step: not acceptable, since no window is left
    }

    /// Whether a SYN can only belong to a new connection (RFC 6191 section 2, RFC 9293 section 3.10.7.4).
    fn reopened_by(&self, syn: &Arrival) -> bool {
        let beyond = syn.seq.after(self.reply.header.ack);
        match (self.reply.timestamps, syn.tsval) {
            (Some(old), Some(new)) => match new.wrapping_sub(old.ecr) as i32 {
                0 => beyond,
                later => later > 0,
            },
            (None, Some(_)) => true,
            (Some(_) | None, None) => beyond,
        }
    }

    /// The acknowledgement to send now. A timestamp that is not older than the last one is echoed from now on
    /// (RFC 7323 section 4.3).
    fn answer(&mut self, now: Instant, arrival: &Arrival) -> Reply {
        self.answered = Some(now);
        let mut reply = self.reply;
        if let Some(stamps) = &mut self.reply.timestamps {
            let newer = arrival
                .tsval
                .filter(|val| val.wrapping_sub(stamps.ecr) as i32 >= 0);
            if arrival.seq.before_eq(self.reply.header.ack) {
                stamps.ecr = newer.unwrap_or(stamps.ecr);
            }
            // Our clock ticks in milliseconds, as that of the subflow did.
            let ticks = (now.as_millis() as u32).wrapping_sub(self.entered.as_millis() as u32);
            reply.timestamps = Some(Timestamps {
                val: stamps.val.wrapping_add(ticks),
                ecr: stamps.ecr,
            });
        }
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUR_NEXT: SeqNum = SeqNum::new(5_000);
    const THEIR_NEXT: SeqNum = SeqNum::new(9_000);
    const STAY: Duration = Duration::from_secs(60);
    const START: Instant = Instant::from_secs(10);

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(([10, 0, 0, 1], 80).into(), ([10, 0, 0, 2], port).into())
    }

    fn reply(port: u16, timestamps: Option<Timestamps>) -> Reply {
        let header = Header {
            src_port: 80,
            dst_port: port,
            seq: OUR_NEXT,
            ack: THEIR_NEXT,
            flags: Flags::ACK,
            window: 512,
            urgent: 0,
        };
        Reply {
            tuple: tuple(port),
            iface: IfaceId(1),
            header,
            timestamps,
        }
    }

    const STAMPS: Option<Timestamps> = Some(Timestamps { val: 700, ecr: 300 });

    fn waiting(timestamps: Option<Timestamps>) -> TimeWait {
        let mut waits = TimeWait::new(10, &mut Rng::new([1; 32]));
        waits.insert(START, reply(1000, timestamps), STAY);
        waits
    }

    fn segment(flags: Flags, seq: u32, len: u32) -> Arrival {
        Arrival {
            flags,
            seq: SeqNum::new(seq),
            len,
            tsval: None,
        }
    }

    fn syn(seq: u32, tsval: Option<u32>) -> Arrival {
        Arrival {
            tsval,
            ..segment(Flags::SYN, seq, 1)
        }
    }

    #[test]
    fn segments_of_the_old_connection() {
        // RFC 9293 section 3.10.7.4, RFC 1337
        let fin_ack = Flags::FIN.with(Flags::ACK);
        let ack = Answer::Ack(reply(1000, None));
        let cases = [
            ("the FIN again", segment(fin_ack, 8_999, 1), ack),
            (
                "the FIN with the last data again",
                segment(fin_ack, 8_900, 100),
                ack,
            ),
            ("old data", segment(Flags::ACK, 8_000, 100), ack),
            ("data behind the FIN", segment(Flags::ACK, 9_000, 100), ack),
            (
                "a late acknowledgement",
                segment(Flags::ACK, 9_000, 0),
                Answer::Ignore,
            ),
            ("a keepalive", segment(Flags::ACK, 8_999, 0), ack),
            ("a reset", segment(Flags::RST, 9_000, 0), Answer::Ignore),
            (
                "a reset with ACK",
                segment(Flags::RST.with(Flags::ACK), 9_000, 0),
                Answer::Ignore,
            ),
            (
                "no flag at all",
                segment(Flags::NONE, 9_000, 5),
                Answer::Ignore,
            ),
            ("an old SYN", syn(100, None), ack),
            (
                "a SYN with ACK",
                segment(Flags::SYN.with(Flags::ACK), 20_000, 1),
                ack,
            ),
        ];
        for (name, arrival, expected) in cases {
            let mut waits = waiting(None);
            assert_eq!(
                waits.on_segment(START, &tuple(1000), &arrival),
                Some(expected),
                "{name}"
            );
            assert_eq!(
                waits.on_segment(START, &tuple(1001), &arrival),
                None,
                "{name}"
            );
            assert_eq!(waits.len(), 1, "{name}");
        }
    }

    #[test]
    fn a_new_syn_reopens() {
        // RFC 6191 section 2
        let cases = [
            ("beyond", None, syn(9_001, None), true),
            ("not beyond", None, syn(9_000, None), false),
            ("timestamps are new", None, syn(1, Some(1)), true),
            ("a later timestamp", STAMPS, syn(1, Some(301)), true),
            ("the same timestamp", STAMPS, syn(1, Some(300)), false),
            (
                "the same timestamp and beyond",
                STAMPS,
                syn(9_001, Some(300)),
                true,
            ),
            ("an earlier timestamp", STAMPS, syn(9_001, Some(299)), false),
            ("no timestamp any more", STAMPS, syn(9_001, None), true),
            (
                "no timestamp and not beyond",
                STAMPS,
                syn(8_999, None),
                false,
            ),
        ];
        for (name, timestamps, arrival, reopens) in cases {
            let mut waits = waiting(timestamps);
            let answer = waits.on_segment(START, &tuple(1000), &arrival);
            assert_eq!(
                answer == Some(Answer::Reopen { beyond: OUR_NEXT }),
                reopens,
                "{name}"
            );
            // Somebody may refuse it yet.
            assert!(waits.contains(&tuple(1000)), "{name}");
            assert!(waits.reopened(&tuple(1000)) && !waits.reopened(&tuple(1000)));
            assert_eq!(waits.deadline(), None, "{name}");
        }
    }

    #[test]
    fn a_repeated_fin_starts_the_time_anew_and_is_always_answered() {
        let mut waits = waiting(None);
        let fin = segment(Flags::FIN.with(Flags::ACK), 8_999, 1);
        let old = segment(Flags::ACK, 8_000, 100);
        let later = START + Duration::from_secs(20);
        assert_eq!(waits.deadline(), Some(START + STAY));
        assert!(matches!(
            waits.on_segment(later, &tuple(1000), &fin),
            Some(Answer::Ack(_))
        ));
        assert!(matches!(
            waits.on_segment(later, &tuple(1000), &fin),
            Some(Answer::Ack(_))
        ));
        assert_eq!(waits.deadline(), Some(later + STAY));
        assert_eq!(
            waits.on_segment(later, &tuple(1000), &old),
            Some(Answer::Ignore)
        );
        let pause_over = later + ANSWER_PAUSE;
        assert!(matches!(
            waits.on_segment(pause_over, &tuple(1000), &old),
            Some(Answer::Ack(_))
        ));
        assert_eq!(waits.deadline(), Some(later + STAY));
    }

    #[test]
    fn timestamps_go_on() {
        // RFC 7323 section 4.3
        let mut waits = waiting(STAMPS);
        let fin = Arrival {
            tsval: Some(350),
            ..segment(Flags::FIN.with(Flags::ACK), 8_999, 1)
        };
        let later = START + Duration::from_millis(25);
        let expected = reply(1000, Some(Timestamps { val: 725, ecr: 350 }));
        assert_eq!(
            waits.on_segment(later, &tuple(1000), &fin),
            Some(Answer::Ack(expected))
        );
        let older = Arrival {
            tsval: Some(340),
            ..fin
        };
        assert_eq!(
            waits.on_segment(later, &tuple(1000), &older),
            Some(Answer::Ack(expected))
        );
    }

    #[test]
    fn records_end_in_time_and_in_bounded_steps() {
        let mut waits = waiting(None);
        waits.insert(START, reply(1001, None), STAY);
        waits.insert(START, reply(1002, None), Duration::from_secs(90));
        assert_eq!(waits.expire(START + Duration::from_secs(59), 100), 0);
        assert_eq!(waits.expire(START + STAY, 1), 1);
        assert_eq!(waits.expire(START + STAY, 100), 1);
        assert_eq!(
            (waits.len(), waits.deadline()),
            (1, Some(START + Duration::from_secs(90)))
        );
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let mut waits = TimeWait::new(3, &mut Rng::new([1; 32]));
        for port in 1..=5 {
            let now = START + Duration::from_secs(u64::from(port));
            waits.insert(now, reply(port, None), STAY);
        }
        assert_eq!((waits.len(), waits.evicted()), (3, 2));
        assert!(!waits.contains(&tuple(2)) && waits.contains(&tuple(3)));
        waits.insert(START, reply(3, None), STAY);
        assert_eq!(
            (waits.len(), waits.evicted()),
            (3, 2),
            "the same four-tuple is replaced"
        );
    }
}
