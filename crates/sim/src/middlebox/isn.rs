//! A firewall that gives connections other initial sequence numbers, and corrects all numbers from then on.

use manypath_wire::seq::SeqNum;
use serde::{Deserialize, Serialize};

use super::edit::{Number, renumber};
use super::flows::{FlowKey, Flows, USUAL_FLOWS};
use super::quoted::Quoted;
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::rng::Rng;
use crate::view::{SYN, TcpView, get_u32, put_u32};

/// Parameters of [`Isn`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct IsnSpec {
    /// It also corrects SACK blocks; old ones do not, and the sender then hears of data that it never sent.
    pub sack: bool,
    /// Only the numbers of the end that sends this way.
    pub way: Option<Way>,
}

impl Default for IsnSpec {
    fn default() -> Self {
        Self {
            sack: true,
            way: None,
        }
    }
}

/// Rewrites initial sequence numbers.
#[derive(Debug)]
pub struct Isn {
    spec: IsnSpec,
    /// What is added to the sequence numbers of each way.
    flows: Flows<[u32; 2]>,
    touched: u64,
}

impl Isn {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: IsnSpec) -> Self {
        Self {
            spec,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    fn offsets(spec: &IsnSpec, view: &TcpView, rng: &mut Rng) -> [u32; 2] {
        // The numbers of a connection whose SYN it did not see stay what they are.
        let begins = view.flags & SYN != 0;
        [Way::Out, Way::In].map(|way| match begins && way.is_meant_by(spec.way) {
            true => rng.bits() as u32,
            false => 0,
        })
    }

    /// Corrects the sequence number that an ICMP error quotes: its packet went the other way, and crossed the box.
    fn correct_error(&mut self, way: Way, packet: &mut Packet) {
        let Some(quoted) = Quoted::of(packet.bytes()) else {
            return;
        };
        let (near, far) = match way {
            Way::In => (quoted.source, quoted.destination),
            Way::Out => (quoted.destination, quoted.source),
        };
        if let Some(offsets) = self.flows.get(&FlowKey { near, far }) {
            let at = quoted.seq_at();
            let seq = SeqNum::new(get_u32(packet.bytes(), at)) - offsets[way.reversed().index()];
            put_u32(packet.bytes_mut(), at, seq.get());
            quoted.fix_checksums(packet.bytes_mut());
            self.touched += 1;
        }
    }
}

impl Middlebox for Isn {
    fn name(&self) -> &'static str {
        "isn"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        if let Some(view) = TcpView::of(packet.bytes()) {
            let make = || Self::offsets(&self.spec, &view, desk.rng);
            let offsets = self.flows.of(packet.bytes(), &view, way, make).copied();
            if let Some(offsets) = offsets.filter(|offsets| *offsets != [0, 0]) {
                let (own, theirs) = (offsets[way.index()], offsets[way.reversed().index()]);
                let sack = self.spec.sack;
                let back = |which, number: SeqNum| match which {
                    Number::SackStart | Number::SackEnd if !sack => number,
                    Number::Ack | Number::SackStart | Number::SackEnd => number - theirs,
                };
                renumber(packet.bytes_mut(), &view, |seq| seq + own, back);
                view.fix_checksums(packet.bytes_mut());
                self.touched += 1;
            }
        }
        self.correct_error(way, &mut packet);
        desk.forward(way, packet);
    }

    fn touched(&self) -> u64 {
        self.touched
    }
}

#[cfg(test)]
mod tests {
    use super::super::quoted::tests::{complaint, is_whole};
    use super::*;
    use crate::middlebox::bench::Bench;
    use crate::view::ACK;
    use crate::view::tests::{acking, packet, reversed};

    fn numbers(bytes: &[u8]) -> (u32, Option<u32>) {
        let view = TcpView::of(bytes).unwrap();
        (view.seq(bytes), view.ack(bytes))
    }

    fn sack(from: u32, to: u32) -> Vec<u8> {
        let mut option = vec![1, 1, 5, 10];
        option.extend(from.to_be_bytes());
        option.extend(to.to_be_bytes());
        option
    }

    #[test]
    fn each_end_sees_one_consistent_connection() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(Isn::new(IsnSpec::default()));
            let syn = bench.one(Way::Out, &packet(ipv6, SYN, 100, &[], b""));
            let (outside, _) = numbers(&syn.unwrap());
            assert_ne!(outside, 100);
            // The same for a copy of the SYN.
            let again = bench.one(Way::Out, &packet(ipv6, SYN, 100, &[], b""));
            assert_eq!(numbers(&again.unwrap()).0, outside);
            let syn_ack = packet(ipv6, SYN | ACK, 900, &[], b"");
            let syn_ack = acking(reversed(syn_ack), outside.wrapping_add(1));
            let (inside, ack) = numbers(&bench.one(Way::In, &syn_ack).unwrap());
            assert_ne!(inside, 900);
            assert_eq!(ack, Some(101));
            let data = acking(packet(ipv6, ACK, 101, &[], b"data"), inside.wrapping_add(1));
            let data = bench.one(Way::Out, &data).unwrap();
            assert_eq!(numbers(&data), (outside.wrapping_add(1), Some(901)));
            // A SACK block from the server speaks of what the client sent.
            let blocks = sack(outside.wrapping_add(11), outside.wrapping_add(21));
            let ack = acking(reversed(packet(ipv6, ACK, 901, &blocks, b"")), outside);
            let ack = bench.one(Way::In, &ack).unwrap();
            let at = TcpView::of(&ack).unwrap().tcp + 24;
            assert_eq!((get_u32(&ack, at), get_u32(&ack, at + 4)), (111, 121));
        }
    }

    #[test]
    fn an_error_quotes_the_number_that_its_sender_knows() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(Isn::new(IsnSpec::default()));
            bench.one(Way::Out, &packet(ipv6, SYN, 100, &[], b""));
            let data = packet(ipv6, ACK, 101, &[], b"data");
            let out = bench.one(Way::Out, &data).unwrap();
            bench.expect_checksums = false;
            let error = bench.one(Way::In, &complaint(&out)).unwrap();
            assert!(is_whole(&error));
            let quoted = Quoted::of(&error).unwrap();
            assert_eq!(get_u32(&error, quoted.seq_at()), 101);
        }
    }

    #[test]
    fn an_old_one_leaves_sack_blocks_wrong() {
        let spec = IsnSpec {
            sack: false,
            way: Some(Way::Out),
        };
        let mut bench = Bench::new(Isn::new(spec));
        let syn = bench.one(Way::Out, &packet(false, SYN, 100, &[], b""));
        let (outside, _) = numbers(&syn.unwrap());
        let blocks = sack(5, 6);
        let ack = acking(reversed(packet(false, ACK, 900, &blocks, b"")), outside);
        let ack = bench.one(Way::In, &ack).unwrap();
        assert_eq!(numbers(&ack), (900, Some(100)));
        assert_eq!((get_u32(&ack, 44), get_u32(&ack, 48)), (5, 6));
    }

    #[test]
    fn what_it_did_not_see_begin_passes_unchanged() {
        let mut bench = Bench::new(Isn::new(IsnSpec::default()));
        let data = packet(true, ACK, 5, &[], b"data");
        assert_eq!(bench.one(Way::Out, &data), Some(data));
        assert_eq!(bench.middlebox.touched(), 0);
    }
}
