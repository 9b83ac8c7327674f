//! Arguments of `manypath lab figure`.

use std::num::NonZero;
use std::path::PathBuf;

use clap::Args;
use manypath_lab::figure::Arms;

use crate::exit::{Ends, codes};
use crate::words::{self, words};

pub(crate) const FIGURE_EXAMPLES: &str = "\
Examples:
  manypath lab list
  manypath lab figure nsdi-4c --quick
  manypath lab figure nsdi-6a --out figures
      Writes nsdi-6a with the ends csv, json, svg, png and html, which has the paper's result beside ours, and index.html
      with every figure of the folder. Stopped and started again, it goes on with the runs that are missing.
  manypath lab figure nsdi-4a --arm sim --set wifi.rate=20mbit --sweep buffer=50k..1m:12
  manypath lab figure all --quick --out figures";

#[derive(Debug, Args)]
#[command(after_help = FIGURE_EXAMPLES, after_long_help = format!("{FIGURE_EXAMPLES}\n\n{}", codes(Ends::Lab, "a run failed, or a file could not be written")))]
pub(crate) struct FigureArgs {
    /// Which ones, or all; `manypath lab list` names them
    #[arg(value_name = "ID", required = true, value_parser = words::<String>(words::figures_or_all()), hide_possible_values = true)]
    pub(crate) ids: Vec<String>,

    /// Whose stack over what: sim (ours, simulated), process (ours, measured in this process), real (ours on real packets),
    /// kernel (the kernel's on the same), or all that the figure has
    #[arg(long, value_name = "ARM", default_value = "all", value_parser = words::<Arms>(words::ARMS), hide_possible_values = true)]
    pub(crate) arm: Arms,

    /// Fewer points and shorter runs
    #[arg(long)]
    pub(crate) quick: bool,

    /// Give a parameter another value; `manypath lab list ID` shows them
    #[arg(long, value_name = "NAME=VALUE", value_hint = clap::ValueHint::Other)]
    pub(crate) set: Vec<String>,

    /// Put a parameter on the horizontal axis
    #[arg(long, value_name = "NAME=A..B[:POINTS]|A,B,C")]
    pub(crate) sweep: Option<String>,

    /// Runs at one time [default: one for each processor, three on real packets, which mostly wait]. If given, those on real
    /// packets are no more than the processors; those of more than 50 Mbit/s always go one by one
    #[arg(long, value_name = "J")]
    pub(crate) jobs: Option<NonZero<usize>>,

    /// Where the values, the drawings and the pages go, and what finished runs are taken from; what is there of the same figure
    /// is replaced, whatever arms it had, but not by one that was stopped
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub(crate) out: Option<PathBuf>,

    /// Make finished runs again
    #[arg(long, requires = "out")]
    pub(crate) fresh: bool,

    /// The result as JSON on standard output, one line a figure
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Show the parameters, lines and arms of this one
    #[arg(value_name = "ID", value_parser = words::<String>(words::figures()), hide_possible_values = true)]
    pub(crate) id: Option<String>,

    /// As JSON
    #[arg(long)]
    pub(crate) json: bool,
}
