//! A performance-enhancing proxy (RFC 3135 section 3.1.1): it acknowledges data before the receiver has it, and answers
//! for it from then on: what gets lost behind it, it sends again.

use std::collections::VecDeque;
use std::ops::Range;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::edit::{self, Bare, SACK, TIMESTAMPS, bare, pad_over, rebuild};
use super::flows::{FlowKey, Flows};
use super::{Desk, Middlebox, Verdict, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Span};
use crate::view::{ACK, FIN, RST, SYN, TcpView, get_u32, put_u16, put_u32};

/// Connections that it works for; each may fill its buffer both ways.
const MOST_FLOWS: usize = 64;
/// Bounds of its retransmission timer.
const LEAST_RTO: Duration = Duration::from_millis(200);
const MOST_RTO: Duration = Duration::from_secs(4);
/// Then it gives the receiver up.
const MOST_TRIES: u32 = 12;
/// Duplicate acknowledgements after which it sends again without waiting for the timer.
const DUPLICATES: u32 = 3;
/// Largest shift of a window (RFC 7323 section 2.3).
const MOST_SHIFT: u8 = 14;

/// Parameters of [`Proxy`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ProxySpec {
    /// How much of each connection and way it keeps until the receiver acknowledges; what exceeds it just passes.
    pub buffer: Size,
    /// How long it holds data back that it has acknowledged.
    pub hold: Span,
    /// Only for data that goes this way.
    pub way: Option<Way>,
}

impl Default for ProxySpec {
    fn default() -> Self {
        Self {
            buffer: Size(128_000),
            hold: Span(Duration::ZERO),
            way: None,
        }
    }
}

/// A segment that the proxy answers for.
#[derive(Debug)]
struct Stored {
    first: SeqNum,
    end: SeqNum,
    sent: Instant,
    again: bool,
    /// Which of all transmissions the last one was.
    turn: u64,
    /// The receiver says that it has it, above a hole.
    held: bool,
    bytes: Vec<u8>,
}

/// What a receiver says.
struct Heard {
    ack: SeqNum,
    /// The right edge of its window.
    edge: SeqNum,
    /// The packet brings nothing else.
    bare: bool,
    sacks: Vec<(SeqNum, SeqNum)>,
}

/// Data in one direction.
#[derive(Debug, Default)]
struct Stream {
    /// The number after the last byte that the proxy acknowledged, or would.
    next: Option<SeqNum>,
    /// The number after everything that has passed.
    passed: Option<SeqNum>,
    /// What the receiver acknowledged.
    acked: Option<SeqNum>,
    /// The right edge of the receiver's window.
    edge: Option<SeqNum>,
    store: VecDeque<Stored>,
    stored: u64,
    due: Option<Instant>,
    tries: u32,
    duplicates: u32,
    /// How often something was sent.
    turns: u64,
    /// The last of what arrived, by its turn.
    arrived: u64,
    srtt: Option<Duration>,
    /// Something was sent again: what was kept then may have more holes (RFC 6582). Each is filled by one acknowledgement where
    /// the receiver says by SACK which there are, else by one round trip.
    recover: Option<SeqNum>,
    /// That was by a time-out: what fills holes has as many sent and one more, as in slow start (RFC 5681 section 3.1), for nothing
    /// else is on its way where what lies behind a hole is dropped.
    begins_anew: bool,
}

impl Stream {
    fn rto(&self) -> Duration {
        let base = self
            .srtt
            .map_or(Duration::from_secs(1), |srtt| srtt.times(2));
        base.max(LEAST_RTO)
            .times(1 << self.tries.min(8))
            .min(MOST_RTO)
    }

