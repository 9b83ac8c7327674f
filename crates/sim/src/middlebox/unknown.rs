//! A firewall that drops packets with TCP options it does not know.

use serde::{Deserialize, Serialize};

use super::{Desk, Middlebox, Phase, Way};
use crate::packet::Packet;
use crate::view::TcpView;

/// The options that such boxes know: MSS, window scale, SACK and timestamps.
const USUAL: [u8; 5] = [2, 3, 4, 5, 8];

/// Parameters of [`DropUnknown`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct DropUnknownSpec {
    /// Which packets it looks at.
    pub phases: Vec<Phase>,
    /// Option kinds that it knows besides the usual ones.
    pub known: Vec<u8>,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for DropUnknownSpec {
    fn default() -> Self {
        Self {
            phases: Phase::ALL.to_vec(),
            known: Vec::new(),
            way: None,
        }
    }
}

/// Drops packets with unknown options.
#[derive(Clone, Debug)]
pub struct DropUnknown {
    spec: DropUnknownSpec,
    touched: u64,
}

impl DropUnknown {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: DropUnknownSpec) -> Self {
        Self { spec, touched: 0 }
    }

    fn dislikes(&self, way: Way, packet: &[u8]) -> bool {
        let Some(view) = TcpView::of(packet).filter(|_| way.is_meant_by(self.spec.way)) else {
            return false;
        };
        let known = |kind: u8| USUAL.contains(&kind) || self.spec.known.contains(&kind);
        self.spec.phases.contains(&Phase::of(packet, &view))
            && view.options(packet).any(|(kind, _)| !known(kind))
    }
}

impl Middlebox for DropUnknown {
    fn name(&self) -> &'static str {
        "drop-unknown"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        if self.dislikes(way, packet.bytes()) {
            self.touched += 1;
            desk.drop(packet, "unknown option");
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
    use crate::view::tests::packet;
    use crate::view::{ACK, SYN};

    const KNOWN: [u8; 8] = [2, 4, 5, 180, 4, 2, 1, 1];
    const CAPABLE: [u8; 4] = [30, 4, 0x01, 0x81];

    #[test]
    fn only_packets_with_unknown_options_end_here() {
        for ipv6 in [false, true] {
            let mut bench = Bench::new(DropUnknown::new(DropUnknownSpec::default()));
            let plain = packet(ipv6, SYN, 1, &KNOWN, b"");
            assert_eq!(bench.one(Way::Out, &plain).as_ref(), Some(&plain));
            let capable = packet(ipv6, SYN, 1, &[KNOWN.as_slice(), &CAPABLE].concat(), b"");
            assert_eq!(bench.one(Way::Out, &capable), None);
            assert_eq!((bench.middlebox.touched(), bench.kept()), (1, 0));
        }
    }

    #[test]
    fn phases_ways_and_known_kinds_are_obeyed() {
        let syn = packet(false, SYN, 1, &CAPABLE, b"");
        let data = packet(false, ACK, 1, &CAPABLE, b"data");
        let passes = |spec: DropUnknownSpec, way, bytes: &[u8]| {
            Bench::new(DropUnknown::new(spec)).one(way, bytes).is_some()
        };
        let syns = DropUnknownSpec {
            phases: vec![Phase::Syn],
            way: Some(Way::Out),
            ..DropUnknownSpec::default()
        };
        assert!(!passes(syns.clone(), Way::Out, &syn));
        assert!(passes(syns.clone(), Way::In, &syn));
        assert!(passes(syns, Way::Out, &data));
        let knows = DropUnknownSpec {
            known: vec![30],
            ..DropUnknownSpec::default()
        };
        assert!(passes(knows, Way::Out, &data));
    }
}
