//! Figures of the papers, made anew in the simulator: runs, comma-separated values, a drawing, and a page that puts what the
//! paper shows beside what came out.

mod draw;
mod nsdi;

use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::interrupt;
use crate::parallel::on_all_cores;

/// A figure that can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figure {
    /// How it is asked for.
    pub id: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// What the paper's figure shows, with its values where it gives them.
    pub paper: &'static str,
    /// The axes.
    pub axes: [&'static str; 2],
    /// The horizontal axis is logarithmic.
    pub logarithmic: bool,
    kind: nsdi::Kind,
}

/// Every figure there is.
#[must_use]
pub fn all() -> &'static [Figure] {
    nsdi::FIGURES
}

/// The figure of that name.
#[must_use]
pub fn find(id: &str) -> Option<&'static Figure> {
    all().iter().find(|figure| figure.id == id)
}

/// One line of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// Its points, by rising first coordinate.
    pub points: Vec<[f64; 2]>,
}

impl Series {
    fn at(&self, x: f64) -> Option<f64> {
        let found = self.points.iter().find(|point| (point[0] - x).abs() < 1e-9);
        found.map(|point| point[1])
    }
}

/// What came out.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// The figure.
    pub id: String,
    /// What it shows.
    pub title: String,
    /// What the paper's shows.
    pub paper: String,
    /// How ours agrees with it, in a sentence.
    pub agreement: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Somebody stopped it before the last run.
    pub interrupted: bool,
}

/// Why a figure could not be made.
#[derive(Debug, thiserror::Error)]
pub enum FigureError {
    /// A run does not fit the simulator: a fault of the figure.
    #[error("{id}: {what}")]
    Run {
        /// The figure.
        id: &'static str,
        /// What is wrong.
        what: String,
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

/// Makes a figure; `quick` takes fewer points and shorter runs.
pub fn run(
    figure: &'static Figure,
    quick: bool,
    jobs: Option<NonZero<usize>>,
) -> Result<Outcome, FigureError> {
    interrupt::stoppable(|stop| run_until(figure, quick, jobs, stop))
}

fn run_until(
    figure: &'static Figure,
    quick: bool,
    jobs: Option<NonZero<usize>>,
    stop: &AtomicBool,
) -> Result<Outcome, FigureError> {
    let tasks = nsdi::tasks(figure.kind, quick);
    let results = on_all_cores(tasks.len(), jobs, stop, |n| tasks[n].run());
    let mut series: Vec<Series> = Vec::new();
    for result in results {
        let points = result.map_err(|what| FigureError::Run {
            id: figure.id,
            what,
        })?;
        for (name, point) in points {
            match series.iter_mut().find(|line| line.name == name) {
                Some(line) => line.points.push(point),
                None => series.push(Series {
                    name,
                    points: vec![point],
                }),
            }
        }
    }
    Ok(Outcome {
        id: figure.id.to_owned(),
        title: figure.title.to_owned(),
        paper: figure.paper.to_owned(),
        agreement: nsdi::agreement(figure.kind, &series),
        series,
        interrupted: stop.load(Ordering::Relaxed),
    })
}

impl Outcome {
    /// The lines as comma-separated values: name, and the two coordinates.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut text = String::from("series,x,y\n");
        for line in &self.series {
            for [x, y] in &line.points {
                text += &format!("{},{x},{y:.4}\n", line.name);
            }
        }
        text
    }

    /// The lines as a table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut xs: Vec<f64> = self
            .series
            .iter()
            .flat_map(|s| &s.points)
            .map(|p| p[0])
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut text = format!("{}: {}\n\n{:>10}", self.id, self.title, "");
        for line in &self.series {
            text += &format!("  {}", line.name);
        }
        text.push('\n');
        for x in xs {
            text += &format!("{x:>10}");
            for line in &self.series {
                let width = line.name.chars().count() + 2;
                let cell = line.at(x).map_or(String::new(), |y| format!("{y:.3}"));
                text += &format!("{cell:>width$}");
            }
            text.push('\n');
        }
        text + &format!("\nthe paper: {}\nhere: {}\n", self.paper, self.agreement)
    }

    /// Writes `ID.csv`, `ID.svg` and `ID.html` into a folder.
    pub fn write(&self, folder: &Path) -> Result<(), FigureError> {
        let file = |path: &Path, source| FigureError::File {
            path: path.to_owned(),
            source,
        };
        std::fs::create_dir_all(folder).map_err(|source| file(folder, source))?;
        let svg = draw::svg(self);
        for (end, text) in [
            ("csv", self.csv()),
            ("html", draw::page(self, &svg)),
            ("svg", svg),
        ] {
            let path = folder.join(format!("{}.{end}", self.id));
            std::fs::write(&path, text).map_err(|source| file(&path, source))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_a_name_of_its_own_and_tasks() {
        for (n, figure) in all().iter().enumerate() {
            assert_eq!(find(figure.id), Some(figure));
            assert!(all()[..n].iter().all(|other| other.id != figure.id));
            let (quick, full) = (
                nsdi::tasks(figure.kind, true),
                nsdi::tasks(figure.kind, false),
            );
            assert!(!quick.is_empty() && quick.len() <= full.len());
        }
        assert_eq!(find("nsdi-99"), None);
    }

    #[test]
    fn a_figure_is_written_whole() {
        let outcome = Outcome {
            id: "x".to_owned(),
            title: "a <title>".to_owned(),
            paper: "a line".to_owned(),
            agreement: "it is one".to_owned(),
            series: vec![Series {
                name: "ours".to_owned(),
                points: vec![[50.0, 1.5], [100.0, 2.0]],
            }],
            interrupted: false,
        };
        assert_eq!(
            outcome.csv(),
            "series,x,y\nours,50,1.5000\nours,100,2.0000\n"
        );
        let folder = tempfile::tempdir().expect("a place for temporary files");
        outcome.write(folder.path()).expect("a folder of our own");
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect("written");
        assert!(read("x.svg").contains("polyline"));
        assert!(read("x.html").contains("a &lt;title&gt;") && read("x.html").contains("it is one"));
    }
}
