//! Peers that only want to be remembered: many connections that hold memory and do nothing with it.

use core::net::SocketAddr;

use manypath_tcp::time::Instant;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;

use super::crowd::Crowd;
use super::peer::Stand;
use super::{Attack, DEAF, Desk, Pace, SERVER};

/// What each of the connections does once it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Nothing.
    Idle,
    /// Asks for much and closes its window.
    ClosedWindow,
    /// Asks for much in the smallest segments and a window of a few bytes.
    TinyWindow,
    /// Asks for much and acknowledges one byte now and then. The first of them is only slow: it asks for [`LITTLE`].
    TinyAcks,
    /// Fills the window of an application that does not read.
    Unread,
}

/// Bytes that a slow client asks for.
pub const LITTLE: u64 = 10_000;
/// Acts of the attacker between two acknowledgements of the slow client.
const SLOW: u64 = 100;

/// Many connections.
#[derive(Debug)]
pub struct Hoard {
    pace: Pace,
    habit: Habit,
    most: usize,
    crowd: Crowd,
    /// What has come to each, for those that acknowledge little of it.
    arrived: Vec<SeqNum>,
    acts: u64,
}

const PIECE: [u8; 1400] = [0x3c; 1400];

impl Hoard {
    /// So many connections, opened at so many a second.
    #[must_use]
    pub fn new(per_second: u64, most: usize, habit: Habit) -> Self {
        let to: SocketAddr = match habit {
            Habit::Unread => DEAF,
            Habit::Idle | Habit::ClosedWindow | Habit::TinyWindow | Habit::TinyAcks => SERVER,
        };
        Self {
            pace: Pace::new(per_second),
            habit,
            most,
            crowd: Crowd::new(to),
            arrived: Vec::new(),
            acts: 0,
        }
    }

    fn opened(&mut self, number: usize, desk: &mut Desk<'_>) {
        let peer = &mut self.crowd.peers[number];
        let request = (1_u64 << 50).to_be_bytes();
        match self.habit {
            Habit::Idle => {}
            Habit::ClosedWindow => {
                peer.window = 0;
                desk.send(peer.send(&request));
            }
            Habit::TinyWindow => {
                peer.window = 1;
                desk.send(peer.send(&request));
            }
            Habit::TinyAcks => {
                peer.window = 1;
                let slow = LITTLE.to_be_bytes();
                desk.send(peer.send(if number == 0 { &slow } else { &request }));
            }
            Habit::Unread => {
                for _ in 0..40 {
                    desk.send(peer.send(&PIECE));
                }
            }
        }
    }
}

impl Hoard {
    /// Connections that the server reset, in the order in which they were opened.
    pub fn reset(&self) -> impl Iterator<Item = usize> + '_ {
        let peers = self.crowd.peers.iter().enumerate();
        let gone = peers.filter(|(_, peer)| peer.stand == Stand::Gone);
        gone.map(|(number, _)| number)
    }

    /// The window, which is wider than that, stays as it is.
    fn acknowledge_a_byte(&mut self, number: usize, desk: &mut Desk<'_>) {
        let peer = &mut self.crowd.peers[number];
        if peer.stand == Stand::Open && self.arrived[number].after(peer.expected) {
            peer.expected += 1;
            peer.taken += 1;
            desk.send(peer.ack().packet(&peer.tuple, &[]));
        }
    }

    /// A segment arrived: nothing of it is acknowledged yet.
    fn keep_back(&mut self, number: usize, bytes: u32) {
        let peer = &mut self.crowd.peers[number];
        let arrived = &mut self.arrived[number];
        *arrived = peer.expected.max(*arrived);
        peer.expected -= bytes;
        peer.taken -= u64::from(bytes);
    }
}

impl Attack for Hoard {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        if self.crowd.peers.len() < self.most {
            let tiny = self.habit == Habit::TinyWindow;
            self.crowd.open(desk, |peer| {
                if tiny {
                    (peer.mss, peer.window) = (1, 1);
                }
            });
        } else if self.habit == Habit::TinyAcks {
            self.acts += 1;
            let number = match self.acts % SLOW {
                0 => 0,
                _ => desk.rng.below(self.crowd.peers.len() as u64) as usize,
            };
            self.acknowledge_a_byte(number, desk);
        } else if self.habit == Habit::Unread {
            // Whoever is still there sends more.
            let number = desk.rng.below(self.crowd.peers.len() as u64) as usize;
            let peer = &mut self.crowd.peers[number];
            if peer.stand == Stand::Open && peer.position < 4 << 20 {
                desk.send(peer.send(&PIECE));
            }
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let Some((number, heard)) = self.crowd.hear(seg, desk) else {
            return;
        };
        if self.habit == Habit::TinyAcks {
            self.arrived.resize(self.crowd.peers.len(), seg.header.seq);
            self.keep_back(number, heard.bytes);
        }
        if heard.opened {
            self.opened(number, desk);
        } else if self.habit == Habit::TinyAcks {
            // It has its own pace.
        } else if !seg.payload.is_empty() || self.habit == Habit::ClosedWindow {
            // Probes are answered: the peer is there, it just takes nothing.
            let peer = &self.crowd.peers[number];
            if peer.stand == Stand::Open {
                desk.send(peer.ack().packet(&peer.tuple, &[]));
            }
        }
    }
}
