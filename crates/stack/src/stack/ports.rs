//! Local ports for connections that we open (RFC 6056 section 3.3.4, the double-hash algorithm).
//!
//! One destination sees the ports rise from a secret start, so a port is not used again before all others were;
//! an outsider who sees some ports of ours cannot guess the next one towards another destination.
//!
//! Joins keep the port of the first subflow, and so a subflow that ended by a reset or with its address would be followed by one on the same
//! four-tuple while its segments are still under way: they could be taken for the new one's, here or by a box that remembers what it saw.
//! Nobody has a TIME-WAIT state for such a four-tuple (RFC 9293 section 3.4.3), so it rests here.

use alloc::collections::VecDeque;
use core::hash::Hasher as _;
use core::net::{IpAddr, SocketAddr};
use core::ops::RangeInclusive;

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;

use crate::crypto::rng::Rng;
use crate::crypto::{HashKey, hash_addr, hash_ip};

/// The dynamic ports of RFC 6335 section 6.
pub(crate) const DYNAMIC: RangeInclusive<u16> = 49152..=65535;

const GROUPS: usize = 64;

/// Four-tuples that rest at one time. Of more the oldest may be used again.
const MOST_RESTING: usize = 256;

/// Allocates ephemeral ports.
#[derive(Debug)]
pub(crate) struct Ports {
    offset: HashKey,
    group: HashKey,
    next: [u16; GROUPS],
    /// Four-tuples whose subflows have ended without TIME-WAIT, and until when they rest.
    resting: VecDeque<(FourTuple, Instant)>,
}

impl Ports {
    /// Draws the secrets and the starts of the counters.
    pub(crate) fn new(rng: &mut Rng) -> Self {
        let mut next = [0; GROUPS];
        next.fill_with(|| rng.next_u32() as u16);
        Self {
            offset: HashKey::draw(rng),
            group: HashKey::draw(rng),
            next,
            resting: VecDeque::new(),
        }
    }

    /// A subflow has ended without TIME-WAIT: its four-tuple rests until then.
    pub(crate) fn rest(&mut self, tuple: FourTuple, until: Instant) {
        if self.resting.len() >= MOST_RESTING {
            self.resting.pop_front();
        }
        self.resting.push_back((tuple, until));
    }

    /// Whether a four-tuple rests.
    pub(crate) fn rests(&self, tuple: &FourTuple, now: Instant) -> bool {
        let mut resting = self.resting.iter();
        resting.any(|(known, until)| known == tuple && now < *until)
    }

    /// A port of `range` from `local` towards `remote` that `in_use` does not refuse; `None` when all are in use.
    ///
    /// `preferred` is taken if it is in the range and free: joins like to keep the local port of the first
    /// subflow. // rfc8684:H1
    pub(crate) fn allocate(
        &mut self,
        local: IpAddr,
        remote: SocketAddr,
        range: RangeInclusive<u16>,
        preferred: Option<u16>,
        in_use: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        if let Some(port) = preferred.filter(|port| range.contains(port) && !in_use(*port)) {
            return Some(port);
        }
        let (first, last) = (u32::from(*range.start()), u32::from(*range.end()));
        if first > last {
            return None;
        }
        let count = last - first + 1;
        let offset = hash(&self.offset, local, remote) % u64::from(count);
        let next = &mut self.next[(hash(&self.group, local, remote) % GROUPS as u64) as usize];
        for _ in 0..count {
            let port = first + (offset as u32 + u32::from(*next)) % count;
            *next = next.wrapping_add(1);
            let port = port as u16;
            if !in_use(port) {
                return Some(port);
            }
        }
        None
    }
}

fn hash(key: &HashKey, local: IpAddr, remote: SocketAddr) -> u64 {
    let mut hasher = key.hasher();
    hash_ip(&mut hasher, local);
    hash_addr(&mut hasher, remote);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeSet;

    use manypath_tcp::time::Duration;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));

    fn remote(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 2], port))
    }

    #[test]
    fn every_port_of_the_range_is_given_before_one_comes_again() {
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let mut given = BTreeSet::new();
        for _ in 0..100 {
            let port = ports
                .allocate(LOCAL, remote(80), 60_000..=60_099, None, |_| false)
                .expect("free");
            assert!((60_000..=60_099).contains(&port));
            assert!(given.insert(port), "{port} again");
        }
    }

    #[test]
    fn used_ports_are_skipped_until_none_is_left() {
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let only = |port| port != 65_535;
        for _ in 0..50 {
            assert_eq!(
                ports.allocate(LOCAL, remote(80), 65_000..=65_535, None, only),
                Some(65_535)
            );
        }
        assert_eq!(
            ports.allocate(LOCAL, remote(80), DYNAMIC, None, |_| true),
            None
        );
        #[expect(clippy::reversed_empty_ranges)]
        let empty = 9..=8;
        assert_eq!(
            ports.allocate(LOCAL, remote(80), empty, None, |_| false),
            None
        );
    }

    #[test]
    fn the_whole_port_space_can_be_used() {
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let only = |port| port != 0;
        assert_eq!(
            ports.allocate(LOCAL, remote(80), 0..=65_535, None, only),
            Some(0)
        );
    }

    #[test]
    fn a_preferred_port_is_taken_when_it_can_be() {
        // rfc8684:H1
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let range = 50_000..=50_009;
        assert_eq!(
            ports.allocate(LOCAL, remote(80), range.clone(), Some(50_005), |_| false),
            Some(50_005)
        );
        let other = ports.allocate(LOCAL, remote(80), range.clone(), Some(50_005), |port| {
            port == 50_005
        });
        assert!(other.is_some_and(|port| port != 50_005));
        let outside = ports.allocate(LOCAL, remote(80), range.clone(), Some(80), |_| false);
        assert!(outside.is_some_and(|port| range.contains(&port)));
    }

    #[test]
    fn a_four_tuple_rests_for_its_time_and_the_oldest_of_many_no_longer() {
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let of = |port| FourTuple::new(SocketAddr::new(LOCAL, port), remote(80));
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        ports.rest(of(50_000), at(60));
        assert!(ports.rests(&of(50_000), at(59)) && !ports.rests(&of(50_000), at(60)));
        assert!(!ports.rests(&of(50_001), at(0)));
        for port in 1..=MOST_RESTING as u16 {
            ports.rest(of(port), at(60));
        }
        assert!(!ports.rests(&of(50_000), at(0)) && ports.rests(&of(1), at(0)));
    }

    #[test]
    fn destinations_start_at_unrelated_ports() {
        let mut ports = Ports::new(&mut Rng::new([1; 32]));
        let starts: BTreeSet<_> = (1..=100)
            .filter_map(|port| ports.allocate(LOCAL, remote(port), DYNAMIC, None, |_| false))
            .collect();
        assert!(starts.len() > 95, "{}", starts.len());
        let spread = starts
            .last()
            .zip(starts.first())
            .map(|(last, first)| last - first);
        assert!(spread.is_some_and(|spread| spread > 10_000));
    }
}
