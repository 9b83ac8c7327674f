//! Where the numbers of subflows begin: sequence numbers (RFC 6528) and timestamps (RFC 7323).

use core::hash::Hasher as _;

use manypath_tcp::time::Instant;
use manypath_wire::ids::FourTuple;
use manypath_wire::seq::SeqNum;

use super::rng::Rng;
use super::{HashKey, hash_addr};

/// Chooses initial sequence numbers that an outsider cannot guess, yet that rise for one four-tuple.
#[derive(Debug)]
pub struct IsnSource {
    secret: HashKey,
}

impl IsnSource {
    /// Draws the secret.
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            secret: HashKey::draw(rng),
        }
    }

    /// A clock of 4 microseconds plus a keyed hash of the four-tuple (RFC 6528 section 3). // rfc8684:G4
    pub fn choose(&self, now: Instant, tuple: &FourTuple) -> SeqNum {
        let hasher = self.hash(tuple);
        let clock = (now.as_nanos() / 4_000) as u32;
        SeqNum::new(clock.wrapping_add(hasher.finish() as u32))
    }

    /// What to add to the clock of a subflow's timestamps: the same for one four-tuple, so that a peer whose side of the
    /// earlier connection is in TIME-WAIT sees them rise and lets the new one in at once (RFC 7323 appendix B.2); and
    /// unlike any other tuple's, so that nobody learns how long this host has been up (section 7.1).
    pub fn timestamp_offset(&self, tuple: &FourTuple) -> u32 {
        let mut hasher = self.hash(tuple);
        hasher.write_u8(b't');
        hasher.finish() as u32
    }

    fn hash(&self, tuple: &FourTuple) -> impl core::hash::Hasher + use<> {
        let mut hasher = self.secret.hasher();
        hash_addr(&mut hasher, tuple.local);
        hash_addr(&mut hasher, tuple.remote);
        hasher
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(local: &str, remote: &str) -> FourTuple {
        FourTuple {
            local: local.parse().expect("address"),
            remote: remote.parse().expect("address"),
        }
    }

    #[test]
    fn rises_by_one_every_four_microseconds_for_one_tuple() {
        // rfc8684:G4
        let source = IsnSource::new(&mut Rng::new([3; 32]));
        let one = tuple("10.0.0.1:1000", "10.0.0.2:80");
        let start = source.choose(Instant::from_nanos(5_000_000), &one);
        assert_eq!(source.choose(Instant::from_nanos(5_003_999), &one), start);
        assert_eq!(
            source.choose(Instant::from_nanos(5_004_000), &one),
            start + 1
        );
        assert_eq!(
            source.choose(Instant::from_nanos(1_005_000_000), &one),
            start + 250_000
        );
    }

    #[test]
    fn timestamps_go_on_where_the_same_tuple_left_off() {
        let source = IsnSource::new(&mut Rng::new([3; 32]));
        let one = tuple("10.0.0.1:1000", "10.0.0.2:80");
        let other = tuple("10.0.0.1:1001", "10.0.0.2:80");
        assert_eq!(source.timestamp_offset(&one), source.timestamp_offset(&one));
        assert_ne!(
            source.timestamp_offset(&one),
            source.timestamp_offset(&other)
        );
        let isn = source.choose(Instant::from_nanos(0), &one);
        assert_ne!(source.timestamp_offset(&one), isn.get());
    }

    #[test]
    fn differs_between_tuples_and_between_secrets() {
        // rfc8684:G4
        let now = Instant::from_nanos(0);
        let (mut rng_a, mut rng_b) = (Rng::new([3; 32]), Rng::new([4; 32]));
        let (a, b) = (IsnSource::new(&mut rng_a), IsnSource::new(&mut rng_b));
        let one = tuple("10.0.0.1:1000", "10.0.0.2:80");
        let others = [
            tuple("10.0.0.1:1001", "10.0.0.2:80"),
            tuple("10.0.0.1:1000", "10.0.0.2:81"),
            tuple("10.0.0.3:1000", "10.0.0.2:80"),
            tuple("10.0.0.1:1000", "10.0.0.3:80"),
            tuple("[2001:db8::1]:1000", "[2001:db8::2]:80"),
        ];
        for other in others {
            assert_ne!(a.choose(now, &one), a.choose(now, &other), "{other:?}");
        }
        assert_ne!(a.choose(now, &one), b.choose(now, &one));
    }
}
