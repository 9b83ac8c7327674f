//! A box that believes it sees everything: acknowledgements of data that did not cross it are wrong to it.

use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::edit::set_ack;
use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{RST, TcpView};

/// What becomes of an acknowledgement of data that the box did not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WrongAck {
    /// The packet is dropped.
    #[default]
    Drop,
    /// It acknowledges what the box did see.
    Correct,
}

/// Parameters of [`AckCheck`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct AckCheckSpec {
    /// What it does.
    pub wrong: WrongAck,
    /// Only acknowledgements that go this way.
    pub way: Option<Way>,
}

/// Checks acknowledgements.
#[derive(Debug)]
pub struct AckCheck {
    spec: AckCheckSpec,
    /// For each way, the number after the last one that was seen.
    flows: Flows<[Option<SeqNum>; 2]>,
    touched: u64,
}

impl AckCheck {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: AckCheckSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    /// The largest acknowledgement that would be right, if the packet has a larger one.
    fn wrong(&mut self, way: Way, packet: &[u8], view: &TcpView) -> Option<SeqNum> {
        let seen = self.flows.of(packet, view, way, || [None; 2])?;
        let end = SeqNum::new(view.seq(packet)) + view.sequence_len();
        let highest = &mut seen[way.index()];
        if view.flags & RST == 0 {
            *highest = Some(highest.map_or(end, |known| known.max(end)));
        }
        let right = seen[way.reversed().index()]?;
        let ack = SeqNum::new(view.ack(packet)?);
        (ack.after(right) && way.is_meant_by(self.spec.way)).then_some(right)
    }
}

impl Middlebox for AckCheck {
    fn name(&self) -> &'static str {
        "ack-check"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let view = TcpView::of(packet.bytes());
        let wrong = view.and_then(|view| Some((view, self.wrong(way, packet.bytes(), &view)?)));
        let Some((view, right)) = wrong else {
            return desk.forward(way, packet);
        };
        self.touched += 1;
        match self.spec.wrong {
            WrongAck::Drop => desk.drop(packet, "acknowledges what was not seen"),
            WrongAck::Correct => {
                set_ack(packet.bytes_mut(), &view, right);
                desk.forward(way, packet);
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
    use crate::view::{ACK, SYN};

    /// The acknowledgement number that comes out, if anything does.
    fn through(wrong: WrongAck, ipv6: bool, ack: u32) -> Option<u32> {
        let mut bench = Bench::new(AckCheck::new(AckCheckSpec { wrong, way: None }));
        bench.one(Way::Out, &packet(ipv6, SYN, u32::MAX - 1, &[], b""));
        bench.one(Way::Out, &packet(ipv6, ACK, u32::MAX, &[], b"0123"));
        let out = bench.one(
            Way::In,
            &acking(reversed(packet(ipv6, ACK, 7, &[], b"")), ack),
        )?;
        TcpView::of(&out).unwrap().ack(&out)
    }

    #[test]
    fn what_was_seen_may_be_acknowledged_and_nothing_else() {
        for ipv6 in [false, true] {
            for right in [u32::MAX - 5, u32::MAX, 0, 3] {
                for wrong in [WrongAck::Drop, WrongAck::Correct] {
                    assert_eq!(through(wrong, ipv6, right), Some(right));
                }
            }
            assert_eq!(through(WrongAck::Drop, ipv6, 4), None);
            assert_eq!(through(WrongAck::Correct, ipv6, 4), Some(3));
        }
    }

    #[test]
    fn a_way_that_it_never_saw_is_not_judged() {
        let mut bench = Bench::new(AckCheck::new(AckCheckSpec::default()));
        let ack = acking(packet(false, ACK, 1, &[], b""), 99);
        assert_eq!(bench.one(Way::Out, &ack), Some(ack));
    }
}
