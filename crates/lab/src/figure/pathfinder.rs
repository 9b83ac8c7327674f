//! Figures of "PathFinder" (Karlstad 2012): how many subflows a connection opens when nobody tells it how many paths there are,
//! and how fast it is with them.

use manypath_sim::networks::{Spread, parallel_paths};
use manypath_tcp::time::{Duration, Instant};

use super::compare::range;
use super::crowd::{Crowd, Found, send};
use super::memo::Memo;
use super::routed::paths;
use super::sim::{megabits, span};
use super::smapp::simulation;
use super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};

/// The figures, in the paper's order.
pub(super) const FIGURES: &[Figure] = &[
    BY_HAND,
    Figure {
        id: "pathfinder-3",
        source: "PathFinder, figure 3",
        title: "PathFinder over three paths: subflows of a connection, by beta",
        paper: Paper {
            says: "One connection opens four subflows, one more than there are paths, for beta between 10 and 40; fewer for a \
                   larger beta. Connections beside each other overestimate.",
            lines: &[],
        },
        x: BETA,
        y: SUBFLOWS,
        run: subflows,
        verdict: finds_by_beta,
        ..BY_GAMMA
    },
    Figure {
        id: "pathfinder-4",
        source: "PathFinder, figure 4",
        title: "PathFinder over three paths with a beta of 20 %: subflows of a connection, by gamma",
        paper: Paper {
            says: "One connection opens four subflows for gamma up to 8. Five connections overestimate, the less the larger \
                   gamma is.",
            lines: &[],
        },
        y: SUBFLOWS,
        run: subflows,
        verdict: finds_by_gamma,
        ..BY_GAMMA
    },
    Figure {
        id: "pathfinder-5",
        source: "PathFinder, figure 5",
        title: "PathFinder over three paths: throughput of all connections, by beta",
        paper: Paper {
            says: "One connection is as fast as with three subflows given by hand while beta is below 80.",
            lines: &[],
        },
        x: BETA,
        verdict: fast_by_beta,
        ..BY_GAMMA
    },
    BY_GAMMA,
];

/// Figure 6, and what the figures of PathFinder have in common.
const BY_GAMMA: Figure = Figure {
    id: "pathfinder-6",
    source: "PathFinder, figure 6",
    title: "PathFinder over three paths with a beta of 20 %: throughput of all connections, by gamma",
    paper: Paper {
        says: "A larger gamma makes one connection slower, since it takes longer until it has all of its subflows; several \
               connections lose little or nothing.",
        lines: &[],
    },
    knobs: &KNOBS,
    x: Across::Knob {
        name: "gamma",
        quick: "0,1,4,8",
        full: "0,1,2,4,8,16",
        logarithmic: false,
    },
    y: THROUGHPUT,
    lines: &[
        line(ALONE, "pathfinder/1"),
        line("2 connections", "pathfinder/2"),
        line(BUSY, "pathfinder/5"),
        line(ALONE_ADAPTING, "adapting/1"),
        line(BUSY_ADAPTING, "adapting/5"),
        line("1 connection, three subflows by hand", "ndiffports:3/1"),
    ],
    load: Load::Light,
    run: throughput,
    verdict: fast_by_gamma,
};

/// Figure 2.
const BY_HAND: Figure = Figure {
    id: "pathfinder-2",
    source: "PathFinder, figure 2",
    title: "Connections with one and three subflows over three paths: throughput of all of them",
    paper: Paper {
        says: "One connection with one subflow uses one path of three. Three of them, or one with three subflows, use all.",
        lines: &[],
    },
    x: Across::Knob {
        name: "connections",
        quick: "1,2,3,4",
        full: "1,2,3,4",
        logarithmic: false,
    },
    lines: &[
        by_hand("one subflow each", "ndiffports:1/0"),
        by_hand("three subflows each", "ndiffports:3/0"),
    ],
    verdict: three_are_enough,
    ..BY_GAMMA
};

const ALONE: &str = "1 connection";
const BUSY: &str = "5 connections";
const ALONE_ADAPTING: &str = "1 connection, adapting by itself";
const BUSY_ADAPTING: &str = "5 connections, adapting by themselves";

const BETA: Across = Across::Knob {
    name: "beta",
    quick: "10%,20%,40%,80%",
    full: "0,5%,10%,20%,30%,40%,60%,80%,100%",
    logarithmic: false,
};
const SUBFLOWS: Axis = Axis::linear("subflows of a connection");
const THROUGHPUT: Axis = Axis::linear("throughput of all connections (Mbit/s)");

