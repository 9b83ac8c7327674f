//! `manypath demo`.

use manypath_lab::demo::{self, DemoError, Options, Show};

use crate::commands::{namespace_failure, print_json, print_text};
use crate::demo_args::DemoArgs;
use crate::exit::{Code, Failure};

/// Shows the demo and its result. It may replace this process, so it comes before any thread or runtime.
pub(crate) fn run(args: DemoArgs) -> Result<(), Failure> {
    let options = Options {
        quick: args.quick,
        out: args.out,
        show: Show::Auto,
        program: None,
    };
    let report = demo::run(&options).map_err(failure)?;
    // After a minute and a half nobody wants to lose the result because one of the two places for it is full.
    let page = demo::write_page(&options, &report).map_err(failure);
    if args.json {
        print_json(&report)?;
    } else {
        print_text(&format!("{}\n", report.table()))?;
        if let Ok(page) = &page {
            print_text(&format!(
                "The rate of each path over time: {}\n",
                page.display()
            ))?;
        }
    }
    page?;
    if report.intact() {
        Ok(())
    } else {
        Err(Failure::new(
            Code::Failure,
            "the downloaded file differs from the original",
        ))
    }
}

fn failure(error: DemoError) -> Failure {
    let message = error.to_string();
    match error {
        DemoError::Interrupted => Failure::stopped("; everything was taken down"),
        DemoError::Network(network) => namespace_failure(&network),
        DemoError::File { path, source } => Failure::file(&path, &source),
        DemoError::Program { .. } => Failure::new(Code::Failure, message)
            .hint("`make demo` installs what takes part: nginx, curl, mptcpize, iproute2"),
        DemoError::TooSlow { .. } => Failure::new(Code::Failure, message),
    }
}
