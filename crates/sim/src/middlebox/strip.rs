//! A box that removes Multipath TCP options from some packets, as firewalls and "normalizers" do.

use manypath_tcp::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use super::edit::{MPTCP, cut_options, pad_over, subtype};
use super::flows::{Flows, USUAL_FLOWS};
use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::scenario::units::{Size, Span};
use crate::view::{ACK, SYN, TcpView};

/// MP_CAPABLE and MP_JOIN, the subtypes that a third ACK carries.
const HANDSHAKE: [u8; 2] = [0x0, 0x1];

/// Where in the life of a subflow a packet stands, as far as one packet tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// First packet of a handshake.
    Syn,
    /// Second packet of a handshake.
    SynAck,
    /// An ACK without payload that carries MP_CAPABLE or MP_JOIN: the third packet, or a copy of it.
    ThirdAck,
    /// A segment with payload.
    Data,
    /// Anything else, for example a bare acknowledgement.
    Other,
}

impl Phase {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Syn,
        Self::SynAck,
        Self::ThirdAck,
        Self::Data,
        Self::Other,
    ];

    /// The phase that `packet` shows.
    #[must_use]
    pub fn of(packet: &[u8], view: &TcpView) -> Self {
        let handshake_option = || {
            view.options(packet)
                .any(|(kind, at)| kind == MPTCP && HANDSHAKE.contains(&subtype(packet, &at)))
        };
        match view.flags & (SYN | ACK) {
            SYN => Self::Syn,
            both if both == SYN | ACK => Self::SynAck,
            _ if view.payload_len() > 0 => Self::Data,
            _ if handshake_option() => Self::ThirdAck,
            _ => Self::Other,
        }
    }
}

/// Parameters of [`Strip`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StripSpec {
    /// From which packets.
    pub phases: Vec<Phase>,
    /// Only options with these subtypes (RFC 8684 section 8.1).
    pub subtypes: Option<Vec<u8>>,
    /// Only packets that go this way.
    pub way: Option<Way>,
    /// Lets this many packets of those phases through first.
    pub after: u64,
    /// Begins so long after its first packet.
    pub after_time: Span,
    /// Begins, for each connection, when so much payload has crossed it, both ways together.
    pub after_bytes: Size,
    /// Makes the header shorter, instead of overwriting the option with padding.
    pub cut: bool,
}

impl Default for StripSpec {
    fn default() -> Self {
        Self {
            phases: Phase::ALL.to_vec(),
            subtypes: None,
            way: None,
            after: 0,
            after_time: Span(Duration::ZERO),
            after_bytes: Size(0),
            cut: false,
        }
    }
}

/// Removes Multipath TCP options.
#[derive(Debug)]
pub struct Strip {
    spec: StripSpec,
    spare: u64,
    first: Option<Instant>,
    /// Payload seen.
    flows: Flows<u64>,
    touched: u64,
}

impl Strip {
    /// A box with these parameters.
    #[must_use]
    pub fn new(spec: StripSpec) -> Self {
        Self {
            spare: spec.after,
            spec,
            first: None,
            flows: Flows::new(USUAL_FLOWS),
            touched: 0,
        }
    }

    /// The packet has come late enough to be stripped, if its phase is a wrong one.
    fn has_begun(&mut self, way: Way, packet: &[u8], view: &TcpView, now: Instant) -> bool {
        let begins = *self.first.get_or_insert(now) + self.spec.after_time.0;
        if self.spec.after_bytes.0 > 0 {
            let Some(seen) = self.flows.of(packet, view, way, || 0) else {
                return false;
            };
            let before = *seen;
            *seen += view.payload_len() as u64;
            if before < self.spec.after_bytes.0 {
                return false;
            }
        }
        now >= begins
    }

    fn strip(&mut self, packet: &mut Box<Packet>, view: &TcpView) {
        let bytes = packet.bytes();
        let wanted = |at: &core::ops::Range<usize>| {
            let listed = |list: &Vec<u8>| list.contains(&subtype(bytes, at));
            self.spec.subtypes.as_ref().is_none_or(listed)
        };
        let victims: Vec<_> = view
            .options(bytes)
            .filter(|(kind, at)| *kind == MPTCP && wanted(at))
            .map(|(_, at)| at)
            .collect();
        if victims.is_empty() {
            return;
        }
        self.touched += 1;
        if self.spec.cut {
            cut_options(packet.bytes_mut(), view, &victims);
        } else {
            pad_over(packet.bytes_mut(), &victims);
            view.fix_checksums(packet.bytes_mut());
        }
    }
}

