//! What peers send by a path that has `down`: they are asked to use it less (MP_PRIO, RFC 8684 section 3.3.8) while it carries more.
//!
//! That is all that a receiver can do without dropping what has arrived: peers that have another path leave this one, and those that have none go on. A
//! converter of ours is told the rate itself, and keeps it, so that it is never asked.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use manypath_control::report::LimitReport;
use manypath_control::wire::LimitOf;
use manypath_io::Host;
use manypath_stack::{Command, Path};

use super::limiter::Limiter;
use super::order::micros;

/// How often it is looked at what has come.
const LOOK: Duration = Duration::from_millis(100);

/// What may come beyond the rate without a question: so much time of it, and so many bytes at least.
const SPARE: Duration = Duration::from_millis(300);
const LEAST: f64 = 65_536.0;

/// What came too much is remembered for so long.
const MEMORY: Duration = Duration::from_secs(10);

/// A peer that keeps the rate by its own clock, and counts otherwise, is not asked.
const TOLERANCE: f64 = 1.02;

/// What has come by a path, against its rate.
#[derive(Clone, Copy, Debug)]
struct Meter {
    /// Bytes that may come before it is too much.
    left: f64,
    received: u64,
    looked: Instant,
    /// Peers are asked to use the path less.
    asks: bool,
    /// For how long they were, and how often it began.
    asked: Duration,
    times: u64,
}

impl Meter {
    fn new(bits: u64, received: u64, now: Instant) -> Self {
        Self {
            left: spare(bits),
            received,
            looked: now,
            asks: false,
            asked: Duration::ZERO,
            times: 0,
        }
    }

    /// Whether peers are to be asked.
    fn look(&mut self, bits: u64, received: u64, now: Instant) -> bool {
        let rate = bits as f64 / 8.0;
        let came = received.checked_sub(self.received).unwrap_or(received);
        let earned = rate * TOLERANCE * (now - self.looked).as_secs_f64();
        let most = spare(bits);
        let least = -(rate * MEMORY.as_secs_f64()).max(LEAST);
        self.left = (self.left + earned - came as f64).clamp(least, most);
        if self.asks {
            self.asked += now - self.looked;
        }
        (self.received, self.looked) = (received, now);
        let asks = match self.asks {
            false => self.left < 0.0,
            true => self.left < most / 2.0,
        };
        self.times += u64::from(asks && !self.asks);
        self.asks = asks;
        asks
    }
}

fn spare(bits: u64) -> f64 {
    (bits as f64 / 8.0 * SPARE.as_secs_f64()).max(LEAST)
}

/// The paths that have `down`.
#[derive(Debug, Default)]
pub(super) struct Asking(BTreeMap<String, Meter>);

impl Asking {
    /// What is asked for, and for how long it was.
    pub(super) fn reports(&self, wanted: &[(String, u64)]) -> Vec<LimitReport> {
        let report = |(iface, bits): &(String, u64)| {
            let meter = self.0.get(iface);
            LimitReport {
                of: LimitOf::Path,
                name: format!("{iface}/down"),
                bits_per_second: *bits,
                burst: spare(*bits) as u64,
                tokens: meter.map_or(0, |meter| meter.left as i64),
                held_us: meter.map_or(0, |meter| micros(meter.asked)),
                waits: meter.map_or(0, |meter| meter.times),
                ..LimitReport::default()
            }
        };
        wanted.iter().map(report).collect()
    }

    /// The interfaces whose subflows are to be backups, or none any more. Those without `down` are left alone once they are none.
    fn look<'a>(
        &mut self,
        wanted: impl Iterator<Item = (&'a str, u64)>,
        received: impl Fn(&str) -> u64,
        now: Instant,
    ) -> Vec<(String, bool)> {
        let mut before = std::mem::take(&mut self.0);
        let mut to_tell = Vec::new();
        for (iface, bits) in wanted {
            let bytes = received(iface);
            let known = before.remove(iface);
            let asked = known.is_some_and(|meter| meter.asks);
            let mut meter = known.unwrap_or_else(|| Meter::new(bits, bytes, now));
            // Connections that begin meanwhile are to be asked as well.
            if meter.look(bits, bytes, now) || asked {
                to_tell.push((iface.to_owned(), meter.asks));
            }
            self.0.insert(iface.to_owned(), meter);
        }
        let lifted = before.into_iter().filter(|(_, meter)| meter.asks);
        to_tell.extend(lifted.map(|(iface, _)| (iface, false)));
        to_tell
    }
}

