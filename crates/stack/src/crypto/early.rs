//! Cookies of TCP Fast Open (RFC 7413 section 4.1.2): what a peer shows to prove that it was here before.

use core::hash::Hasher as _;
use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::tcp::options::FastOpen;

use super::rng::Rng;
use super::{HashKey, hash_ip};

/// Bytes of a cookie. With this much a SYN/ACK that carries MP_CAPABLE with a key, timestamps and the rest is full to its
/// last word. // rfc8684:O2
const LEN: usize = 6;

/// A cookie is good for the rest of the period in which it was given, and for the next.
const PERIOD: Duration = Duration::from_secs(3600);

/// Makes and checks cookies without remembering any.
#[derive(Debug)]
pub struct FastOpenCookies {
    secret: HashKey,
}

impl FastOpenCookies {
    /// Draws the secret.
    pub fn new(rng: &mut Rng) -> Self {
        Self {
            secret: HashKey::draw(rng),
        }
    }

    /// The cookie for a peer that talks to one of our addresses.
    pub fn grant(&self, now: Instant, local: IpAddr, peer: IpAddr) -> FastOpen {
        self.of_period(period(now), local, peer)
    }

    /// The peer shows a cookie that we gave it lately.
    pub fn is_good(&self, now: Instant, local: IpAddr, peer: IpAddr, shown: &FastOpen) -> bool {
        let this = period(now);
        [Some(this), this.checked_sub(1)]
            .into_iter()
            .flatten()
            .any(|period| self.of_period(period, local, peer) == *shown)
    }

    /// The secret of each period follows from the one secret and the period's number, so rotation needs no timer.
    fn of_period(&self, period: u64, local: IpAddr, peer: IpAddr) -> FastOpen {
        let mut hasher = self.secret.hasher();
        hasher.write_u64(period);
        hash_ip(&mut hasher, local);
        hash_ip(&mut hasher, peer);
        let hash = hasher.finish().to_be_bytes();
        // Six bytes are a valid length.
        FastOpen::new(&hash[..LEN]).unwrap_or(FastOpen::REQUEST)
    }
}

fn period(now: Instant) -> u64 {
    now.as_nanos() / PERIOD.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_for_one_peer_and_two_periods() {
        let cookies = FastOpenCookies::new(&mut Rng::new([1; 32]));
        let others = FastOpenCookies::new(&mut Rng::new([2; 32]));
        let [us, peer, else_] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]].map(IpAddr::from);
        let start = Instant::from_secs(3600 * 7 + 1800);
        let given = cookies.grant(start, us, peer);
        assert_eq!(given.cookie().len(), 6);
        let good = |at: Instant, local, from| cookies.is_good(at, local, from, &given);
        assert!(good(start, us, peer));
        assert!(good(start + Duration::from_secs(3600), us, peer));
        assert!(
            !good(start + Duration::from_secs(7200), us, peer),
            "too old"
        );
        assert!(!good(start, us, else_), "somebody else's");
        assert!(!good(start, else_, peer), "for another address");
        assert!(!others.is_good(start, us, peer, &given), "another stack's");
        assert!(!cookies.is_good(start, us, peer, &FastOpen::REQUEST));
    }
}
