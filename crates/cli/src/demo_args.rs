//! The command line of `demo`.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::exit::{Ends, codes};

pub(crate) const DEMO_EXAMPLES: &str = "\
Two emulated paths (8 Mbit/s with 20 ms, 2 Mbit/s with 150 ms), a stock web server at the far end, and a stock curl that downloads
a file from it while the fast path is cut for some seconds: with manypath at both ends, at the client's end alone, with the
kernel's Multipath TCP at both ends, and over plain TCP on each path alone. Less than two minutes, no root needed, nothing is left behind.

Examples:
  manypath demo
  manypath demo --quick --out page.html";

#[derive(Debug, Args)]
#[command(after_help = DEMO_EXAMPLES, after_long_help = format!("{DEMO_EXAMPLES}\n\n{}", codes(Ends::Lab, "the download was not whole, or a file could not be written")))]
pub(crate) struct DemoArgs {
    /// A smaller file and a shorter cut
    #[arg(long)]
    pub(crate) quick: bool,

    /// Where the page with the charts goes [default: manypath-demo.html]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) out: Option<PathBuf>,

    /// The result as JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}
