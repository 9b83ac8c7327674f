//! Middleboxes: whatever lies on a path and does more than forward. One trait: a packet in, a short list of verdicts
//! out. A box knows nothing of links, hosts or the event queue, so that the same box also works on real packets.

mod strip;

use manypath_tcp::time::{Duration, Instant};

use crate::packet::{Packet, Pool};
use crate::rng::Rng;

pub use strip::{Phase, Strip};

/// Which way a packet crosses a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// From the end that the box is at, towards the other one.
    Out,
    /// From the far end.
    In,
}

impl Way {
    /// The other way.
    #[must_use]
    pub const fn reversed(self) -> Self {
        match self {
            Self::Out => Self::In,
            Self::In => Self::Out,
        }
    }
}

/// What a box decides about one packet.
#[derive(Debug)]
pub enum Verdict {
    /// It goes on, perhaps changed; also for a packet of the box's own.
    Forward(Way, Box<Packet>),
    /// It goes on after a while.
    Delay(Way, Duration, Box<Packet>),
    /// It ends here, and why.
    Drop(Box<Packet>, &'static str),
}

/// What a box may use while it decides.
#[derive(Debug)]
pub struct Desk<'a> {
    /// The current time.
    pub now: Instant,
    /// Buffers for packets of its own.
    pub pool: &'a mut Pool,
    /// The box's own randomness.
    pub rng: &'a mut Rng,
    /// Where the verdicts go, in order.
    pub verdicts: &'a mut Vec<Verdict>,
}

impl Desk<'_> {
    /// Lets a packet go on.
    pub fn forward(&mut self, way: Way, packet: Box<Packet>) {
        self.verdicts.push(Verdict::Forward(way, packet));
    }

    /// Ends a packet's journey.
    pub fn drop(&mut self, packet: Box<Packet>, why: &'static str) {
        self.verdicts.push(Verdict::Drop(packet, why));
    }
}

/// Something on the path.
pub trait Middlebox: Send {
    /// What people call it.
    fn name(&self) -> &'static str;

    /// Decides about a packet: every packet taken must appear in a verdict, or be kept and appear later.
    fn handle(&mut self, way: Way, packet: Box<Packet>, desk: &mut Desk<'_>);

    /// When the box wants to act by itself.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Acts, at its deadline or later.
    fn on_deadline(&mut self, desk: &mut Desk<'_>) {
        let _ = desk;
    }
}
