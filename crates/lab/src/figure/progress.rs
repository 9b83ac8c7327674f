//! What one sees while runs go on: a bar on a terminal, a line now and then elsewhere.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time between two lines where there is no terminal.
const PERIOD: Duration = Duration::from_secs(15);

/// Shows progress on standard error.
#[derive(Debug)]
pub(super) enum Progress {
    Bar(ProgressBar),
    Lines {
        total: usize,
        state: Mutex<(usize, Instant)>,
    },
    Nothing,
}

impl Progress {
    /// For so many runs.
    pub(super) fn new(total: usize, quiet: bool) -> Self {
        if quiet {
            return Self::Nothing;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines {
                total,
                state: Mutex::new((0, Instant::now() + PERIOD)),
            };
        }
        let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
        let template = "{bar:40.cyan} {pos} of {len} runs, {elapsed} of about {duration}  {msg}";
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
        Self::Bar(bar)
    }

    /// A run begins.
    pub(super) fn begin(&self, what: String) {
        if let Self::Bar(bar) = self {
            bar.set_message(what);
        }
    }

    /// A run is done.
    pub(super) fn step(&self) {
        match self {
            Self::Bar(bar) => bar.inc(1),
            Self::Lines { total, state } => {
                let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
                state.0 += 1;
                if Instant::now() >= state.1 {
                    state.1 = Instant::now() + PERIOD;
                    // Nobody may read there any more; that must not end the runs.
                    let _ = writeln!(std::io::stderr(), "{} of {total} runs", state.0);
                }
            }
            Self::Nothing => {}
        }
    }

    pub(super) fn finish(&self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
