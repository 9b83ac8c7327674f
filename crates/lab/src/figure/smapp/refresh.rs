//! Figure 2c: 100 MB over four paths behind a router that hashes flows.

use manypath_sim::networks::{Spread, parallel_paths};
use manypath_tcp::time::Instant;

use super::super::routed::paths;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::hashed::{File, seconds};
use super::{distribution, quantile, simulation};

const REFRESH: &str = "refresh";
const PAPERS: &str = "refresh by the paper's rule";
const NDIFFPORTS: &str = "ndiffports";

/// Figure 2c.
pub(super) const FIGURE: Figure = Figure {
    id: "smapp-2c",
    source: "SMAPP, figure 2c",
    title: "100 MB by five subflows over four paths that a router chooses by hash: how long it takes",
    paper: Paper {
        says: "With ndiffports the times lie around 28, 37 and 55 s, as the subflows happen to use four, three or two paths. A \
               controller that replaces the slowest subflow every 2.5 s tends to use all four. The shortest time on four paths \
               is 27.8 s, the longest on one 111.7 s.",
        lines: &[],
    },
    knobs: &[
        Knob::new("rate", Unit::Rate, "8mbit", "rate of each path").each_of(4),
        Knob::new("size", Unit::Bytes, "100mb", "size of the file"),
        Knob::new("subflows", Unit::Count, "5", "subflows"),
        Knob::new("runs", Unit::Count, "40", "runs in the simulator")
            .quick("9")
            .measures(),
        Knob::new(
            "real-runs",
            Unit::Count,
            "12",
            "runs on real packets, two at a time without --jobs",
        )
        .quick("4")
        .measures(),
    ],
    x: Across::Measured(Axis::linear("time (s)")),
    y: Axis::linear("% of the runs"),
    lines: &[
        line(REFRESH, &[Arm::Sim, Arm::Real]),
        line(PAPERS, &[Arm::Sim, Arm::Real]),
        line(NDIFFPORTS, &[Arm::Sim, Arm::Real, Arm::Kernel]),
    ],
    load: Load::Light,
    run,
    verdict,
};

const fn line(name: &'static str, arms: &'static [Arm]) -> Line {
    Line {
        name,
        arms,
        does: Does::Own(name),
    }
}

/// In milliseconds, as the paper has them.
const DELAYS: [u32; 4] = [10, 20, 30, 40];

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let knobs = run.knobs;
    let subflows = knobs.whole("subflows");
    let policy = match run.line.name {
        REFRESH => format!("refresh:subflows={subflows}"),
        PAPERS => format!("refresh:subflows={subflows},rule=paper"),
        _ => format!("ndiffports:{subflows}"),
    };
    if matches!(run.arm, Arm::Real | Arm::Kernel) {
        return Ok(distribution(run.line.name, real_times(run, &policy)?));
    }
    let app = format!(
        "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"{}B\"\n\
         client-options = {{ path-manager = \"{policy}\" }}\n",
        knobs.whole("size")
    );
    let text = parallel_paths(&DELAYS, knobs.whole("rate"), Spread::Hash, &app);
    let time = |seed| {
        run.go_on()?;
        let mut simulation = simulation(&text, seed)?;
        simulation.run();
        let record = simulation.hosts()[1]
            .endpoints()
            .first()
            .map(|end| &end.record);
        let whole = record.and_then(|record| record.whole);
        let whole = whole.ok_or_else(|| format!("seed {seed}: the file did not arrive"))?;
        Ok(whole.since(Instant::ZERO).as_micros() as f64 / 1e6)
    };
    let times: Result<Vec<f64>, String> = (1..=knobs.whole("runs").max(1)).map(time).collect();
    Ok(distribution(run.line.name, times?))
}

/// Networks at one time, unless somebody says how many runs may go. Other runs go on beside: with four in each, twelve of them shared two processors, and every file took half
/// as long again.
const AT_ONCE: u64 = 2;
/// A file may take so many times as long as on one of the paths.
const PATIENCE: f64 = 1.5;

