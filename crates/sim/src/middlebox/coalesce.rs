//! A box that joins segments which follow each other, and has room for the options of one.

use std::collections::VecDeque;

use manypath_tcp::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::edit::{self, MPTCP, rebuild};
use super::flows::FlowKey;
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Span};
use crate::view::{FIN, PSH, RST, SYN, TcpView, put_u32};

/// Segments that wait to be joined, at most; then the first one goes on alone.
const MOST_HELD: usize = 64;

/// Which of the joined segments' Multipath TCP options remain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JoinedOptions {
    /// Those of the first.
    #[default]
    First,
    /// Those of the last.
    Last,
}

/// Parameters of [`Coalesce`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CoalesceSpec {
    /// How long a segment waits for one to be joined with.
    pub wait: Span,
    /// Largest packet that may come out.
    pub size: Size,
    /// How many segments may become one.
    pub segments: u16,
    /// Which options remain.
    pub keep: JoinedOptions,
    /// What is pushed waits for more as well, which receive offload does not have it do.
    pub hold_pushed: bool,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for CoalesceSpec {
    fn default() -> Self {
        Self {
            wait: Span(Duration::from_millis(1)),
            size: Size(1500),
            segments: 2,
            keep: JoinedOptions::First,
            hold_pushed: true,
            way: None,
        }
    }
}

#[derive(Debug)]
struct Held {
    key: FlowKey,
    way: Way,
    due: Instant,
    segments: u16,
    packet: Box<Packet>,
}

/// Joins segments.
#[derive(Debug)]
pub struct Coalesce {
    spec: CoalesceSpec,
    /// In the order of their deadlines.
    held: VecDeque<Held>,
    touched: u64,
}

impl Coalesce {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: CoalesceSpec) -> Self {
        Self {
            spec,
            held: VecDeque::new(),
            touched: 0,
        }
    }

    /// Joins `next` to `held` if it follows directly and there is room. `next` is whole afterwards if not.
    fn join(&self, held: &mut Held, next: &[u8], view: &TcpView) -> bool {
        let bytes = held.packet.bytes();
        let Some(before) = TcpView::of(bytes) else {
            return false;
        };
        let payload = before.payload_len() + view.payload_len();
        let header = match self.spec.keep {
            JoinedOptions::First => before.payload,
            JoinedOptions::Last => view.payload,
        };
        let end = before.seq(bytes).wrapping_add(before.payload_len() as u32);
        let fits = (header + payload) as u64 <= self.spec.size.0.min(u64::from(u16::MAX));
        if held.segments >= self.spec.segments || view.seq(next) != end || !fits {
            return false;
        }
        let mut all = bytes[before.payload..before.end].to_vec();
        all.extend(&next[view.payload..view.end]);
        // Numbers and TCP's own options are the later ones; that is what an endpoint would send.
        let options = match self.spec.keep {
            JoinedOptions::Last => next[view.tcp + 20..view.payload].to_vec(),
            JoinedOptions::First => {
                let mut options = only(next, view, |kind| kind != MPTCP);
                options.extend(only(bytes, &before, |kind| kind == MPTCP));
                options
            }
        };
        if options.len() > edit::MOST_OPTIONS {
            return false;
        }
        let seq = before.seq(bytes);
        let out = held.packet.bytes_mut();
        out.clear();
        out.extend(&next[..view.end]);
        put_u32(out, view.tcp + 4, seq);
        rebuild(out, view, &options, &all);
        held.segments += 1;
        true
    }

    fn release(&mut self, at: usize, desk: &mut Desk<'_>) {
        if let Some(held) = self.held.remove(at) {
            desk.forward(held.way, held.packet);
        }
    }
}

/// The bytes of the options whose kind is wanted, each padded to a multiple of four.
fn only(packet: &[u8], view: &TcpView, wanted: impl Fn(u8) -> bool) -> Vec<u8> {
    let mut all = Vec::new();
    for (_, at) in view.options(packet).filter(|(kind, _)| wanted(*kind)) {
        all.resize(
            all.len() + at.len().next_multiple_of(4) - at.len(),
            edit::NOP,
        );
        all.extend(&packet[at]);
    }
    all
}