    /// The receiver acknowledges. Says which of the segments that are kept should be sent again at once.
    fn acknowledge(&mut self, heard: &Heard, now: Instant) -> Vec<usize> {
        let ack = heard.ack;
        let before = *self.acked.get_or_insert(ack);
        self.next = Some(self.next.map_or(ack, |next| next.max(ack)));
        self.edge = Some(heard.edge);
        let mut filled = 0;
        if ack.after(before) {
            filled = self.advance(ack, now);
        } else if ack == before && heard.bare && !self.store.is_empty() {
            // With nothing on its way the same number says nothing of a loss (RFC 5681 section 2).
            self.duplicates += 1;
        }
        for kept in &mut self.store {
            let within = |&(first, end): &(SeqNum, SeqNum)| {
                kept.first.after_eq(first) && kept.end.before_eq(end)
            };
            if !kept.held && heard.sacks.iter().any(within) {
                kept.held = true;
                self.arrived = self.arrived.max(kept.turn);
            }
        }
        if self.recover.is_none() && self.duplicates == DUPLICATES {
            self.recovers();
            return vec![0];
        }
        match (self.recover, self.begins_anew) {
            (None, _) => Vec::new(),
            (Some(_), true) => self.next_holes(1 + filled),
            (Some(_), false) => self.next_holes(1),
        }
    }

    /// The receiver has everything before `ack`. Says how many holes that filled.
    fn advance(&mut self, ack: SeqNum, now: Instant) -> usize {
        self.acked = Some(ack);
        self.duplicates = 0;
        self.tries = 0;
        // What arrived behind a hole is acknowledged with it, long after it came: that is no round trip (Karn's rule).
        let mut took = None;
        let mut filled = 0;
        while let Some(done) = self.store.front() {
            if done.end.after(ack) {
                break;
            }
            self.stored -= done.bytes.len() as u64;
            filled += usize::from(done.again);
            took = Some(now - done.sent);
            self.arrived = self.arrived.max(done.turn);
            self.store.pop_front();
        }
        if let Some(took) = took.filter(|_| filled == 0) {
            let blend = |srtt: Duration| srtt.ratio(7, 8) + took.over(8);
            self.srtt = Some(self.srtt.map_or(took, blend));
        }
        self.due = (!self.store.is_empty()).then(|| now + self.rto());
        self.recover = self.recover.filter(|recover| ack.before(*recover));
        filled
    }

    /// Something is lost: everything that is kept may be.
    fn recovers(&mut self) {
        self.recover = self.store.back().map(|last| last.end);
        self.begins_anew = false;
    }

    /// Nothing was heard of what is kept for as long as a time-out.
    fn all_is_lost(&mut self) {
        self.recovers();
        self.begins_anew = true;
        self.arrived = self.turns;
    }

    /// The next segments that are missing: something that was sent later arrived (RFC 8985 section 6.2, on a path that keeps
    /// order).
    fn next_holes(&self, most: usize) -> Vec<usize> {
        let missing = |kept: &Stored| !kept.held && kept.turn < self.arrived;
        let kept = self.store.iter().enumerate();
        let holes = kept.filter(|(_, kept)| missing(kept)).map(|(at, _)| at);
        holes.take(most).collect()
    }

    /// The next transmission's place among all.
    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Keeps a segment until the receiver acknowledges it.
    fn keep(&mut self, packet: &[u8], (first, end): (SeqNum, SeqNum), sent: Instant) {
        let turn = self.turn();
        self.stored += packet.len() as u64;
        self.store.push_back(Stored {
            first,
            end,
            sent,
            again: false,
            turn,
            held: false,
            bytes: packet.to_vec(),
        });
        self.next = Some(end);
        if self.due.is_none() {
            self.due = Some(sent + self.rto());
        }
    }

    /// A segment that is kept once more.
    fn again(&mut self, at: usize, now: Instant) -> Option<&[u8]> {
        self.due = Some(now + self.rto());
        let turn = self.turn();
        let kept = self.store.get_mut(at)?;
        (kept.again, kept.turn) = (true, turn);
        Some(&kept.bytes)
    }

    fn give_up(&mut self) {
        self.store.clear();
        self.stored = 0;
        self.due = None;
    }
}

/// What the proxy knows of one end.
#[derive(Debug, Default)]
struct End {
    /// Shift of its windows, if it offered one.
    shift: Option<u8>,
    /// Its last timestamp.
    stamp: Option<u32>,
    /// What it acknowledged last, as the proxy says it, and the window field.
    said: Option<(SeqNum, u16)>,
    /// What it sends.
    stream: Stream,
}

/// Both ends, by the way that they send.
type Flow = [End; 2];

/// Acknowledges by itself.
#[derive(Debug)]
pub struct Proxy {
    spec: ProxySpec,
    flows: Flows<Flow>,
    touched: u64,
}

