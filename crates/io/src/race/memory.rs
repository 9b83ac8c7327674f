//! What earlier races taught: which paths and addresses did not work lately, and round trips. Orders the attempts of the next race.
//!
//! Pure: times are since the driver's start. Bounded, whatever peers there are.

use super::{ATTEMPT_DELAY, Fate};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// How long a path or address that did not work stands behind the others at first; it doubles each time that a connection which
/// then tries it first finds it so again.
pub const HELD: Duration = Duration::from_secs(30);
/// The longest such time.
pub const HELD_MOST: Duration = Duration::from_secs(600);
/// Bounds of the wait before the next attempt where the round trip is known (RFC 8305 section 5: no less than 100 ms).
const DELAY_LEAST: Duration = Duration::from_millis(100);
/// RFC 8305 section 5 recommends no more than 2 s.
const DELAY_MOST: Duration = Duration::from_secs(2);
/// Paths and addresses that are remembered.
const MOST_HELD: usize = 256;
/// Round trips that are remembered.
const MOST_TIMES: usize = 1024;
/// How long a round trip is believed.
const TIME_LASTS: Duration = Duration::from_secs(600);

/// A path on which an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Our address.
    pub local: IpAddr,
    /// To be used only when nothing better is left.
    pub backup: bool,
}

/// One attempt that could be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Our address.
    pub local: IpAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// How long it is waited for before the next attempt starts.
    pub delay: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Duration,
    length: Duration,
    /// Its time was over, and an attempt that comes first is under way.
    tried: bool,
}

/// Things that did not work lately.
#[derive(Debug, Default)]
struct Holds(BTreeMap<IpAddr, Hold>);

impl Holds {
    fn holds(&self, key: IpAddr, now: Duration) -> bool {
        self.0.get(&key).is_some_and(|hold| hold.until > now)
    }

    /// An attempt comes first. Where a hold is over, the others wait for what becomes of it.
    fn try_first(&mut self, key: IpAddr, now: Duration) {
        if let Some(hold) = self.0.get_mut(&key).filter(|hold| hold.until <= now) {
            (hold.until, hold.tried) = (now + hold.length, true);
        }
    }

    fn hold(&mut self, key: IpAddr, now: Duration) {
        if self.0.len() >= MOST_HELD && !self.0.contains_key(&key) {
            let next = self.0.iter().min_by_key(|(_, hold)| hold.until);
            if let Some(next) = next.map(|(key, _)| *key) {
                self.0.remove(&next);
            }
        }
        let hold = self.0.entry(key).or_insert(Hold {
            until: now,
            length: HELD,
            tried: false,
        });
        if std::mem::take(&mut hold.tried) {
            hold.length = (hold.length * 2).min(HELD_MOST);
        }
        hold.until = now + hold.length;
    }

    fn release(&mut self, key: IpAddr) -> bool {
        self.0.remove(&key).is_some()
    }
}

/// What is known of paths and addresses.
#[derive(Debug, Default)]
pub struct Memory {
    paths: Holds,
    remotes: Holds,
    /// The retransmission time-out of a path to an address, and when it was learnt.
    times: BTreeMap<(IpAddr, IpAddr), (Duration, Duration)>,
}

impl Memory {
    /// The attempts to make, in their order: paths and addresses as they are given (families of addresses in turn, RFC 8305 section 4),
    /// other paths to one address before another address; backup paths behind, and behind them what did not work lately.
    pub fn plan(&mut self, now: Duration, ways: &[Way], remotes: &[SocketAddr]) -> Vec<Candidate> {
        let mut all = Vec::new();
        for (j, remote) in in_turn(remotes).into_iter().enumerate() {
            let fits = |way: &&Way| way.local.is_ipv4() == remote.is_ipv4();
            for (i, way) in ways.iter().filter(fits).enumerate() {
                let held = self.paths.holds(way.local, now) || self.remotes.holds(remote.ip(), now);
                let candidate = Candidate {
                    local: way.local,
                    remote,
                    delay: self.delay(now, way.local, remote.ip()),
                };
                all.push(((held, way.backup, i.max(j), j, i), candidate));
            }
        }
        all.sort_by_key(|(key, _)| *key);
        if let Some((_, first)) = all.first() {
            self.paths.try_first(first.local, now);
            self.remotes.try_first(first.remote.ip(), now);
        }
        all.into_iter().map(|(_, candidate)| candidate).collect()
    }

