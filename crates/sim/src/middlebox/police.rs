//! A policer: what comes faster than agreed is dropped, without a queue.

use manypath_tcp::time::Instant;
use manypath_tcp::units::Rate;
use serde::{Deserialize, Serialize};

use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Speed};

/// Parameters of [`Police`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PoliceSpec {
    /// Agreed rate of IP packets, each way by itself.
    pub rate: Speed,
    /// How much may come at once after a pause.
    pub burst: Size,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for PoliceSpec {
    fn default() -> Self {
        Self {
            rate: Speed(Rate::from_bits_per_sec(5_000_000)),
            burst: Size(30_000),
            way: None,
        }
    }
}

/// Drops what comes too fast.
#[derive(Clone, Debug)]
pub struct Police {
    spec: PoliceSpec,
    /// For each way, when its bucket of tokens will be full.
    full_at: [Instant; 2],
    touched: u64,
}

impl Police {
    /// A box with these parameters, its buckets full.
    #[must_use]
    pub fn new(spec: PoliceSpec) -> Self {
        Self {
            spec,
            full_at: [Instant::ZERO; 2],
            touched: 0,
        }
    }
}

impl Middlebox for Police {
    fn name(&self) -> &'static str {
        "police"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        if !way.is_meant_by(self.spec.way) {
            return desk.forward(way, packet);
        }
        let rate = self.spec.rate.0;
        let full_at = self.full_at[way.index()].max(desk.now);
        let after = full_at + rate.time_for(packet.len() as u64);
        // A burst larger than the bucket passes a full one; otherwise it never could.
        let conforms = full_at == desk.now || after - desk.now <= rate.time_for(self.spec.burst.0);
        if conforms {
            self.full_at[way.index()] = after;
            desk.forward(way, packet);
        } else {
            self.touched += 1;
            desk.drop(packet, "policed");
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
    use crate::view::tests::packet;

    /// A byte takes a microsecond.
    fn police(burst: u64) -> Bench<Police> {
        Bench::new(Police::new(PoliceSpec {
            rate: Speed(Rate::from_bytes_per_sec(1_000_000)),
            burst: Size(burst),
            way: Some(Way::Out),
        }))
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bench = police(3_000);
        let thousand = packet(false, ACK, 1, &[], &[0; 960]);
        let mut passed = |at: u64| {
            bench.now = Instant::from_micros(at);
            (0..5)
                .filter(|_| bench.one(Way::Out, &thousand).is_some())
                .count()
        };
        assert_eq!([passed(0), passed(999), passed(1000)], [3, 0, 1]);
        assert_eq!([passed(3_500), passed(60_000)], [2, 3]);
        assert_eq!(bench.middlebox.touched(), 2 + 5 + 4 + 3 + 2);
    }

    #[test]
    fn the_other_way_is_free_and_what_exceeds_the_bucket_needs_a_full_one() {
        let mut bench = police(100);
        let large = packet(true, ACK, 1, &[], &[0; 9_000]);
        assert!((0..9).all(|_| bench.one(Way::In, &large).is_some()));
        assert!(bench.one(Way::Out, &large).is_some());
        assert!(bench.one(Way::Out, &large).is_none());
        bench.now = Instant::from_micros(9_060);
        assert!(bench.one(Way::Out, &large).is_some());
    }
}
