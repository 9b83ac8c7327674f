//! What came out of a figure: lines, findings, and the files that hold them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::make::Result1;
use super::plan::Plan;
use super::{Arm, FigureError, Finding, Seen, draw, page};
use crate::whole::write_whole;

/// One line of a figure on one arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The arm.
    pub arm: Arm,
    /// Its name.
    pub name: String,
    /// Its points, by rising first coordinate.
    pub points: Vec<[f64; 2]>,
}

impl Series {
    /// A line made by hand, for what is said of it.
    #[cfg(test)]
    pub(super) fn of(arm: Arm, name: &str, points: &[[f64; 2]]) -> Self {
        Self {
            arm,
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }

    /// The value at a place.
    #[must_use]
    pub fn at(&self, x: f64) -> Option<f64> {
        let found = self
            .points
            .iter()
            .find(|point| (point[0] - x).abs() <= 1e-9 * x.abs().max(1.0));
        found.map(|point| point[1])
    }
}

/// Values that a paper gives, as a line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The line that shows the same.
    pub name: String,
    /// The values.
    pub points: Vec<[f64; 2]>,
}

/// An axis as it is drawn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drawn {
    /// What it shows, with its unit.
    pub label: String,
    /// By logarithms.
    pub logarithmic: bool,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The figure.
    pub id: String,
    /// Which figure of which paper it is.
    pub source: String,
    /// What it shows.
    pub title: String,
    /// What the paper says.
    pub paper: String,
    /// The values that the paper gives, if its axis and its network are those here.
    pub published: Vec<Published>,
    /// How what came out agrees with it, in a sentence.
    pub agreement: String,
    /// Statement by statement.
    pub findings: Vec<Finding>,
    /// The axes.
    pub axes: [Drawn; 2],
    /// The lines.
    pub series: Vec<Series>,
    /// The parameters that were the same for all runs, as `--set` takes them.
    pub parameters: String,
    /// Arms that could not be had, and why.
    pub skipped: Vec<String>,
    /// Runs that gave nothing, and why.
    pub failures: Vec<String>,
    /// Fewer points and shorter runs.
    pub quick: bool,
    /// What one types to get it again, but for where it is put; empty in files of older versions.
    #[serde(default)]
    pub command: String,
    /// Somebody stopped it before the last run.
    pub interrupted: bool,
}

/// Characters of the narrowest column of a table.
const LEAST_COLUMN: usize = 8;

impl Outcome {
    /// Puts together what the runs gave.
    pub(super) fn of(plan: &Plan, quick: bool, results: Vec<Result1>) -> Self {
        let figure = plan.figure;
        let mut series: Vec<Series> = Vec::new();
        let (mut failures, mut failed) = (Vec::new(), Vec::new());
        for (run, result) in results {
            let samples = result.unwrap_or_else(|why| {
                failures.push((run.words(), why));
                failed.push(run.arm);
                Vec::new()
            });
            for sample in samples {
                let same = |line: &&mut Series| line.arm == run.arm && line.name == sample.line;
                match series.iter_mut().find(same) {
                    Some(line) => line.points.push(sample.at),
                    None => series.push(Series {
                        arm: run.arm,
                        name: sample.line,
                        points: vec![sample.at],
                    }),
                }
            }
        }
        for line in &mut series {
            line.points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        }
        series.sort_by_key(|line| line.arm);
        let (findings, agreement) = if plan.own {
            judged(plan, &series, &failed)
        } else {
            let why = "parameters were changed: the paper's statements are not about this network.";
            (Vec::new(), why.to_owned())
        };
        // They belong to the paper's axis and network alone.
        let published = figure.paper.lines.iter().filter(|_| plan.own);
        let published = published.map(|line| Published {
            name: line.name.to_owned(),
            points: line.points.to_vec(),
        });
        Self {
            id: figure.id.to_owned(),
            source: figure.source.to_owned(),
            title: figure.title.to_owned(),
            paper: figure.paper.says.to_owned(),
            published: published.collect(),
            agreement,
            findings,
            axes: [
                Drawn {
                    label: plan.across.clone(),
                    logarithmic: plan.logarithmic,
                },
                Drawn {
                    label: figure.y.label.to_owned(),
                    logarithmic: figure.y.logarithmic,
                },
            ],
            series,
            parameters: plan.parameters.clone(),
            skipped: Vec::new(),
            failures: told_once(failures),
            quick,
            command: plan.command.clone(),
            interrupted: false,
        }
    }

