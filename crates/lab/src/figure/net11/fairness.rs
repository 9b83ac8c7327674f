//! Figures 4 and 5: several subflows of one connection through the bottleneck of somebody else's TCP.

use manypath_sim::networks::SharedBottleneck;
use manypath_sim::scenario::Scenario;
use manypath_sim::{RunOptions, Simulation};
use manypath_tcp::time::Instant;

use super::super::compare::range;
use super::super::sim::span;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, PaperLine, Run, Sample,
    Seen, Unit,
};

const LIA: &str = "LIA";
const OLIA: &str = "OLIA";
const BALIA: &str = "BALIA";
const WVEGAS: &str = "wVegas";
const RENO: &str = "Reno, not coupled";

/// The name of a line is that of its controller as people write it, what it does is as the stack does.
const LINES: &[Line] = &[
    line(LIA, "lia"),
    line(OLIA, "olia"),
    line(BALIA, "balia"),
    line(WVEGAS, "wvegas"),
    line(RENO, "reno"),
];

/// Those that aim at the share of one TCP beside TCPs that fill buffers; a delay-based one gives way to them.
const COUPLED: [&str; 3] = [LIA, OLIA, BALIA];

const fn line(name: &'static str, congestion: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Sim],
        does: Does::Own(congestion),
    }
}

const KNOBS: [Knob; 8] = [
    Knob::new("others", Unit::Count, "1", "TCP connections beside it").or_none(),
    Knob::new("subflows", Unit::Count, "2", "subflows"),
    Knob::new("rate", Unit::Rate, "100mbit", "rate of the bottleneck").quick("10mbit"),
    Knob::new("rtt", Unit::Time, "40ms", "round trip").or_none(),
    Knob::new("queue", Unit::Time, "150ms", "buffer of the bottleneck"),
    // A run at a tenth of the rate and a third of the time sees a thirtieth of the losses.
    Knob::new("runs", Unit::Count, "5", "runs of which the mean counts")
        .quick("10")
        .measures(),
    Knob::new("warm-up", Unit::Time, "20s", "time before the measurement")
        .or_none()
        .measures(),
    Knob::new("time", Unit::Time, "600s", "length of a measurement")
        .quick("200s")
        .measures(),
];

/// Figure 4.
pub(super) const AMONG_MANY: Figure = Figure {
    id: "net11-4",
    source: "NETWORKING 2011, figure 4",
    title: "A connection with two subflows beside TCPs on one bottleneck: its part of the rate",
    paper: Paper {
        says: "With coupled congestion control a connection with two subflows takes what one TCP takes, however many TCPs there \
               are beside it; with Reno on each subflow it takes what two take.",
        lines: &[
            PaperLine {
                name: LIA,
                points: &[[1.0, 50.0], [2.0, 33.3], [4.0, 20.0]],
            },
            PaperLine {
                name: RENO,
                points: &[[1.0, 66.7], [2.0, 50.0], [4.0, 33.3]],
            },
        ],
    },
    knobs: &KNOBS,
    x: Across::Knob {
        name: "others",
        quick: "1,2,4",
        full: "1,2,3,4,5",
        logarithmic: false,
    },
    y: SHARE,
    lines: LINES,
    load: Load::Light,
    run: share,
    verdict: as_one,
};

/// Figure 5.
pub(super) const SUBFLOWS: Figure = Figure {
    id: "net11-5",
    source: "NETWORKING 2011, figure 5",
    title: "A connection with 1 to 8 subflows beside one TCP on one bottleneck: its part of the rate",
    paper: Paper {
        says: "With one subflow both are fair. With two or three, Reno on each subflow takes more than the TCP beside it, the \
               more the more subflows there are; with coupled congestion control it stays fair.",
        lines: &[
            PaperLine {
                name: LIA,
                points: &[[1.0, 50.0], [2.0, 50.0], [3.0, 50.0]],
            },
            PaperLine {
                name: RENO,
                points: &[[1.0, 50.0], [2.0, 66.7], [3.0, 75.0]],
            },
        ],
    },
    knobs: &KNOBS,
    x: Across::Knob {
        name: "subflows",
        quick: "1,2,3,8",
        full: "1,2,3,8",
        logarithmic: false,
    },
    y: SHARE,
    lines: LINES,
    load: Load::Light,
    run: share,
    verdict: half,
};

const SHARE: Axis = Axis::linear("part of the bottleneck's rate (%)");

fn scenario(run: &Run<'_>, seed: u64) -> String {
    let knobs = run.knobs;
    let Does::Own(congestion) = run.line.does else {
        // The lines above are all there are.
        return String::new();
    };
    let network = SharedBottleneck {
        rate: knobs.whole("rate"),
        rtt_us: (knobs.get("rtt") * 1e6) as u64,
        queue_us: (knobs.get("queue") * 1e6) as u64,
        congestion,
        subflows: knobs.whole("subflows"),
        start_ms: 0,
        beside: "reno",
        others: knobs.whole("others"),
        others_start_ms: 0,
    };
    network.starting_by(seed).text()
}

/// The part of one run, in per cent.
fn part(run: &Run<'_>, seed: u64) -> Result<f64, String> {
    let scenario = Scenario::parse(&scenario(run, seed)).map_err(|error| error.to_string())?;
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    let mut simulation = Simulation::new(scenario, options).map_err(|error| error.to_string())?;
    let mut read = |seconds: f64| {
        simulation.run_until(Instant::ZERO + span(seconds));
        // The server comes last; what its first application reads is ours.
        let ends = simulation.hosts()[2].endpoints();
        let of = |ours: bool| {
            let these = ends.iter().filter(|end| (end.app == 0) == ours);
            these.map(|end| end.record.read).sum::<u64>()
        };
        [of(true), of(false)]
    };
    let warm_up = run.knobs.get("warm-up");
    let before = read(warm_up);
    let after = read(warm_up + run.knobs.get("time"));
    let [ours, theirs] = [0, 1].map(|n| (after[n] - before[n]) as f64);
    if ours + theirs == 0.0 {
        return Err("nothing was read in the time that counts: --set time=VALUE longer".to_owned());
    }
    Ok(100.0 * ours / (ours + theirs))
}