impl Middlebox for Strip {
    fn name(&self) -> &'static str {
        "strip"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        if let Some(view) = TcpView::of(packet.bytes()) {
            let begun = self.has_begun(way, packet.bytes(), &view, desk.now);
            let concerned = way.is_meant_by(self.spec.way)
                && self.spec.phases.contains(&Phase::of(packet.bytes(), &view));
            match begun && concerned {
                true if self.spare > 0 => self.spare -= 1,
                true => self.strip(&mut packet, &view),
                false => {}
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

    const CAPABLE: [u8; 4] = [MPTCP, 4, 0x01, 0x81];
    const DSS: [u8; 8] = [MPTCP, 8, 0x20, 0x01, 0, 0, 0, 9];

    fn only(phases: impl Into<Vec<Phase>>) -> StripSpec {
        StripSpec {
            phases: phases.into(),
            ..StripSpec::default()
        }
    }

    /// The option kinds that survive the box.
    fn through(bench: &mut Bench<Strip>, way: Way, bytes: &[u8]) -> Vec<u8> {
        let out = bench.one(way, bytes).expect("it drops nothing");
        let view = TcpView::of(&out).unwrap();
        view.options(&out).map(|(kind, _)| kind).collect()
    }

    #[test]
    fn only_the_named_phases_lose_their_options() {
        let mss = [2, 4, 5, 180];
        let syn = packet(false, SYN, 1, &[mss, CAPABLE].concat(), b"");
        let syn_ack = packet(true, SYN | ACK, 1, &[mss, CAPABLE].concat(), b"");
        let third = packet(false, ACK, 2, &CAPABLE, b"");
        let data = packet(true, ACK, 2, &DSS, b"data");
        let bare = packet(true, ACK, 2, &DSS, b"");
        let all = [&syn, &syn_ack, &third, &data, &bare];
        let survivors = |phase| {
            all.map(|bytes| through(&mut Bench::new(Strip::new(only([phase]))), Way::Out, bytes))
        };
        let whole = [vec![2, 30], vec![2, 30], vec![30], vec![30], vec![30]];
        for (index, phase) in Phase::ALL.into_iter().enumerate() {
            let mut expected = whole.clone();
            expected[index].retain(|kind| *kind != MPTCP);
            assert_eq!(survivors(phase), expected, "{phase:?}");
        }
    }

    #[test]
    fn way_subtype_and_patience_are_obeyed() {
        let data = packet(false, ACK, 2, &DSS, b"data");
        let mut bench = Bench::new(Strip::new(StripSpec {
            subtypes: Some(vec![2]),
            way: Some(Way::In),
            after: 1,
            ..only([Phase::Data])
        }));
        assert_eq!(through(&mut bench, Way::Out, &data), [30]);
        assert_eq!(through(&mut bench, Way::In, &data), [30]);
        assert_eq!(through(&mut bench, Way::In, &data), []);
        assert_eq!(bench.middlebox.touched(), 1);
        let mut other = Bench::new(Strip::new(StripSpec {
            subtypes: Some(vec![0]),
            ..StripSpec::default()
        }));
        assert_eq!(through(&mut other, Way::In, &data), [30]);
    }

    #[test]
    fn it_may_begin_in_the_middle() {
        let data = packet(true, ACK, 2, &DSS, b"data");
        let mut late = Bench::new(Strip::new(StripSpec {
            after_time: Span(Duration::from_millis(5)),
            ..StripSpec::default()
        }));
        late.now = Instant::from_millis(100);
        assert_eq!(through(&mut late, Way::Out, &data), [30]);
        late.now = Instant::from_millis(105);
        assert_eq!(through(&mut late, Way::Out, &data), []);
        let mut bytes = Bench::new(Strip::new(StripSpec {
            after_bytes: Size(8),
            ..StripSpec::default()
        }));
        assert_eq!(through(&mut bytes, Way::Out, &data), [30]);
        let back = crate::view::tests::reversed(data.clone());
        assert_eq!(through(&mut bytes, Way::In, &back), [30]);
        assert_eq!(through(&mut bytes, Way::Out, &data), []);
    }

    #[test]
    fn a_cut_header_is_shorter_and_whole() {
        for ipv6 in [false, true] {
            let options = [&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 1, 1], &DSS[..]].concat();
            let data = packet(ipv6, ACK, 2, &options, b"data");
            let mut bench = Bench::new(Strip::new(StripSpec {
                cut: true,
                ..StripSpec::default()
            }));
            let out = bench.one(Way::Out, &data).unwrap();
            assert_eq!(out.len(), data.len() - DSS.len());
            assert_eq!(out, packet(ipv6, ACK, 2, &options[..12], b"data"));
        }
    }
}