    /// Somebody stopped it before the last run: what is there says nothing for or against a statement.
    pub(super) fn interrupted(self) -> Self {
        Self {
            findings: Vec::new(),
            agreement: "stopped before all runs were done: nothing is held against the paper."
                .to_owned(),
            interrupted: true,
            ..self
        }
    }

    /// The arms on which anything came out.
    #[must_use]
    pub fn arms(&self) -> Vec<Arm> {
        Seen::of(&self.series).arms().collect()
    }

    /// The names of the lines, each once, in their order.
    pub(super) fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let published = self.published.iter().map(|line| line.name.as_str());
        for name in self
            .series
            .iter()
            .map(|line| line.name.as_str())
            .chain(published)
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The lines as comma-separated values: arm, name, and the two coordinates under the labels of their axes, which have their
    /// units. The paper's values are an arm of their own.
    #[must_use]
    pub fn csv(&self) -> String {
        let quoted = |text: &str| match text.contains([',', '"', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text.to_owned(),
        };
        let [x, y] = [0, 1].map(|n| quoted(&self.axes[n].label));
        let mut text = format!("arm,line,{x},{y}\n");
        let ours = self
            .series
            .iter()
            .map(|line| (line.arm.name(), &line.name, &line.points));
        let papers = self
            .published
            .iter()
            .map(|line| ("paper", &line.name, &line.points));
        for (arm, name, points) in ours.chain(papers) {
            let name = quoted(name);
            for [x, y] in points {
                text += &format!("{arm},{name},{x},{y}\n");
            }
        }
        text
    }

    /// The lines as tables for people, one an arm, and how they agree.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = format!("{}: {} ({})\n", self.id, self.title, self.source);
        for arm in self.arms() {
            text += &format!(
                "\n{} - {} over {}\n",
                arm.title(),
                self.axes[1].label,
                self.axes[0].label
            );
            text += &self.table_of(arm);
        }
        text += &format!("\nthe paper: {}\nhere: {}\n", self.paper, self.agreement);
        for finding in &self.findings {
            let mark = if finding.holds { "+" } else { "-" };
            text += &format!("  {mark} {}: {}\n", finding.statement, finding.seen);
        }
        for line in self.skipped.iter().chain(&self.failures) {
            text += &format!("  ! {line}\n");
        }
        text
    }

    fn table_of(&self, arm: Arm) -> String {
        let lines: Vec<&Series> = self.series.iter().filter(|line| line.arm == arm).collect();
        let mut xs: Vec<f64> = lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point[0])
            .collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let width_of = |line: &Series| line.name.chars().count().max(LEAST_COLUMN) + 2;
        let mut text = format!("{:>10}", "");
        for line in &lines {
            text += &format!("{:>width$}", line.name, width = width_of(line));
        }
        text.push('\n');
        for x in xs {
            text += &format!("{:>10}", number(x));
            for line in &lines {
                let width = width_of(line);
                let cell = line.at(x).map_or(String::new(), number);
                text += &format!("{cell:>width$}");
            }
            text.push('\n');
        }
        text
    }

    /// Whether its files belong into a folder: one that was stopped takes no finished one's place there, and without any
    /// point it has nothing to show.
    #[must_use]
    pub fn belongs_in(&self, folder: &Path) -> bool {
        let free = || match page::read(folder, &self.id) {
            Ok(there) => there.is_none_or(|there| there.interrupted),
            // Nobody knows what it is.
            Err(_) => false,
        };
        !self.interrupted || !self.series.is_empty() && free()
    }

    /// Writes `ID.csv`, `ID.json`, `ID.svg`, `ID.png` and `ID.html` into a folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<(), FigureError> {
        let write = |end: &str, bytes: &[u8]| {
            let path = folder.join(format!("{}.{end}", self.id));
            write_whole(&path, bytes).map_err(|source| FigureError::File { path, source })
        };
        std::fs::create_dir_all(folder).map_err(|source| FigureError::File {
            path: folder.to_owned(),
            source,
        })?;
        let svg = draw::svg(self);
        write("csv", self.csv().as_bytes())?;
        // Plain data: writing it cannot fail.
        write(
            "json",
            serde_json::to_string_pretty(self)
                .unwrap_or_default()
                .as_bytes(),
        )?;
        write("html", page::page(self, &svg).as_bytes())?;
        write("png", &draw::png(&svg))?;
        write("svg", svg.as_bytes())
    }
}

