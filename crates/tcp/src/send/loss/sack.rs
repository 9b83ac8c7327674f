//! Whether the peer's selective acknowledgements are used.
//!
//! A firewall that rewrites the sequence numbers of a connection, and leaves those in SACK blocks as they are, makes each block
//! name data that was never sent. A sender that relied on them would learn of losses from its timer alone, since with SACK
//! duplicate acknowledgements are not counted. Without SACK their count still tells (RFC 5681 section 3.2).

/// Acknowledgements with invalid blocks alone, before any valid one, after which SACK is off. One more than a single odd packet
/// makes; each further one would cost a flight its fast retransmit.
const INVALID_LIMIT: u8 = 2;

/// Use of SACK on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sack {
    /// Not agreed upon, or the peer's blocks are all invalid: the peer counts as one without SACK.
    Off,
    /// No valid block has arrived yet, and so many acknowledgements had invalid ones alone.
    Untested(u8),
    /// A block named data in flight.
    Valid,
}

impl Sack {
    pub(super) fn new(agreed: bool) -> Sack {
        match agreed {
            true => Sack::Untested(0),
            false => Sack::Off,
        }
    }

    pub(super) fn is_on(self) -> bool {
        self != Sack::Off
    }

    /// Takes in what an acknowledgement's blocks named: `newly_sacked` bytes in flight, or invalid numbers alone.
    #[must_use]
    pub(super) fn after(self, newly_sacked: u32, all_invalid: bool) -> Sack {
        match self {
            Sack::Untested(_) if newly_sacked > 0 => Sack::Valid,
            Sack::Untested(seen) if all_invalid && seen + 1 >= INVALID_LIMIT => Sack::Off,
            Sack::Untested(seen) if all_invalid => Sack::Untested(seen + 1),
            Sack::Untested(_) | Sack::Valid | Sack::Off => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_acknowledgements_with_invalid_blocks_alone_switch_sack_off() {
        let seen = Sack::new(true).after(0, true);
        assert_eq!(seen, Sack::Untested(1));
        assert_eq!(seen.after(0, false), seen);
        assert_eq!(seen.after(0, true), Sack::Off);
        assert_eq!(Sack::Off.after(1_000, false), Sack::Off);
    }

    #[test]
    fn one_valid_block_keeps_sack_on() {
        let seen = Sack::Untested(1).after(1_000, false);
        assert_eq!(seen, Sack::Valid);
        assert_eq!(seen.after(0, true).after(0, true), Sack::Valid);
    }
}
