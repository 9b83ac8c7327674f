//! Peers that send data as nobody should: ahead of holes, without mappings, with mappings that contradict each other.

use manypath_tcp::time::Instant;
use manypath_wire::segment::Segment;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{Dss, MptcpOption};

use super::crowd::Crowd;
use super::peer::{Peer, Shape, Stand};
use super::{Attack, Desk, Pace, SERVER};

/// What is wrong with the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Every subflow leaves its first byte out and fills the rest of the window.
    Holes,
    /// Every second byte is missing, and every segment has one byte.
    Crumbs,
    /// In order on its subflow, mapped far ahead of the stream.
    FarAhead,
    /// Mappings that overlap and disagree.
    Overlapping,
    /// Mappings whose bytes never come.
    OnlyMappings,
    /// Bytes whose mappings never come.
    Unmapped,
}

/// Peers with such data.
#[derive(Debug)]
pub struct Flows {
    pace: Pace,
    fault: Fault,
    subflows: usize,
    crowd: Crowd,
    /// Segments sent on each subflow.
    sent: Vec<u32>,
    turn: usize,
}

const PIECE: [u8; 1000] = [0x5a; 1000];

impl Flows {
    /// So many packets a second on so many subflows of one connection.
    #[must_use]
    pub fn new(per_second: u64, subflows: usize, fault: Fault) -> Self {
        Self {
            pace: Pace::new(per_second),
            fault,
            subflows,
            crowd: Crowd::new(SERVER),
            sent: Vec::new(),
            turn: 0,
        }
    }

    /// Opens what is still missing; true when it sent something.
    fn grow(&mut self, desk: &mut Desk<'_>) -> bool {
        let count = self.crowd.peers.len();
        let first = self
            .crowd
            .peers
            .iter()
            .position(|peer| peer.stand != Stand::Gone);
        match first {
            // Nothing, or the server has ended it: again from the beginning.
            None => {
                self.crowd.open(desk, |_| {});
                true
            }
            Some(first) if self.crowd.peers[first].stand == Stand::Opening => true,
            Some(first) if self.crowd.peers[first].position == 0 => {
                let hello = self.crowd.peers[first].send(&[0; 8]);
                desk.send(hello);
                true
            }
            Some(first) if count - first < self.subflows => {
                self.crowd.join(first, desk);
                true
            }
            Some(_) => false,
        }
    }

    fn strike(&mut self, number: usize, desk: &mut Desk<'_>) {
        let first = &self.crowd.peers[0];
        let start = first.position;
        let peer = &mut self.crowd.peers[number];
        let sent = &mut self.sent[number];
        let n = *sent;
        *sent += 1;
        match self.fault {
            Fault::Holes => {
                let ahead = 1 + n * 1000;
                desk.send(peer.data(ahead, start + 1 + u64::from(ahead), &PIECE));
            }
            Fault::Crumbs => {
                let ahead = 1 + n * 2;
                desk.send(peer.data(ahead, start + u64::from(ahead), &PIECE[..1]));
            }
            Fault::FarAhead => {
                let position = start + 60_000 + desk.rng.below(7 << 20);
                let packet = peer.data(0, position, &PIECE[..1]);
                peer.next += 1;
                desk.send(packet);
            }
            Fault::Overlapping => {
                let ahead = 1 + desk.rng.below(60_000) as u32;
                let position = start + 1 + desk.rng.below(60_000);
                let len = 1 + desk.rng.below(999) as usize;
                desk.send(peer.data(ahead, position, &PIECE[..len]));
            }
            Fault::OnlyMappings => desk.send(bare_mapping(peer, n, start)),
            Fault::Unmapped => {
                let shape = Shape::new(Flags::ACK, peer.next, peer.expected);
                peer.next += PIECE.len() as u32;
                desk.send(shape.packet(&peer.tuple, &PIECE));
            }
        }
    }
}

fn bare_mapping(peer: &Peer, number: u32, start: u64) -> Vec<u8> {
    let ahead = 1 + number * 10;
    let mapping = peer.mapping(ahead, start + u64::from(ahead), &PIECE[..5]);
    let dss = Dss {
        data_ack: peer.data_ack(),
        mapping: Some(mapping),
        data_fin: false,
    };
    let shape = Shape::new(Flags::ACK, peer.next, peer.expected);
    shape.with(MptcpOption::Dss(dss)).packet(&peer.tuple, &[])
}

impl Attack for Flows {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        if self.grow(desk) {
            return;
        }
        self.sent.resize(self.crowd.peers.len(), 0);
        for _ in 0..self.crowd.peers.len() {
            self.turn = (self.turn + 1) % self.crowd.peers.len();
            if self.crowd.peers[self.turn].stand == Stand::Open {
                return self.strike(self.turn, desk);
            }
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        self.crowd.hear(seg, desk);
    }
}
