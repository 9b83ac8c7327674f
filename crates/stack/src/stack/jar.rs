//! What earlier connections learned about Fast Open towards each peer (RFC 7413 section 4.1.3).

use alloc::collections::{BTreeMap, VecDeque};
use core::net::IpAddr;

use manypath_tcp::time::{Duration, Instant};
use manypath_wire::tcp::options::FastOpen;

use crate::conn::FastOpenOutcome;

/// Peers remembered at one time.
const MOST: usize = 1024;

/// A path that lost a SYN with the option is not tried again before (RFC 7413 sections 4.1.3 and 4.1.3.1).
const AVOID: Duration = Duration::from_secs(3600);

/// From which address of ours to which peer: what a cookie is made from.
type Between = (IpAddr, IpAddr);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Cookie { cookie: FastOpen, mss: u16 },
    AvoidUntil(Instant),
}

/// Cookies of peers, the oldest forgotten first.
#[derive(Debug, Default)]
pub(super) struct CookieJar {
    known: BTreeMap<Between, Known>,
    order: VecDeque<Between>,
}

impl CookieJar {
    /// What a SYN should say: a request, a cookie (with the size of the peer's segments), or nothing.
    pub(super) fn ask(&self, now: Instant, between: Between) -> Option<(FastOpen, u16)> {
        match self.known.get(&between) {
            None => Some((FastOpen::REQUEST, 0)),
            Some(&Known::Cookie { cookie, mss }) => Some((cookie, mss)),
            Some(Known::AvoidUntil(until)) if now < *until => None,
            Some(Known::AvoidUntil(_)) => Some((FastOpen::REQUEST, 0)),
        }
    }

    /// No SYN should carry payload.
    pub(super) fn avoids(&self, now: Instant, between: Between) -> bool {
        matches!(self.known.get(&between), Some(Known::AvoidUntil(until)) if now < *until)
    }

    /// A handshake told something.
    pub(super) fn learn(
        &mut self,
        now: Instant,
        between: Between,
        fast_open_outcome: FastOpenOutcome,
    ) {
        let known = match fast_open_outcome {
            FastOpenOutcome::Cookie { cookie, mss } => Known::Cookie { cookie, mss },
            FastOpenOutcome::Silence => Known::AvoidUntil(now + AVOID),
            FastOpenOutcome::Refusal => {
                self.known.remove(&between);
                self.order.retain(|other| *other != between);
                return;
            }
        };
        if self.known.insert(between, known).is_none() {
            self.order.push_back(between);
        }
        if self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    /// All cookies: our address, the peer's, the cookie, the size of the peer's segments.
    pub(super) fn cookies(&self) -> impl Iterator<Item = (IpAddr, IpAddr, FastOpen, u16)> + '_ {
        self.known
            .iter()
            .filter_map(|(&(local, peer), known)| match *known {
                Known::Cookie { cookie, mss } => Some((local, peer, cookie, mss)),
                Known::AvoidUntil(_) => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(n: u16) -> Between {
        let [high, low] = n.to_be_bytes();
        (
            IpAddr::from([10, 0, 0, 1]),
            IpAddr::from([10, 1, high, low]),
        )
    }

    fn cookie(n: u8) -> FastOpenOutcome {
        let cookie = FastOpen::new(&[n; 8]).expect("eight bytes");
        FastOpenOutcome::Cookie { cookie, mss: 1400 }
    }

    #[test]
    fn a_cookie_is_used_until_it_is_refused() {
        let (mut jar, now) = (CookieJar::default(), Instant::ZERO);
        assert_eq!(jar.ask(now, between(1)), Some((FastOpen::REQUEST, 0)));
        jar.learn(now, between(1), cookie(7));
        assert_eq!(jar.ask(now, between(1)).map(|(_, mss)| mss), Some(1400));
        assert_eq!(jar.ask(now, between(2)), Some((FastOpen::REQUEST, 0)));
        jar.learn(now, between(1), FastOpenOutcome::Refusal);
        assert_eq!(jar.ask(now, between(1)), Some((FastOpen::REQUEST, 0)));
    }

    #[test]
    fn a_path_that_drops_fast_open_is_not_tried_for_an_hour() {
        let (mut jar, now) = (CookieJar::default(), Instant::from_secs(5));
        jar.learn(now, between(1), FastOpenOutcome::Silence);
        assert_eq!(jar.ask(now + Duration::from_secs(3599), between(1)), None);
        assert!(
            jar.ask(now + Duration::from_secs(3600), between(1))
                .is_some()
        );
    }

    #[test]
    fn the_oldest_is_forgotten_when_there_are_too_many() {
        let (mut jar, now) = (CookieJar::default(), Instant::ZERO);
        for n in 0..=MOST as u16 {
            jar.learn(now, between(n), cookie(1));
            jar.learn(now, between(n), cookie(2));
        }
        assert_eq!(jar.cookies().count(), MOST);
        assert_eq!(jar.ask(now, between(0)), Some((FastOpen::REQUEST, 0)));
        assert!(jar.ask(now, between(1)).is_some_and(|(_, mss)| mss == 1400));
    }
}
