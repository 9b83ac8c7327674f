//! Makes figures: their runs on the cores that there are, and what came out.

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use super::plan::{self, Plan, Planned, Request};
use super::progress::Progress;
use super::store::{self, Store};
use super::{Arm, Arms, Figure, FigureError, Load, Outcome, Run, Sample};
use crate::interrupt;
use crate::netns;
use crate::parallel::on_all_cores;

/// What to make, and how.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// On which arms.
    pub arms: Arms,
    /// Fewer points and shorter runs.
    pub quick: bool,
    /// Runs at one time; if absent, one for each processor, and some more of those that wait for the time to pass.
    pub jobs: Option<NonZero<usize>>,
    /// Parameters to change, as `NAME=VALUE`.
    pub set: Vec<String>,
    /// A parameter to put on the horizontal axis, as `NAME=A..B` or `NAME=A,B,C`.
    pub sweep: Option<String>,
    /// Where finished runs are kept and what was finished there is taken from.
    pub keep: Option<PathBuf>,
    /// Finished runs are made again.
    pub fresh: bool,
    /// Nothing is told while runs go on.
    pub quiet: bool,
    /// The program that has the `perf` command; this very program if absent.
    pub program: Option<PathBuf>,
}

/// How much of the machine a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Share {
    /// A core.
    Core,
    /// Little: it waits for the time to pass.
    Little,
    /// All: it must not be disturbed.
    All,
}

/// Runs in real time that take little go beside each other, so many for each processor.
const LITTLE_TO_A_CORE: usize = 3;
/// Bits a second over all paths up to which a run in real time takes little.
const LITTLE: f64 = 50e6;

/// Makes figures, in the order given. It may replace this process, see [`netns::acquire`], when an arm needs namespaces.
///
/// # Errors
/// See [`FigureError`]. A run that fails is told in [`Outcome::failures`]; arms that cannot be had here are told in
/// [`Outcome::skipped`], unless they were asked for by name.
pub fn make(figures: &[&'static Figure], options: &Options) -> Result<Vec<Outcome>, FigureError> {
    let request = Request {
        arms: options.arms,
        quick: options.quick,
        set: options.set.clone(),
        sweep: options.sweep.clone(),
    };
    let plans: Result<Vec<Plan>, _> = figures
        .iter()
        .map(|figure| plan::of(figure, &request))
        .collect();
    let mut plans = plans?;
    let skipped = without_namespaces(&mut plans, options.arms)?;
    let program = match &options.program {
        Some(path) => path.clone(),
        None => std::env::current_exe().map_err(FigureError::Program)?,
    };
    let stores: Result<Vec<Store>, _> = plans
        .iter()
        .map(|plan| match &options.keep {
            Some(folder) => Store::open(
                folder,
                plan.figure.id,
                &store::build(&program),
                options.fresh,
            ),
            None => Ok(Store::nowhere()),
        })
        .collect();
    let stores = stores?;
    interrupt::stoppable(|stop| {
        let results = Work {
            plans: &plans,
            stores: &stores,
            program: &program,
            options,
            kernel: crate::kernel::release(),
            stop,
        }
        .run();
        let done = plans.iter().zip(results).map(|(plan, results)| {
            let whole = results.len() == plan.runs.len();
            let mut outcome = Outcome::of(plan, options.quick, results);
            outcome.skipped = skipped.iter().filter(|_| lacks(plan)).cloned().collect();
            match whole {
                true => outcome,
                false => outcome.interrupted(),
            }
        });
        Ok(done.collect())
    })
}

/// The figure has arms that the plan has not and that need namespaces.
fn lacks(plan: &Plan) -> bool {
    let needs = |arm: &Arm| arm.needs_namespaces();
    plan.figure.arms().iter().any(needs) && !plan.runs.iter().any(|run| needs(&run.arm))
}

/// Takes the runs that need namespaces out where there are none, and says why.
fn without_namespaces(plans: &mut [Plan], wanted: Arms) -> Result<Vec<String>, FigureError> {
    let needs = |run: &Planned| run.arm.needs_namespaces();
    if !plans.iter().any(|plan| plan.runs.iter().any(needs)) {
        return Ok(Vec::new());
    }
    match netns::acquire() {
        Ok(()) => Ok(Vec::new()),
        Err(error) if wanted == Arms::All => {
            let left = |plan: &Plan| plan.runs.iter().any(|run| !needs(run));
            if !plans.iter().any(left) {
                return Err(error.into());
            }
            let reason = error.into_reason()?;
            for plan in plans {
                plan.runs.retain(|run| !needs(run));
            }
            Ok(vec![format!("no real packets: {reason}")])
        }
        Err(error) => Err(error.into()),
    }
}

/// What a run gave, or why it gave nothing.
pub(super) type Result1 = (Planned, Result<Vec<Sample>, String>);

/// All runs of all figures.
struct Work<'a> {
    plans: &'a [Plan],
    stores: &'a [Store],
    program: &'a Path,
    options: &'a Options,
    /// The release of the kernel that carries packets.
    kernel: String,
    stop: &'a AtomicBool,
}

