//! Many peers made by hand, found by their port.

use core::net::SocketAddr;

use manypath_wire::ids::FourTuple;
use manypath_wire::segment::Segment;

use super::peer::{Heard, Peer};
use super::{Desk, OWN};

const FIRST_PORT: u16 = 10_000;
const PORTS: usize = 50_000;

/// The connections and subflows of an attacker.
#[derive(Debug)]
pub(super) struct Crowd {
    to: SocketAddr,
    pub(super) peers: Vec<Peer>,
}

impl Crowd {
    pub(super) fn new(to: SocketAddr) -> Self {
        Self {
            to,
            peers: Vec::new(),
        }
    }

    /// It has used all its ports.
    pub(super) fn is_full(&self) -> bool {
        self.peers.len() >= PORTS * OWN.len()
    }

    fn tuple(&self) -> FourTuple {
        let number = self.peers.len();
        let port = FIRST_PORT + (number % PORTS) as u16;
        FourTuple::new(
            SocketAddr::new(OWN[number / PORTS % OWN.len()], port),
            self.to,
        )
    }

    /// Opens a connection, with changes to the usual peer.
    pub(super) fn open(&mut self, desk: &mut Desk<'_>, change: impl FnOnce(&mut Peer)) -> usize {
        let (key, isn) = (desk.rng.bits(), desk.rng.bits() as u32);
        let mut peer = Peer::new(self.tuple(), key, isn);
        change(&mut peer);
        self.start(peer, desk)
    }

    /// Opens one more subflow of a peer's connection.
    pub(super) fn join(&mut self, of: usize, desk: &mut Desk<'_>) -> usize {
        let (nonce, isn) = (desk.rng.bits() as u32, desk.rng.bits() as u32);
        let peer = self.peers[of].join(self.tuple(), nonce, isn);
        self.start(peer, desk)
    }

    fn start(&mut self, mut peer: Peer, desk: &mut Desk<'_>) -> usize {
        let number = self.peers.len();
        desk.send(peer.open(number as u8));
        self.peers.push(peer);
        number
    }

    /// A packet for one of them: which one, and what it meant.
    pub(super) fn hear(
        &mut self,
        seg: &Segment<'_>,
        desk: &mut Desk<'_>,
    ) -> Option<(usize, Heard)> {
        let of = OWN.iter().position(|own| *own == seg.tuple.local.ip())?;
        let port = seg.tuple.local.port().checked_sub(FIRST_PORT)?;
        let number = of * PORTS + usize::from(port);
        let peer = self.peers.get_mut(number)?;
        let mut heard = peer.hear(seg);
        for reply in heard.replies.drain(..) {
            desk.send(reply);
        }
        Some((number, heard))
    }
}
