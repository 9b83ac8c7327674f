//! A box that insists on order: what comes after a hole is dropped until the hole is filled.

use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{RST, SYN, TcpView};

/// Parameters of [`DropAfterHole`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DropAfterHoleSpec {
    /// Only packets that go this way.
    pub way: Option<Way>,
}

/// Drops what is out of order.
#[derive(Debug)]
pub struct DropAfterHole {
    spec: DropAfterHoleSpec,
    /// For each way, the number that comes next.
    flows: Flows<[Option<SeqNum>; 2]>,
    touched: u64,
}

impl DropAfterHole {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: DropAfterHoleSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    fn is_after_hole(&mut self, way: Way, packet: &[u8], view: &TcpView) -> bool {
        let takes = view.sequence_len() > 0 && view.flags & RST == 0;
        let next = self.flows.of(packet, view, way, || [None; 2]);
        let Some(next) = next.filter(|_| takes).map(|next| &mut next[way.index()]) else {
            return false;
        };
        let seq = SeqNum::new(view.seq(packet));
        match *next {
            Some(due) if view.flags & SYN == 0 && seq.after(due) => true,
            Some(due) => {
                *next = Some(due.max(seq + view.sequence_len()));
                false
            }
            None => {
                *next = Some(seq + view.sequence_len());
                false
            }
        }
    }
}

impl Middlebox for DropAfterHole {
    fn name(&self) -> &'static str {
        "drop-after-hole"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes()).filter(|_| way.is_meant_by(self.spec.way));
        if view.is_some_and(|view| self.is_after_hole(way, packet.bytes(), &view)) {
            self.touched += 1;
            desk.drop(packet, "after a hole");
        } else {
            desk.forward(way, packet);
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

    #[test]
    fn nothing_passes_a_hole() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(DropAfterHole::new(DropAfterHoleSpec {
                way: Some(Way::Out),
            }));
            let mut passes = |way, flags, seq: u32, payload: &[u8]| {
                let bytes = packet(ipv6, flags, seq, &[], payload);
                bench.one(way, &bytes).is_some()
            };
            let first = u32::MAX - 3;
            assert!(passes(Way::Out, SYN, first.wrapping_sub(1), b""));
            assert!(passes(Way::Out, ACK, first, b"0123"));
            assert!(!passes(Way::Out, ACK, 4, b"89"));
            // What has no data may pass, and the other way is free.
            assert!(passes(Way::Out, ACK, 4, b"") && passes(Way::In, ACK, 99, b"x"));
            assert!(passes(Way::Out, ACK, first, b"0123"));
            assert!(passes(Way::Out, ACK, 0, b"4567"));
            assert!(passes(Way::Out, ACK, 2, b"6789"));
            assert!(!passes(Way::Out, ACK, 7, b"b") && passes(Way::Out, ACK, 6, b"a"));
        }
    }
}
