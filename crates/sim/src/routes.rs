//! Shortest ways through the routers to every address.

use core::hash::Hasher;
use core::net::IpAddr;
use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHasher};

use crate::fabric::{LinkId, NodeId, Port, Side};
use crate::view::{TcpView, addresses};

/// Which ends of links lead towards which address.
#[derive(Debug, Default)]
pub struct Routes {
    links: Vec<[NodeId; 2]>,
    /// For each address and router, the ports on shortest ways, in a fixed order.
    ways: FxHashMap<(IpAddr, NodeId), Vec<Port>>,
    /// Routers that give each new flow the next way in turn.
    in_turn: Vec<NodeId>,
    /// The turns of flows at such routers, and how many there are for each address.
    turns: FxHashMap<(NodeId, u64), u64>,
    flows: FxHashMap<(IpAddr, NodeId), u64>,
}

impl Routes {
    /// Notes the next link.
    pub fn add_link(&mut self, nodes: [NodeId; 2]) {
        self.links.push(nodes);
    }

    /// Finds the ways to an address at a host's port. `is_router` is by node; hosts forward nothing. Links must all be
    /// known by now.
    pub fn add_address(&mut self, address: IpAddr, port: Port, is_router: &[bool]) {
        self.ways.retain(|(known, _), _| *known != address);
        let gateway = self.node(port.peer());
        if !is_router[gateway.0 as usize] {
            return;
        }
        let mut distance: FxHashMap<NodeId, u32> = FxHashMap::default();
        distance.insert(gateway, 0);
        self.ways.insert((address, gateway), vec![port.peer()]);
        let mut reached = VecDeque::from([gateway]);
        while let Some(router) = reached.pop_front() {
            let next = distance[&router] + 1;
            for (neighbour, way) in self.neighbours(router) {
                if !is_router[neighbour.0 as usize] {
                    continue;
                }
                let known = *distance.entry(neighbour).or_insert_with(|| {
                    reached.push_back(neighbour);
                    next
                });
                if known == next {
                    self.ways.entry((address, neighbour)).or_default().push(way);
                }
            }
        }
    }

    /// The nodes next to `router`, with the neighbour's end of the link between them.
    fn neighbours(&self, router: NodeId) -> Vec<(NodeId, Port)> {
        let ports = (0..self.links.len() as u32).flat_map(|link| {
            [Side::A, Side::B].map(|side| Port {
                link: LinkId(link),
                side,
            })
        });
        ports
            .filter(|port| self.node(*port) == router)
            .map(|port| (self.node(port.peer()), port.peer()))
            .collect()
    }

    fn node(&self, port: Port) -> NodeId {
        let [a, b] = self.links[port.link.0 as usize];
        match port.side {
            Side::A => a,
            Side::B => b,
        }
    }

    /// Makes a router give flows its ways in turn instead of by their hash.
    pub fn take_turns(&mut self, router: NodeId) {
        self.in_turn.push(router);
    }

    /// Where `router` sends a packet whose flow has this hash.
    pub fn next_hop(&mut self, router: NodeId, packet: &[u8], hash: u64) -> Option<Port> {
        let (_, destination) = addresses(packet)?;
        let ways = self.ways.get(&(destination, router))?;
        if self.in_turn.contains(&router) {
            let turn = *self.turns.entry((router, hash)).or_insert_with(|| {
                let flows = self.flows.entry((destination, router)).or_default();
                *flows += 1;
                *flows - 1
            });
            return ways.get((turn % ways.len() as u64) as usize).copied();
        }
        // Each router mixes its own number in, or routers in a row would all decide alike.
        let mixed = (hash ^ u64::from(router.0)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ways.get(((mixed >> 32) % ways.len() as u64) as usize)
            .copied()
    }
}

/// A hash of addresses and ports: packets of one flow take one way.
#[must_use]
pub fn flow_hash(packet: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    match addresses(packet) {
        Some((IpAddr::V4(src), IpAddr::V4(dst))) => {
            hasher.write_u32(src.to_bits());
            hasher.write_u32(dst.to_bits());
        }
        Some((IpAddr::V6(src), IpAddr::V6(dst))) => {
            hasher.write_u128(src.to_bits());
            hasher.write_u128(dst.to_bits());
        }
        _ => {}
    }
    if let Some(view) = TcpView::of(packet) {
        let (from, to) = view.ports(packet);
        hasher.write_u32(u32::from(from) << 16 | u32::from(to));
    }
    hasher.finish()
}
