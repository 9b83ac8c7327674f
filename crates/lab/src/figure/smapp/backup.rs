//! Figure 2a: the primary path begins to lose 30 % after a second, and a controller moves to the backup path.

use manypath_sim::networks::two_paths;
use manypath_tcp::time::Instant;

use super::super::sim::span;
use super::super::{
    Across, Arm, Axis, Does, Figure, Finding, Knob, Knobs, Line, Load, Paper, Run, Sample, Seen,
    Unit,
};
use super::upload::{Upload, path, upload};
use super::{delay_us, distribution, progress, quantile, simulation};

const SMART: &str = "smart backup";
const PAPERS: &str = "smart backup by the paper's rule";
const FLAG: &str = "backup flag";
const TCP: &str = "TCP on the primary path";

/// What the paper's line does.
const BY_THE_PAPER: &str = "smart-backup by the paper";

const LINES: &[Line] = &[
    line(SMART, "smart-backup", &[Arm::Sim, Arm::Real]),
    line(PAPERS, BY_THE_PAPER, &[Arm::Sim, Arm::Real]),
    line(FLAG, "fullmesh", &[Arm::Sim, Arm::Real, Arm::Kernel]),
    line(TCP, "tcp", &[Arm::Sim]),
];

const fn line(name: &'static str, what: &'static str, arms: &'static [Arm]) -> Line {
    Line {
        name,
        arms,
        does: Does::Own(what),
    }
}

const KNOBS: [Knob; 7] = [
    Knob::new("rate", Unit::Rate, "10mbit", "rate of each path").each_of(2),
    Knob::new("delay", Unit::Time, "10ms", "delay of each path").or_none(),
    Knob::new(
        "loss",
        Unit::Percent,
        "30%",
        "loss on the primary path from its time on",
    ),
    Knob::new("at", Unit::Time, "1s", "when the loss begins").or_none(),
    Knob::new(
        "threshold",
        Unit::Time,
        "1s",
        "time-out at which the controller moves",
    ),
    // How long a run goes on after the loss decides which stalls can be seen.
    Knob::new("time", Unit::Time, "9s", "length of a run"),
    Knob::new("runs", Unit::Count, "30", "runs, of the distribution")
        .quick("5")
        .measures(),
];

/// Figure 2a as the paper has it.
pub(super) const PROGRESS: Figure = Figure {
    id: "smapp-2a",
    source: "SMAPP, figure 2a",
    title: "A transfer whose primary path begins to lose 30 %: what the receiver has, over time",
    paper: Paper {
        says: "When the time-out of the primary subflow reaches one second, it is closed and a new subflow on the backup path \
               carries on at full rate. With the backup flag of RFC 8684 alone the primary is kept, and 30 % loss is what the \
               transfer gets.",
        lines: &[],
    },
    knobs: &KNOBS,
    x: Across::Measured(Axis::linear("time (s)")),
    y: Axis::linear("read (MB)"),
    lines: LINES,
    load: Load::Light,
    run: one_run,
    verdict: moves,
};

/// The same over many runs.
pub(super) const GAPS: Figure = Figure {
    id: "smapp-2a-gaps",
    source: "SMAPP, figure 2a, repeated",
    title: "A transfer whose primary path begins to lose 30 %: the longest time without data",
    paper: Paper {
        says: "The paper shows one run. The bound is ours: with a threshold of one second no run is to stall for 1.5 s. (Linux \
               6.18 with the backup flag moved its first byte after 0.5 to 2.9 s and left gaps of 1 to 24 s.)",
        lines: &[],
    },
    knobs: &KNOBS,
    x: Across::Measured(Axis::linear("longest gap (s)")),
    y: Axis::linear("% of the runs"),
    lines: LINES,
    load: Load::Light,
    run: all_runs,
    verdict: in_time,
};

/// No run is to stall for so many seconds.
const STALL: f64 = 1.5;

/// A run that ends sooner after its loss shows no stall, whatever happens.
fn is_long_enough(knobs: &Knobs) -> Result<(), String> {
    let (at, time) = (knobs.get("at"), knobs.get("time"));
    if time < at + STALL {
        return Err(format!(
            "{time} s are too few to see a stall of {STALL} s after the loss at {at} s: --set time=VALUE longer"
        ));
    }
    Ok(())
}

/// What the server had read, every five milliseconds.
fn read(run: &Run<'_>, seed: u64) -> Result<Vec<(Instant, u64)>, String> {
    let Does::Own(what) = run.line.does else {
        return Err("a line of another figure".to_owned());
    };
    is_long_enough(run.knobs)?;
    match run.arm {
        Arm::Sim | Arm::Process => simulated(run, what, seed),
        Arm::Real | Arm::Kernel => emulated(run, what, seed),
    }
}

