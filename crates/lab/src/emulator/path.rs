//! One emulated path: two lines, and middleboxes at either end of them.
//!
//! The path is a row of hops: the boxes near the first end, the lines, the boxes near the second end. The gaps between
//! the hops are numbered, from 0 at the first end to one more than the number of boxes at the second; the way
//! [`Way::Out`] takes a packet up the row.

use std::cmp::Ordering;

use manypath_sim::line::{Line, LineConfig, LineCounters};
use manypath_sim::middlebox::{Desk, Middlebox, Verdict, Way};
use manypath_sim::packet::{LINK_HEADER, Packet, Pool};
use manypath_sim::rng::Rng;
use manypath_tcp::time::Instant;

/// A box with its own randomness.
struct Station {
    middlebox: Box<dyn Middlebox>,
    rng: Rng,
}

/// A packet that a box holds back.
struct Held {
    until: Instant,
    way: Way,
    /// The gap that it will be in.
    gap: usize,
    packet: Box<Packet>,
}

/// What lies between the two interfaces of a path. Packets of the way [`Way::Out`] go from the first to the second.
pub(super) struct Wire {
    out: Line,
    back: Line,
    stations: Vec<Station>,
    /// How many of the stations are near the first end; it is also the number of the hop that is the lines.
    near: usize,
    held: Vec<Held>,
    pool: Pool,
    verdicts: Vec<Verdict>,
    /// The last header of the link layer each way, for packets that a box made itself.
    headers: [[u8; LINK_HEADER]; 2],
    /// Packets that boxes ended.
    pub(super) dropped: u64,
}

impl Wire {
    pub(super) fn new(
        out: LineConfig,
        back: LineConfig,
        [near, far]: [Vec<Box<dyn Middlebox>>; 2],
        seed: u64,
    ) -> Self {
        let count = near.len();
        let station = |(middlebox, part)| Station {
            middlebox,
            rng: Rng::stream(seed, part),
        };
        Self {
            out: Line::new(out, Rng::stream(seed, 0)),
            back: Line::new(back, Rng::stream(seed, 1)),
            stations: near.into_iter().chain(far).zip(2..).map(station).collect(),
            near: count,
            held: Vec::new(),
            pool: Pool::default(),
            verdicts: Vec::new(),
            headers: [[0; LINK_HEADER]; 2],
            dropped: 0,
        }
    }