const KNOBS: [Knob; 6] = [
    Knob::new(
        "beta",
        Unit::Percent,
        "20%",
        "beta: what a further subflow must add (%)",
    )
    .or_all(),
    Knob::new(
        "gamma",
        Unit::Count,
        "0",
        "gamma: round trips for which it must",
    )
    .or_none(),
    Knob::new("connections", Unit::Count, "1", "connections"),
    Knob::new("rate", Unit::Rate, "8mbit", "rate of each path").each_of(3),
    Knob::new(
        "runs",
        Unit::Count,
        "10",
        "runs of which the mean counts; one on real packets",
    )
    .measures(),
    // How long a connection lives decides how many subflows it opens.
    Knob::new("time", Unit::Time, "120s", "length of a run").quick("30s"),
];

/// One way in milliseconds; the paths differ a little in length, as the paper's do.
const DELAYS: [u32; 3] = [10, 12, 14];

const fn line(name: &'static str, what: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Sim, Arm::Real],
        does: Does::Own(what),
    }
}

/// A number of subflows that the kernel can be told, too.
const fn by_hand(name: &'static str, what: &'static str) -> Line {
    Line {
        arms: &[Arm::Sim, Arm::Real, Arm::Kernel],
        ..line(name, what)
    }
}

/// Figures 3 and 5 show the same runs, 4 and 6 too; and lines that do not depend on what a figure varies are one run each.
static RUNS: Memo<Result<Found, String>> = Memo::new();

/// One run; a seed makes it another one in the simulator.
fn one(run: &Run<'_>, seed: u64) -> Result<Found, String> {
    let knobs = run.knobs;
    let Does::Own(what) = run.line.does else {
        return Err("a line of another figure".to_owned());
    };
    let (policy, count) = what.split_once('/').unwrap_or((what, "0"));
    let connections = match count.parse() {
        Ok(fixed @ 1..) => fixed,
        _ => knobs.whole("connections"),
    };
    let by_hand = policy.strip_prefix("ndiffports:");
    let by_hand = by_hand.and_then(|count| count.parse().ok());
    let (beta, gamma) = (knobs.whole("beta"), knobs.whole("gamma"));
    let policy = match policy {
        "pathfinder" => format!("pathfinder:beta={beta},gamma={gamma}"),
        "adapting" => format!("pathfinder:beta={beta},gamma=auto"),
        fixed => fixed.to_owned(),
    };
    let (rate, time) = (knobs.whole("rate"), knobs.get("time"));
    let same = format!("{} {seed} {policy} {connections} {rate} {time}", run.arm);
    RUNS.get(same, || {
        if run.arm == Arm::Sim {
            return simulated(&policy, connections, rate, span(time), seed);
        }
        let paths = paths(DELAYS, rate);
        let crowd = Crowd {
            paths: &paths,
            connections,
            subflows: by_hand.unwrap_or(1),
            policy: &policy,
            time: std::time::Duration::from_secs_f64(time),
        };
        send(run, crowd)
    })
}

fn simulated(
    policy: &str,
    connections: u64,
    rate: u64,
    time: Duration,
    seed: u64,
) -> Result<Found, String> {
    let app = format!(
        "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"100GB\"\n\
         connections = {connections}\noptions = {{ congestion = \"lia\" }}\n\
         client-options = {{ path-manager = \"{policy}\" }}\n"
    );
    let text = parallel_paths(&DELAYS, rate, Spread::InTurn, &app);
    let mut simulation = simulation(&text, seed)?;
    simulation.run_until(Instant::ZERO + time);
    let read = simulation.hosts()[1].endpoints().iter();
    let rate = megabits(read.map(|end| end.record.read).sum(), time);
    let stack = &simulation.hosts()[0].stack;
    let conns = stack.conns();
    let infos = conns.iter().filter_map(|id| stack.info(*id).ok());
    let subflows = infos.map(|info| info.subflows.len()).sum::<usize>();
    Ok(Found {
        subflows: subflows as f64 / conns.len().max(1) as f64,
        rate,
    })
}

fn mean(run: &Run<'_>, of: fn(Found) -> f64) -> Result<Vec<Sample>, String> {
    // No two runs on real packets are alike anyhow; they take as long as they say.
    let runs = match run.arm {
        Arm::Sim => run.knobs.whole("runs").max(1),
        Arm::Real | Arm::Kernel | Arm::Process => 1,
    };
    let one = |seed| {
        run.go_on()?;
        one(run, seed).map(of)
    };
    let all: Result<Vec<f64>, String> = (1..=runs).map(one).collect();
    Ok(run.point(all?.iter().sum::<f64>() / runs as f64))
}

