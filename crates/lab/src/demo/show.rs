//! What one sees while a download runs: bars on a terminal, a line now and then elsewhere.

use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::report::PathReport;

/// How progress is shown. It always goes to standard error, so that standard output holds the result alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Show {
    /// Bars on a terminal, lines elsewhere.
    #[default]
    Auto,
    /// Lines, whatever standard error is.
    Lines,
    /// Nothing.
    Nothing,
}

/// The state of a download at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment<'a> {
    pub(super) seconds: f64,
    pub(super) bytes: u64,
    /// Bits per second on each path in the last interval.
    pub(super) rates: &'a [f64],
    /// Which path is cut now.
    pub(super) cut: Option<usize>,
}

/// Shows one download.
pub(super) enum View {
    Bars {
        all: MultiProgress,
        total: ProgressBar,
        paths: Vec<ProgressBar>,
    },
    Lines {
        name: String,
        size: u64,
        names: Vec<String>,
        next: f64,
    },
    Nothing,
}

impl View {
    pub(super) fn new(show: Show, name: &str, size: u64, paths: &[PathReport]) -> Self {
        let terminal = std::io::stderr().is_terminal();
        match show {
            Show::Nothing => Self::Nothing,
            Show::Auto if terminal => Self::bars(name, size, paths),
            Show::Auto | Show::Lines => Self::Lines {
                name: name.to_owned(),
                size,
                names: paths.iter().map(|path| path.name.clone()).collect(),
                next: 0.0,
            },
        }
    }

    fn bars(name: &str, size: u64, paths: &[PathReport]) -> Self {
        let style = |template: &str| {
            let style = ProgressStyle::with_template(template)
                .unwrap_or_else(|_| ProgressStyle::default_bar());
            style.progress_chars("█▉▊▋▌▍▎▏ ")
        };
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let total = all.add(ProgressBar::new(size));
        total.set_style(style(
            "{prefix:<28} {bar:40.cyan} {bytes:>10} of {total_bytes}  {elapsed:>3}",
        ));
        total.set_prefix(name.to_owned());
        let paths = paths
            .iter()
            .map(|path| {
                let bar = all.add(ProgressBar::new(path.rate));
                bar.set_style(style("  {prefix:<26} {bar:40.green} {msg}"));
                bar.set_prefix(format!(
                    "{} ({:.0} Mbit/s)",
                    path.name,
                    path.rate as f64 / 1e6
                ));
                bar
            })
            .collect();
        Self::Bars { all, total, paths }
    }

    pub(super) fn update(&mut self, moment: Moment<'_>) {
        match self {
            Self::Bars { total, paths, .. } => {
                total.set_position(moment.bytes);
                for (index, (bar, rate)) in paths.iter().zip(moment.rates).enumerate() {
                    bar.set_position(*rate as u64);
                    bar.set_message(if moment.cut == Some(index) {
                        "cut".to_owned()
                    } else {
                        format!("{:.1} Mbit/s", rate / 1e6)
                    });
                }
            }
            Self::Lines {
                name,
                size,
                names,
                next,
            } => {
                if moment.seconds < *next {
                    return;
                }
                *next = moment.seconds.floor() + 1.0;
                let paths: Vec<String> = names
                    .iter()
                    .zip(moment.rates)
                    .enumerate()
                    .map(|(index, (name, rate))| {
                        if moment.cut == Some(index) {
                            format!("{name} cut")
                        } else {
                            format!("{name} {:.1} Mbit/s", rate / 1e6)
                        }
                    })
                    .collect();
                let percent = moment.bytes as f64 * 100.0 / (*size).max(1) as f64;
                eprintln!(
                    "{name}: {:4.1} s {percent:5.1} %  {}",
                    moment.seconds,
                    paths.join("  ")
                );
            }
            Self::Nothing => {}
        }
    }

    pub(super) fn finish(self, seconds: f64) {
        match self {
            Self::Bars { all, total, paths } => {
                paths.iter().for_each(ProgressBar::finish_and_clear);
                total.finish();
                drop(all);
            }
            Self::Lines { name, .. } => eprintln!("{name}: done in {seconds:.1} s"),
            Self::Nothing => {}
        }
    }
}
