//! Figures of the papers, made anew: runs, comma-separated values, drawings, and pages that put what the paper shows beside
//! what came out on up to four arms.
//!
//! A figure is data, a [`Figure`]: what its axes are, which parameters it has, which lines on which arms, what the paper
//! says, one function that makes one run, and one that judges what came out. Everything else is common: which runs there
//! are (`plan`), on which cores they go and what was finished before (`make`, `store`), what is drawn and written
//! (`draw`, `page`, `outcome`).
//!
//! # To add a figure
//!
//! 1. Take the file of its paper (`nsdi/`, `net11/`) or make one with a `pub(super) const FIGURES: &[Figure]`, and name that
//!    in [`all`].
//! 2. Declare its parameters as [`Knob`]s, each with the value that the paper used, and with `.quick(..)` another one for
//!    `--quick`; with `.measures()` those that say how long or how often it is measured, and nothing else. One of them is the
//!    horizontal axis ([`Across::Knob`]), with its values written as `--sweep` takes them; a distribution has
//!    [`Across::Measured`] instead. So `--set` and `--sweep` work by themselves. A rate that several paths have says so with
//!    `.each_of(..)`: what carries much runs alone.
//! 3. Declare its [`Line`]s: the name, the arms on which it exists, and who talks ([`Does`]). A line has one colour on
//!    every arm.
//! 4. Write `run`: one run of one line on one arm at one value, as a function of [`Run`] alone; no global state, for many run
//!    at one time. It returns points, of its own line or of others (goodput and throughput of one run). A transfer over
//!    parallel paths on any arm is `transfer::goodput`; `sim`, `real` and `process` have what it is made of. One that repeats
//!    something asks [`Run::go_on`] before each time.
//! 5. Write `verdict`: for each statement of the paper a [`Finding`] that says what was seen, and whether it holds. It is
//!    a pure function of [`Seen`]; test it with numbers made up.
//! 6. Put into [`Paper`] what the paper says, and as `lines` the values that it gives, in the units of the axes.
//!
//! Figures that cost more than half a minute with `--quick` on two cores make the gallery slower than anybody waits.

mod arm;
mod compare;
mod cost;
mod crowd;
mod draw;
mod emulator;
mod ends;
mod knob;
mod make;
mod memo;
mod net11;
mod nsdi;
mod outcome;
mod page;
mod pathfinder;
mod plan;
mod process;
mod progress;
mod proxy;
mod real;
mod requests;
mod routed;
mod sim;
mod smapp;
mod store;
mod transfer;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use arm::{Arm, Arms};
pub use compare::{Finding, Seen};
pub use knob::{Knob, KnobError, Knobs, Unit};
pub use make::{Options, make};
pub use outcome::{Outcome, Series};
pub use page::gallery;

use crate::netns::NetNsError;

/// A figure as data.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// How it is asked for.
    pub id: &'static str,
    /// Which figure of which paper.
    pub source: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper says.
    pub paper: Paper,
    /// Its parameters.
    pub knobs: &'static [Knob],
    /// The horizontal axis.
    pub x: Across,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub lines: &'static [Line],
    /// How much its runs on real packets take of the machine.
    pub load: Load,
    /// Makes one run.
    pub run: fn(&Run<'_>) -> Result<Vec<Sample>, String>,
    /// Holds what came out against what the paper says.
    pub verdict: fn(&Seen<'_>) -> Vec<Finding>,
}

/// What a paper says about its figure.
#[derive(Debug, Clone, Copy)]
pub struct Paper {
    /// In words.
    pub says: &'static str,
    /// The values that its text gives, in the units of the axes, by the names of the lines.
    pub lines: &'static [PaperLine],
}

/// Published values of one line.
#[derive(Debug, Clone, Copy)]
pub struct PaperLine {
    /// The name of the line that shows the same.
    pub name: &'static str,
    /// The values.
    pub points: &'static [[f64; 2]],
}

/// The horizontal axis.
#[derive(Debug, Clone, Copy)]
pub enum Across {
    /// A parameter.
    Knob {
        /// Its name.
        name: &'static str,
        /// Its values with `--quick`, as after `--sweep NAME=`.
        quick: &'static str,
        /// Its values otherwise.
        full: &'static str,
        /// Drawn by logarithms.
        logarithmic: bool,
    },
    /// What is measured: a distribution.
    Measured(Axis),
}

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axis {
    /// What it shows and in which unit.
    pub label: &'static str,
    /// Drawn by logarithms.
    pub logarithmic: bool,
}

impl Axis {
    /// An axis with even steps.
    #[must_use]
    pub const fn linear(label: &'static str) -> Self {
        Self {
            label,
            logarithmic: false,
        }
    }

    /// An axis by logarithms.
    #[must_use]
    pub const fn logarithmic(label: &'static str) -> Self {
        Self {
            label,
            logarithmic: true,
        }
    }
}

/// A line of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line {
    /// Its name.
    pub name: &'static str,
    /// The arms that have it.
    pub arms: &'static [Arm],
    /// Who talks.
    pub does: Does,
}

/// Who talks, in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Does {
    /// Plain TCP over one of the paths, counted from zero.
    Tcp(usize),
    /// Multipath TCP over all of them, with these options by the names that scenarios and the command share.
    Multipath(&'static [(&'static str, &'static str)]),
    /// What the figure makes of it.
    Own(&'static str),
}

/// What runs on real packets take of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Little: several at one time do not disturb each other.
    Light,
    /// Much: each runs alone.
    Heavy,
}

