//! A box that knows what was sent the first time, and makes every retransmission say the same again.

use std::collections::BTreeMap;

use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::flows::Flows;
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::Size;
use crate::view::{SYN, TcpView};

/// Connections that it remembers; each may take twice its memory.
const MOST_FLOWS: usize = 256;

/// Parameters of [`Original`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct OriginalSpec {
    /// How much payload of each connection and way it remembers; then it forgets the oldest.
    pub memory: Size,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for OriginalSpec {
    fn default() -> Self {
        Self {
            memory: Size(256_000),
            way: None,
        }
    }
}

/// What one end has sent, by its place in the stream.
#[derive(Debug, Default)]
struct Content {
    /// The last sequence number placed, and its place.
    near: Option<(SeqNum, u64)>,
    /// Pieces that do not overlap.
    pieces: BTreeMap<u64, Vec<u8>>,
    bytes: u64,
}

/// Where the first byte seen has its place, with room below for what arrives late.
const FIRST_PLACE: u64 = 1 << 40;

impl Content {
    fn place(&mut self, seq: SeqNum) -> u64 {
        let (near, place) = *self.near.get_or_insert((seq, FIRST_PLACE));
        let place = place.wrapping_add_signed(i64::from(seq.diff(near)));
        self.near = Some((seq, place));
        place
    }

    /// Overwrites what was sent before with what it was then, and remembers the rest. Says whether anything changed.
    fn assert(&mut self, place: u64, payload: &mut [u8], memory: u64) -> bool {
        let end = place + payload.len() as u64;
        let mut changed = false;
        let mut gaps = Vec::new();
        let mut at = place;
        let before = self.pieces.range(..place).next_back();
        let from = before.map_or(place, |(start, _)| *start);
        for (start, piece) in self.pieces.range(from..end) {
            let stop = start + piece.len() as u64;
            let (low, high) = (place.max(*start), end.min(stop));
            if low >= high {
                continue;
            }
            if at < low {
                gaps.push(at..low);
            }
            let known = &piece[(low - start) as usize..(high - start) as usize];
            let sent = &mut payload[(low - place) as usize..(high - place) as usize];
            if sent != known {
                sent.copy_from_slice(known);
                changed = true;
            }
            at = high;
        }
        if at < end {
            gaps.push(at..end);
        }
        for gap in gaps {
            let part = &payload[(gap.start - place) as usize..(gap.end - place) as usize];
            self.bytes += part.len() as u64;
            self.pieces.insert(gap.start, part.to_vec());
        }
        while self.bytes > memory {
            match self.pieces.pop_first() {
                Some((_, piece)) => self.bytes -= piece.len() as u64,
                None => break,
            }
        }
        changed
    }
}

/// Re-asserts original content.
#[derive(Debug)]
pub struct Original {
    spec: OriginalSpec,
    flows: Flows<[Content; 2]>,
    touched: u64,
}

impl Original {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: OriginalSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(MOST_FLOWS),
            touched: 0,
        }
    }
}

impl Middlebox for Original {
    fn name(&self) -> &'static str {
        "original"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes()).filter(|_| way.is_meant_by(self.spec.way));
        if let Some(view) = view {
            let flow = self.flows.of(packet.bytes(), &view, way, Default::default);
            let content = flow.map(|flow| &mut flow[way.index()]);
            if let Some(content) = content.filter(|_| view.payload_len() > 0) {
                let syn = u32::from(view.flags & SYN != 0);
                let seq = SeqNum::new(view.seq(packet.bytes())) + syn;
                let place = content.place(seq);
                let mut payload = packet.bytes()[view.payload..view.end].to_vec();
                if content.assert(place, &mut payload, self.spec.memory.0) {
                    packet.bytes_mut()[view.payload..view.end].copy_from_slice(&payload);
                    view.fix_checksums(packet.bytes_mut());
                    self.touched += 1;
                }
            }
        }
        desk.forward(way, packet);
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
    use crate::view::tests::packet;

    fn through(bench: &mut Bench<Original>, ipv6: bool, seq: u32, payload: &[u8]) -> Vec<u8> {
        let out = bench.one(Way::Out, &packet(ipv6, ACK, seq, &[1; 4], payload));
        let out = out.unwrap();
        out[TcpView::of(&out).unwrap().payload..].to_vec()
    }

    #[test]
    fn the_first_version_is_the_only_one() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(Original::new(OriginalSpec::default()));
            let first = u32::MAX - 2;
            assert_eq!(through(&mut bench, ipv6, first, b"abcdef"), b"abcdef");
            assert_eq!(through(&mut bench, ipv6, first, b"abcdef"), b"abcdef");
            assert_eq!(bench.middlebox.touched(), 0);
            assert_eq!(through(&mut bench, ipv6, first, b"ABCDEF"), b"abcdef");
            // After a hole, then across it, with another beginning and end.
            assert_eq!(through(&mut bench, ipv6, 6, b"jkl"), b"jkl");
            assert_eq!(through(&mut bench, ipv6, 1, b"EFGHIJKLM"), b"efGHIjklM");
            assert_eq!(through(&mut bench, ipv6, 3, b"ghijklm"), b"GHIjklM");
            // The other way is another stream.
            let other = packet(ipv6, ACK, first, &[], b"ABCDEF");
            assert_eq!(bench.one(Way::In, &other), Some(other));
        }
    }

    #[test]
    fn memory_ends() {
        let mut bench = Bench::new(Original::new(OriginalSpec {
            memory: Size(4),
            way: None,
        }));
        assert_eq!(through(&mut bench, false, 0, b"abcd"), b"abcd");
        assert_eq!(through(&mut bench, false, 4, b"efgh"), b"efgh");
        assert_eq!(through(&mut bench, false, 0, b"ABCDEFGH"), b"ABCDefgh");
    }

    #[test]
    fn a_late_beginning_has_a_place_too() {
        let mut content = Content::default();
        let second = content.place(SeqNum::new(1000));
        let first = content.place(SeqNum::new(0));
        assert_eq!(second - first, 1000);
    }
}
