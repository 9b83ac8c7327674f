//! One direction of a link: a rate, a delay, a drop-tail buffer, and what can go wrong on the way.
//!
//! Owns the packets between offering and arrival, in their own first-in-first-out line, so that the event queue needs
//! one entry for each line and not one for each packet. Knows nothing of hosts: a line can also carry real packets in
//! real time.

use std::collections::VecDeque;
use std::hint::black_box;

use manypath_tcp::time::{Duration, Instant};
use manypath_tcp::units::Rate;

use crate::loss::Loss;
use crate::packet::{Packet, Pool};
use crate::rng::{Chance, Rng};
use crate::view::mark_ce;

/// How much may wait for a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffer {
    /// This many bytes, the packet being sent included.
    Bytes(u64),
    /// What the line sends in this time.
    Time(Duration),
    /// Whatever comes.
    Unlimited,
}

/// Packets that arrive later than their turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Chance of each packet.
    pub chance: Chance,
    /// Its extra delay; the line's other packets overtake it meanwhile.
    pub extra: Duration,
}

/// What a line is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineConfig {
    /// Rate; `Rate::MAX` sends in no time.
    pub rate: Rate,
    /// Time from the last bit sent to its arrival.
    pub delay: Duration,
    /// Drop-tail buffer.
    pub buffer: Buffer,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Loss models; a packet is lost if any of them loses it.
    pub loss: Vec<Loss>,
    /// Reordering.
    pub reorder: Option<Reorder>,
    /// Chance that a packet arrives twice.
    pub duplicate: Chance,
    /// Packets that find more than this many bytes waiting are marked with "congestion experienced", if they may be.
    pub mark_above: Option<u64>,
}

impl Default for LineConfig {
    fn default() -> Self {
        Self {
            rate: Rate::MAX,
            delay: Duration::ZERO,
            buffer: Buffer::Unlimited,
            mtu: 1500,
            loss: Vec::new(),
            reorder: None,
            duplicate: Chance::NEVER,
            mark_above: None,
        }
    }
}

/// What became of the packets that a line was offered, in packets unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LineCounters {
    /// Offered to the line.
    pub offered: u64,
    /// Arrived, copies included.
    pub delivered: u64,
    /// Bytes that arrived.
    pub delivered_bytes: u64,
    /// Dropped because the buffer was full.
    pub overflowed: u64,
    /// Lost by a loss model.
    pub lost: u64,
    /// Lost because the line was or went down.
    pub cut: u64,
    /// Dropped because they were larger than the MTU.
    pub too_big: u64,
    /// Delayed beyond their turn.
    pub reordered: u64,
    /// Copied.
    pub duplicated: u64,
    /// Marked with "congestion experienced".
    pub marked: u64,
    /// Most bytes that ever waited.
    pub deepest: u64,
}

#[derive(Debug)]
struct Entry {
    departs: Instant,
    arrives: Instant,
    len: u32,
    /// Nothing, if the packet was lost or travels in `late`.
    packet: Option<Box<Packet>>,
}

/// One direction of a link.
#[derive(Debug)]
pub struct Line {
    config: LineConfig,
    rng: Rng,
    up: bool,
    line: VecDeque<Entry>,
    /// How many entries at the front of `line` have been sent.
    departed: usize,
    /// Bytes of the others.
    backlog: u64,
    /// Delayed packets with their arrival; few, so unsorted.
    late: Vec<(Instant, Box<Packet>)>,
    counters: LineCounters,
}

impl Line {
    /// A line that is up and empty.
    #[must_use]
    pub fn new(config: LineConfig, rng: Rng) -> Self {
        Self {
            config,
            rng,
            up: true,
            line: VecDeque::new(),
            departed: 0,
            backlog: 0,
            late: Vec::new(),
            counters: LineCounters::default(),
        }
    }