impl Work<'_> {
    /// What the runs of each figure gave, in the order of the plans.
    fn run(&self) -> Vec<Vec<Result1>> {
        let total = self.plans.iter().map(|plan| plan.runs.len()).sum();
        let progress = Progress::new(total, self.options.quiet);
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut all: Vec<(usize, usize, Result1)> = Vec::new();
        for share in [Share::Core, Share::Little, Share::All] {
            let places = self.places(share);
            let threads = NonZero::new(share.at_one_time(self.options.jobs, processors));
            let done = on_all_cores(places.len(), threads, self.stop, |n| {
                let (plan, run) = places[n];
                let result = self.one(plan, run, &progress);
                progress.step();
                self.counts(&result).then_some((plan, run, result))
            });
            all.extend(done.into_iter().flatten());
        }
        progress.finish();
        all.sort_by_key(|(plan, run, _)| (*plan, *run));
        let mut results: Vec<Vec<Result1>> = self.plans.iter().map(|_| Vec::new()).collect();
        for (plan, _, result) in all {
            results[plan].push(result);
        }
        results
    }

    /// Ctrl-C ends the programs of a run as well: what fails after it did not fail by itself, and was not made.
    fn counts(&self, (_, result): &Result1) -> bool {
        result.is_ok() || !self.stop.load(Ordering::Relaxed)
    }

    /// Which runs take that share of the machine.
    fn places(&self, share: Share) -> Vec<(usize, usize)> {
        let mut places = Vec::new();
        for (n, plan) in self.plans.iter().enumerate() {
            let of_it = plan.runs.iter().enumerate();
            let fit = of_it.filter(|(_, run)| share_of(plan.figure, run) == share);
            places.extend(fit.map(|(m, _)| (n, m)));
        }
        places
    }

    fn one(&self, plan: usize, run: usize, progress: &Progress) -> Result1 {
        let (store, plan) = (&self.stores[plan], &self.plans[plan]);
        let planned = &plan.runs[run];
        let key = store::kept_as(planned, &self.kernel);
        if let Some(samples) = store.finished(&key) {
            return (planned.clone(), Ok(plan.placed(planned, samples)));
        }
        progress.begin(format!(
            "{} {} {}",
            plan.figure.id, planned.arm, planned.line.name
        ));
        let samples = (plan.figure.run)(&Run {
            arm: planned.arm,
            line: planned.line,
            knobs: &planned.knobs,
            x: planned.x,
            quick: self.options.quick,
            one_network: self.options.jobs.is_some(),
            program: self.program,
            stop: self.stop,
        });
        let samples = samples.and_then(finite);
        if let Ok(samples) = &samples {
            store.keep(key, samples);
        }
        (planned.clone(), samples)
    }
}

impl Share {
    /// How many runs of this share go at one time.
    fn at_one_time(self, jobs: Option<NonZero<usize>>, processors: usize) -> usize {
        match (self, jobs) {
            (Self::Core, jobs) => jobs.map_or(processors, NonZero::get),
            (Self::Little, None) => processors * LITTLE_TO_A_CORE,
            // More of them disturb each other, whoever wants them.
            (Self::Little, Some(jobs)) => jobs.get().min(processors),
            (Self::All, _) => 1,
        }
    }
}

fn share_of(figure: &Figure, run: &Planned) -> Share {
    match (run.arm, figure.load) {
        (Arm::Sim, _) => Share::Core,
        (Arm::Process, _) | (Arm::Real | Arm::Kernel, Load::Heavy) => Share::All,
        // Whatever the figure has by itself: rates can be set and swept.
        (Arm::Real | Arm::Kernel, Load::Light) => match run.knobs.rates() <= LITTLE {
            true => Share::Little,
            false => Share::All,
        },
    }
}

/// Points that can be drawn. A file with others could not be read back.
fn finite(samples: Vec<Sample>) -> Result<Vec<Sample>, String> {
    let number = |sample: &Sample| sample.at.iter().all(|value| value.is_finite());
    match samples.iter().find(|sample| !number(sample)) {
        Some(sample) => Err(format!("{}: no number came out", sample.line)),
        None => Ok(samples),
    }
}

#[cfg(test)]
mod tests {
    use super::super::find;
    use super::*;