/// Where the value of the timestamp option is; the echo follows.
fn stamp_at(packet: &[u8], view: &TcpView) -> Option<usize> {
    let mut options = view.options(packet);
    let (_, at) = options.find(|(kind, at)| *kind == TIMESTAMPS && at.len() == 10)?;
    Some(at.start + 2)
}

/// The blocks of SACK options that are at these places.
fn sacks(packet: &[u8], options: &[Range<usize>]) -> Vec<(SeqNum, SeqNum)> {
    let numbers = |pair: &[u8]| {
        let [first, end] = [0, 4].map(|at| SeqNum::new(get_u32(pair, at)));
        (first, end)
    };
    let blocks = options
        .iter()
        .filter_map(|at| packet.get(at.start + 2..at.end));
    blocks
        .flat_map(|blocks| blocks.chunks_exact(8))
        .map(numbers)
        .collect()
}

/// The value of the timestamp option.
fn stamp(packet: &[u8], view: &TcpView) -> Option<u32> {
    stamp_at(packet, view).map(|at| get_u32(packet, at))
}

/// The newer one of two timestamps, which wrap around (RFC 7323 section 5.2).
fn newer(known: Option<u32>, seen: Option<u32>) -> Option<u32> {
    let is_newer = |known: u32, seen: u32| (seen.wrapping_sub(known) as i32) > 0;
    match (known, seen) {
        (Some(known), Some(seen)) if !is_newer(known, seen) => Some(known),
        _ => seen.or(known),
    }
}

/// Data leaves for its receiver, what goes again behind what is still held: its newer timestamps would have that refused.
fn hand_on(spec: &ProxySpec, desk: &mut Desk<'_>, way: Way, packet: Box<Packet>) {
    match spec.hold.0.is_zero() {
        true => desk.forward(way, packet),
        false => desk.verdicts.push(Verdict::Delay(way, spec.hold.0, packet)),
    }
}

/// Shift of the windows that go `way`.
fn shift(flow: &Flow, way: Way) -> u8 {
    let [own, other] = [&flow[way.index()], &flow[way.reversed().index()]];
    own.shift.filter(|_| other.shift.is_some()).unwrap_or(0)
}

/// The window field that leaves the right edge where it is.
fn window_field(edge: SeqNum, ack: SeqNum, shift: u8) -> u16 {
    let room = edge.diff(ack).max(0) as u32 >> shift;
    room.min(u32::from(u16::MAX)) as u16
}