/// What became of the statements on the arms whose runs are all there: what is missing may be where one does not hold.
fn judged(plan: &Plan, series: &[Series], failed: &[Arm]) -> (Vec<Finding>, String) {
    let whole = |line: &&Series| !failed.contains(&line.arm);
    let whole: Vec<Series> = series.iter().filter(whole).cloned().collect();
    let findings = (plan.figure.verdict)(&Seen::of(&whole).with(&plan.knobs));
    let mut text = agreement(&findings);
    for arm in Arm::ALL {
        match failed.iter().filter(|other| **other == arm).count() {
            0 => {}
            count => text += &format!(" Not judged: {} (runs missing: {count}).", arm.title()),
        }
    }
    (findings, text)
}

/// Runs that gave nothing, each with its reason: one line for each reason, which may be that of a hundred.
fn told_once(failures: Vec<(String, String)>) -> Vec<String> {
    let mut reasons: Vec<(String, String, usize)> = Vec::new();
    for (run, why) in failures {
        match reasons.iter_mut().find(|(_, known, _)| *known == why) {
            Some((_, _, others)) => *others += 1,
            None => reasons.push((run, why, 0)),
        }
    }
    let line = |(run, why, others): (String, String, usize)| match others {
        0 => format!("{run}: {why}"),
        _ => format!("{run}, and {others} more: {why}"),
    };
    reasons.into_iter().map(line).collect()
}