impl Middlebox for Coalesce {
    fn name(&self) -> &'static str {
        "coalesce"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes()).filter(|_| way.is_meant_by(self.spec.way));
        let key = view.and_then(|view| FlowKey::of(packet.bytes(), &view, way));
        let Some((view, key)) = view.zip(key) else {
            return desk.forward(way, packet);
        };
        let joins = view.payload_len() > 0 && view.flags & (SYN | FIN | RST) == 0;
        let same = |held: &Held| held.key == key && held.way == way;
        if let Some(at) = self.held.iter().position(same) {
            let mut held = self.held.remove(at);
            let joined = joins
                && held
                    .as_mut()
                    .is_some_and(|held| self.join(held, packet.bytes(), &view));
            if let Some(held) = held {
                let full = held.segments >= self.spec.segments || view.flags & PSH != 0;
                if joined && !full {
                    self.held.insert(at, held);
                } else {
                    desk.forward(way, held.packet);
                }
            }
            if joined {
                self.touched += 1;
                return desk.pool.give(packet);
            }
        }
        let waits = self.spec.hold_pushed || view.flags & PSH == 0;
        if !joins || self.spec.segments < 2 || !waits {
            return desk.forward(way, packet);
        }
        if self.held.len() >= MOST_HELD {
            self.release(0, desk);
        }
        self.held.push_back(Held {
            key,
            way,
            due: desk.now + self.spec.wait.0,
            segments: 1,
            packet,
        });
    }

    fn deadline(&self) -> Option<Instant> {
        self.held.front().map(|held| held.due)
    }

    fn on_deadline(&mut self, desk: &mut Desk<'_>) {
        while self.deadline().is_some_and(|due| due <= desk.now) {
            self.release(0, desk);
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
    use crate::view::ACK;
    use crate::view::tests::{acking, packet};

    fn stamped(stamp: u8, mapping: u8) -> Vec<u8> {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, stamp, 0, 0, 0, 9];
        options.extend([30, 8, 0x20, 0x01, 0, 0, 0, mapping]);
        options
    }

    fn bench(keep: JoinedOptions) -> Bench<Coalesce> {
        Bench::new(Coalesce::new(CoalesceSpec {
            keep,
            ..CoalesceSpec::default()
        }))
    }

    #[test]
    fn two_become_one_with_one_mapping() {
        for ipv6 in [false, true] {
            for (keep, mapping) in [(JoinedOptions::First, 1), (JoinedOptions::Last, 2)] {
                let mut bench = bench(keep);
                let first = acking(packet(ipv6, ACK, u32::MAX - 1, &stamped(5, 1), b"0123"), 7);
                let second = acking(packet(ipv6, ACK | PSH, 2, &stamped(6, 2), b"456"), 8);
                assert_eq!(bench.pass(Way::Out, &first), []);
                let out = bench.one(Way::Out, &second).unwrap();
                // Timestamps and acknowledgement are those of the later one.
                let options = stamped(6, mapping);
                let flags = ACK | PSH;
                let joined = packet(ipv6, flags, u32::MAX - 1, &options, b"0123456");
                assert_eq!(out, acking(joined, 8));
                assert_eq!((bench.middlebox.touched(), bench.kept()), (1, 0));
            }
        }
    }

    #[test]
    fn what_does_not_follow_ends_the_wait_and_so_does_time() {
        let mut bench = bench(JoinedOptions::First);
        let data = |seq, payload: &[u8]| packet(false, ACK, seq, &stamped(1, 1), payload);
        assert_eq!(bench.pass(Way::In, &data(10, b"ab")), []);
        // A hole: the first goes, the second waits.
        let out = bench.pass(Way::In, &data(20, b"cd"));
        assert_eq!(out, [(Way::In, data(10, b"ab"))]);
        assert_eq!(bench.until(Instant::from_micros(999)), []);
        let out = bench.until(Instant::from_micros(1000));
        assert_eq!(out, [(Way::In, data(20, b"cd"))]);
        // What cannot be joined does not overtake.
        assert_eq!(bench.pass(Way::In, &data(22, b"ef")), []);
        let fin = packet(false, ACK | FIN, 24, &[], b"");
        assert_eq!(bench.pass(Way::In, &fin).len(), 2);
        assert_eq!((bench.middlebox.touched(), bench.kept()), (0, 0));
    }

    #[test]
    fn what_is_pushed_does_not_wait() {
        let mut bench = Bench::new(Coalesce::new(CoalesceSpec {
            hold_pushed: false,
            ..CoalesceSpec::default()
        }));
        let pushed = packet(false, ACK | PSH, 10, &stamped(1, 1), b"ab");
        assert_eq!(bench.pass(Way::Out, &pushed), [(Way::Out, pushed)]);
        let next = packet(false, ACK, 12, &stamped(1, 2), b"cd");
        assert_eq!(bench.pass(Way::Out, &next), []);
        assert_eq!(bench.until(Instant::from_secs(1)), [(Way::Out, next)]);
    }

    #[test]
    fn too_large_a_pair_stays_apart() {
        let mut bench = bench(JoinedOptions::First);
        let large = packet(true, ACK, 0, &stamped(1, 1), &[0; 1400]);
        assert_eq!(bench.pass(Way::Out, &large), []);
        let next = packet(true, ACK, 1400, &stamped(1, 1), &[0; 1400]);
        assert_eq!(bench.pass(Way::Out, &next), [(Way::Out, large)]);
        assert_eq!(bench.until(Instant::from_secs(1)).len(), 1);
    }
}