impl Proxy {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: ProxySpec) -> Self {
        Self {
            spec,
            flows: Flows::new(MOST_FLOWS),
            touched: 0,
        }
    }

    /// Notes what a SYN offers.
    fn greet(end: &mut End, packet: &[u8], view: &TcpView) {
        let mut options = view.options(packet);
        let scale = options.find(|(kind, at)| *kind == edit::WINDOW_SCALE && at.len() == 3);
        end.shift = scale.map(|(_, at)| packet[at.start + 2].min(MOST_SHIFT));
        end.stream.next = Some(SeqNum::new(view.seq(packet)) + view.sequence_len());
    }

    /// Looks at the acknowledgement in a packet that goes `way`, and makes it say what the proxy has said already. Says
    /// which of the segments that are kept for this receiver should be sent again.
    fn read_ack(
        flow: &mut Flow,
        way: Way,
        packet: &mut Packet,
        view: &TcpView,
        now: Instant,
    ) -> Vec<usize> {
        let Some(ack) = view.ack(packet.bytes()).map(SeqNum::new) else {
            return Vec::new();
        };
        let is_syn = view.flags & SYN != 0;
        let shift = if is_syn { 0 } else { shift(flow, way) };
        let window = u32::from(view.window(packet.bytes())) << shift;
        let options = view.options(packet.bytes());
        let options = options.filter(|(kind, _)| *kind == SACK);
        let blocks: Vec<_> = options.map(|(_, at)| at).collect();
        let heard = Heard {
            ack,
            edge: ack + window,
            bare: view.sequence_len() == 0,
            sacks: sacks(packet.bytes(), &blocks),
        };
        let stream = &mut flow[way.reversed().index()].stream;
        let again = stream.acknowledge(&heard, now);
        let said = stream.next.map_or(ack, |next| next.max(ack));
        if said != ack {
            let bytes = packet.bytes_mut();
            put_u32(bytes, view.tcp + 8, said.get());
            put_u16(
                bytes,
                view.tcp + 14,
                window_field(ack + window, said, shift),
            );
            // What the receiver misses is the proxy's affair.
            pad_over(bytes, &blocks);
            view.fix_checksums(bytes);
        }
        flow[way.index()].said = Some((said, view.window(packet.bytes())));
        again
    }

    /// One of the segments that are kept of what goes `way`, once more, with an acknowledgement and timestamps of today: with old
    /// ones it could be refused (RFC 5961 section 5.2, RFC 7323 section 5.3).
    fn again(flow: &mut Flow, at: usize, way: Way, desk: &mut Desk<'_>) -> Option<Box<Packet>> {
        let said = flow[way.index()].said;
        let stamps = [way, way.reversed()].map(|way| flow[way.index()].stamp);
        let bytes = flow[way.index()].stream.again(at, desk.now)?;
        let mut copy = desk.pool.copy_of(bytes);
        if let (Some((ack, window)), Some(view)) = (said, TcpView::of(copy.bytes())) {
            let at = stamp_at(copy.bytes(), &view);
            if let (Some(at), [Some(value), Some(echo)]) = (at, stamps) {
                put_u32(copy.bytes_mut(), at, value);
                put_u32(copy.bytes_mut(), at + 4, echo);
            }
            put_u16(copy.bytes_mut(), view.tcp + 14, window);
            edit::set_ack(copy.bytes_mut(), &view, ack);
        }
        Some(copy)
    }

    /// Looks at the payload of a packet that goes `way`. Says whether the proxy takes it over, and whether it passes.
    fn read_data(
        &mut self,
        key: &FlowKey,
        way: Way,
        packet: &[u8],
        view: &TcpView,
        sent: Instant,
    ) -> Data {
        let room = self.spec.buffer.0;
        let Some(flow) = self.flows.get(key) else {
            return Data::Passes;
        };
        let stream = &mut flow[way.index()].stream;
        let first = SeqNum::new(view.seq(packet));
        let end = first + view.payload_len() as u32;
        let next = *stream.next.get_or_insert(first);
        if first.after(next) {
            return Data::Passes;
        }
        if end.before_eq(next) {
            // Its sender has not heard that the proxy has it.
            let finishes = view.flags & FIN != 0;
            return if finishes { Data::Passes } else { Data::Known };
        }
        if stream.stored + packet.len() as u64 > room {
            return Data::Passes;
        }
        stream.keep(packet, (first, end), sent);
        Data::Taken
    }

    /// The proxy's own acknowledgement of what `like`, which goes `way`, brought.
    fn own_ack(
        flow: &Flow,
        way: Way,
        like: &[u8],
        view: &TcpView,
        desk: &mut Desk<'_>,
    ) -> Option<Box<Packet>> {
        let back = way.reversed();
        let stream = &flow[way.index()].stream;
        let (ack, edge) = (stream.next?, stream.edge?);
        let numbers = Bare {
            flags: ACK,
            seq: flow[back.index()].stream.passed?,
            ack,
            window: window_field(edge, ack, shift(flow, back)),
        };
        let mut packet = bare(desk.pool, like, view, true, numbers)?;
        if let (Some(own), Some(echo)) = (flow[back.index()].stamp, stamp(like, view)) {
            let mut options = vec![edit::NOP, edit::NOP, TIMESTAMPS, 10];
            options.extend(own.to_be_bytes());
            options.extend(echo.to_be_bytes());
            let view = TcpView::of(packet.bytes())?;
            rebuild(packet.bytes_mut(), &view, &options, &[]);
        }
        Some(packet)
    }
}

/// What becomes of payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// It goes on, and its receiver answers for it.
    Passes,
    /// It goes on, and the proxy answers for it.
    Taken,
    /// The proxy has taken it before.
    Known,
}