/// A number with as many digits as anybody reads.
pub(super) fn number(value: f64) -> String {
    let text = match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 0.1 => format!("{value:.3}"),
        _ => format!("{value:.6}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The findings in a sentence.
fn agreement(findings: &[Finding]) -> String {
    let broken: Vec<String> = findings
        .iter()
        .filter(|finding| !finding.holds)
        .map(|finding| format!("{}: {}", finding.statement, finding.seen))
        .collect();
    let count = findings.len();
    match (count, broken.as_slice()) {
        (0, _) => "nothing came out that could be held against the paper.".to_owned(),
        (1, []) => format!(
            "the one statement that was checked, the paper's or our own, is so: {}.",
            findings[0].seen
        ),
        (_, []) => {
            format!("all {count} statements that were checked, the paper's and our own, are so.")
        }
        (_, broken) => format!(
            "{} of {count} statements that were checked, the paper's and our own, are so; not so: {}.",
            count - broken.len(),
            broken.join("; ")
        ),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Sample;
    use super::super::plan::{self, Planned, Request};
    use super::*;

    /// A figure with two arms and a paper.
    pub(in super::super) fn made_up() -> Outcome {
        let line = Series::of;
        let findings = vec![
            Finding::new(Arm::Sim, "never below", "1.02 times".to_owned(), true),
            Finding::new(Arm::Kernel, "never below", "0.31 times".to_owned(), false),
        ];
        Outcome {
            id: "x".to_owned(),
            source: "A paper, figure 1".to_owned(),
            title: "a <title>".to_owned(),
            paper: "a line".to_owned(),
            published: vec![Published {
                name: "M1,2".to_owned(),
                points: vec![[100.0, 2.5]],
            }],
            agreement: agreement(&findings),
            findings,
            axes: ["buffer (kB)", "Mbit/s"].map(|label| Drawn {
                label: label.to_owned(),
                logarithmic: false,
            }),
            series: vec![
                line(Arm::Sim, "M1,2", &[[50.0, 1.5], [100.0, 2.0]]),
                line(Arm::Sim, "TCP", &[[50.0, 1.0], [100.0, 1.25]]),
                line(Arm::Kernel, "TCP", &[[50.0, 0.5]]),
            ],
            parameters: "time=10".to_owned(),
            skipped: Vec::new(),
            failures: vec!["one run".to_owned()],
            quick: true,
            command: "manypath lab figure made-up --quick".to_owned(),
            interrupted: false,
        }
    }

    /// What comes of figure 4 of NETWORKING 2011 with these words, if all runs give so much, or fail.
    fn shares(set: &str, sweep: &str, result: fn(&Planned) -> Result<f64, String>) -> Outcome {
        let words = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let request = Request {
            set: words(set).into_iter().collect(),
            sweep: words(sweep),
            ..Request::default()
        };
        let figure = super::super::find("net11-4").expect("it is there");
        let plan = plan::of(figure, &request).expect("it has these parameters");
        let sample = |run: &Planned, y: f64| Sample {
            line: run.line.name.to_owned(),
            at: [run.x, y],
        };
        let runs = plan.runs.iter();
        let results = runs.map(|run| (run.clone(), result(run).map(|y| vec![sample(run, y)])));
        Outcome::of(&plan, false, results.collect())
    }

    #[test]
    fn the_papers_values_are_shown_on_the_papers_axis_and_network_alone() {
        let published = |set, sweep| shares(set, sweep, |_| Ok(50.0)).published.len();
        assert_eq!(published("", ""), 2);
        assert_eq!(published("", "others=1,3"), 2);
        assert_eq!(published("rate=10mbit", ""), 0);
        assert_eq!(published("", "subflows=1..4"), 0);
    }

    #[test]
    fn an_arm_with_a_failure_is_not_judged() {
        let whole = shares("", "", |_| Ok(50.0));
        assert!(!whole.findings.is_empty() && !whole.agreement.contains("Not judged"));
        let failed = shares("", "", |run| match run.x {
            1.0 => Err("no".to_owned()),
            _ => Ok(50.0),
        });
        assert!(failed.findings.is_empty() && !failed.series.is_empty());
        let run = &failed.failures[0];
        assert!(
            run.contains(" others=1 ") && run.contains(" rtt=40ms "),
            "{run}"
        );
        let told = &failed.agreement;
        assert!(
            told.contains("Not judged: ours, simulated (runs missing: "),
            "{told}"
        );
    }

    #[test]
    fn one_that_was_stopped_takes_no_finished_ones_place() {
        let folder = tempfile::tempdir().expect("a place for temporary files");
        let (whole, part) = (made_up(), made_up().interrupted());
        let nothing = Outcome {
            series: Vec::new(),
            ..part.clone()
        };
        assert!(!nothing.belongs_in(folder.path()) && part.belongs_in(folder.path()));
        part.write(folder.path()).expect("a folder of our own");
        assert!(part.belongs_in(folder.path()), "it was a part before");
        whole.write(folder.path()).expect("a folder of our own");
        assert!(whole.belongs_in(folder.path()) && !part.belongs_in(folder.path()));
        std::fs::write(folder.path().join("x.json"), "{").expect("a folder of our own");
        assert!(
            !part.belongs_in(folder.path()),
            "what is there, nobody knows"
        );
    }

    #[test]
    fn values_are_written_to_the_last_digit() {
        let mut outcome = made_up();
        outcome.series[0].points = vec![[0.1, 1_234.567_891]];
        assert!(
            outcome.csv().contains(",0.1,1234.567891\n"),
            "{}",
            outcome.csv()
        );
    }

    #[test]
    fn lines_are_told_arm_by_arm() {
        let outcome = made_up();
        assert_eq!(
            outcome.csv(),
            "arm,line,buffer (kB),Mbit/s\nsim,\"M1,2\",50,1.5\nsim,\"M1,2\",100,2\nsim,TCP,50,1\nsim,TCP,100,1.25\nkernel,TCP,50,0.5\n\
             paper,\"M1,2\",100,2.5\n"
        );
        let table = outcome.table();
        assert!(table.contains("Linux kernel") && table.contains("- never below: 0.31"));
        assert!(
            outcome.agreement.starts_with("1 of 2"),
            "{}",
            outcome.agreement
        );
        assert_eq!(outcome.names(), ["M1,2", "TCP"]);
    }

    #[test]
    fn a_reason_is_told_once() {
        let failure = |run: &str, why: &str| (run.to_owned(), why.to_owned());
        let told = told_once(vec![
            failure("real | a", "no nft"),
            failure("real | b", "too slow"),
            failure("kernel | c", "no nft"),
            failure("kernel | d", "no nft"),
        ]);
        assert_eq!(told, ["real | a, and 2 more: no nft", "real | b: too slow"]);
    }

    #[test]
    fn numbers_are_short() {
        let cases = [
            (0.0, "0"),
            (1234.56, "1235"),
            (7.5, "7.5"),
            (0.000_25, "0.00025"),
        ];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }
}