    /// Takes a frame with an IP packet from one of the two interfaces. What comes out at the first end at once, because
    /// a box answered it, goes to `emit`.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        way: Way,
        frame: &[u8],
        emit: &mut dyn FnMut(Way, &Packet),
    ) {
        let Some((header, bytes)) = frame.split_first_chunk::<LINK_HEADER>() else {
            return;
        };
        let mut packet = self.pool.copy_of(bytes);
        packet.set_link_header(*header);
        // Not of a group address, as in what hosts say to find their routers: what a box makes is for the other end alone.
        if header[0] & 1 == 0 {
            self.headers[side(way)] = *header;
        }
        let gap = match way {
            Way::Out => 0,
            Way::In => self.hops(),
        };
        self.pass(now, way, gap, packet, emit);
    }

    /// The number of hops, and of the gap behind the last one.
    fn hops(&self) -> usize {
        self.stations.len() + 1
    }

    /// Lets everything that is due by `now` come out.
    pub(super) fn deliver(&mut self, now: Instant, emit: &mut dyn FnMut(Way, &Packet)) {
        while let Some(packet) = self.out.arrival(now) {
            self.pass(now, Way::Out, self.near + 1, packet, emit);
        }
        while let Some(packet) = self.back.arrival(now) {
            self.pass(now, Way::In, self.near, packet, emit);
        }
        while let Some(at) = self.held.iter().position(|held| held.until <= now) {
            let held = self.held.swap_remove(at);
            self.pass(now, held.way, held.gap, held.packet, emit);
        }
        for index in 0..self.stations.len() {
            if self.stations[index]
                .middlebox
                .deadline()
                .is_some_and(|deadline| deadline <= now)
            {
                let mut verdicts = std::mem::take(&mut self.verdicts);
                let station = &mut self.stations[index];
                station.middlebox.on_deadline(&mut Desk {
                    now,
                    pool: &mut self.pool,
                    rng: &mut station.rng,
                    verdicts: &mut verdicts,
                });
                self.obey(now, index, verdicts, emit);
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let lines = [self.out.next_arrival(), self.back.next_arrival()];
        let boxes = self
            .stations
            .iter()
            .map(|station| station.middlebox.deadline());
        let held = self.held.iter().map(|held| Some(held.until));
        lines.into_iter().chain(boxes).chain(held).flatten().min()
    }

    /// Takes a packet on from a gap: into the next hop, or out of the path.
    fn pass(
        &mut self,
        now: Instant,
        way: Way,
        gap: usize,
        packet: Box<Packet>,
        emit: &mut dyn FnMut(Way, &Packet),
    ) {
        let hop = match way {
            Way::Out if gap == self.hops() => return self.finish(way, packet, emit),
            Way::In if gap == 0 => return self.finish(way, packet, emit),
            Way::Out => gap,
            Way::In => gap - 1,
        };
        let (index, seen) = match hop.cmp(&self.near) {
            _ if hop != self.near && !concerns_boxes(packet.bytes()) => {
                let gap = match way {
                    Way::Out => gap + 1,
                    Way::In => gap - 1,
                };
                return self.pass(now, way, gap, packet, emit);
            }
            Ordering::Less => (hop, way),
            Ordering::Equal => {
                return match way {
                    Way::Out => self.out.offer(now, packet, &mut self.pool),
                    Way::In => self.back.offer(now, packet, &mut self.pool),
                };
            }
            // To a box at the second end, what comes from there goes out.
            Ordering::Greater => (hop - 1, way.reversed()),
        };
        let mut verdicts = std::mem::take(&mut self.verdicts);
        let station = &mut self.stations[index];
        let mut desk = Desk {
            now,
            pool: &mut self.pool,
            rng: &mut station.rng,
            verdicts: &mut verdicts,
        };
        station.middlebox.handle(seen, packet, &mut desk);
        self.obey(now, index, verdicts, emit);
    }

    /// Carries out what the box with this number has decided.
    fn obey(
        &mut self,
        now: Instant,
        index: usize,
        mut verdicts: Vec<Verdict>,
        emit: &mut dyn FnMut(Way, &Packet),
    ) {
        let at_first_end = index < self.near;
        let hop = index + usize::from(!at_first_end);
        let leaving = |seen: Way| {
            let way = if at_first_end { seen } else { seen.reversed() };
            match way {
                Way::Out => (way, hop + 1),
                Way::In => (way, hop),
            }
        };
        for verdict in verdicts.drain(..) {
            match verdict {
                Verdict::Forward(seen, packet) => {
                    let (way, gap) = leaving(seen);
                    self.pass(now, way, gap, packet, emit);
                }
                Verdict::Delay(seen, time, packet) => {
                    let (way, gap) = leaving(seen);
                    self.held.push(Held {
                        until: now + time,
                        way,
                        gap,
                        packet,
                    });
                }
                Verdict::Drop(packet, _) => {
                    self.dropped += 1;
                    self.pool.give(packet);
                }
            }
        }
        // Its room is used again, except by the calls that were nested in this one.
        self.verdicts = verdicts;
    }

    fn finish(&mut self, way: Way, mut packet: Box<Packet>, emit: &mut dyn FnMut(Way, &Packet)) {
        if packet.link_header() == &[0; LINK_HEADER] {
            packet.set_link_header(self.headers[side(way)]);
        }
        emit(way, &packet);
        self.pool.give(packet);
    }

    pub(super) fn set_up(&mut self, now: Instant, up: bool) {
        self.out.set_up(now, up, &mut self.pool);
        self.back.set_up(now, up, &mut self.pool);
    }

    /// Gives one way the rate, delay and loss of `config` from now on; its buffer and the rest stay.
    pub(super) fn change(&mut self, now: Instant, way: Way, config: &LineConfig) {
        let line = self.line_mut(way);
        line.set_rate(now, config.rate);
        line.set_delay(now, config.delay);
        line.set_loss(config.loss.clone());
    }

    fn line_mut(&mut self, way: Way) -> &mut Line {
        match way {
            Way::Out => &mut self.out,
            Way::In => &mut self.back,
        }
    }

    /// Packets that the boxes changed, ended, held back or made.
    pub(super) fn touched(&self) -> u64 {
        let touched = self.stations.iter().map(|s| s.middlebox.touched());
        touched.sum()
    }

    pub(super) fn counters(&self) -> [LineCounters; 2] {
        [*self.out.counters(), *self.back.counters()]
    }
}

/// Whether a packet is of the kinds that the simulator has: TCP, and ICMP that reports errors. Real hosts also look for
/// their neighbours and routers; boxes that count or wait from their first packet on must not see that.
fn concerns_boxes(packet: &[u8]) -> bool {
    const TCP: u8 = 6;
    const ICMP: u8 = 1;
    const ICMP6: u8 = 58;
    /// The first type of ICMPv6 that is no error (RFC 4443 section 2.1).
    const INFORMATION: u8 = 128;
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => matches!(packet.get(9), Some(&(TCP | ICMP))),
        Some(6) => match packet.get(6) {
            Some(&TCP) => true,
            Some(&ICMP6) => packet.get(40).is_some_and(|kind| *kind < INFORMATION),
            _ => false,
        },
        _ => false,
    }
}