impl Middlebox for Proxy {
    fn name(&self) -> &'static str {
        "proxy"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes());
        let key = view.and_then(|view| FlowKey::of(packet.bytes(), &view, way));
        let Some((view, key)) = view.zip(key) else {
            return desk.forward(way, packet);
        };
        if view.flags & RST != 0 {
            self.flows.remove(&key);
            return desk.forward(way, packet);
        }
        let spec = self.spec.clone();
        let flow = self.flows.of(packet.bytes(), &view, way, Flow::default);
        let Some(flow) = flow else {
            return desk.forward(way, packet);
        };
        if view.flags & SYN != 0 {
            Self::greet(&mut flow[way.index()], packet.bytes(), &view);
        }
        let end = &mut flow[way.index()];
        end.stamp = newer(end.stamp, stamp(packet.bytes(), &view));
        let after = SeqNum::new(view.seq(packet.bytes())) + view.sequence_len();
        let passed = &mut end.stream.passed;
        *passed = Some(passed.map_or(after, |passed| passed.max(after)));
        let back = way.reversed();
        if back.is_meant_by(spec.way) {
            let again = Self::read_ack(flow, way, &mut packet, &view, desk.now);
            for at in again {
                if let Some(copy) = Self::again(flow, at, back, desk) {
                    self.touched += 1;
                    hand_on(&spec, desk, back, copy);
                }
            }
        }
        if view.sequence_len() == 0 || view.flags & SYN != 0 || !way.is_meant_by(spec.way) {
            return desk.forward(way, packet);
        }
        let leaves = desk.now + spec.hold.0;
        let data = self.read_data(&key, way, packet.bytes(), &view, leaves);
        if data != Data::Passes {
            self.touched += 1;
            let flow = self.flows.get(&key);
            let ack = flow.and_then(|flow| Self::own_ack(flow, way, packet.bytes(), &view, desk));
            if let Some(ack) = ack {
                desk.forward(back, ack);
            }
        }
        match data {
            Data::Known => desk.drop(packet, "the proxy has it already"),
            Data::Passes | Data::Taken => hand_on(&spec, desk, way, packet),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let ends = self.flows.values().flatten();
        ends.filter_map(|end| end.stream.due).min()
    }

    fn on_deadline(&mut self, desk: &mut Desk<'_>) {
        for (_, flow) in self.flows.iter_mut() {
            for way in [Way::Out, Way::In] {
                let stream = &mut flow[way.index()].stream;
                if stream.due.is_none_or(|due| due > desk.now) {
                    continue;
                }
                stream.tries += 1;
                stream.all_is_lost();
                if stream.tries > MOST_TRIES {
                    stream.give_up();
                } else if let Some(copy) = Self::again(flow, 0, way, desk) {
                    self.touched += 1;
                    hand_on(&self.spec, desk, way, copy);
                } else {
                    flow[way.index()].stream.due = None;
                }
            }
        }
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::tests::{acking, packet, reversed};

    const STAMP: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 5, 0, 0, 0, 0];

    /// A connection whose client counts from 100 and whose server counts from 900, windows 1000 << 2 and 1000.
    fn bench(ipv6: bool, spec: ProxySpec) -> Bench<Proxy> {
        let mut bench = Bench::new(Proxy::new(spec));
        let syn = packet(ipv6, SYN, 99, &[3, 3, 2, 1], b"");
        bench.one(Way::Out, &syn);
        let syn_ack = reversed(packet(ipv6, SYN | ACK, 899, &[3, 3, 0, 1], b""));
        bench.one(Way::In, &acking(syn_ack, 100));
        bench
    }

    fn data(ipv6: bool, seq: u32, payload: &[u8]) -> Vec<u8> {
        acking(packet(ipv6, ACK, seq, &STAMP, payload), 900)
    }

    fn ack(ipv6: bool, ack: u32) -> Vec<u8> {
        acking(reversed(packet(ipv6, ACK, 900, &[], b"")), ack)
    }

    /// (way, sequence number, acknowledgement, window, payload length) of what comes out.
    fn seen(all: Vec<(Way, Vec<u8>)>) -> Vec<(Way, u32, u32, u16, usize)> {
        let read = |(way, bytes): (Way, Vec<u8>)| {
            let view = TcpView::of(&bytes).unwrap();
            let ack = view.ack(&bytes).unwrap();
            (
                way,
                view.seq(&bytes),
                ack,
                view.window(&bytes),
                view.payload_len(),
            )
        };
        all.into_iter().map(read).collect()
    }

    #[test]
    fn it_acknowledges_at_once_and_the_window_keeps_its_edge() {
        for ipv6 in [false, true] {
            let mut bench = bench(ipv6, ProxySpec::default());
            let out = seen(bench.pass(Way::Out, &data(ipv6, 100, &[1; 300])));
            let own = (Way::In, 900, 400, 700, 0);
            assert_eq!(out, [own, (Way::Out, 100, 900, 1000, 300)]);
            // What the server says meanwhile acknowledges no less.
            let late = seen(bench.pass(Way::In, &ack(ipv6, 100)));
            assert_eq!(late, [(Way::In, 900, 400, 700, 0)]);
            let now = seen(bench.pass(Way::In, &ack(ipv6, 400)));
            assert_eq!(now, [(Way::In, 900, 400, 1000, 0)]);
            assert_eq!(bench.middlebox.deadline(), None);
            // Sent again although it was acknowledged: acknowledged again, and not passed on.
            let again = seen(bench.pass(Way::Out, &data(ipv6, 100, &[1; 300])));
            assert_eq!(again, [(Way::In, 900, 400, 1000, 0)]);
        }
    }

    #[test]
    fn what_gets_lost_behind_it_it_sends_again() {
        let mut bench = bench(false, ProxySpec::default());
        let first = data(false, 100, b"0123");
        bench.pass(Way::Out, &first);
        bench.pass(Way::Out, &data(false, 104, b"4567"));
        for round in 0..3 {
            let out = bench.pass(Way::In, &ack(false, 100));
            assert_eq!(out.len(), if round == 2 { 2 } else { 1 });
            if round == 2 {
                assert_eq!(out[0], (Way::Out, first.clone()));
            }
        }
        // It acknowledges what its sender acknowledges by now.
        let later = acking(packet(false, ACK, 108, &STAMP, b""), 905);
        bench.pass(Way::Out, &later);
        let first = acking(first, 905);
        assert!(bench.until(Instant::from_millis(999)).is_empty());
        assert_eq!(
            bench.until(Instant::from_secs(1)),
            [(Way::Out, first.clone())]
        );
        bench.pass(Way::In, &ack(false, 104));
        assert_eq!(seen(bench.until(Instant::from_secs(3)))[0].1, 104);
        // Not for ever.
        let all = bench.until(Instant::from_secs(1000));
        assert!(all.len() < 20, "{}", all.len());
        assert_eq!((bench.middlebox.deadline(), bench.kept()), (None, 0));
    }

    #[test]
    fn what_the_receiver_misses_by_sack_it_sends_again_within_a_round_trip() {
        let mut bench = bench(false, ProxySpec::default());
        for seq in [100, 104, 108, 112, 116] {
            bench.pass(Way::Out, &data(false, seq, b"0123"));
        }
        // The second and the last one arrived.
        let sack = |first: u32, end: u32| {
            let mut options = vec![1, 1, SACK, 10];
            options.extend(first.to_be_bytes());
            options.extend(end.to_be_bytes());
            acking(reversed(packet(false, ACK, 900, &options, b"")), 100)
        };
        let again = |out: Vec<(Way, Vec<u8>)>| -> Vec<u32> {
            let out = seen(out).into_iter().filter(|one| one.0 == Way::Out);
            out.map(|one| one.1).collect()
        };
        assert_eq!(again(bench.pass(Way::In, &sack(104, 108))), []);
        assert_eq!(again(bench.pass(Way::In, &sack(116, 120))), []);
        assert_eq!(again(bench.pass(Way::In, &sack(116, 120))), [100]);
        assert_eq!(again(bench.pass(Way::In, &sack(116, 120))), [108]);
        assert_eq!(again(bench.pass(Way::In, &sack(116, 120))), [112]);
        // Once each.
        assert_eq!(again(bench.pass(Way::In, &sack(116, 120))), []);
    }

    #[test]
    fn what_it_sends_again_has_the_newest_timestamps() {
        let mut bench = bench(false, ProxySpec::default());
        bench.pass(Way::Out, &data(false, 100, b"0123"));
        let stamped = |value: u8, echo: u8| {
            let mut options = STAMP;
            (options[7], options[11]) = (value, echo);
            options
        };
        bench.pass(
            Way::Out,
            &acking(packet(false, ACK, 104, &stamped(9, 70), b""), 900),
        );
        // One that was overtaken changes nothing.
        bench.pass(
            Way::Out,
            &acking(packet(false, ACK, 104, &stamped(7, 70), b""), 900),
        );
        let answer = reversed(packet(false, ACK, 900, &stamped(77, 5), b""));
        bench.pass(Way::In, &acking(answer, 100));
        let (_, again) = &bench.until(Instant::from_secs(1))[0];
        let view = TcpView::of(again).unwrap();
        let at = stamp_at(again, &view).unwrap();
        assert_eq!(
            (view.seq(again), get_u32(again, at), get_u32(again, at + 4)),
            (100, 9, 77)
        );
    }

    #[test]
    fn the_same_number_before_anything_is_on_its_way_is_no_duplicate() {
        let mut bench = bench(false, ProxySpec::default());
        for _ in 0..2 {
            bench.pass(Way::In, &ack(false, 100));
        }
        bench.pass(Way::Out, &data(false, 100, b"0123"));
        for round in 0..3 {
            let out = bench.pass(Way::In, &ack(false, 100));
            assert_eq!(out.len(), if round == 2 { 2 } else { 1 });
        }
    }

    #[test]
    fn several_holes_need_one_timeout() {
        let mut bench = bench(true, ProxySpec::default());
        for n in 0..4 {
            bench.pass(Way::Out, &data(true, 100 + n * 4, b"0123"));
        }
        assert_eq!(seen(bench.until(Instant::from_secs(1)))[0].1, 100);
        // The first hole is filled: two more are sent, as in slow start.
        let out = seen(bench.pass(Way::In, &ack(true, 104)));
        let sent: Vec<_> = out.iter().map(|one| (one.0, one.1)).collect();
        assert_eq!(sent, [(Way::Out, 104), (Way::Out, 108), (Way::In, 900)]);
        // An acknowledgement that brings nothing new makes room for one.
        let out = seen(bench.pass(Way::In, &ack(true, 104)));
        assert_eq!((out.len(), out[0].0, out[0].1), (2, Way::Out, 112));
        // Everything kept then has arrived.
        assert_eq!(bench.pass(Way::In, &ack(true, 116)).len(), 1);
        bench.pass(Way::Out, &data(true, 116, b"0123"));
        bench.pass(Way::Out, &data(true, 120, b"0123"));
        assert_eq!(bench.pass(Way::In, &ack(true, 120)).len(), 1);
    }

    #[test]
    fn what_is_out_of_order_or_too_much_just_passes() {
        let spec = ProxySpec {
            buffer: Size(400),
            ..ProxySpec::default()
        };
        let mut bench = bench(true, spec);
        assert_eq!(bench.pass(Way::Out, &data(true, 101, &[1; 9])).len(), 1);
        assert_eq!(bench.pass(Way::Out, &data(true, 100, &[1; 200])).len(), 2);
        assert_eq!(bench.pass(Way::Out, &data(true, 300, &[1; 200])).len(), 1);
        bench.pass(Way::In, &ack(true, 300));
        assert_eq!(bench.pass(Way::Out, &data(true, 300, &[1; 200])).len(), 2);
        // A receiver that has more than the proxy knew is believed.
        bench.pass(Way::In, &ack(true, 700));
        assert_eq!(bench.pass(Way::Out, &data(true, 700, &[1; 200])).len(), 2);
    }

    #[test]
    fn its_acknowledgements_are_complete_and_one_way_only_if_told() {
        let spec = ProxySpec {
            way: Some(Way::Out),
            ..ProxySpec::default()
        };
        let mut bench = bench(false, spec);
        let mut options = STAMP;
        options[7] = 77;
        let server = acking(reversed(packet(false, ACK, 900, &options, b"hello")), 100);
        assert_eq!(bench.pass(Way::In, &server).len(), 1);
        let out = bench.pass(Way::Out, &data(false, 100, b"0123"));
        let view = TcpView::of(&out[0].1).unwrap();
        assert_eq!(view.seq(&out[0].1), 905);
        let at = view.tcp + 24;
        assert_eq!(
            (get_u32(&out[0].1, at), get_u32(&out[0].1, at + 4)),
            (77, 5)
        );
        // A reset ends it.
        bench.pass(Way::In, &reversed(packet(false, RST, 905, &[], b"")));
        assert_eq!(bench.middlebox.deadline(), None);
    }
}