fn subflows(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    mean(run, |found| found.subflows)
}

fn throughput(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    mean(run, |found| found.rate)
}

/// What a statement finds on each arm that came out.
fn on_all(seen: &Seen<'_>, find: impl Fn(Arm) -> Vec<Finding>) -> Vec<Finding> {
    seen.arms().flat_map(find).collect()
}

/// Whether all values of one connection lie within half a subflow of four, in words.
fn four(seen: &Seen<'_>, arm: Arm, statement: &str, low: f64, high: f64) -> Option<Finding> {
    let (least, most) = range(&seen.line(arm, ALONE)?.within(low, high))?;
    let seen = format!("from {least:.1} to {most:.1} subflows");
    Some(Finding::new(
        arm,
        statement,
        seen,
        least > 3.5 && most < 4.5,
    ))
}

fn finds_by_beta(seen: &Seen<'_>) -> Vec<Finding> {
    let statement = "one connection opens four subflows for three paths for beta from 20 to 40 %";
    on_all(seen, |arm| {
        let found = four(seen, arm, statement, 20.0, 40.0);
        found
            .into_iter()
            .chain(fewer(seen, arm, "with a gamma of 0"))
            .collect()
    })
}

fn finds_by_gamma(seen: &Seen<'_>) -> Vec<Finding> {
    let statement = "one connection opens four subflows for three paths for gamma from 1 to 8";
    on_all(seen, |arm| {
        let found = four(seen, arm, statement, 1.0, 8.0);
        found
            .into_iter()
            .chain(fewer(seen, arm, "with any fixed gamma here"))
            .collect()
    })
}

/// What adapts by itself overestimates less than what is fixed, where connections are busy. A figure says which gammas it has
/// beside it.
fn fewer(seen: &Seen<'_>, arm: Arm, than: &str) -> Option<Finding> {
    let ratio = seen.ratio(arm, BUSY_ADAPTING, BUSY)?;
    let statement = format!(
        "under five connections the variant that adapts by itself opens no more subflows than {than}"
    );
    let [x, most] = ratio.most();
    let seen = format!("up to {most:.2} times as many, at {x}");
    Some(Finding::new(arm, &statement, seen, most <= 1.0))
}

fn fast_by_beta(seen: &Seen<'_>) -> Vec<Finding> {
    let statement =
        "one connection is within 5 % of three subflows given by hand, while beta is at most 40 %";
    on_all(seen, |arm| {
        Vec::from_iter(as_by_hand(seen, arm, statement, ALONE, 1.0, 40.0))
    })
}

fn fast_by_gamma(seen: &Seen<'_>) -> Vec<Finding> {
    let one = "one connection is within 5 % of three subflows given by hand for gamma from 1 to 8";
    let own = "so is the variant that adapts by itself";
    on_all(seen, |arm| {
        [
            as_by_hand(seen, arm, one, ALONE, 1.0, 8.0),
            as_by_hand(seen, arm, own, ALONE_ADAPTING, 0.0, 16.0),
            as_the_best(seen, arm, "one connection", ALONE_ADAPTING, ALONE),
            as_the_best(seen, arm, "five connections", BUSY_ADAPTING, BUSY),
        ]
        .into_iter()
        .flatten()
        .collect()
    })
}

/// What adapts by itself is as fast as the best that is fixed: one connection alone to the bit in the simulator, five to what
/// chance does, since they fill all paths from the beginning.
fn as_the_best(
    seen: &Seen<'_>,
    arm: Arm,
    who: &str,
    adapting: &str,
    fixed: &str,
) -> Option<Finding> {
    // On real packets no two runs are alike.
    let (words, part) = match arm {
        Arm::Sim if adapting == ALONE_ADAPTING => ("at least", 0.0),
        Arm::Sim => ("to a thousandth", 0.001),
        Arm::Real | Arm::Kernel | Arm::Process => ("to a hundredth", 0.01),
    };
    let (least, _) = range(&seen.line(arm, adapting)?.points)?;
    let (_, best) = range(&seen.line(arm, fixed)?.points)?;
    let statement = format!(
        "the throughput of {who} adapting to the network is that with the best gamma, {words}"
    );
    let seen = format!("{least:.3} and {best:.3} Mbit/s");
    Some(Finding::new(
        arm,
        &statement,
        seen,
        least >= best * (1.0 - part),
    ))
}

