//! Oracles: what must hold on every packet of every run, whatever the network does.
//!
//! Each host has a watch that sees what the host sends and what reaches it, in that order, and holds the host to the
//! rules of TCP and Multipath TCP: it may only use what it was given (windows, sequence space, acknowledgements), never
//! takes back what it said (right edges, mappings, acknowledgements, FINs, fallback), and writes well-formed packets.
//! The watch keeps a few numbers for each subflow and costs no allocation for an ordinary packet.

mod conn;
mod flow;
mod flows;

use core::fmt;
use core::net::IpAddr;

use manypath_stack::crypto::keys::KeyMaterial;
use manypath_tcp::time::Instant;
use manypath_wire::ids::{FourTuple, Key, Token};
use manypath_wire::tcp::mptcp::CapableKeys;
use rustc_hash::FxHashMap;

use crate::summary::Summary;
use conn::ConnWatch;
use flow::FlowWatch;
use flows::Flows;

/// What kind of rule was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// What a host may send.
    Wire,
    /// A reader gets what was written: all of it, and nothing else.
    Stream,
    /// Every run ends, and leaves nothing behind.
    End,
}

/// A rule that a host broke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub time: Instant,
    /// Which host.
    pub host: String,
    /// Which kind of rule.
    pub rule: Rule,
    /// What it did, with the numbers.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ns) = (
            self.time.as_nanos() / 1_000_000_000,
            self.time.as_nanos() % 1_000_000_000,
        );
        write!(f, "{s}.{ns:09} {}: {}", self.host, self.what)
    }
}

/// What a rule says about a packet: nothing, or how it was broken.
pub(crate) type Verdict = Result<(), String>;

/// Watches one host.
#[derive(Debug, Default)]
pub struct Watch {
    flows: Flows,
    conns: Connections,
    packets: u64,
}

/// The connections of a host.
#[derive(Debug, Default)]
struct Connections {
    list: Vec<ConnWatch>,
    /// Connections by the token that this host gave out.
    own_tokens: FxHashMap<Token, usize>,
    /// Connections by the token that the peer gave out.
    peer_tokens: FxHashMap<Token, usize>,
}

impl Connections {
    /// Both keys passed on a subflow: it is the first one of a connection, which is new unless they are repeated.
    fn begin(&mut self, flow: &mut FlowWatch, own: Key, peer: Key) {
        if flow.conn.is_some() {
            return;
        }
        let (own, peer) = (KeyMaterial::derive(own), KeyMaterial::derive(peer));
        let index = self.list.len();
        flow.conn = Some(index);
        flow.is_first = true;
        self.list
            .push(ConnWatch::new(own.idsn, peer.idsn, flow.peer_room()));
        self.own_tokens.insert(own.token, index);
        self.peer_tokens.insert(peer.token, index);
    }

    fn of(&mut self, flow: &FlowWatch) -> Option<&mut ConnWatch> {
        flow.conn.and_then(|index| self.list.get_mut(index))
    }
}

impl Watch {
    /// Packets seen.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The host sends a packet.
    pub fn sent(&mut self, packet: &Summary) -> Verdict {
        self.packets += 1;
        // The summary names the tuple as the receiver does.
        let tuple = packet.tuple.reversed();
        if packet.flags.syn() {
            self.flow_begins(tuple, packet, true);
        }
        let Some(flow) = self.flows.get_mut(&tuple) else {
            // A reset for something unknown, or the last word of a subflow that the watch never saw begin.
            return Ok(());
        };
        if packet.flags.rst() {
            // Who ends it with an acknowledgement forgets it, and a SYN that comes again begins another one. (One without is an
            // answer to something stray.)
            flow.gone |= packet.flags.ack();
            return Ok(());
        }
        flow.sent(packet)?;
        if let Some((own, peer)) = keys_of(packet) {
            self.conns.begin(flow, own, peer);
        } else if let Some(token) = packet.join_token {
            let Some(conn) = self.conns.peer_tokens.get(&token) else {
                return Err(format!(
                    "{tuple} joins a connection that the peer never opened"
                ));
            };
            flow.conn = Some(*conn);
        }
        match self.conns.of(flow) {
            Some(conn) => conn.sent(flow, packet),
            None => Ok(()),
        }
    }

    /// A packet reaches the host.
    pub fn received(&mut self, packet: &Summary) {
        let tuple = packet.tuple;
        let answers_another =
            |flow: &mut FlowWatch| flow.isn.is_some_and(|isn| packet.ack != isn + 1);
        if packet.flags.syn()
            && packet.flags.ack()
            && self.flows.get_mut(&tuple).is_some_and(answers_another)
        {
            return; // An answer to an older SYN with the same addresses and ports; the host must refuse it.
        }
        if packet.flags.syn() {
            self.flow_begins(tuple, packet, false);
        }
        let Some(flow) = self.flows.get_mut(&tuple) else {
            return;
        };
        if packet.flags.rst() {
            // It may be a forged one that the host rightly ignores.
            flow.unsure = true;
            return;
        }
        if flow.rival.is_some() && packet.flags.syn() {
            return; // It does not belong to this subflow, and perhaps never will.
        }
        flow.received(packet);
        if let Some((peer, own)) = keys_of(packet) {
            self.conns.begin(flow, own, peer);
        } else if let Some(token) = packet.join_token {
            // A peer may send any token; the host must refuse one that it never gave out.
            flow.conn = self.conns.own_tokens.get(&token).copied().or(flow.conn);
        }
        if let Some(conn) = self.conns.of(flow) {
            conn.received(flow, packet);
        }
    }

    /// The host lost an address. It may know what it had there when the address is back.
    pub(crate) fn address_gone(&mut self, address: IpAddr) {
        for flow in self.flows.at(address) {
            flow.unsure = true;
        }
    }

    /// A SYN passes: begins a subflow unless it repeats or answers one that is known. A foreign SYN in the middle of a
    /// subflow begins one only if the host takes it up: a live subflow answers with a challenge (RFC 5961).
    fn flow_begins(&mut self, tuple: FourTuple, packet: &Summary, ours: bool) {
        let Some(known) = self.flows.get_mut(&tuple) else {
            self.flows.insert(tuple, FlowWatch::default());
            return;
        };
        let is_other = known.irs.is_some_and(|irs| irs != packet.seq);
        let may_be_new = known.unsure && known.isn.is_some() && !packet.flags.ack();
        if known.gone || ours && known.is_another(packet) {
            self.flows.insert(tuple, FlowWatch::default());
        } else if !ours && (is_other || may_be_new) {
            known.rival = Some(Box::new(packet.clone()));
        } else if ours && packet.flags.ack() && known.isn.is_some_and(|isn| isn != packet.seq) {
            let answers = |rival: &mut Box<Summary>| packet.ack == rival.seq + 1;
            if let Some(rival) = known.rival.take_if(answers) {
                self.flows.insert(tuple, FlowWatch::default());
                self.received(&rival);
            } else if known.is_begun_anew(packet) {
                let anew = known.anew();
                self.flows.insert(tuple, anew);
            }
        }
    }
}

/// The keys of sender and receiver, in a segment that has both.
fn keys_of(packet: &Summary) -> Option<(Key, Key)> {
    match packet.capable?.keys {
        CapableKeys::Ack { sender, receiver } => Some((sender, receiver)),
        CapableKeys::Data {
            sender, receiver, ..
        } => Some((sender, receiver)),
        CapableKeys::Syn | CapableKeys::SynAck { .. } => None,
    }
}
