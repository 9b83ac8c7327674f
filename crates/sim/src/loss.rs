//! Which packets a line loses. Decided when a packet is offered, so that a lost packet still takes its time on the line.

use crate::rng::{Chance, Rng};
use crate::view::{ACK, FIN, SYN, TcpView};

/// A model of loss, with its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Each packet is lost with this chance, whatever happened to the others.
    Bernoulli(Chance),
    /// Two states with a chance of loss each (Gilbert and Elliott): losses come in bursts.
    GilbertElliott {
        /// Chance, at each packet, to go from the good state to the bad one.
        worsen: Chance,
        /// Chance, at each packet, to go back.
        recover: Chance,
        /// Chance of loss in the good state.
        good: Chance,
        /// Chance of loss in the bad state.
        bad: Chance,
        /// The state: in the bad one.
        is_bad: bool,
    },
    /// Exactly these packets are lost, counted from 0 among those of the kind.
    Mask {
        /// Which packets count.
        of: Kind,
        /// Their numbers, rising.
        numbers: Vec<u64>,
        /// How many have been seen.
        seen: u64,
    },
}

/// A kind of packet, as a mask selects it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Kind {
    /// Every packet.
    #[default]
    Any,
    /// TCP segments with payload.
    Payload,
    /// TCP segments without payload, SYN or FIN.
    Acknowledgement,
    /// First packets of a handshake.
    Syn,
    /// Second packets of a handshake.
    SynAck,
    /// TCP segments with FIN.
    Fin,
}

impl Kind {
    /// Whether `packet` is of this kind.
    #[must_use]
    pub fn holds(self, packet: &[u8]) -> bool {
        if self == Self::Any {
            return true;
        }
        let Some(view) = TcpView::of(packet) else {
            return false;
        };
        match self {
            Self::Any => true,
            Self::Payload => view.payload_len() > 0,
            Self::Acknowledgement => view.payload_len() == 0 && view.flags & (SYN | FIN) == 0,
            Self::Syn => view.flags & (SYN | ACK) == SYN,
            Self::SynAck => view.flags & (SYN | ACK) == SYN | ACK,
            Self::Fin => view.flags & FIN != 0,
        }
    }
}

impl Loss {
    /// Loses exactly the packets of a kind with these numbers, counted from 0.
    #[must_use]
    pub fn mask(of: Kind, mut numbers: Vec<u64>) -> Self {
        numbers.sort_unstable();
        Self::Mask {
            of,
            numbers,
            seen: 0,
        }
    }

    /// Bursts of loss, beginning in the good state.
    #[must_use]
    pub const fn gilbert_elliott(
        worsen: Chance,
        recover: Chance,
        good: Chance,
        bad: Chance,
    ) -> Self {
        Self::GilbertElliott {
            worsen,
            recover,
            good,
            bad,
            is_bad: false,
        }
    }

    /// Whether the line loses `packet`. Every model must see every packet.
    pub fn loses(&mut self, packet: &[u8], rng: &mut Rng) -> bool {
        match self {
            Self::Bernoulli(chance) => rng.chance(*chance),
            Self::GilbertElliott {
                worsen,
                recover,
                good,
                bad,
                is_bad,
            } => {
                if rng.chance(if *is_bad { *recover } else { *worsen }) {
                    *is_bad = !*is_bad;
                }
                rng.chance(if *is_bad { *bad } else { *good })
            }
            Self::Mask { of, numbers, seen } => {
                if !of.holds(packet) {
                    return false;
                }
                *seen += 1;
                numbers.binary_search(&(*seen - 1)).is_ok()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::tests::packet;

    #[test]
    fn a_mask_loses_exactly_what_it_names() {
        let (mut rng, mut loss) = (Rng::new(1), Loss::mask(Kind::Payload, vec![2, 0]));
        let data = packet(false, ACK, 1, &[], b"x");
        let bare = packet(false, ACK, 1, &[], b"");
        let fate: Vec<bool> = [&data, &bare, &data, &bare, &data, &data]
            .map(|p| loss.loses(p, &mut rng))
            .to_vec();
        assert_eq!(fate, [true, false, false, false, true, false]);
    }

    #[test]
    fn kinds_tell_packets_apart() {
        let of = |flags, payload: &[u8]| {
            let bytes = packet(true, flags, 1, &[], payload);
            [
                Kind::Any,
                Kind::Payload,
                Kind::Acknowledgement,
                Kind::Syn,
                Kind::SynAck,
                Kind::Fin,
            ]
            .map(|kind| kind.holds(&bytes))
        };
        assert_eq!(of(SYN, b""), [true, false, false, true, false, false]);
        assert_eq!(of(SYN | ACK, b""), [true, false, false, false, true, false]);
        assert_eq!(of(ACK, b""), [true, false, true, false, false, false]);
        assert_eq!(of(ACK, b"x"), [true, true, false, false, false, false]);
        assert_eq!(of(ACK | FIN, b""), [true, false, false, false, false, true]);
        assert!(!Kind::Payload.holds(b"not an IP packet"));
    }

    #[test]
    fn bursts_are_longer_than_chance_would_make_them() {
        let mut rng = Rng::new(5);
        let mut loss = Loss::gilbert_elliott(
            Chance::new(0.01),
            Chance::new(0.2),
            Chance::NEVER,
            Chance::ALWAYS,
        );
        let fate: Vec<bool> = (0..200_000).map(|_| loss.loses(&[], &mut rng)).collect();
        let lost = fate.iter().filter(|&&l| l).count();
        let bursts = fate.windows(2).filter(|w| !w[0] && w[1]).count();
        assert!((8_000..11_000).contains(&lost), "{lost}"); // 1 in 21
        assert!(
            (3.5..6.5).contains(&(lost as f64 / bursts as f64)),
            "{lost} / {bursts}"
        );
    }
}
