//! One direction of an emulated path: a queue in front of a rate, followed by a delay.

use std::collections::VecDeque;
use std::time::Duration;

/// How much may wait in front of a link before the next packet is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// Bytes of IP packets.
    Bytes(u64),
    /// As many bytes as the link sends in this time at its present rate.
    Time(Duration),
}

impl Buffer {
    fn bytes(self, rate: u64) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Time(time) => u64::try_from(u128::from(rate) * time.as_nanos() / 8_000_000_000)
                .unwrap_or(u64::MAX),
        }
    }
}

/// One direction of an emulated path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkSpec {
    /// Bits per second, counted over whole IP packets. Zero stands for no limit.
    pub rate: u64,
    /// One way, without queueing and without the time to send the packet.
    pub delay: Duration,
    /// Room for packets that wait; the one being sent does not count.
    pub buffer: Buffer,
    /// Share of packets lost at random, 0 to 1.
    pub loss: f64,
}

/// What became of the packets that entered one direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinkCounters {
    /// Packets that came out at the other end.
    pub delivered: u64,
    /// Bytes of IP packets that came out.
    pub delivered_bytes: u64,
    /// Dropped because the buffer was full.
    pub dropped_full: u64,
    /// Lost at random.
    pub dropped_loss: u64,
    /// Lost because the link was cut.
    pub dropped_down: u64,
}

#[derive(Debug)]
struct Packet {
    /// Nanoseconds: when it came in while it waits, when it comes out once it flies.
    at: u64,
    len: u32,
    frame: Vec<u8>,
}

/// The state of one direction. Time comes in as nanoseconds since any fixed moment and never decreases.
#[derive(Debug)]
pub(super) struct Link {
    spec: LinkSpec,
    up: bool,
    waiting: VecDeque<Packet>,
    waiting_bytes: u64,
    flying: VecDeque<Packet>,
    /// When the packet being sent has left, and its successor may begin.
    free_at: u64,
    random: u64,
    pub(super) counters: LinkCounters,
}

impl Link {
    pub(super) fn new(spec: LinkSpec, seed: u64) -> Self {
        Self {
            spec,
            up: true,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            flying: VecDeque::new(),
            free_at: 0,
            random: seed,
            counters: LinkCounters::default(),
        }
    }

    /// Changes the link from now on. Packets already on their way keep their time.
    pub(super) fn change(&mut self, now: u64, spec: LinkSpec) {
        self.advance(now);
        self.spec = spec;
    }

    /// Cuts the link, which loses everything in it, or joins it again.
    pub(super) fn set_up(&mut self, up: bool) {
        self.up = up;
        if !up {
            self.counters.dropped_down += (self.waiting.len() + self.flying.len()) as u64;
            self.waiting.clear();
            self.waiting_bytes = 0;
            self.flying.clear();
            self.free_at = 0;
        }
    }

    /// Takes a frame whose IP packet has `len` bytes.
    pub(super) fn offer(&mut self, now: u64, len: u32, frame: Vec<u8>) {
        if !self.up {
            self.counters.dropped_down += 1;
            return;
        }
        if self.spec.loss > 0.0 && self.uniform() < self.spec.loss {
            self.counters.dropped_loss += 1;
            return;
        }
        self.advance(now);
        let idle = self.waiting.is_empty() && self.free_at <= now;
        if !idle && self.waiting_bytes + u64::from(len) > self.spec.buffer.bytes(self.spec.rate) {
            self.counters.dropped_full += 1;
            return;
        }
        self.waiting_bytes += u64::from(len);
        self.waiting.push_back(Packet {
            at: now,
            len,
            frame,
        });
        self.advance(now);
    }

    /// The next frame that has come out by `now`.
    pub(super) fn take(&mut self, now: u64) -> Option<Vec<u8>> {
        self.advance(now);
        if self.flying.front()?.at > now {
            return None;
        }
        let packet = self.flying.pop_front()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += u64::from(packet.len);
        Some(packet.frame)
    }

    /// When the next frame comes out, if nothing else happens.
    pub(super) fn deadline(&self) -> Option<u64> {
        if let Some(packet) = self.flying.front() {
            return Some(packet.at);
        }
        let head = self.waiting.front()?;
        let begin = head.at.max(self.free_at);
        Some(begin + self.sending_time(head.len) + self.delay())
    }

    /// Packets whose sending has begun by `now` leave the queue: their way is settled then.
    fn advance(&mut self, now: u64) {
        while let Some(head) = self.waiting.front() {
            let begin = head.at.max(self.free_at);
            if begin > now {
                return;
            }
            let Some(mut packet) = self.waiting.pop_front() else {
                return;
            };
            self.waiting_bytes -= u64::from(packet.len);
            self.free_at = begin + self.sending_time(packet.len);
            // A delay that was shortened does not let packets overtake each other: a queue has one exit.
            let last = self.flying.back().map_or(0, |p| p.at);
            packet.at = (self.free_at + self.delay()).max(last);
            self.flying.push_back(packet);
        }
    }

