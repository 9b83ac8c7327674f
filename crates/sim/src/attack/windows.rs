//! Peers that make a receiver keep more than its window, for an application that does not read.

use core::net::SocketAddr;

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;

use super::crowd::Crowd;
use super::peer::{Shape, Stand, capable_syn, plain_syn};
use super::{Attack, DEAF, Desk, OWN, Pace};

/// Payload of one segment of [`Creep`]: it repeats a byte, so the stream grows by one less than the unit of a window scale of 8.
const CRUMB: [u8; 256] = [0x6f; 256];
const PIECE: [u8; 1000] = [0x7a; 1000];
/// Attempts of a subflow that brings nothing more before the next one has its turn.
const ATTEMPTS: u32 = 100;

/// Plain TCP that sends so little at a time that each acknowledgement rounds the window up to a unit of its scale.
#[derive(Debug)]
pub struct Creep {
    pace: Pace,
    /// It offers Multipath TCP and confirms it by nothing, so that the server falls back.
    offers: bool,
    tuple: FourTuple,
    /// The server's initial number, once it answered, and the scale of its windows.
    open: Option<(SeqNum, u8)>,
    next: SeqNum,
    acked: SeqNum,
    edge: SeqNum,
}

impl Creep {
    /// So many segments a second.
    #[must_use]
    pub fn new(per_second: u64, offers: bool) -> Self {
        let isn = SeqNum::new(1_000_000);
        Self {
            pace: Pace::new(per_second),
            offers,
            tuple: FourTuple::new(SocketAddr::new(OWN[0], 10_000), DEAF),
            open: None,
            next: isn,
            acked: isn,
            edge: isn,
        }
    }
}

impl Attack for Creep {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        let Some((irs, _)) = self.open else {
            desk.send(match self.offers {
                true => capable_syn(&self.tuple, self.next, 1460),
                false => plain_syn(&self.tuple, self.next, 1460),
            });
            return;
        };
        let fresh = CRUMB.len() as u32 - 1;
        let beyond = (self.next + fresh).after(self.edge);
        if beyond && self.acked.before(self.next) {
            // Something of it may be lost.
            self.next = self.acked;
        }
        // A closed window it tries to pass.
        let seq = if beyond { self.edge + 1 } else { self.next - 1 };
        let shape = Shape::new(Flags::ACK, seq, irs + 1);
        desk.send(shape.packet(&self.tuple, &CRUMB));
        if !beyond {
            self.next += fresh;
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let flags = seg.header.flags;
        if seg.tuple.local != self.tuple.local || flags.rst() {
            return;
        }
        if flags.syn() && self.open.is_none() {
            self.open = Some((seg.header.seq, seg.options.window_scale.unwrap_or(0)));
            self.next = seg.header.ack;
            self.acked = self.next;
            self.edge = self.next + u32::from(seg.header.window);
            let shape = Shape::new(Flags::ACK, self.next, seg.header.seq + 1);
            desk.send(shape.packet(&self.tuple, &[]));
            return;
        }
        let Some((_, scale)) = self.open.filter(|_| !flags.syn()) else {
            return;
        };
        self.acked = self.acked.max(seg.header.ack);
        let edge = seg.header.ack + (u32::from(seg.header.window) << scale);
        self.edge = self.edge.max(edge);
    }
}

/// One subflow of [`IdleSubflows`], as its peer knows it.
#[derive(Clone, Copy, Debug)]
struct Told {
    acked: SeqNum,
    edge: SeqNum,
    scale: u8,
}

/// A connection of many subflows, each of which keeps the window that it was told once, and uses it when those before it have
/// moved the Data ACK.
#[derive(Debug)]
pub struct IdleSubflows {
    pace: Pace,
    subflows: usize,
    crowd: Crowd,
    told: Vec<Option<Told>>,
    turn: usize,
    attempts: u32,
}

impl IdleSubflows {
    /// So many segments a second, on so many subflows.
    #[must_use]
    pub fn new(per_second: u64, subflows: usize) -> Self {
        Self {
            pace: Pace::new(per_second),
            subflows,
            crowd: Crowd::new(DEAF),
            told: vec![None; subflows],
            turn: 0,
            attempts: 0,
        }
    }

    fn fill(&mut self, desk: &mut Desk<'_>) {
        let position = self.crowd.peers[0].position;
        let peer = &mut self.crowd.peers[self.turn];
        let told = self.told[self.turn].filter(|_| peer.stand == Stand::Open);
        let Some(told) = told else {
            self.turn = (self.turn + 1) % self.subflows;
            return;
        };
        let len = PIECE.len() as u32;
        if (peer.next + len).before_eq(told.edge) {
            desk.send(peer.data(0, position, &PIECE));
            peer.next += len;
            self.crowd.peers[0].position += u64::from(len);
            self.attempts = 0;
            return;
        }
        self.attempts += 1;
        let missing = peer.next.since(told.acked);
        if missing > 0 && self.attempts < ATTEMPTS {
            // It keeps asking.
            let shape = peer.ack();
            desk.send(shape.packet(&peer.tuple, &[]));
            return;
        }
        // What this one could not bring, the next one does.
        peer.next = told.acked;
        self.crowd.peers[0].position -= u64::from(missing);
        (self.turn, self.attempts) = ((self.turn + 1) % self.subflows, 0);
    }
}

impl Attack for IdleSubflows {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        match self.crowd.peers.first().map(|peer| peer.stand) {
            None => {
                self.crowd.open(desk, |_| {});
            }
            Some(Stand::Opening | Stand::Gone) => {}
            Some(Stand::Open) if self.crowd.peers[0].position == 0 => {
                let hello = self.crowd.peers[0].send(&[0; 8]);
                desk.send(hello);
            }
            Some(Stand::Open) if self.crowd.peers.len() < self.subflows => {
                self.crowd.join(0, desk);
            }
            Some(Stand::Open) => self.fill(desk),
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let Some((number, _)) = self.crowd.hear(seg, desk) else {
            return;
        };
        let header = &seg.header;
        let told = &mut self.told[number];
        if header.flags.syn() {
            let edge = header.ack + u32::from(header.window);
            let scale = seg.options.window_scale.unwrap_or(0);
            let first = Told {
                acked: header.ack,
                edge,
                scale,
            };
            told.get_or_insert(first);
        } else if let Some(told) = told {
            told.acked = told.acked.max(header.ack);
            let edge = header.ack + (u32::from(header.window) << told.scale);
            told.edge = told.edge.max(edge);
        }
    }
}
