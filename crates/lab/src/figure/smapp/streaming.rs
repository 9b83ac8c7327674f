//! Figure 2b: 64 KiB each second over two paths, the first of which loses packets.

use manypath_sim::networks::two_paths;
use manypath_tcp::time::{Duration, Instant};

use super::super::compare::range;
use super::super::sim::span;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Line, Load, Paper, Run, Sample, Seen, Series,
    Unit,
};
use super::upload::{Upload, path, upload};
use super::{delay_us, distribution, progress, quantile, simulation};

const OURS: &[Arm] = &[Arm::Sim, Arm::Real];
const ALL: &[Arm] = &[Arm::Sim, Arm::Real, Arm::Kernel];

/// Smart streaming and the full mesh, at each loss that the paper shows.
const LINES: &[Line] = &[
    line("smart streaming, 10 %", "streaming/10", OURS),
    line("smart streaming, 20 %", "streaming/20", OURS),
    line("smart streaming, 30 %", "streaming/30", OURS),
    line("smart streaming, 40 %", "streaming/40", OURS),
    line("the paper's rule, 10 %", "streaming:rule=paper/10", OURS),
    line("the paper's rule, 20 %", "streaming:rule=paper/20", OURS),
    line("the paper's rule, 30 %", "streaming:rule=paper/30", OURS),
    line("the paper's rule, 40 %", "streaming:rule=paper/40", OURS),
    line("full mesh, 10 %", "fullmesh/10", ALL),
    line("full mesh, 20 %", "fullmesh/20", ALL),
    line("full mesh, 30 %", "fullmesh/30", ALL),
    line("full mesh, 40 %", "fullmesh/40", ALL),
];

const fn line(name: &'static str, what: &'static str, arms: &'static [Arm]) -> Line {
    Line {
        name,
        arms,
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
        Knob::new("rate", Unit::Rate, "5mbit", "rate of each path").each_of(2),
        Knob::new("delay", Unit::Time, "10ms", "delay of each path").or_none(),
        Knob::new("blocks", Unit::Count, "100", "blocks of a run").measures(),
        Knob::new("runs", Unit::Count, "10", "runs in the simulator")
            .quick("3")
            .measures(),
        Knob::new(
            "seconds",
            Unit::Count,
            "300",
            "blocks of the one run on real packets",
        )
        // The worst one of twenty does not count: with few blocks those that told of the loss would be all that is seen, two or
        // three of them.
        .quick("70")
        .measures(),
    ],
    x: Across::Measured(Axis::linear("delay (ms)")),
    y: Axis::linear("% of the blocks"),
    lines: LINES,
    load: Load::Light,
    run,
    verdict,
};

const BLOCK: u64 = 65_536;
/// The first path begins to lose packets so many milliseconds after the connection is there.
const LOSS_AFTER: u64 = 80;
/// Time for what is late, in seconds of the simulator and of the clock.
const PATIENCE: u64 = 60;
const REAL_PATIENCE: u64 = 5;

/// The path manager of a line, and how many packets in a hundred the first path loses.
fn policy_and_loss(run: &Run<'_>) -> Result<(&'static str, &'static str), String> {
    match run.line.does {
        Does::Own(what) => Ok(what.split_once('/').unwrap_or((what, "0"))),
        Does::Tcp(_) | Does::Multipath(_) => Err("a line of another figure".to_owned()),
    }
}

/// The same on real packets.
fn real_delays(run: &Run<'_>) -> Result<Vec<f64>, String> {
    let (policy, loss) = policy_and_loss(run)?;
    let knobs = run.knobs;
    let blocks = knobs.whole("seconds");
    let time = std::time::Duration::from_secs(blocks + REAL_PATIENCE);
    let read = upload(
        run,
        Upload {
            path: path(run),
            policy,
            backup: false,
            blocks: Some((BLOCK, blocks)),
            loss: (
                std::time::Duration::from_millis(LOSS_AFTER),
                loss.parse::<u32>().unwrap_or(0) * 10_000,
            ),
            time,
            seed: 1,
        },
    )?;
    let of = |block: u64| {
        let whole = read.iter().find(|(_, read)| *read >= (block + 1) * BLOCK);
        whole.map_or(time, |(at, _)| *at).as_secs_f64() * 1e3 - block as f64 * 1e3
    };
    Ok((0..blocks).map(of).collect())
}

/// Delays of the blocks of one run in milliseconds. A block that never came took all the time there was.
fn delays(run: &Run<'_>, seed: u64) -> Result<Vec<f64>, String> {
    let knobs = run.knobs;
    let (policy, loss) = policy_and_loss(run)?;
    let blocks = knobs.whole("blocks");
    let app = format!(
        "[[app]]\nname = \"blocks\"\nclient = \"client\"\nserver = \"server\"\nupload = \"{}B\"\nburst = \"64KiB\"\n\
         pause = \"1s\"\nclient-options = {{ path-manager = \"{policy}\" }}\n",
        blocks * BLOCK
    );
    let delay = delay_us(knobs);
    let event = format!(
        "[[event]]\ndo = \"change\"\nat = \"{}us\"\nlink = \"wifi\"\nloss = \"{loss}%\"\n",
        2 * delay + LOSS_AFTER * 1_000
    );
    let text = two_paths(knobs.whole("rate"), delay, &event, &app);
    let mut simulation = simulation(&text, seed)?;
    let end = Instant::from_secs(blocks + PATIENCE);
    let read = progress(&mut simulation, span(0.002), end);
    // The first block leaves when the client has its connection, the others by seconds after it.
    let client = simulation.hosts()[0].endpoints().first();
    let first = client.and_then(|end| end.record.established);
    let first = first.ok_or_else(|| format!("seed {seed}: there was no connection"))?;
    let of = |block: u64| {
        let begun = first + Duration::from_secs(block);
        let whole = read.iter().find(|(_, read)| *read >= (block + 1) * BLOCK);
        let at = whole.map_or(end, |(at, _)| *at);
        at.since(begun).as_micros() as f64 / 1e3
    };
    Ok((0..blocks).map(of).collect())
}

