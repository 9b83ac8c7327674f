//! Figure 2b: 64 KiB each second over two paths, the first of which loses packets.

use manypath_sim::networks::two_paths;
use manypath_tcp::time::{Duration, Instant};

use super::super::sim::span;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Unit,
};
use super::{distribution, progress, quantile, simulation};

/// Smart streaming and the full mesh, at each loss that the paper shows.
const LINES: &[Line] = &[
    line("smart streaming, 10 %", "streaming/10"),
    line("smart streaming, 20 %", "streaming/20"),
    line("smart streaming, 30 %", "streaming/30"),
    line("smart streaming, 40 %", "streaming/40"),
    line("full mesh, 10 %", "fullmesh/10"),
    line("full mesh, 20 %", "fullmesh/20"),
    line("full mesh, 30 %", "fullmesh/30"),
    line("full mesh, 40 %", "fullmesh/40"),
];

const fn line(name: &'static str, what: &'static str) -> Line {
    Line {
        name,
        arms: &[Arm::Sim],
        does: Does::Own(what),
    }
}

/// Figure 2b.
pub(super) const FIGURE: Figure = Figure {
    id: "smapp-2b",
    source: "SMAPP, figure 2b",
    title: "64 KiB each second over two paths, of which the first loses packets: how long a block takes",
    paper: Paper {
        says: "Without loss a block takes less than 100 ms. With the full mesh the delay grows with the loss, and has a long \
               tail; smart streaming, which looks half-way whether a block will be late and closes subflows whose time-out \
               passes a second, has the blocks there in time.",
        lines: &[],
    },
    knobs: &[
        Knob::new("rate", Unit::Rate, "5mbit", "rate of each path"),
        Knob::new("delay", Unit::Time, "10ms", "delay of each path"),
        Knob::new("blocks", Unit::Count, "100", "blocks of a run"),
        Knob::new("runs", Unit::Count, "10", "runs").quick("3"),
    ],
    x: Across::Measured(Axis::linear("delay (ms)")),
    y: Axis::linear("% of the blocks"),
    lines: LINES,
    load: Load::Light,
    run,
    verdict,
};

const BLOCK: u64 = 65_536;
/// The first block leaves when the connection is there, a round trip after the start.
const HANDSHAKE: Duration = Duration::from_millis(20);
/// Time for what is late.
const PATIENCE: u64 = 60;

/// Delays of the blocks of one run in milliseconds. A block that never came took all the time there was.
fn delays(run: &Run<'_>, seed: u64) -> Result<Vec<f64>, String> {
    let knobs = run.knobs;
    let Does::Own(what) = run.line.does else {
        return Err("a line of another figure".to_owned());
    };
    let (policy, loss) = what.split_once('/').unwrap_or((what, "0"));
    let blocks = knobs.whole("blocks");
    let app = format!(
        "[[app]]\nname = \"blocks\"\nclient = \"client\"\nserver = \"server\"\nupload = \"{}B\"\nburst = \"64KiB\"\n\
         pause = \"1s\"\nclient-options = {{ path-manager = \"{policy}\" }}\n",
        blocks * BLOCK
    );
    let event = format!(
        "[[event]]\ndo = \"change\"\nat = \"100ms\"\nlink = \"first\"\nloss = \"{loss}%\"\n"
    );
    let delay = (knobs.get("delay") * 1e3) as u64;
    let text = two_paths(knobs.whole("rate"), delay, &event, &app);
    let mut simulation = simulation(&text, seed)?;
    let end = Instant::from_secs(blocks + PATIENCE);
    let read = progress(&mut simulation, span(0.002), end);
    let of = |block: u64| {
        let begun = Instant::from_secs(block) + HANDSHAKE;
        let whole = read.iter().find(|(_, read)| *read >= (block + 1) * BLOCK);
        let at = whole.map_or(end, |(at, _)| *at);
        at.since(begun).as_micros() as f64 / 1e3
    };
    Ok((0..blocks).map(of).collect())
}

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let mut all = Vec::new();
    for seed in 1..=run.knobs.whole("runs").max(1) {
        all.extend(delays(run, seed)?);
    }
    Ok(distribution(run.line.name, all))
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for loss in [10, 20, 30, 40] {
        let of = |what: &str| seen.line(Arm::Sim, &format!("{what}, {loss} %"));
        let Some(smart) = of("smart streaming") else {
            continue;
        };
        let in_time = smart.points.iter().rfind(|point| point[0] <= 1_000.0);
        let in_time = in_time.map_or(0.0, |point| point[1]);
        all.push(Finding::new(
            Arm::Sim,
            &format!(
                "at {loss} % loss smart streaming has 99.9 % of the blocks there within a second"
            ),
            format!("{in_time:.2} %"),
            in_time >= 99.9,
        ));
        let Some(mesh) = of("full mesh") else {
            continue;
        };
        let [smart, mesh] = [smart, mesh].map(|line| quantile(&line.points, 95.0));
        if let (Some(smart), Some(mesh)) = (smart, mesh) {
            all.push(Finding::new(
                Arm::Sim,
                &format!("at {loss} % loss its 95th percentile is not above the full mesh's"),
                format!("{smart:.0} and {mesh:.0} ms"),
                smart <= mesh,
            ));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn late_blocks_and_slow_tails_are_seen() {
        let series = |name: &str, points: &[[f64; 2]]| Series {
            arm: Arm::Sim,
            name: name.to_owned(),
            points: points.to_vec(),
        };
        let good = [
            series("smart streaming, 10 %", &[[90.0, 96.0], [800.0, 100.0]]),
            series("full mesh, 10 %", &[[95.0, 80.0], [4_000.0, 100.0]]),
        ];
        let held = |all: &[Series]| {
            verdict(&Seen::of(all))
                .iter()
                .map(|f| f.holds)
                .collect::<Vec<_>>()
        };
        assert_eq!(held(&good), [true, true]);
        let bad = [
            series("smart streaming, 40 %", &[[90.0, 94.0], [5_000.0, 100.0]]),
            series("full mesh, 40 %", &[[95.0, 96.0], [4_000.0, 100.0]]),
        ];
        assert_eq!(held(&bad), [false, false]);
    }
}
