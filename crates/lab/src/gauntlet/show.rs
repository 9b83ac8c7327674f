//! What one sees while seeds run: a bar on a terminal, a line now and then elsewhere, failing seeds as they come.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{FailingSeed, Show};

/// Time between two lines where there is no terminal.
const PERIOD: Duration = Duration::from_secs(10);

/// Shows progress on standard error.
pub(super) enum View {
    Bar(ProgressBar),
    Lines(Mutex<Lines>),
    Nothing,
}

pub(super) struct Lines {
    total: u64,
    done: u64,
    next: Instant,
}

impl View {
    pub(super) fn new(show: Show, total: u64) -> Self {
        match show {
            Show::Nothing => Self::Nothing,
            Show::Auto if std::io::stderr().is_terminal() => {
                let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
                let template =
                    "{bar:40.cyan} {pos} of {len} seeds, {msg}  {elapsed} of about {duration}";
                let style = ProgressStyle::with_template(template)
                    .unwrap_or_else(|_| ProgressStyle::default_bar());
                bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
                bar.set_message("none failed");
                Self::Bar(bar)
            }
            Show::Auto | Show::Lines => Self::Lines(Mutex::new(Lines {
                total,
                done: 0,
                next: Instant::now() + PERIOD,
            })),
        }
    }

    /// A seed is done; so many have failed by now.
    pub(super) fn step(&self, failed: usize) {
        match self {
            Self::Bar(bar) => {
                bar.inc(1);
                if failed > 0 {
                    bar.set_message(format!("{failed} failed"));
                }
            }
            Self::Lines(lines) => {
                let Ok(mut lines) = lines.lock() else { return };
                lines.done += 1;
                if Instant::now() >= lines.next {
                    lines.next = Instant::now() + PERIOD;
                    tell(&format!(
                        "{} of {} seeds, {failed} failed",
                        lines.done, lines.total
                    ));
                }
            }
            Self::Nothing => {}
        }
    }

    /// A seed failed.
    pub(super) fn failed(&self, failing: &FailingSeed) {
        match self {
            Self::Bar(bar) => bar.println(failing.to_string()),
            Self::Lines(_) => tell(&failing.to_string()),
            Self::Nothing => {}
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}

/// Writes a line. Nobody may read there any more; that must not end the runs.
fn tell(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
