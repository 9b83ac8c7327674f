//! A box that divides segments: segmentation offload with its copied options, or a "normalizer" that keeps them once.

use serde::{Deserialize, Serialize};

use super::edit::{Keep, divide};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{RST, SYN, TcpView};

/// Parameters of [`Split`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SplitSpec {
    /// Most payload bytes of a piece.
    pub size: u16,
    /// Which pieces keep their Multipath TCP options.
    pub keep: Keep,
    /// Only packets that go this way.
    pub way: Option<Way>,
}

impl Default for SplitSpec {
    fn default() -> Self {
        Self {
            size: 512,
            keep: Keep::Every,
            way: None,
        }
    }
}

/// Divides segments.
#[derive(Clone, Debug)]
pub struct Split {
    spec: SplitSpec,
    touched: u64,
}

impl Split {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: SplitSpec) -> Self {
        Self { spec, touched: 0 }
    }
}

impl Middlebox for Split {
    fn name(&self) -> &'static str {
        "split"
    }

    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>) {
        let size = usize::from(self.spec.size.max(1));
        let view = TcpView::of(packet.bytes()).filter(|view| {
            way.is_meant_by(self.spec.way)
                && view.payload_len() > size
                && view.flags & (SYN | RST) == 0
        });
        let Some(view) = view else {
            return desk.forward(way, packet);
        };
        self.touched += 1;
        let payload = &packet.bytes()[view.payload..view.end];
        for piece in divide(desk.pool, &packet, &view, payload, size, self.spec.keep) {
            desk.forward(way, piece);
        }
        desk.pool.give(packet);
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
    use crate::view::{ACK, CWR, FIN, PSH};

    /// Timestamps, padding, and a data sequence mapping of nothing in particular.
    const OPTIONS: [u8; 20] = [
        8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1, 30, 8, 0x20, 0x01, 0, 0, 0, 9,
    ];

    /// (flags, sequence number, option kinds, payload) of what comes out.
    fn pieces(
        ipv6: bool,
        keep: Keep,
        flags: u8,
        payload: &[u8],
    ) -> Vec<(u8, u32, Vec<u8>, Vec<u8>)> {
        let spec = SplitSpec {
            size: 4,
            keep,
            way: None,
        };
        let mut bench = Bench::new(Split::new(spec));
        let all = bench.pass(
            Way::In,
            &packet(ipv6, flags, u32::MAX - 1, &OPTIONS, payload),
        );
        assert_eq!(bench.kept(), 0);
        let read = |(way, bytes): (Way, Vec<u8>)| {
            assert_eq!(way, Way::In);
            let view = TcpView::of(&bytes).unwrap();
            let kinds = view.options(&bytes).map(|(kind, _)| kind).collect();
            let payload = bytes[view.payload..].to_vec();
            (view.flags, view.seq(&bytes), kinds, payload)
        };
        all.into_iter().map(read).collect()
    }

    #[test]
    fn pieces_have_what_segmentation_offload_gives_them() {
        for ipv6 in [false, true] {
            let all = pieces(ipv6, Keep::Every, ACK | PSH | FIN | CWR, b"0123456789");
            let (both, first) = (vec![8, 30], u32::MAX - 1);
            assert_eq!(
                all,
                [
                    (ACK | CWR, first, both.clone(), b"0123".to_vec()),
                    (ACK, first.wrapping_add(4), both.clone(), b"4567".to_vec()),
                    (ACK | PSH | FIN, first.wrapping_add(8), both, b"89".to_vec()),
                ]
            );
        }
    }

    #[test]
    fn others_keep_the_options_on_one_piece() {
        let kinds = |keep| -> Vec<Vec<u8>> {
            let all = pieces(true, keep, ACK, b"0123456789");
            all.into_iter().map(|(_, _, kinds, _)| kinds).collect()
        };
        assert_eq!(kinds(Keep::First), [vec![8, 30], vec![8], vec![8]]);
        assert_eq!(kinds(Keep::Last), [vec![8], vec![8], vec![8, 30]]);
    }

    #[test]
    fn what_is_small_enough_and_a_syn_stay_whole() {
        assert_eq!(pieces(false, Keep::First, ACK, b"0123").len(), 1);
        assert_eq!(pieces(false, Keep::First, SYN, b"0123456789").len(), 1);
        assert_eq!(pieces(false, Keep::First, ACK, b"").len(), 1);
    }

    #[test]
    fn a_burst_of_an_offloading_card_is_divided_too() {
        let payload: Vec<u8> = (0..60_000u32).map(|n| n as u8).collect();
        let spec = SplitSpec {
            size: 1000,
            ..SplitSpec::default()
        };
        let mut bench = Bench::new(Split::new(spec));
        let all = bench.pass(Way::Out, &packet(false, ACK, 1, &OPTIONS, &payload));
        assert_eq!(all.len(), 60);
        let mut whole: Vec<u8> = Vec::new();
        for (_, bytes) in &all {
            whole.extend(&bytes[TcpView::of(bytes).unwrap().payload..]);
        }
        assert_eq!(whole, payload);
    }
}