    fn delay(&self, now: Duration, local: IpAddr, remote: IpAddr) -> Duration {
        match self.times.get(&(local, remote)) {
            Some((rto, at)) if now.saturating_sub(*at) < TIME_LASTS => {
                (*rto).clamp(DELAY_LEAST, DELAY_MOST)
            }
            _ => ATTEMPT_DELAY,
        }
    }

    /// What became of attempts. To blame is the path where another path reached the same address, and the address where the same path
    /// reached another one; without a success nobody knows.
    pub fn learn(&mut self, now: Duration, candidates: &[Candidate], fates: &[Fate]) {
        let all = || candidates.iter().zip(fates);
        let Some((winner, _)) = all().find(|(_, fate)| **fate == Fate::Good) else {
            return;
        };
        self.paths.release(winner.local);
        self.remotes.release(winner.remote.ip());
        for (loser, _) in all().filter(|(_, fate)| **fate == Fate::Bad) {
            let same_path = loser.local == winner.local;
            let same_address = loser.remote.ip() == winner.remote.ip();
            match (same_path, same_address) {
                (false, true) => self.paths.hold(loser.local, now),
                (true, false) => self.remotes.hold(loser.remote.ip(), now),
                _ => {}
            }
        }
    }

    /// A path works. True if it was held not to.
    pub fn works(&mut self, local: IpAddr) -> bool {
        self.paths.release(local)
    }

    /// The retransmission time-out of a path to an address.
    pub fn measured(&mut self, now: Duration, local: IpAddr, remote: IpAddr, rto: Duration) {
        let key = (local, remote);
        if self.times.len() >= MOST_TIMES && !self.times.contains_key(&key) {
            let oldest = self.times.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(oldest) = oldest.map(|(key, _)| *key) {
                self.times.remove(&oldest);
            }
        }
        self.times.insert(key, (rto, now));
    }
}