fn run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    if matches!(run.arm, Arm::Real | Arm::Kernel) {
        return Ok(distribution(run.line.name, real_delays(run)?));
    }
    let mut all = Vec::new();
    for seed in 1..=run.knobs.whole("runs").max(1) {
        run.go_on()?;
        all.extend(delays(run, seed)?);
    }
    Ok(distribution(run.line.name, all))
}

fn verdict(seen: &Seen<'_>) -> Vec<Finding> {
    let mut all = Vec::new();
    for arm in [Arm::Sim, Arm::Real] {
        for loss in LOSSES {
            judge(seen, arm, loss, &mut all);
        }
        all.extend(alike(seen, arm));
    }
    all
}

const LOSSES: [u32; 4] = [10, 20, 30, 40];

/// "Almost the same" delays, whatever the loss: the slowest twentieth within this factor.
const ALMOST: f64 = 2.0;

/// What the paper says of its own rule.
fn alike(seen: &Seen<'_>, arm: Arm) -> Option<Finding> {
    let late = |loss| {
        let line = seen.line(arm, &format!("the paper's rule, {loss} %"))?;
        Some([f64::from(loss), quantile(&line.points, 95.0)?])
    };
    let all: Option<Vec<[f64; 2]>> = LOSSES.into_iter().map(late).collect();
    let all = all?;
    let (least, most) = range(&all)?;
    let statement = "by the paper's rule blocks take almost the same from 10 to 40 % loss (95th percentiles within a factor of 2)";
    let found: Vec<String> = all.iter().map(|[_, ms]| format!("{ms:.0}")).collect();
    let found = format!("{} ms", found.join(", "));
    Some(Finding::new(arm, statement, found, most <= least * ALMOST))
}

fn judge(seen: &Seen<'_>, arm: Arm, loss: u32, all: &mut Vec<Finding>) {
    let of = |arm, what: &str| seen.line(arm, &format!("{what}, {loss} %"));
    let Some(smart) = of(arm, "smart streaming") else {
        return;
    };
    let in_time = |line: &Series| {
        let last = line.points.iter().rfind(|point| point[0] <= 1_000.0);
        last.map_or(0.0, |point| point[1])
    };
    let late = |line: Option<&Series>| quantile(&line?.points, 95.0);
    let papers = of(arm, "the paper's rule");
    let beside = papers.map_or(String::new(), |line| {
        format!("; by the paper's rule {:.2} %", in_time(line))
    });
    let ours = in_time(smart);
    all.push(Finding::new(
        arm,
        &format!("at {loss} % loss smart streaming has 99.9 % of the blocks there within a second"),
        format!("{ours:.2} %{beside}"),
        ours >= 99.9,
    ));
    let kernel = late(of(Arm::Kernel, "full mesh")).filter(|_| arm == Arm::Real);
    let kernel = kernel.map_or(String::new(), |ms| {
        format!("; the kernel's mesh {ms:.0} ms")
    });
    if let (Some(smart), Some(mesh)) = (late(Some(smart)), late(of(arm, "full mesh"))) {
        all.push(Finding::new(
            arm,
            &format!("at {loss} % loss its 95th percentile is not above the full mesh's"),
            format!("{smart:.0} and {mesh:.0} ms{kernel}"),
            smart <= mesh,
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Knobs;
    use super::*;

    #[test]
    fn a_block_takes_its_ways_through_the_network_and_no_handshake() {
        let mut knobs = Knobs::of(FIGURE.knobs);
        for words in ["delay=100ms", "rate=1gbit", "blocks=3"] {
            knobs.set(FIGURE.id, words).expect(words);
        }
        let run = Run {
            arm: Arm::Sim,
            line: line("no losses", "fullmesh/0", OURS),
            knobs: &knobs,
            x: 0.0,
            quick: true,
            one_network: true,
            program: std::path::Path::new(""),
            stop: &std::sync::atomic::AtomicBool::new(false),
        };
        // A window that begins with ten segments carries a block in three rounds, the last of which has no way back.
        let took = delays(&run, 1).expect("a network");
        let fits = |took: &f64| (100.0..600.0).contains(took);
        assert!(took.iter().all(fits), "{took:?}");
    }

    #[test]
    fn late_blocks_and_slow_tails_are_seen() {
        let series = |name: &str, points: &[[f64; 2]]| Series::of(Arm::Sim, name, points);
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
        for (worst, holds) in [(190.0, true), (210.0, false)] {
            let papers = [(10, worst), (20, 100.0), (30, 120.0), (40, 110.0)];
            let papers = papers
                .map(|(loss, ms)| series(&format!("the paper's rule, {loss} %"), &[[ms, 100.0]]));
            assert_eq!(held(&papers), [holds]);
        }
    }
}