    fn sending_time(&self, len: u32) -> u64 {
        (u64::from(len) * 8_000_000_000)
            .checked_div(self.spec.rate)
            .unwrap_or(0)
    }

    fn delay(&self) -> u64 {
        u64::try_from(self.spec.delay.as_nanos()).unwrap_or(u64::MAX / 2)
    }

    /// SplitMix64 (Steele, Lea, Flood 2014), 53 bits of it as a number in 0..1.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        (z >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn spec(rate: u64, delay_ms: u64, buffer: Buffer) -> LinkSpec {
        LinkSpec {
            rate,
            delay: Duration::from_millis(delay_ms),
            buffer,
            loss: 0.0,
        }
    }

    fn drain(link: &mut Link) -> Vec<(u64, usize)> {
        let mut out = Vec::new();
        while let Some(at) = link.deadline() {
            assert!(
                at == 0 || link.take(at - 1).is_none(),
                "nothing comes out before its time"
            );
            out.push((at, link.take(at).expect("its time has come").len()));
        }
        out
    }

    #[test]
    fn packets_come_out_at_the_rate_after_the_delay() {
        let mut link = Link::new(spec(8_000_000, 10, Buffer::Bytes(10_000)), 1);
        for _ in 0..3 {
            link.offer(5 * MS, 1000, vec![0; 1000]);
        }
        assert_eq!(
            drain(&mut link),
            [(16 * MS, 1000), (17 * MS, 1000), (18 * MS, 1000)]
        );
    }

    #[test]
    fn what_does_not_fit_the_buffer_is_dropped_from_the_tail() {
        // 8 Mbit/s for 2 ms are 2000 bytes: two packets wait, one is being sent.
        let mut link = Link::new(
            spec(8_000_000, 0, Buffer::Time(Duration::from_millis(2))),
            1,
        );
        for n in 1..=5 {
            link.offer(0, 1000, vec![0; n]);
        }
        assert_eq!(drain(&mut link), [(MS, 1), (2 * MS, 2), (3 * MS, 3)]);
        assert_eq!(link.counters.dropped_full, 2);
        assert_eq!(link.counters.delivered, 3);
    }

    #[test]
    fn a_packet_larger_than_the_buffer_still_passes_an_idle_link() {
        let mut link = Link::new(spec(8_000_000, 0, Buffer::Bytes(0)), 1);
        link.offer(0, 1000, vec![0; 1]);
        link.offer(0, 1000, vec![0; 2]);
        assert_eq!(drain(&mut link), [(MS, 1)]);
    }

    #[test]
    fn a_new_rate_holds_for_packets_not_yet_begun() {
        let mut link = Link::new(spec(8_000_000, 0, Buffer::Bytes(10_000)), 1);
        link.offer(0, 1000, vec![0; 1]);
        link.offer(0, 1000, vec![0; 2]);
        link.change(MS / 2, spec(800_000, 0, Buffer::Bytes(10_000)));
        assert_eq!(drain(&mut link), [(MS, 1), (11 * MS, 2)]);
    }

    #[test]
    fn a_shorter_delay_does_not_reorder() {
        let mut link = Link::new(spec(8_000_000, 100, Buffer::Bytes(10_000)), 1);
        link.offer(0, 1000, vec![0; 1]);
        link.change(MS, spec(8_000_000, 1, Buffer::Bytes(10_000)));
        link.offer(MS, 1000, vec![0; 2]);
        assert_eq!(drain(&mut link), [(101 * MS, 1), (101 * MS, 2)]);
    }

    #[test]
    fn a_cut_loses_what_is_in_the_link_and_what_comes() {
        let mut link = Link::new(spec(8_000_000, 10, Buffer::Bytes(10_000)), 1);
        link.offer(0, 1000, vec![0; 1]);
        link.offer(0, 1000, vec![0; 1]);
        link.set_up(false);
        link.offer(MS, 1000, vec![0; 1]);
        assert_eq!(link.deadline(), None);
        assert_eq!(link.counters.dropped_down, 3);
        link.set_up(true);
        link.offer(2 * MS, 1000, vec![0; 1]);
        assert_eq!(drain(&mut link), [(13 * MS, 1)]);
    }

    #[test]
    fn random_loss_has_its_share_and_repeats_with_its_seed() {
        let lossy = LinkSpec {
            loss: 0.1,
            ..spec(0, 0, Buffer::Bytes(u64::MAX))
        };
        let run = |seed| {
            let mut link = Link::new(lossy, seed);
            (0..20_000_u64).for_each(|t| link.offer(t, 100, Vec::new()));
            link.counters.dropped_loss
        };
        assert_eq!(run(7), run(7));
        assert!((1_900..2_100).contains(&run(7)), "{}", run(7));
    }
}