/// Number of the side that packets of a way come from.
pub(super) fn side(way: Way) -> usize {
    match way {
        Way::Out => 0,
        Way::In => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manypath_tcp::time::Duration;

    /// Answers the first packet out itself, delays the second, drops the third, passes the rest.
    struct Moody(u8);

    impl Middlebox for Moody {
        fn name(&self) -> &'static str {
            "moody"
        }

        fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
            if way == Way::In {
                return desk.forward(way, packet);
            }
            self.0 += 1;
            match self.0 {
                1 => {
                    let answer = desk.pool.copy_of(b"answer");
                    desk.forward(Way::In, answer);
                    desk.forward(Way::Out, packet);
                }
                2 => desk
                    .verdicts
                    .push(Verdict::Delay(way, Duration::from_millis(5), packet)),
                3 => desk.drop(packet, "mood"),
                _ => desk.forward(way, packet),
            }
        }

        fn touched(&self) -> u64 {
            u64::from(self.0)
        }
    }

    /// What a box looks at to see that it is TCP.
    const IP: [u8; 10] = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6];

    fn frame(text: &[u8]) -> Vec<u8> {
        [&[7; LINK_HEADER][..], &IP, text].concat()
    }

    fn words(packet: &Packet) -> Vec<u8> {
        let bytes = packet.bytes();
        bytes.strip_prefix(&IP).unwrap_or(bytes).to_vec()
    }

    fn run(wire: &mut Wire, frames: &[(Way, &[u8])]) -> Vec<(u64, Way, Vec<u8>)> {
        let mut all = Vec::new();
        let start = Instant::ZERO;
        for (way, text) in frames {
            wire.offer(start, *way, &frame(text), &mut |way, packet| {
                all.push((0, way, words(packet)));
            });
        }
        while let Some(at) = wire.deadline() {
            wire.deliver(at, &mut |way, packet| {
                assert_ne!(packet.link_header(), &[0; LINK_HEADER]);
                all.push((at.as_millis(), way, words(packet)));
            });
        }
        all
    }

    fn line(delay: u64) -> LineConfig {
        LineConfig {
            delay: Duration::from_millis(delay),
            ..LineConfig::default()
        }
    }

    #[test]
    fn without_boxes_each_way_has_its_own_line() {
        let mut wire = Wire::new(line(3), line(4), [Vec::new(), Vec::new()], 1);
        let all = run(&mut wire, &[(Way::Out, b"ping"), (Way::In, b"pong")]);
        assert_eq!(
            all,
            [
                (3, Way::Out, b"ping".to_vec()),
                (4, Way::In, b"pong".to_vec())
            ]
        );
        assert_eq!(wire.counters().map(|c| c.delivered), [1, 1]);
    }

    #[test]
    fn boxes_answer_delay_drop_and_pass() {
        let boxes: Vec<Box<dyn Middlebox>> = vec![Box::new(Moody(10)), Box::new(Moody(0))];
        let mut wire = Wire::new(line(1), line(1), [boxes, Vec::new()], 1);
        let frames: Vec<(Way, &[u8])> = vec![
            (Way::Out, b"a"),
            (Way::Out, b"b"),
            (Way::Out, b"c"),
            (Way::Out, b"d"),
            (Way::In, b"e"),
        ];
        // The first of them gives the way back a header to use for the answer.
        wire.headers[1] = [9; LINK_HEADER];
        let all = run(&mut wire, &frames);
        let texts: Vec<(u64, Way, &[u8])> = all
            .iter()
            .map(|(at, way, text)| (*at, *way, &text[..]))
            .collect();
        assert_eq!(
            texts,
            [
                (0, Way::In, &b"answer"[..]),
                (1, Way::Out, b"a"),
                (1, Way::Out, b"d"),
                (1, Way::In, b"e"),
                (6, Way::Out, b"b"),
            ]
        );
        assert_eq!(wire.dropped, 1);
        assert_eq!(wire.pool.in_use(), 0);
    }

    #[test]
    fn a_box_at_the_second_end_stands_behind_the_lines_and_looks_the_other_way() {
        let boxes: Vec<Box<dyn Middlebox>> = vec![Box::new(Moody(0))];
        let mut wire = Wire::new(line(1), line(2), [Vec::new(), boxes], 1);
        let frames: Vec<(Way, &[u8])> = vec![
            (Way::In, b"a"),
            (Way::In, b"b"),
            (Way::In, b"c"),
            (Way::Out, b"d"),
        ];
        wire.headers[0] = [9; LINK_HEADER];
        let all = run(&mut wire, &frames);
        let texts: Vec<(u64, Way, &[u8])> = all
            .iter()
            .map(|(at, way, text)| (*at, *way, &text[..]))
            .collect();
        assert_eq!(
            texts,
            [
                (0, Way::Out, &b"answer"[..]),
                (1, Way::Out, b"d"),
                (2, Way::In, b"a"),
                (7, Way::In, b"b"),
            ]
        );
        assert_eq!((wire.dropped, wire.touched()), (1, 3));
        assert_eq!(wire.pool.in_use(), 0);
    }

    #[test]
    fn boxes_see_tcp_and_errors_and_nothing_else() {
        let six = |next: u8, kind: u8| {
            let mut packet = vec![0; 48];
            packet[0] = 0x60;
            packet[6] = next;
            packet[40] = kind;
            packet
        };
        let mut four = IP.to_vec();
        assert!(concerns_boxes(&four));
        four[9] = 17;
        assert!(!concerns_boxes(&four));
        assert!(concerns_boxes(&six(6, 0)) && concerns_boxes(&six(58, 2)));
        assert!(!concerns_boxes(&six(58, 135)) && !concerns_boxes(&six(0, 58)));
        assert!(!concerns_boxes(&[]));
        let boxes: Vec<Box<dyn Middlebox>> = vec![Box::new(Moody(2))];
        let mut wire = Wire::new(line(1), line(1), [boxes, Vec::new()], 1);
        let datagram = [&[7; LINK_HEADER][..], &four].concat();
        wire.offer(Instant::ZERO, Way::Out, &datagram, &mut |_, _| ());
        assert_eq!((wire.touched(), wire.deadline().is_some()), (2, true));
    }
}
