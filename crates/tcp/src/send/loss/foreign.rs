//! Selective acknowledgements that name what was never sent.
//!
//! A firewall that gives a connection other sequence numbers, and leaves those in SACK as they are, makes each block name
//! a place that is not there. Who goes on believing in SACK never learns of a loss but from the timer, since a peer with
//! SACK is not asked for duplicates. Their count still tells (RFC 5681 section 3.2).

/// So many acknowledgements with nothing but foreign blocks, before any block that was understood, are no accident.
const ENOUGH: u8 = 2;

/// What the peer's blocks are worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blocks {
    /// Nothing was understood yet, and so many acknowledgements had foreign blocks alone.
    Unproven(u8),
    /// One named what was in flight.
    Understood,
    /// They are worth nothing.
    Foreign,
}

impl Blocks {
    /// Takes in what an acknowledgement's blocks named: bytes in flight, or `foreign` numbers alone.
    #[must_use]
    pub(super) fn after(self, newly_sacked: u32, foreign: bool) -> Blocks {
        match self {
            Blocks::Unproven(_) if newly_sacked > 0 => Blocks::Understood,
            Blocks::Unproven(seen) if foreign && seen + 1 >= ENOUGH => Blocks::Foreign,
            Blocks::Unproven(seen) if foreign => Blocks::Unproven(seen + 1),
            Blocks::Unproven(_) | Blocks::Understood | Blocks::Foreign => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_blocks_alone_end_the_belief() {
        let seen = Blocks::Unproven(0).after(0, true);
        assert_eq!(seen, Blocks::Unproven(1));
        assert_eq!(seen.after(0, false), seen);
        assert_eq!(seen.after(0, true), Blocks::Foreign);
        assert_eq!(Blocks::Foreign.after(1_000, false), Blocks::Foreign);
    }

    #[test]
    fn what_was_understood_once_stays_so() {
        let seen = Blocks::Unproven(1).after(1_000, false);
        assert_eq!(seen, Blocks::Understood);
        assert_eq!(seen.after(0, true).after(0, true), Blocks::Understood);
    }
}