/// On real packets.
fn emulated(run: &Run<'_>, what: &str, seed: u64) -> Result<Vec<(Instant, u64)>, String> {
    let knobs = run.knobs;
    let policy = policy(run, what);
    let time = std::time::Duration::from_secs_f64;
    let read = upload(
        run,
        Upload {
            path: path(run),
            policy: &policy,
            backup: true,
            blocks: None,
            loss: (time(knobs.get("at")), (knobs.get("loss") * 1e4) as u32),
            time: time(knobs.get("time")),
            seed,
        },
    )?;
    let at = |t: std::time::Duration| Instant::ZERO + span(t.as_secs_f64());
    Ok(read.into_iter().map(|(t, read)| (at(t), read)).collect())
}

fn policy(run: &Run<'_>, what: &str) -> String {
    let threshold = (run.knobs.get("threshold") * 1e3) as u64;
    match what {
        "smart-backup" => format!("smart-backup:threshold={threshold}ms"),
        BY_THE_PAPER => format!("smart-backup:threshold={threshold}ms,rule=paper"),
        other => other.to_owned(),
    }
}

fn simulated(run: &Run<'_>, what: &str, seed: u64) -> Result<Vec<(Instant, u64)>, String> {
    let knobs = run.knobs;
    let options = match what {
        "tcp" => "options = { plain-tcp = true }".to_owned(),
        what => {
            let policy = policy(run, what);
            format!("client-options = {{ path-manager = \"{policy}\" }}")
        }
    };
    let app = format!(
        "[[app]]\nname = \"file\"\nclient = \"client\"\nserver = \"server\"\nupload = \"10GB\"\n{options}\n"
    );
    let event = format!(
        "[[event]]\ndo = \"change\"\nat = \"{}us\"\nlink = \"wifi\"\nloss = \"{}%\"\n",
        (knobs.get("at") * 1e6) as u64,
        knobs.get("loss"),
    );
    let text = two_paths(knobs.whole("rate"), delay_us(knobs), &event, &app).replace(
        "addresses = [\"10.2.0.2\"]",
        "addresses = [\"10.2.0.2\"], backup = true",
    );
    let mut simulation = simulation(&text, seed)?;
    let end = Instant::ZERO + span(knobs.get("time"));
    Ok(progress(&mut simulation, span(0.005), end))
}

fn seconds(at: Instant) -> f64 {
    at.since(Instant::ZERO).as_micros() as f64 / 1e6
}

fn one_run(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let all = read(run, 1)?;
    // Twenty points a second are as many as anybody sees.
    let mut next = 0.0;
    let some = all.iter().filter(|(at, _)| {
        let due = seconds(*at) >= next;
        next += if due { 0.05 } else { 0.0 };
        due
    });
    Ok(some
        .map(|(at, read)| Sample {
            line: run.line.name.to_owned(),
            at: [seconds(*at), *read as f64 / 1e6],
        })
        .collect())
}

/// The longest time without progress, in seconds, after the loss began; also at the end.
fn longest_gap(progress: &[(Instant, u64)], from: f64) -> f64 {
    let (mut longest, mut last) = (0.0_f64, (from, 0));
    for &(at, read) in progress {
        let at = seconds(at);
        if at < from {
            last.1 = read;
        } else if read > last.1 {
            longest = longest.max(at - last.0);
            last = (at, read);
        }
    }
    let end = progress.last().map_or(from, |(at, _)| seconds(*at));
    longest.max(end - last.0)
}

fn all_runs(run: &Run<'_>) -> Result<Vec<Sample>, String> {
    let from = run.knobs.get("at");
    let gap = |seed| {
        run.go_on()?;
        Ok(longest_gap(&read(run, seed)?, from))
    };
    let gaps: Result<Vec<f64>, String> = (1..=run.knobs.whole("runs").max(1)).map(gap).collect();
    Ok(distribution(run.line.name, gaps?))
}

/// MB a second of a line from one time to another, by the points next to both.
fn rate(points: &[[f64; 2]], from: f64, to: f64) -> Option<f64> {
    let inside = || points.iter().filter(|[at, _]| (from..=to).contains(at));
    let (first, last) = (inside().next()?, inside().next_back()?);
    Some((last[1] - first[1]) / (last[0] - first[0]).max(1e-9))
}

