//! Attacks on joins and address signals (RFC 8684 sections 3.2, 3.4 and 6).

use core::net::{IpAddr, SocketAddr};

use manypath_stack::crypto::mac;
use manypath_tcp::time::Instant;
use manypath_wire::ids::{AddrId, FourTuple, Mss, Nonce, Token};
use manypath_wire::segment::Segment;
use manypath_wire::seq::SeqNum;
use manypath_wire::tcp::header::Flags;
use manypath_wire::tcp::mptcp::{AddAddr, AddrIds, Join, MptcpOption, RemoveAddr};

use super::crowd::Crowd;
use super::peer::{Shape, Stand};
use super::{Attack, Desk, OWN, Pace, SERVER};

/// What a flood of joins has for tokens and codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knowledge {
    /// Guesses tokens.
    Nothing,
    /// Has overheard the token of the honest client's connection.
    Token,
    /// Has it, answers from its own address, and guesses codes.
    TokenAndPlace,
    /// Has overheard a whole join and repeats it, code included.
    Join,
}

/// A flood of joins.
#[derive(Debug)]
pub struct JoinFlood {
    pace: Pace,
    knows: Knowledge,
    token: Option<(Token, Nonce)>,
    code: Option<[u8; 20]>,
    port: u16,
}

impl JoinFlood {
    /// So many a second.
    #[must_use]
    pub fn new(per_second: u64, knows: Knowledge) -> Self {
        Self {
            pace: Pace::new(per_second),
            knows,
            token: None,
            code: None,
            port: 10_000,
        }
    }

    fn from(&mut self, desk: &mut Desk<'_>) -> SocketAddr {
        match self.knows {
            Knowledge::Nothing | Knowledge::Token => desk.made_up(),
            Knowledge::TokenAndPlace | Knowledge::Join => {
                self.port = self.port.checked_add(1).unwrap_or(10_000);
                SocketAddr::new(OWN[0], self.port)
            }
        }
    }
}

impl Attack for JoinFlood {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        let guess = (Token(desk.rng.bits() as u32), Nonce(desk.rng.bits() as u32));
        let (token, nonce) = match (self.knows, self.token) {
            (Knowledge::Nothing, _) => guess,
            (Knowledge::Join, Some(overheard)) => overheard,
            (Knowledge::Token | Knowledge::TokenAndPlace, Some((token, _))) => (token, guess.1),
            (_, None) => return,
        };
        let tuple = FourTuple::new(self.from(desk), SERVER);
        let isn = SeqNum::new(desk.rng.bits() as u32);
        let mut shape = Shape::new(Flags::SYN, isn, SeqNum::new(0));
        shape.options.mss = Some(Mss(1460));
        let join = Join::Syn {
            backup: false,
            addr_id: AddrId(77),
            token,
            nonce,
        };
        desk.send(shape.with(MptcpOption::Join(join)).packet(&tuple, &[]));
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        if !seg.header.flags.syn() {
            return;
        }
        let hmac = match (self.knows, self.code) {
            (Knowledge::Join, Some(code)) => code,
            _ => {
                let mut code = [0; 20];
                code.copy_from_slice(&desk.rng.bytes()[..20]);
                code
            }
        };
        let shape = Shape::new(Flags::ACK, seg.header.ack, seg.header.seq + 1);
        let tuple = seg.tuple;
        desk.send(
            shape
                .with(MptcpOption::Join(Join::Ack { hmac }))
                .packet(&tuple, &[]),
        );
    }

    fn overhear(&mut self, seg: &Segment<'_>, _desk: &mut Desk<'_>) {
        match seg.options.mptcp.join() {
            Some(Join::Syn { token, nonce, .. }) if self.token.is_none() => {
                self.token = Some((*token, *nonce));
            }
            Some(Join::Ack { hmac }) if self.code.is_none() => self.code = Some(*hmac),
            _ => {}
        }
    }
}

/// A peer of its own connection that announces and withdraws addresses without end, each with a right code.
#[derive(Debug)]
pub struct AddAddrStorm {
    pace: Pace,
    crowd: Crowd,
    round: u32,
}

impl AddAddrStorm {
    /// So many a second.
    #[must_use]
    pub fn new(per_second: u64) -> Self {
        Self {
            pace: Pace::new(per_second),
            crowd: Crowd::new(SERVER),
            round: 0,
        }
    }
}

impl Attack for AddAddrStorm {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        if self.crowd.peers.is_empty() {
            self.crowd.open(desk, |_| {});
            return;
        }
        let peer = &mut self.crowd.peers[0];
        let Some(keys) = peer.keys() else { return };
        if self.round == 0 {
            // Address signals count once the connection is fully established: data first.
            self.round = 1;
            desk.send(peer.send(b"hello"));
            return;
        }
        self.round += 1;
        let id = AddrId((self.round / 2 % 250 + 1) as u8);
        let option = if self.round % 2 == 0 {
            let [_, b, c, d] = self.round.to_be_bytes();
            let addr = IpAddr::from([198, 18 | b & 1, c, d]);
            let hmac = mac::add_addr(keys, id, addr, None);
            MptcpOption::AddAddr(AddAddr {
                echo: false,
                addr_id: id,
                addr,
                port: None,
                hmac: Some(hmac),
            })
        } else {
            let mut ids = AddrIds::EMPTY;
            let taken = ids.push(id);
            debug_assert!(taken, "an empty list takes one");
            MptcpOption::RemoveAddr(RemoveAddr { ids })
        };
        let mut shape = Shape::new(Flags::ACK, peer.next, peer.expected);
        shape.window = peer.window;
        desk.send(shape.with(option).packet(&peer.tuple, &[]));
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        self.crowd.hear(seg, desk);
    }
}

/// Connections that take all the subflows that they may have, prove each of them, and use none.
#[derive(Debug)]
pub struct JoinHoard {
    pace: Pace,
    crowd: Crowd,
    connections: usize,
    joins: usize,
    /// Joins of the connection whose turn it is.
    begun: usize,
    /// The peers that are connections.
    first: Vec<usize>,
}

impl JoinHoard {
    /// So many SYNs a second, for so many connections of so many subflows.
    #[must_use]
    pub fn new(per_second: u64, connections: usize, subflows: usize) -> Self {
        Self {
            pace: Pace::new(per_second),
            crowd: Crowd::new(SERVER),
            connections,
            joins: subflows - 1,
            begun: 0,
            first: Vec::new(),
        }
    }
}

impl Attack for JoinHoard {
    fn next(&self) -> Option<Instant> {
        self.pace.next()
    }

    fn act(&mut self, desk: &mut Desk<'_>) {
        self.pace.tick();
        if self.first.len() < self.connections {
            let number = self.crowd.open(desk, |_| {});
            self.first.push(number);
            return;
        }
        let turn = self.begun / self.joins;
        let Some(first) = self.first.get(turn).copied() else {
            // Once more: what was refused may be let in now.
            self.begun = 0;
            return;
        };
        self.begun += 1;
        if self.crowd.peers[first].stand == Stand::Open && !self.crowd.is_full() {
            self.crowd.join(first, desk);
        }
    }

    fn receive(&mut self, seg: &Segment<'_>, desk: &mut Desk<'_>) {
        let Some((number, heard)) = self.crowd.hear(seg, desk) else {
            return;
        };
        if heard.opened && self.first.contains(&number) {
            // Joins count once the connection is fully established: data first.
            let hello = self.crowd.peers[number].send(&[0; 4]);
            desk.send(hello);
        }
    }
}