/// The same on real packets.
fn real_times(run: &Run<'_>, policy: &str) -> Result<Vec<f64>, String> {
    let knobs = run.knobs;
    let rate = knobs.whole("rate");
    let paths = paths(DELAYS, rate);
    let size = knobs.whole("size");
    let on_one = size as f64 * 8.0 / rate as f64;
    let file = File {
        paths: &paths,
        size,
        subflows: knobs.whole("subflows"),
        policy,
        most: std::time::Duration::from_secs_f64(on_one * PATIENCE + 10.0),
    };
    let at_once = if run.one_network { 1 } else { AT_ONCE };
    let mut left = knobs.whole("real-runs").max(1);
    let mut all = Vec::new();
    while left > 0 {
        run.go_on()?;
        let now = left.min(at_once);
        left -= now;
        let times = std::thread::scope(|scope| {
            let started: Vec<_> = (0..now)
                .map(|_| scope.spawn(|| seconds(run, file)))
                .collect();
            let ended = started.into_iter().map(std::thread::ScopedJoinHandle::join);
            ended
                .map(|end| end.map_err(|_| "a run panicked".to_owned())?)
                .collect::<Result<Vec<f64>, String>>()
        });
        all.extend(times?);
    }
    Ok(all)
}

/// Seconds that the paper gives for its file on its four paths.
const BOUND: f64 = 27.8;

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in [Arm::Sim, Arm::Real] {
        judge(seen, arm, &mut all);
    }
    all
}

fn judge(seen: &Seen<'_>, arm: Arm, all: &mut Vec<Finding>) {
    let of = |arm, name: &str, percent| quantile(&seen.line(arm, name)?.points, percent);
    let bound = BOUND * seen.scale("size") / seen.scale("rate");
    if let (Some(median), Some(worst)) = (of(arm, REFRESH, 50.0), of(arm, REFRESH, 100.0)) {
        all.push(Finding::new(
            arm,
            &format!(
                "the median with refresh is within 10 % of the {bound:.1} s that four paths take"
            ),
            format!("median {median:.1} s, worst {worst:.1} s"),
            median <= bound * 1.1,
        ));
    }
    let kernel = of(Arm::Kernel, NDIFFPORTS, 50.0).filter(|_| arm == Arm::Real);
    let kernel = kernel.map_or(String::new(), |median| {
        format!(", median of the kernel's {median:.1} s")
    });
    let fixed = of(arm, NDIFFPORTS, 50.0).zip(of(arm, NDIFFPORTS, 100.0));
    for name in [REFRESH, PAPERS] {
        if let (Some(refresh), Some((fixed, worst))) = (of(arm, name, 50.0), fixed) {
            all.push(Finding::new(
                arm,
                &format!("{name} is faster than ndiffports"),
                format!(
                    "medians {refresh:.1} and {fixed:.1} s, worst of ndiffports {worst:.1} s{kernel}"
                ),
                refresh < fixed,
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Knobs, Series};
    use super::*;

    #[test]
    fn medians_are_held_against_the_bound() {
        let series =
            |name: &str, median: f64| Series::of(Arm::Sim, name, &[[median, 50.0], [60.0, 100.0]]);
        for (refresh, fixed, holds) in [
            (28.0, 37.0, [true, true, true]),
            (40.0, 37.0, [false, false, true]),
        ] {
            let papers = series(PAPERS, 36.0);
            let all = [series(REFRESH, refresh), papers, series(NDIFFPORTS, fixed)];
            let held: Vec<bool> = verdict(&Seen::of(&all)).iter().map(|f| f.holds).collect();
            assert_eq!(held, holds);
        }
    }

    #[test]
    fn other_files_have_other_bounds() {
        let all = [Series::of(Arm::Sim, REFRESH, &[[28.0, 100.0]])];
        for (size, holds) in [(100e6, true), (50e6, false)] {
            let mut knobs = Knobs::of(FIGURE.knobs);
            knobs.put("size", size);
            assert_eq!(verdict(&Seen::of(&all).with(&knobs))[0].holds, holds);
        }
    }
}
