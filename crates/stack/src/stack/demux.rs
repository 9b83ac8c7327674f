//! Who a packet is for: four-tuples, tokens and listening addresses.
//!
//! Owns the tables and nothing behind them: a value is the slot of a connection or listener. The hash is keyed with a
//! secret of the stack, so that a peer cannot choose ports that collide; no table is ever iterated, so the order of a
//! hash never shows.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use manypath_wire::ids::{FourTuple, Token};

use crate::crypto::rng::Rng;
use crate::ids::SubflowId;
use crate::table::Table;
pub(crate) use crate::table::Taken;

/// Where a packet of a known four-tuple goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Slot of the connection.
    pub(crate) conn: u32,
    /// The subflow within it.
    pub(crate) subflow: SubflowId,
}

/// A four-tuple boiled down to what identifies it: no flow label, no scope.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TupleKey {
    local: IpAddr,
    remote: IpAddr,
    ports: u32,
}

impl TupleKey {
    pub(crate) fn of(tuple: &FourTuple) -> Self {
        Self {
            local: tuple.local.ip(),
            remote: tuple.remote.ip(),
            ports: u32::from(tuple.local.port()) << 16 | u32::from(tuple.remote.port()),
        }
    }

    /// Its place among the subflows that were found last.
    fn place(&self) -> usize {
        let bits = |ip: IpAddr| match ip {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64 ^ v6.to_bits() as u64,
        };
        let mixed = bits(self.local).rotate_left(32) ^ bits(self.remote) ^ u64::from(self.ports);
        // Fibonacci hashing (Knuth, The Art of Computer Programming, volume 3, section 6.4): the upper bits depend on all.
        (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61) as usize % RECENT
    }
}

/// Two words for IPv4. The derived hash writes tags and lengths as well.
impl Hash for TupleKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.local, self.remote) {
            (IpAddr::V4(local), IpAddr::V4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => [local, remote].hash(state),
        }
        state.write_u64(u64::from(self.ports));
    }
}

/// Places for subflows that were found last.
const RECENT: usize = 8;

/// The tables of one stack.
pub(crate) struct Demux {
    tuples: Table<TupleKey, Target>,
    /// Subflows that were found last, each in the place that its addresses and ports give: most packets are of few subflows, and the
    /// keyed hash costs more than everything else about finding them. A peer that chooses its ports to meet others here costs them the
    /// hash, as if this were not there.
    recent: [Option<(TupleKey, Target)>; RECENT],
    tokens: Table<Token, u32>,
    listeners: Table<(IpAddr, u16), u32>,
}

