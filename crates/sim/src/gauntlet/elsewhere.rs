//! What plain TCP takes on the paths that are left to Multipath TCP where one damages payload or takes options away.
//!
//! TCP takes no notice of either. RFC 8684 section 3.7 has the subflow end on which a checksum finds damage, or on which options
//! stop, as long as there is another, whatever that one is like. TCP's time there says nothing about what comes after; what it
//! takes on the paths that are left does.
//!
//! Owns that measure. Must never excuse who does worse than TCP on each of those paths.

use std::net::IpAddr;

use manypath_tcp::time::Duration;

use super::judge;
use super::twin::{Arm, Twin, arm, plain_tcp};
use crate::scenario::units::Span;
use crate::scenario::{Action, Scenario, ScenarioError};
use crate::simulation::RunOptions;

/// The client's address and the server's.
pub(super) type Pair = (IpAddr, IpAddr);

/// The run as planned left a path that damages what TCP delivers or takes options away, and did no worse than TCP on the slowest of
/// the others that it used. Who has fallen to TCP, because all paths damage, may end as TCP does on one of them. `ours`: when the
/// run as planned delivered, if it did.
pub(super) fn is_as_tcp_elsewhere(
    scenario: &Scenario,
    seed: Option<u64>,
    twin: &Twin,
    ours: Option<Duration>,
) -> Result<bool, ScenarioError> {
    let (Ok(tcp), Ok(planned)) = (&twin.tcp, &twin.ours) else {
        return Ok(false);
    };
    let damaged = tcp.altered > 0 && planned.found_damage;
    let from_here = |pair: &Pair| tcp.pairs.contains(pair);
    let stripped = ours.is_some() && planned.lost_options.iter().any(from_here);
    let Some(here) = tcp.whole.filter(|_| damaged || stripped) else {
        return Ok(false);
    };
    let mut others = Vec::new();
    for pair in planned.pairs.iter().filter(|one| !tcp.pairs.contains(one)) {
        match between(scenario, seed, *pair)? {
            Some(there) => others.push(there),
            None => return Ok(false),
        }
    }
    Ok(match ours {
        Some(ours) => ours <= judge::allowed(slowest(here, &others)),
        None => planned.fell_back && planned.failed() && gets_stuck(&others),
    })
}

/// TCP's time on the slowest of the other paths. Where it gets stuck there, it would have to begin again `here` when that happens.
/// Pure.
fn slowest(here: Duration, others: &[Arm]) -> Duration {
    let times = others.iter();
    let times = times.map(|there| there.whole.unwrap_or(there.last_read + here));
    times.max().unwrap_or(Duration::ZERO)
}

/// TCP does not deliver on one of the other paths. Pure.
fn gets_stuck(others: &[Arm]) -> bool {
    others.iter().any(|there| there.whole.is_none())
}

/// Plain TCP between these addresses, from when both are there; so are its times.
fn between(
    scenario: &Scenario,
    seed: Option<u64>,
    pair: Pair,
) -> Result<Option<Arm>, ScenarioError> {
    let later = there_from(scenario, pair.0).max(there_from(scenario, pair.1));
    let mut plain = plain_tcp(scenario);
    for app in &mut plain.apps {
        (app.from, app.to) = (Some(pair.0), Some(pair.1));
        app.start = Span(app.start.0 + later);
    }
    let options = RunOptions {
        seed,
        ..RunOptions::default()
    };
    let tcp = arm(plain, options)?.ok();
    Ok(tcp.map(|tcp| Arm {
        whole: tcp.whole.map(|whole| whole - later),
        last_read: tcp.last_read.excess_over(later),
        ..tcp
    }))
}

/// From when on an address is there: an interface may come to it late.
fn there_from(scenario: &Scenario, wanted: IpAddr) -> Duration {
    let mut interfaces = scenario.hosts.iter().flat_map(|host| &host.interfaces);
    if interfaces.any(|one| one.addresses.contains(&wanted)) {
        return Duration::ZERO;
    }
    let added = scenario.events.iter().filter_map(|event| match event {
        Action::AddAddress { at, address, .. } if *address == wanted => Some(at.0),
        _ => None,
    });
    added.min().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there(whole: Option<u64>, last_read: u64) -> Arm {
        Arm {
            whole: whole.map(Duration::from_millis),
            last_read: Duration::from_millis(last_read),
            ..Arm::default()
        }
    }

    #[test]
    fn the_slowest_of_the_other_paths_is_the_measure() {
        let here = Duration::from_millis(300);
        let quick = || there(Some(200), 200);
        let slow = || there(Some(9_000), 9_000);
        let dies = || there(None, 1_000);
        let ms = Duration::from_millis;
        assert_eq!(slowest(here, &[quick(), slow()]), ms(9_000));
        assert_eq!(slowest(here, &[quick()]), ms(200));
        assert_eq!(slowest(here, &[quick(), dies()]), ms(1_300));
        assert_eq!(
            slowest(here, &[]),
            ms(0),
            "without others there is no excuse"
        );
        assert!(gets_stuck(&[quick(), dies()]) && !gets_stuck(&[quick(), slow()]));
    }
}
