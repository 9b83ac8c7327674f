//! A box with bad memory: payload changes, and the checksums are written anew behind it, so that TCP notices nothing.

use serde::{Deserialize, Serialize};

use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::rng::Chance;
use crate::scenario::units::{Percent, Size};
use crate::view::TcpView;

/// Parameters of [`Corrupt`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CorruptSpec {
    /// Chance of each segment with payload.
    pub chance: Percent,
    /// It begins when this much payload of a connection has crossed it that way.
    pub after: Size,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for CorruptSpec {
    fn default() -> Self {
        Self {
            chance: Percent(Chance::ppm(10_000)),
            after: Size(0),
            way: None,
        }
    }
}

/// Changes one byte of some segments: a single one, which no Internet checksum at a higher level can overlook.
#[derive(Debug)]
pub struct Corrupt {
    spec: CorruptSpec,
    /// Payload seen, by way.
    flows: Flows<[u64; 2]>,
    touched: u64,
}

impl Corrupt {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: CorruptSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }
}

impl Middlebox for Corrupt {
    fn name(&self) -> &'static str {
        "corrupt"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes())
            .filter(|view| view.payload_len() > 0 && way.is_meant_by(self.spec.way));
        if let Some(view) = view {
            let seen = self
                .flows
                .of(packet.bytes(), &view, way, || [0; 2])
                .map_or(0, |seen| {
                    let before = seen[way.index()];
                    seen[way.index()] += view.payload_len() as u64;
                    before
                });
            if seen >= self.spec.after.0 && desk.rng.chance(self.spec.chance.0) {
                let at = view.payload + desk.rng.below(view.payload_len() as u64) as usize;
                let change = desk.rng.between(1, 255) as u8;
                let bytes = packet.bytes_mut();
                bytes[at] ^= change;
                view.fix_checksums(bytes);
                self.touched += 1;
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
    use crate::view::tests::packet;
    use crate::view::{ACK, SYN};

    #[test]
    fn exactly_one_payload_byte_changes() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(Corrupt::new(CorruptSpec {
                chance: Percent(Chance::ALWAYS),
                after: Size(4),
                way: Some(Way::Out),
            }));
            let bytes = packet(ipv6, ACK, 1, &[1; 8], b"payload");
            let mut changed = |way, bytes: &[u8]| {
                let out = bench.one(way, bytes).unwrap();
                let from = TcpView::of(&out).unwrap().payload;
                let difference = |part: core::ops::Range<usize>| {
                    let pairs = out[part.clone()].iter().zip(&bytes[part]);
                    pairs.filter(|(a, b)| a != b).count()
                };
                (difference(from..bytes.len()), out.len() == bytes.len())
            };
            assert_eq!(changed(Way::Out, &bytes), (0, true));
            assert_eq!(changed(Way::Out, &bytes), (1, true));
            assert_eq!(changed(Way::In, &bytes), (0, true));
            assert_eq!(
                changed(Way::Out, &packet(ipv6, SYN, 9, &[], b"")),
                (0, true)
            );
        }
    }

    #[test]
    fn the_chance_is_the_one_asked_for() {
        let mut bench = Bench::new(Corrupt::new(CorruptSpec::default()));
        let bytes = packet(false, ACK, 1, &[], b"payload");
        for _ in 0..10_000 {
            bench.one(Way::Out, &bytes);
        }
        let touched = bench.middlebox.touched();
        assert!((60..140).contains(&touched), "{touched}");
    }
}
