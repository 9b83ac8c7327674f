//! `manypath lab`.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use manypath_lab::bench::{self, BenchError};
use manypath_lab::boxes::{self, BoxesError};
use manypath_lab::gauntlet::{self, GauntletError, Show};
use manypath_lab::relays;
use manypath_sim::scenario::Scenario;
use manypath_sim::{Report, RunOptions, Simulation};

use crate::args::{BenchArgs, BoxesArgs, GauntletArgs, LabArgs, LabCommand, SimArgs};
use crate::commands::{namespace_failure, print_json, print_text};
use crate::exit::{Code, Failure};
use crate::runtime::{say, say_always};

/// What is said of a scenario that violated an oracle or an expectation.
const SCENARIO_FAILED: &str = "the scenario did not come out as it should";

/// Runs the wanted experiment. It may replace this process, so it comes before any thread or runtime.
pub(crate) fn run(args: LabArgs, quiet: bool) -> Result<(), Failure> {
    match args.command {
        LabCommand::Sim(args) => sim(&args),
        LabCommand::Bench(args) => bench(&args),
        LabCommand::Boxes(args) => boxes(&args),
        LabCommand::Attack(args) => super::attack::run(&args),
        LabCommand::Handover(args) => super::handover::run(&args),
        LabCommand::Gauntlet(args) => gauntlet(&args, quiet),
        LabCommand::Grid(args) => super::grid::run(&args, quiet),
        LabCommand::List(args) => super::figure::list(&args),
        LabCommand::Figure(args) => super::figure::run(&args, quiet),
        LabCommand::Delay(args) => super::delay::run(&args),
    }
}

fn boxes(args: &BoxesArgs) -> Result<(), Failure> {
    let mut options = boxes::Options::new(args.quick);
    if !args.boxes.is_empty() {
        options.cases = boxes::cases();
    }
    if let Some(path) = &args.scenario {
        options.cases = boxes::of_scenario(&read(path)?);
        if options.cases.is_empty() {
            return Err(Failure::usage(format!(
                "{}: no link has a box",
                path.display()
            )));
        }
    }
    if let Some(unknown) = args.boxes.iter().find(|word| {
        let mut cases = options.cases.iter();
        !cases.any(|case| case.is_called(word))
    }) {
        return Err(Failure::usage(format!("there is no box {unknown}"))
            .hint("`manypath lab boxes --list` shows all"));
    }
    if !args.boxes.is_empty() {
        let wanted = |case: &boxes::Case| args.boxes.iter().any(|word| case.is_called(word));
        options.cases.retain(wanted);
    }
    if args.list && args.json {
        let named =
            |case: &boxes::Case| serde_json::json!({"name": case.name, "about": case.about});
        return print_json(&options.cases.iter().map(named).collect::<Vec<_>>());
    }
    if args.list {
        let line = |case: &boxes::Case| format!("{:<22} {}\n", case.name, case.about);
        return print_text(&options.cases.iter().map(line).collect::<String>());
    }
    options.seed = args.seed;
    options.jobs = args.jobs.map_or(options.jobs, usize::from);
    let report = boxes::run(&options).map_err(|error| {
        let message = error.to_string();
        match error {
            BoxesError::Network(network) => namespace_failure(&network),
            BoxesError::Program(source) => Failure::from_io(message, source.kind()),
            BoxesError::Interrupted => Failure::stopped("; everything was taken down"),
        }
    })?;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&report.table())?;
    }
    if report.is_good() {
        Ok(())
    } else {
        Err(Failure::new(
            Code::Failure,
            "ours did worse than the kernel somewhere",
        ))
    }
}

fn bench_failure(error: BenchError) -> Failure {
    let message = error.to_string();
    match error {
        BenchError::Network(network) => namespace_failure(&network),
        BenchError::Accounting(source) | BenchError::Program(source) => {
            Failure::from_io(message, source.kind())
        }
    }
}

fn relays(args: &BenchArgs) -> Result<(), Failure> {
    let options = relays::Options {
        rounds: args.rounds,
        time: args.time,
        program: None,
    };
    let report = relays::run(&options).map_err(bench_failure)?;
    if args.json {
        print_json(&report)
    } else {
        print_text(&report.table())
    }
}

fn bench(args: &BenchArgs) -> Result<(), Failure> {
    if args.relays {
        return relays(args);
    }
    let options = bench::Options {
        rounds: args.rounds,
        time: args.time,
        ..bench::Options::default()
    };
    let report = bench::run(&options).map_err(bench_failure)?;
    if args.json {
        print_json(&report)
    } else {
        print_text(&report.table())
    }
}