    #[test]
    fn a_figure_that_was_stopped_goes_on_where_it_was() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let figure = find("nsdi-4a").expect("it is there");
        let options = Options {
            arms: Arms::One(Arm::Sim),
            quick: true,
            quiet: true,
            set: vec!["time=2s".to_owned()],
            sweep: Some("buffer=50k,200k".to_owned()),
            keep: Some(folder.path().to_owned()),
            ..Options::default()
        };
        let first = make(&[figure], &options).expect("nothing is needed for it");
        let kept = std::fs::metadata(folder.path().join("nsdi-4a.runs.jsonl")).expect("kept");
        let second = make(&[figure], &options).expect("nothing is needed for it");
        let again = std::fs::metadata(folder.path().join("nsdi-4a.runs.jsonl")).expect("kept");
        assert_eq!(first[0].series, second[0].series);
        assert!(first[0].failures.is_empty(), "{:?}", first[0].failures);
        assert_eq!(kept.len(), again.len(), "nothing was run a second time");
        let line = |name: &str| {
            let found = first[0].series.iter().find(|line| line.name == name);
            found.expect(name)
        };
        assert_eq!(line("TCP over WiFi").points.len(), 2);
        assert!(line("TCP over WiFi").points[1][1] > 5.0);
    }

    /// Figure 4(a) with another run.
    fn made_up(run: fn(&Run<'_>) -> Result<Vec<Sample>, String>) -> &'static Figure {
        let figure = find("nsdi-4a").expect("it is there");
        Box::leak(Box::new(Figure { run, ..*figure }))
    }

    fn simulated(sweep: &str) -> Options {
        Options {
            arms: Arms::One(Arm::Sim),
            quiet: true,
            sweep: Some(sweep.to_owned()),
            ..Options::default()
        }
    }

    #[test]
    fn a_kept_run_lies_where_the_axis_of_today_has_it() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let figure = made_up(|run| Ok(run.point(run.knobs.get("buffer"))));
        // By default the buffer has 200 kB and WiFi 8 Mbit/s: the second figure has the run of the first.
        let places = ["buffer=200k", "wifi.rate=8mbit,16mbit"].map(|sweep| {
            let options = Options {
                keep: Some(folder.path().to_owned()),
                ..simulated(sweep)
            };
            let made = make(&[figure], &options).expect("nothing is needed for it");
            let points = made[0].series[0].points.iter();
            points.map(|point| point[0]).collect::<Vec<f64>>()
        });
        assert_eq!(places, [vec![200.0], vec![8.0, 16.0]]);
    }

    #[test]
    fn what_fails_after_ctrl_c_was_not_made() {
        let figure = made_up(|run| {
            assert_eq!(run.go_on(), Ok(()), "it begins before");
            run.stop.store(true, Ordering::Relaxed);
            run.go_on()?;
            Ok(Vec::new())
        });
        let options = Options {
            jobs: NonZero::new(1),
            ..simulated("buffer=200k")
        };
        let made = make(&[figure], &options).expect("nothing is needed for it");
        assert!(made[0].interrupted && made[0].failures.is_empty());
    }

    #[test]
    fn what_is_no_number_is_a_failure() {
        let figure = made_up(|run| Ok(run.point(f64::NAN)));
        let made = make(&[figure], &simulated("buffer=200k")).expect("nothing is needed for it");
        assert!(made[0].series.is_empty());
        let why = &made[0].failures[0];
        assert!(why.contains("no number came out"), "{why}");
    }

    #[test]
    fn what_runs_in_real_time_leaves_room_to_others() {
        let at_one_time = |share: Share| {
            [None, NonZero::new(1), NonZero::new(16)].map(|jobs| share.at_one_time(jobs, 2))
        };
        assert_eq!(at_one_time(Share::Core), [2, 1, 16]);
        assert_eq!(at_one_time(Share::Little), [6, 1, 2]);
        assert_eq!(at_one_time(Share::All), [1, 1, 1]);
        let shares = |id: &str, set: &str| {
            let figure = find(id).expect("it is there");
            let request = Request {
                set: vec![set.to_owned()],
                ..Request::default()
            };
            let plan = plan::of(figure, &request).expect(set);
            let real = plan.runs.iter().find(|run| run.arm == Arm::Real);
            share_of(figure, real.expect("it has real packets"))
        };
        for (id, set, share) in [
            ("nsdi-4a", "wifi.rate=48mbit", Share::Little),
            ("nsdi-4a", "wifi.rate=1gbit", Share::All),
            ("smapp-2a", "rate=25mbit", Share::Little),
            ("smapp-2a", "rate=26mbit", Share::All),
            ("smapp-2c", "rate=13mbit", Share::All),
            ("pathfinder-2", "rate=17mbit", Share::All),
        ] {
            assert_eq!(shares(id, set), share, "{id} with {set}");
        }
    }
}