/// Families in turn, beginning with that of the first address.
fn in_turn(remotes: &[SocketAddr]) -> Vec<SocketAddr> {
    let Some(first) = remotes.first() else {
        return Vec::new();
    };
    let family = |same: bool| {
        let is = move |a: &&SocketAddr| (a.is_ipv4() == first.is_ipv4()) == same;
        remotes.iter().filter(is).copied()
    };
    let (mut one, mut other) = (family(true), family(false));
    let mut all = Vec::with_capacity(remotes.len());
    loop {
        let pair = (one.next(), other.next());
        all.extend(pair.0);
        all.extend(pair.1);
        if pair == (None, None) {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(local: &str) -> Way {
        Way {
            local: local.parse().expect("a literal address"),
            backup: false,
        }
    }

    fn remote(text: &str) -> SocketAddr {
        text.parse().expect("a literal address")
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("a literal address")
    }

    /// The order, as "path>address".
    fn order(memory: &mut Memory, now: u64, ways: &[Way], remotes: &[&str]) -> Vec<String> {
        let remotes: Vec<SocketAddr> = remotes.iter().map(|text| remote(text)).collect();
        let all = memory.plan(Duration::from_secs(now), ways, &remotes);
        let text = |c: &Candidate| format!("{}>{}", c.local, c.remote.ip());
        all.iter().map(text).collect()
    }

    fn learn(memory: &mut Memory, now: u64, fates: &[(&str, &str, Fate)]) {
        let candidate = |(local, to, _): &(&str, &str, Fate)| Candidate {
            local: ip(local),
            remote: remote(to),
            delay: ATTEMPT_DELAY,
        };
        let candidates: Vec<Candidate> = fates.iter().map(candidate).collect();
        let fates: Vec<Fate> = fates.iter().map(|(_, _, fate)| *fate).collect();
        memory.learn(Duration::from_secs(now), &candidates, &fates);
    }

    #[test]
    fn paths_come_as_given_then_addresses_and_backups_last() {
        let mut memory = Memory::default();
        let backup = Way {
            backup: true,
            ..way("10.2.0.2")
        };
        let ways = [backup, way("10.1.0.2"), way("10.3.0.2")];
        assert_eq!(
            order(&mut memory, 0, &ways, &["192.0.2.1:80"]),
            [
                "10.1.0.2>192.0.2.1",
                "10.3.0.2>192.0.2.1",
                "10.2.0.2>192.0.2.1"
            ]
        );
        assert_eq!(
            order(
                &mut memory,
                0,
                &ways[1..],
                &["192.0.2.1:80", "192.0.2.9:80"]
            ),
            [
                "10.1.0.2>192.0.2.1",
                "10.3.0.2>192.0.2.1",
                "10.1.0.2>192.0.2.9",
                "10.3.0.2>192.0.2.9"
            ]
        );
        assert!(order(&mut memory, 0, &ways, &["[2001:db8::1]:80"]).is_empty());
    }

    #[test]
    fn families_take_turns() {
        let mut memory = Memory::default();
        let ways = [way("10.1.0.2"), way("fd01::2")];
        let remotes = ["[fd99::1]:80", "[fd99::2]:80", "192.0.2.1:80"];
        assert_eq!(
            order(&mut memory, 0, &ways, &remotes),
            ["fd01::2>fd99::1", "10.1.0.2>192.0.2.1", "fd01::2>fd99::2"]
        );
    }

    #[test]
    fn a_path_that_another_one_had_to_stand_in_for_waits_and_is_tried_again() {
        let mut memory = Memory::default();
        let ways = [way("10.1.0.2"), way("10.2.0.2")];
        let [one, two] = ["10.1.0.2>192.0.2.1", "10.2.0.2>192.0.2.1"];
        let lost = [
            ("10.1.0.2", "192.0.2.1:80", Fate::Bad),
            ("10.2.0.2", "192.0.2.1:80", Fate::Good),
        ];
        let plan = |memory: &mut Memory, at| order(memory, at, &ways, &["192.0.2.1:80"]);
        learn(&mut memory, 100, &lost);
        assert_eq!(plan(&mut memory, 129), [two, one]);
        assert_eq!(
            plan(&mut memory, 130),
            [one, two],
            "one connection tries it"
        );
        assert_eq!(plan(&mut memory, 130), [two, one], "and no other");
        learn(&mut memory, 130, &lost);
        assert_eq!(plan(&mut memory, 189), [two, one], "twice as long");
        assert_eq!(plan(&mut memory, 190), [one, two]);
        assert!(memory.works(ip("10.1.0.2")), "it was held");
        assert_eq!(plan(&mut memory, 190), [one, two]);
        learn(&mut memory, 191, &lost);
        assert_eq!(plan(&mut memory, 221), [one, two], "as the first time");
    }

    #[test]
    fn the_address_is_to_blame_where_the_path_reached_another() {
        let mut memory = Memory::default();
        let ways = [way("10.1.0.2"), way("10.2.0.2")];
        learn(
            &mut memory,
            0,
            &[
                ("10.1.0.2", "192.0.2.1:80", Fate::Bad),
                ("10.2.0.2", "192.0.2.1:80", Fate::Bad),
                ("10.1.0.2", "192.0.2.9:80", Fate::Good),
            ],
        );
        assert_eq!(
            order(&mut memory, 1, &ways, &["192.0.2.1:80", "192.0.2.9:80"])[..2],
            ["10.1.0.2>192.0.2.9", "10.2.0.2>192.0.2.9"]
        );
        // Nothing is learnt where nobody answered.
        let mut memory = Memory::default();
        learn(&mut memory, 0, &[("10.1.0.2", "192.0.2.1:80", Fate::Bad)]);
        assert!(!memory.works(ip("10.1.0.2")));
    }

    #[test]
    fn a_known_round_trip_decides_the_delay_within_bounds() {
        let mut memory = Memory::default();
        let (local, to) = (ip("10.1.0.2"), ip("192.0.2.1"));
        for (rto, delay) in [(30, 100), (700, 700), (9_000, 2_000)] {
            let at = Duration::from_secs(1);
            memory.measured(at, local, to, Duration::from_millis(rto));
            assert_eq!(memory.delay(at, local, to).as_millis(), delay);
        }
        assert_eq!(
            memory.delay(Duration::from_secs(601), local, to),
            ATTEMPT_DELAY
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut memory = Memory::default();
        for n in 0..5_000u32 {
            let at = Duration::from_secs(u64::from(n));
            let addr = IpAddr::from(n.to_be_bytes());
            memory.paths.hold(addr, at);
            memory.measured(at, addr, addr, at);
        }
        assert_eq!(memory.paths.0.len(), MOST_HELD);
        assert_eq!(memory.times.len(), MOST_TIMES);
    }
}
