//! A box that ends connections with forged resets, as censors and overloaded firewalls do.

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::edit::{Bare, bare};
use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Span};
use crate::view::{ACK, RST, SYN, TcpView};

/// Parameters of [`Reset`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ResetSpec {
    /// A connection is reset when it is this old,
    pub after: Span,
    /// and this much payload has crossed the box, both ways together.
    pub after_bytes: Size,
    /// Resets go only this way; without it, both ends get one.
    pub way: Option<Way>,
    /// How many connections are reset in all.
    pub times: u64,
}

impl Default for ResetSpec {
    fn default() -> Self {
        Self {
            after: Span(Duration::ZERO),
            after_bytes: Size(100_000),
            way: None,
            times: 1,
        }
    }
}

#[derive(Debug)]
struct Flow {
    began: Instant,
    payload: u64,
    over: bool,
}

/// Forges resets.
#[derive(Debug)]
pub struct Reset {
    spec: ResetSpec,
    flows: Flows<Flow>,
    touched: u64,
}

impl Reset {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: ResetSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    /// The packet's connection is to be reset now.
    fn is_due(&mut self, way: Way, packet: &[u8], view: &TcpView, now: Instant) -> bool {
        let make = || Flow {
            began: now,
            payload: 0,
            over: false,
        };
        let Some(flow) = self.flows.of(packet, view, way, make) else {
            return false;
        };
        flow.payload += view.payload_len() as u64;
        // Both numbers of the forged packets are taken from a packet that has both.
        let due = view.flags & (SYN | ACK | RST) == ACK
            && !flow.over
            && self.touched < self.spec.times
            && now >= flow.began + self.spec.after.0
            && flow.payload >= self.spec.after_bytes.0;
        flow.over |= due;
        due
    }
}

impl Middlebox for Reset {
    fn name(&self) -> &'static str {
        "reset"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let bytes = packet.bytes();
        let view = TcpView::of(bytes);
        let due = view.filter(|view| self.is_due(way, bytes, view, desk.now));
        let Some((view, ack)) = due.and_then(|view| Some((view, view.ack(bytes)?))) else {
            return desk.forward(way, packet);
        };
        self.touched += 1;
        let end = SeqNum::new(view.seq(bytes)) + view.sequence_len();
        let ack = SeqNum::new(ack);
        let reset = |seq, ack| Bare {
            flags: RST | ACK,
            seq,
            ack,
            window: 0,
        };
        // Each in the name of the other end, with exactly the number that is expected next.
        let onward = bare(desk.pool, bytes, &view, false, reset(end, ack));
        let back = bare(desk.pool, bytes, &view, true, reset(ack, end));
        desk.forward(way, packet);
        for (to, packet) in [(way, onward), (way.reversed(), back)] {
            match packet {
                Some(packet) if to.is_meant_by(self.spec.way) => desk.forward(to, packet),
                Some(packet) => desk.pool.give(packet),
                None => {}
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

    #[test]
    fn both_ends_get_the_number_that_they_expect() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(Reset::new(ResetSpec {
                after_bytes: Size(8),
                ..ResetSpec::default()
            }));
            let data = |seq| acking(packet(ipv6, ACK, seq, &[], b"data"), 500);
            assert_eq!(bench.pass(Way::Out, &data(10)).len(), 1);
            let all = bench.pass(Way::Out, &data(14));
            let forged = |bytes: Vec<u8>| acking(bytes, 0);
            let onward = forged(packet(ipv6, RST | ACK, 18, &[], b""));
            let back = reversed(packet(ipv6, RST | ACK, 500, &[], b""));
            let expected = [
                (Way::Out, data(14)),
                (Way::Out, acking(onward, 500)),
                (Way::In, acking(back, 18)),
            ];
            let plain = |bytes: &[u8]| {
                let view = TcpView::of(bytes).unwrap();
                (
                    view,
                    view.seq(bytes),
                    view.ack(bytes),
                    crate::view::addresses(bytes),
                    view.ports(bytes),
                )
            };
            assert_eq!(all.len(), 3);
            for ((way, bytes), (wanted_way, wanted)) in all.iter().zip(&expected) {
                assert_eq!((way, plain(bytes)), (wanted_way, plain(wanted)));
            }
            // Once is enough.
            assert_eq!(bench.pass(Way::Out, &data(18)).len(), 1);
            assert_eq!((bench.middlebox.touched(), bench.kept()), (1, 0));
        }
    }

    #[test]
    fn time_direction_and_number_are_obeyed() {
        let mut bench = Bench::new(Reset::new(ResetSpec {
            after: Span(Duration::from_millis(5)),
            after_bytes: Size(0),
            way: Some(Way::In),
            times: 1,
        }));
        let bytes = |port: u8| {
            let mut bytes = acking(packet(false, ACK, 1, &[], b""), 1);
            bytes[20] = port;
            TcpView::of(&bytes).unwrap().fix_checksums(&mut bytes);
            bytes
        };
        assert_eq!(bench.pass(Way::Out, &bytes(1)).len(), 1);
        assert_eq!(bench.pass(Way::Out, &bytes(2)).len(), 1);
        bench.now = Instant::from_millis(5);
        let all = bench.pass(Way::Out, &bytes(1));
        assert_eq!(
            all.iter().map(|(way, _)| *way).collect::<Vec<_>>(),
            [Way::Out, Way::In]
        );
        assert_eq!(bench.pass(Way::Out, &bytes(2)).len(), 1);
        assert_eq!(bench.kept(), 0);
    }
}
