//! The gauntlet: random networks, chains of middleboxes, events and applications, each run once with plain TCP over the
//! first path and once with Multipath TCP. Where TCP gets through, Multipath TCP has to get through.
//!
//! Owns the plan of a seed, the pair of runs, the judgement and the cutting down of what failed. Must never know about
//! threads, terminals or files.

mod apps;
mod boxes;
mod closing;
mod dice;
mod elsewhere;
mod events;
mod judge;
mod network;
mod shrink;
mod table;
mod trace;
mod twin;

use dice::{Dice, Part};

use crate::report::Report;
use crate::scenario::{Expect, Scenario, ScenarioError};
use crate::simulation::{RunOptions, Simulation};

pub use judge::Fault;
pub use shrink::shrink;
pub use table::{Fate, Row, Table};
pub use trace::{Trace, trace};
pub use twin::{Arm, Twin};

/// Virtual time that a run may take.
const LIMIT: u64 = 300_000;
/// Events that a run may take: hundreds for each packet of the largest application.
const EVENTS: u64 = 5_000_000;

/// The scenario of a seed.
#[must_use]
pub fn plan(seed: u64) -> Scenario {
    let mut network = network::draw(&mut Dice::new(seed, Part::Network));
    boxes::draw(&mut Dice::new(seed, Part::Boxes), &mut network);
    let rewritten = {
        let mut boxes = network.links.iter().flat_map(|link| &link.boxes);
        boxes.any(|placed| placed.spec.rewrites())
    };
    let app = apps::draw(&mut Dice::new(seed, Part::App), &network.paths, rewritten);
    let events = events::draw(&mut Dice::new(seed, Part::Events), &mut network);
    Scenario {
        title: format!("gauntlet {seed}"),
        about: String::new(),
        seed,
        limit: dice::millis(LIMIT),
        event_limit: EVENTS,
        sample_every: None,
        hosts: network.hosts,
        routers: network.routers,
        links: network.links,
        apps: vec![app],
        events,
        expect: Expect {
            like_tcp: true,
            ..Expect::default()
        },
    }
}

/// Runs a scenario, beside plain TCP if that is what it expects to be compared with.
pub fn replay(scenario: Scenario, options: RunOptions) -> Result<Report, ScenarioError> {
    if scenario.expect.like_tcp {
        let no_way_on = scenario.expect.no_way_on;
        Ok(Twin::run(&scenario, options)?.into_report(no_way_on))
    } else {
        Ok(Simulation::new(scenario, options)?.finish())
    }
}

/// What came out of a seed.
#[derive(Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Its plan.
    pub scenario: Scenario,
    /// Both runs and what is wrong with them.
    pub twin: Twin,
}

/// One hash of many seeds' hashes, by seed.
#[must_use]
pub fn hash_of(hashes: &std::collections::BTreeMap<u64, u64>) -> u64 {
    let mut digest = crate::record::Digest::default();
    for (seed, hash) in hashes {
        digest.add(
            manypath_tcp::time::Instant::ZERO,
            *seed,
            &hash.to_be_bytes(),
        );
    }
    digest.get()
}

/// Runs the plan of a seed.
///
/// Every tenth seed is run again with needless calls of the stacks' timers, and must leave the same record. Each is run once more
/// with an outage while its connections close.
pub fn run(seed: u64) -> Result<Outcome, ScenarioError> {
    let scenario = plan(seed);
    let mut twin = Twin::run(&scenario, RunOptions::default())?;
    if seed % 10 == 0 && twin.fault.is_none() {
        let again = Twin::run(
            &scenario,
            RunOptions {
                spurious_timeouts: true,
                ..RunOptions::default()
            },
        )?;
        if again.hash != twin.hash {
            twin.fault = Some(Fault::Unrepeatable);
        }
    }
    let mut scenario = scenario;
    if let Some(over) = twin.over().filter(|_| twin.fault.is_none()) {
        let cut = closing::plan(seed, &scenario, over);
        if let Some(fault) = closing::run(&cut)? {
            (twin.fault, scenario) = (Some(fault), cut);
        }
    }
    Ok(Outcome {
        seed,
        scenario,
        twin,
    })
}

/// What is wrong with a scenario that failed by `fault`, or one that was cut down from it.
#[must_use]
pub fn fault_again(scenario: &Scenario, fault: &Fault) -> Option<Fault> {
    match fault {
        Fault::HalfOpen(_) => closing::run(scenario).ok()?,
        _ => Twin::run(scenario, RunOptions::default()).ok()?.fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_can_be_built_and_written_down() {
        for seed in 0..1_000 {
            let scenario = plan(seed);
            let text = scenario.to_toml().unwrap();
            let again = Scenario::parse(&text).unwrap_or_else(|e| panic!("{seed}: {e}\n{text}"));
            assert_eq!(again, scenario, "{seed}:\n{text}");
            let built = Simulation::new(scenario, RunOptions::default());
            assert!(built.is_ok(), "{seed}: {}\n{text}", built.err().unwrap());
        }
    }
}