impl Limiter {
    /// What a converter is told: bits a second that it is to send at most to each of our addresses, at zero together with the one before.
    pub(crate) fn down_by_address(&self, host: &Host) -> Vec<(IpAddr, u64)> {
        let down = self.known().paths.down();
        if down.is_empty() {
            return Vec::new();
        }
        let paths = host.paths();
        let mut told = Vec::new();
        for (iface, bits) in down {
            let is_its = |path: &&Path| host.iface_name(path.iface).as_ref() == Some(&iface);
            let its = paths
                .iter()
                .filter(is_its)
                .map(|path| path.outside.unwrap_or(path.addr));
            // Its addresses have the rate together.
            let rates = [bits].into_iter().chain(std::iter::repeat(0));
            told.extend(its.zip(rates));
        }
        told
    }

    /// Asks peers for less where a path carries more than its `down`. `None`: no path has one.
    pub(super) fn ask_peers(&self, host: &Host, now: Instant) -> Option<Duration> {
        let mut known = self.known();
        let mut wanted = known.paths.down();
        // What the command line makes a backup is one, and stays so.
        let is_backup = |iface: &str| {
            let mut named = known.named.iter();
            named.any(|spec| spec.backup && spec.iface == iface)
        };
        wanted.retain(|(iface, _)| !is_backup(iface));
        if wanted.is_empty() && known.asking.0.is_empty() {
            return None;
        }
        let traffic = host.traffic();
        let received = |iface: &str| traffic.get(iface).map_or(0, |known| known.received);
        let wanted = wanted.iter().map(|(iface, bits)| (iface.as_str(), *bits));
        let to_tell = known.asking.look(wanted, received, now);
        drop(known);
        if !to_tell.is_empty() {
            tell(host, &to_tell);
        }
        Some(LOOK)
    }
}

/// Makes subflows backups, or none any more.
fn tell(host: &Host, wanted: &[(String, bool)]) {
    for id in host.conns() {
        let Some(info) = host.conn_info(id) else {
            continue;
        };
        for subflow in &info.subflows {
            let name = host.iface_name(subflow.iface);
            let of_it = wanted
                .iter()
                .find(|(iface, _)| Some(iface) == name.as_ref());
            let Some((_, backup)) = of_it.filter(|(_, to)| *to != subflow.backup_here) else {
                continue;
            };
            let command = Command::SetBackup {
                subflow: subflow.id,
                backup: *backup,
            };
            // It may have ended.
            let _ = host.command(id, command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 8_000_000;

    /// A path by which peers send a hundred times the rate until they are asked not to, and a round trip longer: bits a second over a minute.
    #[test]
    fn what_comes_is_the_rate_over_a_minute_where_peers_do_as_they_are_asked() {
        let start = Instant::now();
        let mut meter = Meter::new(RATE, 0, start);
        let (mut received, mut asked, mut asks) = (0_u64, false, 0);
        for look in 1..=600 {
            // What was asked at the last look is done by now.
            if !asked {
                received += 1_000_000;
            }
            let now = start + LOOK * look;
            let before = asked;
            asked = meter.look(RATE, received, now);
            asks += u32::from(asked && !before);
        }
        let rate = received as f64 * 8.0 / 60.0;
        assert!(
            rate > RATE as f64 * 0.9 && rate < RATE as f64 * 1.15,
            "{rate}"
        );
        assert!(asks > 10 && asks < 120, "{asks} questions");
    }

    #[test]
    fn who_keeps_the_rate_is_never_asked() {
        let start = Instant::now();
        for bits in [8_000, RATE, 1_000_000_000] {
            let mut meter = Meter::new(bits, 0, start);
            let mut received = 0;
            for look in 1..=6000 {
                received += bits / 80 * 101 / 100;
                assert!(
                    !meter.look(bits, received, start + LOOK * look),
                    "{bits}: {look}"
                );
            }
        }
    }

    #[test]
    fn a_path_whose_down_ends_is_none_to_use_less() {
        let (start, mut asking) = (Instant::now(), Asking::default());
        let mut look = |wanted: &[(&str, u64)], bytes, ms| {
            let now = start + Duration::from_millis(ms);
            asking.look(wanted.iter().copied(), |_| bytes, now)
        };
        let wanted = [("wwan0", RATE)];
        assert_eq!(look(&wanted, 0, 0), []);
        let asked = [("wwan0".to_owned(), true)];
        assert_eq!(look(&wanted, 2_000_000, 100), asked);
        assert_eq!(look(&wanted, 2_000_000, 200), asked);
        assert_eq!(look(&[], 2_000_000, 300), [("wwan0".to_owned(), false)]);
        assert_eq!(look(&[], 2_000_000, 400), []);
    }
}