/// One run to make.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// On which arm.
    pub arm: Arm,
    /// For which line.
    pub line: Line,
    /// With which parameters; the one that the horizontal axis shows among them.
    pub knobs: &'a Knobs,
    /// Its place on the horizontal axis, in the unit that is drawn; 0 for distributions.
    pub x: f64,
    /// Fewer repetitions are wanted.
    pub quick: bool,
    /// Somebody said how many runs may go at one time: a run makes one network at a time.
    pub one_network: bool,
    /// The `manypath` program, for ends that are processes of their own.
    pub program: &'a Path,
    /// Somebody wants to stop; see [`Run::go_on`].
    pub stop: &'a AtomicBool,
}

impl Run<'_> {
    /// A point of this run's own line.
    #[must_use]
    pub fn point(&self, y: f64) -> Vec<Sample> {
        vec![self.sample(self.line.name, y)]
    }

    /// An error once somebody wants to stop. A run of many repetitions asks before each.
    ///
    /// # Errors
    /// Such a run counts as not made, not as failed.
    pub fn go_on(&self) -> Result<(), String> {
        match self.stop.load(Ordering::Relaxed) {
            true => Err("stopped".to_owned()),
            false => Ok(()),
        }
    }

    /// A point of a line at this run's place.
    #[must_use]
    pub fn sample(&self, line: &str, y: f64) -> Sample {
        Sample {
            line: line.to_owned(),
            at: [self.x, y],
        }
    }
}

/// A point of a line.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Sample {
    /// Which line.
    pub line: String,
    /// Where.
    pub at: [f64; 2],
}

/// Every figure there is.
pub fn all() -> impl Iterator<Item = &'static Figure> {
    let emulator = std::slice::from_ref(&emulator::FIGURE);
    [
        nsdi::FIGURES,
        net11::FIGURES,
        smapp::FIGURES,
        pathfinder::FIGURES,
        proxy::FIGURES,
        emulator,
    ]
    .into_iter()
    .flatten()
}

/// The figure of that name.
#[must_use]
pub fn find(id: &str) -> Option<&'static Figure> {
    all().find(|figure| figure.id == id)
}

impl Figure {
    /// The arms that have a line of it.
    #[must_use]
    pub fn arms(&self) -> Vec<Arm> {
        let has = |arm: &Arm| self.lines.iter().any(|line| line.arms.contains(arm));
        Arm::ALL.into_iter().filter(has).collect()
    }
}

/// Why a figure could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A parameter is wrong.
    #[error(transparent)]
    Knob(#[from] KnobError),
    /// None of the figures has that arm.
    #[error("{id} has no arm '{arm}'; it has {known}")]
    Arm {
        /// The figure.
        id: &'static str,
        /// The arm.
        arm: Arm,
        /// What there is.
        known: String,
    },
    /// The wanted arm needs namespaces, and there are none.
    #[error(transparent)]
    Network(#[from] NetNsError),
    /// Our own program could not be found.
    #[error("cannot find our own program: {0}")]
    Program(std::io::Error),
    /// Results cannot go there.
    #[error("{} is no folder", .0.display())]
    NoFolder(PathBuf),
    /// A file of an earlier figure cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    Unreadable {
        /// Which one.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// A file could not be written.
    #[error("cannot write {}: {source}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_whole() {
        for (n, figure) in all().enumerate() {
            let id = figure.id;
            assert!(all().skip(n + 1).all(|other| other.id != id), "{id} twice");
            assert!(!figure.arms().is_empty(), "{id} has no arm");
            assert!(!figure.paper.says.is_empty() && !figure.title.is_empty());
            let _ = Knobs::of(figure.knobs);
            for quick in [true, false] {
                let request = plan::Request {
                    quick,
                    ..plan::Request::default()
                };
                let plan = plan::of(figure, &request).expect(id);
                assert!(!plan.runs.is_empty(), "{id}");
            }
            // Judging nothing must not fail: a figure may be stopped before its first run.
            let _ = (figure.verdict)(&Seen::of(&[]));
            for line in figure.paper.lines {
                assert!(!line.points.is_empty(), "{id}: {}", line.name);
            }
        }
        assert!(find("nsdi-99").is_none());
    }

    /// A run of a figure's first line in the simulator.
    fn first<'a>(figure: &Figure, knobs: &'a Knobs, stop: &'a AtomicBool) -> Run<'a> {
        Run {
            arm: Arm::Sim,
            line: figure.lines[0],
            knobs,
            x: 0.0,
            quick: true,
            one_network: true,
            program: Path::new("manypath"),
            stop,
        }
    }

    #[test]
    fn whoever_stops_waits_for_one_repetition_and_not_for_all() {
        let stop = AtomicBool::new(true);
        for id in [
            "smapp-2a-gaps",
            "smapp-2b",
            "smapp-2c",
            "pathfinder-3",
            "net11-4",
        ] {
            let figure = find(id).expect(id);
            let knobs = Knobs::of(figure.knobs);
            let run = first(figure, &knobs, &stop);
            assert_eq!((figure.run)(&run), Err("stopped".to_owned()), "{id}");
        }
    }

    #[test]
    fn costs_are_those_of_what_was_asked_for_or_none() {
        let stop = AtomicBool::new(false);
        let figure = find("nsdi-3").expect("it is there");
        for (name, value, why) in [("packets", 10.0, "too few"), ("mss", 1e5, "no IP packet")] {
            let mut knobs = Knobs::of(figure.knobs);
            knobs.put(name, value);
            let told = (figure.run)(&first(figure, &knobs, &stop));
            assert!(
                told.as_ref().is_err_and(|told| told.contains(why)),
                "{told:?}"
            );
        }
    }
}
