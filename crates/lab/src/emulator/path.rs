//! One emulated path: two lines, and middleboxes between the first end and the lines.

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
    /// The station that it comes from.
    from: usize,
    packet: Box<Packet>,
}

/// What lies between the two interfaces of a path. Packets of the way [`Way::Out`] go from the first to the second.
pub(super) struct Wire {
    out: Line,
    back: Line,
    stations: Vec<Station>,
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
        boxes: Vec<Box<dyn Middlebox>>,
        seed: u64,
    ) -> Self {
        let station = |(middlebox, part)| Station {
            middlebox,
            rng: Rng::stream(seed, part),
        };
        Self {
            out: Line::new(out, Rng::stream(seed, 0)),
            back: Line::new(back, Rng::stream(seed, 1)),
            stations: boxes.into_iter().zip(2..).map(station).collect(),
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
        self.headers[side(way)] = *header;
        match way {
            Way::Out => self.pass(now, Way::Out, 0, packet, emit),
            Way::In => self.back.offer(now, packet, &mut self.pool),
        }
    }

    /// Lets everything that is due by `now` come out.
    pub(super) fn deliver(&mut self, now: Instant, emit: &mut dyn FnMut(Way, &Packet)) {
        while let Some(packet) = self.out.arrival(now) {
            self.finish(Way::Out, packet, emit);
        }
        while let Some(packet) = self.back.arrival(now) {
            let last = self.stations.len();
            self.pass(now, Way::In, last, packet, emit);
        }
        while let Some(at) = self.held.iter().position(|held| held.until <= now) {
            let held = self.held.swap_remove(at);
            let next = next(held.way, held.from);
            self.pass(now, held.way, next, held.packet, emit);
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

    /// Takes a packet to a position in the row of boxes: the box with that number when it goes out, the one before it
    /// when it comes in. Past either end of the row it leaves.
    fn pass(
        &mut self,
        now: Instant,
        way: Way,
        position: usize,
        packet: Box<Packet>,
        emit: &mut dyn FnMut(Way, &Packet),
    ) {
        let index = match way {
            Way::Out if position == self.stations.len() => {
                return self.out.offer(now, packet, &mut self.pool);
            }
            Way::Out => position,
            Way::In if position == 0 => return self.finish(way, packet, emit),
            Way::In => position - 1,
        };
        let mut verdicts = std::mem::take(&mut self.verdicts);
        let station = &mut self.stations[index];
        let mut desk = Desk {
            now,
            pool: &mut self.pool,
            rng: &mut station.rng,
            verdicts: &mut verdicts,
        };
        station.middlebox.handle(way, packet, &mut desk);
        self.obey(now, index, verdicts, emit);
    }

    fn obey(
        &mut self,
        now: Instant,
        index: usize,
        mut verdicts: Vec<Verdict>,
        emit: &mut dyn FnMut(Way, &Packet),
    ) {
        for verdict in verdicts.drain(..) {
            match verdict {
                Verdict::Forward(way, packet) => {
                    self.pass(now, way, next(way, index), packet, emit)
                }
                Verdict::Delay(way, time, packet) => {
                    self.held.push(Held {
                        until: now + time,
                        way,
                        from: index,
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

    pub(super) fn counters(&self) -> [LineCounters; 2] {
        [*self.out.counters(), *self.back.counters()]
    }
}

/// The position after the box with this number.
fn next(way: Way, index: usize) -> usize {
    match way {
        Way::Out => index + 1,
        Way::In => index,
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
    }

    fn frame(text: &[u8]) -> Vec<u8> {
        [&[7; LINK_HEADER][..], text].concat()
    }

    fn run(wire: &mut Wire, frames: &[(Way, &[u8])]) -> Vec<(u64, Way, Vec<u8>)> {
        let mut all = Vec::new();
        let start = Instant::ZERO;
        for (way, text) in frames {
            wire.offer(start, *way, &frame(text), &mut |way, packet| {
                all.push((0, way, packet.bytes().to_vec()));
            });
        }
        while let Some(at) = wire.deadline() {
            wire.deliver(at, &mut |way, packet| {
                assert_ne!(packet.link_header(), &[0; LINK_HEADER]);
                all.push((at.as_millis(), way, packet.bytes().to_vec()));
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
        let mut wire = Wire::new(line(3), line(4), Vec::new(), 1);
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
        let mut wire = Wire::new(line(1), line(1), boxes, 1);
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
}