    /// Takes a packet that wants to travel at `now`.
    pub fn offer(&mut self, now: Instant, mut packet: Box<Packet>, pool: &mut Pool) {
        self.counters.offered += 1;
        self.depart(now);
        let len = packet.len() as u32;
        // Every model sees every packet, whatever the buffer does to it: a mask counts what was offered.
        let mut lost = false;
        for model in &mut self.config.loss {
            lost |= model.loses(packet.bytes(), &mut self.rng);
        }
        if let Some(counter) = self.refusal(len) {
            *counter += 1;
            pool.give(packet);
            return;
        }
        if self
            .config
            .mark_above
            .is_some_and(|limit| self.backlog > limit)
            && mark_ce(packet.bytes_mut())
        {
            self.counters.marked += 1;
        }
        let last = self.line.back();
        let starts = last.map_or(now, |last| last.departs.max(now));
        let departs = starts + self.config.rate.time_for(u64::from(len));
        let on_time = departs + self.config.delay;
        let arrives = last.map_or(on_time, |last| last.arrives.max(on_time));
        let packet = if lost {
            self.counters.lost += 1;
            pool.give(packet);
            None
        } else {
            self.maybe_copy(&packet, arrives, pool);
            self.maybe_late(packet, arrives)
        };
        self.backlog += u64::from(len);
        self.counters.deepest = self.counters.deepest.max(self.backlog);
        self.line.push_back(Entry {
            departs,
            arrives,
            len,
            packet,
        });
    }

    /// Which counter a packet of `len` bytes goes to if the line does not take it.
    fn refusal(&mut self, len: u32) -> Option<&mut u64> {
        let room = match self.config.buffer {
            Buffer::Unlimited => u64::MAX,
            Buffer::Bytes(bytes) => bytes,
            Buffer::Time(time) => self.config.rate.bytes_in(time),
        };
        if !self.up {
            Some(&mut self.counters.cut)
        } else if len > u32::from(self.config.mtu) {
            Some(&mut self.counters.too_big)
        } else if self.backlog > 0 && self.backlog + u64::from(len) > room {
            Some(&mut self.counters.overflowed)
        } else {
            None
        }
    }

    fn maybe_copy(&mut self, packet: &Packet, arrives: Instant, pool: &mut Pool) {
        if self.rng.chance(self.config.duplicate) {
            self.counters.duplicated += 1;
            self.late.push((arrives, pool.duplicate(packet)));
        }
    }

    fn maybe_late(&mut self, packet: Box<Packet>, arrives: Instant) -> Option<Box<Packet>> {
        match self.config.reorder {
            Some(reorder) if self.rng.chance(reorder.chance) => {
                self.counters.reordered += 1;
                self.late.push((arrives + reorder.extra, packet));
                None
            }
            _ => Some(packet),
        }
    }

    /// Lets what has been sent by `now` leave the buffer.
    fn depart(&mut self, now: Instant) {
        while let Some(entry) = self.line.get(self.departed) {
            if entry.departs > now {
                break;
            }
            self.backlog -= u64::from(entry.len);
            self.departed += 1;
        }
        // What has neither a packet nor a claim on the buffer need not stay.
        while self.departed > 0 && self.line.front().is_some_and(|e| e.packet.is_none()) {
            self.line.pop_front();
            self.departed -= 1;
        }
    }

    /// When the last packet arrives, where all arrive in order.
    #[must_use]
    pub fn last_arrival(&self) -> Option<Instant> {
        let last = self.line.back().filter(|_| self.late.is_empty());
        last.map(|last| last.arrives)
    }

