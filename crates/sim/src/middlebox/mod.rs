//! Middleboxes: whatever lies on a path and does more than forward. One trait: a packet in, a short list of verdicts
//! out. A box knows nothing of links, hosts or the event queue, so that the same box also works on real packets: copy
//! the bytes into a packet of a [`Pool`], ask the box, and take the bytes of what it forwards.
//!
//! Each box has a file with its parameters, which are plain data ([`BoxSpec`] has them all), and its state, which is
//! bounded whatever the network sends. A box that meets what it does not understand lets it pass.

mod ack_check;
mod blackhole;
mod coalesce;
mod corrupt;
pub mod edit;
mod edits;
pub mod flows;
mod hole;
mod isn;
mod nat;
mod original;
mod police;
mod proxy;
mod quoted;
mod remove;
mod reset;
mod rewrite;
mod spec;
mod split;
mod strip;
mod unknown;
mod window;

use manypath_tcp::time::{Duration, Instant};
use serde::{Deserialize, Serialize};

use crate::packet::{Packet, Pool};
use crate::rng::Rng;

pub use ack_check::{AckCheck, AckCheckSpec, WrongAck};
pub use blackhole::{Blackhole, BlackholeSpec};
pub use coalesce::{Coalesce, CoalesceSpec, JoinedOptions};
pub use corrupt::{Corrupt, CorruptSpec};
pub(crate) use edit::MPTCP;
pub use hole::{DropAfterHole, DropAfterHoleSpec};
pub use isn::{Isn, IsnSpec};
pub use nat::{Nat, NatSpec, Unknown};
pub use original::{Original, OriginalSpec};
pub use police::{Police, PoliceSpec};
pub use proxy::{Proxy, ProxySpec};
pub use remove::{RemovableOption, RemoveOption, RemoveOptionSpec};
pub use reset::{Reset, ResetSpec};
pub use rewrite::{Rewrite, RewriteSpec};
pub use spec::BoxSpec;
pub use split::{Split, SplitSpec};
pub use strip::{Phase, Strip, StripSpec};
pub use unknown::{DropUnknown, DropUnknownSpec};
pub use window::{ShrinkWindow, ShrinkWindowSpec};

/// Which way a packet crosses a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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

    /// A number to keep something for each way.
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Out => 0,
            Self::In => 1,
        }
    }

    /// This way is among those meant: all, if none is named.
    #[must_use]
    pub fn is_meant_by(self, named: Option<Self>) -> bool {
        named.is_none_or(|named| named == self)
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
    /// What people call it: the word of a scenario file.
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

    /// Packets that it changed, ended, held back or made: whether it was met at all.
    fn touched(&self) -> u64;
}

#[cfg(test)]
pub(crate) mod bench {
    //! A box on a table: packets in, packets out.

    use super::*;
    use crate::view::tests::checksums_hold;

    /// A box with what it needs.
    pub(crate) struct Bench<B> {
        pub(crate) middlebox: B,
        pub(crate) now: Instant,
        /// What comes out must have right checksums.
        pub(crate) expect_checksums: bool,
        pool: Pool,
        rng: Rng,
    }

    impl<B: Middlebox> Bench<B> {
        pub(crate) fn new(middlebox: B) -> Self {
            Self {
                middlebox,
                now: Instant::ZERO,
                expect_checksums: true,
                pool: Pool::default(),
                rng: Rng::new(1),
            }
        }

        fn collect(&mut self, act: impl FnOnce(&mut B, &mut Desk<'_>)) -> Vec<(Way, Vec<u8>)> {
            let mut verdicts = Vec::new();
            act(
                &mut self.middlebox,
                &mut Desk {
                    now: self.now,
                    pool: &mut self.pool,
                    rng: &mut self.rng,
                    verdicts: &mut verdicts,
                },
            );
            let mut through = Vec::new();
            for verdict in verdicts {
                match verdict {
                    Verdict::Forward(way, packet) | Verdict::Delay(way, _, packet) => {
                        let right = !self.expect_checksums || checksums_hold(packet.bytes());
                        assert!(right, "checksums after the box");
                        through.push((way, packet.bytes().to_vec()));
                        self.pool.give(packet);
                    }
                    Verdict::Drop(packet, why) => {
                        assert!(!why.is_empty());
                        self.pool.give(packet);
                    }
                }
            }
            through
        }

        /// Everything that comes out when a packet goes in.
        pub(crate) fn pass(&mut self, way: Way, bytes: &[u8]) -> Vec<(Way, Vec<u8>)> {
            let packet = self.pool.copy_of(bytes);
            self.collect(|middlebox, desk| middlebox.handle(way, packet, desk))
        }

        /// What comes out when a packet goes in, if it is one packet that goes on the same way.
        pub(crate) fn one(&mut self, way: Way, bytes: &[u8]) -> Option<Vec<u8>> {
            let mut all = self.pass(way, bytes);
            assert!(all.len() <= 1, "{} packets instead of one", all.len());
            let (to, bytes) = all.pop()?;
            assert_eq!(to, way);
            Some(bytes)
        }

        /// Time goes on to `now`; everything that comes out at the box's deadlines until then.
        pub(crate) fn until(&mut self, now: Instant) -> Vec<(Way, Vec<u8>)> {
            let mut all = Vec::new();
            while let Some(due) = self.middlebox.deadline().filter(|due| *due <= now) {
                self.now = self.now.max(due);
                all.extend(self.collect(|middlebox, desk| middlebox.on_deadline(desk)));
                assert_ne!(
                    self.middlebox.deadline(),
                    Some(due),
                    "a deadline makes progress"
                );
            }
            self.now = now;
            all
        }

        /// Buffers that the box still has.
        pub(crate) fn kept(&self) -> usize {
            self.pool.in_use()
        }
    }
}
