//! The subflows that a watch knows, by four-tuple.

use core::net::IpAddr;

use manypath_wire::ids::FourTuple;
use rustc_hash::FxHashMap;

use super::flow::FlowWatch;

/// Places for subflows that were found last.
const RECENT: usize = 8;

/// Subflows by four-tuple. Those found last have a place of their own: each packet asks twice, and most are of few subflows.
#[derive(Debug, Default)]
pub(super) struct Flows {
    list: Vec<FlowWatch>,
    index: FxHashMap<FourTuple, usize>,
    recent: [Option<(FourTuple, usize)>; RECENT],
}

impl Flows {
    /// The subflow of a four-tuple, seen from the host.
    pub(super) fn get_mut(&mut self, tuple: &FourTuple) -> Option<&mut FlowWatch> {
        let recent = &mut self.recent[place(tuple)];
        let index = match recent {
            Some((known, index)) if known == tuple => *index,
            _ => {
                let index = *self.index.get(tuple)?;
                *recent = Some((*tuple, index));
                index
            }
        };
        self.list.get_mut(index)
    }

    /// Begins a subflow, in the place of one that had its addresses and ports before.
    pub(super) fn insert(&mut self, tuple: FourTuple, flow: FlowWatch) {
        match self.index.get(&tuple) {
            Some(index) => self.list[*index] = flow,
            None => {
                self.index.insert(tuple, self.list.len());
                self.list.push(flow);
            }
        }
    }

    /// The subflows that the host has at an address.
    pub(super) fn at(&mut self, address: IpAddr) -> impl Iterator<Item = &mut FlowWatch> {
        let (index, list) = (&self.index, &mut self.list);
        let mut there = vec![false; list.len()];
        for (tuple, index) in index {
            there[*index] = tuple.local.ip() == address;
        }
        let both = list.iter_mut().zip(there);
        both.filter_map(|(flow, there)| there.then_some(flow))
    }
}

/// The place of a four-tuple among those found last.
fn place(tuple: &FourTuple) -> usize {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => u64::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits() as u64,
    };
    let ports = u64::from(tuple.local.port()) << 16 | u64::from(tuple.remote.port());
    let mixed = bits(tuple.local.ip()).rotate_left(32) ^ bits(tuple.remote.ip()) ^ ports;
    // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4).
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize % RECENT
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, SocketAddr};

    use super::*;

    #[test]
    fn each_tuple_has_its_own_subflow() {
        let tuple = |n: u32| {
            let end = |bits, port| SocketAddr::new(Ipv4Addr::from_bits(bits).into(), port);
            FourTuple::new(end(n / 10, 80), end(9, n as u16))
        };
        let mut flows = Flows::default();
        for n in 0..100 {
            assert!(flows.get_mut(&tuple(n)).is_none());
            flows.insert(tuple(n), FlowWatch::default());
            flows.get_mut(&tuple(n)).expect("inserted").conn = Some(n as usize);
        }
        for n in (0..100).chain(0..100) {
            let conn = flows.get_mut(&tuple(n)).and_then(|flow| flow.conn);
            assert_eq!(conn, Some(n as usize));
        }
        flows.insert(tuple(5), FlowWatch::default());
        assert_eq!(flows.get_mut(&tuple(5)).and_then(|flow| flow.conn), None);
        let there = flows.at(Ipv4Addr::from_bits(2).into());
        let there: Vec<_> = there.filter_map(|flow| flow.conn).collect();
        assert_eq!(there, Vec::from_iter(20..30));
    }
}
