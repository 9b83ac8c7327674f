//! Floods of SYNs from made-up addresses.

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

use super::peer::{Shape, capable_syn};
use super::{Attack, Desk, Pace, SERVER};

/// SYNs that nobody completes.
#[derive(Debug)]
pub struct SynFlood {
    pace: Pace,
    multipath: bool,
}

impl SynFlood {
    /// So many a second, with MP_CAPABLE or plain.
    #[must_use]
    pub fn new(per_second: u64, multipath: bool) -> Self {
        Self {
            pace: Pace::new(per_second),
            multipath,
        }
    }
}

impl Attack for SynFlood {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        let tuple = FourTuple::new(desk.made_up(), SERVER);
        let isn = SeqNum::new(desk.rng.bits() as u32);
        let packet = if self.multipath {
            capable_syn(&tuple, isn, 1460)
        } else {
            Shape::new(Flags::SYN, isn, SeqNum::new(0)).packet(&tuple, &[])
        };
        desk.send(packet);
    }
}

/// Third packets for handshakes that never began: guesses at SYN cookies.
#[derive(Debug)]
pub struct AckFlood {
    pace: Pace,
}

impl AckFlood {
    /// So many a second.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            pace: Pace::new(per_second),
        }
    }
}

impl Attack for AckFlood {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        let tuple = FourTuple::new(desk.made_up(), SERVER);
        let number = |desk: &mut Desk<'_>| SeqNum::new(desk.rng.bits() as u32);
        let shape = Shape::new(Flags::ACK, number(desk), number(desk));
        desk.send(shape.packet(&tuple, &[]));
    }
}
