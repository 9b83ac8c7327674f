//! A box that removes Multipath TCP options from some packets, as firewalls and "normalizers" do.

use super::{Desk, Middlebox, Way};
use crate::packet::Packet;
use crate::view::{ACK, SYN, TcpView};

/// The option kind of Multipath TCP (RFC 8684 section 3).
const MPTCP: u8 = 30;
/// MP_CAPABLE and MP_JOIN, the subtypes that a third ACK carries.
const HANDSHAKE: [u8; 2] = [0x0, 0x1];
const NOP: u8 = 1;

/// Where in the life of a subflow a packet stands, as far as one packet tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

fn subtype(packet: &[u8], option: &core::ops::Range<usize>) -> u8 {
    packet.get(option.start + 2).map_or(0xff, |byte| byte >> 4)
}

/// Overwrites Multipath TCP options with padding, so that nothing else moves.
#[derive(Clone, Debug)]
pub struct Strip {
    phases: Vec<Phase>,
    subtypes: Option<Vec<u8>>,
    way: Option<Way>,
    spare: u64,
    stripped: u64,
}

impl Strip {
    /// Strips every Multipath TCP option from packets of these phases.
    #[must_use]
    pub fn new(phases: impl Into<Vec<Phase>>) -> Self {
        Self {
            phases: phases.into(),
            subtypes: None,
            way: None,
            spare: 0,
            stripped: 0,
        }
    }

    /// Only options with these subtypes (RFC 8684 section 8.1).
    #[must_use]
    pub fn subtypes(mut self, subtypes: impl Into<Vec<u8>>) -> Self {
        self.subtypes = Some(subtypes.into());
        self
    }

    /// Only packets that go this way.
    #[must_use]
    pub fn way(mut self, way: Way) -> Self {
        self.way = Some(way);
        self
    }

    /// Begins after this many packets of the phases have passed unharmed.
    #[must_use]
    pub fn after(mut self, packets: u64) -> Self {
        self.spare = packets;
        self
    }

    fn strip(&self, packet: &mut [u8], view: &TcpView) -> bool {
        let victims: Vec<_> = view
            .options(packet)
            .filter(|(kind, at)| {
                let listed = |list: &Vec<u8>| list.contains(&subtype(packet, at));
                *kind == MPTCP && self.subtypes.as_ref().is_none_or(listed)
            })
            .map(|(_, at)| at)
            .collect();
        for at in &victims {
            packet[at.clone()].fill(NOP);
        }
        if !victims.is_empty() {
            view.fix_checksums(packet);
        }
        !victims.is_empty()
    }
}

impl Middlebox for Strip {
    fn name(&self) -> &'static str {
        "strip"
    }

    fn handle(&mut self, way: Way, mut packet: Box<Packet>, desk: &mut Desk<'_>) {
        let concerned = self.way.is_none_or(|wanted| wanted == way);
        let view = TcpView::of(packet.bytes())
            .filter(|view| concerned && self.phases.contains(&Phase::of(packet.bytes(), view)));
        match view {
            Some(_) if self.spare > 0 => self.spare -= 1,
            Some(view) => self.stripped += u64::from(self.strip(packet.bytes_mut(), &view)),
            None => {}
        }
        desk.forward(way, packet);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::middlebox::Verdict;
    use crate::packet::Pool;
    use crate::rng::Rng;
    use crate::view::tests::{checksums_hold, packet};
    use manypath_tcp::time::Instant;

    const CAPABLE: [u8; 4] = [MPTCP, 4, 0x01, 0x81];
    const DSS: [u8; 8] = [MPTCP, 8, 0x20, 0x01, 0, 0, 0, 9];

    /// The option kinds that survive the box.
    fn through(strip: &mut Strip, way: Way, bytes: &[u8]) -> Vec<u8> {
        let (mut pool, mut rng, mut verdicts) = (Pool::default(), Rng::new(1), Vec::new());
        let packet = pool.copy_of(bytes);
        let mut desk = Desk {
            now: Instant::ZERO,
            pool: &mut pool,
            rng: &mut rng,
            verdicts: &mut verdicts,
        };
        strip.handle(way, packet, &mut desk);
        let Some(Verdict::Forward(to, packet)) = verdicts.pop() else {
            panic!("a stripping box forwards everything");
        };
        assert!(to == way && verdicts.is_empty());
        assert!(checksums_hold(packet.bytes()));
        let view = TcpView::of(packet.bytes()).unwrap();
        view.options(packet.bytes()).map(|(kind, _)| kind).collect()
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
        let survivors = |phase| all.map(|bytes| through(&mut Strip::new([phase]), Way::Out, bytes));
        let whole = [vec![2, 30], vec![2, 30], vec![30], vec![30], vec![30]];
        for (index, phase) in [
            Phase::Syn,
            Phase::SynAck,
            Phase::ThirdAck,
            Phase::Data,
            Phase::Other,
        ]
        .into_iter()
        .enumerate()
        {
            let mut expected = whole.clone();
            expected[index].retain(|kind| *kind != MPTCP);
            assert_eq!(survivors(phase), expected, "{phase:?}");
        }
    }

    #[test]
    fn way_subtype_and_patience_are_obeyed() {
        let data = packet(false, ACK, 2, &DSS, b"data");
        let mut strip = Strip::new([Phase::Data])
            .way(Way::In)
            .subtypes([2])
            .after(1);
        assert_eq!(through(&mut strip, Way::Out, &data), [30]);
        assert_eq!(through(&mut strip, Way::In, &data), [30]);
        assert_eq!(through(&mut strip, Way::In, &data), []);
        let mut other = Strip::new([Phase::Data]).subtypes([0]);
        assert_eq!(through(&mut other, Way::In, &data), [30]);
    }
}