/// Before the loss, and the last third of the time.
fn moves(seen: &Seen<'_>) -> Vec<Finding> {
    let judge = |(arm, name)| {
        let smart = &seen.line(arm, name)?.points;
        let last = |arm, name: &str| Some(seen.line(arm, name)?.points.last()?[1]);
        let end = smart.last()?[0];
        let before = rate(smart, 0.0, 0.95)?;
        let after = rate(smart, end * 2.0 / 3.0, end)?;
        let others = [
            (arm, "the backup flag alone"),
            (Arm::Kernel, "the kernel's flag"),
        ];
        let others = others.map(|(arm, whose)| match last(arm, FLAG) {
            Some(mb) => format!(", {mb:.1} with {whose}"),
            None => String::new(),
        });
        let whole = last(arm, name)?;
        let seen = format!(
            "{:.1} and {:.1} Mbit/s; {whole:.1} MB at the end{}",
            before * 8.0,
            after * 8.0,
            others.concat()
        );
        let statement = format!("{name} moves, and the rest comes as fast as before the loss");
        Some(Finding::new(arm, &statement, seen, after >= 0.9 * before))
    };
    let arms = [Arm::Sim, Arm::Real].into_iter();
    arms.flat_map(|arm| [(arm, SMART), (arm, PAPERS)])
        .filter_map(judge)
        .collect()
}

fn in_time(seen: &Seen<'_>) -> Vec<Finding> {
    let worst = |arm, name: &str| quantile(&seen.line(arm, name)?.points, 100.0);
    let beside = |arm, whose: &str| {
        let worst = worst(arm, FLAG)?;
        Some(format!("; with the {whose}backup flag alone {worst:.2} s"))
    };
    let judge = |arm| {
        let smart = worst(arm, SMART)?;
        let papers = worst(arm, PAPERS).map(|worst| format!("; by the paper's rule {worst:.2} s"));
        let mut beside = vec![papers, beside(arm, ""), beside(Arm::Kernel, "kernel's ")];
        beside.truncate(if arm == Arm::Real { 3 } else { 2 });
        let beside: String = beside.into_iter().flatten().collect();
        Some(Finding::new(
            arm,
            &format!("with smart backup no run stalls for {STALL} s"),
            format!("worst gap {smart:.2} s{beside}"),
            smart < STALL,
        ))
    };
    [Arm::Sim, Arm::Real]
        .into_iter()
        .filter_map(judge)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::Series;
    use super::*;

    #[test]
    fn a_gap_counts_from_the_loss_to_the_end() {
        let at = |ms: u64| Instant::ZERO + manypath_tcp::time::Duration::from_millis(ms);
        let all = [
            (at(500), 10),
            (at(1_000), 20),
            (at(1_400), 20),
            (at(1_900), 30),
            (at(2_100), 30),
        ];
        assert!((longest_gap(&all, 1.0) - 0.9).abs() < 1e-9);
        assert!((longest_gap(&all[..2], 0.2) - 0.5).abs() < 1e-9);
        let dead = [(at(500), 10), (at(5_000), 10)];
        assert!((longest_gap(&dead, 1.0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn a_run_ends_no_sooner_than_a_stall_could_be_seen() {
        let fits = |at: f64, time: f64| {
            let mut knobs = Knobs::of(&KNOBS);
            knobs.put("at", at);
            knobs.put("time", time);
            is_long_enough(&knobs)
        };
        assert_eq!((fits(1.0, 9.0), fits(1.0, 2.5)), (Ok(()), Ok(())));
        for (at, time) in [(1.0, 1.0), (1.0, 2.0), (8.0, 9.0)] {
            let why = fits(at, time).expect_err("too short");
            assert!(why.contains("--set time="), "{why}");
        }
    }

    #[test]
    fn who_moves_goes_on_at_the_same_rate() {
        let before: Vec<[f64; 2]> = (0..=10)
            .map(|n| [f64::from(n) * 0.1, f64::from(n)])
            .collect();
        for (end, holds) in [(70.0, true), (55.0, false)] {
            let mut points = before.clone();
            points.extend([[2.5, 10.0], [6.0, 40.0], [9.0, end]]);
            let all = [
                Series::of(Arm::Sim, SMART, &points),
                Series::of(Arm::Sim, FLAG, &points),
            ];
            let found = moves(&Seen::of(&all));
            assert_eq!(found[0].holds, holds, "{found:?}");
        }
    }

    #[test]
    fn stalls_are_held_against_the_bound() {
        let series =
            |name: &str, worst: f64| Series::of(Arm::Sim, name, &[[0.3, 50.0], [worst, 100.0]]);
        for (worst, holds) in [(1.2, true), (1.6, false)] {
            let all = [series(SMART, worst), series(FLAG, 8.0)];
            assert_eq!(in_time(&Seen::of(&all))[0].holds, holds);
        }
    }
}