fn as_by_hand(
    seen: &Seen<'_>,
    arm: Arm,
    statement: &str,
    name: &str,
    low: f64,
    high: f64,
) -> Option<Finding> {
    let ratio = seen.ratio(arm, name, "1 connection, three subflows by hand")?;
    let ratio = ratio.within(low, high)?;
    Some(Finding::never_below(arm, statement, &ratio, 0.95, ""))
}

fn three_are_enough(seen: &Seen<'_>) -> Vec<Finding> {
    let statement = "one connection with three subflows is about three times as fast as with one";
    on_all(seen, |arm| {
        let at = |name: &str| seen.at(arm, name, 1.0);
        let (Some(one), Some(three)) = (at("one subflow each"), at("three subflows each")) else {
            return Vec::new();
        };
        let holds = (2.5..=3.2).contains(&(three / one.max(1e-9)));
        let seen = format!("{three:.1} and {one:.1} Mbit/s");
        vec![Finding::new(arm, statement, seen, holds)]
    })
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    fn series(name: &str, points: &[[f64; 2]]) -> Series {
        Series::of(Arm::Sim, name, points)
    }

    #[test]
    fn estimates_are_held_against_the_paths() {
        let busy = |name: &str, y: f64| series(name, &[[1.0, y], [8.0, y]]);
        let all = [
            series("1 connection", &[[0.0, 6.0], [1.0, 4.0], [8.0, 4.0]]),
            busy("5 connections", 6.0),
            busy("5 connections, adapting by themselves", 4.5),
        ];
        let held = |all: &[Series]| {
            let found = finds_by_gamma(&Seen::of(all));
            found.iter().map(|f| f.holds).collect::<Vec<_>>()
        };
        assert_eq!(held(&all), [true, true]);
        let bad = [
            series("1 connection", &[[1.0, 5.0], [8.0, 4.0]]),
            busy("5 connections", 6.0),
            busy("5 connections, adapting by themselves", 7.0),
        ];
        assert_eq!(held(&bad), [false, false]);
    }

    #[test]
    fn only_the_gammas_that_were_run_are_spoken_of() {
        let all = [
            series(BUSY, &[[10.0, 6.0], [20.0, 5.0]]),
            series(BUSY_ADAPTING, &[[10.0, 4.0], [20.0, 4.0]]),
        ];
        let by_beta = &finds_by_beta(&Seen::of(&all))[0];
        assert!(by_beta.statement.ends_with("than with a gamma of 0"));
        let by_gamma = &finds_by_gamma(&Seen::of(&all))[0];
        assert!(
            by_gamma
                .statement
                .ends_with("than with any fixed gamma here")
        );
    }

    #[test]
    fn throughput_is_held_against_what_is_given_by_hand() {
        let all = |rate: f64| {
            [
                series("1 connection", &[[0.0, 10.0], [4.0, rate]]),
                series(
                    "1 connection, three subflows by hand",
                    &[[0.0, 24.0], [4.0, 24.0]],
                ),
            ]
        };
        assert!(fast_by_gamma(&Seen::of(&all(23.5)))[0].holds);
        assert!(!fast_by_gamma(&Seen::of(&all(20.0)))[0].holds);
        let beside_the_best = |arm, [fixed, adapting]: [&str; 2], own: f64| {
            let lines = [
                Series::of(arm, fixed, &[[0.0, 22.0], [4.0, 22.5]]),
                Series::of(arm, adapting, &[[0.0, own], [4.0, 22.6]]),
            ];
            fast_by_gamma(&Seen::of(&lines))[0].holds
        };
        assert!(beside_the_best(Arm::Sim, [BUSY, BUSY_ADAPTING], 22.49));
        assert!(!beside_the_best(Arm::Sim, [BUSY, BUSY_ADAPTING], 22.4));
        assert!(beside_the_best(Arm::Sim, [ALONE, ALONE_ADAPTING], 22.5));
        assert!(!beside_the_best(Arm::Sim, [ALONE, ALONE_ADAPTING], 22.49));
        assert!(beside_the_best(Arm::Real, [BUSY, BUSY_ADAPTING], 22.4));
        let by_hand = [
            series("one subflow each", &[[1.0, 7.6]]),
            series("three subflows each", &[[1.0, 22.0]]),
        ];
        assert!(three_are_enough(&Seen::of(&by_hand))[0].holds);
    }
}