impl Demux {
    /// Empty tables with a secret drawn from `rng`.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        Self {
            tuples: Table::new(rng),
            recent: [None; RECENT],
            tokens: Table::new(rng),
            listeners: Table::new(rng),
        }
    }

    /// The subflow of a four-tuple, seen from our side. // rfc8684:J18
    pub(crate) fn subflow(&self, tuple: &FourTuple) -> Option<Target> {
        self.tuples.get(&TupleKey::of(tuple)).copied()
    }

    /// The same for a packet, whose like will follow.
    pub(crate) fn packet_for(&mut self, tuple: &FourTuple) -> Option<Target> {
        let key = TupleKey::of(tuple);
        let recent = &mut self.recent[key.place()];
        if let Some((_, target)) = recent.filter(|(known, _)| *known == key) {
            return Some(target);
        }
        let target = self.tuples.get(&key).copied()?;
        *recent = Some((key, target));
        Some(target)
    }

    /// Enters a subflow; refused if the four-tuple has an owner.
    pub(crate) fn add_subflow(&mut self, tuple: &FourTuple, target: Target) -> Result<(), Taken> {
        self.tuples.insert(TupleKey::of(tuple), target)
    }

    /// Forgets a subflow, if it is this one that has the four-tuple.
    pub(crate) fn remove_subflow(&mut self, tuple: &FourTuple, target: Target) -> bool {
        let key = TupleKey::of(tuple);
        let removed = self.tuples.remove_if(&key, &target);
        if removed {
            self.recent[key.place()] = None;
        }
        removed
    }

    /// Bytes of memory held.
    pub(crate) fn memory(&self) -> usize {
        self.tuples.memory() + self.tokens.memory() + self.listeners.memory()
    }

    /// How many four-tuples are known.
    #[cfg(test)]
    pub(crate) fn subflows(&self) -> usize {
        self.tuples.len()
    }

    /// The connection whose token this is: where an MP_JOIN goes, whatever its port. // rfc8684:J17
    pub(crate) fn token(&self, token: Token) -> Option<u32> {
        self.tokens.get(&token).copied()
    }

    /// Enters a connection's own token; refused on a collision, which the caller answers with another key.
    // rfc8684:C5 rfc8684:C6
    pub(crate) fn add_token(&mut self, token: Token, conn: u32) -> Result<(), Taken> {
        self.tokens.insert(token, conn)
    }

    /// Forgets a token, if it is this connection's.
    pub(crate) fn remove_token(&mut self, token: Token, conn: u32) -> bool {
        self.tokens.remove_if(&token, &conn)
    }

    /// The listener for a local address: one bound to exactly it, else one for every address of the family, else one
    /// for both families.
    pub(crate) fn listener(&self, local: SocketAddr) -> Option<u32> {
        const ANY4: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        const ANY6: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
        let candidates: &[IpAddr] = if local.is_ipv4() {
            &[local.ip(), ANY4, ANY6]
        } else {
            &[local.ip(), ANY6]
        };
        candidates
            .iter()
            .find_map(|&ip| self.listeners.get(&(ip, local.port())).copied())
    }

    /// Enters a listener; refused if another has exactly this address and port.
    pub(crate) fn add_listener(&mut self, local: SocketAddr, listener: u32) -> Result<(), Taken> {
        self.listeners.insert((local.ip(), local.port()), listener)
    }

    /// Forgets a listener, if it is this one that has the address and port.
    pub(crate) fn remove_listener(&mut self, local: SocketAddr, listener: u32) -> bool {
        self.listeners
            .remove_if(&(local.ip(), local.port()), &listener)
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::vec::Vec;

    use super::*;

    fn demux() -> Demux {
        Demux::new(&mut Rng::new([1; 32]))
    }

    fn addr(text: &str) -> SocketAddr {
        text.parse().expect("address")
    }

    fn tuple(local: &str, remote: &str) -> FourTuple {
        FourTuple {
            local: addr(local),
            remote: addr(remote),
        }
    }

    fn target(conn: u32, subflow: u8) -> Target {
        Target {
            conn,
            subflow: SubflowId(subflow),
        }
    }

    #[test]
    fn a_removed_subflow_is_not_found_among_the_recent_ones() {
        let mut demux = demux();
        let known: Vec<FourTuple> = (1000..1100)
            .map(|port| tuple("10.0.0.1:80", &format!("10.0.0.2:{port}")))
            .collect();
        // More than there are recent ones: each stands in another's place.
        for round in 0..3 {
            for (n, tuple) in known.iter().enumerate() {
                let target = target(n as u32, round);
                assert_eq!(demux.packet_for(tuple), None);
                assert_eq!(demux.add_subflow(tuple, target), Ok(()));
                assert_eq!(demux.packet_for(tuple), Some(target));
            }
            for (n, tuple) in known.iter().enumerate() {
                let target = target(n as u32, round);
                assert_eq!(demux.packet_for(tuple), Some(target));
                assert_eq!(demux.packet_for(tuple), Some(target));
                assert!(demux.remove_subflow(tuple, target));
                assert_eq!(demux.packet_for(tuple), None);
            }
        }
    }

    #[test]
    fn four_tuples_find_their_subflow() {
        // rfc8684:J18
        let mut demux = demux();
        let one = tuple("10.0.0.1:80", "10.0.0.2:1000");
        let two = tuple("10.0.0.1:80", "10.0.0.2:1001");
        let six = tuple("[2001:db8::1]:80", "[2001:db8::2]:1000");
        assert_eq!(demux.add_subflow(&one, target(4, 0)), Ok(()));
        assert_eq!(demux.add_subflow(&two, target(4, 1)), Ok(()));
        assert_eq!(demux.add_subflow(&six, target(5, 0)), Ok(()));
        assert_eq!(demux.add_subflow(&one, target(6, 0)), Err(Taken));
        assert_eq!(demux.subflow(&one), Some(target(4, 0)));
        assert_eq!(demux.subflow(&two), Some(target(4, 1)));
        assert_eq!(demux.subflow(&six), Some(target(5, 0)));
        assert_eq!(
            demux.subflow(&FourTuple {
                local: one.remote,
                remote: one.local
            }),
            None
        );
        assert!(
            !demux.remove_subflow(&one, target(6, 0)),
            "only the owner can remove it"
        );
        assert!(demux.remove_subflow(&one, target(4, 0)));
        assert_eq!(demux.subflow(&one), None);
        assert_eq!(demux.subflows(), 2);
    }

    #[test]
    fn tokens_are_unique() {
        // rfc8684:C5 rfc8684:J17
        let mut demux = demux();
        assert_eq!(demux.add_token(Token(7), 1), Ok(()));
        assert_eq!(demux.add_token(Token(7), 2), Err(Taken));
        assert_eq!(demux.token(Token(7)), Some(1));
        assert!(!demux.remove_token(Token(7), 2));
        assert!(demux.remove_token(Token(7), 1));
        assert_eq!(demux.token(Token(7)), None);
    }

    #[test]
    fn the_closest_listener_wins() {
        let mut demux = demux();
        demux.add_listener(addr("10.0.0.1:80"), 1).expect("free");
        demux.add_listener(addr("0.0.0.0:80"), 2).expect("free");
        demux.add_listener(addr("[::]:80"), 3).expect("free");
        demux.add_listener(addr("[::]:81"), 4).expect("free");
        demux.add_listener(addr("0.0.0.0:82"), 5).expect("free");
        assert_eq!(demux.add_listener(addr("0.0.0.0:80"), 6), Err(Taken));
        let cases = [
            ("10.0.0.1:80", Some(1)),
            ("10.0.0.2:80", Some(2)),
            ("[2001:db8::1]:80", Some(3)),
            ("10.0.0.1:81", Some(4)),
            ("[2001:db8::1]:82", None),
            ("10.0.0.1:83", None),
        ];
        for (local, expected) in cases {
            assert_eq!(demux.listener(addr(local)), expected, "{local}");
        }
        assert!(demux.remove_listener(addr("10.0.0.1:80"), 1));
        assert_eq!(demux.listener(addr("10.0.0.1:80")), Some(2));
    }

    #[test]
    fn tables_shrink_after_a_burst() {
        let mut demux = demux();
        let peers = |port: u32| tuple("10.0.0.1:80", &alloc::format!("10.0.0.2:{port}"));
        for port in 1..20_000 {
            demux
                .add_subflow(&peers(port), target(port, 0))
                .expect("free");
        }
        for port in 1..20_000 {
            assert!(demux.remove_subflow(&peers(port), target(port, 0)));
        }
        assert!(
            demux.tuples.capacity() <= 1024,
            "{}",
            demux.tuples.capacity()
        );
    }
}
