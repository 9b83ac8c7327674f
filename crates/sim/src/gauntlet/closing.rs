//! Outages at the end: the same plan, with paths cut while its connections close. When the network has been whole again for
//! longer than any timer runs, no end may hold a connection that the other one does not have any more.
//!
//! Excepted is what RFC 9293 leaves half-open (section 3.5.1): an end without keepalive that owes the peer nothing, neither data
//! nor the end of its stream, and only waits for what the peer sends. Whatever told it of the end was lost, and nothing that it would
//! send itself finds out.

use manypath_stack::api::{ConnInfo, ConnState};

use super::dice::{Dice, Part, millis};
use super::judge::Fault;
use super::network::link_name;
use super::twin;
use crate::endpoint::{Endpoint, Phase};
use crate::scenario::{Action, CloseSpec, Expect, LinkSpec, Scenario, ScenarioError};
use crate::simulation::{RunOptions, Simulation};

/// Longer than any timer of a connection runs: data is repeated for fifteen minutes on one subflow after another, and keepalives go
/// out for some minutes.
const AFTERWARDS: u64 = 3_600_000;
/// The longest outage.
const LONGEST: u64 = 120_000;

/// The plan of a seed whose connections were over after `over` milliseconds, with an outage at about that time.
pub(super) fn plan(seed: u64, scenario: &Scenario, over: u64) -> Scenario {
    let mut dice = Dice::new(seed, Part::Closing);
    let mut cut = scenario.clone();
    let paths = scenario.links.iter().map(|link| link.name.clone());
    let mut paths: Vec<String> = paths.filter(|name| name.starts_with("path")).collect();
    if dice.percent(40) {
        paths = vec![link_name(dice.below(paths.len()))];
    }
    let from = over.saturating_sub(dice.log(1, 2_000));
    let until = from + dice.log(100, LONGEST);
    for link in paths {
        let at = millis(from);
        cut.events.push(Action::Cut { at, link });
    }
    // What was cut for good is mended as well: with all paths whole, there is no excuse.
    let latest = scenario.events.iter().map(|event| event.at().0).max();
    let latest = latest.map_or(0, |at| at.as_nanos() / 1_000_000 + 1);
    let until = until.max(latest);
    for link in &scenario.links {
        cut.events.push(Action::Mend {
            at: millis(until),
            link: link.name.clone(),
        });
    }
    for app in &mut cut.apps {
        if app.close == CloseSpec::Abort && dice.percent(50) {
            app.server_options.keepalive = None;
        }
    }
    cut.limit = millis(until + AFTERWARDS);
    cut.expect = Expect::default();
    cut
}

/// Every link that is cut is mended later, or what one end alone holds says nothing.
fn is_mended(scenario: &Scenario) -> bool {
    let ends_cut = |link: &LinkSpec| {
        let of_link = |event: &&Action| match event {
            Action::Cut { link: name, .. } | Action::Mend { link: name, .. } => *name == link.name,
            _ => false,
        };
        let events = scenario.events.iter().filter(of_link);
        let last = events.max_by_key(|event| event.at().0);
        matches!(last, Some(Action::Cut { .. }))
    };
    !scenario.links.iter().any(ends_cut)
}

/// Runs it and looks for what one end alone holds.
pub(super) fn run(scenario: &Scenario) -> Result<Option<Fault>, ScenarioError> {
    if !is_mended(scenario) {
        return Ok(None);
    }
    let arm = twin::arm(scenario.clone(), RunOptions::default())?;
    Ok(match arm {
        Err(panic) => Some(Fault::Panic(panic)),
        Ok(arm) => arm.half_open.first().cloned().map(Fault::HalfOpen),
    })
}

/// Ends that hold a connection which is over at the other end, in a run that is over.
pub(super) fn half_open(simulation: &Simulation) -> Vec<String> {
    let ends = || simulation.hosts.iter().flat_map(|host| host.endpoints());
    let key = |end: &Endpoint| (end.app, end.number.unwrap_or(0));
    let other =
        |one: &Endpoint| ends().find(|end| end.is_client != one.is_client && key(end) == key(one));
    let held = ends().filter(|end| end.phase != Phase::Over);
    let held = held.filter(|end| other(end).is_none_or(|other| other.phase == Phase::Over));
    let unexplained = held.filter(|end| {
        let app = &simulation.scenario.apps[end.app];
        let options = if end.is_client {
            &app.client_options
        } else {
            &app.server_options
        };
        let asks = options.keepalive.or(app.options.keepalive).is_some();
        asks || !end.record.info.as_ref().is_some_and(waits_only)
    });
    let told = unexplained.map(|end| {
        let side = if end.is_client { "client" } else { "server" };
        let state = end.record.info.as_ref().map(|info| info.state);
        format!("the {side} alone holds a connection, {state:?}")
    });
    told.collect()
}

/// It owes the peer nothing.
fn waits_only(info: &ConnInfo) -> bool {
    let waits = matches!(info.state, ConnState::Established | ConnState::FinWait2);
    waits && info.send_queue == 0
}