fn gauntlet(args: &GauntletArgs, quiet: bool) -> Result<(), Failure> {
    let options = gauntlet::Options {
        seeds: args.seeds.clone(),
        time: args
            .minutes
            .map(|minutes| Duration::from_secs(u64::from(minutes) * 60)),
        jobs: args.jobs,
        out: args.out.clone(),
        show: if quiet { Show::Nothing } else { Show::Auto },
    };
    let report = gauntlet::run(&options).map_err(|error| match &error {
        GauntletError::File { path, source } => Failure::file(path, source),
        GauntletError::Plan { .. } => Failure::new(Code::Failure, error.to_string()),
    })?;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&report.to_string())?;
    }
    if !report.is_good() {
        let count = report.failing.len();
        return Err(Failure::new(
            Code::Seeds,
            format!("{count} of {} seeds failed", report.run),
        ));
    }
    if report.interrupted {
        return Err(Failure::stopped(""));
    }
    Ok(())
}

fn sim(args: &SimArgs) -> Result<(), Failure> {
    let scenario = read(&args.scenario)?;
    if let Some(runs) = args.runs {
        return many(
            &scenario,
            args.seed.unwrap_or(scenario.seed),
            runs,
            args.json,
        );
    }
    let capture = args.pcap.as_deref().map(create).transpose()?;
    let started = processor_time();
    let options = RunOptions {
        seed: args.seed,
        capture,
        ..RunOptions::default()
    };
    let (report, written) = if scenario.expect.like_tcp {
        (replay(&scenario, options)?, Ok(()))
    } else {
        let mut simulation = build(&scenario, options)?;
        simulation.run();
        let written = simulation.finish_capture();
        (simulation.report(), written)
    };
    let took = processor_time() - started;
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&format!("{report}\n"))?;
        say(&format!(
            "manypath: {:.2} million segments in each second of processor time",
            report.segments as f64 / 1e6 / took.max(1e-9)
        ));
    }
    if let (Some(path), Err(error)) = (&args.pcap, written) {
        let message = format!("{}: {error}", path.display());
        return Err(Failure::new(Code::Failure, message)
            .hint("the capture is incomplete; make room on the disk, or write somewhere else"));
    }
    verdict(report.is_good(), SCENARIO_FAILED)
}

/// Seconds of processor time that this process has had.
fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn read(path: &Path) -> Result<Scenario, Failure> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|e| {
        Failure::usage(format!("cannot read {shown}: {e}"))
            .hint("scenarios/ has some to begin with")
    })?;
    Scenario::parse(&text).map_err(|e| Failure::usage(format!("{shown}: {e}")))
}

fn create(path: &Path) -> Result<Box<dyn Write + Send>, Failure> {
    let file = File::create(path).map_err(|e| Failure::file(path, &e))?;
    Ok(Box::new(BufWriter::new(file)))
}

fn build(scenario: &Scenario, options: RunOptions) -> Result<Simulation, Failure> {
    Simulation::new(scenario.clone(), options)
        .map_err(|e| Failure::usage(format!("the scenario: {e}")))
}

fn replay(scenario: &Scenario, options: RunOptions) -> Result<Report, Failure> {
    manypath_sim::replay(scenario.clone(), options)
        .map_err(|e| Failure::usage(format!("the scenario: {e}")))
}

fn once(scenario: &Scenario, seed: u64) -> Result<Report, Failure> {
    let options = RunOptions {
        seed: Some(seed),
        ..RunOptions::default()
    };
    replay(scenario, options)
}

/// Runs many seeds, each twice, and tells of those that fail.
fn many(scenario: &Scenario, first: u64, runs: u64, json: bool) -> Result<(), Failure> {
    let started = Instant::now();
    let (mut bad, mut unequal, mut segments) = (0_u64, 0_u64, 0_u64);
    for seed in (0..runs).map(|n| first.wrapping_add(n)) {
        let report = once(scenario, seed)?;
        let again = once(scenario, seed)?;
        segments += report.segments + again.segments;
        if report.hash != again.hash {
            unequal += 1;
            say_always(&format!(
                "manypath: seed {seed}: two runs differ, {} and {}",
                report.hash, again.hash
            ));
        }
        if !report.is_good() {
            bad += 1;
            if json {
                print_json(&report)?
            } else {
                print_text(&format!("{report}\n"))?
            };
        }
    }
    let wall = started.elapsed().as_secs_f64();
    say(&format!(
        "manypath: {runs} seeds from {first}: {bad} failed, {unequal} differed from their repetition; \
         {segments} segments in {wall:.1} s, {:.0} a second",
        segments as f64 / wall.max(1e-9)
    ));
    verdict(bad == 0 && unequal == 0, SCENARIO_FAILED)
}

/// What the exit code says: `complaint` if it is not good.
pub(super) fn verdict(good: bool, complaint: &str) -> Result<(), Failure> {
    if good {
        Ok(())
    } else {
        Err(Failure::new(Code::Failure, complaint))
    }
}
