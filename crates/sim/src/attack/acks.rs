//! Receivers that lie about what they have (optimistic and divided acknowledgements), to make a sender faster than it
//! should be.

use manypath_tcp::time::Instant;
use manypath_wire::segment::Segment;

use super::crowd::Crowd;
use super::peer::Peer;
use super::{Attack, Desk, Pace, SERVER};

/// How a receiver lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Not at all: the measure for the others.
    None,
    /// One acknowledgement in many parts.
    Divided(u32),
    /// For data that was never sent, at both levels.
    Unsent,
    /// For everything up to what arrived, and for what was lost on the way too.
    Concealed,
}

/// The window field that it tells: 256 KB.
const WINDOW: u16 = 1024;

/// A receiver of a long transfer.
#[derive(Debug)]
pub struct Liar {
    pace: Pace,
    lie: Lie,
    crowd: Crowd,
    /// Bytes that it was sent.
    pub got: u64,
    asked: bool,
}

impl Liar {
    /// A receiver.
    #[must_use]
    pub fn new(lie: Lie) -> Self {
        Self {
            pace: Pace::new(200),
            lie,
            crowd: Crowd::new(SERVER),
            got: 0,
            asked: false,
        }
    }

    fn answer(
        &mut self,
        number: usize,
        before: (u64, manypath_wire::seq::SeqNum),
        desk: &mut Desk<'_>,
    ) {
        let peer = &mut self.crowd.peers[number];
        match self.lie {
            Lie::None | Lie::Concealed => desk.send(peer.ack().packet(&peer.tuple, &[])),
            Lie::Divided(parts) => {
                let total = peer.expected.since(before.1);
                for part in 1..=parts {
                    let mut step: Peer = peer.clone();
                    let share = u64::from(total) * u64::from(part) / u64::from(parts);
                    step.expected = before.1 + share as u32;
                    step.taken = before.0 + share;
                    desk.send(step.ack().packet(&step.tuple, &[]));
                }
            }
            Lie::Unsent => {
                desk.send(peer.ack().packet(&peer.tuple, &[]));
                for ahead in [100_000, 1_000_000, 100_000_000] {
                    let mut step: Peer = peer.clone();
                    step.expected += ahead;
                    step.taken += u64::from(ahead);
                    desk.send(step.ack().packet(&step.tuple, &[]));
                    step.expected = peer.expected;
                    desk.send(step.ack().packet(&step.tuple, &[]));
                }
            }
        }
    }
}

impl Attack for Liar {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        if self.crowd.peers.is_empty() {
            self.crowd.open(desk, |peer| peer.window = WINDOW);
        } else if !self.asked && self.crowd.peers[0].keys().is_some() {
            self.asked = true;
            let request = self.crowd.peers[0].send(&(1_u64 << 50).to_be_bytes());
            desk.send(request);
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let before = self
            .crowd
            .peers
            .first()
            .map(|peer| (peer.taken, peer.expected));
        if self.lie == Lie::Concealed {
            if let Some(peer) = self.crowd.peers.first_mut() {
                // What is missing was never missed.
                let jump = seg.header.seq.diff(peer.expected);
                if jump > 0 && !seg.payload.is_empty() {
                    peer.expected = seg.header.seq;
                    peer.taken += u64::from(jump.unsigned_abs());
                }
            }
        }
        let Some((number, heard)) = self.crowd.hear(seg, desk) else {
            return;
        };
        self.got += seg.payload.len() as u64;
        if let Some(before) = before.filter(|_| heard.bytes > 0) {
            self.answer(number, before, desk);
        } else if !seg.payload.is_empty() {
            let peer = &self.crowd.peers[number];
            desk.send(peer.ack().packet(&peer.tuple, &[]));
        }
    }
}