    /// When the next packet arrives.
    #[must_use]
    pub fn next_arrival(&self) -> Option<Instant> {
        let in_turn = self
            .line
            .iter()
            .find(|entry| entry.packet.is_some())
            .map(|entry| entry.arrives);
        let late = self.late.iter().map(|(arrives, _)| *arrives).min();
        match (in_turn, late) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Looks at the packets that arrive next. They have lain in the line for long and left the processor's caches, which
    /// fetch them while others are dealt with.
    pub fn fetch_ahead(&self) {
        let mut waiting = self.line.iter().filter_map(|entry| entry.packet.as_ref());
        if let Some(next) = waiting.next() {
            black_box(next.bytes().first());
        }
        // Where its bytes are is known only from the packet, which has to be here by then.
        if let Some(second) = waiting.next() {
            black_box(second.len());
        }
    }

    /// The next packet that has arrived by `now`.
    pub fn arrival(&mut self, now: Instant) -> Option<Box<Packet>> {
        let front = self.line.front();
        if self.late.is_empty() && front.is_none_or(|front| front.arrives > now) {
            return None;
        }
        self.depart(now);
        let packet = match self.line.front_mut() {
            Some(entry) if entry.arrives <= now && self.departed > 0 => {
                let packet = entry.packet.take();
                self.line.pop_front();
                self.departed -= 1;
                packet
            }
            _ => None,
        };
        let packet = packet.or_else(|| {
            let at = self.late.iter().position(|(arrives, _)| *arrives <= now)?;
            Some(self.late.remove(at).1)
        })?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += packet.len() as u64;
        Some(packet)
    }

    /// Bytes that wait or are being sent at `now`.
    pub fn backlog(&mut self, now: Instant) -> u64 {
        self.depart(now);
        self.backlog
    }

    /// When no more than `bytes` of what waits now will be waiting.
    #[must_use]
    pub fn drains_to(&self, bytes: u64) -> Option<Instant> {
        let mut left = self.backlog;
        let mut waiting = self.line.iter().skip(self.departed);
        waiting.find_map(|entry| {
            left -= u64::from(entry.len);
            (left <= bytes).then_some(entry.departs)
        })
    }

    /// What the line is like now.
    #[must_use]
    pub fn config(&self) -> &LineConfig {
        &self.config
    }

    /// What became of its packets.
    #[must_use]
    pub fn counters(&self) -> &LineCounters {
        &self.counters
    }

    /// Whether it carries packets.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Changes the rate; what waits is sent at the new rate from `now` on.
    pub fn set_rate(&mut self, now: Instant, rate: Rate) {
        self.depart(now);
        let old = std::mem::replace(&mut self.config.rate, rate);
        let mut free = now;
        for (index, entry) in self.line.iter_mut().enumerate().skip(self.departed) {
            // The packet on the line has sent some of its bytes already.
            let left = if index == self.departed {
                old.bytes_in(entry.departs - now).min(u64::from(entry.len))
            } else {
                u64::from(entry.len)
            };
            free += rate.time_for(left);
            entry.departs = free;
        }
        self.retime();
    }

    /// Changes the delay of what is not yet sent. Packets never overtake each other because of it.
    pub fn set_delay(&mut self, now: Instant, delay: Duration) {
        self.depart(now);
        self.config.delay = delay;
        self.retime();
    }

    fn retime(&mut self) {
        let mut last = match self.departed {
            0 => Instant::ZERO,
            sent => self.line[sent - 1].arrives,
        };
        let delay = self.config.delay;
        for entry in self.line.iter_mut().skip(self.departed) {
            last = last.max(entry.departs + delay);
            entry.arrives = last;
        }
    }

    /// Replaces the loss models.
    pub fn set_loss(&mut self, loss: Vec<Loss>) {
        self.config.loss = loss;
    }

    /// Cuts or mends the line. A cut loses what waits; what has been sent still arrives.
    pub fn set_up(&mut self, now: Instant, up: bool, pool: &mut Pool) {
        self.depart(now);
        self.up = up;
        if up {
            return;
        }
        for entry in self.line.drain(self.departed..) {
            if let Some(packet) = entry.packet {
                self.counters.cut += 1;
                pool.give(packet);
            }
        }
        self.backlog = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loss::Kind;

    const MS: fn(u64) -> Instant = Instant::from_millis;

    fn line(change: impl FnOnce(&mut LineConfig)) -> (Line, Pool) {
        // A byte takes a microsecond.
        let mut config = LineConfig {
            rate: Rate::from_bytes_per_sec(1_000_000),
            delay: Duration::from_millis(10),
            ..LineConfig::default()
        };
        change(&mut config);
        (Line::new(config, Rng::new(1)), Pool::default())
    }

    fn offer(line: &mut Line, pool: &mut Pool, now: Instant, first: u8) {
        let mut packet = pool.take();
        packet.bytes_mut().resize(1000, 0);
        packet.bytes_mut()[0] = first;
        line.offer(now, packet, pool);
    }

    /// Everything that arrives, with its time in milliseconds.
    fn arrivals(line: &mut Line, pool: &mut Pool) -> Vec<(u64, u8)> {
        let mut all = Vec::new();
        while let Some(at) = line.next_arrival() {
            let packet = line.arrival(at).expect("announced by next_arrival");
            all.push((at.as_millis(), packet.bytes()[0]));
            pool.give(packet);
        }
        assert_eq!(pool.in_use(), 0);
        all
    }

    #[test]
    fn packets_take_their_turn_and_their_time() {
        let (mut line, mut pool) = line(|_| ());
        for n in 0..3 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        assert_eq!(line.backlog(MS(0)), 3000);
        assert_eq!(line.backlog(MS(1)), 2000);
        assert_eq!(line.drains_to(1000), Some(MS(2)));
        assert_eq!(line.arrival(MS(10)).map(|p| p.len()), None);
        assert_eq!(arrivals(&mut line, &mut pool), [(11, 0), (12, 1), (13, 2)]);
    }

    #[test]
    fn a_full_buffer_drops_the_tail() {
        let (mut line, mut pool) = line(|c| c.buffer = Buffer::Time(Duration::from_millis(2)));
        for n in 0..4 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        offer(&mut line, &mut pool, MS(1), 4);
        assert_eq!(arrivals(&mut line, &mut pool), [(11, 0), (12, 1), (13, 4)]);
        assert_eq!(
            (line.counters().overflowed, line.counters().deepest),
            (2, 2000)
        );
    }

    #[test]
    fn a_lost_packet_still_takes_its_time() {
        let (mut line, mut pool) = line(|c| c.loss = vec![Loss::mask(Kind::Any, vec![1])]);
        for n in 0..3 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        assert_eq!(arrivals(&mut line, &mut pool), [(11, 0), (13, 2)]);
        assert_eq!(line.counters().lost, 1);
    }

    #[test]
    fn late_and_copied_packets_arrive() {
        let reorder = Some(Reorder {
            chance: Chance::ALWAYS,
            extra: Duration::from_millis(5),
        });
        let (mut line, mut pool) = line(|c| (c.reorder, c.duplicate) = (reorder, Chance::ALWAYS));
        for n in 0..2 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        assert_eq!(
            arrivals(&mut line, &mut pool),
            [(11, 0), (12, 1), (16, 0), (17, 1)]
        );
    }

    #[test]
    fn a_new_rate_applies_to_what_waits() {
        let (mut line, mut pool) = line(|_| ());
        for n in 0..3 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        // Half of packet 0 is sent. The rest takes 5 ms, the others 10 ms each.
        line.set_rate(Instant::from_micros(500), Rate::from_bytes_per_sec(100_000));
        assert_eq!(arrivals(&mut line, &mut pool), [(15, 0), (25, 1), (35, 2)]);
    }

    #[test]
    fn a_shorter_delay_does_not_reorder() {
        let (mut line, mut pool) = line(|_| ());
        for n in 0..3 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        line.set_delay(MS(1), Duration::ZERO);
        assert_eq!(arrivals(&mut line, &mut pool), [(11, 0), (11, 1), (11, 2)]);
    }

    #[test]
    fn a_cut_loses_what_waits_and_what_comes() {
        let (mut line, mut pool) = line(|_| ());
        for n in 0..3 {
            offer(&mut line, &mut pool, MS(0), n);
        }
        line.set_up(MS(1), false, &mut pool);
        offer(&mut line, &mut pool, MS(2), 3);
        line.set_up(MS(3), true, &mut pool);
        offer(&mut line, &mut pool, MS(4), 4);
        assert_eq!(arrivals(&mut line, &mut pool), [(11, 0), (15, 4)]);
        assert_eq!(line.counters().cut, 3);
    }

    #[test]
    fn a_packet_beyond_the_mtu_does_not_fit() {
        let (mut line, mut pool) = line(|c| c.mtu = 999);
        offer(&mut line, &mut pool, MS(0), 0);
        assert_eq!(arrivals(&mut line, &mut pool), []);
        assert_eq!(line.counters().too_big, 1);
    }
}
