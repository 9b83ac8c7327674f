//! A box that makes advertised windows smaller, to slow senders down or to save its own memory.

use manypath_tcp::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::edit::WINDOW_SCALE;
use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Span};
use crate::view::{ACK, SYN, TcpView, put_u16};

/// Largest shift of a window (RFC 7323 section 2.3).
const MOST_SHIFT: u8 = 14;

/// Parameters of [`ShrinkWindow`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ShrinkWindowSpec {
    /// No window is larger than this.
    pub most: Size,
    /// How long after its first packet it begins: windows that were promised before then shrink.
    pub after: Span,
    /// Only the windows of packets that go this way.
    pub way: Option<Way>,
}

impl Default for ShrinkWindowSpec {
    fn default() -> Self {
        Self {
            most: Size(16_000),
            after: Span(Duration::ZERO),
            way: None,
        }
    }
}

/// What the handshake said about one way's windows.
#[derive(Clone, Copy, Debug, Default)]
struct Scale {
    seen: bool,
    shift: Option<u8>,
}

/// Makes windows smaller.
#[derive(Debug)]
pub struct ShrinkWindow {
    spec: ShrinkWindowSpec,
    first: Option<Instant>,
    flows: Flows<[Scale; 2]>,
    touched: u64,
}

impl ShrinkWindow {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: ShrinkWindowSpec) -> Self {
        Self {
            spec,
            first: None,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    /// The shift of the window field of a packet that goes `way`; nothing, if the handshake was not seen.
    fn shift(&mut self, way: Way, packet: &[u8], view: &TcpView) -> Option<u8> {
        let scales = self.flows.of(packet, view, way, Default::default)?;
        if view.flags & SYN != 0 {
            let option = view
                .options(packet)
                .find(|(kind, at)| *kind == WINDOW_SCALE && at.len() == 3);
            scales[way.index()] = Scale {
                seen: true,
                shift: option.map(|(_, at)| packet[at.start + 2].min(MOST_SHIFT)),
            };
            // Windows of a SYN are never scaled.
            return Some(0);
        }
        let [own, other] = [scales[way.index()], scales[way.reversed().index()]];
        let both = own.shift.filter(|_| other.shift.is_some());
        (own.seen && other.seen).then(|| both.unwrap_or(0))
    }
}

impl Middlebox for ShrinkWindow {
    fn name(&self) -> &'static str {
        "shrink-window"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let begins = *self.first.get_or_insert(desk.now) + self.spec.after.0;
        if let Some(view) = TcpView::of(packet.bytes()) {
            let shift = self.shift(way, packet.bytes(), &view);
            let shift = shift.filter(|_| {
                desk.now >= begins
                    && way.is_meant_by(self.spec.way)
                    && view.flags & (ACK | SYN) != 0
            });
            if let Some(shift) = shift {
                // A window that was open stays open by at least one unit.
                let most = (self.spec.most.0 >> shift).max(1);
                if u64::from(view.window(packet.bytes())) > most {
                    // Smaller than a value of 16 bits.
                    put_u16(packet.bytes_mut(), view.tcp + 14, most as u16);
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
    use crate::view::get_u16;
    use crate::view::tests::{packet, reversed};

    fn with_window(mut bytes: Vec<u8>, window: u16) -> Vec<u8> {
        let view = TcpView::of(&bytes).unwrap();
        put_u16(&mut bytes, view.tcp + 14, window);
        view.fix_checksums(&mut bytes);
        bytes
    }

    fn window(bench: &mut Bench<ShrinkWindow>, way: Way, bytes: Vec<u8>) -> u16 {
        let out = bench.one(way, &bytes).unwrap();
        get_u16(&out, TcpView::of(&out).unwrap().tcp + 14)
    }

    #[test]
    fn windows_are_cut_in_the_scale_of_their_connection() {
        for (ipv6, options, expected) in [
            (false, [3, 3, 7, 0], 8_000 >> 7),
            (true, [3, 3, 7, 0], 8_000 >> 7),
            (true, [1, 1, 1, 0], 8_000),
        ] {
            let spec = ShrinkWindowSpec {
                most: Size(8_000),
                ..ShrinkWindowSpec::default()
            };
            let mut bench = Bench::new(ShrinkWindow::new(spec));
            let syn = with_window(packet(ipv6, SYN, 1, &options, b""), 60_000);
            assert_eq!(window(&mut bench, Way::Out, syn), 8_000);
            let syn_ack = packet(ipv6, SYN | ACK, 1, &[3, 3, 2, 0], b"");
            assert_eq!(window(&mut bench, Way::In, reversed(syn_ack)), 1000);
            for (given, expected) in [(60_000, expected), (3, 3), (0, 0)] {
                let ack = with_window(packet(ipv6, ACK, 2, &[], b""), given);
                assert_eq!(window(&mut bench, Way::Out, ack), expected);
            }
        }
    }

    #[test]
    fn it_begins_late_and_leaves_alone_what_it_cannot_know() {
        let spec = ShrinkWindowSpec {
            most: Size(100),
            after: Span(Duration::from_millis(5)),
            way: Some(Way::Out),
        };
        let mut bench = Bench::new(ShrinkWindow::new(spec));
        let syn = packet(false, SYN, 1, &[], b"");
        assert_eq!(window(&mut bench, Way::Out, syn.clone()), 1000);
        bench.now = Instant::from_millis(5);
        assert_eq!(window(&mut bench, Way::Out, syn), 100);
        let syn_ack = reversed(packet(false, SYN | ACK, 1, &[], b""));
        assert_eq!(window(&mut bench, Way::In, syn_ack), 1000);
        let ack = packet(false, ACK, 2, &[], b"");
        assert_eq!(window(&mut bench, Way::Out, ack), 100);
        // Another connection, whose SYN went elsewhere.
        let mut other = packet(false, ACK, 2, &[], b"");
        put_u16(&mut other, 20, 99);
        TcpView::of(&other).unwrap().fix_checksums(&mut other);
        assert_eq!(window(&mut bench, Way::Out, other), 1000);
    }
}
