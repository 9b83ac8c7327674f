//! Segments for the honest client's connection from somebody who knows its addresses and ports and nothing else
//! (RFC 5961).

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

use super::peer::Shape;
use super::{Attack, Desk, Pace, SERVER};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgery {
    /// RST, through the whole sequence space in steps of a small window.
    Reset,
    /// SYN, likewise.
    Syn,
    /// Payload at guessed numbers.
    Data,
}

/// A flood of forged segments.
#[derive(Debug)]
pub struct Forger {
    pace: Pace,
    forgery: Forgery,
    victim: Option<FourTuple>,
    at: SeqNum,
}

/// Steps through the sequence space: as many packets as a blind attacker needs for a window of 64 KB.
const STEP: u32 = 65_535;

impl Forger {
    /// So many a second.
    #[must_use]
    pub fn new(per_second: u64, forgery: Forgery) -> Self {
        Self {
            pace: Pace::new(per_second),
            forgery,
            victim: None,
            at: SeqNum::new(0),
        }
    }
}

impl Attack for Forger {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        let Some(victim) = self.victim else { return };
        self.at += STEP;
        let ack = SeqNum::new(desk.rng.bits() as u32);
        let packet = match self.forgery {
            Forgery::Reset => Shape::new(Flags::RST, self.at, SeqNum::new(0)).packet(&victim, &[]),
            Forgery::Syn => Shape::new(Flags::SYN, self.at, SeqNum::new(0)).packet(&victim, &[]),
            Forgery::Data => Shape::new(Flags::ACK, self.at, ack).packet(&victim, &[0x66; 1000]),
        };
        desk.send(packet);
    }

    fn overhear(&mut self, seg: &Segment<'_>, _desk: &mut Desk<'_>) {
        // The first connection is the long transfer's.
        if self.victim.is_none() && seg.tuple.local == SERVER {
            self.victim = Some(seg.tuple.reversed());
        }
    }
}