fn share(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let runs = run.knobs.whole("runs").max(1);
    let one = |seed| {
        run.go_on()?;
        part(run, seed)
    };
    let parts: Result<Vec<f64>, String> = (1..=runs).map(one).collect();
    Ok(run.point(parts?.iter().sum::<f64>() / runs as f64))
}

/// How many times what each of so many TCPs takes a part of so many per cent is.
fn times_one(others: f64, percent: f64) -> f64 {
    percent * others / (100.0 - percent)
}

/// How many times what one TCP takes still is what one TCP takes: beside one, 45 to 55 %.
const AS_ONE: [f64; 2] = [0.82, 1.22];
/// Per cent that still are half.
const HALF: [f64; 2] = [45.0, 55.0];

fn as_one(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    let [least, most] = AS_ONE;
    let times = |name: &str| {
        // Alone a connection takes everything, whatever its controller.
        let beside_others = seen.line(Arm::Sim, name)?.within(1.0, f64::MAX);
        let parts = beside_others.iter().map(|[x, y]| [*x, times_one(*x, *y)]);
        range(&parts.collect::<Vec<_>>())
    };
    for name in COUPLED {
        if let Some((low, high)) = times(name) {
            all.push(Finding::new(
                Arm::Sim,
                &format!("{name} takes {least} to {most} times what one TCP takes"),
                format!("from {low:.2} to {high:.2} times"),
                low >= least && high <= most,
            ));
        }
    }
    if let Some((low, _)) = times(RENO) {
        all.push(Finding::new(
            Arm::Sim,
            &format!("Reno on each subflow takes more than {most} times what one TCP takes"),
            format!("at least {low:.2} times"),
            low > most,
        ));
    }
    all
}

fn half(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    let [least, most] = HALF;
    // One number of subflows says nothing about whatever number there is.
    let parts = |name: &str| {
        let points = &seen.line(Arm::Sim, name)?.points;
        range(points).filter(|_| points.len() > 1)
    };
    for name in COUPLED {
        if let Some((low, high)) = parts(name) {
            all.push(Finding::new(
                Arm::Sim,
                &format!(
                    "{name} stays within {least} and {most} %, whatever the number of subflows"
                ),
                format!("from {low:.1} to {high:.1} %"),
                low >= least && high <= most,
            ));
        }
    }
    if let Some((_, high)) = parts(WVEGAS) {
        all.push(Finding::new(
            Arm::Sim,
            &format!("wVegas, which obeys delay, never takes more than {most} %"),
            format!("up to {high:.1} %"),
            high <= most,
        ));
    }
    if let (Some(two), Some(three)) = (seen.at(Arm::Sim, RENO, 2.0), seen.at(Arm::Sim, RENO, 3.0)) {
        all.push(Finding::new(
            Arm::Sim,
            &format!(
                "Reno on each subflow takes more than {most} %, the more the more subflows there are"
            ),
            format!("{two:.1} % with two and {three:.1} % with three"),
            two > most && three > two,
        ));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    fn series(name: &str, points: &[[f64; 2]]) -> Series {
        Series::of(Arm::Sim, name, points)
    }

    #[test]
    fn fair_shares_are_told_from_unfair_ones() {
        let all = [
            series(LIA, &[[1.0, 50.0], [2.0, 48.0], [3.0, 52.0]]),
            series(OLIA, &[[1.0, 50.0], [2.0, 41.0], [3.0, 40.0]]),
            series(RENO, &[[1.0, 50.0], [2.0, 66.0], [3.0, 74.0]]),
        ];
        let held: Vec<bool> = half(&Seen::of(&all)).iter().map(|f| f.holds).collect();
        assert_eq!(held, [true, false, true]);
        let all = [
            series(LIA, &[[1.0, 49.0], [2.0, 32.0], [4.0, 21.0]]),
            series(RENO, &[[1.0, 66.0], [2.0, 50.0], [4.0, 34.0]]),
        ];
        assert!(as_one(&Seen::of(&all)).iter().all(|f| f.holds));
        let greedy = [series(LIA, &[[1.0, 66.0]]), series(RENO, &[[1.0, 50.0]])];
        assert!(as_one(&Seen::of(&greedy)).iter().all(|f| !f.holds));
    }

    #[test]
    fn bounds_are_told_and_points_that_say_nothing_are_left_out() {
        let told = |all: &[Series], verdict: fn(&Seen<'_>) -> Vec<Finding>| -> Vec<String> {
            let found = verdict(&Seen::of(all));
            found.into_iter().map(|f| f.statement).collect()
        };
        let alone = [series(LIA, &[[0.0, 100.0]]), series(RENO, &[[0.0, 100.0]])];
        assert!(told(&alone, as_one).is_empty());
        let beside = [series(RENO, &[[0.0, 100.0], [1.0, 66.0]])];
        assert!(as_one(&Seen::of(&beside))[0].holds);
        assert!(told(&beside, as_one)[0].contains("more than 1.22 times"));
        let one = [series(LIA, &[[2.0, 50.0]]), series(WVEGAS, &[[2.0, 30.0]])];
        assert!(told(&one, half).is_empty());
        let two = [series(WVEGAS, &[[1.0, 54.0], [2.0, 30.0]])];
        assert!(told(&two, half)[0].ends_with("more than 55 %"));
    }
}
